"""Drivers that evaluate a program of passes.

``rows``    arrays and number types over them, all rows of a pass as one array, the batch last; passes along the tree go level by
        level.
``unroll``  any scalar, one row at a time; with CasADi symbols this traces the algorithm to straight-line expressions.
library     :mod:`dynamics_backends.tape.driver`: loops in C, made from the same programs.

All accept and return fields by name: DoF and q fields as rows (n, N) or lists of scalars, matrix fields as (nv, nv, N) or nested
lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.layout import Group, Layout, layout
from dynamics_backends.rigid_body.passes.passes import (
    FIELDS,
    Axis,
    Pass,
    Program,
    add_rows,
    base_name,
    entry,
    mapped,
    set_rows,
    take,
)
from dynamics_backends.rigid_body.spatial.spatial import build, leaves, size
from dynamics_backends.scalar import copied, zeros_of


def unroll(program: Program, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate a program one row at a time on lists of scalars; with symbols the result is straight-line expressions."""
    state = _Unrolled(layout(model), arguments)
    for p in program.passes:
        getattr(state, "entries" if p.by_entry else p.kind)(p)
    return state.fields


class _Unrolled:
    """Fields of the unrolling driver, with one method for each kind of pass."""

    def __init__(self, lay: Layout, arguments: Mapping[str, Any]) -> None:
        self.layout = lay
        m = lay.model
        self.fields: dict[str, Any] = {
            k: [_number(take(t, i)) for i in range(len(leaves(t)[0]))] for k, t in lay.tables.items()
        }
        self.fields.update(
            {k: [v[i] for i in range(len(v) if isinstance(v, list) else v.shape[0])] for k, v in arguments.items()}
        )
        self.count = {Axis.BODY: m.nb, Axis.DOF: m.nv}

    def down(self, p: Pass) -> None:
        """Run a pass over bodies one by one, from the root to the leaves."""
        self._over_bodies(p, range(self.layout.model.nb))

    body = down

    def up(self, p: Pass) -> None:
        """Run a pass from the leaves to the root, which adds results to the parents' rows; without a step, subtree sums."""
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
        """Run a pass over all DoFs."""
        self._allocate(p.outputs)
        for d in range(self.layout.model.nv):
            body = int(self.layout.dof_body[d])
            results = p.results(*(self._row(n, body=body, d=d) for n in p.inputs))
            for name, result in zip(p.outputs, results, strict=True):
                self.fields[name][d] = result

    def entries(self, p: Pass) -> None:
        """Run a pass that writes entries of matrices or tensors, which are zero elsewhere."""
        for output in p.outputs:
            if base_name(output) not in self.fields:
                self.fields[base_name(output)] = _zeros(self.layout.model.nv, len(entry(output)))
        for at, results in self._at_entries(p):
            for output, result in zip(p.outputs, results, strict=True):
                *rows, last = (at[letter] for letter in entry(output))
                target = self.fields[base_name(output)]
                for i in rows:
                    target = target[i]
                target[last] = result

    def path(self, p: Pass) -> None:
        """Run a pass over all pairs of a DoF and a DoF at or above it; its fields have a row for each pair."""
        results = [r for _, r in self._at_entries(p)]
        self.fields.update(zip(p.outputs, map(list, zip(*results, strict=True)), strict=True))

    def _at_entries(self, p: Pass) -> Iterator[tuple[dict[str, int], tuple[Any, ...]]]:
        """DoFs of each pair or triple by letter, in triples also "path", the index of the pair (d, j), and the step's results."""
        index = self.layout.indices(p.kind)
        for numbers in zip(*index.values(), strict=True):
            at = dict(zip(index, map(int, numbers), strict=True))
            body = int(self.layout.dof_body[at["d"]])
            yield at, p.results(*(self._row(n, body=body, **at) for n in p.inputs))

    def whole(self, p: Pass) -> None:
        """Run a linear algebra pass on whole fields."""
        results = p.results(*(self.layout.model if n == "model" else self.fields[n] for n in p.inputs))
        self.fields.update(zip(p.outputs, results, strict=True))

    def _over_bodies(self, p: Pass, bodies: range) -> None:
        """Run the step of a pass for these bodies in order, and store its results."""
        self._allocate(p.outputs)
        for b in bodies:
            self._store(p.outputs, p.results(*self._arguments(p, b)), b)

    def _arguments(self, p: Pass, b: int) -> list[Any]:
        """Arguments of a step over bodies at body b."""
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

    def _row(self, name: str, *, body: int, path: int = -1, **dofs: int) -> Any:
        """Row that a parameter of a step reads, selected by its suffix.

        _p: the parent's (the ground's at the root); _b: the body's; _d, _j, _k: that of this DoF in ``dofs``; none: the row of
        the body, of the DoF d, or of the pair ``path``, by the field's axis.
        """
        base = base_name(name)
        suffix = "" if name == base else name[-2:]
        if suffix == "_p":
            parent = int(self.layout.model.parent[body])
            return self.fields[base][parent] if parent >= 0 else self.layout.ground[base]
        if suffix:
            return self.fields[base][body if suffix == "_b" else dofs[suffix[1]]]
        return self.fields[base][{Axis.BODY: body, Axis.PAIR: path}.get(FIELDS[base].axis, dofs.get("d", -1))]

    def _allocate(self, names: tuple[str, ...]) -> None:
        """Create the fields of the outputs of a pass, rows None; existing fields are copied."""
        for name in names:
            previous = self.fields.get(name)  # a pass may update a field
            self.fields[name] = list(previous) if previous else [None] * self.count[FIELDS[name].axis]

    def _store(self, outputs: tuple[str, ...], results: tuple[Any, ...], b: int) -> None:
        """Store the results of a step at body b; those of DoFs at each DoF of its joint."""
        for name, result in zip(outputs, results, strict=True):
            if FIELDS[name].axis is Axis.BODY:
                self.fields[name][b] = result
            else:
                for d, value in zip(self.layout.model.dofs(b), result, strict=True):
                    self.fields[name][d] = value


def _zeros(n: int, order: int) -> list[Any]:
    """Nested lists of zeros with n entries in each of ``order`` dimensions."""
    return [0.0] * n if order == 1 else [_zeros(n, order - 1) for _ in range(n)]


def _number(x: Any) -> Any:
    """Convert a row of a struct of columns to a struct of Python floats."""
    return mapped(x, lambda leaf: float(np.asarray(leaf).reshape(-1)[0]))


Fields = dict[str, Any]


class Driver(Protocol):
    """Function that evaluates a program and returns fields by name, at least the program's outputs.

    A driver of traces may have the attributes ``solved_step`` and ``directions``, functions that replace on symbols those of time
    steps with contacts and of the derivatives of constrained motion.
    """

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
        """Fields by name, at least the outputs of the program, from its arguments and the model's constants."""
        ...


@dataclass(frozen=True, eq=False)
class WithArmature:
    """Driver with the rotor inertias ``armature``, rows (nv, N), in place of the model's.

    The force of rotors whose axes rotate (field "carried") keeps the model's inertias.
    """

    driver: Driver
    armature: Any

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
        """Evaluate the program, which takes the rotor inertias as an argument, by the inner driver."""
        return self.driver(program.with_argument("armature"), model, {**arguments, "armature": self.armature})


@dataclass(frozen=True, eq=False)
class WithInertias:
    """Driver with ``tables`` "mass", "com", "central" and "I_link" of the bodies (FIELDS) in place of the model's."""

    driver: Driver
    tables: Mapping[str, Any]

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
        """Evaluate the program by the inner driver, with the tables among its arguments."""
        return self.driver(program, model, {**arguments, **self.tables})


def run(program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
    """Evaluate a program by :func:`unroll` if an argument has symbols, else by :func:`rows`."""
    symbolic = any(hasattr(leaf, "is_symbolic") for value in arguments.values() for leaf in _samples(value))
    return unroll(program, model, arguments) if symbolic else rows(program, model, arguments)


def _samples(value: Any) -> list[Any]:
    """Values that determine the scalar type of an argument: the components of a list or tuple, else the argument itself."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def rows(program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
    """Evaluate a program on arrays (rows, N) of float64, complex128 or a number type (:mod:`dynamics_backends.scalar`)."""
    state = _Rows(layout(model), dict(arguments))
    for p in program.passes:
        getattr(state, "entries" if p.by_entry else p.kind)(p)
    return state.fields


class _Rows:
    """Fields of the row driver, with one method for each kind of pass."""

    def __init__(self, lay: Layout, arguments: Fields) -> None:
        self.layout = lay
        self.fields: Fields = {**lay.tables, **arguments}
        self.sample = _widest([leaf for value in arguments.values() for leaf in leaves(value)])

    # -- kinds of passes --------------------------------------------------------------------------------------------
    def down(self, p: Pass) -> None:
        """Run a pass over bodies level by level, from the root to the leaves."""
        self._allocate(p.outputs)
        for group in self.layout.levels:
            self._by_joint(p, group)

    def up(self, p: Pass) -> None:
        """Run a pass level by level to the root, which adds results to the parents' rows; without a step, subtree sums."""
        for name in p.outputs[p.own :]:
            self.fields[name] = mapped(self.fields[name], self._full if p.step else copied)
        self._allocate(p.outputs[: p.own])
        for group in reversed(self.layout.levels):
            if p.step is None:
                results = tuple(take(self.fields[n], group.bodies) for n in p.outputs)
            else:
                results = p.results(*self._arguments(p, group))
                self._store(p.outputs[: p.own], results[: p.own], group)
            if not group.at_root:
                for name, result in zip(p.outputs[p.own :], results[p.own :], strict=True):
                    add_rows(self.fields[name], group.parents, result)

    def body(self, p: Pass) -> None:
        """Run a pass over all bodies and store its outputs in the fields.

        This takes one call, or one for each joint type if the step depends on it.
        """
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
        """Run a pass over all DoFs in one call."""
        self._put(p, p.results(*(self._dof_argument(n) for n in p.inputs)))

    def entries(self, p: Pass) -> None:
        """Run a pass that writes entries of matrices or tensors, which are zero elsewhere, for all pairs or triples in one call.

        The step is not called if the model has no such pairs or triples.
        """
        index = self.layout.indices(p.kind)
        count, nv = len(index["d"]), self.layout.model.nv
        for output in p.outputs:
            name = base_name(output)
            if name not in self.fields:
                self.fields[name] = self._zeros((nv,) * len(entry(output)))
        arguments = [self._entry_argument(n, index) for n in p.inputs] if count else []
        results = p.results(*arguments) if count else ()
        for output, value in zip(p.outputs, results, strict=bool(count)):
            self.fields[base_name(output)][tuple(index[letter] for letter in entry(output))] = value

    def path(self, p: Pass) -> None:
        """Run a pass over all pairs of a DoF and a DoF at or above it in one call."""
        index = self.layout.indices("path")
        self._put(p, p.results(*(self._entry_argument(n, index) for n in p.inputs)))

    def _entry_argument(self, name: str, index: dict[str, np.ndarray]) -> Any:
        """Rows that a parameter of a pass over pairs or triples reads, for all of them. index: their DoFs by letter."""
        base = base_name(name)
        if FIELDS[base].axis is Axis.PAIR:
            return take(self.fields[base], index["path"])
        if name.endswith(("_b", "_p")):
            return take(self._dof_argument(name), index["d"])
        return take(self.fields[base], index[name[-1]])

    def whole(self, p: Pass) -> None:
        """Run a linear algebra pass on whole fields."""
        self._put(p, p.results(*(self.layout.model if n == "model" else self.fields[n] for n in p.inputs)))

    # -- access to rows ---------------------------------------------------------------------------------------------
    def _put(self, p: Pass, results: tuple[Any, ...]) -> None:
        """Store results that are whole fields, one for each output."""
        self.fields.update(zip(p.outputs, results, strict=True))

    def _by_joint(self, p: Pass, group: Group) -> None:
        """Run the step of a pass for a group of bodies of one joint type, and store its results."""
        self._store(p.outputs, p.results(*self._arguments(p, group)), group)

    def _arguments(self, p: Pass, group: Group) -> list[Any]:
        """Arguments of a step over bodies, with the rows of a group of bodies."""
        return [self._body_argument(n, group) for n in p.inputs]

    def _body_argument(self, name: str, group: Group) -> Any:
        """Rows that a parameter of a pass over bodies reads, for a group of bodies."""
        if name == "joint":
            return group.joint
        base = base_name(name)
        if name != base:  # a field of the parent
            return self.layout.ground[base] if group.at_root else take(self.fields[base], group.parents)
        axis = FIELDS[base].axis
        if axis is Axis.BODY:
            return take(self.fields[base], group.bodies)
        return [take(self.fields[base], index) for index in (group.q if axis is Axis.Q else group.dofs)]

    def _store(self, outputs: tuple[str, ...], results: tuple[Any, ...], group: Group) -> None:
        """Store the results of a step in the rows of a group of bodies.

        For a result of another struct type (:class:`.PerturbedTransform`), the field is first replaced by zeros of that type.
        """
        for name, result in zip(outputs, results, strict=True):
            if FIELDS[name].axis is Axis.BODY:
                if type(result) is not type(self.fields[name]) and hasattr(result, "allocate"):
                    self.fields[name] = result.allocate(self.layout.model.nb, self.sample)
                set_rows(self.fields[name], group.bodies, result)
            else:
                for index, value in zip(group.dofs, result, strict=True):
                    set_rows(self.fields[name], index, value)

    def _dof_argument(self, name: str) -> Any:
        """Rows that a parameter of a pass over DoFs reads, for all DoFs: their own, their body's or its parent's."""
        base = base_name(name)
        if name == base:
            return self.fields[base]
        lay = self.layout
        if name.endswith("_b"):
            return take(self.fields[base], lay.dof_body)
        # Rows of the parents; the ground is appended as the last row, which index -1 selects.
        padded = build(
            FIELDS[base].kind,
            iter(
                [
                    self._with_ground(r, g)
                    for r, g in zip(leaves(self.fields[base]), leaves(lay.ground[base]), strict=True)
                ]
            ),
        )
        return take(padded, lay.dof_parent_body)

    def _with_ground(self, leaf: Any, ground: float) -> Any:
        """Rows of a field, followed by a row with the ground's value."""
        padded = self._zeros((len(leaf) + 1,))
        padded[:-1] = leaf
        padded[-1] = ground
        return padded

    def _allocate(self, names: tuple[str, ...]) -> None:
        """Create zero fields for the outputs of a pass, in place of existing ones."""
        m = self.layout.model
        for name in names:
            f = FIELDS[name]
            n = m.nb if f.axis is Axis.BODY else m.nv
            self.fields[name] = build(f.kind, iter([self._zeros((n,)) for _ in range(size(f.kind))]))

    def _zeros(self, shape: tuple[int, ...]) -> Any:
        """Zeros (*shape, N) of the batch size and number type of the arguments."""
        return zeros_of(self.sample, (*shape, self.sample.shape[-1]))

    def _full(self, leaf: Any) -> Any:
        """Writable copy (nb, N) of a field's leaf, with constants repeated over bodies and batch."""
        full = self._zeros((self.layout.model.nb,))
        full[:] = leaf
        return full


def _widest(arguments: list[Any]) -> Any:
    """Array of the scalar type that holds all arguments: one of the deepest extension, made complex if any argument is."""
    depths = [len(_extended(a)) for a in arguments]
    deepest = [a for a, depth in zip(arguments, depths, strict=True) if depth == max(depths)]
    wide = [a for a in deepest if np.iscomplexobj(_extended(a)[-1])]
    if wide or not any(np.iscomplexobj(_extended(a)[-1]) for a in arguments):
        return (wide or deepest)[0]
    return deepest[0] * (1.0 + 0.0j)


def _extended(x: Any) -> list[Any]:
    """Chain of a number and the numbers that it extends, down to the array."""
    chain = [x]
    while hasattr(chain[-1], "val"):
        chain.append(chain[-1].val)
    return chain
