"""Hand-derived dynamics and derivatives of the cart-pendulum, the reference for all methods.

A cart of mass M on a rail along x carries a pendulum: mass m at distance l from its hinge, moment of inertia I about its center,
angle b from upright about y. From the Lagrangian with kinetic energy

    T = M (xdot^2 + zdot^2) / 2 + J phidot^2 / 2 + m ((xdot + l c bdot)^2 + (zdot - l s bdot)^2) / 2 + I bdot^2 / 2

and potential M g z + m g (z + l c), c = cos b, s = sin b: in minimal coordinates q = (x, b), z = phi = 0; as a free body
q = (x, z, phi, theta) with b = phi + theta and the cart's moment of inertia J. On its rail, zddot = phiddot = 0.

Arrays have the samples last: q, v, x (n, N); matrices (n, n, N); derivatives [i][j] (n, n, N) in the j-th coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Derivatives(NamedTuple):
    """Value (n, N) of a function, and its derivatives (n, n, N) in q, v and its third argument."""

    value: Array
    dq: Array
    dv: Array
    dx: Array


@dataclass(frozen=True)
class CartPendulum:
    """Masses [kg], length [m], moments of inertia [kg m^2]; free: four coordinates instead of two."""

    M: float = 10.0
    m: float = 1.0
    l: float = 0.5
    I: float = 0.4 * 0.1**2
    J: float = 10.0 * (0.5**2 + 0.2**2) / 12.0
    g: float = 9.81
    free: bool = False

    @property
    def n(self) -> int:
        """Degrees of freedom."""
        return 4 if self.free else 2

    @property
    def swing(self) -> Array:
        """db/dq (n,)."""
        return np.array([0.0, 0.0, 1.0, 1.0]) if self.free else np.array([0.0, 1.0])

    def _sides(self, q: Array) -> tuple[Array, Array]:
        """Return m l cos b and m l sin b, each (N,)."""
        b = self.swing @ q
        return self.m * self.l * np.cos(b), self.m * self.l * np.sin(b)

    def _matrix(self, along: Array, up: Array, angular: float, cart: float) -> Array:
        """Assemble a matrix from its entries (x, b), (z, b) and (b, b), and a factor of the constant entries."""
        e = self.swing
        H = np.zeros((self.n, self.n, len(along)))
        H += angular * np.outer(e, e)[..., None]
        translations = [(0, along)] + ([(1, up)] if self.free else [])
        for i, entry in translations:
            H[i, i] += cart * (self.M + self.m)
            H[i] += e[:, None] * entry
            H[:, i] += e[:, None] * entry
        if self.free:
            H[2, 2] += cart * self.J
        return H

    def mass_matrix(self, q: Array) -> tuple[Array, Array]:
        """Return H (n, n, N) and dH/db; dH/dq_j = swing_j dH/db."""
        c, s = self._sides(q)
        return self._matrix(c, -s, self.m * self.l**2 + self.I, 1.0), self._matrix(-s, -c, 0.0, 0.0)

    def bias(self, q: Array, v: Array) -> Derivatives:
        """Return generalized forces at zero acceleration and their derivatives; dx is zero."""
        (c, s), rate = self._sides(q), self.swing @ v
        value, in_b, in_rate = np.zeros((3, self.n, q.shape[1]))
        value[0], in_b[0], in_rate[0] = -s * rate**2, -c * rate**2, -2.0 * s * rate
        if self.free:
            value[1] = -c * rate**2 + (self.M + self.m) * self.g
            in_b[1], in_rate[1] = s * rate**2, -2.0 * c * rate
        value -= self.swing[:, None] * self.g * s
        in_b -= self.swing[:, None] * self.g * c
        dq, dv = self._derivative_in_q(in_b), self._derivative_in_q(in_rate)
        return Derivatives(value, dq, dv, np.zeros((self.n, self.n, q.shape[1])))

    def _derivative_in_q(self, in_b: Array) -> Array:
        """Convert a derivative in b (n, N) to a derivative in q (n, n, N)."""
        return in_b[:, None] * self.swing[:, None]

    def inverse_dynamics(self, q: Array, v: Array, a: Array) -> Derivatives:
        """Return generalized forces of given accelerations, with derivatives."""
        (H, H_b), h = self.mass_matrix(q), self.bias(q, v)
        return Derivatives(_times(H, a) + h.value, self._derivative_in_q(_times(H_b, a)) + h.dq, h.dv, H)

    def forward_dynamics(self, q: Array, v: Array, tau: Array) -> Derivatives:
        """Return accelerations of all coordinates, with derivatives."""
        return self._solve(q, v, tau, np.arange(self.n))

    def constrained_dynamics(self, q: Array, v: Array, tau: Array) -> Derivatives:
        """Return accelerations (4, N) of the free model, whose cart neither rises nor pitches, with derivatives."""
        return self._solve(q, v, tau, np.array([0, 3]))

    def _solve(self, q: Array, v: Array, tau: Array, moving: Array) -> Derivatives:
        """Solve for the accelerations of the moving coordinates; those of the others are zero."""
        zero = np.zeros_like(tau)
        h = self.inverse_dynamics(q, v, zero)
        block = h.dx[np.ix_(moving, moving)]
        inverse = np.moveaxis(np.linalg.inv(np.moveaxis(block, 2, 0)), 0, 2)
        acceleration = zero.copy()
        acceleration[moving] = _times(inverse, (tau - h.value)[moving])
        at = self.inverse_dynamics(q, v, acceleration)
        N = q.shape[1]
        dq, dv, dx = np.zeros((3, self.n, self.n, N))
        dq[moving] = -np.einsum("ikN,kjN->ijN", inverse, at.dq[moving])
        dv[moving] = -np.einsum("ikN,kjN->ijN", inverse, at.dv[moving])
        dx[np.ix_(moving, moving)] = inverse
        return Derivatives(acceleration, dq, dv, dx)


def _times(A: Array, x: Array) -> Array:
    return np.einsum("ijN,jN->iN", A, x)
