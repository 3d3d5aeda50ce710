"""Contracted second derivatives by every method that has them: they agree with the closed form and with each other."""

import pickle

import numpy as np
import pytest
from rigid_body_cases import error, state, tree

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import SE3, SO3, Manifold, vector_space
from dynamics_backends.methods import exact_methods
from dynamics_backends.protocol import FunctionMap, SecondOrderBackend
from dynamics_backends.registry import backend_names, make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody

N = 3
compiled = "compiled"
EXACT = ("forward_ad", "structured_ad", "complex_step", "casadi_ad")
SYSTEMS = ("fixed0", "floating1", "fixed2", "floating2")


def body(name):
    return FreeBody(tree(name, 3), friction_velocity=0.1)


def arguments(map, seed=0):
    rng = np.random.default_rng(seed)
    q, v, _ = state(map.model, seed, N)
    x = np.concatenate([q, v], axis=1)
    return x, rng.standard_normal((N, map.nu)), 0.0, None, rng.standard_normal((N, map.n_out))


def rocket():
    """A pose, an attitude and two numbers, with parameters, time, and curvature in the control."""

    def function(x, u, t, p):
        thrust = u[0] * u[1] * sm.exp(-p["rate"][0] * t)
        selected = sm.select(x[11] - p["edge"][1], sm.sqrt(2.0 + x[11]), x[12] * x[12])
        return [
            x[0] * x[5] + thrust,
            sm.sin(x[11]) * u[1] * u[1],
            3.0,
            selected * sm.tanh(u[0]),
            sm.cos(x[2] * x[8]) ** 3,
        ]

    return FunctionMap(function, Manifold([SE3, SO3, vector_space(2)]), nu=2, n_out=5)


def rocket_arguments():
    rng = np.random.default_rng(3)
    x, u, t = rng.standard_normal((N, 13)), rng.standard_normal((N, 2)), rng.uniform(size=N)
    for first in (3, 7):
        x[:, first : first + 4] /= np.linalg.norm(x[:, first : first + 4], axis=1, keepdims=True)
    p = {"rate": np.array([0.5]), "edge": rng.uniform(size=(N, 2))}
    return x, u, t, p, rng.standard_normal((N, 5))


def assert_same(actual, expected, tolerance):
    """First and second derivatives, each block relative to its largest entry, or to one."""
    for ours, theirs in zip((*actual[0], *actual[1]), (*expected[0], *expected[1]), strict=True):
        assert error(ours, theirs, at_least=1.0) <= tolerance


def by_second_differences(map, x, u, t, p, lam, h=1e-4):
    """The Hessian of (dx, du) -> lam' f(x (+) dx, u + du) by differences of values alone."""
    backend = make_backend(map, "complex_step")
    directions = h * np.eye(map.manifold.ndx + map.nu)

    def value(step):
        moved = map.manifold.integrate(x.T, np.tile(step[: map.manifold.ndx, None], N)).T
        return np.sum(lam * backend.f(moved, u + step[map.manifold.ndx :], t, p), axis=1)

    rows = [[value(a + b) - value(a - b) - value(b - a) + value(-a - b) for b in directions] for a in directions]
    return np.moveaxis(np.array(rows), 2, 0) / (4.0 * h * h)


@pytest.mark.parametrize("engine", ["numpy", compiled])
@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("name", SYSTEMS)
def test_algorithmic_differentiation_agrees_with_the_closed_form(name, method, engine):
    given = arguments(body(name))
    expected = make_backend(body(name), "analytic").hessian_contraction(*given)
    actual = make_backend(body(name), method, engine=engine).hessian_contraction(*given)
    assert_same(actual, expected, 1e-11 * max(1.0, np.abs(expected[1].xx).max()))


@pytest.mark.parametrize("name", ["fixed0", "floating1"])
def test_differences_agree_with_the_closed_form_to_their_accuracy(name):
    given = arguments(body(name))
    expected = make_backend(body(name), "analytic").hessian_contraction(*given)
    _, actual = make_backend(body(name), "central_difference", step=1e-4).hessian_contraction(*given)
    for ours, theirs in zip(actual, expected[1], strict=True):
        assert error(ours, theirs, at_least=1.0) < 1e-5


@pytest.mark.parametrize("engine", ["numpy", compiled])
@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_casadi_on_a_function_of_parameters_and_time(mode, engine):
    expected = make_backend(rocket(), "forward_ad").hessian_contraction(*rocket_arguments())
    backend = make_backend(rocket(), "casadi_ad", mode=mode, engine=engine)
    assert_same(backend.hessian_contraction(*rocket_arguments()), expected, 1e-12)


@pytest.mark.parametrize("engine", ["numpy", compiled])
@pytest.mark.parametrize("method", [*EXACT, "central_difference"])
def test_a_function_against_second_differences_of_its_values(method, engine):
    given = rocket_arguments()
    _, second = make_backend(rocket(), method, engine=engine).hessian_contraction(*given)
    expected, n = by_second_differences(rocket(), *given), rocket().manifold.ndx
    for ours, theirs in zip(second, (expected[:, :n, :n], expected[:, n:, :n], expected[:, n:, n:]), strict=True):
        assert np.abs(theirs).max() > 0.1
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_parts_of_a_batch_are_put_together(monkeypatch):
    given = rocket_arguments()
    _, whole = make_backend(rocket(), "forward_ad", engine="numpy").hessian_contraction(*given)
    monkeypatch.setattr(exact_methods, "ENTRIES", 1)
    _, parts = make_backend(rocket(), "forward_ad", engine="numpy").hessian_contraction(*given)
    for ours, theirs in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_constant_has_no_curvature():
    map = FunctionMap(lambda x, u, t, p: [1.0, 2.0], 2, nu=1)
    given = (np.ones((3, 2)), np.ones((3, 1)), 0.0, None, np.ones((3, 2)))
    for method in ("forward_ad", "complex_step", "casadi_ad", "central_difference"):
        _, second = make_backend(map, method).hessian_contraction(*given)
        assert [block.shape for block in second] == [(3, 2, 2), (3, 1, 2), (3, 1, 1)]
        assert not any(block.any() for block in second)


def test_methods_without_second_derivatives_lack_the_method():
    having = {name for name in backend_names() if isinstance(make_backend(body("fixed0"), name), SecondOrderBackend)}
    assert having == {"analytic", "central_difference", *EXACT}
    assert not isinstance(make_backend(rocket(), "forward_difference"), SecondOrderBackend)


@pytest.mark.parametrize("method", ["forward_ad", "complex_step"])
def test_a_function_that_cannot_be_traced_has_the_same_second_derivatives_on_both_engines(method):
    def decides(x, u, t, p):
        return [x[1] * u[0], np.sin(x[0]) * x[1] if x[0] > -50.0 else 0.0]

    rng = np.random.default_rng(7)
    given = (rng.standard_normal((N, 2)), rng.standard_normal((N, 1)), 0.0, None, rng.standard_normal((N, 2)))
    found = [
        make_backend(FunctionMap(decides, 2, 1), method, engine=e).hessian_contraction(*given)
        for e in ("numpy", "compiled")
    ]
    assert_same(*found, 1e-12)
    x, lam, H = given[0], given[4], found[0][1]
    expected_xx = np.array([[-a * np.sin(y) * z, a * np.cos(y)] for a, (y, z) in zip(lam[:, 1], x, strict=True)])
    np.testing.assert_allclose(H.xx[:, 0], expected_xx, atol=1e-5)
    np.testing.assert_allclose(H.ux[:, 0, 1], lam[:, 0], atol=1e-5)


def _squares(x, u, t, p):
    return [x[0] * x[0] * u[0], sm.exp(x[1]) * u[1]]


def test_a_backend_with_compiled_second_derivatives_is_pickled():
    rng = np.random.default_rng(8)
    given = (rng.standard_normal((N, 2)), rng.standard_normal((N, 2)), 0.0, None, rng.standard_normal((N, 2)))
    backend = make_backend(FunctionMap(_squares, 2, 2), "forward_ad", engine="compiled")
    expected = backend.hessian_contraction(*given)
    assert_same(pickle.loads(pickle.dumps(backend)).hessian_contraction(*given), expected, 0.0)
    np.testing.assert_allclose(expected[1].xx[:, 0, 0], 2.0 * given[4][:, 0] * given[1][:, 0], rtol=1e-14)
