"""Invalid arguments of guesses; their values are tested with the solvers that start from them."""

from __future__ import annotations

import numpy as np
import pytest
from textbook_systems import double_integrator

import trajopt as to
from dynamics_backends.scalar import sin


def problem():
    step = to.SampledSystem(to.make_backend(double_integrator(), "forward_ad"), "euler")
    return to.OCP.single_phase(step, [0.0, 0.0], 5, 0.1, [to.control_cost(1)])


WRONG = {
    "controls": (
        lambda ocp: to.constant_guess(ocp, [1.0, 2.0, 3.0]),
        r"u has shape \(3,\); expected a number, \(nu,\)",
    ),
    "goal": (lambda ocp: to.interpolated_guess(ocp, [1.0, 2.0, 3.0]), r"x_goal has shape \(3,\); expected \(nx,\)"),
    "one entry": (
        lambda ocp: to.interpolated_guess(ocp, [1.0]),
        r"x_goal has shape \(1,\); expected \(nx,\), of \(2,\)",
    ),
    "gains": (lambda ocp: to.feedback_guess(ocp, np.zeros((3, 2))), r"K has shape \(3, 2\); expected \(nu, ndx\)"),
    "states": (
        lambda ocp: to.quasi_static_guess(ocp, np.sum, np.zeros((5, 2))),
        r"xs has shape \(5, 2\); expected \(N",
    ),
    "held": (lambda ocp: to.quasi_static_guess(ocp, lambda xs: xs), r"u has shape \(5, 2\); .* of \(5, 1\)"),
    "shift": (lambda ocp: to.resampled_guess(ocp, to.solve(ocp), np.nan), "shift = nan; expected a number of seconds"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_shapes_are_reported(case):
    made, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        made(problem())


def test_leading_axes_may_be_omitted():
    ocp = problem()
    for u in (2.0, [2.0], np.full((5, 1), 2.0)):
        np.testing.assert_array_equal(to.constant_guess(ocp, u).us, np.full((5, 1), 2.0))
    gains = np.array([[-1.0, -0.5]])
    one, each = (to.feedback_guess(ocp, K, 1.0).xs for K in (gains, np.tile(gains, (5, 1, 1))))
    np.testing.assert_array_equal(one, each)


def test_the_regulator_is_that_of_the_riccati_equation():
    """Gains of a sampled pendulum about its upper equilibrium equal the stationary gains of scipy."""
    from scipy.linalg import solve_discrete_are

    system = to.FunctionMap(lambda x, u, t, p: [x[1], 9.81 * sin(x[0]) - 0.1 * x[1] + u[0]], 2, 1)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "rk4")
    dt, weight, effort = 0.05, 3.0, 0.2
    terms = [to.state_cost(2, [0.0, 0.0], weight), to.control_cost(1, reference=0.0, weight=effort)]
    ocp = to.OCP.single_phase(dynamics, [0.0, 0.0], 200, dt, terms, [to.state_cost(2, [0.0, 0.0], 50.0)])
    step = dynamics.linearize(np.zeros((1, 2)), np.zeros((1, 1)), 0.0, dt)
    A, B, R = step.A[0], step.B[0], np.array([[dt * effort]])
    P = solve_discrete_are(A, B, dt * weight * np.eye(2), R)
    np.testing.assert_allclose(to.regulator(ocp), -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A), rtol=1e-9)
    flat = to.OCP.single_phase(dynamics, [0.0, 0.0], 5, dt, [to.control_cost(1, reference=0.0, weight=0.0)], [])
    with pytest.raises(ValueError, match="not convex in the controls"):
        to.regulator(flat)


def test_guesses_with_free_durations_set_them():
    mass = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    fixed = to.OCP.single_phase(to.SampledSystem(mass, "rk4"), [0.0, 0.0], 10, 0.2, u_lower=-1.0, u_upper=1.0)
    free = to.free_time(fixed, (1.0, 8.0))
    still, expected = to.constant_guess(free.ocp, 0.5), free.with_durations(to.constant_guess(fixed, 0.5))
    np.testing.assert_array_equal(still.xs, expected.xs)
    assert still.us[0, 0] == 2.0 and (still.us[1:] == 0.5).all()
    moved = to.interpolated_guess(free.ocp, [1.0, 0.0, 20.0])
    assert (moved.xs[1:, 2] == 8.0).all() and moved.us[0, 0] == 8.0 and moved.xs[0, 2] == 2.0
    assert (to.constant_guess(free.ocp, np.zeros((11, 1))).us == 0.0).all()


def test_durations_that_are_not_set_by_controls_leave_the_controls():
    mass = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    scaled = to.time_scaled(mass, ("T",), 0, 1.0)
    ocp = to.OCP.single_phase(to.SampledSystem(scaled, "rk4"), [0.0, 0.0, 2.0], 4, 0.25)
    assert ocp.in_scaled_time and (to.constant_guess(ocp, 0.5).us == 0.5).all()
