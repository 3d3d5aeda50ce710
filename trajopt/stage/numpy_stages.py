"""Stages of a phase in NumPy, term by term: see :mod:`trajopt.stage.stages`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.manifold_curvature import difference_curvature
from dynamics_backends.protocol import Array, Hessians, Parameters
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import contracted_hessian, phase_cost, quadratize, residual_batch, residual_jacobians
from trajopt.problem.ocp import DiscreteMap
from trajopt.problem.terms import CostTerm
from trajopt.stage.not_compiled import timed
from trajopt.stage.stages import Knots, StageDerivatives, StageValues, Trials, workspace_for
from trajopt.step.sensitivities import contraction_of


@dataclass(eq=False)
class NumpyStages:
    """Evaluation of the K knots of a phase, or of the final knot, in NumPy (:class:`~trajopt.stage.stages.Stages`).

    dynamics: None for the final knot. t (K,) and dt (K,) [s]: times and time steps. nu: length of u. parameters: of the dynamics.
    start: index of the first knot in the horizon. hessian: Hessian of the cost, "gauss_newton" or "exact". scale (K,): weights of
    the cost at the knots, default dt.
    """

    compiled: ClassVar[bool] = False
    manifold: Manifold
    dynamics: DiscreteMap | None
    terms: Sequence[CostTerm]
    constraints: Sequence[Constraint]
    t: Array
    dt: Array
    nu: int
    parameters: Parameters = field(default_factory=dict)
    start: int = 0
    hessian: str = "gauss_newton"
    scale: Array | None = None

    def __post_init__(self) -> None:
        self._scale = self.dt if self.scale is None else self.scale

    # -- values and first order -----------------------------------------------------------------------------------------
    @timed
    def values(self, at: Knots) -> StageValues:
        """Return next states, defects, weighted costs and constraints at the knots.

        At the final knot, next states and defects have no columns.
        """
        x, u, nodes = at
        cost = phase_cost(self.terms, x[None], u[None], self.t, self._scale)[0]
        batches = (residual_batch(c.residual, x, u, self.t, c.parameters) for c in self.constraints)
        g = [np.asarray(c.residual(*batch)).T for c, batch in zip(self.constraints, batches, strict=True)]
        if self.dynamics is None:
            x_next, d = np.zeros((len(x), 0)), np.zeros((len(x), 0))
        else:
            x_next = self.dynamics.step(x, u[:, : self.dynamics.nu], self.t, self.dt, self.parameters)
            d = self._gap(nodes, x_next)
        return StageValues(x_next, d, cost, np.concatenate([np.zeros((len(x), 0)), *g], axis=1))

    @timed
    def first(self, at: Knots, *, quadratic: bool = True, out: StageDerivatives | None = None) -> StageDerivatives:
        """Return values and first derivatives, in ``out`` if given, with Q, S, R of the cost if ``quadratic``.

        Derivatives of the defects are in the tangent spaces at the nodes.
        """
        x, u, nodes = at
        if out is None:
            n, size = self.manifold.ndx, sum(c.residual.n_out for c in self.constraints)
            sizes = (self.manifold.nx, n, 0 if self.dynamics is None else n, self.nu, size)
            out = workspace_for(len(x), sizes, quadratic)
        if self.dynamics is not None:
            self._step_into(self.dynamics, x, u, nodes, out)
        self._cost_into(x, u, out, quadratic)
        row = 0
        for block in (out.gx, out.gu):
            block[:] = 0.0
        for c in self.constraints:
            r, rx, ru = residual_jacobians(c.residual, residual_batch(c.residual, x, u, self.t, c.parameters))
            rows = slice(row, row := row + c.residual.n_out)
            out.values.g[:, rows], out.gx[:, rows, : rx.shape[2]], out.gu[:, rows, : ru.shape[2]] = r, rx, ru
        return out

    def _gap(self, nodes: Array, x_next: Array) -> Array:
        """Return the defects x_next (-) node (K, n) in the tangent spaces at the nodes, from states (K, nx)."""
        return np.ascontiguousarray(self.manifold.gap(nodes.T, x_next.T).T)

    def _step_into(self, dynamics: DiscreteMap, x: Array, u: Array, nodes: Array, out: StageDerivatives) -> None:
        """Write next states, defects, and Jacobians A and B of the defects in the tangent spaces at the nodes to ``out``."""
        m = dynamics.nu
        x_next, A, B = dynamics.linearize(x, u[:, :m], self.t, self.dt, self.parameters)
        d = self._gap(nodes, x_next)
        if not self.manifold.is_flat and d.any():
            _, carry = self.manifold.d_difference(d)
            A, B = carry @ A, carry @ B
        out.values.x_next[:], out.values.d[:], out.A[:] = x_next, d, A
        out.B[:, :, :m], out.B[:, :, m:] = B, 0.0

    def _cost_into(self, x: Array, u: Array, out: StageDerivatives, quadratic: bool) -> None:
        """Write cost, lx, lu and, if ``quadratic``, Q, S, R of the summed terms to ``out``."""
        for block in (out.values.cost, out.lx, out.lu, *((out.Q, out.S, out.R) if quadratic else ())):
            block[:] = 0.0
        for term in self.terms:
            e = quadratize(term, x, u, self.t, self._scale, self.hessian if quadratic else "gauss_newton")
            n, m = e.lx.shape[1], e.lu.shape[1]
            out.values.cost[:] += e.value
            out.lx[:, :n] += e.lx
            out.lu[:, :m] += e.lu
            if quadratic:
                out.Q[:, :n, :n] += e.lxx
                out.S[:, :m, :n] += e.lux
                out.R[:, :m, :m] += e.luu

    # -- second order ---------------------------------------------------------------------------------------------------
    @timed
    def second(
        self, at: Knots, sigma: float, lam: Array | None = None, y: Array | None = None, out: Hessians | None = None
    ) -> Hessians:
        """Return the Hessian blocks of sigma l + lam'(x_next (-) node) + y'g, in ``out`` if given; lam, y: None omits a part."""
        (x, u, nodes), n = at, self.manifold.ndx
        H = np.zeros((len(x), n + self.nu, n + self.nu))
        if sigma:
            for term in self.terms:
                e = quadratize(term, x, u, self.t, sigma * self._scale, self.hessian)
                _add(H, n, Hessians(e.lxx, e.lux, e.luu))
        if y is not None:
            self._add_constraints(H, x, u, y)
        if lam is not None and self.dynamics is not None:
            _add(H, n, self._step_hessian(self.dynamics, x, u, nodes, lam))
        result = Hessians(H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])
        if out is None:
            return result
        for block, part in zip(out, result, strict=True):
            block[:] = part
        return out

    def _add_constraints(self, H: Array, x: Array, u: Array, y: Array) -> None:
        """Add the Hessian of y'g to H (K, n + m, n + m), in place; constraints with zero multipliers at all knots are skipped."""
        at, n = 0, self.manifold.ndx
        for c in self.constraints:
            own = y[:, at : (at := at + c.residual.n_out)]
            if own.any():
                k = c.residual.manifold.ndx
                full = contracted_hessian(c.residual, residual_batch(c.residual, x, u, self.t, c.parameters), own)
                _add(H, n, Hessians(full[:, :k, :k], full[:, k:, :k], full[:, k:, k:]))

    def _step_hessian(self, dynamics: DiscreteMap, x: Array, u: Array, nodes: Array, lam: Array) -> Hessians:
        """Return the Hessian blocks of lam' (x_next (-) node) in (dx, du), including second derivatives of (-) on Lie groups."""
        arguments = (x, u[:, : dynamics.nu], self.t, self.dt, self.parameters)
        contract = contraction_of(dynamics, from_source=True)
        if self.manifold.is_flat:
            return contract(*arguments, lam)
        x_next, A, B = dynamics.linearize(*arguments)
        d = self._gap(nodes, x_next)
        _, carry = self.manifold.d_difference(d)
        H = contract(*arguments, (lam[:, None] @ carry)[:, 0])
        if not d.any():
            return H
        gap, At, Bt = difference_curvature(self.manifold, d, lam), A.transpose(0, 2, 1), B.transpose(0, 2, 1)
        return Hessians(H.xx + At @ gap @ A, H.ux + Bt @ gap @ A, H.uu + Bt @ gap @ B)

    # -- rollout --------------------------------------------------------------------------------------------------------
    def finer(self, pieces: int) -> NumpyStages:
        """Return a copy with ``pieces`` times as many substeps in each time step, for rollouts."""
        dynamics: Any = copy(self.dynamics)
        dynamics.substeps *= pieces
        return replace(self, dynamics=dynamics)

    def shortened(self, share: float) -> NumpyStages:
        """Return a copy with the time steps multiplied by ``share``; cost weights ``scale`` that were given stay."""
        return replace(self, dt=share * self.dt)

    @timed
    def rollout(self, trials: Trials) -> Array:
        """Write the trajectories of ``trials`` over these knots, in place; returns their costs (L,).

        All step lengths, and all segments with linear gaps, are stepped in one batch. At the final knot only the costs are
        computed.
        """
        if self.dynamics is None:
            return phase_cost(self.terms, trials.X[:, -1:], trials.U[:, :1, :0], self.t, self._scale)[:, 0]
        knots = slice(self.start, self.start + len(self.t))
        run = _Run(self, self.dynamics, trials)
        starts, stops = trials.shooting.parts(knots.start, knots.stop)
        parts = list(zip(starts, stops, strict=True))
        for j in range(max(stop - start for start, stop in parts)):
            run.advance(np.array([start + j for start, stop in parts if start + j < stop]))
        cost = phase_cost(self.terms, trials.X[:, knots], trials.U[:, knots], self.t, self._scale)
        return np.asarray(cost.sum(axis=1))


class _Run:
    """State of a rollout over the knots of a phase. ahead: the states xs (+) alpha dx, (L, K + 1, nx).

    The constructor writes the states from which segments start, and zero defects, to the trials.
    """

    def __init__(self, stages: NumpyStages, dynamics: DiscreteMap, trials: Trials) -> None:
        self.stages, self.dynamics, self.trials, self.manifold = stages, dynamics, trials, stages.manifold
        first, last = stages.start, stages.start + len(stages.t)
        N, linear = len(trials.us), trials.shooting.gaps == "linear"
        self.is_node = np.zeros(N + 1, dtype=bool)
        self.is_node[list(trials.shooting.nodes)] = True
        self.first, alphas = first, trials.alphas
        dx, self._du = trials.direction.chord(alphas)
        self.ahead = self._along(trials.xs[first : last + 1], dx[:, first : last + 1], alphas)
        here = np.arange(first, last + 1)
        fresh = here[(here == 0) | (self.is_node[here] & linear)]
        trials.X[:, fresh] = self.ahead[:, fresh - first]
        trials.D[:, first:last] = 0.0

    def _along(self, xs: Array, dx: Array, alphas: Array) -> Array:
        """Return the states xs (+) alpha dx, (L, K, nx), for xs (K, nx) and dx (L or 1, K, ndx)."""
        shape = (len(alphas), *xs.shape)
        x = np.broadcast_to(xs, shape).reshape(-1, shape[2])
        steps = (alphas[:, None, None] * dx).reshape(-1, dx.shape[2])
        return np.ascontiguousarray(self.manifold.integrate(x.T, steps.T).T).reshape(shape)

    def advance(self, knots: Array) -> None:
        """Take one time step from each of these knots, for all step lengths: write controls, next states and defects at nodes.

        With nonlinear gaps, the next state at a node is moved so that the fraction 1 - alpha of its gap remains, which is the
        defect; with linear gaps, states at nodes stay, and the defect is the next state (-) the node.
        """
        trials, alphas = self.trials, self.trials.alphas
        x, u = trials.X[:, knots], self._controls(knots)
        trials.U[:, knots] = u
        x_next, at_node = self._step(knots, x, u), self.is_node[knots + 1]
        if trials.shooting.gaps == "nonlinear":
            if at_node.any():
                left = (1.0 - alphas)[:, None] * trials.direction.gaps[knots[0]]
                x_next = self.manifold.integrate(x_next[:, 0].T, -left.T).T[:, None]
                trials.D[:, knots[0]] = left
            trials.X[:, knots + 1] = x_next
            return
        within, ends = knots[~at_node], knots[at_node]
        trials.X[:, within + 1] = x_next[:, ~at_node]
        if len(ends):
            trials.D[:, ends] = self._difference(self.ahead[:, ends + 1 - self.first], x_next[:, at_node])

    def _controls(self, knots: Array) -> Array:
        """Return the controls (L, S, nu) at S knots by the policy, clipped to the bounds if there are any."""
        trials, K = self.trials, self.trials.direction.K
        off_path = self._difference(self.ahead[:, knots - self.first], trials.X[:, knots])
        u = trials.us[knots] + trials.alphas[:, None, None] * self._du[:, knots]
        u = u + (K[knots] @ off_path[:, :, :, None])[:, :, :, 0]
        return u if trials.bounds is None else np.clip(u, *(bound[knots] for bound in trials.bounds))

    def _difference(self, x0: Array, x1: Array) -> Array:
        """Return x1 (-) x0 (L, S, ndx) of states (L, S, nx)."""
        d = self.manifold.gap(_flat(x0).T, _flat(x1).T).T
        return d.reshape(*x0.shape[:2], -1)

    def _step(self, knots: Array, x: Array, u: Array) -> Array:
        """Return the next states (L, S, nx) of S knots under controls u (L, S, nu)."""
        s, count, local = self.stages, len(x), knots - self.first
        p = {k: np.tile(v[local], (count, 1)) if v.ndim == 2 else v for k, v in s.parameters.items()}
        t, dt = np.tile(s.t[local], count), np.tile(s.dt[local], count)
        return self.dynamics.step(_flat(x), _flat(u)[:, : self.dynamics.nu], t, dt, p).reshape(x.shape)


def _flat(a: Array) -> Array:
    """Reshape an array (L, S, n) to (L * S, n)."""
    return a.reshape(a.shape[0] * a.shape[1], a.shape[2])


def _add(H: Array, n: int, part: Hessians) -> None:
    """Add Hessian blocks of leading states and controls to H (K, n + m, n + m), in place; n: number of tangent coordinates."""
    k, m = part.xx.shape[1], part.uu.shape[1]
    H[:, :k, :k] += part.xx
    H[:, n : n + m, :k] += part.ux
    H[:, :k, n : n + m] += part.ux.transpose(0, 2, 1)
    H[:, n : n + m, n : n + m] += part.uu
