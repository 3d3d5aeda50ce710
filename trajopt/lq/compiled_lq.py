"""The LQ problem of :mod:`trajopt.lq.lq` solved by compiled kernels with its sizes known at compile time.

Same functions, same numbers.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.runtime.cache import load
from dynamics_backends.compiled.runtime.memory import address, bound
from dynamics_backends.protocol import Array
from trajopt.lq.lq import Bounds, LQProblem, LQStep, Policy


@lru_cache(maxsize=16)
def _library(ndx: int, nu: int) -> ctypes.CDLL:
    source = (files("trajopt.lq") / "kernels" / "riccati.h").read_text()
    return load(f"#include <string.h>\n#define NDX {ndx}\n#define NU {nu}\n{source}")


_DATA = "pppppppp l"
"""A, B, d, Q, q, S, R, r and the horizon."""


class CurvaturePart(ctypes.Structure):
    """lq_curvature of kernels/riccati.h: second derivatives of the knots first .. last."""

    _fields_ = [
        ("first", ctypes.c_long),
        ("last", ctypes.c_long),
        ("contract", ctypes.c_void_p),
        ("knots", ctypes.c_void_p),
    ]


class KnotCurvatures(NamedTuple):
    """Second derivatives of every knot, for a sweep in C: an array of CurvaturePart, and what must live as long as it."""

    parts: Any
    kept: Any


class CompiledLQ:
    """An :class:`~trajopt.lq.lq_solver.LQSolver` for problems with n = ndx states and m = nu controls."""

    def __init__(self, ndx: int, nu: int) -> None:
        self.n, self.m = ndx, nu
        library = _library(ndx, nu)
        self._riccati = bound(library, "lq_riccati", _DATA + "dd pp pppp", ctypes.c_long)
        self._convex = bound(library, "lq_convex", _DATA + "dd pp iip pppp", ctypes.c_long)
        self._adjoint = bound(library, "lq_adjoint", _DATA + "pp")
        self._linear_rollout = bound(library, "lq_rollout", _DATA + "pp pp ppp")

    def solve_riccati(
        self, lq: LQProblem, mu: float = 0.0, regularize: str = "control", bounds: Bounds | None = None
    ) -> Policy:
        """See :func:`trajopt.lq.lq.solve_riccati`."""
        return self._swept(self._riccati, _contiguous(lq), mu, regularize, bounds)

    def convex(
        self,
        lq: LQProblem,
        mu: float = 0.0,
        regularize: str = "control",
        bounds: Bounds | None = None,
        curvature: KnotCurvatures | None = None,
        modify: bool = True,
    ) -> tuple[LQProblem, Policy]:
        """See :func:`trajopt.solvers.shooting.ddp_model.convex_lq`: the problem with a positive definite Quu, and its policy,
        by one sweep.

        curvature: of the dynamics, added on the way, from
        :meth:`~trajopt.stage.evaluation.StageEvaluator.knot_curvatures`.
        """
        lq = lq._replace(Q=lq.Q.copy(), S=lq.S.copy(), R=lq.R.copy())
        data = _contiguous(lq)
        parts = (0, None) if curvature is None else (len(curvature.parts), ctypes.addressof(curvature.parts))
        policy = self._swept(self._convex, data, mu, regularize, bounds, int(modify), *parts)
        return lq._replace(Q=data[3], S=data[5], R=data[6]), policy

    def _swept(
        self, sweep: Any, data: list[Array], mu: float, regularize: str, bounds: Bounds | None, *more: int | None
    ) -> Policy:
        N, n, m = len(data[0]), self.n, self.m
        K, k, Vx, Vxx = np.zeros((N, m, n)), np.zeros((N, m)), np.empty((N + 1, n)), np.empty((N + 1, n, n))
        on_state, on_control = (mu, 0.0) if regularize == "state" else (0.0, mu)
        _kept, at = _addresses(bounds)
        failed = sweep(*map(address, data), N, on_state, on_control, *at, *more, *map(address, (K, k, Vx, Vxx)))
        return Policy(K, k, Vx, Vxx, failed_at=None if failed < 0 else int(failed))

    def adjoint(self, lq: LQProblem) -> tuple[Array, Array]:
        """See :meth:`trajopt.lq.lq_solver.NumpyLQ.adjoint`."""
        lam, gradient = np.empty((lq.horizon + 1, self.n)), np.empty((lq.horizon, self.m))
        data = _contiguous(lq)
        self._adjoint(*map(address, data), lq.horizon, address(lam), address(gradient))
        return lam, gradient

    def forward(
        self, lq: LQProblem, policy: Policy, bounds: Bounds | None = None
    ) -> tuple[LQStep, tuple[float, float]]:
        """See :meth:`trajopt.lq.lq_solver.NumpyLQ.forward`."""
        dx, du, change = np.empty((lq.horizon + 1, self.n)), np.empty((lq.horizon, self.m)), np.empty(2)
        dx[0] = lq.dx0
        data, gains = _contiguous(lq), (np.ascontiguousarray(policy.K), np.ascontiguousarray(policy.k))
        _kept, at = _addresses(bounds)
        out = map(address, (dx, du, change))
        self._linear_rollout(*map(address, data), lq.horizon, *map(address, gains), *at, *out)
        return LQStep(dx, du), (float(change[0]), float(change[1]))


def _addresses(bounds: Bounds | None) -> tuple[list[Array], list[int | None]]:
    """Bounds in C order, to be kept while their addresses are used; NULL where there are none."""
    limits = [] if bounds is None else [np.ascontiguousarray(b, float) for b in bounds]
    return limits, [*map(address, limits)] or [None, None]


def _contiguous(lq: LQProblem) -> list[Array]:
    """The blocks A .. r in C order; the caller keeps them for as long as their addresses are used."""
    return [np.ascontiguousarray(block) for block in lq[:8]]
