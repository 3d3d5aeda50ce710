"""Optimal control problem in the form of the interior-point method: blocks by stage, and one vector of primal variables.

    v = (x (N + 1, n), u (N, m), s (rows)),   lower <= v <= upper

Rows are the constraint rows, knot by knot. An inequality g(x, u) has a slack s with the bounds of g, and g - s = 0; an equality
has no slack. Bounds on state entries and controls are bounds on v. A state entry with equal bounds is an equation of its knot. A
control that has equal bounds, or that no function reads, is held at its value. On a Lie group the x part of v is unused: the
retraction moves the states, and state constraints are rows. x_0 is given. All bounds are relaxed by RELAXED.
"""

from __future__ import annotations

import ctypes
from copy import copy
from typing import Any

import numpy as np

from dynamics_backends.compiled.runtime.memory import address
from dynamics_backends.compiled.sources.dynamics_source import has_contraction
from dynamics_backends.protocol import Array, Hessians
from trajopt.lq.equality_lq import allotted
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.solvers.direct.program_parts import controls_read, coordinate_bounds, with_rows
from trajopt.solvers.interior.library import ABSENT, EQUALITY, INEQUALITY, LONG, Multipliers, PointData, StructureData
from trajopt.stage.compiled.bare_stages import BareStages
from trajopt.stage.engine import StageOperations, follow, may_follow, stages_of
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.stages import Knots, StageDerivatives, Stages, StageValues

RELAXED = 1e-10
"""Relaxation of bounds, which gives an interior to states that equations put on a bound: relative to max(1, |bound|), or to the
range between two bounds if that is smaller. (IPOPT's bound_relax_factor is 1e-8.)
"""
EXACT, GAUSS_NEWTON, MIXED = "exact", "gauss_newton", "mixed"
"""Kinds of Hessians: of the Lagrangian, Gauss-Newton of the cost, and Gauss-Newton plus the curvature of the time steps."""


class Point:
    """Point with its workspace: states xs (N + 1, nx), primal vector v, values, and derivatives by stage; at: address of v."""

    def __init__(self, program: StageProgram) -> None:
        N, n, m, rows = program.N, program.n, program.m, program.rows
        self.n, self.m = n, m
        nx = program.ocp.manifold.nx
        own = [(program.numbers,), (N, n), (rows,), (N, n, n), (N, n, m), (N + 1, n), (N, m), (rows, n), (rows, m)]
        blocks = [(N + 1, n, n), (N, m, n), (N, m, m)]
        arrays, at = allotted([*own, *blocks, (N + 1,), (N, nx), (0 if program.flat else N + 1, nx)])
        self.v, self.d, self.g, self.A, self.B, self.lx, self.lu, self.gx, self.gu, *rest = arrays
        self.Q, self.S, self.R, self.cost, self.x_next, apart = rest
        self.at = at[0]
        self.xs = self.v[: (N + 1) * n].reshape(N + 1, n) if program.flat else apart
        self.us = self.v[(N + 1) * n : (N + 1) * n + N * m].reshape(N, m)
        self.fresh = False  # True if Q, S and R hold what first derivatives wrote
        self.data = PointData(*at[:12])
        self.ref = ctypes.addressof(self.data)
        self.views = [self._view(part) for part in program.parts]

    def _view(self, part: tuple[slice, slice, int]) -> StageDerivatives:
        """Return views of this point's memory for one phase or the final knot, into which its stages write values and derivatives.

        part: knots, constraint rows, and rows per knot.
        """
        k, rows, count = part
        K, end = k.stop - k.start, k.start == len(self.A)
        g = self.g[rows].reshape(K, count)
        gx, gu = self.gx[rows].reshape(K, count, self.n), self.gu[rows].reshape(K, count, self.m)
        if end:
            none = np.zeros((1, 0))
            values = StageValues(none, none, self.cost[k], g)
            n, empty = self.n, np.zeros
            blocks = (self.lx[k], none, self.Q[k], empty((1, 0, n)), empty((1, 0, 0)), gx, empty((1, count, 0)))
            return StageDerivatives(values, empty((1, 0, n)), empty((1, 0, 0)), *blocks)
        values = StageValues(self.x_next[k], self.d[k], self.cost[k], g)
        return StageDerivatives(
            values, self.A[k], self.B[k], self.lx[k], self.lu[k], self.Q[k], self.S[k], self.R[k], gx, gu
        )


class StageProgram:
    """Optimal control problem as a program in v = (x, u, slacks s) with constraint rows and bounds, evaluated by stages.

    hessian: "exact", of the Lagrangian; "gauss_newton", of the cost alone; "auto", exact, except for phases where only the
    curvature of the time steps is compiled: Gauss-Newton plus that curvature.
    """

    def __init__(self, ocp: OCP, us: Array, hessian: str) -> None:
        self.ocp = ocp
        self.N, self.n, self.m = ocp.horizon, ocp.manifold.ndx, ocp.nu
        self.flat = ocp.manifold.is_flat
        self.structure = StructureData()
        self.ref = ctypes.addressof(self.structure)
        constraints = with_rows(ocp)
        request = _stage_request(constraints)
        if hessian != GAUSS_NEWTON:
            self.stages = stages_of(ocp, _stage_request(constraints, EXACT))
            self.orders = [_order(ocp, i, stages, hessian) for i, stages in enumerate(self.stages[:-1])]
        else:
            self.stages, self.orders = [], [GAUSS_NEWTON] * len(ocp.phases)
        self.orders.append(EXACT if all(order == EXACT for order in self.orders) else GAUSS_NEWTON)
        if self.orders[-1] != EXACT:
            plain = stages_of(ocp, request)
            self.stages = [self.stages[i] if kind == EXACT else plain[i] for i, kind in enumerate(self.orders)]
        self.hessian = self.orders[0] if len(set(self.orders)) == 1 else MIXED
        self._lay_out(constraints, us)

    @property
    def may_follow(self) -> bool:
        """True if another problem can reuse the program: all phases use the same kind of Hessian, and all stages are compiled."""
        return len(set(self.orders)) == 1 and may_follow(self.stages)

    def follow(self, ocp: OCP, us: Array) -> bool:
        """Switch this program in place to another problem of the same structure, so that points and systems can be reused.

        Returns False if the structure or sizes differ or the stages cannot be reused; the program must then be discarded.
        """
        constraints = with_rows(ocp)
        if not self.may_follow or not follow(self.stages, self.ocp, ocp, _stage_request(constraints, self.orders[0])):
            return False
        self.ocp, before = ocp, self.sizes
        self._lay_out(constraints, us)
        return self.sizes == before

    # -- structure ------------------------------------------------------------------------------------------------------
    def _lay_out(self, constraints: list[tuple[Constraint, ...]], us: Array) -> None:
        """Set all that depends on bounds: constraint rows, bounds, fixed state entries, controls held at us, C struct."""
        ocp = self.ocp
        self.groups = list(zip([*ocp.phase_slices, slice(self.N, self.N + 1)], constraints, strict=True))
        self._lay_out_rows()
        self._bounds()
        self._fix_states()
        self._hold_controls(us)
        self._relax_and_bind()

    def rebound(self, ocp: OCP, us: Array) -> StageProgram:
        """Return a copy of the program with bounds, targets and held controls of another problem and guess us.

        Shares the stages of this one.
        """
        other = copy(self)
        other.ocp, other.structure = ocp, StructureData()
        other.ref = ctypes.addressof(other.structure)
        other._lay_out(with_rows(ocp), us)
        return other

    @property
    def bound_structure(self) -> tuple[bytes, ...]:
        """Row kinds and offsets, fixed state entries and held controls; equal for programs whose bounds differ in values only."""
        return tuple(part.tobytes() for part in (self.kind, self.row, self.fixed, self.fix, self.held))

    @property
    def sizes(self) -> tuple[Any, ...]:
        """Phases with their rows, numbers of rows, fixed state entries and equations, and the most equations of a knot.

        They determine the memory of points, systems and multipliers.
        """
        return self.parts, self.rows, len(self.fixed), self.equations, self.most_equations

    def _lay_out_rows(self) -> None:
        """Set parts (knots, rows, rows per knot of each phase and of the final knot), row offsets (N + 2), kinds and row bounds.

        Kinds: EQUALITY for equal bounds, INEQUALITY for a finite bound, else ABSENT; also ABSENT at knot 0 if no control is read,
        because x_0 is given.
        """
        self.parts: list[tuple[slice, slice, int]] = []
        counts, lower, upper, kinds = [], [], [], []
        at = 0
        for k, constraints in self.groups:
            K, count = k.stop - k.start, sum(c.residual.n_out for c in constraints)
            self.parts.append((k, slice(at, at + K * count), count))
            at += K * count
            counts += [count] * K
            low, high = (_stacked(constraints, K, side) for side in (0, 1))
            kind = np.where(low == high, EQUALITY, np.where(np.isfinite(low) | np.isfinite(high), INEQUALITY, ABSENT))
            if k.start == 0:  # x_0 is given
                reads = np.concatenate(
                    [np.zeros(0, bool), *(np.full(c.residual.n_out, c.residual.nu > 0) for c in constraints)]
                )
                kind[0, ~reads] = ABSENT
            lower.append(low.ravel())
            upper.append(high.ravel())
            kinds.append(kind.ravel())
        self.rows = at
        self.row = np.concatenate([[0], np.cumsum(counts)]).astype(LONG)
        self.kind = np.concatenate(kinds).astype(np.int8)
        self.row_bounds = np.concatenate(lower), np.concatenate(upper)

    def _bounds(self) -> None:
        """Set bounds of v from control bounds, inequality rows (bounds of their slacks) and state bounds.

        Set targets of equality rows.
        """
        N, n, m = self.N, self.n, self.m
        self.numbers = (N + 1) * n + N * m + self.rows
        self.lower, self.upper = np.full(self.numbers, -np.inf), np.full(self.numbers, np.inf)
        self.u = slice((N + 1) * n, (N + 1) * n + N * m)
        self.s = slice((N + 1) * n + N * m, self.numbers)
        bounds = self.ocp.control_bounds
        slack = self.kind == INEQUALITY
        for side, own in enumerate((self.lower, self.upper)):
            if bounds is not None:
                own[self.u] = bounds[side].ravel()
            own[self.s][slack] = self.row_bounds[side][slack]
        self.target = np.where(self.kind == EQUALITY, self.row_bounds[0], 0.0)
        self._bound_states()

    def _bound_states(self) -> None:
        """Tighten the bounds of the states in v by constraints on single state entries, from knot 1 on; none on a Lie group."""
        shape = (self.N + 1, self.n)
        lower, upper = (b[: self.u.start].reshape(shape) for b in (self.lower, self.upper))
        for _, knots, chosen, low, high in coordinate_bounds(self.ocp):
            lower[knots, chosen] = np.maximum(lower[knots, chosen], low)
            upper[knots, chosen] = np.minimum(upper[knots, chosen], high)

    def _fix_states(self) -> None:
        """Turn state entries with equal bounds into equations: store their indices and values, and remove their bounds."""
        size = self.u.start
        fixed = np.flatnonzero(self.lower[:size] == self.upper[:size])
        self.fixed_at = self.lower[fixed]
        self.fixed_places = fixed
        self.lower[fixed], self.upper[fixed] = -np.inf, np.inf
        self.fixed = np.ascontiguousarray(fixed % self.n).astype(LONG)
        self.fix = np.searchsorted(fixed, self.n * np.arange(self.N + 2)).astype(LONG)

    def _hold_controls(self, us: Array) -> None:
        """Hold controls with equal bounds at that value, and controls that no dynamics, term or constraint reads at their guess us.

        Removes their bounds; ``still_read`` marks those with equal bounds that functions read.
        """
        N, m = self.N, self.m
        lower, upper = (b[self.u].reshape(N, m) for b in (self.lower, self.upper))
        held = lower == upper
        self.held_at = np.where(held, lower, us)
        self.still_read = held.copy()
        for phase, knots in zip(self.ocp.phases, self.ocp.phase_slices, strict=True):
            read = controls_read(phase)
            held[knots, read:] = True
            self.still_read[knots, read:] = False
        lower[held], upper[held] = -np.inf, np.inf
        self.held = held.astype(np.int8)
        self.any_read = bool(self.still_read.any())

    def _relax_and_bind(self) -> None:
        """Widen finite bounds by RELAXED, fill the C struct with addresses, count equations by knot."""
        between = np.where(self.upper > self.lower, self.upper - self.lower, np.inf)
        for own, way in ((self.lower, -1.0), (self.upper, 1.0)):
            bounded = np.isfinite(own)
            own[bounded] += way * RELAXED * np.minimum(np.maximum(1.0, np.abs(own[bounded])), between[bounded])
        numbers = self.lower, self.upper, self.target, self.fixed_at
        arrays = self.row, self.fix, self.fixed, self.kind, self.held, *numbers
        given = self.N, self.rows, len(self.fixed), self.n, self.m, *map(address, arrays)
        for (name, *_), value in zip(StructureData._fields_, given, strict=True):
            setattr(self.structure, name, value)
        equalities = np.concatenate([[0], np.cumsum(self.kind == EQUALITY)])
        own = np.diff(self.fix) + np.diff(equalities[self.row])
        self.equations, self.most_equations = int(own.sum()), int(own.max())

    def multipliers(self) -> Multipliers:
        """Allocate zero multipliers."""
        return Multipliers((self.N, self.n, self.rows, self.numbers, len(self.fixed)))

    # -- evaluation -----------------------------------------------------------------------------------------------------
    def move(self, point: Point, alpha: float, step: Array, to: Point) -> None:
        """Set to = point (+) alpha step, step (numbers,); on a Lie group the states move by the retraction."""
        np.multiply(step, alpha, out=to.v)
        if not self.flat:
            dx = to.v[: self.u.start].reshape(self.N + 1, self.n)
            to.xs[:] = self.ocp.manifold.integrate(point.xs.T, dx.T).T
            dx[:] = 0.0
        to.v += point.v

    def values(self, p: Point) -> float:
        """Evaluate defects d, constraint rows g and cost at p, without derivatives; returns the objective."""
        for stages, (k, _, _), view in zip(self.stages, self.parts, p.views, strict=True):
            found = stages.values(Knots.of(p.xs, p.us, k))
            view.values.d[:], view.values.cost[:], view.values.g[:] = found.d, found.cost, found.g
        return float(p.cost.sum())

    def first(self, p: Point, *, by_held: bool = False) -> float:
        """Write values and first derivatives to p; returns the objective.

        Phases with a non-exact Hessian also fill Q, S, R (Gauss-Newton). Derivatives of dynamics and constraints with respect to
        held controls become zero, unless ``by_held`` is set; those of the cost remain.
        """
        for stages, (k, _, _), view, order in zip(self.stages, self.parts, p.views, self.orders, strict=True):
            stages.first(Knots.of(p.xs, p.us, k), quadratic=order != EXACT, out=view)
        if self.any_read and not by_held:
            self._clear_held_controls(p)
        p.fresh = True
        return float(p.cost.sum())

    def second(self, p: Point, scale: float, z: Multipliers) -> None:
        """Write Q, S and R of scale f + lam'd + y'g to p, which has first derivatives; a repeated call first evaluates these again.

        Exact phases use the full Hessian; Gauss-Newton phases that of the cost alone, in mixed mode plus the curvature of the
        dynamics.
        """
        if not p.fresh:  # the blocks hold a Hessian for other multipliers
            self.first(p)
        p.fresh = False
        for stages, (k, rows, count), view, order in zip(self.stages, self.parts, p.views, self.orders, strict=True):
            at = Knots.of(p.xs, p.us, k)
            blocks = Hessians(view.Q, view.S, view.R)
            if order == EXACT:
                y = z.y[rows].reshape(k.stop - k.start, count) if count else None
                lam, out = (None, None) if k.start == self.N else (z.lam[k], blocks)
                for block, found in zip(blocks, stages.second(at, scale, lam, y, out=out), strict=True):
                    if found is not block:
                        block[:] = found
                continue
            for block in blocks:
                block *= scale
            if order == MIXED:
                for block, found in zip(blocks, stages.second(at, 0.0, z.lam[k]), strict=True):
                    block += found

    def final_equalities(self, p: Point) -> Array:
        """Return J'J (n, n) of all equations of the final state: equality rows and fixed entries (ones on the diagonal)."""
        _, rows, _ = self.parts[-1]
        J = p.gx[rows][self.kind[rows] == EQUALITY]
        fixed = self.fixed[self.fix[self.N] :]
        total = J.T @ J
        total[fixed, fixed] += 1.0
        return np.asarray(total)

    def _clear_held_controls(self, p: Point) -> None:
        """Set derivatives of dynamics and constraints by held controls to zero, in place, where functions read these controls."""
        p.B.transpose(0, 2, 1)[self.still_read] = 0.0
        for k, rows, count in self.parts[:-1]:
            gu = p.gu[rows].reshape(k.stop - k.start, count, self.m)
            gu.transpose(0, 2, 1)[self.still_read[k]] = 0.0


def _stage_request(constraints: list[tuple[Constraint, ...]], hessian: str = GAUSS_NEWTON) -> StageOperations:
    """Return the evaluations that stages with these constraints must provide; second derivatives only for the exact Hessian."""
    return StageOperations(hessian, second=hessian == EXACT, path=constraints[:-1], final=constraints[-1])


def _order(ocp: OCP, i: int, stages: Stages, hessian: str) -> str:
    """Return the kind of Hessian of phase i: ``hessian``, or for "auto" exact or mixed.

    Mixed means Gauss-Newton of the cost plus the curvature of the time step: used if the step has compiled (or, on the compiled
    engine, analytic) second derivatives, and cost and constraints have not.
    """
    if hessian != "auto":
        return hessian
    if isinstance(stages, NumpyStages | BareStages):
        sampling = ocp.phases[i].dynamics.sampling
        if sampling is None or sampling.backend.engine != "compiled":
            return EXACT
        by_trace = not isinstance(stages, NumpyStages) and has_contraction(sampling.called)
        return MIXED if sampling.backend.name == "analytic" or by_trace else EXACT
    whole, step = stages.second_orders  # type: ignore[attr-defined]
    return MIXED if step and not whole else EXACT


def _stacked(constraints: tuple[Constraint, ...], K: int, side: int) -> Array:
    """Return the lower (side 0) or upper (side 1) bounds (K, ng) of constraints."""
    return np.concatenate([np.zeros((K, 0)), *(c.bounds(K)[side] for c in constraints)], axis=1)
