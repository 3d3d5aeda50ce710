"""Goals of frames set by terminal costs: final errors of a motion, and reachability by inverse kinematics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, FunctionMap
from dynamics_backends.registry import library_driver
from dynamics_backends.rigid_body.algorithms.kinematics import frame_placement
from dynamics_backends.rigid_body.spatial.rotations import rotation_angle
from trajopt.guesses.inverse_kinematics import IKResult, chain_lengths, inverse_kinematics
from trajopt.problem import residuals
from trajopt.problem.goals import FAR, MORE, NEAR, NEAR_ANGLE, CachedEvaluation, Goal
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm

AWAY = 1e-3
"""Error above which a goal counts as out of reach [m, rad]."""
OF_REACH = 0.02
"""Largest tolerance on the position of a frame relative to the length of the robot, for small ones."""
MILLIMETERS = 20.0
"""Coordinate [m] above which an unreachable goal may be in millimeters."""


class FrameGoal(NamedTuple):
    """Goal of a frame in the world: position (3,) [m]; rotation (3, 3), or None if the orientation is free."""

    frame: str
    position: Array
    rotation: Array | None = None


def frame_goals(ocp: OCP) -> list[FrameGoal]:
    """Return the frame goals of squared terminal costs on position, placement or axis of a frame; empty without a robot.

    All components of a cost need nonzero weights; costs of user-defined residuals are ignored. Of a cost on an axis, only the
    position becomes a goal.
    """
    if ocp.model is None:
        return []
    found = (_frame_goal(ocp.model, term) for term in ocp.terminal if term.squared and term.weight.any())
    return [goal for goal in found if goal is not None]


def _frame_goal(model: Any, term: CostTerm) -> FrameGoal | None:
    """Return the goal of a frame that a terminal cost sets, or None for another term and for a weight that is partly zero.

    The direction of an axis is left out of the goal.
    """
    function = term.residual.function if isinstance(term.residual, FunctionMap) else None
    if not isinstance(function, partial) or len(function.args) < 2 or function.args[0] is not model:
        return None
    values = {key: np.atleast_2d(value)[-1] for key, value in term.parameters.items()}
    name = model.frames[function.args[1]].name if isinstance(function.args[1], int) else ""
    if function.func is residuals.frame_position and term.weight.all():
        return FrameGoal(name, values["goal"])
    if function.func in (residuals.frame_placement, residuals.frame_log) and term.weight.all():
        return FrameGoal(name, values["position"], values["rotation"].reshape(3, 3))
    if function.func is residuals.frame_axis and term.weight.all():
        return FrameGoal(name, values["position"])
    return None


def goals_of(ocp: OCP) -> tuple[Goal, ...]:
    """Return the goals of a problem; if it has none, frame goals derived from its terminal costs (:func:`frame_goals`)."""
    if ocp.goals:
        return ocp.goals
    checks = [FrameCheck(ocp.model, goal) for goal in frame_goals(ocp)]
    return tuple(Goal(check.goal.frame, check.missed, check.report) for check in checks)


def frame_errors(model: Any, goal: FrameGoal, q: Array) -> list[tuple[float, float]]:
    """Return distance [m] and angle [rad] of a frame from its goal at each q (M, nq); angle 0 if the orientation is free."""
    rotation, position = frame_placement(model, np.ascontiguousarray(q.T), goal.frame, library_driver())
    distance = np.linalg.norm(np.transpose(position) - goal.position, axis=1)
    wanted = goal.rotation
    angles = [0.0 if wanted is None else rotation_angle(wanted, R) for R in np.moveaxis(np.array(rotation), -1, 0)]
    return list(zip(distance.tolist(), angles, strict=True))


class FrameCheck:
    """Reports about a frame goal for motions xs (N + 1, nx) at times (N + 1,) [s]."""

    def __init__(self, model: Any, goal: FrameGoal) -> None:
        self.model, self.goal = model, goal
        self._near = near_goal(model)
        self._errors = CachedEvaluation(lambda xs: frame_errors(model, goal, xs[[0, -1], : model.nq]))

    def report(self, xs: Array, times: Array) -> list[str]:
        """Return a list of one sentence with the final error of a motion; times is unused."""
        return [f"{self.goal.frame} ends {_errors_text(self._errors(xs)[1], self.goal)} from its goal"]

    def missed(self, xs: Array, times: Array) -> list[str]:
        """Return a list of one sentence, the final error and its reason, if a motion misses the goal, else an empty list.

        times: unused.
        """
        start, end = self._errors(xs)
        if not any(too_far(start, end, self._near)):
            return []
        why = list(reach_warnings(self.model, self.goal, xs[0, : self.model.nq]))
        return [f"{self.goal.frame} ends {_errors_text(end, self.goal)} from its goal: {'; '.join(why) or MORE}"]


def near_goal(model: Any) -> float:
    """Return the absolute tolerance [m] on positions of frames: NEAR, or OF_REACH of the length of a robot if that is less.

    The length is that of its longest chain of joints; NEAR for a floating base, and for joints at one point.
    """
    length = 0.0 if model.floating_base else max(chain_lengths(model), default=0.0)
    return min(NEAR, OF_REACH * length) if length > 0.0 else NEAR


def too_far(start: tuple[float, float], end: tuple[float, float], near: float) -> tuple[bool, bool]:
    """Two flags, for the distance [m] and the angle [rad] from a goal: True if that at the end of a motion misses the goal.

    It does above FAR times the value at the start, but only above ``near`` [m] or NEAR_ANGLE [rad].
    """
    return end[0] > max(FAR * start[0], near), end[1] > max(FAR * start[1], NEAR_ANGLE)


def _errors_text(errors: tuple[float, float], goal: FrameGoal) -> str:
    """Format the errors of a frame: distance, and the angle if the goal has a rotation."""
    distance, angle = errors
    length = length_text(distance)
    return length if goal.rotation is None else f"{length} and {np.degrees(angle):.3g} deg"


def length_text(distance: float) -> str:
    """Format a distance [m] in millimeters, or in meters from 1 m on."""
    return f"{1e3 * distance:.3g} mm" if distance < 1.0 else f"{distance:.3g} m"


def reach_warnings(model: Any, goal: FrameGoal, q0: Array, found: IKResult | None = None) -> Iterator[str]:
    """Yield the reason why a frame cannot reach a goal to within AWAY: distance, joint limits or orientation; nothing if it can.

    q0: (nq,), start of the search. found: result of inverse kinematics for the goal, if known. Robots with quaternions, such as
    those with a floating base get no warnings.
    """
    if model.nq != model.nv:
        return
    if model.frames[model.frame_id(goal.frame)].body < 0:
        ((distance, angle),) = frame_errors(model, goal, q0[None])
        if max(distance, angle) > AWAY:
            yield f"no joint moves {goal.frame}, which stays {_errors_text((distance, angle), goal)} away from the goal"
        return
    found = found or _configurations(model, goal, q0)
    off = float(found.position_error), float(found.rotation_error)
    if found.reached or max(off) <= AWAY:
        return
    far, free = _errors_text(off, goal), _configurations(model, goal, q0, limits=False)
    if free.reached:
        over = np.maximum(model.q_lower - free.q, free.q - model.q_upper)
        joint = model.q_names[int(np.argmax(over))]
        yield (
            f"the goal is {far} out of reach of {goal.frame} within the joint limits; it is reachable with {joint} "
            f"{over.max():.2g} beyond its limit"
        )
    elif goal.rotation is not None and _configurations(model, goal._replace(rotation=None), q0).reached:
        yield f"{goal.frame} reaches the goal position, but not its orientation: off by {far}"
    else:
        unit = " (millimeters?)" if np.abs(goal.position).max() > MILLIMETERS else ""
        yield f"the goal is {far} beyond the reach of {goal.frame}{unit}"


def _configurations(model: Any, goal: FrameGoal, q0: Array, limits: bool = True) -> IKResult:
    """Inverse kinematics for a goal from q0, with or without joint limits."""
    return inverse_kinematics(model, goal.frame, goal.position, goal.rotation, q0=q0, limits=limits)
