"""Random variations of a guess with the same end states: smooth detours

    x_k (+) sin^2(pi t_k / T) delta,    delta normal in the first half of the tangent, zero in the second

For a state (q, v), velocities change consistently with the positions.
"""

from __future__ import annotations

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP

DETOUR = 0.5
"""Default standard deviation of a detour [rad, m]."""


def detour(ocp: OCP, guess: Guess, rng: np.random.Generator, size: float = DETOUR) -> Guess:
    """Guess with a random detour of the states between the ends, and the same controls; size: standard deviation [rad, m].

    >>> import numpy as np, trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    >>> ocp = to.OCP.single_phase(to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler"), [0.0, 0.0], 20, 0.1)
    >>> moved = to.detour(ocp, to.constant_guess(ocp), np.random.default_rng(0)).xs
    >>> bool(abs(moved[[0, -1]]).max() < 1e-12), bool(abs(moved[10, 0]) > 0.01)
    (True, True)
    """
    ndx, half = ocp.manifold.ndx, ocp.manifold.ndx // 2
    fraction = ocp.times / ocp.times[-1]
    delta = np.zeros(ndx)
    delta[:half] = size * rng.standard_normal(half)
    move = np.sin(np.pi * fraction)[:, None] ** 2 * delta
    if ocp.model is not None and ndx == 2 * ocp.model.nv:
        move[:, half:] = np.pi / ocp.times[-1] * np.sin(2.0 * np.pi * fraction)[:, None] * delta[:half]
    xs = np.asarray(guess.xs, dtype=float)
    return Guess(np.ascontiguousarray(ocp.manifold.integrate(xs.T, move.T).T), guess.us)
