"""Gaps between many capsules and many cores at many configurations, by kernels/gaps.h.

The kernel evaluates :mod:`dynamics_backends.rigid_body.geometry.distances`. A pair whose bounding-ball gap exceeds the reach
gets this lower bound. A single face of a hull does not show which side is inside. For a segment behind all faces of a hull, the
face with the shortest separating translation gets the depth, even beyond the reach.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface import address
from dynamics_backends.protocol import Array
from trajopt.collisions.library import GapsData, collision_kernels


class Cores(NamedTuple):
    """O cores at M configurations. R (M, O, 3, 3), p (M, O, 3) [m]: poses in the world; size (O, 3), radius (O,) [m]; kind (O,):
    position in :data:`~trajopt.collisions.library.KINDS`; hull (O,): index of the hull of a face, adjacent for one hull; -1 for
    cores that are no faces."""

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
    collision_kernels().capsule_gaps(ctypes.addressof(data))
    return gaps


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
