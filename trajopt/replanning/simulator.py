"""Simulation of a discrete map outside of a solve, for plants and for predictions of the planning model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP, DiscreteMap
from trajopt.problem.terms import control_cost
from trajopt.stage.evaluation import Direction, Evaluator, Shooting
from trajopt.stage.evaluators import evaluator_for

Parameters = Mapping[str, Array]


class _Ready(NamedTuple):
    """Cached problem of a number of steps, its evaluator, and the parameters of its dynamics."""

    ocp: OCP
    evaluator: Evaluator
    parameters: Parameters


@lru_cache(maxsize=16)
def _shared(dynamics: DiscreteMap) -> dict[tuple[int, float], _Ready]:
    """Cache of evaluators of a map by number and length of steps, shared by its simulators, because creation takes long."""
    return {}


class Simulator:
    """Simulator of a time-invariant discrete map, on the engine of its backend. parameters: of the map, each (n,).

    It uses the stages of solvers, so that compiled dynamics are called once for several steps.
    """

    def __init__(self, dynamics: DiscreteMap, parameters: Parameters | None = None) -> None:
        self.dynamics, self._parameters, self._ready = dynamics, parameters or {}, _shared(dynamics)  # type: ignore[arg-type]

    def advance(self, x: Array, us: Array, h: float, parameters: Parameters | None = None) -> Array:
        """State (nx,) after n steps of length h [s] from x under the controls us (n, nu).

        parameters: of the map, default those of the constructor. The state may be NaN or infinite.
        """
        n, m, ndx = len(us), self.dynamics.nu, self.dynamics.manifold.ndx
        evaluator = self._evaluator(x, n, h, self._parameters if parameters is None else parameters)
        still = Direction(np.zeros((n + 1, ndx)), np.zeros((n, m)), np.zeros((n, m, ndx)), np.zeros((n, ndx)))
        with np.errstate(all="ignore"):  # the caller checks for finite values
            motion = evaluator.rollout(np.tile(x, (n + 1, 1)), us, still, np.zeros(1), Shooting())
        return motion.xs[0, -1]

    def _evaluator(self, x: Array, n: int, h: float, parameters: Parameters) -> Evaluator:
        """Cached evaluator of n steps of length h [s]; replaced by a new one if the parameters differ."""
        known = self._ready.get((n, h))
        if known is not None and _same(known.parameters, parameters):
            return known.evaluator
        if known is None:
            nothing = [control_cost(self.dynamics.nu, weight=0.0)]
            ocp = OCP.single_phase(self.dynamics, x, n, h, nothing, parameters=parameters)
        else:  # the workspace of the same structure is cached
            ocp = replace(known.ocp, phases=(replace(known.ocp.phases[0], parameters=parameters),))
        self._ready[n, h] = _Ready(ocp, evaluator_for(ocp), parameters)
        return self._ready[n, h].evaluator


_DIGITS = 9
"""Number of decimals to which time steps [s] are rounded, so that rounding errors of tick sums do not create new evaluators."""


class Model:
    """Planning model: the dynamics of the first phase of the newest problem."""

    def __init__(self, problem: OCP) -> None:
        self.problem = problem
        self._simulator = Simulator(problem.phases[0].dynamics)

    def step(self, x: Array, u: Array, t: float, dt: float) -> Array:
        """State (nx,) after one time step of length dt [s] from x under the control u (nu,); t is ignored.

        The parameters are those of the first knot of the phase.
        """
        phase = self.problem.phases[0]
        if self._simulator.dynamics is not phase.dynamics:
            self._simulator = Simulator(phase.dynamics)
        now = {key: value[0] if value.ndim == 2 else value for key, value in phase.parameters.items()}
        return self._simulator.advance(x, u[None, : phase.dynamics.nu], round(dt, _DIGITS), now)


def _same(one: Parameters, other: Parameters) -> bool:
    """True if parameters have equal names and values."""
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)
