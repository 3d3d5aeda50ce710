"""Time steps of MuJoCo (pip install mujoco) as a discrete map, with mjd_transitionFD, in the problem "mujoco_swing_up"."""

from dataclasses import dataclass

import mujoco
import numpy as np

import trajopt as to

CART_POLE = """<mujoco><option timestep="0.002"/><worldbody><body>
<joint name="cart" type="slide" axis="1 0 0"/><geom type="box" size=".1 .1 .1" mass="1" contype="0"/><body>
<joint name="pole" axis="0 1 0" damping="0.01"/><geom type="capsule" fromto="0 0 0 0 0 .6" size=".02" mass=".2" contype="0"/>
</body></body></worldbody><actuator><motor name="force" joint="cart"/></actuator></mujoco>"""


class MujocoStep:
    """x_next = F(x, u) of a MuJoCo model without quaternions: a :class:`trajopt.DiscreteMap`; dt is a multiple of its time step."""

    takes_time, sampling, contract = True, None, None  # no system to compile, no second derivatives

    def __init__(self, model):
        self.model, self.data = model, mujoco.MjData(model)
        names = [model.joint(i).name for i in range(model.njnt)]
        self.manifold = to.Manifold.vector(2 * model.nv, (*(f"q[{n}]" for n in names), *(f"v[{n}]" for n in names)))
        self.nu, self.control_names = model.nu, tuple(f"u[{model.actuator(i).name}]" for i in range(model.nu))

    def step(self, x, u, t, dt, p=None):
        """x_next (N, nx)."""
        return np.array([self._step(*given)[0] for given in zip(x, u, np.broadcast_to(dt, len(x)), strict=True)])

    def linearize(self, x, u, t, dt, p=None):
        """x_next (N, nx), A (N, nx, nx), B (N, nx, nu)."""
        found = [self._step(*given, True) for given in zip(x, u, np.broadcast_to(dt, len(x)), strict=True)]
        return to.LinearizedStep(*map(np.array, zip(*found, strict=True)))

    def _step(self, x, u, dt, derivatives=False):
        model, data, n = self.model, self.data, self.manifold.nx
        A, B, a, b = np.eye(n), np.zeros((n, self.nu)), np.zeros((n, n)), np.zeros((n, self.nu))
        data.qpos[:], data.qvel[:], data.ctrl[:] = x[: n // 2], x[n // 2 :], u
        for _ in range(round(float(dt) / model.opt.timestep)):
            if derivatives:
                mujoco.mjd_transitionFD(model, data, 1e-6, True, a, b, None, None)
                A, B = a @ A, a @ B + b
            mujoco.mj_step(model, data)
        return np.concatenate([data.qpos, data.qvel]), A, B


@dataclass(frozen=True, kw_only=True)
class Settings(to.Sampling):
    """A pole swings up on a cart in MuJoCo. control_weight: weight of the force [1/N^2]."""

    horizon: int = 75
    dt: float = 0.02
    control_weight: float = 1e-2


def build(settings, backend):
    """The pole hangs at pi and ends upright, at rest; the backend of the configuration is not asked."""
    step = MujocoStep(mujoco.MjModel.from_xml_string(CART_POLE))
    costs, goal = [to.control_cost(1, weight=settings.control_weight)], to.state_cost(step.manifold, np.zeros(4), 1e3)
    ocp = to.OCP.single_phase(step, [0.0, np.pi, 0.0, 0.0], settings.horizon, settings.dt, costs, [goal])
    return to.Task(ocp, to.constant_guess(ocp))
