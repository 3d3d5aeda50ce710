"""Drivers that evaluate a program of passes.

``rows``    arrays and number types over them, all rows of a pass as one array, the batch last; passes along the tree go level by
        level.
``unroll``  CasADi symbols: ``rows`` on arrays of objects, which traces the algorithm to straight-line expressions.
library     :mod:`dynamics_backends.tape.driver`: loops in C, made from the same programs.

All accept and return fields by name: DoF and q fields as rows (n, N) or lists of symbols, matrix fields as (nv, nv, N) or nested
lists.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from dynamics_backends.rigid_body.spatial.spatial import Struct, build, leaves, size
from dynamics_backends.scalar import copied, rows_of, zeros_of

Fields = dict[str, Any]


class Driver(Protocol):
    """Function that evaluates a program and returns fields by name, at least the program's outputs.

    A driver of traces may have the attributes ``solved_step`` and ``directions``, functions that replace on symbols those of time
    steps with contacts and of the derivatives of constrained motion.
    """

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
        """Fields by name, at least the outputs of the program, from its arguments and the model's constants."""


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
    return rows(program, model, arguments) if _symbol(arguments) is None else unroll(program, model, arguments)


def run_with_forces(
    driver: Driver, program: Program, with_forces: Program, model: Model, arguments: Mapping[str, Any], f_ext: Any
) -> Fields:
    """Evaluate a program by a driver, or with external forces ``f_ext`` (not None) the program that has them as an argument."""
    if f_ext is None:
        return driver(program, model, arguments)
    return driver(with_forces, model, {**arguments, "f_ext": f_ext})


def _symbol(arguments: Mapping[str, Any]) -> type | None:
    """Type of the symbols among arguments and the components of lists or tuples; None without symbols."""
    listed = (value if isinstance(value, (list, tuple)) else [value] for value in arguments.values())
    return next((type(leaf) for leaves in listed for leaf in leaves if hasattr(leaf, "is_symbolic")), None)


def rows(program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
    """Evaluate a program on arrays (rows, N) of float64, complex128 or a number type (:mod:`dynamics_backends.scalar`)."""
    return _Rows(layout(model), arguments).after(program)


def unroll(program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
    """Outputs of a program on symbols, as straight-line expressions: a list over the rows of each field, nested for a matrix."""
    kind = _symbol(arguments)
    columns = {name: _column(value, kind) for name, value in arguments.items()}
    fields = _Symbols(layout(model), columns).after(program)
    return {name: _listed(fields[name]) for name in program.outputs}


class _Rows:
    """Fields of the row driver, with one method for each kind of pass."""

    def __init__(self, lay: Layout, arguments: Mapping[str, Any]) -> None:
        self.layout = lay
        self.fields: Fields = {**lay.tables, **arguments}
        self.sample = _widest([leaf for value in arguments.values() for leaf in leaves(value)])

    def after(self, program: Program) -> Fields:
        """Run the passes of a program in order and return the fields."""
        for p in program.passes:
            getattr(self, "entries" if p.by_entry else p.kind)(p)
        return self.fields

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
        self._put(p, p.results(*(self.layout.model if n == "model" else self._whole(n) for n in p.inputs)))

    def _whole(self, name: str) -> Any:
        """Field as linear algebra passes read it."""
        return self.fields[name]

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


class _Symbols(_Rows):
    """Fields of the row driver as arrays (n, 1) of symbols; linear algebra passes read and write lists of them.

    A row of a matrix is then a column of symbols, on which CasADi operates at once.
    """

    def whole(self, p: Pass) -> None:
        """Run a linear algebra pass on whole fields; vectors among its results become arrays, which other passes read."""
        super().whole(p)
        for name in p.outputs:
            if FIELDS[name].axis is Axis.DOF:
                self.fields[name] = _column(self.fields[name], type(self.sample[0, 0]))

    def _whole(self, name: str) -> Any:
        """Field as lists of symbols."""
        return _listed(self.fields[name])


def _column(value: Any, kind: Any) -> Any:
    """Symbols and numbers as an array (n, 1) of symbols; a list of structs, or a struct, as a struct of such arrays.

    kind: type of the symbols.
    """
    if isinstance(value, Struct):
        return mapped(value, lambda leaf: _column(leaf, kind))
    entries = rows_of(value)
    if entries and isinstance(entries[0], Struct):
        return entries[0].build(*(_column(column, kind) for column in zip(*map(leaves, entries), strict=True)))
    return np.fromiter(map(kind, entries), object, len(entries))[:, None]


def _listed(field: Any) -> Any:
    """Lists of symbols and numbers, or of structs of them, from arrays (n, 1) or (n, n, 1); other fields are unchanged."""
    if isinstance(field, Struct):
        columns = map(_listed, np.broadcast_arrays(*leaves(field)))
        return [field.build(*row) for row in zip(*columns, strict=True)]
    return field[..., 0].tolist() if isinstance(field, np.ndarray) else field


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
