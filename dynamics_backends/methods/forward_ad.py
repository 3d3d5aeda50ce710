"""Forward-mode automatic differentiation by dual arrays, all directions in one sweep."""

from __future__ import annotations

import numpy as np

from dynamics_backends.methods.exact_method import ExactMethod
from dynamics_backends.protocol import Batch, Jacobians
from dynamics_backends.rigid_body.spatial.perturbed_transform import SpatialDual
from dynamics_backends.scalars.dual import Dual


class ForwardAD(ExactMethod):
    """Chain rule over every arithmetic operation ("AD" of Kudruss et al.)."""

    name = "forward_ad"

    def _jacobians(self, b: Batch) -> Jacobians:
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
        x, u = super().seeded(b)
        return SpatialDual(x.val, x.tan), u
