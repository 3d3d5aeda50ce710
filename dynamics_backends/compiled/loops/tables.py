"""Tables of a model that loop kernels read at run time: the tree in integers, constants in doubles."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from dynamics_backends.compiled.loops.sparsity import below_others, on_one_path, triple_counts
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.ground import free_dofs
from dynamics_backends.rigid_body.passes.layout import layout
from dynamics_backends.rigid_body.passes.passes import TABLES as DOUBLE_TABLES
from dynamics_backends.rigid_body.spatial.joints import JOINTS
from dynamics_backends.rigid_body.spatial.spatial import leaves

INT_TABLES = (
    "head",  # nb, nv, nq, numbers of triples
    "parent",
    "type",
    "q_index",
    "v_index",
    "dof_body",
    "above",  # for each DoF the DoFs of the joints above, starting at the root
    "above_start",
    "above_rooted",  # end of the DoFs in ``above`` whose joint is attached to the world
    "up",
    "end",
    "gaps",
    "stretches",
)


def int_tables(model: Model) -> list[np.ndarray]:
    """Integer tables in the order of INT_TABLES."""
    bodies = np.asarray(model.dof_body)
    above = [[k for k in model.ancestors(int(b)) if bodies[k] != b] for b in bodies]
    start = np.cumsum([0, *[len(a) for a in above]])
    rooted = ~below_others(model)
    tables = {
        "head": [model.nb, model.nv, model.nq, *triple_counts(model)],
        "parent": model.parent,
        "type": [list(JOINTS).index(t) for t in model.joint_types],
        "q_index": model.q_index,
        "v_index": [*model.v_index, model.nv],
        "dof_body": bodies,
        "above": [k for a in above for k in a] or [0],
        "above_start": start,
        "above_rooted": [first + int(np.count_nonzero(rooted[a])) for first, a in zip(start[:-1], above, strict=True)],
        "up": model.dof_parent,
        "end": subtree_ends(model.dof_parent),
        "gaps": _gaps(model),
        "stretches": _stretches(model),
    }
    return [np.ascontiguousarray(tables[name], dtype=np.int32) for name in INT_TABLES]


def double_tables(model: Model) -> list[np.ndarray]:
    """Double tables in the order of DOUBLE_TABLES, then gravity as an upward acceleration."""
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
    """Runs of zeros in a matrix (nv, nv), where row and column lie on no common path: their number, then begin and length of
    each.
    """
    runs, at = [], 0
    for related, entries in groupby(on_one_path(model, 2).ravel()):
        length = len(list(entries))
        if not related:
            runs += [at, length]
        at += length
    return [len(runs) // 2, *runs]


def _stretches(model: Model) -> list[int]:
    """Unbranched stretches of the tree, without joints at the world: consecutive DoFs with the same set of DoFs on their path.

    Table: number of DoFs of a free base; number of stretches; for each the first DoF, one past the last, the number of DoFs on its
    path, and these DoFs.
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
