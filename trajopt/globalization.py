"""Globalisation of the shooting solvers: merit function, step acceptance, regularisation schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.evaluation import Candidates
from trajopt.options import SLQOptions

PENALTY_MARGIN = 0.1  # rho of Nocedal & Wright, eq. 18.36


@dataclass(frozen=True)
class Merit:
    """phi = cost + penalty |d|_1, exact for a penalty above the largest multiplier (Nocedal & Wright, Theorem 18.2)."""

    penalty: float = 0.0

    def __call__(self, cost: Array | float, defects: Array) -> Array | float:
        """phi of trajectories with defects (..., N, ndx)."""
        return cost + self.penalty * np.abs(defects).sum(axis=(-2, -1))

    def raised(self, D1: float, D2: float, gap: float) -> Merit:
        """A penalty with which the step (D1, D2 of the cost, closing gaps of l1 norm ``gap``) is one of descent.

        Nocedal & Wright, eq. 18.36. Gaps at rounding level ask for nothing.
        """
        if gap <= _ROUNDING_GAP:
            return self
        needed = (D1 + 0.5 * max(D2, 0.0)) / ((1.0 - PENALTY_MARGIN) * gap)
        return self if needed <= self.penalty else Merit(2.0 * needed)

    def expected_decrease(self, alpha: Array | float, D1: float, D2: float, gap: float) -> Array | float:
        """Of phi, along alpha times the step."""
        return -(alpha * D1 + 0.5 * alpha * alpha * D2) + alpha * self.penalty * gap


_ROUNDING_GAP = 1e-12


@dataclass(frozen=True)
class Regularisation:
    """mu and its rate of change delta: the quadratic schedule of Tassa 2012, section II-F."""

    mu: float
    delta: float
    factor: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, options: SLQOptions) -> Regularisation:
        """The start of the schedule."""
        return cls(
            options.initial_regularisation,
            1.0,
            options.regularisation_factor,
            options.min_regularisation,
            options.max_regularisation,
        )

    def raised(self) -> Regularisation:
        """delta <- max(delta_0, delta delta_0), mu <- max(mu_min, mu delta)."""
        delta = max(self.factor, self.delta * self.factor)
        return replace(self, delta=delta, mu=max(self.smallest, self.mu * delta))

    def lowered(self) -> Regularisation:
        """delta <- min(1/delta_0, delta/delta_0), mu <- mu delta, or 0 below mu_min."""
        delta = min(1.0 / self.factor, self.delta / self.factor)
        mu = self.mu * delta
        return replace(self, delta=delta, mu=mu if mu >= self.smallest else 0.0)

    @property
    def saturated(self) -> bool:
        """Whether mu is beyond its largest value."""
        return self.mu > self.largest


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


def line_search(
    rollout: Callable[[Array], Candidates],
    merit: Merit,
    start: float,
    expected: Callable[[Array], Array],
    options: SLQOptions,
) -> SearchResult:
    """The longest of the steps 1, 1/2, 1/4, ... that realises its share of the expected decrease of the merit.

    The full step is tried alone, the others together as one batch. ``start`` is the merit at alpha = 0.
    """
    alphas = 0.5 ** np.arange(options.max_backtracks + 1)
    result = None
    for batch in (alphas[:1], alphas[1:]):
        if not len(batch):
            continue
        candidates = rollout(batch)
        hoped = np.asarray(expected(batch))
        actual = start - np.asarray(merit(candidates.cost, candidates.defects))
        actual[~np.isfinite(candidates.xs).all(axis=(1, 2))] = -np.inf
        actual[np.isnan(actual)] = -np.inf
        good = (actual >= options.accept_ratio * hoped) & (hoped > 0)
        i = int(np.argmax(good)) if good.any() else int(np.argmax(actual))
        found = _picked(candidates, i, bool(good.any()), batch, hoped, actual)
        if found.accepted:
            return found
        result = found if result is None or found.actual > result.actual else result
    assert result is not None
    return result


def _picked(c: Candidates, i: int, accepted: bool, alphas: Array, expected: Array, actual: Array) -> SearchResult:
    numbers = float(alphas[i]), float(expected[i]), float(actual[i])
    return SearchResult(accepted, *numbers, c.xs[i], c.us[i], c.defects[i], float(c.cost[i]))
