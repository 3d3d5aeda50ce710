"""Slot of Newton's method for a problem that is not compiled as a whole: its kernels call the evaluators of the problem."""

from __future__ import annotations

from typing import Any

from dynamics_backends.protocol import Array
from trajopt.solvers.window.calling_slot import CallingSlot
from trajopt.solvers.window.memory import TRIALS
from trajopt.solvers.window.newton_slot import NewtonSlot
from trajopt.stage.compiled.library import TrialsData
from trajopt.stage.evaluation import Shooting


class CallingNewtonSlot(CallingSlot, NewtonSlot):
    """Slot of Newton's method whose kernels call the evaluators."""

    def _take_stages(self) -> None:
        """Write the functions that call the evaluators to the struct, and no phases."""
        d = self.data
        d.trials = TRIALS
        d.python_expand = self._called("double(long, long, long)", self._expand)
        d.python_curve = self._called("void(long)", self._curve)
        d.python_roll = self._called("void(intptr_t, long)", self._roll)

    def _values_of_stages(self) -> list[Any]:
        """Return None for all data: the kernels read no data of stages."""
        return [None] * 5

    def _restored_arrays(self) -> list[Array]:
        """Return the multipliers of the bounds."""
        return [self.view("z")]

    def _trajectory(self, point: int) -> tuple[Array, Array]:
        """Return views of the states and controls of a point."""
        return self.view(f"points_{point}_xs"), self.view(f"points_{point}_us")

    def _expand(self, point: int, plain: int, alone: int) -> float:
        """Expand about a point, and return its cost; see python_t of newton_slot.h."""
        own, exact = self._evaluators
        lq, cost, _ = (own if plain else exact or own).expand(*self._trajectory(point))
        hessian = {"Q": lq.Q, "S": lq.S, "R": lq.R}
        if alone:
            self._store("o", **hessian)
        else:
            self._store(f"points_{point}_", A=lq.A, B=lq.B, d=lq.d, q=lq.q, r=lq.r, **hessian)
        return float(cost)

    def _curve(self, point: int) -> None:
        """Find second derivatives of the time steps, contracted with the costates of a point."""
        costates = self.view(f"points_{point}_lambda")
        found = self._evaluators[1].curvature(*self._trajectory(point), costates[1:])
        self._store("c", Q=found.xx, S=found.ux, R=found.uu)

    def _roll(self, trials: int, count: int) -> None:
        """Roll out step lengths with the evaluator of Gauss-Newton. trials: address of a trials_t; count: number of lengths."""
        t = TrialsData.from_address(trials)
        nodes = Shooting.every("all" if t.node == self.data.every else "single", self.sizes.N, "linear")
        self._roll_out(self._evaluators[0], t, count, nodes)
