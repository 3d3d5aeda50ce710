"""Second derivatives of time steps against differences of A and B, and of the manifold's operations against complex steps."""

import numpy as np
import pytest
import textbook_systems as textbook
from rigid_body_cases import tree

from dynamics_backends.manifold import SE2, SE3, SO3, Manifold, vector_space
from dynamics_backends.manifold_curvature import dexp_inv_curvature, difference_curvature, integrate_curvature
from dynamics_backends.methods.exact_methods import contracted_hessian
from dynamics_backends.protocol import Batch, FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt import SCHEMES, SampledSystem
from trajopt.step.first_order_hold import HeldStep
from trajopt.step.integrators import step_rows
from trajopt.step.sensitivities import contraction_of

N = 4
GROUPS = Manifold([SE3, vector_space(2), SO3, SE2])
SYSTEMS = {
    "pendulum": textbook.pendulum,
    "spinning body": textbook.spinning_body,
    "attitude": textbook.attitude_kinematics,
    "free body": textbook.free_body,
    "fixed tree": lambda: FreeBody(tree("fixed0", 3), friction_velocity=2.0),
    "floating tree": lambda: FreeBody(tree("floating1", 2), friction_velocity=2.0),
}
CASES = [(n, s) for n in SYSTEMS for s in SCHEMES if (n, s) != ("attitude", "semi_implicit_euler")]  # of first order
T, LENGTHS = np.linspace(0.0, 1.0, N), np.array([0.01, 0.05, 0.1, 0.2])


def _points(system, seed=3):
    rng = np.random.default_rng(seed)
    start = np.tile(system.manifold.identity()[:, None], N)
    x = system.manifold.integrate(start, rng.uniform(-1.0, 1.0, (system.manifold.ndx, N))).T
    return x, rng.standard_normal((N, system.nu)), rng.standard_normal((N, system.manifold.ndx))


def _sampled(system, scheme, substeps=1):
    method = "analytic" if isinstance(system, FreeBody) else "forward_ad"
    return SampledSystem(make_backend(system, method), scheme, substeps)


def _through_the_chart(sampled, x, u, lam, nodes, h):
    """The Hessian of lam' (Phi(x (+) dx, u + du) (-) node) by central differences of its gradient.

    The gradient in (dx, du) is that of linearize at the moved point, carried to the node and to the chart about x.
    """
    manifold, n = sampled.manifold, sampled.manifold.ndx
    directions = np.concatenate([k * h * np.eye(n + sampled.nu) for k in (1, -1, 2, -2)])
    steps, times = np.repeat(directions, N, axis=0), len(directions)
    moved = manifold.integrate(np.tile(x.T, times), steps[:, :n].T).T
    controls = np.tile(u, (times, 1)) + steps[:, n:]
    x_next, A, B = sampled.linearize(moved, controls, np.tile(T, times), np.tile(LENGTHS, times))
    _, carry = manifold.d_difference(manifold.difference(np.tile(nodes.T, times), x_next.T).T)
    _, chart = manifold.d_integrate(steps[:, :n])
    gradients = (np.tile(lam, (times, 1))[:, None] @ carry @ np.concatenate([A @ chart, B], axis=2))[:, 0]
    forward, backward, far_forward, far_backward = gradients.reshape(4, -1, N, n + sampled.nu)
    slopes = (8.0 * (forward - backward) - (far_forward - far_backward)) / (12.0 * h)
    return slopes.transpose(1, 2, 0)


def _full(H):
    return np.concatenate(
        [np.concatenate([H.xx, H.ux.transpose(0, 2, 1)], axis=2), np.concatenate([H.ux, H.uu], axis=2)], axis=1
    )


@pytest.mark.parametrize("substeps", [1, 3])
@pytest.mark.parametrize("name, scheme", CASES)
def test_curvature_of_a_step_is_the_slope_of_its_sensitivities(name, scheme, substeps):
    system = SYSTEMS[name]()
    x, u, lam = _points(system)
    sampled = _sampled(system, scheme, substeps)
    H = _full(sampled.contract(x, u, T, LENGTHS, None, lam))
    expected = _through_the_chart(sampled, x, u, lam, sampled.step(x, u, T, LENGTHS), 1e-3)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(H, H.transpose(0, 2, 1), rtol=0, atol=1e-13 * scale)
    np.testing.assert_allclose(H, expected, rtol=0, atol=2e-9 * scale)


@pytest.mark.parametrize("scheme", ["euler", "rk4"])
def test_curvature_of_a_step_in_a_vector_space_is_that_of_its_source(scheme):
    """Agreement to rounding with a complex step over dual numbers through the whole step."""
    system = textbook.pendulum()
    x, u, lam = _points(system)
    sampled = _sampled(system, scheme, 3)

    def step(x, u, t, p):
        return step_rows(system, scheme, 3, x, u, t, p["length"][0], {})

    whole = FunctionMap(step, system.manifold, system.nu, system.manifold.ndx)
    expected = contracted_hessian(whole, Batch.of(whole, x, u, T, {"length": LENGTHS[:, None]}), lam)
    actual = _full(sampled.contract(x, u, T, LENGTHS, None, lam))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-14 * np.abs(expected).max())


def test_a_backend_without_second_derivatives_says_so():
    sampled = SampledSystem(make_backend(textbook.pendulum(), "forward_difference"), "rk4")
    assert sampled.contract is None
    with pytest.raises(TypeError, match="forward_difference has no second derivatives; choose backend = 'forward_ad'"):
        contraction_of(sampled)


@pytest.mark.parametrize("name", ["pendulum", "spinning body"])
def test_second_derivatives_from_the_source(name):
    """Second derivatives of a backend of first order are those of one of second order."""
    system = SYSTEMS[name]()
    x, u, lam = _points(system)
    first, second = (SampledSystem(make_backend(system, m), "rk4", 2) for m in ("forward_difference", "casadi_ad"))
    given = (x, u, T, LENGTHS, None, lam)
    expected = _full(contraction_of(second)(*given))
    actual = _full(contraction_of(first, from_source=True)(*given))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("method", ["complex_step", "forward_ad"])
@pytest.mark.parametrize("name", ["pendulum", "spinning body"])
def test_a_first_order_hold(name, method):
    """Equal controls at both ends hold still; derivatives in both are differences, along any direction."""
    system, h = SYSTEMS[name](), 1e-5
    sampled = SampledSystem(make_backend(system, method), "rk4", 2)
    step, (x, u, lam) = HeldStep(sampled), _points(system)
    same = step.step(x, np.hstack([u, u]), T, LENGTHS)
    np.testing.assert_allclose(same, sampled.step(x, u, T, LENGTHS), rtol=0, atol=1e-13)
    both = np.hstack([u, 0.3 - u])
    x_next, _, B = step.linearize(x, both, T, LENGTHS)
    assert B.shape == (N, system.manifold.ndx, step.nu) and np.abs(x_next - same).max() > 1e-4
    d = np.random.default_rng(5).standard_normal((N, step.nu))
    ends = [step.linearize(x, both + s * h * d, T, LENGTHS) for s in (1.0, -1.0)]
    moved = [system.manifold.difference(x_next.T, end.x_next.T).T for end in ends]
    np.testing.assert_allclose((B @ d[:, :, None])[:, :, 0], (moved[0] - moved[1]) / (2 * h), rtol=0, atol=1e-9)
    if system.manifold.is_vector_space:
        H = step.contract(x, both, T, LENGTHS, None, lam)
        slopes = [(lam[:, None] @ np.concatenate([e.A, e.B], axis=2))[:, 0] for e in ends]
        expected = (slopes[0] - slopes[1]) / (2 * h)
        along = np.concatenate([H.ux.transpose(0, 2, 1) @ d[:, :, None], H.uu @ d[:, :, None]], axis=1)[:, :, 0]
        np.testing.assert_allclose(along, expected, rtol=0, atol=1e-8)


# -- the manifold -------------------------------------------------------------------------------------------------------


def _hessian(f, n, lam):
    """The Hessian of lam' f(z), z (n, N) near 0 and f rows, generic in the scalar."""
    map = FunctionMap(lambda x, u, t, p: f(x), n, 0, GROUPS.ndx)
    return contracted_hessian(map, Batch.of(map, np.zeros((N, n)), np.zeros((N, 0))), lam)


def _tangents(count):
    vectors = np.random.default_rng(5).uniform(-1.5, 1.5, (count, N, GROUPS.ndx))
    vectors[0, 0] = 0.0  # where closed forms are 0/0
    return vectors


def test_curvature_of_integrate():
    delta, lam, start = _tangents(3)
    n = GROUPS.ndx
    x = GROUPS.integrate(np.tile(GROUPS.identity()[:, None], N), start.T)
    end = GROUPS.integrate(x, delta.T)
    wide = np.repeat  # one column of data for every column of the batch in hand

    def f(z):
        times = z.shape[1] // N
        at, step, to = (wide(a, times, axis=1) for a in (x, delta.T, end))
        return GROUPS.difference(to, GROUPS.integrate(GROUPS.integrate(at, z[:n]), step + z[n:]))

    expected = _hessian(f, 2 * n, lam)
    ye, ee = integrate_curvature(GROUPS, delta, lam)
    np.testing.assert_allclose(expected[:, :n, :n], 0.0, atol=1e-13)
    np.testing.assert_allclose(ye, expected[:, :n, n:], rtol=0, atol=1e-13)
    np.testing.assert_allclose(ee, expected[:, n:, n:], rtol=0, atol=1e-13)
    assert np.abs(ye).max() > 0.1 and np.abs(ee).max() > 0.1


def test_curvature_of_difference_and_of_dexp_inv():
    d, lam, k = _tangents(3)
    x = GROUPS.integrate(np.tile(GROUPS.identity()[:, None], N), d.T)

    def gap(z):
        times = z.shape[1] // N
        return GROUPS.difference(
            np.tile(GROUPS.identity()[:, None], N * times), GROUPS.integrate(np.repeat(x, times, axis=1), z)
        )

    def pulled_back(z):
        times = z.shape[1] // N
        return GROUPS.dexp_inv(np.repeat(d.T, times, axis=1) + z, np.repeat(k.T, times, axis=1))

    expected = _hessian(gap, GROUPS.ndx, lam)
    np.testing.assert_allclose(difference_curvature(GROUPS, d, lam), expected, rtol=0, atol=1e-12)
    expected = _hessian(pulled_back, GROUPS.ndx, lam)
    np.testing.assert_allclose(dexp_inv_curvature(GROUPS, d, k, lam)[1], expected, rtol=0, atol=1e-12)
    assert np.abs(expected).max() > 0.1
