"""The sparse program of direct multiple shooting: derivatives, pattern, bounds, names, charts, and its compiled twin."""

import numpy as np
import pytest
import textbook_systems as textbook
from direct_cases import SparseProgram
from rigid_body_cases import tree

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.robots import load_robot
from trajopt import (
    OCP,
    Guess,
    Phase,
    SampledSystem,
    bounded,
    control_cost,
    interpolated_guess,
    joint_limits,
    link_points,
    residual_constraint,
    residual_cost,
    sphere_obstacle,
    state_bounds,
    state_cost,
)
from trajopt.solvers.direct.transcription import Transcription
from trajopt.stage.numpy_stages import NumpyStages

REST = np.r_[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def sampled(system, method="forward_ad", engine="numpy", substeps=2, scheme="rk4"):
    return SampledSystem(make_backend(system, method, engine=engine), scheme, substeps)


def _mixed(x, u, t, p):
    """Curved in state and control, and dependent on time."""
    return [sm.sin(x[0]) * u[0] + p["shift"][0] * t, x[1] * x[1]]


def cart_pole():
    """Constraints of every kind, with bounds and parameters that change from knot to knot."""
    dynamics, N = sampled(textbook.cart_pole()), 6
    manifold, goal = dynamics.manifold, np.array([0.0, np.pi, 0.0, 0.0])
    shift = np.linspace(0.1, 0.3, N)[:, None]
    path = [
        residual_constraint(
            "mixed", _mixed, manifold, 2, -5.0, np.full((N, 2), 7.0), nu=1, parameters={"shift": shift}
        ),
        residual_constraint("curve", lambda x, u, t, p: [x[0] * x[2]], manifold, 1, -1.0, np.inf),
        state_bounds(manifold, [-1.0, -np.inf, -np.inf, -np.inf], [1.0, np.inf, np.inf, 9.0], "track"),
    ]
    running = [
        control_cost(1, reference=0.3, weight=0.1),
        residual_cost("wave", _mixed, manifold, 2, nu=1, parameters={"shift": shift}),
    ]
    final = [bounded(state_cost(manifold, goal), name="goal")]
    fields = {"constraints": path, "terminal_constraints": final, "u_lower": [-20.0], "u_upper": [20.0]}
    steps = 0.1 * np.linspace(0.8, 1.2, N)
    return OCP.single_phase(dynamics, np.zeros(4), N, steps, running, [state_cost(manifold, goal, 2.0)], **fields)


def spinning_body():
    dynamics = sampled(textbook.spinning_body())
    goal = dynamics.manifold.integrate(REST[:, None], np.array([[1.0, -1.0, 0.5, 0.0, 0.0, 0.0]]).T)[:, 0]
    running = [control_cost(3, reference=0.0, weight=0.1), state_cost(dynamics.manifold, goal, 0.3)]
    slow = state_bounds(dynamics.manifold, np.r_[[-np.inf] * 4, [-2.0] * 3], np.r_[[np.inf] * 4, [2.0] * 3])
    final = [bounded(state_cost(dynamics.manifold, goal), name="goal")]
    return OCP.single_phase(dynamics, REST, 4, 0.2, running, constraints=[slow], terminal_constraints=final)


def two_phases():
    """A powered phase of one control, and a coasting one that has none."""
    first = sampled(textbook.double_integrator())
    coast = SampledSystem(make_backend(FunctionMap(lambda x, u, t, p: [x[1], -x[0]], 2, 0), "forward_ad"), "rk4")
    bound = residual_constraint(
        "energy", lambda x, u, t, p: [x[0] * x[0] + x[1] * x[1]], first.manifold, 1, -np.inf, 4.0
    )
    phases = (
        Phase(first, np.full(3, 0.1), (control_cost(1),), constraints=(bound,)),
        Phase(coast, np.full(2, 0.2), (state_cost(first.manifold, [1.0, 0.0]),), constraints=(bound,)),
    )
    return OCP(phases, np.array([0.2, 0.1]), terminal_constraints=(bounded(state_cost(first.manifold, [0.5, 0.5])),))


PROBLEMS = {
    "cart-pole": (cart_pole, "zero_order"),
    "cart-pole, first order": (cart_pole, "first_order"),
    "spinning body": (spinning_body, "zero_order"),
    "spinning body, first order": (spinning_body, "first_order"),
    "two phases": (two_phases, "zero_order"),
}


def program(name, **options):
    make, hold = PROBLEMS[name]
    ocp = make()
    guess = interpolated_guess(ocp, ocp.x0, 0.1)
    return SparseProgram(ocp, guess, hold, **options)


def point(p, seed=0):
    rng = np.random.default_rng(seed)
    return p.variables(p.reference, np.zeros((p.N, p.m))) + 0.2 * rng.standard_normal(p.size)


@pytest.mark.parametrize("name", PROBLEMS)
def test_first_derivatives(name):
    p = program(name)
    w, d, h = point(p), np.random.default_rng(1).standard_normal(p.size), 1e-5
    gradient, J = p.differentiate(w)
    (forward, g1), (backward, g0) = p.evaluate(w + h * d), p.evaluate(w - h * d)
    assert gradient @ d == pytest.approx((forward - backward) / (2 * h), rel=1e-7, abs=1e-7)
    np.testing.assert_allclose(J @ d, (g1 - g0) / (2 * h), rtol=0, atol=1e-7 * max(1.0, np.abs(g1).max()))


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("hessian", ["exact", "scqp"])
def test_blocks_of_the_stages_are_those_of_the_sparse_hessian(name, hessian):
    make, hold = PROBLEMS[name]
    ocp = make()
    guess = interpolated_guess(ocp, ocp.x0, 0.1)
    p, convex = Transcription(ocp, guess, hold, hessian), "gauss_newton" if hessian == "exact" else hessian
    w, y = point(p), np.random.default_rng(3).standard_normal(p.rows)
    for kind, found in ((hessian, p.hessian(w, 0.7, y)), (convex, p.convex_hessian(w, 0.7, y))):
        expected = SparseProgram(ocp, guess, hold, kind).hessian(w, 0.7, y)
        np.testing.assert_allclose(found.assembled.toarray(), expected.toarray(), rtol=1e-14)
        np.testing.assert_array_equal(found.assembled.indices, expected.indices)


@pytest.mark.parametrize("name", PROBLEMS)
def test_blocks_of_the_stages_are_those_of_the_sparse_jacobian(name):
    make, hold = PROBLEMS[name]
    ocp = make()
    p, plain = (kind(ocp, interpolated_guess(ocp, ocp.x0, 0.1), hold) for kind in (Transcription, SparseProgram))
    w = point(p)
    (gradient, J), (expected, sparse) = p.differentiate(w), plain.differentiate(w)
    np.testing.assert_array_equal(gradient, expected)
    np.testing.assert_array_equal(J.assembled.toarray(), sparse.toarray())
    np.testing.assert_array_equal(J.assembled.indices, sparse.indices)
    assert [len(rows) for rows, _ in p.patterns()] == [len(J.entries), len(p.hessian(w, 1.0, np.ones(p.rows)).entries)]


@pytest.mark.parametrize("name", PROBLEMS)
def test_exact_hessian_of_the_lagrangian(name):
    p = program(name)
    rng, w, h = np.random.default_rng(2), point(p), 1e-5
    d, y = rng.standard_normal(p.size), rng.standard_normal(p.rows)
    H = p.hessian(w, 0.7, y)
    sides = [p.differentiate(w + s * h * d) for s in (1.0, -1.0)]
    forward, backward = (0.7 * gradient + y @ J for gradient, J in sides)
    np.testing.assert_allclose(H @ d, (forward - backward) / (2 * h), rtol=0, atol=2e-6 * np.abs(H).max())
    assert abs(H - H.T).max() <= 1e-12 * np.abs(H).max()


@pytest.mark.parametrize("name", PROBLEMS)
def test_gauss_newton_hessian_is_that_of_the_cost_alone(name):
    p = program(name, hessian="gauss_newton")
    w = point(p)
    H = p.hessian(w, 1.0, np.ones(p.rows)).toarray()
    assert np.linalg.eigvalsh(H).min() >= -1e-10 * np.abs(H).max()
    np.testing.assert_array_equal(H, p.hessian(w, 1.0, np.zeros(p.rows)).toarray())


@pytest.mark.parametrize("name", PROBLEMS)
def test_patterns_are_fixed_and_tight(name):
    p = program(name)
    ones, seen = np.ones(p.rows), None
    for seed in range(3):
        w = point(p, seed)
        J, H = p.differentiate(w)[1], p.hessian(w, 1.0, ones)
        if seen is not None:
            for new, old in zip((J, H), seen, strict=True):
                np.testing.assert_array_equal(new.indices, old.indices)
                np.testing.assert_array_equal(new.indptr, old.indptr)
        seen = (J, H)
    rows = p.parts[0].rows[-1]
    if name == "cart-pole":  # mixed: x0, u0 and x1; curve: x0 and x2
        assert np.diff(J.tocsr().indptr)[rows].tolist() == [2, 1, 2]


def test_a_residual_that_takes_no_symbols_has_a_full_row():
    """Nothing is assumed about a residual whose source cannot be traced."""
    dynamics = sampled(textbook.double_integrator())

    def opaque(x, u, t, p):
        return [2.0 * x[0] if x[1] > -100.0 else 0.0]

    wall = residual_constraint("wall", opaque, dynamics.manifold, 1, -1.0, 1.0)
    ocp = OCP.single_phase(dynamics, np.zeros(2), 3, 0.1, [control_cost(1)], constraints=[wall])
    p = SparseProgram(ocp, interpolated_guess(ocp, np.ones(2)))
    J = p.differentiate(point(p))[1].tocsr()
    assert np.diff(J.indptr)[p.parts[0].rows[1:, 0]].tolist() == [2, 2]


def test_a_branch_is_part_of_the_pattern():
    """The derivative of a wall that begins at x = 5 is zero at every point near the guess, yet has its place."""
    dynamics = sampled(textbook.double_integrator())

    def wall(x, u, t, p):
        return [sm.select(x[0] - 5.0, (x[0] - 5.0) * x[1], 0.0 * x[0])]

    c = residual_constraint("wall", wall, dynamics.manifold, 1, -1.0, 1.0)
    ocp = OCP.single_phase(dynamics, np.zeros(2), 3, 0.1, [control_cost(1)], constraints=[c])
    p = SparseProgram(ocp, interpolated_guess(ocp, np.ones(2)))
    far = p.variables(np.full((4, 2), 7.0), np.zeros((3, 1)))
    row = p.differentiate(far)[1].tocsr()[p.parts[0].rows[1, 0]].toarray()[0]
    np.testing.assert_allclose(row[p.ix[1]], [7.0, 2.0])


def test_bounds_and_names():
    p = program("cart-pole")
    np.testing.assert_array_equal(p.x_lower[p.ix[0]], p.ocp.x0)
    np.testing.assert_array_equal(p.x_upper[p.ix[0]], p.ocp.x0)
    np.testing.assert_array_equal(p.x_upper[p.ix[1:-1, 0]], 1.0)
    assert p.x_upper[p.ix[-1, 0]] == np.inf  # the goal, which fixes the last state, satisfies the track limits
    np.testing.assert_array_equal(p.x_lower[p.iu[:, 0]], -20.0)
    assert p.x_names[p.ix[2, 3]] == "pole rate at knot 2 (track)"
    assert p.x_names[p.iu[1, 0]] == "u[0] at knot 1"
    assert p.g_names[0] == "dynamics of cart from knot 0"
    assert p.g_names[-1] == "goal: pole rate at knot 6"
    assert (p.parts[0].rows[0] >= 0).tolist() == [True, True, False]  # curve reads x0 alone, which is given
    assert p.g_names[p.parts[0].rows[1, 2]] == "curve: f[0] at knot 1"
    assert len(p.g_names) == len(p.g_lower) == p.rows


def test_controls_that_a_phase_does_not_read_stay_at_the_guess():
    p = program("two phases")
    assert (p.x_lower[p.iu[3:, 0]] == 0.1).all() and (p.x_upper[p.iu[3:, 0]] == 0.1).all()
    assert not np.isfinite(p.x_lower[p.iu[:3, 0]]).any()


def test_multipliers_by_name():
    p = program("cart-pole")
    named = p.by_name(np.arange(1.0, p.rows + 1))
    assert {key: value.shape for key, value in named.items()} == {
        "dynamics": (6, 4), "mixed": (6, 2), "curve": (6, 1), "terminal goal": (1, 4)
    }  # fmt: skip
    assert named["curve"][0, 0] == 0.0  # no row at x0
    assert named["terminal goal"][0, -1] == p.rows
    np.testing.assert_array_equal(p.from_names(named), np.arange(1.0, p.rows + 1))
    assert not p.from_names({"curve": np.ones((2, 1)), "unknown": np.ones(3)}).any()


@pytest.mark.parametrize("name", PROBLEMS)
def test_recentered_is_the_same_program_elsewhere(name):
    p = program(name)
    w = point(p)
    w[p.ix[0]] = p.first_coordinates(p.ocp.x0)
    other, there = p.recentered(w)
    assert other.evaluate(there)[0] == pytest.approx(p.evaluate(w)[0], rel=1e-12)
    np.testing.assert_allclose(other.trajectory(there)[0], p.trajectory(w)[0], atol=1e-14)
    if p.original.manifold.is_vector_space:
        assert other is p
    else:
        assert not there[other.ix].any()


def test_simulated_motion_has_no_gaps():
    p = program("cart-pole")
    _, g = p.evaluate(p.simulated(point(p)))
    assert np.abs(g[: p.N * p.n]).max() <= 1e-14


def test_a_linear_control_is_integrated_exactly():
    """Double integrator under u = a + b t: a cubic in time, which RK4 follows without error."""
    dynamics = sampled(textbook.double_integrator(), substeps=1)
    ocp = OCP.single_phase(dynamics, [0.3, -0.2], 3, 0.5, [control_cost(1)])
    t = ocp.times
    u = 0.7 - 0.4 * t[:, None]
    exact = np.stack([0.3 - 0.2 * t + 0.35 * t**2 - 0.4 * t**3 / 6, -0.2 + 0.7 * t - 0.2 * t**2], axis=1)
    p = SparseProgram(ocp, Guess(exact, u[:-1]), "first_order")
    w = p.variables(exact, u)
    np.testing.assert_allclose(p.evaluate(w)[1], 0.0, atol=1e-14)
    np.testing.assert_array_equal(p.trajectory(w)[1], u)


def test_a_first_order_hold_needs_sampled_systems():
    ocp = two_phases()
    with pytest.raises(TypeError, match="use zero_order"):
        SparseProgram(ocp, interpolated_guess(ocp, ocp.x0), "first_order")


# -- the compiled twin --------------------------------------------------------------------------------------------------


def pendulum(engine, substeps, scheme="rk4"):
    """The double pendulum with damping, an obstacle, limits, and a constraint of state and control."""
    model = load_robot("double_pendulum")
    model = model.replace(q_lower=np.array([-2.5, -2.6]), q_upper=np.array([2.4, 2.7]), damping=np.array([0.3, 0.2]))
    dynamics = sampled(FreeBody(model), "analytic", engine, substeps, scheme)
    manifold, rng, N = dynamics.manifold, np.random.default_rng(3), 11
    obstacle = sphere_obstacle(model, manifold, link_points(model, "tip", 0.3), rng.standard_normal((N, 3)), 0.2)
    final = sphere_obstacle(model, manifold, link_points(model, "tip", 0.5), [0.3, 0.2, 0.1], 0.2, "end")
    mixed = residual_constraint("mixed", _mixed, manifold, 2, -5.0, 5.0, nu=1, parameters={"shift": 0.2})
    running = [
        control_cost(2, reference=0.1, weight=rng.uniform(0.1, 1.0, (N, 2))),
        state_cost(manifold, rng.standard_normal((N, 4))),
    ]
    fields = {"constraints": [obstacle, mixed, joint_limits(model, manifold)], "terminal_constraints": [final]}
    steps = 0.05 * np.linspace(0.8, 1.2, N)
    terminal = [state_cost(manifold, np.ones(4), 3.0)]
    return OCP.single_phase(dynamics, np.zeros(4), N, steps, running, terminal, **fields)


@pytest.mark.parametrize(("scheme", "substeps"), [("rk4", 1), ("rk4", 3), ("semi_implicit_euler", 2)])
def test_compiled_knots_are_those_of_numpy(scheme, substeps):
    programs = []
    for engine in ("numpy", "compiled"):
        ocp = pendulum(engine, substeps, scheme)
        programs.append(SparseProgram(ocp, interpolated_guess(ocp, np.ones(4), 0.1)))
    plain, fast = programs
    assert isinstance(plain.parts[0].stages, NumpyStages) and not isinstance(fast.parts[0].stages, NumpyStages)
    rng = np.random.default_rng(4)
    w, y = (
        plain.variables(plain.reference, np.zeros((11, 2))) + 0.3 * rng.standard_normal(plain.size),
        rng.standard_normal(plain.rows),
    )
    (f0, g0), (f1, g1) = plain.evaluate(w), fast.evaluate(w)
    assert f1 == pytest.approx(f0, rel=1e-13)
    np.testing.assert_allclose(g1, g0, atol=1e-12 * np.abs(g0).max())
    H1 = fast.hessian(w, 0.7, y)  # without first derivatives at this point before
    (d0, J0), (d1, J1) = plain.differentiate(w), fast.differentiate(w)
    np.testing.assert_allclose(d1, d0, atol=1e-12 * np.abs(d0).max())
    assert abs(J1 - J0).max() <= 1e-12 * abs(J0).max()
    H0 = plain.hessian(w, 0.7, y)
    for H in (H1, fast.hessian(w, 0.7, y)):
        assert abs(H - H0).max() <= 1e-11 * abs(H0).max()
    fast.differentiate(w + 0.1)
    assert abs(fast.hessian(w, 0.7, y) - H0).max() <= 1e-11 * abs(H0).max()


@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
def test_compiled_stages_on_a_manifold(hessian):
    """A floating tree, away from the origins of its charts."""
    body = FreeBody(tree("floating1", 2))
    goal = body.manifold.integrate(body.manifold.identity()[:, None], 0.3 * np.ones((body.manifold.ndx, 1)))[:, 0]

    def tilt(x, u, t, p):
        return [x[3] * x[4] + p["room"][0] * u[0], x[0] * x[5]]

    def problem(engine):
        dynamics = sampled(body, "analytic", engine, scheme="rk4")
        bound = residual_constraint("tilt", tilt, body.manifold, 2, -9.0, 9.0, nu=1, parameters={"room": [0.3]})
        near = residual_constraint("near", lambda x, u, t, p: [x[0] * x[1], x[6] * x[6]], body.manifold, 2, -1.0, 1.0)
        running = [control_cost(body.nu, reference=0.1, weight=0.1), state_cost(body.manifold, goal, 0.4)]
        final = {"terminal_constraints": [bounded(state_cost(body.manifold, goal), name="goal"), near]}
        x0 = body.manifold.identity()
        return OCP.single_phase(dynamics, x0, 9, 0.1, running, running[1:], constraints=[bound], **final)

    plain, fast = (
        SparseProgram(ocp, interpolated_guess(ocp, goal, 0.1), hessian=hessian)
        for ocp in (problem("numpy"), problem("compiled"))
    )
    assert not isinstance(fast.parts[0].stages, NumpyStages)
    rng, w = np.random.default_rng(4), point(plain)
    y = rng.standard_normal(plain.rows)
    (f0, g0), (f1, g1) = plain.evaluate(w), fast.evaluate(w)
    assert f1 == pytest.approx(f0, rel=1e-13)
    np.testing.assert_allclose(g1, g0, atol=1e-12 * np.abs(g0).max())
    H1 = fast.hessian(w, 0.7, y)
    for a, b in zip(fast.differentiate(w), plain.differentiate(w), strict=True):
        assert abs(a - b).max() <= 1e-12 * abs(b).max()
    H0 = plain.hessian(w, 0.7, y)
    for H in (H1, fast.hessian(w, 0.7, y)):
        assert abs(H - H0).max() <= 1e-11 * abs(H0).max()


def test_gauss_newton_takes_its_first_derivatives_from_compiled_code():
    plain, fast = (
        SparseProgram(ocp, interpolated_guess(ocp, np.ones(4), 0.1), hessian="gauss_newton")
        for ocp in (pendulum("numpy", 1), pendulum("compiled", 1))
    )
    assert not isinstance(fast.parts[0].stages, NumpyStages)
    w, y = point(plain), np.ones(plain.rows)
    for a, b in zip(fast.differentiate(w), plain.differentiate(w), strict=True):
        assert abs(a - b).max() <= 1e-12 * abs(b).max()
    for at in (w, w + 0.1):  # with and without first derivatives there before
        expected = plain.hessian(at, 0.7, y)
        assert abs(fast.hessian(at, 0.7, y) - expected).max() <= 1e-12 * abs(expected).max()


def test_new_values_do_not_compile_anew():
    ocp = pendulum("compiled", 1)
    guess = interpolated_guess(ocp, np.ones(4))
    first = SparseProgram(ocp, guess)
    moved = ocp.updated("end", center=[0.0, 0.0, 1.0]).updated("obstacle", radius=0.4, lower=0.1)
    second = SparseProgram(moved, guess)
    assert first.parts[0].stages.library is second.parts[0].stages.library
    w = point(first)
    assert np.abs(first.evaluate(w)[1] - second.evaluate(w)[1]).max() > 1e-3
