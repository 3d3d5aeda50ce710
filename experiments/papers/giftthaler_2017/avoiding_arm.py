"""The arm that avoids a moving sphere, as a sequence of pictures (Giftthaler et al. 2017, fig. 6).

One run of the IRB 4600 with the wandering sphere, one picture a second: the links, the sphere, the way that the tool has gone,
and the first plan, from which the replanning leads away.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

import problems
from dynamics_backends.protocol import Array
from experiments.config.config import load_config
from experiments.papers.study import GIFTTHALER, Comparison, Outcome
from experiments.plots.canvas import BLUE, GRAY, ORANGE, figure, legend
from experiments.plots.robot_picture import camera
from experiments.replan.run import Setup, setup, simulate
from problems.replanning.scenario import path_of
from trajopt.replanning.run_log import RunLog
from trajopt.view.motion import body_poses

SOURCE = f"{GIFTTHALER}, fig. 6"
CONFIG = Path(problems.__file__).parent / "configs" / "irb4600_replan.toml"
FREE = 0.25
"""Radius of the sphere [m]."""

PICTURES = 6
QUICK = [
    "problem.horizon=3",
    "problem.substeps=2",
    "solver.max_iterations=3",
    "solver.hessian='gauss_newton'",
    "replan.duration=0.1",
    "replan.charge=0.01",
]


def run(quick: bool) -> Outcome:
    """The run's path; a quick one lasts a tenth of a second, in NumPy, on three shots."""
    config = load_config(CONFIG, QUICK if quick else [])
    start = setup(config.with_engine("numpy") if quick else config)
    log = simulate(start)
    at = np.linspace(0, len(log.times) - 1, PICTURES).round().astype(int)
    tool = path_of(start.task, log.xs)
    assert tool is not None  # the config names a frame
    sphere = next(iter(log.objects.values()))
    clearance = next(iter(log.clearances.values()))
    rows = [
        {
            "time": log.times[k],
            **dict(zip(("x", "y", "z"), tool[k], strict=True)),
            "distance from the center": clearance[k],
        }
        for k in range(0, len(log.times), max(1, len(log.times) // 250))
    ]
    least = float(clearance.min())
    comparison = Comparison(
        "the arm keeps clear of the sphere (radius 0.25 m)",
        "shown on the robot",
        f"least distance from its center {least:.3f} m; {len(log.solves)} plans",
        least < FREE,
        "in simulation here",
    )
    return Outcome(rows, [comparison], partial(_draw, start, log, at, tool, sphere))


def _draw(start: Setup, log: RunLog, at: Array, tool: Array, sphere: Array, path: Path) -> None:
    model = start.task.ocp.model
    axes3, nq = camera(model.gravity), model.nq
    joints = body_poses(model, log.xs[at, :nq]).p
    first = path_of(start.task, start.first.xs)
    turn = np.linspace(0.0, 2.0 * np.pi, 60)
    with figure(path, 2, PICTURES // 2, 10.0, 6.2, "The IRB 4600 avoids a sphere") as axes:
        for axis, k, p in zip(axes.flat, at, joints, strict=True):
            seen = {name: points @ axes3.T for name, points in {"plan": first, "way": tool[: k + 1]}.items()}
            links = np.vstack([np.zeros(3), p, tool[k]]) @ axes3.T
            axis.plot(seen["plan"][:, 0], seen["plan"][:, 1], "--", color=GRAY, linewidth=1.0, label="first plan")
            axis.plot(seen["way"][:, 0], seen["way"][:, 1], color=BLUE, linewidth=1.2, label="way of the tool")
            axis.plot(
                links[:, 0], links[:, 1], "o-", color="#5b6472", linewidth=5.0, markersize=5, solid_capstyle="round"
            )
            x, y, _ = axes3 @ sphere[k]
            axis.fill(x + FREE * np.cos(turn), y + FREE * np.sin(turn), color=ORANGE, alpha=0.6)
            axis.set_title(f"{log.times[k]:.1f} s")
            axis.set_aspect("equal")
            axis.set_xlim(-2.6, 2.6)
            axis.set_ylim(-1.6, 2.4)
            axis.set_axis_off()
        legend(axes)
