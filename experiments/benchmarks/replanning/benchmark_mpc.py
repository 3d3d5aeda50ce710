"""Step times of to.MPC: a UR5 follows a moving goal.

    python -m experiments.benchmark_mpc [--steps 10000] [--horizon 30] [--out DIR]

One real-time iteration per step at 100 Hz, with time steps of 20 ms. A step is `mpc.set` and `mpc.step`; the simulation
of the plant is not timed. The table has wall-clock time and processor time of the thread, which other processes affect
less.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from experiments.benchmarks.tables import markdown

PERIOD, DT = 0.01, 0.02
CENTER = np.array([0.45, 0.1, 0.4])
AMPLITUDE, FREQUENCY = np.array([0.12, 0.3, 0.12]), np.array([0.21, 0.15, 0.33])


def goal_at(t: float) -> Array:
    """Return the position of the goal (3,) [m] at t [s]."""
    return CENTER + AMPLITUDE * np.sin(2.0 * np.pi * FREQUENCY * t)


def reach(knots: int) -> to.OCP:
    """Build a problem in which a UR5 moves its tool to the goal."""
    model = to.load_robot("erd:ur5")
    robot = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic"), "semi_implicit_euler")
    q0 = np.array([0.0, -1.2, 1.6, -1.9, -1.57, 0.0])
    x0, speed = np.concatenate([q0, np.zeros(6)]), np.repeat([0.0, 1.0], 6)
    hold = to.inverse_dynamics(model, q0, np.zeros(6), np.zeros(6))
    running = [
        to.control_cost(6, reference=hold, weight=1e-3),
        to.state_cost(robot.manifold, x0, 0.5 * speed, "velocity"),
        to.frame_position_cost(model, robot.manifold, "tool0", CENTER, 300.0, "goal"),
    ]
    terminal = [
        to.frame_position_cost(model, robot.manifold, "tool0", CENTER, 1e3, "goal"),
        to.state_cost(robot.manifold, x0, speed, "final velocity"),
    ]
    return to.OCP.single_phase(dynamics, x0, knots, DT, running, terminal, model=model)


def run(knots: int, steps: int) -> tuple[Array, float, int]:
    """Return step times (steps, 2) [s], wall-clock and processor; median distance from the goal [m]; number of failed plans."""
    ocp = reach(knots)
    mpc, plant, x = to.MPC(ocp, period=PERIOD), to.Simulator(ocp.phases[0].dynamics), ocp.x0
    seconds, distance = np.empty((steps, 2)), np.empty(steps)
    gc.collect()
    gc.freeze()
    for k in range(steps):
        goal = goal_at(k * PERIOD)
        began = time.perf_counter(), time.thread_time()
        mpc.set("goal", goal)
        u = mpc.step(x, k * PERIOD)
        seconds[k] = time.perf_counter() - began[0], time.thread_time() - began[1]
        x = plant.advance(x, u[None], PERIOD)
        distance[k] = np.linalg.norm(to.frame_placement(ocp.model, x[: ocp.model.nq], "tool0")[1] - goal)
    gc.unfreeze()
    return seconds, float(np.median(distance[100:])), mpc.statistics()["failed"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--horizon", type=int, default=30, help="number of knots")
    parser.add_argument("--out", type=Path, help="folder of table.csv")
    given = parser.parse_args(arguments)
    seconds, distance, failed = run(given.horizon, given.steps)
    rows = [
        [name, *(f"{1e3 * value:.2f}" for value in (np.median(t), np.percentile(t, 99), t.max()))]
        for name, t in zip(("wall-clock", "processor"), seconds.T, strict=True)
    ]
    print(markdown(["step [ms]", "median", "p99", "largest"], rows, given.out and given.out / "table.csv"))
    print(f"\n{given.steps} steps; median distance from the goal {1e3 * distance:.1f} mm; failed plans: {failed}")


if __name__ == "__main__":
    main()
