"""Iterations and time over derivative methods, solvers and engines on six problems.

Bundled configurations with their guesses, and every applicable solver and derivative method with its default Hessian, which the
table names. Time: processor time of one solve and the checks of its solution, after tracing, with the compiled engine; two
problems also with NumPy. The report names solvers that reach an optimum of higher cost.
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
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import Config, load_config
from trajopt.config.variants import with_solver
from trajopt.results.solution import uninterrupted

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
"""Time limit of a solve [s], for solvers that have one."""


def run(quick: bool) -> Outcome:
    """Run all solves, one row each."""
    rows = [_row(*case, quick=quick) for case in _cases(quick)]
    return Outcome(rows, [], partial(_draw, rows), _remarks(rows))


def _cases(quick: bool) -> Iterator[tuple[str, str, str, str]]:
    """Yield (problem, solver, derivative method, engine)."""
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
        s = require(uninterrupted(solve_task(config, task)), solver=solver, derivatives=method)
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
    ran_rows = [r for r in rows if r["iterations"] is not None]
    solved = [r for r in ran_rows if r["solved"]]
    limit = f"a solve stops after the first iteration beyond {TIME_LIMIT:.0f} s of wall-clock time"
    parts = [f"{len(solved)} of {len(ran_rows)} solves converged; {limit}."]
    if len(ran_rows) < len(rows):
        parts.append(f"{len(rows) - len(ran_rows)} more combinations are not possible, for the reasons in data.csv.")
    for problem in dict.fromkeys(r["problem"] for r in solved):
        own = [r for r in solved if r["problem"] == problem]
        fastest, least = min(own, key=lambda r: r["milliseconds"]), min(r["cost"] for r in own)
        behind = sorted({r["solver"] for r in own if r["cost"] > 1.01 * least + 1e-9})
        other = f"; cost more than 1 % above the lowest: {', '.join(behind)}" if behind else ""
        failed = [r for r in ran_rows if r["problem"] == problem and not r["solved"]]
        short = ", ".join(f"{r['solver']} {r['derivatives']} ({r['status']})" for r in failed)
        parts.append(
            f"{problem}: fastest {fastest['solver']} with {fastest['derivatives']} ({fastest['engine']}),"
            f" {fastest['iterations']} iterations, {fastest['milliseconds']:,.1f} ms{other}"
            + (f"; not converged: {short}." if short else ".")
        )
    for solver in dict.fromkeys(r["solver"] for r in ran_rows):
        stepped = (r for r in ran_rows if r["solver"] == solver and r["iterations"])  # else no Hessian was used
        found = {r["derivatives"]: r["hessian"] for r in stepped}
        if len(set(found.values())) > 1:
            by_hessian = [
                f"{h} with {', '.join(d for d in found if found[d] == h)}" for h in dict.fromkeys(found.values())
            ]
            parts.append(f"{solver} has the Hessian {'; '.join(by_hessian)}: their iterations do not compare.")
    return parts


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import BLUE, figure

    possible = [r for r in rows if r["iterations"] is not None]
    by_problem = {
        name: [r for r in possible if r["problem"] == name] for name in dict.fromkeys(r["problem"] for r in rows)
    }
    counts = [len(own) for own in by_problem.values()]
    title = "Iterations and time of solvers and derivatives; gray: not converged"
    height = 1.2 + 0.13 * sum(counts) + 0.66 * len(counts)
    with figure(path, len(counts), 2, 11.0, height, title, left=1.6, sharey="row", height_ratios=counts) as axes:
        for pair, (name, own) in zip(axes, by_problem.items(), strict=True):
            engines = [" numpy" if r["engine"] == "numpy" else "" for r in own]
            labels = [f"{r['solver']} {r['derivatives']}{engine}" for r, engine in zip(own, engines, strict=True)]
            colors = [BLUE if r["solved"] else "#d0d3d8" for r in own]
            for axis, key in zip(pair, ("iterations", "milliseconds"), strict=True):
                axis.barh(range(len(own)), [max(r[key], 1e-3) for r in own], color=colors)
                axis.set_xscale("log" if key == "milliseconds" else "linear")
                axis.set_title(f"{name}: {key}")
                axis.set_yticks(range(len(own)), labels, fontsize=6)
                axis.margins(y=0.01)
            pair[0].invert_yaxis()
