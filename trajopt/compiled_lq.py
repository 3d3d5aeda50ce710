"""The LQ problem of :mod:`trajopt.lq` solved by compiled kernels with its sizes known at compile time.

Same functions, same numbers; problems with bounds on du go to the NumPy sweep, whose box QP has no C twin.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib.resources import files

import numpy as np

from dynamics_backends.compiled.cache import load
from dynamics_backends.compiled.memory import address
from dynamics_backends.protocol import Array
from trajopt import lq as numpy_lq
from trajopt.lq import Bounds, LQProblem, LQStep, Policy


@lru_cache(maxsize=16)
def _library(ndx: int, nu: int) -> ctypes.CDLL:
    source = (files("trajopt") / "kernels" / "riccati.h").read_text()
    library = load(f"#include <string.h>\n#define NDX {ndx}\n#define NU {nu}\n{source}")
    library.lq_riccati.restype = ctypes.c_long
    for name in ("lq_adjoint", "lq_rollout"):
        getattr(library, name).restype = None
    return library


class CompiledLQ:
    """An :class:`~trajopt.lq_solver.LQSolver` for problems with n = ndx states and m = nu controls."""

    def __init__(self, ndx: int, nu: int) -> None:
        self.n, self.m = ndx, nu
        self._library = _library(ndx, nu)

    def _data(self, lq: LQProblem) -> list:
        self._kept = [np.ascontiguousarray(block) for block in lq[:8]]
        return [*map(address, self._kept), ctypes.c_long(lq.horizon)]

    def solve_riccati(
        self, lq: LQProblem, mu: float = 0.0, regularise: str = "control", bounds: Bounds | None = None
    ) -> Policy:
        """See :func:`trajopt.lq.solve_riccati`."""
        if bounds is not None:
            return numpy_lq.solve_riccati(lq, mu, regularise, bounds)
        N, n, m = lq.horizon, self.n, self.m
        K, k, Vx, Vxx = np.zeros((N, m, n)), np.zeros((N, m)), np.empty((N + 1, n)), np.empty((N + 1, n, n))
        on_state, on_control = (mu, 0.0) if regularise == "state" else (0.0, mu)
        failed = self._library.lq_riccati(
            *self._data(lq),
            ctypes.c_double(on_state),
            ctypes.c_double(on_control),
            *map(address, (K, k, Vx, Vxx)),
        )
        return Policy(K, k, Vx, Vxx, failed_at=None if failed < 0 else int(failed))

    def adjoint(self, lq: LQProblem) -> tuple[Array, Array]:
        """See :meth:`trajopt.lq_solver.NumpyLQ.adjoint`."""
        lam, gradient = np.empty((lq.horizon + 1, self.n)), np.empty((lq.horizon, self.m))
        self._library.lq_adjoint(*self._data(lq), address(lam), address(gradient))
        return lam, gradient

    def forward(self, lq: LQProblem, policy: Policy) -> tuple[LQStep, tuple[float, float]]:
        """See :meth:`trajopt.lq_solver.NumpyLQ.forward`."""
        dx, du, change = np.empty((lq.horizon + 1, self.n)), np.empty((lq.horizon, self.m)), np.empty(2)
        dx[0] = lq.dx0
        gains = (np.ascontiguousarray(policy.K), np.ascontiguousarray(policy.k))
        self._library.lq_rollout(*self._data(lq), *map(address, (*gains, dx, du, change)))
        return LQStep(dx, du), (float(change[0]), float(change[1]))
