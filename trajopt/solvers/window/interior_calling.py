"""Interior-point slot of a problem that is not compiled as a whole: its kernels call the program."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.window.calling_slot import CallingSlot, array_at
from trajopt.solvers.window.interior_slot import InteriorSlot


class CallingInteriorSlot(CallingSlot, InteriorSlot):
    """Slot of the interior-point method whose kernels call the program, which uses compiled code where it can."""

    def _take_stages(self) -> None:
        """Write the functions that call the program to the struct."""
        d = self.data
        d.python_evaluate = self._called("double(long, long)", self._evaluate)
        d.python_second = self._called("void(long, double)", self._second)
        if not self.program.flat:
            d.program_moved = self._called("void(void *, intptr_t, intptr_t, double, long, intptr_t)", self._retract)
            d.program_carried = self._called("void(void *, intptr_t, double, long, intptr_t)", self._transport)

    def _values_of_stages(self) -> tuple[Any, Any]:
        """Return (None, None): the kernels read no data of stages."""
        return None, None

    def _restored_arrays(self) -> list[Array]:
        """Return all multipliers."""
        return list(self.z.arrays)

    def _evaluate(self, place: int, differentiate: int) -> float:
        """Evaluate a point, with first derivatives if ``differentiate``; return the objective."""
        point = self.points[place]
        return self.program.first(point) if differentiate else self.program.values(point)

    def _second(self, place: int, scale: float) -> None:
        """Find second derivatives of the Lagrangian at a point with first derivatives; scale: factor of the cost."""
        self.program.second(self.points[place], scale, self.z)

    def _retract(self, _: Any, xs: int, step: int, alpha: float, count: int, to: int) -> None:
        """Write the states x (+) alpha dx; addresses of states xs and ``to`` (count, nx), and of the step dx (count, n)."""
        manifold = self.program.ocp.manifold
        dx = alpha * array_at(step, count, manifold.ndx)
        array_at(to, count, manifold.nx)[:] = manifold.integrate(array_at(xs, count, manifold.nx).T, dx.T).T

    def _transport(self, _: Any, step: int, alpha: float, count: int, lam: int) -> None:
        """Transport covectors lam from the tangent spaces at states x to those at x (+) alpha dx; addresses as above."""
        manifold = self.program.ocp.manifold
        E = manifold.d_integrate(alpha * array_at(step, count, manifold.ndx))[1]
        rows = array_at(lam, count, manifold.ndx)
        rows[:] = np.linalg.solve(E.transpose(0, 2, 1), rows[:, :, None])[:, :, 0]
