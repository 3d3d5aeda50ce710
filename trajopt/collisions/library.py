"""Gaps of capsules from the package's C library, and the choice of pairs for the slots of a link.

The distances of a segment from cores are traced from :mod:`dynamics_backends.rigid_body.geometry.distances` when the library is
built.

Gaps (kernels/gaps.h). A lower bound on a gap is the gap between the bounding ball of the capsule's segment and the bounding box of
the core, less the radii. The distance itself is computed only if the bound is below the reach at one of the configurations that
share the SIMD lanes. A single face of a hull does not show which side is inside. For a segment behind all faces of a hull, the face
with the shortest separating translation gets the depth, and the gaps of the other faces remain.

Choice of the pairs of capsules and cores for the slots of a link. The nearest pairs get slots, where further capsules of the link
near the same core count as farther (SPREAD, FARTHER), so that several near cores tend to get one slot each. If a core is far from
the link's coarse capsule, only the pair with the coarse capsule counts.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.emit.emit import Argument, chunked_function
from dynamics_backends.compiled.loops.kernel import kernel_text, prelude
from dynamics_backends.compiled.runtime.memory import address, bound, structs_in
from dynamics_backends.machine.library import kernels
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.distances import NEAREST, distance
from dynamics_backends.symbols import ca
from dynamics_backends.trace import trace_expressions

KINDS = tuple(NEAREST)
"""Kinds of cores; the kernels number them in this order."""
_TEXT = kernel_text("trajopt.collisions", "gaps.h")
(GapsData,) = structs_in(_TEXT, "gaps_t")


def source() -> str:
    """C source of the kernel: common prelude, distance functions, and ``kernels/gaps.h``."""
    return "\n".join([prelude(), distances(), _TEXT])


def distances() -> str:
    """C source of the traced distance function of each kind of core, the generated header distances.h."""
    p, d, size = (ca.SX.sym(name, 3) for name in ("p", "d", "size"))
    rows = [[s[i] for i in range(3)] for s in (p, d, size)]
    arguments = [Argument(name, 3) for name in ("p", "d", "size")]
    traced = [
        chunked_function(f"segment_{kind}", trace_expressions([p, d, size], [distance(kind, *rows)]), arguments, ["D"])
        for kind in KINDS
    ]
    work = max(workspace for _, workspace in traced)
    return "\n".join([*(text for text, _ in traced), f"#define WORK {work}"])


class Cores(NamedTuple):
    """O cores at M configurations. R (M, O, 3, 3), p (M, O, 3) [m]: poses in the world; size (O, 3), radius (O,) [m]: as in
    :class:`~dynamics_backends.rigid_body.geometry.scene.Core`; kind (O,): position in
    :data:`~trajopt.collisions.library.KINDS`; hull (O,): number of the hull that has the core as a face, -1 for cores that are no
    faces; faces of one hull must be adjacent."""

    R: Array
    p: Array
    size: Array
    radius: Array
    kind: Array
    hull: Array


def capsule_gaps(A: Array, B: Array, radii: Array, cores: Cores, counts: Array, reach: float) -> Array:
    """Return gaps (M, P, O) [m] of P capsules from O cores at M configurations: distance of the segment less both radii.

    A, B (M, P, 3) [m]: ends of the segments in the world. radii (P,) [m]. Gaps are infinite for pairs outside the mask ``counts``
    (P, O); those of ``reach`` [m] or more may be only lower bounds. Negative: depth of the overlap. For a segment inside a hull,
    one face has the depth in the hull; the other faces have gaps from their triangles.
    """
    thick = radii[:, None] + cores.radius
    gaps = _gaps(A, B, thick, cores, counts, reach)
    _set_depths(gaps, A, B, thick, cores, counts)
    return gaps


def _gaps(A: Array, B: Array, thick: Array, cores: Cores, counts: Array, reach: float) -> Array:
    """Return gaps (M, P, O) [m] of P capsules from O cores as :func:`capsule_gaps`, but without the depths of segments in hulls.

    thick (P, O) [m]: sum of the radii of capsule and core.
    """
    M, P, O = len(A), A.shape[1], len(cores.radius)
    gaps = np.empty((M, P, O))
    given = {
        "ends": np.ascontiguousarray(np.concatenate([A, B], axis=-1)),
        "cores": np.ascontiguousarray(np.concatenate([cores.R.reshape(M, O, 9), cores.p], axis=-1)),
        "sizes": np.ascontiguousarray(cores.size, float),
        "thick": np.ascontiguousarray(thick),
        "kind": np.ascontiguousarray(cores.kind, np.intc),
        "counts": np.ascontiguousarray(counts, np.intc),
    }
    at = {name: address(array) for name, array in given.items()}
    data = GapsData(M=M, P=P, O=O, reach=reach, gaps=address(gaps), **at)
    bound(kernels(), "capsule_gaps", "p")(ctypes.addressof(data))
    return gaps


def _set_depths(gaps: Array, A: Array, B: Array, thick: Array, cores: Cores, counts: Array) -> None:
    """Set the gaps of segments that are inside a hull as a whole, in place, for the face with the shortest separating translation.

    The gap is the height of the lower end of the segment above that face, which is negative, minus the sum of the radii ``thick``
    (P, O) [m]. Gaps from the other faces do not change. Pairs with the first face of a hull outside ``counts`` are skipped.
    """
    faces = np.flatnonzero(cores.hull >= 0)
    if not len(faces):
        return
    starts = np.flatnonzero(np.diff(cores.hull[faces], prepend=-1))
    normals, hulls = cores.R[..., 2][:, faces], np.split(np.arange(len(faces)), starts[1:])
    planes = np.einsum("mfi,mfi->mf", normals, cores.p[:, faces])
    heights = A @ normals.transpose(0, 2, 1)
    heights -= planes[:, None]
    k, i, h = np.nonzero((np.maximum.reduceat(heights, starts, axis=2) < 0.0) & counts[:, faces[starts]])
    for number in np.unique(h):
        own, m, piece = hulls[number], k[h == number, None], i[h == number, None]
        at_b = np.einsum("ni,nfi->nf", B[m, piece][:, 0], normals[m, own]) - planes[m, own]
        lower = np.minimum(heights[m, piece, own], at_b)
        (within,) = np.nonzero((at_b < 0.0).all(axis=1))
        best = np.argmax(lower[within], axis=1)
        m, piece, core = m[within, 0], piece[within, 0], faces[own[best]]
        gaps[m, piece, core] = lower[within, best] - thick[piece, core]


SPREAD, FARTHER = 0.015, 0.5
"""Penalty on the gap of a link's n-th nearest capsule to a core: (n - 1) (SPREAD [m] + FARTHER g).

g: the smallest gap of the link's capsules to the core, limited to the range from 0 to the reach.
"""
FAR = 0.05
"""Gap from the coarse capsule of a link beyond which a core is far from the link [m]."""


def chosen_pairs(
    gaps: Array, coarse: Array | None, link: int, piece: Array, core: Array, slots: int, reach: float
) -> tuple[Array, Array, Array, Array]:
    """Assign pairs (capsule, core of an obstacle) to a link's slots at M configurations: those with the smallest penalized gaps.

    gaps (M, P, O) [m]: of P capsules and O cores. The n-th nearest of the link's capsules to a core has a penalty (SPREAD,
    FARTHER), so that other cores tend to get a slot first. piece, core: indices of the link's capsules, and of the cores to choose
    from. slots: number of slots. coarse: gaps (M, C, O) [m] of coarse capsules, or None for none; ``link`` is the index of the
    link's. A core farther than FAR from it pairs with the coarse capsule only, and then the smallest of all gaps of the link to
    the core counts. Pairs with a gap of ``reach`` [m] or more get no slot.

    Returns arrays (K,) of the filled slots: index of the configuration, number of the slot among those of the link, and positions
    in ``piece`` and ``core``; the length of ``piece`` denotes the coarse capsule.
    """
    values = gaps[:, piece[:, None], core]
    if coarse is not None:
        near = coarse[:, link, core][:, None]
        smallest = np.minimum(values.min(axis=1, keepdims=True), near)
        far = near > FAR
        values = np.concatenate([np.where(far, np.inf, values), np.where(far, smallest, np.inf)], axis=1)
    costs = values
    if slots > 1:
        step = SPREAD + FARTHER * np.clip(values.min(axis=1, keepdims=True), 0.0, reach)
        rank = values.argsort(axis=1, kind="stable").argsort(axis=1)
        costs = values + rank * step
    costs = np.where(values < reach, costs, np.inf).reshape(len(gaps), -1)
    order = costs.argsort(axis=1, kind="stable")[:, :slots]
    knot, slot = np.nonzero(np.isfinite(np.take_along_axis(costs, order, axis=1)))
    flat = order[knot, slot]
    return knot, slot, flat // len(core), flat % len(core)
