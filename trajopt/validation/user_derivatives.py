"""Comparison of derivatives by user code, of backends, ``partials`` and time steps, with differences near x0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dynamics_backends.derivative_check import (
    DIFFERENCE_STEPS,
    DerivativeCheck,
    Points,
    step_sizes,
    user_backend_checks,
    worst,
    worst_entry,
)
from dynamics_backends.protocol import Array, DynamicsBackend, FunctionMap, Parameters, innermost, is_generic
from dynamics_backends.registry import make_backend
from trajopt.problem.ocp import OCP, DiscreteMap, Phase
from trajopt.problem.terms import parameters_at

POINTS, SPREAD, WRONG = 3, 0.01, 0.01
"""Number of random points near x0 at which a user-defined backend is checked, their standard deviation [rad, m, ...], and the
relative error of a derivative above which it is wrong.
"""
LEAST = 1e-6
"""Smallest size of the motion of a time step, and of its derivatives, that errors are relative to."""


def backend_warnings(ocp: OCP) -> Iterator[str]:
    """Yield a warning for each user-defined backend, or ``partials``, with a relative error of more than WRONG near x0.

    See :func:`~dynamics_backends.derivative_check.user_backend_checks`; second derivatives are reported only if the Jacobians are
    right. Points at which the backend raises an error, or where the error of a value or a Jacobian is not finite, are left out.
    """
    seen = set[int]()
    for what, backend, p in user_backends(ocp):
        if id(backend.map) in seen:
            continue
        seen.add(id(backend.map))
        xs, us = _near_x0(ocp, backend.map.nu)
        xs = xs[:, : backend.map.manifold.nx]  # without durations
        checks = [c for x, u in zip(xs, us, strict=True) for c in _checks_at(what, backend, x, u, ocp.start, p)]
        wrong = [c for c in checks if c.error is not None and WRONG < c.error < np.inf]
        if all(c.error != np.inf for c in checks if c.block != "second"):
            wrong += [c for c in checks if c.error == np.inf]
        own, method = (
            ("partials of the system", "partials")
            if is_generic(backend.map)
            else ("Jacobians of the backend", "jacobians")
        )
        if (found := worst([c for c in wrong if c.block != "second"])) is not None:
            yield f"the {own} do not agree with its values: {found}; correct its {method}"
        elif (found := worst(wrong)) is not None:
            yield (
                "the second derivatives of the backend do not agree with its Jacobians: "
                f"{found}; correct its hessian_contraction"
            )


def step_warnings(ocp: OCP) -> Iterator[str]:
    """Yield a warning for each user-defined time step whose ``linearize`` near x0 differs from its ``step`` by more than WRONG.

    The motion x_next (-) x, and its derivatives by central differences with the best of DIFFERENCE_STEPS, are compared, relative to
    their largest entry at a point. Time steps that raise an error, or are not finite, are left out.
    """
    for what, phase in user_steps(ocp):
        step, manifold, n = phase.dynamics, phase.dynamics.manifold, phase.dynamics.manifold.ndx
        (xs, us), p, unit = _near_x0(ocp, step.nu), parameters_at(phase.parameters, 0), np.eye(n, n + step.nu)
        given = xs, us, np.full(POINTS, ocp.start), np.full(POINTS, phase.dt[0]), p
        try:
            with np.errstate(all="ignore"):
                x_next, A, B = map(np.array, step.linearize(*given)[:3])  # copies: the next call may overwrite them
                right = manifold.difference(xs.T, _moved(step, np.zeros((n + step.nu, POINTS)), *given)).T
                own = np.concatenate([A, B], axis=2) - unit
                wrong, (row, j) = np.inf, (0, 0)
                for h in DIFFERENCE_STEPS:
                    if wrong > WRONG:
                        found = worst_entry(own, _slopes(step, h, *given) - unit, LEAST)
                        wrong, (row, j) = min((wrong, (row, j)), found)
        except Exception:  # user code may raise anything away from x0
            continue
        off, (i,) = worst_entry(manifold.difference(xs.T, x_next.T).T, right, LEAST)
        names = manifold.tangent_names
        if WRONG < off < np.inf:
            entry = f"{names[i]} of x_next by linearize is not that of step, relative error {off:.1e}"
            yield f"{what}: {entry}; correct linearize"
        elif WRONG < wrong < np.inf:
            entry = f"d({names[row]} of x_next) / d({(*names, *step.control_names)[j]}), relative error {wrong:.1e}"
            yield f"{what}: linearize does not agree with differences of step: {entry}; correct linearize"


def _slopes(step: DiscreteMap, size: float, x: Array, u: Array, *at: Any) -> Array:
    """Central differences (N, ndx, ndx + nu) of the next states of x (N, nx), u (N, nu); size: see :func:`step_sizes`."""
    h = step_sizes(step.manifold, x.T, u.T, size)
    columns = []
    for k in range(len(h)):
        d = np.zeros_like(h)
        d[k] = h[k]
        ends = _moved(step, -d, x, u, *at), _moved(step, d, x, u, *at)
        columns.append((step.manifold.difference(*ends) / (2.0 * h[k])).T)
    return np.stack(columns, axis=2)


def _moved(step: DiscreteMap, d: Array, x: Array, u: Array, *at: Any) -> Array:
    """Next states (nx, N) of states x (N, nx) and controls u (N, nu) that are moved by d (ndx + nu, N)."""
    n = step.manifold.ndx
    moved = np.ascontiguousarray(step.manifold.integrate(x.T, d[:n]).T)
    return np.array(step.step(moved, u + d[n:].T, *at)).T


def _near_x0(ocp: OCP, nu: int) -> tuple[Array, Array]:
    """Return POINTS random states (POINTS, nx) near x0, and controls (POINTS, nu) near zero."""
    rng = np.random.default_rng(0)
    start = np.repeat(ocp.x0[:, None], POINTS, axis=1)
    xs = np.asarray(ocp.manifold.integrate(start, SPREAD * rng.standard_normal((ocp.manifold.ndx, POINTS)))).T
    return xs, SPREAD * rng.standard_normal((POINTS, nu))


def _checks_at(
    what: str, backend: DynamicsBackend, x: Array, u: Array, t: float, p: Parameters
) -> list[DerivativeCheck]:
    """Return the comparisons of a backend's derivatives at a state x (nx,) and controls u (nu,), none if it raises an error there.

    what: name of the dynamics in reports. t [s].
    """
    one = np.zeros(1)
    try:
        with np.errstate(all="ignore"):
            return [*user_backend_checks(what, backend, Points(x[None], u[None], one + t, one, one.astype(int)), p)]
    except Exception:  # user code may raise anything away from x0
        return []


def user_backends(ocp: OCP) -> Iterator[tuple[str, DynamicsBackend, Parameters]]:
    """Yield backends with derivatives by the user, with their role and the parameters at the first knot.

    These are user-defined backends, which alone evaluate their dynamics, and the method ``partials`` of user functions.
    """
    for i, phase in enumerate(ocp.phases):
        if (sampling := phase.dynamics.sampling) is None:
            continue
        backend, p = sampling.called, parameters_at(phase.parameters, 0)
        if not is_generic(backend.map):
            yield f"dynamics of phase {i}", backend, p
        own = innermost(backend.map)
        if backend.name == "analytic" and isinstance(own, FunctionMap) and hasattr(own, "partials"):
            yield f"dynamics of phase {i}", make_backend(own, "analytic", engine="numpy"), p


def user_steps(ocp: OCP) -> Iterator[tuple[str, Phase]]:
    """Yield the name in messages of each user-defined time step (:class:`~trajopt.DiscreteMap`), and the last phase that has it."""
    for phase in {id(p.dynamics): p for p in ocp.phases if p.dynamics.sampling is None}.values():
        yield f"time step {type(phase.dynamics).__name__}", phase
