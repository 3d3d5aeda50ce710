"""A disk cache of capsules that cover shapes: the search takes seconds for a robot, reading the result takes milliseconds.

The name of an entry depends on every point of the shapes, on the tolerance, and on the version of the search. A changed shape
therefore gets a new entry. Entries are written atomically. A read-only folder costs only time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers.capsule_fit import FittedCapsule, fit_capsule
from dynamics_backends.rigid_body.geometry.covers.cover import Piece, covers
from dynamics_backends.rigid_body.geometry.meshes.mesh_cache import UNREADABLE, cache_entry, read_entry, write_entry
from dynamics_backends.rigid_body.geometry.shapes import Mesh, PlacedShape

VERSION = 1
"""Version of the search; entries of other versions are ignored."""


def cached_covers(shapes: Iterable[PlacedShape], tolerance: float, max_pieces: int) -> tuple[Piece, ...]:
    """:func:`~dynamics_backends.rigid_body.geometry.covers.cover.covers` with a disk cache; raises the same ValueError."""
    placed = tuple(shapes)
    key = [part for shape in placed for part in _key_parts(shape)]
    entry = cache_entry("covers", f"{VERSION} {tolerance!r} {max_pieces}".encode(), *key)
    with contextlib.suppress(*UNREADABLE):
        return _read_pieces(entry)
    pieces = covers(placed, tolerance, max_pieces)
    sizes, links = [len(piece.triangles) for piece in pieces], [piece.link for piece in pieces]
    triangles = np.concatenate([np.zeros((0, 3, 3)), *(piece.triangles for piece in pieces)])
    write_entry(
        entry,
        capsules=_rows(piece.capsule for piece in pieces),
        excess=np.array([piece.excess for piece in pieces]),
        triangles=triangles,
        sizes=np.array(sizes, dtype=int),
        links=np.array(links, dtype=str),
    )
    return pieces


def cached_capsules(points: Sequence[Array]) -> list[FittedCapsule]:
    """:func:`~dynamics_backends.rigid_body.geometry.covers.capsule_fit.fit_capsule` of sets of points (n, 3), with a disk cache."""
    entry = cache_entry("covers", f"{VERSION} capsules".encode(), *(_bytes(own) for own in points))
    with contextlib.suppress(*UNREADABLE):
        return [_capsule(row) for row in read_entry(entry)["capsules"]]
    fitted = [fit_capsule(own) for own in points]
    write_entry(entry, capsules=_rows(fitted))
    return fitted


def _key_parts(placed: PlacedShape) -> list[bytes]:
    """A shape and its placement as bytes, at full precision."""
    shape = placed.shape
    own = [_bytes(a) for a in (shape.vertices, shape.faces)] if isinstance(shape, Mesh) else [repr(shape).encode()]
    return [placed.link.encode(), _bytes(placed.R), _bytes(placed.p), *own]


def _bytes(values: Array) -> bytes:
    return f"{np.shape(values)}".encode() + np.ascontiguousarray(values, float).tobytes()


def _read_pieces(entry: Path) -> tuple[Piece, ...]:
    data = read_entry(entry)
    triangles = np.split(data["triangles"], np.cumsum(data["sizes"])[:-1])
    parts = zip(data["links"].tolist(), triangles, data["capsules"], data["excess"].tolist(), strict=True)
    return tuple(Piece(link, corners, _capsule(row), excess) for link, corners, row, excess in parts)


def _rows(capsules: Iterable[FittedCapsule]) -> Array:
    """Capsules as rows (n, 7)."""
    return np.array([[*c.a, *c.b, c.radius] for c in capsules]).reshape(-1, 7)


def _capsule(row: Array) -> FittedCapsule:
    return FittedCapsule(row[:3], row[3:6], float(row[6]))
