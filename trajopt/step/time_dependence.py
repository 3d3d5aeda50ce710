"""Test whether dynamics read the time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import DiscreteMap

MOVED, TIMES = 0.1, (0.0, 0.37)
"""Standard deviation of the moves of state and control, and the two times [s], between which values are compared."""


def reads_time(dynamics: DiscreteMap, x: Array, parameters: Mapping[str, Array] | None = None) -> bool:
    """True if the dynamics have other values at another time t, at a random state near x (nx,) and a random small control.

    parameters: of the dynamics, each (n,) or one row per knot, of which the first counts. False for discrete dynamics, which get no
    time from their integrator, and for dynamics that raise an error there.
    """
    if dynamics.sampling is None:
        return False
    map, rng = dynamics.sampling.backend.map, np.random.default_rng(0)
    near = dynamics.manifold.integrate(x[:, None], MOVED * rng.standard_normal((dynamics.manifold.ndx, 1)))
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
