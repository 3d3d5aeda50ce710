"""Residual of positions, velocities and accelerations at a point within a time step of constant acceleration.

    r(q_s, v_s, a),     q_s = q + s v + s^2 a / 2,     v_s = v + s a,     s = offset, or offset T

The state is (q, v), or (q, v, T) with a free duration T (:mod:`dynamics_backends.stretched_map`). The controls are the
accelerations a. The offset is a parameter, in seconds, or as a fraction of T. In this way a constraint between knots is imposed on
the exact motion of the step; at s = 0 it is a residual of the knot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynamics_backends.chained_map import ChainedSecond
from dynamics_backends.manifold import Manifold
from dynamics_backends.scalar import Rows, Scalar

STEP_OFFSET = "step_offset"


class AlongStep(ChainedSecond):
    """Residual r(q_s, v_s, a) at an offset s within a step of constant acceleration, see the module docstring.

    map: residual with the state q or (q, v) and no controls or a, with second derivatives. manifold: state manifold of the system,
    a vector space. duration: index of T in the state, or None.
    """

    has_head = False

    def __init__(self, map: Any, manifold: Manifold, control_names: Sequence[str], duration: int | None = None) -> None:
        self.map, self.manifold, self.tail, self.duration = map, manifold, manifold.nx, duration
        self.nu, self.n_out, self.output_names = len(control_names), map.n_out, tuple(map.output_names)
        self.control_names = tuple(control_names)

    def inner(self, w: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
        """State and controls of the residual at the offset: q_s, and if it reads them v_s and a.

        The offset is the parameter ``step_offset`` [s], multiplied by T if the duration is free.
        """
        n, s = self.nu, p[STEP_OFFSET][0]
        s = s if self.duration is None else s * w[self.duration]
        v, a = ([w[first + i] for i in range(n)] for first in (n, self.tail))
        q = [w[i] + s * (v[i] + 0.5 * s * a[i]) for i in range(n)]
        return [*[*q, *(v[i] + s * a[i] for i in range(n))][: self.map.manifold.nx], *a[: self.map.nu]]
