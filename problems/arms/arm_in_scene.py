"""From here to there, not through the shelf, as fast as the motors allow: an arm among obstacles, from rest to rest.

The problem is that of :mod:`problems.arms.in_scene`. Its solution is checked with the true shapes, a thousand times a second of
motion (:mod:`trajopt.collisions.mesh_check`); where it comes too close it is solved again with other pairs and more margin there,
at most :data:`ROUNDS` times, and a motion that touches is no success.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.cover import covers
from dynamics_backends.rigid_body.geometry.link_shapes import link_shapes
from dynamics_backends.rigid_body.geometry.robot_cover import RobotCover
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix
from problems.arms.arm import Arm, Configuration
from problems.arms.in_scene import Costs, Limits, MotionInScene, motion_at, plan_along
from problems.arms.scene_settings import SceneBody, load_scene
from problems.task import (
    BackendFactory,
    Checked,
    Checks,
    Refined,
    Task,
    load_fixed_base,
    not_negative,
    per_dof,
    position_of,
)
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.free_space import FreeSpace
from trajopt.collisions.mesh_check import RATE, LeastDistance, MeshCheck
from trajopt.collisions.own_pairs import OwnPairs, own_pairs
from trajopt.guesses.inverse_kinematics import inverse_kinematics
from trajopt.guesses.rrt_connect import rrt_connect, short_cut
from trajopt.problem.constraints import Constraint

Point = tuple[float, float, float]
ROUNDS = 8
"""Solves of a problem at most."""
PATIENT = 5
"""Up to this round a motion that takes longer than the guess is not what was looked for."""
MORE = 0.01
"""[m] The margin of a step grows by no more than this in a round."""
DEEP = 0.01
"""[m] A motion that goes deeper has gone through something: the next solve starts where this one did, with its pairs as well."""
KEPT = 0.5
"""The share of the margin that a solution must keep."""


@dataclass(frozen=True, kw_only=True)
class Weights(Checked):
    """Weights of the cost, each integrated over time.

    time: of the duration [1/s]. acceleration: of the squares of accelerations as shares of ``acceleration_scale``. energy: of the
    squares of torques as shares of their limits.
    """

    time: float = 1.0
    acceleration: float = 0.01
    energy: float = 0.0

    def checks(self) -> Checks:
        return {key: not_negative(value) for key, value in vars(self).items()} | {
            "acceleration": (
                self.time + self.energy + self.acceleration > 0,
                "a weight above 0, of time or energy at least",
            ),
        }


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """An arm among obstacles.

    robot: a bundled name, "erd:NAME", or the path of a URDF or MJCF file, whose collision shapes are those of its links. mimic,
    locked_joints: see :class:`problems.arms.arm_go_to.Settings`.
    q0: where it starts. goal_q: where it ends, or goal_position: of ``frame`` [m], with, if wanted, goal_rotation: roll, pitch, yaw
    [rad]. frame: the tool, by default the last link. free_axis: of the frame, about which the rotation does not matter.
    scene: a file, TOML, URDF or MJCF; body: bodies beside those of the file. missing_meshes: "error", or "leave_out".
    margin: distance [m] asked of the optimizer; half of it is asked of the motion between. knots: steps.
    checks_per_step: places in each where distances hold. duration: shortest and longest [s].
    acceleration_limits: a number, numbers by joint, or none [rad/s^2, m/s^2]. acceleration_scale: what accelerations cost as shares
    of. velocity_scale, torque_scale: shares of the limits of the model.
    cover_tolerance, cover_pieces: how far capsules may stand out of a shape [m], and how many it gets at most.
    self_collision: whether links keep from each other. guess: "auto" (the straight line, or where that is not free the way of
    RRT-Connect where ompl is installed), "straight", "rrt". seed, planning_time [s]: of RRT-Connect.
    """

    robot: str = "erd:panda"
    mimic: Literal["free", "lock"] = "free"
    locked_joints: tuple[str, ...] | Mapping[str, float] = ()
    q0: Configuration = "zero"
    goal_q: Configuration | None = None
    goal_position: Point | None = None
    goal_rotation: Point | None = None
    free_axis: Point | None = None
    frame: str | None = None
    scene: str | None = None
    body: SceneBody | tuple[SceneBody, ...] | None = None
    missing_meshes: Literal["error", "leave_out"] = "error"
    margin: float = 0.002
    knots: int = 32
    checks_per_step: int = 2
    duration: tuple[float, float] = (0.1, 10.0)
    acceleration_limits: float | tuple[float, ...] | None = None
    acceleration_scale: float = 10.0
    velocity_scale: float = 1.0
    torque_scale: float = 1.0
    cover_tolerance: float = 0.02
    cover_pieces: int = 4
    self_collision: bool = True
    guess: Literal["auto", "straight", "rrt"] = "auto"
    seed: int = 0
    planning_time: float = 10.0
    weights: Weights = field(default_factory=Weights)

    def checks(self) -> Checks:
        by_joints, by_frame = self.goal_q is not None, self.goal_position is not None
        low, high = self.duration
        return {
            "goal_q": (by_joints != by_frame, "either goal_q or goal_position, not both and not neither"),
            "goal_position": (not by_frame or self.frame is not None, "the name of its frame beside it"),
            "goal_rotation": (self.goal_rotation is None or by_frame, "goal_position beside it"),
            "free_axis": (self.free_axis is None or self.goal_rotation is not None, "goal_rotation beside it"),
            "margin": not_negative(self.margin),
            "knots": (2 <= self.knots <= 1000, "from 2 to 1000"),
            "checks_per_step": (1 <= self.checks_per_step <= 8, "from 1 to 8"),
            "duration": (0 < low < high < np.inf, "a shortest and a longest duration above 0"),
            "acceleration_scale": (self.acceleration_scale > 0, "a positive acceleration"),
            "velocity_scale": (self.velocity_scale > 0, "a positive share"),
            "torque_scale": (self.torque_scale > 0, "a positive share"),
            "cover_tolerance": (self.cover_tolerance > 0, "a positive length [m]"),
            "cover_pieces": (self.cover_pieces >= 1, "at least 1"),
            "planning_time": (self.planning_time > 0, "a positive number of seconds"),
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """The task of these settings.

    Raises ValueError for a start or goal in collision, with the pair and the depth, a goal out of reach, and missing meshes.
    """
    s = settings
    model = load_fixed_base(s.robot, s.mimic, s.locked_joints)
    arm = Arm.of(model, s.q0, s.goal_q, s.frame)
    shapes, missing = robot_shapes(model, s.missing_meshes)
    robot = covered(model, shapes, s.cover_tolerance, s.cover_pieces)
    own = own_pairs_of(robot) if s.self_collision else OwnPairs((), "self-collision is not looked at")
    return task_in_scene(s, arm, robot, shapes, scene_of(s), own, backend, missing)


def task_in_scene(
    s: Settings,
    arm: Arm,
    robot: RobotCover,
    shapes: tuple[PlacedShape, ...],
    scene: Scene,
    own: OwnPairs,
    backend: BackendFactory,
    missing: tuple[str, ...] = (),
    path: Array | None = None,
) -> Task:
    """The task with robot and scene at hand; path: corners (K, nq) of a guess, default as the settings say."""
    model = arm.model
    exact = find_spec("coal") is not None
    pairs = CollisionPairs(robot, scene, own.pairs)
    check = MeshCheck(model, shapes, scene, own.pairs) if exact else None
    _require_free(arm.q0, "the start", pairs, check)
    goal = _goal_configuration(s, arm, pairs)
    _require_free(goal, "the goal", pairs, check)
    limits = limits_of(s, model)
    costs = Costs(s.weights.time, s.weights.acceleration, s.weights.energy, np.full(model.nv, s.acceleration_scale))
    motion = MotionInScene(model, pairs, limits, costs, s.knots, s.checks_per_step, s.margin, exact)
    corners = path_of(s, arm.q0, goal, pairs, model) if path is None else path
    guess = plan_along(corners, limits, s.knots)
    ocp = motion.ocp(backend, arm.q0, guess, _goal_constraints(s, arm, motion))
    goal_point = position_of(model, arm.frame, goal) if s.goal_position is None else np.array(s.goal_position)
    refinement = Refinement(motion, check, ocp, guess)
    doubts = (
        ()
        if exact
        else ("the package coal is not installed: the motion is checked with capsules, not with the true shapes",)
    )
    return Task(
        ocp,
        guess,
        arm.frame,
        goal_point,
        warnings=(*missing, *doubts),
        notes=(f"pairs of the robot's own that are left out: {own.left_out}",),
        outcome=_outcome,
        clock=partial(_clock, s.knots),
        refined=refinement.refined,
        latest=lambda: refinement.latest,
        scene=scene,
    )


class Refinement:
    """Checks of solutions, and what they teach: margins grow where a motion came too close, and what one went through is looked at
    from then on."""

    def __init__(self, motion: MotionInScene, check: MeshCheck | None, ocp: to.OCP, guess: to.Guess) -> None:
        self.motion, self.check, self.ocp = motion, check, ocp
        self.free, self.seen, self.latest = guess, [guess], ocp
        self.more = np.zeros((motion.checks, motion.knots))
        self.rounds = 0

    def refined(self, solution: to.Solution) -> Refined:
        """See :class:`problems.task.Refined`."""
        motion, n = self.motion, self.motion.model.nv
        self.rounds += 1
        qs, _, _, times = motion_at(solution, n, RATE)
        least = self._least(qs, times)
        stuck = not solution.status.success or (self.rounds < PATIENT and times[-1] > self.free.xs[-1, -1])
        free = least.distance >= KEPT * motion.margin
        report = f"least distance {least}" if free else f"the motion comes too close: {least}"
        if free and (not stuck or self.rounds >= ROUNDS):
            return Refined(True, report)
        if self.rounds >= ROUNDS:
            return Refined(False, report)
        if stuck:  # in a corner, mostly slow: another way from the first guess, with some of what was learned
            self.more *= 0.5
            self.seen.append(to.Guess(solution.xs, solution.us))
            return self._again(report, self.free)
        plan = to.Guess(solution.xs, solution.us)
        self.seen.append(plan)
        if least.distance < -DEEP and self.rounds % 2:
            return self._again(report, self.free)
        self._ask_more(qs, times)
        return self._again(report, plan)

    def _again(self, report: str, start: to.Guess) -> Refined:
        self.latest = self.motion.with_pairs(self.ocp, start, self.more, self.seen)
        return Refined(False, report, self.latest, start)

    def _ask_more(self, qs: Array, times: Array) -> None:
        """Let the margins grow in steps that come too close, between the places where distances hold."""
        motion = self.motion
        step = np.minimum((times / times[-1] * motion.knots).astype(int), motion.knots - 1)
        for k in range(motion.knots):
            near = self._least(qs[step == k], times[step == k]).distance
            if near < 0.75 * motion.margin:
                grown = min(motion.margin - near, MORE)
                self.more[:, k] += grown
                self.more[-1, max(k - 1, 0)] += 0.5 * grown
                self.more[0, min(k + 1, motion.knots - 1)] += 0.5 * grown

    def _least(self, qs: Array, times: Array) -> LeastDistance:
        if self.check is not None:
            return self.check.along(qs, times)
        gaps = self.motion.pairs.least(qs, times)
        k = int(np.argmin(gaps))
        return LeastDistance(float(gaps[k]), "a capsule of the robot", "the scene", float(times[k]))


def robot_shapes(model: Model, missing: str = "error") -> tuple[tuple[PlacedShape, ...], tuple[str, ...]]:
    """The collision shapes of a robot, and sentences on what was left out. Raises ValueError for missing meshes, or no shape."""
    found = link_shapes(model.source, "collision")
    if found.missing and missing == "error":
        raise ValueError(f"{'; '.join(found.missing)}; missing_meshes = 'leave_out' goes on without")
    if not found.placed:
        raise ValueError(f"{model.name} has no collision shapes: nothing is known of what it may touch")
    return found.placed, tuple(f"left out: {sentence}" for sentence in found.missing)


_COVERS: dict[tuple, RobotCover] = {}


def covered(model: Model, shapes: tuple[PlacedShape, ...], tolerance: float, most: int) -> RobotCover:
    """The capsules of a robot, kept for the next problem of the same one."""
    key = (model.digest, model.source, tolerance, most)
    if key not in _COVERS:
        _COVERS[key] = RobotCover.of(model, covers(shapes, tolerance, most))
    return _COVERS[key]


@lru_cache(maxsize=16)
def own_pairs_of(robot: RobotCover) -> OwnPairs:
    """The pairs of a robot's own bodies, kept for the next problem."""
    return own_pairs(robot)


def scene_of(s: Settings) -> Scene:
    """The bodies of the file and those of the settings."""
    scene = Scene() if s.scene is None else load_scene(s.scene)
    more = () if s.body is None else (s.body,) if isinstance(s.body, SceneBody) else s.body
    return replace(scene, bodies=(*scene.bodies, *(body.body(Path()) for body in more)))


def limits_of(s: Settings, model: Model) -> Limits:
    """The limits of the motion."""
    acceleration = np.inf if s.acceleration_limits is None else s.acceleration_limits
    return Limits(
        np.asarray(model.q_lower),
        np.asarray(model.q_upper),
        s.velocity_scale * np.asarray(model.velocity_limit),
        per_dof(acceleration, model.nv, "acceleration_limits"),
        s.torque_scale * np.asarray(model.effort_limit),
        s.duration,
    )


def path_of(s: Settings, q0: Array, goal: Array, pairs: CollisionPairs, model: Model) -> Array:
    """Corners (K, nq) of a way from q0 to the goal; the straight line where no planner is installed or none finds a way."""
    straight = np.stack([q0, goal])
    space = FreeSpace(pairs, KEPT * s.margin)
    if s.guess == "straight" or (s.guess == "auto" and not space.line_touches(q0, goal, 0.04)):
        return straight
    if s.guess == "auto" and find_spec("ompl") is None:
        return straight
    lower, upper = np.asarray(model.q_lower), np.asarray(model.q_upper)
    found = rrt_connect(
        space.touches, space.line_touches, q0, goal, lower, upper, seed=s.seed, time_limit=s.planning_time
    )
    return straight if found is None else short_cut(found, space.line_touches, seed=s.seed)


def _require_free(q: Array, what: str, pairs: CollisionPairs, check: MeshCheck | None) -> None:
    """Raises ValueError that names the pair and the depth."""
    if check is not None:
        found = check.nearest(q)
        if found.distance <= 0.0:
            raise ValueError(
                f"{what} is in collision: {found.link} and {found.body}, {-1e3 * found.distance:.3g} mm deep; move it, or the body"
            )
        return
    gap = float(pairs.least(q[None], np.zeros(1))[0])
    if gap <= 0.0:
        raise ValueError(
            f"at {what} capsules that cover the links are {-1e3 * gap:.3g} mm deep in a body: install coal (pip install "
            "'urdf-trajopt[scene]') to hold the true shapes against each other, or lower cover_tolerance"
        )


def _goal_configuration(s: Settings, arm: Arm, pairs: CollisionPairs) -> Array:
    """goal_q, or a free configuration at the goal. Raises ValueError for a goal out of reach, with the nearest it came."""
    model = arm.model
    if arm.x_goal is not None:
        return arm.x_goal[: model.nq]
    space = FreeSpace(pairs, KEPT * s.margin)

    def clearance(qs: Array) -> Array:
        return np.array([-1.0 if space.touches(q) else 1.0 for q in qs])

    R = None if s.goal_rotation is None else rpy_matrix(s.goal_rotation)
    axis = None if s.free_axis is None else np.array(s.free_axis)
    found = inverse_kinematics(
        model, arm.frame, np.array(s.goal_position), R, free_axis=axis, q0=arm.q0, clearance=clearance
    )
    if not found.reached:
        raise ValueError(
            f"{arm.frame} does not reach the goal: the nearest it came is {1e3 * float(found.position_error):.3g} mm and "
            f"{float(found.rotation_error):.3g} rad away"
        )
    if not found.clear:
        raise ValueError(f"every configuration found with {arm.frame} at the goal touches something: move the goal")
    return np.asarray(found.q)


def _goal_constraints(s: Settings, arm: Arm, motion: MotionInScene) -> list[Constraint]:
    manifold, n = motion.manifold, arm.model.nq
    if arm.x_goal is not None or s.free_axis is not None:
        goal = arm.x_goal[:n] if arm.x_goal is not None else _goal_configuration(s, arm, motion.pairs)
        free = np.full(manifold.nx - n, np.inf)
        return [to.state_bounds(manifold, np.r_[goal, -free], np.r_[goal, free], "goal")]
    assert s.goal_position is not None  # see Settings.checks
    if s.goal_rotation is None:
        return [to.bounded(to.frame_position_cost(arm.model, manifold, arm.frame, s.goal_position, 1.0, "goal"))]
    R = rpy_matrix(s.goal_rotation)
    return [to.bounded(to.frame_placement_cost(arm.model, manifold, arm.frame, s.goal_position, R, 1.0, "goal"))]


def _outcome(x: Array) -> list[str]:
    return [f"the motion takes {x[-1]:.3f} s"]


def _clock(knots: int, xs: Array) -> Array:
    """The time [s] of each state: that of choosing the duration is that of the start."""
    return float(xs[-1, -1]) * np.r_[0.0, np.linspace(0.0, 1.0, knots + 1)]
