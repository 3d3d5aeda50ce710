"""The loop of the shooting solvers: expand, sweep backward, search forward.

Single shooting, multiple shooting every K knots, GNMS and FDDP differ in the nodes and in how their gaps close
(:class:`~trajopt.stage.evaluation.Shooting`), and in nothing else.  A step is accepted that reduces the merit, cost +
penalty |d|_1. Where its expected decrease is below what double precision can tell apart in a cost, gradients decide
instead, so that they converge to their own accuracy, not to the square root of that of the cost.

Where one model serves and all is compiled, an iteration is one call (:mod:`trajopt.solvers.shooting.compiled.compiled_iteration`);
its twin are the methods here from ``_attempt`` to ``_judge``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

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
from trajopt.solvers import termination
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting import shooting_diagnosis
from trajopt.solvers.shooting.ddp_model import Damping, Model, PlainModel, Problem
from trajopt.solvers.shooting.iterate import Iterate, Residuals, Step, measured, rolled_out, step_of, violation
from trajopt.solvers.shooting.optimality import nearly_optimal, scaled_kkt
from trajopt.solvers.shooting.search.globalization import (
    MAX_IDLE,
    NEAR_ROUNDING,
    POLISHING,
    PROGRESS,
    ROUNDING,
    Drift,
    Merit,
    Regularization,
    SearchResult,
)
from trajopt.solvers.shooting.search.step_search import NO_STEP, Attempt, StepSearch, beaten, better, phi, promised
from trajopt.stage.evaluation import Evaluator, Shooting, StageEvaluator
from trajopt.stage.kept import Kept
from trajopt.stage.start import starts_at_once
from trajopt.validation.validation import refuse_constraints

if TYPE_CHECKING:
    from trajopt.solvers.shooting.compiled.compiled_iteration import CompiledIteration


class ShootingLoop:
    """One solve. ``run`` may be called once; it always returns a Solution, also after Ctrl-C.

    models: what is solved for a direction, the one of most curvature last; default the plain expansion alone. Where the
    preferred model's step is spoiled, those of the others compete with it, and the winner is preferred from then on. The last one
    is preferred after an iteration that reduces the merit by less than the share ``switch``: where progress is slow, curvature
    pays (compare the switch of R. Fletcher, C. Xu, IMA J. Numer. Anal. 7, 1987), and near the solution progress is slow.
    kept: where what makes iterations one call is found, and left for the next solve.
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
        kept: Kept | None = None,
    ) -> None:
        refuse_constraints(ocp, "a shooting loop")
        self.ocp, self.evaluator, self.options = ocp, evaluator, options
        self.lq_solver = lq_solver or NumpyLQ()
        self.models = tuple(models) or (PlainModel(options.hessian, evaluator),)
        self.switch, self.kept = switch, kept
        self.preferred = self.models[-1 if switch >= 1.0 else 0]
        self.slow = switch >= 1.0
        self.journal = Journal(callback)
        self.shooting = Shooting.every(options.shooting, ocp.horizon, options.gaps)
        self.search = StepSearch(evaluator, self.lq_solver, options, self.shooting, self.journal)
        self.regularization = Regularization.of(options)
        self.merit = Merit(options.penalty)
        self.at_once: CompiledIteration | None = None
        self.iterate: Iterate | None = None
        self.best: Iterate | None = None
        self.policy: Policy | None = None
        self.iteration = 0
        self.idle = 0
        self.drift = Drift()

    def run(self, guess: Guess) -> Solution:
        """Iterate from a guess until a test fires."""
        self.began = time.perf_counter()
        with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
            try:
                self.at_once = self._compiled()
                status = self._solve(guess)
            except KeyboardInterrupt:
                status = termination.interrupted(self.iteration)
            try:
                return self._solution(status, guess)
            finally:
                if self.at_once is not None:
                    self.at_once.close()

    def _compiled(self) -> CompiledIteration | None:
        """Iterations that are one call; None where there are several models, or what they call is not compiled."""
        plain = (
            len(self.models) == 1 and type(self.models[0]) is PlainModel and self.models[0].evaluator is self.evaluator
        )
        if not plain or type(self.evaluator) is not StageEvaluator or not self.evaluator.alone:
            return None
        from trajopt.lq.compiled_lq import CompiledLQ
        from trajopt.solvers.shooting.compiled.compiled_iteration import CompiledIteration, at_once

        if type(self.lq_solver) is not CompiledLQ or (starts_at_once() and not at_once()):
            return None
        given = self.ocp, self.evaluator, self.lq_solver, self.options, self.shooting
        return CompiledIteration.of(*given, self.kept)

    def _solve(self, guess: Guess) -> Status:
        start = self._start(guess)
        if isinstance(start, Status):
            self.journal.refused()
            return start
        self.iterate = start
        status = None if self.at_once is None else self._at_once(self.at_once)
        while status is None:
            status = self._finished(self.iterate) or self._advance(self.iterate)
        self._record(self.iterate)
        return status

    # -- iterates -------------------------------------------------------------------------------------------------------
    def _start(self, guess: Guess) -> Iterate | Status:
        """The guess, from x0, within the bounds, with the parts between nodes rolled out."""
        xs, us = np.array(guess.xs, dtype=float), np.array(guess.us, dtype=float)
        xs[0] = self.ocp.x0
        if self.at_once is not None:
            start = self.at_once.start(xs, us)
            self.journal.spent(*self.at_once.record.seconds)
            return start or self._non_finite(*self.at_once.iterate(self.at_once.slot)[:2])
        if self.ocp.control_bounds is not None:
            us = np.clip(us, *self.ocp.control_bounds)
        with self.journal.timed("rollout"):
            xs, us = rolled_out(
                xs, us, Shooting(self.shooting.nodes, "linear"), self.evaluator, self.lq_solver, self.journal
            )
        return self._expanded(xs, us, self.preferred.evaluator) or self._non_finite(xs, us)

    def _non_finite(self, xs: Array, us: Array) -> Status:
        return termination.non_finite(
            shooting_diagnosis.non_finite_entry(self.ocp, xs, self.evaluator.expand(xs, us)), termination.BETTER_ROLLOUT
        )

    def _expanded(self, xs: Array, us: Array, evaluator: Evaluator) -> Iterate | None:
        """The iterate, or None if its expansion is not finite."""
        with self.journal.timed("derivatives"):
            expansion = evaluator.expand(xs, us)
        with self.journal.timed("backward"):
            return measured(xs, us, expansion, evaluator, self.lq_solver, self.ocp.control_bounds, self.options)

    # -- one iteration --------------------------------------------------------------------------------------------------
    def _finished(self, at: Residuals) -> Status | None:
        o = self.options
        if at.stop <= 1.0:
            return termination.converged(self._measured(at, None))
        if nearly_optimal(self.journal.records, at.defect, o) and (kkt := self._kkt_of(at)) <= o.kkt_tolerance:
            return termination.converged(self._measured(at, kkt))
        if self.iteration >= o.max_iterations:
            return termination.max_iterations(o.max_iterations, self._measured(at, self._kkt_of(at)))
        if o.time_limit is not None and time.perf_counter() - self.began > o.time_limit:
            return termination.time_limit(o.time_limit, self._measured(at, self._kkt_of(at)))
        return None

    def _measured(self, at: Residuals, kkt: float | None) -> termination.Measured:
        errors = termination.Errors(kkt, at.gradient, at.defect)
        return termination.Measured(self.iteration, errors, self.options.tolerances)

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

    def _at_once(self, iteration: CompiledIteration) -> Status:
        """The iterations where each is one call: what it led to is looked at when the solve ends."""
        slot = iteration.slot
        try:
            while (status := self._finished(iteration.here)) is None:
                code = iteration.advance()
                ended = None if code == iteration.GO_ON else self._ended(iteration, code)
                if code != iteration.NOT_POSITIVE_DEFINITE:
                    self.journal.spent(*iteration.record.seconds)
                    told = {"iteration": self.iteration, **iteration.told(), "hessian": self.preferred.name}
                    self.journal.add(partial(iteration.trajectory, slot), **told)
                    self.iteration, slot = self.iteration + 1, iteration.slot
                if ended is not None:
                    return ended
        except KeyboardInterrupt:
            self._look_at(iteration, slot)
            raise
        self._look_at(iteration, slot)
        return status

    def _kkt_of(self, at: Residuals) -> float:
        """The scaled measure of the iterate of which these residuals are."""
        if isinstance(at, Iterate):
            return self._kkt(at)
        assert self.at_once is not None
        return self.at_once.kkt(self.at_once.slot)

    def _look_at(self, iteration: CompiledIteration, slot: int) -> None:
        """Take over where the calls led to."""
        self.policy, self.merit = iteration.policy if self.iteration else None, iteration.merit
        self.regularization = iteration.regularization(self.regularization)
        self.drift = iteration.drift
        self.iterate = iteration.iterate(slot)

    def _ended(self, iteration: CompiledIteration, code: int) -> Status:
        """What the last call said, which was the last one."""
        self._look_at(iteration, iteration.slot)
        o, told, self.policy = self.options, iteration.record, iteration.policy
        if code == iteration.NOT_POSITIVE_DEFINITE:
            return termination.not_positive_definite(told.failed_at, o.max_regularization, o.hessian)
        if code == iteration.NO_PROGRESS:
            return self._no_progress(iteration.best)
        status = termination.cost_converged(self.iteration + 1, told.change, o.cost_tolerance, told.kkt_new)
        if status.success:
            self.iterate = iteration.fresh or self.iterate
        return status

    def _attempt(self, at: Iterate) -> Attempt | Status:
        """The preferred model's step, or the best of all where it is spoiled, or where curves are searched and progress has become
        slow; last those that change Quu."""
        before, best = (self.merit, self.regularization), self._tried(at, self.preferred)
        self.slow = self.slow or isinstance(best, Status) or self._is_slow(at, best.search)
        others = [(model, False) for model in self.models if model is not self.preferred]
        for model, definite in [*others, *((model, True) for model in self.models if model.modifies)]:
            if not (isinstance(best, Status) or (self.slow if self.search.curved else best.spoiled)):
                break
            self.merit, self.regularization = before
            best = better(best, self._tried(at, model, definite, best))
        if not isinstance(best, Status):
            won = best.model is not self.preferred
            self.preferred = best.model if won else self._next(at, best.model, best.search)
        return best

    def _next(self, at: Iterate, model: Model, search: SearchResult) -> Model:
        """The model to prefer after a step of one: the last where that was slow."""
        return self.models[-1] if self._is_slow(at, search) else model

    def _is_slow(self, at: Iterate, search: SearchResult) -> bool:
        return search.actual < self.switch * abs(phi(self.merit, at))

    def _tried(
        self, at: Iterate, model: Model, definite: bool = False, rival: Attempt | Status | None = None
    ) -> Attempt | Status:
        """The step of a model, and the search along it, which ends where it is beaten by a rival."""
        step = self._direction(at, model, definite)
        if isinstance(step, Status):
            return step
        self.merit = self.merit.adapted(step.D1, step.D2, at.gap)
        mu, promise = self.regularization.mu, promised(self.merit, at, step)
        search, new = None, None
        if promise > ROUNDING:
            with self.journal.timed("rollout"):
                search = self.search.along(at, step, self.merit, self._bounds(at))
            if search.accepted and beaten(search, self.merit, rival):
                return Attempt(model, mu, step, search, False, None, self.merit, self.regularization)
            evaluator = self._next(at, model, search).evaluator
            new = self._expanded(search.xs, search.us, evaluator) if search.accepted else None
        polished = search is None or (new is None and promise <= NEAR_ROUNDING)
        if search is None or polished:
            with self.journal.timed("rollout"):
                tried = self.search.tried(at, step, POLISHING)
            expanded = partial(self._expanded, evaluator=model.evaluator)
            with self.journal.timed("backward"):
                search, new = self.search.polish(at, step, self.merit, tried, expanded, self._measure)
        return Attempt(model, mu, step, search, polished, new, self.merit, self.regularization)

    def _direction(self, at: Iterate, model: Model, definite: bool = False) -> Step | Status:
        """The solution of a model's LQ problem, with more regularization until Quu can be factorized.

        A model that can make Quu positive definite is left at the first failure: others come first.
        """
        o = self.options
        while True:
            with self.journal.timed("derivatives"):
                problem = model.problem(at, self._damping(at), definite)
            with self.journal.timed("backward"):
                policy, linear, D2 = self._lq_solution(at, problem)
            if policy.failed_at is None:
                with self.journal.timed("backward"):
                    return self.search.bent(at, step_of(at, policy, linear, D2, self.lq_solver), problem.lq)
            if self.regularization.saturated or model.modifies:
                return termination.not_positive_definite(policy.failed_at, o.max_regularization, o.hessian)
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
        if self.at_once is not None:
            policy = self.at_once.gains(self.at_once.slot_of(at), self.regularization.mu)
        else:
            damping = self._damping(at)
            model = self.models[-1 if self.slow or not self.search.curved else 0]
            policy = self.lq_solver.solve_riccati(model.problem(at, damping).lq, *damping)
        return policy if policy.failed_at is None else self.policy or policy

    def _bounds(self, at: Iterate) -> Bounds | None:
        """Bounds on du."""
        limits = self.ocp.control_bounds
        return None if limits is None else (limits[0] - at.us, limits[1] - at.us)

    def _judge(self, at: Iterate, new: Iterate | None, search: SearchResult, polished: bool) -> Status | None:
        """Adapt mu to the outcome; a status if the solve ends here."""
        o = self.options
        if self.best is None or not polished or at.stop < PROGRESS * self.best.stop:
            self.best, self.idle = at, 0
        self.idle += 1
        open_gaps = self.shooting.gaps == "linear" and len(self.shooting.nodes) > 0 and at.defect > o.defect_tolerance
        self.drift = self.drift.after(0.0 if new is None else search.alpha, at.gap) if open_gaps else Drift()
        if self.idle > MAX_IDLE or self.drift.over or (new is None and self.regularization.saturated):
            return self._no_progress(self.best)
        if new is None:
            self.regularization = self.regularization.raised()
            return None
        if search.long_and_good:
            self.regularization = self.regularization.lowered()
        change = abs(at.cost - new.cost)
        if change < o.cost_tolerance * abs(new.cost) and new.defect <= o.defect_tolerance:
            share = change / abs(new.cost)
            return termination.cost_converged(self.iteration + 1, share, o.cost_tolerance, self._kkt(new))
        return None

    def _no_progress(self, best: Iterate) -> Status:
        """The end of a search without success: rounding, if even the full step without mu promises next to nothing."""
        self.iterate = best
        self.regularization = Regularization.of(replace(self.options, initial_regularization=0.0))
        step = self._direction(best, self.models[0])
        if isinstance(step, Status):
            return step
        kkt = self._kkt(best)
        end = self._measured(best, kkt)._replace(iterations=self.iteration + 1)
        if kkt <= SOLVED or promised(self.merit, best, step) <= NEAR_ROUNDING:
            return termination.precision_limit(end)
        if self.drift.over:
            return termination.line_search_failed(termination.OPEN_DEFECTS, end)
        return shooting_diagnosis.no_step(self.ocp, best.expansion.lq, end)

    # -- the account ----------------------------------------------------------------------------------------------------
    def _record(self, at: Iterate, attempt: Attempt | None = None) -> None:
        """Tell of an iterate and the step from it, if there was one."""
        none = {"regularization": self.regularization.mu, "hessian": self.preferred.name, **NO_STEP}
        self.journal.add(
            lambda: (at.xs, at.us),
            iteration=self.iteration,
            cost=at.cost,
            merit=phi(self.merit, at),
            stop=at.stop,
            gradient=at.gradient,
            defect=at.defect,
            constraint_violation=violation(at.us, self.ocp.control_bounds),
            kkt=self._kkt(at),
            **(none if attempt is None else attempt.told()),
        )

    def _kkt(self, at: Iterate) -> float:
        """The scaled measure of optimality under the gains of the last policy."""
        calls = self.at_once
        with self.journal.timed("backward"):
            return self._measure(at, self.policy) if calls is None else calls.kkt(calls.slot_of(at))

    def _measure(self, at: Iterate, policy: Policy | None) -> float:
        K = None if policy is None else policy.K
        return scaled_kkt(at.expansion.lq, at.us, self.ocp.control_bounds, self.lq_solver, K)

    def _solution(self, status: Status, guess: Guess) -> Solution:
        if self.iterate is None:
            (xs, us), cost = guess, float("nan")
            N, nu = self.ocp.horizon, self.ocp.nu
            K, k = np.zeros((N, nu, self.ocp.manifold.ndx)), np.zeros((N, nu))
        else:
            xs, us, cost = self.iterate.xs, self.iterate.us, self.iterate.cost
            with self.journal.timed("backward"):
                K, k, *_ = self._final_policy(self.iterate)
        xs, us, K, k = map(np.array, (xs, us, K, k))
        return Solution(xs, us, K, k, status, cost, self.iteration, self.journal.history(), self.ocp.times)
