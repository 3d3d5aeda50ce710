"""A stage without duration: the state jumps, x_next = x (+) jump(x).

The jump is a map whose output is a tangent vector of the state, such as an impact's (0, v+ - v); what moves must lie in a
vector space: velocities, but not the placement of a floating base.  There (+) adds, and

    A = 1 + d jump / d x,   B = d jump / d u,   lam' x_next has the second derivatives of lam' jump.

A phase of such a stage has one knot with dt = 0.  The controls of an impact are none; others choose what the state jumps to
(:class:`~dynamics_backends.time_scaled.Durations`).  Compiled code takes a jump as Euler's step of length one
with the jump in place of xdot.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array, Batch, DynamicsBackend, Hessians, Map, Parameters, SecondOrderBackend
from dynamics_backends.registry import as_backend
from trajopt.problem.ocp import LinearizedStep, Sampling, StepContraction

JUMP = "jump"
"""The scheme of a stage without duration."""


class ImpactStage:
    """A jump under a backend: a :class:`~trajopt.problem.ocp.DiscreteMap` which needs no time.

    backend: of the jump, or the jump alone, with its default backend. Raises ValueError for a map whose output is no tangent
    vector of the state.
    """

    takes_time = False

    def __init__(self, backend: DynamicsBackend | Map) -> None:
        backend = as_backend(backend)
        jump = backend.map
        if jump.n_out != jump.manifold.ndx:
            raise ValueError(
                f"an impact stage needs a jump with n_out = ndx = {jump.manifold.ndx}; this map has n_out = {jump.n_out}"
            )
        self.backend = backend
        self.sampling: Sampling | None = Sampling(backend, JUMP)
        self.manifold = jump.manifold
        self.nu, self.control_names = jump.nu, jump.control_names

    def __repr__(self) -> str:
        return f"ImpactStage({self.backend!r})"

    def step(self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None) -> Array:
        """x_next (N, nx); dt is not read, and of u the first nu numbers."""
        b = Batch.of(self.backend.map, x, self._own(u), t, p)
        jump = self.backend.f(x, self._own(u), t, p).T
        return np.ascontiguousarray(self.manifold.integrate(b.x, jump).T)

    def linearize(
        self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None
    ) -> LinearizedStep:
        """x_next (N, nx), A (N, ndx, ndx), B (N, ndx, nu)."""
        x = np.asarray(x, float)
        j = self.backend.jacobians(x, self._own(u), t, p)
        x_next = np.ascontiguousarray(self.manifold.integrate(x.T, j.value.T).T)
        return LinearizedStep(x_next, np.eye(self.manifold.ndx) + j.fx, j.fu)

    @property
    def contract(self) -> StepContraction | None:
        """Second derivatives of lam' x_next for lam (N, ndx); None where the backend has none."""
        backend = self.backend
        if not isinstance(backend, SecondOrderBackend):
            return None

        def contracted(x: Array, u: Array, t: Any, dt: Any, p: Parameters | None, lam: Array) -> Hessians:
            return backend.hessian_contraction(x, self._own(u), t, p, lam)[1]

        return contracted

    def _own(self, u: Array) -> Array:
        return np.asarray(u, float)[:, : self.nu]
