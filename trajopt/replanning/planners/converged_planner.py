"""A plan by a whole solve from the measured state, by any solver of the registry; and planners whose plans come late or broken."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.guesses.warm_start import SolverCache, WarmStart
from trajopt.problem.ocp import OCP
from trajopt.replanning.plan import fault_of
from trajopt.replanning.planning import Planner
from trajopt.results.solution import Solution
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.registry import chosen_options, solve
from trajopt.stage.evaluation import Direction, Shooting
from trajopt.stage.numerics import numerics_for

WARM_BARRIER = 1e-6
"""The first barrier parameter of IPOPT from a plan that it has found."""
KEEP_MULTIPLIERS = ("sqp", "ipm")
"""Solvers that start from the multipliers of the last plan."""


class ConvergedPlanner:
    """Solves each problem as far as the options allow; a solution without gains gets those of :mod:`trajopt.solvers.feedback`.

    From a plan that it has found, IPOPT starts with a small barrier and multipliers of its own estimate: those of the plan belong
    to a problem that has changed, and often take several times as many iterations. SQP and the interior point start with them.

    follow: start from the motion under the last plan's feedback, which obeys the dynamics, not from its states; what single
    shooting needs where the system is unstable. Raises UnknownName for a solver or option, and as :func:`trajopt.solve` for options
    that do not fit.
    """

    def __init__(self, solver: str = "slq", options: Any = None, *, follow: bool = False) -> None:
        self.solver, self.options = chosen_options(solver, options)
        self.follow = follow
        self._kept = SolverCache()

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """See :class:`~trajopt.replanning.planning.Planner`."""
        self._ocp, self._warm = ocp, warm

    def respond(self, x0: Array) -> Solution:
        """See :class:`~trajopt.replanning.planning.Planner`."""
        ocp, warm = replace(self._ocp, x0=x0), self._warm
        guess, found = followed(ocp, warm) if self.follow else warm.guess, bool(warm.multipliers)
        kept = warm.multipliers if self.solver in KEEP_MULTIPLIERS else {}
        start = WarmStart(guess, multipliers=kept, barrier=WARM_BARRIER if found else None, kept=self._kept)
        solution = solve(ocp, options=self.options, solver=self.solver, warm_start=start, check=not found)
        if fault_of(solution) is None and not solution.K.any():
            return replace(solution, K=tracking_gains(ocp, solution.xs, solution.us))
        return solution


def followed(ocp: OCP, warm: WarmStart) -> Guess:
    """The motion from x0 under the feedback of a warm start."""
    (xs, us), N, ndx = warm.guess, ocp.horizon, ocp.manifold.ndx
    off = ocp.manifold.difference(xs[:1].T, ocp.x0[:, None])[:, 0]
    K, start = np.zeros((N, ocp.nu, ndx)) if warm.K is None else warm.K, us.copy()
    start[0] += K[0] @ off
    policy = Direction(np.zeros((N + 1, ndx)), start - us, K, np.zeros((N, ndx)))
    about = np.concatenate([ocp.x0[None], xs[1:]])
    motion = numerics_for(ocp).evaluator.rollout(about, us, policy, np.ones(1), Shooting())
    return Guess(motion.xs[0], motion.us[0])


class Failing:
    """A planner that fails at each ``every``-th response: a fault on demand, as an error and as NaN in turn."""

    def __init__(self, planner: Planner, every: int) -> None:
        self.planner, self.every = planner, every
        self._count = 0

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """See :class:`~trajopt.replanning.planning.Planner`."""
        self.planner.prepare(ocp, warm)

    def respond(self, x0: Array) -> Solution:
        """See :class:`~trajopt.replanning.planning.Planner`."""
        self._count += 1
        if self._count % self.every:
            return self.planner.respond(x0)
        if self._count // self.every % 2:
            raise RuntimeError("the solver failed on purpose (fail_every)")
        solution = self.planner.respond(x0)
        return replace(solution, us=np.full_like(solution.us, np.nan))


class Slowed:
    """A planner whose responses take ``factor`` times as long: a fault on demand, in wall-clock time."""

    def __init__(self, planner: Planner, factor: float) -> None:
        self.planner, self.factor = planner, factor

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """See :class:`~trajopt.replanning.planning.Planner`."""
        self.planner.prepare(ocp, warm)

    def respond(self, x0: Array) -> Solution:
        """See :class:`~trajopt.replanning.planning.Planner`."""
        began = time.perf_counter()
        solution = self.planner.respond(x0)
        time.sleep((self.factor - 1.0) * (time.perf_counter() - began))
        return solution
