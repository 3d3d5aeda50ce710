"""Simulation of a discrete map outside of a solve, for plants and for predictions of the planning model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP, DiscreteMap
from trajopt.problem.terms import control_cost, parameters_at
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator
from trajopt.stage.evaluators import evaluator_for
from trajopt.step.time_dependence import reads_time

Parameters = Mapping[str, Array]


class _Ready(NamedTuple):
    """Cached problem of a number of steps of length h [s], its evaluator, the parameters of its dynamics, and its start [s]."""

    ocp: OCP
    evaluator: StageEvaluator
    h: float
    parameters: Parameters
    start: float


@lru_cache(maxsize=16)
def _shared(dynamics: DiscreteMap) -> dict[int, _Ready]:
    """Cache of evaluators of a map by number of steps, shared by its simulators, because creation takes long."""
    return {}


class Simulator:
    """Simulator of a discrete map, on the engine of its backend. parameters: of the map, each (n,).

    It uses the stages of solvers, so that compiled dynamics are called once for several steps.
    """

    def __init__(self, dynamics: DiscreteMap, parameters: Parameters | None = None) -> None:
        self.dynamics, self._parameters, self._ready = dynamics, parameters or {}, _shared(dynamics)  # type: ignore[arg-type]

    def advance(self, x: Array, us: Array, h: float, parameters: Parameters | None = None, t: float = 0.0) -> Array:
        """State (nx,) after n steps of length h [s] from x under the controls us (n, nu).

        parameters: of the map, default those of the constructor. t: time of the first step [s], for maps that read it. The state
        may be NaN or infinite. Raises ValueError for a wrong shape of x or us, and for a step that is not positive and finite.
        """
        x, us = np.asarray(x, dtype=float), np.asarray(us, dtype=float)
        n, m, nx, ndx = len(np.atleast_1d(us)), self.dynamics.nu, self.dynamics.manifold.nx, self.dynamics.manifold.ndx
        if x.shape != (nx,):
            raise ValueError(f"x has shape {x.shape}; expected (nx = {nx},)")
        if us.shape != (n, m):
            raise ValueError(f"us has shape {us.shape}; expected (n, nu = {m})")
        if self.dynamics.takes_time and not 0.0 < h < np.inf:
            raise ValueError(f"h = {h} s; expected a positive, finite time step")
        parameters = self._parameters if parameters is None else parameters
        timed = bool(np.isfinite(x).all()) and reads_time(self.dynamics, x, parameters)
        evaluator = self._evaluator(x, n, h, parameters, t if timed else 0.0)
        still = Direction(np.zeros((n + 1, ndx)), np.zeros((n, m)), np.zeros((n, m, ndx)), np.zeros((n, ndx)))
        with np.errstate(all="ignore"):  # the caller checks for finite values
            motion = evaluator.rollout(np.tile(x, (n + 1, 1)), us, still, np.zeros(1), Shooting())
        return motion.xs[0, -1]

    def _evaluator(self, x: Array, n: int, h: float, parameters: Parameters, start: float) -> StageEvaluator:
        """Cached evaluator of n steps of length h [s] from ``start``; replaced by a new one if these or the parameters differ."""
        known = self._ready.get(n)
        if known is not None and (known.h, known.start) == (h, start) and _same(known.parameters, parameters):
            return known.evaluator
        if known is None:
            nothing = [control_cost(self.dynamics.nu, weight=0.0)]
            ocp = OCP.single_phase(self.dynamics, x, n, h, nothing, parameters=parameters)
        else:  # the workspace of the same structure is cached
            phase = replace(known.ocp.phases[0], dt=np.full(n, h), parameters=parameters)
            ocp = replace(known.ocp, phases=(phase,))
        ocp = replace(ocp, start=start)
        self._ready[n] = _Ready(ocp, evaluator_for(ocp), h, parameters, start)
        return self._ready[n].evaluator


_DIGITS = 9
"""Number of decimals to which time steps [s] are rounded, so that rounding errors of tick sums do not create new evaluators."""


class Model:
    """Planning model: the dynamics of the first phase of the newest problem. began: time of that problem's first knot [s]."""

    def __init__(self, problem: OCP, began: float = 0.0) -> None:
        self.problem, self.began = problem, began
        self._simulator = Simulator(problem.phases[0].dynamics)

    def step(self, x: Array, u: Array, t: float, dt: float) -> Array:
        """State (nx,) after one time step of length dt [s] from x under the control u (nu,) at t [s].

        Dynamics that read the time get t - ``began`` plus the start of the problem. The parameters are those of the first knot of
        the phase.
        """
        phase = self.problem.phases[0]
        if self._simulator.dynamics is not phase.dynamics:
            self._simulator = Simulator(phase.dynamics)
        now = parameters_at(phase.parameters, 0)
        at = self.problem.start + t - self.began
        return self._simulator.advance(x, u[None, : phase.dynamics.nu], round(dt, _DIGITS), now, at)


def _same(one: Parameters, other: Parameters) -> bool:
    """True if parameters have equal names and values."""
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)
