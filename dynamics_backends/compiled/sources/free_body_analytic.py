"""Analytic derivatives of free rigid bodies for batches, by the functions of the package's library that time steps use too."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from dynamics_backends.compiled.sources.function_rows import FunctionRows
from dynamics_backends.compiled.sources.library_dynamics import FreeBodyFunctions
from dynamics_backends.methods.analytic import AnalyticSecondOrder
from dynamics_backends.protocol import Array, Batch, Hessians, Jacobians, Map, Parameters, unwrapped
from dynamics_backends.systems.bodies.free_body import FreeBody


def has_library_derivatives(map: Map) -> bool:
    """True for a FreeBody, except a subclass, and one whose implicit damping takes the step length as a parameter."""
    return type(map) is FreeBody and map.offsets is None


class FreeBodyAnalytic(AnalyticSecondOrder):
    """Analytic derivatives of a FreeBody by the library's functions of its accelerations; parameters are not used."""

    def __init__(self, map: Map) -> None:
        super().__init__(map)
        system = unwrapped(map)
        assert isinstance(system, FreeBody)
        self._system = system

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, without functions of the library, which belong to the process."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_partials", "_second")}

    @cached_property
    def _partials(self) -> FunctionRows:
        """Accelerations and their first derivatives from x, u, t and no parameters."""
        return self._function("partials", [], [])

    @cached_property
    def _second(self) -> FunctionRows:
        """Accelerations and their first derivatives, and second derivatives of lam' xdot, from x, u, t, no parameters, and lam."""
        n, m = self.map.manifold.ndx, self.map.nu
        return self._function("contracted", [n], [n * n, m * n, m * m])

    def _function(self, order: str, more_inputs: list[int], more_outputs: list[int]) -> FunctionRows:
        """Function of the library by its name, with inputs and outputs behind those of all functions."""
        functions = FreeBodyFunctions(self._system, 0, None)
        n, m = self.map.manifold.ndx, self.map.nu
        inputs, outputs = [self.map.manifold.nx, m, 1, 0, *more_inputs], [n // 2 * size for size in (1, n, m)]
        function = (*functions.function(order), None)
        return FunctionRows(function, inputs, [*outputs, *more_outputs], functions.workspace, functions)

    def _jacobians(self, b: Batch) -> Jacobians:
        """Value and partial derivatives, batch first."""
        found = self._with_velocities(b)
        self._partials(_arguments(b), self._accelerations(found))
        return found

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """Value and first derivatives, and the second derivatives of lam' f for lam (N, n_out)."""
        b = Batch.of(self.map, x, u, t, p)
        found, n, m = self._with_velocities(b), self.map.manifold.ndx, self.map.nu
        second = Hessians(*(np.empty((b.size, *shape)) for shape in ((n, n), (m, n), (m, m))))
        self._second([*_arguments(b), np.asarray(lam, float)], [*self._accelerations(found), *second])
        return found, second

    def _with_velocities(self, b: Batch) -> Jacobians:
        """Value and derivatives whose first half, the velocities and their derivatives, is set; the rest is to be written."""
        N, n = b.size, self.map.manifold.ndx
        half = n // 2
        value, fx, fu = np.empty((N, n)), np.zeros((N, n, n)), np.zeros((N, n, self.map.nu))
        value[:, :half] = b.x[-half:].T
        fx[:, range(half), range(half, n)] = 1.0
        return Jacobians(value, fx, fu)

    def _accelerations(self, found: Jacobians) -> list[Array]:
        """Views of the second halves of value, fx and fu."""
        return [part[:, self.map.manifold.ndx // 2 :] for part in found]


def _arguments(b: Batch) -> list[Array]:
    """Arguments x, u, t (N, n) of a batch, and no parameters (N, 0)."""
    return [*b._replace(p={}).arrays(), np.empty((b.size, 0))]
