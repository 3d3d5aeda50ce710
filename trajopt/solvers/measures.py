"""Violation and optimality error of a trajectory, measured at the trajectory itself, whatever solver found it.

Feasibility: the defects F_k(x_k, u_k) (-) x_(k+1), the bounds on controls and the rows of the constraints, each in its own unit.

Stationarity: the gradient of the Lagrangian in the controls, for the multipliers y, z that the solver returned,

    q_k = l_x + g_x'y + z_x        r_k = l_u + g_u'y + z_u
    lambda_N = q_N,   lambda_k = q_k + A'lambda_(k+1) + K'g_k,   g_k = r_k + B'lambda_(k+1)

with the feedback gains K of the solution, for which see :mod:`trajopt.solvers.shooting.optimality`: any K certifies a solution,
and these keep the costates small.  Two numbers without units are made of it:

    scaled KKT error    max |g_i| / s_i, s_i the largest sum of the absolute terms of g_i; complementarity |y| dist / max(1, |J|)
    cost sensitivity    max |g_i| U_i / max(1, |J|), U_i the largest |u_i| along the trajectory

A gradient that pushes a control against a bound is the multiplier of the bound: there |g_i| dist / max(1, |J|) counts instead,
where it is smaller.

On an unstable motion rounding alone makes the gradient large.  Scaling removes that, but it also hides a gradient that matters
where costates overflow.  So the cost sensitivity is bounded too: to first order, the share of the cost by which a change of a
control by its own size changes it.  Stages are evaluated by the compiled code that the solve has loaded, else in NumPy: the
numbers agree to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import HALF_OF_DIGITS, LQProblem
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP
from trajopt.solvers.direct.program_parts import with_rows
from trajopt.stage.engine import Wanted, lq_solver_for, stages_of
from trajopt.stage.stages import StageDerivatives

NEAR_BOUND = 1e-5
"""Controls nearer to a bound than this, relative to bounds beyond 1, have no feedback in the adjoint sweep."""


class Violation(NamedTuple):
    """The largest violation. ratio: violation / tolerance. sentence: what is violated, where, by how much."""

    ratio: float
    sentence: str


class Measures(NamedTuple):
    """violation: the worst one; None where everything is zero. kkt: the scaled KKT error. sensitivity: the cost sensitivity."""

    violation: Violation | None
    kkt: float
    sensitivity: float


def measures(ocp: OCP, xs: Array, us: Array, K: Array, multipliers: Mapping[str, Array], tolerance: float) -> Measures:
    """Measure a finite trajectory xs (N + 1, nx), us (N, nu) with gains K (N, nu, ndx).

    multipliers: of a solution, by the names that :class:`~trajopt.results.solution.Solution` documents; missing ones count as zero.
    tolerance: of defects, bounds and constraint rows, relative to bounds beyond 1.
    """
    with np.errstate(all="ignore"):
        return _Measured(ocp, xs, us, multipliers).measures(K, tolerance)


def largest_violation(ocp: OCP, xs: Array, us: Array, tolerance: float) -> Violation | None:
    """The worst violation of dynamics, bounds on controls and constraints by a finite trajectory; None where there is none."""
    with np.errstate(all="ignore"):
        return _Measured(ocp, xs, us, {}).violation(tolerance)


class _Measured:
    """The derivatives of the stages at a trajectory, and the multipliers in their places."""

    def __init__(self, ocp: OCP, xs: Array, us: Array, multipliers: Mapping[str, Array]) -> None:
        self.ocp, self.xs, self.us, self.multipliers = ocp, xs, us, multipliers
        rows, N = with_rows(ocp), ocp.horizon
        stages = stages_of(ocp, Wanted(path=rows[:-1], final=rows[-1]), "loaded")
        self.parts: list[tuple[slice, tuple[Constraint, ...], StageDerivatives]] = []
        for own, knots, group in zip(stages, (*ocp.phase_slices, slice(N, N + 1)), rows, strict=True):
            u = us[knots] if knots.start < N else us[:1, :0]
            found = own.first(xs[knots], u, xs[knots.start + 1 : knots.stop + 1], quadratic=False)
            self.parts.append((knots, group, found))
        self.cost = float(sum(part.values.cost.sum() for _, _, part in self.parts))
        self.bounds = [*self._state_bounds(rows)]

    def measures(self, K: Array, tolerance: float) -> Measures:
        gradient, size, complementarity = self._stationarity(K)
        relative = np.divide(np.abs(gradient), size, out=np.zeros_like(gradient), where=size > 0.0)
        scale = max(1.0, abs(self.cost))
        room = self._room(gradient)
        # a gradient is zero, or the multiplier of a bound that is reached
        relative = np.minimum(relative, np.where(np.isfinite(room), np.abs(gradient) * room / scale, np.inf))
        reach = np.minimum(np.abs(self.us).max(axis=0, initial=0.0), room)
        sensitivity = float((np.abs(gradient) * reach).max(initial=0.0)) / scale
        kkt = max(float(relative.max(initial=0.0)), complementarity / scale)
        return Measures(self.violation(tolerance), *(v if np.isfinite(v) else np.inf for v in (kkt, sensitivity)))

    # -- feasibility ------------------------------------------------------------------------------------------------------
    def violation(self, tolerance: float) -> Violation | None:
        """See :func:`largest_violation`."""
        return max(self._violations(tolerance), key=lambda v: v.ratio, default=None)

    def _violations(self, tolerance: float) -> Iterator[Violation]:
        ocp = self.ocp
        start = ocp.manifold.gap(self.xs[:1].T, ocp.x0[:, None]).T
        yield from _worst(
            np.abs(start), tolerance, ocp.state_names, 0, "the first state differs from x0 in {} by {:.2g}"
        )
        for knots, group, part in self.parts:
            if part.values.d.size:
                text = "the dynamics are off in {} by {:.2g} at knot {}"
                yield from _worst(np.abs(part.values.d), tolerance, ocp.state_names, knots.start, text)
            for c, g, imposed in self._rows(knots, group, part.values.g):
                yield from _constraint_violations(c, g, imposed, knots.start, tolerance)
        for knots, c, chosen in self.bounds:
            g = self.xs[knots][:, chosen]
            yield from _constraint_violations(c, g, _imposed(c, g, knots), knots.start, tolerance)
        if ocp.control_bounds is not None:
            clipped = np.clip(self.us, *ocp.control_bounds)
            allowed = tolerance * np.maximum(1.0, np.abs(clipped))
            text = "the bound on {} is violated by {:.2g} at knot {}"
            yield from _worst(np.abs(self.us - clipped), allowed, ocp.control_names, 0, text)

    def _rows(
        self, knots: slice, group: tuple[Constraint, ...], values: Array
    ) -> Iterator[tuple[Constraint, Array, Array]]:
        """Each constraint with its columns of values (K, ng), and whether each row is imposed: x0 is given."""
        at = 0
        for c in group:
            g = values[:, at : (at := at + c.residual.n_out)]
            yield c, g, _imposed(c, g, knots)

    def _state_bounds(self, rows: list[tuple[Constraint, ...]]) -> Iterator[tuple[slice, Constraint, list[int]]]:
        """The constraints that are bounds on numbers of the state, which have no rows: their knots and numbers."""
        ocp, N = self.ocp, self.ocp.horizon
        groups = [*(phase.constraints for phase in ocp.phases), ocp.terminal_constraints]
        for knots, group, own in zip((*ocp.phase_slices, slice(N, N + 1)), groups, rows, strict=True):
            for c in group:
                if not any(c is row for row in own):
                    yield knots, c, list(chosen_coordinates(c) or ())

    # -- stationarity -----------------------------------------------------------------------------------------------------
    def _stationarity(self, K: Array) -> tuple[Array, Array, float]:
        """The gradient (N, nu), the sizes of its terms (nu,), and the largest complementarity product."""
        ocp, N, n, m = self.ocp, self.ocp.horizon, self.ocp.manifold.ndx, self.ocp.nu
        q, r, size = np.zeros((N + 1, n)), np.zeros((N, m)), np.zeros((N, m))
        A, B, products = np.zeros((N, n, n)), np.zeros((N, n, m)), [0.0]
        taken: dict[str, int] = {}
        for knots, group, part in self.parts:
            q[knots] += part.lx
            if knots.start < N:
                A[knots], B[knots] = part.A, part.B
                r[knots] += part.lu
                size[knots] += np.abs(part.lu)
            at = 0
            for c, g, imposed in self._rows(knots, group, part.values.g):
                rows = slice(at, at := at + c.residual.n_out)
                y = np.where(imposed, self._multiplier(c, knots, taken), 0.0)
                if not y.any():
                    continue
                products.append(_complementarity(g, *c.bounds(len(g)), y))
                q[knots] += (y[:, None] @ part.gx[:, rows])[:, 0]
                if knots.start < N:
                    r[knots] += (y[:, None] @ part.gu[:, rows])[:, 0]
                    size[knots] += (np.abs(y)[:, None] @ np.abs(part.gu[:, rows]))[:, 0]
        z = self._bound_multiplier("bounds on x", (N + 1, n))
        for knots, c, chosen in self.bounds:
            g = self.xs[knots][:, chosen]
            y = self._multiplier(c, knots, taken) if z is None else z[knots][:, chosen]
            y = np.where(_imposed(c, g, knots), y, 0.0)
            products.append(_complementarity(g, *c.bounds(len(g)), y))
            if z is None:
                q[knots, chosen] += y
        if z is not None:
            q[1:] += z[1:]
        z = self._bound_multiplier("bounds on u", (N, m))
        if z is not None:
            if ocp.control_bounds is not None:
                products.append(_complementarity(self.us, *ocp.control_bounds, z))
            r += z
            size += np.abs(z)
        lq = LQProblem(
            A, B, np.zeros((N, n)), np.zeros((0, n, n)), q, np.zeros((0, m, n)), np.zeros((0, m, m)), r, q[0]
        )
        held = self._near_bounds()
        gains = np.where(held[:, :, None], 0.0, K) if K.any() else None
        found = lq_solver_for(ocp).stationarity(lq, gains)
        size += (np.abs(found.costates[1:, None]) @ np.abs(B))[:, 0]
        largest = size.max(axis=0, initial=0.0)
        floor = HALF_OF_DIGITS * largest.max(initial=0.0)
        return found.gradient, np.maximum(largest, floor), max(products)

    def _multiplier(self, c: Constraint, knots: slice, taken: dict[str, int]) -> Array:
        """The rows (K, nr) of a constraint at the knots of a part; those of one name follow each other."""
        count = knots.stop - knots.start
        name = c.name if knots.start < self.ocp.horizon else f"terminal {c.name}"
        values = np.asarray(self.multipliers.get(name, np.zeros((0, 0))))
        first = taken.get(name, 0)
        taken[name] = first + count
        rows = values[first : first + count]
        return rows if rows.shape == (count, c.residual.n_out) else np.zeros((count, c.residual.n_out))

    def _bound_multiplier(self, name: str, shape: tuple[int, int]) -> Array | None:
        z = self.multipliers.get(name)
        return z if z is not None and np.shape(z) == shape else None

    def _near_bounds(self) -> Array:
        """(N, nu) which controls lie on a bound, or as near to one as an interior-point method leaves them."""
        bounds = self.ocp.control_bounds
        if bounds is None:
            return np.zeros(self.us.shape, bool)
        near = [np.abs(self.us - b) <= NEAR_BOUND * np.maximum(1.0, np.abs(b)) for b in bounds]
        return np.asarray(near[0] | near[1])

    def _room(self, gradient: Array) -> Array:
        """The distances (N, nu) of controls from the bound that a gradient pushes them against, infinite where there is none."""
        if self.ocp.control_bounds is None:
            return np.full(self.us.shape, np.inf)
        lower, upper = self.ocp.control_bounds
        return np.maximum(np.where(gradient > 0.0, self.us - lower, upper - self.us), 0.0)


def _imposed(c: Constraint, g: Array, knots: slice) -> Array:
    """Mask of the rows g (K, nr) of a constraint that are imposed: x0 is given."""
    imposed = np.ones(g.shape, dtype=bool)
    imposed[0] = knots.start > 0 or c.residual.nu > 0
    return imposed


def _constraint_violations(
    c: Constraint, g: Array, imposed: Array, first: int, tolerance: float
) -> Iterator[Violation]:
    low, high = c.bounds(len(g))
    excess = np.where(imposed, np.maximum(np.maximum(low - g, g - high), 0.0), 0.0)
    near = np.where(g > high, high, low)
    allowed = tolerance * np.maximum(1.0, np.where(np.isfinite(near), np.abs(near), 1.0))
    yield from _worst(excess, allowed, c.component_names, first, "constraint {} is violated by {:.2g} at knot {}")


def _worst(
    excess: Array, tolerance: Array | float, names: tuple[str, ...], first: int, text: str
) -> Iterator[Violation]:
    """The worst entry of excess (K, n) relative to its tolerance, with the name of its column."""
    if not excess.size or not excess.any():
        return
    ratio = excess / tolerance
    k, i = (int(v) for v in np.unravel_index(int(np.argmax(np.where(np.isnan(ratio), np.inf, ratio))), ratio.shape))
    yield Violation(float(ratio[k, i]), text.format(names[i], excess[k, i], first + k))


def _complementarity(values: Array, lower: Array, upper: Array, multipliers: Array) -> float:
    """The largest product of a multiplier and the distance of its value from the bound that it pushes against."""
    distance = np.where(multipliers > 0.0, upper - values, values - lower)
    products = np.where(multipliers != 0.0, np.abs(multipliers) * np.abs(distance), 0.0)
    return float(np.where(np.isfinite(products), products, 0.0).max(initial=0.0))
