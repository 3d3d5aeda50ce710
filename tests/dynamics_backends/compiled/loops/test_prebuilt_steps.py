"""Time steps by loops of the library: those of Pinocchio, slopes by differences, the numbers of rows for every scheme."""

import numpy as np
import pytest
from contact_cases import FEET, hyq, standing_states
from rigid_body_cases import tree, twin

from dynamics_backends.registry import make_backend, untraced
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.contact_law import ContactLaw
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.ground_surface import Plane, Terrain
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley
from dynamics_backends.systems.contact.soft_contact import SoftContact
from trajopt.step.integrators import SCHEMES
from trajopt.step.sensitivities import SampledSystem

LAWS = {"free": SoftContactLaw(), "friction": SoftContactLaw(friction=0.7), "hunt_crossley": HuntCrossley()}
SLOPE = Plane(-0.03, (0.02, -0.04, 1.0))


def damped(model):
    """The model with dampers, springs and friction in its joints, except for a base."""
    there = np.where(model.actuated, 1.0, 0.0)
    return model.replace(damping=0.4 * there, stiffness=3.0 * there, friction=0.2 * there)


def of_hyq(law: ContactLaw, *, stiff: bool = False, ground=SLOPE) -> SoftContact:
    model = damped(hyq()) if stiff else hyq()
    return SoftContact(model, FEET, ground=ground, law=law, friction_velocity=0.1)


def by_loops(system, scheme: str = "rk4", substeps: int = 2) -> SampledSystem:
    found = SampledSystem(untraced(make_backend(system, "analytic", engine="compiled")), scheme, substeps)
    assert found._by_loops is not None
    return found


def points(system, N: int = 5, seed: int = 0):
    """States near the ground, or in front of it, and controls."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(N, system.nu))
    if isinstance(system, SoftContact):
        return standing_states(system.model, FEET, seed, N), u
    q, v = system.model.random_configuration(rng, N), rng.normal(size=(N, system.model.nv))
    return np.concatenate([q, v], axis=1), u


# -- against other code ---------------------------------------------------------------------------------------------------


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
    ends = by_loops(system, "rk4", 4).step(x, u, 0.0, dt)
    for start, control, end in zip(x, u, ends, strict=True):
        q, v = flow(t, start, control, dt, 8)
        found = t.q(end[: t.model.nq]), t.v(end[t.model.nq :])
        sign = np.sign(found[0][3:7] @ q[3:7])
        np.testing.assert_allclose(np.r_[found[0][:3], sign * found[0][3:7], found[0][7:]], q, atol=1e-8)
        np.testing.assert_allclose(found[1], v, atol=1e-5 * np.abs(v).max())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("law", LAWS)
def test_slopes_by_differences(law, scheme):
    system, dt, h = of_hyq(LAWS[law], stiff=True), 2e-4, 1e-6
    own, manifold = by_loops(system, scheme), system.manifold
    x, u = points(system, N=2)
    found, n = own.linearize(x, u, 0.0, dt), manifold.ndx
    ends = own.step(x, u, 0.0, dt)
    np.testing.assert_allclose(found.x_next, ends, rtol=0.0, atol=1e-11 * np.abs(ends).max())
    slopes = []
    for i in range(n + system.nu):
        moves = np.zeros((2, n + system.nu, len(x)))
        moves[0, i], moves[1, i] = h, -h
        there = [own.step(manifold.integrate(x.T, d[:n]).T, u + d[n:].T, 0.0, dt).T for d in moves]
        away = [manifold.difference(ends.T, end) for end in there]
        slopes.append((away[0] - away[1]).T / (2.0 * h))
    expected = np.stack(slopes, axis=2)
    actual = np.concatenate([found.A, found.B], axis=2)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=2e-6 * np.abs(expected).max())


# -- against rows ---------------------------------------------------------------------------------------------------------

SYSTEMS = {
    **{f"{law}, {joints}": (law, joints == "damped") for law in LAWS for joints in ("plain", "damped")},
    "chain": None,
    "damped chain": None,
}


def system_of(name: str):
    if SYSTEMS[name] is None:
        return FreeBody(damped(chain(5)) if "damped" in name else chain(5), friction_velocity=0.1)
    law, stiff = SYSTEMS[name]
    return of_hyq(LAWS[law], stiff=stiff)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_numbers_are_those_of_rows(name, scheme):
    system = system_of(name)
    own, reference = by_loops(system, scheme), SampledSystem(make_backend(system, engine="numpy"), scheme, 2)
    x, u = points(system)
    dt = np.linspace(1e-4, 2e-4, len(x))
    pairs = [(own.step(x, u, 0.0, dt), reference.step(x, u, 0.0, dt))]
    pairs += zip(own.linearize(x, u, 0.0, dt), reference.linearize(x, u, 0.0, dt), strict=True)
    for found, known in pairs:
        np.testing.assert_allclose(found, known, rtol=0.0, atol=1e-10 * np.abs(known).max())


# -- models that use rows -------------------------------------------------------------------------------------------------


class OwnLaw(SoftContactLaw):
    """A law of a user's."""


@pytest.mark.parametrize(
    "system",
    [
        lambda: of_hyq(LAWS["free"], ground=Terrain(lambda x, y: 0.01 * x)),
        lambda: of_hyq(OwnLaw()),
        lambda: SoftContact(tree("floating1"), [tree("floating1").frames[-1].name]),
    ],
    ids=["terrain", "a law of one's own", "other joints"],
)
def test_others_are_left_to_rows(system):
    found = SampledSystem(untraced(make_backend(system(), "analytic", engine="compiled")), "rk4")
    assert found._by_loops is None


def test_parameters_are_left_to_rows():
    """The ground's height at run time is heeded."""
    system = of_hyq(LAWS["free"])
    own, reference = by_loops(system), SampledSystem(make_backend(system, engine="numpy"), "rk4", 2)
    x, u = points(system)
    p = {"ground_height": np.array([-0.02])}
    np.testing.assert_allclose(own.step(x, u, 0.0, 2e-4, p), reference.step(x, u, 0.0, 2e-4, p), atol=1e-9)
    assert np.abs(own.step(x, u, 0.0, 2e-4, p) - own.step(x, u, 0.0, 2e-4)).max() > 1e-6
