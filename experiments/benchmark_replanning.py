"""The IRB 4600's go-to around a sphere that wanders through its way, with and without it, from many seeds; HyQ's trot.

    python -m experiments.benchmark_replanning [--seeds 20] [--planners dms,sqp,sqp_rti,slq_rti] [--methods analytic,...] [--trot]

Each seed moves the start by up to START in each joint and has a sphere of its own (problems/configs/irb4600_replan.toml).
Published: 20 scenarios, 13 to 15 iterations, less than 50 ms with eight threads (M. Giftthaler et al., Advanced Robotics 31, 2017).
The distance from the true sphere is that of points 2 cm apart on the links, at every tick of the plant's control.  Plans are
charged the time they take; run it with OMP_NUM_THREADS=1 and TRAJOPT_THREADS=1 for times on one thread.  With --trot:
HyQ in receding horizon for ten seconds (problems/configs/hyq_trot_mpc.toml).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

import problems
from experiments.benchmark_first_order import markdown
from experiments.config import Config, load_config
from experiments.replan.run import setup, simulate
from trajopt.run_log import EventKind, RunLog

CONFIG = Path(problems.__file__).parent / "configs" / "irb4600_replan.toml"
START = 0.1
"""[rad]"""
REACHED, FREE = 1e-2, 0.25
"""Of the goal [rad], of the sphere's centre [m]."""
_LOOSE = "gradient_tolerance=1e-4, constraint_tolerance=1e-5, max_iterations=30"
_SOFT_GOAL = [
    "problem.terminal='cost'",
    "problem.position_limits=false",
    "problem.weights.terminal_goal=1e5",
    "problem.weights.terminal_velocity=1e4",
]
PLANNERS: dict[str, list[str]] = {
    "dms": [],
    "sqp": [f"solver={{name='sqp', {_LOOSE}}}"],
    "sqp_rti": [f"solver={{name='sqp', hessian='gauss_newton', {_LOOSE}}}", "replan.mode='real_time'"],
    "slq_rti": ["solver={name='slq'}", "replan.mode='real_time'", *_SOFT_GOAL],
}
"""Overrides of the config. Real-time iterations of SLQ know no constraints: the goal is a cost there, joint limits are left out."""
METHODS = ("analytic", "casadi_ad", "forward_ad", "complex_step", "central_difference", "forward_difference")


class Outcome(NamedTuple):
    """A run: its log, the largest joint error at its end [rad], the least distance from the sphere's centre [m], inf without it."""

    log: RunLog
    error: float
    clearance: float


def scenario(planner: str, seed: int, obstacle: bool, overrides: Sequence[str] = ()) -> Config:
    """The config of a run. Raises KeyError for an unknown planner."""
    config = load_config(CONFIG, [f"replan.seed={seed}", *PLANNERS[planner], *overrides])
    moved = np.random.default_rng(seed).uniform(-START, START, len(config.problem.q0))
    q0 = tuple((np.array(config.problem.q0) + moved).tolist())
    if obstacle:
        return replace(config, problem=replace(config.problem, q0=q0))
    still = replace(config.replan, obstacle=replace(config.replan.obstacle, term=""))
    return replace(config, problem=replace(config.problem, q0=q0, obstacle=None), replan=still)


def outcome(config: Config) -> Outcome:
    """Run a scenario."""
    log = simulate(setup(config))
    goal = np.array(config.problem.goal_q)
    error = float(np.abs(log.xs[-1, : len(goal)] - goal).max())
    return Outcome(log, error, min((float(c.min()) for c in log.clearances.values()), default=np.inf))


HEAD = [
    "planner",
    "sphere",
    "goal reached",
    "least distance [m]",
    "iterations p50, max",
    "ms p50, p95, max",
    "failed",
    "late",
]


def row(name: str, obstacle: bool, outcomes: Sequence[Outcome]) -> list[str]:
    """The numbers of some runs, their solves taken together."""
    solves = [solve for run in outcomes for solve in run.log.solves]
    found, ms = np.array([s.iterations for s in solves if s.success]), 1e3 * np.array([s.seconds for s in solves])
    clearance = min(run.clearance for run in outcomes)
    return [
        name,
        "yes" if obstacle else "no",
        f"{sum(run.error <= REACHED for run in outcomes)} of {len(outcomes)}",
        f"{clearance:.3f}{'' if clearance >= FREE else ' TOO CLOSE'}" if obstacle else "",
        f"{np.median(found):.0f}, {found.max()}",
        ", ".join(f"{v:.1f}" for v in np.percentile(ms, (50, 95, 100))),
        str(sum(not s.success for s in solves)),
        str(sum(run.log.count(EventKind.LATE_PLAN) for run in outcomes)),
    ]


def trot() -> list[list[str]]:
    """What became of HyQ, and how often it could have planned."""
    config = load_config(CONFIG.with_name("hyq_trot_mpc.toml"))
    start = setup(config)
    log = simulate(start)
    seconds = np.array([(s.respond, s.prepare) for s in log.spells])
    height, wanted = log.xs[:, 2], config.problem.height
    return [
        ["on its feet for", f"{log.times[-1] + log.tick:.1f} s, {log.xs[-1, 0]:.2f} m", f"{config.replan.duration} s"],
        ["largest error of its height", f"{np.abs(height - wanted).max():.3f} m", ""],
        ["planned at", f"{1.0 / config.replan.period:.0f} Hz", "20 Hz"],
        ["possible, median of plans", f"{1.0 / np.median(seconds.sum(axis=1)):.0f} Hz", ""],
        ["ms of responses p50, max", f"{1e3 * np.median(seconds[:, 0]):.1f}, {1e3 * seconds[:, 0].max():.1f}", ""],
        ["late, failed", f"{log.count(EventKind.LATE_PLAN)}, {sum(not s.success for s in log.solves)}", "0, 0"],
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many scenarios")
    parser.add_argument("--planners", default=",".join(PLANNERS))
    parser.add_argument("--methods", default="analytic", help=f"of derivatives: {','.join(METHODS)}")
    parser.add_argument("--trot", action="store_true", help="HyQ's trot instead")
    arguments = parser.parse_args()
    if arguments.trot:
        print(markdown(["HyQ's trot", "measured", "asked"], trot()))
        return
    print("\n".join(markdown(HEAD, []).splitlines()[:2]))
    for method in arguments.methods.split(","):
        for planner in arguments.planners.split(","):
            for obstacle in (True, False):
                configs = [
                    scenario(planner, seed, obstacle, [f"backend='{method}'"]) for seed in range(arguments.seeds)
                ]
                found = row(f"{planner}, {method}", obstacle, [outcome(config) for config in configs])
                print(markdown(HEAD, [found]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
