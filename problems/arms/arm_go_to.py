"""Point-to-point motion of a fixed-base arm: from rest at q0 to rest at a goal, in a fixed time, with little effort.

    minimize   sum_k dt/2 ( |v|_wv^2 + |u - u_ref|_wu^2 + |q - q0|_wq^2 + |limits exceeded|_wl^2 + |goal error|_wg^2 )
               + 1/2 |goal error|_Wg^2 + 1/2 |v_N|_Wv^2
    subject to (optional):  goal error = 0 and v_N = 0 instead of the last line,  position and velocity limits,
               points along the links outside spheres

The goal is a configuration, or the position (and orientation) of a frame in the world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers import RobotCover
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.model.model_builder import PROPERTIES, with_joint_properties
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.config.task import (
    BackendFactory,
    Checked,
    Checks,
    Integrator,
    Nearness,
    Sampling,
    Task,
    not_negative,
    per_dof,
    position_of,
)
from trajopt.problem.constraints import link_points
from trajopt.problem.residuals import LinkPoint
from ..robots.loading import load_fixed_base
from .arm import Arm, Configuration, holding_forces
from .arm_guess import (
    GuessName,
    Sphere,
    goal_configurations,
    goal_warnings,
    guesses_of,
    reach_notes,
)
from .arm_limits import (
    default_limits,
    friction_notes,
    goal_limit_warnings,
    joint_limits,
    joint_warnings,
    placeholder_warnings,
    require_goal_within_limits,
    torque_bounds,
    weak_joint_warnings,
)
from .goal_orientation import Orientation, goal_orientation, orientation_check, orientation_warnings
from .goal_report import GoalReport
from .obstacle import Obstacle, Point, places
from .obstacle_report import goal_in_body, nearness, nearness_of_bodies
from .scenes.scene_robot import scene_robot
from .scenes.surroundings import (
    BODIES,
    PERSON,
    Surroundings,
    clearance_constraints,
    distances_from_person,
    relaxed,
)


@dataclass(frozen=True, kw_only=True)
class Weights(Checked):
    """Weights of the cost; weights of joints are one number, or one number per joint.

    velocity: running weight of the joint velocities [rad/s, m/s]. control: running weight of the controls
    [N, N m]. posture: running weight of the distance from q0. joint_limits: running weight of joint limit
    violations. goal: running weight of the distance from the goal. terminal_goal: terminal weight of the distance from the
    goal, of joints [rad] or of the position [m]. terminal_rotation: terminal weight of the orientation error [rad].
    terminal_velocity: terminal weight of the joint velocities.
    """

    velocity: float | tuple[float, ...] = 0.1
    control: float | tuple[float, ...] = 1e-3
    posture: float | tuple[float, ...] = 0.0
    joint_limits: float = 0.0
    goal: float = 0.0
    terminal_goal: float = 1e3
    terminal_rotation: float = 1e2
    terminal_velocity: float | tuple[float, ...] = 10.0

    def checks(self) -> Checks:
        return {key: not_negative(value) for key, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    """Point-to-point motion of a robot with a fixed base.

    robot: a bundled name, "erd:NAME", or the path of a URDF or MJCF file. package_dirs: folders that contain the packages of its
    meshes (package://), in addition to those of ROS_PACKAGE_PATH. mimic: treatment of mimic joints, "free" or "lock". turns: of
    continuous joints, "nearest" (a goal may be whole turns off) or "counted". locked_joints: joints made rigid, a list of names or
    a table name = value [rad, m]; "*finger*" is a pattern. armature: rotor inertia, one number or a table by joint; default: from
    the model [kg m^2, kg]. damping: joint damping, likewise [N m s, N s]. friction: dry joint friction, likewise [N m, N].
    stiffness: stiffness of joint springs, likewise [N m, N/m]. spring_reference: rest position of the springs, likewise [rad, m].
    friction_velocity: smoothing velocity of dry friction, c tanh(v / friction_velocity); without it friction is ignored [rad/s,
    m/s]. q0: initial configuration, all joints or a table by joint with zero for the others [rad, m]. goal_q: goal in joint space,
    like q0; exclusive with goal_position. goal_position: goal of ``frame`` in world coordinates [m]. goal_rotation: goal
    orientation in world coordinates: three numbers are roll, pitch, yaw [rad], four a unit quaternion x, y, z, w, three rows of
    three a rotation matrix, "q0" the orientation at the start. frame: link or joint that moves to the goal. joint_limit_margin:
    margin of the soft joint limits [rad, m]. weights: weights of the cost. torque_limits: bound the controls by the effort limits
    of the model; true: an error if the model has none; default: bounded if the model has limits. position_limits: constrain the
    joints to their limits; default: the joints whose start and goal satisfy their limits. velocity_limits: constrain the joint
    velocities to their limits; default: constrained if the model has limits. terminal: goal and final rest as "cost" or as
    "constraint". obstacle: one sphere or a list of spheres, avoided by points on the lines between joints; the thickness of the
    links is not included, so set a margin, or use the problem arm_in_scene, which includes the shapes. surroundings: bodies and a
    walking person that capsules of the links avoid. control_reference: reference of the control cost: "zero", or "gravity": the
    forces that hold the arm at goal_q if given, else at q0. guess: initial guess: "auto" (a smooth motion to a configuration at
    the goal, see :mod:`problems.arms.arm_guess`), "constant" (x0 with zero controls), "quasi_static" (x0 with gravity
    compensation), "interpolated" (straight line to goal_q with gravity compensation), "around" (the same line, bent around an
    obstacle in its path, see :mod:`problems.arms.obstacle`).
    """

    integrator: Integrator = "rk4"
    robot: str = "erd:ur5"
    package_dirs: tuple[str, ...] = ()
    mimic: Literal["free", "lock"] = "free"
    turns: Literal["nearest", "counted"] = "nearest"
    locked_joints: tuple[str, ...] | Mapping[str, float] = ()
    armature: float | Mapping[str, float] | None = None
    damping: float | Mapping[str, float] | None = None
    friction: float | Mapping[str, float] | None = None
    friction_velocity: float | None = None
    stiffness: float | Mapping[str, float] | None = None
    spring_reference: float | Mapping[str, float] | None = None
    q0: Configuration = "zero"
    goal_q: Configuration | None = None
    goal_position: Point | None = None
    goal_rotation: Orientation | None = None
    frame: str | None = None
    torque_limits: bool | None = None
    position_limits: bool | None = None
    velocity_limits: bool | None = None
    terminal: Literal["cost", "constraint"] = "cost"
    obstacle: Obstacle | tuple[Obstacle, ...] | None = None
    surroundings: Surroundings | None = None
    joint_limit_margin: float = 0.0
    control_reference: Literal["zero", "gravity"] = "zero"
    guess: GuessName = "auto"
    weights: Weights = field(default_factory=Weights)

    def checks(self) -> Checks:
        by_joints, by_frame = self.goal_q is not None, self.goal_position is not None
        one_goal = by_joints != by_frame
        wild = {}
        if self.goal_position is not None and not np.isfinite(self.goal_position).all():
            wild["goal_position"] = (False, "finite numbers")
        return super().checks() | {
            "goal_q": (one_goal, "exactly one of goal_q and goal_position"),
            "goal_position": (
                not by_frame or self.frame is not None,
                "the key frame too: the link or joint that moves to the goal",
            ),
            "guess": (
                by_joints or self.guess not in ("interpolated", "around"),
                "goal_q to be set too, or another guess",
            ),
            "goal_rotation": orientation_check(self.goal_rotation, by_frame),
            "joint_limit_margin": not_negative(self.joint_limit_margin),
            "friction_velocity": (
                self.friction_velocity is None or 0 < self.friction_velocity < np.inf,
                "a positive velocity",
            ),
            "friction": (
                self.friction is None or self.friction_velocity is not None,
                "friction_velocity, its smoothing velocity, to be set too",
            ),
            **wild,
        }

    @property
    def obstacles(self) -> dict[str, Obstacle]:
        """Obstacles by the name of their constraint or term: "obstacle", or "obstacle 1", ... for a list."""
        if self.obstacle is None or isinstance(self.obstacle, Obstacle):
            return {} if self.obstacle is None else {"obstacle": self.obstacle}
        return {f"obstacle {i}": o for i, o in enumerate(self.obstacle, 1)}


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings.

    Raises UnknownName for an unknown joint or frame, ValueError for values that do not match the robot.
    """
    model = load_fixed_base(
        settings.robot, settings.mimic, settings.locked_joints, settings.package_dirs, settings.turns
    )
    model = with_joint_properties(model, **{key: getattr(settings, key) for key in PROPERTIES})
    arm = Arm.from_model(model, settings.q0, settings.goal_q, settings.frame)
    limits = {
        k: holds
        for k, holds in default_limits(arm, settings.joint_limit_margin).items()
        if getattr(settings, k) is None
    }
    s = replace(settings, **limits)
    if s.position_limits is True:
        require_goal_within_limits(arm, s.joint_limit_margin)
    cover, near, keep = _clearance_terms(arm, s)
    ocp = to.OCP.single_phase(
        s.sampled(backend(FreeBody(model, friction_velocity=s.friction_velocity))),
        arm.x0,
        s.horizon,
        s.dt,
        [*_running(arm, s), *near],
        _terminal(arm, s) if s.terminal == "cost" else [],
        name="arm_go_to",
        model=model,
        constraints=[*_path_constraints(arm, s), *keep],
        terminal_constraints=_terminal_constraints(arm, s),
        **torque_bounds(model, s.torque_limits),
    )
    spheres = [Sphere.around_obstacle(arm, o) for o in s.obstacles.values()]
    rotation = goal_orientation(arm, s.goal_rotation)
    at_goal = None if s.goal_position is None else goal_configurations(arm, s.goal_position, rotation, spheres)
    guess, *others = guesses_of(ocp, arm, s.guess, at_goal, spheres)
    warnings: tuple[str, ...] = (
        ()
        if s.goal_position is None
        else (*goal_warnings(arm, s.goal_position, rotation, at_goal), *_orientation_warnings(arm, s, at_goal))
    )
    if arm.x_goal is not None:
        warnings = tuple(_goal_obstacle_warnings(arm, s, arm.x_goal[: model.nq]))
    known = at_goal.solutions[0] if at_goal is not None and at_goal.reached else None
    in_body = _goal_in_body(arm, s, cover)
    warnings += (in_body,) if in_body else ()
    smoothed = "; set friction_velocity, its smoothing velocity, to include it"
    friction = friction_notes(model, smoothed) if s.friction_velocity is None else ()
    report = GoalReport(
        arm,
        s.goal_position,
        rotation,
        at_goal,
        warnings,
        is_constraint=s.terminal == "constraint",
        duration=s.horizon * s.dt,
        velocity_limited=s.velocity_limits is not False,
        holding_cost=_holding_cost(arm, s, known),
        goal_weight=s.weights.terminal_goal,
        obstructed=bool(s.obstacles) or s.surroundings is not None,
    )
    return Task(
        ocp,
        guess,
        arm.frame,
        _goal_point(arm, s),
        other_guesses=tuple(others),
        points=_watched(arm, s),
        radii={name: o.radius for name, o in s.obstacles.items()},
        warnings=(
            *warnings,
            *(
                (report.too_short,)
                if s.terminal == "constraint" and s.goal_position is not None and report.too_short
                else ()
            ),
            *joint_warnings(model),
            *goal_limit_warnings(arm),
            *(
                ()
                if s.torque_limits is False
                else (*placeholder_warnings(model), *weak_joint_warnings(arm, goals=known))
            ),
        ),
        notes=(*reach_notes(arm, at_goal), *friction),
        outcome=report.outcome,
        nearness=partial(_nearness, arm, s, bool(in_body)),
        missed=report.missed,
        scene=None if s.surroundings is None else s.surroundings.scene,
        clearance=_clearance(arm, s, cover),
        resolved=limits,
        removed_by=_removed_by(s),
    )


def _orientation_warnings(arm: Arm, s: Settings, at_goal: to.IKResult | None) -> tuple[str, ...]:
    """Return a warning about a quaternion whose components seem to be in another order."""

    def reaches(rotation: Array) -> bool:
        assert s.goal_position is not None  # see build
        found = goal_configurations(arm, s.goal_position, rotation, ())
        return found is not None and bool(found.reached)

    return orientation_warnings(arm, s.goal_rotation, reaches, missed=at_goal is not None and not at_goal.reached)


def _clearance_terms(arm: Arm, s: Settings) -> tuple[RobotCover | None, list[to.CostTerm], list[to.Constraint]]:
    """Return the capsules of the links, and the terms and constraints that keep them away from the surroundings."""
    around = s.surroundings
    if around is None:
        return None, [], []
    options = {"tolerance": around.cover_tolerance, "max_pieces": around.cover_pieces, "self_collision": False}
    cover = scene_robot(arm.model, **options).cover  # type: ignore[arg-type]
    found = clearance_constraints(cover, arm.manifold, around, arm.q0)
    return cover, *relaxed(found, around)


def _clearance(arm: Arm, s: Settings, cover: RobotCover | None) -> Callable[[Array, Array], Array] | None:
    around = s.surroundings
    if cover is None or around is None or around.person is None:
        return None
    return lambda xs, centers: distances_from_person(cover, around, xs[:, : arm.model.nq], centers)


WATCHED_SPACING = 0.01
"""Distance between the link points whose distance from moving obstacles is reported [m]."""


def _watched(arm: Arm, s: Settings) -> tuple[LinkPoint, ...]:
    if not s.obstacles:
        return ()
    first = next(iter(s.obstacles.values()))
    return link_points(arm.model, first.frame or arm.frame, WATCHED_SPACING)


# -- cost ----------------------------------------------------------------------------------------------------


def _running(arm: Arm, s: Settings) -> list[to.CostTerm]:
    w, model, n = s.weights, arm.model, arm.model.nv
    velocity, posture = per_dof(w.velocity, n, "weights.velocity"), per_dof(w.posture, n, "weights.posture")
    terms = [
        to.control_cost(
            n,
            reference=_control_reference(arm, s),
            weight=per_dof(w.control, n, "weights.control"),
            names=tuple(f"u[{d}]" for d in model.dof_names),
        )
    ]
    if velocity.any():
        terms.append(to.state_cost(arm.manifold, arm.x0, arm.weight(v=velocity), "velocity"))
    if posture.any():
        terms.append(to.state_cost(arm.manifold, arm.x0, arm.weight(q=posture), "posture"))
    if w.joint_limits:
        terms.append(to.joint_limit_cost(model, arm.manifold, w.joint_limits, s.joint_limit_margin))
    if w.goal:
        terms.append(_goal_term(arm, s, w.goal, w.goal if s.goal_rotation is not None else 0.0))
    for name, o in s.obstacles.items():
        if o.weight is not None:
            terms.append(to.softened(_sphere(arm, o, name), o.weight, o.width))
    return terms


def _terminal(arm: Arm, s: Settings) -> list[to.CostTerm]:
    w = s.weights
    velocity = per_dof(w.terminal_velocity, arm.model.nv, "weights.terminal_velocity")
    rest = to.state_cost(arm.manifold, arm.x0, arm.weight(v=velocity), "final velocity")
    return [_goal_term(arm, s, w.terminal_goal, w.terminal_rotation), rest]


def _goal_term(arm: Arm, s: Settings, weight: float, rotation_weight: float) -> to.CostTerm:
    if arm.x_goal is not None:
        return to.state_cost(arm.manifold, arm.x_goal, arm.weight(q=weight), "goal")
    assert s.goal_position is not None  # see Settings.checks
    rotation = goal_orientation(arm, s.goal_rotation)
    if rotation is None:
        return to.frame_position_cost(arm.model, arm.manifold, arm.frame, s.goal_position, weight, "goal")
    return to.frame_placement_cost(
        arm.model,
        arm.manifold,
        arm.frame,
        s.goal_position,
        rotation,
        [weight] * 3 + [rotation_weight] * 3,
        "goal",
    )


def _control_reference(arm: Arm, s: Settings) -> Array:
    if s.control_reference == "zero":
        return np.zeros(arm.model.nv)
    x = arm.x0 if arm.x_goal is None else arm.x_goal
    return holding_forces(arm.model, x[: arm.model.nq])


def _holding_cost(arm: Arm, s: Settings, goals: Array | None) -> float:
    """Return the control cost of the whole motion for the cheapest posture at rest at the goal.

    goals: configurations (M, nq) at the goal of a frame; None for a goal in joint space, or if unknown: then 0.
    """
    if arm.x_goal is not None:
        goals = arm.x_goal[None, : arm.model.nq]
    if goals is None or not len(goals):
        return 0.0
    forces = holding_forces(arm.model, goals) - _control_reference(arm, s)
    costs = forces**2 @ per_dof(s.weights.control, arm.model.nv, "weights.control")
    return 0.5 * s.horizon * s.dt * float(costs.min())


# -- constraints ---------------------------------------------------------------------------------------------


def _path_constraints(arm: Arm, s: Settings) -> list[to.Constraint]:
    constraints = []
    if s.position_limits is not False:
        constraints.append(joint_limits(arm, s.joint_limit_margin, all_of_them=s.position_limits is True))
    if s.velocity_limits:
        constraints.append(to.velocity_limits(arm.model, arm.manifold))
    return constraints + [_sphere(arm, o, name) for name, o in s.obstacles.items() if o.weight is None]


def _sphere(arm: Arm, o: Obstacle, name: str) -> to.Constraint:
    points = o.points(arm.model, arm.frame)
    return to.sphere_obstacle(arm.model, arm.manifold, points, o.center, o.radius + o.margin, name)


def _terminal_constraints(arm: Arm, s: Settings) -> list[to.Constraint]:
    """Return the constraints of the goal, and of the obstacles at a fixed state, because obstacles may move; none for a cost."""
    if s.terminal == "cost":
        return []
    if arm.x_goal is not None:
        obstacles = [c for c in _path_constraints(arm, s) if c.name in s.obstacles]
        return [to.state_bounds(arm.manifold, arm.x_goal, arm.x_goal, "goal"), *obstacles]
    rest = np.where(np.arange(arm.model.nq + arm.model.nv) < arm.model.nq, np.inf, 0.0)
    return [to.bounded(_goal_term(arm, s, 1.0, 1.0)), to.state_bounds(arm.manifold, -rest, rest, "rest")]


def _removed_by(s: Settings) -> dict[str, str]:
    """Return the setting that removes each constraint from the problem."""
    several = isinstance(s.obstacle, tuple)
    weighed = f"weight = 1e4 in {'each problem.obstacle' if several else 'problem.obstacle'}, which makes it a cost"
    return {
        "joint limits": "problem.position_limits = false",
        "velocity limits": "problem.velocity_limits = false",
        **dict.fromkeys(("goal", "rest"), 'problem.terminal = "cost"'),
        **dict.fromkeys(s.obstacles, weighed),
        **dict.fromkeys((BODIES, PERSON), "problem.surroundings.weight = 1e4, which makes it a cost"),
    }


# -- reports -------------------------------------------------------------------------------------------------------


def _goal_point(arm: Arm, s: Settings) -> Array:
    if s.goal_position is not None:
        return np.array(s.goal_position)
    assert arm.x_goal is not None
    return position_of(arm.model, arm.frame, arm.x_goal[: arm.model.nq])


def _goal_obstacle_warnings(arm: Arm, s: Settings, q: Array) -> Iterator[str]:
    """Yield warnings about obstacles that contain link axes at a joint-space goal."""
    for name, o in s.obstacles.items():
        at = places(arm.model, q[None], o.points(arm.model, arm.frame))
        depth = o.radius - float(np.linalg.norm(at - o.center, axis=2).min())
        if depth > 0.0:
            yield f"at goal_q the arm is {1e3 * depth:.3g} mm inside the {name}: choose another goal, or move the obstacle"


def _goal_in_body(arm: Arm, s: Settings, cover: RobotCover | None) -> str:
    """Return the warning about a joint-space goal inside a static body; "" without one. cover: capsules that contain the links."""
    if cover is None or s.surroundings is None or arm.x_goal is None:
        return ""
    q, scene = arm.x_goal[: arm.model.nq], Scene(s.surroundings.static_bodies)
    touches = scene.bodies and CollisionPairs(cover, scene).smallest_gaps(q[None], np.zeros(1))[0] < 0.0
    return goal_in_body(arm.model, scene, q) if touches else ""


def _nearness(arm: Arm, s: Settings, inside: bool, xs: Array) -> Nearness:
    """Report the distances from obstacles and surroundings in states xs (M, nx). inside: the goal is inside a body."""
    axes = {name: o.axes(arm.model, arm.frame) for name, o in s.obstacles.items()}
    qs = xs[:, : arm.model.nq]
    near = nearness(arm.model, s.obstacles, axes, qs)
    if s.surroundings is None:
        return near
    around = nearness_of_bodies(arm.model, s.surroundings.scene, s.surroundings.weight, qs, inside)
    return Nearness(near.sentences + around.sentences, near.warnings + around.warnings)
