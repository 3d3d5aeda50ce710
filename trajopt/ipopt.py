"""Sparse nonlinear programs by IPOPT, through cyipopt.

A. Waechter, L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for large-scale nonlinear
programming, Math. Program. 106, 2006.  What IPOPT tells of its iterations and of its end becomes the records and statuses of
this package.  Each record is of the iterate at its start and of the step taken from there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt import nlp_verdicts
from trajopt.nlp import NLP, NLPSolution
from trajopt.options import DMSOptions
from trajopt.records import Callback, Journal
from trajopt.status import Status, StatusCode

INFINITY = 1e19
"""IPOPT's nlp_upper_bound_inf: bounds beyond it are none."""
_SUCCESS, _ACCEPTABLE, _INFEASIBLE, _TINY_STEP, _DIVERGING, _FEASIBLE_POINT = 0, 1, 2, 3, 4, 6
_MAX_ITERATIONS, _RESTORATION_FAILED, _STEP_FAILED, _CPU_TIME, _WALL_TIME = -1, -2, -3, -4, -5
_TOO_FEW_FREEDOMS, _INVALID_NUMBER = -10, -13
"""IPOPT's ApplicationReturnStatus (IpReturnCodes_inc.h)."""
_MISSING = (
    "solver 'dms' needs IPOPT through cyipopt, which is not installed. It has no wheel; "
    "`python tools/install_cyipopt.py` (part of `make venv`) builds it against the IPOPT of the casadi wheel. "
    "solver = 'sqp' and 'slq' need none"
)


class MissingIpopt(ImportError):
    """cyipopt is not installed; the message says how to get it."""


class Multipliers(NamedTuple):
    """A warm start: y (m,) of the constraints, z (n,) of the bounds, with the signs of :mod:`trajopt.nlp`."""

    y: Array
    z: Array


def solve_ipopt(
    nlp: NLP,
    w0: Array,
    options: DMSOptions | None = None,
    callback: Callback | None = None,
    *,
    warm: Multipliers | None = None,
    gaps: int = 0,
) -> NLPSolution:
    """A local minimum near w0 (n,); warm: multipliers to start from; gaps: how many of the first rows are gaps of a transcription.

    Raises MissingIpopt without cyipopt, ValueError for an option that IPOPT does not know.
    """
    options = options or DMSOptions()
    run = _Run(nlp, np.asarray(w0, dtype=float), options, callback, gaps)
    verdict = nlp_verdicts.contradiction(nlp)
    with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
        return run.ended(verdict) if verdict is not None else run.solve(warm)


def require_ipopt() -> Any:
    """The module cyipopt. Raises MissingIpopt, which says how to get it."""
    try:
        import cyipopt
    except ImportError as error:
        raise MissingIpopt(_MISSING) from error
    return cyipopt


class _Point(NamedTuple):
    """An iterate: w, g, objective, largest violation of all rows and of the gaps alone, dual infeasibility, multipliers."""

    w: Array
    g: Array
    objective: float
    violation: float
    gap: float
    gradient: float
    y: Array
    z: Array


class _Run:
    """One solve: IPOPT's callbacks, the journal, the best iterate."""

    def __init__(self, nlp: NLP, w0: Array, options: DMSOptions, callback: Callback | None, gaps: int) -> None:
        self.nlp, self.options, self.gaps = nlp, options, gaps
        self.journal = Journal(callback)
        self.w0 = np.clip(w0, nlp.x_lower, np.maximum(nlp.x_lower, nlp.x_upper))
        self.began = time.perf_counter()
        self.iteration = 0
        self.point: _Point | None = None
        self.best: _Point | None = None
        self._last: tuple[bytes, Any, Any] = (b"", None, None)
        self._outside: Any = None

    # -- the solve ------------------------------------------------------------------------------------------------------
    def solve(self, warm: Multipliers | None) -> NLPSolution:
        """Run IPOPT to its end, or to that of the user's patience."""
        try:
            problem = self._problem(warm)
            self._leave()
            w, info = problem.solve(self.w0, **_start(warm))
        except KeyboardInterrupt:
            message = f"Interrupted in iteration {self.iteration}; this is the best iterate so far."
            return self.ended(Status(StatusCode.INTERRUPTED, message))
        finally:
            self._enter()
        if self.point is not None and info["status"] in (_SUCCESS, _ACCEPTABLE, _FEASIBLE_POINT):
            z = info["mult_x_U"] - info["mult_x_L"]
            self.best = self._measured(w, info["g"], info["obj_val"], self.point.gradient, info["mult_g"], z)
        self._close_record(0.0, 0.0, 0.0)
        return self.ended(self._verdict(info["status"], info["status_msg"]))

    def _problem(self, warm: Multipliers | None) -> Any:
        cyipopt, nlp = require_ipopt(), self.nlp
        bounds = {"lb": nlp.x_lower, "ub": nlp.x_upper, "cl": nlp.g_lower, "cu": nlp.g_upper}
        finite = {key: np.clip(value, -INFINITY, INFINITY) for key, value in bounds.items()}
        callbacks = self if self.options.hessian != "limited_memory" else _FirstOrder(self)
        problem = cyipopt.Problem(n=len(nlp.x_lower), m=len(nlp.g_lower), problem_obj=callbacks, **finite)
        for key, value in _ipopt_options(self.options, warm is not None).items():
            try:
                problem.add_option(key, value)
            except TypeError as error:
                raise ValueError(f"ipopt: IPOPT does not accept {key} = {value!r}") from error
        self._handle = problem
        return problem

    def ended(self, status: Status) -> NLPSolution:
        """The best iterate so far, or the guess, under a verdict."""
        p = self.best
        if p is None:
            objective, g = self.nlp.evaluate(self.w0)
            p = self._measured(self.w0, g, objective, np.inf, np.zeros(len(g)), np.zeros(len(self.w0)))
        records = tuple(self.journal.records)
        return NLPSolution(self.nlp, p.w, p.objective, p.g, p.y, p.z, status, self.iteration, records)

    # -- IPOPT's callbacks ----------------------------------------------------------------------------------------------
    def objective(self, w: Array) -> float:
        """f."""
        return self._at(w, "rollout")[0]

    def constraints(self, w: Array) -> Array:
        """g."""
        return self._at(w, "rollout")[1]

    def gradient(self, w: Array) -> Array:
        """df."""
        return self._at(w, "derivatives")[0]

    def jacobian(self, w: Array) -> Array:
        """The entries of dg in the order of the pattern."""
        return self._at(w, "derivatives")[1].data

    def hessian(self, w: Array, multipliers: Array, sigma: float) -> Array:
        """The entries of the lower triangle in the order of the pattern."""
        self._enter()
        with self.journal.timed("derivatives"):
            data = self.nlp.hessian(w, sigma, multipliers).data[self._lower]
        self._leave()
        return data

    def jacobianstructure(self) -> tuple[Array, Array]:
        """Rows and columns."""
        self._enter()
        _, J = self.nlp.differentiate(self.w0)
        self._leave()
        return J.indices, _columns(J)

    def hessianstructure(self) -> tuple[Array, Array]:
        """Rows and columns of the lower triangle."""
        self._enter()
        H = self.nlp.hessian(self.w0, 0.0, np.zeros(len(self.nlp.g_lower)))
        columns = _columns(H)
        self._lower = np.flatnonzero(H.indices >= columns)
        self._leave()
        return H.indices[self._lower], columns[self._lower]

    def intermediate(
        self, mode, iteration, objective, primal, dual, mu, step, regularisation, alpha_dual, alpha, trials
    ) -> bool:
        """After each iteration: close the record of the last iterate; False stops IPOPT."""
        self._enter()
        if iteration > 0:
            self._close_record(regularisation, alpha * step, alpha)
        self.iteration = int(iteration)
        found = self._handle.get_current_iterate()
        if found is not None:
            z = found["mult_x_U"] - found["mult_x_L"]
            self.point = self._measured(found["x"], found["g"], objective, dual, found["mult_g"], z)
            if self.best is None or self._merit(self.point) <= self._merit(self.best):
                self.best = self.point
        self._leave()
        return True

    def _at(self, w: Array, phase: str) -> Any:
        """Values ("rollout") or first derivatives at w, kept until another point is asked for."""
        self._enter()
        key = w.tobytes()
        if self._last[0] != key:
            self._last = (key, None, None)
        slot = 1 if phase == "rollout" else 2
        if self._last[slot] is None:
            with self.journal.timed(phase):
                found = self.nlp.evaluate(w) if slot == 1 else self.nlp.differentiate(w)
            self._last = (key, found, self._last[2]) if slot == 1 else (key, self._last[1], found)
        result = self._last[slot]
        self._leave()
        return result

    # -- clocks and records ---------------------------------------------------------------------------------------------
    def _leave(self) -> None:
        """Control goes back to IPOPT: its own time counts as that of the backward sweep."""
        self._outside = self.journal.timed("backward")
        self._outside.__enter__()

    def _enter(self) -> None:
        if self._outside is not None:
            self._outside.__exit__(None, None, None)
            self._outside = None

    def _measured(self, w: Array, g: Array, objective: float, dual: float, y: Array, z: Array) -> _Point:
        nlp, gaps = self.nlp, slice(self.gaps)
        rows = np.maximum(nlp.g_lower - g, g - nlp.g_upper)
        box = np.maximum(nlp.x_lower - w, w - nlp.x_upper)
        violation = max(float(rows.max(initial=0.0)), float(box.max(initial=0.0)))
        return _Point(w, g, objective, violation, float(rows[gaps].max(initial=0.0)), dual, y, z)

    def _merit(self, p: _Point) -> tuple[float, float]:
        return max(p.violation, self.options.constraint_tolerance), p.objective

    def _close_record(self, regularisation: float, step: float, alpha: float) -> None:
        p, o = self.point, self.options
        if p is None:
            return
        self.journal.add(
            iteration=len(self.journal.records),
            cost=p.objective,
            merit=p.objective,
            stop=max(p.gradient / o.gradient_tolerance, p.violation / o.constraint_tolerance),
            gradient=p.gradient,
            regularisation=regularisation,
            step_norm=step,
            defect=p.gap,
            constraint_violation=p.violation,
            expected_decrease=0.0,
            actual_decrease=0.0,
            step_length=alpha,
            curvature=o.hessian,
        )

    # -- the end --------------------------------------------------------------------------------------------------------
    def _verdict(self, code: int, message: bytes | str) -> Status:
        p, o = self.best, self.options
        if p is None or code == _INVALID_NUMBER:
            return self._non_finite()
        worst = nlp_verdicts.worst_constraint(self.nlp, p.w, p.g)
        violated = p.violation > o.constraint_tolerance
        distance = f"gradient {p.gradient:.1e}, constraint violation {p.violation:.1e}"
        if code in (_SUCCESS, _FEASIBLE_POINT):
            return nlp_verdicts.converged(self.iteration, p.gradient, p.violation)
        if code == _DIVERGING:
            return nlp_verdicts.unbounded(self.iteration, p.objective)
        if code == _INFEASIBLE or (code in (_RESTORATION_FAILED, _TOO_FEW_FREEDOMS) and violated):
            return nlp_verdicts.infeasible(self.iteration, worst)
        kind, reason, advice = _ENDS.get(code, (StatusCode.LINE_SEARCH_FAILED, "", _GUESS))
        reason = reason.format(o=o, i=self.iteration) or f"IPOPT ended with: {_text(message)}"
        return nlp_verdicts.stopped(kind, reason, distance, worst if violated else None, advice)

    def _non_finite(self) -> Status:
        w = self.w0 if self.point is None else self.point.w
        objective, g = self.nlp.evaluate(w)
        return nlp_verdicts.non_finite(self.nlp, w, objective, g)


class _FirstOrder:
    """The callbacks without a Hessian: IPOPT approximates it from gradients."""

    def __init__(self, run: _Run) -> None:
        for name in ("objective", "constraints", "gradient", "jacobian", "jacobianstructure", "intermediate"):
            setattr(self, name, getattr(run, name))


_GUESS = "Start from a better guess, check the derivatives (trajopt check), or try another hessian."
_ENDS = {
    _ACCEPTABLE: (
        StatusCode.PRECISION_LIMIT,
        "Double precision allows no further progress",
        "Raise the tolerances, or scale the cost.",
    ),
    _TINY_STEP: (StatusCode.PRECISION_LIMIT, "The steps became too small", "Raise the tolerances, or scale the cost."),
    _MAX_ITERATIONS: (
        StatusCode.MAX_ITERATIONS,
        "Stopped at max_iterations = {o.max_iterations}",
        "Raise max_iterations, or start from a better guess.",
    ),
    **dict.fromkeys(
        (_CPU_TIME, _WALL_TIME),
        (
            StatusCode.TIME_LIMIT,
            "Stopped at time_limit = {o.time_limit} s after {i} iterations",
            "Raise time_limit, or start from a better guess.",
        ),
    ),
    _RESTORATION_FAILED: (StatusCode.LINE_SEARCH_FAILED, "The restoration of feasibility failed", _GUESS),
    _STEP_FAILED: (StatusCode.LINE_SEARCH_FAILED, "No step could be computed", _GUESS),
    _TOO_FEW_FREEDOMS: (
        StatusCode.INFEASIBLE,
        "There are more equations than free variables",
        "Take out an equality, or free some variable.",
    ),
}


def _ipopt_options(o: DMSOptions, warm: bool) -> Mapping[str, Any]:
    """Options by IPOPT's names; the user's own last."""
    approximation = "limited-memory" if o.hessian == "limited_memory" else "exact"
    options: dict[str, Any] = {
        "print_level": 0,
        "sb": "yes",
        "hessian_approximation": approximation,
        "tol": o.gradient_tolerance,
        "constr_viol_tol": o.constraint_tolerance,
        "max_iter": o.max_iterations,
        "mu_init": o.barrier,
        "mu_strategy": o.barrier_strategy,
        "bound_relax_factor": 0.0,  # bounds are met as they stand
        "check_derivatives_for_naninf": "yes",
    }
    if o.time_limit is not None:
        options["max_wall_time"] = o.time_limit
    if warm:
        options |= {"warm_start_init_point": "yes"}
        options |= {f"warm_start_{key}": WARM_PUSH for key in _PUSHED}
    return options | dict(o.ipopt)


WARM_PUSH = 1e-6
"""How far a warm start is moved off its bounds."""
_PUSHED = ("bound_push", "bound_frac", "slack_bound_push", "slack_bound_frac", "mult_bound_push")


def _start(warm: Multipliers | None) -> dict[str, Array]:
    """A warm start by cyipopt's names."""
    if warm is None:
        return {}
    return {"lagrange": warm.y, "zl": np.maximum(-warm.z, 0.0), "zu": np.maximum(warm.z, 0.0)}


def _columns(matrix: Any) -> Array:
    """The column of each entry of a csc matrix."""
    return np.repeat(np.arange(matrix.shape[1]), np.diff(matrix.indptr))


def _text(message: bytes | str) -> str:
    return message.decode() if isinstance(message, bytes) else message
