"""NumPy functions for entries that branch on values or call LAPACK (:mod:`~dynamics_backends.scalars.entries`).

Linear systems are solved by elimination with partial pivoting; selection chooses the pivot for each element of the batch, so that
the same source serves numbers, derivatives and symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.scalars.entries import (
    HANDLED,
    Entries,
    NoNumber,
    _chosen,
    _each,
    _objects,
    _on_entries,
    entries,
    wrapped,
)


def where(condition: Any, *branches: Any) -> Any:
    """Implementation of np.where with three arguments; both branches are evaluated. Raises NoNumber for one argument."""
    if len(branches) != 2:
        raise NoNumber("np.where with one argument asks which values are true; give both branches")
    return _each(_chosen, (condition, *branches))


def clip(x: Any, a_min: Any = None, a_max: Any = None, **bounds: Any) -> Any:
    """Implementation of np.clip; None for no bound."""
    low, high = bounds.get("min", a_min), bounds.get("max", a_max)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Implementation of np.linalg.norm for vectors of any order but 0, and of the Frobenius norm of matrices.

    Raises NoNumber for another norm of a matrix.
    """
    x = _entries(x)
    if axis is None and (x.ndim == 1 or ord in (None, "fro")):
        x, axis = x.ravel(), 0
    over_rows = isinstance(axis, int)
    if ord in (None, "fro") or (over_rows and ord == 2):
        return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))
    if not over_rows:
        raise NoNumber(f"np.linalg.norm(x, {ord!r}) of a matrix has no rule")
    if ord == 0:
        raise NoNumber("np.linalg.norm(x, 0), the number of non-zero entries, has no derivative")
    if ord in (np.inf, -np.inf):
        extreme: Any = np.maximum if ord > 0 else np.minimum
        return extreme.reduce(np.abs(x), axis=axis, keepdims=keepdims)
    return np.sum(np.abs(x) ** ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def interp(x: Any, xp: Any, fp: Any) -> Any:
    """Implementation of np.interp: linear interpolation in a table of numbers, constant beyond its ends."""
    xp, fp = np.asarray(xp, float), np.asarray(fp)
    slopes = np.diff(fp) / np.diff(xp)
    total = fp[0] + 0.0 * x
    for at, width, slope in zip(xp, np.diff(xp), slopes, strict=False):
        total = total + slope * clip(x - at, 0.0, width)
    return total


def mean(x: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
    """Implementation of np.mean; dtype and out are ignored."""
    x = _entries(x)
    count = x.size if axis is None else np.prod([x.shape[a] for a in np.atleast_1d(axis)])
    return np.sum(x, axis=axis, keepdims=keepdims) / float(count)


def _extreme(ufunc: np.ufunc) -> Callable[..., Any]:
    """Implementation of a NumPy reduction by this universal function, such as np.max; its argument out is ignored."""

    def function(x: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Reduce x over an axis, default all axes."""
        return ufunc.reduce(_entries(x), axis=axis, keepdims=keepdims)

    return function


# -- linear systems -------------------------------------------------------------------------------------------------------


def solve(A: Any, b: Any) -> Any:
    """Implementation of np.linalg.solve for one matrix (n, n) and b (n,) or (n, k). Raises NoNumber for another shape of A."""
    A, b = _square(A), _entries(b)
    X, _ = _eliminated(A, b.reshape(len(A), -1))
    return X.reshape(b.shape)


def inv(A: Any) -> Any:
    """Implementation of np.linalg.inv for one matrix (n, n). Raises NoNumber for another shape."""
    A = _square(A)
    return _eliminated(A, _entries(np.eye(len(A))))[0]


def det(A: Any) -> Any:
    """Implementation of np.linalg.det for one matrix (n, n). Raises NoNumber for another shape."""
    A = _square(A)
    return _eliminated(A, _entries(np.zeros((len(A), 0))))[1]


def _eliminated(A: Entries, B: Entries) -> tuple[Entries, Any]:
    """Solution A^-1 B for A (n, n) and B (n, k), and the determinant of A."""
    n, table, determinant = len(A), np.concatenate([A, B], axis=1).view(np.ndarray), 1.0
    for k in range(n):
        for i in range(k + 1, n):  # swap so that the larger pivot of the two rows is above
            swapped = np.abs(table[i, k]) > np.abs(table[k, k])
            upper = [_chosen(swapped, table[i, j], table[k, j]) for j in range(k, table.shape[1])]
            table[i, k:] = [_chosen(swapped, table[k, j], table[i, j]) for j in range(k, table.shape[1])]
            table[k, k:] = upper
            determinant = determinant * _chosen(swapped, -1.0, 1.0)
        pivot = table[k, k]
        determinant = determinant * pivot
        table[k, k + 1 :] = [e / pivot for e in table[k, k + 1 :]]
        for i in range(n):
            if i != k:
                table[i, k + 1 :] = [
                    e - table[i, k] * top for e, top in zip(table[i, k + 1 :], table[k, k + 1 :], strict=True)
                ]
    return table[:, n:].view(Entries), determinant


def _square(A: Any) -> Entries:
    """Square matrix of entries. Raises NoNumber for another shape."""
    A = _entries(A)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise NoNumber(f"linear algebra is supported for one square matrix; this one has shape {A.shape}")
    return A


def _entries(x: Any) -> Entries:
    """Array of entries and numbers from any array, list or number."""
    return _objects(x).view(Entries)


def _tensor_sum(subscripts: str, *operands: Any, **_: Any) -> Any:
    """Implementation of np.einsum, without optimizing the contraction order; keyword arguments are ignored."""
    return wrapped(np.einsum(subscripts, *map(_objects, operands), optimize=False))


def _blocks(x: Any) -> Any:
    """Implementation of np.block."""

    def boxed(x: Any) -> Any:
        """Nested lists with each block as an array of objects."""
        return [boxed(e) for e in x] if isinstance(x, list) else _objects(x)

    return wrapped(np.block(boxed(x)))


def _array(values: Any, dtype: Any = None, **_: Any) -> Entries:
    """Implementation of np.array and np.asarray with ``like=``: entries of the values; dtype is ignored."""
    return entries(values)


HANDLED |= {
    np.array: _array,
    np.asarray: _array,
    np.where: where,
    np.clip: clip,
    np.linalg.norm: norm,
    np.interp: interp,
    np.mean: mean,
    np.max: _extreme(np.maximum),
    np.min: _extreme(np.minimum),
    np.amax: _extreme(np.maximum),
    np.amin: _extreme(np.minimum),
    np.all: _extreme(np.logical_and),
    np.any: _extreme(np.logical_or),
    np.linalg.solve: solve,
    np.linalg.inv: inv,
    np.linalg.det: det,
    np.einsum: _tensor_sum,
    np.block: _blocks,
    np.real: lambda x: x,
    np.sinc: lambda x: _each(_on_entries(lambda e: sm.sinc(np.pi**2 * e * e)), (x,)),
}
