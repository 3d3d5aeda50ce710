"""Step lengths by a filter of the violation theta and the barrier's objective, with second-order corrections.

Sections 2.3 and 2.4 of Waechter and Biegler: a full step that raises the violation is corrected by further solutions of the same
system for the violation found at its end, c <- alpha c(z) + c(z + alpha d), as long as that falls.

A step that gains a little violation may raise the objective far above that of iterates in the filter, whose pairs then refuse
all but short steps on the way back.  Where they, and not the iterate itself, shorten BLOCKED steps in a row, the filter is
emptied, EMPTIED times at most (as IPOPT does: filter_reset_trigger, max_filter_resets).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import address
from trajopt.results.records import Journal
from trajopt.solvers.ipm.library import Multipliers
from trajopt.solvers.ipm.measure import Measures, Violation
from trajopt.solvers.ipm.newton import NewtonSystem, Step
from trajopt.solvers.ipm.stage_program import Point, StageProgram
from trajopt.solvers.rules.filter import LARGE, MARGIN, SMALL, SWITCH_PHI, SWITCH_THETA, Filter

CORRECTIONS, WORTH = 4, 0.99
"""p_max and kappa_soc: corrections of a step, and how much the violation has to fall with each."""
BLOCKED, EMPTIED = 5, 5
"""After so many steps in a row that pairs of the filter shortened it is emptied, and how often."""
SAFETY = 0.05
"""gamma_alpha: of the least step length."""
CREEPING, CREPT = 20, 1e-2
"""So many steps in a row, from iterates that violate a constraint, none of this length: feasible points are sought alone then."""


class BarrierFilter(Filter):
    """A filter that no violation is too small for: barrier problems with tiny mu tell differences below that of the violation's
    tolerance.
    """

    def decides_by_cost(self, at: tuple[float, float], expected: float) -> bool:
        """The switching condition, eq. 19."""
        theta, promise = at[0], -expected
        return theta <= SMALL * self.scale and promise > 0.0 and promise**SWITCH_PHI > theta**SWITCH_THETA


class Accepted(NamedTuple):
    """A step that was taken: its length, the step, the objective and the violation at its end."""

    alpha: float
    step: Step
    objective: float
    at: Violation


class BarrierProblem(NamedTuple):
    """What is minimized: scale f + mu (barrier); tau: how much of a distance from a bound a step may take."""

    scale: float
    mu: float
    tau: float

    def merit(self, objective: float, at: Violation) -> float:
        """Its objective at a point."""
        return self.scale * objective + self.mu * at.barrier


class Start(NamedTuple):
    """The iterate that a search starts from: its point and multipliers, its violation, theta and the barrier's objective."""

    point: Point
    z: Multipliers
    at: Violation
    pair: tuple[float, float]


class LineSearch:
    """The filter of a barrier problem, and searches on it. journal: times derivatives and corrections."""

    def __init__(self, program: StageProgram, system: NewtonSystem, measures: Measures, journal: Journal) -> None:
        self.program, self.system, self.measures, self.journal = program, system, measures, journal
        self._scale: float | None = None
        self.filter = BarrierFilter(1.0)
        self._d, self._rows = np.zeros((program.N, program.n)), np.zeros(program.rows)
        self._fixes = np.zeros(len(program.fixed))
        self._matched, self._blocked, self._emptied = False, 0, 0
        self._hopeful = (
            True  # whether the last full step was taken: then derivatives are worth computing before the next is
        )

    def restart(self, theta: float) -> None:
        """An empty filter, for another barrier problem; the scale is that of the start."""
        if self._scale is None:
            self._scale = max(1.0, theta)
        self.filter = BarrierFilter(self._scale)

    def remember(self, theta: float, merit: float) -> None:
        """Keep an iterate that is left."""
        self.filter.add((theta, merit))

    def search(self, start: Start, to: Point, step: Step, spare: Step, problem: BarrierProblem) -> Accepted | None:
        """The longest step length of its trials that the filter accepts, its end in ``to`` with first derivatives; None: none is.

        spare: memory for corrected steps.
        """
        self._look_back()
        pair, alpha, full, hopeful = start.pair, step.alpha, True, self._hopeful
        least, self._hopeful = self._least(start.at.theta, step.slope), True
        while alpha >= least or full:
            known = full and hopeful
            self.program.move(start.point, alpha, step.v, to)
            objective = self._first(to) if known else self.program.values(to)
            here = self.measures.violation(to)
            if self._takes(pair, here, problem.merit(objective, here), alpha * step.slope):
                if not known:
                    self._first(to)
                return Accepted(alpha, step, objective, here)
            if full and here.theta >= start.at.theta:
                corrected = self._corrected(start, to, step, spare, here, problem)
                if corrected is not None:
                    self._hopeful = False
                    return corrected
            alpha, full, self._hopeful = 0.5 * alpha, False, False
        return None

    def _first(self, to: Point) -> float:
        """The objective at a point, with its first derivatives."""
        with self.journal.timed("derivatives"):
            return self.program.first(to)

    def _look_back(self) -> None:
        """Empty a filter whose pairs have shortened the last steps."""
        self._blocked = self._blocked + 1 if self._matched else 0
        self._matched = False
        if self._blocked >= BLOCKED and self._emptied < EMPTIED:
            self._blocked, self._emptied = 0, self._emptied + 1
            self.restart(0.0)

    def _takes(self, pair: tuple[float, float], here: Violation, merit: float, expected: float) -> bool:
        """Whether a step is accepted; if so, and if it was not one for the objective, the filter keeps the iterate left."""
        new = here.theta, merit
        finite = bool(np.isfinite(here.theta + merit))
        if not finite or not self.filter.accepts(pair, new, expected):
            self._matched = finite and self.filter.matched(new)
            return False
        if not self.filter.decides_by_cost(pair, expected):
            self.filter.add((pair[0] * (1.0 - MARGIN), pair[1] - MARGIN * pair[0]))
        return True

    def _least(self, theta: float, slope: float) -> float:
        """alpha_min of eq. 23."""
        if slope >= 0.0:
            return SAFETY * MARGIN
        bound = min(MARGIN, MARGIN * theta / -slope)
        if theta <= SMALL * self.filter.scale:
            bound = min(bound, theta**SWITCH_THETA / (-slope) ** SWITCH_PHI)
        return max(SAFETY * bound, 1e-14)

    def _corrected(
        self, start: Start, to: Point, step: Step, spare: Step, here: Violation, problem: BarrierProblem
    ) -> Accepted | None:
        """Second-order corrections of a full step whose end, of violation ``here``, is in ``to``."""
        program, system, p = self.program, self.system, start.point
        alpha, last = step.alpha, here.theta
        if not np.isfinite(last) or last > LARGE * self.filter.scale:
            return None
        d, rows, fixes = p.d.copy(), system.rows.copy(), system.fixes.copy()
        for _ in range(CORRECTIONS):
            own = (address(to.v), address(to.g), address(self._rows), address(self._fixes))
            system.kernels.residuals(program.ref, *own)
            d, rows, fixes = alpha * d + to.d, alpha * rows + self._rows, alpha * fixes + self._fixes
            with self.journal.timed("backward"):
                system.vectors(p, d, rows, fixes)
                corrected = system.solve(p, start.z, problem.tau, spare, rows)
            alpha = corrected.alpha
            program.move(p, alpha, corrected.v, to)
            objective = program.values(to)
            here = self.measures.violation(to)
            if self._takes(start.pair, here, problem.merit(objective, here), alpha * step.slope):
                self._first(to)
                return Accepted(alpha, corrected, objective, here)
            if not here.theta <= WORTH * last:
                return None
            last = here.theta
        return None
