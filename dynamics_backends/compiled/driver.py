"""The third driver: programs of passes as compiled kernels.

It takes the arguments that the other drivers take, as rows (n, N), and returns a program's outputs as rows.  Three kinds of numbers:
float64; complex128, whose kernel carries (re, im) through every step; dual arrays, whose kernel carries (value, tangent) and runs over
knots x directions.  The loop tier serves at once; for a small robot the unrolled tier is built in the background after many knots.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from dynamics_backends.compiled.kernel import CompiledKernel
from dynamics_backends.compiled.loops import loop_kernel
from dynamics_backends.compiled.unrolled import unrolled_kernel
from dynamics_backends.dual import Dual
from dynamics_backends.rigid_body import drivers
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.passes import FIELDS, Axis, Program
from dynamics_backends.rigid_body.spatial import Struct, leaves, size

USUAL_JOINTS = ("revolute", "prismatic", "floating")
"""Kernels serve these joint types always, others where a model has them: one kernel per algorithm for almost all robots."""

UNROLL_AFTER = 20_000
"""Knots after which straight-line code for the robot is worth building."""
UNROLL_UP_TO_DOFS = 20


class CompiledDriver:
    """Evaluates programs for one model by kernels, made when first asked for."""

    def __init__(self, model: Model, *, tier: str = "auto") -> None:
        if tier not in ("auto", "loops", "unrolled"):
            raise ValueError(f"tier = {tier!r}; known: 'auto', 'loops', 'unrolled'")
        self.model = model
        self.tier = tier
        self._kernels: dict[tuple[str, str], CompiledKernel] = {}
        self._knots: dict[str, int] = {}

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
        values = [arguments[name] for name in program.arguments]
        if not self._serves(program, model, values):
            return drivers.run(program, model, arguments)
        n = _batch(values)
        if any(isinstance(v, Dual) for v in values):
            return self._dual(program, values, n)
        if any(np.iscomplexobj(v) for v in values):
            arrays = [_columns(v, n).astype(complex).view(float) for v in values]
            results = self.kernel(program, "complex")(*arrays)
            return self._named(program, [r.view(complex)[..., 0] for r in results])
        return self._named(program, self.kernel(program, "real")(*[_columns(v, n) for v in values]))

    def _serves(self, program: Program, model: Model, values: list[Any]) -> bool:
        """Numeric arguments and results that are scalars by degree of freedom or by pairs of them."""
        plain = all(FIELDS[o].kind is None and FIELDS[o].axis in (Axis.DOF, Axis.MATRIX) for o in program.outputs)
        numeric = all(isinstance(v, (np.ndarray, Dual, Struct)) and type(v).__name__ != "SpatialDual" for v in values)
        return model.gravity is not None and plain and numeric and (model is self.model or self._adopt(model))

    def _adopt(self, model: Model) -> bool:
        """Another model (changed gravity, say): its tables are bound to the same kernels."""
        self._kernels.clear()
        self.model = model
        return True

    def kernel(self, program: Program, algebra: str) -> CompiledKernel:
        """The kernel for a program, compiled or loaded at the first call."""
        key = (program.name, algebra)
        if key not in self._kernels:
            self._kernels[key] = self._build(program, algebra, unrolled=self.tier == "unrolled" and algebra == "real")
        return self._kernels[key]

    def _build(self, program: Program, algebra: str, *, unrolled: bool) -> CompiledKernel:
        types = {*USUAL_JOINTS, *self.model.joint_types}
        source = unrolled_kernel(program, self.model) if unrolled else loop_kernel(program, sorted(types), algebra)
        return CompiledKernel(source, self.model, [self._shape(o, algebra) for o in program.outputs])

    def _shape(self, output: str, algebra: str) -> tuple[int, ...]:
        nv = self.model.nv
        shape = (nv,) if FIELDS[output].axis is Axis.DOF else (nv, nv)
        return shape if algebra == "real" else (*shape, 2)
