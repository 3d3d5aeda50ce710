"""Free durations: time-scaled systems, the stage that chooses durations, and problems whose optimal duration is known."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.along_path import DoubleIntegrator
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.bodies.time_scaled import Durations, TimeScaled
from problems.robots import load_robot
from problems.robots.textbook import multi_pendulum as chain
from trajopt.problem.impact_stage import ImpactStage

N, DISTANCE, PRICE = 12, 0.7, 3.0
"""Knots, length of the way [m], and what a second costs."""
OPTIONS = {"sqp": {"hessian": "exact"}, "slq": {"gradient_tolerance": 1e-5}, "ddp": {"gradient_tolerance": 1e-5}}


def arguments(system, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (4, system.manifold.nx))
    x[:, system.n :] = rng.uniform(0.4, 2.0, (4, system.count))
    return x, rng.uniform(-1.0, 1.0, (4, system.nu)), rng.uniform(-1.0, 1.0, (4, system.manifold.nx))


def test_the_motion_is_that_of_the_system_times_the_duration_of_its_phase():
    free = FreeBody(chain(3))
    system = TimeScaled(free, ("first", "second"), 1)
    x, u, _ = arguments(system)
    f = make_backend(free).f(x[:, : system.n], u)
    scaled = make_backend(system).f(x, u)
    np.testing.assert_allclose(scaled[:, : system.n], x[:, [-1]] * f, rtol=1e-13)
    assert not scaled[:, system.n :].any() and system.manifold.tangent_names[-2:] == ("first", "second")


@pytest.mark.parametrize("phase", [0, 1])
def test_derivatives_agree_with_complex_step(phase):
    system = TimeScaled(FreeBody(chain(3)), ("first", "second"), phase)
    x, u, lam = arguments(system, 1)
    exact, closed = (make_backend(system, method).jacobians(x, u) for method in ("complex_step", "analytic"))
    for a, b in zip(exact, closed, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-10)
    backend, h = make_backend(system), 1e-6
    second = backend.hessian_contraction(x, u, 0.0, None, lam)[1]
    for k in range(system.manifold.nx):
        shift = h * np.eye(system.manifold.nx)[k]
        ends = [backend.jacobians(x + sign * shift, u) for sign in (1.0, -1.0)]
        slopes = [(a - b) / (2.0 * h) for a, b in zip(ends[0][1:], ends[1][1:], strict=True)]
        for block, slope in zip((second.xx, second.ux), slopes, strict=True):
            np.testing.assert_allclose(block[:, :, k], np.einsum("ni,nij->nj", lam, slope), rtol=1e-6, atol=1e-5)


def test_durations_are_set_to_the_controls():
    system = TimeScaled(FreeBody(chain(3)), ("first", "second"))
    choice = Durations(system.manifold, 2)
    x, _, lam = arguments(system)
    u = np.full((4, 5), 0.8)  # the problem has more controls than this stage
    for method in ("analytic", "complex_step"):
        stage = ImpactStage(make_backend(choice, method))
        step = stage.linearize(x, u, 0.0, 0.0)
        np.testing.assert_allclose(step.x_next, np.c_[x[:, :-2], np.full((4, 2), 0.8)], rtol=1e-14)
        np.testing.assert_array_equal(step.A, np.tile(np.diag([*np.ones(system.n), 0.0, 0.0]), (4, 1, 1)))
        np.testing.assert_array_equal(step.B, np.tile(np.eye(system.manifold.nx)[:, -2:], (4, 1, 1)))
    assert stage.nu == 2 and stage.control_names == ("first", "second")
    curvature = ImpactStage(make_backend(choice)).contract(x, u, 0.0, 0.0, None, lam)
    assert not any(block.any() for block in curvature)


def test_wrong_arguments_are_answered():
    with pytest.raises(TypeError, match="time can be scaled for systems on vector spaces"):
        TimeScaled(FreeBody(load_robot("hyq")))
    with pytest.raises(ValueError, match="phase = 1; there are 1 durations"):
        TimeScaled(DoubleIntegrator(["s"]), ("T",), 1)


def rest_to_rest(lower: float, upper: float) -> to.OCP:
    """Minimize T (c + 1/2 int u^2 dtau), over DISTANCE from rest to rest."""
    system = TimeScaled(DoubleIntegrator(["s"]), ("T",))
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
