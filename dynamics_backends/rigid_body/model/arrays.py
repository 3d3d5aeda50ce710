"""Arrays of a model: checked at construction and read-only."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

ROTATION_TOLERANCE = 1e-6  # largest accepted entry of R R' - 1


def frozen(array: np.ndarray) -> np.ndarray:
    """Make an array read-only and return it."""
    array.flags.writeable = False
    return array


def starts(sizes: Iterable[int]) -> np.ndarray:
    """Start index of each part in the concatenation of parts of these sizes."""
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
    """Raise ValueError unless R (..., 3, 3) are rotations."""
    error = np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(3)).max(initial=0.0)
    if not error <= ROTATION_TOLERANCE or np.any(np.linalg.det(R) < 0):
        raise ValueError(f"{what} is not a rotation (R'R - 1 reaches {error:.1e}): orthonormalize it, determinant +1")
