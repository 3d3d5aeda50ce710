"""States that a problem asks for: at the end, and at way points.

Final states are minima of the terminal cost and the violation of the terminal constraints,

    min_a  l_N(x) + w/2 |g(x) - clip(g(x))|^2,      x = x0 (+) [a; 0],      a in the directions of positions

by Levenberg-Marquardt steps from random displacements a. For an arm with a goal for its tool these are solutions of its inverse
kinematics: steps have the smallest norm, so that the remaining freedom keeps its random values and the starts end in different
branches. w makes the violation of the terminal constraints, with rows g and their bounds, count more than the cost. Way points
are knots at which an equality on the state begins to hold: their states, from those before them, minimize the violation of the
constraints there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.position_directions import position_directions
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import parameters_at
from trajopt.solvers.direct.program_parts import coordinate_bounds, evaluated_stages, with_rows
from trajopt.stage.stages import Knots

ITERATIONS = 8
PRECISION = 3e-2
"""Maximum number of iterations, which end below this largest entry of a step [rad, m]."""
DAMPING = 1e-3
"""Damping relative to the largest diagonal entry of the Hessian."""
LONGEST = 0.5
"""Largest entry of a step [rad, m]."""
WEIGHT, LEAST_WEIGHT = 1e3, 1e-3
"""Weight w of the violation relative to the largest diagonal entry of the Hessian of the cost, and its smallest value."""


class TerminalStates:
    """Search for final states of small terminal cost and constraint violation. positions (P,): tangent directions to displace."""

    def __init__(self, ocp: OCP, positions: Array) -> None:
        rows = with_rows(ocp)
        self.ocp, self.positions = ocp, positions
        self.end = evaluated_stages(ocp)[-1]
        bounds = [c.bounds(1) for c in rows[-1]]
        self.lower, self.upper = (np.concatenate([b[i].ravel() for b in bounds] or [np.zeros(0)]) for i in (0, 1))
        self.bounds = [
            (chosen, lower[-1], upper[-1])
            for _, knots, chosen, lower, upper in coordinate_bounds(ocp)
            if knots.stop >= ocp.horizon
        ]

    def near(self, displacements: Array) -> Array:
        """Return displacements (M, P) near the given ones, of states with small terminal cost and constraint violation.

        Displacements of the positions from x0. Takes at most ITERATIONS Levenberg-Marquardt steps whose
        entries are at most LONGEST, within the bounds on state components of the last phase and the final knot, until the largest
        entry of a step is below PRECISION or a step is not finite.
        """
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
        """Return the Levenberg-Marquardt steps (M, P) at displacements a (M, P); all NaN if a matrix is singular.

        Steps of the terminal cost plus w/2 times the squared violation of the terminal constraints (module header); no step is
        tested for a decrease.
        """
        M, at, n = len(a), self.positions, len(self.positions)
        H, gradient = np.empty((M, n, n)), np.empty((M, n))
        for i, row in enumerate(self._states(a)[:, None]):
            found = self.end.first(_final_knot(row))
            H[i], gradient[i] = found.Q[0][np.ix_(at, at)], found.lx[0, at]
            if not len(self.lower):
                continue
            violation = found.values.g[0] - np.clip(found.values.g[0], self.lower, self.upper)
            if violation.any():
                G = found.gx[0][np.ix_(violation != 0.0, at)]
                weight = max(WEIGHT * float(np.diag(H[i]).max(initial=0.0)), LEAST_WEIGHT)
                H[i] += weight * G.T @ G
                gradient[i] += weight * G.T @ violation[violation != 0.0]
        diagonal = np.abs(np.einsum("kii->ki", H)).max(axis=1, initial=0.0)
        H[:, range(n), range(n)] += (DAMPING * diagonal + np.finfo(float).tiny)[:, None]
        try:
            return -np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            return np.full((M, n), np.nan)

    def violation(self, a: Array) -> float:
        """Return the largest violation of the terminal constraints at a displacement (P,).

        On a vector space, bounds on components do not count.
        """
        g = self.end.values(_final_knot(self._states(a[None]))).g[0]
        return float(np.abs(g - np.clip(g, self.lower, self.upper)).max(initial=0.0))

    def _states(self, a: Array) -> Array:
        """Return the states (M, nx) at displacements a (M, P) of the positions from x0."""
        move = np.zeros((1, len(a), self.ocp.manifold.ndx))
        move[0][:, self.positions] = a
        return displaced_states(self.ocp, move)[0]

    def _clipped(self, a: Array) -> Array:
        """Clip displacements a (M, P), in place, and return them.

        Then x0 + a lies in the bounds of the last phase and the final knot on state components.
        """
        x0 = self.ocp.x0
        for chosen, lower, upper in self.bounds:
            for component, low, high in zip(chosen, lower, upper, strict=True):
                own = np.flatnonzero(self.positions == component)
                a[:, own] = np.clip(x0[component] + a[:, own], low, high) - x0[component]
        return a


def _final_knot(x: Array) -> Knots:
    """Return the final knot at a state x (1, nx)."""
    return Knots(x, np.zeros((1, 0)), x[:0])


DRAWN, SPREAD = 16, 1.2
"""Number of states that are searched together, from displacements with this standard deviation [rad, m]."""
ROUGHLY = 1e-2
"""Violation of the constraints at a way point that counts as none."""
MOST_WAY_POINTS = 16
"""Maximum number of way points, as more describe a path."""


class Destinations:
    """States that a problem asks for, at its way points and at the end.

    knots: their knots, the last one N. positions (P,): tangent directions of positions.
    """

    def __init__(self, ocp: OCP) -> None:
        self.positions, way_points = position_directions(ocp).positions, way_points_of(ocp)
        self.knots = [*way_points, ocp.horizon]
        self._states = [TerminalStates(p, self.positions) for p in (*(_problem_at(ocp, k) for k in way_points), ocp)]

    def near(self, displacements: Array) -> list[Array]:
        """Return the displacements (M, P) from x0 of states at each of the knots, the first ones near the given ones.

        Others are searched from those before them. At way points, states that violate constraints by more than ROUGHLY give way to
        the nearest of those that do not; if all do, states are searched from the given displacements.
        """
        found, at = list[Array](), displacements
        for states in self._states[:-1]:
            at = self._nearest(states, at, displacements)
            found.append(at)
        different, rows = np.unique(at, axis=0, return_inverse=True)
        return [*found, self._states[-1].near(different)[rows.ravel()]]

    @staticmethod
    def _nearest(states: TerminalStates, at: Array, displacements: Array) -> Array:
        """Return displacements (M, P) of states at one way point near those at the one before, ``at`` (M, P)."""
        different, rows = np.unique(at, axis=0, return_inverse=True)
        reached = states.near(different)
        good = [a for a in reached if states.violation(a) <= ROUGHLY]
        if not good and at is not displacements:
            good = [a for a in states.near(displacements) if states.violation(a) <= ROUGHLY]
        if good:
            reached = np.array([good[int(np.argmin([np.abs(b - a).max() for b in good]))] for a in reached])
        return reached[rows.ravel()]


def way_points_of(ocp: OCP) -> list[int]:
    """Return the knots after x0 at which an equality on the state alone begins to hold; none beyond MOST_WAY_POINTS of them."""
    found, before = set[int](), set[str]()
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        last = set[str]()
        for c in phase.constraints:
            lower, upper = c.bounds(phase.knots)
            equal = (lower == upper).any(axis=1) & (c.residual.nu == 0)
            begins = equal & ~np.append(c.name in before, equal[:-1])
            found |= {knots.start + int(k) for k in np.flatnonzero(begins)}
            last |= {c.name} if equal[-1] else set()
        before = last
    way_points = sorted(found - {0})
    return way_points if len(way_points) <= MOST_WAY_POINTS else []


def _problem_at(ocp: OCP, knot: int) -> OCP:
    """Return a problem without cost that ends at a knot, whose terminal constraints are those on the state there."""
    i = next(i for i, knots in enumerate(ocp.phase_slices) if knots.start <= knot < knots.stop)
    phase, k = ocp.phases[i], knot - ocp.phase_slices[i].start

    def at_knot(c: Constraint) -> Constraint:
        """Return a constraint with its bounds and parameters at the knot."""
        lower, upper = c.bounds(phase.knots)
        return replace(c, lower=lower[k], upper=upper[k], parameters=parameters_at(c.parameters, k))

    own = parameters_at(phase.parameters, 0)
    until = replace(phase, dt=np.diff(ocp.times[: knot + 1]), terms=(), constraints=(), parameters=own)
    ends = tuple(at_knot(c) for c in phase.constraints if not c.residual.nu)
    return replace(ocp, phases=(until,), terminal=(), terminal_constraints=ends, u_lower=None, u_upper=None)


def displaced_states(ocp: OCP, move: Array) -> Array:
    """Return the states (M, N + 1, nx) at displacements (M, N + 1, ndx) from x0."""
    flat = move.reshape(-1, move.shape[-1]).T
    xs = ocp.manifold.integrate(np.repeat(ocp.x0[:, None], flat.shape[1], axis=1), flat)
    return np.ascontiguousarray(xs.T).reshape(*move.shape[:2], -1)
