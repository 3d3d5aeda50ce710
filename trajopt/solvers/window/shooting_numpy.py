"""NumPy answers to shooting methods, for uncompiled functions, for several models, and as the reference of the C kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.lq.lq import Bounds, LQStep, Policy, curvature_along
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.ocp import OCP
from trajopt.results.records import Journal
from trajopt.solvers.methods.requests import Solved
from trajopt.solvers.methods.shooting_requests import (
    MARK,
    STAY,
    Back,
    Choose,
    Correct,
    Direction,
    Expand,
    Gains,
    Go,
    Kkt,
    Optimality,
    Point,
    Rate,
    Roll,
    Start,
    Step,
)
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules.line_search import Trial
from trajopt.solvers.shooting import iterate
from trajopt.solvers.shooting.ddp_model import Damping, Model, Problem
from trajopt.solvers.shooting.iterate import (
    Iterate,
    measured,
    optimality,
    parabola_of,
    rolled_out,
    second_order,
    slope,
    step_of,
    violation,
)
from trajopt.solvers.window.slots import Answering
from trajopt.stage.evaluation import Candidates, Direction as Along, Evaluator, Shooting

REFUSED = Trial(np.inf, np.inf)


class _Place:
    """Storage of a step, its correction, its last trial trajectories, and the next iterate."""

    step: iterate.Step
    corrected: iterate.Step
    trials: Candidates
    next: Iterate | None = None


class ShootingNumpy(Answering):
    """Iterates and steps of a shooting method for one problem; NumPy answers its requests.

    models: LQ models that yield the directions. journal: times the work. curved: also give each step a parabola that starts along
    the step, for rollouts along curves.
    """

    def __init__(
        self,
        ocp: OCP,
        evaluator: Evaluator,
        options: SLQOptions,
        models: Sequence[Model],
        journal: Journal,
        *,
        curved: bool = False,
    ) -> None:
        self.ocp, self.options, self.journal = ocp, options, journal
        self._evaluator, self._models, self._curved = evaluator, models, curved
        self._shooting = Shooting.every(options.shooting, ocp.horizon, options.gaps)
        self._places, self._chosen = (_Place(), _Place()), 0
        self._policy: Policy | None = None
        self._at: Iterate | None = None
        self._best: Iterate | None = None
        self._answers = {
            Start: lambda _: self._start(),
            Direction: self._direction,
            Roll: self._roll,
            Correct: self._correct,
            Expand: self._expand,
            Rate: self._rate,
            Choose: self._choose,
            Go: lambda r: self._go(r.going),
            Back: lambda _: self._back(),
            Kkt: lambda _: self._optimality(self.at, self._policy),
            Gains: self._gains,
        }

    def take(self, ocp: OCP, guess: Guess) -> None:
        """Store a guess for the next start. The problem is that of the constructor."""
        self._guess = guess

    @property
    def at(self) -> Iterate:
        """The current iterate."""
        assert self._at is not None
        return self._at

    @property
    def trajectory(self) -> tuple[Array, Array]:
        """States and controls of the current iterate; without a finite start, of the rolled-out guess."""
        return self._tried_start if self._at is None else (self._at.xs, self._at.us)

    @property
    def cost(self) -> float:
        """Cost of the current iterate."""
        return float(self.at.cost)

    def solution(self) -> Solved:
        """Return a copy of the current iterate, with the gains of the last :class:`Gains` request."""
        return Solved(*map(np.array, (*self.trajectory, self.K, self.k)))

    # -- iterates -----------------------------------------------------------------------------------------------------------
    def _start(self) -> Point:
        """Roll out the guess from x0 and between nodes, with controls clipped to bounds, and expand there; return its errors.

        If it diverges, feedback may hold it near the guess. Without a finite expansion there is no current iterate.
        """
        xs, us = np.array(self._guess.xs, dtype=float), np.array(self._guess.us, dtype=float)
        xs[0] = self.ocp.x0
        if self.ocp.control_bounds is not None:
            us = np.clip(us, *self.ocp.control_bounds)
        still = Shooting(self._shooting.nodes, "linear")
        with self.journal.timed("rollout"):
            self._tried_start = rolled_out(xs, us, still, self._evaluator, self.journal)
        self._at = self._expanded(*self._tried_start, self._first_evaluator())
        return self._point(self._at)

    def _first_evaluator(self) -> Evaluator:
        """Return the evaluator of the first model; of the last one if the option ``switch`` is at least 1."""
        switch = getattr(self.options, "switch", 0.0)
        return self._models[-1 if switch >= 1.0 else 0].evaluator

    def _expanded(self, xs: Array, us: Array, evaluator: Evaluator) -> Iterate | None:
        """Expand about a trajectory; return the iterate, or None if the expansion is not finite."""
        with self.journal.timed("derivatives"):
            expansion = evaluator.expand(xs, us)
        with self.journal.timed("backward"):
            return measured(xs, us, expansion, evaluator, self.ocp.control_bounds)

    def _point(self, at: Iterate | None) -> Point:
        """Return the errors of an iterate; for None, NaN and finite = False."""
        if at is None:
            return Point(False, *[np.nan] * 5)
        return Point(True, float(at.cost), at.gradient, at.defect, at.gap, violation(at.us, self.ocp.control_bounds))

    def _expand(self, r: Expand) -> Point:
        """Make a trial of a place its next iterate, expanded with the evaluator of a model; return its errors.

        If the expansion is not finite, there is no next iterate.
        """
        place = self._places[r.place]
        row = place.trials.xs[r.row], place.trials.us[r.row]
        place.next = self._expanded(*row, self._models[r.model].evaluator)
        return self._point(place.next)

    def _go(self, going: int) -> None:
        """Move to the next iterate of the chosen place. STAY: do not move. MARK: first store the current one as the best."""
        if going == STAY:
            return
        if going == MARK:
            self._best = self._at
        self._at = self._places[self._chosen].next

    def _back(self) -> None:
        """Return to the best iterate."""
        self._at = self._best

    def _optimality(self, at: Iterate, policy: Policy | None) -> Optimality:
        """Return scaled KKT error and largest gradient entry of an iterate under the gains of a policy (None: no gains)."""
        with self.journal.timed("backward"):
            K = None if policy is None else policy.K
            return Optimality(*optimality(at.expansion.lq, at.us, self.ocp.control_bounds, K))

    def _rate(self, r: Rate) -> tuple[float, float]:
        """Return the scaled KKT error of the next iterate under the policy of the step, and the slope of the cost there.

        The slope is that along the step, and includes closing the gaps that a step of length alpha leaves open.
        """
        place, at = self._places[r.place], self.at
        new, step = place.next, place.step
        assert new is not None
        with self.journal.timed("backward"):
            left = (1.0 - r.alpha) * at.expansion.lq.d
            along = slope(new.expansion.lq, step.policy.K, step.linear, left)
        return self._optimality(new, step.policy).kkt, along

    # -- steps --------------------------------------------------------------------------------------------------------------
    def _bounds(self) -> Bounds | None:
        """Return the bounds on du at the current controls; None without bounds."""
        limits, us = self.ocp.control_bounds, self.at.us
        return None if limits is None else (limits[0] - us, limits[1] - us)

    def _direction(self, r: Direction) -> Step:
        """Move as requested, solve the LQ problem of a model, store its step in a place, and roll out the full step if requested.

        Returns D1, D2 and size of the step, the scaled KKT error of the current iterate under its gains, and the trial (infinite
        if not rolled out). If Quu cannot be factorized at a knot, only that knot is returned, with zeros and an infinite trial.
        In a curved search, the step gets a parabola. A single model's policy becomes the last policy.
        """
        self._go(r.going)
        at, place = self.at, self._places[r.place]
        damping = Damping(r.mu, self.options.regularize, self._bounds())
        with self.journal.timed("derivatives"):
            problem = self._models[r.model].problem(at, damping, r.definite)
        with self.journal.timed("backward"):
            policy, linear, D2 = self._lq_solution(problem, damping)
        if policy.failed_at is not None:
            return Step(policy.failed_at, 0.0, 0.0, 0.0, 0.0, REFUSED)
        with self.journal.timed("backward"):
            place.step = step_of(at, policy, linear, D2)
            if self._curved:
                parabola = parabola_of(at, place.step, problem.lq, self._evaluator)
                place.step = place.step._replace(parabola=parabola)
        if len(self._models) == 1:
            self._policy = policy
        size = max(float(np.abs(part).max(initial=0.0)) for part in linear)
        trial = self._rolled(place, place.step, np.ones(1))[0] if r.rolled else REFUSED
        return Step(-1, place.step.D1, float(D2), size, self._optimality(at, policy).kkt, trial)

    def _lq_solution(self, problem: Problem, damping: Damping) -> tuple[Policy, LQStep, float]:
        """Solve an LQ problem, within the bounds on du if there are any; return the policy, its linear step and D2.

        D2 is the second derivative of the LQ cost along the step. Without bounds, a policy that came with the problem is used. On
        parabolas, rollouts enforce the control bounds.
        """
        lq, policy = problem
        if damping.bounds is not None:
            policy, linear = shared_lq().solve_bounded(lq, damping.bounds, damping.mu, damping.regularize)
            return policy, linear, curvature_along(lq, linear)
        policy = policy or shared_lq().solve_riccati(lq, damping.mu, damping.regularize)
        linear, (_, D2) = shared_lq().forward(lq, policy)
        return policy, linear, D2

    def _choose(self, r: Choose) -> None:
        """Choose the place whose next iterate GO moves to; its policy becomes the last policy."""
        self._chosen, self._policy = r.place, self._places[r.place].step.policy

    def _rolled(self, place: _Place, step: iterate.Step, alphas: Array, parabola: LQStep | None = None) -> list[Trial]:
        """Roll out a step with several lengths, or along its parabola, store the trajectories in a place, and return the trials.

        A trial is the cost and the l1 norm of the gaps, infinite if states are not finite.
        """
        at = self.at
        with self.journal.timed("rollout"):
            along = Along(*step.linear, step.policy.K, at.expansion.lq.d, parabola)
            place.trials = tried = self._evaluator.rollout(at.xs, at.us, along, alphas, self._shooting)
        finite = np.isfinite(tried.xs).all(axis=(1, 2))
        gaps = np.where(finite, np.abs(tried.defects).sum(axis=(1, 2)), np.inf)
        return [Trial(float(cost), float(gap)) for cost, gap in zip(tried.cost, gaps, strict=True)]

    def _roll(self, r: Roll) -> list[Trial]:
        """Roll out the step in a place, or its parabola, with ``count`` lengths 2^-i from i = first on; [] without a parabola."""
        place = self._places[r.place]
        parabola = place.step.parabola if r.parabolic else None
        if r.parabolic and parabola is None:
            return []
        return self._rolled(place, place.step, 0.5 ** np.arange(r.first, r.first + r.count, dtype=float), parabola)

    def _correct(self, r: Correct) -> Trial:
        """Second-order correction of the step in a place: close the gaps of its last trial (row 0) too.

        If requested, it starts from the last correction instead of the step. Rolls out the full step and returns the trial.
        """
        place = self._places[r.place]
        last = place.corrected if r.again else place.step
        with self.journal.timed("backward"):
            place.corrected = second_order(self.at, last, place.trials.defects[0], self._bounds())
        return self._rolled(place, place.corrected, np.ones(1))[0]

    def _gains(self, r: Gains) -> None:
        """Set the gains of the solution by a Riccati sweep on the LQ problem of a model.

        If Quu cannot be factorized, they are those of the last policy, or without one those of the failed sweep.
        """
        damping = Damping(r.mu, self.options.regularize, self._bounds())
        with self.journal.timed("backward"):
            lq = self._models[r.model].problem(self.at, damping).lq
            policy = shared_lq().solve_riccati(lq, *damping)
        if policy.failed_at is not None:
            policy = self._policy or policy
        self.K, self.k = policy.K, policy.k
