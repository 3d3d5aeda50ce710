"""Test whether dynamics, cost terms and constraints read the time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from dynamics_backends.protocol import Array, Map
from trajopt.problem.ocp import DiscreteMap

MOVED, TIMES = 0.1, (0.0, 0.37, 1.9, 7.3, 41.0, 1e3, 1e6, np.nan)
"""Standard deviation of the moves of state, control and parameters, and the times [s] between which values are compared. NaN shows
a time that is multiplied by zero."""


def reads_time(dynamics: DiscreteMap, x: Array, parameters: Mapping[str, Array] | None = None) -> bool:
    """True if the dynamics have other values at another time t, at a random state near x (nx,) and a random small control.

    parameters: of the dynamics, each (n,) or one row per knot, of which the first counts. False for discrete dynamics, which get no
    time from their integrator, and for dynamics that raise an error there. Other answers are cached by the dynamics, because the
    evaluations may take longer than a control period.
    """
    if dynamics.sampling is None:
        return False
    known = _known(dynamics)  # type: ignore[arg-type]
    if not known and (answer := _reads_time(dynamics.sampling.backend.map, x, parameters)) is not None:
        known.append(answer)
    return bool(known) and known[0]


@lru_cache(maxsize=64)
def _known(dynamics: DiscreteMap) -> list[bool]:
    """Cached answer of :func:`reads_time` for these dynamics; empty before the first one."""
    return []


def map_reads_time(map: Map, x: Array, parameters: Mapping[str, Array] | None = None) -> bool:
    """True if a map has other values at another time t, at a random state near x (nx,), of which it reads the first numbers, and a
    random small control; parameters as in :func:`reads_time`. False for maps that raise an error there.
    """
    return bool(_reads_time(map, x, parameters))


def _reads_time(map: Map, x: Array, parameters: Mapping[str, Array] | None) -> bool | None:
    """Answer of :func:`map_reads_time`; None for maps that raise an error at the first time."""
    rng, manifold = np.random.default_rng(0), map.manifold
    near = x[: manifold.nx, None]
    if manifold.nx:
        near = manifold.integrate(near, MOVED * rng.standard_normal((manifold.ndx, 1)))
    u = MOVED * rng.standard_normal((map.nu, 1))
    given = {
        key: (value[0] if np.ndim(value) == 2 else np.asarray(value, dtype=float))[:, None]
        for key, value in (parameters or {}).items()
    }
    moved = {key: value + MOVED * rng.standard_normal(value.shape) for key, value in given.items()}
    answers = [_differs(map, near, u, p) for p in ((given, moved) if given else (given,))]
    return True if any(answers) else answers[0]


def _differs(map: Map, x: Array, u: Array, p: Mapping[str, Array]) -> bool | None:
    """True if a map has another value, or raises an error, at one of TIMES after the first; None if it raises an error there."""
    first: Array | None = None
    for t in TIMES:
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(map(x, u, np.array([t]), p))
        except Exception:  # validation reports errors of user functions
            return None if first is None else True
        if first is not None and not np.array_equal(first, value, equal_nan=True):
            return True
        first = value
    return False
