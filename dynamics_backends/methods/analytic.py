"""The map's own closed-form partial derivatives."""

from __future__ import annotations

from dynamics_backends.methods.base import Method
from dynamics_backends.protocol import Batch, HasJacobians, Jacobians, Map


class Analytic(Method):
    """Derivatives that the map supplies itself; raises TypeError for a map that does not."""

    name = "analytic"

    def __init__(self, map: Map) -> None:
        if not isinstance(map, HasJacobians):
            raise TypeError(
                f"{type(map).__name__} has no analytic derivatives; choose backend = 'forward_ad' or 'complex_step', which need "
                "nothing but its source"
            )
        super().__init__(map)
        self._own = map

    def _jacobians(self, b: Batch) -> Jacobians:
        return self._own.jacobians(b.x.T, b.u.T, b.t, {k: v.T for k, v in b.p.items()})
