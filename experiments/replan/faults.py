"""Simulated faults of replanning: planners that fail or are slow."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from dynamics_backends.protocol import Array
from trajopt import OCP, Solution
from trajopt.guesses.guesses import WarmStart
from trajopt.replanning.planning import Planner


class Failing:
    """Planner that fails at every ``every``-th response, alternately with an error and with NaN controls."""

    def __init__(self, planner: Planner, every: int) -> None:
        self.planner, self.every = planner, every
        self._count = 0

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """Prepare the wrapped planner."""
        self.planner.prepare(ocp, warm)

    def respond(self, x0: Array) -> Solution:
        """Return the wrapped planner's solution, except at every ``every``-th call.

        These calls in turn raise RuntimeError, without calling the wrapped planner, and return its solution with NaN controls.
        """
        self._count += 1
        if self._count % self.every:
            return self.planner.respond(x0)
        if self._count // self.every % 2:
            raise RuntimeError("simulated failure of the solver (fail_every)")
        solution = self.planner.respond(x0)
        return replace(solution, us=np.full_like(solution.us, np.nan))


class Slowed:
    """Planner whose responses take ``factor`` (at least 1) times as long, in wall-clock time."""

    def __init__(self, planner: Planner, factor: float) -> None:
        self.planner, self.factor = planner, factor

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """Prepare the wrapped planner."""
        self.planner.prepare(ocp, warm)

    def respond(self, x0: Array) -> Solution:
        """Return the solution of the wrapped planner, after waiting until ``factor`` times its duration has passed."""
        began = time.perf_counter()
        solution = self.planner.respond(x0)
        time.sleep((self.factor - 1.0) * (time.perf_counter() - began))
        return solution
