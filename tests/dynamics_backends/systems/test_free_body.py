"""Free bodies: derivatives by the library, and inertial parameters at run time."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.names import UnknownName
from dynamics_backends.systems.bodies.free_body import inertial_parameters

KINDS = ("revolute", "prismatic", "spherical")


def changed(model, fraction):
    """A robot of the same joints with other inertias."""
    return replace(
        model, mass=fraction * model.mass, com=model.com + 0.05 * fraction, inertia=1.5 * fraction * model.inertia
    )


@pytest.mark.parametrize("floating", [False, True])
def test_motion_and_derivatives_are_those_of_the_robot_with_these_inertias(floating):
    rng = np.random.default_rng(0)
    model = to.random_tree(rng, 4, KINDS, floating_base=floating)
    body, N = to.InertialBody(model), 3
    robots = [changed(model, fraction) for fraction in (1.0, 1.4, 2.0)]
    p = {"inertia": np.stack([inertial_parameters(robot) for robot in robots], axis=1)}
    rest = np.tile(np.r_[model.neutral(), np.zeros(model.nv)][:, None], N)
    x = body.manifold.integrate(rest, 0.5 * rng.standard_normal((body.manifold.ndx, N)))
    u, lam = rng.standard_normal((body.nu, N)), rng.standard_normal((2 * model.nv, N))
    value, first, (_, second) = body(x, u, 0.0, p), body.partials(x, u, 0.0, p), body.contracted(x, u, 0.0, p, lam)
    for i, robot in enumerate(robots):
        own, at = to.FreeBody(robot), (x[:, [i]], u[:, [i]], 0.0, {})
        expected, (_, contraction) = own.partials(*at), own.contracted(*at, lam[:, [i]])
        np.testing.assert_allclose(value[:, i], own(*at)[:, 0], rtol=1e-11, atol=1e-11)
        for found, exact in ((first.fx, expected.fx), (first.fu, expected.fu), (second.xx, contraction.xx)):
            scale = np.abs(np.array(exact)).max()
            np.testing.assert_allclose(np.array(found)[..., i], np.array(exact)[..., 0], rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("size", [0, 1, 8, 21])
def test_derivatives_by_the_library_equal_those_by_numpy(floating, size):
    rng = np.random.default_rng(size)
    model = to.random_tree(rng, 5, KINDS, floating_base=floating)
    system = to.FreeBody(model, damping=True)
    x = np.hstack(
        [model.random_configuration(rng, size).reshape(size, model.nq), rng.standard_normal((size, model.nv))]
    )
    u, lam = rng.standard_normal((size, system.nu)), rng.standard_normal((size, system.n_out))
    library, by_numpy = (to.make_backend(system, "analytic", engine=engine) for engine in ("compiled", "numpy"))
    for backend in (library, pickle.loads(pickle.dumps(library))):
        first, second = backend.hessian_contraction(x, u, 0.0, None, lam)
        expected, exact = by_numpy.hessian_contraction(x, u, 0.0, None, lam)
        results = (*backend.jacobians(x, u), *first, *second)
        for found, known in zip(results, (*expected, *expected, *exact), strict=True):
            assert found.shape == known.shape
            np.testing.assert_allclose(found, known, rtol=0, atol=1e-11 * (1.0 + np.abs(known).max(initial=0.0)))


def test_multipliers_of_a_wrong_shape_are_refused():
    system = to.FreeBody(to.chain(3))
    backend = to.make_backend(system, "analytic", engine="compiled")
    with pytest.raises(ValueError, match="the inputs have shapes"):
        backend.hessian_contraction(np.zeros((2, 6)), np.zeros((2, 3)), 0.0, None, np.zeros((2, 3)))


def test_inertial_parameters_that_are_not_given_are_named():
    system = to.SampledSystem(to.InertialBody(to.chain(1)), "rk4")
    ocp = to.OCP.single_phase(system, np.zeros(2), 2, 0.1, [to.control_cost(1)])
    missing = pytest.raises(
        UnknownName, match="InertialBody reads the parameter 'inertia', which is not given: parameters="
    )
    with missing:
        to.Simulator(system).advance(np.zeros(2), np.zeros((1, 1)), 0.1)
    with missing:
        to.solve(ocp)
