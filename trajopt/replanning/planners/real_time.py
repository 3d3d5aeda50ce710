"""Planners whose solve is a generator: it prepares, asks for the state, and returns the solution from there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator

from dynamics_backends.protocol import Array
from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution

AsksForState = Generator[None, Array, Solution]
"""Yields once, for the state (nx,), and returns the solution."""


class RealTimePlanner(ABC):
    """A :class:`~trajopt.replanning.planning.Planner` of one generator for each pair of :meth:`prepare` and :meth:`respond`."""

    _running: AsksForState | None = None

    @abstractmethod
    def solve(self, ocp: OCP, warm: WarmStart) -> AsksForState:
        """One solve: the preparation before ``x0 = yield``, the response after it."""

    def prepare(self, ocp: OCP, warm: WarmStart) -> None:
        """See :class:`~trajopt.replanning.planning.Planner`. Raises what the preparation raises."""
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
        raise TypeError(f"the solve of {type(self).__name__} yielded twice; it asks for one state")
