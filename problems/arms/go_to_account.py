"""What is told of a go-to: where it ends, and whether that is where it was to end.

A motion has missed its goal where its end is farther from it than FAR of the way there, and than NEAR: a frame by the distance
of its position or the angle of its orientation, a configuration by its worst joint. A goal that is a constraint is the solver's
matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynamics_backends.protocol import Array
from problems.arms.arm import Arm
from problems.arms.arm_guess import fastest
from problems.arms.obstacle import Point
from trajopt.guesses.inverse_kinematics import IKResult
from trajopt.problem.goals import FAR, NEAR, NEAR_ANGLE
from trajopt.validation.reach import FrameGoal, frame_errors, length_text

OTHER_WAYS = (
    "search for another optimum with --starts 6, increase weights.terminal_goal, or make the goal a constraint with "
    "terminal = 'constraint'"
)


@dataclass(frozen=True)
class Account:
    """The account of a go-to.

    position, rotation (3, 3): of the frame's goal; None for a goal in joint space. reached: the
    configurations there, None where they are not known. warnings: why it cannot be reached. held: whether the goal is a
    constraint. lasts: the duration [s], None where it is chosen. limited: whether limits of velocities hold.
    """

    arm: Arm
    position: Point | None
    rotation: Array | None = None
    reached: IKResult | None = None
    warnings: Sequence[str] = ()
    held: bool = False
    lasts: float | None = None
    limited: bool = False

    def outcome(self, x: Array) -> list[str]:
        """Sentences about a final state (nx,)."""
        model, v = self.arm.model, x[self.arm.model.nq :][: self.arm.model.nv]
        i, units = int(np.argmax(np.abs(v))), model.dof_units
        speed = f"largest final joint speed {abs(v[i]):.2g} {units[i]}/s ({model.dof_names[i]})"
        if self.position is None:
            error = self._joint_errors(x)
            i = int(np.argmax(error / self._near()))
            return [f"largest final joint error {error[i]:.2g} {units[i]} ({model.dof_names[i]})", speed]
        distance, angle = self._frame_errors(x)
        sentences = [f"{self.arm.frame} ends {length_text(distance)} from its goal", speed]
        if self.rotation is not None:
            sentences.append(f"{self.arm.frame} ends {angle:.2g} rad from its goal orientation")
        return sentences

    def missed(self, xs: Array) -> list[str]:
        """That states (N + 1, nx) end far from the goal, why, and what helps."""
        if self.held:
            return []
        if self.position is None:
            start, end = self._joint_errors(xs[0]), self._joint_errors(xs[-1])
            model, units = self.arm.model, np.array(self.arm.model.dof_units)
            ways = np.array([start[units == unit].max() for unit in units])  # of joints of one kind
            most = np.maximum(FAR * ways, self._near())
            i = int(np.argmax(end / most))
            if end[i] <= most[i]:
                return []
            far = f"{end[i]:.2g} {model.dof_units[i]}"
            return [f"{model.dof_names[i]} ends {far} from its goal: {self._remedy(xs)}"]
        far = self._how_far(self._frame_errors(xs[0]), self._frame_errors(xs[-1]))
        return [f"{self.arm.frame} ends {far} from its goal{self._why(xs)}"] if far else []

    def _how_far(self, start: tuple[float, float], end: tuple[float, float]) -> str:
        """The distance and the angle that are too large, "" where none is."""
        told = (length_text(end[0]), f"{end[1]:.2g} rad")
        limits = np.maximum(FAR * np.array(start), (NEAR, NEAR_ANGLE))
        return " and ".join(text for text, e, most in zip(told, end, limits, strict=True) if e > most)

    def _why(self, xs: Array) -> str:
        if self.warnings and not (self.reached is not None and self.reached.reached and self.reached.clear):
            return f": {'; '.join(self.warnings)}"
        within = ", which is within its reach" if self.reached is not None and self.reached.reached else ""
        return f"{within}: {self._remedy(xs)}"

    def _remedy(self, xs: Array) -> str:
        more = "allow more time"
        if self.lasts is None or xs.shape[1] != self.arm.manifold.nx:
            return OTHER_WAYS
        least = self._least_duration() if self.limited else 0.0
        if least > self.lasts:
            return f"the motion lasts {self.lasts:.3g} s, but at the velocity limits it needs {least:.2g} s: {more}"
        return f"{more}, {OTHER_WAYS}"

    def _least_duration(self) -> float:
        if self.position is None:
            assert self.arm.x_goal is not None  # one of both is the goal
            return float((self._joint_errors(self.arm.x0) / self.arm.model.velocity_limit).max())
        if self.reached is None or not self.reached.reached:
            return 0.0
        (solutions,) = self.reached.solutions
        return fastest(self.arm, solutions)

    def _near(self) -> Array:
        """NEAR of each joint (nv,) [rad, m]."""
        return np.where(np.array(self.arm.model.dof_units) == "m", NEAR, NEAR_ANGLE)

    def _joint_errors(self, x: Array) -> Array:
        """Distances (nv,) of the joints [rad, m] from those of the goal at a state (nx,)."""
        assert self.arm.x_goal is not None  # see outcome
        own = x[: self.arm.manifold.nx, None]
        return np.abs(self.arm.manifold.difference(self.arm.x_goal[:, None], own)[: self.arm.model.nv, 0])

    def _frame_errors(self, x: Array) -> tuple[float, float]:
        """Distance [m] and angle [rad] of the frame from its goal at a state (nx,); no angle where none is asked for."""
        assert self.position is not None  # see outcome
        goal = FrameGoal(self.arm.frame, np.array(self.position), self.rotation)
        (errors,) = frame_errors(self.arm.model, goal, x[None, : self.arm.model.nq])
        return errors
