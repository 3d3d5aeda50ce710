"""Cost of second-order derivatives: first derivatives with the second-order contraction, relative to first derivatives alone.

The contraction lambda' a_xx of forward dynamics, which DDP and exact Hessians need, is timed on one thread for batches of points.
Further rows have the time per iteration of DDP and SLQ on bundled problems, without the checks of the solution. Both orders of
derivatives have complexity O(n d).
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import problems
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from experiments.analysis.timing import medians, program_call
from experiments.papers.method import require
from experiments.papers.study import Outcome
from problems.robots import load_robot
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import load_config
from trajopt.config.variants import with_solver
from trajopt.results.solution import uninterrupted

SOURCE = "Beyond the papers; contraction of J. N. Nganga, P. M. Wensing, RA-L 2021, extended."
CONFIGS = Path(problems.__file__).parent / "configs"
BATCH = 128
ROBOTS = {"double_pendulum": None, "iiwa7": "fixed", "gen3": "fixed", "hyq": "floating", "erd:talos": "floating"}
QUICK = ("double_pendulum",)
SOLVES = ("ur5_reach", "iiwa7_reach", "gen3_reach", "double_pendulum_swing_up")
ON_TAPE = 18


def run(quick: bool) -> Outcome:
    """Measure the ratios by robot and code form, and by problem."""
    rows = [row for robot in (QUICK if quick else ROBOTS) for row in _kernels(robot, quick)]
    if not quick:
        rows += [_iterations(name) for name in SOLVES]
    worst = max(r["ratio"] for r in rows)
    return Outcome(rows, [], partial(_draw, rows), [f"At most {worst:.2f} times the cost of first order."])


def _kernels(robot: str, quick: bool) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", URDFWarning)
        model = load_robot(robot, base=ROBOTS[robot]) if ROBOTS[robot] else load_robot(robot)
    rows = []
    for tape in (False, True) if model.nv <= ON_TAPE else (False,):
        calls = [program_call(p, model, BATCH, tape=tape) for p in (FDSVA, FD_SECOND_ORDER)]
        first, both = (1e6 * t / BATCH for t in medians(calls, 5 if quick else 21))
        what = f"{model.name} ({model.nv}), {'tape' if tape else 'loops'}"
        rows.append({"what": what, "first order [us]": first, "with second [us]": both, "ratio": both / first})
    return rows


def _iterations(name: str) -> dict[str, Any]:
    """Measure the processor time per iteration of DDP and SLQ."""
    each = {}
    for solver in ("slq", "ddp"):
        config = with_solver(load_config(CONFIGS / f"{name}.toml", ["backend={name='analytic'}"]), solver)
        task = build_task(config)
        make_ready(config, task)
        seconds = []
        for _ in range(15):
            began = time.process_time()
            solution = require(
                uninterrupted(solve_task(config, task, check=False)), solver=solver, derivatives="analytic"
            )
            seconds.append((time.process_time() - began) / max(solution.iterations, 1))
        each[solver] = 1e6 * median(seconds)
    ratio = each["ddp"] / each["slq"]
    return {
        "what": f"an iteration, {name}",
        "first order [us]": each["slq"],
        "with second [us]": each["ddp"],
        "ratio": ratio,
    }


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import BLUE, figure

    with figure(
        path, 1, 1, 8.0, 1.6 + 0.28 * len(rows), "Time of first order with contraction / first order alone"
    ) as axes:
        axis = axes[0, 0]
        axis.barh(range(len(rows)), [r["ratio"] for r in rows], color=BLUE)
        for i, r in enumerate(rows):
            axis.text(0.02, i, r["what"], va="center", fontsize=7, color="white")
        axis.set_yticks([])
        axis.set_xlabel("time / time of first order")
        axis.invert_yaxis()
