"""The interior-point method compared with IPOPT and SQP: solve times, linear algebra, growth with the horizon.

    python -m experiments.benchmark_ipm [--quick] [--repeats 5] [--growth] [--out DIR] [CONFIG ...]

One thread; processor time [ms] of the fastest of some solves. All solvers start at the configuration's guess with
default options; the configuration's own solver uses the configuration's options. BASE@SHARE is a configuration with
bounds on speeds, at this fraction of the peak speeds of the motion without bounds. BASE+cones is a configuration with
friction cones as constraints. ``--growth``: the first configuration with 20 to 2,000 shots over the same duration and a
fixed number of iterations; the output has the exponent of the time per iteration.
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

from experiments.benchmarks.tables import markdown, print_table
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
"""Limit of the processor time of one solve [s]."""
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
    """One table row: time of the solve [ms]; linear algebra and derivatives per iteration [ms]."""

    problem: str
    solver: str
    status: str
    iterations: int
    cost: float
    ms: float
    algebra: float
    derivatives: float


def problem(name: str) -> tuple[OCP, Guess, Any]:
    """Build the problem of a name (see the module), its guess, and its configuration."""
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
    """Measure all solvers on a problem."""
    ocp, guess, config = problem(name)
    for solver in solvers:
        is_configured = solver == config.solver_name
        options = config.solver_options if is_configured else solver_options(solver, time_limit=PATIENCE)
        yield solve_row(name, ocp, guess, solver, options, repeats)


def solve_row(name: str, ocp: OCP, guess: Guess, solver: str, options: Any, repeats: int) -> Row:
    """Measure the fastest of some solves, after a warm-up solve."""
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
    """Yield the number of shots and the time per iteration [ms]."""
    config = load_config(CONFIGS / f"{name}.toml")
    for shots in HORIZONS:
        parts = [f"problem.horizon={shots}", f"problem.dt={config.problem.horizon * config.problem.dt / shots}"]
        task = build_task(load_config(CONFIGS / f"{name}.toml", parts))
        options = IPMOptions(max_iterations=GROWTH_ITERATIONS)
        row = solve_row(name, task.ocp, task.guess, "ipm", options, 3)
        yield shots, row.ms / GROWTH_ITERATIONS


def main() -> None:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", default=DEFAULT, help="names of problems")
    parser.add_argument("--quick", action="store_true", help="the first problem only")
    parser.add_argument("--growth", action="store_true", help="growth with the horizon only")
    parser.add_argument("--solvers", default=",".join(SOLVERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder of table.csv")
    arguments = parser.parse_args()
    os.environ["TRAJOPT_THREADS"] = "1"
    file = arguments.out and arguments.out / "table.csv"
    if arguments.growth:
        found = list(growth(arguments.configs[0]))
        print(markdown(["shots", "ms per iteration"], ([str(shots), f"{ms:.3f}"] for shots, ms in found), file))
        shots, ms = np.log(found).T
        print(f"exponent {np.polyfit(shots, ms, 1)[0]:.3f}")
        return
    names, solvers = arguments.configs[:1] if arguments.quick else arguments.configs, arguments.solvers.split(",")
    solved = (row for name in names for row in rows(name, tuple(solvers), arguments.repeats))
    print_table(COLUMNS, map(_cells, solved), file)


def _cells(row: Row) -> list[str]:
    return [*row[:3], str(row.iterations), f"{row.cost:.9g}", *(f"{value:.2f}" for value in row[5:])]


if __name__ == "__main__":
    main()
