"""Pendulum of many links with actuated hinges, which swings up from hanging: one chain, or several.

    minimize   sum_k dt/2 ( wu |u|^2 + wv |v|^2 )  +  1/2 |x_N - upright|_W^2

The links are those of the multi-pendulum of Kudruss et al. 2019: hinges 1 m apart, unit mass and inertia at the hinge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.config.task import BackendFactory, Checks, Integrator, Sampling, Task, missing, not_negative
from ..robots.textbook import multi_pendulum

MAX_BODIES = 1000
"""Maximum number of links; the derivatives of longer pendulums take minutes."""


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    """bodies: number of links, one degree of freedom each. branches: number of chains. spacing: distance between chains [m].
    swing: initial angle of the first hinge of each chain, pi hangs downward [rad]. control_weight: weight of the torques.
    velocity_weight: weight of the rates. terminal_weight: weight of the error of the final state."""

    horizon: int = 100
    dt: float = 0.02
    integrator: Integrator = "rk4"
    bodies: int = 10
    branches: int = 1
    spacing: float = 0.0
    swing: float = np.pi
    control_weight: float = 1e-4
    velocity_weight: float = 0.0
    terminal_weight: float = 1e4

    def checks(self) -> Checks:
        weights = ("control_weight", "velocity_weight", "terminal_weight", "spacing")
        return super().checks() | {
            "bodies": (1 <= self.bodies <= MAX_BODIES, f"from 1 to {MAX_BODIES}"),
            "branches": (1 <= self.branches <= self.bodies, "from 1 to the number of bodies"),
            **{key: not_negative(getattr(self, key)) for key in weights},
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings."""
    s = settings
    model = multi_pendulum(s.bodies, s.branches, s.spacing)
    system = FreeBody(model)
    upright, x0 = np.zeros(2 * model.nv), np.zeros(2 * model.nv)
    roots = np.flatnonzero(model.parent < 0)
    x0[roots] = s.swing
    running = [to.control_cost(model.nv, weight=s.control_weight, names=system.control_names)]
    if s.velocity_weight:
        rates = np.repeat([0.0, s.velocity_weight], model.nv)
        running.append(to.state_cost(system.manifold, upright, rates, "velocity"))
    ocp = to.OCP.single_phase(
        s.sampled(backend(system)),
        x0,
        s.horizon,
        s.dt,
        running,
        [to.state_cost(system.manifold, upright, s.terminal_weight, "final state")],
        name="multi_pendulum",
        model=model,
    )
    missed = missing(system.manifold, upright)
    return Task(ocp, to.constant_guess(ocp), "tip1", outcome=partial(_outcome, model), missed=missed)


def _outcome(model: Model, x: Array) -> list[str]:
    angle, rate = np.abs(x[: model.nv]), np.abs(x[model.nv :])
    return [f"the hinges end within {angle.max():.2g} rad and {rate.max():.2g} rad/s of upright rest"]
