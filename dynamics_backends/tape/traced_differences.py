"""Finite differences of a traced map: the kernel templates/differences/partials_by_differences.h calls the map's tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.compiled.sources.differences import Differences
from dynamics_backends.compiled.sources.function_rows import FunctionRows
from dynamics_backends.machine import library as machine
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.protocol import Batch, Jacobians
from dynamics_backends.tape.traced_map import Sizes, TracedMap


class TracedDifferences:
    """Kernel of forward or central differences of a :class:`~dynamics_backends.tape.traced_map.TracedMap`, for one method.

    Its data are cached by the sizes of the parameters.
    """

    def __init__(self) -> None:
        self._evaluators: dict[Sizes, FunctionRows | None] = {}

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
        map = method.map
        results = [np.empty((b.size, map.n_out, *shape)) for shape in ((), (map.manifold.ndx,), (map.nu,))]
        found(b.arrays(), results)
        return Jacobians(*results)


def _evaluator(method: FiniteDifference, sizes: Sizes) -> FunctionRows | None:
    """Kernel and its data for parameters of these sizes; None if the method's map is no TracedMap, or cannot be traced."""
    map = method.map
    tape = map.tape(sizes) if isinstance(map, TracedMap) else None
    if tape is None:
        return None
    differences = Differences(method, tape.function, tape.sizes, map.n_out, machine.lanes())
    outputs = [map.n_out * size for size in (1, map.manifold.ndx, map.nu)]
    workspace = differences.points * tape.registers
    return FunctionRows((*differences.function, None), tape.sizes, outputs, workspace, (differences, tape))
