"""Gaps between many capsules and many cores at many configurations: compiled, or in NumPy without a compiler.

Both evaluate :mod:`dynamics_backends.rigid_body.geometry.distances`. A pair whose bounding-ball gap exceeds the reach gets this
lower bound. A single face of a hull does not show which side is inside. For a segment behind all faces of a hull, the face with
the shortest separating translation gets the depth, even beyond the reach.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    CompilerError,
    address,
    bound,
    kernel_text,
    library,
    templates,
)
from dynamics_backends.compiled.interface.sources import Argument, chunked_function, trace_expressions
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.distances import box_distance, cylinder_distance
from dynamics_backends.rigid_body.geometry.triangle_distance import triangle_distance

KINDS = {"box": box_distance, "cylinder": cylinder_distance, "triangle": triangle_distance}
"""Distance function of each kind of core."""


class Cores(NamedTuple):
    """O cores at M configurations. R (M, O, 3, 3), p (M, O, 3) [m]: poses in the world; size (O, 3), radius (O,) [m]; kind (O,):
    index into :data:`KINDS`; hull (O,): index of the hull of a face, adjacent for one hull; -1 for cores that are no faces."""

    R: Array
    p: Array
    size: Array
    radius: Array
    kind: Array
    hull: Array


def capsule_gaps(A: Array, B: Array, radii: Array, cores: Cores, counts: Array, reach: float) -> Array:
    """Return gaps (M, P, O) [m] between capsules from A to B (M, P, 3) with radii (P,) and cores; infinite for pairs outside the
    mask ``counts`` (P, O)."""
    thick = radii[:, None] + cores.radius
    gaps = _gaps(A, B, thick, cores, counts, reach)
    _set_depths(gaps, A, B, thick, cores, counts)
    return gaps


def _gaps(A: Array, B: Array, thick: Array, cores: Cores, counts: Array, reach: float) -> Array:
    """Return gaps (M, P, O) [m] from each core separately; thick (P, O): sums of the radii [m]."""
    try:
        kernel = _kernel()
    except CompilerError:
        return _in_numpy(A, B, thick, cores, counts, reach)
    M, P, O = len(A), A.shape[1], len(cores.radius)
    gaps = np.empty((M, P, O))
    given = [
        np.ascontiguousarray(np.concatenate([A, B], axis=-1)),
        np.ascontiguousarray(np.concatenate([cores.R.reshape(M, O, 9), cores.p], axis=-1)),
        np.ascontiguousarray(cores.size, float),
        np.ascontiguousarray(thick),
        np.ascontiguousarray(cores.kind, np.intc),
        np.ascontiguousarray(counts, np.intc),
    ]
    kernel(ctypes.byref(_Gaps(M, P, O, reach, *(a.ctypes.data for a in given), address(gaps))))
    return gaps


class _Gaps(ctypes.Structure):
    """The struct gaps_t of kernels/gaps.h."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("M", "P", "O")),
        ("reach", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("ends", "cores", "sizes", "thick", "kind", "counts", "gaps")),
    ]


@lru_cache(maxsize=1)
def _kernel() -> Any:
    found = library(
        _source,
        "capsule gaps",
        box_distance,
        cylinder_distance,
        triangle_distance,
        kernel_text("trajopt.collisions", "gaps.h"),
    )
    return bound(found, "capsule_gaps", "p")


def _source() -> str:
    import casadi as ca

    p, d, size = (ca.SX.sym(name, 3) for name in ("p", "d", "size"))
    parts_of = [[s[i] for i in range(3)] for s in (p, d, size)]
    results = {f"segment_{kind}": distance(*parts_of) for kind, distance in KINDS.items()}
    arguments, parts, room = [Argument(name, 3) for name in ("p", "d", "size")], [], 0
    for name, value in results.items():
        text, own = chunked_function(name, trace_expressions([p, d, size], [value]), arguments, ["D"])
        parts.append(text)
        room = max(room, own)
    return "\n".join([templates(), *parts, f"#define WORK {room}", kernel_text("trajopt.collisions", "gaps.h")])


def _set_depths(gaps: Array, A: Array, B: Array, thick: Array, cores: Cores, counts: Array) -> None:
    """Set the gaps of segments inside hulls: the largest, over the faces, of the lower endpoint's height above the plane."""
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


def _in_numpy(A: Array, B: Array, thick: Array, cores: Cores, counts: Array, reach: float) -> Array:
    middle, half = 0.5 * (A + B), 0.5 * np.linalg.norm(B - A, axis=-1)
    local = np.einsum("moji,mpoj->mpoi", cores.R, middle[:, :, None] - cores.p[:, None])
    boxes = np.select(
        [(cores.kind == 0)[:, None], (cores.kind == 1)[:, None]],
        [cores.size, cores.size[:, [0, 0, 1]]],
        cores.size[:, [0, 2, 2]] * [1.0, 1.0, 0.0],
    )
    gaps = np.linalg.norm(np.maximum(np.abs(local) - boxes, 0.0), axis=-1) - half[:, :, None] - thick
    gaps[:, ~counts] = np.inf
    for kind, distance in enumerate(KINDS.values()):
        k, i, o = np.nonzero((gaps < reach) & (cores.kind == kind))
        if not len(k):
            continue
        R = cores.R[k, o].transpose(0, 2, 1)
        p = (R @ (A[k, i] - cores.p[k, o])[:, :, None])[..., 0].T
        d = (R @ (B[k, i] - A[k, i])[:, :, None])[..., 0].T
        gaps[k, i, o] = distance(list(p), list(d), list(cores.size[o].T)) - thick[i, o]
    return gaps
