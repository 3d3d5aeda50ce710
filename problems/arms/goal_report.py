"""Reports of a point-to-point motion: its final error, and if it misses the goal, the reason and a remedy.

A motion misses its goal if its final error exceeds FAR times the initial error, and NEAR. The error of a frame is the distance of
its position or the angle of its orientation; the error of a configuration is that of its worst joint. If the goal is a
constraint, the solver reports a violation instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.inverse_kinematics import IKResult
from trajopt.problem.goals import FAR, NEAR, NEAR_ANGLE
from trajopt.validation.reach import FrameGoal, frame_errors, length_text, near_goal
from .arm import Arm
from .arm_guess import minimum_time
from .obstacle import Point

OTHER_WAYS = (
    "search for another optimum with --starts 6, increase weights.terminal_goal, or make the goal a constraint with "
    "terminal = 'constraint'"
)


SMALL = 100.0
"""Factor by which the advised control weight makes holding the arm cheaper than missing its goal."""


@dataclass(frozen=True)
class GoalReport:
    """Report about a point-to-point motion.

    position, rotation (3, 3): goal of the frame; None for a joint-space goal. reached: inverse kinematics of the goal, or None.
    warnings: reasons why the goal is not reached. is_constraint: the goal is a
    constraint; then only a motion that is too short is a reason. duration: in seconds, None if free.
    velocity_limited: velocity limits are enforced. holding_cost: cost of holding the arm at rest at its goal; goal_weight: terminal
    weight of the goal. obstructed: there are obstacles.
    """

    arm: Arm
    position: Point | None
    rotation: Array | None = None
    reached: IKResult | None = None
    warnings: Sequence[str] = ()
    is_constraint: bool = False
    duration: float | None = None
    velocity_limited: bool = False
    holding_cost: float = 0.0
    goal_weight: float = np.inf
    obstructed: bool = False

    def outcome(self, x: Array) -> list[str]:
        """Return sentences about a final state (nx,)."""
        model, v = self.arm.model, x[self.arm.model.nq :][: self.arm.model.nv]
        i, units = int(np.argmax(np.abs(v))), model.dof_units
        speed = f"largest final joint speed {abs(v[i]):.2g} {units[i]}/s ({model.dof_names[i]})"
        if self.position is None:
            error = self._joint_errors(x)
            i = int(np.argmax(error / self._near()))
            return [f"largest final joint error {error[i]:.2g} {units[i]} ({model.dof_names[i]})", speed]
        ((distance, angle),) = self._frame_errors(x[None])
        sentences = [f"{self.arm.frame} ends {length_text(distance)} from its goal", speed]
        if self.rotation is not None:
            sentences.append(f"{self.arm.frame} ends {angle:.2g} rad from its goal orientation")
        return sentences

    def missed(self, xs: Array) -> list[str]:
        """Return a sentence if states (N + 1, nx) end far from the goal, with reason and remedy; else nothing."""
        if self.is_constraint and not self.too_short:
            return []
        if self.position is None:
            start, end = self._joint_errors(xs[0]), self._joint_errors(xs[-1])
            model, units = self.arm.model, np.array(self.arm.model.dof_units)
            ways = np.array([start[units == unit].max() for unit in units])  # maximum over joints with this unit
            most = np.maximum(FAR * ways, self._near())
            i = int(np.argmax(end / most))
            if end[i] <= most[i]:
                return []
            far = f"{end[i]:.2g} {model.dof_units[i]}"
            return [f"{model.dof_names[i]} ends {far} from its goal: {'; '.join(self.warnings) or self._remedy(xs)}"]
        far = self._excess_text(*self._frame_errors(xs[[0, -1]]))
        return [f"{self.arm.frame} ends {far} from its goal{self._why(xs)}"] if far else []

    def _excess_text(self, start: tuple[float, float], end: tuple[float, float]) -> str:
        """Return the distance and the angle that exceed their limits, as text; "" if none does."""
        texts = (length_text(end[0]), f"{end[1]:.2g} rad")
        limits = np.maximum(FAR * np.array(start), (near_goal(self.arm.model), NEAR_ANGLE))
        return " and ".join(text for text, e, most in zip(texts, end, limits, strict=True) if e > most)

    def _why(self, xs: Array) -> str:
        if self.warnings and not (self.reached is not None and self.reached.reached and self.reached.clear):
            return f": {'; '.join(self.warnings)}"
        within = ", which is within its reach" if self.reached is not None and self.reached.reached else ""
        return f"{within}: {self._remedy(xs)}"

    def _remedy(self, xs: Array) -> str:
        if self.duration is None or xs.shape[1] != self.arm.manifold.nx:
            return self.outweighed or self._other_ways
        return self.too_short or self.outweighed or f"allow more time, {self._other_ways}"

    @property
    def _other_ways(self) -> str:
        return f"check that the obstacles leave a path to the goal, {OTHER_WAYS}" if self.obstructed else OTHER_WAYS

    @property
    def outweighed(self) -> str:
        """Sentence if holding the arm at its goal costs more than missing the goal by its distance from the start, else "".

        Goals with a rotation, whose weight is another one, are left out.
        """
        x0 = self.arm.x0
        errors = self._joint_errors(x0) if self.position is None else np.array(self._frame_errors(x0[None])[0][:1])
        missing = 0.5 * self.goal_weight * float(errors @ errors)
        if self.rotation is not None or not 0.0 < missing < self.holding_cost:
            return ""
        ratio = self.holding_cost / missing
        return (
            f"holding the arm there costs {ratio:.3g} times as much as missing the goal: divide weights.control by "
            f"1e{int(np.ceil(np.log10(SMALL * ratio)))}, or make the goal a constraint with terminal = 'constraint'"
        )

    @property
    def too_short(self) -> str:
        """Sentence on too short a motion for the velocity limits, to the nearest configuration found at the goal; "" if none."""
        least = self._min_duration() if self.velocity_limited else 0.0
        if self.duration is None or least <= self.duration:
            return ""
        return f"the motion lasts {self.duration:.3g} s, but at the velocity limits it needs {least:.2g} s: allow more time"

    def _min_duration(self) -> float:
        if self.position is None:
            assert self.arm.x_goal is not None  # one of both is the goal
            return float((self._joint_errors(self.arm.x0) / self.arm.model.velocity_limit).max())
        if self.reached is None or not self.reached.reached:
            return 0.0
        (solutions,) = self.reached.solutions
        return minimum_time(self.arm, solutions)

    def _near(self) -> Array:
        """Return the tolerance of each joint (nv,) [rad, m]."""
        return np.where(np.array(self.arm.model.dof_units) == "m", NEAR, NEAR_ANGLE)

    def _joint_errors(self, x: Array) -> Array:
        """Return the joint errors (nv,) [rad, m] relative to the goal at a state (nx,)."""
        assert self.arm.x_goal is not None  # see outcome
        own = x[: self.arm.manifold.nx, None]
        return np.abs(self.arm.manifold.difference(self.arm.x_goal[:, None], own)[: self.arm.model.nv, 0])

    def _frame_errors(self, xs: Array) -> list[tuple[float, float]]:
        """Return distance [m] and angle [rad] of the frame from its goal at each state (M, nx); angle 0 without an orientation."""
        assert self.position is not None  # see outcome
        goal = FrameGoal(self.arm.frame, np.array(self.position), self.rotation)
        return frame_errors(self.arm.model, goal, xs[:, : self.arm.model.nq])
