"""A human bends to a box and lifts it to the waist: two phases, with another mass in the hands in each.

    minimise   sum_k dt/2 ( |u / u_max|_w^2 + w_a |vdot|^2 + w_b |beyond: joint limits, foot|^2 )
               + 1/2 |hands - box|_W^2 + 1/2 |v|_Wv^2  at the end of the bending  + the same at the end of the lifting
    subject to |u| <= u_max

After M. Kudruss, P. Manns, K. Mombaur 2019 (bending and lifting of an 8-DoF sagittal human, boxes of 0, 5 and 15 kg).  The
hands grasp at rest, so that no velocity jumps.  The centre of pressure, x_p = -M_y / F_z of the ground's force and moment
about the point below the ankle, stays within the foot by a smooth cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.rnea import rnea
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.free_body import FreeBody
from problems.arm_go_to import holding_forces
from problems.contact_terms import lacking
from problems.robots.human import HEEL, TOE, sagittal_human
from problems.task import BackendFactory, Checked, Checks, Integrator, Task, not_negative, position_of, positive

HANDS = "hands"


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """load: of the box [kg]. pick, place: of the hands (x, z) [m] at the end of bending and of lifting, x from the ankle.
    bending, lifting: durations [s]. Weights: torques (as shares of their limits), accelerations, joint limits, foot (centre of
    pressure), hands [1/m^2] and rest, at the ends of the phases, and upright: of legs and trunk at the end, as at the start."""

    load: float = 5.0
    pick: tuple[float, float] = (0.35, 0.25)
    place: tuple[float, float] = (0.35, 1.0)
    bending: float = 1.0
    lifting: float = 1.0
    dt: float = 0.02
    integrator: Integrator = "rk4"
    substeps: int = 1
    torque_weight: float = 1.0
    acceleration_weight: float = 1e-3
    limits_weight: float = 1e2
    foot_weight: float = 10.0
    hands_weight: float = 1e4
    rest_weight: float = 1e2
    upright_weight: float = 10.0

    def checks(self) -> Checks:
        return {
            "load": not_negative(self.load),
            **{key: positive(getattr(self, key)) for key in ("bending", "lifting", "dt")},
            "substeps": (self.substeps >= 1, "at least 1"),
            **{key: not_negative(value) for key, value in vars(self).items() if key.endswith("_weight")},
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """The task of these settings."""
    s = settings
    empty, loaded = sagittal_human(), sagittal_human(s.load)
    phases = []
    for model, duration, load in ((empty, s.bending, 0.0), (loaded, s.lifting, s.load)):
        system = FreeBody(model)
        knots = max(1, round(duration / s.dt))
        dynamics = to.SampledSystem(backend(system), s.integrator, s.substeps)
        phases.append(to.Phase(dynamics, np.full(knots, s.dt), tuple(_running(system, load, s))))
    grasp = _at_rest(FreeBody(loaded), s.pick, s)
    first = np.zeros((phases[1].knots, 1))
    first[0] = 1.0 / s.dt  # a cost of the first knot alone
    phases[1] = to.Phase(
        phases[1].dynamics,
        phases[1].dt,
        (*phases[1].terms, *(term.updated(weight=first * term.weight) for term in grasp)),
    )
    limit = empty.effort_limit
    x0 = np.concatenate([STANDING, np.zeros(empty.nv)])
    upright = np.repeat([s.upright_weight, 0.0], (5, 2 * empty.nv - 5))  # of all joints but the arms'
    place = [*_at_rest(FreeBody(empty), s.place, s), to.state_cost(FreeBody(empty).manifold, x0, upright, "upright")]
    ocp = to.OCP(tuple(phases), x0, tuple(place), u_lower=-limit, u_upper=limit, name="lifting", model=empty)
    return Task(ocp, _guess(ocp, empty, s), HANDS, outcome=lambda x: _outcome(empty, s, x))


def _running(system: FreeBody, load: float, s: Settings) -> list[to.CostTerm]:
    model, manifold = system.model, system.manifold
    names = system.control_names
    effort = to.control_cost(model.nv, 0.0, s.torque_weight / model.effort_limit**2, names=names)
    terms = [effort, _joint_limits(model, manifold, s.limits_weight)]
    if s.acceleration_weight:
        residual = partial(_accelerations, model)
        terms.append(_of_motion("accelerations", residual, system, model.nv, s.acceleration_weight))
    if s.foot_weight:
        residual = partial(_pressure_margins, model, sagittal_human(load, ground_wrench=True))
        terms.append(_of_motion("foot", residual, system, 2, s.foot_weight))
    return terms


def _of_motion(name: str, residual, system: FreeBody, size: int, weight: float) -> to.CostTerm:
    return to.residual_cost(
        name, residual, system.manifold, size, weight, nu=system.nu, control_names=system.control_names
    )


def _joint_limits(model: Model, manifold: Manifold, weight: float) -> to.CostTerm:
    names = tuple(f"{joint} {end}" for end in ("lower", "upper") for joint in model.q_names)
    residual = partial(_limit_margins, model)
    return to.residual_cost("joint limits", residual, manifold, 2 * model.nq, weight, output_names=names)


def _limit_margins(model: Model, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    """How far joints are beyond their limits, smoothly [rad]."""
    lower, upper = model.q_lower.tolist(), model.q_upper.tolist()
    below = [lacking(x[i] - limit) for i, limit in enumerate(lower)]
    return below + [lacking(limit - x[i]) for i, limit in enumerate(upper)]


def _accelerations(model: Model, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
    return _joint_accelerations(FreeBody(model), x, u)


def _joint_accelerations(system: FreeBody, x: Rows, u: Rows) -> Rows:
    return system(x, u, 0.0, {})[system.model.nv :]


def center_of_pressure(model: Model, standing: Model, x: Rows, u: Rows) -> tuple[Scalar, Scalar]:
    """Where the ground's force acts, forward of the ankle [m], and its vertical part [N], from rows x (nx, N), u (nu, N).

    model: bolted to the ground; standing: the same with ``ground_wrench``.
    """
    q, v = x[: model.nq], x[model.nq :]
    a = _joint_accelerations(FreeBody(model), x, u)
    still = [0.0 * x[0]] * 3
    tau = rnea(standing, *(sm.stack([*still, *(part[i] for i in range(model.nv))]) for part in (q, v, a)))
    return -tau[2] / tau[1], tau[1]


def _pressure_margins(
    model: Model, standing: Model, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]
) -> list[Scalar]:
    """How far the centre of pressure is beyond heel and toe, smoothly, as shares of the foot's length."""
    at, _ = center_of_pressure(model, standing, x, u)
    share = (at - HEEL) * (1.0 / (TOE - HEEL))
    return [lacking(share), lacking(1.0 - share)]


def _at_rest(system: FreeBody, at: tuple[float, float], s: Settings) -> list[to.CostTerm]:
    """The hands are there, and nothing moves."""
    goal = np.array([at[0], 0.0, at[1]])
    rest = np.repeat([0.0, s.rest_weight], system.model.nv)
    return [
        to.frame_position_cost(system.model, system.manifold, HANDS, goal, s.hands_weight),
        to.state_cost(system.manifold, np.zeros(system.manifold.nx), rest, "rest"),
    ]


STANDING = np.array([0.05, -0.10, 0.05, 0.0, 0.0, 0.0, -0.2, 0.0])
"""The posture [rad] at the start, a little off the joints' limits."""
CROUCH = np.array([0.45, -1.0, 1.0, 0.4, 0.0, -0.9, -0.1, 0.0])
"""A posture [rad] on the way to the floor."""


def _guess(ocp: to.OCP, model: Model, s: Settings) -> to.Guess:
    """Down to a crouch and up again, held against gravity."""
    share = np.minimum(ocp.times / s.bending, (ocp.times[-1] - ocp.times) / s.lifting).clip(0.0, 1.0)
    q = STANDING + (share * share * (3.0 - 2.0 * share))[:, None] * (CROUCH - STANDING)
    xs = np.concatenate([q, np.gradient(q, ocp.times, axis=0)], axis=1)
    xs[0] = ocp.x0
    limit = model.effort_limit
    return to.quasi_static_guess(ocp, lambda x: np.clip(holding_forces(model, x[:, : model.nq]), -limit, limit), xs)


def _outcome(model: Model, s: Settings, x: Array) -> list[str]:
    hands = position_of(model, HANDS, x[: model.nq])
    away = float(np.hypot(hands[0] - s.place[0], hands[2] - s.place[1]))
    return [
        f"the hands end {100 * away:.2g} cm from where they should",
        f"largest final joint rate {np.abs(x[model.nq :]).max():.2g} rad/s",
    ]
