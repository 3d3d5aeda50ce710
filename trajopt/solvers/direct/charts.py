"""Charts for programs on a Lie group, whose variables must live in R^n: x_k = reference_k (+) delta_k.

What the stages tell of x in its tangent space, seen through the chart delta -> x: with E = d x / d delta and a function f

    df/d delta = E' f_x        d^2 f/d delta^2 = E' f_xx E + f_x . (the second derivatives of the chart)
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.manifold_curvature import integrate_curvature
from dynamics_backends.protocol import Array


class Charts:
    """Charts about states (K, nx); on a vector space, where x is its own coordinate, they are about 0."""

    def __init__(self, manifold: Manifold, reference: Array) -> None:
        self.manifold, self.flat = manifold, manifold.is_flat
        self.reference = np.zeros_like(reference) if self.flat else reference

    def states(self, delta: Array) -> Array:
        """x (K, nx)."""
        if self.flat:
            return delta
        return np.ascontiguousarray(self.manifold.integrate(self.reference.T, delta.T).T)

    def coordinates(self, xs: Array) -> Array:
        """delta (K, ndx)."""
        return (
            np.asarray(xs) if self.flat else np.asarray(self.manifold.difference(self.reference.T, np.asarray(xs).T).T)
        )

    def slopes(self, delta: Array) -> Array | None:
        """E (K, ndx, ndx); None where all of them are the identity."""
        return None if self.flat or not delta.any() else self.manifold.d_integrate(delta)[1]

    def bend(self, delta: Array, gradient: Array) -> Array:
        """The second derivatives of the chart, contracted with gradients f_x (K, ndx): (K, ndx, ndx)."""
        return integrate_curvature(self.manifold, delta, gradient).ee
