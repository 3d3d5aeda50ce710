"""Four-bar linkage, a closed loop: a motor turns the crank by a given angle, from rest to rest.

    minimize   sum_k dt/2 wu u^2  +  1/2 |crank_N - goal|_W^2  +  1/2 |rates_N|_Wv^2

A constraint (PointLoop) connects the coupler's end to the rocker's: three coordinates, one degree of freedom.  Its force
is the force in the pin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.constraints.constraint_kinds import PointLoop
from dynamics_backends.systems.constraints.holonomic import Holonomic
from trajopt.config.task import BackendFactory, Checks, Integrator, Sampling, Task, missing, not_negative, position_of
from ..robots.textbook import four_bar, four_bar_angles

LOOP = "pin"


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    """ground, crank, coupler, rocker: lengths of the links [m]. crank_angle: initial crank angle, 0 is upward [rad]. turn:
    rotation of the crank [rad]. gains: Baumgarte gains (kp, kd) of the loop. control_weight: weight of the torque.
    terminal_weight: weight of the final crank angle. velocity_weight: weight of the final rates."""

    horizon: int = 100
    dt: float = 0.01
    integrator: Integrator = "rk4"
    ground: float = 0.5
    crank: float = 0.2
    coupler: float = 0.45
    rocker: float = 0.4
    crank_angle: float = -1.57
    turn: float = 6.283185307179586
    gains: tuple[float, float] = (100.0, 20.0)
    control_weight: float = 1e-2
    terminal_weight: float = 1e3
    velocity_weight: float = 1e2

    def checks(self) -> Checks:
        links = ("ground", "crank", "coupler", "rocker")
        others = ("control_weight", "terminal_weight", "velocity_weight", "gains")
        return (
            super().checks()
            | {key: (getattr(self, key) > 0, "a positive length") for key in links}
            | {key: not_negative(getattr(self, key)) for key in others}
        )

    @property
    def links(self) -> tuple[float, float, float, float]:
        """Lengths of the links [m]."""
        return self.ground, self.crank, self.coupler, self.rocker


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings. Raises ValueError if the linkage does not close during the motion."""
    s = settings
    model = four_bar(*s.links)
    q0 = four_bar_angles(*s.links, s.crank_angle)
    loop = PointLoop("coupler_end", "rocker_end", gains=s.gains, name=LOOP)
    system = Holonomic(model, [loop], actuated=["crank_hinge"])
    x0, goal = np.r_[q0, 0.0, 0.0, 0.0], np.r_[q0, 0.0, 0.0, 0.0]
    goal[0] += s.turn
    weight = np.r_[s.terminal_weight, 0.0, 0.0, np.full(3, s.velocity_weight)]
    ocp = to.OCP.single_phase(
        s.sampled(backend(system)),
        x0,
        s.horizon,
        s.dt,
        [to.control_cost(1, weight=s.control_weight, names=system.control_names)],
        [to.state_cost(system.manifold, goal, weight, "final state")],
        name="four_bar",
        model=model,
    )
    missed = missing(system.manifold, goal, ["q[crank_hinge]"])
    return Task(ocp, _turning(ocp, s), "coupler_end", outcome=partial(_outcome, model, goal), missed=missed)


def _turning(ocp: to.OCP, s: Settings) -> to.Guess:
    """Return the guess: the closed linkage while its crank turns smoothly from rest to rest, with zero torque."""
    fraction = ocp.times / ocp.times[-1]
    angles = s.crank_angle + s.turn * fraction**2 * (3.0 - 2.0 * fraction)
    q = np.unwrap([four_bar_angles(*s.links, angle) for angle in angles], axis=0)
    v = np.gradient(q, ocp.times, axis=0) if ocp.horizon > 1 else np.zeros_like(q)
    v[0] = 0.0
    return to.Guess(np.concatenate([q, v], axis=1), np.zeros((ocp.horizon, ocp.nu)))


def loop_error(model: Model, q: Array) -> Array:
    """Return the distance [m] between coupler end and rocker end, at q (nq,) or (N, nq)."""
    return np.asarray(
        np.linalg.norm(position_of(model, "coupler_end", q) - position_of(model, "rocker_end", q), axis=-1)
    )


def _outcome(model: Model, goal: Array, x: Array) -> list[str]:
    return [
        f"the crank ends {abs(x[0] - goal[0]):.2g} rad from its goal, at {abs(x[3]):.2g} rad/s",
        f"the loop is open by {loop_error(model, x[:3]):.1e} m",
    ]
