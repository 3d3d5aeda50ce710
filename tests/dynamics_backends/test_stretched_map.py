"""Free durations: time-scaled systems, the stage that chooses durations, and problems whose optimal duration is known."""

from __future__ import annotations

import numpy as np
import pytest
from rigid_body_cases import tree

import trajopt as to
from dynamics_backends.composed_map import outer_hessian, outer_jacobian
from dynamics_backends.protocol import IMPLICIT_STEP
from dynamics_backends.registry import make_backend
from dynamics_backends.stretched_map import Durations, root_of_ratio, time_scaled
from dynamics_backends.systems.bodies.along_path import DoubleIntegrator
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from problems.robots.textbook import multi_pendulum as chain
from trajopt.problem.impact_stage import ImpactStage

N, DISTANCE, PRICE = 12, 0.7, 3.0
"""Knots, length of the way [m], and what a second costs."""
OPTIONS = {"sqp": {"hessian": "exact"}, "slq": {"gradient_tolerance": 1e-5}, "ddp": {"gradient_tolerance": 1e-5}}


def arguments(system, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (4, system.manifold.nx))
    x[:, -system.tail :] = rng.uniform(0.4, 2.0, (4, system.tail))
    return x, rng.uniform(-1.0, 1.0, (4, system.nu)), rng.uniform(-1.0, 1.0, (4, system.manifold.nx))


def test_the_root_of_a_fraction_is_finite_below_the_smallest_one():
    """sqrt(s) down to it, its expansion below, and their derivatives; iterates may have s < 0."""
    s, least, h = np.array([-0.5, 0.0, 0.0099, 0.0101, 0.3, 4.0]), 0.01, 1e-30
    root, moved = root_of_ratio(s, least), root_of_ratio(s + 1j * h, least)
    np.testing.assert_allclose(root[3:], np.sqrt(s[3:]), rtol=1e-15)
    taylor = 0.1 + (s - least) / 0.2 - (s - least) ** 2 / 8e-3
    np.testing.assert_allclose(root[:3], taylor[:3], rtol=1e-13)
    first = moved.imag / h
    np.testing.assert_allclose(first[3:], 0.5 / np.sqrt(s[3:]), rtol=1e-12)
    np.testing.assert_allclose(first[:3], 5.0 - (s[:3] - least) / 4e-3, rtol=1e-12)
    (slopes,) = outer_jacobian(lambda y, p: [root_of_ratio(y[0], least)], s[None], {})
    _, curvature = outer_hessian(lambda y, p: [root_of_ratio(y[0], least)], s[None], {}, np.ones((1, 6)))
    np.testing.assert_allclose(slopes[0], first, rtol=1e-12)
    np.testing.assert_allclose(curvature[0][0], [-250.0] * 3 + list(-0.25 * s[3:] ** -1.5), rtol=1e-12)


def test_the_cost_of_a_problem_is_finite_at_negative_durations():
    fixed = to.OCP.single_phase(
        to.SampledSystem(make_backend(DoubleIntegrator(["q"])), "euler"), [0.0, 0.0], 4, 0.25, [to.control_cost(1)]
    )
    free = to.free_time(fixed, (1e-3, 2.0), 3.0)
    xs, us = free.with_durations(to.constant_guess(fixed, 1.0))
    for T in (-0.3, 0.0, 1e-3):
        xs[:, -1] = T
        assert np.isfinite(free.ocp.cost(xs, us))
    assert free.ocp.cost(xs, us) == pytest.approx(1e-3 * (3.0 + 0.5), rel=1e-12)  # exact at the shortest one allowed


def test_the_motion_is_that_of_the_system_times_the_duration_of_its_phase():
    free = FreeBody(chain(3))
    system = time_scaled(free, ("first", "second"), 1)
    x, u, _ = arguments(system)
    f = make_backend(free).f(x[:, : free.manifold.nx], u)
    scaled = make_backend(system).f(x, u)
    np.testing.assert_allclose(scaled[:, : free.manifold.nx], x[:, [-1]] * f, rtol=1e-13)
    assert not scaled[:, free.manifold.nx :].any() and system.manifold.tangent_names[-2:] == ("first", "second")


def floating(damping: float = 0.0) -> FreeBody:
    model = tree("floating2", 2)
    return FreeBody(model.replace(damping=damping * np.arange(model.nv)), actuated=model.dof_names[6:])


CASES = {
    "first": time_scaled(FreeBody(chain(3)), ("first", "second")),
    "second": time_scaled(FreeBody(chain(3)), ("first", "second"), 1, 0.7),
    "floating": time_scaled(floating(), ("T",), 0, 0.7),
    "semi-implicit": time_scaled(floating(), ("T",), 0, 0.7, semi_implicit=True),
    "damped": time_scaled(floating(0.2), ("T",), 0, 0.7).implicit(offset=False),
    "damped with offsets": time_scaled(floating(0.2), ("T",), 0, 0.7).implicit(offset=True),
    "damped, semi-implicit": time_scaled(floating(0.2), ("T",), 0, 0.7, semi_implicit=True),
}


@pytest.mark.parametrize("case", CASES)
def test_derivatives_agree_with_those_of_the_source(case):
    system, n = CASES[case], 3
    rng, manifold = np.random.default_rng(1), system.manifold
    x = manifold.integrate(np.tile(manifold.identity(), (n, 1)).T, rng.uniform(-0.6, 0.6, (n, manifold.ndx)).T).T.copy()
    x[:, -system.tail :] = rng.uniform(0.4, 2.0, (n, system.tail))
    u, lam = rng.uniform(-1.0, 1.0, (n, system.nu)), rng.uniform(-1.0, 1.0, (n, system.n_out))
    p = None if system.offsets is None else {IMPLICIT_STEP: np.array([0.1])}
    closed, source = (make_backend(system, m, engine="numpy") for m in ("analytic", "forward_ad"))
    exact = make_backend(system, "complex_step", engine="numpy").jacobians(x, u, 0.0, p)
    for a, b in zip(closed.jacobians(x, u, 0.0, p), exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    for a, b in zip(*(m.hessian_contraction(x, u, 0.0, p, lam)[1] for m in (closed, source)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_durations_are_set_to_the_controls():
    system = time_scaled(FreeBody(chain(3)), ("first", "second"))
    choice = Durations(system.manifold, 2)
    x, _, lam = arguments(system)
    u = np.full((4, 5), 0.8)  # the problem has more controls than this stage
    for method in ("analytic", "complex_step"):
        stage = ImpactStage(make_backend(choice, method))
        step = stage.linearize(x, u, 0.0, 0.0)
        np.testing.assert_allclose(step.x_next, np.c_[x[:, :-2], np.full((4, 2), 0.8)], rtol=1e-14)
        np.testing.assert_array_equal(step.A, np.tile(np.diag([*np.ones(6), 0.0, 0.0]), (4, 1, 1)))
        np.testing.assert_array_equal(step.B, np.tile(np.eye(system.manifold.nx)[:, -2:], (4, 1, 1)))
    assert stage.nu == 2 and stage.control_names == ("first", "second")
    curvature = ImpactStage(make_backend(choice)).contract(x, u, 0.0, 0.0, None, lam)
    assert not any(block.any() for block in curvature)


def test_wrong_arguments_raise_errors():
    with pytest.raises(TypeError, match="SteppedContact has time steps of fixed length"):
        time_scaled(SteppedContact(tree("floating2", 2), ["body1"]))
    with pytest.raises(ValueError, match="semi-implicit steps need a state"):
        time_scaled(to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1), semi_implicit=True)
    with pytest.raises(ValueError, match=r"nominal = 0\.0"):
        time_scaled(DoubleIntegrator(["s"]), nominal=0.0)
    with pytest.raises(ValueError, match="phase = 1; expected less than 1, the number of durations"):
        time_scaled(DoubleIntegrator(["s"]), ("T",), 1)


def rest_to_rest(lower: float, upper: float) -> to.OCP:
    """Minimize T (c + 1/2 int u^2 dtau), over DISTANCE from rest to rest."""
    system = time_scaled(DoubleIntegrator(["s"]), ("T",))
    manifold = system.manifold

    def root(x, u, t, p):
        from dynamics_backends import scalar as sm

        return [sm.sqrt(x[2]) * u[0], sm.sqrt(x[2])]

    price = to.residual_cost("price", root, manifold, 2, [1.0, 2.0 * PRICE], nu=1)
    choice = to.Phase(ImpactStage(make_backend(Durations(manifold, 1))), [0.0])
    way = to.Phase(to.SampledSystem(make_backend(system), "rk4"), np.full(N, 1.0 / N), [price])
    low, high = np.full((N + 1, 1), -np.inf), np.full((N + 1, 1), np.inf)
    low[0], high[0] = lower, upper
    goal = to.state_bounds(manifold, [DISTANCE, 0.0, -np.inf], [DISTANCE, 0.0, np.inf], "goal")
    return to.OCP((choice, way), [0.0, 0.0, 1.0], (), low, high, terminal_constraints=(goal,))


def cost_of(T: float) -> float:
    """c T + 6 d^2 / T^3, which is N^2 / (N^2 - 1) times as much where the force is held in N steps."""
    return PRICE * T + 6.0 * DISTANCE**2 / T**3 * N**2 / (N**2 - 1.0)


@pytest.mark.parametrize("solver", ["sqp", "dms", "slq", "ddp"])
def test_the_duration_is_the_best(solver):
    if solver == "dms":
        pytest.importorskip("cyipopt")
    best = (18.0 * DISTANCE**2 * N**2 / (N**2 - 1.0) / PRICE) ** 0.25
    for bounds, expected in (((0.3, 3.0), best), ((1.6, 3.0), 1.6)):
        ocp = rest_to_rest(*bounds)
        guess = to.constant_guess(ocp, 0.1)
        guess.us[0] = guess.xs[:, 2] = 1.7
        solution = to.solve(ocp, guess, OPTIONS.get(solver), solver=solver)
        assert solution.status.success, solution.status
        assert solution.xs[-1, 2] == pytest.approx(expected, rel=1e-4)
        assert solution.cost == pytest.approx(cost_of(expected), rel=1e-6)
