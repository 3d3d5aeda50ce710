"""Finite differences of tapes by the kernel, beside differences in NumPy and SciPy that are written here."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dynamics_backends.manifold import SO3, Manifold, vector_space
from dynamics_backends.protocol import Batch, FunctionMap
from dynamics_backends.registry import make_backend

EPS = np.finfo(float).eps
STEPS = {"forward": EPS ** (1 / 2), "central": EPS ** (1 / 3)}


def spin(x, u, t, p):
    """A spinning body with two more states, driven by controls, time and parameters, in NumPy."""
    w = [x[4] * x[3], x[4] + x[0] * x[5], np.sin(x[5])]
    force = u[0] * np.exp(-p["rate"][0] * t) + u[1] * u[1]
    return [*w, force * x[1] - p["arm"][1] * x[2], np.where(x[4] > 0.0, x[4] * x[4], u[2] * x[5])]


def spinning() -> FunctionMap:
    return FunctionMap(spin, Manifold([SO3, vector_space(2)]), nu=3, n_out=5)


def arguments(size: int):
    rng = np.random.default_rng(size)
    q = Rotation.from_rotvec(rng.normal(size=(size, 3))).as_quat()
    far = 10.0 ** rng.uniform(-1.0, 3.0, (size, 2)) * rng.choice([-1.0, 1.0], (size, 2))
    p = {"rate": np.array([0.5]), "arm": rng.uniform(size=(size, 2))}
    return np.concatenate([q, far], axis=1), rng.normal(size=(size, 3)), rng.uniform(size=size), p


def moved(x, u, k, h):
    """(x, u) with direction k of (rotation vector, two states, three controls) perturbed by h (N,)."""
    x, u = x.copy(), u.copy()
    if k < 3:
        turn = Rotation.from_rotvec(h[:, None] * np.eye(3)[k])
        x[:, :4] = (Rotation.from_quat(x[:, :4]) * turn).as_quat()
    elif k < 5:
        x[:, k + 1] += h
    else:
        u[:, k - 5] += h
    return x, u


def differences(scheme, x, u, t, p):
    """Value (N, 5), derivatives (N, 5, 8) and steps (8, N)."""

    def f(x, u):
        return np.array(spin(x.T, u.T, t, {"rate": p["rate"], "arm": p["arm"].T})).T

    value, columns, steps = f(x, u), [], []
    for k in range(8):
        at = np.zeros(len(x)) if k < 3 else x[:, k + 1] if k < 5 else u[:, k - 5]
        h = STEPS[scheme] * np.maximum(1.0, np.abs(at))
        h = (at + h) - at
        behind, length = (f(*moved(x, u, k, -h)), 2.0 * h) if scheme == "central" else (value, h)
        columns.append((f(*moved(x, u, k, h)) - behind) / length[:, None])
        steps.append(h)
    return value, np.stack(columns, axis=2), np.array(steps)


@pytest.mark.parametrize("size", [1, 7, 300])
@pytest.mark.parametrize("scheme", STEPS)
def test_the_kernel_takes_the_differences(scheme, size):
    x, u, t, p = arguments(size)
    backend = make_backend(spinning(), f"{scheme}_difference", engine="compiled")
    assert backend.compiled.jacobians(backend, Batch.of(backend.map, x, u, t, p)) is not None
    value, fx, fu = backend.jacobians(x, u, t, p)
    expected, slopes, h = differences(scheme, x, u, t, p)
    np.testing.assert_allclose(value, expected, rtol=1e-13, atol=1e-13)
    rounding = 20.0 * EPS * (1.0 + np.abs(expected))[:, :, None] / h.T[:, None, :]
    assert (np.abs(np.concatenate([fx, fu], axis=2) - slopes) <= rounding).all()


@pytest.mark.parametrize("scheme", STEPS)
def test_the_order_of_the_error(scheme):
    """Derivatives of exp: h/2 exp(x) by forward differences, h^2/6 exp(x) by central ones."""
    growth = FunctionMap(lambda x, u, t, p: [np.exp(x[0])], 1, 0)
    for h in (1e-2, 1e-3):
        j = make_backend(growth, f"{scheme}_difference", engine="compiled", step=h).jacobians([[0.3]], np.zeros((1, 0)))
        order = {"forward": h / 2, "central": h * h / 6}[scheme]
        assert j.fx[0, 0, 0] - np.exp(0.3) == pytest.approx(order * np.exp(0.3), rel=0.01)


def test_a_map_without_directions():
    still = FunctionMap(lambda x, u, t, p: [2.0 * t], 0, 0, n_out=1)
    j = make_backend(still, "central_difference", engine="compiled").jacobians(np.zeros((3, 0)), np.zeros((3, 0)), 0.5)
    np.testing.assert_array_equal(j.value, [[1.0]] * 3)
    assert j.fx.shape == (3, 1, 0) and j.fu.shape == (3, 1, 0)
