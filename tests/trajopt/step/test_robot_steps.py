"""Time steps of robots in the package's library: those of Pinocchio, slopes by differences for each contact law and scheme."""

import numpy as np
import pytest
from contact_cases import FEET, hyq, standing_states
from rigid_body_cases import twin

from dynamics_backends.registry import make_backend
from dynamics_backends.systems.contact.contact_law import ContactLaw
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.ground_contact import Plane
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley
from dynamics_backends.systems.contact.soft_contact import SoftContact
from trajopt.problem.ocp import OCP, LinearizedStep
from trajopt.stage.engine import StageOperations, stages_of
from trajopt.stage.stages import Knots
from trajopt.step.integrators import SCHEMES
from trajopt.step.sensitivities import SampledSystem

LAWS = {"free": SoftContactLaw(), "friction": SoftContactLaw(friction=0.7), "hunt_crossley": HuntCrossley()}
SLOPE = Plane(-0.03, (0.02, -0.04, 1.0))


class LibraryStep:
    """Time steps of dt [s] by the stages of the library."""

    def __init__(self, system, dt: float, scheme: str = "rk4", substeps: int = 2) -> None:
        self.step_of = SampledSystem(make_backend(system, "analytic", engine="compiled"), scheme, substeps)
        self.dt = dt

    def linearize(self, x, u) -> LinearizedStep:
        ends = self.step(x, u)
        found = self._first(x, u, ends)
        return LinearizedStep(ends, found.A, found.B)

    def step(self, x, u):
        return self.step_of.manifold.integrate(x.T, self._first(x, u, x).values.d.T).T

    def _first(self, x, u, ends):
        """Derivatives of the defects F(x, u) (-) ends."""
        ocp = OCP.single_phase(self.step_of, x[0], len(x), self.dt)
        return stages_of(ocp, StageOperations(), "compiled")[0].first(Knots(x, u, ends))


def hyq_on_ground(law: ContactLaw) -> SoftContact:
    """HyQ on a slope with dampers, springs and friction in its joints."""
    model = hyq()
    joints = np.where(model.actuated, 1.0, 0.0)
    model = model.replace(damping=0.4 * joints, stiffness=3.0 * joints, friction=0.2 * joints)
    return SoftContact(model, FEET, ground=SLOPE, law=law, friction_velocity=0.1)


def points(system: SoftContact, N: int):
    """States near the ground, and controls."""
    return standing_states(system.model, FEET, 0, N), np.random.default_rng(0).normal(size=(N, system.nu))


def published_force(height: float, velocity: np.ndarray) -> np.ndarray:
    """The law of Neunert et al. with HyQ's numbers."""
    spring = np.array([0.0, 0.0, 5000.0 * np.exp(-100.0 * (height + 0.02))])
    return spring - 1000.0 / (1.0 + np.exp(100.0 * height)) * velocity


def rates(t, q, v, u):
    """d (q, v) / dt by Pinocchio, the quaternion's by its own kinematics."""
    import pinocchio as pin

    pin.forwardKinematics(t.pin_model, t.data, q, v)
    pin.computeJointJacobians(t.pin_model, t.data, q)
    pin.updateFramePlacements(t.pin_model, t.data)
    tau = t.v(np.concatenate([np.zeros(6), u]))
    for name in FEET:
        frame, world = t.pin_model.getFrameId(name), pin.LOCAL_WORLD_ALIGNED
        f = published_force(
            t.data.oMf[frame].translation[2], pin.getFrameVelocity(t.pin_model, t.data, frame, world).linear
        )
        tau = tau + pin.getFrameJacobian(t.pin_model, t.data, frame, world)[:3].T @ f
    a = pin.aba(t.pin_model, t.data, q, v, tau)
    attitude = pin.Quaternion(*(q[i] for i in (6, 3, 4, 5)))
    turned = (attitude * pin.Quaternion(0.0, *v[3:6])).coeffs()
    return np.concatenate([attitude.toRotationMatrix() @ v[:3], 0.5 * turned, v[6:]]), a


def flow(t, x, u, dt: float, pieces: int):
    """Kutta's method in the coordinates of Pinocchio, the quaternion normalized after each piece."""
    nq, h = t.model.nq, dt / pieces
    q, v = t.q(x[:nq]), t.v(x[nq:])
    for _ in range(pieces):
        slopes = []
        for share in (0.0, 0.5, 0.5, 1.0):
            before = slopes[-1] if slopes else (0.0, 0.0)
            slopes.append(rates(t, q + share * h * before[0], v + share * h * before[1], u))
        q, v = (
            y + h / 6.0 * sum(w * s[i] for w, s in zip((1, 2, 2, 1), slopes, strict=True)) for i, y in enumerate((q, v))
        )
        q[3:7] /= np.linalg.norm(q[3:7])
    return q, v


def test_steps_are_those_of_pinocchio():
    pytest.importorskip("pinocchio")
    t, dt = twin("hyq"), 1e-4
    system = SoftContact(t.model, FEET, damping=False)
    x, u = points(system, N=3)
    ends = LibraryStep(system, dt, "rk4", 4).step(x, u)
    for start, control, end in zip(x, u, ends, strict=True):
        q, v = flow(t, start, control, dt, 8)
        found = t.q(end[: t.model.nq]), t.v(end[t.model.nq :])
        sign = np.sign(found[0][3:7] @ q[3:7])
        np.testing.assert_allclose(np.r_[found[0][:3], sign * found[0][3:7], found[0][7:]], q, atol=1e-8)
        np.testing.assert_allclose(found[1], v, atol=1e-5 * np.abs(v).max())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("law", LAWS)
def test_slopes_by_differences(law, scheme):
    system, dt, h = hyq_on_ground(LAWS[law]), 2e-4, 1e-6
    own, manifold = LibraryStep(system, dt, scheme), system.manifold
    x, u = points(system, N=2)
    found, n = own.linearize(x, u), manifold.ndx
    ends = found.x_next
    slopes = []
    for i in range(n + system.nu):
        moves = np.zeros((2, n + system.nu, len(x)))
        moves[0, i], moves[1, i] = h, -h
        there = [own.step(manifold.integrate(x.T, d[:n]).T, u + d[n:].T).T for d in moves]
        away = [manifold.difference(ends.T, end) for end in there]
        slopes.append((away[0] - away[1]).T / (2.0 * h))
    expected = np.stack(slopes, axis=2)
    actual = np.concatenate([found.A, found.B], axis=2)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=2e-6 * np.abs(expected).max())
