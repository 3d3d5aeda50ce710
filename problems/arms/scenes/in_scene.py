"""Optimal control problem of an arm among obstacles, with free duration and accelerations as controls.

    minimize    sum_k h_k ( w_t + w_a |a_k / a_scale|^2 / 2 + w_e |tau_k / tau_max|^2 / 2 ),     h_k = s_k T,   sum_k s_k = 1
    subject to  q_(k+1) = q_k + h_k v_k + h_k^2 a_k / 2,   v_(k+1) = v_k + h_k a_k,   x_0 given, at rest,  the goal at x_N, at rest,
                limits of q, v, a and T;   |tau(q, v, a)| <= tau_max at the midpoint of each step,
                optional: |tau - tau of the previous step| <= rate h  (:mod:`problems.arms.scenes.torque_rate`),
                distances of selected pairs >= margin at ``checks`` times of each step

The fractions s_k are nearly equal: step boundaries coincide with the times at which the slowest joint may stop accelerating and
must start to brake. The pairs are selected, and compared with the true shapes, for a trajectory
(:mod:`trajopt.collisions.broad_phase`). If the check of a solution finds an overlooked collision, the problem is solved again
from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.free_space import TruePieces
from trajopt.config.task import BackendFactory
from trajopt.guesses.timed_path import (
    Motion,
    Timing,
    held_accelerations,
    shortest_times,
    steps_of_slowest,
    timed_motion,
)
from trajopt.problem.along_step import STEP_OFFSET
from trajopt.problem.constraints import Constraint
from .scene_structure import (
    STATES,
    TORQUES,
    Costs,
    SceneStructure,
    cached_ends,
    cached_phases,
    clearance_name,
)

NEAR_ENDS = 0.04
"""Fraction of the steps near start and goal in which the margin is limited by the clearance at start and goal."""


@dataclass(frozen=True, eq=False)
class Limits:
    """Bounds on the motion, infinite if unlimited: q_lower, q_upper, velocity, acceleration, torque, torque_rate (nv,);
    duration [s]."""

    q_lower: Array
    q_upper: Array
    velocity: Array
    acceleration: Array
    torque: Array
    duration: tuple[float, float]
    torque_rate: Array = field(default_factory=lambda: np.full(1, np.inf))


@dataclass(frozen=True, eq=False)
class MotionInScene:
    """Structure of the problem: everything except the selected pairs and the initial state.

    pairs: robot and scene. knots: N. checks: number of times in each step with distance constraints. margin: required distance
    [m]. exact: relax distances by the true shapes, which needs coal. fractions (N,): step lengths relative to T; default: equal.
    """

    model: Model
    pairs: CollisionPairs
    limits: Limits
    costs: Costs
    knots: int = 32
    checks: int = 2
    margin: float = 0.002
    exact: bool = True
    fractions: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not len(self.fractions):
            object.__setattr__(self, "fractions", np.full(self.knots, 1.0 / self.knots))

    @property
    def grid(self) -> Array:
        """Start times of the steps and the end time (N + 1,), as fractions of T."""
        return np.append(0.0, np.cumsum(self.fractions))

    def step_offsets(self) -> Array:
        """Return time offsets (checks, N) in each step of the distance constraints, as fractions of T."""
        return np.arange(self.checks)[:, None] / self.checks * self.fractions

    @cached_property
    def structure(self) -> SceneStructure:
        """Dynamics, cost and constraints that do not depend on the motion."""
        torque, n = tuple(self.limits.torque.tolist()), self.model.nv
        rate = tuple(np.broadcast_to(self.limits.torque_rate, n).tolist())
        return SceneStructure(self.model, self.pairs.slots(), torque, self.costs, self.knots, self.checks, rate)

    # -- the problem ----------------------------------------------------------------------------------------------------
    def ocp(
        self, backend: BackendFactory, q0: Array, guess: to.Guess, goal: Sequence[Constraint], tube: float = np.inf
    ) -> to.OCP:
        """Return the problem from q0 (nq,) to a goal, with the pairs near a guess and within a tube around it."""
        n, limits, manifold = self.model.nv, self.limits, self.structure.manifold
        upper = np.tile(limits.acceleration, (1 + self.knots, 1))
        lower = -upper
        lower[0, 0], upper[0, 0] = limits.duration
        x0 = np.concatenate([q0, np.zeros(manifold.nx - n - 1), [guess.xs[0, -1]]])
        choice, motion = cached_phases(self.structure, backend)
        constraints = tuple(self._with_step_offsets(c) for c in motion.constraints)
        ocp = to.OCP(
            (choice, replace(motion, dt=self.fractions, constraints=constraints)),
            x0,
            u_lower=lower,
            u_upper=upper,
            name="arm_in_scene",
            model=self.model,
            terminal_constraints=(
                cached_ends(self.structure)[0],
                *self.structure.rate_limits(end=True),
                *goal,
            ),
        )
        return self.with_pairs(ocp, guess, tube=tube)

    def _with_step_offsets(self, c: Constraint) -> Constraint:
        """Rescale the time offsets of a constraint from equal steps to the steps of this motion."""
        return (
            c.updated(**{STEP_OFFSET: self.knots * self.fractions[:, None] * c.parameters[STEP_OFFSET]})
            if STEP_OFFSET in c.parameters
            else c
        )

    def shortest(self, x0: Array, x_goal: Array) -> float:
        """Return a lower bound [s] on the duration from x0 to x_goal (nx,), at rest at both, from the limits of the slowest
        joint."""
        times, _ = shortest_times((x_goal - x0)[: self.model.nv], self.limits.velocity, self.limits.acceleration)
        return max(self.limits.duration[0], float(np.nanmax(times)))

    # -- pairs ----------------------------------------------------------------------------------------------------------
    def places(self, xs: Array, us: Array) -> tuple[Array, Array]:
        """Return configurations (checks, N, nq) of a plan at the distance constraints, and their times (checks, N) [s]."""
        n, T = self.model.nv, float(xs[-1, -1])
        q, v, a = xs[1:-1, :n], xs[1:-1, n : 2 * n], us[1:, :n]
        s = T * self.step_offsets()[:, :, None]
        times = T * (self.grid[:-1] + self.step_offsets())
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
        """Return the problem with the pairs that are near on a plan or on other plans.

        more (checks, N) [m]: added to the margin. also: other plans. tube: maximum deviation of configurations from the plan at
        the knots. torques (N, nv): usable fractions of the torque limits.
        """
        ocp = self._with_limits(ocp, plan, tube)
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

    def _with_limits(self, ocp: to.OCP, plan: to.Guess, tube: float) -> to.OCP:
        """Set the limits of the motion, with configurations within a tube around a plan; the given start has no limits."""
        n, limits, q = self.model.nv, self.limits, plan.xs[1:-1, : self.model.nv]
        rates = np.broadcast_to(limits.velocity, (self.knots, n))
        lower = np.concatenate([np.maximum(limits.q_lower, q - tube), -rates], axis=1)
        upper = np.concatenate([np.minimum(limits.q_upper, q + tube), rates], axis=1)
        lower[0], upper[0] = -np.inf, np.inf
        return ocp.updated(STATES, lower=lower, upper=upper)

    def limited_by_coarse(self, start: to.Guess, plan: to.Guess) -> bool:
        """True if a coarse capsule that replaces others, as selected for ``start``, limits the distance of a plan to a body."""
        if not self.structure.slots:
            return False
        before, after = (self._coarse_gaps(p) for p in (start, plan))
        return bool((self.pairs.is_far(before) & (after < 2.0 * self.margin)).any())

    def _coarse_gaps(self, plan: to.Guess) -> Array:
        qs, times = self.places(plan.xs, plan.us)
        return self.pairs.coarse_gaps(qs.reshape(-1, qs.shape[-1]), times.ravel())

    def margins(self, plan: to.Guess, margin: Array | float) -> Array:
        """Return the margins (checks, N) [m]; near start and goal, at most their own clearance."""
        n = self.model.nv
        ends = [self.clearance_of(plan.xs[i, :n], when) for i, when in ((0, 0.0), (-1, float(plan.xs[-1, -1])))]
        found = np.broadcast_to(np.asarray(margin, float), (self.checks, self.knots)).copy()
        for clear, close in zip(ends, self.near_ends(), strict=True):
            found[close] = np.minimum(found[close], LEFT * clear)
        return found

    def near_ends(self) -> Array:
        """Return masks (2, checks, N) of the constraints near the start and near the goal."""
        position = self.grid[:-1] + self.step_offsets()
        return np.stack([position < NEAR_ENDS, position > 1.0 - NEAR_ENDS])

    def clearance_of(self, q: Array, when: float) -> float:
        """Return the smallest distance [m] at a configuration, of true shapes if ``exact``; cached."""
        key = (q.tobytes(), when if self.pairs.scene.moves else 0.0)
        if key not in self._clearances:
            self._clearances[key] = self._clearance_of(q, when)
        return self._clearances[key]

    def arrivals(self, earliest: float) -> Array:
        """Return times (M,) [s] at which the motion may end, from ``earliest`` on: ARRIVALS apart, until the bodies rest."""
        paths = [body.path for body in self.pairs.scene.bodies if body.path is not None]
        rest = max((path.times[-1] for path in paths), default=-np.inf)
        latest = min(max(rest, earliest), max(self.limits.duration[1], earliest))
        return np.append(np.arange(earliest, latest, ARRIVALS), latest)

    def clear_from(self, q: Array, earliest: float) -> float:
        """Return the first of the ``arrivals`` at which the clearance of a configuration is the margin, or as large as it gets.

        ``earliest`` if it is never positive.
        """
        times = self.arrivals(earliest)
        gaps = np.array([self.clearance_of(q, float(when)) for when in times])
        return float(times[np.argmax(gaps >= min(self.margin, gaps.max()))]) if gaps.max() > 0.0 else earliest

    @cached_property
    def _clearances(self) -> dict[tuple[bytes, float], float]:
        return {}

    def _clearance_of(self, q: Array, when: float) -> float:
        gaps = self.pairs.gaps(q[None], np.array([when]))[0]
        if not self.exact:
            return float(gaps.min(initial=np.inf))
        close = np.argwhere(gaps < MAX_DISTANCE)
        true = TruePieces(self.pairs, q[None], np.array([when]))
        return min([MAX_DISTANCE, *(true.distance(0, int(i), int(o)) for i, o in close)])


LEFT = 0.9
"""Fraction of the clearance at start and goal that is required near them."""
ARRIVALS = 0.05
"""Interval of the times at which a configuration is tested for collisions with moving bodies [s]."""
MAX_DISTANCE = 0.02
"""Distances at start and goal are computed up to this value [m]."""


UNLIMITED = 10.0
"""Acceleration limit of the guess [rad/s^2, m/s^2] if no limit is given."""


def motion_at(plan: to.Solution, n: int, rate: float) -> tuple[Array, Array, Array, Array]:
    """Return configurations, velocities and accelerations (M, n) of a plan, and times (M,) [s], sampled at ``rate`` [Hz]."""
    xs, us = plan.xs, plan.us
    T, N = float(xs[-1, -1]), len(us) - 1
    begin = plan.times[1:-1]
    times = np.linspace(0.0, T, int(np.ceil(rate * T)) + 1)
    k = np.minimum(begin.searchsorted(times, side="right") - 1, N - 1)
    s = (times - begin[k])[:, None]
    q, v, a = xs[1 + k, :n], xs[1 + k, n : 2 * n], us[1 + k, :n]
    return q + s * (v + 0.5 * s * a), v + s * a, a, times


def step_fractions(q0: Array, goal: Array, limits: Limits, knots: int) -> Array:
    """Return the step lengths (N,), as fractions of the duration, of a motion between two configurations (n,)."""
    if np.isfinite(limits.torque_rate).any():  # limits of torque rates assume equal steps
        return np.full(knots, 1.0 / knots)
    return steps_of_slowest(goal - q0, limits.velocity, limits.acceleration, knots)


def guess_along_path(path: Array, limits: Limits, fractions: Array) -> to.Guess:
    """Return a rest-to-rest guess along a path with corners (K, n), nearly as fast as velocity and acceleration limits allow.

    fractions (N,): step lengths as fractions of the duration.
    """
    acceleration = np.where(np.isfinite(limits.acceleration), limits.acceleration, UNLIMITED)
    return _plan(timed_motion(path, limits.velocity, acceleration, fractions, limits.duration[0]), limits)


def guess_from_timing(timing: Timing, limits: Limits, fractions: Array) -> to.Guess:
    """Return a guess close to a timed rest-to-rest motion, with step lengths ``fractions`` (N,) as fractions of the duration."""
    return _plan(held_accelerations(timing.q, timing.times, fractions), limits)


def _plan(found: Motion, limits: Limits) -> to.Guess:
    knots, n = found.a.shape
    T = min(max(found.duration, limits.duration[0]), limits.duration[1])
    factor = T / found.duration
    v, a = found.v / factor, found.a / factor**2
    before = [np.vstack([np.zeros((1, n)), a])] if np.isfinite(limits.torque_rate).any() else []
    states = np.concatenate([found.q, v, *before, np.full((knots + 1, 1), T)], axis=1)
    us = np.vstack([np.zeros((1, n)), a])
    us[0, 0] = T
    return to.Guess(np.vstack([states[:1], states]), us)


def with_duration_scaled(plan: to.Guess, factor: float, n: int) -> to.Guess:
    """Rescale the duration of a plan for n joints by ``factor``, on the same path."""
    xs, us = plan.xs.copy(), plan.us.copy()
    xs[1:, -1] *= factor
    us[0, 0] *= factor
    xs[1:, n : 2 * n] /= factor
    xs[1:, 2 * n : -1] /= factor**2  # accelerations, if they are states
    us[1:] /= factor**2
    return to.Guess(xs, us)
