"""Planners whose solve is a generator: it prepares, yields to receive the state, and returns the solution from that state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator

from dynamics_backends.protocol import Array
from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution

SolveGenerator = Generator[None, Array, Solution]
"""Generator that yields once to receive the state (nx,), and returns the solution."""


class RealTimePlanner(ABC):
    """Base of a :class:`~trajopt.replanning.planning.Planner` with one generator for each :meth:`prepare` and :meth:`respond`."""

    _running: SolveGenerator | None = None

    @abstractmethod
    def solve(self, ocp: OCP, warm: WarmStart) -> SolveGenerator:
        """One solve as a generator: the preparation before ``x0 = yield``, the response after it."""

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """See :class:`~trajopt.replanning.planning.Planner`. Raises the errors of the preparation."""
        self._running, running = None, self.solve(ocp, warm)
        next(running)
        self._running = running

    def respond(self, x0: Array) -> Solution:
        """See :class:`~trajopt.replanning.planning.Planner`. Raises RuntimeError before :meth:`prepare`."""
        if self._running is None:
            raise RuntimeError("call prepare before respond")
        running, self._running = self._running, None
        try:
            running.send(x0)
        except StopIteration as ended:
            solution: Solution = ended.value
            return solution
        raise TypeError(f"solve() of {type(self).__name__} yielded twice; it must yield once, for the state")
