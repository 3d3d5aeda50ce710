"""The LQ problems whose solutions are the steps of Newton's loop, from the whole curvature to none of it.

The Hessians are

    H(share, delta) = H_GN + share (H_exact - H_GN) + delta I

of :mod:`trajopt.solvers.shooting.newton.newton_loop`; both parts are evaluated at most once at a point.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem, Policy
from trajopt.lq.lq_solver import LQSolver
from trajopt.results.records import Journal
from trajopt.solvers.shooting.ddp_model import mixed, with_curvature
from trajopt.solvers.shooting.newton.barrier import Barrier
from trajopt.solvers.shooting.newton.newton_point import Point, damped
from trajopt.stage.evaluation import Evaluator, Expansion

SHARES = (1.0, 0.25, 0.0)
"""Shares of the exact curvature that are tried until the LQ problem is convex: with more of them between, steps are no better."""


class NewtonModel:
    """The models of one solve.

    exact: the evaluator of the Hessian of the cost that the curvature of the dynamics is added to; None for Gauss-Newton alone.
    Points are expanded by it; the Gauss-Newton Hessian is asked for where the exact one leaves the problem indefinite.
    """

    def __init__(self, evaluator: Evaluator, exact: Evaluator | None, lq_solver: LQSolver, journal: Journal) -> None:
        self.shares = SHARES if exact is not None else SHARES[-1:]
        self._evaluator, self._exact, self._lq_solver, self._journal = evaluator, exact, lq_solver, journal
        self._convex_part: tuple[Point, LQProblem] | None = None

    @property
    def alike(self) -> bool:
        """Whether one Hessian of the cost serves."""
        return self._exact is None or self._exact is self._evaluator

    def expanded(self, xs: Array, us: Array) -> Expansion:
        """The expansion at a trajectory xs (N+1, nx), us (N, nu)."""
        return (self._exact or self._evaluator).expand(xs, us)

    def exact(self, at: Point) -> LQProblem:
        """The expansion with the exact Hessian of the Lagrangian."""
        if self._exact is None:
            return at.expansion.lq
        with self._journal.timed("derivatives"):
            return with_curvature(at.expansion.lq, self._exact.curvature(at.xs, at.us, at.optimality.costates[1:]))

    def gauss_newton(self, at: Point) -> LQProblem:
        """The expansion with the Gauss-Newton Hessian of the cost."""
        if self.alike:
            return at.expansion.lq
        if self._convex_part is None or self._convex_part[0] is not at:
            with self._journal.timed("derivatives"):
                self._convex_part = at, self._evaluator.expand(at.xs, at.us).lq
        return self._convex_part[1]

    def convex(
        self, at: Point, exact: LQProblem, shares: tuple[float, ...], delta: float, barrier: Barrier | None
    ) -> tuple[float, Policy | None, LQProblem]:
        """The problem of the largest share that is convex, and its policy; None where none is."""
        lq = exact
        for share in shares:
            part = exact if share == 1.0 else mixed(self.gauss_newton(at), exact, share)
            with self._journal.timed("backward"):
                lq = damped(part, delta)
                lq = lq if barrier is None else barrier.imposed(lq, at.us)
                policy = self._lq_solver.solve_riccati(lq)
            if policy.failed_at is None and np.isfinite(policy.Vxx).all():
                return share, policy, lq
        return shares[-1], None, lq
