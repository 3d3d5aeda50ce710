"""A guess for robots that go from rest to rest: the minimum-jerk path to a goal, with the torques of that motion.

    q(t) = q0 (+) s(t / T) (q_goal (-) q0),    s(r) = 10 r^3 - 15 r^4 + 6 r^5
    u_k  = M(q_k) (a_k - a(q_k, v_k, u = 0)),  a_k = (v_(k+1) - v_k) / dt_k

clipped to the bounds on controls: s has the least integral of squared jerk between two points of rest (Flash & Hogan 1985).  The
torques are the inverse dynamics of the system as it is, with gravity, damping, friction, springs and rotor inertias, for its
forward dynamics are affine in the forces of its joints.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP

Acceleration = Callable[[Array, Array], Array]
"""Joint accelerations (M, nv) at states (M, nx) under controls (M, nu)."""
Inertia = Callable[[Array], Array]
"""The mass matrix (M, nv, nv) at states (M, nx)."""


def minimum_jerk_states(ocp: OCP, x_goal: Array) -> Array:
    """States (N + 1, nx) of the path from x0 to a state at rest, of a problem whose state is (q, v) and q a vector.

    Raises ValueError for other states.
    """
    manifold = ocp.manifold
    if not manifold.is_flat or manifold.nx % 2:
        raise ValueError("minimum-jerk paths need states (q, v) without quaternions; use interpolated_guess")
    n = manifold.nx // 2
    duration = ocp.times[-1]
    r = (ocp.times / duration)[:, None]
    toward = manifold.difference(ocp.x0[:, None], np.asarray(x_goal, dtype=float)[:, None])[:n, 0]
    share, speed = r**3 * (10.0 - 15.0 * r + 6.0 * r**2), 30.0 * r**2 * (1.0 - r) ** 2 / duration
    return np.concatenate([ocp.x0[:n] + share * toward, speed * toward], axis=1)


def tracking_torques(ocp: OCP, xs: Array, acceleration: Acceleration, inertia: Inertia) -> Array:
    """Controls (N, nu) under which a fully driven robot moves along states (N + 1, nx), as far as their bounds allow."""
    n = xs.shape[1] // 2
    wanted = np.diff(xs[:, n:], axis=0) / ocp.dt[:, None]
    free = acceleration(xs[:-1], np.zeros((ocp.horizon, ocp.nu)))
    us = np.einsum("kij,kj->ki", inertia(xs[:-1]), wanted - free)
    return us if ocp.control_bounds is None else np.clip(us, *ocp.control_bounds)


def minimum_jerk_guess(
    ocp: OCP, x_goal: Array, acceleration: Acceleration, inertia: Inertia, xs: Array | None = None
) -> Guess:
    """The motion of the module's docstring to x_goal (nx,), or along other states xs (N + 1, nx)."""
    path = minimum_jerk_states(ocp, x_goal) if xs is None else np.asarray(xs, dtype=float)
    return Guess(path, tracking_torques(ocp, path, acceleration, inertia))
