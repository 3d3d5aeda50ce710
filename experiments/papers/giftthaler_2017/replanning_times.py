"""Planning and replanning of the IRB 4600 by direct multiple shooting (Giftthaler et al. 2017, fig. 5).

A go-to of five seconds, 20 shots, RK4 with steps of 50 ms, with a sphere of 0.5 m that wanders through the way and without it;
starts moved by up to 0.1 rad in each joint, IPOPT.  Plans are made at 20 Hz; the plan's time is that of the solver.  Num-Diff:
forward differences; Auto-Diff: CasADi's C code; and the closed form.  One and two threads here; one and eight there, a Xeon E5.
All 20 scenarios are planned; replanning runs in all of them with generated derivatives on one thread, else in five.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import problems
from experiments.analysis.environment import with_variable
from experiments.config.build import make_ready
from experiments.config.config import Config, load_config
from experiments.papers.study import GIFTTHALER, Comparison, Outcome, times
from experiments.replan.run import setup, simulate, whole

SOURCE = f"{GIFTTHALER}, fig. 5"
CONFIG = Path(problems.__file__).parent / "configs" / "irb4600_replan.toml"
IPOPT = "solver.name='dms'"
"""The paper's solver."""
METHODS = {"Num-Diff": "forward_difference", "Auto-Diff codegen": "casadi_ad", "closed form": "analytic"}
QUICK_METHODS = ("closed form",)
QUICK = [
    "problem.horizon=3",
    "problem.substeps=2",
    "solver.max_iterations=3",
    "solver.hessian='gauss_newton'",
    "replan.duration=0.1",
    "replan.charge=0.01",
]
SCENARIOS, FEWER, START = 20, 5, 0.1
"""Scenarios; those whose replanning is run by Num-Diff and with two threads; and how far their starts are moved [rad]."""
UPDATE = 0.050
"""Seconds between two measurements of the sphere."""


def run(quick: bool) -> Outcome:
    """Times and iterations of all plans; a quick run takes a tenth of a second of one scenario without the sphere, in
    NumPy, on three shots."""
    rows = []
    for method in QUICK_METHODS if quick else METHODS:
        for obstacle in (False,) if quick else (False, True):
            for threads in (1,) if quick else (1, 2):
                with with_variable("TRAJOPT_THREADS", threads):
                    for seed in range(1 if quick else SCENARIOS):
                        replans = quick or seed < FEWER or (method != "Num-Diff" and threads == 1)
                        rows += _plans(method, obstacle, threads, seed, quick, replans)
    return Outcome(rows, _comparisons(rows), partial(_draw, rows))


def scenario(method: str, obstacle: bool, seed: int, quick: bool) -> Config:
    """The config of a run."""
    own = [IPOPT, f"replan.seed={seed}", f"backend.name='{METHODS[method]}'"]
    config = load_config(CONFIG, own + (QUICK if quick else []))
    moved = np.random.default_rng(seed).uniform(-START, START, len(config.problem.q0))
    problem = replace(config.problem, q0=tuple((np.array(config.problem.q0) + moved).tolist()))
    if obstacle:
        return replace(config, problem=problem)
    still = replace(config.replan, obstacle=replace(config.replan.obstacle, term=""))
    config = replace(config, problem=replace(problem, obstacle=None), replan=still)
    return config.with_engine("numpy") if quick else config


def _plans(method: str, obstacle: bool, threads: int, seed: int, quick: bool, replans: bool) -> list[dict[str, Any]]:
    config = scenario(method, obstacle, seed, quick)
    if not quick and seed == 0:
        make_ready(config, setup(config).task)
    start = setup(config)
    common = {"derivatives": method, "obstacle": obstacle, "threads": threads, "seed": seed}
    first = {
        "stage": "planning",
        "milliseconds": 1e3 * start.first.meta["solve_time"],
        "iterations": start.first.iterations,
    }
    plans = [
        first,
        *(
            {"stage": "replanning", "milliseconds": 1e3 * s.seconds, "iterations": s.iterations}
            for s in (whole(simulate(start)).solves if replans else ())
        ),
    ]
    return [{**common, **plan} for plan in plans]


def _select(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [r for r in rows if all(r[key] == value for key, value in wanted.items())]


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    again, lines = _select(rows, stage="replanning"), []
    if again:
        most = max((r["milliseconds"] for r in again if r["derivatives"] != "Num-Diff"), default=np.nan)
        mean = float(np.mean([r["iterations"] for r in again]))
        why = "the plan before is the start; 8 threads there"
        lines += [
            Comparison("IPOPT iterations of replanning, mean", "13 to 15", f"{mean:.1f}", mean > 15.0, why),
            Comparison(
                "replanning with generated derivatives, longest",
                "below 50 ms",
                f"{most:.1f} ms",
                most > 1e3 * UPDATE,
                why,
            ),
        ]
    for stage in dict.fromkeys(r["stage"] for r in rows):
        for threads in dict.fromkeys(r["threads"] for r in rows):
            same = [r for r in _select(rows, stage=stage, threads=threads) if stage == "planning" or r["seed"] < FEWER]
            means = {m: _mean(_select(same, derivatives=m)) for m in METHODS}
            numeric, exact = means["Num-Diff"], means["Auto-Diff codegen"]
            if numeric and exact:
                told = ", ".join(f"{m} {t:.1f} ms" for m, t in means.items() if t)
                lines.append(
                    Comparison(
                        f"{stage}, {threads} threads: Num-Diff by Auto-Diff",
                        "2 x",
                        times(numeric / exact),
                        numeric / exact < 2.0,
                        told,
                    )
                )
    return lines


def _mean(rows: list[dict[str, Any]]) -> float | None:
    return float(np.mean([r["milliseconds"] for r in rows])) if rows else None


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    groups = [(s, o) for s in ("planning", "replanning") for o in (False, True)]
    with figure(path, 1, 2, 10.0, 3.6, "Planning and replanning of the IRB 4600 by DMS [ms]") as axes:
        for axis, threads in zip(axes.flat, (1, 2), strict=True):
            for i, method in enumerate(METHODS):
                for j, (stage, obstacle) in enumerate(groups):
                    own = [
                        r["milliseconds"]
                        for r in _select(rows, stage=stage, obstacle=obstacle, threads=threads, derivatives=method)
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
            axis.axhline(1e3 * UPDATE, color="#5b6472", linestyle=":")
            axis.set_xticks(
                range(len(groups)), [f"{s}\n{'with' if o else 'without'} sphere" for s, o in groups], fontsize=7
            )
            axis.set_title(f"{threads} thread" + "s" * (threads > 1))
        legend(axes)
