"""Dynamics, cost terms and constraints that the problems of one arm in different scenes share.

:mod:`problems.arms.scenes.in_scene` sets the bounds and pairs. The structure is cached, so that the next problem of
the same robot with the same backends reuses its compiled code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.clearance import NUMBERS, Clearances, Slot
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.stretched_map import Durations, StretchedMap, time_scaled
from dynamics_backends.systems.bodies.along_path import DoubleIntegrator
from trajopt.config.task import BackendFactory
from trajopt.problem.along_step import STEP_OFFSET, AlongStep
from trajopt.problem.constraints import Constraint
from trajopt.problem.impact_stage import ImpactStage
from .joint_torques import Torques
from .torque_rate import AccelerationHistory, TorqueRate

STATES, TORQUES, RATES = "limits of the motion", "torque limits", "limits of the rates of torques"
"""Names of constraints."""


WITHIN: dict[str, Any] = {"between_knots": False}
"""Field of constraints that are evaluated within time steps anyway, or checked between knots by the mesh check."""


@dataclass(frozen=True)
class Costs:
    """Weights of time [1/s], of accelerations relative to ``scale``, and of torques relative to their limits."""

    time: float
    acceleration: float
    energy: float
    scale: float


@dataclass(frozen=True)
class SceneStructure:
    """Structure of a problem. slots: slots of collision pairs. torque, torque_rate (nv,): limits, infinite if unlimited. knots:
    N. checks: number of times in each step with distance constraints."""

    model: Model
    slots: tuple[Slot, ...]
    torque: tuple[float, ...]
    costs: Costs
    knots: int
    checks: int
    torque_rate: tuple[float, ...] = ()

    @cached_property
    def system(self) -> StretchedMap | AccelerationHistory:
        """System with accelerations as controls and a free duration; with torque rate limits, the last acceleration is a
        state."""
        if self.limits_rates:
            return AccelerationHistory(self.model.dof_names, self.knots)
        return time_scaled(DoubleIntegrator(self.model.dof_names))

    @property
    def limits_rates(self) -> bool:
        """True if torque rates are limited."""
        return bool(np.isfinite(self.torque_rate).any())

    @property
    def manifold(self) -> Manifold:
        """State manifold (q, v, T), or (q, v, b, T) with the acceleration b of the previous step."""
        return self.system.manifold

    def step_offsets(self) -> Array:
        """Return the time offsets in a step of the distance constraints, as fractions of T."""
        return np.arange(self.checks) / (self.checks * self.knots)

    def phases(self, backend: BackendFactory) -> tuple[to.Phase, to.Phase]:
        """Return the stage that chooses the duration, and the motion; bounds and parameters of its constraints are set later."""
        dynamics = to.SampledSystem(backend(self.system), "euler" if self.limits_rates else "rk4", 1)
        steps = np.full(self.knots, 1.0 / self.knots)
        choice = to.Phase(ImpactStage(backend(Durations(self.manifold, 1))), np.zeros(1))
        constraints = (self._state_limits(), *self._torque_limits(), *self.rate_limits(), *self._clearances())
        return choice, to.Phase(dynamics, steps, tuple(self._terms()), constraints=constraints)

    def _state_limits(self) -> Constraint:
        bounded = np.full(self.manifold.nx, np.inf)
        bounded[: 2 * self.model.nv] = 1.0
        return to.state_bounds(self.manifold, -bounded, bounded, STATES)

    def _torque_limits(self) -> list[Constraint]:
        if not np.isfinite(self.torque).any():
            return []
        residual = self._along(Torques(self.model, self._scale()))
        one = np.ones(self.model.nv)
        return [Constraint(TORQUES, residual, -one, one, {STEP_OFFSET: np.array([0.5 / self.knots])}, **WITHIN)]

    def ends(self) -> tuple[Constraint, Constraint]:
        """Return terminal constraints: rest, and a goal configuration whose bounds are set later."""
        nx, n = self.manifold.nx, self.model.nv
        rest, goal = np.full(nx, np.inf), np.full(nx, np.inf)
        rest[n : 2 * n], goal[:n] = 0.0, 0.0
        return (
            to.state_bounds(self.manifold, -rest, rest, "rest"),
            to.state_bounds(self.manifold, -goal, goal, "goal"),
        )

    def rate_limits(self, *, end: bool = False) -> list[Constraint]:
        """Return the torque rate limits during the motion, or after its last step."""
        system = self.system
        if not isinstance(system, AccelerationHistory):
            return []
        limited = np.isfinite(self.torque_rate)
        scale = np.where(limited, self.torque_rate, 1.0).tolist()
        bound = np.where(limited, 1.0, np.inf)
        name = f"{RATES} at the end" if end else RATES
        return [Constraint(name, TorqueRate(self.model, scale, system, end=end), -bound, bound)]

    def _scale(self) -> list[float]:
        return np.where(np.isfinite(self.torque), self.torque, 1.0).tolist()

    def _clearances(self) -> list[Constraint]:
        nr = len(self.slots)
        if not nr:
            return []
        empty = {"pairs": np.zeros((self.knots, NUMBERS * nr))}
        low, high = np.full((self.knots, nr), -np.inf), np.full((self.knots, nr), np.inf)
        found = [
            Constraint(clearance_name(0), Clearances(self.model, self.slots, self.manifold), low, high, empty, **WITHIN)
        ]
        residual = self._along(Clearances(self.model, self.slots))
        for j, offset in enumerate(self.step_offsets()[1:], 1):
            found.append(
                Constraint(clearance_name(j), residual, low, high, {**empty, STEP_OFFSET: np.array([offset])}, **WITHIN)
            )
        return found

    def _along(self, inner: Any) -> AlongStep:
        return AlongStep(inner, self.manifold, self.system.control_names, self.system.place)

    def _terms(self) -> list[to.CostTerm]:
        c, system = self.costs, self.system
        rate = partial(times_root_of_duration, system.place)
        terms = []
        if c.time:
            terms.append(to.residual_cost("time", partial(rate, _one), system.manifold, 1, 2.0 * c.time))
        if c.acceleration:
            weight = c.acceleration / np.full(system.nu, c.scale) ** 2
            terms.append(
                to.residual_cost(
                    "accelerations", partial(rate, _controls), system.manifold, system.nu, weight,
                    nu=system.nu, control_names=system.control_names,
                )
            )  # fmt: skip
        if c.energy:
            residual = partial(rate, partial(_torques, self._along(Torques(self.model, self._scale()))))
            terms.append(
                to.residual_cost(
                    "torques", residual, system.manifold, system.nu, c.energy,
                    nu=system.nu, control_names=system.control_names,
                )
            )  # fmt: skip
        return terms


@lru_cache(maxsize=8)
def cached_phases(structure: SceneStructure, backend: BackendFactory) -> tuple[to.Phase, to.Phase]:
    """Return the phases of a structure; cached by structure and backend."""
    return structure.phases(backend)


@lru_cache(maxsize=8)
def cached_ends(structure: SceneStructure) -> tuple[Constraint, Constraint]:
    """Return the terminal constraints of a structure; cached."""
    return structure.ends()


def clearance_name(j: int) -> str:
    """Return the name of the distance constraint at time j of a step."""
    return "clearance" if j == 0 else f"clearance {j} in the step"


def times_root_of_duration(
    place: int, rate: Callable, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]
) -> list[Scalar]:
    """Return sqrt(T) times a rate, whose square integrates over time."""
    root = sm.sqrt(x[place])
    return [root * r for r in rate(x, u)]


def _one(x: Rows, u: Rows) -> list[Scalar]:
    return [1.0 + 0.0 * x[0]]


def _controls(x: Rows, u: Rows) -> list[Scalar]:
    return [u[i] for i in range(u.shape[0])]


def _torques(along: AlongStep, x: Rows, u: Rows) -> list[Scalar]:
    tau = along(x, u, 0.0, {STEP_OFFSET: [0.0]})
    return [tau[i] for i in range(along.n_out)]
