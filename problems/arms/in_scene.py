"""The optimal control problem of an arm among obstacles, with a free duration and accelerations as controls.

    minimize    sum_k h ( w_t + w_a |a_k / a_scale|^2 / 2 + w_e |tau_k / tau_max|^2 / 2 ),     h = T / N
    subject to  q_(k+1) = q_k + h v_k + h^2 a_k / 2,    v_(k+1) = v_k + h a_k,    x_0 given, at rest,    the goal at x_N, at rest,
                limits of q, v, a and T;   |tau(q, v, a)| <= tau_max in the middle of each step,
                distances of chosen pairs >= margin at ``checks`` places of each step

The pairs are chosen, and held against the true shapes, for a trajectory (:mod:`trajopt.collisions.broad_phase`); what was
overlooked shows when the solution is checked, and the problem is solved again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.clearance import Clearances
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.along_path import DoubleIntegrator
from dynamics_backends.systems.bodies.time_scaled import Durations, TimeScaled
from problems.arms.joint_torques import Torques
from problems.task import BackendFactory
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.free_space import TruePieces
from trajopt.guesses.timed_path import timed_motion
from trajopt.problem.along_step import AHEAD, AlongStep, OfPositions
from trajopt.problem.constraints import Constraint
from trajopt.problem.impact_stage import ImpactStage

NEAR_ENDS = 0.04
"""In this share of the steps from start and goal the margin is at most what start and goal leave."""


@dataclass(frozen=True, eq=False)
class Limits:
    """Bounds on the motion, infinite where there is none: q_lower, q_upper, velocity, acceleration, torque (nv,), duration [s]."""

    q_lower: Array
    q_upper: Array
    velocity: Array
    acceleration: Array
    torque: Array
    duration: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Costs:
    """Weights of time [1/s], of accelerations as shares of ``scale`` (nv,), and of torques as shares of their limits."""

    time: float
    acceleration: float
    energy: float
    scale: Array


@dataclass(frozen=True, eq=False)
class MotionInScene:
    """The structure of the problem: everything but the pairs and where it starts.

    pairs: robot and scene. knots: N. checks: places in each step where distances hold. margin: [m] asked there. exact: whether
    the pairs are held against true shapes, which needs coal.
    """

    model: Model
    pairs: CollisionPairs
    limits: Limits
    costs: Costs
    knots: int = 32
    checks: int = 2
    margin: float = 0.002
    exact: bool = True

    @cached_property
    def system(self) -> TimeScaled:
        return TimeScaled(DoubleIntegrator(self.model.dof_names))

    @property
    def manifold(self) -> Manifold:
        return self.system.manifold

    @cached_property
    def slots(self) -> tuple:
        return self.pairs.slots()

    @cached_property
    def clearances(self) -> Clearances | None:
        """On the states of the system; None where nothing can touch anything."""
        return Clearances(self.model, self.slots, self.manifold) if self.slots else None

    def ahead(self) -> Array:
        """Where in a step distances hold, as shares of T."""
        return np.arange(self.checks) / (self.checks * self.knots)

    # -- the problem ----------------------------------------------------------------------------------------------------
    def ocp(
        self, backend: BackendFactory, q0: Array, guess: to.Guess, goal: Sequence[Constraint], tube: float = np.inf
    ) -> to.OCP:
        """The problem from q0 (nq,) to a goal, with the pairs of a guess, and within a tube about that."""
        n, limits = self.model.nv, self.limits
        dynamics = to.SampledSystem(backend(self.system), "rk4", 1)
        steps = np.full(self.knots, 1.0 / self.knots)
        choice = to.Phase(ImpactStage(backend(Durations(self.manifold, 1))), np.zeros(1))
        constraints = (*self._state_limits(), *self._torque_limits(), *self._clearance_constraints())
        motion = to.Phase(dynamics, steps, tuple(self._terms()), constraints=constraints)
        upper = np.tile(limits.acceleration, (1 + self.knots, 1))
        lower = -upper
        lower[0, 0], upper[0, 0] = limits.duration
        rest = np.full(self.manifold.nx, np.inf)
        rest[n : 2 * n] = 0.0
        x0 = np.concatenate([q0, np.zeros(n), [guess.xs[0, -1]]])
        ocp = to.OCP(
            (choice, motion),
            x0,
            u_lower=lower,
            u_upper=upper,
            name="arm_in_scene",
            model=self.model,
            terminal_constraints=(to.state_bounds(self.manifold, -rest, rest, "rest"), *goal),
        )
        return self.with_pairs(ocp, guess, tube=tube)

    def _state_limits(self) -> list[Constraint]:
        """With bounds still to be chosen."""
        bounded = np.full(self.manifold.nx, np.inf)
        bounded[:-1] = 1.0
        return [to.state_bounds(self.manifold, -bounded, bounded, STATES)]

    def _torque_limits(self) -> list[Constraint]:
        limit = self.limits.torque
        if not np.isfinite(limit).any():
            return []
        bound = np.where(np.isfinite(limit), 1.0, np.inf)
        residual = self._along(Torques(self.model, np.where(np.isfinite(limit), limit, 1.0).tolist()))
        return [Constraint(TORQUES, residual, -bound, bound, {AHEAD: np.array([0.5 / self.knots])})]

    def _clearance_constraints(self) -> list[Constraint]:
        """With bounds and parameters still to be chosen."""
        if self.clearances is None:
            return []
        size, nr = 21 * len(self.slots), len(self.slots)
        empty = {"pairs": np.zeros((self.knots, size))}
        low, high = np.full((self.knots, nr), -np.inf), np.full((self.knots, nr), np.inf)
        found = [Constraint(_name(0), self.clearances, low, high, empty)]
        residual = self._along(OfPositions(Clearances(self.model, self.slots)))
        for j, share in enumerate(self.ahead()[1:], 1):
            found.append(Constraint(_name(j), residual, low, high, {**empty, AHEAD: np.array([share])}))
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
            weight = c.acceleration / c.scale**2
            terms.append(
                to.residual_cost(
                    "accelerations", partial(rate, _controls), system.manifold, system.nu, weight,
                    nu=system.nu, control_names=system.control_names,
                )
            )  # fmt: skip
        if c.energy:
            limit = np.where(np.isfinite(self.limits.torque), self.limits.torque, 1.0)
            residual = partial(rate, partial(_torques, self._along(Torques(self.model, limit.tolist()))))
            terms.append(
                to.residual_cost(
                    "torques", residual, system.manifold, system.nu, c.energy,
                    nu=system.nu, control_names=system.control_names,
                )
            )  # fmt: skip
        return terms

    # -- pairs ----------------------------------------------------------------------------------------------------------
    def places(self, xs: Array, us: Array) -> tuple[Array, Array]:
        """Configurations (checks, N, nq) of a plan where distances hold, and their times (checks, N) [s]."""
        n, T = self.model.nv, float(xs[-1, -1])
        q, v, a = xs[1:-1, :n], xs[1:-1, n : 2 * n], us[1:, :n]
        s = T * self.ahead()[:, None, None]
        times = T * (np.arange(self.knots) / self.knots + self.ahead()[:, None])
        return q + s * (v + 0.5 * s * a), times

    def with_pairs(
        self,
        ocp: to.OCP,
        plan: to.Guess,
        more: Array | None = None,
        also: Sequence[to.Guess] = (),
        tube: float = np.inf,
        torques: Array | float = 1.0,
    ) -> to.OCP:
        """The problem with the pairs of a plan, and with those near on others.

        more: (checks, N) [m], added to the margin. tube: how far configurations at knots may be from those of the plan.
        torques: (N, nv) shares of their limits that they may take.
        """
        ocp = self._within(ocp, plan, tube)
        if np.isfinite(self.limits.torque).any():
            bound = np.where(np.isfinite(self.limits.torque), torques, np.inf) * np.ones((self.knots, 1))
            ocp = ocp.updated(TORQUES, lower=-bound, upper=bound)
        if self.clearances is None:
            return ocp
        qs, times = self.places(plan.xs, plan.us)
        margins = self.margins(plan, self.margin + (0.0 if more is None else more))
        flat, when = qs.reshape(-1, qs.shape[-1]), times.ravel()
        relief = TruePieces(self.pairs, flat, when).relief if self.exact else None
        seen = [self.places(p.xs, p.us)[0].reshape(flat.shape) for p in also]
        chosen = self.pairs.chosen(self.slots, flat, when, margins.ravel(), relief, seen)
        for j in range(self.checks):
            own = slice(j * self.knots, (j + 1) * self.knots)
            ocp = ocp.updated(_name(j), lower=chosen.lower[own], pairs=chosen.pairs[own])
        return ocp

    def _within(self, ocp: to.OCP, plan: to.Guess, tube: float) -> to.OCP:
        """The limits of the motion, those of configurations within a tube about a plan; the start is given, without limits."""
        n, limits, q = self.model.nv, self.limits, plan.xs[1:-1, : self.model.nv]
        rates = np.broadcast_to(limits.velocity, (self.knots, n))
        lower = np.concatenate([np.maximum(limits.q_lower, q - tube), -rates], axis=1)
        upper = np.concatenate([np.minimum(limits.q_upper, q + tube), rates], axis=1)
        lower[0], upper[0] = -np.inf, np.inf
        return ocp.updated(STATES, lower=lower, upper=upper)

    def margins(self, plan: to.Guess, asked: Array | float) -> Array:
        """What is asked (checks, N) [m]; near start and goal no more than what these leave."""
        n = self.model.nv
        ends = [self.clearance_of(plan.xs[i, :n], when) for i, when in ((0, 0.0), (-1, float(plan.xs[-1, -1])))]
        found = np.broadcast_to(np.asarray(asked, float), (self.checks, self.knots)).copy()
        for clear, close in zip(ends, self.near_ends(), strict=True):
            found[close] = np.minimum(found[close], LEFT * clear)
        return found

    def near_ends(self) -> Array:
        """Which places (2, checks, N) are near the start, and near the goal."""
        share = np.arange(self.knots) / self.knots + self.ahead()[:, None]
        return np.stack([share < NEAR_ENDS, share > 1.0 - NEAR_ENDS])

    def clearance_of(self, q: Array, when: float) -> float:
        """The least distance [m] at a configuration, of the true shapes where they are asked."""
        gaps = self.pairs.gaps(q[None], np.array([when]))[0]
        if not self.exact:
            return float(gaps.min())
        close = np.argwhere(gaps < MOST)
        true = TruePieces(self.pairs, q[None], np.array([when]))
        return min([MOST, *(true.distance(0, int(i), int(o)) for i, o in close)])


STATES, TORQUES = "limits of the motion", "torque limits"
LEFT = 0.9
"""The share of the distance at start and goal that is asked near them."""
MOST = 0.02
"""[m] Distances at start and goal are of interest up to this."""


UNLIMITED = 10.0
"""[rad/s^2, m/s^2] The guess takes no larger accelerations where no limit is given."""


def _name(j: int) -> str:
    return "clearance" if j == 0 else f"clearance {j} in the step"


def times_root_of_duration(
    place: int, rate: Callable, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]
) -> list[Scalar]:
    """sqrt(T) times a rate, so that squares integrate over time."""
    root = sm.sqrt(x[place])
    return [root * r for r in rate(x, u)]


def _one(x: Rows, u: Rows) -> list[Scalar]:
    return [1.0 + 0.0 * x[0]]


def _controls(x: Rows, u: Rows) -> list[Scalar]:
    return [u[i] for i in range(u.shape[0])]


def _torques(along: AlongStep, x: Rows, u: Rows) -> list[Scalar]:
    tau = along(x, u, 0.0, {AHEAD: [0.0]})
    return [tau[i] for i in range(along.n_out)]


def motion_at(plan: to.Guess | to.Solution, n: int, rate: float) -> tuple[Array, Array, Array, Array]:
    """Configurations, velocities and accelerations (M, n) of a plan, and the times (M,) [s], ``rate`` times a second."""
    xs, us = plan.xs, plan.us
    T, N = float(xs[-1, -1]), len(us) - 1
    times = np.linspace(0.0, T, int(np.ceil(rate * T)) + 1)
    k = np.minimum((times / T * N).astype(int), N - 1)
    s = (times - k * T / N)[:, None]
    q, v, a = xs[1 + k, :n], xs[1 + k, n : 2 * n], us[1 + k, :n]
    return q + s * (v + 0.5 * s * a), v + s * a, a, times


def plan_along(path: Array, limits: Limits, knots: int) -> to.Guess:
    """A guess along corners (K, n) of a path: from rest to rest, nearly as fast as the limits of velocity and acceleration let it be."""
    n = path.shape[1]
    acceleration = np.where(np.isfinite(limits.acceleration), limits.acceleration, UNLIMITED)
    found = timed_motion(path, limits.velocity, acceleration, knots, limits.duration[0])
    T = min(found.duration, limits.duration[1])
    states = np.concatenate([found.q, found.v, np.full((knots + 1, 1), T)], axis=1)
    us = np.vstack([np.zeros((1, n)), found.a])
    us[0, 0] = T
    return to.Guess(np.vstack([states[:1], states]), us)
