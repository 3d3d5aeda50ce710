"""Bounds on the controls as a logarithmic barrier with multipliers of its own.

    phi = J - mu sum log((u - lower) / w) - mu sum log((upper - u) / w),   w = upper - lower

The primal-dual system eliminates the multipliers z = mu / slack, so that Newton's method sees the gradient -mu / slack and the
curvature z / slack, and all controls keep their feedback.  Steps stop short of a bound by the share 1 - TAU of the slack; how mu
falls: :mod:`trajopt.solvers.rules.barrier`.  A guess is moved into the interior by the share PUSH of the range.

kernels/barrier.h has the same for compiled problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem
from trajopt.solvers.barrier_rules import KAPPA_SIGMA, PUSH, TAU

HELD = 1e-7
"""A control whose slack is below this share of its range, and whose multiplier says so too, is on its bound."""


@dataclass
class Barrier:
    """lower, upper (N, m), infinite where a side is free; mu; multipliers z (2, N, m) of both sides."""

    lower: Array
    upper: Array
    mu: float
    z: Array

    @classmethod
    def of(cls, bounds: tuple[Array, Array], us: Array, mu: float) -> Barrier:
        """The barrier at controls (N, m) in the interior, with multipliers mu / slack."""
        barrier = cls(*bounds, mu, np.zeros((2, *us.shape)))
        barrier.z = mu / barrier.slacks(us)
        return barrier

    @property
    def width(self) -> Array:
        """w (N, m), 1 where a side is free."""
        width = self.upper - self.lower
        return np.where(np.isfinite(width), width, 1.0)

    def slacks(self, us: Array) -> Array:
        """Distances from both sides, (2, ..., N, m)."""
        return np.stack([us - self.lower, self.upper - us])

    def logs(self, us: Array) -> Array:
        """The barrier of controls (..., N, m) for mu = 1, infinite outside of the interior."""
        slacks = self.slacks(us) / self.width
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(np.isfinite(slacks), np.log(slacks), 0.0)
        total = -logs.sum(axis=(0, -2, -1))
        return np.where((slacks > 0.0).all(axis=(0, -2, -1)), total, np.inf)

    def imposed(self, lq: LQProblem, us: Array) -> LQProblem:
        """The LQ problem with the gradient and the curvature of the barrier."""
        slacks = self.slacks(us)
        push, curvature = self.mu / slacks, (self.z / slacks).sum(axis=0)
        R, i = lq.R.copy(), np.arange(us.shape[1])
        R[:, i, i] += curvature
        return lq._replace(R=R, r=lq.r - push[0] + push[1])

    def force(self) -> Array:
        """What the multipliers add to the gradient in the controls, (N, m)."""
        return self.z[1] - self.z[0]

    def products(self, us: Array) -> tuple[float, float]:
        """The least and the greatest product of a multiplier and its slack; infinite and minus infinite where no side
        is bounded.
        """
        slacks = self.slacks(us)
        finite = np.isfinite(slacks)
        product = self.z[finite] * slacks[finite]
        return float(product.min(initial=np.inf)), float(product.max(initial=-np.inf))

    def longest(self, us: Array, du: Array) -> float:
        """The longest step that leaves the share 1 - TAU of every slack."""
        return _longest(self.slacks(us), np.stack([du, -du]))

    def stepped(self, us: Array, du: Array, new: Array) -> Array:
        """The multipliers behind their own step, for a control step du (N, m) from us; ``new``: the controls accepted."""
        slacks, moves = self.slacks(us), np.stack([du, -du])
        dz = self.mu / slacks - self.z - self.z / slacks * moves
        ahead = self.mu / self.slacks(new)
        return np.clip(self.z + _longest(self.z, dz) * dz, ahead / KAPPA_SIGMA, ahead * KAPPA_SIGMA)

    def snapped(self, us: Array) -> tuple[Array, Array]:
        """Controls (N, m) with those on their bounds that multipliers hold there, and which these are."""
        slacks = self.slacks(us)
        near = (slacks <= HELD * self.width) & (self.z * self.width > self.mu / HELD)
        return np.where(near[0], self.lower, np.where(near[1], self.upper, us)), near.any(axis=0)


def interior(us: Array, bounds: tuple[Array, Array]) -> Array:
    """Controls (N, m) moved into the interior."""
    lower, upper = bounds
    width = np.where(np.isfinite(upper - lower), upper - lower, np.maximum(1.0, np.abs(us)))
    return np.clip(us, lower + PUSH * width, upper - PUSH * width)


def _longest(values: Array, moves: Array) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(moves < 0.0, -TAU * values / moves, 1.0)
    return float(min(1.0, np.nan_to_num(steps, nan=1.0).min(initial=1.0)))
