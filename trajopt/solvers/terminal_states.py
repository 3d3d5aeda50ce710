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
from trajopt.stage.engine import Wanted, stages_of

ITERATIONS = 12
PRECISION = 1e-2
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
        self.end = stages_of(ocp, Wanted(path=rows[:-1], final=rows[-1]))[-1]
        bounds = [c.bounds(1) for c in rows[-1]]
        self.lower, self.upper = (np.concatenate([b[i].ravel() for b in bounds] or [np.zeros(0)]) for i in (0, 1))
        self.bounds = [
            (chosen, lower[-1], upper[-1])
            for _, knots, chosen, lower, upper in coordinate_bounds(ocp)
            if knots.stop >= ocp.horizon
        ]

    def near(self, displacement: Array) -> Array:
        """Return the displacement (half,) of a minimum near x0 (+) [displacement; 0]."""
        a, manifold, x0 = np.zeros((self.ocp.manifold.ndx, 1)), self.ocp.manifold, self.ocp.x0[:, None]
        a[: self.half, 0] = displacement
        for _ in range(ITERATIONS):
            x = manifold.integrate(x0, a)
            try:
                step = self._step(x)
            except np.linalg.LinAlgError:
                break
            longest = float(np.abs(step).max(initial=0.0))
            if not np.isfinite(longest):
                break
            a[: self.half, 0] += step * min(1.0, LONGEST / max(longest, LONGEST))
            self._clip(a)
            if longest < PRECISION:
                break
        return np.array(a[: self.half, 0])

    def _step(self, x: Array) -> Array:
        found, n = self.end.first(np.ascontiguousarray(x.T), np.zeros((1, 0)), x.T[:0]), self.half
        H, gradient = found.Q[0, :n, :n].copy(), found.lx[0, :n].copy()
        violation = found.values.g[0] - np.clip(found.values.g[0], self.lower, self.upper)
        if violation.any():
            G = found.gx[0][violation != 0.0, :n]
            weight = max(WEIGHT * float(np.diag(H).max(initial=0.0)), LEAST_WEIGHT)
            H += weight * G.T @ G
            gradient += weight * G.T @ violation[violation != 0.0]
        damping = DAMPING * float(np.abs(np.diag(H)).max(initial=0.0)) + np.finfo(float).tiny
        H[range(n), range(n)] += damping
        return np.linalg.solve(H, -gradient)

    def _clip(self, a: Array) -> None:
        """Move the state into the bounds on its components; a problem has such bounds on a vector space only."""
        x0 = self.ocp.x0
        for chosen, lower, upper in self.bounds:
            inside = np.clip(x0[chosen] + a[chosen, 0], lower, upper) - x0[chosen]
            a[chosen, 0] = np.where(np.array(chosen) < self.half, inside, 0.0)
