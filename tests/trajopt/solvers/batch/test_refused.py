"""Invalid problems of a batch: each gets a status with the reason, and does not stop the others, at any index."""

from dataclasses import replace

import numpy as np
import pytest
import textbook_systems as textbook
from batch_cases import GOAL, N, check_each, swing, varied
from shooting_cases import pendulum_swing_up, sampled

import trajopt as to
from trajopt import Batch, Guess, StatusCode

FEW = {"max_iterations": 3}
SOLVERS = ["slq", "ddp", "ipm", "auto"]


def same_but(members, wrong, other, solver, code, message):
    """Replace one problem of a batch by an invalid one; check its message, and that the others are solved as without it."""
    given = [*members[:wrong], other, *members[wrong + 1 :]]
    rest = [i for i in range(len(members)) if i != wrong]
    with pytest.raises(to.InvalidProblem, match=message):
        to.solve(other, solver=solver)
    done = []
    found = to.solve_batch(given, options=FEW, callback=lambda *a: done.append(a), solver=solver, gains=True, threads=1)
    alone = to.solve_batch([members[i] for i in rest], options=FEW, solver=solver, gains=True, threads=1)
    status = found.status[wrong]
    assert status.code is code and f"Problem {wrong} is invalid: " in status.message and not status.success
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(found.K[rest], 0.0)
    np.testing.assert_array_equal(found.K[wrong], 0.0)
    np.testing.assert_array_equal(found.xs[rest], alone.xs)
    assert [found.messages[i] for i in rest] == alone.messages and done[-1] == (len(given), len(given))
    assert np.isnan(found.cost[wrong]) and found.iterations[wrong] == 0 and len(found.meta["solve_times"]) == len(given)
    assert all(isinstance(solution, to.Solution) for solution in found)
    return found


def moved(count=3):
    """Return pendulum problems with different initial angles."""
    ocp = pendulum_swing_up(horizon=20)
    return [replace(ocp, x0=np.array([0.1 * i, 0.0])) for i in range(count)]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("wrong", "dt"), [(0, 0.0), (1, -0.05)])
def test_time_steps_that_are_none(wrong, dt, solver):
    members = moved()
    steps = members[wrong].phases[0].dt.copy()
    steps[4] = dt
    other = replace(members[wrong], phases=(replace(members[wrong].phases[0], dt=steps),))
    found = same_but(
        members, wrong, other, solver, StatusCode.ERROR, f"dt is {dt} at knot 4; time steps must be positive"
    )
    assert f"dt is {dt} at knot 4; time steps must be positive" in found.messages[wrong]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("wrong", [0, 2])
def test_bounds_that_contradict_each_other(wrong, solver):
    """Contradictory bounds of a constraint, given as values of a batch and in a list of problems."""
    ocp = swing(constrained=True)
    values, guess = varied(ocp, size=0.02)
    lower, upper = np.tile(GOAL, (N, 1)), np.tile(GOAL, (N, 1))
    lower[wrong, 1] += 0.01
    batch = Batch(ocp, {**values, "reach.lower": lower, "reach.upper": upper})
    rest = [i for i in range(N) if i != wrong]
    own = batch.subset(rest), Guess(guess.xs[rest], guess.us[rest])
    alone = to.solve_batch(own[0], None, own[1], FEW, solver=solver, threads=1)
    for problems in (batch, [batch[i] for i in range(N)]):
        found = to.solve_batch(problems, None, guess, FEW, solver=solver, threads=1)
        assert found.status[wrong].code is StatusCode.INFEASIBLE and "'reach': the lower bound" in found.messages[wrong]
        np.testing.assert_array_equal(found.xs[rest], alone.xs)
        assert [found.messages[i] for i in rest] == alone.messages and found.meta["how"] == alone.meta["how"]


@pytest.mark.parametrize("given", ["x0", "guess.xs"])
def test_quaternions_that_are_no_rotations(given):
    body = textbook.spinning_body()
    rest = np.r_[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    goal = to.state_cost(body.manifold, rest, name="goal")
    ocp = to.OCP.single_phase(sampled(body), rest, 5, 0.1, [to.control_cost(3)], [goal])
    x0, xs = np.tile(rest, (3, 1)), np.tile(rest, (3, 6, 1))
    (x0 if given == "x0" else xs[:, 2])[1] *= 1.3
    found = to.solve_batch(ocp, {"x0": x0}, Guess(xs, np.zeros((3, 5, 3))), FEW, solver="slq")
    assert found.success.tolist() == [True, False, True] and found.status[1].code is StatusCode.ERROR
    assert f"{given} holds a quaternion whose norm differs from 1 by 3.0e-01; divide it" in found.messages[1]


def test_mistakes_of_all_problems_are_raised():
    members = moved()
    never = [replace(m, phases=(replace(m.phases[0], dt=np.zeros(20)),)) for m in members]
    with pytest.raises(to.InvalidProblem, match=r"dt is 0\.0 at knot 0"):
        to.solve_batch(never, solver="slq")
    with pytest.raises(to.InvalidProblem, match=r"dt is 0\.0 at knot 0"):
        to.solve_batch(never[0], {"x0": np.zeros((3, 2))}, solver="slq")
    with pytest.raises(to.InvalidProblem, match="the lower control bound is above"):
        to.solve_batch(replace(members[0], u_lower=[1.0], u_upper=[-1.0]), {"x0": np.zeros((3, 2))}, solver="slq")
    with pytest.raises(to.InvalidProblem, match=r"u_lower has shape \(3,\)"):
        to.solve_batch(replace(members[0], u_lower=np.zeros(3)), {"x0": np.zeros((3, 2))}, solver="slq")


def test_guesses_in_the_place_of_values_are_reported():
    members = moved()
    with pytest.raises(TypeError, match="batch is a list; expected values by name, and guesses as guess="):
        to.solve_batch(members[0], [to.constant_guess(members[0])])


def test_a_batch_of_none_that_can_be_solved_has_reasons_for_each():
    members = moved(2)
    given = [replace(members[0], u_lower=[1.0], u_upper=[-1.0]), replace(members[1], x0=[np.nan, 0.0])]
    given = [given[0], replace(given[1], u_lower=[-1.0], u_upper=[1.0])]
    found = to.solve_batch(given, solver="slq", gains=True)
    assert [s.code for s in found.status] == [StatusCode.INFEASIBLE, StatusCode.NON_FINITE]
    assert np.isnan(found.cost).all() and found.K.shape == (2, 20, 1, 2) and "infeasible" in repr(found)


@pytest.mark.parametrize("given", [{"reference": [[0.0, 0.0]]}, "two", [[0.0, 0.0], [0.0]]])
def test_values_that_are_no_numbers_are_named(given):
    with pytest.raises(ValueError, match=r"x0 = .*; expected an array of numbers, by problem"):
        Batch(swing(constrained=False), {"x0": given})


@pytest.mark.parametrize("name", ["dt", "start"])
def test_times_that_are_no_numbers_are_named(name):
    members = moved()
    phase = replace(members[1].phases[0], dt=np.full(20, np.nan))
    members[1] = replace(members[1], **({"start": np.nan} if name == "start" else {"phases": (phase,)}))
    found = to.solve_batch(members, options=FEW, solver="slq")
    assert found.status[1].code is StatusCode.NON_FINITE and f"in {name} of problem 1." in found.messages[1]
    assert np.isfinite(found.cost[[0, 2]]).all()


def test_a_parameter_of_dynamics_may_be_called_weight():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0] / p["weight"][0]], 2, 1), "rk4")
    good, bad = (
        to.OCP.single_phase(step, [1.0, 0.0], 5, 0.1, [to.control_cost(1)], parameters={"weight": np.array([weight])})
        for weight in (1.0, np.nan)
    )
    found = to.solve_batch([good, bad], solver="slq", check=False)
    assert found.status[0].success and "in dynamics.weight of problem 1." in found.messages[1]


@pytest.mark.parametrize("solver", ["slq", "fddp", "ddp"])
def test_constraints_that_are_not_finite_are_named_at_once(solver):
    """A division by zero in one of three problems, with augmented Lagrangians, in lanes and in single solves."""
    ocp = swing(constrained=True)
    fraction = to.residual_constraint(
        "share", lambda x, u, t, p: [x[0] / p["size"][0]], ocp.manifold, 1, -9.0, 9.0, parameters={"size": [1.0]}
    )
    ocp = replace(ocp, phases=(replace(ocp.phases[0], constraints=(fraction,)),), terminal_constraints=())
    batch = Batch(ocp, {"share.size": np.array([1.0, 0.0, 2.0])})
    found = to.solve_batch(batch, solver=solver, threads=1)
    check_each(found, batch, to.constant_guess(ocp), None, solver, atol=1e-6, rel=1e-9)
    assert found.success.tolist() == [True, False, True] and found.iterations[1] == 0
    status = found.status[1]
    assert status.code is StatusCode.NON_FINITE and status.component == "share: f[0] at knot 0"
    assert "the constraint share: f[0] at knot 0" in status.message
    nowhere = to.solve_batch(ocp, {"share.size": np.zeros(2)}, solver=solver)
    assert [s.code for s in nowhere.status] == [StatusCode.NON_FINITE] * 2 and "how" in nowhere.meta
