"""Rows of fields: a field is a struct (or a scalar) whose leaves are arrays (rows, N), or a list of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.rigid_body.spatial.spatial import build, leaves
from dynamics_backends.scalar import stack


def as_rows(field: Any) -> Any:
    """A field of scalars as rows (n, N), or as a column of symbols."""
    return stack(field) if isinstance(field, list) else field


def row(field: Any, index: int) -> Any:
    """One row of a body or DoF field of a driver's result, as a struct of scalars."""
    return field[index] if isinstance(field, list) else take(field, index)


def mapped(x: Any, function: Any) -> Any:
    """A struct with a function applied to every leaf."""
    return build(type(x) if hasattr(x, "PARTS") else None, iter([function(leaf) for leaf in leaves(x)]))


def take(x: Any, index: Any) -> Any:
    """The rows ``index`` of a field; leaves that are plain numbers hold for every row."""
    return mapped(x, lambda leaf: _taken(leaf, index)) if hasattr(x, "PARTS") else _taken(x, index)


def _taken(leaf: Any, index: Any) -> Any:
    return leaf[index] if getattr(leaf, "shape", ()) else leaf


def set_rows(store: Any, index: Any, value: Any) -> None:
    """Write the leaves of ``value`` to the rows ``index`` of the store's."""
    for target, leaf in zip(leaves(store), leaves(value), strict=True):
        target[index] = leaf


def add_rows(store: Any, index: np.ndarray, value: Any) -> None:
    """Add each row of ``value`` to row index[i] of the store; siblings share a parent, so an index may repeat."""
    for target, leaf in zip(leaves(store), leaves(value), strict=True):
        for i, parent in enumerate(index):
            target[parent] = target[parent] + leaf[i]
