"""SLQ on HyQ's trot and gallop with numeric, automatic and closed-form derivatives (Giftthaler et al. 2017, fig. 3).

Soft ground, weights and integrator of the Control Toolbox. The robot starts at rest under a joint controller; a
distance of 1.5 m leads to a trot, 2 m to a gallop. The guess is a rollout, and nonlinear updates keep trajectories
feasible: single shooting, as in the paper. Num-Diff: forward differences of the recursions in C; Auto-Diff: CasADi's AD
on a tape of scalar operations, where the paper has generated C code; and the closed form by recursions in C. All run in
SIMD lanes, with one thread. The plots show cost over iterations, and processor time of the same number of iterations,
split like their wall-clock time into derivatives, backward pass and rollouts. The closed form continues until the cost
improves by less than TOLERANCE, which gives the number of iterations.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import problems
from experiments.analysis.environment import with_variable
from experiments.papers.giftthaler_2017 import DERIVATIVES
from experiments.papers.method import Method, ran
from experiments.papers.study import GIFTTHALER, Claim, Comparison, Outcome, times
from trajopt import Solution, StatusCode
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import load_config
from trajopt.results.records import PHASES
from trajopt.results.solution import uninterrupted

SOURCE = f"{GIFTTHALER}, fig. 3"
CONFIGS = Path(problems.__file__).parent / "configs"
TASKS = {"trot": "hyq_trot_published", "gallop": "hyq_gallop_published"}
ITERATIONS, TOLERANCE = 30, 1e-5
"""Number of timed iterations, and relative cost improvement below which a solve ends."""
LIMITS = {"trot": 300, "gallop": 600}
OPTIONS = {"shooting": 10, "gaps": "nonlinear", "gradient_tolerance": 1e-3, "cost_tolerance": TOLERANCE}
METHODS = {name: Method("slq", "gauss_newton", "rk4", backend, OPTIONS) for name, backend in DERIVATIVES.items()}
DEFINITION = {
    "trot": ["problem.horizon=500", "problem.dt=0.005", "problem.substeps=5"],
    "gallop": ["problem.horizon=400", "problem.dt=0.005", "problem.substeps=10"],
}
QUICK = ["problem.horizon=1", "problem.substeps=1", "solver.max_iterations=1"]
PUBLISHED = "up to 5 x"
FEW, MANY = 15, 50
"""Published numbers of iterations until convergence."""
SAME = 0.1
"""Relative cost difference up to which convergence counts as equally fast."""
SHARES = (0.1, 0.01)
"""Relative distances to the final cost at which iterations are counted."""


def run(quick: bool) -> Outcome:
    """Run all solves, one row per iteration. Quick runs: one time step, not divided, with NumPy."""
    rows, ends = [], {}
    with with_variable("TRAJOPT_THREADS", 1):
        for task in TASKS:
            for method in METHODS:
                ends[task], seconds = _solve(task, method, quick)
                rows += _rows(
                    task, method, ends[task], seconds
                )  # the last method, the closed form, runs to convergence
    lines = [*_comparisons(rows), *(_convergence(t, s) for t, s in ends.items())]
    clock = "Times are processor times of one thread, one method after the other."
    return Outcome(rows, lines, partial(_draw, rows), [f"All: {METHODS['closed form']}. {clock}"])


def _solve(name: str, method: str, quick: bool) -> tuple[Solution, list[float]]:
    """Return the solution, and the processor time of each iteration [s]; that of the first includes the setup."""
    limit = LIMITS[name] if method == "closed form" else ITERATIONS
    own = METHODS[method]
    overrides = [*own.overrides(), *DEFINITION[name], f"solver.max_iterations={limit}", *(QUICK if quick else [])]
    config = load_config(CONFIGS / f"{TASKS[name]}.toml", overrides)
    config = config.with_engine("numpy") if quick else config
    task = build_task(config)
    if not quick:
        make_ready(config, task)
    marks = [time.process_time()]
    found = uninterrupted(solve_task(config, task, lambda record: marks.append(time.process_time()), check=False))
    return own.require(found), [end - begin for begin, end in pairwise(marks)]


def _rows(name: str, method: str, solution: Solution, seconds: list[float]) -> list[dict[str, Any]]:
    return [
        {
            "task": name,
            "method": method,
            "iteration": r.iteration,
            "cost": r.cost,
            "step length": r.step_length,
            "seconds": t,
            **{f"{phase} [s]": t * r.times.get(phase, 0.0) / max(sum(r.times.values()), 1e-9) for phase in PHASES},
            **ran(solution),
        }
        for r, t in zip(solution.history, seconds, strict=True)
    ]


def _timed(rows: list[dict[str, Any]], task: str, method: str) -> list[dict[str, Any]]:
    """Return the first ITERATIONS rows of a method."""
    return [r for r in rows if (r["task"], r["method"]) == (task, method) and r["iteration"] < ITERATIONS]


def _seconds(rows: list[dict[str, Any]], task: str, method: str) -> float:
    """Return the mean processor time of an iteration [s]."""
    timed = _timed(rows, task, method)
    return float(sum(r["seconds"] for r in timed) / len(timed))


def _speedup(rows: list[dict[str, Any]], task: str, method: str) -> float:
    return _seconds(rows, task, "Num-Diff") / _seconds(rows, task, method)


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    lines = []
    for task in TASKS:
        own = {method: _timed(rows, task, method) for method in METHODS}
        seconds = {method: _seconds(rows, task, method) for method in own}
        count = min(len(r_) for r_ in own.values())
        last = {method: r_[count - 1]["cost"] for method, r_ in own.items()}
        numeric = seconds.pop("Num-Diff")
        apart = max(abs(c - last["closed form"]) / abs(last["closed form"]) for c in last.values())
        for method, t in seconds.items():
            ours = f"{times(numeric / t)} ({1e3 * numeric:.0f} and {1e3 * t:.0f} ms an iteration)"
            why = "ours: differences of recursions in C, in SIMD lanes, AD on a tape; the paper: one call per column, AD as C code"
            claims = [
                Claim("faster than Num-Diff", numeric > t),
                Claim("5 x on one of the tasks", max(_speedup(rows, name, method) for name in TASKS) >= 5.0),
            ]
            lines.append(Comparison(f"{task}: time of an iteration, Num-Diff / {method}", PUBLISHED, ours, claims, why))
        same = f"costs {apart:.1e} apart after {count} iterations"
        claim = Claim("Num-Diff and Auto-Diff converge equally fast", apart <= SAME)
        lines.append(Comparison(f"{task}: convergence", "equally fast", same, [claim]))
    return lines


def _convergence(task: str, solution: Solution) -> Comparison:
    """Compare the iterations of a complete solve, and those until the cost is near its final value."""
    costs = [*(r.cost for r in solution.history), solution.cost]
    near = [next(k for k, c in enumerate(costs) if c <= (1.0 + fraction) * solution.cost) for fraction in SHARES]
    short = sum(r.step_length < 1.0 for r in solution.history)
    marks = ", ".join(f"{100 * fraction:g} % after {k}" for fraction, k in zip(SHARES, near, strict=True))
    ours = f"{solution.iterations} until the relative cost improvement is below {TOLERANCE:g}; within {marks}"
    why = (
        f"the line search shortens {short} steps; the paper names no tolerance, and the files of its toolbox, whose"
        " weights and integrator these are, allow 150 (trot) and 300 (gallop) iterations: they are later than the paper's runs"
    )
    ended = solution.status.code is not StatusCode.MAX_ITERATIONS
    claim = Claim(f"converged within {MANY} iterations", ended and solution.iterations <= MANY)
    return Comparison(f"{task}: iterations of SLQ", f"{FEW} to {MANY}", ours, [claim], why)


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, LINES, figure

    tasks = list(dict.fromkeys(r["task"] for r in rows))
    methods = list(dict.fromkeys(r["method"] for r in rows))
    with figure(
        path, 1, 2, 9.0, 3.8, "SLQ on HyQ with numeric, automatic and closed-form derivatives", bottom=1.0
    ) as axes:
        labels: list[str] = []
        for line, task in zip(LINES, tasks, strict=False):
            for i, (color, method) in enumerate(zip(COLORS, methods, strict=False)):
                own = [r for r in rows if (r["task"], r["method"]) == (task, method)]
                axes[0, 0].loglog(
                    [r["iteration"] + 1 for r in own],
                    [r["cost"] for r in own],
                    line,
                    color=color,
                    linewidth=5.0 - 2.0 * i,  # curves that coincide stay visible
                    label=f"{task}, {method}",
                )
                bottom, timed = 0.0, _timed(rows, task, method)
                for fraction, phase in enumerate(PHASES):
                    height = 1e3 * sum(r[f"{phase} [s]"] for r in timed) / len(timed)
                    axes[0, 1].bar(
                        len(labels),
                        height,
                        bottom=bottom,
                        color=COLORS[4 + fraction],
                        label=phase if not labels else None,
                    )
                    bottom += height
                labels.append(f"{task}, {method}")
        axes[0, 0].set_title("cost; curves of a task coincide")
        axes[0, 0].set_xlabel("iteration, the first is 1")
        axes[0, 0].legend(fontsize=6)
        axes[0, 1].set_title("ms an iteration")
        axes[0, 1].set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=6)
        axes[0, 1].legend(fontsize=6)
