"""Forward-mode automatic differentiation by dual arrays, all directions in one sweep.

Second derivatives are a complex step over dual arrays: there is no difference in it, and so no cancellation.  One tangent
step carries both perturbations, so that they are those of the exponential chart at x, a symmetric Hessian on a Lie group
too.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.methods.base import Method, one_at_a_time
from dynamics_backends.methods.complex_step import STEP
from dynamics_backends.protocol import Array, Batch, Hessians, Jacobians, Map, Parameters
from dynamics_backends.rigid_body.spatial.perturbed_transform import SpatialDual
from dynamics_backends.scalars.dual import Dual

ENTRIES = 2**15
"""Knots are differentiated twice in parts of at most so many entries of their Hessians: it bounds the memory."""


class ForwardAD(Method):
    """The plain chain rule over every arithmetic operation ("AD" of Kudruss et al.)."""

    name = "forward_ad"

    def _jacobians(self, b: Batch) -> Jacobians:
        x, u = self.seeded(b)
        result = self.map(x, u, b.t, b.p)
        if not isinstance(result, Dual):  # a constant map
            result = Dual(result, np.zeros((*result.shape, self.map.manifold.ndx + self.map.nu)))
        return self.split(result.val, result.tan)

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """See :class:`~dynamics_backends.protocol.SecondOrderBackend`."""
        b, n = Batch.of(self.map, x, u, t, p), self.map.manifold.ndx
        H = contracted_hessian(self.map, b, np.asarray(lam, float))
        return self._jacobians(b), Hessians(H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])

    def seeded(self, b: Batch) -> tuple[Dual, Dual]:
        """State and control as dual rows whose tangents are the ndx + nu unit directions."""
        ndx, nu = self.map.manifold.ndx, self.map.nu
        unit = np.eye(ndx + nu)
        dx = Dual.seed(np.zeros((ndx, b.size)), unit[:ndx])
        return self.map.manifold.integrate(b.x, dx), Dual.seed(b.u, unit[ndx:])


class StructuredAD(ForwardAD):
    """The chain rule over spatial operations ("ED" of Kudruss et al.): poses are perturbed by twists.

    Same derivatives as :class:`ForwardAD`; on maps without rigid bodies it is the same method.
    """

    name = "structured_ad"

    def seeded(self, b: Batch) -> tuple[Dual, Dual]:
        x, u = super().seeded(b)
        return SpatialDual(x.val, x.tan), u


def contracted_hessian(map: Map, b: Batch, factors: Array) -> Array:
    """sum_i factors_i H_i (N, K, K), K = ndx + nu, from factors (N, n_out); H_i that of (dx, du) -> f_i(x (+) dx, u + du)."""
    directions = map.manifold.ndx + map.nu
    size = max(1, ENTRIES // max(1, directions * directions))
    H = np.zeros((b.size, directions, directions))
    for start in range(0, b.size, size):
        part = slice(start, start + size)
        H[part] = _contracted(map, b.part(part), factors[part])
    return 0.5 * (H + H.transpose(0, 2, 1))


def _contracted(map: Map, b: Batch, factors: Array) -> Array:
    directions = map.manifold.ndx + map.nu
    steps = one_at_a_time(map, b, np.full((directions, b.size), 1j * STEP))
    result = map(*_seeded_around(map, b, steps))
    if not isinstance(result, Dual):  # a constant map
        return np.zeros((b.size, directions, directions))
    second = result.tan.imag.reshape(map.n_out, b.size, directions, directions) / STEP
    return np.einsum("ni,injk->njk", factors, second)


def _seeded_around(map: Map, b: Batch, steps: Array) -> tuple:
    """Arguments x (+) (steps + eps e_k), u + ..., all directions k at once."""
    ndx, nu = map.manifold.ndx, map.nu
    unit = np.eye(ndx + nu)
    many = b.repeated(steps.shape[1] // b.size)
    x = map.manifold.integrate(many.x, Dual.seed(steps[:ndx], unit[:ndx]))
    u = Dual.seed(many.u + steps[ndx:], unit[ndx:])
    return x, u, many.t, many.p
