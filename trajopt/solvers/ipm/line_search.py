"""Step lengths by a filter of the violation theta and the barrier's objective, with second-order corrections.

Sections 2.3 and 2.4 of Waechter and Biegler: a full step that raises the violation is corrected by further solutions of the same system
for the violation found at its end, c <- alpha c(z) + c(z + alpha d), as long as that falls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from trajopt.solvers.ipm.kernels import Multipliers
from trajopt.solvers.ipm.measure import Measures, Violation
from trajopt.solvers.ipm.newton import NewtonSystem, Step
from trajopt.solvers.ipm.stage_program import Point, StageProgram
from trajopt.solvers.shooting.filter import LARGE, MARGIN, SMALL, SWITCH_PHI, SWITCH_THETA, Filter

CORRECTIONS, WORTH = 4, 0.99
"""p_max and kappa_soc: corrections of a step, and how much the violation has to fall with each."""
SAFETY = 0.05
"""gamma_alpha: of the least step length."""


class Accepted(NamedTuple):
    """A step that was taken: its length, the step, the objective and the violation at its end."""

    alpha: float
    step: Step
    objective: float
    at: Violation


class LineSearch:
    """The filter of a barrier problem, and searches on it."""

    def __init__(self, program: StageProgram, system: NewtonSystem, measures: Measures) -> None:
        self.program, self.system, self.measures = program, system, measures
        self._scale: float | None = None
        self.filter = Filter(1.0)
        self._d, self._rows = np.zeros((program.N, program.n)), np.zeros(program.rows)
        self._fixes = np.zeros(len(program.fixed))
        self._hopeful = True  # whether the last full step was taken: then derivatives are worth computing before the next one is

    def restart(self, theta: float) -> None:
        """An empty filter, for another barrier problem; the scale is that of the start."""
        if self._scale is None:
            self._scale = max(1.0, theta)
        self.filter = Filter(self._scale)

    def remember(self, theta: float, merit: float) -> None:
        """Keep an iterate that is left."""
        self.filter.add((theta, merit))

    def search(
        self,
        p: Point,
        z: Multipliers,
        to: Point,
        step: Step,
        spare: Step,
        at: Violation,
        merit: float,
        scale: float,
        mu: float,
        tau: float,
    ) -> Accepted | None:
        """The longest step length of its trials that the filter accepts, its end in ``to`` with first derivatives; None: none is."""
        pair, alpha, full = (at.theta, merit), step.alpha, True
        least, hopeful = self._least(at.theta, step.slope), self._hopeful
        self._hopeful = True
        while alpha >= least or full:
            known = full and hopeful
            self.program.move(p, alpha, step.v, to)
            objective = self.program.first(to) if known else self.program.values(to)
            here = self.measures.violation(to)
            value = scale * objective + mu * here.barrier
            if self._accepts(pair, (here.theta, value), alpha * step.slope):
                if not known:
                    self.program.first(to)
                self._left(pair, alpha * step.slope, value)
                return Accepted(alpha, step, objective, here)
            if full and here.theta >= at.theta:
                corrected = self._corrected(p, z, to, step, spare, at, here, merit, scale, mu, tau)
                if corrected is not None:
                    return corrected
            alpha, full, self._hopeful = 0.5 * alpha, False, False
        return None

    def _accepts(self, pair: tuple[float, float], new: tuple[float, float], expected: float) -> bool:
        return bool(np.isfinite(new[0] + new[1])) and self.filter.accepts(pair, new, expected)

    def _left(self, pair: tuple[float, float], expected: float, value: float) -> None:
        """Keep the iterate in the filter where the step was not one for the objective."""
        if not self.filter.decides_by_cost(pair, expected):
            self.filter.add((pair[0] * (1.0 - MARGIN), pair[1] - MARGIN * pair[0]))

    def _least(self, theta: float, slope: float) -> float:
        """alpha_min of eq. 23."""
        if slope >= 0.0:
            return SAFETY * MARGIN
        bound = min(MARGIN, MARGIN * theta / -slope)
        if theta <= SMALL * self.filter.scale:
            bound = min(bound, theta**SWITCH_THETA / (-slope) ** SWITCH_PHI)
        return max(SAFETY * bound, 1e-14)

    def _corrected(
        self,
        p: Point,
        z: Multipliers,
        to: Point,
        step: Step,
        spare: Step,
        at: Violation,
        here: Violation,
        merit: float,
        scale: float,
        mu: float,
        tau: float,
    ) -> Accepted | None:
        program, system, pair, alpha, last = self.program, self.system, (at.theta, merit), step.alpha, here.theta
        if not np.isfinite(last) or last > LARGE * self.filter.scale:
            return None
        d, rows, fixes = p.d.copy(), system.rows.copy(), system.fixes.copy()
        for _ in range(CORRECTIONS):
            system.kernels.residuals(program.ref, address(to.v), address(to.g), address(self._rows), address(self._fixes))
            d, rows, fixes = alpha * d + to.d, alpha * rows + self._rows, alpha * fixes + self._fixes
            system.vectors(p, d, rows, fixes)
            spare = system.solve(p, z, tau, spare, rows)
            alpha = spare.alpha
            program.move(p, alpha, spare.v, to)
            objective = program.values(to)
            here = self.measures.violation(to)
            value = scale * objective + mu * here.barrier
            if self._accepts(pair, (here.theta, value), alpha * step.slope):
                program.first(to)
                self._left(pair, alpha * step.slope, value)
                return Accepted(alpha, spare, objective, here)
            if not here.theta <= WORTH * last:
                return None
            last = here.theta
        return None
