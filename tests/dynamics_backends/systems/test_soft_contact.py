"""Soft contact: the law against its formula, the dynamics against Pinocchio, derivatives of both orders by every method."""

import pickle
from math import factorial

import numpy as np
import pytest
from contact_cases import (
    EXACT,
    FEET,
    QUICK,
    arguments,
    contraction_error,
    hyq,
    methods_agree,
    relative,
    second_orders_agree,
    standing_states,
)
from rigid_body_cases import tree, twin

from dynamics_backends import scalar as sm
from dynamics_backends.names import UnknownName
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalars.evaluate import evaluated
from dynamics_backends.systems.contact.exponential_law import LIMIT, SoftContactLaw
from dynamics_backends.systems.contact.ground_contact import Plane, Terrain, height_derivatives
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley
from dynamics_backends.systems.contact.registry import contact_law
from dynamics_backends.systems.contact.soft_contact import SoftContact

SLOPE = (0.1, -0.2, 1.0)
GROUNDS = {
    "plane": Plane(),
    "slope": Plane(0.01, SLOPE),
    "terrain": Terrain(lambda x, y: 0.05 * sm.sin(3.0 * x) * sm.cos(2.0 * y) + 0.02 * x * y / (2.0 + x * x)),
}
LAWS = {"free": SoftContactLaw(), "friction": SoftContactLaw(friction=0.7), "hunt_crossley": HuntCrossley()}
each_ground = pytest.mark.parametrize("ground", GROUNDS)
each_law = pytest.mark.parametrize("law", LAWS)


def on_hyq(ground: str = "plane", law: str = "free") -> SoftContact:
    return SoftContact(hyq(), FEET, ground=GROUNDS[ground], law=LAWS[law], friction_velocity=0.1)


def published_force(height, velocity) -> np.ndarray:
    """The law as Neunert et al. implement it, with HyQ's numbers."""
    spring = 5000.0 * np.exp(-100.0 * (height + 0.02))
    return np.array([0.0, 0.0, spring]) - 1000.0 / (1.0 + np.exp(100.0 * height)) * velocity


def force(law: SoftContactLaw, gap: float, velocity, normal=(0.0, 0.0, 1.0)) -> np.ndarray:
    f = law.force(np.array([gap]), Vec(*normal), Vec(*np.asarray(velocity, float)[:, None]), {})
    return np.array([f.x, f.y, f.z]).reshape(3)


# -- the law ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("height", [-0.05, -0.0035, 0.0, 0.012, 0.1])
def test_the_published_law(height):
    velocity = np.array([0.3, -0.2, 0.5])
    np.testing.assert_allclose(force(SoftContactLaw(), height, velocity), published_force(height, velocity), rtol=1e-12)


def test_forces_of_the_standing_robot():
    """204.3 N on each foot at 12.0 mm, 677 N on the ground, 964 N in the published initial state, 3.5 mm deep."""
    still = np.zeros(3)
    assert force(SoftContactLaw(), 0.0120, still)[2] == pytest.approx(204.3, rel=3e-3)
    assert force(SoftContactLaw(), 0.0, still)[2] == pytest.approx(677.0, abs=0.5)
    assert force(SoftContactLaw(), -0.0035, still)[2] == pytest.approx(960.0, abs=5.0)


def test_friction_saturates_at_the_cone_and_is_linear_at_low_speed():
    law, sticky = LAWS["friction"], LAWS["free"]
    normal = force(sticky, 0.0, np.zeros(3))[2]
    fast = force(law, 0.0, np.array([300.0, 400.0, 0.0]))
    np.testing.assert_allclose(fast[:2], -0.7 * normal * np.array([0.6, 0.8]), rtol=1e-5)
    slow = np.array([1e-4, -2e-4, 0.0])
    np.testing.assert_allclose(force(law, 0.0, slow), force(sticky, 0.0, slow), rtol=1e-6)
    assert np.hypot(*force(law, 0.0, np.array([1.0, 1.0, -0.3]))[:2]) < 0.7 * normal


def test_the_spring_beyond_its_limit_is_a_parabola_that_continues_it():
    law = SoftContactLaw()
    edge = law.offset - LIMIT / law.spring_sharpness
    h = 1e-9
    inside, outside = (
        law.second_derivatives(np.array([edge + s * h]), Vec(0.0, 0.0, 1.0), *_still(), {}) for s in (1, -1)
    )
    assert inside[0].g == pytest.approx(outside[0].g, rel=1e-6)
    assert inside[1].gg == pytest.approx(outside[1].gg, rel=1e-6)
    assert force(law, edge - 0.2, np.zeros(3))[2] == pytest.approx(5000.0 * np.exp(LIMIT) * (1 + 20 + 200), rel=1e-12)


def test_hunt_and_crossleys_law():
    """Far from its rounded corners the law is the published one; it never pulls, and friction stays inside its cone."""
    law = HuntCrossley(stiffness=1e5, dissipation=1.5, smoothing=1e-5, friction=0.5, slip_speed=1e-3)
    for depth, speed in ((0.01, -0.4), (0.02, 0.2)):
        f = force(law, -depth, np.array([3.0, 4.0, speed]))
        assert f[2] == pytest.approx(1e5 * depth**1.5 * (1.0 - 1.5 * speed), rel=6e-3)  # SIGMA^2 / (4 0.7^2)
        np.testing.assert_allclose(f[:2], -0.5 * f[2] * np.array([0.6, 0.8]), rtol=1e-6)
    leaving = force(law, -0.01, np.array([0.0, 0.0, 50.0]))
    assert 0.0 < leaving[2] < 1e-2 * force(law, -0.01, np.zeros(3))[2]
    assert force(law, 0.05, np.zeros(3))[2] < 1e-6


def test_a_ball_bounces_with_the_restitution_of_its_dissipation():
    """The restitution at low speeds is e = 1 - 2/3 kappa v (Hunt and Crossley), from an impact of 1 kg without gravity."""
    law, height, dt = HuntCrossley(stiffness=1e6, dissipation=1.0, smoothing=1e-7), 1e-4, 1e-6
    position, velocity = height, -0.1
    while position <= height:
        velocity += dt * force(law, position, np.array([0.0, 0.0, velocity]))[2]
        position += dt * velocity
    assert velocity / 0.1 == pytest.approx(1.0 - 2.0 / 3.0 * 0.1, abs=5e-3)


def test_laws_by_name():
    assert contact_law("exponential") == SoftContactLaw()
    assert contact_law("hunt_crossley", stiffness=1e5) == HuntCrossley(stiffness=1e5)
    with pytest.raises(UnknownName, match="did you mean 'hunt_crossley'"):
        contact_law("hunt_crosley")
    with pytest.raises(
        UnknownName, match="no key of the contact law 'exponential' is named 'stifness'; did you mean 'stiffness'"
    ):
        contact_law("exponential", stifness=1.0)
    with pytest.raises(ValueError, match="smoothing = 0.0; it must be positive"):
        contact_law("hunt_crossley", smoothing=0.0)


def _still():
    return Vec(*np.zeros((3, 1))), Vec(0.0, 0.0, 1.0)


@pytest.mark.parametrize("law", LAWS)
def test_derivatives_of_the_law_by_complex_step(law):
    rng = np.random.default_rng(0)
    law, s = LAWS[law], rng.standard_normal(3)

    def weighted(z):
        g, n, w = np.asarray(z[0])[None], Vec(*z[1:4, None]), Vec(*z[4:, None])
        f, d = law.force(g, n, w, {}), law.second_derivatives(g, n, w, Vec(*s), {})[0]
        value = s[0] * f.x + s[1] * f.y + s[2] * f.z
        return np.concatenate([value, *(np.atleast_1d(c + 0 * value) for c in _components(d))])

    z = np.concatenate([[0.004, 0.48, 0.6, 0.64], rng.standard_normal(3)])
    along = [0, 4, 5, 6] if law.friction else range(7)  # the friction limit is defined for unit normals only
    steps = np.array([weighted(z + 1e-30j * e).imag / 1e-30 for e in np.eye(7)])
    own = weighted(z + 0j).real[1:]
    np.testing.assert_allclose(own[along], steps[along, 0], rtol=1e-12, atol=1e-9)
    _, b = law.second_derivatives(np.asarray(z[0])[None], Vec(*z[1:4, None]), Vec(*z[4:, None]), Vec(*s), {})
    full = np.zeros((7, 7))
    full[0, 0] = b.gg[0]
    for block, row, column in ((b.nn, 1, 1), (b.nw, 1, 4), (b.ww, 4, 4)):
        for j, c in enumerate((block.a, block.b, block.c)):
            full[row : row + 3, column + j] = [float(np.ravel(x)[0]) for x in (c.x, c.y, c.z)]
    full[0, 1:4], full[0, 4:] = ([float(np.ravel(x)[0]) for x in (v.x, v.y, v.z)] for v in (b.gn, b.gw))
    full = np.triu(full) + np.triu(full, 1).T
    np.testing.assert_allclose(full[np.ix_(along, along)], steps[:, 1:][np.ix_(along, along)], rtol=1e-11, atol=1e-8)


def _components(d) -> list:
    return [d.g, d.n.x, d.n.y, d.n.z, d.w.x, d.w.y, d.w.z]


def test_derivatives_of_a_height_by_nested_differences():
    """Derivatives up to the third of a function of two variables, against a polynomial fit of its values."""

    def h(x, y):
        return (
            sm.exp(0.3 * x) * sm.cos(y) / (2.0 + sm.sin(x * y)) + sm.tanh(x - y) + sm.sqrt(1.0 + x**2) - 1.0 / (3.0 + y)
        )

    x0, y0, r = 0.4, -0.3, 0.02
    dx, dy = (g.ravel() for g in np.meshgrid(*[r * np.cos(np.pi * (np.arange(7) + 0.5) / 7)] * 2))
    powers = [(i, j) for i in range(7) for j in range(7)]
    fit = np.linalg.lstsq(
        np.stack([(dx / r) ** i * (dy / r) ** j for i, j in powers], axis=1), h(x0 + dx, y0 + dy), rcond=None
    )[0]
    expected = {p: c / r ** sum(p) for p, c in zip(powers, fit, strict=True)}
    order = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3)]
    (actual,) = evaluated(height_derivatives(h), [[x0, y0]])
    factors = [factorial(i) * factorial(j) for i, j in order]
    np.testing.assert_allclose(np.divide(actual, factors), [expected[p] for p in order], rtol=1e-7, atol=1e-7)


# -- the system -------------------------------------------------------------------------------------------------------


def test_accelerations_against_pinocchio():
    pin = pytest.importorskip("pinocchio")
    t = twin("hyq")
    system = SoftContact(t.model, FEET, damping=False)
    x, u, _ = arguments(system, FEET, N=4)
    actual = make_backend(system).f(x, u)[:, t.model.nv :]
    forces = system.outputs(x.T, u.T, 0.0, {})
    for i in range(len(x)):
        q, v = t.q(x[i, : t.model.nq]), t.v(x[i, t.model.nq :])
        pin.forwardKinematics(t.pin_model, t.data, q, v)
        pin.computeJointJacobians(t.pin_model, t.data, q)
        pin.updateFramePlacements(t.pin_model, t.data)
        tau = t.v(np.concatenate([np.zeros(6), u[i]]))
        for name in FEET:
            frame, world = t.pin_model.getFrameId(name), pin.LOCAL_WORLD_ALIGNED
            velocity = pin.getFrameVelocity(t.pin_model, t.data, frame, world).linear
            f = published_force(t.data.oMf[frame].translation[2], velocity)
            tau = tau + pin.getFrameJacobian(t.pin_model, t.data, frame, world)[:3].T @ f
            np.testing.assert_allclose(forces[name][:, i], f, rtol=1e-9, atol=1e-9)
        assert relative(actual[i], t.vector(pin.aba(t.pin_model, t.data, q, v, tau))) < 1e-9


@each_ground
@each_law
def test_all_methods_agree(ground, law):
    system = on_hyq(ground, law)
    x, u, _ = arguments(system, FEET)
    methods = EXACT if ground == "terrain" and law == "friction" else QUICK
    assert methods_agree(system, x, u, methods=methods) < 1e-11


@each_ground
@each_law
def test_second_order(ground, law):
    system = on_hyq(ground, law)
    assert contraction_error(system, *arguments(system, FEET, N=1)) < 1e-9


@pytest.mark.parametrize("name", ["fixed0", "floating1", "floating2"])
def test_trees_of_all_joints(name):
    model = tree(name)
    frames = [next(f.name for f in model.frames if f.body == b) for b in (model.nb - 1, model.nb // 2)]
    points = [frames[0], (frames[1], (0.1, -0.2, 0.05))]
    system = SoftContact(
        model, points, ground=Plane(0.0, SLOPE), law=SoftContactLaw(50.0, 20.0, 2.0, 3.0, friction=0.5)
    )
    x, u, lam = arguments(system, frames)
    assert methods_agree(system, x, u, methods=QUICK) < 1e-11
    assert contraction_error(system, x, u, lam) < 1e-9


def test_second_derivatives_by_forward_ad():
    system = on_hyq("terrain", "friction")
    assert second_orders_agree(system, *arguments(system, FEET, N=1)) < 1e-9


def test_the_system_pickles():
    system = on_hyq("slope", "friction")
    x, u, _ = arguments(system, FEET)
    other = pickle.loads(pickle.dumps(system))
    np.testing.assert_array_equal(make_backend(other).f(x, u), make_backend(system).f(x, u))


def test_parameters_at_run_time():
    built = SoftContact(hyq(), FEET, ground=Plane(0.03), law=SoftContactLaw(2000.0, 300.0, friction=0.4))
    given = on_hyq(law="friction")
    x, u, lam = arguments(built, FEET)
    p = {"ground_height": 0.03, "contact_stiffness": 2000.0, "contact_damping": 300.0, "contact_friction": 0.4}
    p = {k: np.array([v]) for k, v in p.items()}
    given.viscous = built.viscous = given.coulomb = None
    for one, other in zip(
        make_backend(given).jacobians(x, u, 0.0, p), make_backend(built).jacobians(x, u), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert methods_agree(given, x, u, p, methods=QUICK) < 1e-11
    assert contraction_error(given, x[:1], u[:1], lam[:1], p) < 1e-9


def test_far_from_the_origin():
    system = on_hyq()
    x, u, _ = arguments(system, FEET)
    here = make_backend(system).jacobians(x, u)
    x[:, :2] += 1000.0
    for near, far in zip(here, make_backend(system).jacobians(x, u), strict=True):
        assert relative(far, near) < 1e-11


@pytest.mark.parametrize("depth", [-1.0, -30.0, 50.0])
@each_law
def test_no_overflow_deep_in_the_ground_or_high_above(depth, law):
    system = on_hyq(law=law)
    x, u, lam = arguments(system, FEET)
    x[:, 2] += depth
    first, second = make_backend(system).hessian_contraction(x, u, 0.0, None, lam)
    for a in (*first, *second, make_backend(system, "complex_step").jacobians(x, u).fx):
        assert np.isfinite(a).all()


def test_contact_power_equals_the_dissipation_of_the_dampers():
    """d(kinetic + potential + springs)/dt = -D |w|^2 summed over the feet, with no joint forces."""
    system = SoftContact(hyq(), FEET, damping=False)
    model, x = system.model, standing_states(hyq(), FEET, 3, 2).T
    u = np.zeros((system.nu, 2))

    def energy(x):
        q, v = x[: model.nq], x[model.nq :]
        springs = 0.0
        for name in FEET:
            height = kinematics.frame_position(model, q, model.frame_id(name))[2]
            springs = springs + 50.0 * sm.exp(-100.0 * (height + 0.02))
        return kinematics.kinetic_energy(model, q, v) + kinematics.potential_energy(model, q) + springs

    rate = system.manifold.integrate(x.astype(complex), 1e-30j * system(x, u, 0.0, {}))
    taken = 0.0
    for name in FEET:
        frame = model.frame_id(name)
        height = kinematics.frame_position(model, x[: model.nq], frame)[2]
        w = kinematics.frame_velocity(model, x[: model.nq], x[model.nq :], frame)[:3]
        taken = taken + 1000.0 / (1.0 + np.exp(100.0 * height)) * (w * w).sum(axis=0)
    np.testing.assert_allclose(energy(rate).imag / 1e-30, -taken, rtol=1e-9)


def test_wrong_arguments_raise_errors():
    model = hyq()
    with pytest.raises(ValueError, match="points is empty; name the frames"):
        SoftContact(model, [])
    with pytest.raises(UnknownName, match="did you mean 'lf_foot'"):
        SoftContact(model, ["lf_fot"])
    with pytest.raises(ValueError, match="the ground is below"):
        Plane(0.0, (1.0, 0.0, 0.0))
    with pytest.raises(ValueError, match=r"stiffness = -1.0; it must be positive"):
        SoftContactLaw(stiffness=-1.0)
    with pytest.raises(ValueError, match=r"friction = 0.0; it must be positive, or None"):
        SoftContactLaw(friction=0.0)
    for height in (np.nan, np.inf, [0.0, 0.0, 1.0]):
        with pytest.raises(ValueError, match="expected one finite number of meters"):
            Plane(height)
    for key in ("stiffness", "damping", "offset"):
        with pytest.raises(ValueError, match=f"{key} = inf"):
            SoftContactLaw(**{key: np.inf})


def test_several_points_of_one_frame_have_names_of_their_own():
    """As the corners of a flat foot: each has its gap and its force."""
    model = hyq()
    corners = [("lf_foot", (0.1, 0.0, 0.0)), ("lf_foot", (-0.1, 0.0, 0.0)), "rf_foot"]
    system = SoftContact(model, corners)
    x, u, _ = arguments(system, FEET)
    names = ["lf_foot 1", "lf_foot 2", "rf_foot"]
    assert list(system.gaps(x[0])) == names and len(set(system.gaps(x[0]).values())) == 3
    forces = system.outputs(x[:1].T, u[:1].T, np.zeros(1), {})
    assert list(forces) == names and not np.allclose(forces["lf_foot 1"], forces["lf_foot 2"])


@pytest.mark.parametrize("damping", [True, False])
def test_a_fully_driven_copy_is_damped_as_the_system_is(damping):
    model = hyq().replace(damping=np.full(18, 0.5))
    copied = SoftContact(model, FEET, damping=damping).fully_driven(model)
    assert copied.damps == damping and copied.nu == 18
