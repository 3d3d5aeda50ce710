"""A human bends to a box and lifts it to the waist: two phases of free duration with different masses in the hands.

    minimize   sum_i  T_i int_0^1 1/2 ( |u / u_max|^2_w + w_a |vdot|^2 + w_t ) dtau  +  1/2 |q_N - standing|_W^2
    subject to dx/dtau = T_i f_i(x, u),   T_min <= T_i <= T_max,   |u| <= u_max,   joint limits,
               the ground reaction force acts between heel and toe and does not pull,
               hands at the box and at rest between the phases,   hands at the waist and at rest at the end

After M. Kudruss, P. Manns, K. Mombaur 2019 (bending and lifting of an 8-DoF sagittal human, boxes of 0, 5 and 15 kg).  Each
phase has a grid in its scaled time tau (:mod:`~dynamics_backends.stretched_map`); an instantaneous first stage chooses T_1 and T_2.
The hands grasp at rest, so no velocity jumps.  With vertical ground force F_z and moment M_y about the
point below the ankle, the center of pressure x_p = -M_y / F_z lies within the foot and F_z >= 0 if (x_p - heel) F_z >= 0 and
(toe - x_p) F_z >= 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.batched import frame_jacobian
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.stretched_map import Durations, StretchedMap, time_scaled
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.config.task import (
    MAX_KNOTS,
    BackendFactory,
    Checked,
    Checks,
    Integrator,
    Task,
    not_negative,
    position_of,
    substeps_check,
)
from trajopt.problem.impact_stage import ImpactStage
from ..robots.human import HEEL, TOE, sagittal_human
from .arm import holding_forces

HANDS = "hands"
PHASES = ("bending", "lifting")
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """load: mass of the box [kg]. pick: position of the hands (x, z) at the end of bending, x from the ankle [m]. place:
    position of the hands at the end of lifting [m]. bending, lifting: shortest and longest duration of the phase; equal
    values fix it [s]. knots: time steps per phase. foot_margin: distance of the center of pressure from heel and toe [m].
    substeps: integrator steps per time step; the joint damping has modes of 190 / s, and explicit RK4 is stable up to 14 ms.
    integrator: integration scheme. torque_weight: weight of the torques as fractions of their limits. acceleration_weight:
    weight of the joint accelerations. time_weight: weight of the durations. upright_weight: weight of the final posture of
    legs and trunk, relative to the initial one."""

    load: float = 5.0
    pick: tuple[float, float] = (0.35, 0.25)
    place: tuple[float, float] = (0.35, 1.0)
    bending: Range = (0.5, 1.5)
    lifting: Range = (0.5, 1.5)
    knots: int = 25
    integrator: Integrator = "rk4"
    substeps: int = 6
    foot_margin: float = 0.0
    torque_weight: float = 1.0
    acceleration_weight: float = 1e-3
    time_weight: float = 0.0
    upright_weight: float = 10.0

    def checks(self) -> Checks:
        ranges = {key: (getattr(self, key), "a shortest and a longest duration above 0") for key in PHASES}
        return {
            "load": not_negative(self.load),
            **{key: (0 < low <= high < np.inf, expected) for key, ((low, high), expected) in ranges.items()},
            "knots": (2 <= self.knots <= MAX_KNOTS, f"at least 2 and at most {MAX_KNOTS}"),
            "substeps": substeps_check(self.substeps, self.knots),
            "foot_margin": (
                0 <= self.foot_margin < 0.5 * (TOE - HEEL),
                f"from 0 to less than {0.5 * (TOE - HEEL):g} m",
            ),
            **{key: not_negative(value) for key, value in vars(self).items() if key.endswith("_weight")},
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings."""
    s = settings
    empty = sagittal_human()
    bending, lifting = (_LiftingPhase.create(i, load, s) for i, load in enumerate((0.0, s.load)))
    manifold = bending.system.manifold
    choice = to.Phase(ImpactStage(backend(Durations(manifold, len(PHASES)))), np.zeros(1))
    grasp = [_at_first_knot(constraint, s.knots) for constraint in _at_rest(empty, manifold, s.pick)]
    phases = (choice, bending.phase(backend), lifting.phase(backend, grasp))
    limit, middle = empty.effort_limit, np.mean([s.bending, s.lifting], axis=1)
    upper = np.tile(limit, (1 + 2 * s.knots, 1))
    lower = -upper
    lower[0, :2], upper[0, :2] = np.transpose([s.bending, s.lifting])
    x0 = np.concatenate([STANDING, np.zeros(empty.nv), middle])
    upright = np.repeat([s.upright_weight, 0.0], (5, len(x0) - 5))  # all joints except those of the arms
    ocp = to.OCP(
        phases,
        x0,
        (to.state_cost(manifold, x0, upright, "upright"),),
        u_lower=lower,
        u_upper=upper,
        name="lifting",
        model=empty,
        terminal_constraints=(*_at_rest(empty, manifold, s.place), _joint_limits(empty, manifold)),
    )
    outcome = partial(_outcome, empty, s)
    return Task(ocp, _guess(ocp, empty, s, middle), HANDS, outcome=outcome, clock=partial(_clock, s))


class _LiftingPhase(NamedTuple):
    """System, cost and constraints of the bending or the lifting phase."""

    system: StretchedMap
    settings: Settings
    terms: list[to.CostTerm]
    limits: list[to.Constraint]

    @classmethod
    def create(cls, index: int, load: float, s: Settings) -> _LiftingPhase:
        model = sagittal_human(load)
        system = time_scaled(FreeBody(model), [f"duration of {name}" for name in PHASES], index)
        limits = [_on_the_foot(model, load, system, s.foot_margin), _joint_limits(model, system.manifold)]
        return cls(system, s, _running(model, system, s), limits)

    def phase(self, backend: BackendFactory, more: Sequence[to.Constraint] = ()) -> to.Phase:
        """Return the phase. more: further constraints."""
        s = self.settings
        dynamics = to.SampledSystem(backend(self.system), s.integrator, s.substeps)
        dt = np.full(s.knots, 1.0 / s.knots)
        return to.Phase(dynamics, dt, tuple(self.terms), constraints=(*self.limits, *more))


# -- cost ----------------------------------------------------------------------------------------------------------------


def _running(model: Model, system: StretchedMap, s: Settings) -> list[to.CostTerm]:
    effort, acceleration = s.torque_weight / model.effort_limit**2, s.acceleration_weight
    terms = [_in_time("torques", _torques, system, model, effort)]
    if acceleration:
        terms.append(
            _in_time("accelerations", partial(_accelerations, model), system, model, np.full(model.nv, acceleration))
        )
    if s.time_weight:
        terms.append(_in_time("time", _unit, system, model, np.array([s.time_weight])))
    return terms


def _in_time(name: str, rate: Callable, system: StretchedMap, model: Model, weight: Array) -> to.CostTerm:
    """Return the cost term for the time integral of 1/2 |rate|^2, which is T times the integral over tau."""
    residual = partial(_times_root_of_duration, system.place, rate)
    names = model.dof_names if len(weight) == model.nv else (name,)
    return to.residual_cost(
        name, residual, system.manifold, len(weight), weight,
        nu=system.nu, output_names=names, control_names=system.control_names,
    )  # fmt: skip


def _times_root_of_duration(
    place: int, rate: Callable, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]
) -> list[Scalar]:
    root = sm.sqrt(x[place])
    return [root * r for r in rate(x, u)]


def _torques(x: Rows, u: Rows) -> list[Scalar]:
    return [u[i] for i in range(u.shape[0])]


def _unit(x: Rows, u: Rows) -> list[Scalar]:
    return [1.0 + 0.0 * x[0]]


def _accelerations(model: Model, x: Rows, u: Rows) -> list[Scalar]:
    a = FreeBody(model)(x[: 2 * model.nv], u, 0.0, {})
    return [a[model.nv + i] for i in range(model.nv)]


# -- constraints ---------------------------------------------------------------------------------------------------------


def _joint_limits(model: Model, manifold: Manifold) -> to.Constraint:
    free = np.full(manifold.nx - model.nq, np.inf)
    return to.state_bounds(manifold, np.r_[model.q_lower, -free], np.r_[model.q_upper, free], "joint limits")


def _at_rest(model: Model, manifold: Manifold, at: tuple[float, float]) -> list[to.Constraint]:
    """Return the constraints that the hands are at a place and the human is at rest."""
    bound = np.full(manifold.nx, np.inf)
    bound[model.nq : 2 * model.nv] = 0.0
    reach = partial(_hands, model, model.frame_id(HANDS))
    return [
        to.residual_constraint(HANDS, reach, manifold, 2, at, at, output_names=("x", "z")),
        to.state_bounds(manifold, -bound, bound, "rest"),
    ]


def _at_first_knot(constraint: to.Constraint, knots: int) -> to.Constraint:
    """Restrict a constraint to the first knot of a phase."""
    free = np.full((knots, constraint.residual.n_out), np.inf)
    lower, upper = -free, free.copy()
    lower[0], upper[0] = constraint.lower, constraint.upper
    return constraint.updated(lower=lower, upper=upper)


def _hands(model: Model, frame: int, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    """Return the position of the hands in the sagittal plane [m]."""
    at = kinematics.frame_position(model, x[: model.nq], frame)
    return [at[0], at[2]]


def center_of_pressure(model: Model, standing: Model, x: Rows, u: Rows) -> tuple[Scalar, Scalar]:
    """Return center of pressure, forward of the ankle [m], and vertical ground force [N], from rows x (nx, N), u (nu, N).

    model: human fixed to the ground; standing: the same with ``ground_wrench``.
    """
    q, v, a = x[: model.nq], x[model.nq : 2 * model.nv], _accelerations(model, x, u)
    still = [0.0 * x[0]] * 3
    tau = rnea(standing, *(sm.stack([*still, *(part[i] for i in range(model.nv))]) for part in (q, v, a)))
    return -tau[2] / tau[1], tau[1]


def _on_the_foot(model: Model, load: float, system: StretchedMap, margin: float) -> to.Constraint:
    """Return the constraint on the moments of the ground force about heel and toe, relative to weight times foot length."""
    standing = sagittal_human(load, ground_wrench=True)
    scale = standing.total_mass * float(np.linalg.norm(standing.gravity)) * (TOE - HEEL)
    residual = partial(_levers, model, standing, (HEEL + margin, TOE - margin), scale)
    return to.residual_constraint(
        "ground's force", residual, system.manifold, 2, 0.0, np.inf,
        nu=system.nu, output_names=("before the heel", "behind the toe"), control_names=system.control_names,
    )  # fmt: skip


def _levers(
    model: Model, standing: Model, ends: Range, scale: float, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]
) -> list[Scalar]:
    at, force = center_of_pressure(model, standing, x, u)
    return [(at - ends[0]) * force / scale, (ends[1] - at) * force / scale]


# -- guess and reports ---------------------------------------------------------------------------------------------------

STANDING = np.array([0.05, -0.10, 0.05, 0.0, 0.0, 0.0, -0.2, 0.0])
"""Initial posture [rad], slightly inside the joint limits."""
CROUCH = np.array([0.45, -1.0, 1.0, 0.4, 0.0, -0.9, -0.1, 0.0])
"""Posture [rad] close to those that reach the floor."""
INVERSE_STEPS, INVERSE_DAMPING = 20, 1e-4
"""Number of steps and damping [m^2] of the inverse kinematics for the guess."""


def _guess(ocp: to.OCP, model: Model, s: Settings, durations: Array) -> to.Guess:
    """Return a smooth motion from standing to a posture at the box and to one at the waist, with gravity compensation."""
    postures = [STANDING, _reaching(model, s.pick, CROUCH), _reaching(model, s.place, STANDING)]
    tau = ocp.times
    first = tau <= 1.0
    fraction = np.where(first, tau, tau - 1.0)[:, None]
    start, end = (np.where(first[:, None], postures[i], postures[i + 1]) for i in (0, 1))
    q = start + fraction**2 * (3.0 - 2.0 * fraction) * (end - start)
    v = 6.0 * fraction * (1.0 - fraction) * (end - start) / np.where(first, *durations)[:, None]
    xs = np.concatenate([q, v, np.tile(durations, (len(q), 1))], axis=1)
    limit = model.effort_limit
    guess = to.quasi_static_guess(ocp, lambda x: np.clip(holding_forces(model, x[:, : model.nq]), -limit, limit), xs)
    guess.us[0] = np.r_[durations, np.zeros(ocp.nu - len(durations))]
    return guess


def _reaching(model: Model, at: Range, near: Array) -> Array:
    """Return a posture (nq,) close to ``near`` with the hands at a place, by damped least squares within the joint limits."""
    q = near.copy()
    for _ in range(INVERSE_STEPS):
        J = frame_jacobian(model, q, HANDS)[[0, 2]]
        error = np.array(at) - position_of(model, HANDS, q)[[0, 2]]
        q = q + J.T @ np.linalg.solve(J @ J.T + INVERSE_DAMPING * np.eye(2), error)
        q = np.clip(q, model.q_lower, model.q_upper)
    return q


def _clock(s: Settings, xs: Array) -> Array:
    """Return the time [s] of each state; the stage that chooses the durations is at the start time."""
    tau = np.r_[0.0, np.linspace(0.0, 2.0, 2 * s.knots + 1)]
    bending, lifting = xs[-1, -2:]
    return bending * np.minimum(tau, 1.0) + lifting * np.maximum(tau - 1.0, 0.0)


def _outcome(model: Model, s: Settings, x: Array) -> list[str]:
    hands = position_of(model, HANDS, x[: model.nq])
    away = float(np.hypot(hands[0] - s.place[0], hands[2] - s.place[1]))
    return [
        f"bending takes {x[-2]:.3f} s, lifting {s.load:g} kg {x[-1]:.3f} s",
        f"the hands end {100 * away:.2g} cm from their target",
        f"largest final joint rate {np.abs(x[model.nq : 2 * model.nv]).max():.2g} rad/s",
    ]
