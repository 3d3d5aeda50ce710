"""Access to rows of fields: a field is a struct (or a scalar) whose leaves are arrays (rows, N), or a list of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.rigid_body.spatial.spatial import Struct, leaves
from dynamics_backends.scalar import stack


def as_rows(field: Any) -> Any:
    """Convert a field of scalars to rows (n, N), or to a column of symbols."""
    return stack(field) if isinstance(field, list) else field


def row(field: Any, index: int) -> Any:
    """One row of a body or DoF field of a driver's result, as a struct of scalars."""
    return field[index] if isinstance(field, list) else take(field, index)


def mapped(x: Any, function: Any) -> Any:
    """Apply a function to every leaf of a struct."""
    return x.build(*map(function, leaves(x))) if isinstance(x, Struct) else function(x)


def take(x: Any, index: Any) -> Any:
    """Rows ``index`` of a field; leaves that are plain numbers are equal in every row."""
    if isinstance(x, Struct):
        return x.build(*[leaf[index] if getattr(leaf, "shape", ()) else leaf for leaf in x.leaves(x)])
    return x[index] if getattr(x, "shape", ()) else x


def set_rows(store: Any, index: Any, value: Any) -> None:
    """Write the leaves of ``value`` to the rows ``index`` of ``store``."""
    for target, leaf in zip(leaves(store), leaves(value), strict=True):
        target[index] = leaf


def add_rows(store: Any, index: np.ndarray | slice, value: Any) -> None:
    """Add each row of ``value`` to row index[i] of ``store``; an index array may repeat, since siblings share a parent."""
    for target, leaf in zip(leaves(store), leaves(value), strict=True):
        if isinstance(index, slice):
            target[index] = target[index] + leaf
            continue
        for i, parent in enumerate(index):
            target[parent] = target[parent] + leaf[i]
