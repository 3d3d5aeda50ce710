"""Real-time iteration of SQP, for problems with constraints: one full step of direct multiple shooting per response.

    prepare   functions, derivatives and the convex QP about the shifted plan, and feedback gains about that plan
    respond   solution of the QP with its first state fixed: the only work between measurement and control

(M. Diehl, H. G. Bock, J. Schlöder, A real-time iteration scheme for nonlinear optimization in optimal feedback control,
SIAM J. Control Optim. 43, 2005.)  The program fixes x_0 by equal bounds, so that one QP adapts the step to a new x0 to first order.

Multipliers are passed from one call to the next while the numbers of variables and constraints are constant.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.replanning.real_time import RealTimePlanner, SolveGenerator, step_record
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.direct.direct_sqp import staged_program
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.casadi_qp import InteriorPoint
from trajopt.solvers.qp.newton import active_set_newton
from trajopt.solvers.qp.qp import QPSolution, QPStatus, make_qp_solver
from trajopt.solvers.sqp.convexify import Convexified, convexified
from trajopt.solvers.sqp.sqp_iterate import hessian_at, iterate_at, qp_about, semidefinite_at, settled, trial


class RealTimeSQP(RealTimePlanner):
    """:class:`~trajopt.replanning.planning.Planner` with one SQP step per response; see the module docstring.

    options: hold, hessian and qp_solver are used; tolerances only for messages. Default: the Gauss-Newton Hessian.
    """

    def __init__(self, options: SQPOptions | None = None) -> None:
        self.options = options or SQPOptions(hessian="gauss_newton")
        self._last: QPSolution | None = None

    def solve(self, ocp: OCP, warm: WarmStart) -> SolveGenerator:
        """One SQP step about the guess of a warm start, as a generator that receives the state x0 after the preparation of the QP.

        The solution is the full step, or the guess if the QP was not solved, with tracking gains about the guess and k = 0. Raises
        ValueError if the guess gives NaN or infinity, and for a state of wrong size or with NaN or infinity.
        """
        program, last = staged_program(ocp, warm.guess, self.options), self._last
        w, y, z = program.variables(*warm.guess), np.zeros_like(program.g_lower), np.zeros_like(program.x_lower)
        if last is not None and last.y.shape == y.shape and last.z.shape == z.shape:
            y, z = last.y, last.z
        else:
            last = None
        convex, gains = self._convex_qp(program, w, y, z), tracking_gains(ocp, *warm.guess)

        x0 = yield

        lb, ub, first = convex.qp.lb.copy(), convex.qp.ub.copy(), program.ix[0]
        lb[first] = ub[first] = _coordinates(program, x0) - w[first]
        qp = replace(convex.qp, lb=lb, ub=ub)
        found = active_set_newton(qp, y, z) or convex.solver.solve(qp, last)
        step = np.zeros_like(w)
        if found.status is QPStatus.SOLVED:
            self._last, step, y = found, found.w, found.y
        xs, us = program.trajectory(w + step)
        us, (cost, g) = us[: ocp.horizon], program.evaluate(w + step)
        violation = float(np.maximum(program.g_lower - g, g - program.g_upper).max(initial=0.0))
        size = float(np.abs(step).max())
        record = step_record(cost, size, violation, self.options.hessian, violation=violation)
        status, k = _status(found.status, violation, self.options), np.zeros_like(us)
        multipliers = program.by_name(y)
        return Solution(xs, us, gains, k, status, cost, 1, (record,), ocp.times_of(xs), multipliers=multipliers)

    def _convex_qp(self, program: Transcription, w: Array, y: Array, z: Array) -> Convexified:
        """Return the convexified QP about w (n,) with the multipliers y (m,) and z (n,).

        Raises ValueError if values there are not finite.
        """
        options = settled(self.options, program)
        at = iterate_at(program, trial(program, w), y, z, options)
        if at is None or not np.isfinite(at.f + at.theta):
            raise ValueError("NaN or infinity along the trajectory passed to prepare; use another trajectory")
        solvers = make_qp_solver(options.qp_solver), InteriorPoint()
        other = semidefinite_at(at, options)
        return convexified(qp_about(at, hessian_at(at, options)), y, z, solvers, semidefinite=other)


def _coordinates(program: Transcription, x0: Array) -> Array:
    """Return the coordinates (ndx,) of a state in the program: the state itself, or its chart coordinates on a Lie group.

    Raises ValueError for a state of wrong size or with NaN or infinity.
    """
    x0, manifold = np.asarray(x0, dtype=float), program.original.manifold
    if x0.shape != (manifold.nx,) or not np.isfinite(x0).all():
        raise ValueError(f"x0 = {x0}; expected {manifold.nx} finite numbers, the state of the problem")
    return program.first_coordinates(x0)


def _status(status: QPStatus, violation: float, options: SQPOptions) -> Status:
    """Status of an SQP step from that of its QP: completed, infeasible, or not solved."""
    if status is QPStatus.SOLVED:
        return termination.real_time_iteration()
    if status is QPStatus.INFEASIBLE:
        return termination.infeasible_qp()
    measured = termination.Measured(1, termination.Errors(violation=violation), options.tolerances)
    return termination.line_search_failed(termination.UNSOLVED_QP, measured)
