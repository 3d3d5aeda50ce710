"""Tests of robot files: loading, accuracy of derivatives, and a first task.

    python -m experiments.benchmark_robots [--robots NAME_OR_FILE ...] [--engine NAME] [--seed 0] [--out DIR]

Robots are bundled names, erd:NAME, URDF or MJCF files. Robots with two or more feet stand, and trot (four feet) or walk
(two feet), by the bundled configurations (:mod:`experiments.benchmarks.robots.benchmark_legged`). All other robots get
a fixed base, and their longest chain reaches a random goal within all limits
(:mod:`experiments.benchmarks.robots.arm_goals`, "hard"); undriven joints are locked.

first: largest difference of analytic derivatives of the forward dynamics from the complex step. second: largest
difference of contracted second derivatives from forward AD. Both are at random states and relative to the largest
entry. mujoco: largest difference of mass matrix and bias from MuJoCo, for MJCF. s: total processor time, with tracing
and solving. DIR receives robots.csv, one row per robot.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, SecondOrderBackend
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.mjcf.elements import actuators, undriven
from dynamics_backends.rigid_body.mjcf.notes import largest_difference
from dynamics_backends.rigid_body.mjcf.source import Names, compiled, is_mjcf
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.robots import ROBOT_WARNINGS, is_path, load_robot
from dynamics_backends.systems.bodies.free_body import FreeBody
from experiments.benchmarks.robots.arm_goals import Arm, Reach, load_arm, reach
from experiments.benchmarks.robots.benchmark_arms import Job, solve_reach
from experiments.benchmarks.robots.benchmark_legged import BIPEDS, GAITS, QUADRUPEDS, gait_rows
from experiments.benchmarks.tables import markdown, write_csv
from problems.arms.arm import holding_forces
from problems.legged.robot.stance import Stance
from problems.robots.loading import load_floating_base
from trajopt.config.task import position_of

POINTS, SECOND_UP_TO = 3, 45
"""Number of random states, and maximum degrees of freedom for second derivatives."""
TRIES, PATH_POINTS, HOLDS = 1000, 9, 0.8
"""Number of candidate goals, number of checked points on the path, and fraction of the effort limits for holding the arm there."""
GAITS_BY_FEET = {4: ("stand", "trot"), 2: ("biped walk",)}
"""Number of feet -> gaits."""


class Row(NamedTuple):
    """Results of one robot. load [s], first, second, mujoco, s: see the module, NaN if missing. tasks: tasks with their status."""

    robot: str
    dofs: int
    load: float
    first: float
    second: float
    mujoco: float
    tasks: str
    solved: bool
    s: float
    reason: str


def robot_row(robot: str, engine: str | None = None, seed: int = 0) -> Row:
    """Test one robot; errors give a row too."""
    began, found = processor_time(), Row(robot, 0, np.nan, np.nan, np.nan, np.nan, "", False, np.nan, "")
    try:
        model = load(robot)
        found = found._replace(dofs=model.nv, load=processor_time() - began)
        first, second = derivative_errors(model, seed)
        found = found._replace(first=first, second=second, mujoco=_against_mujoco(robot))
        found = _tasks(robot, model, found, engine, seed)
    except Exception as error:  # a failing robot must not stop the others
        found = found._replace(reason=f"{type(error).__name__}: {error}".splitlines()[0])
    return found._replace(s=processor_time() - began)


def processor_time() -> float:
    """Return the processor time [s] of this process and its finished child processes."""
    return sum(os.times()[:4])


def load(robot: str) -> Model:
    """Load a model with the base of its MJCF file; for URDF, floating for legged robots and fixed for others."""
    mjcf = is_path(robot) and is_mjcf(Path(robot).expanduser())
    with warnings.catch_warnings():
        for category in ROBOT_WARNINGS:
            warnings.simplefilter("ignore", category)
        return load_robot(robot) if mjcf else load_robot(robot, base="floating" if legged(robot) else "fixed")


def legged(robot: str) -> bool:
    """True for known legged robots."""
    return robot in (*QUADRUPEDS, *BIPEDS)


def derivative_errors(model: Model, seed: int) -> tuple[float, float]:
    """Return the errors of first and second derivatives."""
    rng, body = np.random.default_rng(seed), FreeBody(model)
    xs = np.concatenate([model.random_configuration(rng, POINTS), rng.standard_normal((POINTS, model.nv))], axis=1)
    us = rng.standard_normal((POINTS, body.nu))
    methods = {name: make_backend(body, name, engine="numpy") for name in ("analytic", "complex_step", "forward_ad")}
    first = _error(methods["analytic"].jacobians(xs, us), methods["complex_step"].jacobians(xs, us))
    if model.nv > SECOND_UP_TO:
        return first, np.nan
    lam = rng.standard_normal((POINTS, body.n_out))
    second = [b for b in (methods["analytic"], methods["forward_ad"]) if isinstance(b, SecondOrderBackend)]
    ours, theirs = (backend.hessian_contraction(xs, us, 0.0, None, lam)[1] for backend in second)
    return first, _error(ours, theirs)


def _error(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """Return the largest difference, relative to the largest entry of its block."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True) if np.size(b)]
    return max(
        float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)) if b.any() else float(np.abs(a).max())
        for a, b in pairs
    )


def _against_mujoco(robot: str) -> float:
    if not (is_path(robot) and is_mjcf(Path(robot).expanduser())):
        return np.nan
    simulated = compiled(Path(robot).expanduser()).simulated
    return largest_difference(load(robot), simulated, Names(simulated))


def _tasks(robot: str, model: Model, row: Row, engine: str | None, seed: int) -> Row:
    """Run the robot's tasks and add their results to its row."""
    feet = _feet(robot, model)
    gaits = [gait for gait in GAITS_BY_FEET.get(feet, ("stand",)) if gait in GAITS] if feet else []
    if gaits:
        overrides = [] if engine is None else [f"engine={engine}"]
        results = list(gait_rows(robot, gaits, overrides))
        summary = ", ".join(f"{result.gait} {result.status} ({result.iterations})" for result in results)
        reasons = [f"{result.gait}: {result.reason}" for result in results if not result.solved]
        return row._replace(tasks=summary, solved=not reasons, reason="; ".join(reasons))
    arm = load_arm(robot, rigid=_rigid(robot))
    goal = _holdable_goal(arm, seed)
    result = solve_reach(arm, goal, 0, "auto", Job("hard", seed, 1, ("auto",), None, None), engine)
    distance = 1e3 * float(np.linalg.norm(goal.goal - position_of(arm.model, arm.frame, goal.q0)))
    solve = f"{result.status} ({result.iterations}), {result.miss:.1f} of {distance:.0f} mm left"
    summary = f"reach of {arm.frame} by {arm.model.nv} joints {solve}"
    return row._replace(tasks=summary, solved=result.converged, reason=result.reason)


def _holdable_goal(arm: Arm, seed: int) -> Reach:
    """Return the first random task whose straight path the joints can hold against gravity and springs, else the first task."""
    tasks = (reach(arm, "hard", seed, number) for number in range(TRIES))
    return next((task for task in tasks if _is_holdable(arm.model, task)), reach(arm, "hard", seed, 0))


def _is_holdable(model: Model, task: Reach) -> bool:
    """True if the joints can hold the robot at all points of the path; True for joints of several degrees of freedom."""
    if model.nq != model.nv:
        return True
    qs = task.q0 + np.linspace(0.0, 1.0, PATH_POINTS)[:, None] * (task.q - task.q0)
    holding = holding_forces(model, qs) + model.stiffness * (qs - model.spring_reference)
    return bool((np.abs(holding) <= HOLDS * model.effort_limit).all())


def _feet(robot: str, model: Model) -> int:
    """Return the number of feet: 0 for a fixed base, or if fewer than two limbs reach down."""
    if not model.floating_base:
        return 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return len(Stance.from_model(load_floating_base(robot)).feet)
    except ValueError:
        if legged(robot):
            raise
        return 0


def _rigid(robot: str) -> tuple[str, ...]:
    """Return the joints without an actuator in the MJCF file."""
    if not (is_path(robot) and is_mjcf(Path(robot).expanduser())):
        return ()
    simulated = compiled(Path(robot).expanduser()).simulated
    names = Names(simulated)
    return undriven(simulated, names, actuators(simulated, names))


def table(rows: Sequence[Row], file: Path | None = None) -> str:
    """Format the results, one row per robot; file: CSV file to write them to."""
    header = ["robot", "DoFs", "load s", "first", "second", "MuJoCo", "tasks (iterations)", "s", "reason"]
    lines = [
        [
            *(
                _short_path(r.robot),
                str(r.dofs),
                _number(r.load, ".2f"),
                _number(r.first, ".0e"),
                _number(r.second, ".0e"),
            ),
            *(_number(r.mujoco, ".0e"), r.tasks, _number(r.s, ".0f"), r.reason),
        ]
        for r in rows
    ]
    return markdown(header, lines, file)


def _short_path(robot: str) -> str:
    """Shorten a path to its last two parts."""
    return robot if not is_path(robot) else "/".join(Path(robot).parts[-2:])


def _number(value: float, form: str) -> str:
    return "" if np.isnan(value) else f"{value:{form}}"


def main() -> None:
    """Test the robots and print the table. An interrupt keeps the finished rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", default=[*QUADRUPEDS, *BIPEDS], metavar="NAME_OR_FILE")
    parser.add_argument("--engine", help="engine; default: that of the configuration")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of the CSV")
    a = parser.parse_args()
    rows: list[Row] = []
    try:
        for robot in a.robots:
            rows.append(robot_row(robot, a.engine, a.seed))
            print(f"{_short_path(robot)}: {rows[-1].tasks} {rows[-1].reason} {rows[-1].s:.0f} s", flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(rows)} robots")
    if a.out is not None:
        a.out.mkdir(parents=True, exist_ok=True)
        write_csv(a.out / "robots.csv", rows)
    print(f"\n{table(rows, a.out and a.out / 'table.csv')}\n{sum(row.solved for row in rows)} of {len(rows)} solved")


if __name__ == "__main__":
    main()
