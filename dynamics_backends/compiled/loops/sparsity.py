"""Sparsity of results: structurally zero entries."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.ground import free_dofs
from dynamics_backends.rigid_body.passes.layout import layout
from dynamics_backends.rigid_body.passes.passes import FIELDS, TRIPLES, Axis, Program, base_name

Array = np.ndarray
_ORDER = {Axis.MATRIX: 2, Axis.TENSOR: 3}
"""Number of indices of an entry."""


def zero_masks(program: Program, model: Model) -> dict[str, Array]:
    """Masks (nv, ...) of the structural zeros of a program's output matrices and tensors, by name.

    Nonzero are the entries in MASKS; else those whose DoFs lie on one path if passes write single entries, or in one tree.
    """
    by_entry = {base_name(o) for p in program.passes if p.by_entry for o in p.outputs}
    zeros = {}
    for o in program.outputs:
        order = _ORDER.get(FIELDS[o].axis)
        if order is not None:
            nonzero = MASKS.get(o) or (on_one_path if o in by_entry else _in_one_tree)
            zeros[o] = ~np.broadcast_to(nonzero(model, order), (model.nv,) * order)
    return zeros


# -- structural zeros -----------------------------------------------------------------------------------------------------


def on_one_path(model: Model, order: int) -> Array:
    """Mask (nv,) * order: entries whose DoFs lie on one path."""
    kinds, letters = (("pair", "own_pair"), "dk") if order == 2 else (TRIPLES.values(), "djk")
    mask = np.zeros((model.nv,) * order, dtype=bool)
    for kind in kinds:
        index = layout(model).indices(kind)
        for arrangement in permutations(letters):
            mask[tuple(index[letter] for letter in arrangement)] = True
    return mask


def _in_one_tree(model: Model, order: int) -> Array:
    """Mask (nv,) * order: entries whose DoFs belong to one tree of the forest."""
    root = [model.ancestors(int(b))[0] for b in model.dof_body]
    same = np.equal.outer(root, root)
    return same if order == 2 else same[:, :, None] & same[:, None, :]


def _effective(model: Model) -> Array:
    """Mask of the DoFs on whose position the dynamics depend: all but the translations of a floating base."""
    return np.arange(model.nv) >= (3 if model.floating_base else 0)


def below_others(model: Model) -> Array:
    """Mask of the DoFs whose joint has a parent body other than the world: those on whose positions M depends."""
    return np.asarray(model.parent)[model.dof_body] >= 0


def _affects_others(model: Model) -> Array:
    """Mask of the DoFs whose velocities affect other DoFs: all but the translations of a floating base without rotor inertia."""
    return np.arange(model.nv) >= free_dofs(model) // 2


def _curved_in_q(model: Model, order: int) -> Array:
    """Mask (nv, nv) of possibly nonzero second derivatives in q: DoFs of one tree without the translations of a floating base.

    Entries between a free base and other DoFs vanish: its rotation changes only gravity in base axes.
    """
    base = np.arange(model.nv) < free_dofs(model)
    effective = _effective(model)
    return _in_one_tree(model, order) & effective & effective[:, None] & np.equal.outer(base, base)


def _curved_in_v(model: Model, order: int) -> Array:
    """Mask (nv, nv) of possibly nonzero second derivatives in v: DoFs on one path.

    The translations of a free base combine only with its rotations.
    """
    base, affects = np.arange(model.nv) < free_dofs(model), _affects_others(model)
    nonzero = np.where(affects[:, None], True, base & affects)
    return on_one_path(model, order) & nonzero & nonzero.T


MASKS: dict[str, Callable[[Model, int], Array]] = {
    "da_dq": lambda model, order: _in_one_tree(model, order) & _effective(model),
    "L_qq": _curved_in_q,
    "L_qv": lambda model, order: _in_one_tree(model, order) & below_others(model)[:, None] & _affects_others(model),
    "L_qtau": lambda model, order: _in_one_tree(model, order) & below_others(model)[:, None],
    "L_vv": _curved_in_v,
}
"""Masks (nv, ...) of possibly nonzero entries, for outputs that are not full blocks of trees."""
