"""Motions of a discrete map, outside of any solve: of plants, and of the model between measurements and plans."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP, DiscreteMap
from trajopt.problem.terms import control_cost
from trajopt.stage.evaluation import Direction, Evaluator, Shooting
from trajopt.stage.numerics import numerics_for

_Evaluators = dict[tuple[int, float], Evaluator]


@lru_cache(maxsize=16)
def _shared(dynamics: DiscreteMap) -> _Evaluators:
    """The evaluators of a map without parameters, kept because to make one takes much longer than to use it."""
    return {}


class Simulator:
    """Motions of a discrete map that does not depend on time, by the engine of its backend.

    A whole stage of a solver serves, so that compiled dynamics are called once for several steps.
    """

    def __init__(self, dynamics: DiscreteMap, parameters: Mapping[str, Array] | None = None) -> None:
        self.dynamics, self._parameters = dynamics, parameters or {}
        self._evaluators: _Evaluators = {} if parameters else _shared(dynamics)  # type: ignore[arg-type]

    def advance(self, x: Array, us: Array, h: float) -> Array:
        """The state (nx,) after one step of length h [s] under each of the controls us (n, nu)."""
        n, m, ndx = len(us), self.dynamics.nu, self.dynamics.manifold.ndx
        if (n, h) not in self._evaluators:
            nothing = [control_cost(m, weight=0.0)]
            ocp = OCP.single_phase(self.dynamics, x, n, h, nothing, parameters=self._parameters)
            self._evaluators[n, h] = numerics_for(ocp).evaluator
        still = Direction(np.zeros((n + 1, ndx)), np.zeros((n, m)), np.zeros((n, m, ndx)), np.zeros((n, ndx)))
        with np.errstate(all="ignore"):  # what is not finite is found by the caller
            motion = self._evaluators[n, h].rollout(np.tile(x, (n + 1, 1)), us, still, np.zeros(1), Shooting())
        return motion.xs[0, -1]
