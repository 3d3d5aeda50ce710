"""Angles on SO(2): goals a turn off in every solver and engine, derivatives by every method, robots with continuous joints."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to

TURN = 2.0 * np.pi
ANGLE = to.Manifold([to.SO2, to.vector_space(1)], ["angle", "rate"])
NUMBER = to.Manifold.vector(2, ["angle", "rate"])


def swing(goal: float, manifold: to.Manifold = ANGLE, engine: str = "numpy") -> to.OCP:
    """A damped pendulum goes from 0.2 rad to an angle, within 3 s."""
    system = to.FunctionMap(
        lambda x, u, t, p: [x[1], u[0] - 0.5 * np.sin(x[0]) - 0.1 * x[1]], manifold, 1, second_order=True
    )
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine=engine), "rk4")
    return to.OCP.single_phase(
        dynamics,
        [0.2, 0.0],
        20,
        0.15,
        [to.control_cost(1, weight=0.1)],
        [to.state_cost(manifold, [goal, 0.0], 1e3, "near the goal")],
        terminal_constraints=[to.bounded(to.state_cost(manifold, [goal, 0.0]), name="goal")],
        u_lower=-4.0,
        u_upper=4.0,
    )


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("solver", ["auto", "ipm", "dms", "sqp", "ddp", "slq", "fddp", "gnms"])
def test_a_goal_turns_off_is_the_nearest_one(solver, engine):
    near, far = (to.solve(swing(1.0 + turns, engine=engine), solver=solver) for turns in (0.0, -2.0 * TURN))
    assert near.status.success and far.status.success, far.status
    assert far.xs[-1, 0] == pytest.approx(1.0, abs=1e-6) and far.cost == pytest.approx(near.cost, rel=1e-5)


def test_turns_count_where_the_angle_is_a_number():
    """With a plain number as the angle, the pendulum moves to the same goal a turn away."""
    far = to.solve(swing(1.0 - TURN, NUMBER), solver="ipm")
    assert far.status.success and far.xs[-1, 0] == pytest.approx(1.0 - TURN, abs=1e-6)
    assert far.cost > 2.0 * to.solve(swing(1.0 - TURN), solver="ipm").cost


def test_a_bound_on_an_angle_counts_turns():
    bound = to.state_bounds(ANGLE, [6.0, -np.inf], [np.inf, np.inf])
    assert bound.lower.tolist() == [6.0] and bound.residual.output_names == ("angle",)


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_derivatives_of_a_problem_with_an_angle_pass_the_check(engine):
    """First and second derivatives of all methods pass, with a goal several turns away."""
    checks = list(to.check_derivatives(swing(1.0 - 3.0 * TURN), engine=engine))
    assert len(checks) > 5 and all(check.passed for check in checks), [c for c in checks if not c.passed]


@pytest.mark.parametrize("method", ["forward_ad", "structured_ad", "complex_step", "casadi_ad", "central_difference"])
@pytest.mark.parametrize("turns", [-1, 0, 3])
def test_the_derivatives_of_a_distance_to_an_angle(method, turns):
    """sin(d) for the difference d of an angle from 0.3: closed form cos(d), and -sin(d)."""
    residual = to.FunctionMap(
        lambda x, u, t, p: [np.sin(ANGLE.difference(np.array([0.3, 0.0]) + 0.0 * x, x)[0])],
        ANGLE,
        0,
        1,
        second_order=True,
    )
    x = np.array([[0.3 + 0.9 + TURN * turns, 0.4]])
    first, second = to.make_backend(residual, method).hessian_contraction(x, np.zeros((1, 0)), 0.0, {}, np.ones((1, 1)))
    tolerance = 1e-5 if "difference" in method else 1e-12
    np.testing.assert_allclose(first.fx, [[[np.cos(0.9), 0.0]]], atol=tolerance)
    np.testing.assert_allclose(second.xx, [[[-np.sin(0.9), 0.0], [0.0, 0.0]]], atol=10.0 * tolerance)


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_a_guess_in_wrapped_angles_is_unwrapped(engine):
    """A guess of wrapped angles that jumps by one turn, as a sensor reports it."""
    ocp = swing(3.5, engine=engine)
    path = np.linspace(0.2, 3.5, 21)
    xs = np.column_stack([np.arctan2(np.sin(path), np.cos(path)), np.full(21, 1.1)])
    wrapped, smooth = (
        to.solve(ocp, to.Guess(x, np.zeros((20, 1))), solver="ipm") for x in (xs, np.column_stack([path, xs[:, 1]]))
    )
    assert smooth.status.success and wrapped.iterations == smooth.iterations
    np.testing.assert_allclose(wrapped.xs, smooth.xs, atol=1e-9)
    batch = to.solve_batch([ocp, ocp], guess=to.Guess(xs, np.zeros((20, 1))), solver="ipm")
    np.testing.assert_allclose(batch.xs[1], smooth.xs, atol=1e-6)


def test_a_robot_with_continuous_joints_reaches_a_posture_a_turn_off():
    model = to.load_robot("gen3", locked=["Actuator[34567]"])
    goal = np.array([0.5 + TURN, 0.4])
    robot = to.FreeBody(model)
    assert model.circular == ("Actuator1",)
    ocp = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(robot, engine="numpy"), "rk4"),
        np.zeros(4),
        30,
        0.04,
        [to.control_cost(2, weight=1e-4)],
        [to.state_cost(robot.manifold, np.r_[goal, 0.0, 0.0], 1e3)],
        model=model,
        goals=[to.state_goal(robot.manifold, np.r_[goal, 0.0, 0.0])],
    )
    guess = to.interpolated_guess(ocp, np.r_[goal, 0.0, 0.0])
    assert guess.xs[-1, 0] == pytest.approx(0.5)
    found = to.solve(ocp, guess, solver="ddp")
    assert found.status.success and found.xs[-1, 0] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("solver", ["real_time", "ipm"])
def test_replanning_follows_its_plan_where_measured_angles_are_wrapped(solver):
    """A wheel turns at one turn a second; its sensor jumps from pi to -pi."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], ANGLE, 1, second_order=True)
    ocp = to.OCP.single_phase(
        to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "rk4"),
        [3.0, TURN], 10, 0.05, [to.control_cost(1), to.state_cost(ANGLE, [0.0, TURN], [0.0, 100.0])],
    )  # fmt: skip
    mpc = to.MPC(ocp, solver=solver, period=0.05)
    x, forces = np.array([3.0, TURN]), []
    for k in range(8):
        u = mpc.step(np.array([np.arctan2(np.sin(x[0]), np.cos(x[0])), x[1]]), 0.05 * k)
        forces.append(float(u[0]))
        x = x + 0.05 * np.array([x[1], forces[-1]])
    assert np.abs(forces).max() < 1e-3 and x[0] > 5.0


@pytest.mark.parametrize("engine", ["numpy", pytest.param("compiled", marks=pytest.mark.needs_compiler)])
@pytest.mark.parametrize("solver", ["auto", "ipm", "dms", "sqp", "ddp", "slq", "fddp"])
def test_a_goal_one_turn_from_the_start_needs_no_motion(solver, engine):
    """The optimum costs nothing, and all gradients are rounding errors of the turn."""
    if solver == "dms":
        pytest.importorskip("cyipopt")
    wheel = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], ANGLE, 1, second_order=True)
    dynamics = to.SampledSystem(to.make_backend(wheel, "forward_ad", engine=engine), "rk4")
    goal = to.state_cost(ANGLE, [TURN, 0.0], 100.0)
    ocp = to.OCP.single_phase(dynamics, [0.0, 0.0], 20, 0.1, [to.control_cost(1, weight=0.1)], [goal])
    found = to.solve(ocp, solver=solver)
    assert found.status.code == "converged" and found.cost < 1e-20
    assert found.status.kkt < 1e-5 and "error 1.0e+00" not in found.status.message
