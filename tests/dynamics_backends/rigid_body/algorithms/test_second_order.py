"""Contracted second derivatives against complex steps through the first derivatives, which other tests verify."""

from __future__ import annotations

import numpy as np
import pytest
from rigid_body_cases import robot, state

from dynamics_backends.protocol import SecondOrderBackend
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.fd_second_order import fd_second_order
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_second_order import rnea_contracted_hessian
from dynamics_backends.rigid_body.model.sample_models import random_tree
from dynamics_backends.rigid_body.model.state import configuration_manifold
from dynamics_backends.systems.bodies.free_body import FreeBody
from problems.robots import load_robot

STEP = 1e-30
N = 3
MODELS = {
    **{f"tree {seed}": (seed, 7, bool(seed % 2)) for seed in range(6)},
    "tree of 30": (11, 30, True),
    "hyq": "hyq",
    "iiwa7": "iiwa7",
    "gen3": "gen3",
}


def model_of(name):
    entry = MODELS[name]
    if isinstance(entry, str):
        return load_robot(entry)
    seed, bodies, floating = entry
    model = random_tree(np.random.default_rng(seed), bodies, floating_base=floating)
    return model.replace(armature=np.linspace(0.0, 0.3, model.nv))


def point(model, count):
    rng = np.random.default_rng(5)
    return model.random_configuration(rng, N).T, *rng.standard_normal((count, model.nv, N))


def steps_along(first, model, q, v, x):
    """First derivatives (nv, nv, nv N) under an imaginary step along each tangent direction of q, and each entry of v."""
    steps = 1j * STEP * np.repeat(np.eye(model.nv), N, axis=1)
    q, v, x = (np.tile(rows, model.nv) + 0j for rows in (q, v, x))
    return first(model, configuration_manifold(model).integrate(q, steps), v, x), first(model, q, v + steps, x)


def contracted(weights, matrix):
    """Derivatives (nv, nv, N) of weights' matrix, whose entry b changes along direction c."""
    matrix = np.asarray(matrix)
    return np.einsum("in,ibcn->bcn", weights, matrix.reshape(*matrix.shape[:2], -1, N)).imag / STEP


def agree(actual, expected, tolerance):
    expected, actual = np.asarray(expected), np.asarray(actual)
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", MODELS)
def test_inverse_dynamics(name):
    model = model_of(name)
    q, v, a, mu = point(model, 3)
    H = rnea_contracted_hessian(model, q, v, a, mu)
    in_q, in_v = steps_along(rnea_derivatives, model, q, v, a)
    agree(H.qq, contracted(mu, in_q.dq), 1e-11)
    agree(H.qv, np.swapaxes(contracted(mu, in_q.dv), 0, 1), 1e-11)
    agree(H.qa, np.swapaxes(contracted(mu, in_q.M), 0, 1), 1e-11)
    agree(H.vv, contracted(mu, in_v.dv), 1e-11)


@pytest.mark.parametrize("name", MODELS)
def test_forward_dynamics(name):
    model = model_of(name)
    q, v, tau, lam = point(model, 3)
    H = fd_second_order(model, q, v, tau, lam)
    in_q, in_v = steps_along(fd_derivatives, model, q, v, tau)
    agree(H.qq, contracted(lam, in_q.dq), 1e-10)
    agree(H.qv, np.swapaxes(contracted(lam, in_q.dv), 0, 1), 1e-10)
    agree(H.qtau, np.swapaxes(contracted(lam, in_q.dtau), 0, 1), 1e-10)
    agree(H.vv, contracted(lam, in_v.dv), 1e-10)


def test_the_hessian_in_v_and_for_single_degrees_of_freedom_in_q_is_symmetric():
    model = model_of("iiwa7")
    q, v, a, mu = point(model, 3)
    H = rnea_contracted_hessian(model, q, v, a, mu)
    agree(H.qq, np.swapaxes(H.qq, 0, 1), 1e-14)
    agree(H.vv, np.swapaxes(H.vv, 0, 1), 1e-14)


def test_lie_derivatives_of_a_floating_base_do_not_commute():
    model = model_of("hyq")
    q, v, a, mu = point(model, 3)
    own = np.asarray(rnea_contracted_hessian(model, q, v, a, mu).qq)[:6, :6]
    assert np.abs(own - np.swapaxes(own, 0, 1)).max() > 0.1 * np.abs(own).max()


def test_the_contraction_is_linear_in_the_weights():
    model = model_of("tree 1")
    q, v, a, mu = point(model, 3)
    nu = np.random.default_rng(9).standard_normal(mu.shape)
    parts = [rnea_contracted_hessian(model, q, v, a, w) for w in (mu, nu, mu + 2.0 * nu)]
    for first, second, both in zip(*parts, strict=True):
        agree(both, first + 2.0 * second, 1e-12)


@pytest.mark.parametrize("name", ["ur5", "hyq", "fixed0", "floating1"])
def test_contraction_of_a_system_is_that_of_its_first_derivatives(name):
    """With damping and smooth friction, against complex step of J' lam, symmetrized in the state."""
    system = FreeBody(robot(name), friction_velocity=0.1)
    q, v, _ = state(system.model, 0, N)
    x, ndx = np.concatenate([q, v], axis=1), system.manifold.ndx
    rng = np.random.default_rng(0)
    u, lam = rng.standard_normal((N, system.nu)), rng.standard_normal((N, ndx))
    backend = make_backend(system, "analytic")
    assert isinstance(backend, SecondOrderBackend)
    first, second = backend.hessian_contraction(x, u, 0.0, None, lam)
    for ours, alone in zip(first, backend.jacobians(x, u), strict=True):
        np.testing.assert_allclose(ours, alone, rtol=1e-12, atol=1e-12)
    slopes = np.empty((N, ndx + system.nu, ndx + system.nu))
    for k, step in enumerate(1e-30j * np.eye(ndx + system.nu)[:, :, None]):
        at = system.manifold.integrate(x.T, np.broadcast_to(step[:ndx], (ndx, N)))
        p = system.partials(at, u.T + step[ndx:], 0.0, {})
        gradient = [sum(row * weight for row, weight in zip(M, lam.T, strict=True)) for M in (p.fx, p.fu)]
        slopes[:, :, k] = np.concatenate(gradient).imag.T / 1e-30
    xx = slopes[:, :ndx, :ndx]
    scale = np.abs(xx).max()
    np.testing.assert_allclose(second.xx, 0.5 * (xx + xx.transpose(0, 2, 1)), atol=1e-12 * scale)
    np.testing.assert_allclose(second.ux, slopes[:, ndx:, :ndx], atol=1e-12 * scale)
    assert not second.uu.any()
