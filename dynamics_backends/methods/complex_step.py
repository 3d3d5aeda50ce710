"""Complex step: df/dx_k = Im f(x (+) i h e_k) / h (Squire & Trapp 1998), exact to rounding since no difference is formed.

The map must use analytic operations only, as :mod:`dynamics_backends.scalar` requires.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.methods.base import one_at_a_time, perturbed
from dynamics_backends.methods.exact_method import STEP, ExactMethod
from dynamics_backends.protocol import Batch, Jacobians


class ComplexStep(ExactMethod):
    """Complex-step derivatives of any map."""

    name = "complex_step"

    def _jacobians(self, b: Batch) -> Jacobians:
        directions = self.map.manifold.ndx + self.map.nu
        steps = one_at_a_time(self.map, b, np.full((directions, b.size), 1j * STEP))
        values = self.map(*perturbed(self.map, b, steps)).reshape(self.map.n_out, b.size, directions)
        return self.split(values[:, :, 0].real if directions else self.map(*b), values.imag / STEP)
