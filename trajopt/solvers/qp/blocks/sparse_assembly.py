"""Assembly of dense blocks into sparse matrices of a fixed pattern, with new values at each call."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.scipy_sparse import sp


class Entries:
    """Collector of the matrix indices of dense blocks; entries with row -1 are omitted."""

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._columns: list[Array] = []

    def add(self, rows: Array, columns: Array, mask: Array | bool = True) -> None:
        """Add blocks (..., r, c) at rows (..., r) and columns (..., c) of the matrix; mask: False for entries always zero."""
        r, c, m = np.broadcast_arrays(rows[..., :, None], columns[..., None, :], mask)
        self._rows.append(np.where(m, r, -1).ravel())
        self._columns.append(c.ravel())

    def assembly(self, shape: tuple[int, int]) -> Assembly:
        """Return the assembly that sums the added blocks, in their order, into a matrix of this shape."""
        return Assembly(shape, self._rows, self._columns)


class Assembly:
    """Sum of blocks as a csc matrix or as entries; entries with the same indices are added."""

    def __init__(self, shape: tuple[int, int], rows: Sequence[Array], columns: Sequence[Array]) -> None:
        self.shape = shape
        row, column = (np.concatenate([*parts, np.zeros(0, int)]).astype(np.int64) for parts in (rows, columns))
        self._used = np.flatnonzero(row >= 0)
        places = column[self._used] * shape[0] + row[self._used]
        unique, slots = np.unique(places, return_inverse=True)
        self.indices = (unique % shape[0]).astype(np.int32)
        self.columns = unique // shape[0]
        once = len(unique) == len(places)
        self._source = self._used[np.argsort(slots)] if once else None  # a plain permutation is faster than a sum
        self._slots = slots

    @cached_property
    def pattern(self) -> sp.csc_matrix:
        """Matrix with the sparsity pattern and ones as values."""
        indptr = np.searchsorted(self.columns, np.arange(self.shape[1] + 1)).astype(np.int32)
        return sp.csc_matrix((np.ones(len(self.indices)), self.indices, indptr), shape=self.shape)

    def __call__(self, blocks: Sequence[Array]) -> sp.csc_matrix:
        """Return the matrix with the values of blocks, given in the order in which they were added."""
        matrix = copy(self.pattern)  # a copy skips the checks of SciPy's constructor
        matrix.data = self.values(blocks)
        return matrix

    def values(self, blocks: Sequence[Array]) -> Array:
        """Return the values (e,) of the entries in column order, from blocks in the order in which they were added."""
        values = np.concatenate([*(block.ravel() for block in blocks), np.zeros(0)])
        if self._source is not None:
            return values.take(self._source)
        return np.bincount(self._slots, weights=values[self._used], minlength=len(self.indices))
