"""Drivers that evaluate a program of passes.

``rows``    here: arrays and number types over them, all rows of a pass as one array, the batch last; passes along the tree go level
        by level.
``unroll``  :mod:`~dynamics_backends.rigid_body.passes.unroll`: any scalar, one row at a time; with CasADi symbols this traces
        the algorithm to straight-line expressions.
library     :mod:`dynamics_backends.tape.driver`: loops in C and tapes, both made from the same programs.

All accept and return fields by name: DoF and q fields as rows (n, N) or lists of scalars, matrix fields as (nv, nv, N) or nested
lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.field_access import add_rows, mapped, set_rows, take
from dynamics_backends.rigid_body.passes.layout import Group, Layout, layout
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Pass, Program, base_name, entry
from dynamics_backends.rigid_body.passes.unroll import unroll
from dynamics_backends.rigid_body.spatial.spatial import build, leaves, size
from dynamics_backends.scalar import copied, zeros_of

Fields = dict[str, Any]


class Driver(Protocol):
    """Function that evaluates a program and returns fields by name, at least the program's outputs."""

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields: ...


@dataclass(frozen=True, eq=False)
class WithArmature:
    """Driver with the rotor inertias ``armature``, rows (nv, N), in place of the model's."""

    driver: Driver
    armature: Any

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
        return self.driver(program.given("armature"), model, {**arguments, "armature": self.armature})


@dataclass(frozen=True, eq=False)
class WithInertias:
    """Driver with the tables "mass", "com", "central" and "I_link" of the bodies in place of the model's."""

    driver: Driver
    tables: Mapping[str, Any]

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
        return self.driver(program, model, {**arguments, **self.tables})


def run(program: Program, model: Model, arguments: Mapping[str, Any]) -> Fields:
    """Evaluate a program with the driver for the arguments' scalar type."""
    symbolic = any(hasattr(leaf, "is_symbolic") for value in arguments.values() for leaf in _samples(value))
    return unroll(program, model, arguments) if symbolic else rows(program, model, arguments)


def _samples(value: Any) -> list[Any]:
    """Entries of an argument that determine its scalar type: all components of a list."""
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
        self._allocate(p.outputs)
        for group in self.layout.levels:
            self._by_joint(p, group)

    def up(self, p: Pass) -> None:
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

    def entries(self, p: Pass) -> None:
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
        index = self.layout.indices("path")
        self._put(p, p.results(*(self._entry_argument(n, index) for n in p.inputs)))

    def _entry_argument(self, name: str, index: dict[str, np.ndarray]) -> Any:
        base = base_name(name)
        if FIELDS[base].axis is Axis.PAIR:
            return take(self.fields[base], index["path"])
        if name.endswith(("_b", "_p")):
            return take(self._dof_argument(name), index["d"])
        return take(self.fields[base], index[name[-1]])

    def whole(self, p: Pass) -> None:
        """Run a pass on all rows of its fields at once."""
        self._put(p, p.results(*(self.layout.model if n == "model" else self.fields[n] for n in p.inputs)))

    # -- access to rows ---------------------------------------------------------------------------------------------
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
        if name != base:  # a field of the parent
            return self.layout.ground[base] if group.at_root else take(self.fields[base], group.parents)
        axis = FIELDS[base].axis
        if axis is Axis.BODY:
            return take(self.fields[base], group.bodies)
        return [take(self.fields[base], index) for index in (group.q if axis is Axis.Q else group.dofs)]

    def _store(self, outputs: tuple[str, ...], results: tuple[Any, ...], group: Group) -> None:
        for name, result in zip(outputs, results, strict=True):
            if FIELDS[name].axis is Axis.BODY:
                if type(result) is not type(self.fields[name]) and hasattr(result, "allocate"):
                    self.fields[name] = result.allocate(self.layout.model.nb, self.sample)
                set_rows(self.fields[name], group.bodies, result)
            else:
                for index, value in zip(group.dofs, result, strict=True):
                    set_rows(self.fields[name], index, value)

    def _dof_argument(self, name: str) -> Any:
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
        return zeros_of(self.sample, (*shape, self.sample.shape[-1]))

    def _full(self, leaf: Any) -> Any:
        full = self._zeros((self.layout.model.nb,))
        full[:] = leaf
        return full


def _widest(arguments: list[Any]) -> Any:
    """Argument whose scalar type can hold all others: the deepest extension, complex if any argument is."""
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
