"""Test whether dynamics, cost terms and constraints read the time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynamics_backends.protocol import Array, Map
from trajopt.problem.ocp import DiscreteMap

MOVED, TIMES = 0.1, (0.0, 0.37)
"""Standard deviation of the moves of state and control, and the two times [s], between which values are compared."""


def reads_time(dynamics: DiscreteMap, x: Array, parameters: Mapping[str, Array] | None = None) -> bool:
    """True if the dynamics have other values at another time t, at a random state near x (nx,) and a random small control.

    parameters: of the dynamics, each (n,) or one row per knot, of which the first counts. False for discrete dynamics, which get no
    time from their integrator, and for dynamics that raise an error there.
    """
    return dynamics.sampling is not None and map_reads_time(dynamics.sampling.backend.map, x, parameters)


def map_reads_time(map: Map, x: Array, parameters: Mapping[str, Array] | None = None) -> bool:
    """True if a map has other values at another time t, at a random state near x (nx,), of which it reads the first numbers, and a
    random small control; parameters as in :func:`reads_time`. False for maps that raise an error there.
    """
    rng, manifold = np.random.default_rng(0), map.manifold
    near = x[: manifold.nx, None]
    if manifold.nx:
        near = manifold.integrate(near, MOVED * rng.standard_normal((manifold.ndx, 1)))
    u = MOVED * rng.standard_normal((map.nu, 1))
    p = {
        key: (value[0] if np.ndim(value) == 2 else np.asarray(value))[:, None]
        for key, value in (parameters or {}).items()
    }
    try:
        with np.errstate(all="ignore"):
            before, after = (np.asarray(map(near, u, np.array([t]), p)) for t in TIMES)
    except Exception:  # validation reports errors of user functions
        return False
    return not np.array_equal(before, after, equal_nan=True)
