"""Random motions as initial guesses of competing starts, the ones that look cheapest first.

A motion ends near a minimum of the terminal cost. With a the displacement of its end in the first half of the tangent, from a
normal draw with standard deviation SPREAD (:mod:`trajopt.solvers.terminal_states`), and b normal with standard deviation BEND,

    x_k = x0 (+) [t_k / T a + sin(pi t_k / T) b; 0]

Of DRAWN motions the next one is that with the least cost of the direct motion to its end, from rest to rest:

    sum_k l_k(x_k, u_k) + l_N(x_N),   x_k = x0 (+) [s(t_k / T) a; v_k],   s(r) = 10 r^3 - 15 r^4 + 6 r^5,
    v_(k+1) = (s_(k+1) - s_k) a / dt_k,   u_k = argmin_u |F_k(x_k, u) (-) x_(k+1)|^2, within the bounds

u is one Gauss-Newton step from the controls of the guess. For a robot with a motor in each joint it is the inverse dynamics of a
minimum-jerk motion (T. Flash, N. Hogan, The coordination of arm movements, J. Neuroscience 5, 1985). States without velocities
(an odd tangent) move without v.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.solvers.measures import evaluated_stages
from trajopt.solvers.terminal_states import TerminalStates

SPREAD, BEND = 1.2, 0.5
"""Standard deviations of the ends and of the bends of motions [rad, m]."""
DRAWN = 16
"""Number of motions that are ranked together."""
DAMPING = 1e-9
"""Damping of the Gauss-Newton step for the controls, relative to the mean diagonal entry of its matrix."""


def random_motions(ocp: OCP, guess: Guess, rng: np.random.Generator) -> Iterator[Guess]:
    """Yield motions from x0 with the controls of a guess; see the module docstring."""
    ends, r = TerminalStates(ocp), (ocp.times / ocp.times[-1])[:, None]
    bow, sizes = np.sin(np.pi * r), (DRAWN, ends.half)
    while True:
        away, bend = SPREAD * rng.standard_normal(sizes), BEND * rng.standard_normal(sizes)
        ends_at = ends.near(away)
        for i in np.argsort(direct_costs(ocp, guess.us, ends_at), kind="stable"):
            move = np.zeros((1, len(r), ocp.manifold.ndx))
            move[0, :, : ends.half] = r * ends_at[i] + bow * bend[i]
            yield Guess(_moved(ocp, move)[0], guess.us)


def direct_costs(ocp: OCP, us: Array, ends: Array) -> Array:
    """Return the costs (M,) of direct motions with displacements ends (M, half).

    us (N, nu): controls from which the Gauss-Newton step begins.
    """
    (M, half), N, r = ends.shape, ocp.horizon, (ocp.times / ocp.times[-1])[:, None]
    move = np.zeros((M, N + 1, ocp.manifold.ndx))
    move[:, :, :half] = ends[:, None] * (r**3 * (10.0 - 15.0 * r + 6.0 * r**2))
    if 2 * half == ocp.manifold.ndx:
        dt = ocp.dt[:, None]
        np.divide(np.diff(move[:, :, :half], axis=1), dt, out=move[:, 1:, half:], where=dt > 0.0)
    xs, total = _moved(ocp, move), np.zeros(M)
    *phases, end = evaluated_stages(ocp)
    with np.errstate(all="ignore"):
        for own, k in zip(phases, ocp.phase_slices, strict=True):
            after = slice(k.start + 1, k.stop + 1)
            found = [own.first(x[k], us[k], x[after], quadratic=False) for x in xs]
            B, d = np.stack([f.B for f in found]), np.stack([f.values.d for f in found])
            H = B.swapaxes(2, 3) @ B
            diagonal = np.einsum("...ii->...i", H)
            diagonal += DAMPING * diagonal.mean(axis=2, keepdims=True) + np.finfo(float).tiny
            step = np.linalg.solve(H, B.swapaxes(2, 3) @ d[..., None])[..., 0]
            u = (
                us[k] - step
                if ocp.control_bounds is None
                else np.clip(us[k] - step, *(b[k] for b in ocp.control_bounds))
            )
            total += [own.values(x[k], c, x[after]).cost.sum() for x, c in zip(xs, u, strict=True)]
        total += [end.values(x[-1:], us[:1, :0], x[:0]).cost[0] for x in xs]
    return total


def _moved(ocp: OCP, move: Array) -> Array:
    """Return the states (M, N + 1, nx) at displacements (M, N + 1, ndx) from x0."""
    flat = move.reshape(-1, move.shape[-1]).T
    xs = ocp.manifold.integrate(np.repeat(ocp.x0[:, None], flat.shape[1], axis=1), flat)
    return np.ascontiguousarray(xs.T).reshape(*move.shape[:2], -1)
