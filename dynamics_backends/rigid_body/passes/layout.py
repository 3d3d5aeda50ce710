"""Index sets of a model for the drivers, and the model's constants as fields."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from dynamics_backends.rigid_body.model.mass_properties import inertias_about_origin
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import FIELDS, TRIPLES
from dynamics_backends.rigid_body.spatial.joints import JOINTS, Joint
from dynamics_backends.rigid_body.spatial.spatial import Inertia, Motion, Transform, Vec, build


class Layout:
    """Index sets of a model for the drivers, and its constants as columns (rows, 1)."""

    def __init__(self, model: Model) -> None:
        self._model = ref(model)  # weak: the model owns the layout, see _LAYOUTS
        self.joints = [JOINTS[t] for t in model.joint_types]
        self.dof_body = np.asarray(model.dof_body)
        self.dof_parent_body = np.asarray(model.parent)[self.dof_body]
        self.by_type = [self._group(np.flatnonzero([j is t for j in self.joints])) for t in dict.fromkeys(self.joints)]

    @property
    def model(self) -> Model:
        """Model of this layout; the caller must hold a reference to it."""
        model = self._model()
        assert model is not None
        return model

    def indices(self, kind: str) -> dict[str, np.ndarray]:
        """DoFs of the letters d, j, k of a kind of pass over pairs, paths or triples, one array for each letter that it has.

        For triples also ``path``, the index of their pair (d, j) in passes over paths.
        """
        return (self._pairs if kind in self._pairs else self._triples)[kind]

    def _joint_shared(self, i: int, j: int) -> bool:
        """True if two DoFs belong to one joint."""
        return bool(self.dof_body[i] == self.dof_body[j])

    @cached_property
    def _above(self) -> list[list[int]]:
        """DoFs at or above each DoF, including those of the same joint."""
        return [[int(k) for k in self.model.ancestors(int(b))] for b in self.dof_body]

    @cached_property
    def _paths(self) -> list[tuple[int, int]]:
        """Pairs (d, j) of a DoF d and a DoF j at or above it."""
        return [(d, j) for d, above in enumerate(self._above) for j in above]

    @cached_property
    def _pairs(self) -> dict[str, dict[str, np.ndarray]]:
        """DoFs of the passes over paths, over pairs of different joints and over pairs of one joint, by kind of pass."""
        own = [self._joint_shared(d, j) for d, j in self._paths]
        return {
            "path": _columns("dj", self._paths),
            "pair": _columns("dk", [p for p, same in zip(self._paths, own, strict=True) if not same]),
            "own_pair": _columns("dk", [p for p, same in zip(self._paths, own, strict=True) if same]),
        }

    @cached_property
    def _triples(self) -> dict[str, dict[str, np.ndarray]]:
        """DoFs of the passes over triples and the index of their pair (d, j), by kind of pass."""
        triples: dict[str, list[tuple[int, int, int, int]]] = {kind: [] for kind in TRIPLES.values()}
        for number, (d, j) in enumerate(self._paths):
            lower = self._joint_shared(d, j)
            for k in self._above[j]:
                triples[TRIPLES[lower, self._joint_shared(j, k)]].append((d, j, k, number))
        return {kind: _columns(("d", "j", "k", "path"), rows) for kind, rows in triples.items()}

    @cached_property
    def levels(self) -> list[Group]:
        """Groups of bodies of equal depth and joint type, from the root to the leaves."""
        depth = np.asarray(self.model.depth)
        keys = sorted({(int(d), self.joints.index(j)) for d, j in zip(depth, self.joints, strict=True)})
        members = [
            np.flatnonzero([e == d and j is self.joints[i] for e, j in zip(depth, self.joints, strict=True)])
            for d, i in keys
        ]
        return [self._group(m) for m in members]

    def _group(self, bodies: np.ndarray) -> Group:
        """Group of bodies that all have the joint type of the first."""
        return Group(self.model, self.joints[bodies[0]], bodies)

    @cached_property
    def tables(self) -> dict[str, Any]:
        """Constants of the model as structs of columns (nb, 1)."""
        m = self.model

        def column(kind: Any, *arrays: np.ndarray) -> Any:
            """Struct of columns (nb, 1) from arrays (nb, ...) with its components in order."""
            flat = np.concatenate([np.reshape(a, (len(a), -1)) for a in arrays], axis=1).T
            return build(kind, iter(flat[:, :, None]))

        upper = np.triu_indices(3)
        c, mass = np.asarray(m.com), np.asarray(m.mass)
        first = mass[:, None] * c
        about_origin = inertias_about_origin(mass, c, np.asarray(m.inertia))
        by_column = np.asarray(m.placement_R).transpose(0, 2, 1)
        return {
            "fixed": column(Transform, by_column, m.placement_p),
            "pitch": np.asarray(m.pitch)[:, None],
            "mass": mass[:, None],
            "com": column(Vec, c),
            "central": column(FIELDS["central"].kind, np.asarray(m.inertia)[:, upper[0], upper[1]]),
            "I_link": column(Inertia, mass, first, about_origin[:, upper[0], upper[1]]),
            "armature": np.asarray(m.armature)[:, None],
            "carried": np.where(self._in_turning_axes, m.armature, 0.0)[:, None],
        }

    @property
    def _in_turning_axes(self) -> np.ndarray:
        """Mask (nv,) of translations whose axes rotate with the body."""
        return np.array([joint.turns_axes and axis > 2 for joint in self.joints for axis in joint.axes], dtype=bool)

    @cached_property
    def ground(self) -> dict[str, Any]:
        """Fields of the world, the parent's rows at the root: unit pose, acceleration -g of gravity, other motions zero."""
        still = [0.0] * 6
        acceleration = build(Motion, iter([0.0, 0.0, 0.0, *(-np.asarray(self.model.gravity)).tolist()]))
        pose = build(Transform, iter([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]))
        return {
            "X": pose,
            "vel": build(Motion, iter(still)),
            "vel_link": build(Motion, iter(still)),
            "acc": acceleration,
            "acc_joint": build(Motion, iter(still)),
            "acc_link": acceleration,
            "w": build(Motion, iter(still)),
        }


class Group:
    """Bodies with the same joint type, handled as one set of rows.

    parents: their bodies' numbers, -1 for the ground. q, dofs: rows of each coordinate and of each DoF of their joints. at_root:
    True if the parent of all is the ground.
    """

    def __init__(self, model: Model, joint: Joint, bodies: np.ndarray) -> None:
        parents = np.asarray(model.parent)[bodies]
        self.joint = joint
        self.bodies = _rows(bodies)
        self.parents = _rows(parents)
        self.q = [_rows(model.q_index[bodies] + j) for j in range(joint.nq)]
        self.dofs = [_rows(model.v_index[bodies] + j) for j in range(joint.nv)]
        self.at_root = bool((parents < 0).all())


def _rows(index: np.ndarray) -> np.ndarray | slice:
    """Index set as a slice if it is evenly spaced and increasing, since a view is cheaper than a copy."""
    # numpy.unique would import numpy.ma, which takes 50 ms
    steps = {int(step) for step in np.diff(index)} or {1}
    if index[0] < 0 or len(steps) > 1 or min(steps) <= 0:
        return index
    return slice(int(index[0]), int(index[-1]) + 1, min(steps))


_LAYOUTS: WeakKeyDictionary[Model, Layout] = WeakKeyDictionary()


def layout(model: Model) -> Layout:
    """Layout of the model, created once and cached for the model's lifetime."""
    if model not in _LAYOUTS:
        _LAYOUTS[model] = Layout(model)
    return _LAYOUTS[model]


def _columns(letters: Sequence[str], rows: Sequence[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Index array of each letter, from rows with one index for each letter."""
    table = np.array(rows, dtype=int).reshape(-1, len(letters)).T
    return dict(zip(letters, table, strict=True))
