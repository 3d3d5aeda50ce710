"""Methods whose derivatives are exact to rounding: complex step and forward AD, and second derivatives by both.

    complex step   df/dx_k = Im f(x (+) i h e_k) / h (Squire & Trapp 1998); no difference is formed
    forward AD     dual arrays, all directions in one sweep

A complex step needs a map of analytic operations only, as :mod:`dynamics_backends.scalar` requires. Second derivatives contracted
with lam are a complex step of the gradient of lam' f by dual numbers. One tangent step carries both perturbations, in the
exponential chart at x, so the Hessian is symmetric on a Lie group too. A tape computes the same Hessian from the trace of the map.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.methods.base import SecondOrderMethod, one_at_a_time, perturbed
from dynamics_backends.protocol import Array, Batch, Hessians, Jacobians, Map
from dynamics_backends.rigid_body.spatial.perturbed_transform import SpatialDual
from dynamics_backends.scalar import STEP
from dynamics_backends.scalars.dual import Dual

ENTRIES = 2**15
"""Maximum number of Hessian entries of the knots that are differentiated twice in one batch, which has at least one knot."""


class ExactMethod(SecondOrderMethod):
    """Method with exact first and second derivatives."""

    def _contraction(self, b: Batch, lam: Array) -> tuple[Jacobians, Hessians]:
        """First derivatives, and the second derivatives of lam' f for lam (N, n_out), a complex step over dual numbers."""
        H, n = contracted_hessian(self.map, b, lam), self.map.manifold.ndx
        return self._jacobians(b), Hessians(H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])


def contracted_hessian(map: Map, b: Batch, factors: Array) -> Array:
    """Hessians sum_i factors_i H_i (N, K, K), K = ndx + nu, from factors (N, n_out); H_i is that of (dx, du) -> f_i(x (+) dx, u
    + du).
    """
    directions = map.manifold.ndx + map.nu
    size = max(1, ENTRIES // max(1, directions * directions))
    H = np.zeros((b.size, directions, directions))
    for start in range(0, b.size, size):
        part = slice(start, start + size)
        H[part] = _contracted(map, b.part(part), factors[part])
    return 0.5 * (H + H.transpose(0, 2, 1))


def _contracted(map: Map, b: Batch, factors: Array) -> Array:
    """Sums (N, K, K) of the Hessians H_i weighted by ``factors`` (N, n_out), for a part of the batch, before symmetrization."""
    directions = map.manifold.ndx + map.nu
    steps = one_at_a_time(map, b, np.full((directions, b.size), 1j * STEP))
    result = map(*_seeded_around(map, b, steps))
    if not isinstance(result, Dual):  # a constant map
        return np.zeros((b.size, directions, directions))
    second = result.tan.imag.reshape(map.n_out, b.size, directions, directions) / STEP
    return np.einsum("ni,injk->njk", factors, second)


def _seeded_around(map: Map, b: Batch, steps: Array) -> tuple:
    """Dual arguments x (+) (steps + eps e_k), u + ..., repeated for each step, with all directions k as tangents."""
    ndx, nu = map.manifold.ndx, map.nu
    unit = np.eye(ndx + nu)
    many = b.repeated(steps.shape[1] // b.size)
    x = map.manifold.integrate(many.x, Dual.seed(steps[:ndx], unit[:ndx]))
    u = Dual.seed(many.u + steps[ndx:], unit[ndx:])
    return x, u, many.t, many.p


class ComplexStep(ExactMethod):
    """Complex-step derivatives of any map."""

    name = "complex_step"

    def _jacobians(self, b: Batch) -> Jacobians:
        """Value and partial derivatives by complex steps of all directions in one evaluation of the map."""
        directions = self.map.manifold.ndx + self.map.nu
        steps = one_at_a_time(self.map, b, np.full((directions, b.size), 1j * STEP))
        values = self.map(*perturbed(self.map, b, steps)).reshape(self.map.n_out, b.size, directions)
        return self.split(values[:, :, 0].real if directions else self.map(*b), values.imag / STEP)


class ForwardAD(ExactMethod):
    """Chain rule over every arithmetic operation ("AD" of Kudruss et al.)."""

    name = "forward_ad"

    def _jacobians(self, b: Batch) -> Jacobians:
        """Value and partial derivatives by one evaluation of the map on dual numbers with all directions."""
        x, u = self.seeded(b)
        result = self.map(x, u, b.t, b.p)
        if not isinstance(result, Dual):  # a constant map
            result = Dual(result, np.zeros((*result.shape, self.map.manifold.ndx + self.map.nu)))
        return self.split(result.val, result.tan)

    def seeded(self, b: Batch) -> tuple[Dual, Dual]:
        """State and control as dual rows whose tangents are the ndx + nu unit directions."""
        ndx, nu = self.map.manifold.ndx, self.map.nu
        unit = np.eye(ndx + nu)
        dx = Dual.seed(np.zeros((ndx, b.size)), unit[:ndx])
        return self.map.manifold.integrate(b.x, dx), Dual.seed(b.u, unit[ndx:])


class StructuredAD(ForwardAD):
    """Chain rule over spatial operations ("ED" of Kudruss et al.): poses are perturbed by twists.

    The derivatives are those of :class:`ForwardAD`; on maps without rigid bodies it is the same method.
    """

    name = "structured_ad"

    def seeded(self, b: Batch) -> tuple[Dual, Dual]:
        """State and control as dual rows with the ndx + nu unit directions as tangents.

        The state is a SpatialDual, for which poses of bodies are perturbed by twists.
        """
        x, u = super().seeded(b)
        return SpatialDual(x.val, x.tan), u
