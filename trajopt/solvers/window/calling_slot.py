"""Slots whose kernels call Python for the stages of a problem, because not all of them are compiled."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynamics_backends.machine.library import python_function
from dynamics_backends.protocol import Array
from trajopt.solvers.window.slots import Slot
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator


class CallingSlot(Slot):
    """Slot whose kernels call Python functions that evaluate the stages.

    An exception in such a function, Ctrl-C included, does not end the kernel: its further calls do nothing, and :meth:`answer`
    raises it when the kernel returns. The iterate and its multipliers are then those before the request.
    """

    _error: BaseException | None = None
    view: Callable[[str], Array]
    sizes: Any

    def _restored_arrays(self) -> list[Array]:
        """Return the arrays, besides the struct, that a failed request must leave as they were."""
        raise NotImplementedError

    def answer(self, request: Any) -> Any:
        """Return the answer of the kernels to a request. Raises an exception of a function that they called."""
        arrays = self._restored_arrays()
        before, copies = bytes(self.data), [a.copy() for a in arrays]
        try:
            return super().answer(request)
        finally:
            error, self._error = self._error, None
            if error is not None:
                ctypes.memmove(self.address, before, len(before))
                for array, values in zip(arrays, copies, strict=True):
                    array[:] = values
                raise error

    def _called(self, signature: str, function: Callable[..., float | None]) -> int:
        """Return the address of a C function of this signature that calls a Python function; after an exception it returns NaN."""
        failed = None if signature.startswith("void") else math.nan

        def call(*given: Any) -> float | None:
            """Call the function, unless an earlier call of this request raised an exception."""
            return failed if self._error is not None else function(*given)

        made, code = python_function(signature, call, failed, self._note)
        self._alive.append(made)
        return code

    def _roll_out(self, evaluator: StageEvaluator, t: Any, count: int, nodes: Shooting) -> None:
        """Roll out the step lengths of a trials_t ``t`` with an evaluator, and store the trajectories. count: number of lengths."""
        N, nx, n, m = self.sizes[:4]
        step = array_at(t.dx, N + 1, n), array_at(t.du, N, m), array_at(t.K, N, m, n), array_at(t.gaps, N, n)
        bend = (array_at(t.ddx, N + 1, n), array_at(t.ddu, N, m)) if t.ddx else None
        xs, us, alphas = array_at(t.xs, N + 1, nx), array_at(t.us, N, m), array_at(t.alphas, count)
        found = evaluator.rollout(xs, us, Direction(*step, bend), alphas, nodes)
        self._store("", X=found.xs, U=found.us, D=found.defects, cost=found.cost)

    def _store(self, prefix: str, **blocks: Array) -> None:
        """Write blocks to the first rows of the arrays of the slot with these names after a prefix."""
        for name, block in blocks.items():
            self.view(prefix + name)[: len(block)] = block

    def _note(self, _: type, error: BaseException, __: Any) -> None:
        """Store the exception of a called function."""
        self._error = error


def array_at(place: int, *shape: int) -> Array:
    """Return the doubles at an address as an array of this shape, a view."""
    memory: Any = (ctypes.c_double * math.prod(shape)).from_address(place)
    return np.ndarray(shape, buffer=memory)
