"""Sequential quadratic programming (SQP) for sparse nonlinear programs.

    minimize f(w)   subject to   g_lower <= g(w) <= g_upper,   x_lower <= w <= x_upper

Each iteration solves the QP of :mod:`trajopt.solvers.sqp.sqp_iterate` at the current point and runs a line search along its
solution (Nocedal & Wright, algorithm 18.3).

| hessian | H | reference |
|---|---|---|
| exact | Hessian of the Lagrangian, convexified; near a minimizer the step is unchanged | :mod:`trajopt.solvers.sqp.convexify` |
| gauss_newton | J'phi''J of an objective phi(r(w)), phi convex | Nocedal & Wright, section 10.3 |
| scqp | the same, and sum_i y_i J_i'psi_i''J_i of constraints psi_i(r_i(w)) <= u_i, y_i > 0 | R. Verschueren et al., CDC 2016 |

After a full step the active set is nearly always known, and a QP takes one or two linear systems
(:mod:`trajopt.solvers.qp.newton`). Multipliers move by the same step length as the variables: those of a shortened QP step may be
larger than the program's by orders of magnitude.

An infeasible QP is solved in elastic mode (:mod:`trajopt.solvers.sqp.elastic`).

:mod:`trajopt.solvers.sqp.sqp_line_search` is the line search. With curved constraints, or if H is much smaller than the Hessian of
the Lagrangian (as a Gauss-Newton Hessian may be), the filter accepts only tiny step lengths. The QP is then solved again with a
multiple sigma H. This divides the part of the step along the constraints by sigma, but not the part toward them. sigma thus acts
like a trust-region radius that is independent of the units of the variables; it falls again after steps that realize their expected
decrease.  If the filter rejects all these steps, a step restores feasibility: it reduces the violation alone (Wächter & Biegler
2006, step A-9).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.records import Callback, Journal
from trajopt.results.status import SOLVED, Status
from trajopt.solvers import termination
from trajopt.solvers.nlp import nlp_diagnosis
from trajopt.solvers.nlp.nlp import NLP, NLPSolution, require_shapes, trajectory_at
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.qp import QP, Hessian, make_qp_solver
from trajopt.solvers.rules.line_search import NEAR_ROUNDING, RoundingTest
from trajopt.solvers.sqp.convexify import Convexified, convexified
from trajopt.solvers.sqp.elastic import elastic_step, feasibility_step
from trajopt.solvers.sqp.sqp_acceptance import Acceptance, FilterTest, Step, ViolationTest, step_of
from trajopt.solvers.sqp.sqp_iterate import (
    Iterate,
    Trial,
    hessian_at,
    iterate_at,
    qp_about,
    semidefinite_at,
    settled,
    trial,
)
from trajopt.solvers.sqp.sqp_line_search import LineSearch, Taken
from trajopt.solvers.sqp.sqp_state import STILL_STEPS, Contradictions, Damping, Subproblems
from trajopt.solvers.time_limits import start_of_solve

SEMIDEFINITE_SHIFT = 1e-8
"""Diagonal shift of a semidefinite Hessian for QP solvers that require a definite one, as a fraction of its largest entry."""
SCALINGS, HALVINGS = 3, 4
"""SCALINGS values of sigma are tried in an iteration, growing each time that no step length down to 2^-HALVINGS is accepted."""
GOOD_FRACTION = 0.25
"""Fraction of the expected decrease that a good full step realizes."""
RETRIES, RETRY_GROWTH = 4, 1e3
"""Number of line searches after those with SCALINGS values of sigma, and the growth factor of their regularization."""


def solve_nlp(
    nlp: NLP,
    w: Array,
    options: SQPOptions | None = None,
    callback: Callback | None = None,
    *,
    multipliers: tuple[Array, Array] | None = None,
) -> NLPSolution:
    """Solve a sparse nonlinear program by SQP: minimize f(w) subject to g_lower <= g(w) <= g_upper, x_lower <= w <= x_upper.

    nlp: an object with these bounds, ``evaluate(w)``, ``differentiate(w)`` and ``hessian``, as
    :class:`~trajopt.solvers.nlp.nlp.NLP` defines them. w (n,): guess, which is clipped to the bounds. multipliers: a guess of y
    (m,) and z (n,), for example of an earlier solution; it also defines the first active set. callback: called with an
    IterationRecord after each iteration and at the end; if it raises KeyboardInterrupt, the solver stops and returns the best
    iterate. Raises ValueError for hessian "gauss_newton" or "scqp" and a program without ``convex_hessian``, and for a guess,
    bounds or values of the program of the wrong shape. Non-convergence raises nothing: see ``status``.
    """
    options = settled(options or SQPOptions(), nlp)
    n = np.size(nlp.x_lower)
    bounds = {"x_lower": nlp.x_lower, "x_upper": nlp.x_upper, "g_lower": nlp.g_lower, "g_upper": nlp.g_upper}
    require_shapes(nlp, **bounds)
    if np.shape(w) != (n,):
        raise ValueError(f"the guess has shape {np.shape(w)}; this program has {n} variables")
    return SQPLoop(nlp, options, callback).run(np.array(w, dtype=float), multipliers)


class SQPLoop:
    """State of one SQP solve. ``run`` may be called once; it always returns a solution, also after Ctrl-C.

    best: last iterate. began: start on a monotonic clock [s]. violation_floor: lower bound of the shift of H in a step that ignores
    the objective, after the line search along such a step failed.
    """

    def __init__(self, nlp: NLP, options: SQPOptions, callback: Callback | None = None) -> None:
        self.nlp, self.options = nlp, options
        self.journal, self.damping, self.began = Journal(callback), Damping(), start_of_solve()
        self.iteration, self.descent, self.violation_floor = 0, termination.Descent(), 0.0
        self.best: Iterate | None = None
        self.rounding, self.at_rounding = RoundingTest(), False
        self.contradictions = Contradictions(options.elastic_weight, np.zeros_like(nlp.g_lower))
        self.qps = Subproblems(make_qp_solver(options.qp_solver))
        self.search = LineSearch(options, self.journal)
        self.usual_test = FilterTest()
        self.test: Acceptance = self.usual_test

    def run(self, w: Array, multipliers: tuple[Array, Array] | None = None) -> NLPSolution:
        """Solve from a guess of w (n,), and of the multipliers (y, z) if given; return the solution, also after Ctrl-C.

        Crossed bounds end it before the first iteration.
        """
        with np.errstate(all="ignore"):  # the status reports non-finite numbers
            try:
                crossed = nlp_diagnosis.crossed_bounds(self.nlp)
                status = self._solve(w, multipliers) if crossed is None else termination.infeasible(crossed)
            except KeyboardInterrupt:
                status = termination.interrupted(self.iteration)
            return self._solution(status, w)

    def _solve(self, w: Array, multipliers: tuple[Array, Array] | None) -> Status:
        """Iterate from the guess, clipped to its bounds, until a termination test holds; return the status.

        A guess with values or derivatives that are not finite ends the solve at once.
        """
        nlp, w = self.nlp.recentered(np.clip(w, self.nlp.x_lower, self.nlp.x_upper))
        self.qps.multipliers_given = multipliers
        y, z = multipliers or (np.zeros_like(nlp.g_lower), np.zeros_like(w))
        with self.journal.timed("rollout"):
            start = trial(nlp, w)
        with self.journal.timed("derivatives"):
            at = iterate_at(nlp, start, y, z, self.options) if start.finite else None
        if at is None:
            return termination.non_finite(nlp_diagnosis.non_finite_number(nlp, w, start.f, start.g))
        self.descent = termination.Descent(start.f, float(np.abs(at.grad).max(initial=0.0)))
        while True:
            self.best = at
            status = self._termination(at) or self._advance(at)
            if isinstance(status, Status):
                self._record(at)
                return status
            at = status

    def _termination(self, at: Iterate) -> Status | None:
        """Return the status if the iterate is a solution, f is unbounded, or precision, iterations or time end; else None."""
        o, n = self.options, self.iteration
        if at.is_solution(o):
            return termination.converged(self._measured(at))
        if self.at_rounding:
            return termination.precision_limit(self._measured(at))
        feasible = at.violation <= o.constraint_tolerance * max(1.0, float(np.abs(at.w).max(initial=0.0)))
        if feasible and self.descent.is_unbounded(at.f):
            return termination.unbounded(n, at.f)
        if n >= o.max_iterations:
            advice = termination.MORE_ITERATIONS + ("" if o.hessian == "exact" else termination.EXACT_HESSIAN)
            return termination.max_iterations(o.max_iterations, self._measured(at), advice)
        if o.time_limit is not None and time.perf_counter() - self.began > o.time_limit:
            return termination.time_limit(o.time_limit, self._measured(at))
        return None

    # -- one iteration --------------------------------------------------------------------------------------------------
    def _advance(self, at: Iterate) -> Iterate | Status:
        """Return the next iterate or the final status; update sigma, the multiple of the Hessian, and the counters of the solve.

        A step is tried with up to SCALINGS values of sigma, then with the first sigma, then with the first sigma and a growing
        diagonal shift. Steps in elastic mode get the shift from the second try on. After the values of sigma, feasibility is first
        restored at infeasible points. Tries without further values of sigma end at
        rounding level.
        """
        with self.journal.timed("derivatives"):
            H = hessian_at(at, self.options)
        if not np.isfinite(H.data).all():
            what = nlp_diagnosis.non_finite_number(at.nlp, at.w, at.f, at.g, "an entry of the Hessian")
            return termination.non_finite(what)
        damping, floor, first, promise = self.damping, 0.0, self.damping.scale, np.inf
        self.violation_floor = 0.0
        for attempt in range(SCALINGS + RETRIES):
            convex, found = self._directed(at, damping.scale * H, floor)
            if isinstance(found, Status):
                return found
            step = found
            self.test = self._test_of(at, step, restoring=attempt == SCALINGS)
            self.test.begin(at, step)
            if attempt == 0:
                promise = damping.scale * abs(self.test.expected(1.0))
            scaling = attempt < SCALINGS and step.weight == 0.0
            taken = self._searched(at, step, promise, scaling)
            if taken.new is not None or (self._is_noise(at, promise) and not scaling):
                break
            damping.scale = first
            if scaling and attempt + 1 < SCALINGS:
                damping.grow(first, attempt + 1)
            elif not scaling:
                floor = RETRY_GROWTH * max(convex.delta, 1e-6 * max(1.0, float(np.abs(H.data).max(initial=0.0))))
                self.violation_floor = floor if np.isinf(step.weight) else 0.0
        self._record(at, step, taken)
        self.iteration += 1
        self.qps.full = taken.alpha == 1.0 and floor == 0.0
        if taken.new is None:
            return self._stuck(at, step, taken, promise)
        self.contradictions.count_idle(at, taken.new)
        if self.contradictions.still >= STILL_STEPS and taken.new.violation > self.options.constraint_tolerance:
            return termination.violation_remains(self._measured(at), stationary=False)
        damping.learn(
            taken.alpha, taken.actual >= GOOD_FRACTION * self.test.expected(1.0), self.options.hessian == "exact"
        )
        new = self._recentered(taken.new)
        feasible = new.violation <= self.options.constraint_tolerance
        self.at_rounding = feasible and self.rounding.exhausted(new.kkt, promise, max(1.0, abs(new.f)))
        return new

    def _test_of(self, at: Iterate, step: Step, restoring: bool) -> Acceptance:
        """Return the acceptance test of a step: the filter; for steps that ignore the objective, on the violation alone.

        restoring: also on the violation alone at an infeasible point, which is added to the filter.
        """
        if restoring and at.violation > self.options.constraint_tolerance:
            self.usual_test.add_current()
            return ViolationTest()
        return ViolationTest() if np.isinf(step.weight) else self.usual_test

    def _directed(self, at: Iterate, H: Hessian, floor: float) -> tuple[Convexified, Step | Status]:
        """Return the QP and its step, or the final status, for the Hessian H with a diagonal shift of at least ``floor``.

        After a full step, and with floor = 0, first for the active set of that step with H unmodified; if that fails, by the
        convexified QP.
        """
        with self.journal.timed("backward"):
            return self._newton(at, H, floor) or self._convex_step(at, H, floor)

    def _searched(self, at: Iterate, step: Step, expected: float, scaling: bool) -> Taken:
        """Run the line search along a step; return its result.

        expected: expected change of f. scaling: True if a step with larger sigma can follow a failure;
        then at most HALVINGS halvings are tried. If all lengths fail at rounding level, the full step is accepted if it reduces
        the residual.
        """
        most = self.options.max_backtracks
        halvings = min(HALVINGS, most) if scaling else most
        taken = self.search.along(at, step, self.test, halvings)
        if taken.new is None and self._is_noise(at, expected):
            taken = self.search.polished(at, step, self.test, NEAR_ROUNDING) or taken
        return taken

    def _newton(self, at: Iterate, H: Hessian, floor: float) -> tuple[Convexified, Step] | None:
        """Return the step for the active set of the last full step, with H unmodified.

        None if the active set does not converge, or if H is not convex along the step; also if the last step was no full step, or
        with ``floor`` > 0, a lower bound of the shift of H.
        """
        if floor > 0.0 or not self.qps.full:
            return None
        qp = qp_about(at, H)
        found = self.qps.near(qp, at.y, at.z)
        if found is None or found.w @ (H @ found.w) < 0.0:
            return None
        self.qps.last, self.damping.used, none = found, 0.0, np.zeros(len(at.y) + len(at.z))
        return Convexified(qp, self.qps.fallback, 0.0, none, none > 0.0), step_of(at, qp, found, 0.0)

    def _convex_step(self, at: Iterate, H: Hessian, floor: float) -> tuple[Convexified, Step | Status]:
        """Return the convexified QP about an iterate, and its step, or the final status if no step could be found.

        floor: lower bound of the shift of the Hessian's diagonal that makes it convex.
        """
        convex = self._convex(qp_about(at, H), at, floor)
        return convex, self._step(at, convex)

    def _is_noise(self, at: Iterate, expected: float) -> bool:
        """True if the expected change of f and the violation are both at rounding level, relative to 1 plus the magnitude of f."""
        return max(expected, at.violation) <= NEAR_ROUNDING * (1.0 + abs(self._value(at)))

    def _convex(self, qp: QP, at: Iterate, floor: float) -> Convexified:
        """Return the convexified QP with a diagonal shift of at least ``floor``, and store its shift and blend.

        A Hessian that is not exact, hence semidefinite, is shifted if the first QP solver rejects it. With floor > 0, no
        inequality counts as active.
        """
        guess = (at.y, at.z) if floor == 0.0 else (np.zeros_like(at.y), np.zeros_like(at.z))
        damping, solvers = self.damping, self.qps.solvers
        if self.options.hessian != "exact" and not solvers[0].is_convex(qp):
            floor = max(floor, SEMIDEFINITE_SHIFT * max(1.0, float(np.abs(qp.H.data).max(initial=0.0))))
        other = self._timed(semidefinite_at(at, self.options, damping.scale))
        convex = convexified(qp, *guess, solvers, damping.delta, floor, other, damping.fraction)
        damping.store(convex, floor)
        return convex

    def _timed(self, hessian: Callable[[], Hessian] | None) -> Callable[[], Hessian] | None:
        """Return a function that calls ``hessian`` and records its time as that of derivatives; None for None."""
        if hessian is None:
            return None

        def timed() -> Hessian:
            with self.journal.timed("derivatives"):
                return hessian()

        return timed

    def _step(self, at: Iterate, convex: Convexified) -> Step | Status:
        """Solve the QP, in elastic mode if it is infeasible; return the step or the final status.

        After many infeasible QPs without progress, steps ignore the objective, and then the solve ends. It also ends if no step
        reduces the linearized violation, or if all QPs fail. If elastic mode reaches no sufficient decrease, the step ignores the
        objective.
        """
        qp, found, state = convex.qp, self.qps.solve(convex.qp, convex.solver), self.contradictions
        if found is not None:
            self.qps.last, state.count = found, 0
            return step_of(at, qp, convex.unpenalized(found), 0.0)
        state.count_infeasible(at.theta)
        if state.hopeless:
            return termination.violation_remains(self._measured(at), stationary=False)
        step = self._feasibility_step(at) if state.leaves_objective else None
        if step is not None:
            return step
        elastic = elastic_step(qp, state.weight, self.options.max_elastic_weight)
        if elastic is not None and elastic.stationary and at.violation > self.options.constraint_tolerance:
            return termination.violation_remains(self._measured(at), stationary=True)
        if elastic is not None and elastic.sufficient:
            state.weight = elastic.weight
            return step_of(at, qp, elastic.solution, elastic.weight)
        step = self._feasibility_step(at)
        return step or termination.line_search_failed(termination.UNSOLVED_QP, self._measured(at))

    def _feasibility_step(self, at: Iterate) -> Step | None:
        """Return a step that reduces the violation and ignores the objective, or None if its QP fails.

        H is that of the constraints, with the multipliers of the last such step, which are updated, and a shift of at least
        ``violation_floor``. The program's multipliers do not change.
        """
        with self.journal.timed("derivatives"):
            H = hessian_at(at._replace(y=self.contradictions.toward), self.options, 0.0)
        qp = qp_about(at, H)
        found = feasibility_step(qp, self.violation_floor)
        if found is None:
            return None
        self.contradictions.toward = found.y
        return step_of(at, qp, found._replace(y=at.y, z=at.z), np.inf)

    def _recentered(self, new: Iterate) -> Iterate:
        """Return the iterate in a chart centered at it, for programs on a manifold.

        It stays unchanged on a vector space, and if a derivative there is not finite.
        """
        nlp, w = new.nlp.recentered(new.w)
        if nlp is new.nlp:
            return new
        with self.journal.timed("derivatives"):
            moved = iterate_at(nlp, Trial(w, new.f, new.g, new.theta), new.y, new.z, self.options)
        return new if moved is None else moved

    def _stuck(self, at: Iterate, step: Step, taken: Taken, expected: float) -> Status:
        """Return the status after a failed line search.

        The violation remains after a step on the violation alone; the precision limit is reached at rounding level (expected:
        expected change of f) or with a small KKT error; otherwise the line search failed.
        """
        measured, violated = self._measured(at), at.violation > self.options.constraint_tolerance
        if np.isinf(step.weight) and violated:
            return termination.violation_remains(measured, stationary=False)
        if self._is_noise(at, expected) or (at.kkt <= SOLVED and not violated):
            return termination.precision_limit(measured)
        return termination.line_search_failed(termination.no_step_length(taken.broken), measured)

    # -- records --------------------------------------------------------------------------------------------------------
    def _value(self, at: Iterate) -> float:
        """Return the value of an iterate that the current acceptance test decreases."""
        return self.test.value(at.f, at.theta)

    def _measured(self, at: Iterate) -> termination.Measured:
        """Return iteration number, errors and worst constraint of an iterate, for a status."""
        errors = termination.Errors(at.kkt, at.gradient, violation=at.violation)
        worst = nlp_diagnosis.worst_constraint(at.nlp, at.w, at.g)
        return termination.Measured(self.iteration, errors, self.options.tolerances, worst)

    def _record(self, at: Iterate, step: Step | None = None, taken: Taken | None = None) -> None:
        """Add a record of an iterate, with the step from it and its line search, to the journal."""
        alpha = 0.0 if taken is None or taken.new is None else taken.alpha
        self.journal.add(
            trajectory_at(at.nlp, at.w),
            iteration=self.iteration,
            cost=at.f,
            merit=self._value(at),
            stop=at.stop,
            gradient=at.gradient,
            regularization=self.damping.used,
            step_norm=0.0 if step is None else alpha * float(np.abs(step.d).max(initial=0.0)),
            defect=at.defect,
            constraint_violation=at.violation,
            expected_decrease=0.0 if step is None else self.test.expected(taken.alpha if taken else 1.0),
            actual_decrease=0.0 if taken is None else taken.actual,
            step_length=alpha,
            hessian=self.options.hessian,
            kkt=at.kkt,
        )

    def _solution(self, status: Status, w: Array) -> NLPSolution:
        """Return the best iterate as the solution; without an iterate the guess w, NaN for f and g, and zero multipliers."""
        records, at = self.journal.history(), self.best
        if at is None:
            m, n = len(self.nlp.g_lower), len(w)
            nothing = np.full(m, np.nan), np.zeros(m), np.zeros(n)
            return NLPSolution(self.nlp, w, np.nan, *nothing, status, self.iteration, records)
        return NLPSolution(at.nlp, at.w, at.f, at.g, at.y, at.z, status, self.iteration, records)
