"""Cart-pendulum of Kudruss et al. 2019, in minimal coordinates, or as free bodies with rail constraints.

    minimize   sum_k dt/2 ( wu u^2 + |x|_w^2 )  +  1/2 |x_N|_W^2        |u| <= force_limit

u pushes the cart; x = 0 is the upright rest.  With constraints, the cart can also rise and pitch, and q_z = q_pitch = 0 are
holonomic constraints: the motion is the same, and the rail forces are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import JointRelation
from dynamics_backends.systems.constraints.holonomic import Holonomic
from trajopt.config.task import BackendFactory, Checks, Integrator, Sampling, Task, missing, not_negative, positive
from ..robots.textbook import cart_pendulum

GAINS = (100.0, 20.0)


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    """constrained: model the system as free bodies with constraints. cart_mass: mass of the cart, 10 or 100 in the paper
    [kg]. q0: initial position of the cart [m] and angle of the pendulum [rad]. force_limit: force limit of the motor [N].
    control_weight: weight of the force. state_weight: weight of the running state error. terminal_weight: weight of the
    error of the final state."""

    horizon: int = 100
    dt: float = 0.02
    integrator: Integrator = "rk4"
    constrained: bool = False
    cart_mass: float = 10.0
    q0: tuple[float, float] = (0.0, np.pi)
    force_limit: float = 200.0
    control_weight: float = 1e-2
    state_weight: float = 0.0
    terminal_weight: float = 1e4

    def unbounded(self) -> tuple[str, ...]:
        """See :meth:`trajopt.config.task.Checked.unbounded`."""
        return ("force_limit",)

    def checks(self) -> Checks:
        weights = ("control_weight", "state_weight", "terminal_weight")
        return super().checks() | {
            "cart_mass": positive(self.cart_mass),
            "force_limit": positive(self.force_limit),
            **{key: not_negative(getattr(self, key)) for key in weights},
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings."""
    s = settings
    model = cart_pendulum(s.cart_mass, s.constrained)
    system = _system(s)
    x0 = np.zeros(2 * model.nv)
    x0[[0, model.nv - 1]] = s.q0
    upright = np.zeros(2 * model.nv)
    both = np.arange(2 * model.nv) % model.nv
    chosen = np.isin(both, (0, model.nv - 1)).astype(float)  # constraints determine the others
    running = [to.control_cost(1, weight=s.control_weight, names=system.control_names)]
    if s.state_weight:
        running.append(to.state_cost(system.manifold, upright, s.state_weight * chosen))
    ocp = to.OCP.single_phase(
        s.sampled(backend(system)),
        x0,
        s.horizon,
        s.dt,
        running,
        [to.state_cost(system.manifold, upright, s.terminal_weight * chosen, "final state")],
        u_lower=[-s.force_limit],
        u_upper=[s.force_limit],
        name="cart_pendulum",
        model=model,
    )
    ends = [f"q[{name}]" for name, own in zip(model.dof_names, chosen[: model.nv], strict=True) if own]
    missed = missing(system.manifold, upright, ends)
    return Task(ocp, to.constant_guess(ocp), "tip", outcome=partial(_outcome, s.constrained), missed=missed)


def _outcome(constrained: bool, x: Array) -> list[str]:
    angle = x[len(x) // 2 - 1]
    sentences = [f"the cart ends at {x[0]:.2g} m, the pendulum {angle:.2g} rad from upright, at {x[-1]:.2g} rad/s"]
    if constrained:
        sentences.append(f"the cart is {abs(x[1]):.1e} m off its rail and pitched by {abs(x[2]):.1e} rad")
    return sentences


def _system(s: Settings) -> FreeBody | Holonomic:
    model = cart_pendulum(s.cart_mass, s.constrained)
    if not s.constrained:
        return FreeBody(model, actuated=["x"])
    rail = [
        JointRelation(joint, "x", 0.0, gains=GAINS, name=name) for joint, name in (("z", "rail"), ("pitch", "level"))
    ]
    return Holonomic(model, rail, actuated=["x"])
