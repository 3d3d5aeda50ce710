"""Interior-point slot of a problem with uncompiled stages: NumPy evaluates the stages, C kernels do the linear algebra."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface import kernels
from dynamics_backends.protocol import Array
from trajopt.results.records import Journal
from trajopt.solvers.interior.newton import Step as StepArrays
from trajopt.solvers.interior.stage_program import Point
from trajopt.solvers.methods.interior_requests import (
    Begun,
    Correct,
    Corrected,
    Direction,
    Newton,
    Start,
    Take,
    Trial,
    Try,
)
from trajopt.solvers.window.interior_slot import InteriorSlot
from trajopt.solvers.window.slots import functions

TRIAL, CORRECTED = 8, 3
"""Offsets of the trial values in an answer: of a step, of a corrected step."""


class InteriorNumpy(InteriorSlot):
    """Slot of the interior-point method whose kernels do not evaluate stages: the program does, by compiled code where it can.

    journal: times the evaluations.
    """

    journal: Journal

    def answer(self, request: Any) -> Any:
        """Return the answer to a request; the journal counts the time outside evaluations as that of the backward pass."""
        with self.journal.timed("backward"):  # nested timers count evaluations
            return super().answer(request)

    def note_times(self, journal: Journal) -> None:
        """Do nothing: the journal measures the times during the evaluations."""

    def _take_stages(self) -> None:
        """Bind the kernels of the linear algebra, which call no stage functions."""
        function = functions(kernels(), "interior")
        self._place, self._answer_start = function("place", "ppd"), function("answer_start", "pdd")
        self._solve, self._answer = function("solve", "p", ctypes.c_int), function("answer", "pdii")
        self._correct_step, self._take_multipliers = function("correct_step", "pdid"), function("take_multipliers", "p")

    def _values_of_stages(self) -> tuple[Any, Any]:
        """Return (None, None): the kernels read no data of stages."""
        return None, None

    def _first(self, p: Point) -> float:
        """Compute values and first derivatives at a point; return the objective."""
        with self.journal.timed("derivatives"):
            return self.program.first(p)

    def _try_step(self, step: StepArrays, alpha: float, differentiate: bool, at: int) -> None:
        """Move the trial point to alpha times a step from the current iterate, and evaluate it; differentiate: with derivatives.

        Objective and violation are written into the answer from index ``at`` on.
        """
        with self.journal.timed("rollout"):
            self.program.move(self.point, alpha, step.v, self.other)
            objective = self._first(self.other) if differentiate else self.program.values(self.other)
        self._answer(self.address, objective, at, True)

    def _started(self, r: Start) -> Begun:
        """Load the guess, pushed off its bounds, and differentiate; return objective, violation, largest cost gradient."""
        self._place(self.address, self.problem, r.push)
        self._answer_start(self.address, r.push, self._first(self.point))
        return self.begun()

    def _solved(self, r: Newton) -> Direction:
        """Compute second derivatives and a Newton step, and if it is found evaluate its trial point; return the direction.

        If no shift makes the system convex, the direction has found = 0, and its step and trial are undefined.
        """
        self.hand_over(r)
        with self.journal.timed("derivatives"):
            self.program.second(self.point, r.scale, self.z)
        if self._solve(self.address):
            self._try_step(self._steps[0], self.system.data.alpha, r.differentiate, TRIAL)
        return self.direction()

    def _tried(self, r: Try) -> Trial:
        """Evaluate the trial point at a step length; return its objective and violation."""
        self._try_step(self._steps[0], r.alpha, False, 0)
        return self.trial()

    def _corrected(self, r: Correct) -> Corrected:
        """Compute a second-order correction and evaluate its trial point; return the corrected step."""
        self._correct_step(self.address, *r)
        self._try_step(self._steps[1], self.system.data.alpha, False, CORRECTED)
        return self.correction()

    def _taken(self, r: Take) -> tuple[float, ...]:
        """Accept the trial as current iterate, differentiate there if not yet done, and update the multipliers.

        On a Lie group, the multipliers of the defects are transported, too. Returns the sums of the error measures there.
        """
        self.hand_over(r)
        self.data.at = 1 - self.data.at
        if not r.known:
            self._first(self.point)
        self._take_multipliers(self.address)
        if not self.program.flat:
            self._transport_multipliers(r.alpha * self._steps[r.corrected].v)
            self._measure(self.address, r.mu, r.scale)
        return self.sums()

    def _transport_multipliers(self, step: Array) -> None:
        """Transport the multipliers of the defects, in place, from the tangent spaces at the old knots to those at the new knots.

        step: change of all variables from the old to the new point, of which the states are used.
        """
        n, N = self.program.n, self.program.N
        E = self.program.ocp.manifold.d_integrate(step[n : (N + 1) * n].reshape(N, n))[1]
        self.z.lam[:] = np.linalg.solve(E.transpose(0, 2, 1), self.z.lam[:, :, None])[:, :, 0]

    def go_to(self, point: Point) -> Trial:
        """Make a point of the slot, changed by outside code, the current iterate; return its objective and violation.

        First derivatives are computed, too.
        """
        self.data.at = self.points.index(point)
        self._answer(self.address, self._first(point), 0, False)
        return self.trial()
