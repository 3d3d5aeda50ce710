"""Jumps of user-defined dynamics are named where solves fail, and no smooth dynamics."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from trajopt.validation.discontinuities import discontinuous_dynamics

KNOTS = 20


def problem(force, knots=KNOTS, weight=1.0):
    """A mass on a line, with the acceleration force(x, v, u), and the weight of its control."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], force(x[0], x[1], u[0])], 2, 1)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "rk4")
    return to.OCP.single_phase(dynamics, np.zeros(2), knots, 0.05, [to.control_cost(1, weight=weight)], [])


def motion(still=False):
    s = np.linspace(0.0, 1.0, KNOTS + 1)
    xs = np.column_stack([3 * s**2 - 2 * s**3, 6 * s * (1 - s)])
    return 0.0 * xs if still else xs, np.linspace(1.0, -1.0, KNOTS)[:, None]


@pytest.mark.parametrize(
    ("force", "where", "knot"),
    [
        (lambda x, v, u: u - 2.0 * np.sign(v), "x[1] = 0 ", 0),
        (lambda x, v, u: u - 2.0 * np.tanh(1e6 * v), "x[1] = 0 ", 0),
        (lambda x, v, u: u - np.where(x < 0.5, 0.0, 3.0) * x, "x[0] = 0.5 ", 10),
        (lambda x, v, u: np.where(u > 0.0, u + 1.0, u - 1.0), "u[0] = 0 ", 10),
    ],
)
def test_jumps_are_named(force, where, knot, monkeypatch):
    monkeypatch.setattr("trajopt.validation.discontinuities.WINDOW", 0.06)
    said = discontinuous_dynamics(problem(force), *motion())
    assert f"The dynamics jump, as np.sign does: the derivative of x[1] near {where}at knot {knot}. " in said


def test_a_jump_at_rest_is_named():
    assert "near x[1] = 0 at knot 0" in discontinuous_dynamics(
        problem(lambda x, v, u: u - np.sign(v)), *motion(still=True)
    )


@pytest.mark.parametrize(
    "force",
    [
        lambda x, v, u: u - 2.0 * np.tanh(50.0 * v),
        lambda x, v, u: u - np.abs(v) * v - np.maximum(x, 0.0),
        lambda x, v, u: u - 100.0 * np.sin(20.0 * x) + 1e-4 * np.sign(v),
        lambda x, v, u: u,
    ],
)
def test_continuous_dynamics_are_not_named(force):
    assert discontinuous_dynamics(problem(force), *motion()) == ""


def test_functions_that_raise_beside_the_motion_are_left_out():
    def force(x, v, u):
        if np.min(x) < 0.0:
            raise ValueError("left of the wall")
        return u - np.sign(v)

    assert discontinuous_dynamics(problem(force), *motion()) == ""
    assert discontinuous_dynamics(problem(lambda x, v, u: u - np.sign(v)), *(z * np.nan for z in motion())) == ""


def test_a_failed_solve_with_dry_friction_advises_to_smooth_it():
    ocp = problem(lambda x, v, u: u - 2.0 * np.sign(v), knots=60, weight=0.01)
    ocp = to.OCP(ocp.phases, [0.0, 0.0], [to.state_cost(ocp.manifold, [1.0, 0.0], 100.0)])
    found = to.solve(ocp, solver="ipm")
    assert not found.status.success
    assert found.status.advice.endswith("Make them continuous, such as np.tanh(v / 0.01) for np.sign(v).")
