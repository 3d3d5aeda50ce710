"""Charts of a Lie group for programs with variables in R^n: x_k = reference_k (+) delta_k.

Stages differentiate f in the tangent space at x. With the Jacobian E = d x / d delta of the chart, the derivatives in delta are

    df/d delta = E' f_x        d^2 f/d delta^2 = E' f_xx E + f_x . (the second derivatives of the chart)
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.manifold_curvature import integrate_curvature
from dynamics_backends.protocol import Array


class Charts:
    """Charts about reference states (K, nx); on a vector space about 0, so that delta equals x."""

    def __init__(self, manifold: Manifold, reference: Array) -> None:
        self.manifold, self.flat = manifold, manifold.is_flat
        self.reference = np.zeros_like(reference) if self.flat else reference

    def states(self, delta: Array) -> Array:
        """Return the states x (K, nx) of coordinates delta (K, ndx); on a vector space delta itself."""
        if self.flat:
            return delta
        return np.ascontiguousarray(self.manifold.integrate(self.reference.T, delta.T).T)

    def coordinates(self, xs: Array) -> Array:
        """Return the coordinates delta (K, ndx) of states xs (K, nx); on a vector space the states themselves."""
        return (
            np.asarray(xs) if self.flat else np.asarray(self.manifold.difference(self.reference.T, np.asarray(xs).T).T)
        )

    def slopes(self, delta: Array) -> Array | None:
        """Return the Jacobians E = dx / d delta (K, ndx, ndx) at delta (K, ndx).

        Returns None if all are the identity: flat, or delta = 0.
        """
        return None if self.flat or not delta.any() else self.manifold.d_integrate(delta)[1]

    def curvature(self, delta: Array, gradient: Array) -> Array:
        """Return the second derivatives of the charts at delta (K, ndx), contracted with gradients f_x (K, ndx): (K, ndx, ndx)."""
        return integrate_curvature(self.manifold, delta, gradient)[1]
