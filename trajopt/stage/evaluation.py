"""The coarse numerical operations that the shooting solvers need of a problem, on all knots as one batch.

    expand    LQ approximation about a trajectory, with its defects
    rollout   trajectories of a policy, for several step lengths at once
    curvature second derivatives of the dynamics, contracted with multipliers: what DDP asks for beside them

A solver sees a problem through these only; another engine offers the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.manifold_curvature import difference_curvature
from dynamics_backends.protocol import Array, Hessians
from trajopt.lq.lq import LQProblem
from trajopt.problem.expansion import StageExpansion, quadratize, term_value
from trajopt.problem.ocp import OCP, DiscreteMap, Phase
from trajopt.problem.terms import CostTerm
from trajopt.step.sensitivities import SampledSystem


class Expansion(NamedTuple):
    """The LQ problem about (xs, us), the cost there, and x_next (N, nx), the steps of the dynamics from xs[:-1]."""

    lq: LQProblem
    cost: float
    x_next: Array


class Direction(NamedTuple):
    """A step to be tried: dx (N + 1, ndx), du (N, nu), gains K (N, nu, ndx), gaps d (N, ndx) that it closes."""

    dx: Array
    du: Array
    K: Array
    gaps: Array


class Candidates(NamedTuple):
    """L trajectories: xs (L, N + 1, nx), us (L, N, nu), defects (L, N, ndx), cost (L,)."""

    xs: Array
    us: Array
    defects: Array
    cost: Array


@dataclass(frozen=True)
class Shooting:
    """nodes: knots in 1 .. N where the state is a variable of its own, rising. gaps: how they close, "linear" or "nonlinear"."""

    nodes: tuple[int, ...] = ()
    gaps: str = "linear"

    @classmethod
    def every(cls, shooting: int | str, horizon: int, gaps: str) -> Shooting:
        """Nodes from the option: "single", "all" or every K knots."""
        named = {"single": horizon + 1, "all": 1}
        spacing = named[shooting] if isinstance(shooting, str) else shooting
        return cls(tuple(range(spacing, horizon + 1, spacing)), gaps)


class Evaluator(Protocol):
    """What a shooting solver needs of a problem."""

    manifold: Manifold

    def expand(self, xs: Array, us: Array) -> Expansion:
        """The LQ problem about xs (N + 1, nx), us (N, nu)."""
        ...

    def rollout(self, xs: Array, us: Array, direction: Direction, alphas: Array, shooting: Shooting) -> Candidates:
        """Trajectories along a direction for the step lengths alphas (L,)."""
        ...


@runtime_checkable
class CurvedEvaluator(Protocol):
    """An evaluator that also knows the curvature of the dynamics, which DDP adds to the LQ problem."""

    manifold: Manifold

    def curvature(self, xs: Array, us: Array, multipliers: Array, first: int = 0) -> Hessians:
        """Second derivatives of lam_k' (F_k(x_k (+) dx, u_k + du) (-) x_(k+1)) for the M knots k = first, first + 1, ...

        xs (M + 1, nx), us (M, nu), multipliers lam (M, ndx) in the tangent spaces at the nodes xs[1:], as A, B and d of the
        LQ problem are: xx (M, ndx, ndx), ux (M, nu, ndx), uu (M, nu, nu). The gap map (-) is part of what is differentiated.
        """
        ...


class StageEvaluator:
    """The evaluator of an OCP in NumPy. hessian: of the cost, "gauss_newton" or "exact"."""

    def __init__(self, ocp: OCP, hessian: str = "gauss_newton") -> None:
        self.ocp = ocp
        self.hessian = hessian
        self.manifold = ocp.manifold
        self._phase_of = np.repeat(np.arange(len(ocp.phases)), [phase.knots for phase in ocp.phases])
        self._times, self._dt = ocp.times, ocp.dt

    # -- expansion ----------------------------------------------------------------------------------------------------
    def expand(self, xs: Array, us: Array) -> Expansion:
        """See :class:`Evaluator`."""
        x_next, A, B = self._linearize(xs, us)
        d, A, B = self._relative_to_nodes(xs[1:], x_next, A, B)
        cost, (Q, q, S, R, r) = self._quadratize(xs, us)
        dx0 = self.manifold.difference(xs[:1].T, self.ocp.x0[:, None])[:, 0]
        return Expansion(LQProblem(A, B, d, Q, q, S, R, r, dx0), cost, x_next)

    def _linearize(self, xs: Array, us: Array) -> tuple[Array, Array, Array]:
        N, ndx, nu = len(us), self.manifold.ndx, self.ocp.nu
        x_next, A, B = np.empty((N, self.manifold.nx)), np.empty((N, ndx, ndx)), np.zeros((N, ndx, nu))
        for phase, knots in zip(self.ocp.phases, self.ocp.phase_slices, strict=True):
            m = phase.dynamics.nu
            x_next[knots], A[knots], B[knots, :, :m] = phase.dynamics.linearize(
                xs[knots], us[knots, :m], self._times[knots], phase.dt, phase.parameters
            )
        return x_next, A, B

    def _relative_to_nodes(self, nodes: Array, x_next: Array, A: Array, B: Array) -> tuple[Array, Array, Array]:
        """Defects d = x_next (-) node, with A and B carried to the tangent space at the node."""
        d = np.ascontiguousarray(self.manifold.difference(nodes.T, x_next.T).T)
        if self.manifold.is_vector_space or not d.any():
            return d, A, B
        _, carry = self.manifold.d_difference(d)
        return d, carry @ A, carry @ B

    def _quadratize(self, xs: Array, us: Array) -> tuple[float, tuple[Array, ...]]:
        """The cost, and Q, q, S, R, r."""
        N, ndx, nu = len(us), self.manifold.ndx, self.ocp.nu
        Q, q = np.zeros((N + 1, ndx, ndx)), np.zeros((N + 1, ndx))
        S, R, r = np.zeros((N, nu, ndx)), np.zeros((N, nu, nu)), np.zeros((N, nu))
        blocks = (Q, q, S, R, r)
        cost = 0.0
        for phase, knots in zip(self.ocp.phases, self.ocp.phase_slices, strict=True):
            unused = np.arange(_controls_read(phase), nu)
            R[knots, unused[:, None], unused] = np.eye(len(unused))  # what nothing reads stays where it is
            for term in phase.terms:
                e = quadratize(term, xs[knots], us[knots], self._times[knots], phase.dt, self.hessian)
                cost += float(e.value.sum())
                _add(blocks, knots, e)
        for term in self.ocp.terminal:
            e = quadratize(term, xs[-1:], us[:1, :0], self._times[-1:], 1.0, self.hessian)
            cost += float(e.value[0])
            _add(blocks, slice(N, N + 1), e)
        return cost, blocks

    # -- curvature ------------------------------------------------------------------------------------------------------
    def curvature(self, xs: Array, us: Array, multipliers: Array, first: int = 0) -> Hessians:
        """See :class:`CurvedEvaluator`. Raises TypeError where a phase's time step has no second derivatives."""
        M, ndx, nu = len(us), self.manifold.ndx, self.ocp.nu
        out = Hessians(np.zeros((M, ndx, ndx)), np.zeros((M, nu, ndx)), np.zeros((M, nu, nu)))
        for phase, knots in zip(self.ocp.phases, self.ocp.phase_slices, strict=True):
            own = slice(max(knots.start, first), min(knots.stop, first + M))
            if own.start < own.stop:
                here = slice(own.start - first, own.stop - first)
                nodes = xs[here.start + 1 : here.stop + 1]
                H = self._phase_curvature(phase, knots.start, own, xs[here], us[here], nodes, multipliers[here])
                m = phase.dynamics.nu
                out.xx[here], out.ux[here, :m], out.uu[here, :m, :m] = H
        return out

    def _phase_curvature(
        self, phase: Phase, start: int, knots: slice, x: Array, u: Array, nodes: Array, lam: Array
    ) -> Hessians:
        """Of consecutive knots of a phase that begins at ``start``."""
        local = slice(knots.start - start, knots.stop - start)
        p = {k: v[local] if v.ndim == 2 else v for k, v in phase.parameters.items()}
        given = (x, u[:, : phase.dynamics.nu], self._times[knots], self._dt[knots], p)
        contract = require_contraction(phase.dynamics)
        if self.manifold.is_vector_space:
            return contract(*given, lam)
        x_next, A, B = phase.dynamics.linearize(*given)
        d = np.ascontiguousarray(self.manifold.difference(nodes.T, x_next.T).T)
        _, carry = self.manifold.d_difference(d)
        H = contract(*given, (lam[:, None] @ carry)[:, 0])
        return H if not d.any() else _with_gaps(H, difference_curvature(self.manifold, d, lam), A, B)

    # -- cost -----------------------------------------------------------------------------------------------------------
    def cost(self, xs: Array, us: Array) -> Array:
        """The costs (L,) of trajectories xs (L, N + 1, nx), us (L, N, nu)."""
        count = len(xs)
        total = np.zeros(count)
        for phase, knots in zip(self.ocp.phases, self.ocp.phase_slices, strict=True):
            x, u = _flat(xs[:, knots]), _flat(us[:, knots])
            t, dt = np.tile(self._times[knots], count), np.tile(phase.dt, count)
            for term in phase.terms:
                weight, p = _tiled(term, count)
                total += term_value(term, x, u, t, dt, weight, p).reshape(count, -1).sum(axis=1)
        t, one = np.full(count, self._times[-1]), np.ones(count)
        for term in self.ocp.terminal:
            weight, p = _tiled(term, count)
            total += term_value(term, xs[:, -1], us[:, 0, :0], t, one, weight, p)
        return total

    # -- roll-out -------------------------------------------------------------------------------------------------------
    def rollout(self, xs: Array, us: Array, direction: Direction, alphas: Array, shooting: Shooting) -> Candidates:
        """Trajectories with u = us + alpha du + K (x (-) (xs (+) alpha dx)), within the bounds on u.

        To first order they are (xs (+) alpha dx, us + alpha du) for every kind of shooting. With linear gaps the
        parts between nodes are rolled out side by side, from xs (+) alpha dx; with nonlinear gaps they follow each
        other.
        """
        count, (N, nu) = len(alphas), us.shape
        ahead = self._along(xs, direction.dx, alphas)
        u_ahead = us + alphas[:, None, None] * direction.du
        X, U = ahead.copy(), np.empty((count, N, nu))
        defects = np.zeros((count, N, self.manifold.ndx))
        is_node = np.zeros(N + 1, dtype=bool)
        is_node[list(shooting.nodes)] = True
        for knots in _lockstep(N, shooting):
            U[:, knots] = self._controls(knots, X, ahead, u_ahead, direction.K)
            x_next = self._step(knots, X[:, knots], U[:, knots])
            at_node = is_node[knots + 1]
            if shooting.gaps == "nonlinear" and at_node.any():
                left = (1.0 - alphas)[:, None] * direction.gaps[knots[0]]
                X[:, knots[0] + 1] = self.manifold.integrate(x_next[:, 0].T, -left.T).T
                defects[:, knots[0]] = left
                continue
            within, ends = knots[~at_node], knots[at_node]
            X[:, within + 1] = x_next[:, ~at_node]
            if len(ends):
                defects[:, ends] = self._difference(X[:, ends + 1], x_next[:, at_node])
        return Candidates(X, U, defects, self.cost(X, U))

    def _along(self, xs: Array, dx: Array, alphas: Array) -> Array:
        """xs (+) alpha dx, (L, N + 1, nx)."""
        shape = (len(alphas), *xs.shape)
        x = np.broadcast_to(xs, shape).reshape(-1, shape[2])
        steps = (alphas[:, None, None] * dx).reshape(-1, dx.shape[1])
        return np.ascontiguousarray(self.manifold.integrate(x.T, steps.T).T).reshape(shape)

    def _controls(self, knots: Array, X: Array, ahead: Array, u_ahead: Array, K: Array) -> Array:
        """(L, S, nu) at S knots."""
        off_path = self._difference(ahead[:, knots], X[:, knots])
        u = u_ahead[:, knots] + (K[knots] @ off_path[:, :, :, None])[:, :, :, 0]
        if self.ocp.control_bounds is not None:
            u = np.clip(u, *(bound[knots] for bound in self.ocp.control_bounds))
        return u

    def _difference(self, x0: Array, x1: Array) -> Array:
        d = self.manifold.difference(_flat(x0).T, _flat(x1).T).T
        return d.reshape(*x0.shape[:2], -1)

    def _step(self, knots: Array, x: Array, u: Array) -> Array:
        """x_next (L, S, nx) of S knots, grouped by phase."""
        result = np.empty_like(x)
        phases = self._phase_of[knots]
        for i in dict.fromkeys(phases.tolist()):
            phase, mine = self.ocp.phases[i], phases == i
            result[:, mine] = self._phase_step(phase, i, knots[mine], x[:, mine], u[:, mine])
        return result

    def _phase_step(self, phase: Phase, i: int, knots: Array, x: Array, u: Array) -> Array:
        count = len(x)
        local = knots - self._starts[i]
        p = {k: _rows(v, local, count) for k, v in phase.parameters.items()}
        t, dt = np.tile(self._times[knots], count), np.tile(self._dt[knots], count)
        return phase.dynamics.step(_flat(x), _flat(u)[:, : phase.dynamics.nu], t, dt, p).reshape(x.shape)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(s.start for s in self.ocp.phase_slices)


def _lockstep(N: int, shooting: Shooting) -> list[Array]:
    """Knots that are stepped at the same time: the j-th of every part; one by one with nonlinear gaps."""
    if shooting.gaps == "nonlinear":
        return [np.array([k]) for k in range(N)]
    ends = [node for node in shooting.nodes if node < N] + [N]
    starts = [0, *ends[:-1]]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    return [
        np.array([s + j for s, length in zip(starts, lengths, strict=True) if j < length]) for j in range(max(lengths))
    ]


def require_contraction(dynamics: DiscreteMap) -> Callable[..., Hessians]:
    """The method of a time step that contracts its second derivatives.

    Raises TypeError where there is none, naming the remedy.
    """
    contract = getattr(dynamics, "contract", None)
    if contract is None:
        raise TypeError(
            f"{type(dynamics).__name__} has no second derivatives (a method contract); choose solver = 'slq'"
        )
    if isinstance(dynamics, SampledSystem):
        dynamics.require_second_order()
    return contract


def _with_gaps(H: Hessians, gap: Array, A: Array, B: Array) -> Hessians:
    """Add the curvature of the gap map (N, ndx, ndx), seen through x_next."""
    At, Bt = A.transpose(0, 2, 1), B.transpose(0, 2, 1)
    return Hessians(H.xx + At @ gap @ A, H.ux + Bt @ gap @ A, H.uu + Bt @ gap @ B)


def _controls_read(phase: Phase) -> int:
    """How many controls the phase's dynamics or cost read."""
    return max([phase.dynamics.nu, *(term.residual.nu for term in phase.terms)])


def _add(blocks: tuple[Array, ...], knots: slice, e: StageExpansion) -> None:
    Q, q, S, R, r = blocks
    n, m = e.lx.shape[1], e.lu.shape[1]
    if n:
        Q[knots] += e.lxx
        q[knots] += e.lx
    if m:
        R[knots, :m, :m] += e.luu
        r[knots, :m] += e.lu
    if n and m:
        S[knots, :m] += e.lux


def _flat(a: Array) -> Array:
    """(L, S, n) as (L * S, n)."""
    return a.reshape(-1, a.shape[-1])


def _tiled(term: CostTerm, count: int) -> tuple[Array, Mapping[str, Array]]:
    """Weight and parameters for ``count`` trajectories in a row."""

    def tile(v: Array) -> Array:
        return np.tile(v, (count, 1)) if v.ndim == 2 else v

    return tile(term.weight), {k: tile(v) for k, v in term.parameters.items()}


def _rows(value: Array, local: Array, count: int) -> Array:
    return np.tile(value[local], (count, 1)) if value.ndim == 2 else value
