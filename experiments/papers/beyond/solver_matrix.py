"""Iterations and time over derivative methods, solvers and engines on six problems.

The configs as bundled, with their guesses; every solver and method that can serve a problem, each with its default Hessian,
which a column names.  Time: processor time of one solve and the checks of its solution, after all is compiled, with the compiled
engine; NumPy on two of the problems.  The report names solvers that end in an optimum of a higher cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import problems
from dynamics_backends.registry import backend_names
from experiments.papers.method import ran, require
from experiments.papers.study import Outcome
from trajopt.config.build import build_task, make_ready, solve_task, uncut
from trajopt.config.config import Config, load_config
from trajopt.config.variants import with_solver

SOURCE = "Beyond the papers."
CONFIGS = Path(problems.__file__).parent / "configs"
PROBLEMS = (
    "cart_pole_swing_up",
    "double_pendulum_swing_up",
    "ur5_reach",
    "ur5_obstacle",
    "irb4600_obstacle",
    "hyq_stand",
)
QUICK_PROBLEM, QUICK_METHODS, QUICK_SOLVERS = "cart_pole_balance", ("analytic", "forward_difference"), ("slq", "ddp")
SOLVERS = ("slq", "fddp", "gnms", "ddp", "sqp", "dms")
NUMPY_ON = ("cart_pole_swing_up", "ur5_reach")
TIME_LIMIT = 20.0
"""Seconds after which a solve ends, where its solver can."""


def run(quick: bool) -> Outcome:
    """One row for each solve."""
    rows = [_row(*case, quick=quick) for case in _cases(quick)]
    return Outcome(rows, [], partial(_draw, rows), _remarks(rows))


def _cases(quick: bool) -> Iterator[tuple[str, str, str, str]]:
    """Problem, solver, method, engine."""
    if quick:
        yield from ((QUICK_PROBLEM, s, m, "numpy") for s in QUICK_SOLVERS for m in QUICK_METHODS)
        return
    for problem in PROBLEMS:
        yield from ((problem, s, "analytic", "compiled") for s in SOLVERS)
        yield from ((problem, s, m, "compiled") for s in ("slq", "sqp") for m in backend_names() if m != "analytic")
        if problem in NUMPY_ON:
            yield from ((problem, "slq", m, "numpy") for m in backend_names())


def _row(problem: str, solver: str, method: str, engine: str, *, quick: bool) -> dict[str, Any]:
    common = {"problem": problem, "solver": solver, "derivatives": method, "engine": engine}
    try:
        config = _config(problem, solver, method, engine, quick)
        task = build_task(config)
        if not quick:
            make_ready(config, task)
        began = time.process_time()
        s = require(uncut(solve_task(config, task)), solver=solver, derivatives=method)
    except ValueError as reason:
        return {
            **common,
            "status": f"not possible: {reason}"[:160],
            "solved": False,
            **dict.fromkeys(("hessian", "integrator", "iterations", "milliseconds", "cost")),
        }
    spent, found = 1e3 * (time.process_time() - began), ran(s)
    return {
        **common,
        "status": str(s.status.code),
        "solved": s.status.success,
        **{key: found[key] for key in ("hessian", "integrator")},
        "iterations": s.iterations,
        "milliseconds": spent,
        "cost": s.cost,
    }


def _config(problem: str, solver: str, method: str, engine: str, quick: bool) -> Config:
    overrides = [f"backend.name='{method}'", f"backend.engine='{engine}'"]
    config = with_solver(load_config(CONFIGS / f"{problem}.toml", overrides), solver)
    limit = {"max_iterations": 3} if quick else {"time_limit": TIME_LIMIT}
    known = {f.name for f in fields(config.solver_options)}
    return replace(
        config, solver_options=replace(config.solver_options, **{k: v for k, v in limit.items() if k in known})
    )


def _remarks(rows: list[dict[str, Any]]) -> list[str]:
    solved = [r for r in rows if r["solved"]]
    possible = sum(r["iterations"] is not None for r in rows)
    parts = [f"{len(solved)} of {possible} solves converged; each may last {TIME_LIMIT:.0f} s."]
    if possible < len(rows):
        parts.append(f"{len(rows) - possible} more combinations are not possible, for the reasons in data.csv.")
    for problem in dict.fromkeys(r["problem"] for r in solved):
        own = [r for r in solved if r["problem"] == problem]
        fastest, least = min(own, key=lambda r: r["milliseconds"]), min(r["cost"] for r in own)
        behind = sorted({r["solver"] for r in own if r["cost"] > 1.01 * least + 1e-9})
        other = f"; more than 1 % above the least cost: {', '.join(behind)}" if behind else ""
        parts.append(
            f"{problem}: fastest {fastest['solver']} with {fastest['derivatives']} ({fastest['engine']}),"
            f" {fastest['iterations']} iterations, {fastest['milliseconds']:.3g} ms{other}."
        )
    return parts


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure

    names = list(dict.fromkeys(r["problem"] for r in rows))
    with figure(
        path, len(names), 2, 11.0, 1.0 + 2.1 * len(names), "Iterations and time of solvers and derivatives", bottom=1.2
    ) as axes:
        for pair, name in zip(axes, names, strict=True):
            own = [r for r in rows if r["problem"] == name and r["iterations"] is not None]
            labels = [f"{r['solver']} {r['derivatives']}" + (" numpy" if r["engine"] == "numpy" else "") for r in own]
            for axis, key in zip(pair, ("iterations", "milliseconds"), strict=True):
                colors = [COLORS[0] if r["solved"] else "#d0d3d8" for r in own]
                axis.bar(range(len(own)), [max(r[key], 1e-3) for r in own], color=colors)
                axis.set_yscale("log")
                axis.set_title(f"{name}: {key}")
                axis.set_xticks(range(len(own)), labels if pair is axes[-1] else [], rotation=90, fontsize=5)
