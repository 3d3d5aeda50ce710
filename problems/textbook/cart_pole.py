"""Swing-up of a pole on a cart with one actuated joint, the cart; the pole hangs at angle pi and is upright at 0.

minimize   sum_k dt/2 ( wu u^2 + |x|_w^2 )  +  1/2 |x_N|_W^2        |u| <= force_limit
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.config.task import BackendFactory, Checks, Integrator, Sampling, Task, missing, not_negative, positive
from ..robots import load_robot

FORCE_JOINT, POLE_TIP = "slider", "tip"


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    """q0: initial position of the cart [m] and angle of the pole [rad]. force_limit: force limit of the motor [N].
    control_weight: weight of the force. state_weight: weight of the running state error. terminal_weight: weight of the
    error of the final state."""

    horizon: int = 150
    dt: float = 0.02
    integrator: Integrator = "rk4"
    q0: tuple[float, float] = (0.0, np.pi)
    force_limit: float = 100.0
    control_weight: float = 1e-3
    state_weight: float = 0.0
    terminal_weight: float = 1e3

    def unbounded(self) -> tuple[str, ...]:
        """See :meth:`trajopt.config.task.Checked.unbounded`."""
        return ("force_limit",)

    def checks(self) -> Checks:
        weights = ("control_weight", "state_weight", "terminal_weight")
        return super().checks() | {
            "force_limit": positive(self.force_limit),
            **{key: not_negative(getattr(self, key)) for key in weights},
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings."""
    s = settings
    model = load_robot("cart_pole")
    system = FreeBody(model, actuated=[FORCE_JOINT])
    upright = np.zeros(model.nq + model.nv)
    running = [to.control_cost(1, weight=s.control_weight)]
    if s.state_weight:
        running.append(to.state_cost(system.manifold, upright, s.state_weight))
    ocp = to.OCP.single_phase(
        s.sampled(backend(system)),
        np.concatenate([s.q0, np.zeros(model.nv)]),
        s.horizon,
        s.dt,
        running,
        [to.state_cost(system.manifold, upright, s.terminal_weight, "final state")],
        u_lower=[-s.force_limit],
        u_upper=[s.force_limit],
        name="cart_pole",
        model=model,
    )
    return Task(ocp, to.constant_guess(ocp), POLE_TIP, outcome=_outcome, missed=missing(system.manifold, upright))


def _outcome(x: Array) -> list[str]:
    return [f"the cart ends at {x[0]:.2g} m, the pole {x[1]:.2g} rad from upright, at {x[3]:.2g} rad/s"]
