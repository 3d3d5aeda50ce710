"""Planner by complete solves with any solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import SolverCache, WarmStart
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.replanning.plan import fault_of
from trajopt.results.solution import Solution, uninterrupted
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.qp.scipy_sparse import load_sparse
from trajopt.solvers.registry import chosen_options
from trajopt.solvers.solve import solve
from trajopt.stage.evaluation import Direction, Shooting
from trajopt.stage.evaluators import evaluator_for

WARM_BARRIER = 1e-6
"""Initial barrier parameter of ``dms`` and ``ipm`` for a warm start with multipliers, which the plans of these solvers have."""
REUSE_MULTIPLIERS = ("sqp", "ipm")
"""Solvers that start from the multipliers of the last plan."""


class ConvergedPlanner:
    """Planner that solves each problem until the options stop the solver; solutions without gains get tracking gains.

    IPOPT (``dms``) is warm-started with a small barrier parameter and its own estimate of the multipliers, because multipliers of
    the last plan belong to a different problem and often increase the iterations severalfold. ``sqp`` and ``ipm`` reuse the
    multipliers; ``ipm`` also starts with the small barrier parameter.

    solver: name. options: of the solver, as its dataclass or a mapping; None: the defaults. follow: start from a rollout under the
    feedback of the last plan instead of its states, as single shooting needs for unstable systems. Raises UnknownName for an
    unknown solver or option, TypeError and ValueError for other invalid options.
    """

    def __init__(self, solver: str = "slq", options: Any = None, *, follow: bool = False) -> None:
        self.solver, self.options = chosen_options(solver, options)
        if self.solver in REUSE_MULTIPLIERS:
            load_sparse()
        self.follow = follow
        self._cache, self._validated = SolverCache(), False

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """Store the problem and the warm start for :meth:`respond`."""
        self._ocp, self._warm = ocp, warm

    def respond(self, x0: Array) -> Solution:
        """Solve the stored problem from x0 (nx,) with its warm start, or with a rollout under the last feedback if ``follow``.

        The first problem is validated and its solution checked, later ones are not (``check=False`` of :func:`trajopt.solve`). A
        solution that can be executed but has only zero gains gets tracking gains. Raises KeyboardInterrupt after Ctrl-C.
        """
        ocp, warm = replace(self._ocp, x0=x0), self._warm
        guess, warm_started = feedback_rollout(ocp, warm) if self.follow else warm.guess, bool(warm.multipliers)
        multipliers_to_reuse = warm.multipliers if self.solver in REUSE_MULTIPLIERS else {}
        start = WarmStart(
            guess, multipliers=multipliers_to_reuse, barrier=WARM_BARRIER if warm_started else None, cache=self._cache
        )
        solution = uninterrupted(
            solve(ocp, options=self.options, solver=self.solver, warm_start=start, check=not self._validated)
        )
        self._validated = True
        if fault_of(solution) is None and not solution.K.any():
            return replace(solution, K=tracking_gains(ocp, solution.xs, solution.us))
        return solution


def feedback_rollout(ocp: OCP, warm: WarmStart) -> Guess:
    """Rollout from the problem's x0 under u = us + K (x (-) xs), clipped to the bounds, about the guess (xs, us) of a warm start.

    K: gains of the warm start, 0 if it has none.
    """
    (xs, us), N, ndx = warm.guess, ocp.horizon, ocp.manifold.ndx
    off = ocp.manifold.difference(xs[:1].T, ocp.x0[:, None])[:, 0]
    K, start = np.zeros((N, ocp.nu, ndx)) if warm.K is None else warm.K, us.copy()
    start[0] += K[0] @ off
    policy = Direction(np.zeros((N + 1, ndx)), start - us, K, np.zeros((N, ndx)))
    about = np.concatenate([ocp.x0[None], xs[1:]])
    motion = evaluator_for(ocp).rollout(about, us, policy, np.ones(1), Shooting())
    return Guess(motion.xs[0], motion.us[0])
