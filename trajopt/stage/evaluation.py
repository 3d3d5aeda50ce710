"""Operations of a whole problem for the shooting solvers, composed from the stages of its phases.

expand     LQ approximation about a trajectory, with its defects
rollout    trajectories of a policy, for several step lengths
curvature  second derivatives of the dynamics, contracted with multipliers, for DDP
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Hessians
from trajopt.lq.lq import LQProblem
from trajopt.problem.ocp import OCP, Phase
from trajopt.stage.engine import Engine, StageOperations, follow, may_follow, stages_of
from trajopt.stage.stages import Candidates, Direction, Knots, Shooting, StageDerivatives, StageValues, Trials

__all__ = ["Candidates", "Direction", "Expansion", "Shooting", "StageEvaluator"]


class Expansion(NamedTuple):
    """LQ problem about (xs, us), the cost of (xs, us), and x_next (N, nx), the dynamics stepped from xs[:-1]."""

    lq: LQProblem
    cost: float
    x_next: Array


class StageEvaluator:
    """Evaluator of an OCP for shooting solvers, composed of the stages (evaluators of knots) of its phases.

    hessian: Hessian of the cost, "gauss_newton" or "exact". engine: see :data:`trajopt.stage.engine.Engine`. Compiled and NumPy
    phases may be mixed.
    """

    def __init__(self, ocp: OCP, hessian: str = "gauss_newton", engine: Engine = "numpy") -> None:
        self.ocp, self.hessian, self.manifold = ocp, hessian, ocp.manifold
        self._wanted = StageOperations(hessian, rollout=True)
        self.stages = stages_of(ocp, self._wanted, engine)
        self.slices, self.controls_read = ocp.phase_slices, [_controls_read(phase) for phase in ocp.phases]
        unread = ((k, np.arange(read, ocp.nu)) for k, read in zip(self.slices, self.controls_read, strict=True))
        self._unread = [(knots, controls) for knots, controls in unread if len(controls)]

    @cached_property
    def may_follow(self) -> bool:
        """True if the evaluator can take over another problem of the same structure (:meth:`follow`): nothing runs in NumPy."""
        return may_follow(self.stages)

    def follow(self, ocp: OCP) -> bool:
        """Load the values of another problem into this evaluator, in place; return True.

        If the structure differs or a stage is not fully compiled, change nothing and return False.
        """
        if not self.may_follow or not follow(self.stages, self.ocp, ocp, self._wanted):
            return False
        self.ocp = ocp
        return True

    def finer(self, pieces: Sequence[int]) -> StageEvaluator:
        """Return an evaluator for rollouts with each substep of phase i split into pieces[i].

        It shares unchanged stages (pieces[i] = 1, the final knot) with this one.
        """
        result = copy(self)
        phases = [own if n == 1 else own.finer(n) for own, n in zip(self.stages, pieces, strict=False)]
        result.stages = [*phases, self.stages[-1]]
        return result

    def within_steps(self, xs: Array, us: Array, share: float) -> Array:
        """Return the states (N, nx) at the fraction ``share`` in [0, 1] of each time step, from xs (N + 1, nx) under us (N, nu)."""
        result = np.empty((len(us), self.manifold.nx))
        for stages, k in zip(self.stages, self.slices, strict=False):
            result[k] = stages.shortened(share).first(Knots.of(xs, us, k), quadratic=False).values.x_next
        return result

    @property
    def compiled(self) -> bool:
        """True if the time steps of all phases are compiled; cost terms and constraints may run in NumPy."""
        return all(stages.compiled for stages in self.stages[:-1])

    def expand(self, xs: Array, us: Array) -> Expansion:
        """Return the LQ approximation about xs (N + 1, nx), us (N, nu), with the cost of the trajectory and the next states.

        Trailing controls that neither dynamics nor cost terms of their phase read get R = 1, so that they keep their values.
        """
        N, n, m, nx = len(us), self.manifold.ndx, self.ocp.nu, self.manifold.nx
        A, B, d, x_next = np.empty((N, n, n)), np.empty((N, n, m)), np.empty((N, n)), np.empty((N, nx))
        Q, q, cost = np.empty((N + 1, n, n)), np.empty((N + 1, n)), np.empty(N + 1)
        S, R, r, none = np.empty((N, m, n)), np.empty((N, m, m)), np.empty((N, m)), np.empty((N + 1, 0))
        xs, us, gx, gu = np.ascontiguousarray(xs), np.ascontiguousarray(us), none[:, :, None], none[:, :, None]
        for stages, k in zip(self.stages, (*self.slices, slice(N, N + 1)), strict=True):
            values = StageValues(x_next[k], d[k], cost[k], none[k])
            out = StageDerivatives(values, A[k], B[k], q[k], r[k], Q[k], S[k], R[k], gx[k], gu[k])
            stages.first(Knots.of(xs, us, k), out=out)
        for knots, controls in self._unread:  # controls that nothing reads keep their values
            R[knots, controls, controls] = 1.0
        dx0 = self.manifold.gap(xs[:1].T, self.ocp.x0[:, None])[:, 0]
        return Expansion(LQProblem(A, B, d, Q, q, S, R, r, dx0), float(cost.sum()), x_next)

    def rollout(self, xs: Array, us: Array, direction: Direction, alphas: Array, shooting: Shooting) -> Candidates:
        """Return trajectories (controls, states, defects, costs) along a direction for the step lengths alphas (L,).

        Controls are u = us + alpha du + K (x (-) (xs (+) alpha dx)), clipped to the bounds on u. Without clipping, trajectories
        equal (xs (+) alpha dx, us + alpha du) to first order for every kind of shooting. With linear gaps, segments between nodes
        are rolled out in parallel from xs (+) alpha dx. With nonlinear gaps, they are rolled out in sequence, and the fraction
        1 - alpha of each gap remains.
        """
        L, N = len(alphas), len(us)
        X, U, D = np.empty((L, *xs.shape)), np.empty((L, *us.shape)), np.empty((L, N, self.manifold.ndx))
        trials = Trials(xs, us, direction, alphas, shooting, self.ocp.control_bounds, X, U, D)
        return Candidates(X, U, D, np.sum([stages.rollout(trials) for stages in self.stages], axis=0))

    def curvature(self, xs: Array, us: Array, multipliers: Array) -> Hessians:
        """Return second derivatives of lam_k' (F_k(x_k (+) dx, u_k + du) (-) x_(k+1)) at all knots k.

        Arguments: xs (N + 1, nx), us (N, nu), multipliers lam (N, ndx) in the tangent spaces at the nodes xs[1:], like A, B and d
        of the LQ problem. Returns xx (N, ndx, ndx), ux (N, nu, ndx), uu (N, nu, nu). The gap map (-) is differentiated too.
        """
        N, n, m = len(us), self.manifold.ndx, self.ocp.nu
        out = Hessians(np.empty((N, n, n)), np.empty((N, m, n)), np.empty((N, m, m)))
        for stages, k in zip(self.stages, self.slices, strict=False):
            here = Hessians(*(block[k] for block in out))
            stages.second(Knots.of(xs, us, k), 0.0, multipliers[k], None, here)
        return out

    def knot_curvatures(self, xs: Array, us: Array) -> Any | None:
        """Return the arguments with which a C sweep evaluates second derivatives of the steps from xs (N + 1, nx), us (N, nu).

        The sweep evaluates them knot by knot, with its multipliers.
        Returns None unless the second derivatives of all phases are compiled.
        """
        parts: list[Any] = []
        for stages, k in zip(self.stages, self.slices, strict=False):
            sweep_part = getattr(stages, "sweep_part", None)  # NumPy stages have none
            part = sweep_part and sweep_part(Knots.of(xs, us, k))
            if part is None:
                return None
            parts.append(part)
        from trajopt.lq.lq_solver import CurvaturePart, KnotCurvatures

        return KnotCurvatures((CurvaturePart * len(parts))(*[part for part, _ in parts]), parts)

    def cost(self, xs: Array, us: Array) -> Array:
        """Return the costs (L,) of trajectories xs (L, N + 1, nx), us (L, N, nu), evaluated in NumPy."""
        return np.asarray(self.ocp.cost(xs, us))


def _controls_read(phase: Phase) -> int:
    """Return the number of leading controls that the dynamics or cost terms of a phase read."""
    return max([phase.dynamics.nu, *(term.residual.nu for term in phase.terms)])
