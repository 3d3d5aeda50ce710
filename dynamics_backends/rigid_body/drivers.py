"""Drivers: how a program of passes is evaluated.

``rows``    NumPy and dual arrays: all rows of a pass at once, the batch last; passes along the tree go level by level.
``unroll``  any scalar, one row at a time; with CasADi symbols this traces the algorithm to straight-line expressions.

Both take and return fields by name: DoF and q fields as rows (n, N) or lists of scalars, matrix fields as (nv, nv, N)
or nested lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.dual import Dual
from dynamics_backends.rigid_body.joints import JOINTS, Joint
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.passes import FIELDS, Axis, Pass, Program, base_name
from dynamics_backends.rigid_body.spatial import Inertia, Motion, Transform, Vec, build, leaves, size
from dynamics_backends.scalar import copied, stack

Fields = dict[str, Any]


class Driver(Protocol):
    """What evaluates a program: at least its outputs, by name."""

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields: ...


def run(program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
    """Evaluate a program with the driver that fits the arguments' scalar."""
    symbolic = any(hasattr(leaf, "is_symbolic") for value in arguments.values() for leaf in _samples(value))
    return unroll(program, model, arguments) if symbolic else rows(program, model, arguments)


def _samples(value: Any) -> list[Any]:
    """The first entry of an argument, enough to tell its scalar: in any component where it is a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


class Layout:
    """Index sets of a model for the row driver, and its constants as columns (rows, 1)."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.joints = [JOINTS[t] for t in model.joint_types]
        self.dof_body = np.asarray(model.dof_body)
        self.dof_parent_body = np.asarray(model.parent)[self.dof_body]
        pairs = [(k, d) for d in range(model.nv) for k in model.ancestors(int(self.dof_body[d]))]
        same = [self.dof_body[k] == self.dof_body[d] for k, d in pairs]
        self.pairs = {
            "pair": _columns([x for x, s in zip(pairs, same, strict=True) if not s]),
            "own_pair": _columns([x for x, s in zip(pairs, same, strict=True) if s]),
        }
        self.by_type = [self._group(np.flatnonzero([j is t for j in self.joints])) for t in dict.fromkeys(self.joints)]

    @cached_property
    def levels(self) -> list[Group]:
        """Bodies of equal depth and joint type, from the root down."""
        depth = np.asarray(self.model.depth)
        keys = sorted({(int(d), self.joints.index(j)) for d, j in zip(depth, self.joints, strict=True)})
        members = [
            np.flatnonzero([e == d and j is self.joints[i] for e, j in zip(depth, self.joints, strict=True)])
            for d, i in keys
        ]
        return [self._group(m) for m in members]

    def _group(self, bodies: np.ndarray) -> Group:
        return Group(self.model, self.joints[bodies[0]], bodies)

    @cached_property
    def tables(self) -> Fields:
        """The model's constants as structs of columns (nb, 1)."""
        m = self.model

        def column(kind: Any, *arrays: np.ndarray) -> Any:
            flat = np.concatenate([np.reshape(a, (len(a), -1)) for a in arrays], axis=1).T
            return build(kind, iter(flat[:, :, None]))

        upper = np.triu_indices(3)
        c, mass = np.asarray(m.com), np.asarray(m.mass)
        first = mass[:, None] * c
        about_origin = np.asarray(m.inertia) + mass[:, None, None] * (
            np.einsum("bi,bi->b", c, c)[:, None, None] * np.eye(3) - np.einsum("bi,bj->bij", c, c)
        )
        by_column = np.asarray(m.placement_R).transpose(0, 2, 1)
        return {
            "fixed": column(Transform, by_column, m.placement_p),
            "pitch": np.asarray(m.pitch)[:, None],
            "mass": mass[:, None],
            "com": column(Vec, c),
            "central": column(FIELDS["central"].kind, np.asarray(m.inertia)[:, upper[0], upper[1]]),
            "I_link": column(Inertia, mass, first, about_origin[:, upper[0], upper[1]]),
            "armature": np.asarray(m.armature)[:, None],
        }

    @cached_property
    def ground(self) -> Fields:
        """Fields of the world: pose, velocity, and gravity as an upward acceleration."""
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
    """Bodies with the same joint type, handled as one set of rows."""

    def __init__(self, model: Model, joint: Joint, bodies: np.ndarray) -> None:
        self.joint = joint
        self.bodies = bodies
        self.parents = np.asarray(model.parent)[bodies]
        self.q = [model.q_index[bodies] + j for j in range(joint.nq)]
        self.dofs = [model.v_index[bodies] + j for j in range(joint.nv)]
        self.at_root = bool((self.parents < 0).all())


_LAYOUTS: WeakKeyDictionary[Model, Layout] = WeakKeyDictionary()


def layout(model: Model) -> Layout:
    """The model's index sets, made once."""
    if model not in _LAYOUTS:
        _LAYOUTS[model] = Layout(model)
    return _LAYOUTS[model]


def _columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, dtype=int).reshape(-1, 2)
    return table[:, 0], table[:, 1]


# ---------------------------------------------------------------------------------------------------------------------
# rows


def rows(program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
    """Evaluate on arrays (rows, N), float64, complex128 or dual."""
    state = _Rows(layout(model), dict(arguments))
    for p in program.passes:
        getattr(state, p.kind if p.kind != "own_pair" else "pair")(p)
    return state.fields


class _Rows:
    """The row driver's store of fields and its one method for each kind of pass."""

    def __init__(self, lay: Layout, arguments: Fields) -> None:
        self.layout = lay
        self.fields: Fields = {**lay.tables, **arguments}
        self.sample = _widest([leaf for value in arguments.values() for leaf in leaves(value)])

    # -- kinds of passes --------------------------------------------------------------------------------------------
    def down(self, p: Pass) -> None:
        self._allocate(p.outputs)
        for group in self.layout.levels:
            self._by_joint(p, group)

    def up(self, p: Pass) -> None:
        for name in p.outputs[p.own :]:
            self.fields[name] = mapped(self.fields[name], self._full if p.step else copied)
        self._allocate(p.outputs[: p.own])
        for group in reversed(self.layout.levels):
            if p.step is None:
                results = tuple(_take(self.fields[n], group.bodies) for n in p.outputs)
            else:
                results = p.results(*self._arguments(p, group))
                self._store(p.outputs[: p.own], results[: p.own], group)
            if not group.at_root:
                for name, result in zip(p.outputs[p.own :], results[p.own :], strict=True):
                    _add_rows(self.fields[name], group.parents, result)

    def body(self, p: Pass) -> None:
        if not p.by_joint:
            self._put(p, p.results(*(self.fields[n] for n in p.inputs)))
            return
        groups = self.layout.by_type
        if len(groups) == 1 and all(FIELDS[o].axis is Axis.BODY for o in p.outputs):
            self._put(p, p.results(*self._arguments(p, groups[0])))
            return
        self._allocate(p.outputs)
        for group in groups:
            self._by_joint(p, group)

    def dof(self, p: Pass) -> None:
        self._put(p, p.results(*(self._dof_argument(n) for n in p.inputs)))

    def pair(self, p: Pass) -> None:
        k, d = self.layout.pairs[p.kind]
        for output in p.outputs:
            name = base_name(output)
            if name not in self.fields:
                nv = self.layout.model.nv
                self.fields[name] = self._zeros((nv, nv))
        if k.size == 0:
            return
        arguments = [self._pair_argument(n, k, d) for n in p.inputs]
        for output, value in zip(p.outputs, p.results(*arguments), strict=True):
            entry = (k, d) if output.endswith("[k,d]") else (d, k)
            self.fields[base_name(output)][entry] = value

    def _pair_argument(self, name: str, k: np.ndarray, d: np.ndarray) -> Any:
        if name.endswith(("_b", "_p")):
            return _take(self._dof_argument(name), d)
        return _take(self.fields[base_name(name)], k if name.endswith("_k") else d)

    def whole(self, p: Pass) -> None:
        self._put(p, p.results(*(self.layout.model if n == "model" else self.fields[n] for n in p.inputs)))

    # -- rows in and out --------------------------------------------------------------------------------------------
    def _put(self, p: Pass, results: tuple[Any, ...]) -> None:
        self.fields.update(zip(p.outputs, results, strict=True))

    def _by_joint(self, p: Pass, group: Group) -> None:
        self._store(p.outputs, p.results(*self._arguments(p, group)), group)

    def _arguments(self, p: Pass, group: Group) -> list[Any]:
        return [self._body_argument(n, group) for n in p.inputs]

    def _body_argument(self, name: str, group: Group) -> Any:
        if name == "joint":
            return group.joint
        base = base_name(name)
        if name != base:  # the parent's
            return self.layout.ground[base] if group.at_root else _take(self.fields[base], group.parents)
        axis = FIELDS[base].axis
        if axis is Axis.BODY:
            return _take(self.fields[base], group.bodies)
        return [_take(self.fields[base], index) for index in (group.q if axis is Axis.Q else group.dofs)]

    def _store(self, outputs: tuple[str, ...], results: tuple[Any, ...], group: Group) -> None:
        for name, result in zip(outputs, results, strict=True):
            if FIELDS[name].axis is Axis.BODY:
                if type(result) is not type(self.fields[name]) and hasattr(result, "allocate"):
                    self.fields[name] = result.allocate(self.layout.model.nb, self.sample)
                _set_rows(self.fields[name], group.bodies, result)
            else:
                for index, value in zip(group.dofs, result, strict=True):
                    _set_rows(self.fields[name], index, value)

    def _dof_argument(self, name: str) -> Any:
        base = base_name(name)
        if name == base:
            return self.fields[base]
        lay = self.layout
        if name.endswith("_b"):
            return _take(self.fields[base], lay.dof_body)
        # The parent's rows, with the ground as one more row at the end, where index -1 finds it.
        padded = build(
            FIELDS[base].kind,
            iter(
                [
                    self._with_ground(r, g)
                    for r, g in zip(leaves(self.fields[base]), leaves(lay.ground[base]), strict=True)
                ]
            ),
        )
        return _take(padded, lay.dof_parent_body)

    def _with_ground(self, leaf: Any, ground: float) -> Any:
        padded = self._zeros((len(leaf) + 1,))
        padded[:-1] = leaf
        padded[-1] = ground
        return padded

    def _allocate(self, names: tuple[str, ...]) -> None:
        m = self.layout.model
        for name in names:
            f = FIELDS[name]
            n = m.nb if f.axis is Axis.BODY else m.nv
            self.fields[name] = build(f.kind, iter([self._zeros((n,)) for _ in range(size(f.kind))]))

    def _zeros(self, shape: tuple[int, ...]) -> Any:
        s = self.sample
        if isinstance(s, Dual):
            dtype = np.result_type(s.val, s.tan)  # a real tangent turns complex with the first product
            val = np.zeros((*shape, s.shape[-1]), dtype=dtype)
            return Dual(val, np.zeros((*val.shape, s.directions), dtype=dtype))
        return np.zeros((*shape, s.shape[-1]), dtype=s.dtype)

    def _full(self, leaf: Any) -> Any:
        full = self._zeros((self.layout.model.nb,))
        full[:] = leaf
        return full


def _widest(arguments: list[Any]) -> Any:
    """An argument whose scalar holds all the others'."""
    duals = [a for a in arguments if isinstance(a, Dual)]
    pool = duals or arguments
    wide = [a for a in pool if np.iscomplexobj(a.val if isinstance(a, Dual) else a)]
    sample = (wide or pool)[0]
    if duals and not wide and any(np.iscomplexobj(a) for a in arguments if not isinstance(a, Dual)):
        return Dual(sample.val.astype(complex), sample.tan.astype(complex))
    return sample


def as_rows(field: Any) -> Any:
    """A field of scalars as rows (n, N), or as a column of symbols."""
    return stack(field) if isinstance(field, list) else field


def row(field: Any, index: int) -> Any:
    """One row of a body or DoF field of a driver's result, as a struct of scalars."""
    return field[index] if isinstance(field, list) else _take(field, index)


def mapped(x: Any, function: Any) -> Any:
    """A struct with a function applied to every leaf."""
    return build(type(x) if hasattr(x, "PARTS") else None, iter([function(leaf) for leaf in leaves(x)]))


def _take(x: Any, index: Any) -> Any:
    if isinstance(x, (np.ndarray, Dual)):
        return x[index]
    return mapped(x, lambda leaf: leaf[index] if hasattr(leaf, "shape") and leaf.shape else leaf)


def _set_rows(store: Any, index: Any, value: Any) -> None:
    for target, leaf in zip(leaves(store), leaves(value), strict=True):
        target[index] = leaf


def _add_rows(store: Any, index: np.ndarray, value: Any) -> None:
    """Add each row of ``value`` to row index[i] of the store; siblings share a parent, so an index may repeat."""
    for target, leaf in zip(leaves(store), leaves(value), strict=True):
        for i, parent in enumerate(index):
            target[parent] = target[parent] + leaf[i]


# ---------------------------------------------------------------------------------------------------------------------
# unroll


def unroll(program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
    """Evaluate one row at a time, on lists of scalars; with symbols, every expression of the algorithm is written out."""
    state = _Unrolled(layout(model), arguments)
    for p in program.passes:
        getattr(state, p.kind if p.kind != "own_pair" else "pair")(p)
    return state.fields


class _Unrolled:
    """The unrolling driver: the same kinds of passes over lists of rows."""

    def __init__(self, lay: Layout, arguments: Mapping[str, Any]) -> None:
        self.layout = lay
        m = lay.model
        self.fields: Fields = {
            k: [_number(_take(t, i)) for i in range(len(leaves(t)[0]))] for k, t in lay.tables.items()
        }
        self.fields.update(
            {k: [v[i] for i in range(len(v) if isinstance(v, list) else v.shape[0])] for k, v in arguments.items()}
        )
        self.count = {Axis.BODY: m.nb, Axis.DOF: m.nv}

    def down(self, p: Pass) -> None:
        self._over_bodies(p, range(self.layout.model.nb))

    body = down

    def up(self, p: Pass) -> None:
        parent = self.layout.model.parent
        for name in p.outputs[p.own :]:
            self.fields[name] = list(self.fields[name])
        self._allocate(p.outputs[: p.own])
        for b in reversed(range(len(parent))):
            results = p.results(*self._arguments(p, b)) if p.step else tuple(self.fields[n][b] for n in p.outputs)
            self._store(p.outputs[: p.own], results[: p.own], b)
            if parent[b] >= 0:
                for name, result in zip(p.outputs[p.own :], results[p.own :], strict=True):
                    self.fields[name][parent[b]] = self.fields[name][parent[b]] + result

    def dof(self, p: Pass) -> None:
        self._allocate(p.outputs)
        for d in range(self.layout.model.nv):
            body = int(self.layout.dof_body[d])
            results = p.results(*(self._row(n, body=body, d=d) for n in p.inputs))
            for name, result in zip(p.outputs, results, strict=True):
                self.fields[name][d] = result

    def pair(self, p: Pass) -> None:
        nv = self.layout.model.nv
        for output in p.outputs:
            self.fields.setdefault(base_name(output), [[0.0] * nv for _ in range(nv)])
        for k, d in zip(*self.layout.pairs[p.kind], strict=True):
            body = int(self.layout.dof_body[d])
            results = p.results(*(self._row(n, body=body, d=int(d), k=int(k)) for n in p.inputs))
            for output, result in zip(p.outputs, results, strict=True):
                i, j = (k, d) if output.endswith("[k,d]") else (d, k)
                self.fields[base_name(output)][i][j] = result

    def whole(self, p: Pass) -> None:
        results = p.results(*(self.layout.model if n == "model" else self.fields[n] for n in p.inputs))
        self.fields.update(zip(p.outputs, results, strict=True))

    def _over_bodies(self, p: Pass, bodies: range) -> None:
        self._allocate(p.outputs)
        for b in bodies:
            self._store(p.outputs, p.results(*self._arguments(p, b)), b)

    def _arguments(self, p: Pass, b: int) -> list[Any]:
        m = self.layout.model
        joint = self.layout.joints[b]
        arguments: list[Any] = []
        for name in p.inputs:
            axis = None if name == "joint" else FIELDS[base_name(name)].axis
            if axis is None:
                arguments.append(joint)
            elif axis is Axis.Q:
                arguments.append([self.fields["q"][m.q_index[b] + j] for j in range(joint.nq)])
            elif axis is Axis.DOF:
                arguments.append([self.fields[name][d] for d in m.dofs(b)])
            else:
                arguments.append(self._row(name, body=b))
        return arguments

    def _row(self, name: str, *, body: int, d: int | None = None, k: int | None = None) -> Any:
        base = base_name(name)
        suffix = "" if name == base else name[-2:]
        if suffix == "_p":
            parent = int(self.layout.model.parent[body])
            return self.fields[base][parent] if parent >= 0 else self.layout.ground[base]
        index = {"_b": body, "_k": k, "_d": d, "": body if FIELDS[base].axis is Axis.BODY else d}[suffix]
        return self.fields[base][index]

    def _allocate(self, names: tuple[str, ...]) -> None:
        for name in names:
            previous = self.fields.get(name)  # a pass may update a field
            self.fields[name] = list(previous) if previous else [None] * self.count[FIELDS[name].axis]

    def _store(self, outputs: tuple[str, ...], results: tuple[Any, ...], b: int) -> None:
        for name, result in zip(outputs, results, strict=True):
            if FIELDS[name].axis is Axis.BODY:
                self.fields[name][b] = result
            else:
                for d, value in zip(self.layout.model.dofs(b), result, strict=True):
                    self.fields[name][d] = value


def _number(x: Any) -> Any:
    """A struct of columns' row as a struct of Python floats."""
    return mapped(x, lambda leaf: float(np.asarray(leaf).reshape(-1)[0]))


__all__ = ["Layout", "as_rows", "layout", "row", "rows", "run", "unroll"]
