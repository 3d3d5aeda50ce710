"""Schemes, by the slope of their global error against scipy's DOP853 in plain coordinates."""

import numpy as np
import pytest
import textbook_systems as textbook
from scipy.integrate import solve_ivp

from dynamics_backends.registry import make_backend
from trajopt import SampledSystem
from trajopt.step.integrators import EULER, RK4

SYSTEMS = {
    "pendulum": (textbook.pendulum, [0.4, -0.3], [0.7]),
    "spinning body": (textbook.spinning_body, [0.1, -0.3, 0.2, 0.927361849549570, 1.2, -0.8, 0.9], [0.3, -0.2, 0.4]),
    "attitude": (textbook.attitude_kinematics, [0.5, 0.5, -0.5, 0.5], [0.8, -0.6, 0.3]),
    "free body": (
        textbook.free_body,
        [1.0, 2.0, 3.0, 0.1, -0.3, 0.2, 0.927361849549570, 0.4, 0.1, -0.5, 1.2, -0.8, 0.9],
        [1.0, 0.5, 12.0, 0.3, -0.2, 0.4],
    ),
}
ORDERS = {"euler": 1, "semi_implicit_euler": 1, "rk4": 4}
CASES = [(n, s) for n in SYSTEMS for s in ORDERS if (n, s) != ("attitude", "semi_implicit_euler")]  # of first order
HORIZON = 1.0


def _case(name):
    make, x, u = SYSTEMS[name]
    system, x, u = make(), np.array(x), np.array(u)
    exact = solve_ivp(textbook.coordinate_rate(system, u), (0, HORIZON), x, method="DOP853", rtol=1e-13, atol=1e-13)
    return system, x, u, exact.y[:, -1]


def _error(system, reached, exact):
    return np.linalg.norm(system.manifold.difference(exact[:, None], reached.T))


@pytest.mark.parametrize("name, scheme", CASES)
def test_slope_of_the_global_error_is_the_order(name, scheme):
    system, x, u, exact = _case(name)
    sampled = SampledSystem(make_backend(system, "forward_ad"), scheme)
    steps = np.array([16, 32, 64]) if scheme == "rk4" else np.array([256, 512, 1024])
    errors = []
    for n in steps:
        state = x[None]
        for i in range(n):
            state = sampled.step(state, u[None], i * HORIZON / n, HORIZON / n)
        errors.append(_error(system, state, exact))
    slopes = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert slopes == pytest.approx(ORDERS[scheme], abs=0.12)


@pytest.mark.parametrize("scheme", ORDERS)
def test_substeps_are_steps(scheme):
    system, x, u, _ = _case("free body")
    backend = make_backend(system, "forward_ad")
    once, thrice = SampledSystem(backend, scheme), SampledSystem(backend, scheme, substeps=3)
    state = x[None]
    for i in range(3):
        state = once.step(state, u[None], 0.2 + 0.01 * i, 0.01)
    np.testing.assert_allclose(thrice.step(x[None], u[None], 0.2, 0.03), state, rtol=0, atol=1e-14)


def test_quaternions_keep_their_length():
    system, x, u, _ = _case("free body")
    sampled = SampledSystem(make_backend(system, "forward_ad"), "rk4")
    state = x[None]
    for _ in range(1000):
        state = sampled.step(state, u[None], 0.0, 0.01)
    assert np.linalg.norm(state[0, 3:7]) == pytest.approx(1.0, abs=1e-12)


def test_semi_implicit_euler_uses_the_new_velocity():
    system, h = textbook.autonomous_pendulum(), 0.1
    sampled = SampledSystem(make_backend(system, "forward_ad"), "semi_implicit_euler")
    (q, v), u = (0.4, -0.3), 0.7
    v_next = v + h * (u - textbook.GRAVITY * np.sin(q))
    np.testing.assert_allclose(sampled.step([[q, v]], [[u]], 0.0, h), [[q + h * v_next, v_next]], rtol=1e-15)


@pytest.mark.parametrize("tableau", [EULER, RK4])
def test_tableaux_are_consistent(tableau):
    """c_i is the sum of row i, and the order conditions to order 4 hold (Hairer, Norsett, Wanner, II.2, Table 2.1)."""
    s = len(tableau.b)
    A = np.array([[*row, *[0.0] * (s - len(row))] for row in tableau.a])
    b, c = np.array(tableau.b), np.array(tableau.c)
    np.testing.assert_allclose(A.sum(axis=1), c)
    conditions = {1: [(b.sum(), 1)], 2: [(b @ c, 1 / 2)], 3: [(b @ c**2, 1 / 3), (b @ A @ c, 1 / 6)]}
    conditions[4] = [(b @ c**3, 1 / 4), ((b * c) @ A @ c, 1 / 8), (b @ A @ c**2, 1 / 12), (b @ A @ A @ c, 1 / 24)]
    for order in range(1, tableau.order + 1):
        for value, expected in conditions[order]:
            assert value == pytest.approx(expected, abs=1e-15)


def test_mistakes_are_refused_with_the_remedy():
    backend = make_backend(textbook.pendulum(), "forward_ad")
    with pytest.raises(ValueError, match="did you mean 'rk4'"):
        SampledSystem(backend, "rk44")
    with pytest.raises(ValueError, match="substeps = 0"):
        SampledSystem(backend, "rk4", substeps=0)
    with pytest.raises(ValueError, match="second_order=True"):
        SampledSystem(make_backend(textbook.attitude_kinematics(), "forward_ad"), "semi_implicit_euler")
