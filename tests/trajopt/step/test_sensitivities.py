"""A and B against a complex step through the whole step, on vector spaces and Lie groups."""

import numpy as np
import pytest
import textbook_systems as textbook

import trajopt as to
from dynamics_backends.manifold import SE2, SE3, SO3, Manifold, vector_space
from dynamics_backends.manifold_curvature import d_dexp_inv
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from trajopt import SCHEMES, SampledSystem
from trajopt.step.integrators import step_rows

SYSTEMS = {
    "pendulum": textbook.pendulum,
    "spinning body": textbook.spinning_body,
    "attitude": textbook.attitude_kinematics,
    "free body": textbook.free_body,
}
CASES = [(n, s) for n in SYSTEMS for s in SCHEMES if (n, s) != ("attitude", "semi_implicit_euler")]  # of first order
H = 1e-30


def _points(system, n, seed=3):
    """n random states with rotations up to about a radian, and controls."""
    rng = np.random.default_rng(seed)
    steps = rng.uniform(-1.0, 1.0, (system.manifold.ndx, n))
    x = system.manifold.integrate(np.tile(system.manifold.identity()[:, None], n), steps).T
    return x, rng.standard_normal((n, system.nu))


def _by_complex_step(system, scheme, substeps, x, u, t, dt):
    """d (x_next (-) ) / d (dx, u), (N, ndx, ndx + nu), one direction at a time."""
    manifold = system.manifold
    x_next = step_rows(system, scheme, substeps, x.T, u.T, t, dt, {})
    columns = []
    for direction in np.eye(manifold.ndx + system.nu):
        step = 1j * H * np.tile(direction[:, None], len(x))
        moved = manifold.integrate(x.T, step[: manifold.ndx])
        reached = step_rows(system, scheme, substeps, moved, u.T + step[manifold.ndx :], t, dt, {})
        columns.append(manifold.difference(x_next, reached).imag.T / H)
    return x_next.T, np.stack(columns, axis=2)


def test_a_system_alone_has_its_default_backend():
    """Closed form where it is written out, forward AD for a user's function; the steps are those of such a backend."""
    robot = to.FreeBody(to.chain(2))
    double = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] * x[0]], 2, 1)
    rng = np.random.default_rng(0)
    for system, method in ((robot, "analytic"), (double, "forward_ad")):
        alone, given = to.SampledSystem(system, "rk4"), to.SampledSystem(to.make_backend(system, method), "rk4")
        assert alone.backend.name == method
        x, u = rng.standard_normal((3, system.manifold.nx)), rng.standard_normal((3, system.nu))
        for a, b in zip(alone.linearize(x, u, 0.0, 0.1), given.linearize(x, u, 0.0, 0.1), strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(TypeError, match=r"got Model; a robot's model becomes a system by trajopt.FreeBody"):
        to.SampledSystem(to.chain(2))
    with pytest.raises(TypeError, match=r"got function; .* a function by trajopt.FunctionMap\(function, nx, nu\)"):
        to.SampledSystem(lambda x, u, t, p: x)


@pytest.mark.parametrize("substeps", [1, 3])
@pytest.mark.parametrize("name, scheme", CASES)
def test_sensitivities_are_those_of_the_whole_step(name, scheme, substeps):
    system = SYSTEMS[name]()
    x, u = _points(system, 5)
    t, dt = np.linspace(0.0, 1.0, 5), np.array([0.01, 0.05, 0.1, 0.2, 0.4])
    x_next, expected = _by_complex_step(system, scheme, substeps, x, u, t, dt)
    result = SampledSystem(make_backend(system, "forward_ad"), scheme, substeps).linearize(x, u, t, dt)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(result.x_next, x_next, rtol=0, atol=1e-14 * np.abs(x_next).max())
    np.testing.assert_allclose(result.A, expected[:, :, : system.manifold.ndx], rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(result.B, expected[:, :, system.manifold.ndx :], rtol=0, atol=1e-12 * scale)


def test_linearize_and_step_agree():
    system = textbook.free_body()
    x, u = _points(system, 4)
    sampled = SampledSystem(make_backend(system, "complex_step"), "rk4", substeps=2)
    linearized, stepped = sampled.linearize(x, u, 0.1, 0.05).x_next, sampled.step(x, u, 0.1, 0.05)
    np.testing.assert_allclose(linearized, stepped, rtol=0, atol=1e-14)


def test_parameters_and_step_lengths_may_vary_by_knot():
    system = FunctionMap(lambda x, u, t, p: [x[1], p["gain"][0] * u[0]], 2, 1, second_order=True)
    sampled = SampledSystem(make_backend(system, "forward_ad"), "rk4")
    h, gain = np.array([0.1, 0.2]), np.array([[3.0], [5.0]])
    _, A, B = sampled.linearize(np.zeros((2, 2)), np.ones((2, 1)), 0.0, h, {"gain": gain})
    np.testing.assert_allclose(A[:, 0, 1], h)
    np.testing.assert_allclose(B[:, :, 0], np.column_stack([0.5 * h**2, h]) * gain)


def test_derivative_of_dexp_inv_vanishes_on_vector_spaces_and_is_exact_on_groups():
    manifold = Manifold([SE3, vector_space(2), SO3, SE2])
    rng = np.random.default_rng(5)
    delta, k = rng.uniform(-1.5, 1.5, (2, 4, manifold.ndx))
    delta[0] = 0.0  # where closed forms are 0/0
    expected = np.zeros((4, manifold.ndx, manifold.ndx))
    for j, direction in enumerate(np.eye(manifold.ndx)):
        moved = delta + 1j * H * direction
        expected[:, :, j] = manifold.dexp_inv(moved.T, k.T).imag.T / H
    np.testing.assert_allclose(d_dexp_inv(manifold, delta, k), expected, rtol=0, atol=1e-13)
    assert not expected[:, 6:8].any()
