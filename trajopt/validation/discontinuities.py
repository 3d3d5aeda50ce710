"""Jumps of user-defined dynamics near a motion, such as that of the friction -c np.sign(v): solvers need continuous derivatives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dynamics_backends.protocol import Array, FunctionMap, unwrapped
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import parameters_at

WINDOW = 1e-2
"""Width of the window around a state or control in which the dynamics are evaluated, relative to its largest magnitude."""
POINTS = np.linspace(-1.0, 1.0, 10)
"""Points in the window; the middle of the window is none, as np.sign is zero there."""
SUDDEN, LARGE = 0.75, 0.05
"""Fraction of the variation of xdot in the window that a jump has between two points, and its least size relative to xdot along the
motion."""
MOST = 20_000
"""Maximum number of evaluations of a phase; longer motions of large systems, and slow functions, are left out."""


def discontinuous_dynamics(ocp: OCP, xs: Array, us: Array) -> str:
    """Return advice on the first jump of user-defined dynamics near a motion xs (N + 1, nx), us (N, nu), "" for none.

    Dynamics on other manifolds than vector spaces and angles, and more than MOST evaluations, are left out, and so are functions
    that raise an error near the motion.
    """
    if not ocp.manifold.is_flat:
        return ""
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        sampling = phase.dynamics.sampling
        if sampling is None or not isinstance(unwrapped(sampling.backend.map), FunctionMap):
            continue
        names = [*ocp.state_names, *phase.dynamics.control_names]
        z = np.hstack([xs[knots], us[knots, : phase.dynamics.nu]])
        if z.size * len(POINTS) > MOST:
            continue
        try:
            found = next(_jumps(phase, z, ocp.t[knots]), None)
        except Exception:  # the user's code may be defined on the motion only
            continue
        if found is not None:
            k, i, j = found
            value = 0.0 if abs(z[k, i]) <= WINDOW * _sizes(z)[i] else z[k, i]
            return (
                f"The dynamics jump, as np.sign does: the derivative of {ocp.state_names[j]} near {names[i]} = {value:.3g} at knot "
                f"{knots.start + k}. Make them continuous, such as np.tanh(v / 0.01) for np.sign(v)."
            )
    return ""


def _sizes(z: Array) -> Array:
    """Largest magnitudes of states and controls z (K, nx + nu) along a phase, 1 for those that stay zero."""
    largest = np.abs(z).max(axis=0)
    return np.where(largest > 0.0, largest, 1.0)


def _jumps(phase: Phase, z: Array, t: Array) -> Iterator[tuple[int, int, int]]:
    """Yield knot, direction and component of the largest jump of xdot in each direction near z (K, nx + nu) that has jumps."""
    backend, knots = phase.dynamics.sampling.backend, np.tile(np.arange(len(t)), len(POINTS))  # type: ignore[union-attr]
    nx, parameters = z.shape[1] - phase.dynamics.nu, parameters_at(phase.parameters, knots)
    with np.errstate(all="ignore"):
        for i, width in enumerate(WINDOW * _sizes(z)):
            near = np.tile(z, (len(POINTS), 1))
            near[:, i] += width * np.repeat(POINTS, len(t))
            xdot = backend.f(near[:, :nx], near[:, nx:], t[knots], parameters).reshape(len(POINTS), len(t), -1)
            changes = np.abs(np.diff(xdot, axis=0))
            sudden = np.where(changes.max(axis=0) > SUDDEN * changes.sum(axis=0), changes.max(axis=0), 0.0)
            k, j = (int(n) for n in np.unravel_index(int(np.argmax(sudden)), sudden.shape))
            if LARGE * np.abs(xdot[..., j]).max() < sudden[k, j] < np.inf:
                yield k, i, j
