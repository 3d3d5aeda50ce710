"""Violation and optimality error of a trajectory, evaluated at the trajectory, independent of the solver.

Feasibility: the defects F_k(x_k, u_k) (-) x_(k+1), the bounds on controls and the constraints, each in its unit, relative to states
and bounds beyond 1.

Stationarity: the gradient of the Lagrangian in the controls, with the multipliers y, z of the solver,

    q_k = l_x + g_x'y + z_x        r_k = l_u + g_u'y + z_u
    lambda_N = q_N,   lambda_k = q_k + A'lambda_(k+1) + K'g_k,   g_k = r_k + B'lambda_(k+1)

with the feedback gains K of the solution (:mod:`trajopt.solvers.rules.cost_size`), which keep the costates of unstable dynamics
small, and, if the result is not small, with K = 0, since large gains amplify rounding errors. Any K certifies a solution: the
smaller result counts. The gradient yields two numbers without units:

    scaled KKT error    max |g_i| / s_i, s_i the largest sum of the absolute terms of g_i, at least EFFECT size(J) / max(1, |u|);
                        complementarity |y| dist / size(J)
    cost sensitivity    max |g_i| U_i / size(J), U_i the largest |u_i| along the trajectory, or the range between its bounds if that
                        is zero; sum of |y| dist / size(J), with |g_i| as multipliers of control bounds if the solver has none

The size of the cost and EFFECT are those of :mod:`trajopt.solvers.rules.cost_size`, so that the numbers do not depend on the unit
of the cost. The sum of |y| dist, the duality gap of a convex problem, estimates the cost above the optimum. Near zero, at the
smallest size of a cost, this is at most the cost itself if that is a sum of squares.

If a gradient pushes a control against a bound at the distance dist, dist replaces U_i. Near the bound (ACTIVE) the gradient may be
its multiplier, so that |g_i| dist / size(J) replaces the relative gradient if it is smaller.

On unstable dynamics, rounding errors make the gradient large. The scaling removes this effect, but hides a significant gradient if
costates overflow. The cost sensitivity is therefore limited as well: it is the relative first-order change of the cost if a control
changes by its largest magnitude. Stages are evaluated by the compiled code of the solve if it is loaded, else in NumPy; the numbers
agree to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem, least_size
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP
from trajopt.solvers.direct.program_parts import evaluated_stages, with_rows
from trajopt.solvers.rules.cost_size import LEAST_SIZE, cost_size, is_zero, least_with_effect
from trajopt.stage.stages import Knots, StageDerivatives

NEAR_BOUND = 1e-5
"""Controls closer to a bound than this, relative to bounds beyond 1, have no feedback in the adjoint sweep."""

SMALL = 1e-6
"""Errors up to this count without a second sweep, without feedback."""
FEASIBLE = 1e-6
"""Tolerance on defects, bounds and constraints, in their units; relative to bounds beyond 1."""
ACTIVE = 1e-2
"""Largest distance from a bound, as a fraction of the control's range, at which a gradient may be the multiplier of the bound."""


class Violation(NamedTuple):
    """Largest violation. ratio: violation / tolerance. sentence: the violated component, its knot and the amount."""

    ratio: float
    sentence: str


class Measures(NamedTuple):
    """Errors of a trajectory. violation: the one with the largest ratio to its tolerance; None if all are zero.

    kkt: scaled KKT error. sensitivity: cost sensitivity.
    """

    violation: Violation | None
    kkt: float
    sensitivity: float

    @property
    def feasible(self) -> bool:
        """True if the violation is within its tolerance."""
        return self.violation is None or self.violation.ratio <= 1.0


def measures(
    ocp: OCP,
    xs: Array,
    us: Array,
    K: Array,
    multipliers: Mapping[str, Array],
    tolerance: float,
    of_guess: float = 0.0,
) -> Measures:
    """Return the largest violation, scaled KKT error and cost sensitivity of a finite trajectory xs (N + 1, nx), us (N, nu).

    K (N, nu, ndx): feedback gains, which stabilize the recursion of the costates.

    multipliers: of a solution, by the names that :class:`~trajopt.results.solution.Solution` documents; missing ones are zero.
    tolerance: on defects, bounds and constraint rows, relative to states and bounds beyond 1. of_guess: cost of the guess.
    """
    with np.errstate(all="ignore"):
        return _Measured(ocp, xs, us, multipliers).measures(K, tolerance, of_guess)


def largest_violation(ocp: OCP, xs: Array, us: Array, tolerance: float) -> Violation | None:
    """Return the violation with the largest ratio to its tolerance: of x0, dynamics, control bounds or constraints.

    Returns None if all hold exactly. Constraints on the state at knot 0 do not count, as x0 is given. tolerance: in their units,
    relative to states and bounds beyond 1. xs (N + 1, nx), us (N, nu): a finite trajectory.
    """
    with np.errstate(all="ignore"):
        return _Measured(ocp, xs, us, {}).violation(tolerance)


def is_finite(xs: Array, us: Array) -> bool:
    """Return True if all states xs (N + 1, nx) and controls us (N, nu) are finite."""
    return bool(np.isfinite(xs).all() and np.isfinite(us).all())


def is_feasible(ocp: OCP, xs: Array, us: Array, tolerance: float = FEASIBLE) -> bool:
    """Return True if a trajectory is finite and has no violation (:func:`largest_violation`) above the tolerance."""
    if not is_finite(xs, us):
        return False
    worst = largest_violation(ocp, xs, us, tolerance)
    return worst is None or worst.ratio <= 1.0


def size_at_guess(ocp: OCP, xs: Array, us: Array) -> tuple[float, float]:
    """Return the cost at a finite trajectory and the largest entry of its gradient in the controls, without feedback."""
    with np.errstate(all="ignore"):
        at = _Measured(ocp, xs, us, {})
        gradient = at._stationarity(np.zeros((ocp.horizon, ocp.nu, ocp.manifold.ndx)))[0]
    return at.cost, float(np.abs(gradient).max(initial=0.0))


class _Measured:
    """Derivatives along a trajectory with given multipliers, from which its violation and optimality error are computed."""

    def __init__(self, ocp: OCP, xs: Array, us: Array, multipliers: Mapping[str, Array]) -> None:
        self.ocp, self.xs, self.us, self.multipliers = ocp, xs, us, multipliers
        rows, N, stages = with_rows(ocp), ocp.horizon, evaluated_stages(ocp)
        self.parts: list[tuple[slice, tuple[Constraint, ...], StageDerivatives]] = []
        for own, knots, group in zip(stages, (*ocp.phase_slices, slice(N, N + 1)), rows, strict=True):
            self.parts.append((knots, group, own.first(Knots.of(xs, us, knots), quadratic=False)))
        self.cost = float(sum(part.values.cost.sum() for _, _, part in self.parts))
        self.bounds = [*self._state_bounds(rows)]

    def measures(self, K: Array, tolerance: float, of_guess: float) -> Measures:
        """Return largest violation, scaled KKT error and cost sensitivity of the trajectory under the feedback K (N, nu, ndx), or
        without feedback if these errors exceed SMALL and are then smaller.

        tolerance: on defects, bounds and constraint rows, to which the violation is relative. of_guess: cost of the guess. Without
        a cost, every trajectory is optimal, and so is one whose cost is the least possible (:meth:`_is_least_cost`).
        """
        if not any(term.weight.any() for term in self.ocp.terms()) or self._is_least_cost(of_guess):
            return Measures(self.violation(tolerance), 0.0, 0.0)
        found = self._errors(K, of_guess)
        if max(found) > SMALL and K.any():
            found = min(found, self._errors(np.zeros_like(K), of_guess), key=max)
        return Measures(self.violation(tolerance), *found)

    def _is_least_cost(self, of_guess: float) -> bool:
        """True if the cost is a sum of squares, and zero except for rounding errors (``is_zero``)."""
        return self._is_sum_of_squares() and is_zero(self.cost, of_guess)

    def _is_sum_of_squares(self) -> bool:
        return all(term.squared and (term.weight >= 0.0).all() for term in self.ocp.terms())

    def _errors(self, K: Array, of_guess: float) -> tuple[float, float]:
        """Return scaled KKT error and cost sensitivity under the feedback K (N, nu, ndx); infinite if not finite."""
        gradient, size, products = self._stationarity(K)
        scale = cost_size(self.cost, of_guess)
        # a sum of squares is at most itself above the optimum
        most = self.cost if scale <= LEAST_SIZE and self._is_sum_of_squares() else np.inf
        products = np.minimum(products, most)
        relative = np.abs(gradient) / np.maximum(size, least_with_effect(scale, self.us))
        distance = self._bound_distances(gradient)
        # at an optimum the gradient is zero, or the multiplier of an active bound
        active = distance <= ACTIVE * self._control_ranges()
        relative = np.where(active, np.minimum(relative, np.abs(gradient) * distance / scale), relative)
        largest = np.abs(self.us).max(axis=0, initial=0.0)
        reach = np.minimum(np.where(largest > 0.0, largest, self._control_ranges()), distance)
        gap = float(products.sum())
        if self._bound_multiplier("bounds on u", self.us.shape) is None:
            gap += float((np.abs(gradient) * np.where(np.isfinite(distance), reach, 0.0)).sum())
        sensitivity = max(float((np.abs(gradient) * reach).max(initial=0.0)), min(gap, most)) / scale
        kkt = max(float(relative.max(initial=0.0)), float(products.max(initial=0.0)) / scale)
        return kkt if np.isfinite(kkt) else np.inf, sensitivity if np.isfinite(sensitivity) else np.inf

    # -- feasibility ------------------------------------------------------------------------------------------------------
    def violation(self, tolerance: float) -> Violation | None:
        """Return the violation with the largest ratio to its tolerance, or None if there is none."""
        return max(self._violations(tolerance), key=lambda v: v.ratio, default=None)

    def _violations(self, tolerance: float) -> Iterator[Violation]:
        """Yield the largest violations of x0, of the dynamics and each constraint in each phase, and of the control bounds.

        Ratios are to the tolerance, relative to bounds beyond 1; zero violations yield nothing.
        """
        ocp = self.ocp
        start = ocp.manifold.gap(self.xs[:1].T, ocp.x0[:, None]).T
        yield from _worst(
            np.abs(start), tolerance, ocp.state_names, 0, "the first state differs from x0 in {} by {:.2g}"
        )
        for knots, group, part in self.parts:
            if part.values.d.size:
                allowed = tolerance * self._state_sizes(slice(knots.start + 1, knots.stop + 1))
                text = "the dynamics have a defect in {} of {:.2g} at knot {}"
                yield from _worst(np.abs(part.values.d), allowed, ocp.state_names, knots.start, text)
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

    def _state_sizes(self, knots: slice) -> Array:
        """Return the size of each tangent direction of the states at these knots, |x| and at least 1; 1 on a Lie group."""
        x = self.xs[knots]
        return np.maximum(1.0, np.abs(x)) if self.ocp.manifold.ndx == x.shape[1] else np.ones((len(x), 1))

    def _rows(
        self, knots: slice, group: tuple[Constraint, ...], values: Array
    ) -> Iterator[tuple[Constraint, Array, Array]]:
        """Yield each constraint with its values (K, nr) and the mask of rows that count, all but those on the given x0 alone."""
        at = 0
        for c in group:
            g = values[:, at : (at := at + c.residual.n_out)]
            yield c, g, _imposed(c, g, knots)

    def _state_bounds(self, rows: list[tuple[Constraint, ...]]) -> Iterator[tuple[slice, Constraint, list[int]]]:
        """Yield the constraints that bound components of the state and have no rows, with their knots and components."""
        ocp, N = self.ocp, self.ocp.horizon
        groups = [*(phase.constraints for phase in ocp.phases), ocp.terminal_constraints]
        for knots, group, own in zip((*ocp.phase_slices, slice(N, N + 1)), groups, rows, strict=True):
            for c in group:
                if not any(c is row for row in own):
                    yield knots, c, list(chosen_coordinates(c) or ())

    # -- stationarity -----------------------------------------------------------------------------------------------------
    def _stationarity(self, K: Array) -> tuple[Array, Array, Array]:
        """Return the Lagrangian's gradient (N, nu) in the controls, the sizes (nu,) of its terms, and a vector of all |y| dist.

        Costates follow from the adjoint sweep under the feedback K, whose rows are zero for controls within NEAR_BOUND of a bound.
        """
        lq, size, products = self._terms
        held = self._near_bounds()
        gains = np.where(held[:, :, None], 0.0, K) if K.any() else None
        found = shared_lq().stationarity(lq, gains)
        size = size + (np.abs(found.costates[1:, None]) @ np.abs(lq.B))[:, 0]
        largest = size.max(axis=0, initial=0.0)
        return found.gradient, np.maximum(largest, least_size(largest)), products

    @cached_property
    def _terms(self) -> tuple[LQProblem, Array, Array]:
        """Linear dynamics and the Lagrangian's terms q, r without costates, the sizes (N, nu) of r, and a vector of all |y| dist.

        |y| dist: magnitude of a multiplier times the distance from its bound.
        """
        ocp, N, n, m = self.ocp, self.ocp.horizon, self.ocp.manifold.ndx, self.ocp.nu
        q, r, size = np.zeros((N + 1, n)), np.zeros((N, m)), np.zeros((N, m))
        A, B, products = np.zeros((N, n, n)), np.zeros((N, n, m)), [np.zeros(0)]
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
            if z is None:
                g = self.xs[knots][:, chosen]
                y = np.where(_imposed(c, g, knots), self._multiplier(c, knots, taken), 0.0)
                products.append(_complementarity(g, *c.bounds(len(g)), y))
                q[knots, chosen] += y
        if z is not None and self.bounds:
            products.append(_complementarity(self.xs[1:], *self._tightest_bounds(), z[1:]))
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
        return lq, size, np.concatenate(products)

    def _multiplier(self, c: Constraint, knots: slice, taken: dict[str, int]) -> Array:
        """Return the multipliers (K, nr) of a constraint at the knots of a phase, zeros if missing or of another shape.

        taken: number of knots read so far by name, because the multipliers of phases with the same constraint name are
        concatenated.
        """
        count = knots.stop - knots.start
        name = c.name if knots.start < self.ocp.horizon else f"terminal {c.name}"
        values = np.asarray(self.multipliers.get(name, np.zeros((0, 0))))
        first = taken.get(name, 0)
        taken[name] = first + count
        rows = values[first : first + count]
        return rows if rows.shape == (count, c.residual.n_out) else np.zeros((count, c.residual.n_out))

    def _tightest_bounds(self) -> tuple[Array, Array]:
        """Return the lower and upper bounds (N, nx) on the states after x0, for each component the tightest of all constraints."""
        lower = np.full(self.xs.shape, -np.inf)
        upper = -lower
        for knots, c, chosen in self.bounds:
            for bound, own, tighter in zip(
                (lower, upper), c.bounds(knots.stop - knots.start), (np.maximum, np.minimum), strict=True
            ):
                bound[knots, chosen] = tighter(bound[knots, chosen], own)
        return lower[1:], upper[1:]

    def _bound_multiplier(self, name: str, shape: tuple[int, int]) -> Array | None:
        """Return the multipliers of this name, or None if they are missing or of another shape."""
        z = self.multipliers.get(name)
        return z if z is not None and np.shape(z) == shape else None

    def _near_bounds(self) -> Array:
        """Return the mask (N, nu) of controls within NEAR_BOUND of a bound; all False without bounds."""
        bounds = self.ocp.control_bounds
        if bounds is None:
            return np.zeros(self.us.shape, bool)
        near = [np.abs(self.us - b) <= NEAR_BOUND * np.maximum(1.0, np.abs(b)) for b in bounds]
        return np.asarray(near[0] | near[1])

    def _control_ranges(self) -> Array:
        """Return the ranges of the controls between their bounds, by knot or (nu,) zeros without bounds.

        A single bound has a range of its size, at least 1.
        """
        if self.ocp.control_bounds is None:
            return np.zeros(self.ocp.nu)
        lower, upper = self.ocp.control_bounds
        sizes = np.maximum(1.0, np.fmax(*(np.where(np.isfinite(b), np.abs(b), 0.0) for b in (lower, upper))))
        return np.where(np.isfinite(upper - lower), upper - lower, sizes)

    def _bound_distances(self, gradient: Array) -> Array:
        """Return the distances (N, nu) of controls from the bound in the direction of -gradient; infinite without a bound."""
        if self.ocp.control_bounds is None:
            return np.full(self.us.shape, np.inf)
        lower, upper = self.ocp.control_bounds
        return np.maximum(np.where(gradient > 0.0, self.us - lower, upper - self.us), 0.0)


def _imposed(c: Constraint, g: Array, knots: slice) -> Array:
    """Return the mask (K, nr) of rows of a constraint that count: all but, at knot 0, those that depend on the given x0 alone."""
    imposed = np.ones(g.shape, dtype=bool)
    imposed[0] = knots.start > 0 or c.residual.nu > 0
    return imposed


def _constraint_violations(
    c: Constraint, g: Array, imposed: Array, first: int, tolerance: float
) -> Iterator[Violation]:
    """Yield the largest violation among the imposed rows g (K, nr); first: index of their first knot."""
    low, high = c.bounds(len(g))
    excess = np.where(imposed, np.maximum(np.maximum(low - g, g - high), 0.0), 0.0)
    near = np.where(g > high, high, low)
    allowed = tolerance * np.maximum(1.0, np.where(np.isfinite(near), np.abs(near), 1.0))
    yield from _worst(excess, allowed, c.component_names, first, "constraint {} is violated by {:.2g} at knot {}")


def _worst(
    excess: Array, tolerance: Array | float, names: tuple[str, ...], first: int, text: str
) -> Iterator[Violation]:
    """Yield the largest entry of excess (K, n) relative to its tolerance, or nothing if all are zero; first: knot of row 0.

    A NaN counts as the largest. text: format of the sentence, with name, amount and knot.
    """
    if not excess.size or not excess.any():
        return
    ratio = excess / tolerance
    k, i = (int(v) for v in np.unravel_index(int(np.argmax(np.where(np.isnan(ratio), np.inf, ratio))), ratio.shape))
    yield Violation(float(ratio[k, i]), text.format(names[i], excess[k, i], first + k))


def _complementarity(values: Array, lower: Array, upper: Array, multipliers: Array) -> Array:
    """Return all products |multiplier| * distance from its bound, the upper one for positive multipliers, as a vector.

    Products that are not finite count as zero.
    """
    distance = np.where(multipliers > 0.0, upper - values, values - lower)
    products = np.where(multipliers != 0.0, np.abs(multipliers) * np.abs(distance), 0.0)
    return np.where(np.isfinite(products), products, 0.0).ravel()
