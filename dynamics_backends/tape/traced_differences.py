"""Finite differences of a traced map: the kernel templates/differences/partials_by_differences.h calls the map's tape."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.runtime.memory import Workspaces, address, bound, over_threads, pointers
from dynamics_backends.compiled.sources.library_dynamics import Differences
from dynamics_backends.machine import library as machine
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.protocol import Array, Batch, Jacobians
from dynamics_backends.tape.tape import Tape
from dynamics_backends.tape.traced_map import Sizes, TracedMap


class _Evaluator(NamedTuple):
    """Kernel of differences for one tape, its workspaces, and the data that it reads: its struct and the tape."""

    run: Callable[..., None]
    workspaces: Workspaces
    differences: Differences
    tape: Tape


class TracedDifferences:
    """Kernel of forward or central differences of a :class:`~dynamics_backends.tape.traced_map.TracedMap`, for one method.

    Its data are cached by the sizes of the parameters.
    """

    def __init__(self) -> None:
        self._evaluators: dict[Sizes, _Evaluator | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, without cached kernels and data."""
        return {"_evaluators": {}}  # they belong to a process

    def __call__(self, method: FiniteDifference, b: Batch) -> Jacobians | None:
        """Value and partial derivatives of a batch by differences with the method's scheme and step.

        None if the method's map is no TracedMap, or cannot be traced.
        """
        sizes = tuple((name, len(rows)) for name, rows in b.p.items())
        if sizes not in self._evaluators:
            self._evaluators[sizes] = _evaluator(method, sizes)
        found = self._evaluators[sizes]
        if found is None:
            return None
        map, n = method.map, b.size
        arrays = [np.ascontiguousarray(a, float) for a in b.arrays()]
        results = [np.empty((n, map.n_out, *shape)) for shape in ((), (map.manifold.ndx,), (map.nu,))]
        given, written = pointers(arrays), pointers(results)
        head = ctypes.addressof(found.differences.data), ctypes.addressof(given), ctypes.addressof(written)

        def part(first: int, last: int, workspace: Array) -> None:
            """Run the kernel for knots first to last, last excluded."""
            found.run(*head, first, last, address(workspace))

        over_threads(part, n, machine.lanes(), found.workspaces)
        return Jacobians(*results)


def _evaluator(method: FiniteDifference, sizes: Sizes) -> _Evaluator | None:
    """Kernel and its data for parameters of these sizes; None if the method's map is no TracedMap, or cannot be traced."""
    map = method.map
    tape = map.tape(sizes) if isinstance(map, TracedMap) else None
    if tape is None:
        return None
    library, lanes = machine.kernels(), machine.lanes()
    differences = Differences(method, tape.function, tape.sizes, map.n_out, lanes)
    workspace = bound(library, "differences_workspace", "p", ctypes.c_long)(ctypes.addressof(differences.data))
    workspaces = Workspaces((workspace + differences.points * tape.registers) * lanes)
    return _Evaluator(bound(library, "differences_rows", "ppp ll p"), workspaces, differences, tape)
