"""Swing-up of a double pendulum with weak motors, from hanging at (0, 0) to upright at (pi, 0).

minimize   sum_k dt/2 wu |u|^2  +  1/2 |x_N - x_goal|_W^2        |u_i| <= torque_limits_i
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.config.task import BackendFactory, Checks, Integrator, Sampling, Task, missing, not_negative
from ..robots import load_robot

TIP = "tip"


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    """q0: initial angles of shoulder and elbow [rad]. goal_q: goal angles of shoulder and elbow [rad]. torque_limits: torque
    limits of the motors [N m]. control_weight: weight of the torques. terminal_weight: weight of the error of the final
    state."""

    horizon: int = 150
    dt: float = 0.02
    integrator: Integrator = "rk4"
    q0: tuple[float, float] = (0.0, 0.0)
    goal_q: tuple[float, float] = (np.pi, 0.0)
    torque_limits: tuple[float, float] = (15.0, 10.0)
    control_weight: float = 1e-2
    terminal_weight: float = 1e3

    def unbounded(self) -> tuple[str, ...]:
        """See :meth:`trajopt.config.task.Checked.unbounded`."""
        return ("torque_limits",)

    def checks(self) -> Checks:
        return super().checks() | {
            "torque_limits": (min(self.torque_limits) > 0, "two positive numbers"),
            "control_weight": not_negative(self.control_weight),
            "terminal_weight": not_negative(self.terminal_weight),
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings."""
    s = settings
    model = load_robot("double_pendulum")
    system = FreeBody(model)
    still = np.zeros(model.nv)
    limits = np.array(s.torque_limits)
    x_goal = np.concatenate([s.goal_q, still])
    ocp = to.OCP.single_phase(
        s.sampled(backend(system)),
        np.concatenate([s.q0, still]),
        s.horizon,
        s.dt,
        [to.control_cost(model.nv, weight=s.control_weight)],
        [to.state_cost(system.manifold, x_goal, s.terminal_weight, "final state")],
        u_lower=-limits,
        u_upper=limits,
        name="double_pendulum",
        model=model,
    )
    missed = missing(system.manifold, x_goal)
    return Task(ocp, to.constant_guess(ocp), TIP, outcome=partial(_outcome, x_goal), missed=missed)


def _outcome(x_goal: Array, x: Array) -> list[str]:
    error = np.abs(x - x_goal)
    return [f"the joints end within {error[:2].max():.2g} rad and {error[2:].max():.2g} rad/s of the goal"]
