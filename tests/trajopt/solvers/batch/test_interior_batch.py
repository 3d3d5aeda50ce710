"""Interior-point batches: each solution equals that of a single solve."""

from pathlib import Path

import numpy as np
import pytest
from batch_cases import check_each, varied
from tumble_cases import tumble

import trajopt as to
from trajopt import Batch, Guess, StatusCode
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.solvers.batch import threads

CONFIGS = Path(to.__file__).parents[1] / "problems" / "configs"
GOAL = np.array([0.4, 0.3, 0.0, 0.0])
MANY = 19
"""Number of problems."""


def steps(scheme="rk4", substeps=1):
    body = to.FreeBody(to.load_robot("double_pendulum"))
    return to.SampledSystem(to.make_backend(body, "analytic"), scheme, substeps)


def swing(horizon=9):
    """Double pendulum that reaches a posture, with joint speed limits and a forbidden corner of joint angles."""
    dynamics = steps()
    manifold = dynamics.manifold
    terms = [to.control_cost(2, weight=1e-2), to.state_cost(manifold, GOAL, [0.1, 0.1, 0.01, 0.01], name="way")]
    slow = to.state_bounds(manifold, [-np.inf, -np.inf, -2.0, -2.0], [np.inf, np.inf, 1.6, 1.6], name="speed")
    rows = (lambda x, u, t, p: [x[1] * x[1] - x[0] - p["room"][0]], manifold, 1, -np.inf)
    corner = to.residual_constraint("corner", *rows, parameters={"room": [0.4]})
    reach = to.state_bounds(manifold, GOAL, GOAL, name="reach")
    fields = {"constraints": [slow, corner], "terminal_constraints": [reach]}
    limits = {"u_lower": [-30.0, -30.0], "u_upper": [30.0, 30.0]}
    return to.OCP.single_phase(dynamics, np.zeros(4), horizon, 0.8 / horizon, terms, [], **fields, **limits)


def on_a_thread(batch, guess, changes=None, **fields):
    found = to.solve_batch(batch, guess=guess, options=changes, solver="ipm", threads=1, **fields)
    assert found.meta["how"] == "1 thread"
    return found


@pytest.mark.parametrize("changes", [
    {},
    {"hessian": "gauss_newton"},
    {"barrier_strategy": "monotone"},
    {"barrier": 1e-4, "hessian": "gauss_newton"},
    {"max_iterations": 4},
], ids=str)  # fmt: skip
def test_each_is_the_single_solve(changes):
    """Problems differ in x0, bounds and parameters of constraints, goals and control limits; the speed limit is active."""
    ocp = swing()
    values, guess = varied(ocp, MANY)
    rng = np.random.default_rng(5)
    goals = GOAL + 0.1 * rng.standard_normal((MANY, 4))
    values |= {"corner.room": 0.4 + 0.1 * rng.random(MANY), "reach.lower": goals, "reach.upper": goals}
    values |= {"speed.lower": -1.5 - rng.random((MANY, 2)), "way.weight": rng.random((MANY, 4))}
    values |= {"u_upper": 20.0 + rng.random((MANY, 2))}
    batch = Batch(ocp, values)
    found = on_a_thread(batch, guess, changes, gains=True)
    ended = {StatusCode.CONVERGED, StatusCode.MAX_ITERATIONS}
    assert not found.meta.get("referred") and {s.code for s in found.status} <= ended
    assert found.success.any() == ("max_iterations" not in changes)
    check_each(found, batch, guess, changes, "ipm")


@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
def test_an_arm_goes_around_a_sphere_to_many_goals(hessian):
    task = build_task(load_config(CONFIGS / "ur5_obstacle.toml", ["problem.horizon=10", "problem.dt=0.2"]))
    goal = next(c for c in task.ocp.terminal_constraints if c.name == "goal")
    goals = np.tile(goal.lower, (MANY, 1))
    goals[:, :3] += 0.1 * np.random.default_rng(0).uniform(-1.0, 1.0, (MANY, 3))
    batch = Batch(task.ocp, {"goal.lower": goals, "goal.upper": goals})
    guess = Guess(*(np.repeat(rows[None], MANY, axis=0) for rows in task.guess))
    found = on_a_thread(batch, guess, {"hessian": hessian})
    assert found.success.all()
    few = list(range(0, MANY, 3))
    check_each(
        to.BatchSolution(*(getattr(found, name)[few] for name in ("xs", "us", "cost", "iterations")),
                         tuple(found.status[i] for i in few), found.times),
        batch.subset(few), Guess(guess.xs[few], guess.us[few]), {"hessian": hessian}, "ipm",
    )  # fmt: skip


def test_states_may_live_on_a_group():
    """On a Lie group, multipliers are transported to other tangent spaces, after each step."""
    ocp = tumble()
    n, rng = 11, np.random.default_rng(1)
    away = 0.05 * rng.standard_normal((n, ocp.manifold.ndx))
    x0 = ocp.manifold.integrate(np.repeat(ocp.x0[:, None], n, axis=1), away.T).T
    us = 0.1 * rng.standard_normal((n, ocp.horizon, ocp.nu))
    guess = Guess(np.repeat(x0[:, None], ocp.horizon + 1, axis=1), us)
    batch = Batch(ocp, {"x0": x0})
    check_each(on_a_thread(batch, guess), batch, guess, None, "ipm")


def test_phases_have_lanes_of_their_own():
    """Two phases with different lengths and time steps; the first one has constraints."""
    fine, coarse = steps("rk4", 2), steps("semi_implicit_euler")
    manifold = fine.manifold
    terms = (to.control_cost(2, weight=1e-2),)
    slow = to.state_bounds(manifold, [-np.inf, -np.inf, -2.0, -2.0], [np.inf, np.inf, 1.5, 1.5], name="speed")
    corner = to.residual_constraint("corner", lambda x, u, t, p: [x[1] * x[1] - x[0]], manifold, 1, -np.inf, 0.6)
    phases = (
        to.Phase(fine, np.full(5, 0.08), terms, constraints=(slow, corner)),
        to.Phase(coarse, np.full(9, 0.05), terms),
    )
    reach = to.state_bounds(manifold, GOAL, GOAL, name="reach")
    ocp = to.OCP(phases, np.zeros(4), (), terminal_constraints=(reach,))
    values, guess = varied(ocp, MANY)
    batch = Batch(ocp, values)
    check_each(on_a_thread(batch, guess), batch, guess, None, "ipm")


def test_unsolvable_problems_are_reported_as_in_single_solves_and_do_not_stop_the_others():
    """Cases: a goal out of reach at the speed limit, x0 with NaN, and a problem with a different row structure."""
    ocp = swing()
    values, guess = varied(ocp, MANY, size=0.02)
    values["x0"][2] = np.nan
    goals = np.tile(GOAL, (MANY, 1))
    goals[0, 0] = 30.0
    lower, upper = goals.copy(), goals.copy()
    lower[4, 1] -= 0.01
    batch = Batch(ocp, {**values, "reach.lower": lower, "reach.upper": upper})
    found = on_a_thread(batch, guess)
    assert found.status[0].code is StatusCode.LOCALLY_INFEASIBLE and "in x0 of problem 2." in found.messages[2]
    assert found.meta["referred"] == [0, 4]
    others = [i for i in range(MANY) if i not in (0, 2)]
    assert found.success[others].all()
    few = batch.subset(others)
    check_each(to.solve_batch(few, guess=[to.Guess(guess.xs[i], guess.us[i]) for i in others], solver="ipm", threads=1), few,
               Guess(guess.xs[others], guess.us[others]), None, "ipm")  # fmt: skip


def test_ctrl_c_returns_the_finished_solutions(monkeypatch):
    monkeypatch.setattr(threads, "POLL", 1e-4)
    values, guess = varied(ocp := swing(), 600)

    def interrupt(done, total):
        if done >= 1:
            raise KeyboardInterrupt

    found = on_a_thread(Batch(ocp, values), guess, {"max_iterations": 10**6}, callback=interrupt)
    begun = np.isfinite(found.cost)
    assert begun.any() and not begun.all() and np.isfinite(found.xs[begun]).all()
    assert {s.code for s in found.status} <= {StatusCode.CONVERGED, StatusCode.INTERRUPTED}
    assert all("before this problem started" in found.messages[i] for i in np.flatnonzero(~begun))
