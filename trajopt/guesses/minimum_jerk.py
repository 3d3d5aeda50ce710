"""Guess for a robot that moves from rest to rest: the minimum-jerk path to a goal, with the torques of that motion.

    q(t) = q0 (+) s(t / T) (q_goal (-) q0),    s(r) = 10 r^3 - 15 r^4 + 6 r^5
    u_k  = M(q_k) (a_k - a(q_k, v_k, u = 0)),  a_k = (v_(k+1) - v_k) / dt_k

clipped to the bounds on controls. s minimizes the integral of squared jerk between two states of rest (Flash & Hogan 1985). The
torques follow from the forward dynamics, which are affine in the joint forces, so they include gravity, damping, friction, springs
and rotor inertias.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP

Acceleration = Callable[[Array, Array], Array]
"""Function from states (M, nx) and controls (M, nu) to joint accelerations (M, nv)."""
Inertia = Callable[[Array], Array]
"""Function from states (M, nx) to mass matrices (M, nv, nv)."""


def minimum_jerk_states(ocp: OCP, x_goal: Array) -> Array:
    """States (N + 1, nx) of the minimum-jerk path from x0 to the positions of x_goal, at rest at both ends.

    Raises ValueError if the state is not (q, v) with a vector q.
    """
    manifold = ocp.manifold
    if not manifold.is_flat or manifold.nx % 2:
        raise ValueError("minimum-jerk paths need states (q, v) without quaternions; use interpolated_guess")
    n = manifold.nx // 2
    duration = ocp.times[-1]
    r = (ocp.times / duration)[:, None]
    toward = manifold.difference(ocp.x0[:, None], np.asarray(x_goal, dtype=float)[:, None])[:n, 0]
    fraction, speed = r**3 * (10.0 - 15.0 * r + 6.0 * r**2), 30.0 * r**2 * (1.0 - r) ** 2 / duration
    return np.concatenate([ocp.x0[:n] + fraction * toward, speed * toward], axis=1)


def tracking_torques(ocp: OCP, xs: Array, acceleration: Acceleration, inertia: Inertia) -> Array:
    """Controls (N, nu), clipped to their bounds, that move a fully actuated robot along states (N + 1, nx)."""
    n = xs.shape[1] // 2
    wanted = np.diff(xs[:, n:], axis=0) / ocp.dt[:, None]
    free = acceleration(xs[:-1], np.zeros((ocp.horizon, ocp.nu)))
    us = np.einsum("kij,kj->ki", inertia(xs[:-1]), wanted - free)
    return us if ocp.control_bounds is None else np.clip(us, *ocp.control_bounds)


def minimum_jerk_guess(
    ocp: OCP, x_goal: Array, acceleration: Acceleration, inertia: Inertia, xs: Array | None = None
) -> Guess:
    """Minimum-jerk guess to x_goal (nx,), or along given states xs (N + 1, nx), see the module docstring."""
    path = minimum_jerk_states(ocp, x_goal) if xs is None else np.asarray(xs, dtype=float)
    return Guess(path, tracking_torques(ocp, path, acceleration, inertia))
