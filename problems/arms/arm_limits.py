"""Default limits of an arm: limits that its model defines and its task respects are enforced."""

from __future__ import annotations

from typing import Any

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.mjcf.notes import UNDRIVEN
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.urdf.mimic import INDEPENDENT
from .arm import Arm, holding_forces


def default_limits(arm: Arm, margin: float) -> dict[str, Any]:
    """Return the values of omitted limit settings, if they are true (all limits hold) or false (none holds).

    margin: reduction of the position limits [rad, m].
    """
    model, limited = arm.model, np.isfinite(arm.model.q_lower) | np.isfinite(arm.model.q_upper)
    holding = {
        "torque_limits": np.isfinite(model.effort_limit),
        "position_limits": within_limits(arm, margin)[limited],
        "velocity_limits": np.isfinite(model.velocity_limit).any(keepdims=True),
    }
    return {key: bool(holds.any()) for key, holds in holding.items() if holds.all() or not holds.any()}


def within_limits(arm: Arm, margin: float) -> Array:
    """Return a mask (nq,) of the coordinates whose start and joint-space goal, if any, are within their limits."""
    model = arm.model
    lower, upper = model.q_lower + margin, model.q_upper - margin
    inside = np.full(model.nq, True)
    for x in (arm.x0, arm.x_goal):
        if x is not None:
            inside &= (lower <= x[: model.nq]) & (x[: model.nq] <= upper)
    return inside


def require_goal_within_limits(arm: Arm, margin: float) -> None:
    """Raise ValueError for a joint-space goal beyond a limit."""
    if arm.x_goal is None:
        return
    model, q = arm.model, arm.x_goal[: arm.model.nq]
    lower, upper = model.q_lower + margin, model.q_upper - margin
    beyond = np.flatnonzero((q < lower) | (q > upper))
    if len(beyond):
        i = int(beyond[0])
        limit, narrowed = (
            lower[i] if q[i] < lower[i] else upper[i],
            f", reduced by the margin {margin:g}" if margin else "",
        )
        raise ValueError(
            f"goal_q of {model.q_names[i]!r} is {q[i]:.6g}{model.degrees_hint(i, float(q[i]))}, beyond its limit "
            f"{limit:.6g}{narrowed}, which position_limits = true enforces: choose a goal within the limit, or remove "
            "position_limits"
        )


def goal_limit_warnings(arm: Arm) -> tuple[str, ...]:
    """Return a warning for each joint whose joint-space goal is outside its limits."""
    if arm.x_goal is None:
        return ()
    model, q = arm.model, arm.x_goal[: arm.model.nq]
    return tuple(
        f"goal_q is outside its limits: {model.q_names[i]} = {q[i]:.6g}{model.degrees_hint(int(i), float(q[i]))}, limits "
        f"[{model.q_lower[i]:.6g}, {model.q_upper[i]:.6g}], which are not enforced"
        for i in np.flatnonzero((q < model.q_lower) | (q > model.q_upper))
    )


def joint_limits(arm: Arm, margin: float, all_of_them: bool) -> to.Constraint:
    """Return the position limits as a constraint: all limits, or only those that start and goal respect."""
    if all_of_them:
        return to.joint_limits(arm.model, arm.manifold, margin)
    model, free, inside = arm.model, np.full(arm.model.nv, np.inf), within_limits(arm, margin)
    lower, upper = np.where(inside, model.q_lower + margin, -np.inf), np.where(inside, model.q_upper - margin, np.inf)
    names = (*model.q_names, *model.dof_names)
    return to.state_bounds(arm.manifold, np.r_[lower, -free], np.r_[upper, free], "joint limits", names)


def torque_bounds(model: Model, required: bool | None) -> dict[str, Any]:
    """Return control bounds as keyword arguments of an OCP. required: require them, omit them, or None: use those available."""
    if required is False:
        return {}
    limits = np.array(model.effort_limit) if required is None else effort_limits(model)
    return {"u_lower": -limits, "u_upper": limits}


def effort_limits(model: Model) -> Array:
    """Return the effort limits (nv,) [N, N m]. Raises ValueError if one is missing."""
    if not np.isfinite(model.effort_limit).all():
        name = model.dof_names[int(np.argmax(~np.isfinite(model.effort_limit)))]
        raise ValueError(f"torque_limits needs effort limits, but the URDF of {model.name} gives none for {name!r}")
    return np.array(model.effort_limit)


PLACEHOLDER, BEYOND = 1e3, 10.0
"""An effort limit counts as a placeholder if it is at least PLACEHOLDER [N m] and BEYOND times the torque of the robot's weight
at its full length."""
ROUNDING = 1e-6
"""Relative tolerance on torques, for rounding."""


def placeholder_warnings(model: Model) -> tuple[str, ...]:
    """Return a warning about effort limits that look like placeholders, which do not limit torques in practice."""
    length = np.linalg.norm(model.placement_p, axis=1).sum() + np.linalg.norm(model.com, axis=1).max()
    weight = model.total_mass * np.linalg.norm(model.gravity)
    turns, limit = np.array([unit == "rad" for unit in model.dof_units]), model.effort_limit
    found = np.flatnonzero(turns & np.isfinite(limit) & (limit >= max(PLACEHOLDER, BEYOND * weight * length)))
    if not weight or not len(found):
        return ()
    names = ", ".join(model.dof_names[i] for i in found)
    return (
        f"the effort limits of {names} ({limit[found].min():g} N m and more) look like placeholders: holding the stretched arm "
        f"needs {weight * length:.2g} N m; torques are practically unlimited",
    )


def weak_joint_warnings(arm: Arm, fractions: Array | float = 1.0, goals: Array | None = None) -> tuple[str, ...]:
    """Return warnings about joints whose scaled effort limits cannot hold the arm at rest at its start or goal.

    goals: configurations (M, nq) at the goal, of which one has to be holdable; None if unknown.
    """
    ends = {"start": arm.q0[None]}
    if arm.x_goal is not None:
        goals = arm.x_goal[None, : arm.model.nq]
    if goals is not None and len(goals):
        ends["goal"] = goals
    messages = (
        _weak_joint_warning(arm.model, name, qs, fractions * np.asarray(arm.model.effort_limit))
        for name, qs in ends.items()
    )
    return tuple(text for text in messages if text)


def _weak_joint_warning(model: Model, name: str, qs: Array, limits: Array) -> str:
    held = np.abs(holding_forces(model, qs))
    beyond = held - limits
    best = int(np.argmin(beyond.max(axis=1)))
    i = int(np.argmax(beyond[best]))
    if beyond[best, i] <= ROUNDING * held[best, i]:
        return ""
    unit = "N m" if model.dof_units[i] == "rad" else "N"
    return (
        f"{model.dof_names[i]} is too weak to hold the arm at rest at its {name}: this needs {held[best, i]:.3g} {unit}, and its "
        f"limit is {limits[i]:.3g} {unit}; choose another {name}, or increase the effort limit in the robot file"
    )


_REMEDIES = {
    INDEPENDENT: "the robot cannot follow a motion in which they move apart; problem.locked_joints makes both rigid",
    UNDRIVEN: "the robot cannot make a motion that needs this force; problem.locked_joints makes a joint rigid, and a "
    "script leaves its force out (to.FreeBody(model, actuated=...))",
}
"""Remedies by the beginnings of notes of a model about joints that move, or are driven, otherwise than those of the robot."""


def joint_warnings(model: Model) -> tuple[str, ...]:
    """Return warnings about joints that follow others on the real robot, but not here, and about joints without actuators."""
    return tuple(
        f"{note}; {remedy}" for begin, remedy in _REMEDIES.items() for note in model.notes if note.startswith(begin)
    )


def friction_notes(model: Model, remedy: str) -> tuple[str, ...]:
    """Return a note about dry friction in the robot's file that the problem ignores."""
    names = [name for name, friction in zip(model.dof_names, model.friction, strict=True) if friction]
    return (f"dry friction is ignored for {', '.join(names)}{remedy}",) if names else ()


def missing_limit_warnings(model: Model) -> tuple[str, ...]:
    """Return warnings about joints without velocity or effort limits in a minimum-time problem."""
    found = {"velocity": model.velocity_limit, "effort": model.effort_limit}
    return tuple(
        f"the robot's file has no {key} limits for {', '.join(np.array(model.dof_names)[~np.isfinite(limits)])}: a "
        "minimum-time motion is not limited there"
        for key, limits in found.items()
        if not np.isfinite(limits).all()
    )
