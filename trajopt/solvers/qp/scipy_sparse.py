"""Sparse matrices of SciPy, imported at the first use: QPs in stages need none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics_backends.deferred import deferred

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")
sparse_linalg = deferred("scipy.sparse.linalg")

__all__ = ["sp", "sparse_linalg"]
