"""Regularization mu of Quu or V'xx: quadratic schedule of Y. Tassa, T. Erez, E. Todorov, IROS 2012, section II-F."""

from __future__ import annotations

from typing import NamedTuple

from trajopt.solvers.options import SLQOptions


class Regularization(NamedTuple):
    """Regularization mu and its rate of change delta; factor: delta_0; smallest, largest: range of nonzero mu."""

    mu: float
    delta: float
    factor: float
    smallest: float
    largest: float

    @classmethod
    def from_options(cls, options: SLQOptions) -> Regularization:
        """Return the initial state of the schedule."""
        factor, limits = options.regularization_factor, (options.min_regularization, options.max_regularization)
        return cls(options.initial_regularization, 1.0, factor, *limits)

    def raised(self) -> Regularization:
        """Increase: delta <- max(delta_0, delta delta_0), mu <- max(mu_min, mu delta), at most mu_max."""
        delta = max(self.factor, self.delta * self.factor)
        return self._replace(delta=delta, mu=min(max(self.smallest, self.mu * delta), self.largest))

    def lowered(self) -> Regularization:
        """Decrease: delta <- min(1/delta_0, delta/delta_0), mu <- mu delta, or 0 below mu_min."""
        mu, delta, factor, smallest, largest = self
        delta = min(1.0 / factor, delta / factor)
        mu *= delta
        return Regularization(mu if mu >= smallest else 0.0, delta, factor, smallest, largest)

    @property
    def saturated(self) -> bool:
        """True if mu has reached its maximum."""
        return self.mu >= self.largest
