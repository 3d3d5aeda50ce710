"""Assembly of dense blocks into sparse matrices of a fixed pattern, with new values at each call."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.qp.scipy_sparse import sp


class Assembly:
    """Sum of blocks as a csc matrix or as entries; entries with the same indices are added.

    places: for each group of blocks (..., r, c), their rows (..., r) and columns (..., c) in the matrix, -1 for unused rows, and a
    mask, False for entries that are always zero.
    """

    def __init__(self, shape: tuple[int, int], *places: tuple[Array, Array, Array | bool]) -> None:
        self.shape = shape
        given = [np.broadcast_arrays(rows[..., :, None], columns[..., None, :], mask) for rows, columns, mask in places]
        row, column, used = (np.concatenate([part.ravel() for part in parts]) for parts in zip(*given, strict=True))
        self._used = np.flatnonzero((row >= 0) & used)
        index = column[self._used].astype(np.int64) * shape[0] + row[self._used]
        unique, slots = np.unique(index, return_inverse=True)
        self.indices = (unique % shape[0]).astype(np.int32)
        self.columns = unique // shape[0]
        once = len(unique) == len(index)
        self._source = self._used[np.argsort(slots)] if once else None  # a plain permutation is faster than a sum
        self._slots = slots

    @cached_property
    def pattern(self) -> sp.csc_matrix:
        """Matrix with the sparsity pattern and ones as values."""
        indptr = np.searchsorted(self.columns, np.arange(self.shape[1] + 1)).astype(np.int32)
        return sp.csc_matrix((np.ones(len(self.indices)), self.indices, indptr), shape=self.shape)

    def __call__(self, blocks: Sequence[Array]) -> sp.csc_matrix:
        """Return the matrix with the values of blocks, in the order of their places."""
        matrix = copy(self.pattern)  # a copy skips the checks of SciPy's constructor
        matrix.data = self.values(blocks)
        return matrix

    def values(self, blocks: Sequence[Array]) -> Array:
        """Return the values (e,) of the entries in column order, from blocks in the order of their places."""
        values = np.concatenate([*(block.ravel() for block in blocks), np.zeros(0)])
        if self._source is not None:
            return values.take(self._source)
        return np.bincount(self._slots, weights=values[self._used], minlength=len(self.indices))
