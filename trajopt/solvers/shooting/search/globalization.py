"""Globalization of the shooting solvers: merit function, step acceptance, regularization schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.options import SLQOptions
from trajopt.stage.evaluation import Candidates

PENALTY_MARGIN = 0.1  # rho of Nocedal & Wright, eq. 18.36
MAX_CORRECTIONS = 4
"""Second-order corrections of a full step; each is one more step toward the closed-loop roll-out of the policy."""

ROUNDING = 1e-12
"""Expected decreases below this share of the merit are noise."""
NEAR_ROUNDING = 1e-8
"""Below this share, gradients have the last word where the merit refuses a step, or residuals where rows are violated."""
LOWER_AT, LOWER_RATIO = 0.5, 0.6
"""mu falls after a step longer than this that realized this share of its promise; it rises where no step is accepted."""
MAX_IDLE, PROGRESS = 20, 0.99
"""Iterations decided by gradients in which the residual does not fall below this share before giving up."""
DRIFTING, ADRIFT, CLOSING = 0.125, 20, 0.5
"""Linear gaps are given up after a row of ADRIFT steps no longer than DRIFTING in which they did not fall to the share CLOSING."""
POLISHING = 0.5 ** np.arange(4)
"""Step lengths tried near rounding level."""
STRETCHING = 2.0 ** np.arange(4)
"""Step lengths tried where a full step gained too much."""
TOO_MUCH = 1.5
"""A full step whose gain is that many times what the model promised met at most half of the curvature of the model."""


@dataclass(frozen=True)
class Merit:
    """phi = cost + penalty |d|_1, exact for a penalty above the largest multiplier (Nocedal & Wright, Theorem 17.3)."""

    penalty: float = 0.0

    def __call__(self, cost: Array | float, defects: Array) -> Array | float:
        """phi of trajectories with defects (..., N, ndx)."""
        return cost + self.penalty * np.abs(defects).sum(axis=(-2, -1))

    def adapted(self, D1: float, D2: float, gap: float) -> Merit:
        """The penalty for a step (D1, D2 of the cost) that closes gaps of l1 norm ``gap``: where it is one of descent.

        It only rises (Nocedal & Wright, eq. 18.36 and the remark after it). A penalty above the multipliers would do as
        well in theory; with contacts these are a thousand times larger, and it would forbid all but the shortest steps.
        """
        if gap == 0.0:
            return self
        needed = (D1 + 0.5 * max(D2, 0.0)) / ((1.0 - PENALTY_MARGIN) * gap)
        return replace(self, penalty=max(needed, self.penalty))

    def expected_decrease(self, alpha: Array | float, D1: float, D2: float, gap: float) -> Array | float:
        """The decrease of phi that the model expects along alpha times the step."""
        return -(alpha * D1 + 0.5 * alpha * alpha * D2) + alpha * self.penalty * gap


@dataclass(frozen=True)
class Regularization:
    """mu and its rate of change delta: the quadratic schedule of Tassa 2012, section II-F."""

    mu: float
    delta: float
    factor: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, options: SLQOptions) -> Regularization:
        """The start of the schedule."""
        return cls(
            options.initial_regularization,
            1.0,
            options.regularization_factor,
            options.min_regularization,
            options.max_regularization,
        )

    def raised(self) -> Regularization:
        """delta <- max(delta_0, delta delta_0), mu <- max(mu_min, mu delta), at most mu_max."""
        delta = max(self.factor, self.delta * self.factor)
        return replace(self, delta=delta, mu=min(max(self.smallest, self.mu * delta), self.largest))

    def lowered(self) -> Regularization:
        """delta <- min(1/delta_0, delta/delta_0), mu <- mu delta, or 0 below mu_min."""
        delta = min(1.0 / self.factor, self.delta / self.factor)
        mu = self.mu * delta
        return replace(self, delta=delta, mu=mu if mu >= self.smallest else 0.0)

    @property
    def saturated(self) -> bool:
        """Whether mu can rise no more."""
        return self.mu >= self.largest


@dataclass(frozen=True)
class Drift:
    """steps: short ones in a row with open gaps; gap: l1 norm of these where the row began, or where they had fallen last."""

    steps: int = 0
    gap: float = 0.0

    def after(self, alpha: float, gap: float) -> Drift:
        """What follows a step of a length, 0 for one that was refused, from an iterate with open gaps."""
        if alpha > DRIFTING:
            return Drift()
        if self.steps == 0 or gap < CLOSING * self.gap:
            return Drift(1, gap)
        return replace(self, steps=self.steps + 1)

    @property
    def over(self) -> bool:
        """Whether to give up."""
        return self.steps > ADRIFT


class SearchResult(NamedTuple):
    """An accepted (or the best refused) candidate of a line search: its step length, what was expected, what came."""

    accepted: bool
    alpha: float
    expected: float
    actual: float
    xs: Array
    us: Array
    defects: Array
    cost: float

    @property
    def good(self) -> bool:
        """Whether no shorter step need be looked at."""
        return self.accepted and self.actual >= LOWER_RATIO * self.expected

    @property
    def long_and_good(self) -> bool:
        """Whether mu falls."""
        return self.alpha > LOWER_AT and self.actual >= LOWER_RATIO * self.expected


def line_search(
    rollout: Callable[[Array], Candidates],
    merit: Merit,
    start: float,
    expected: Callable[[Array], Array],
    options: SLQOptions,
    corrected: Callable[[Candidates], Candidates] | None = None,
) -> SearchResult:
    """The longest of the steps 1, 1/2, 1/4, ... that realizes its share of the expected decrease of the merit.

    The full step is tried alone, then with second-order corrections while they help, then the others together as one
    batch. ``start`` is the merit at alpha = 0; ``corrected`` makes the next correction from what was tried last.
    One that realizes less than the share :data:`LOWER_RATIO` gives way to the next one while that gains more.  A full step
    that gains much more than it promised is stretched: Gauss-Newton's Hessian lacks curvature of either sign, and where that is
    negative it converges linearly, by steps that are too short.
    """
    alphas = 0.5 ** np.arange(options.max_backtracks + 1)
    tried = rollout(alphas[:1])
    full = best = _best(tried, alphas[:1], start, merit, expected, options)
    if full.accepted and full.actual >= TOO_MUCH * full.expected:
        return _stretched(rollout(STRETCHING), start, merit, full.expected)
    for _ in range(MAX_CORRECTIONS):
        if corrected is None or full.accepted or not np.isfinite(full.actual):
            break
        tried = corrected(tried)
        before, full = full, _best(tried, alphas[:1], start, merit, expected, options)
        if full.accepted:
            return full
        best = max(best, full, key=lambda result: result.actual)
        if full.actual < before.actual:
            break
    if best.good or len(alphas) == 1:
        return best
    return _best(rollout(alphas[1:]), alphas[1:], start, merit, expected, options, best)


def _stretched(c: Candidates, start: float, merit: Merit, expected: float) -> SearchResult:
    """The one of the longer steps, or the full one, with the lowest merit; expected: of the full one."""
    actual = _decreases(c, start, merit)
    i = int(np.argmax(actual))
    return SearchResult(
        True, float(STRETCHING[i]), expected, float(actual[i]), c.xs[i], c.us[i], c.defects[i], float(c.cost[i])
    )


def _decreases(c: Candidates, start: float, merit: Merit) -> Array:
    """The decreases of the merit, -inf where something is not finite."""
    actual = start - np.asarray(merit(c.cost, c.defects))
    finite = np.isfinite(c.xs).all(axis=(1, 2)) & np.isfinite(actual)
    return np.where(finite, actual, -np.inf)


def _best(
    c: Candidates,
    alphas: Array,
    start: float,
    merit: Merit,
    expected: Callable[[Array], Array],
    options: SLQOptions,
    best: SearchResult | None = None,
) -> SearchResult:
    """The first acceptable candidate, or one behind it while they gain more and it is not good; else the one with the lowest merit.

    best: of what was tried before.
    """
    hoped, actual = np.asarray(expected(alphas)), _decreases(c, start, merit)
    for i, alpha in enumerate(alphas):
        accepted = bool(actual[i] >= options.accept_ratio * hoped[i] > 0.0)
        if best is not None and best.accepted and not actual[i] > best.actual:
            break
        if best is None or (accepted and not best.accepted) or actual[i] > best.actual:
            accepted = accepted or (best is not None and best.accepted)
            numbers = float(alpha), float(hoped[i]), float(actual[i])
            best = SearchResult(accepted, *numbers, c.xs[i], c.us[i], c.defects[i], float(c.cost[i]))
        if best.good:
            break
    assert best is not None
    return best
