"""Warm starts: guess, multipliers and penalty of an earlier solution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to


@pytest.fixture(scope="module")
def ocp() -> to.OCP:
    """A pendulum to be lifted by a torque that is too weak to do it slowly."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - to.sin(x[0])], 2, 1, second_order=True)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "semi_implicit_euler")
    limit = to.residual_constraint("torque", lambda x, u, t, p: [u[0]], system.manifold, 1, -0.6, 0.6, nu=1)
    costs = [to.control_cost(1, reference=0.0, weight=0.1), to.state_cost(system.manifold, np.array([1.0, 0.0]), 1.0)]
    return to.OCP.single_phase(dynamics, [0.0, 0.0], 20, 0.1, costs, constraints=[limit])


@pytest.mark.parametrize("solver", ["sqp", "slq"])
def test_multipliers_spare_iterations(ocp, solver):
    cold = to.solve(ocp, solver=solver)
    guess = to.Guess(cold.xs, cold.us)
    again = to.solve(ocp, guess, solver=solver)
    warm = to.solve(ocp, solver=solver, warm_start=to.WarmStart(guess, multipliers=cold.multipliers))
    assert cold.status.success and warm.status.success
    assert np.abs(cold.multipliers["torque"]).max() > 1e-3  # the limit is active
    assert warm.iterations < again.iterations
    np.testing.assert_allclose(warm.us, cold.us, rtol=0, atol=1e-5)


def test_the_penalty_is_that_of_the_warm_start(ocp):
    start = to.WarmStart(to.constant_guess(ocp), penalty=1e-3)
    low = to.solve(ocp, options={"max_iterations": 1}, warm_start=start, solver="slq")
    same = to.solve(ocp, options={"max_iterations": 1, "constraint_penalty": 1e-3}, solver="slq")
    other = to.solve(ocp, options={"max_iterations": 1}, solver="slq")
    np.testing.assert_array_equal(low.us, same.us)
    assert not np.allclose(low.us, other.us)


def test_a_guess_takes_the_place_of_the_warm_starts(ocp):
    start = to.WarmStart(to.constant_guess(ocp, 0.3))
    given = to.solve(ocp, to.constant_guess(ocp, 0.1), options={"max_iterations": 0}, warm_start=start)
    own = to.solve(ocp, options={"max_iterations": 0}, warm_start=start)
    assert given.us[0, 0] == 0.1 and own.us[0, 0] == 0.3


def test_the_check_is_spared_where_asked(ocp):
    wrong = replace(ocp, u_lower=np.ones(1), u_upper=-np.ones(1))
    with pytest.raises(to.InvalidProblem, match="lower control bound is above"):
        to.solve(wrong)
    assert not to.solve(wrong, options={"max_iterations": 1}, check=False).status.success


def test_a_solution_serves_as_a_guess(ocp):
    found = to.solve(ocp, solver="sqp")
    by_solution, by_pair = (to.solve(ocp, guess, solver="sqp") for guess in (found, (found.xs, found.us)))
    expected = to.solve(ocp, to.Guess(found.xs, found.us), solver="sqp")
    assert by_solution.iterations == by_pair.iterations == expected.iterations < found.iterations
    np.testing.assert_array_equal(by_solution.us, expected.us)
    starts = to.multi_start(ocp, 2, guess=found, solver="sqp")
    assert starts.solutions.iterations[0] == expected.iterations
    with pytest.raises(TypeError, match="the guess is a ndarray; expected a solution"):
        to.solve(ocp, found.xs)
    with pytest.raises(TypeError, match="warm_start is a Solution; expected trajopt.WarmStart"):
        to.solve(ocp, warm_start=found)
    with pytest.raises(TypeError, match=r"callback = <class .*; expected a function or an object such as trajopt.Cons"):
        to.solve(ocp, callback=to.ConsoleTable)


def test_a_warm_start_takes_a_solution_and_names_wrong_types(ocp):
    found = to.solve(ocp, solver="sqp")
    for guess in (found, (found.xs, found.us)):
        start = to.WarmStart(guess, multipliers=found.multipliers)
        assert start.guess.us is found.us
        assert to.solve(ocp, solver="sqp", warm_start=start).iterations < found.iterations
    with pytest.raises(TypeError, match="the guess is a NoneType; expected a solution"):
        to.WarmStart(None)
    with pytest.raises(TypeError, match="multipliers is a ndarray; expected a mapping from names to arrays"):
        to.WarmStart(found, multipliers=np.zeros(3))


def test_objects_that_are_no_problem_raise_type_error(ocp):
    with pytest.raises(TypeError, match=r"the problem is a FreeTime, not a trajopt.OCP; solve its \.ocp"):
        to.solve(to.free_time(ocp))
    with pytest.raises(TypeError, match="the problem is a Guess, not a trajopt.OCP$"):
        to.solve(to.constant_guess(ocp))
