"""Data of loop kernels: tables of a model, which they read at run time, and fields as their arguments and results.

The tables are the tree in integers and constants in doubles. Kernels take arrays (N, n), batch first, in place of the rows (n, N)
of other drivers. A field of structs is one array (N, rows * size); the factor of a mass matrix is L by rows, then D^-1
(linear_algebra/ltl.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.sparsity import below_others, on_one_path
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.ground import free_dofs
from dynamics_backends.rigid_body.passes.layout import layout
from dynamics_backends.rigid_body.passes.passes import FIELDS, TABLES as DOUBLE_TABLES, Axis, Program
from dynamics_backends.rigid_body.spatial.joints import JOINTS
from dynamics_backends.rigid_body.spatial.spatial import Struct, build, leaves, size

INT_TABLES = (
    "head",  # nb, nv, nq
    "parent",
    "type",
    "q_index",
    "v_index",
    "dof_body",
    "above",  # for each DoF the DoFs of the joints above, starting at the root
    "above_start",
    "up",
    "end",
    "gaps",
    "stretches",
)


def int_tables(model: Model) -> list[np.ndarray]:
    """Integer tables (int32) of a model's tree in the order of INT_TABLES."""
    bodies = np.asarray(model.dof_body)
    above = [[k for k in model.ancestors(int(b)) if bodies[k] != b] for b in bodies]
    start = np.cumsum([0, *[len(a) for a in above]])
    tables = {
        "head": [model.nb, model.nv, model.nq],
        "parent": model.parent,
        "type": [list(JOINTS).index(t) for t in model.joint_types],
        "q_index": model.q_index,
        "v_index": [*model.v_index, model.nv],
        "dof_body": bodies,
        "above": [k for a in above for k in a] or [0],
        "above_start": start,
        "up": model.dof_parent,
        "end": subtree_ends(model.dof_parent),
        "gaps": _gaps(model),
        "stretches": _stretches(model),
    }
    return [np.ascontiguousarray(tables[name], dtype=np.int32) for name in INT_TABLES]


def double_tables(model: Model) -> list[np.ndarray]:
    """Tables of a model's constants (float64) in the order of DOUBLE_TABLES, then gravity as an upward acceleration."""
    tables = layout(model).tables
    columns = [np.concatenate([np.asarray(leaf) for leaf in leaves(tables[n])], axis=1) for n in DOUBLE_TABLES]
    return [np.ascontiguousarray(c, dtype=float) for c in (*columns, -np.asarray(model.gravity))]


def subtree_ends(parents: np.ndarray) -> np.ndarray:
    """For each DoF, one past the last DoF of its subtree. parents: of the DoFs, -1 for none."""
    end = np.arange(1, len(parents) + 1)
    for d in reversed(range(len(parents))):
        up = int(parents[d])
        if up >= 0:
            end[up] = max(end[up], end[d])
    return end


def _gaps(model: Model) -> list[int]:
    """Runs of zeros in a matrix (nv, nv) stored by rows, where the DoFs of row and column lie on no common path.

    Table: number of runs; for each the first index in the flat array, and the length.
    """
    runs, at = [], 0
    for related, entries in groupby(on_one_path(model, 2).ravel()):
        length = len(list(entries))
        if not related:
            runs += [at, length]
        at += length
    return [len(runs) // 2, *runs]


def _stretches(model: Model) -> list[int]:
    """Unbranched stretches of the tree, without joints at the world: consecutive DoFs with the same path.

    The path of a DoF consists of the DoFs of its joint, those above and those below. Table: number of DoFs of a free base
    (:func:`~dynamics_backends.rigid_body.passes.ground.free_dofs`); number of stretches; for each the first DoF, one past the last,
    the number of DoFs on its path, and these DoFs.
    """
    paths, below = on_one_path(model, 2), below_others(model)
    stretches: list[list[int]] = []
    for d in map(int, np.flatnonzero(below)):
        if d and below[d - 1] and np.array_equal(paths[d], paths[d - 1]):
            stretches[-1].append(d)
        else:
            stretches.append([d])
    table = [free_dofs(model), len(stretches)]
    for stretch in stretches:
        path = np.flatnonzero(paths[stretch[0]])
        table += [stretch[0], stretch[-1] + 1, len(path), *map(int, path)]
    return table


_ORDER = {Axis.DOF: 1, Axis.MATRIX: 2, Axis.TENSOR: 3}
"""Number of DoF indices of a result with numeric entries."""


def shapes_of(program: Program, model: Model) -> list[tuple[int, ...]]:
    """Shapes of a program's results at one knot."""
    return [_shape(o, model) for o in program.outputs]


def _shape(name: str, model: Model) -> tuple[int, ...]:
    """Shape of a result at one knot; the factor of M has nv (nv + 1) numbers."""
    axis, kind = FIELDS[name].axis, FIELDS[name].kind
    if axis is Axis.WHOLE:
        return (model.nv * (model.nv + 1),)
    rows = (model.nb,) if axis is Axis.BODY else (model.nv,) * _ORDER[axis]
    return rows if kind is None else (*rows, size(kind))


# -- arguments ----------------------------------------------------------------------------------------------------------


def arrays_of(values: Sequence[Any]) -> list[np.ndarray]:
    """Arguments in the layout of kernels: float64 arrays (N, n), batch first; batches of length one are repeated N times."""
    arrays = [batch_first(value) for value in values]
    n = max(map(len, arrays))
    return [np.ascontiguousarray(np.broadcast_to(a, (n, *a.shape[1:])), float) for a in arrays]


def batch_first(value: Any) -> np.ndarray:
    """Convert rows (n, N) to (N, n); a field of structs (leaves (nb, N)) to (N, nb * size). Rows (n,) give a batch of one knot."""
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
    """Field from an array (..., N), the factor of a mass matrix as a ltl.Factor.

    The components of a struct are in the last axis before N.
    """
    f = FIELDS[name]
    if f.axis is Axis.WHOLE:
        return factor_of(model, rows)
    if f.kind is None:
        return rows
    rows = np.ascontiguousarray(rows)
    return build(f.kind, iter([rows[:, i] for i in range(size(f.kind))]))


def factor_of(model: Model, rows: np.ndarray) -> ltl.Factor:
    """Factor of a mass matrix from its numbers (nv (nv + 1), N), or symbols (nv (nv + 1),)."""
    n, rows = model.nv, np.ascontiguousarray(rows)
    ancestors = ltl.ancestor_lists(model.dof_parent.tolist())
    L = [{i: rows[k * n + i] for i in above} for k, above in enumerate(ancestors)]
    return ltl.Factor(L, list(rows[n * n :]), ancestors)
