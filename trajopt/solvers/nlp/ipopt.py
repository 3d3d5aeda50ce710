"""Sparse nonlinear programs by IPOPT, through cyipopt.

A. Waechter, L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for large-scale nonlinear
programming, Math. Program. 106, 2006.  This module converts the iterations and return codes of IPOPT to records and statuses.
Each record describes an iterate and the step from it.

cyipopt requests objective, constraints, gradient and Jacobian one by one, without marking new points. Values and first derivatives
are evaluated once for consecutive requests at a point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.constraints import INFINITE
from trajopt.results.records import Callback, Journal
from trajopt.results.status import SOLVED, Status
from trajopt.solvers import termination
from trajopt.solvers.nlp import nlp_diagnosis
from trajopt.solvers.nlp.ipopt_library import ipopt_library
from trajopt.solvers.nlp.nlp import NLPSolution, Pattern, Patterned, trajectory_at
from trajopt.solvers.nlp.scaled_kkt import scaled_kkt
from trajopt.solvers.options import DMSOptions
from trajopt.solvers.qp.qp import Jacobian, entries_of, largest, violation
from trajopt.solvers.rules.barrier import NEAR, NEAR_PUSH
from trajopt.solvers.time_limits import remaining, start_of_solve

_SUCCESS, _ACCEPTABLE, _INFEASIBLE, _TINY_STEP, _DIVERGING, _FEASIBLE_POINT = 0, 1, 2, 3, 4, 6
_MAX_ITERATIONS, _RESTORATION_FAILED, _CPU_TIME, _WALL_TIME = -1, -2, -4, -5
_TOO_FEW_FREEDOMS, _INVALID_NUMBER = -10, -13
"""IPOPT's ApplicationReturnStatus (IpReturnCodes_inc.h)."""
_MISSING = (
    "solver 'dms' needs IPOPT through cyipopt, which is not installed and has no wheel; "
    "`python tools/install_cyipopt.py` (part of `make venv`) builds it against the IPOPT of the casadi wheel. "
    "solver = 'sqp' and 'slq' need none"
)


class MissingIpopt(ImportError):
    """cyipopt is not installed; the message explains the installation."""


class Multipliers(NamedTuple):
    """Warm start: y (m,) of the constraints, z (n,) of the bounds, with the signs of :mod:`trajopt.solvers.nlp.nlp`."""

    y: Array
    z: Array


def solve_ipopt(
    nlp: Patterned,
    w0: Array,
    options: DMSOptions | None = None,
    callback: Callback | None = None,
    *,
    warm: Multipliers | None = None,
    defects: int = 0,
) -> NLPSolution:
    """Find a local minimum from w0 (n,), clipped to its bounds, by IPOPT; return a solution with status and history.

    After a success it is the final iterate, else the best one. Contradictory bounds give the status "infeasible" without a solve.
    warm: multipliers of a warm start. defects: number of leading rows that are defects of a transcription. Raises MissingIpopt
    without cyipopt, ValueError for an option or value that IPOPT does not accept.
    """
    options = options or DMSOptions()
    run = _Run(nlp, np.asarray(w0, dtype=float), options, callback, defects)
    crossed = nlp_diagnosis.crossed_bounds(nlp)
    with np.errstate(all="ignore"):  # the status reports non-finite numbers
        return run.solve(warm) if crossed is None else run.ended(termination.infeasible(crossed))


def require_ipopt() -> Any:
    """Return the module cyipopt. Raises MissingIpopt, whose message explains the installation."""
    try:
        return ipopt_library()
    except ImportError as error:
        raise MissingIpopt(_MISSING) from error


class Iterate(NamedTuple):
    """Variables w (n,), constraints g (m,), multipliers y (m,) of constraints and z (n,) of bounds.

    Signs are those of :mod:`trajopt.solvers.nlp.nlp`.
    """

    w: Array
    g: Array
    y: Array
    z: Array

    @classmethod
    def of(cls, w: Array, found: Mapping[str, Any]) -> Iterate:
        """Return w with the constraints and multipliers in IPOPT's results; z is the upper minus the lower bound multiplier."""
        return cls(w, found["g"], found["mult_g"], found["mult_x_U"] - found["mult_x_L"])


class _Point(NamedTuple):
    """Iterate with its errors.

    violation: largest violation of rows and bounds. defect: largest violation of the leading rows that are defects. gradient:
    dual infeasibility of IPOPT. kkt: scaled KKT error (:mod:`trajopt.solvers.nlp.scaled_kkt`).
    """

    iterate: Iterate
    objective: float
    violation: float
    defect: float
    gradient: float
    kkt: float


class _Run:
    """State of one solve: callbacks of IPOPT, journal, best iterate.

    The callbacks have the names that cyipopt expects. Without ``hessian``, IPOPT approximates the Hessian.
    """

    hessian: Callable[[Array, Array, float], Array]
    hessianstructure: Callable[[], Pattern]

    def __init__(self, nlp: Patterned, w0: Array, options: DMSOptions, callback: Callback | None, defects: int) -> None:
        self.nlp, self.options, self.defects = nlp, options, defects
        self.journal = Journal(callback)
        self.w0 = np.clip(w0, nlp.x_lower, np.maximum(nlp.x_lower, nlp.x_upper))
        self.iteration = 0
        self.point: _Point | None = None
        self.best: _Point | None = None
        self._known: dict[str, tuple[bytes, Any]] = {}
        self._raised: BaseException | None = None

    # -- the solve ------------------------------------------------------------------------------------------------------
    def solve(self, warm: Multipliers | None) -> NLPSolution:
        """Run IPOPT until it ends or Ctrl-C interrupts it; return the final iterate after a success, else the best one."""
        y, z = warm or Multipliers(np.zeros(len(self.nlp.g_lower)), np.zeros(len(self.w0)))
        require_ipopt()
        try:
            self._problem = self._ipopt_problem(warm is not None)
            with self.journal.timed("backward"):  # excludes the callbacks
                w, info = self._problem.solve(self.w0, lagrange=y, zl=np.maximum(-z, 0.0), zu=np.maximum(z, 0.0))
            if self._raised is not None:
                raise self._raised
        except KeyboardInterrupt:
            return self.ended(termination.interrupted(self.iteration))
        code = info["status"]
        if self.point is not None and code in (_SUCCESS, _ACCEPTABLE, _FEASIBLE_POINT):
            self.best = self._measured(Iterate.of(w, info), info["obj_val"], self.point.gradient)
        self._close_record(0.0, 0.0, 0.0)
        return self.ended(self._status(code))

    def _ipopt_problem(self, warm: bool) -> Any:
        """Create the problem of IPOPT (cyipopt.Problem) with bounds, sparsity patterns and options; warm: start from multipliers.

        Raises ValueError for an option or value that IPOPT does not accept.
        """
        nlp = self.nlp
        self._jacobian, (rows, columns) = nlp.patterns()
        if self.options.hessian != "limited_memory":
            self._lower = np.flatnonzero(rows >= columns)
            places = rows[self._lower], columns[self._lower]
            self.hessian, self.hessianstructure = self._lower_triangle, lambda: places
        sides = {"lb": nlp.x_lower, "ub": nlp.x_upper, "cl": nlp.g_lower, "cu": nlp.g_upper}
        bounds = {key: np.clip(side, -INFINITE, INFINITE) for key, side in sides.items()}
        problem = ipopt_library().Problem(n=len(nlp.x_lower), m=len(nlp.g_lower), problem_obj=self, **bounds)
        for key, value in _ipopt_options(self.options, warm).items():
            try:
                problem.add_option(key, value)
            except TypeError as error:
                raise ValueError(f"ipopt: IPOPT does not accept {key} = {value!r}") from error
        return problem

    def ended(self, status: Status) -> NLPSolution:
        """Return the best iterate, or the guess if there is none, as solution with the given status and the history."""
        if self.best is None:
            objective, g = self.nlp.evaluate(self.w0)
            iterate = Iterate(self.w0, g, np.zeros(len(g)), np.zeros(len(self.w0)))
        else:
            objective, iterate = self.best.objective, self.best.iterate
        w, g, y, z = iterate
        return NLPSolution(self.nlp, w, objective, g, y, z, status, self.iteration, self.journal.history())

    # -- IPOPT's callbacks ----------------------------------------------------------------------------------------------
    def objective(self, w: Array) -> float:
        """Return f."""
        return float(self._evaluated(lambda: self._values_at(w)[0], ()))

    def constraints(self, w: Array) -> Array:
        """Return g (m,)."""
        return self._evaluated(lambda: self._values_at(w)[1], self.nlp.g_lower.shape)

    def gradient(self, w: Array) -> Array:
        """Return the gradient of f (n,)."""
        return self._evaluated(lambda: self._derivatives_at(w)[0], w.shape)

    def jacobian(self, w: Array) -> Array:
        """Return the entries of the Jacobian of g."""
        return self._evaluated(lambda: entries_of(self._derivatives_at(w)[1]), self._jacobian[0].shape)

    def jacobianstructure(self) -> Pattern:
        """Return rows and columns of the entries of the Jacobian of g."""
        return self._jacobian

    def _lower_triangle(self, w: Array, multipliers: Array, sigma: float) -> Array:
        """Return the entries of the lower triangle of the Hessian of sigma f + multipliers' g; the time counts as derivatives."""
        with self.journal.timed("derivatives"):
            return self._evaluated(
                lambda: entries_of(self.nlp.hessian(w, sigma, multipliers)).take(self._lower), self._lower.shape
            )

    def intermediate(
        self, mode, iteration, objective, primal, dual, mu, step, regularization, alpha_dual, alpha, trials
    ) -> bool:
        """Close the record of the last iterate with the step from it; measure the new one and keep it if it is the best so far.

        IPOPT calls this after each iteration; cyipopt inspects the names. Returns False, which ends the solve, after an exception.
        """
        if self._raised is not None:
            return False
        with self.journal.timed("backward"):  # counts the time in IPOPT until here
            if iteration > 0:
                self._close_record(regularization, alpha * step, alpha)
            self.iteration = iteration
            found = self._problem.get_current_iterate()
            if found is not None:
                self.point = self._measured(Iterate.of(found["x"], found), objective, dual)
                if self.best is None or self._merit(self.point) <= self._merit(self.best):
                    self.best = self.point
        return True

    def _evaluated(self, evaluate: Callable[[], Any], shape: tuple[int, ...]) -> Any:
        """Return the numbers that a function returns, or NaN of this shape after an exception, which end the solve.

        The exception is stored: cyipopt would drop it, or let IPOPT continue with numbers that were never written.
        """
        if self._raised is None:
            try:
                return evaluate()
            except BaseException as error:
                self._raised = error
        return np.full(shape, np.nan)

    def _values_at(self, w: Array) -> tuple[float, Array]:
        """Return f and g (m,) at w; the time counts as rollout."""
        return self._cached("rollout", self.nlp.evaluate, w)

    def _derivatives_at(self, w: Array) -> tuple[Array, Jacobian]:
        """Return the gradient of f (n,) and the Jacobian of g at w; the time counts as derivatives."""
        return self._cached("derivatives", self.nlp.differentiate, w)

    def _cached(self, phase: str, evaluate: Callable[[Array], Any], w: Array) -> Any:
        """Return evaluate(w), cached for the last w of a phase of the journal, which times it."""
        point = w.tobytes()
        if phase not in self._known or self._known[phase][0] != point:
            with self.journal.timed(phase):
                self._known[phase] = point, evaluate(w)
        return self._known[phase][1]

    # -- records --------------------------------------------------------------------------------------------------------
    def _measured(self, iterate: Iterate, objective: float, dual: float) -> _Point:
        """Return an iterate with its violation, defect and scaled KKT error; dual: dual infeasibility as IPOPT reports it."""
        nlp, (w, g, _, _) = self.nlp, iterate
        rows = violation(g, nlp.g_lower, nlp.g_upper)
        worst = max(largest(rows), largest(violation(w, nlp.x_lower, nlp.x_upper)))
        derivatives = self._derivatives_at(w)
        with self.journal.timed("backward"):
            kkt = scaled_kkt(nlp, w, objective, g, *derivatives, *iterate[2:])
        return _Point(iterate, objective, worst, largest(rows[: self.defects]), dual, kkt)

    def _merit(self, p: _Point) -> tuple[float, float]:
        """Key by which iterates compare: violation, where all below the tolerance are equal, then objective; lower is better."""
        return max(p.violation, self.options.constraint_tolerance), p.objective

    def _close_record(self, regularization: float, step: float, alpha: float) -> None:
        """Append the record of the current iterate and the step from it (regularization, largest entry, length).

        Nothing before the first iterate.
        """
        p, o = self.point, self.options
        if p is None:
            return
        self.journal.add(
            trajectory_at(self.nlp, p.iterate.w),
            iteration=len(self.journal.records),
            cost=p.objective,
            merit=p.objective,
            stop=max(p.gradient / o.gradient_tolerance, p.violation / o.constraint_tolerance),
            gradient=p.gradient,
            regularization=regularization,
            step_norm=step,
            defect=p.defect,
            constraint_violation=p.violation,
            step_length=alpha,
            hessian=o.hessian,
            kkt=p.kkt,
        )

    # -- the end --------------------------------------------------------------------------------------------------------
    def _status(self, code: int) -> Status:
        """Return the status for a return code of IPOPT, with the errors of the best iterate."""
        p, o, n = self.best, self.options, self.iteration
        if p is None and code == _TOO_FEW_FREEDOMS:
            return termination.overdetermined(self._measured_guess())
        if p is None and self.point is None and code != _INVALID_NUMBER:
            return termination.not_run("IPOPT", code)
        if p is None or code == _INVALID_NUMBER:
            return termination.non_finite(self._non_finite())
        worst = nlp_diagnosis.worst_constraint(self.nlp, p.iterate.w, p.iterate.g)
        violated = p.violation > o.constraint_tolerance
        errors = termination.Errors(p.kkt, p.gradient, violation=p.violation)
        measured = termination.Measured(n, errors, o.tolerances, worst)
        if code in (_SUCCESS, _FEASIBLE_POINT):
            return termination.converged(measured)
        if code == _DIVERGING:
            last = self.point or p
            size = max(1.0, float(np.abs(last.iterate.w).max(initial=0.0)))
            feasible = last.violation <= termination.NEARLY_FEASIBLE * size
            return termination.unbounded(n, last.objective) if feasible else termination.diverged(measured)
        if code == _INFEASIBLE or (code == _TOO_FEW_FREEDOMS and violated):
            return termination.violation_remains(measured, stationary=code == _INFEASIBLE)
        if code == _MAX_ITERATIONS:
            return termination.max_iterations(int(o.ipopt.get("max_iter", o.max_iterations)), measured)
        if code in (_CPU_TIME, _WALL_TIME):
            times = [float(o.ipopt[key]) for key in ("max_wall_time", "max_cpu_time") if key in o.ipopt]
            return termination.time_limit(times[0] if times else o.time_limit, measured)
        if code in (_ACCEPTABLE, _TINY_STEP) or (p.kkt <= SOLVED and not violated):
            return termination.precision_limit(measured)
        if code == _TOO_FEW_FREEDOMS:
            return termination.overdetermined(measured)
        failed = code == _RESTORATION_FAILED
        failure = termination.NO_RESTORATION if failed else termination.no_direction("IPOPT", code)
        return termination.line_search_failed(failure, measured)

    def _non_finite(self) -> termination.NonFinite:
        """Return the first non-finite number at the last point whose derivatives IPOPT requested, else at the guess."""
        point, derivatives = self._known.get("derivatives", (self.w0.tobytes(), None))
        w = np.frombuffer(point)
        entry = "a derivative"
        if derivatives is not None and not (finite := np.isfinite(entries_of(derivatives[1]))).all():
            entry = f"a derivative of {self.nlp.g_names[int(self._jacobian[0][int(np.argmin(finite))])]}"
        return nlp_diagnosis.non_finite_number(self.nlp, w, *self.nlp.evaluate(w), entry)

    def _measured_guess(self) -> termination.Measured:
        """Return violation and worst constraint of the guess, for a status before the first iteration."""
        worst = nlp_diagnosis.worst_constraint(self.nlp, self.w0, self.nlp.evaluate(self.w0)[1])
        errors = termination.Errors(violation=0.0 if worst is None else worst.violation)
        return termination.Measured(0, errors, self.options.tolerances, worst)


def _ipopt_options(o: DMSOptions, warm: bool) -> Mapping[str, Any]:
    """Return the options by their names in IPOPT, with the remaining time as its time limit; ``o.ipopt`` overrides the others.

    warm: True for a warm start. A small initial barrier parameter reduces the push of the start off its bounds.
    """
    approximation = "limited-memory" if o.hessian == "limited_memory" else "exact"
    options: dict[str, Any] = {
        "print_level": 0,
        "sb": "yes",
        "hessian_approximation": approximation,
        "tol": float(o.gradient_tolerance),
        "constr_viol_tol": float(o.constraint_tolerance),
        "max_iter": o.max_iterations,
        "mu_init": float(o.barrier),
        "mu_strategy": o.barrier_strategy,
        "bound_relax_factor": 0.0,  # exact bounds
        "check_derivatives_for_naninf": "yes",
    }
    limit = remaining(o.time_limit, start_of_solve())
    if limit is not None:
        options["max_wall_time"] = float(limit)
    if o.barrier < NEAR:
        options |= dict.fromkeys(_PUSHED, NEAR_PUSH) | {"bound_mult_init_method": "mu-based"}
    if warm:
        options |= {"warm_start_init_point": "yes", "warm_start_mult_bound_push": NEAR_PUSH}
        options |= {f"warm_start_{key}": NEAR_PUSH for key in _PUSHED}
    if o.ipopt.get("linear_solver", "mumps") == "mumps":
        options |= MUMPS
    return options | dict(o.ipopt)


MUMPS = {"mumps_permuting_scaling": 0, "mumps_scaling": 0}
"""Options of MUMPS: no permutation and no scaling, because the matrices of shooting problems are small and well scaled."""
_PUSHED = ("bound_push", "bound_frac", "slack_bound_push", "slack_bound_frac")
"""Options for the distance of the initial point from its bounds.

Near a solution without given multipliers, the barrier parameter determines the multipliers of the bounds, and IPOPT estimates those
of the constraints by least squares. If the problem has changed since the plan, the estimate takes fewer iterations than the
multipliers of the plan."""
