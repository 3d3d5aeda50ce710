"""Primal-dual logarithmic barrier for control bounds.

    phi = J - mu sum log((u - lower) / w) - mu sum log((upper - u) / w),   w = upper - lower

The primal-dual system eliminates the multipliers z = mu / slack: Newton's method gets the gradient -mu / slack and the curvature
z / slack, and all controls keep feedback gains. A step keeps at least the fraction 1 - TAU of each slack. The module
:mod:`trajopt.solvers.rules.barrier` updates mu. A guess moves away from its bounds (:func:`interior`). If a side is free, its
term is left out, and w = 1.

kernels/barrier.h is the C version for compiled problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem
from trajopt.solvers.rules.barrier import KAPPA_SIGMA, PUSH, TAU, WIDEST

HELD = 1e-7
"""A bound is active if the slack is at most this fraction of the range, and the multiplier times the range above mu / HELD."""


@dataclass
class Barrier:
    """Primal-dual barrier of control bounds lower, upper (N, m), infinite for a free side, with mu and multipliers z (2, N, m)."""

    lower: Array
    upper: Array
    mu: float
    z: Array

    @classmethod
    def at_controls(cls, bounds: tuple[Array, Array], us: Array, mu: float) -> Barrier:
        """Create the barrier at interior controls (N, m), with multipliers mu / slack."""
        barrier = cls(*bounds, mu, np.zeros((2, *us.shape)))
        barrier.z = mu / barrier.slacks(us)
        return barrier

    @property
    def width(self) -> Array:
        """Range upper - lower (N, m) of the controls; 1 where a side is free.

        It is limited to WIDEST max(1, magnitude of the nearer bound).
        """
        width = self.upper - self.lower
        nearer = np.maximum(1.0, np.minimum(np.abs(self.lower), np.abs(self.upper)))
        return np.where(np.isfinite(width), np.minimum(width, WIDEST * nearer), 1.0)

    def slacks(self, us: Array) -> Array:
        """Return the distances us - lower and upper - us of controls (..., N, m) from their bounds, (2, ..., N, m)."""
        return np.stack([us - self.lower, self.upper - us])

    def logs(self, us: Array) -> Array:
        """Return minus the sum of log(slack / range) over both bounds of all controls (..., N, m): the barrier (...) for mu = 1.

        Free sides count 0. The barrier is infinite if a control is on a bound or outside.
        """
        slacks = self.slacks(us) / self.width
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(np.isfinite(slacks), np.log(slacks), 0.0)
        total = -logs.sum(axis=(0, -2, -1))
        return np.where((slacks > 0.0).all(axis=(0, -2, -1)), total, np.inf)

    def imposed(self, lq: LQProblem, us: Array) -> LQProblem:
        """Return the LQ problem plus the barrier at controls us: its gradient -mu / slack (+mu / slack at upper bounds) in r, and
        its curvature z / slack on the diagonal of R.
        """
        slacks = self.slacks(us)
        push, curvature = self.mu / slacks, (self.z / slacks).sum(axis=0)
        R, i = lq.R.copy(), np.arange(us.shape[1])
        R[:, i, i] += curvature
        return lq._replace(R=R, r=lq.r - push[0] + push[1])

    def force(self) -> Array:
        """Return the bound multipliers' term in the Lagrangian's gradient in the controls, z_upper - z_lower (N, m)."""
        return self.z[1] - self.z[0]

    def products(self, us: Array) -> tuple[float, float]:
        """Return the smallest and largest product of a multiplier and its slack; (inf, -inf) without finite bounds."""
        slacks = self.slacks(us)
        finite = np.isfinite(slacks)
        product = self.z[finite] * slacks[finite]
        return float(product.min(initial=np.inf)), float(product.max(initial=-np.inf))

    def longest(self, us: Array, du: Array) -> float:
        """Return the largest step length, at most 1, that leaves the fraction 1 - TAU of every slack (fraction to the boundary)."""
        return _longest(self.slacks(us), np.stack([du, -du]))

    def stepped(self, us: Array, du: Array, new: Array) -> Array:
        """Return the multipliers (2, N, m) after their Newton step for a control step du (N, m) from us; ``new``: controls there.

        The fraction-to-the-boundary rule shortens the step of the multipliers. The results are clipped to at most KAPPA_SIGMA
        times, and at least 1 / KAPPA_SIGMA times, mu / slack at ``new``.
        """
        slacks, moves = self.slacks(us), np.stack([du, -du])
        dz = self.mu / slacks - self.z - self.z / slacks * moves
        ahead = self.mu / self.slacks(new)
        return np.clip(self.z + _longest(self.z, dz) * dz, ahead / KAPPA_SIGMA, ahead * KAPPA_SIGMA)

    def snapped(self, us: Array) -> tuple[Array, Array]:
        """Return the controls (N, m) with those at an active bound set to that bound, and a mask (N, m) of these.

        A bound is active if the slack is at most HELD times the range and the multiplier exceeds mu / (HELD range).
        """
        slacks = self.slacks(us)
        near = (slacks <= HELD * self.width) & (self.z * self.width > self.mu / HELD)
        return np.where(near[0], self.lower, np.where(near[1], self.upper, us)), near.any(axis=0)


def interior(us: Array, bounds: tuple[Array, Array]) -> Array:
    """Return controls (N, m) clipped to the interior of their bounds, PUSH min(max(1, |bound|), range) or more from each bound.

    IPOPT, section 3.6.
    """
    lower, upper = (
        bound
        + sign
        * PUSH
        * np.where(np.isfinite(bound), np.minimum(np.maximum(1.0, np.abs(bound)), bounds[1] - bounds[0]), 0.0)
        for sign, bound in zip((1.0, -1.0), bounds, strict=True)
    )
    return np.clip(us, lower, upper)


def _longest(values: Array, moves: Array) -> float:
    """Return the largest step length, at most 1, along ``moves`` that leaves the fraction 1 - TAU of positive ``values``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(moves < 0.0, -TAU * values / moves, 1.0)
    return float(min(1.0, np.nan_to_num(steps, nan=1.0).min(initial=1.0)))
