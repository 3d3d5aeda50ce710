"""Assign pairs of capsules and bodies to the slots of a link; compiled, or in NumPy without a compiler.

Each body gets a slot before any body gets two: further capsules of the link near the same body count as farther. If a body is
far from the link's coarse capsule, only the pair with the coarse capsule counts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    CompilerError,
    address,
    bound,
    kernel_text,
    library,
    struct_of,
    templates,
)
from dynamics_backends.protocol import Array

SPREAD, FARTHER = 0.015, 0.5
"""Penalty on the gap of a link's n-th nearest capsule to a body: n - 1 times SPREAD [m] plus FARTHER times the smallest gap. So
each body gets a slot first."""
FAR = 0.05
"""Gap from the coarse capsule of a link beyond which a body is far from the link [m]."""

_struct = struct_of(
    "choice_t",
    "M:l P:l C:l O:l gaps coarse link:l pieces:l cores:l piece core slots:l reach:d far:d spread:d farther:d values costs chosen",
)


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
    kernel = _kernel()
    found = (_compiled(kernel) if kernel else _in_numpy)(gaps, coarse, link, piece, core, slots, reach)
    knot, slot = np.nonzero(found >= 0)
    flat = found[knot, slot]
    return Choice(knot, slot, flat // len(core), flat % len(core))


@lru_cache(maxsize=1)
def _kernel() -> Any:
    try:
        found = library(_source, "choice of pairs", kernel_text("trajopt.collisions", "choice.h"))
    except CompilerError:
        return None
    return bound(found, "chosen_pairs", "p")


def _source() -> str:
    return "\n".join([templates(), kernel_text("trajopt.collisions", "choice.h")])


def _compiled(kernel: Any) -> Callable[..., Array]:
    def found(
        gaps: Array, coarse: Array | None, link: int, piece: Array, core: Array, slots: int, reach: float
    ) -> Array:
        M, P, O = gaps.shape
        chosen, room = np.empty((M, slots), dtype=np.int_), np.empty((2, len(piece) + 1, len(core)))
        piece, core = (np.ascontiguousarray(numbers, dtype=np.int_) for numbers in (piece, core))
        gaps, coarse = np.ascontiguousarray(gaps), None if coarse is None else np.ascontiguousarray(coarse)
        where = [None if a is None else address(a) for a in (gaps, coarse)]
        sizes = M, P, 0 if coarse is None else coarse.shape[1], O
        lists = len(piece), len(core), address(piece), address(core)
        out = address(room[0]), address(room[1]), address(chosen)
        kernel(ctypes.byref(_struct(*sizes, *where, link, *lists, slots, reach, FAR, SPREAD, FARTHER, *out)))
        return chosen

    return found


def _in_numpy(
    gaps: Array, coarse: Array | None, link: int, piece: Array, core: Array, slots: int, reach: float
) -> Array:
    """Flat indices (M, slots) of the assigned pairs, with the coarse capsule after the other pieces; -1 for empty slots."""
    block = gaps[:, piece][:, :, core]
    if coarse is not None:
        far = coarse[:, link, core] > FAR
        least = np.minimum(coarse[:, link, core], block.min(axis=1))
        one, rest = np.where(far, least, np.inf)[:, None], np.where(far[:, None], np.inf, block)
        block = np.concatenate([rest, one], axis=1)
    order = _nearest(block, slots, reach)
    within = np.take_along_axis(block.reshape(len(gaps), -1), order, axis=1) < reach
    found = np.full((len(gaps), slots), -1)
    found[:, : order.shape[1]] = np.where(within, order, -1)
    return found


def _nearest(gaps: Array, count: int, reach: float) -> Array:
    """Return flat indices (M, count) of the pairs with the smallest penalized gaps (M, P, O)."""
    M = len(gaps)
    if count == 1:
        return np.asarray(gaps.reshape(M, -1).argmin(axis=1)[:, None])
    order, rank = gaps.argsort(axis=1, kind="stable"), np.empty(gaps.shape, dtype=np.intp)
    np.put_along_axis(rank, order, np.arange(gaps.shape[1])[None, :, None], axis=1)
    first = gaps.min(axis=1, keepdims=True).clip(0.0, reach)
    spread = (gaps + rank * (SPREAD + FARTHER * first)).reshape(M, -1)
    return np.asarray(spread.argsort(axis=1, kind="stable")[:, :count])
