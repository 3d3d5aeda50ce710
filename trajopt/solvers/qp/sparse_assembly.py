"""Sparse matrices of a fixed pattern from dense blocks, whose values are given anew each time."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Array

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = deferred("scipy.sparse")


class Entries:
    """Where the values of some blocks belong: rows and columns of each, broadcast against each other; row -1: nowhere."""

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._columns: list[Array] = []

    def add(self, rows: Array, columns: Array, mask: Array | bool = True) -> None:
        """Blocks (..., r, c) with row indices (..., r) and column indices (..., c); mask: entries that can differ from zero."""
        r, c, m = np.broadcast_arrays(rows[..., :, None], columns[..., None, :], mask)
        self._rows.append(np.where(m, r, -1).ravel())
        self._columns.append(c.ravel())

    def assembly(self, shape: tuple[int, int]) -> Assembly:
        """The assembly of the blocks in the order in which they were added."""
        return Assembly(shape, self._rows, self._columns)


class Assembly:
    """A sum of blocks as a csc matrix; entries at the same place are added up. pattern: the same matrix of ones."""

    def __init__(self, shape: tuple[int, int], rows: Sequence[Array], columns: Sequence[Array]) -> None:
        self.shape = shape
        row, column = (np.concatenate([*parts, np.zeros(0, int)]).astype(np.int64) for parts in (rows, columns))
        self._kept = np.flatnonzero(row >= 0)
        places = column[self._kept] * shape[0] + row[self._kept]
        unique, slots = np.unique(places, return_inverse=True)
        self.indices = (unique % shape[0]).astype(np.int32)
        self.indptr = np.searchsorted(unique // shape[0], np.arange(shape[1] + 1)).astype(np.int32)
        once = len(unique) == len(places)
        self._source = self._kept[np.argsort(slots)] if once else None  # a plain permutation is faster than a sum
        self._slots = slots
        self.pattern = sp.csc_matrix((np.ones(len(unique)), self.indices, self.indptr), shape=shape)

    def __call__(self, blocks: Sequence[Array]) -> sp.csc_matrix:
        """The matrix of these values, blocks as they were added."""
        values = np.concatenate([*(block.ravel() for block in blocks), np.zeros(0)])
        if self._source is not None:
            data = values.take(self._source)
        else:
            data = np.bincount(self._slots, weights=values[self._kept], minlength=len(self.indices))
        matrix = copy(self.pattern)  # scipy's constructor examines what is known here
        matrix.data = data
        return matrix
