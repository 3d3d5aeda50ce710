"""Arms of any file and random tasks for them: an arm is what moves a frame, its fingers and all other joints locked.

    start    middle of the range + 0.6 of a random offset within it
    goal     where the frame is at a random configuration within the range, brought nearer to the start where a minimum-jerk motion
             to it would be faster than the velocity limits (only in the variant "hard", which keeps them)

A missing limit counts as +-pi [rad], or +-1 [m].  A task depends on the seed, the arm's name and its number alone.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_builder import lock_joints
from dynamics_backends.rigid_body.robots import ROBOT_WARNINGS
from problems.robots import erd_names
from problems.robots.loading import load_fixed_base
from trajopt.config.task import position_of

HORIZON, DT = 100, 0.02
START_SHARE = 0.6
FASTEST = 1.875
"""The largest speed of a minimum-jerk motion, in units of its mean."""
SPEED_SHARE = 0.8
"""The share of the velocity limits that a goal may ask for."""
FINGERS = re.compile("finger|gripper|thumb|knuckle|jaw|claw|hand", re.IGNORECASE)
"""Joints with such a name, and all beyond them, hold things."""
WEIGHTS = {
    "velocity": 0.3,
    "control": 1e-3,
    "joint_limits": 100.0,
    "terminal_goal": 1e3,
    "terminal_velocity": 10.0,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"position_limits": False, "velocity_limits": False, "terminal": "cost"},
    "hard": {"position_limits": True, "velocity_limits": True, "terminal": "constraint"},
}
BUNDLED = ("gen3", "iiwa7", "irb4600")
FRAMES = {
    "baxter": "left_gripper",
    "kinova": "j2s6s200_end_effector",
    "pr2": "r_gripper_tool_frame",
    "tiago_dual": "arm_left_tool_link",
}
"""Where the last link of the longest chain is not the hand."""
NOT_ARMS = re.compile(
    "^(a1|alex|anymal|b1$|bolt|borinot|double_pendulum|finger_edu|g1|go|hector|hextilt|hyq|human|icub|iris|laikago|quad"
    "|romeo|simple_humanoid|solo|talos_full|talos_reduced|talos$|allegro|panda_collision|talos_left|ur[0-9]+_robot)"
)
"""Robots of example-robot-data that walk, fly, are hands, or are there by another name."""


class Arm(NamedTuple):
    """name: as given. robot: what a config calls it. locked: joints made rigid, at these values. frame: what is to be moved.
    model: with them locked."""

    name: str
    robot: str
    locked: Mapping[str, float]
    frame: str
    model: Model


class Reach(NamedTuple):
    """From rest at q0 (nq,) to the position goal (3,) [m] of the frame, where it is at q (nq,)."""

    q0: Array
    goal: Array
    q: Array


def all_arms() -> list[str]:
    """The bundled arms and those of example-robot-data."""
    erd = [name for name in erd_names() if not NOT_ARMS.match(name)]
    return [*BUNDLED, *(f"erd:{name}:{FRAMES[name]}" if name in FRAMES else f"erd:{name}" for name in erd)]


def load_arm(name: str, rigid: Collection[str] = ()) -> Arm:
    """NAME_OR_FILE, or NAME_OR_FILE:FRAME. rigid: joints to be locked beside the fingers.

    Raises what loading raises, ValueError for a robot without moving joints.
    """
    robot, frame = _parts(name)
    with warnings.catch_warnings():
        for category in ROBOT_WARNINGS:
            warnings.simplefilter("ignore", category)
        model = load_fixed_base(robot)
    idle = _fingers(model) | {b for b in range(model.nb) if model.joint_names[b] in rigid}
    tip = _tip(model, idle) if frame is None else model.frames[model.frame_id(frame)].body
    if tip < 0:
        raise ValueError(f"{name}: no joint moves {frame or 'a link'}")
    kept = [b for b in _path(model, tip) if b not in idle]
    if not kept:
        raise ValueError(f"{name}: only fingers move")
    locked = {model.joint_names[b]: _nearest_to_zero(model, b) for b in range(model.nb) if b not in kept}
    whole = lock_joints(model, locked) if locked else model
    touching = [f.name for f in whole.frames if f.kind == "contact" and f.body == whole.nb - 1]
    frame = frame or (touching or [f.name for f in model.frames if f.kind == "link" and f.body == tip])[-1]
    return Arm(name, robot, locked, frame, whole)


def _parts(name: str) -> tuple[str, str | None]:
    """Robot and frame; the colon of "erd:" parts nothing."""
    prefix = "erd:" if name.startswith("erd:") else ""
    robot, _, frame = name.removeprefix(prefix).partition(":")
    return prefix + robot, frame or None


def _path(model: Model, b: int) -> list[int]:
    path = []
    while b >= 0:
        path.append(b)
        b = int(model.parent[b])
    return path[::-1]


def _fingers(model: Model) -> set[int]:
    found: set[int] = set()
    for b in range(model.nb):
        if int(model.parent[b]) in found or FINGERS.search(model.joint_names[b]):
            found.add(b)
    return found


def _tip(model: Model, idle: Collection[int]) -> int:
    """The body at the end of the longest chain of joints that are not idle, the first of several; -1 without any."""
    bodies = [b for b in range(model.nb) if b not in idle]
    return max(bodies, key=lambda b: (len(set(_path(model, b)) - set(idle)), -b), default=-1)


def _nearest_to_zero(model: Model, b: int) -> float:
    """A value of a joint within its range; 0, where it is neutral, for one of several degrees of freedom."""
    if len(model.dofs(b)) > 1:
        return 0.0
    i = int(model.q_index[b])
    return float(np.clip(0.0, *sorted((model.q_lower[i], model.q_upper[i]))))


def ranges(model: Model) -> tuple[Array, Array]:
    """Lower and upper ends (nq,) of the ranges that starts and goals are drawn from."""
    prismatic = np.array([kind == "prismatic" for kind in model.joint_types])
    reach = np.where(prismatic, 1.0, np.pi)
    lower = np.where(np.isfinite(model.q_lower), model.q_lower, -reach)
    upper = np.where(np.isfinite(model.q_upper), model.q_upper, reach)
    return np.minimum(lower, upper), np.maximum(lower, upper)


def reach(arm: Arm, variant: str, seed: int, number: int) -> Reach:
    """The task of this number."""
    rng = np.random.default_rng([seed, zlib.crc32(arm.name.encode()), number])
    lower, upper = ranges(arm.model)
    middle = 0.5 * (lower + upper)
    q0, q = middle + START_SHARE * (rng.uniform(lower, upper) - middle), rng.uniform(lower, upper)
    if variant == "hard":
        fastest = FASTEST * np.abs(q - q0) / (HORIZON * DT)
        q = q0 + min(1.0, float((SPEED_SHARE * arm.model.velocity_limit / np.maximum(fastest, 1e-9)).min())) * (q - q0)
    return Reach(q0, position_of(arm.model, arm.frame, q), q)


def config_of(
    arm: Arm, task: Reach, variant: str, solver: str, guess: str | None, time_limit: float | None
) -> dict[str, Any]:
    """The values of a configuration file. guess: None for the default of the problem."""
    problem = {
        "name": "arm_go_to",
        "robot": arm.robot,
        "locked_joints": dict(arm.locked),
        "frame": arm.frame,
        "q0": task.q0.tolist(),
        "goal_position": task.goal.tolist(),
        "horizon": HORIZON,
        "dt": DT,
        "torque_limits": bool(np.isfinite(arm.model.effort_limit).all()),
        "weights": WEIGHTS if _limited(arm.model) else {k: v for k, v in WEIGHTS.items() if k != "joint_limits"},
        **VARIANTS[variant],
    }
    if variant == "hard":
        has = {"position_limits": _limited(arm.model), "velocity_limits": np.isfinite(arm.model.velocity_limit).any()}
        problem |= {key: bool(value) for key, value in has.items()}
    if guess is not None:
        problem["guess"] = guess
    limit = {} if time_limit is None else {"time_limit": time_limit}
    return {"problem": problem, "solver": {"name": solver, **limit}}


def _limited(model: Model) -> bool:
    return bool(np.isfinite(model.q_lower).any() or np.isfinite(model.q_upper).any())
