"""Inertial parameters at run time: the motion equals that of a robot with these inertias."""

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
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
