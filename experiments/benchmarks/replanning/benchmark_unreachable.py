"""Replanning of arms toward goals out of reach: stability of the motion, and distances to the goals.

    python -m experiments.benchmark_unreachable [--arms erd:ur5,gen3,...] [--goals 3] [--seconds 3] [--seed 0]

Settings are those of problems/configs/ur5_moving_goal.toml: real-time iterations of SLQ at 100 Hz, a moving goal, and a
plant that is 10 % heavier than the model. Starts are random (:mod:`experiments.benchmarks.robots.arm_goals`). The
center of the goal's path is in a random direction, at BEYOND times the largest distance of the frame from the base over
SAMPLES random configurations. Each goal is followed with the arm's torque limits, if it has any, and without them. A
run is stable if no solve failed and the state deviated from its plan by at most WIDE (rad, m, or their rates).
"""

from __future__ import annotations

import argparse
import sys
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import problems
from dynamics_backends.protocol import Array
from experiments.benchmarks.robots.arm_goals import Arm, all_arms, load_arm, ranges, reach
from experiments.benchmarks.tables import markdown, write_report
from experiments.replan.run import require_uninterrupted, setup, simulate, statistics
from trajopt.config.config import load_config
from trajopt.config.task import position_of
from trajopt.replanning.run_log import EventKind

CONFIG = Path(problems.__file__).parent / "configs" / "ur5_moving_goal.toml"
BEYOND, SAMPLES = (1.2, 2.0), 200
WIDE = 5.0
TRACKED = ("positions [rad, m]", "velocities [rad/s, m/s]")


class Run(NamedTuple):
    """One run. error: largest deviation of the state from its plan; nearest, last: distances of the frame from the goal [m]."""

    arm: str
    number: int
    limited: bool
    solves: int
    failed: int
    error: float
    nearest: float
    last: float

    @property
    def stable(self) -> bool:
        """True if no solve failed and the deviation from the plan is small."""
        return self.failed == 0 and self.error < WIDE


def goal_beyond(arm: Arm, rng: np.random.Generator) -> Array:
    """Draw the center (3,) [m] of the path of a goal out of reach."""
    lower, upper = ranges(arm.model)
    base = arm.model.placement_p[0]
    places = (position_of(arm.model, arm.frame, rng.uniform(lower, upper)) for _ in range(SAMPLES))
    far = max(float(np.linalg.norm(place - base)) for place in places)
    direction = rng.normal(size=3)
    return base + rng.uniform(*BEYOND) * far * direction / np.linalg.norm(direction)


def overrides(arm: Arm, q0: Array, goal: Array, limited: bool, seconds: float) -> list[str]:
    """Return the overrides of the configuration."""
    locked = ", ".join(f"'{name}' = {value}" for name, value in arm.locked.items())
    return [
        f"problem.robot={arm.robot!r}",
        f"problem.frame={arm.frame!r}",
        f"problem.q0={q0.tolist()}",
        f"problem.locked_joints={{{locked}}}",
        f"problem.torque_limits={str(limited).lower()}",
        f"problem.goal_position={goal.tolist()}",
        f"replan.goal.center={goal.tolist()}",
        f"replan.duration={seconds}",
    ]


def arm_runs(name: str, goals: int, seconds: float, seed: int) -> Iterator[Run]:
    """Yield the runs of an arm. Raises ValueError if it cannot be loaded."""
    arm = load_arm(name)
    for number in range(goals):
        rng = np.random.default_rng([seed, zlib.crc32(arm.name.encode()), number])
        goal, q0 = goal_beyond(arm, rng), reach(arm, "plain", seed, number).q0
        for limited in (True, False) if np.isfinite(arm.model.effort_limit).all() else (False,):
            start = setup(load_config(CONFIG, overrides(arm, q0, goal, limited, seconds)))
            log = require_uninterrupted(simulate(start))
            numbers = statistics(start, log)
            failed = log.count(EventKind.FAILED_SOLVE) + log.count(EventKind.PLANT_DIVERGED)
            error = max(numbers[f"tracking error of {part}"]["largest"] for part in TRACKED)
            near = numbers["distance to the goal [m]"]
            yield Run(name, number, limited, len(log.solves), failed, error, near["smallest"], near["last"])


def report(runs: list[Run], file: Path | None = None) -> str:
    """Format a table by arm, also written to a CSV file, and the list of runs that were not stable."""
    rows = []
    for name in dict.fromkeys(run.arm for run in runs):
        own = [run for run in runs if run.arm == name]
        limited, free = ([r for r in own if r.limited is kind] for kind in (True, False))
        parts = (f"{sum(r.stable for r in part)} of {len(part)}" if part else "" for part in (limited, free))
        rows.append([name, *parts, f"{max((r.error for r in own if r.stable), default=np.nan):.2g}"])
    for kind, title in ((True, "with torque limits"), (False, "without")):
        part = [run for run in runs if run.limited is kind]
        rows.append([f"all {title}", f"{sum(r.stable for r in part)} of {len(part)} stable", "", ""])
    unstable = "; ".join(f"{r.arm} {r.number} {'limited' if r.limited else 'free'}" for r in runs if not r.stable)
    table = markdown(["arm", "stable, torque limits", "stable, without", "largest error of stable runs"], rows, file)
    return f"{table}\n\nUnstable: {unstable or 'none'}"


def main() -> None:
    """Run the benchmark, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", help="comma-separated names or files; default: all")
    parser.add_argument("--goals", type=int, default=3, help="number of goals per arm")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each run [s]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out") / "benchmark_unreachable", help="folder of the results")
    given = parser.parse_args()
    runs: list[Run] = []
    for name in given.arms.split(",") if given.arms else all_arms():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for run in arm_runs(name, given.goals, given.seconds, given.seed):
                    runs.append(run)
                    print(*run, "stable" if run.stable else "UNSTABLE", flush=True)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted: the report has the finished runs", file=sys.stderr)
            break
    write_report(given.out, report(runs, given.out / "table.csv"), runs=runs)


if __name__ == "__main__":
    main()
