"""Real-time iteration: one full SQP step per sample, in two phases.

    prepare(w)     evaluates functions and derivatives and builds the convex QP at w, without the initial state
    feedback(x0)   solves the QP with x_0 = x0: the only work between measurement and control

(M. Diehl, H. G. Bock, J. Schlöder, A real-time iteration scheme for nonlinear optimization in optimal feedback control,
SIAM J. Control Optim. 43, 2005.)  The program fixes x_0 by equal bounds, so that one QP adapts the step to a new x0 to first order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.direct.direct_sqp import StagedProgram
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.interior_point import InteriorPoint
from trajopt.solvers.qp.newton import ActiveSetNewton
from trajopt.solvers.qp.qp import QPSolution, QPStatus, make_qp_solver
from trajopt.solvers.sqp.convexify import Convexified, convexified
from trajopt.solvers.sqp.sqp_iterate import Iterate, hessian_at, iterate_at, qp_about, semidefinite_at, settled, trial


class Feedback(NamedTuple):
    """New w (n,) with multipliers y (m,), z (n,), and the status of the QP; w is unchanged if the QP was not solved."""

    w: Array
    y: Array
    z: Array
    status: QPStatus


class RealTimeIteration:
    """Real-time iterations of an optimal control problem, whose initial state is measured at each sample.

    options: only hessian and qp_solver are used. Each step starts with the multipliers of the previous step.
    """

    def __init__(self, program: StagedProgram, options: SQPOptions | None = None) -> None:
        self.program, self.options = program, settled(options or SQPOptions(), program)
        self.qp_solver = make_qp_solver(self.options.qp_solver)
        self.fallback = InteriorPoint()
        self.y, self.z = np.zeros_like(program.g_lower), np.zeros_like(program.x_lower)
        self.last: QPSolution | None = None
        self.newton = ActiveSetNewton()
        self._prepared: tuple[Iterate, Convexified] | None = None

    def prepare(self, w: Array) -> None:
        """Evaluate the program at w (n,), and build and convexify the QP there, with the last multipliers.

        Stored for :meth:`feedback`. Raises ValueError if values there are not finite.
        """
        at = iterate_at(self.program, trial(self.program, w), self.y, self.z, self.options)
        if at is None or not np.isfinite(at.f + at.theta):
            raise ValueError("NaN or infinity along the trajectory passed to prepare; use another trajectory")
        qp, solvers = qp_about(at, hessian_at(at, self.options)), (self.qp_solver, self.fallback)
        other = semidefinite_at(at, self.options)
        self._prepared = at, convexified(qp, self.y, self.z, solvers, semidefinite=other)

    def feedback(self, x0: Array) -> Feedback:
        """Solve the prepared QP for the state x0 (nx,) of the problem; return w after the full step, unchanged without a solution.

        Raises RuntimeError before :meth:`prepare`, ValueError for a state of wrong size or with NaN or infinity.
        """
        if self._prepared is None:
            raise RuntimeError("call prepare(w) before feedback(x0)")
        at, convex = self._prepared
        lb, ub, first = convex.qp.lb.copy(), convex.qp.ub.copy(), self.program.ix[0]
        lb[first] = ub[first] = self._coordinates(x0) - at.w[first]
        qp = replace(convex.qp, lb=lb, ub=ub)
        found = self.newton.solve(qp, self.y, self.z) or convex.solver.solve(qp, self.last)
        if found.status is not QPStatus.SOLVED:
            return Feedback(at.w, self.y, self.z, found.status)
        self.last, self.y, self.z = found, found.y, found.z
        return Feedback(at.w + found.w, found.y, found.z, found.status)

    def _coordinates(self, x0: Array) -> Array:
        """Return the coordinates (ndx,) of a state in the program: the state itself, or its chart coordinates on a Lie group.

        Raises ValueError for a state of wrong size or with NaN or infinity.
        """
        x0, manifold = np.asarray(x0, dtype=float), self.program.original.manifold
        if x0.shape != (manifold.nx,) or not np.isfinite(x0).all():
            raise ValueError(f"x0 = {x0}; expected {manifold.nx} finite numbers, the state of the problem")
        return self.program.first_coordinates(x0)
