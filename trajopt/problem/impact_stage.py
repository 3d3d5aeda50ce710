"""Stage with a jump of the state, x_next = x (+) jump(x, u): an impact, without duration, or a discrete map x_next = F(x, u).

The jump is a map whose output is a tangent vector of the state, such as (0, v+ - v) of an impact. With T, E the derivatives of (+)
in its two arguments, which are 1 on a vector space,

    A = T(jump) + E(jump) d jump / d x,   B = E(jump) d jump / d u

and lam' x_next has the second derivatives of E'lam times the jump, and on Lie groups those of (+).

The phase of an impact has one knot with dt = 0, and an impact has no controls. Other jumps may have controls that set the new state
(:class:`~dynamics_backends.stretched_map.Durations`). Compiled code treats a jump as an Euler step of length one with the jump in
place of xdot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends.manifold_curvature import integrate_hessian
from dynamics_backends.protocol import (
    Array,
    Batch,
    DynamicsBackend,
    FunctionMap,
    Hessians,
    Map,
    Parameters,
    SecondOrderBackend,
)
from dynamics_backends.registry import as_backend, make_backend
from dynamics_backends.scalar import Rows, Scalar, rows_of
from trajopt.problem.ocp import LinearizedStep, Phase, Sampling, StepContraction

JUMP = "jump"
"""Scheme name of stages with a jump."""
UserFunction = Callable[[Rows, Rows, Scalar, Mapping[str, Rows]], "Rows | list[Scalar]"]


class ImpactStage:
    """Stage in which the state jumps, x_next = x (+) jump(x, u): the dynamics of a phase with one time step of 0 s.

    backend: the jump, a map that returns a tangent vector (ndx) of the state, such as :class:`~trajopt.Impact` or a
    :class:`~trajopt.FunctionMap`, or a backend of it; without one, it gets its default backend. takes_time: True if the stage has a
    duration dt, as for :func:`discrete_dynamics`; False for an impact. Raises ValueError for a map whose output is not a tangent
    vector of the state.
    """

    def __init__(self, backend: DynamicsBackend | Map, *, takes_time: bool = False) -> None:
        backend = as_backend(backend)
        jump = backend.map
        if jump.n_out != jump.manifold.ndx:
            raise ValueError(
                f"an impact stage needs a jump with n_out = ndx = {jump.manifold.ndx}; this map has n_out = {jump.n_out}"
            )
        self.backend, self.takes_time = backend, takes_time
        self.sampling: Sampling | None = Sampling(backend, JUMP)
        self.manifold = jump.manifold
        self.nu, self.control_names = jump.nu, jump.control_names

    def __repr__(self) -> str:
        return f"ImpactStage({self.backend!r}{', takes_time=True' if self.takes_time else ''})"

    def under(self, backend: DynamicsBackend) -> ImpactStage:
        """Copy of the stage with another backend of its jump."""
        return ImpactStage(backend, takes_time=self.takes_time)

    def step(self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None) -> Array:
        """Return x_next = x (+) jump(x, u), (N, nx); reads the first nu columns of u, and ignores dt."""
        b = Batch.of(self.backend.map, x, self._first_controls(u), t, p)
        jump = self.backend.f(x, self._first_controls(u), t, p).T
        return np.ascontiguousarray(self.manifold.integrate(b.x, jump).T)

    def linearize(
        self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None
    ) -> LinearizedStep:
        """Return x_next (N, nx), A = d x_next / dx (N, ndx, ndx), B = d x_next / du (N, ndx, nu).

        x: (N, nx). u: (N, nu) or more columns, which are ignored. t: a number or (N,) [s]. dt is ignored.
        """
        x = np.asarray(x, float)
        j = self.backend.jacobians(x, self._first_controls(u), t, p)
        x_next = np.ascontiguousarray(self.manifold.integrate(x.T, j.value.T).T)
        if self.manifold.is_flat:
            return LinearizedStep(x_next, np.eye(self.manifold.ndx) + j.fx, j.fu)
        at_x, at_jump = self.manifold.d_integrate(j.value)
        return LinearizedStep(x_next, at_x + at_jump @ j.fx, at_jump @ j.fu)

    @property
    def contract(self) -> StepContraction | None:
        """Function for second derivatives of lam' x_next (:data:`~trajopt.problem.ocp.StepContraction`); None if unavailable."""
        backend = self.backend
        if not isinstance(backend, SecondOrderBackend):
            return None

        def contracted(x: Array, u: Array, t: Any, dt: Any, p: Parameters | None, lam: Array) -> Hessians:
            """Second derivatives of lam' x_next, by the chain rule; dt is ignored."""
            x, u, lam, n = np.asarray(x, float), self._first_controls(u), np.asarray(lam, float), self.manifold.ndx
            if self.manifold.is_flat:
                return backend.hessian_contraction(x, u, t, p, lam)[1]
            jump, fx, fu = backend.jacobians(x, u, t, p)
            at_jump = (lam[:, None] @ self.manifold.d_integrate(jump)[1])[:, 0]
            xx, ux, uu = backend.hessian_contraction(x, u, t, p, at_jump)[1]
            H = integrate_hessian(self.manifold, jump, np.concatenate([fx, fu], axis=2), lam)
            return Hessians(xx + H[:, :n, :n], ux + H[:, n:, :n], uu + H[:, n:, n:])

        return contracted

    def _first_controls(self, u: Array) -> Array:
        """First nu columns of controls u (N, >= nu), as floats."""
        return np.asarray(u, float)[:, : self.nu]


def has_fixed_steps(phase: Phase) -> bool:
    """True for discrete dynamics, one step of which is one time step of the phase: their map does not read dt."""
    return isinstance(phase.dynamics, ImpactStage) and phase.dynamics.takes_time


def discrete_dynamics(
    function: UserFunction,
    nx: int,
    nu: int,
    backend: str = "forward_ad",
    *,
    control_names: tuple[str, ...] | None = None,
) -> ImpactStage:
    """Discrete-time dynamics x_next = F(x, u, t, p), for the phases of a problem in place of a sampled system.

    function: F, written for one state as in :class:`~trajopt.FunctionMap`, with nx results; all solvers and backends support it. dt
    weights running costs and advances t, but F does not read it; pass it as a parameter if needed. Such steps cannot be subdivided,
    so solutions are not replayed with finer steps. Raises UnknownName for an unknown backend, TypeError for an nx that is not an
    integer.

    >>> import trajopt as to
    >>> step = to.discrete_dynamics(lambda x, u, t, p: [x[0] + 0.1 * x[1], x[1] + 0.1 * u[0]], 2, 1)
    >>> ocp = to.OCP.single_phase(step, [1.0, 0.0], 30, 0.1, [to.control_cost(1)], [to.state_cost(2, [0.0, 0.0], 1e4)])
    >>> bool(abs(to.solve(ocp, solver="slq").xs[-1]).max() < 0.01)
    True
    """
    if not isinstance(nx, (int, np.integer)):
        raise TypeError(f"nx is a {type(nx).__name__}; expected an integer, since discrete dynamics have vector states")
    next_state = FunctionMap(function, int(nx), nu)
    jump = FunctionMap(partial(displacement, next_state), nx, nu, control_names=control_names)
    return ImpactStage(make_backend(jump, backend), takes_time=True)


def displacement(next_state: FunctionMap, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    """Jump F(x, u, t, p) - x of a user-defined function F. Raises ValueError if F returns a wrong number of results."""
    moved = next_state.called.counted(rows_of(next_state(x, u, t, p)))
    return [moved[i] - x[i] for i in range(next_state.manifold.nx)]


def next_state_of(map: Map) -> FunctionMap | None:
    """User-defined function F of discrete dynamics, from their jump; None for other maps."""
    function = getattr(map, "function", None)
    return function.args[0] if isinstance(function, partial) and function.func is displacement else None
