"""Arms that are replanned toward goals beyond their reach: whether they stay calm, and how near they come.

    python -m experiments.benchmark_unreachable [--arms erd:ur5,gen3,...] [--goals 3] [--seconds 3] [--seed 0]

Settings are those of problems/configs/ur5_moving_goal.toml: real-time iterations of SLQ at 100 Hz, a goal that wanders, a plant
that is a tenth heavier than the model.  Starts are random (:mod:`experiments.benchmarks.robots.arm_goals`); the middle of the
goal's way lies in a random direction, BEYOND times as far from the base as the farthest of SAMPLES random configurations brings
the frame.
Each goal is followed with the arm's torque limits, where it has them, and without.  A run is calm where no solve failed and the
state never left its plan by more than WIDE rad, m, or their rates.
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
from experiments.replan.run import setup, simulate, statistics, whole
from trajopt.config.config import load_config
from trajopt.config.task import position_of
from trajopt.replanning.run_log import EventKind

CONFIG = Path(problems.__file__).parent / "configs" / "ur5_moving_goal.toml"
BEYOND, SAMPLES = (1.2, 2.0), 200
WIDE = 5.0


class Run(NamedTuple):
    """One run. error: the largest distance of the state from its plan; nearest, last: distances of the frame from the goal [m]."""

    arm: str
    number: int
    limited: bool
    solves: int
    failed: int
    error: float
    nearest: float
    last: float

    @property
    def calm(self) -> bool:
        """See the module docstring."""
        return self.failed == 0 and self.error < WIDE


def goal_beyond(arm: Arm, rng: np.random.Generator) -> Array:
    """The middle (3,) [m] of the way of a goal out of reach."""
    lower, upper = ranges(arm.model)
    base = arm.model.placement_p[0]
    places = (position_of(arm.model, arm.frame, rng.uniform(lower, upper)) for _ in range(SAMPLES))
    far = max(float(np.linalg.norm(place - base)) for place in places)
    direction = rng.normal(size=3)
    return base + rng.uniform(*BEYOND) * far * direction / np.linalg.norm(direction)


def overrides(arm: Arm, q0: Array, goal: Array, limited: bool, seconds: float) -> list[str]:
    """What differs from the config."""
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


def runs_of(name: str, goals: int, seconds: float, seed: int) -> Iterator[Run]:
    """The runs of an arm; none where it cannot be loaded."""
    arm = load_arm(name)
    for number in range(goals):
        rng = np.random.default_rng([seed, zlib.crc32(arm.name.encode()), number])
        goal, q0 = goal_beyond(arm, rng), reach(arm, "plain", seed, number).q0
        for limited in (True, False) if np.isfinite(arm.model.effort_limit).all() else (False,):
            start = setup(load_config(CONFIG, overrides(arm, q0, goal, limited, seconds)))
            log = whole(simulate(start))
            told = statistics(start, log)
            failed = log.count(EventKind.FAILED_SOLVE) + log.count(EventKind.PLANT_DIVERGED)
            error = told["tracking error of the state, largest [rad, m, and per s]"]
            near = told["distance to the goal [m]"]
            yield Run(name, number, limited, len(log.solves), failed, error, near["least"], near["last"])


def report(runs: list[Run]) -> str:
    """A table by arms, and who was not calm."""
    rows = []
    for name in dict.fromkeys(run.arm for run in runs):
        own = [run for run in runs if run.arm == name]
        limited, free = ([r for r in own if r.limited is kind] for kind in (True, False))
        parts = (f"{sum(r.calm for r in part)} of {len(part)}" if part else "" for part in (limited, free))
        rows.append([name, *parts, f"{max((r.error for r in own if r.calm), default=np.nan):.2g}"])
    for kind, title in ((True, "with torque limits"), (False, "without")):
        part = [run for run in runs if run.limited is kind]
        rows.append([f"all {title}", f"{sum(r.calm for r in part)} of {len(part)} calm", "", ""])
    restless = "; ".join(f"{r.arm} {r.number} {'limited' if r.limited else 'free'}" for r in runs if not r.calm)
    table = markdown(["arm", "calm, torque limits", "calm, without", "largest error of calm ones"], rows)
    return f"{table}\n\nNot calm: {restless or 'none'}"


def main() -> None:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", help="names or files with commas between; all, unless given")
    parser.add_argument("--goals", type=int, default=3, help="for each arm")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out") / "benchmark_unreachable", help="folder of the results")
    given = parser.parse_args()
    runs: list[Run] = []
    for name in given.arms.split(",") if given.arms else all_arms():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for run in runs_of(name, given.goals, given.seconds, given.seed):
                    runs.append(run)
                    print(*run, "calm" if run.calm else "NOT CALM", flush=True)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted: the runs that have ended are told", file=sys.stderr)
            break
    write_report(given.out, report(runs), runs=runs)


if __name__ == "__main__":
    main()
