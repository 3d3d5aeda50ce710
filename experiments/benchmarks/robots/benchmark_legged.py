"""Gaits of legged robots from their URDF: success, time, contact forces and limit violations.

    python -m experiments.benchmark_legged [--robots NAME_OR_URDF ...] [--gaits stand,trot,walk,pace,bound,jump] [--bipeds]
                                           [--engine NAME] [--set KEY=VALUE ...] [--out DIR]

Each gait is a bundled configuration of HyQ, or of Talos with --bipeds; only the robot changes. ms: time of the first solve
and its checks. s: total processor time, with building and tracing. min normal: smallest normal force of a standing
foot, relative to weight / number of feet. friction: largest ratio of tangential to normal force, for relative normal
forces of at least CARRIES. DIR receives legged.csv, one row per solve.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import problems
from experiments.benchmarks.tables import STATUS_HEADS, markdown, status_counts, write_csv
from problems.legged.contact.contact_limits import point_forces
from trajopt import Solution, limit_violations
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import load_config
from trajopt.config.task import Task

CONFIGS = Path(problems.__file__).parent / "configs"
GAITS = {
    "stand": ("hyq_trot_rigid", ["problem.gait=stand"]),
    "trot": ("hyq_trot_rigid", []),
    "walk": ("hyq_walk", []),
    "pace": ("hyq_pace", []),
    "bound": ("hyq_bound", []),
    "jump": ("hyq_bound", ["problem.gait=jump"]),
    "biped walk": ("talos_walk", []),
}
"""Gait -> configuration and overrides."""
ON_FOUR = "stand,trot,walk,pace,bound,jump"
QUADRUPEDS = (
    *("hyq", "erd:hyq", "erd:anymal", "erd:anymal_c", "erd:anymal-kinova", "erd:solo", "erd:solo12", "erd:quadruped"),
    *("erd:a1", "erd:b1", "erd:b1-z1", "erd:go1", "erd:go2", "erd:laikago", "erd:centauro"),
)
BIPEDS = (
    *("erd:talos", "erd:talos_full", "erd:romeo", "erd:icub", "erd:g1", "erd:alexander_v1.lowerBodyOnly", "erd:bolt"),
    "erd:simple_humanoid",
)
CARRIES = 0.01
"""Smallest relative normal force for which the friction ratio is evaluated."""


class Row(NamedTuple):
    """One solve. status: status code, or "error"; kkt: final scaled KKT error; min_normal, friction: see the module; violations:
    violated limits.

    reason: message of the status if the solve did not converge.
    """

    robot: str
    gait: str
    status: str
    solved: bool
    iterations: int
    milliseconds: float
    seconds: float
    kkt: float
    min_normal: float
    friction: float
    violations: str
    reason: str


def gait_rows(robot: str, gaits: list[str], overrides: list[str]) -> Iterator[Row]:
    """Yield the solves of a robot's gaits; errors give rows too."""
    for gait in gaits:
        try:
            yield _solve(robot, gait, overrides)
        except Exception as error:  # a failing robot must not stop the others
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            yield Row(robot, gait, "error", False, 0, np.nan, np.nan, np.nan, np.nan, np.nan, "", reason)


def _solve(robot: str, gait: str, overrides: list[str]) -> Row:
    name, changes = GAITS[gait]
    before = _processor()
    config = load_config(CONFIGS / f"{name}.toml", [*changes, f'problem.robot="{robot}"', *overrides])
    task = build_task(config)
    make_ready(config, task)
    began = time.perf_counter()
    solution = solve_task(config, task)
    elapsed = 1e3 * (time.perf_counter() - began)
    min_normal, friction = loads(task, solution)
    violations = [*limit_violations(task.ocp, solution.xs, solution.us), *task.contact_limits(solution.xs, solution.us)]
    status = solution.status
    words = ", ".join(f"{b.kind} {b.name} by {b.excess:.2g} {b.unit}".strip() for b in violations)
    seconds = _processor() - before
    return Row(
        robot,
        gait,
        status.code.value,
        status.success,
        solution.iterations,
        elapsed,
        seconds,
        np.nan if status.kkt is None else status.kkt,
        min_normal,
        friction,
        words,
        "" if status.success else status.message,
    )


def _processor() -> float:
    """Return the processor time [s] of this process and its finished child processes."""
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def loads(task: Task, solution: Solution) -> tuple[float, float]:
    """Return the smallest relative normal force and the largest friction ratio; NaN without rigid contacts."""
    model = task.ocp.model
    share_of_weight = model.total_mass * np.linalg.norm(model.gravity) / len(task.feet)
    forces = [f.values.reshape(-1, 3) / share_of_weight for f in point_forces(task.ocp, solution.xs, solution.us)]
    if not forces:
        return np.nan, np.nan
    f = np.concatenate(forces)
    loaded = f[f[:, 2] > CARRIES]
    ratio = np.hypot(loaded[:, 0], loaded[:, 1]) / loaded[:, 2]
    return float(f[:, 2].min()), float(ratio.max(initial=0.0))


def table(rows: list[Row], file: Path | None = None) -> str:
    """Format the results, one row per solve; file: CSV file to write them to."""
    header = [
        "robot",
        "gait",
        "status",
        "iterations",
        "ms",
        "s",
        "kkt",
        "min normal",
        "friction",
        "violated limits",
        "reason",
    ]
    lines = [
        [
            *(r.robot, r.gait, r.status, str(r.iterations), f"{r.milliseconds:.0f}", f"{r.seconds:.0f}"),
            *(f"{r.kkt:.1e}", f"{r.min_normal:.2f}", f"{r.friction:.2f}", r.violations or "none", r.reason),
        ]
        for r in rows
    ]
    return markdown(header, lines, file)


def main() -> None:
    """Solve and print the table. An interrupt keeps the finished rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", metavar="NAME_OR_URDF", help="default: robots of example-robot-data")
    parser.add_argument("--gaits", help=f"comma-separated names out of {', '.join(GAITS)}; default: {ON_FOUR}")
    parser.add_argument("--bipeds", action="store_true", help="biped robots")
    parser.add_argument("--engine", help="engine; default: that of the configuration")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="folder of the CSV")
    a = parser.parse_args()
    requested = a.gaits or ("biped walk" if a.bipeds else ON_FOUR)
    gaits = [name.strip() for name in requested.split(",") if name.strip()]
    overrides = [*a.overrides, *([f"engine={a.engine}"] if a.engine else [])]
    rows: list[Row] = []
    try:
        for robot in a.robots or (BIPEDS if a.bipeds else QUADRUPEDS):
            for row in gait_rows(robot, gaits, overrides):
                rows.append(row)
                print(
                    f"{row.robot} {row.gait}: {row.status}, {row.iterations} iterations {row.violations} {row.reason}",
                    flush=True,
                )
    except KeyboardInterrupt:
        print(f"interrupted after {len(rows)} solves")
    if a.out is not None:
        a.out.mkdir(parents=True, exist_ok=True)
        write_csv(a.out / "legged.csv", rows)
    by_gait = [[g, *status_counts(r.status for r in rows if r.gait == g)] for g in dict.fromkeys(r.gait for r in rows)]
    print(f"\n{table(rows, a.out and a.out / 'table.csv')}\n\n{markdown(['gait', *STATUS_HEADS], by_gait)}")


if __name__ == "__main__":
    main()
