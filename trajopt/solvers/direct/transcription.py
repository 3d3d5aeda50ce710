"""Direct multiple shooting: an optimal control problem as a sparse nonlinear program.

    variables      w = (x_0, u_0, x_1, u_1, ..., x_N [, u_N])                 u_N with a first-order hold only, and the running
                                                                              cost by the trapezoidal rule
    constraints    F_k(x_k, u_k) - x_(k+1) = 0,   g_k(x_k, u_k) within its bounds,   g_N(x_N) within its bounds

H. G. Bock, K. J. Plitt, IFAC World Congress 1984. Time steps, costs and constraints of all knots are evaluated as one batch.
Bounds on components of the state become bounds on variables. On a Lie group x_k denotes its coordinates about a reference
(:mod:`trajopt.solvers.direct.charts`). A running constraint that reads no controls has no row at x_0, which is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from dynamics_backends.protocol import Array, Hessians
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.solvers.direct.charts import Charts
from trajopt.solvers.direct.constraint_derivatives import constraint_hessians, jacobian_pattern
from trajopt.solvers.direct.program_parts import (
    Part,
    add_by_name,
    controls_read,
    coordinate_bounds,
    held_problem,
    parts_of,
)
from trajopt.solvers.nlp.nlp import Pattern
from trajopt.solvers.nlp.nlp_diagnosis import DYNAMICS
from trajopt.solvers.qp.blocks.stage_hessian import StageHessian, StagePlaces
from trajopt.solvers.qp.blocks.stage_jacobian import RowPlaces, StageJacobian
from trajopt.solvers.qp.qp import Hessian, Jacobian
from trajopt.stage.engine import Engine
from trajopt.stage.stages import Knots, StageDerivatives, StageValues


class _Point(NamedTuple):
    """Point of the program: coordinates delta (N + 1, n) and states xs (N + 1, nx)."""

    delta: Array
    xs: Array


class Transcription:
    """Transcription of an OCP to a :class:`~trajopt.solvers.nlp.nlp.Patterned` program, with charts about the states of a guess.

    hold: interpolation of the controls, "zero_order" or "first_order". hessian: "exact", "gauss_newton" (of the cost alone), or
    "scqp", which adds convex outer functions of constraints (:mod:`trajopt.solvers.direct.constraint_derivatives`). engine: engine
    of the stages, "auto", "compiled" or "numpy". Raises MissingCapability for a first-order hold with a time step that is not a
    sampled system, or with different controls in the phases.

    Derivatives are stored by stages. With a first-order hold, a stage has the state (x_k, u_k) and the controls u_(k+1), which
    become part of the next state. The convex Hessian lacks second derivatives of the dynamics and of inner functions of cost and
    constraints.
    """

    def __init__(
        self, ocp: OCP, guess: Guess, hold: str = "zero_order", hessian: str = "exact", engine: Engine = "auto"
    ) -> None:
        self.original, self.reference, self.hold, self.kind = ocp, np.array(guess.xs, dtype=float), hold, hessian
        self.reference[0] = ocp.x0
        self._engine: Engine = engine
        self.ocp = held_problem(ocp) if hold == "first_order" else ocp
        self._last: tuple[bytes, list[StageDerivatives]] = b"", []
        self.charts = Charts(ocp.manifold, self.reference)
        self._nodes = np.roll(
            self.charts.reference, -1, axis=0
        )  # end points of the time steps; the last one is not read
        self._x0 = self.first_coordinates(ocp.x0)
        self.N, self.n, self.m = ocp.horizon, ocp.manifold.ndx, ocp.nu
        self._index(self.N + (hold == "first_order"))
        self.parts = parts_of(self.ocp, self.ix, self.iu, hold, hessian, self.N * self.n, engine=engine)
        self._defect_rows = np.arange(self.N * self.n).reshape(self.N, self.n)
        self.rows = self._defect_rows.size + sum(int((part.rows >= 0).sum()) for part in self.parts)
        self._bounds(np.asarray(guess.us, dtype=float))

    @cached_property
    def kinds(self) -> Array:
        """Kind of each variable (n,), for scaling the KKT error: the index of its state component or control."""
        kinds = np.zeros(self.size, dtype=int)
        kinds[self.ix], kinds[self.iu] = np.arange(self.n), self.n + np.arange(self.m)
        return kinds

    # -- variables and rows ---------------------------------------------------------------------------------------------
    def _index(self, controls: int) -> None:
        """Set the size of w and the indices ix (N + 1, n), iu (controls, m) of states and controls in w = (x_0, u_0, x_1, ...)."""
        width = self.n + self.m
        self.size = (self.N + 1) * self.n + controls * self.m
        starts = width * np.arange(self.N + 1)
        self.ix = starts[:, None] + np.arange(self.n)
        self.iu = starts[:controls, None] + self.n + np.arange(self.m)

    def first_coordinates(self, x0: Array) -> Array:
        """Return the coordinates (ndx,) in w of an initial state (nx,): in its chart on a Lie group, else the state itself."""
        return Charts(self.original.manifold, self.reference[:1]).coordinates(x0[None])[0]

    def _bounds(self, us: Array) -> None:
        """Set the bounds of variables and rows: fixed x_0, control and state bounds, constraint bounds, zero for defects."""
        self.x_lower, self.x_upper = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        self.x_lower[self.ix[0]] = self.x_upper[self.ix[0]] = self._x0
        if self.original.control_bounds is not None:
            for bound, values in zip((self.x_lower, self.x_upper), self.original.control_bounds, strict=True):
                bound[self.iu] = np.vstack([values, values[-1:]])[: len(self.iu)]
        self._hold_unread_controls(us)
        self._bound_states()
        self.g_lower, self.g_upper = np.zeros(self.rows), np.zeros(self.rows)
        for part in self.parts:
            bounds = [c.bounds(len(part.rows)) for c in part.constraints]
            for target, side in ((self.g_lower, 0), (self.g_upper, 1)):
                block = np.concatenate([np.zeros((len(part.rows), 0)), *(b[side] for b in bounds)], axis=1)
                target[part.rows[part.rows >= 0]] = block[part.rows >= 0]

    def _hold_unread_controls(self, us: Array) -> None:
        """Fix controls that no dynamics, term or constraint of their phase reads at their values us (N, m) in the guess."""
        for phase, knots in zip(self.original.phases, self.original.phase_slices, strict=True):
            read = controls_read(phase)
            for bound in (self.x_lower, self.x_upper):
                bound[self.iu[knots, read:]] = us[knots, read:]

    def _bound_states(self) -> None:
        """Tighten bounds of variables by constraints on single state components, from knot 1 on, and store the constraint names."""
        self._bounded_by: list[tuple[str, Array]] = []
        for name, knots, chosen, low, high in coordinate_bounds(self.ocp):
            places = self.ix[knots][:, chosen]
            self._bounded_by.append((name, places))
            self.x_lower[places] = np.maximum(self.x_lower[places], low)
            self.x_upper[places] = np.minimum(self.x_upper[places], high)

    # -- stages ---------------------------------------------------------------------------------------------------------
    @cached_property
    def _places(self) -> StagePlaces:
        """Indices in w of the states and controls of each stage.

        With a first-order hold the state is (x_k, u_k), the control u_(k+1).
        """
        if self.hold == "zero_order":
            return StagePlaces(self.ix, self.iu)
        return StagePlaces(np.hstack([self.ix, self.iu]), self.iu[1:])

    @cached_property
    def _row_places(self) -> RowPlaces:
        """Row numbers of the defects, and those of the constraints by knot (N + 1, most rows of a knot), -1 for none."""
        within = np.full((self.N + 1, max(part.rows.shape[1] for part in self.parts)), -1)
        for part in self.parts:
            within[part.knots, : part.rows.shape[1]] = part.rows
        return RowPlaces(self._places, self._defect_rows, within, self._entries_within)

    def _entries_within(self) -> Array:
        """Mask (N + 1, most rows of a knot, variables of a stage) of the entries of constraints that may differ from zero."""
        mask = np.zeros((*self._row_places.within.shape, self._places.index.shape[1]), dtype=bool)
        for part in self.parts:
            own = jacobian_pattern(part.constraints, self.n, part.iu.shape[1])
            mask[part.knots, : own.shape[0], : own.shape[1]] = own
        return mask

    def patterns(self) -> tuple[Pattern, Pattern]:
        """Return rows and columns of the entries of the Jacobian (m, n) and of the Hessian (n, n), column by column."""
        J, H = self._row_places.assembly, self._places.assembly
        return (J.indices, J.columns), (H.indices, H.columns)

    @cached_property
    def convex_parts(self) -> list[Part]:
        """Parts (knots with their stages) that compute Gauss-Newton Hessians of the cost.

        Those of the program unless its kind is "exact".
        """
        if self.kind != "exact":
            return self.parts
        return parts_of(self.ocp, self.ix, self.iu, self.hold, "gauss_newton", self.N * self.n, cost_alone=True)

    # -- the program ----------------------------------------------------------------------------------------------------
    def _point(self, w: Array) -> _Point:
        """Return the chart coordinates and the states of all knots at w."""
        delta = w[self.ix]
        return _Point(delta, self.charts.states(delta))

    def evaluate(self, w: Array) -> tuple[float, Array]:
        """Return the cost f and the constraints g (m,) at w (n,): defects of the dynamics, then the constraint rows."""
        at = self._point(w)
        values = [part.stages.values(self._knots(part, w, at)) for part in self.parts]
        return float(sum(v.cost.sum() for v in values)), self._constraint_values(w, values)

    def _knots(self, part: Part, w: Array, at: _Point) -> Knots:
        """Return the knots of a part; their nodes are the origins of the charts of x_(k+1)."""
        return Knots(at.xs[part.knots], w[part.iu], self._nodes[part.knots])

    def differentiate(self, w: Array) -> tuple[Array, Jacobian]:
        """Return the gradient of f (n,) and the Jacobian of g, stored by stages."""
        N, n, places = self.N, self.n, self._row_places
        size, width = self._places.states.shape[1], self._places.index.shape[1]
        gradient, found = self._linearized(w)
        F, G = np.zeros((N, n, width)), np.zeros((*places.within.shape, width))
        for part, d in zip(self.parts, found, strict=True):
            present, end = (part.rows >= 0)[:, :, None], n + part.iu.shape[1]
            if part.stepped:
                F[part.knots, :, :n], F[part.knots, :, n:] = d.A, d.B
            own = G[part.knots, : part.rows.shape[1]]
            own[:, :, :n], own[:, :, n:end] = np.where(present, d.gx, 0.0), np.where(present, d.gu, 0.0)
        return gradient, StageJacobian(F[:, :, :size], F[:, :, size:], G, places)

    def _linearized(self, w: Array) -> tuple[Array, list[StageDerivatives]]:
        """Return the gradient of f (n,) and the derivatives of each part with respect to chart coordinates and controls."""
        at, gradient, found = self._point(w), np.zeros(self.size), []
        for part, d in zip(self.parts, self._derivatives(w, at), strict=True):
            E = self.charts.slopes(at.delta[part.knots])
            if E is not None:
                d = d._replace(lx=(d.lx[:, None] @ E)[:, 0], A=d.A @ E, gx=d.gx @ E)
            gradient[part.ix] += d.lx
            if self.hold == "zero_order":
                gradient[part.iu] += d.lu
            else:  # a control belongs to two knots
                np.add.at(gradient, part.iu, d.lu)
            found.append(d)
        return gradient, found

    def _derivatives(self, w: Array, at: _Point) -> list[StageDerivatives]:
        """Return the first derivatives of the parts in the tangent spaces of the states.

        On a Lie group those of the last w are cached.
        """
        point = b"" if self.charts.flat else w.tobytes()
        if not point or self._last[0] != point:
            quadratic = self.kind != "exact"
            found = [part.stages.first(self._knots(part, w, at), quadratic=quadratic) for part in self.parts]
            self._last = point, found
        return self._last[1]

    def hessian(self, w: Array, sigma: float, multipliers: Array) -> Hessian:
        """Return the Hessian of sigma f + multipliers' g, stored by stages: exact, Gauss-Newton or "scqp", by program kind."""
        return self._stage_hessian(self.parts, self._part_hessians(self.parts, w, sigma, multipliers, self.kind))

    def convex_hessian(self, w: Array, sigma: float, multipliers: Array) -> Hessian:
        """Return the positive semidefinite Gauss-Newton Hessian of sigma f, stored by stages.

        A program of kind "scqp" adds the convex outer functions of constraints, with their multipliers.
        """
        kind = "gauss_newton" if self.kind == "exact" else self.kind
        found = self._part_hessians(self.convex_parts, w, sigma, multipliers, kind)
        return self._stage_hessian(self.convex_parts, found)

    def _stage_hessian(self, parts: Sequence[Part], found: Sequence[Hessians]) -> StageHessian:
        """Sum the Hessians of parts into blocks by knot of the variables (x, u) of a stage."""
        n = self.n
        width = self._places.index.shape[1]
        blocks = np.zeros((self.N + 1, width, width))
        for part, (xx, ux, uu) in zip(parts, found, strict=True):
            own, end = blocks[part.knots], n + part.iu.shape[1]
            own[:, :n, :n] += xx
            own[:, n:end, :n] += ux
            own[:, :n, n:end] += ux.transpose(0, 2, 1)
            own[:, n:end, n:end] += uu
        return StageHessian(blocks, self._places)

    def _part_hessians(
        self, parts: Sequence[Part], w: Array, sigma: float, multipliers: Array, kind: str
    ) -> list[Hessians]:
        """Return the Hessian of each part in chart coordinates; kind: "exact", "gauss_newton" or "scqp".

        First derivatives are evaluated only for the exact Hessian of charts away from their origin.
        """
        at = self._point(w)
        moved = kind == "exact" and not self.charts.flat and at.delta.any()
        found = self._derivatives(w, at) if moved else [None] * len(parts)
        return [
            self._part_hessian(part, w, at, sigma, multipliers, kind, d) for part, d in zip(parts, found, strict=True)
        ]

    def _part_hessian(
        self,
        part: Part,
        w: Array,
        at: _Point,
        sigma: float,
        multipliers: Array,
        kind: str,
        first: StageDerivatives | None,
    ) -> Hessians:
        """Return the Hessian of a part in chart coordinates.

        first: its first derivatives, needed only if the charts have curvature. kind: "exact", "gauss_newton" or "scqp", which adds
        convex outer functions of constraints.
        """
        given, delta = self._knots(part, w, at), at.delta[part.knots]
        lam = multipliers[self._defect_rows[part.knots]] if part.stepped else None
        y = np.where(part.rows >= 0, multipliers[part.rows], 0.0)
        xx, ux, uu = part.stages.second(given, sigma, *((lam, y if y.shape[1] else None) if kind == "exact" else ()))
        if kind == "scqp":
            for k, m, H in constraint_hessians(part.constraints, given.x, given.u, self.ocp.t[part.knots], y):
                xx[:, :k, :k] += H[:, :k, :k]
                ux[:, :m, :k] += H[:, k:, :k]
                uu[:, :m, :m] += H[:, k:, k:]
        E = self.charts.slopes(delta)
        if E is None:
            return Hessians(xx, ux, uu)
        xx, ux = E.transpose(0, 2, 1) @ xx @ E, ux @ E
        if first is not None:
            slope = sigma * first.lx + (y[:, None] @ first.gx)[:, 0]
            slope = slope if lam is None else slope + (lam[:, None] @ first.A)[:, 0]
            xx = xx + self.charts.curvature(delta, slope)
        return Hessians(xx, ux, uu)

    def recentered(self, w: Array) -> tuple[Self, Array]:
        """Return the program with charts about the states of w, and w in its coordinates; on a vector space both unchanged."""
        if self.original.manifold.is_flat:
            return self, w
        xs, us = self.trajectory(w)
        new = type(self)(self.original, Guess(xs, us), self.hold, self.kind, self._engine)
        moved = w.copy()
        moved[new.ix] = 0.0
        return new, moved

    def _constraint_values(self, w: Array, values: Sequence[StageValues]) -> Array:
        """Return g (m,) from the values of all parts: defects as step minus coordinates of the next state, then constraint rows."""
        g = np.empty(self.rows)
        for part, v in zip(self.parts, values, strict=True):
            if part.stepped:
                g[self._defect_rows[part.knots]] = v.d - w[self.ix[part.knots.start + 1 : part.knots.stop + 1]]
            g[part.rows[part.rows >= 0]] = v.g[part.rows >= 0]
        return g

    # -- trajectories ---------------------------------------------------------------------------------------------------
    def variables(self, xs: Array, us: Array) -> Array:
        """Return w for states (N + 1, nx) and controls (N, nu); a first-order hold repeats the last control."""
        w = np.zeros(self.size)
        w[self.ix] = self.charts.coordinates(xs)
        w[self.iu] = np.vstack([us, us[-1:]])[: len(self.iu)]
        return w

    def trajectory(self, w: Array) -> tuple[Array, Array]:
        """Return states (N + 1, nx) and controls (N, nu), or (N + 1, nu) with a first-order hold."""
        return self.charts.states(w[self.ix]), w[self.iu]

    def simulated(self, w: Array) -> Array:
        """Return a copy of w with the states replaced by the rollout of its controls from x0."""
        w = w.copy()
        w[self.ix[0]] = self._x0
        for part in (part for part in self.parts if part.stepped):
            for k in range(len(part.ix)):
                d = part.stages.values(self._knots(part, w, self._point(w))).d
                w[self.ix[part.knots.start + k + 1]] = d[k]
        return w

    def by_name(self, multipliers: Array) -> dict[str, Array]:
        """Split multipliers (m,) into "dynamics" (N, n) and constraints (K, nr) by name, with zeros for absent rows.

        Final ones are named "terminal NAME"; phases with the same constraint name are concatenated.
        """
        found = {"dynamics": multipliers[self._defect_rows]}
        for part in self.parts:
            values = np.where(part.rows >= 0, multipliers[part.rows], 0.0)
            add_by_name(found, part.constraints, values, terminal=not part.stepped)
        return found

    def from_names(self, named: Mapping[str, Array]) -> Array:
        """Return multipliers (m,) from those by name, the inverse of :meth:`by_name`; zero if a name is missing or a shape
        differs.
        """
        y, own = np.zeros(self.rows), self.by_name(np.arange(1.0, self.rows + 1))
        for name, rows in own.items():
            values = np.asarray(named.get(name, np.zeros(0)))
            if values.shape == rows.shape:
                y[rows[rows > 0].astype(int) - 1] = values[rows > 0]
        return y

    # -- names ----------------------------------------------------------------------------------------------------------
    @cached_property
    def x_names(self) -> list[str]:
        """Name of each variable, such as "q at knot 3", with the constraints that bound it in parentheses."""
        names = [""] * self.size
        for places, kinds in ((self.ix, self.original.state_names), (self.iu, self.original.control_names)):
            for k, row in enumerate(places):
                for i, kind in zip(row, kinds, strict=True):
                    names[i] = f"{kind} at knot {k}"
        for i, name in {int(i): name for name, places in self._bounded_by for i in places.ravel()}.items():
            names[i] += f" ({name})"
        return names

    @cached_property
    def g_names(self) -> list[str]:
        """Name of each row: the state component of a defect, or the constraint component, with its knot."""
        names = [f"{DYNAMICS}{name} from knot {k}" for k in range(self.N) for name in self.original.state_names]
        names += [""] * (self.rows - len(names))
        for part in self.parts:
            kinds = [name for c in part.constraints for name in c.component_names]
            for k, row in enumerate(part.rows):
                for i, kind in zip(row, kinds, strict=True):
                    if i >= 0:
                        names[i] = f"{kind} at knot {part.knots.start + k}"
        return names
