"""What happens at the knots of a problem on a vector space: time steps, costs and constraints, of all knots as one batch.

    values    x_next, l, g           first    with d x_next, dl, dg           second    Hessian of sigma l + lam' x_next + y'g

The final knot has no time step and no controls. Another engine offers the same three methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array, Hessians, Parameters
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import contracted_hessian, quadratize, residual_batch, residual_jacobians, term_value
from trajopt.problem.ocp import DiscreteMap
from trajopt.problem.terms import CostTerm
from trajopt.step.contraction import contraction_of

CHART, NEXT_CHART = "chart", "next chart"
"""Parameters: the states (nx,) about which delta and delta_next are taken."""


class KnotValues(NamedTuple):
    """x_next (N, n), cost (N,), constraints g (N, ng); n is 0 for the final knot."""

    x_next: Array
    cost: Array
    g: Array


class KnotDerivatives(NamedTuple):
    """The values, A (N, n, n), B (N, n, m), gradients lx (N, n), lu (N, m), gx (N, ng, n), gu (N, ng, m)."""

    values: KnotValues
    A: Array
    B: Array
    lx: Array
    lu: Array
    gx: Array
    gu: Array


class Knots(Protocol):
    """Knots that share dynamics, cost terms and constraints."""

    def values(self, x: Array, u: Array) -> KnotValues:
        """Values at x (N, n), u (N, m)."""
        ...

    def first(self, x: Array, u: Array) -> KnotDerivatives:
        """Values and first derivatives."""
        ...

    def second(self, x: Array, u: Array, sigma: float, lam: Array, y: Array) -> Hessians:
        """The Hessian of sigma l + lam' x_next + y'g for lam (N, n), y (N, ng)."""
        ...


class NumpyKnots:
    """Knots evaluated term by term.

    dynamics: None for the final knot. t (N,) and dt (N,) [s]. nu: length of u. hessian: "exact" or "gauss_newton", which
    leaves out the curvature of dynamics and constraints; "scqp", which keeps what is convex of a constraint's outer function
    (:class:`~trajopt.problem.constraints.Composition`). scale (N,): of the cost, default dt.
    """

    def __init__(
        self,
        dynamics: DiscreteMap | None,
        terms: Sequence[CostTerm],
        constraints: Sequence[Constraint],
        t: Array,
        dt: Array,
        nu: int,
        parameters: Parameters | None = None,
        hessian: str = "exact",
        scale: Array | None = None,
    ) -> None:
        self.dynamics, self.terms, self.constraints = dynamics, terms, constraints
        self.t, self.dt, self.nu, self.parameters, self.hessian = t, dt, nu, parameters or {}, hessian
        self.scale = dt if scale is None else scale

    def values(self, x: Array, u: Array) -> KnotValues:
        """See :class:`Knots`."""
        cost = np.zeros(len(x))
        for term in self.terms:
            cost += term_value(term, x, u, self.t, self.scale, term.weight, term.parameters)
        g = [
            np.asarray(c.residual(*residual_batch(c.residual, x, u, self.t, c.parameters))).T for c in self.constraints
        ]
        return KnotValues(self._step(x, u), cost, np.concatenate([np.zeros((len(x), 0)), *g], axis=1))

    def first(self, x: Array, u: Array) -> KnotDerivatives:
        """See :class:`Knots`."""
        N, n, m = len(x), x.shape[1], self.nu
        cost, lx, lu = np.zeros(N), np.zeros((N, n)), np.zeros((N, m))
        for term in self.terms:
            e = quadratize(term, x, u, self.t, self.scale)
            cost += e.value
            lx[:, : e.lx.shape[1]] += e.lx
            lu[:, : e.lu.shape[1]] += e.lu
        g, gx, gu = self._constraint_derivatives(x, u)
        if self.dynamics is None:
            x_next, A, B = np.zeros((N, 0)), np.zeros((N, 0, n)), np.zeros((N, 0, m))
        else:
            own = self.dynamics.nu
            x_next, A, B_own = self.dynamics.linearize(x, u[:, :own], self.t, self.dt, self.parameters)
            B = np.zeros((N, n, m))
            B[:, :, :own] = B_own
        return KnotDerivatives(KnotValues(x_next, cost, g), A, B, lx, lu, gx, gu)

    def second(self, x: Array, u: Array, sigma: float, lam: Array, y: Array) -> Hessians:
        """See :class:`Knots`."""
        N, n = len(x), x.shape[1]
        H = np.zeros((N, n + self.nu, n + self.nu))
        of_cost = "exact" if self.hessian == "exact" else "gauss_newton"
        for term in self.terms:
            e = quadratize(term, x, u, self.t, sigma * self.scale, of_cost)
            _add(H, n, Hessians(e.lxx, e.lux, e.luu))
        if self.hessian != "gauss_newton":
            self._add_constraints(H, x, u, y)
        if self.hessian == "exact" and self.dynamics is not None:
            own, contraction = u[:, : self.dynamics.nu], contraction_of(self.dynamics, from_source=True)
            _add(H, n, contraction(x, own, self.t, self.dt, self.parameters, lam))
        return Hessians(H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])

    def _step(self, x: Array, u: Array) -> Array:
        if self.dynamics is None:
            return np.zeros((len(x), 0))
        return self.dynamics.step(x, u[:, : self.dynamics.nu], self.t, self.dt, self.parameters)

    def _constraint_derivatives(self, x: Array, u: Array) -> tuple[Array, Array, Array]:
        N, n, m = len(x), x.shape[1], self.nu
        size = sum(c.residual.n_out for c in self.constraints)
        g, gx, gu = np.zeros((N, size)), np.zeros((N, size, n)), np.zeros((N, size, m))
        at = 0
        for c in self.constraints:
            r, rx, ru = residual_jacobians(c.residual, residual_batch(c.residual, x, u, self.t, c.parameters))
            rows = slice(at, at := at + c.residual.n_out)
            g[:, rows], gx[:, rows, : rx.shape[2]], gu[:, rows, : ru.shape[2]] = r, rx, ru
        return g, gx, gu

    def _add_constraints(self, H: Array, x: Array, u: Array, y: Array) -> None:
        at, n = 0, x.shape[1]
        for c in self.constraints:
            own = y[:, at : (at := at + c.residual.n_out)]
            if own.any():
                k = c.residual.manifold.ndx
                full = self._outer_curvature(c, x, u, own) if self.hessian == "scqp" else self._curvature(c, x, u, own)
                _add(H, n, Hessians(full[:, :k, :k], full[:, k:, :k], full[:, k:, k:]))

    def _curvature(self, c: Constraint, x: Array, u: Array, y: Array) -> Array:
        """Of y'g: (N, k + l, k + l) for the k states and l controls that it reads."""
        return contracted_hessian(c.residual, residual_batch(c.residual, x, u, self.t, c.parameters), y)

    def _outer_curvature(self, c: Constraint, x: Array, u: Array, y: Array) -> Array:
        """J'(y psi'')J where that is positive semidefinite, else zero (R. Verschueren et al., CDC 2016, eq. 9)."""
        size = c.residual.manifold.ndx + c.residual.nu
        if c.composition is None or c.composition.inner.manifold is not c.residual.manifold:
            return np.zeros((len(x), size, size))
        inner, outer, convex = c.composition
        kept = np.maximum(y, 0.0) if convex else np.minimum(y, 0.0)
        r, rx, ru = residual_jacobians(inner, residual_batch(inner, x, u, self.t, c.parameters))
        W = contracted_hessian(outer, residual_batch(outer, r, np.zeros((len(x), 0)), self.t, c.parameters), kept)
        J = np.concatenate([rx, ru], axis=2)
        return J.transpose(0, 2, 1) @ W @ J


def _add(H: Array, n: int, part: Hessians) -> None:
    """Add blocks of the leading states and controls to H (N, n + m, n + m)."""
    k, m = part.xx.shape[1], part.uu.shape[1]
    H[:, :k, :k] += part.xx
    H[:, n : n + m, :k] += part.ux
    H[:, :k, n : n + m] += part.ux.transpose(0, 2, 1)
    H[:, n : n + m, n : n + m] += part.uu
