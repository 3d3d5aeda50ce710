"""Friction pyramids as constraints: their values, derivatives, and a step that keeps them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from contact_cases import FEET, arguments, hyq

from dynamics_backends.names import UnknownName
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from problems.legged.contact.friction_cone import friction_constraint
from trajopt import solve
from trajopt.config.config import load_config
from trajopt.config.registry import PROBLEMS
from trajopt.config.task import SettingsError

CONFIGS = Path(__file__).parents[3] / "problems" / "configs"
NUMPY = partial(make_backend, engine="numpy")
MU = 0.4


def standing():
    return Holonomic(hyq(), [PointContact(foot) for foot in FEET])


@pytest.mark.parametrize("facets", [4, 8])
def test_rows_are_those_of_a_pyramid_inside_the_cone(facets):
    system = standing()
    c = friction_constraint(system, FEET, MU, min_force=0.1, facets=facets)
    x, u, _ = arguments(c.residual.inner, FEET)
    g = NUMPY(c.residual).f(x, u, 0.0, c.parameters).reshape(len(x), len(FEET), facets + 1)
    forces = np.concatenate(list(system.outputs(x.T, u.T, 0.0, {}).values())).T.reshape(len(x), len(FEET), 3)
    unit = hyq().total_mass * np.linalg.norm(hyq().gravity) / 4
    np.testing.assert_allclose(g[..., 0], forces[..., 2] / unit, rtol=1e-9, atol=1e-9)
    for j in range(facets):
        a = 2.0 * np.pi * j / facets
        row = MU * np.cos(np.pi / facets) * forces[..., 2] - np.cos(a) * forces[..., 0] - np.sin(a) * forces[..., 1]
        np.testing.assert_allclose(g[..., 1 + j], row / unit, rtol=1e-9, atol=1e-9)
    inside = (g[..., 1:] >= 0.0).all(axis=-1)
    sideways = np.linalg.norm(forces[..., :2], axis=-1)
    assert (sideways[inside] <= MU * forces[..., 2][inside] + 1e-9).all()
    np.testing.assert_array_equal(c.lower.reshape(4, -1)[:, 0], 0.1)


def test_its_derivatives_are_those_of_complex_steps():
    c = friction_constraint(standing(), FEET, MU)
    x, u, _ = arguments(c.residual.inner, FEET)
    found = NUMPY(c.residual).jacobians(x, u, 0.0, c.parameters)
    expected = NUMPY(c.residual, "complex_step").jacobians(x, u, 0.0, c.parameters)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12 * max(1.0, np.abs(b).max()))


def test_mistakes():
    with pytest.raises(ValueError, match="expected a positive number"):
        friction_constraint(standing(), FEET, 0.0)
    with pytest.raises(ValueError, match="at least 3"):
        friction_constraint(standing(), FEET, MU, facets=2)
    with pytest.raises(UnknownName, match="no point contact"):
        friction_constraint(standing(), ["lf_hand"], MU)
    gait = PROBLEMS["scheduled_gait"]
    with pytest.raises(SettingsError, match="cone"):
        gait.Settings(contact="soft", cone="constraint")


@pytest.mark.slow
def test_a_step_that_keeps_the_cone_at_every_knot():
    overrides = ["problem.cone='constraint'", "problem.swing=0.03", "problem.friction=0.3"]
    config = load_config(CONFIGS / "hyq_trot_rigid.toml", overrides)
    task = PROBLEMS["scheduled_gait"].build(config.problem, make_backend)
    assert {c.name.split(" of ")[0] for c in task.ocp.constraints()} == {"friction cone"}
    solution = solve(
        replace(task.ocp, replay_tolerance=np.inf),
        task.guess,
        {"max_iterations": 100, "gradient_tolerance": 1e-4, "constraint_tolerance": 1e-5},
        solver="fddp",
        check=False,  # torques are held between knots, forces are not
    )
    assert solution.status.success, solution.status
    for phase, knots in zip(task.ocp.phases, task.ocp.phase_slices, strict=True):
        for c in phase.constraints:
            forces = NUMPY(c.residual.inner).f(solution.xs[knots], solution.us[knots]).reshape(-1, 3)
            unit = task.ocp.model.total_mass * 9.81 / 4
            assert forces[:, 2].min() >= -1e-5 * unit
            assert (np.linalg.norm(forces[:, :2], axis=1) - 0.3 * forces[:, 2]).max() <= 1e-5 * unit
