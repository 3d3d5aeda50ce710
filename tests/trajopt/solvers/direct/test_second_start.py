"""Second start: a direct method with open defects starts again from the rollout of its controls, and reports it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from swing_ups import bundled_swing_up, swing_up_from_elsewhere
from textbook_systems import double_integrator

import trajopt as to
from problems.robots import erd_names
from trajopt.results.status import StatusCode
from trajopt.solvers.direct.second_start import PATIENCE, rollout_of, solve_twice
from trajopt.solvers.options import SQPOptions

needs_erd = pytest.mark.skipif(not erd_names(), reason="example-robot-data is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")


@needs_erd
@pytest.mark.parametrize("solver", ["sqp", "ipm", "dms"])
def test_a_guess_far_from_where_it_begins(solver):
    """The optimum is no worse than that of shooting, which is feasible by construction; ipm needs no second start."""
    ocp, guess = swing_up_from_elsewhere()
    reported: list[int] = []
    found = to.solve(ocp, guess, None, lambda record: reported.append(record.iteration), solver)
    again = "A second start from the rollout of its controls converged" in found.status.message
    assert again == (solver != "ipm")
    solutions, rng = [found], np.random.default_rng(0)
    if solver == "ipm":  # rounding may lead one start to another optimum, or to none
        moved = [to.Guess(guess.xs + 1e-9 * rng.standard_normal(guess.xs.shape), guess.us) for _ in range(4)]
        solutions += [to.solve(ocp, other, solver=solver) for other in moved]
    costs = [s.cost for s in solutions if s.status.success]
    assert len(costs) >= len(solutions) - (solver == "ipm")
    assert np.median(costs) <= to.solve(ocp, guess, solver="fddp").cost * (1.0 + 1e-9)
    assert ocp.cost(found.xs, found.us) == pytest.approx(found.cost, rel=1e-12)
    assert reported == [r.iteration for r in found.history] == list(range(len(found.history)))


@needs_erd
def test_an_interrupted_second_start_ends_the_solve():
    ocp, guess = swing_up_from_elsewhere()
    reported = []

    def stop(record):
        reported.append(record)
        if len(reported) == 110:
            raise KeyboardInterrupt

    found = to.solve(ocp, guess, None, stop, "sqp")
    assert found.status.code == "interrupted" and len(reported) == 110


def test_a_swing_up_does_not_get_lost_in_its_gaps():
    """From rest, whose states are a motion: a filter that lets any gap pass led to 124 rad/s of them."""
    ocp, guess = bundled_swing_up()
    found = to.solve(ocp, guess, solver="sqp")
    assert found.status.success and "second start" not in found.status.message
    assert max(record.defect for record in found.history) < 100.0
    assert found.cost <= 1.1 * to.solve(ocp, guess, solver="fddp").cost  # another optimum, but a swing-up


class Scripted:
    """A method whose records have the gaps given, and that ends so."""

    def __init__(self, gaps, code="max_iterations"):
        self.gaps, self.code, self.guesses, self.options = gaps, code, [], []

    def __call__(self, guess, options, callback):
        self.guesses.append(guess)
        self.options.append(options)
        status = to.Status(to.StatusCode(self.code), "The end.")
        record, history = to.IterationRecord(0, *np.zeros(11)), []
        try:
            for k, gap in enumerate(self.gaps):
                history.append(replace(record, iteration=k, defect=gap))
                if callback is not None:
                    callback(history[-1])
        except KeyboardInterrupt:
            status = to.Status(to.StatusCode.INTERRUPTED, "By hand.")
        N, count = len(guess.us), len(history) - 1
        return to.Solution(
            guess.xs,
            guess.us,
            np.zeros((N, 1, 2)),
            np.zeros((N, 1)),
            status,
            0.0,
            count,
            tuple(history),
            np.zeros(N + 1),
        )


def integrators():
    step = to.SampledSystem(to.make_backend(double_integrator(), "forward_ad"), "semi_implicit_euler")
    return to.OCP.single_phase(step, [0.0, 0.0], 5, 0.1, [to.control_cost(1)])


def starts(method, **options):
    ocp = integrators()
    guess = to.Guess(np.ones((ocp.horizon + 1, 2)), np.ones((ocp.horizon, 1)))
    return solve_twice(method, ocp, guess, SQPOptions(**options), None)


def test_second_start_follows_open_defects():
    """It starts from a rollout, with the remaining iterations."""
    method = Scripted([3.0] * 201)
    found = starts(method)
    assert len(method.guesses) == 2 and method.options[1].max_iterations == 100
    speeds = 0.1 * np.arange(6)
    np.testing.assert_allclose(method.guesses[1].xs[:, 1], speeds, atol=1e-15)
    np.testing.assert_allclose(method.guesses[1].xs[1:, 0], 0.1 * np.cumsum(speeds[1:]), atol=1e-15)
    assert "The defects of the guess, 3, were still 3 after 100 iterations" in found.status.message
    assert found.status.code == "max_iterations"


def test_other_solves_have_no_second_start():
    """Cases: defects close, also slowly or once; no defects; defects grow by steps; few iterations; success; Ctrl-C."""
    closing = [3.0, *[0.1] * 200]
    for method, options in (
        (Scripted([1.5e-6, *[0.9e-6] * 200]), {"constraint_tolerance": 1e-6}),
        (Scripted(closing), {}),
        (Scripted([3.0, 0.2, *[2.0] * 199]), {}),
        (Scripted([0.0, *[5.0] * 200]), {}),
        (Scripted([3.0, *[5.0] * 200]), {}),
        (Scripted([3.0] * (PATIENCE - 9)), {"max_iterations": PATIENCE - 10}),
        (Scripted([3.0] * 9, "converged"), {}),
        (Scripted([3.0] * 9, "interrupted"), {}),
        (Scripted([3.0] * 9, "time_limit"), {}),
    ):
        starts(method, **options)
        assert len(method.guesses) == 1


def test_a_guess_that_is_the_rollout_of_its_controls_is_not_solved_twice():
    """Bounds on states, such as a goal, give such a guess defects."""
    ocp, method = integrators(), Scripted([3.0] * 201)
    solve_twice(method, ocp, rollout_of(ocp, np.ones((ocp.horizon, 1))), SQPOptions(), None)
    assert len(method.guesses) == 1


def test_a_solve_continues_without_another_start():
    """The rollout of the guess is not finite, so there is no second start."""
    cube = to.FunctionMap(lambda x, u, t, p: [x[1], 1e200 * x[1] ** 3 + u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(cube, "forward_ad"), "semi_implicit_euler")
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 5, 0.1, [to.control_cost(1)])
    method = Scripted([3.0] * 201)
    found = solve_twice(method, ocp, to.Guess(np.ones((6, 2)), np.ones((5, 1))), SQPOptions(max_iterations=200), None)
    assert len(method.guesses) == 1 and found.iterations == 200 and found.status.message == "The end."


def epidemic():
    """SEIR model of an epidemic with a bound on the infected."""

    def spread(x, u, t, p):
        caught = 0.5 * (1.0 - u[0]) * x[0] * x[2]
        return [-caught, caught - x[1] / 3.0, x[1] / 3.0 - x[2] / 5.0]

    step = to.SampledSystem(to.make_backend(to.FunctionMap(spread, 3, 1), "forward_ad"), "rk4")
    few = to.state_bounds(3, [-np.inf] * 3, [np.inf, np.inf, 0.03])
    cost = to.objective_term("distance", lambda x, u, t, p: [u[0] ** 2], step.manifold, nu=1)
    return to.OCP.single_phase(
        step, [0.99, 0.005, 0.005], 150, 1.0, [cost], constraints=[few], u_lower=[0.0], u_upper=[0.9]
    )


def test_an_epidemic_with_a_bound_on_the_infected():
    """The violation is stationary after 11 iterations, with open defects; the rollout of the last controls is not."""
    found, expected = (to.solve(epidemic(), solver=solver) for solver in ("sqp", "ipm"))
    assert "A second start from the rollout of its last controls converged" in found.status.message
    np.testing.assert_allclose(found.cost, expected.cost, rtol=1e-7)


def test_inner_solves_without_a_step_are_not_repeated():
    """Without controls the epidemic grows without bound, and no step length is accepted at any penalty."""
    found = to.solve(epidemic(), solver="slq", check=False)
    assert found.status.code is StatusCode.LINE_SEARCH_FAILED and found.iterations < 100


def test_a_feasible_goal_in_large_units_is_not_called_infeasible():
    """A million meters in a thousand seconds, with accelerations in units of 1e6 m/s^2 within bounds, with drag."""
    line = to.FunctionMap(lambda x, u, t, p: [x[1], 1e6 * u[0] - 1e-7 * x[1] * np.sqrt(x[1] ** 2 + 1.0)], 2, 1)
    step = to.SampledSystem(to.make_backend(line, "forward_ad"), "rk4")
    cost = to.objective_term("fuel", lambda x, u, t, p: [1e6 * u[0] ** 2], line.manifold, nu=1)
    goal = to.residual_constraint("end", lambda x, u, t, p: [x[0] - 1e6, x[1]], 2, 2)
    slow = to.state_bounds(2, [-np.inf, -np.inf], [np.inf, 1500.0])
    ocp = to.OCP.single_phase(
        step, [0.0, 0.0], 100, 10.0, [cost],
        constraints=[slow], terminal_constraints=[goal], u_lower=[-1e-4], u_upper=[1e-4],
    )  # fmt: skip
    assert to.solve(ocp, solver="sqp").status.code is not StatusCode.LOCALLY_INFEASIBLE
    assert to.solve(ocp, solver="ipm").status.success
