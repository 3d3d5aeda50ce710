"""Expansions of cost terms: gradients against differences of values, exact Hessians against differences of gradients."""

import numpy as np
import pytest

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import SE3, SO3, Manifold, vector_space
from dynamics_backends.protocol import FunctionMap, Partials
from trajopt import CostTerm, control_cost, quadratize, residual_cost, state_cost

GROUP = Manifold([SE3, vector_space(2), SO3])
FLAT = Manifold.vector(3)


def _states(manifold, n, seed=1):
    rng = np.random.default_rng(seed)
    start = np.tile(manifold.identity()[:, None], n)
    return manifold.integrate(start, rng.uniform(-0.8, 0.8, (manifold.ndx, n))).T


def _curved(x, u, t, p):
    return [sm.sin(x[0] * u[0]) + p["gain"][0] * x[1], x[2] * x[2] * u[1], sm.exp(x[0]) - t + u[0] * u[1]]


def _attitude(x, u, t, p):
    """Components of a fixed axis turned by the attitude, and a product with a control."""
    a, b, c, w = x[3], x[4], x[5], x[6]
    return [2.0 * (a * c + w * b), (2.0 * (b * c - w * a)) * u[0], x[0] * x[8] + u[1] * u[1]]


TERMS = {
    "flat": residual_cost("flat", _curved, FLAT, 3, [1.0, 2.0, 0.5], nu=2, parameters={"gain": [1.5]}),
    "group": residual_cost("group", _attitude, GROUP, 3, [[1.0, 2.0, 0.5], [0.3, 0.0, 1.0]], nu=2),
    "state": state_cost(GROUP, _states(GROUP, 2, seed=2), np.linspace(0.5, 2.0, GROUP.ndx)),
    "control": control_cost(2, reference=[[0.3, -0.2], [1.0, 2.0]], weight=[1.0, 3.0]),
}
DT = np.array([0.1, 0.3])
T = np.array([0.2, 0.5])


def _case(name):
    term = TERMS[name]
    manifold = term.residual.manifold
    return term, manifold, _states(manifold, 2), np.array([[0.4, -0.7], [1.1, 0.3]])[:, : term.residual.nu]


def _moved(manifold, x, u, direction, h):
    step = np.tile(h * direction[:, None], len(x))
    return manifold.integrate(x.T, step[: manifold.ndx]).T, u + step[manifold.ndx :].T


@pytest.mark.parametrize("name", TERMS)
def test_gradient_is_the_slope_of_the_value(name):
    term, manifold, x, u = _case(name)
    e = quadratize(term, x, u, T, DT)
    gradient = np.concatenate([e.lx, e.lu], axis=1)
    h = 1e-6
    for j, direction in enumerate(np.eye(manifold.ndx + term.residual.nu)):
        forward, backward = (quadratize(term, *_moved(manifold, x, u, direction, s * h), T, DT).value for s in (1, -1))
        np.testing.assert_allclose(gradient[:, j], (forward - backward) / (2 * h), rtol=0, atol=1e-8)


def _hessian(e):
    return np.concatenate(
        [np.concatenate([e.lxx, e.lux.transpose(0, 2, 1)], axis=2), np.concatenate([e.lux, e.luu], axis=2)], axis=1
    )


@pytest.mark.parametrize("name", TERMS)
def test_exact_hessian_is_that_of_the_value_in_the_exponential_chart(name):
    """Along every pair of directions: the second difference of s -> l(x (+) s d, u + s d)."""
    term, manifold, x, u = _case(name)
    H = _hessian(quadratize(term, x, u, T, DT, hessian="exact"))
    np.testing.assert_allclose(H, H.transpose(0, 2, 1), rtol=0, atol=1e-14)
    rng = np.random.default_rng(4)
    h = 1e-3
    for _ in range(10):
        d = rng.standard_normal(manifold.ndx + term.residual.nu)
        values = [quadratize(term, *_moved(manifold, x, u, d, s * h), T, DT).value for s in (-2, -1, 0, 1, 2)]
        second = np.tensordot([-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12], values, axes=1) / h**2
        np.testing.assert_allclose(d @ H @ d, second, rtol=0, atol=1e-7 * max(1.0, np.abs(second).max()))


def test_exact_hessian_is_the_difference_of_the_gradient_on_a_vector_space():
    term, manifold, x, u = _case("flat")
    H = _hessian(quadratize(term, x, u, T, DT, hessian="exact"))
    h = 1e-6
    for j, direction in enumerate(np.eye(5)):
        forward, backward = (quadratize(term, *_moved(manifold, x, u, direction, s * h), T, DT) for s in (1, -1))
        slope = (np.hstack([forward.lx, forward.lu]) - np.hstack([backward.lx, backward.lu])) / (2 * h)
        np.testing.assert_allclose(H[:, :, j], slope, rtol=0, atol=1e-8)


def test_gauss_newton_leaves_out_the_curvature_of_the_residual():
    term, _, x, u = _case("flat")
    approximate, exact = (_hessian(quadratize(term, x, u, T, DT, hessian=h)) for h in ("gauss_newton", "exact"))
    assert np.linalg.eigvalsh(approximate).min() > -1e-12
    assert np.abs(exact - approximate).max() > 1e-2
    linear = TERMS["control"]
    e, g = (quadratize(linear, x[:, :0], u, T, DT, hessian=h).luu for h in ("exact", "gauss_newton"))
    np.testing.assert_array_equal(e, g)


def test_value_is_half_the_weighted_square_times_dt():
    e = quadratize(TERMS["control"], np.zeros((2, 0)), np.array([[1.3, 0.8], [1.0, 0.0]]), T, DT)
    np.testing.assert_allclose(e.value, [0.5 * 0.1 * (1.0 + 3.0), 0.5 * 0.3 * 3.0 * 4.0])


def test_residual_with_its_own_jacobians_is_asked_for_them():
    class Own(FunctionMap):
        def partials(self, x, u, t, p):
            return Partials(x * 2.0, [np.full_like(x, 2.0)], [u])

    term = CostTerm("own", Own(lambda x, u, t, p: [2.0 * x[0]], 1, 0, 1), 1.0)
    np.testing.assert_allclose(quadratize(term, np.array([[3.0]]), np.zeros((1, 0)), 0.0).lx, [[12.0]])


def test_constant_residual_has_no_derivatives():
    term = residual_cost("constant", lambda x, u, t, p: p["c"] + 0.0 * t, FLAT, 1, parameters={"c": [2.0]})
    e = quadratize(term, np.zeros((2, 3)), np.zeros((2, 0)), 0.0, hessian="exact")
    np.testing.assert_array_equal(e.value, [2.0, 2.0])
    assert not e.lx.any()
    assert not e.lxx.any()
