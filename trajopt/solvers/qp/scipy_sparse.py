"""Sparse matrices of SciPy, imported at the first use: QPs in stages need none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dynamics_backends.deferred import deferred

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")
sparse_linalg = deferred("scipy.sparse.linalg")

__all__ = ["load_sparse", "sp", "sparse_linalg"]


def load_sparse() -> None:
    """Import the sparse matrices now, so that no step of a control loop waits 0.2 s for them."""
    import_module("scipy.sparse.linalg")
