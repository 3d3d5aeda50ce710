"""Driver that evaluates programs of passes by compiled kernels.

It takes the arguments of the other drivers, as rows (n, N), and returns a program's outputs as rows.  It supports three kinds of
numbers: float64; complex128, whose kernel carries (re, im) through every step; dual arrays, whose kernel carries (value, tangent)
and runs over knots x directions.  The loop kernel is used first.  For a small robot straight-line code is compiled in the
background after many evaluated knots, and replaces the loops when it is ready; results change by rounding only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.loops.fields import (
    algebra_of,
    arrays_of,
    batch_first,
    field_of,
    is_by_dof,
    named,
    shapes_of,
    value_of,
)
from dynamics_backends.compiled.loops.kernel import CompiledKernel
from dynamics_backends.compiled.loops.loops import USUAL_JOINTS, loop_kernel
from dynamics_backends.compiled.loops.unrolled import unrolled_kernel
from dynamics_backends.compiled.runtime.toolchain import CompilerError
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes import drivers, field_access
from dynamics_backends.rigid_body.passes.passes import Program
from dynamics_backends.rigid_body.spatial.spatial import Struct, leaves
from dynamics_backends.scalars.dual import Dual

UNROLL_AFTER = 20_000
"""Number of evaluated knots after which straight-line code for the robot is compiled."""
UNROLL_UP_TO_DOFS = 20
"""Maximum number of DoFs for straight-line code; for larger robots the loops are about as fast."""
_LOG = logging.getLogger(__name__)
TIERS = ("auto", "loops", "unrolled")


@dataclass
class _Slot:
    """Kernel of a program for one model, the number of knots evaluated, and whether a faster kernel is being compiled."""

    kernel: CompiledKernel
    knots: int = 0
    upgrading: bool = field(default=False)


class CompiledDriver:
    """Evaluates programs by kernels, which are compiled at first use; ``tier`` fixes the form of the code."""

    def __init__(self, tier: str = "auto") -> None:
        if tier not in TIERS:
            raise ValueError(f"tier = {tier!r}; known: {', '.join(TIERS)}")
        self.tier = tier
        self._slots: WeakKeyDictionary[Model, dict[tuple[str, str], _Slot]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return CompiledDriver, (self.tier,)  # kernels belong to a process

    def __structure__(self) -> tuple[()]:
        return ()  # the results of a map do not depend on the driver

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
        values = [arguments[name] for name in program.arguments]
        algebra = algebra_of(program, values)
        if algebra is None:
            return drivers.run(program, model, arguments)
        if algebra == "dual":
            return self._dual(program, model, values)
        arrays = arrays_of(values, complex if algebra == "complex" else float)
        results = self._kernel(program, model, algebra, len(arrays[0]))(*arrays)
        plain = [r.view(complex)[..., 0] for r in results] if algebra == "complex" else results
        return named(program, model, plain)

    def _dual(self, program: Program, model: Model, values: list[Any]) -> dict[str, Any]:
        """Evaluate dual arrays: every knot once for each direction, with one tangent."""
        duals = [leaf for v in values for leaf in leaves(v) if isinstance(leaf, Dual)]
        k, n = duals[0].directions, duals[0].shape[-1]
        arrays = []
        for v in values:
            pair = np.zeros((n, k, _width(v), 2))
            pair[..., 0] = batch_first(_mapped(v, value_of))[:, None, :]
            pair[..., 1] = np.moveaxis(batch_first(_mapped(v, lambda leaf: _tangent(leaf, k))), 1, 2)
            arrays.append(pair.reshape(n * k, -1))
        results = self._kernel(program, model, "dual", n * k)(*arrays)
        shaped = [r.reshape(n, k, *r.shape[1:]) for r in results]
        return {
            o: field_of(o, model, Dual(np.moveaxis(r[:, 0, ..., 0], 0, -1), np.moveaxis(r[..., 1], (0, 1), (-2, -1))))
            for o, r in zip(program.outputs, shaped, strict=True)
        }

    # -- kernels ----------------------------------------------------------------------------------------------------
    def _kernel(self, program: Program, model: Model, algebra: str, knots: int) -> CompiledKernel:
        slots = self._slots.setdefault(model, {})
        key = (program.name, algebra)
        if key not in slots:
            unrolled = self.tier == "unrolled" and algebra == "real" and is_by_dof(program)
            slots[key] = _Slot(self._built(program, model, algebra, unrolled))
        slot = slots[key]
        slot.knots += knots
        worth_it = slot.knots > UNROLL_AFTER and model.nv <= UNROLL_UP_TO_DOFS
        worth_it = worth_it and algebra == "real" and is_by_dof(program)
        if self.tier == "auto" and worth_it and not slot.upgrading:
            slot.upgrading = True
            threading.Thread(target=self._upgrade, args=(slot, program, model), daemon=True).start()
        return slot.kernel

    def _upgrade(self, slot: _Slot, program: Program, model: Model) -> None:
        """Compile straight-line code in a thread; if the compilation fails, the loops stay in use."""
        try:
            slot.kernel = self._built(program, model, "real", True)
        except (CompilerError, OSError) as error:
            _LOG.warning("no straight-line code for %s of %s: %s", program.name, model.name, error)

    @staticmethod
    def _built(program: Program, model: Model, algebra: str, unrolled: bool) -> CompiledKernel:
        from dynamics_backends.compiled.loops.ready import ready_kernel

        ready = None if unrolled or algebra != "real" else ready_kernel(program, model)
        if ready is not None:
            return ready
        types = sorted({*USUAL_JOINTS, *model.joint_types})
        source = unrolled_kernel(program, model) if unrolled else loop_kernel(program, types, algebra)
        shapes = shapes_of(program, model)
        return CompiledKernel(source, model, shapes if algebra == "real" else [(*s, 2) for s in shapes])


def _width(value: Any) -> int:
    first = leaves(value)
    return len(first) * first[0].shape[0]


def _mapped(value: Any, function: Any) -> Any:
    if not isinstance(value, Struct):
        return function(value)
    return field_access.mapped(value, function)


def _tangent(leaf: Any, directions: int) -> np.ndarray:
    return leaf.tan if isinstance(leaf, Dual) else np.zeros((*leaf.shape, directions))
