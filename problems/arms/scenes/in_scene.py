"""The optimal control problem of an arm among obstacles, with a free duration and accelerations as controls.

    minimize    sum_k h ( w_t + w_a |a_k / a_scale|^2 / 2 + w_e |tau_k / tau_max|^2 / 2 ),     h = T / N
    subject to  q_(k+1) = q_k + h v_k + h^2 a_k / 2,    v_(k+1) = v_k + h a_k,    x_0 given, at rest,    the goal at x_N, at rest,
                limits of q, v, a and T;   |tau(q, v, a)| <= tau_max in the middle of each step,
                distances of chosen pairs >= margin at ``checks`` places of each step

The pairs are chosen, and held against the true shapes, for a trajectory (:mod:`trajopt.collisions.broad_phase`); what was
overlooked shows when the solution is checked, and the problem is solved again from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from problems.arms.scenes.scene_structure import STATES, TORQUES, Costs, SceneStructure, clearance_name, kept_phases
from problems.task import BackendFactory
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.free_space import TruePieces
from trajopt.guesses.timed_path import timed_motion
from trajopt.problem.constraints import Constraint

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
    def structure(self) -> SceneStructure:
        """What the next problem shares."""
        torque = tuple(self.limits.torque.tolist())
        return SceneStructure(self.model, self.pairs.slots(), torque, self.costs, self.knots, self.checks)

    # -- the problem ----------------------------------------------------------------------------------------------------
    def ocp(
        self, backend: BackendFactory, q0: Array, guess: to.Guess, goal: Sequence[Constraint], tube: float = np.inf
    ) -> to.OCP:
        """The problem from q0 (nq,) to a goal, with the pairs of a guess, and within a tube about that."""
        n, limits, manifold = self.model.nv, self.limits, self.structure.manifold
        upper = np.tile(limits.acceleration, (1 + self.knots, 1))
        lower = -upper
        lower[0, 0], upper[0, 0] = limits.duration
        rest = np.full(manifold.nx, np.inf)
        rest[n : 2 * n] = 0.0
        x0 = np.concatenate([q0, np.zeros(n), [guess.xs[0, -1]]])
        ocp = to.OCP(
            kept_phases(self.structure, backend),
            x0,
            u_lower=lower,
            u_upper=upper,
            name="arm_in_scene",
            model=self.model,
            terminal_constraints=(to.state_bounds(manifold, -rest, rest, "rest"), *goal),
        )
        return self.with_pairs(ocp, guess, tube=tube)

    def shortest(self, x0: Array, x_goal: Array) -> float:
        """The time [s] below which no motion from rest to rest gets from x0 to x_goal (nx,), by the limits of its slowest joint."""
        n, v, a = self.model.nv, self.limits.velocity, self.limits.acceleration
        way = np.abs(x_goal - x0)[:n]
        with np.errstate(invalid="ignore"):
            peak = np.minimum(v, np.sqrt(way * a))
            times = np.where(way > 0.0, way / peak + np.where(np.isfinite(a), peak / a, 0.0), 0.0)
        return max(self.limits.duration[0], float(np.nanmax(times)))

    # -- pairs ----------------------------------------------------------------------------------------------------------
    def places(self, xs: Array, us: Array) -> tuple[Array, Array]:
        """Configurations (checks, N, nq) of a plan where distances hold, and their times (checks, N) [s]."""
        n, T = self.model.nv, float(xs[-1, -1])
        q, v, a = xs[1:-1, :n], xs[1:-1, n : 2 * n], us[1:, :n]
        s = T * self.structure.ahead()[:, None, None]
        times = T * (np.arange(self.knots) / self.knots + self.structure.ahead()[:, None])
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
        if not self.structure.slots:
            return ocp
        qs, times = self.places(plan.xs, plan.us)
        margins = self.margins(plan, self.margin + (0.0 if more is None else more))
        flat, when = qs.reshape(-1, qs.shape[-1]), times.ravel()
        relief = TruePieces(self.pairs, flat, when).relief if self.exact else None
        seen = [self.places(p.xs, p.us)[0].reshape(flat.shape) for p in also]
        chosen = self.pairs.chosen(self.structure.slots, flat, when, margins.ravel(), relief, seen)
        for j in range(self.checks):
            own = slice(j * self.knots, (j + 1) * self.knots)
            ocp = ocp.updated(clearance_name(j), lower=chosen.lower[own], pairs=chosen.pairs[own])
        return ocp

    def _within(self, ocp: to.OCP, plan: to.Guess, tube: float) -> to.OCP:
        """The limits of the motion, those of configurations within a tube about a plan; the start is given, without limits."""
        n, limits, q = self.model.nv, self.limits, plan.xs[1:-1, : self.model.nv]
        rates = np.broadcast_to(limits.velocity, (self.knots, n))
        lower = np.concatenate([np.maximum(limits.q_lower, q - tube), -rates], axis=1)
        upper = np.concatenate([np.minimum(limits.q_upper, q + tube), rates], axis=1)
        lower[0], upper[0] = -np.inf, np.inf
        return ocp.updated(STATES, lower=lower, upper=upper)

    def held_back(self, start: to.Guess, plan: to.Guess) -> bool:
        """Whether a coarse capsule that stands for others, as was chosen for ``start``, keeps a plan from a body."""
        if not self.structure.slots:
            return False
        before, after = (self._coarse_gaps(p) for p in (start, plan))
        return bool((self.pairs.is_far(before) & (after < 2.0 * self.margin)).any())

    def _coarse_gaps(self, plan: to.Guess) -> Array:
        qs, times = self.places(plan.xs, plan.us)
        return self.pairs.coarse_gaps(qs.reshape(-1, qs.shape[-1]), times.ravel())

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
        share = np.arange(self.knots) / self.knots + self.structure.ahead()[:, None]
        return np.stack([share < NEAR_ENDS, share > 1.0 - NEAR_ENDS])

    def clearance_of(self, q: Array, when: float) -> float:
        """The least distance [m] at a configuration, of the true shapes where they are asked; kept for the next that asks."""
        key = (q.tobytes(), when if self.pairs.scene.moves else 0.0)
        if key not in self._clearances:
            self._clearances[key] = self._clearance_of(q, when)
        return self._clearances[key]

    @cached_property
    def _clearances(self) -> dict[tuple[bytes, float], float]:
        return {}

    def _clearance_of(self, q: Array, when: float) -> float:
        gaps = self.pairs.gaps(q[None], np.array([when]))[0]
        if not self.exact:
            return float(gaps.min())
        close = np.argwhere(gaps < MOST)
        true = TruePieces(self.pairs, q[None], np.array([when]))
        return min([MOST, *(true.distance(0, int(i), int(o)) for i, o in close)])


LEFT = 0.9
"""The share of the distance at start and goal that is asked near them."""
MOST = 0.02
"""[m] Distances at start and goal are of interest up to this."""


UNLIMITED = 10.0
"""[rad/s^2, m/s^2] The guess takes no larger accelerations where no limit is given."""


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
    """A guess along corners (K, n) of a path: from rest to rest, nearly as fast as limits of velocity and acceleration allow."""
    n = path.shape[1]
    acceleration = np.where(np.isfinite(limits.acceleration), limits.acceleration, UNLIMITED)
    found = timed_motion(path, limits.velocity, acceleration, knots, limits.duration[0])
    T = min(found.duration, limits.duration[1])
    states = np.concatenate([found.q, found.v, np.full((knots + 1, 1), T)], axis=1)
    us = np.vstack([np.zeros((1, n)), found.a])
    us[0, 0] = T
    return to.Guess(np.vstack([states[:1], states]), us)
