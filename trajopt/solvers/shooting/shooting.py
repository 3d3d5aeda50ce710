"""The loop of the shooting solvers: expand, sweep backward, search forward.

Single shooting, multiple shooting every K knots, GNMS and FDDP differ in the nodes and in how their gaps close
(:class:`~trajopt.stage.evaluation.Shooting`), and in nothing else.  A step is accepted that reduces the merit, cost +
penalty |d|_1. Where its expected decrease is below what double precision can tell apart in a cost, gradients decide
instead, so that they converge to their own accuracy, not to the square root of that of the cost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.lq.bounded_lq import solve_bounded_lq
from trajopt.lq.lq import Bounds, LQStep, Policy, cost_change
from trajopt.lq.lq_solver import LQSolver, NumpyLQ
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.results.status import SOLVED, Status
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting import verdicts
from trajopt.solvers.shooting.ddp_model import Damping, Model, PlainModel, Problem
from trajopt.solvers.shooting.globalization import Merit, Regularization, SearchResult, line_search
from trajopt.solvers.shooting.iterate import Iterate, Step, held_rollout, measured, second_order, step_of
from trajopt.solvers.shooting.optimality import scaled_kkt
from trajopt.stage.evaluation import Candidates, Direction, Evaluator, Shooting
from trajopt.validation.validation import refuse_constraints

ROUNDING = 1e-12
"""Expected decreases below this share of the merit are noise."""
NEAR_ROUNDING = 1e-8
"""Below this share, gradients have the last word where the merit refuses a step."""
LOWER_AT, LOWER_RATIO = 0.5, 0.6
"""mu falls after a step longer than this that realized this share of its promise; it rises where no step is accepted."""
MAX_IDLE, PROGRESS = 20, 0.99
"""Iterations decided by gradients in which the residual does not fall below this share before giving up."""
FALLEN = 1e3
"""A guess whose open-loop roll-out costs that many times more than it promised is held by feedback."""
POLISHING = 0.5 ** np.arange(4)
"""Step lengths tried near rounding level."""
SPOILED_AT = 0.25
"""A step no longer than this is one that curvature may have spoiled: the step without it is tried too."""


class Attempt(NamedTuple):
    """A step of a model and what its search found: the next iterate, or None; merit and regularization after it."""

    model: Model
    mu: float
    step: Step
    search: SearchResult
    polished: bool
    new: Iterate | None
    merit: Merit
    regularization: Regularization

    @property
    def spoiled(self) -> bool:
        """Whether the step was refused or short."""
        return self.new is None or (not self.polished and self.search.alpha <= SPOILED_AT)


class ShootingLoop:
    """One solve. ``run`` may be called once; it always returns a Solution, also after Ctrl-C.

    models: what is solved for a direction, the one of most curvature last; default the plain expansion alone. Where the
    preferred model's step is spoiled, those of the others compete with it, and the winner is preferred from then on. The last one
    is preferred after an iteration that reduces the merit by less than the share ``switch``: where progress is slow, curvature
    pays (compare the switch of R. Fletcher, C. Xu, IMA J. Numer. Anal. 7, 1987), and near the solution progress is slow.
    """

    def __init__(
        self,
        ocp: OCP,
        evaluator: Evaluator,
        options: SLQOptions,
        callback: Callback | None = None,
        lq_solver: LQSolver | None = None,
        models: Sequence[Model] = (),
        switch: float = 0.0,
    ) -> None:
        refuse_constraints(ocp, "a shooting loop")
        self.ocp, self.evaluator, self.options = ocp, evaluator, options
        self.lq_solver = lq_solver or NumpyLQ()
        self.models = tuple(models) or (PlainModel(options.hessian, evaluator),)
        self.switch = switch
        self.preferred = self.models[-1 if switch >= 1.0 else 0]
        self.journal = Journal(callback)
        self.shooting = Shooting.every(options.shooting, ocp.horizon, options.gaps)
        self.regularization = Regularization.of(options)
        self.merit = Merit(options.penalty)
        self.iterate: Iterate | None = None
        self.best: Iterate | None = None
        self.policy: Policy | None = None
        self.iteration = 0
        self.idle = 0

    def run(self, guess: Guess) -> Solution:
        """Iterate from a guess until a test fires."""
        self.began = time.perf_counter()
        with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
            try:
                status = self._solve(guess)
            except KeyboardInterrupt:
                status = verdicts.interrupted(self.iteration)
            return self._solution(status, guess)

    def _solve(self, guess: Guess) -> Status:
        start = self._start(guess)
        if isinstance(start, Status):
            self.journal.refused()
            return start
        self.iterate = start
        while (status := self._finished(self.iterate) or self._advance(self.iterate)) is None:
            pass
        self._record(self.iterate)
        return status

    # -- iterates -------------------------------------------------------------------------------------------------------
    def _start(self, guess: Guess) -> Iterate | Status:
        """The guess, from x0, within the bounds, with the parts between nodes rolled out."""
        xs, us = np.array(guess.xs, dtype=float), np.array(guess.us, dtype=float)
        xs[0] = self.ocp.x0
        if self.ocp.control_bounds is not None:
            us = np.clip(us, *self.ocp.control_bounds)
        N, ndx, nu = self.ocp.horizon, self.ocp.manifold.ndx, self.ocp.nu
        still = Direction(np.zeros((N + 1, ndx)), np.zeros((N, nu)), np.zeros((N, nu, ndx)), np.zeros((N, ndx)))
        with self.journal.timed("rollout"):
            nodes = Shooting(self.shooting.nodes, "linear")
            first = self.evaluator.rollout(xs, us, still, np.zeros(1), nodes)
            follows = len(nodes.nodes) < N  # where every knot is a node, no state follows from another
            if follows and not first.cost[0] <= FALLEN * max(1.0, abs(float(self.evaluator.expand(xs, us).cost))):
                first = held_rollout(xs, us, nodes, self.evaluator, self.lq_solver) or first
        xs, us = first.xs[0], first.us[0]
        return self._expanded(xs, us, self.preferred.evaluator) or verdicts.non_finite(
            self.ocp, xs, self.evaluator.expand(xs, us)
        )

    def _expanded(self, xs: Array, us: Array, evaluator: Evaluator) -> Iterate | None:
        """The iterate, or None if its expansion is not finite."""
        with self.journal.timed("derivatives"):
            expansion = evaluator.expand(xs, us)
        with self.journal.timed("backward"):
            return measured(xs, us, expansion, evaluator, self.lq_solver, self.ocp.control_bounds, self.options)

    # -- one iteration --------------------------------------------------------------------------------------------------
    def _finished(self, at: Iterate) -> Status | None:
        o = self.options
        if at.stop <= 1.0:
            return verdicts.converged(self.iteration, at.gradient, at.defect, o)
        if self.iteration >= o.max_iterations:
            return verdicts.max_iterations(at.gradient, at.defect, o)
        if o.time_limit is not None and time.perf_counter() - self.began > o.time_limit:
            return verdicts.time_limit(self.iteration, at.gradient, at.defect, o)
        return None

    def _advance(self, at: Iterate) -> Status | None:
        """One iteration: a direction, a search along it, the next iterate."""
        attempt = self._attempt(at)
        if isinstance(attempt, Status):
            return attempt
        self.policy, self.merit, self.regularization = attempt.step.policy, attempt.merit, attempt.regularization
        status = self._judge(at, attempt.new, attempt.search, attempt.polished)
        self._record(at, attempt)
        self.iteration += 1
        if status is None or status.success:
            self.iterate = attempt.new or at
        return status

    def _attempt(self, at: Iterate) -> Attempt | Status:
        """The step of the preferred model, or the best of all where that is spoiled; last come those that change Quu."""
        before, best = (self.merit, self.regularization), self._tried(at, self.preferred)
        others = [(model, False) for model in self.models if model is not self.preferred]
        for model, definite in [*others, *((model, True) for model in self.models if model.modifies)]:
            if not isinstance(best, Status) and not best.spoiled:
                break
            self.merit, self.regularization = before
            best = self._better(at, best, self._tried(at, model, definite))
        if not isinstance(best, Status):
            won = best.model is not self.preferred
            self.preferred = best.model if won else self._next(at, best.model, best.search)
        return best

    def _next(self, at: Iterate, model: Model, search: SearchResult) -> Model:
        """The model to prefer after a step of one: the last where that was slow."""
        slow = search.actual < self.switch * abs(self._phi(at))
        return self.models[-1] if slow else model

    def _better(self, at: Iterate, one: Attempt | Status, other: Attempt | Status) -> Attempt | Status:
        """The attempt that reduces the merit more, as the larger penalty of both measures it."""
        if isinstance(other, Status) or (other.new is None and not isinstance(one, Status)):
            return one
        if isinstance(one, Status) or one.new is None or other.new is None:
            return other
        merit = max(one.merit, other.merit, key=lambda m: m.penalty)
        return min(one, other, key=lambda attempt: float(merit(attempt.search.cost, attempt.search.defects)))

    def _tried(self, at: Iterate, model: Model, definite: bool = False) -> Attempt | Status:
        """The step of a model, and the search along it."""
        step = self._direction(at, model, definite)
        if isinstance(step, Status):
            return step
        self.merit = self.merit.adapted(step.D1, step.D2, at.gap)
        mu, promise = self.regularization.mu, self._promise(at, step)
        search, new = None, None
        if promise > ROUNDING:
            search = self._search(at, step)
            evaluator = self._next(at, model, search).evaluator
            new = self._expanded(search.xs, search.us, evaluator) if search.accepted else None
        polished = search is None or (new is None and promise <= NEAR_ROUNDING)
        if search is None or polished:
            search, new = self._polish(at, step, model.evaluator)
        return Attempt(model, mu, step, search, polished, new, self.merit, self.regularization)

    def _direction(self, at: Iterate, model: Model, definite: bool = False) -> Step | Status:
        """The solution of a model's LQ problem, with more regularization until Quu can be factorized.

        A model that can make Quu positive definite is left at the first failure: others come first.
        """
        while True:
            with self.journal.timed("derivatives"):
                problem = model.problem(at, self._damping(at), definite)
            with self.journal.timed("backward"):
                policy, linear, D2 = self._lq_solution(at, problem)
            if policy.failed_at is None:
                return step_of(at, policy, linear, D2)
            if self.regularization.saturated or model.modifies:
                return verdicts.not_positive_definite(policy.failed_at, self.options)
            self.regularization = self.regularization.raised()

    def _lq_solution(self, at: Iterate, problem: Problem) -> tuple[Policy, LQStep, float]:
        """A policy, its linear trajectory, and D2."""
        (lq, policy), bounds, mu = problem, self._bounds(at), self.regularization.mu
        if bounds is not None:
            policy, linear = solve_bounded_lq(lq, bounds, mu, self.options.regularize, self.lq_solver)
            return policy, linear, cost_change(lq, linear)[1]
        policy = policy or self.lq_solver.solve_riccati(lq, mu, self.options.regularize)
        linear, (_, D2) = self.lq_solver.forward(lq, policy)
        return policy, linear, D2

    def _damping(self, at: Iterate) -> Damping:
        return Damping(self.regularization.mu, self.options.regularize, self._bounds(at))

    def _final_policy(self, at: Iterate) -> Policy:
        """About the solution."""
        damping = self._damping(at)
        policy = self.lq_solver.solve_riccati(self.models[-1].problem(at, damping).lq, *damping)
        return policy if policy.failed_at is None else self.policy or policy

    def _bounds(self, at: Iterate) -> Bounds | None:
        """Bounds on du."""
        if self.ocp.control_bounds is None:
            return None
        lower, upper = self.ocp.control_bounds
        return lower - at.us, upper - at.us

    def _phi(self, at: Iterate) -> float:
        return float(self.merit(at.cost, at.expansion.lq.d))

    def _expected(self, at: Iterate, step: Step, alphas: Array) -> Array:
        return np.asarray(self.merit.expected_decrease(alphas, step.D1, step.D2, at.gap))

    def _promise(self, at: Iterate, step: Step) -> float:
        """The expected decrease of the full step as a share of the merit."""
        hoped, phi = abs(float(self._expected(at, step, np.ones(1))[0])), abs(self._phi(at))
        return hoped / phi if phi else np.inf

    def _rollout(self, at: Iterate, step: Step, alphas: Array) -> Candidates:
        direction = Direction(*step.linear, step.policy.K, at.expansion.lq.d)
        return self.evaluator.rollout(at.xs, at.us, direction, alphas, self.shooting)

    def _search(self, at: Iterate, step: Step) -> SearchResult:
        """The line search on the merit."""
        current = step

        def corrected(tried: Candidates) -> Candidates:
            nonlocal current
            current = second_order(at, current, tried.defects[0], self.lq_solver, self._bounds(at))
            return self._rollout(at, current, np.ones(1))

        may_correct = self.shooting.gaps == "linear" and len(self.shooting.nodes) > 0
        with self.journal.timed("rollout"):
            return line_search(
                lambda alphas: self._rollout(at, step, alphas),
                self.merit,
                self._phi(at),
                lambda alphas: self._expected(at, step, alphas),
                self.options,
                corrected if may_correct else None,
            )

    def _polish(self, at: Iterate, step: Step, evaluator: Evaluator) -> tuple[SearchResult, Iterate | None]:
        """The longest of a few steps that reduces the residual, or the cost as told by the gradients at both ends.

        The trapezoidal rule on the slope of the cost along the step is free of the cancellation in a difference of
        costs; the cost itself may rise by noise only (compare the approximate Wolfe conditions of Hager & Zhang,
        SIAM J. Optim. 16, 2005, eq. 4.1).
        """
        with self.journal.timed("rollout"):
            tried = self._rollout(at, step, POLISHING)
        expected = self._expected(at, step, POLISHING)
        risen = tried.cost - at.cost > 10.0 * ROUNDING * abs(self._phi(at))
        for i, alpha in enumerate(POLISHING):
            new, actual, good = self._expanded(tried.xs[i], tried.us[i], evaluator), -np.inf, False
            if new is not None:
                slopes = step.D1 + new.slope(step.linear.du, (1.0 - alpha) * at.expansion.lq.d)
                actual = float(-0.5 * alpha * slopes + self.merit.penalty * alpha * at.gap)
                sufficient = actual >= self.options.accept_ratio * expected[i] > 0.0
                closed = new.defect <= max(at.defect, self.options.defect_tolerance)
                good = bool(not risen[i] and (new.stop < at.stop or (sufficient and closed)))
            result = SearchResult(good, float(alpha), float(expected[i]), actual, *(block[i] for block in tried))
            if good:
                return result, new
        return result, None

    def _judge(self, at: Iterate, new: Iterate | None, search: SearchResult, polished: bool) -> Status | None:
        """Adapt mu to the outcome; a status if the solve ends here."""
        o = self.options
        if self.best is None or not polished or at.stop < PROGRESS * self.best.stop:
            self.best, self.idle = at, 0
        self.idle += 1
        if self.idle > MAX_IDLE or (new is None and self.regularization.saturated):
            return self._no_progress(self.best)
        if new is None:
            self.regularization = self.regularization.raised()
            return None
        if search.alpha > LOWER_AT and search.actual >= LOWER_RATIO * search.expected:
            self.regularization = self.regularization.lowered()
        change = abs(at.cost - new.cost)
        if change < o.cost_tolerance * abs(new.cost) and new.defect <= o.defect_tolerance:
            return verdicts.cost_converged(self.iteration + 1, change / abs(new.cost), o, self._kkt(new))
        return None

    def _no_progress(self, best: Iterate) -> Status:
        """The end of a search without success: rounding, if even the full step without mu promises next to nothing."""
        self.iterate = best
        self.regularization = Regularization.of(replace(self.options, initial_regularization=0.0))
        step = self._direction(best, self.models[0])
        if isinstance(step, Status):
            return step
        kkt = self._kkt(best)
        if kkt <= SOLVED or self._promise(best, step) <= NEAR_ROUNDING:
            return verdicts.precision_limit(best.gradient, best.defect, self.options, kkt)
        return verdicts.line_search_failed(self.iteration + 1, best.gradient, self.options, self.ocp, best.expansion.lq)

    # -- the account ----------------------------------------------------------------------------------------------------
    def _record(self, at: Iterate, attempt: Attempt | None = None) -> None:
        """Tell of an iterate and the step from it, if there was one."""
        size, alpha, search, model, mu = 0.0, 0.0, None, self.preferred, self.regularization.mu
        if attempt is not None:
            search, model, mu = attempt.search, attempt.model, attempt.mu
            size = max(float(np.abs(part).max(initial=0.0)) for part in attempt.step.linear)
            alpha = search.alpha if attempt.new is not None else 0.0
        self.journal.add(
            iteration=self.iteration,
            cost=at.cost,
            merit=self._phi(at),
            stop=at.stop,
            gradient=at.gradient,
            regularization=mu,
            step_norm=alpha * size,
            defect=at.defect,
            constraint_violation=self._violation(at.us),
            expected_decrease=0.0 if search is None else search.expected,
            actual_decrease=0.0 if search is None else search.actual,
            step_length=alpha,
            curvature=model.name,
            kkt=self._kkt(at),
        )

    def _kkt(self, at: Iterate) -> float:
        """The scaled measure of optimality under the gains of the last policy."""
        K = None if self.policy is None else self.policy.K
        return scaled_kkt(at.expansion.lq, at.us, self.ocp.control_bounds, self.lq_solver, K)

    def _violation(self, us: Array) -> float:
        if self.ocp.control_bounds is None:
            return 0.0
        lower, upper = self.ocp.control_bounds
        return float(np.maximum(lower - us, us - upper).max(initial=0.0))

    def _solution(self, status: Status, guess: Guess) -> Solution:
        N, ndx, nu = self.ocp.horizon, self.ocp.manifold.ndx, self.ocp.nu
        (xs, us), cost = guess, float("nan")
        K, k = np.zeros((N, nu, ndx)), np.zeros((N, nu))
        if self.iterate is not None:
            xs, us, cost = self.iterate.xs, self.iterate.us, self.iterate.cost
            policy = self._final_policy(self.iterate)
            K, k = policy.K, policy.k
        return Solution(xs, us, K, k, status, cost, self.iteration, tuple(self.journal.records), self.ocp.times)
