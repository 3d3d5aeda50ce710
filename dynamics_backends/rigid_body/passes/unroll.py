"""Unrolling driver: any scalar, one row at a time; with symbols it traces an algorithm to straight-line expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.field_access import mapped, take
from dynamics_backends.rigid_body.passes.layout import Layout, layout
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Pass, Program, base_name, entry
from dynamics_backends.rigid_body.spatial.spatial import leaves


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

    def entries(self, p: Pass) -> None:
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
        results = [r for _, r in self._at_entries(p)]
        self.fields.update(zip(p.outputs, map(list, zip(*results, strict=True)), strict=True))

    def _at_entries(self, p: Pass) -> Iterator[tuple[dict[str, int], tuple[Any, ...]]]:
        """DoFs of each pair or triple by their letters, and the step's results."""
        index = self.layout.indices(p.kind)
        for numbers in zip(*index.values(), strict=True):
            at = dict(zip(index, map(int, numbers), strict=True))
            body = int(self.layout.dof_body[at["d"]])
            yield at, p.results(*(self._row(n, body=body, **at) for n in p.inputs))

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

    def _row(self, name: str, *, body: int, path: int = -1, **dofs: int) -> Any:
        """Row that a parameter reads, for the DoFs given by their letters."""
        base = base_name(name)
        suffix = "" if name == base else name[-2:]
        if suffix == "_p":
            parent = int(self.layout.model.parent[body])
            return self.fields[base][parent] if parent >= 0 else self.layout.ground[base]
        if suffix:
            return self.fields[base][body if suffix == "_b" else dofs[suffix[1]]]
        return self.fields[base][{Axis.BODY: body, Axis.PAIR: path}.get(FIELDS[base].axis, dofs.get("d", -1))]

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


def _zeros(n: int, order: int) -> list[Any]:
    """Nested lists of zeros with n entries in each of ``order`` dimensions."""
    return [0.0] * n if order == 1 else [_zeros(n, order - 1) for _ in range(n)]


def _number(x: Any) -> Any:
    """Convert a row of a struct of columns to a struct of Python floats."""
    return mapped(x, lambda leaf: float(np.asarray(leaf).reshape(-1)[0]))
