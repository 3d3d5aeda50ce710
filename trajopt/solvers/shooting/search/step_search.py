"""Searches along a step of a shooting solver: by the merit, and by gradients where costs differ by rounding only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy
from trajopt.lq.lq_solver import LQSolver
from trajopt.results.records import Journal
from trajopt.results.status import Status
from trajopt.solvers.options import DDPOptions, SLQOptions
from trajopt.solvers.shooting.ddp_model import Model
from trajopt.solvers.shooting.iterate import Iterate, Step, second_order, slope
from trajopt.solvers.shooting.search.curve import along_curve, bend_of, most_reduced
from trajopt.solvers.shooting.search.globalization import (
    POLISHING,
    ROUNDING,
    Merit,
    Regularization,
    SearchResult,
    line_search,
)
from trajopt.stage.evaluation import Candidates, Direction, Evaluator, Shooting

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

    def told(self) -> dict[str, Any]:
        """What an iteration's record says of the step."""
        size = max(float(np.abs(part).max(initial=0.0)) for part in self.step.linear)
        alpha = self.search.alpha if self.new is not None else 0.0
        return {
            "regularization": self.mu,
            "step_norm": alpha * size,
            "expected_decrease": self.search.expected,
            "actual_decrease": self.search.actual,
            "step_length": alpha,
            "hessian": self.model.name,
        }


NO_STEP = {"step_norm": 0.0, "expected_decrease": 0.0, "actual_decrease": 0.0, "step_length": 0.0}
"""What a record says of a step where there is none."""


def phi(merit: Merit, at: Iterate) -> float:
    """The merit of an iterate."""
    return at.cost + merit.penalty * at.gap


def promised(merit: Merit, at: Iterate, step: Step) -> float:
    """The expected decrease of the full step as a share of the merit."""
    hoped, now = abs(float(_expected(merit, at, step, np.ones(1))[0])), abs(phi(merit, at))
    return hoped / now if now else np.inf


def _expected(merit: Merit, at: Iterate, step: Step, alphas: Array) -> Array:
    return np.asarray(merit.expected_decrease(alphas, step.D1, step.D2, at.gap))


def better(one: Attempt | Status, other: Attempt | Status) -> Attempt | Status:
    """The attempt that reduces the merit more; where the other has led nowhere, or was beaten() by the one, the one."""
    if isinstance(other, Status) or (other.new is None and not isinstance(one, Status)):
        return one
    return one if beaten(other.search, other.merit, one) else other


def beaten(search: SearchResult, merit: Merit, by: Attempt | Status | None) -> bool:
    """Whether an attempt has reduced the merit as much as what a search with this merit found, as the larger penalty of both
    measures it."""
    if by is None or isinstance(by, Status) or by.new is None:
        return False
    merit = max(by.merit, merit, key=lambda m: m.penalty)
    return float(merit(by.search.cost, by.search.defects)) <= float(merit(search.cost, search.defects))


class StepSearch:
    """Searches of one solve; shooting: the nodes, and how their gaps close; journal: times corrections and bends."""

    def __init__(
        self,
        evaluator: Evaluator,
        lq_solver: LQSolver,
        options: SLQOptions,
        shooting: Shooting,
        journal: Journal,
    ) -> None:
        self.evaluator, self.lq_solver, self.options, self.shooting = evaluator, lq_solver, options, shooting
        self.journal = journal

    @property
    def curved(self) -> bool:
        """Whether steps are searched along parabolas too, where those of all models compete once progress is slow."""
        return isinstance(self.options, DDPOptions) and self.options.search == "curve"

    def bent(self, at: Iterate, step: Step, lq: LQProblem) -> Step:
        """The step with its bend where curves are searched; lq: what it solves. Bounds on the controls are kept by roll-outs."""
        bend = bend_of(at, step, lq, self.evaluator, self.lq_solver) if self.curved else None
        return step._replace(bend=bend)

    def tried(self, at: Iterate, step: Step, alphas: Array, bend: LQStep | None = None) -> Candidates:
        """Trajectories along a step, or along the parabola that it begins."""
        direction = Direction(*step.linear, step.policy.K, at.expansion.lq.d, bend)
        return self.evaluator.rollout(at.xs, at.us, direction, alphas, self.shooting)

    def along(self, at: Iterate, step: Step, merit: Merit, bounds: Bounds | None) -> SearchResult:
        """The line search on the merit; bounds: on du."""
        if self.curved:
            tries = [
                (alphas, self.tried(at, step, alphas, bend))
                for alphas, bend in along_curve(step, self.options.max_backtracks)
            ]
            return most_reduced(tries, merit, phi(merit, at), lambda a: _expected(merit, at, step, a), self.options)
        current = step

        def corrected(last: Candidates) -> Candidates:
            nonlocal current
            with self.journal.timed("backward"):
                current = second_order(at, current, last.defects[0], self.lq_solver, bounds)
            return self.tried(at, current, np.ones(1))

        may_correct = self.shooting.gaps == "linear" and len(self.shooting.nodes) > 0
        return line_search(
            lambda alphas: self.tried(at, step, alphas),
            merit,
            phi(merit, at),
            lambda alphas: _expected(merit, at, step, alphas),
            self.options,
            corrected if may_correct else None,
        )

    def polish(
        self,
        at: Iterate,
        step: Step,
        merit: Merit,
        tried: Candidates,
        expanded: Callable[[Array, Array], Iterate | None],
        measure: Callable[[Iterate, Policy], float],
    ) -> tuple[SearchResult, Iterate | None]:
        """The longest of a few steps that reduces the measure of optimality, or the cost as told by the gradients at both ends.

        tried: the trajectories of :data:`POLISHING`; measure: under the policy of the step, see
        :mod:`trajopt.solvers.shooting.optimality`. The trapezoidal rule on the slope of the cost along the step is free of the
        cancellation in a difference of costs; the cost itself may rise by noise only (compare the approximate Wolfe conditions of
        Hager & Zhang, SIAM J. Optim. 16, 2005, eq. 4.1).
        """
        expected = _expected(merit, at, step, POLISHING)
        risen = tried.cost - at.cost > 10.0 * ROUNDING * abs(phi(merit, at))
        before, policy = measure(at, step.policy), step.policy
        for i, alpha in enumerate(POLISHING):
            new, actual, good = expanded(tried.xs[i], tried.us[i]), -np.inf, False
            if new is not None:
                left = (1.0 - alpha) * at.expansion.lq.d
                slopes = step.D1 + slope(new.expansion.lq, policy.K, step.linear, left, self.lq_solver)
                actual = float(-0.5 * alpha * slopes + merit.penalty * alpha * at.gap)
                sufficient = actual >= self.options.accept_ratio * expected[i] > 0.0
                closed = new.defect <= max(at.defect, self.options.defect_tolerance)
                good = bool(not risen[i] and (measure(new, policy) < before or (sufficient and closed)))
            result = SearchResult(good, float(alpha), float(expected[i]), actual, *(block[i] for block in tried))
            if good:
                return result, new
        return result, None
