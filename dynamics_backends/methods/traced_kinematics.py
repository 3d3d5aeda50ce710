"""Frame kinematics as one straight-line expression, traced once for a frame of a robot.

For small batches it is about twenty times as fast as the recursion on arrays, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array, FunctionMap
from dynamics_backends.rigid_body.algorithms.kinematics import FrameKinematics, frame_kinematics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar

CACHE_SIZE = 32
"""Number of cached frame expressions."""


@lru_cache(maxsize=CACHE_SIZE)
def traced_kinematics(model: Model, frame: int) -> Callable[[Array], FrameKinematics]:
    """Function of q (nq, N) with the results of :func:`~.kinematics.frame_kinematics`."""
    import casadi as ca

    from dynamics_backends.methods.symbolic_map import Symbols, symbolic_value

    size = 12 + 6 * model.nv
    map = FunctionMap(partial(_rows, model, frame), Manifold.vector(model.nq), 0, size)
    symbols = Symbols.of(map, {})
    function = ca.Function("kinematics", [symbols.x], [symbolic_value(map, symbols.x, symbols.u, symbols.t, symbols.p)])

    def evaluate(q: Array) -> FrameKinematics:
        values = np.asarray(function(q))
        return FrameKinematics([list(values[3 * i : 3 * i + 3]) for i in range(3)], values[9:12], values[12:])

    return evaluate


def _rows(model: Model, frame: int, q: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    at = frame_kinematics(model, q, frame)
    rotation = [component for row in at.rotation for component in row]
    return [*rotation, *(at.position[i] for i in range(3)), *(at.jacobian[i] for i in range(6 * model.nv))]
