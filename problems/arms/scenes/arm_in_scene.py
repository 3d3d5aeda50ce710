"""Arm among obstacles: minimum-time motion from rest to rest around the bodies of a scene.

The problem is that of :mod:`problems.arms.scenes.in_scene`. Its solution is checked with the true shapes at 1000 times per second
of motion (:mod:`trajopt.collisions.mesh_check`). If it comes too close, the problem is solved again with other pairs and a larger
margin there, at most :data:`~problems.arms.scenes.scene_refinement.ROUNDS` times. A motion that collides is no success."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.free_space import FreeSpace
from trajopt.collisions.mesh_check import MeshCheck
from trajopt.collisions.poses import body_poses
from trajopt.config.task import BackendFactory, Checked, Checks, Task, not_negative, per_dof
from trajopt.guesses.inverse_kinematics import IKResult, inverse_kinematics, reach_of
from trajopt.guesses.rrt_connect import rrt_connect
from trajopt.guesses.timed_path import has_toppra
from trajopt.problem.constraints import Constraint
from ...robots.loading import load_fixed_base
from ..arm import Arm, Configuration
from ..arm_limits import friction_notes, joint_warnings, missing_limit_warnings, weak_joint_warnings
from ..goal_orientation import Orientation, goal_orientation, orientation_check, orientation_warnings
from .in_scene import Limits, MotionInScene, guess_along_path, step_fractions
from .path_timing import PathTiming
from .scene_refinement import MARGIN_FRACTION, PATIENCE, WIDE, Refinement
from .scene_robot import Carried, LinkCapsule, SceneRobot, scene_robot
from .scene_settings import SceneBody, load_scene
from .scene_structure import Costs, cached_ends, clearance_name

SAME = 1e-6
"""Largest distance of joints [rad, m] at which a start is the goal."""
LARGE_MARGIN = 0.05
"""Margin, as a fraction of the reach, above which a warning is given."""

Point = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Weights(Checked):
    """Weights of the cost, each integrated over time.

    time: weight of the duration [1/s]. acceleration: weight of squared accelerations relative to ``acceleration_scale``.
    energy: weight of squared torques relative to their limits.
    """

    time: float = 1.0
    acceleration: float = 0.01
    energy: float = 0.0

    def checks(self) -> Checks:
        return {key: not_negative(value) for key, value in vars(self).items()} | {
            "acceleration": (
                self.time + self.energy + self.acceleration > 0,
                "a positive weight of time, energy or acceleration",
            ),
        }


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """Minimum-time motion of an arm among obstacles.

    robot: a bundled name, "erd:NAME", or the path of a URDF or MJCF file with collision shapes. package_dirs: folders that contain
    the packages of its meshes (package://), in addition to those of ROS_PACKAGE_PATH. mimic: treatment of mimic joints, "free" or
    "lock". turns: of continuous joints, "nearest" (a goal may be whole turns off) or "counted". locked_joints: joints made rigid,
    a list of names or a table name = value [rad, m]; "*finger*" is a pattern. q0: initial configuration. goal_q: final
    configuration; exclusive with goal_position. goal_position: final position of ``frame`` in world coordinates [m].
    goal_rotation: goal orientation in world coordinates: three numbers are roll, pitch, yaw [rad], four a unit quaternion x, y, z,
    w, three rows of three a rotation matrix, "q0" the orientation at the start. frame: link or joint that moves to goal_position
    (required there); with goal_q the frame whose path is drawn, by default the last link. free_axis: axis of the frame about which
    it may rotate freely at the goal. scene: TOML, URDF or MJCF file with bodies. body: further bodies. missing_meshes: treatment
    of missing mesh files, "error" or "leave_out". carried: bodies held by the robot, with mass. capsule: capsules of links,
    replacing the fitted ones. srdf: file with disabled collision pairs; default: pairs are found automatically. margin: required
    distance in the optimization; the motion between knots is checked with half of it [m]. knots: number of time steps.
    checks_per_step: number of places per time step with distance constraints. duration: shortest and longest duration [s].
    acceleration_limits: one number, or numbers by joint; default: none [rad/s^2, m/s^2]. torque_rate_limits: limits of the rate of
    change of torques, likewise [N m/s, N/s]. acceleration_scale: reference of the acceleration cost. velocity_scale: usable
    fraction of the velocity limits of the model. torque_scale: usable fraction of the effort limits of the model. cover_tolerance:
    maximum distance of a capsule surface from its shape [m]. cover_pieces: maximum number of capsules per shape. self_collision:
    avoid self-collision. guess: initial guess: "auto" (straight line in joint space, or a path of RRT-Connect if the line collides
    and ompl is installed), "straight", "rrt". seed: random seed of RRT-Connect. planning_time: processor time limit of RRT-Connect
    [s]. weights: weights of the cost.
    """

    robot: str = "erd:panda"
    package_dirs: tuple[str, ...] = ()
    mimic: Literal["free", "lock"] = "free"
    turns: Literal["nearest", "counted"] = "nearest"
    locked_joints: tuple[str, ...] | Mapping[str, float] = ()
    q0: Configuration = "zero"
    goal_q: Configuration | None = None
    goal_position: Point | None = None
    goal_rotation: Orientation | None = None
    free_axis: Point | None = None
    frame: str | None = None
    scene: str | None = None
    body: SceneBody | tuple[SceneBody, ...] | None = None
    carried: Carried | tuple[Carried, ...] | None = None
    capsule: LinkCapsule | tuple[LinkCapsule, ...] | None = None
    srdf: str | None = None
    missing_meshes: Literal["error", "leave_out"] = "error"
    margin: float = 0.002
    knots: int = 32
    checks_per_step: int = 2
    duration: tuple[float, float] = (0.1, 10.0)
    acceleration_limits: float | tuple[float, ...] | None = None
    torque_rate_limits: float | tuple[float, ...] | None = None
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

    def unbounded(self) -> tuple[str, ...]:
        """See :meth:`trajopt.config.task.Checked.unbounded`."""
        return ("acceleration_limits", "torque_rate_limits")

    def checks(self) -> Checks:
        by_joints, by_frame = self.goal_q is not None, self.goal_position is not None
        low, high = self.duration
        return {
            "goal_q": (by_joints != by_frame, "exactly one of goal_q and goal_position"),
            "goal_position": (
                not by_frame or self.frame is not None,
                "the key frame too: the link or joint that moves to the goal",
            ),
            "goal_rotation": orientation_check(self.goal_rotation, by_frame),
            "free_axis": (self.free_axis is None or self.goal_rotation is not None, "goal_rotation to be set too"),
            "margin": not_negative(self.margin),
            "knots": (2 <= self.knots <= 1000, "from 2 to 1000"),
            "checks_per_step": (1 <= self.checks_per_step <= 8, "from 1 to 8"),
            "duration": (0 < low < high < np.inf, "a shortest and a longest duration above 0"),
            "acceleration_scale": (self.acceleration_scale > 0, "a positive acceleration"),
            "velocity_scale": (self.velocity_scale > 0, "a positive fraction"),
            "torque_scale": (self.torque_scale > 0, "a positive fraction"),
            "torque_rate_limits": (
                self.torque_rate_limits is None or bool((np.asarray(self.torque_rate_limits) > 0).all()),
                "positive rates [N m/s, N/s]",
            ),
            "cover_tolerance": (self.cover_tolerance > 0, "a positive length [m]"),
            "cover_pieces": (self.cover_pieces >= 1, "at least 1"),
            "planning_time": (self.planning_time > 0, "a positive number of seconds"),
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings.

    Raises ValueError for a start or goal in collision, with the pair and depth, for an unreachable goal, and for missing meshes.
    """
    s = settings
    robot = robot_of(s)
    arm = Arm.from_model(robot.model, s.q0, s.goal_q, s.frame)
    return task_in_scene(s, arm, robot, scene_of(s), backend)


def robot_of(s: Settings) -> SceneRobot:
    """Return the robot of these settings, with carried bodies."""
    return scene_robot(
        load_fixed_base(s.robot, s.mimic, s.locked_joints, s.package_dirs, s.turns),
        missing=s.missing_meshes,
        tolerance=s.cover_tolerance,
        max_pieces=s.cover_pieces,
        carried=_as_tuple(s.carried, Carried),
        capsules=_as_tuple(s.capsule, LinkCapsule),
        self_collision=s.self_collision,
        srdf=s.srdf,
    )


def _as_tuple(given: Any, kind: type) -> tuple:
    return () if given is None else (given,) if isinstance(given, kind) else tuple(given)


def task_in_scene(
    s: Settings,
    arm: Arm,
    robot: SceneRobot,
    scene: Scene,
    backend: BackendFactory,
    path: tuple[Array, bool] | None = None,
) -> Task:
    """Build the task from robot and scene. path: corners (K, nq) of a guess and True if it is collision-free; default: path_of."""
    model, self_pairs = arm.model, robot.self_pairs
    exact = find_spec("coal") is not None
    for key, x in {"q0": arm.x0, "goal_q": arm.x_goal}.items():
        _require_in_limits(model, key, x)
    pairs = CollisionPairs(robot.cover, scene, self_pairs.pairs, disabled=self_pairs.disabled)
    check = MeshCheck(model, robot.shapes, scene, self_pairs.pairs, self_pairs.disabled) if exact else None
    limits = limits_of(s, model)
    costs = Costs(s.weights.time, s.weights.acceleration, s.weights.energy, s.acceleration_scale)
    goal = _goal_configuration(s, arm, pairs, check)
    if np.abs(goal - arm.q0).max() <= SAME:
        raise ValueError("the goal is the start: change problem.q0 or the goal")
    fractions = step_fractions(arm.q0, goal, limits, s.knots)
    motion = MotionInScene(model, pairs, limits, costs, s.knots, s.checks_per_step, s.margin, exact, fractions)
    _require_free(arm.q0, "the start", motion, check)
    _require_free(goal, "the goal", motion, check, motion.arrivals(motion.shortest(arm.q0, goal)))
    around = replace(pairs, scene=scene.at(motion.clear_from(goal, 0.0))) if scene.moves else pairs
    corners, free = path_of(s, arm.q0, goal, around, model) if path is None else path
    free = free and not scene.moves
    tube = WIDE if free else np.inf
    guess = guess_along_path(corners, limits, fractions)
    ocp = motion.ocp(backend, arm.q0, guess, _goal_constraints(s, arm, motion), tube)
    goal_point = _position(model, arm.frame, goal) if s.goal_position is None else np.array(s.goal_position)
    timing = PathTiming(model, limits, check, corners) if free and has_toppra() else None
    refinement = Refinement(motion, check, ocp, guess, tube, timing)
    warnings = (
        ()
        if exact
        else ("the package coal is not installed: collisions are checked with capsules instead of the true shapes",)
    )
    return Task(
        refinement.latest,
        refinement.start,
        arm.frame,
        goal_point,
        warnings=(
            *robot.missing,
            *warnings,
            *(_planning_warnings(s, arm.q0, goal, around) if path is None else ()),
            *_margin_warnings(s.margin, reach_of(model, model.frame_id(arm.frame))),
            *orientation_warnings(arm, s.goal_rotation, lambda R: False, missed=False),
            *weak_joint_warnings(arm, s.torque_scale, goal[None]),
            *missing_limit_warnings(model),
            *joint_warnings(model),
        ),
        notes=(
            f"goal: {arm.frame} at {_place(goal_point)}",
            f"ignored self-collision pairs: {self_pairs.left_out}",
            *friction_notes(model, " in the torques"),
        ),
        outcome=partial(_outcome, arm),
        clock=partial(_clock, motion.grid),
        time_key="weights.time",
        refined=refinement.refined,
        patience=PATIENCE if free else None,
        latest=lambda: refinement.latest,
        scene=scene,
        removed_by=_removed_by(s),
    )


def _margin_warnings(margin: float, reach: float) -> Iterator[str]:
    """Yield a warning if the margin [m] is more than LARGE_MARGIN of the reach [m]."""
    if margin > LARGE_MARGIN * reach:
        yield f"problem.margin = {1e3 * margin:.3g} mm is large for a reach of {1e3 * reach:.3g} mm: reduce it if motions fail"


def _removed_by(s: Settings) -> dict[str, str]:
    """Return the setting that removes each constraint; "phases" needs another problem."""
    distances = dict.fromkeys(
        map(clearance_name, range(s.checks_per_step)), "problem.self_collision = false, without body and scene"
    )
    return {"phases": 'problem.name = "arm_go_to", whose duration is fixed', **distances}


def scene_of(s: Settings) -> Scene:
    """Return the bodies of the scene file and of the settings."""
    scene = Scene() if s.scene is None else load_scene(s.scene)
    return replace(scene, bodies=(*scene.bodies, *(body.body(Path()) for body in _as_tuple(s.body, SceneBody))))


def limits_of(s: Settings, model: Model) -> Limits:
    """Return the limits of the motion."""
    acceleration = np.inf if s.acceleration_limits is None else s.acceleration_limits
    return Limits(
        np.asarray(model.q_lower),
        np.asarray(model.q_upper),
        s.velocity_scale * np.asarray(model.velocity_limit),
        per_dof(acceleration, model.nv, "acceleration_limits"),
        s.torque_scale * np.asarray(model.effort_limit),
        s.duration,
        per_dof(np.inf if s.torque_rate_limits is None else s.torque_rate_limits, model.nv, "torque_rate_limits"),
    )


def path_of(s: Settings, q0: Array, goal: Array, pairs: CollisionPairs, model: Model) -> tuple[Array, bool]:
    """Return corners (K, nq) of a path from q0 to the goal, and True if it is known to be collision-free.

    The path is the straight line if no planner is installed, none finds a path, or covers touch at start or goal.
    """
    straight = np.stack([q0, goal])
    if s.guess == "straight":
        return straight, False
    space = _planning_space(s, q0, goal, pairs)
    if space is None:
        return straight, False
    if not space.line_touches(q0, goal, 0.04):
        return straight, True
    if s.guess == "auto" and find_spec("ompl") is None:
        return straight, False
    lower, upper = np.asarray(model.q_lower), np.asarray(model.q_upper)
    found = rrt_connect(
        space.touches, space.line_touches, q0, goal, lower, upper, seed=s.seed, time_limit=s.planning_time
    )
    return (straight, False) if found is None else (found, True)


def _planning_space(s: Settings, q0: Array, goal: Array, pairs: CollisionPairs) -> FreeSpace | None:
    """Return the free space of the covers with half of the margin, or without if start or goal is closer; None if they touch."""
    spaces = (FreeSpace(pairs, margin) for margin in (MARGIN_FRACTION * s.margin, 0.0))
    return next((space for space in spaces if not space.touches(np.stack([q0, goal]))), None)


def _planning_warnings(s: Settings, q0: Array, goal: Array, pairs: CollisionPairs) -> tuple[str, ...]:
    """Return a warning if no path is planned because covers touch at start or goal. Raises ValueError for guess = "rrt"."""
    if s.guess == "straight" or _planning_space(s, q0, goal, pairs) is not None:
        return ()
    touching = (
        "the convex pieces that cover the links touch a body at the start or the goal, so that no path is planned: reduce "
        f"problem.cover_tolerance ({s.cover_tolerance:g} m) or increase cover_pieces"
    )
    if s.guess == "rrt":
        raise ValueError(f'guess = "rrt": {touching}')
    return (touching,)


BEYOND = 1e-3
"""Tolerance on the limits at start and goal [rad, m], for rounded numbers in files."""


def _require_in_limits(model: Model, key: str, x: Array | None) -> None:
    """Raise ValueError for a configuration beyond the limits, with the joint and its limit."""
    if x is None:
        return
    rows = zip(model.q_names, x[: model.nq], model.q_lower, model.q_upper, strict=True)
    for i, (name, q, lower, upper) in enumerate(rows):
        if not lower - BEYOND <= q <= upper + BEYOND:
            side, limit = ("above its upper", upper) if q > upper else ("below its lower", lower)
            hint = model.degrees_hint(i, float(q))
            raise ValueError(f"{key} has {name} at {q:.6g}{hint}, {side} limit {limit:.6g}: move it within the limits")


def _require_free(
    q: Array, what: str, motion: MotionInScene, check: MeshCheck | None, times: Array | None = None
) -> None:
    """Raise ValueError for a configuration that is in collision, or closer than a motion may come, at all of the times (M,) [s],
    default at the start, with pair and distance."""
    required = MARGIN_FRACTION * motion.margin
    moves = times is not None and motion.pairs.scene.moves
    always = " at all times at which it can be reached" if moves else ""
    times = np.zeros(1) if times is None else times
    need = f"instead of {1e3 * required:.3g} mm, half of problem.margin"
    if check is None:
        gap = max(motion.clearance_of(q, float(when)) for when in times)
        if gap > 0.0 and gap >= required:
            return
        how = f"{-1e3 * gap:.3g} mm deep in a body{always}"
        reduced = "cover_tolerance"
        if gap > 0.0:
            how, reduced = f"{1e3 * gap:.3g} mm from a body{always} {need}", "cover_tolerance or problem.margin"
        raise ValueError(
            f"at {what} capsules that cover the links are {how}: install coal (pip install 'urdf-trajopt[scene]') to check the "
            f"true shapes, or reduce {reduced}"
        )
    found = check.nearest(q, float(times[0]))
    for when in times[1:]:
        if found.distance > 0.0 and found.distance >= required:
            break
        found = max(found, check.nearest(q, float(when)), key=lambda found: found.distance)
    if found.distance <= 0.0:
        raise ValueError(
            f"{what} is in collision{always}: {found.link} and {found.body}, {-1e3 * found.distance:.3g} mm deep; move it or "
            "the body"
        )
    if found.distance < required:
        raise ValueError(
            f"{what} is too close{always}: {found.link} and {found.body}, {1e3 * found.distance:.3g} mm apart {need}; reduce "
            "problem.margin, or move it or the body"
        )


def _goal_configuration(s: Settings, arm: Arm, pairs: CollisionPairs, check: MeshCheck | None) -> Array:
    """Return goal_q or a collision-free goal configuration. Raises ValueError for an unreachable goal, with its smallest
    error."""
    model = arm.model
    if arm.x_goal is not None:
        return arm.x_goal[: model.nq]
    space = FreeSpace(pairs, MARGIN_FRACTION * s.margin)

    ends = (0.0, s.duration[1]) if pairs.scene.moves else (0.0,)

    def clearance(qs: Array) -> Array:
        """Return positive numbers for configurations that are free at the start or at the latest end."""
        return np.array([-1.0 if all(space.touches(q, np.array([end])) for end in ends) else 1.0 for q in qs])

    axis = None if s.free_axis is None else np.array(s.free_axis)

    def solutions_with(rotation: Array | None) -> IKResult:
        at = np.array(s.goal_position)
        return inverse_kinematics(model, arm.frame, at, rotation, free_axis=axis, q0=arm.q0, clearance=clearance)

    found = solutions_with(goal_orientation(arm, s.goal_rotation))
    if not found.reached:
        warnings = orientation_warnings(arm, s.goal_rotation, lambda R: bool(solutions_with(R).reached), missed=True)
        raise ValueError(
            f"{arm.frame} does not reach the goal: smallest error {1e3 * float(found.position_error):.3g} mm and "
            f"{float(found.rotation_error):.3g} rad{''.join(f'; {warning}' for warning in warnings)}"
        )
    if not found.clear:
        raise ValueError(
            f"all configurations found with {arm.frame} at the goal collide{_nearest_pair_text(check, found.q)}: move the goal"
        )
    return np.asarray(found.q)


def _nearest_pair_text(check: MeshCheck | None, q: Array) -> str:
    """Return the nearest pair at a configuration (nq,) as text; "" without true shapes."""
    if check is None:
        return ""
    found = check.nearest(q)
    how = f"{-1e3 * found.distance:.3g} mm deep" if found.distance <= 0.0 else f"{1e3 * found.distance:.3g} mm apart"
    return f"; the best one: {found.link} and {found.body}, {how}"


def _goal_constraints(s: Settings, arm: Arm, motion: MotionInScene) -> list[Constraint]:
    model, manifold = arm.model, motion.structure.manifold
    if arm.x_goal is not None:
        goal, (_, there) = arm.x_goal[: model.nq], cached_ends(motion.structure)
        return [there.updated(lower=goal, upper=goal)]
    assert s.goal_position is not None  # see Settings.checks
    if s.goal_rotation is None:
        return [to.bounded(to.frame_position_cost(model, manifold, arm.frame, s.goal_position, 1.0, "goal"))]
    R = goal_orientation(arm, s.goal_rotation)
    assert R is not None  # see above
    if s.free_axis is not None:
        axis = np.array(s.free_axis)
        return [to.bounded(to.frame_axis_cost(model, manifold, arm.frame, s.goal_position, R, axis, 1.0, "goal"))]
    return [to.bounded(to.frame_placement_cost(model, manifold, arm.frame, s.goal_position, R, 1.0, "goal"))]


def _position(model: Model, name: str, q: Array) -> Array:
    """Return the position (3,) of a frame in the world."""
    frame = model.frames[model.frame_id(name)]
    R, p = (values[0] for values in body_poses(model, q[None])[frame.body])
    return np.asarray(R @ frame.p + p)


def _place(p: Array) -> str:
    return f"({', '.join(f'{c:.3f}' for c in p)}) m"


def _outcome(arm: Arm, x: Array) -> list[str]:
    at = _place(_position(arm.model, arm.frame, x[: arm.model.nq]))
    return [f"the motion takes {x[-1]:.3f} s and brings {arm.frame} to {at}"]


def _clock(grid: Array, xs: Array) -> Array:
    """Return the time [s] of each state; the stage that chooses the duration is at the start time."""
    return float(xs[-1, -1]) * np.append(0.0, grid)
