"""Arrays of a model, checked at construction and read-only; and the content hash of records of arrays and plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass

import numpy as np

ROTATION_TOLERANCE = 1e-6  # largest accepted entry of R R' - 1


def frozen(array: np.ndarray) -> np.ndarray:
    """Make an array read-only and return it."""
    array.flags.writeable = False
    return array


def starts(sizes: Iterable[int]) -> np.ndarray:
    """Read-only start index of each part in the concatenation of parts of these sizes."""
    return frozen(np.cumsum([0, *sizes], dtype=np.int64)[:-1].copy())


def checked_array(what: str, values, shape: tuple[int, ...], finite: bool = True) -> np.ndarray:
    """Read-only float copy of this shape. Raises ValueError for another shape, NaN, and infinity if ``finite``."""
    array = np.array(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{what} has shape {array.shape}, expected {shape}")
    if not (np.isfinite(array).all() if finite else not np.isnan(array).any()):
        raise ValueError(f"{what} contains {'NaN or infinity' if finite else 'NaN'}: give finite numbers")
    return frozen(array)


def check_rotations(what: str, R: np.ndarray):
    """Raise ValueError unless R (..., 3, 3) are rotations, with R'R - 1 up to ROTATION_TOLERANCE."""
    error = np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(3)).max(initial=0.0)
    if not error <= ROTATION_TOLERANCE or np.any(np.linalg.det(R) < 0):
        raise ValueError(f"{what} is not a rotation (R'R - 1 reaches {error:.1e}): orthonormalize it, determinant +1")


def fingerprint(value) -> str:
    """Return the SHA-256 of the content in hexadecimal.

    Dataclasses are hashed by their fields, except those with metadata digest = False; in arrays, -0.0 equals 0.0.
    """
    content = hashlib.sha256()
    _feed(content, value)
    return content.hexdigest()


def _feed(content, value):
    """Add `value` with its kind and length, so that neighboring values cannot be mistaken for other ones.

    Tuples count as lists, dataclasses as lists of their fields, integer arrays as int64 and others as float64; any other object
    counts by its repr.
    """
    if is_dataclass(value):
        _feed(content, [getattr(value, field.name) for field in fields(value) if field.metadata.get("digest", True)])
    elif isinstance(value, np.ndarray):
        kind = "<i8" if value.dtype.kind in "iu" else "<f8"
        content.update(f"array{kind}{value.shape}".encode())
        content.update((value + 0).astype(kind).tobytes())  # + 0 turns -0.0 into 0.0
    elif isinstance(value, tuple | list):
        content.update(f"list{len(value)}".encode())
        for item in value:
            _feed(content, item)
    else:
        text = repr(value)
        content.update(f"text{len(text)}:{text}".encode())
