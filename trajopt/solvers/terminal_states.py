"""Final states near which the terminal costs and constraints of a problem have a minimum.

    min_a  l_N(x) + w/2 |g(x) - clip(g(x))|^2,      x = x0 (+) [a; 0],      a in the first half of the tangent

by Levenberg-Marquardt steps from random displacements a. For an arm with a goal for its tool these are solutions of its inverse
kinematics: steps have the smallest norm, so that the remaining freedom keeps its random values and the starts end in different
branches. w makes the violation of the terminal constraints, with rows g and their bounds, count more than the cost.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP
from trajopt.solvers.direct.program_parts import coordinate_bounds, with_rows
from trajopt.solvers.measures import evaluated_stages

ITERATIONS = 8
PRECISION = 3e-2
"""Largest entry of a step that ends the iterations [rad, m]."""
DAMPING = 1e-3
"""Damping relative to the largest diagonal entry of the Hessian."""
LONGEST = 0.5
"""Largest entry of a step [rad, m]."""
WEIGHT, LEAST_WEIGHT = 1e3, 1e-3
"""Weight w of the violation relative to the largest diagonal entry of the Hessian of the cost, and its smallest value."""


class TerminalStates:
    """Search for final states of a problem."""

    def __init__(self, ocp: OCP) -> None:
        rows = with_rows(ocp)
        self.ocp, self.half = ocp, (ocp.manifold.ndx + 1) // 2
        self.end = evaluated_stages(ocp)[-1]
        bounds = [c.bounds(1) for c in rows[-1]]
        self.lower, self.upper = (np.concatenate([b[i].ravel() for b in bounds] or [np.zeros(0)]) for i in (0, 1))
        self.bounds = [
            (chosen, lower[-1], upper[-1])
            for _, knots, chosen, lower, upper in coordinate_bounds(ocp)
            if knots.stop >= ocp.horizon
        ]

    def near(self, displacements: Array) -> Array:
        """Return displacements (M, half) of minima near x0 (+) [displacement; 0], for displacements (M, half)."""
        found, moving = np.array(displacements, dtype=float), np.arange(len(displacements))
        for _ in range(ITERATIONS):
            steps = self._steps(found[moving])
            longest = np.abs(steps).max(axis=1, initial=0.0)
            usable = np.isfinite(longest)
            moving, steps, longest = moving[usable], steps[usable], longest[usable]
            moved = found[moving] + steps * np.minimum(1.0, LONGEST / np.maximum(longest, LONGEST))[:, None]
            found[moving] = self._clipped(moved)
            moving = moving[longest >= PRECISION]
            if not len(moving):
                break
        return found

    def _steps(self, a: Array) -> Array:
        """Return the Levenberg-Marquardt steps (M, half) at displacements a (M, half), NaN where the Hessian is singular."""
        M, n, manifold = len(a), self.half, self.ocp.manifold
        x = manifold.integrate(
            np.repeat(self.ocp.x0[:, None], M, axis=1), np.vstack([a.T, np.zeros((manifold.ndx - n, M))])
        )
        H, gradient = np.empty((M, n, n)), np.empty((M, n))
        for i, row in enumerate(np.ascontiguousarray(x.T)[:, None]):
            found = self.end.first(row, np.zeros((1, 0)), row[:0])
            H[i], gradient[i] = found.Q[0, :n, :n], found.lx[0, :n]
            if not len(self.lower):
                continue
            violation = found.values.g[0] - np.clip(found.values.g[0], self.lower, self.upper)
            if violation.any():
                G = found.gx[0][violation != 0.0, :n]
                weight = max(WEIGHT * float(np.diag(H[i]).max(initial=0.0)), LEAST_WEIGHT)
                H[i] += weight * G.T @ G
                gradient[i] += weight * G.T @ violation[violation != 0.0]
        diagonal = np.abs(np.einsum("kii->ki", H)).max(axis=1, initial=0.0)
        H[:, range(n), range(n)] += (DAMPING * diagonal + np.finfo(float).tiny)[:, None]
        try:
            return -np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            return np.full((M, n), np.nan)

    def _clipped(self, a: Array) -> Array:
        """Move the states into the bounds on their components; a problem has such bounds on a vector space only."""
        x0 = self.ocp.x0
        for chosen, lower, upper in self.bounds:
            own = [i for i, component in enumerate(chosen) if component < self.half]
            at = [chosen[i] for i in own]
            a[:, at] = np.clip(x0[at] + a[:, at], lower[own], upper[own]) - x0[at]
        return a
