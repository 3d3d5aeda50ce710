"""Conversion of fields between kernels and other drivers: arrays (N, n), batch first, instead of rows (n, N).

A field of structs is one array (N, rows * size) in a kernel; the factor of a mass matrix is L by rows, then D^-1
(linear_algebra/ltl.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Program
from dynamics_backends.rigid_body.spatial.spatial import Struct, build, leaves, size
from dynamics_backends.scalars.dual import Dual

_ORDER = {Axis.DOF: 1, Axis.MATRIX: 2, Axis.TENSOR: 3}
"""Number of DoF indices of a result with numeric entries."""


def shapes_of(program: Program, model: Model) -> list[tuple[int, ...]]:
    """Shapes of a program's results at one knot."""
    return [_shape(o, model) for o in program.outputs]


def _shape(name: str, model: Model) -> tuple[int, ...]:
    axis, kind = FIELDS[name].axis, FIELDS[name].kind
    if axis is Axis.WHOLE:
        return (model.nv * (model.nv + 1),)
    rows = (model.nb,) if axis is Axis.BODY else (model.nv,) * _ORDER[axis]
    return rows if kind is None else (*rows, size(kind))


def algebra_of(program: Program, values: Sequence[Any]) -> str | None:
    """Number type of the arguments; None if no kernel supports it: symbols, mixtures.

    The C templates of linear algebra are real.
    """
    parts = [leaf for v in values for leaf in leaves(v)]
    if not all(isinstance(leaf, (np.ndarray, Dual)) for leaf in parts):
        return None
    dual = any(isinstance(leaf, Dual) for leaf in parts)
    is_complex = any(np.iscomplexobj(value_of(leaf)) for leaf in parts)
    if not dual and not is_complex:
        return "real"
    real_only = any(p.template not in ("", "add_to_diagonal") for p in program.passes)
    return None if real_only or (dual and is_complex) else "dual" if dual else "complex"


def value_of(leaf: Any) -> np.ndarray:
    """Value part of a dual array, or the array itself."""
    return leaf.val if isinstance(leaf, Dual) else leaf


# -- arguments ----------------------------------------------------------------------------------------------------------


def arrays_of(values: Sequence[Any], dtype: type = float) -> list[np.ndarray]:
    """Arguments in the layout of kernels: (N, n), batch first."""
    return [np.ascontiguousarray(a, dtype=dtype).view(float) for a in _same_length([batch_first(v) for v in values])]


def _same_length(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Broadcast batches of length one to the longest batch."""
    n = max(len(a) for a in arrays)
    return [a if len(a) == n else np.broadcast_to(a, (n, *a.shape[1:])) for a in arrays]


def batch_first(value: Any) -> np.ndarray:
    """Convert rows (n, N) to (N, n); a field of structs (leaves (nb, N)) to (N, nb * size); a trailing axis stays.

    Rows (n,) give a batch of one knot.
    """
    if not isinstance(value, Struct):
        return np.ascontiguousarray(np.swapaxes(value[:, None] if value.ndim == 1 else value, 0, 1))
    stacked = np.stack(np.broadcast_arrays(*leaves(value)), axis=1)  # (nb, size, N, ...)
    joined = stacked.reshape(-1, *stacked.shape[2:])
    return np.ascontiguousarray(np.swapaxes(joined, 0, 1))


# -- results ------------------------------------------------------------------------------------------------------------


def named(program: Program, model: Model, results: Sequence[np.ndarray]) -> dict[str, Any]:
    """Results (N, ...) of a kernel as fields, keyed by name."""
    return {o: field_of(o, model, np.moveaxis(r, 0, -1)) for o, r in zip(program.outputs, results, strict=True)}


def field_of(name: str, model: Model, rows: Any) -> Any:
    """Field from a plain or dual array (..., N); the components of a struct are in the last axis before N."""
    f = FIELDS[name]
    if f.axis is Axis.WHOLE:
        return _factor(model, rows)
    if f.kind is None:
        return rows
    if isinstance(rows, np.ndarray):
        rows = np.ascontiguousarray(rows)
    return build(f.kind, iter([rows[:, i] for i in range(size(f.kind))]))


def _factor(model: Model, rows: np.ndarray) -> ltl.Factor:
    """Factor of a mass matrix from its numbers (nv (nv + 1), N)."""
    n, rows = model.nv, np.ascontiguousarray(rows)
    ancestors = ltl.ancestor_lists(model.dof_parent.tolist())
    L = [{i: rows[k * n + i] for i in above} for k, above in enumerate(ancestors)]
    return ltl.Factor(L, list(rows[n * n :]), ancestors)
