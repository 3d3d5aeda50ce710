"""The interior-point method beside IPOPT and SQP: whole solves, the share of its linear algebra, growth with the horizon.

    python -m experiments.benchmark_ipm [--quick] [--repeats 5] [--growth] [CONFIG ...]

One thread; milliseconds of processor time, the fastest of some solves in this run. All solvers start at the configuration's guess
with their default options, the configuration's own solver with those of the configuration. Problems named BASE@SHARE are those of
a configuration with bounds on the speeds of the state, at this share of what the motion without them reaches; BASE+cones is the
rigid trot with its friction cones as constraints. ``--growth``: the first configuration with 20 to 2,000 shots in the same time
each, a fixed number of iterations, and the exponent of the time of one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajopt import OCP, Guess, solve, state_bounds
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.registry import solver_options

CONFIGS = Path(__file__).parents[3] / "problems" / "configs"
DEFAULT = (
    "ur5_obstacle",
    "irb4600_obstacle",
    "irb4600_dms",
    "gen3_contour_fd",
    "gen3_contour_id",
    "lifting",
    "cart_pendulum_constrained",
    "cart_pole_swing_up@0.9",
    "double_pendulum_swing_up@0.9",
    "hyq_trot_rigid+cones",
)
SOLVERS = ("ipm", "dms", "sqp")
PATIENCE = 60.0
"""[s] of processor time for one solve."""
HORIZONS = (20, 60, 200, 600, 2000)
GROWTH_ITERATIONS = 8
COLUMNS = (
    "problem",
    "solver",
    "status",
    "iterations",
    "cost",
    "ms",
    "linear algebra, ms/iteration",
    "derivatives, ms/iteration",
)


class Row(NamedTuple):
    """One line."""

    problem: str
    solver: str
    status: str
    iterations: int
    cost: float
    ms: float
    algebra: float
    derivatives: float


def problem(name: str) -> tuple[OCP, Guess, Any]:
    """The problem of a name as the module docstring says, its guess, and its configuration."""
    base, _, cones = name.partition("+")
    base, _, share = base.partition("@")
    config = load_config(CONFIGS / f"{base}.toml", ["problem.cone='constraint'"] if cones else [])
    task = build_task(config)
    if not share:
        return task.ocp, task.guess, config
    free = solve(task.ocp, task.guess, config.solver_options, solver=config.solver_name, check=False)
    manifold, half = task.ocp.manifold, task.ocp.manifold.nx // 2
    peak = float(share) * np.abs(free.xs[:, half:]).max(axis=0)
    none = np.full(half, np.inf)
    bounds = state_bounds(manifold, np.r_[-none, -peak], np.r_[none, peak], "speeds")
    phases = tuple(replace(phase, constraints=(*phase.constraints, bounds)) for phase in task.ocp.phases)
    return replace(task.ocp, phases=phases), task.guess, config


def rows(name: str, solvers: tuple[str, ...], repeats: int) -> Iterator[Row]:
    """The solvers on a problem."""
    ocp, guess, config = problem(name)
    for solver in solvers:
        own = solver == config.solver_name
        options = config.solver_options if own else solver_options(solver, time_limit=PATIENCE)
        yield solved(name, ocp, guess, solver, options, repeats)


def solved(name: str, ocp: OCP, guess: Guess, solver: str, options: Any, repeats: int) -> Row:
    """The fastest of some solves, after one that loads what is needed."""
    best: tuple[float, Any] = (np.inf, None)
    spent = 0.0
    for count in range(repeats + 1):
        began = time.process_time()
        found = solve(ocp, guess, options, solver=solver, check=False)
        seconds = time.process_time() - began
        best = min(best, (seconds, found), key=lambda pair: pair[0])
        spent += seconds if count else 0.0
        if spent > PATIENCE / 2:
            break
    seconds, found = best
    count = max(found.iterations, 1)
    each = [1e3 * sum(r.times.get(key, 0.0) for r in found.history) / count for key in ("backward", "derivatives")]
    return Row(name, solver, str(found.status.code), found.iterations, found.cost, 1e3 * seconds, *each)


def growth(name: str) -> Iterator[tuple[int, float]]:
    """Shots and milliseconds of an iteration."""
    config = load_config(CONFIGS / f"{name}.toml")
    for shots in HORIZONS:
        parts = [f"problem.horizon={shots}", f"problem.dt={config.problem.horizon * config.problem.dt / shots}"]
        task = build_task(load_config(CONFIGS / f"{name}.toml", parts))
        options = IPMOptions(max_iterations=GROWTH_ITERATIONS)
        row = solved(name, task.ocp, task.guess, "ipm", options, 3)
        yield shots, row.ms / GROWTH_ITERATIONS


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", default=DEFAULT, help="names of problems as above")
    parser.add_argument("--quick", action="store_true", help="the first problem only")
    parser.add_argument("--growth", action="store_true", help="growth with the horizon only")
    parser.add_argument("--solvers", default=",".join(SOLVERS))
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    os.environ["TRAJOPT_THREADS"] = "1"
    if arguments.growth:
        found = np.array(list(growth(arguments.configs[0])))
        for shots, ms in found:
            print(f"{int(shots)} shots: {ms:.3f} ms an iteration", flush=True)
        shots, ms = np.log(found).T
        print(f"exponent {np.polyfit(shots, ms, 1)[0]:.3f}")
        return
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    for name in arguments.configs[:1] if arguments.quick else arguments.configs:
        for row in rows(name, tuple(arguments.solvers.split(",")), arguments.repeats):
            numbers = " | ".join(f"{v:.2f}" for v in row[5:])
            print(
                f"| {row.problem} | {row.solver} | {row.status} | {row.iterations} | {row.cost:.9g} | {numbers} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
