"""Long time steps with contacts: the law against its equations, motions against mechanics, derivatives by every method."""

import numpy as np
import pytest
from contact_cases import FEET, arguments, deviation, hyq
from rigid_body_cases import tree
from stage_cases import SHOOTING
from twin_cases import assert_same_expansion, assert_same_rollout

from dynamics_backends import scalar as sm
from dynamics_backends.methods.symbolic_map import TraceError, symbolic_value
from dynamics_backends.protocol import IMPLICIT_STEP
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.model.model_builder import ModelBuilder
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.symbols import ca
from dynamics_backends.systems.contact.contact_law import StepLaw
from dynamics_backends.systems.contact.ground_contact import Plane, Terrain
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt import OCP, SampledSystem, control_cost, state_cost
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator

MASS, G = 10.0, 9.81
HALF = np.array([0.2, 0.15, 0.1])
INERTIA = MASS / 3.0 * np.diag((HALF**2).sum() - HALF**2)
CORNERS = ("front left", "front right", "hind left", "hind right")
STIFF = RelaxedCone(stiffness=1e6, relaxation=1e-6, creep=1e-4, friction=0.5)
GROUNDS = {
    "plane": Plane(),
    "slope": Plane(0.01, (0.1, -0.2, 1.0)),
    "terrain": Terrain(lambda x, y: 0.05 * sm.sin(3.0 * x) * sm.cos(2.0 * y) + 0.02 * x * y / (2.0 + x * x)),
}


def box(law=STIFF, ground=None) -> SteppedContact:
    """A brick on its lower corners."""
    builder = ModelBuilder("box")
    builder.add_body("box", joint="floating", mass=MASS, inertia=INERTIA)
    for name, (sx, sy) in zip(CORNERS, ((1, 1), (1, -1), (-1, 1), (-1, -1)), strict=True):
        builder.add_frame(name, "box", xyz=HALF * (sx, sy, -1.0))
    return SteppedContact(builder.build((0.0, 0.0, -G)), CORNERS, law=law, ground=ground)


def moved(system, x, time, dt=0.02):
    """States (M + 1, nx) from x on, in steps of dt, by compiled code."""
    dynamics = SampledSystem(make_backend(system, "analytic", engine="compiled"), "semi_implicit_euler")
    N, ndx = round(time / dt), system.manifold.ndx
    ocp = OCP.single_phase(dynamics, x, N, dt, [control_cost(system.nu, weight=0.0)])
    still = Direction(np.zeros((N + 1, ndx)), np.zeros((N, 0)), np.zeros((N, 0, ndx)), np.zeros((N, ndx)))
    return (
        StageEvaluator(ocp, engine="compiled")
        .rollout(np.tile(x, (N + 1, 1)), np.zeros((N, 0)), still, np.zeros(1), Shooting())
        .xs[0]
    )


def at(height, velocity=(0.0, 0.0, 0.0), attitude=(0.0, 0.0, 0.0, 1.0)):
    return np.concatenate([[0.0, 0.0, height], attitude, velocity, np.zeros(3)])


# -- the law ----------------------------------------------------------------------------------------------------------
def components(x):
    return [x.x, x.y, x.z]


def law_at(z, law=None, h=0.015):
    """Force and slopes of (g, n, w) in one array."""
    law = law or RelaxedCone(dissipation=0.02)
    return law.force_and_slopes(z[0], Vec(*z[1:4]), Vec(*z[4:]), {IMPLICIT_STEP: [h]})


def test_derivatives_of_the_law_by_complex_step():
    n = np.array([0.48, 0.6, 0.64])
    turns = np.linalg.svd(n[None])[2][1:]  # unit normals stay so
    along = [np.eye(7)[0], *np.eye(7)[4:], *(np.concatenate([[0.0], t, np.zeros(3)]) for t in turns)]
    for gap in (0.03, 0.004, -0.004, -0.03):
        z = np.concatenate([[gap], n, [0.3, -0.2, -0.4]])
        _, d = law_at(z)
        J = np.array([components(d.g), *np.array([components(c) for c in (d.w.a, d.w.b, d.w.c)])])
        for e in along:
            step = np.array(components(law_at(z + 1e-30j * e)[0])).imag / 1e-30
            own = np.array(components(d.g)) * e[0]
            own = own + np.array(components(d.n @ Vec(*e[1:4]))) + np.array(components(d.w @ Vec(*e[4:])))
            np.testing.assert_allclose(own, step, rtol=1e-11, atol=1e-11 * np.abs(J).max())


def test_the_force_is_that_of_a_convex_potential():
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = np.concatenate([[0.01 * rng.standard_normal()], [0.6, 0.0, 0.8], rng.standard_normal(3)])
        d = law_at(z)[1].w
        S = np.array([components(c) for c in (d.a, d.b, d.c)])
        np.testing.assert_allclose(S, S.T, atol=1e-12 * np.abs(S).max())
        assert np.linalg.eigvalsh(0.5 * (S + S.T)).max() <= 1e-12 * np.abs(S).max()


@pytest.mark.parametrize("gap", [0.2, 0.01, 0.0, -0.004])
def test_gap_and_force_are_complementary_but_for_the_relaxation(gap):
    law, h = RelaxedCone(dissipation=0.0), 0.02
    w = np.array([0.3, 0.4, -0.1])
    f = np.array(components(law.force(gap, Vec(0.0, 0.0, 1.0), Vec(*w), {IMPLICIT_STEP: [h]})))
    y = gap + h * (w[2] - law.friction * (np.hypot(0.5, law.creep) - law.creep))
    assert f[2] * (y + f[2] / law.stiffness) == pytest.approx(law.relaxation, rel=1e-12)
    assert np.hypot(*f[:2]) < law.friction * f[2]
    np.testing.assert_allclose(f[:2] / np.hypot(*f[:2]), [-0.6, -0.8], rtol=1e-12)


def test_invalid_contact_parameters_are_refused():
    for key in ("stiffness", "relaxation", "creep"):
        with pytest.raises(ValueError, match=f"{key} = 0.0; it must be positive"):
            RelaxedCone(**{key: 0.0})
    with pytest.raises(ValueError, match="friction = -1; it must be positive and finite, or zero"):
        RelaxedCone(friction=-1)


# -- motions ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dt", [0.01, 0.02])
def test_a_box_that_falls_comes_to_rest_under_its_weight(dt):
    system = box()
    tilted = np.array([np.sin(0.1), 0.0, 0.0, np.cos(0.1)])
    xs = moved(system, at(0.5, attitude=tilted), 2.0, dt)
    forces = system.outputs(xs[-1][:, None], np.zeros((0, 1)), 0.0, {IMPLICIT_STEP: [np.array([dt])]})
    assert sum(f[2, 0] for f in forces.values()) == pytest.approx(MASS * G, rel=1e-6)
    assert np.abs(xs[-1, 7:]).max() < 1e-6
    assert xs[-1, 2] == pytest.approx(HALF[2], abs=2e-4)


def test_a_fall_dissipates_energy():
    system, m = box(), MASS
    xs = moved(system, at(0.4, (0.5, 0.0, 0.0)), 1.0)
    energy = 0.5 * m * (xs[:, 7:10] ** 2).sum(axis=1) + m * G * xs[:, 2]
    energy = energy + 0.5 * np.einsum("ki,ij,kj->k", xs[:, 10:], INERTIA, xs[:, 10:])
    assert (np.diff(energy) < 1e-3).all()
    assert energy[-1] < 0.5 * energy[0]


@pytest.mark.parametrize("dt", [0.01, 0.02])
def test_a_box_slides_to_rest_with_the_deceleration_of_friction(dt):
    """The block stops from 1 m/s after v / (mu g) and v^2 / (2 mu g); it slides at the height that convexity requires."""
    mu = 0.3
    system = box(RelaxedCone(stiffness=1e6, relaxation=1e-6, creep=1e-4, friction=mu, dissipation=0.0))
    xs = moved(system, at(HALF[2] + dt * mu, (1.0, 0.0, 0.0)), 0.6, dt)
    speeds = xs[:, 7]
    np.testing.assert_allclose(np.diff(speeds[3 : round(0.3 / dt)]) / dt, -mu * G, rtol=0.01)
    assert abs(speeds[-1]) < 1e-5
    assert xs[-1, 0] == pytest.approx(1.0 / (2.0 * mu * G), abs=dt)


@pytest.mark.parametrize(("tangent", "slides"), [(0.3, False), (0.8, True)])
def test_on_a_slope_a_box_stays_or_slides_as_coulomb_says(tangent, slides):
    angle = np.arctan(tangent)
    tilted = np.array([0.0, np.sin(0.5 * angle), 0.0, np.cos(0.5 * angle)])
    normal = np.array([np.sin(angle), 0.0, np.cos(angle)])
    system = box(ground=Plane(0.0, normal))
    x = at(0.0, attitude=tilted)
    x[:3] = HALF[2] * normal
    xs = moved(system, x, 0.4, 0.01)
    down = G * (np.sin(angle) - 0.5 * np.cos(angle))
    if slides:
        np.testing.assert_allclose(np.diff(xs[10:, 7]) / 0.01, down, rtol=0.05)
    else:
        fraction = tangent / STIFF.friction
        assert xs[-1, 7] == pytest.approx(STIFF.creep * fraction / np.sqrt(1.0 - fraction**2), rel=1e-4)


def test_forces_of_the_cone_stay_in_it_whatever_the_motion():
    system = SteppedContact(hyq(), FEET)
    x, u, _ = arguments(system, FEET, N=8)
    forces = system.outputs(x.T, 100.0 * u.T, 0.0, {})
    for f in forces.values():
        assert (f[2] > 0).all()
        assert (np.hypot(f[0], f[1]) <= system.law.friction * f[2]).all()


# -- derivatives ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ground", GROUNDS)
def test_derivatives_by_every_method(ground):
    model = tree("floating2", 4)
    system = SteppedContact(
        model, ["body1", ("body3", (0.1, 0.0, -0.2))], ground=GROUNDS[ground], friction_velocity=0.1, step=0.02
    )
    x, u, _ = arguments(system, ["body1", "body3"], N=6)
    own = make_backend(system, "analytic").jacobians(x, u)
    for method in ("complex_step", "forward_ad"):
        assert deviation(make_backend(system, method).jacobians(x, u), own) < 1e-10
    assert deviation(make_backend(system, "central_difference").jacobians(x, u), own) < 1e-6


def test_derivatives_at_run_time_parameters_of_a_standing_robot():
    system = SteppedContact(hyq(), FEET)
    x, u, _ = arguments(system, FEET)
    p = {"contact_friction": np.array([0.3]), "contact_relaxation": np.array([1.0]), "ground_height": np.array([0.01])}
    p["ground_slope"] = np.array([0.1, -0.2])
    own = make_backend(system, "analytic").jacobians(x, u, 0.0, p)
    assert deviation(make_backend(system, "complex_step").jacobians(x, u, 0.0, p), own) < 1e-10
    assert deviation(make_backend(system, "analytic").jacobians(x, u), own) > 1e-3


def test_derivatives_in_the_parameters_of_the_law():
    system = SteppedContact(hyq(), FEET)
    x, u, _ = arguments(system, FEET)
    rows = [a[:1].T for a in (x, u)]

    def accelerations(friction):
        return system(*rows, np.zeros(1), {"contact_friction": np.array([[friction]])})[system.model.nv :, 0]

    slope = (accelerations(0.3 + 1e-5) - accelerations(0.3 - 1e-5)) / 2e-5
    assert np.abs(slope).max() > 0.1
    np.testing.assert_allclose(accelerations(0.3 + 1e-30j).imag / 1e-30, slope, rtol=1e-5, atol=1e-5)


def test_a_plane_is_tilted_at_run_time():
    x, u, _ = arguments(SteppedContact(hyq(), FEET), FEET)
    given = {"ground_height": np.array([0.02]), "ground_slope": np.array([0.1, -0.2])}
    found = make_backend(SteppedContact(hyq(), FEET), "analytic").f(x, u, 0.0, given)
    tilted = SteppedContact(hyq(), FEET, ground=Plane(0.02, (-0.1, 0.2, 1.0)))
    np.testing.assert_allclose(found, make_backend(tilted, "analytic").f(x, u), rtol=1e-10, atol=1e-9)


# -- in problems ------------------------------------------------------------------------------------------------------
def test_other_integrators_and_symbols_are_refused_with_the_remedy():
    system = box()
    with pytest.raises(ValueError, match="SteppedContact defines its own time steps.*scheme = 'semi_implicit_euler'"):
        SampledSystem(make_backend(system), "rk4")
    with pytest.raises(TraceError, match="choose backend = 'analytic'"):
        symbolic_value(system, ca.SX.sym("x", 13), ca.SX(0, 1), ca.SX.sym("t"), {})
    with pytest.raises(ValueError, match="step = 0; it must be a positive"):
        SteppedContact(hyq(), FEET, step=0)
    with pytest.raises(ValueError, match="points is empty"):
        SteppedContact(hyq(), [])


def hop():
    """A base with one leg falls on its foot."""
    model = tree("floating2", 2)
    system = SteppedContact(model, [("body1", (0.1, 0.2, -0.1))], actuated=model.dof_names[6:])
    dynamics = SampledSystem(make_backend(system, "analytic", engine="numpy"), "semi_implicit_euler")
    x0 = system.manifold.identity()
    x0[2] -= next(iter(system.gaps(x0).values()))
    terms = [control_cost(1, reference=0.0, weight=0.5), state_cost(system.manifold, x0, 0.3)]
    steps = np.linspace(0.01, 0.02, 13)
    p = {"contact_friction": [0.4]}
    return OCP.single_phase(dynamics, x0, 13, steps, terms, [state_cost(system.manifold, x0, 3.0)], parameters=p)


def test_compiled_derivatives_of_a_batch():
    model = tree("floating2", 2)
    system = SteppedContact(model, [("body1", (0.1, 0.2, -0.1))], actuated=model.dof_names[6:], step=0.02)
    x, u, _ = arguments(system, ["body1"], N=5)
    plain, fast = (make_backend(system, "analytic", engine=engine) for engine in ("numpy", "compiled"))
    for p in ({}, {"contact_friction": np.array([0.4])}, {IMPLICIT_STEP: np.array([0.01])}):
        assert deviation(fast.jacobians(x, u, 0.0, p), plain.jacobians(x, u, 0.0, p)) < 1e-10
    np.testing.assert_allclose(fast.f(x, u), plain.f(x, u), rtol=1e-9, atol=1e-9)


def test_compiled_code_takes_the_same_steps():
    assert_same_expansion(hop(), tolerance=1e-9)


@pytest.mark.parametrize("kind", ["single", "every 10, linear"])
def test_compiled_code_rolls_out_alike(kind):
    assert_same_rollout(hop(), SHOOTING[kind])


# -- second derivatives -----------------------------------------------------------------------------------------------
def test_second_derivatives_of_the_law_by_complex_step():
    law, s, rng = RelaxedCone(dissipation=0.02), np.array([0.7, -0.4, 0.3]), np.random.default_rng(3)
    n = np.array([0.48, 0.6, 0.64])
    turns = np.linalg.svd(n[None])[2][1:]  # unit normals stay so
    along = [*np.eye(7)[[0, 4, 5, 6]], *(np.concatenate([[0.0], t, np.zeros(3)]) for t in turns)]
    for gap in (0.03, 0.004, -0.004, -0.03):
        z = np.concatenate([[gap], n, 0.5 * rng.standard_normal(3)])
        d, b = second_at(law, z, s)
        assert d.g[0] == pytest.approx(s @ components(law_at(z, law)[1].g), rel=1e-12)
        nn, nw, ww = (np.array([np.ravel(components(c)) for c in (M.a, M.b, M.c)]).T for M in (b.nn, b.nw, b.ww))
        gn, gw = np.ravel(components(b.gn)), np.ravel(components(b.gw))
        own = np.block([[b.gg[None], gn[None], gw[None]], [gn[:, None], nn, nw], [gw[:, None], nw.T, ww]])
        for e in along:
            d, _ = second_at(law, z + 1e-30j * e, s)
            slopes = np.ravel([d.g, *components(d.n), *components(d.w)]).imag / 1e-30
            np.testing.assert_allclose(own @ e, slopes, rtol=1e-11, atol=1e-11 * np.abs(own).max())


def second_at(law, z, s):
    """First and second derivatives of s . force at z = (g, n, w), for one knot."""
    g, *rest = z[:, None]
    return law.second_derivatives(g, Vec(*rest[:3]), Vec(*rest[3:]), Vec(*s), {IMPLICIT_STEP: [0.015]})


def second_by_complex_step(system, x, u, lam):
    """The Hessian of lam' f, (N, ndx + nu, ndx + nu), by a complex step along each tangent of its first derivatives."""
    n, nu, N, h = system.manifold.ndx, system.nu, len(x), 1e-30
    along = np.kron(np.eye(n + nu), np.ones((1, N))) * 1j * h
    states, controls, weights = (np.tile(M, n + nu) for M in (x.T.astype(complex), u.T.astype(complex), lam.T))
    first = system.partials(system.manifold.integrate(states, along[:n]), controls + along[n:], 0.0, {})
    still = np.zeros(along.shape[1], dtype=complex)
    J = np.concatenate([np.stack([np.asarray(row) + still for row in M]) for M in (first.fx, first.fu)], axis=1)
    H = np.einsum("kM,kjM->jM", weights, J.imag / h).reshape(n + nu, n + nu, N).transpose(2, 0, 1)
    return 0.5 * (H + H.transpose(0, 2, 1))


@pytest.mark.parametrize("ground", GROUNDS)
def test_second_derivatives_by_complex_step(ground):
    model = tree("floating2", 3)
    system = SteppedContact(
        model, ["body1", ("body2", (0.1, 0.0, -0.2))], ground=GROUNDS[ground], friction_velocity=0.1, step=0.02
    )
    x, u, _ = arguments(system, ["body1", "body2"], N=3)
    lam = np.random.default_rng(5).standard_normal((len(x), system.n_out))
    first, own = make_backend(system, "analytic", engine="numpy").hessian_contraction(x, u, 0.0, None, lam)
    assert deviation(first, make_backend(system, "analytic", engine="numpy").jacobians(x, u)) < 1e-12
    H, n = second_by_complex_step(system, x, u, lam), system.manifold.ndx
    _, chained = make_backend(system, "forward_ad", engine="numpy").hessian_contraction(x, u, 0.0, None, lam)
    for ours, chain_rule, theirs in zip(own, chained, (H[:, :n, :n], H[:, n:, :n], H[:, n:, n:]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
        np.testing.assert_allclose(chain_rule, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
    assert np.abs(own.uu).max() > 0.0  # the step is not linear in u


def test_a_law_needs_only_its_force():
    """Dual numbers go through the step by the derivatives of the force at their real parts."""

    class ForceOnly(RelaxedCone):
        force_and_slopes = StepLaw.force_and_slopes

    model, made = tree("floating2", 3), []
    for law in (RelaxedCone(), ForceOnly()):
        system = SteppedContact(model, ["body1", ("body2", (0.1, 0.0, -0.2))], law=law, step=0.02)
        x, u, _ = arguments(system, ["body1", "body2"], N=3)
        lam = np.random.default_rng(5).standard_normal((len(x), system.n_out))
        made += [
            make_backend(system, m, engine="numpy").hessian_contraction(x, u, 0.0, None, lam)[1]
            for m in ("analytic", "forward_ad")
        ]
    for found in made[1:]:
        for ours, theirs in zip(found, made[0], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())


def test_compiled_second_derivatives_of_a_batch():
    model = tree("floating2", 2)
    system = SteppedContact(model, [("body1", (0.1, 0.2, -0.1))], actuated=model.dof_names[6:], step=0.02)
    x, u, _ = arguments(system, ["body1"], N=5)
    lam = np.random.default_rng(6).standard_normal((len(x), system.n_out))
    plain, fast = (make_backend(system, "analytic", engine=engine) for engine in ("numpy", "compiled"))
    for p in ({}, {IMPLICIT_STEP: np.array([0.01])}):
        ours, theirs = (b.hessian_contraction(x, u, 0.0, p, lam) for b in (fast, plain))
        assert deviation(ours[0], theirs[0]) < 1e-10
        scale = max(np.abs(block).max() for block in theirs[1])
        for one, other in zip(ours[1], theirs[1], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-9 * scale)
