"""Real-time iteration of SQP, for problems with constraints: one full step of direct multiple shooting per response.

    prepare   functions, derivatives and the convex QP about the shifted plan, and feedback gains about that plan
    respond   solution of the QP with its first state fixed: the only work between measurement and control

(M. Diehl, H. G. Bock, J. Schlöder, A real-time iteration scheme for nonlinear optimization in optimal feedback control,
SIAM J. Control Optim. 43, 2005.)  The program fixes x_0 by equal bounds, so that one QP adapts the step to a new x0 to first order.

A full step may fail by far, as after the prediction of an obstacle has crossed the plan: the dynamics then have gaps of many rad/s,
or the linearized constraints contradict each other. If the QP has no solution, or the l1 merit rises by more than its magnitude
(:func:`_merit_explodes`), the solution is that of a complete solve by ``ipm`` from the state at rest
(:func:`~trajopt.replanning.real_time.restarted`); one that ends far from feasible has failed. After a failed complete solve the
next one is tried 2 steps later, then 4, then every MAX_PAUSE, until a step succeeds: while constraints contradict each other, most
of them would fail.

Multipliers are passed from one call to the next while the numbers of variables and constraints are constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import SolverCache, WarmStart
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.replanning.plan import LIMITS, fault_of
from trajopt.replanning.real_time import ROUNDING, RealTimePlanner, SolveGenerator, restarted, step_record
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers import termination
from trajopt.solvers.direct.direct_sqp import staged_program
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.options import IPMOptions, SQPOptions
from trajopt.solvers.qp.casadi_qp import InteriorPoint
from trajopt.solvers.qp.newton import active_set_newton
from trajopt.solvers.qp.qp import QPSolution, QPStatus, largest, make_qp_solver
from trajopt.solvers.qp.scipy_sparse import load_sparse
from trajopt.solvers.registry import chosen_options
from trajopt.solvers.sqp.convexify import Convexified, convexified
from trajopt.solvers.sqp.sqp_iterate import (
    Iterate,
    Trial,
    differentiated,
    hessian_at,
    qp_about,
    semidefinite_at,
    settled,
    trial,
)
from trajopt.stage.evaluators import cached_evaluator

RESTART = IPMOptions(max_iterations=50)
"""Options of a solve from the state at rest."""
EXECUTABLE = 1e-3
"""Largest defect or violation (SI units; numbers of the scaled problem if the solve was scaled, see trajopt/solvers/scaling.py) of
an unfinished complete solve that is executed; the next steps correct it."""
MAX_PAUSE = 8
"""Maximum number of steps from a failed complete solve to the next one."""


class RealTimeSQP(RealTimePlanner):
    """:class:`~trajopt.replanning.planning.Planner` for problems with constraints: one full step of SQP per plan.

    A plan is a step of direct multiple shooting from the measured state, the solution of one QP. If the QP has none, or the
    step fails by far, the plan is that of a complete solve by ``ipm``. options: SQPOptions, or a mapping, of which hold,
    hessian and qp_solver are used. Default: the Gauss-Newton Hessian. Raises TypeError for other options, UnknownName and
    ValueError for invalid entries of a mapping.
    """

    def __init__(self, options: SQPOptions | Mapping[str, Any] | None = None) -> None:
        if options is None or isinstance(options, Mapping):
            options = {"hessian": "gauss_newton", **(options or {})}
        self.options: SQPOptions = chosen_options("sqp", options)[1]
        load_sparse()
        self._last: QPSolution | None = None
        self._restarts, self._evaluators = SolverCache(), SolverCache()
        self._failed: Solution | None = None  # last complete solve, if it failed
        self._pause = self._paused = 0  # steps from it to the next one, and since it

    def solve(self, ocp: OCP, warm: WarmStart) -> SolveGenerator:
        """One SQP step about the guess of a warm start, as a generator that receives the state x0 after the preparation of the QP.

        The solution is the full step, with tracking gains about the guess and k = 0, or that of a complete solve, see the module
        docstring. Raises ValueError if the guess gives NaN or infinity, and for a state of wrong size or with NaN or infinity.
        """
        program, last = staged_program(ocp, warm.guess, self.options), self._last
        w, y, z = program.variables(*warm.guess), np.zeros_like(program.g_lower), np.zeros_like(program.x_lower)
        if last is not None and last.y.shape == y.shape and last.z.shape == z.shape:
            y, z = last.y, last.z
        else:
            last = None
        (at, convex), gains = self._convex_qp(program, w, y, z), self._gains(ocp, warm.guess)

        x0 = yield

        lb, ub, first = convex.qp.lb.copy(), convex.qp.ub.copy(), program.ix[0]
        lb[first] = ub[first] = _coordinates(program, x0) - w[first]
        qp = replace(convex.qp, lb=lb, ub=ub)
        found = active_set_newton(qp, y, z) or convex.solver.solve(qp, last)
        new = trial(program, w + found.w) if found.status is QPStatus.SOLVED else None
        if new is None or _merit_explodes(at, new, float(np.abs(lb[first]).sum()), found, first):
            self._last = None
            return self._restarted(ocp, x0)
        self._failed, self._pause = None, 0
        self._last, (xs, us), cost, g = found, program.trajectory(new.w), new.f, new.g
        us, violation = us[: ocp.horizon], float(np.maximum(program.g_lower - g, g - program.g_upper).max(initial=0.0))
        size = float(np.abs(found.w).max())
        record = step_record(cost, size, violation, self.options.hessian, violation=violation)
        status, k = termination.real_time_iteration(), np.zeros_like(us)
        multipliers = program.by_name(found.y)
        return Solution(xs, us, gains, k, status, cost, 1, (record,), ocp.times_of(xs), multipliers=multipliers)

    def _gains(self, ocp: OCP, guess: Guess) -> Array:
        """Tracking gains (N, nu, ndx) about a guess, with the evaluator of the last step if the structure is the same."""
        return tracking_gains(ocp, *guess, evaluator=cached_evaluator(self._evaluators, ocp))

    def _restarted(self, ocp: OCP, x0: Array) -> Solution:
        """Complete solve from the state x0 (nx,); in the pause after a failed one, that solution, with a new message."""
        self._paused += 1
        if self._failed is not None and self._paused < self._pause:
            status = self._failed.status
            message = f"The step failed, as the last complete solve: {status.message}"
            return replace(self._failed, status=replace(status, message=message))
        found = _feasible(restarted(ocp, x0, "ipm", RESTART, self._restarts))
        self._failed = None if fault_of(found) is None else found
        self._pause, self._paused = min(max(2 * self._pause, 2), MAX_PAUSE) if self._failed else 0, 0
        return found

    def _convex_qp(self, program: Transcription, w: Array, y: Array, z: Array) -> tuple[Iterate, Convexified]:
        """Return the iterate w (n,) with the multipliers y (m,) and z (n,), and the convexified QP about it.

        Raises ValueError if values there are not finite.
        """
        options = settled(self.options, program)
        at = differentiated(program, trial(program, w), y, z)
        if at is None or not np.isfinite(at.f + at.theta):
            raise ValueError("NaN or infinity along the trajectory passed to prepare; use another trajectory")
        solvers = make_qp_solver(options.qp_solver), InteriorPoint()
        other = semidefinite_at(at, options)
        return at, convexified(qp_about(at, hessian_at(at, options)), y, z, solvers, semidefinite=other)


def _feasible(found: Solution) -> Solution:
    """The solution; one that a limit ended with defects or violations above EXECUTABLE gets the status "not_feasible"."""
    if found.status.code not in LIMITS or not found.history:
        return found
    last = found.history[-1]
    error = max(last.defect, last.constraint_violation)
    if error <= EXECUTABLE:
        return found
    message = f"Not feasible: defects or violations of {error:.1e}. {found.status.message}"
    return replace(found, status=replace(found.status, code=StatusCode.NOT_FEASIBLE, message=message))


def _merit_explodes(at: Iterate, new: Trial, moved: float, found: QPSolution, first: Array) -> bool:
    """True if the merit, cost + penalty theta, after a step exceeds that before it by more than its magnitude.

    moved: l1 norm of the change of the first state, whose variables are ``first``; it counts as a violation before the step.
    penalty: the largest multiplier of the QP, with which its step does not raise the merit to first order.
    """
    penalty = max(largest(found.y), largest(found.z[first]))
    before = at.f + penalty * (at.theta + moved)
    return not new.f + penalty * new.theta <= before + abs(before) + ROUNDING


def _coordinates(program: Transcription, x0: Array) -> Array:
    """Return the coordinates (ndx,) of a state in the program: the state itself, or its chart coordinates on a Lie group.

    Raises ValueError for a state of wrong size or with NaN or infinity.
    """
    x0, manifold = np.asarray(x0, dtype=float), program.original.manifold
    if x0.shape != (manifold.nx,) or not np.isfinite(x0).all():
        raise ValueError(f"x0 = {x0}; expected {manifold.nx} finite numbers, the state of the problem")
    return program.first_coordinates(x0)
