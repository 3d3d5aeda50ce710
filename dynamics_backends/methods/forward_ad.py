"""Forward-mode automatic differentiation by dual arrays, all directions in one sweep."""

from __future__ import annotations

import numpy as np

from dynamics_backends.dual import Dual
from dynamics_backends.methods.base import Method
from dynamics_backends.protocol import Batch, Jacobians


class ForwardAD(Method):
    """The plain chain rule over every arithmetic operation ("AD" of Kudruss et al.)."""

    name = "forward_ad"

    def _jacobians(self, b: Batch) -> Jacobians:
        x, u = seeded(self.map, b)
        result = self.map(x, u, b.t, b.p)
        if not isinstance(result, Dual):  # a constant map
            result = Dual(result, np.zeros((*result.shape, self.map.manifold.ndx + self.map.nu)))
        return self.split(result.val, result.tan)


def seeded(map, b: Batch) -> tuple[Dual, Dual]:
    """State and control as dual rows whose tangents are the ndx + nu unit directions."""
    ndx, nu = map.manifold.ndx, map.nu
    unit = np.eye(ndx + nu)
    dx = Dual.seed(np.zeros((ndx, b.size)), unit[:ndx])
    return map.manifold.integrate(b.x, dx), Dual.seed(b.u, unit[ndx:])
