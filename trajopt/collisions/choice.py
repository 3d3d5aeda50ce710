"""Assign pairs of capsules and bodies to the slots of a link, by kernels/choice.h.

Each body gets a slot before any body gets two: further capsules of the link near the same body count as farther. If a body is
far from the link's coarse capsule, only the pair with the coarse capsule counts.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface import address
from dynamics_backends.protocol import Array
from trajopt.collisions.library import LONG, ChoiceData, collision_kernels

SPREAD, FARTHER = 0.015, 0.5
"""Penalty on the gap of a link's n-th nearest capsule to a body: n - 1 times SPREAD [m] plus FARTHER times the smallest gap. So
each body gets a slot first."""
FAR = 0.05
"""Gap from the coarse capsule of a link beyond which a body is far from the link [m]."""


class Choice(NamedTuple):
    """Assigned slots, arrays (K,). knot: configuration. slot: slot of the link. piece: position in ``piece``; its length denotes
    the coarse capsule. core: position in ``core``."""

    knot: Array
    slot: Array
    piece: Array
    core: Array


def chosen_pairs(
    gaps: Array, coarse: Array | None, link: int, piece: Array, core: Array, slots: int, reach: float
) -> Choice:
    """Assign pairs to the slots of a link by gaps (M, P, O) [m] between its capsules ``piece`` and the cores ``core``.

    coarse: gaps (M, C, O) of the coarse capsules, or None; ``link`` is the index of the link's coarse capsule. Pairs with gaps
    above ``reach`` [m] get no slot.
    """
    (M, P, O), C = gaps.shape, 0 if coarse is None else coarse.shape[1]
    found, workspace = np.empty((M, slots), LONG), np.empty((2, len(piece) + 1, len(core)))
    pieces, cores = (np.ascontiguousarray(numbers, LONG) for numbers in (piece, core))
    gaps, coarse = np.ascontiguousarray(gaps), None if coarse is None else np.ascontiguousarray(coarse)
    data = ChoiceData(M=M, P=P, C=C, O=O, link=link, pieces=len(pieces), cores=len(cores), slots=slots)
    data.gaps, data.coarse = address(gaps), None if coarse is None else address(coarse)
    data.piece, data.core = address(pieces), address(cores)
    data.reach, data.far, data.spread, data.farther = reach, FAR, SPREAD, FARTHER
    data.values, data.costs, data.chosen = address(workspace[0]), address(workspace[1]), address(found)
    collision_kernels().chosen_pairs(ctypes.addressof(data))
    knot, slot = np.nonzero(found >= 0)
    flat = found[knot, slot]
    return Choice(knot, slot, flat // len(core), flat % len(core))
