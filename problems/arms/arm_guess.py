"""Initial guesses of point-to-point motions, and warnings about unreachable goals.

The guess "auto" is the minimum-jerk path in joint space from q0 to a goal configuration, with the torques of this motion
(:mod:`trajopt.guesses.guesses`).  A frame goal has several configurations (:mod:`trajopt.guesses.inverse_kinematics`),
which lead to different local minima. Of the :data:`CANDIDATES` nearest to q0, the one whose motion costs least is used;
collision-free motions come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import mass_matrix
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.guesses.guesses import minimum_jerk_states, tracking_torques
from trajopt.guesses.inverse_kinematics import IKResult, inverse_kinematics
from trajopt.problem.residuals import LinkPoint
from trajopt.validation.reach import FrameGoal, reach_warnings
from .arm import Arm, holding_forces
from .obstacle import Obstacle, Point, around_sphere, places

GuessName = Literal["auto", "constant", "quasi_static", "interpolated", "around"]
CANDIDATES = 6
SINGULAR, NEVER_MOVES = 0.02, 1e-12
"""Dexterity below which a warning about a singularity is issued, above that of a direction in which the arm never moves."""


class Sphere(NamedTuple):
    """An obstacle and the link points that avoid it."""

    points: tuple[LinkPoint, ...]
    center: Array
    radius: float

    @classmethod
    def around_obstacle(cls, arm: Arm, o: Obstacle) -> Sphere:
        """Create the sphere of an obstacle, with its margin added to the radius."""
        return cls(o.points(arm.model, arm.frame), np.array(o.center), o.radius + o.margin)

    def clearance(self, model: Model, qs: Array) -> Array:
        """Return the smallest distance (M,) [m] of the points from the surface at configurations (M, nq)."""
        return np.linalg.norm(places(model, qs, self.points) - self.center, axis=2).min(axis=1) - self.radius


def goal_configurations(
    arm: Arm, position: Point, rotation: Array | None, spheres: Sequence[Sphere], limits: bool = True
) -> IKResult | None:
    """Return configurations at a goal: position (3,) [m], rotation (3, 3). None for a robot with quaternions or a fixed frame."""
    if arm.model.nq != arm.model.nv or arm.model.frames[arm.model.frame_id(arm.frame)].body < 0:
        return None

    def clearance(qs: Array) -> Array:
        return np.min([sphere.clearance(arm.model, qs) for sphere in spheres], axis=0)

    clear = clearance if spheres else None
    return inverse_kinematics(
        arm.model, arm.frame, np.array(position), rotation, q0=arm.q0, clearance=clear, limits=limits
    )


def guesses_of(
    ocp: to.OCP, arm: Arm, kind: GuessName, reached: IKResult | None, spheres: Sequence[Sphere]
) -> list[to.Guess]:
    """Return guesses of a kind, the preferred one first. reached: configurations at a frame goal, or None."""

    def hold(xs: Array) -> Array:
        return holding_forces(arm.model, xs[:, : arm.model.nq])

    if kind == "constant":
        return [to.constant_guess(ocp)]
    goals = _goals(arm, reached)
    if kind == "quasi_static" or goals is None:
        return [to.quasi_static_guess(ocp, hold)]
    if kind == "auto" and arm.manifold.is_flat:
        return _by_cost(ocp, arm, goals, spheres)
    x_goal = np.concatenate([goals[0], np.zeros(arm.model.nv)]) if arm.x_goal is None else arm.x_goal
    xs = to.interpolated_guess(ocp, x_goal).xs
    return [to.quasi_static_guess(ocp, hold, _bend_around(arm, xs, spheres) if kind == "around" else xs)]


def _goals(arm: Arm, reached: IKResult | None) -> Array | None:
    """Return candidates (M, nq) for the final configuration; None if states are not vectors or no goal is known."""
    if not arm.manifold.is_flat:
        return None if arm.x_goal is None else arm.x_goal[None, : arm.model.nq]
    if arm.x_goal is not None:
        return arm.x_goal[None, : arm.model.nq]
    if reached is None:
        return None
    (solutions,) = reached.solutions
    return solutions[:CANDIDATES] if len(solutions) else reached.q[None]


def _by_cost(ocp: to.OCP, arm: Arm, goals: Array, spheres: Sequence[Sphere]) -> list[to.Guess]:
    """Return motions to these goals, the cheapest first, motions through spheres last."""
    rest = np.zeros(arm.model.nv)
    guesses = [_motion(ocp, arm, minimum_jerk_states(ocp, np.r_[q, rest]), spheres) for q in goals]
    if len(guesses) == 1:
        return guesses
    xs, us = (np.stack(arrays) for arrays in zip(*guesses, strict=True))
    costs = ocp.cost(xs, us)
    inside = [sum(s.clearance(arm.model, x[:, : arm.model.nq]).min() < 0 for s in spheres) for x in xs]
    return [guesses[i] for i in np.lexsort((costs, inside))]


def _motion(ocp: to.OCP, arm: Arm, xs: Array, spheres: Sequence[Sphere]) -> to.Guess:
    body, nq = FreeBody(arm.model), arm.model.nq

    def acceleration(x: Array, u: Array) -> Array:
        return np.asarray(body(x.T, u.T, np.zeros(len(x)), {}))[arm.model.nv :].T

    xs = _bend_around(arm, xs, spheres)
    us = tracking_torques(ocp, xs, acceleration, lambda x: mass_matrix(arm.model, x[:, :nq]))
    return to.Guess(xs, us)


def _bend_around(arm: Arm, xs: Array, spheres: Sequence[Sphere]) -> Array:
    """Bend the configurations of states around the spheres, one after the other; velocities are unchanged."""
    xs, nq = np.array(xs), arm.model.nq
    for sphere in spheres:
        xs[:, :nq] = around_sphere(arm.model, xs[:, :nq], sphere.points, sphere.center, sphere.radius)
    return xs


# -- validation -----------------------------------------------------------------------------------------------


def goal_warnings(arm: Arm, position: Point, rotation: Array | None, reached: IKResult | None) -> tuple[str, ...]:
    """Return warnings about a goal out of reach, beyond limits, in an obstacle, or close to a singularity."""
    if reached is None or not reached.reached:
        goal = FrameGoal(arm.frame, np.array(position), rotation)
        return tuple(reach_warnings(arm.model, goal, np.asarray(arm.q0), reached))
    warnings = []
    if not reached.clear:
        warnings.append(f"all configurations found with {arm.frame} at the goal collide with an obstacle")
    if NEVER_MOVES < reached.dexterity < SINGULAR:
        warnings.append(
            f"the arm is close to a singularity at the goal (smallest over largest singular value {reached.dexterity:.1g}): "
            "expect large joint motions"
        )
    return tuple(warnings)


def minimum_time(arm: Arm, goals: Array) -> float:
    """Return the minimum time [s] from q0 to the nearest of configurations (M, nq), given velocity limits only."""
    return float((np.abs(goals - arm.q0) / arm.model.velocity_limit).max(axis=1).min(initial=np.inf))


def reach_notes(arm: Arm, reached: IKResult | None) -> tuple[str, ...]:
    """Return a note about a reachable goal."""
    if reached is None or not reached.reached:
        return ()
    (solutions,) = reached.solutions
    return (
        f"goal within reach of {arm.frame}: {len(solutions)} configurations found; nearest one: manipulability "
        f"{reached.manipulability:.3g}, dexterity {reached.dexterity:.2g}",
    )
