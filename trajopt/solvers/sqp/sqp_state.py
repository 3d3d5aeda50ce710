"""State of the SQP method between iterations.

Progress          iteration number and best iterate
Damping           multiple sigma of the Hessian, and convexification of the last QP
Contradictions    infeasible QPs: elastic weight, and number of consecutive infeasible QPs
Subproblems       QP solvers, and the last QP solution, whose active set starts the next QP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.casadi_qp import ActiveSet, InteriorPoint
from trajopt.solvers.qp.newton import active_set_newton
from trajopt.solvers.qp.qp import QP, QPSolution, QPSolver, QPStatus, largest
from trajopt.solvers.sqp.convexify import Convexified
from trajopt.solvers.sqp.sqp_iterate import Iterate

FALLING, LEAVE_OBJECTIVE, GIVE_UP = 0.95, 4, 16
"""Limits on infeasible QPs during which the violation does not fall below FALLING times its minimum: after more than
LEAVE_OBJECTIVE of them steps ignore the objective, after more than GIVE_UP the solve ends."""
STILL, STILL_STEPS = 1e-9, 3
"""After STILL_STEPS steps in a row that move the variables by at most STILL, relative to the largest one and at least 1, and that
do not reduce the violation by the factor FALLING, the solve ends, if the point is infeasible."""
SCALE_GROWTH, LARGEST_SCALE = 8.0, 1e9
"""Growth factor of sigma within an iteration, and its maximum."""
SCALE_DECAY, SCALE_RISE = 0.25, 4.0
"""sigma falls by the factor SCALE_DECAY after a good full step. After a shortened step it rises by 1 / alpha, at most by
SCALE_RISE, unless H is exact."""


@dataclass
class Damping:
    """Damping of steps by a multiple sigma of the Hessian (``scale``), and by the convexification of the last QP.

    delta, fraction: diagonal shift and blend theta of :mod:`trajopt.solvers.sqp.convexify`. used: number in records.
    """

    scale: float = 1.0
    delta: float = 0.0
    fraction: float = 1.0
    used: float = 0.0

    def grow(self, first: float, attempt: int) -> None:
        """Set the multiple sigma of the Hessian to ``first`` times SCALE_GROWTH^attempt, at most LARGEST_SCALE.

        first: sigma at the start of the iteration. attempt: from 1.
        """
        self.scale = min(LARGEST_SCALE, first * SCALE_GROWTH**attempt)

    def learn(self, alpha: float, decreased: bool, exact: bool) -> None:
        """Update the multiple sigma of the Hessian after a step of length alpha.

        It falls by the factor SCALE_DECAY, to at least 1, after a full step with sufficient decrease (``decreased``). Otherwise
        it rises by 1 / alpha, at most SCALE_RISE, up to LARGEST_SCALE, unless the Hessian is exact.
        """
        if alpha == 1.0 and decreased:
            self.scale = max(1.0, SCALE_DECAY * self.scale)
        elif not exact:  # H lacks the second derivatives that shortened the step
            self.scale = min(LARGEST_SCALE, self.scale * min(1.0 / alpha, SCALE_RISE))

    def store(self, convex: Convexified, floor: float) -> None:
        """Store the delta of a convexified QP above ``floor``, if there is any, and its theta; used becomes delta + 1 - theta.

        floor: the shift of the Hessian that was prescribed.
        """
        self.delta = convex.delta - floor or self.delta
        self.used, self.fraction = convex.delta + 1.0 - convex.fraction, convex.fraction


@dataclass
class Contradictions:
    """State of elastic mode, and counts of infeasible QPs and idle steps.

    weight: of the violation. toward: multipliers (m,) of the last step on the violation alone. smallest: minimum of the
    violation. count: number of infeasible QPs since a feasible one, or since the violation last fell below FALLING times its
    minimum. still: number of steps in a row that neither move the variables nor reduce the violation; solutions of QPs may
    violate their rows by the tolerance of the QP solver.
    """

    weight: float
    toward: Array
    smallest: float = np.inf
    count: int = 0
    still: int = 0

    def count_idle(self, at: Iterate, new: Iterate) -> None:
        """Count a step that neither moves the variables nor reduces the violation; any other step resets the count ``still``."""
        near = largest(new.w - at.w) <= STILL * max(1.0, largest(at.w))
        self.still = self.still + 1 if near and new.violation > FALLING * at.violation else 0

    def count_infeasible(self, theta: float) -> None:
        """Count an infeasible QP at a point with l1 violation theta; a theta below FALLING times its minimum restarts at 1."""
        if theta < FALLING * self.smallest:
            self.smallest, self.count = theta, 0
        self.count += 1

    @property
    def hopeless(self) -> bool:
        """True after more than GIVE_UP infeasible QPs without progress: the solve must end."""
        return self.count > GIVE_UP

    @property
    def leaves_objective(self) -> bool:
        """True after more than LEAVE_OBJECTIVE infeasible QPs without progress: steps must ignore the objective."""
        return self.count > LEAVE_OBJECTIVE


class Subproblems:
    """QP solvers and the last QP solution of one solve.

    newton: solver tried first, from a guess of the active set. solver: the solver of the options. fallback: used if it fails.
    multipliers_given: multipliers (y, z) of the guess. last: the last solution. full: True if the last step was a full step,
    with H unshifted, so that its active set is known.
    """

    def __init__(self, solver: QPSolver) -> None:
        self.solver = solver
        self.fallback = InteriorPoint()
        self.multipliers_given: tuple[Array, Array] | None = None
        self.last: QPSolution | None = None
        self.full = False

    @property
    def solvers(self) -> Sequence[QPSolver]:
        """Solvers in the order of trials: that of the options, then the fallback, unless both are interior-point methods."""
        return (self.solver,) if type(self.solver) is InteriorPoint else (self.solver, self.fallback)

    def near(self, qp: QP, y: Array, z: Array) -> QPSolution | None:
        """Solve a QP from the active set of multipliers (y, z); None if this fails or the solution is not finite.

        The solver of the options is used if it is an active-set method, else Newton's active-set method.
        """
        if isinstance(self.solver, ActiveSet):
            known = self.solver.solve(qp, QPSolution(np.zeros_like(qp.g), y, z, QPStatus.SOLVED))
            return known if known.status is QPStatus.SOLVED and np.isfinite(known.w).all() else None
        found = active_set_newton(qp, y, z)
        return found if found is not None and np.isfinite(found.w).all() else None

    def solve(self, qp: QP, solver: QPSolver) -> QPSolution | None:
        """Solve a QP from the last active set, else by ``solver``, else by the fallback; None if all fail.

        Before the first solution, the active set is that of the multipliers of the guess. The fallback is not used if ``solver``
        finds the QP infeasible. A solution that is not finite counts as a failure.
        """
        last = self.last
        none = np.zeros_like(qp.l), np.zeros_like(qp.g)
        near = self.near(qp, *((last.y, last.z) if last is not None else self.multipliers_given or none))
        if near is not None:
            return near
        found = solver.solve(qp, last)
        if found.status not in (QPStatus.SOLVED, QPStatus.INFEASIBLE):
            found = self.fallback.solve(qp)
        return found if found.status is QPStatus.SOLVED and np.isfinite(found.w).all() else None
