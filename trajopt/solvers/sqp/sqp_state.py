"""State of an SQP method between iterations, grouped by when it changes.

Progress          after each iteration: its number, the best iterate
Damping           with each Hessian: its multiple sigma, and what made the QP convex
Contradictions    where the rows of a QP contradict each other: the elastic weight, and for how long it has been so
Subproblems       with each QP: its solution, from whose active set the next one starts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq_solver import LQSolver
from trajopt.solvers.qp.active_set import ActiveSet
from trajopt.solvers.qp.interior_point import InteriorPoint
from trajopt.solvers.qp.newton import ActiveSetNewton
from trajopt.solvers.qp.qp import QP, QPSolution, QPSolver, QPStatus
from trajopt.solvers.sqp.convexify import Convexified
from trajopt.solvers.sqp.sqp_iterate import Iterate
from trajopt.solvers.time_limits import start_of_solve

FALLING, LEAVE_OBJECTIVE, GIVE_UP = 0.95, 4, 16
"""Violations of contradictory linearizations that do not fall below this share of the least one: after so many iterations the
objective is left out, and after so many the solve ends."""
SCALE_GROWTH, LARGEST_SCALE = 8.0, 1e9
"""sigma grows by this within an iteration, up to this."""
SCALE_DECAY, SCALE_RISE = 0.25, 4.0
"""sigma falls by SCALE_DECAY after a full step that keeps its promise; it rises with the shortening of others, at most by
SCALE_RISE, where H is not exact."""


@dataclass
class Progress:
    """iteration: its number. best: iterate so far. objective_size: max(1, |f|) at the start. began: [s] on a monotonic clock."""

    iteration: int = 0
    best: Iterate | None = None
    objective_size: float = 1.0
    began: float = field(default_factory=start_of_solve)


@dataclass
class Damping:
    """scale: sigma. delta, share: of the last QP that needed them (:mod:`trajopt.solvers.sqp.convexify`). used: for the record."""

    scale: float = 1.0
    delta: float = 0.0
    share: float = 1.0
    used: float = 0.0

    def grow(self, first: float, attempt: int) -> None:
        """Sigma of a further attempt, counted from 1, at an iteration that began with ``first``."""
        self.scale = min(LARGEST_SCALE, first * SCALE_GROWTH**attempt)

    def learn(self, alpha: float, kept: bool, exact: bool) -> None:
        """Sigma after a step of length alpha. kept: whether it kept its promise. exact: whether H is the Lagrangian's."""
        if alpha == 1.0 and kept:
            self.scale = max(1.0, SCALE_DECAY * self.scale)
        elif not exact:  # a step cut short tells of second derivatives that H lacks
            self.scale = min(LARGEST_SCALE, self.scale * min(1.0 / alpha, SCALE_RISE))

    def note(self, convex: Convexified, floor: float) -> None:
        """Remember how a QP was made convex that had at least ``floor`` on the diagonal."""
        self.delta = convex.delta - floor or self.delta
        self.used, self.share = convex.delta + 1.0 - convex.share, convex.share


@dataclass
class Contradictions:
    """weight: of the violation in elastic QPs. toward: multipliers (m,) of the last step that left the objective out.

    count: contradictory QPs since the violation last fell below a share of the least one.
    """

    weight: float
    toward: Array
    least: float = np.inf
    count: int = 0

    def another(self, theta: float) -> None:
        """Count one at a point whose violation is theta."""
        if theta < FALLING * self.least:
            self.least, self.count = theta, 0
        self.count += 1

    @property
    def hopeless(self) -> bool:
        """True if the solve has to end."""
        return self.count > GIVE_UP

    @property
    def leaves_objective(self) -> bool:
        """True if the violation alone counts."""
        return self.count > LEAVE_OBJECTIVE


class Subproblems:
    """The QPs of one solve.

    solver: who is asked. fallback: who takes over. newton: who is asked first,
    with a guess of the active set. given: multipliers (y, z) that came with the guess. last: the last solution.
    full: whether the last step was taken as it was, so that its active set is known.
    """

    def __init__(self, solver: QPSolver, lq_solver: LQSolver | None = None) -> None:
        self.solver = solver
        self.fallback, self.newton = InteriorPoint(), ActiveSetNewton(lq_solver)
        self.given: tuple[Array, Array] | None = None
        self.last: QPSolution | None = None
        self.full = False

    @property
    def solvers(self) -> Sequence[QPSolver]:
        """Who may be asked, in this order."""
        return (self.solver,) if type(self.solver) is InteriorPoint else (self.solver, self.fallback)

    def near(self, qp: QP, y: Array, z: Array) -> QPSolution | None:
        """The solution from the active set of multipliers; None where it does not settle. An active-set solver finds it itself."""
        if isinstance(self.solver, ActiveSet):
            known = self.solver.solve(qp, QPSolution(np.zeros_like(qp.g), y, z, QPStatus.SOLVED))
            return known if known.status is QPStatus.SOLVED and np.isfinite(known.w).all() else None
        found = self.newton.solve(qp, y, z)
        return found if found is not None and np.isfinite(found.w).all() else None

    def solve(self, qp: QP, solver: QPSolver) -> QPSolution | None:
        """From the last active set, by one solver, or by interior points; None where the rows contradict each other."""
        last = self.last
        none = np.zeros_like(qp.l), np.zeros_like(qp.g)
        near = self.near(qp, *((last.y, last.z) if last is not None else self.given or none))
        if near is not None:
            return near
        found = solver.solve(qp, last)
        if found.status not in (QPStatus.SOLVED, QPStatus.INFEASIBLE):
            found = self.fallback.solve(qp)
        return found if found.status is QPStatus.SOLVED and np.isfinite(found.w).all() else None
