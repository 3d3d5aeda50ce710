"""Trajectories of a wrong size raise errors before compiled code reads them, which checks no bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from textbook_systems import double_integrator

import trajopt as to

N = 12


@pytest.fixture(scope="module")
def ocp():
    step = to.SampledSystem(to.make_backend(double_integrator(), "forward_ad"), "semi_implicit_euler")
    goal = to.state_cost(double_integrator().manifold, [1.0, 0.0], 10.0)
    return to.OCP.single_phase(step, [0.0, 0.0], N, 0.1, [to.control_cost(1)], [goal], u_lower=[-1.0], u_upper=[1.0])


SHAPES = {
    "too few states": ((5, 2), (N, 1)),
    "too few controls": ((N + 1, 2), (5, 1)),
    "narrow states": ((N + 1, 1), (N, 1)),
    "several": ((3, N + 1, 2), (3, N, 1)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_reports_about_a_trajectory_check_its_shape(ocp, case):
    xs, us = (np.zeros(shape) for shape in SHAPES[case])
    for function in (to.tracking_gains, to.limit_violations):
        with pytest.raises(ValueError, match=r"expected xs \(N \+ 1 = 13, nx = 2\) and us \(N = 12, nu = 1\)$"):
            function(ocp, xs, us)


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("solver", to.solver_names())
def test_a_guess_is_of_the_problem_even_unchecked(ocp, solver, case):
    guess = to.Guess(*(np.zeros(shape) for shape in SHAPES[case]))
    with pytest.raises(ValueError, match="expected xs"):
        to.solve(ocp, guess, solver=solver, check=False)


def test_so_is_x0(ocp):
    with pytest.raises(ValueError, match=r"x0 has shape \(3,\); expected \(nx = 2,\)"):
        to.solve(replace(ocp, x0=np.zeros(3)), to.constant_guess(ocp), check=False)


def test_rows_may_lie_anywhere_in_memory(ocp):
    solution = to.solve(ocp, solver="ddp")
    own = to.tracking_gains(ocp, solution.xs, solution.us)
    other = to.tracking_gains(ocp, np.asfortranarray(solution.xs), solution.us.tolist())
    np.testing.assert_array_equal(own, other)
