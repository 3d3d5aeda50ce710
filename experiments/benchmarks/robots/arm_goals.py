"""Random reaching tasks for arms. An arm is the joint chain that moves a frame; fingers and all other joints are locked.

    start    random configuration in the middle 60 % of the joint ranges
    goal     position of the frame at a random configuration within the joint ranges; in the variant "hard" the configuration is
             moved toward the start until a minimum-jerk motion keeps the velocity limits

A missing limit is replaced by +-pi [rad] or +-1 [m]. A task depends only on the seed, the arm's name and the task number.
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
START_RANGE = 0.6
PEAK_SPEED = 1.875
"""Peak speed of a minimum-jerk motion, relative to its mean speed."""
SPEED_FRACTION = 0.8
"""Fraction of the velocity limits used by the motion to a goal."""
FINGERS = re.compile("finger|gripper|thumb|knuckle|jaw|claw|hand", re.IGNORECASE)
"""Name pattern of finger joints; joints beyond them are fingers too."""
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
"""Robot -> end-effector frame, if the last link of the longest chain is not the hand."""
NOT_ARMS = re.compile(
    "^(a1|alex|anymal|b1$|bolt|borinot|double_pendulum|finger_edu|g1|go|hector|hextilt|hyq|human|icub|iris|laikago|quad"
    "|romeo|simple_humanoid|solo|talos_full|talos_reduced|talos$|allegro|panda_collision|talos_left|ur[0-9]+_robot)"
)
"""Names in example-robot-data of legged robots, flying robots, hands, and duplicates."""


class Arm(NamedTuple):
    """An arm. robot: name in a configuration; locked: values of locked joints; frame: end effector; model: with these locked."""

    name: str
    robot: str
    locked: Mapping[str, float]
    frame: str
    model: Model


class Reach(NamedTuple):
    """A reaching task from rest at q0 (nq,) to the position goal (3,) [m], which the frame has at q (nq,)."""

    q0: Array
    goal: Array
    q: Array


def all_arms() -> list[str]:
    """Return the names of the bundled arms and those of example-robot-data."""
    erd = [name for name in erd_names() if not NOT_ARMS.match(name)]
    return [*BUNDLED, *(f"erd:{name}:{FRAMES[name]}" if name in FRAMES else f"erd:{name}" for name in erd)]


def load_arm(name: str, rigid: Collection[str] = ()) -> Arm:
    """Load an arm from NAME_OR_FILE or NAME_OR_FILE:FRAME. rigid: further joints to lock.

    Raises the errors of loading, and ValueError for a robot without moving joints.
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
    active = [b for b in _path(model, tip) if b not in idle]
    if not active:
        raise ValueError(f"{name}: only fingers move")
    locked = {model.joint_names[b]: _nearest_to_zero(model, b) for b in range(model.nb) if b not in active}
    arm_model = lock_joints(model, locked) if locked else model
    touching = [f.name for f in arm_model.frames if f.kind == "contact" and f.body == arm_model.nb - 1]
    frame = frame or (touching or [f.name for f in model.frames if f.kind == "link" and f.body == tip])[-1]
    return Arm(name, robot, locked, frame, arm_model)


def _parts(name: str) -> tuple[str, str | None]:
    """Split NAME:FRAME into robot and frame; the prefix "erd:" is part of the robot."""
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
    """Return the body at the end of the longest chain of joints that are not idle, or -1; the first one of several."""
    bodies = [b for b in range(model.nb) if b not in idle]
    return max(bodies, key=lambda b: (len(set(_path(model, b)) - set(idle)), -b), default=-1)


def _nearest_to_zero(model: Model, b: int) -> float:
    """Return the joint value within its range that is nearest to zero; 0 for joints of several degrees of freedom."""
    if len(model.dofs(b)) > 1:
        return 0.0
    i = int(model.q_index[b])
    return float(np.clip(0.0, *sorted((model.q_lower[i], model.q_upper[i]))))


def ranges(model: Model) -> tuple[Array, Array]:
    """Return lower and upper ends (nq,) of the joint ranges of starts and goals."""
    prismatic = np.array([kind == "prismatic" for kind in model.joint_types])
    reach = np.where(prismatic, 1.0, np.pi)
    lower = np.where(np.isfinite(model.q_lower), model.q_lower, -reach)
    upper = np.where(np.isfinite(model.q_upper), model.q_upper, reach)
    return np.minimum(lower, upper), np.maximum(lower, upper)


def reach(arm: Arm, variant: str, seed: int, number: int) -> Reach:
    """Return the random task of a number."""
    rng = np.random.default_rng([seed, zlib.crc32(arm.name.encode()), number])
    lower, upper = ranges(arm.model)
    middle = 0.5 * (lower + upper)
    q0, q = middle + START_RANGE * (rng.uniform(lower, upper) - middle), rng.uniform(lower, upper)
    if variant == "hard":
        fastest = PEAK_SPEED * np.abs(q - q0) / (HORIZON * DT)
        q = q0 + min(1.0, float((SPEED_FRACTION * arm.model.velocity_limit / np.maximum(fastest, 1e-9)).min())) * (
            q - q0
        )
    return Reach(q0, position_of(arm.model, arm.frame, q), q)


def config_of(
    arm: Arm, task: Reach, variant: str, solver: str, guess: str | None, time_limit: float | None
) -> dict[str, Any]:
    """Return the tables of a configuration. guess: None for the default of the problem."""
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
        limits = {
            "position_limits": _limited(arm.model),
            "velocity_limits": np.isfinite(arm.model.velocity_limit).any(),
        }
        problem |= {key: bool(value) for key, value in limits.items()}
    if guess is not None:
        problem["guess"] = guess
    limit = {} if time_limit is None else {"time_limit": time_limit}
    return {"problem": problem, "solver": {"name": solver, **limit}}


def _limited(model: Model) -> bool:
    return bool(np.isfinite(model.q_lower).any() or np.isfinite(model.q_upper).any())
