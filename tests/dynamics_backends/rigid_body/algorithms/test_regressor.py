"""Derivatives in inertial parameters, against the linearity of inverse dynamics in them and against changed models."""

from __future__ import annotations

import numpy as np
import pytest

from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.regressor import (
    forward_dynamics_parameters,
    inertial_parameters,
    inverse_dynamics_regressor,
    parameter_names,
)
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.model.sample_models import random_tree
from dynamics_backends.tape.traced_regressor import TracedRegressor
from problems.robots import load_robot


def cases():
    trees = [random_tree(np.random.default_rng(s), 6, floating_base=bool(s % 2)) for s in range(4)]
    return [*trees, load_robot("hyq"), load_robot("gen3")]


def point(model, count=2):
    rng = np.random.default_rng(1)
    return model.random_configuration(rng, 3).T, *rng.standard_normal((count, model.nv, 3))


@pytest.mark.parametrize("model", cases(), ids=lambda m: m.name)
def test_inverse_dynamics_is_linear_in_the_parameters(model):
    model = model.replace(armature=np.zeros(model.nv))
    q, v, a = point(model)
    Y = inverse_dynamics_regressor(model, q, v, a)
    tau = rnea(model, q, v, a)
    assert Y.shape[1] == len(parameter_names(model))
    np.testing.assert_allclose(np.einsum("vpn,p->vn", Y, inertial_parameters(model)), tau, atol=1e-12 * abs(tau).max())


@pytest.mark.parametrize("model", cases(), ids=lambda m: m.name)
def test_forward_dynamics_against_heavier_bodies(model):
    """A point mass at a body's center of mass changes m, h and J together; its effect is compared by central differences."""
    q, v, tau = point(model)
    d = forward_dynamics_parameters(model, q, v, tau)
    step = 1e-5
    for b in {0, model.nb - 1}:
        more, less = (model.replace(mass=model.mass + s * step * (np.arange(model.nb) == b)) for s in (1, -1))
        change = (inertial_parameters(more) - inertial_parameters(less)) / (2 * step)
        expected = (aba(more, q, v, tau) - aba(less, q, v, tau)) / (2 * step)
        actual = np.einsum("vpn,p->vn", d.d_parameters, change)
        np.testing.assert_allclose(actual, expected, atol=1e-6 * abs(expected).max() + 1e-9)


def test_a_body_out_of_the_path_has_no_effect():
    model = load_robot("hyq")
    q, v, a = point(model)
    Y = inverse_dynamics_regressor(model, q, v, a).reshape(model.nv, model.nb, 10, -1)
    front, hind = model.joint_id("lf_kfe_joint"), model.joint_id("rh_kfe_joint")
    assert not Y[model.v_index[front], hind].any()
    assert Y[model.v_index[front], front].any()


@pytest.mark.parametrize("floating", [False, True])
def test_traced_regressors_are_those_of_numpy(floating):
    model = random_tree(np.random.default_rng(3), 3, floating_base=floating)
    q, v, a = point(model)
    compiled = TracedRegressor(model)
    Y = inverse_dynamics_regressor(model, q, v, a).transpose(2, 0, 1)
    np.testing.assert_allclose(compiled.inverse(q.T, v.T, a.T), Y, atol=1e-12 * abs(Y).max())
    expected, actual = forward_dynamics_parameters(model, q, v, a), compiled.forward(q.T, v.T, a.T)
    np.testing.assert_allclose(actual.a, expected.a.T, atol=1e-11 * abs(expected.a).max())
    d = expected.d_parameters.transpose(2, 0, 1)
    np.testing.assert_allclose(actual.d_parameters, d, atol=1e-10 * abs(d).max())
