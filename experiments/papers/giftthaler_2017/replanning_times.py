"""Planning and replanning of the IRB 4600 by direct multiple shooting (Giftthaler et al. 2017, fig. 5).

A point-to-point motion of five seconds with 20 shots and RK4 steps of 50 ms, with and without a sphere of 0.5 m that moves through
the path. Start positions vary by up to 0.1 rad per joint. The solver is IPOPT. Plans are computed at 20 Hz; the time of a plan is
the solver's wall-clock time.

Num-Diff: forward differences of the recursions in C; Auto-Diff: CasADi's AD on a tape of scalar operations, where the paper
has generated C code; and the closed form. IPOPT uses the exact Hessian, whose second derivatives are the closed form with
all methods: the methods differ in first derivatives only. (With the gradient-based approximation, the default of the paper's
toolbox, IPOPT stops at 200 iterations.) The methods take turns in each scenario, so that other load affects all of them. One
and two threads in this experiment; one and eight threads of a Xeon E5 in the paper. SNOPT is commercial and omitted; the
paper found it slower than IPOPT and omits its figures. All 20 scenarios are planned. Replanning runs in all of them with
exact derivatives on one thread, otherwise in five.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import problems
from experiments.analysis.environment import with_variable
from experiments.papers.giftthaler_2017 import DERIVATIVES, QUICK_REPLANNING
from experiments.papers.method import Method, ran
from experiments.papers.study import GIFTTHALER, Claim, Comparison, Outcome, times
from experiments.replan.run import require_uninterrupted, setup, simulate
from trajopt.config.build import make_ready
from trajopt.config.config import Config, load_config
from trajopt.config.scenario import MotionSettings

SOURCE = f"{GIFTTHALER}, fig. 5"
CONFIG = Path(problems.__file__).parent / "configs" / "irb4600_replan.toml"
OPTIONS = {"max_iterations": 200, "gradient_tolerance": 1e-4, "constraint_tolerance": 1e-5}
METHODS = {name: Method("dms", "exact", "rk4", backend, OPTIONS) for name, backend in DERIVATIVES.items()}
DEFINITION = [
    "problem.horizon=20",
    "problem.dt=0.25",
    "problem.substeps=5",
    "replan.duration=5.0",
    "replan.period=0.05",
    "replan.mode='converge'",
]
SCENARIOS, FEWER, START = 20, 5, 0.1
"""Number of scenarios; number with replanning by Num-Diff or with two threads; range of start positions [rad]."""
UPDATE = 0.050
"""Time between two measurements of the sphere [s]."""
MAX_ITERATIONS = 15.0


def run(quick: bool) -> Outcome:
    """Measure times and iterations of all plans.

    Quick runs: 24 ms of one scenario without the sphere, NumPy, two shots of one step, one iteration; replanning only with
    the closed form.
    """
    rows = []
    for obstacle in (False,) if quick else (False, True):
        for threads in (1,) if quick else (1, 2):
            with with_variable("TRAJOPT_THREADS", threads):
                for seed in range(1 if quick else SCENARIOS):
                    for method in METHODS:
                        few = seed < FEWER or (method != "Num-Diff" and threads == 1)
                        replans = method == "closed form" if quick else few
                        rows += _plans(method, obstacle, threads, seed, quick, replans)
    return Outcome(rows, _comparisons(rows), partial(_draw, rows), [*_remarks(rows), CLOCK])


CLOCK = (
    "Times are wall-clock times; they include interference from other programs. The methods take turns in each scenario."
    " Published times are from a Xeon E5."
)


def _remarks(rows: list[dict[str, Any]]) -> list[str]:
    """Count the plans that cannot be executed, and state which derivatives differ."""
    plans = Counter(r["method"] for r in rows)
    failed = Counter(r["method"] for r in rows if not r["solved"])
    counts = ", ".join(f"{failed[method]} of {plans[method]} ({method})" for method in plans)
    return [
        f"Plans that failed: {counts}.",
        "All methods have the same Hessian, with the closed form of second derivatives; they differ in first derivatives.",
    ]


def scenario(method: str, obstacle: bool, seed: int, quick: bool) -> Config:
    """Return the configuration of a run."""
    overrides = [*METHODS[method].overrides(), *DEFINITION, f"replan.seed={seed}", *(QUICK_REPLANNING if quick else [])]
    config = load_config(CONFIG, overrides)
    moved = np.random.default_rng(seed).uniform(-START, START, len(config.problem.q0))
    problem = replace(config.problem, q0=tuple((np.array(config.problem.q0) + moved).tolist()))
    if obstacle:
        return replace(config, problem=problem)
    still = replace(config.replan, obstacle=MotionSettings())
    config = replace(config, problem=replace(problem, obstacle=None), replan=still)
    return config.with_engine("numpy") if quick else config


def _plans(method: str, obstacle: bool, threads: int, seed: int, quick: bool, replans: bool) -> list[dict[str, Any]]:
    config = scenario(method, obstacle, seed, quick)
    if not quick and seed == 0:
        make_ready(config, setup(config).task)
    start = setup(config)
    own = METHODS[method]
    common = {
        "method": method,
        "obstacle": obstacle,
        "threads": threads,
        "seed": seed,
        **ran(own.require(start.first_plan)),
    }
    derivatives = sum(r.times.get("derivatives", 0.0) for r in start.first_plan.history)
    first = {
        "stage": "planning",
        "milliseconds": 1e3 * start.first_plan.meta["solve_time"],
        "derivatives [ms]": 1e3 * derivatives,
        "iterations": start.first_plan.iterations,
        "solved": start.first_plan.status.success,
    }
    plans = [
        first,
        *(
            {
                "stage": "replanning",
                "milliseconds": 1e3 * s.seconds,
                "derivatives [ms]": None,
                "iterations": s.iterations,
                "solved": s.success,
            }
            for s in (require_uninterrupted(simulate(start)).solves if replans else ())
        ),
    ]
    return [{**common, **plan} for plan in plans]


def _select(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [r for r in rows if all(r[key] == value for key, value in wanted.items())]


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    again, lines = _select(rows, stage="replanning"), []
    if again:
        most = max((r["milliseconds"] for r in again if r["method"] != "Num-Diff"), default=np.nan)
        mean = float(np.mean([r["iterations"] for r in again]))
        start = "each plan starts from the previous plan, as in the paper"
        hessian = "ours with the exact Hessian; the paper does not name its Hessian and tolerances"
        lines += [
            Comparison(
                "IPOPT iterations of replanning, mean",
                "13 to 15",
                f"{mean:.1f}",
                [Claim("at most 15", mean <= MAX_ITERATIONS)],
                f"{start}; {hessian}",
            ),
            Comparison(
                "replanning with exact derivatives, longest",
                "below 50 ms",
                f"{most:.1f} ms; {_late(again):.1%} of the plans take longer than 50 ms",
                [Claim("below 50 ms", most < 1e3 * UPDATE)],
                f"{start}; Auto-Diff and closed form, 1 and 2 threads; 8 threads in the paper",
            ),
        ]
    for stage in dict.fromkeys(r["stage"] for r in rows):
        for threads in dict.fromkeys(r["threads"] for r in rows):
            same = [r for r in _select(rows, stage=stage, threads=threads) if stage == "planning" or r["seed"] < FEWER]
            means = {m: _mean(_select(same, method=m), "milliseconds") for m in METHODS}
            numeric, exact = means["Num-Diff"], means["Auto-Diff"]
            if numeric and exact:
                counts = {m: _mean(_select(same, method=m), "iterations") for m in METHODS}
                why = ", ".join(f"{m} {t:.1f} ms in {counts[m]:.1f} iterations" for m, t in means.items() if t)
                why += " (means with and without the sphere)"
                if stage == "planning":
                    parts = (_mean(_select(same, method=m), "derivatives [ms]") or 0.0 for m in METHODS)
                    why += f"; derivatives take {', '.join(f'{t:.1f}' for t in parts)} ms of these, the rest is IPOPT"
                lines.append(
                    Comparison(
                        f"{stage}, {threads} threads: Num-Diff / Auto-Diff",
                        "2 x",
                        times(numeric / exact),
                        [Claim("at least 2 x", numeric / exact >= 2.0)],
                        why,
                    )
                )
    return lines


def _late(rows: list[dict[str, Any]]) -> float:
    """Return the fraction of plans with exact derivatives that take longer than UPDATE."""
    return float(np.mean([r["milliseconds"] > 1e3 * UPDATE for r in rows if r["method"] != "Num-Diff"]))


def _mean(rows: list[dict[str, Any]], key: str) -> float | None:
    return float(np.mean([r[key] for r in rows])) if rows else None


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    groups = [(s, o) for s in ("planning", "replanning") for o in (False, True)]
    with figure(path, 1, 2, 10.0, 3.6, "Planning and replanning by DMS [ms], mean and deviation") as axes:
        for axis, threads in zip(axes.flat, (1, 2), strict=True):
            for i, method in enumerate(METHODS):
                for j, (stage, obstacle) in enumerate(groups):
                    own = [
                        r["milliseconds"]
                        for r in _select(rows, stage=stage, obstacle=obstacle, threads=threads, method=method)
                    ]
                    if own:
                        place = j + 0.25 * (i - 1)
                        axis.bar(
                            place,
                            np.mean(own),
                            0.22,
                            yerr=np.std(own),
                            color=COLORS[i],
                            label=method if j == 0 else None,
                        )
            axis.set_ylim(bottom=0.0)
            axis.axhline(1e3 * UPDATE, color="#5b6472", linestyle=":")
            axis.set_xticks(
                range(len(groups)), [f"{s}\n{'with' if o else 'without'} sphere" for s, o in groups], fontsize=7
            )
            axis.set_title(f"{threads} thread" + "s" * (threads > 1))
        legend(axes)
