"""Problems with free durations from problems on a fixed grid: time steps, costs, and optima independent of the solver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contact_cases import hop

import trajopt as to
from dynamics_backends.protocol import MissingCapability
from dynamics_backends.registry import make_backend
from problems.robots.textbook import multi_pendulum as chain

SHARES = np.array([1.3, 0.6, 0.9])
"""Durations of the phases of the hop, as shares of the planned ones."""


def pendulum(scheme: str = "rk4", damping: float = 0.0, engine: str = "numpy", substeps: int = 1) -> to.OCP:
    """A pendulum rises by a right angle within a second; its joint limit is out of reach."""
    model = chain(1).replace(damping=np.array([damping]))
    system = to.FreeBody(model)
    dynamics = to.SampledSystem(make_backend(system, engine=engine), scheme, substeps)
    goal = to.state_cost(system.manifold, [0.5 * np.pi, 0.0], 1e4)
    bounds = to.state_bounds(system.manifold, [-np.inf, -9.0], [4.0, 9.0], "limits")
    return to.OCP.single_phase(
        dynamics, [0.0, 0.0], 15, 1.0 / 15, [to.control_cost(1, reference=0.0, weight=0.1)], [goal], constraints=[bounds],
        u_lower=[-60.0], u_upper=[60.0],
    )  # fmt: skip


def trajectory(ocp: to.OCP, seed: int = 0) -> to.Guess:
    rng, manifold = np.random.default_rng(seed), ocp.manifold
    xs = manifold.integrate(
        np.tile(ocp.x0, (ocp.horizon + 1, 1)).T, 0.1 * rng.standard_normal((ocp.horizon + 1, manifold.ndx)).T
    ).T
    xs[0] = ocp.x0
    return to.Guess(xs, rng.standard_normal((ocp.horizon, ocp.nu)))


def longer(ocp: to.OCP, fractions) -> to.OCP:
    """The problem with other time steps."""
    timed = iter(np.asarray(fractions).tolist())
    return replace(
        ocp, phases=tuple(replace(p, dt=p.dt * next(timed)) if p.dynamics.takes_time else p for p in ocp.phases)
    )


@pytest.mark.parametrize("case", ["hop", "damped rk4", "damped semi_implicit_euler", "damped euler"])
def test_steps_and_cost_are_those_of_a_grid_of_these_durations(case):
    given = hop() if case == "hop" else pendulum(case.split()[1], 30.0, substeps=2)
    free = to.free_time(given, price=2.0)
    T = SHARES[: len(free.nominal)] * free.nominal
    plan, other = trajectory(given), longer(given, SHARES)
    xs, us = free.with_durations(plan, T)
    n, ndx = given.manifold.nx, given.manifold.ndx
    for own, wide, k in zip(other.phases, free.ocp.phases[1:], other.phase_slices, strict=True):
        first = own.dynamics.linearize(plan.xs[k], plan.us[k, : own.dynamics.nu], 0.0, own.dt)
        second = wide.dynamics.linearize(xs[1:][k], us[1:][k, : own.dynamics.nu], 0.0, wide.dt)
        np.testing.assert_allclose(second.x_next[:, :n], first.x_next, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(second.A[:, :ndx, :ndx], first.A, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(second.B[:, :ndx], first.B, rtol=1e-9, atol=1e-10)
    assert free.ocp.cost(xs, us) == pytest.approx(other.cost(*plan) + 2.0 * T.sum(), rel=1e-12)
    np.testing.assert_allclose(free.times(xs)[1:], other.times, rtol=1e-12)
    back, durations = free.without((xs, us))
    np.testing.assert_array_equal(back.xs, plan.xs)
    np.testing.assert_array_equal(back.us, plan.us)
    np.testing.assert_array_equal(durations, T)


@pytest.mark.parametrize(("scheme", "damping"), [("rk4", 0.0), ("rk4", 30.0), ("semi_implicit_euler", 30.0)])
def test_derivatives_of_steps_agree_with_differences(scheme, damping):
    free = to.free_time(pendulum(scheme, damping, substeps=2))
    step, h = free.ocp.phases[1].dynamics, 1e-5
    rng = np.random.default_rng(2)
    x, u, lam = np.array([[0.4, 0.7, 1.3]]), np.array([[5.0]]), rng.standard_normal((1, 3))
    at = step.linearize(x, u, 0.0, 0.07)
    second = step.contract(x, u, 0.0, 0.07, None, lam)
    for j in range(4):
        dx, du = h * np.eye(4)[j, :3], h * np.eye(4)[j, 3:]
        ends = [step.linearize(x + s * dx, u + s * du, 0.0, 0.07) for s in (1.0, -1.0)]
        slope = (ends[0].x_next - ends[1].x_next)[0] / (2 * h)
        np.testing.assert_allclose(np.concatenate([at.A, at.B], axis=2)[0, :, j], slope, rtol=1e-7, atol=1e-8)
        found = (lam @ (ends[0].A - ends[1].A)[0] / (2 * h))[0], (lam @ (ends[0].B - ends[1].B)[0] / (2 * h))[0]
        expected = (second.xx[0, j], second.ux[0, :, j]) if j < 3 else (second.ux[0, 0], second.uu[0, 0])
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_solvers_and_engines_agree_on_the_duration():
    found, scheme = [], "semi_implicit_euler"
    for solver, engine in (("ddp", "numpy"), ("slq", "numpy"), ("ipm", "numpy"), ("sqp", "compiled")):
        ocp = pendulum(scheme, engine=engine)
        if solver in ("ddp", "slq"):
            ocp = replace(ocp, phases=tuple(replace(p, constraints=()) for p in ocp.phases))
        free = to.free_time(ocp, (0.2, 3.0), price=5.0)
        solution = to.solve(free.ocp, free.with_durations(to.constant_guess(ocp)), solver=solver)
        assert solution.status.success, solution.status
        found.append((float(solution.xs[-1, -1]), solution.cost))
    np.testing.assert_allclose(found, np.tile(found[0], (4, 1)), rtol=1e-6)
    T = found[0][0]
    fixed = [to.solve(longer(pendulum(scheme), [T * s]), solver="sqp").cost + 5.0 * T * s for s in (0.97, 1.0, 1.03)]
    assert fixed[1] == pytest.approx(found[0][1], rel=1e-6) and fixed[1] < min(fixed[0], fixed[2])


@pytest.mark.parametrize("guessed", [1.0, 10.0])
def test_costs_that_are_no_squares_are_integrated_over_the_duration(guessed):
    """A point moves 1 m from rest to rest at the cost of the integral of 1 + u^2/2, which is T + 6 / T^3: T^4 = 18."""
    point = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    price = to.objective_term("price", lambda x, u, t, p: [1.0 + 0.5 * u[0] ** 2], 2, nu=1)
    end = to.bounded(to.state_cost(2, [1.0, 0.0]), name="end")
    steps = to.SampledSystem(to.make_backend(point, "forward_ad"), "rk4")
    ocp = to.OCP.single_phase(steps, [0.0, 0.0], 50, guessed / 50, [price], [], terminal_constraints=[end])
    free = to.free_time(ocp, (0.2, 30.0), price=0.0)
    solution = to.solve(free.ocp, free.with_durations(to.interpolated_guess(ocp, [1.0, 0.0])))
    T = 18.0**0.25
    assert solution.status.success
    assert (solution.duration, solution.cost) == pytest.approx((T, T + 6.0 / T**3), rel=5e-4)


def test_the_phases_of_a_hop_last_as_long_as_is_best():
    """A floating base on one leg: rigid contact, flight, an impact, and contact again."""
    given = hop()
    free = to.free_time(given, ((0.02, 0.02), (0.01, 0.4), (0.01, 0.4)), price=0.05)
    guess = free.with_durations(to.constant_guess(given, 0.1))
    solutions = [to.solve(free.ocp, guess, solver=solver) for solver in ("fddp", "slq")]
    assert all(s.status.success for s in solutions)
    costs = [s.cost for s in solutions]
    assert costs[0] == pytest.approx(costs[1], rel=1e-7)
    assert costs[0] < to.solve(given, solver="slq").cost + 0.05 * free.nominal.sum()
    _, T = free.without(solutions[0])
    assert T[0] == pytest.approx(0.02) and not np.allclose(T[1:], free.nominal[1:], rtol=0.1)


def test_problems_without_free_duration_are_reported():
    ocp = pendulum()
    with pytest.raises(ValueError, match="a shortest and a longest one above 0"):
        to.free_time(ocp, (2.0, 1.0))
    with pytest.raises(ValueError, match="expected a number of at least 0, or one for each of 1 phases"):
        to.free_time(ocp, price=-1.0)

    class OwnSteps:
        takes_time, sampling = True, None

    with pytest.raises(TypeError, match="time steps of OwnSteps have no derivative in their length"):
        to.free_time(replace(ocp, phases=(replace(ocp.phases[0], dynamics=OwnSteps()),)))


def test_one_control_beside_one_duration_keeps_its_name():
    given = pendulum()
    assert to.free_time(given).ocp.control_names == given.control_names != ("duration",)


def test_solutions_have_their_duration(tmp_path):
    ocp = to.free_time(pendulum(), price=2.0).ocp
    choice, motion = ocp.phases
    other = replace(ocp, phases=(choice, replace(motion, dt=np.linspace(0.5, 1.5, 15) / 15)))
    options = {"max_iterations": 2}
    batch = to.solve_batch([ocp, other], solver="slq", options=options)
    alone = to.solve(ocp, None, options, solver="slq")
    for of, solution in ((ocp, batch[0]), (other, batch[1]), (ocp, alone)):
        np.testing.assert_allclose(solution.times, of.times_of(solution.xs))
        assert solution.duration == solution.times[-1] and abs(solution.duration - of.times[-1]) > 1e-3
        loaded = to.Solution.load(solution.save(tmp_path / "one.npz"))
        np.testing.assert_array_equal(loaded.times, solution.times)
        assert f"{solution.duration:.3g}</text>" in loaded._repr_html_()


def test_files_whose_times_were_those_of_the_grid_have_true_ones(tmp_path):
    ocp = to.free_time(pendulum(), price=2.0).ocp
    solution = to.solve(ocp, None, {"max_iterations": 2}, solver="slq")
    old = replace(solution, times=ocp.times, meta={**solution.meta, "clock": solution.times.tolist()})
    np.testing.assert_array_equal(to.Solution.load(old.save(tmp_path / "old.npz")).times, solution.times)


def test_a_solution_of_a_free_duration_is_a_guess_on_another_grid():
    """A motion at a constant rate in 3 s reaches its half at the middle of a grid of 5 knots."""
    coarse = to.free_time(pendulum(), price=2.0).ocp
    seconds = 3.0
    count = coarse.horizon + 1
    xs = np.zeros((count, coarse.manifold.nx))
    xs[:, -1] = seconds / (coarse.times_of(np.pad(np.ones((count, 1)), ((0, 0), (coarse.manifold.nx - 1, 0))))[-1])
    times = coarse.times_of(xs)
    xs[:, 0] = times / times[-1]
    solution = to.Plan(0.0, times, xs, np.zeros((coarse.horizon, coarse.nu)), np.zeros((coarse.horizon, coarse.nu, 3)))
    fine = replace(
        coarse, phases=tuple(replace(p, dt=np.repeat(p.dt, 2) / 2) if p.dt.any() else p for p in coarse.phases)
    )
    guess = to.resampled_guess(fine, solution)
    np.testing.assert_allclose(guess.xs[:, 0], fine.times / fine.times[-1], atol=1e-12)


def test_functions_evaluated_in_python_are_findings_beside_a_free_duration_and_logged_once(caplog):
    def f(x, u, t, p):
        return [x[1], np.maximum([u[0], x[0]], [0.0, x[1]])[0]]

    dynamics = to.SampledSystem(make_backend(to.FunctionMap(f, 2, 1), "forward_ad"), "rk4")
    fixed = to.OCP.single_phase(dynamics, [0.1, 0.0], 3, 0.1, [to.control_cost(1)])
    free = to.free_time(fixed, (0.1, 1.0))
    guess = free.with_durations(to.constant_guess(fixed))
    solution = to.solve(free.ocp, guess, {"max_iterations": 1}, solver="slq")
    (finding,) = [finding for finding in solution.meta["findings"] if "in Python" in finding]
    assert "NumPy's maximum, minimum, max or min of a list (write np.array([...], like=x) for the list)" in finding
    warnings = [r for r in caplog.records if r.levelname == "WARNING" and "knot by knot" in r.getMessage()]
    assert len(warnings) == 1


def test_maxima_of_arrays_like_the_state_are_traced():
    def f(x, u, t, p):
        both = np.array([u[0], x[0]], like=x)
        return [x[1], np.maximum(both, np.array([0.0, x[1]], like=x))[0] + np.max(both) + np.linalg.norm([x[0], u[0]])]

    map = to.FunctionMap(f, 2, 1)
    backend = make_backend(map, "forward_ad")
    found = backend.jacobians(np.array([[3.0, 0.0]]), np.array([[4.0]]))
    assert not map.called.why
    np.testing.assert_allclose(found.fx[0], [[0.0, 1.0], [0.6, 0.0]])
    np.testing.assert_allclose(found.fu[0], [[0.0], [2.8]])


@pytest.mark.parametrize("running", [False, True])
def test_functions_that_read_the_time_are_reported(running):
    """A target that moves with t moves with the fixed grid, whatever the duration."""
    point = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    meet = to.residual_constraint("meet", lambda x, u, t, p: [x[0] - 1.0 - 0.5 * t], 2, 1)
    stay = to.residual_constraint("stay", lambda x, u, t, p: [x[0] - 1.0], 2, 1)
    chase = to.residual_cost("chase", lambda x, u, t, p: [x[0] - 0.5 * t], 2, 1)
    costs, goal = ([chase], stay) if running else ([], meet)
    ocp = to.OCP.single_phase(point, [0.0, 0.0], 10, 0.1, [to.control_cost(1), *costs], [], terminal_constraints=[goal])
    name = "chase" if running else "meet"
    (found,) = [f.message for f in to.validate(to.free_time(ocp, (0.2, 5.0)).ocp) if "reads the time" in f.message]
    assert repr(name) in found and "add a state with the rate 1" in found
    assert not [f for f in to.validate(ocp) if "reads the time" in f.message]


def test_dynamics_that_read_the_time_are_refused():
    """Their plan would be wrong in seconds."""
    driven = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] + to.sin(4.0 * t)], 2, 1, second_order=True)
    ocp = to.OCP.single_phase(to.SampledSystem(driven, "rk4"), [0.0, 0.0], 20, 0.05, [to.control_cost(1)])
    with pytest.raises(MissingCapability, match="depend on the time t, .*; add a state with the rate 1"):
        to.free_time(ocp)
