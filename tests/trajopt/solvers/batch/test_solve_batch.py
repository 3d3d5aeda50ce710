"""``solve_batch``: each solution equals that of a single solve; values, errors, interruptions."""

import math
import os
import pickle
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import textbook_systems as textbook
from batch_cases import check_each, shifted, swing
from contact_cases import hop, soft_hop
from shooting_cases import PROBLEMS, SETTINGS, cart_pole, pendulum_swing_up, sampled

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.systems.bodies.free_body import inertial_parameters
from trajopt import Batch, Guess, StatusCode
from trajopt.solvers.batch import processes, shooting, worker_pool
from trajopt.solvers.batch.shooting import ShootingBatch

N = 9
BY_DIFFERENCES = "central_difference"
"""Backend without compiled second derivatives."""


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_is_the_single_solve(problem, name):
    ocp = PROBLEMS[problem]()
    x0, guess = shifted(ocp)
    batch, options = Batch(ocp, {"x0": x0}), {**SETTINGS[name], "max_iterations": 8}  # few, as rounding grows
    found = to.solve_batch(batch, guess=guess, options=options, solver="slq", gains=True, threads=1)
    assert found.meta["how"] == "lanes"
    check_each(found, batch, guess, options, atol=1e-7 if "every 7" in name else 1e-8)


@pytest.mark.parametrize("name", ["ilqr", "gnms", "fddp"])
def test_large_problems_are_solved_one_after_the_other(monkeypatch, name):
    """Their number of entries is over the limit; each thread has memory of its own."""
    ocp = pendulum_swing_up(horizon=70, limit=6.0)
    x0, guess = shifted(ocp, size=0.1)
    batch, options = Batch(ocp, {"x0": x0}), {**SETTINGS[name], "max_iterations": 8}
    monkeypatch.setattr(shooting, "LARGE", 70 * (2 + 1) ** 2 - 1)
    found = to.solve_batch(batch, guess=guess, options=options, solver="slq", gains=True, threads=2)
    assert found.meta["how"] == "2 threads"
    check_each(found, batch, guess, options)


@pytest.mark.parametrize("changes", [
    {"regularize": "state", "initial_regularization": 1.0},
    {"initial_regularization": 1e-2, "hessian": "exact"},
    {"max_backtracks": 0},
    {"max_backtracks": 2, "penalty": 50.0},
    {"cost_tolerance": 1e-3},
    {"nonmonotone": 4},
], ids=str)  # fmt: skip
def test_options_mean_the_same(changes):
    ocp = pendulum_swing_up(horizon=70, limit=6.0)
    x0, guess = shifted(ocp, size=0.1)
    options = {"max_iterations": 8, **changes}
    check_each(
        to.solve_batch(ocp, {"x0": x0}, guess, options, solver="slq"), Batch(ocp, {"x0": x0}), guess, options, atol=1e-7
    )


@pytest.mark.parametrize("limit", [None, 6.0])
def test_where_rounding_rules(limit):
    """At rounding level, paths differ but statuses agree; rejected iterates can become the current one again."""
    ocp = pendulum_swing_up(horizon=70, limit=limit)
    x0, guess = shifted(ocp, size=0.05)
    batch, options = (
        Batch(ocp, {"x0": x0}),
        {"gradient_tolerance": 1e-30, "kkt_tolerance": 1e-30, "max_iterations": 400},
    )
    found = to.solve_batch(batch, guess=guess, options=options, solver="fddp")
    for i in range(len(batch)):
        single = to.solve(batch[i], Guess(guess.xs[i], guess.us[i]), options, solver="fddp", check=False)
        assert found.status[i].code is single.status.code is StatusCode.CONVERGED
        for status in (found.status[i], single.status):
            assert status.message.startswith("Double precision allows no further progress")
        assert found.status[i].success and found.status[i].kkt < 1e-8
        assert found.cost[i] == pytest.approx(single.cost, rel=1e-12)


@pytest.mark.parametrize("name", ["ilqr", "gnms", "fddp"])
@pytest.mark.parametrize("problem", [hop, soft_hop])
def test_contact_phases_and_impacts(problem, name):
    """Hop of a leg: stance, flight, landing and stance on rigid ground, and a hop on soft ground."""
    ocp = problem("compiled")
    x0, guess = shifted(ocp, size=0.02)
    batch, options = Batch(ocp, {"x0": x0}), {**SETTINGS[name], "max_iterations": 4}
    found = to.solve_batch(batch, guess=guess, options=options, solver="slq")
    assert found.meta["how"] == "lanes"
    check_each(found, batch, guess, options)


def test_solved_to_the_end_in_any_company():
    """More problems than slots, of varying difficulty, on two threads: all reach the optima of single solves."""
    ocp = cart_pole([1.0, 0.0, 0.0, 0.0], 30, 0.05)
    x0, guess = shifted(ocp, 70)
    goals = np.zeros((70, 4))
    goals[:, 0] = np.linspace(-2.0, 2.0, 70)
    found = to.solve_batch(ocp, {"x0": x0, "state.reference": goals}, guess, solver="fddp", threads=2)
    assert found.success.all() and len(set(found.iterations)) > 3
    for i in (0, 13, 35, 69):
        single = to.solve(
            Batch(ocp, {"x0": x0, "state.reference": goals})[i], Guess(guess.xs[i], guess.us[i]), solver="fddp"
        )
        assert found.cost[i] == pytest.approx(single.cost, rel=1e-10)
        np.testing.assert_allclose(found.xs[i], single.xs, atol=1e-5)
    used = found.meta["lanes"]
    assert used["threads"] == 2 and 0.0 < used["sweeps"] <= 1.0 and 0.0 < used["rollouts"] <= 1.0


def test_phases_with_values_of_their_own():
    """Values: parameters of dynamics, references by knot; one phase does not read its controls."""
    pendulum, manifold = textbook.autonomous_pendulum(), textbook.autonomous_pendulum().manifold
    falling = to.FunctionMap(lambda x, u, t, p: [x[1], -p["g"][0] * sm.sin(x[0])], manifold, 0, second_order=True)
    phases = (
        to.Phase(sampled(pendulum), np.full(13, 0.05), (to.control_cost(1, weight=0.1, name="torque"),)),
        to.Phase(sampled(falling, "euler"), np.full(9, 0.04), (), {"g": [5.0]}),
        to.Phase(
            sampled(pendulum),
            np.full(20, 0.05),
            (to.control_cost(1, weight=0.1), to.state_cost(manifold, np.zeros(2), 0.1, "way")),
        ),
    )
    goal = to.state_cost(manifold, [np.pi, 0.0], [100.0, 10.0], name="goal")
    ocp = to.OCP(phases, [0.0, 0.0], (goal,), u_lower=[-9.0], u_upper=[9.0])
    rng = np.random.default_rng(4)
    values = {
        "g": 3.0 + rng.random((N, 1)),
        "torque.weight": 0.05 + rng.random(N),
        "way.reference": rng.standard_normal((N, 20, 2)),
        "goal.weight": 10.0 + 90.0 * rng.random((N, 2)),
        "u_upper": 5.0 + rng.random((N, 1)),
    }
    batch, options = Batch(ocp, values), {"max_iterations": 8}
    np.testing.assert_allclose(batch[3].phases[1].parameters["g"], values["g"][3])
    acts = np.repeat([phase.dynamics.nu > 0 for phase in phases], [phase.knots for phase in phases])
    np.testing.assert_allclose(batch[3].control_bounds[1][:, 0], np.where(acts, values["u_upper"][3, 0], np.inf))
    guess = to.constant_guess(ocp, 0.2)
    found = to.solve_batch(batch, guess=guess, options=options, solver="slq")
    check_each(found, batch, guess, options)
    listed = to.solve_batch([batch[i] for i in range(N)], guess=guess, options=options, solver="slq")
    np.testing.assert_allclose(listed.xs, found.xs, rtol=0, atol=1e-12)
    assert listed.messages == found.messages


def test_a_member_is_a_solution_of_its_robot(tmp_path):
    body = to.FreeBody(to.load_robot("double_pendulum"))
    dynamics = to.SampledSystem(to.make_backend(body), "semi_implicit_euler")
    ocp = to.OCP.single_phase(dynamics, np.zeros(4), 5, 0.02, [to.control_cost(2)], [], model=body.model)
    found = to.solve_batch(ocp, {"x0": np.linspace(0.0, 0.3, 12).reshape(3, 4)}, solver="slq")
    saved = to.Solution.load(found[1].save(tmp_path / "one.npz"))
    assert saved.model is not None and saved.model.name == body.model.name
    assert saved.meta["solve_time"] > 0.0 and "solve_times" not in saved.meta
    np.testing.assert_array_equal(saved.xs, found.xs[1])


def test_robots_of_other_inertias():
    """Payloads are values: each solution equals the single solve of a robot with these inertias."""
    model = to.load_robot("double_pendulum")
    robots = [
        replace(model, mass=fraction * model.mass, inertia=fraction * model.inertia) for fraction in (1.0, 1.3, 2.0)
    ]

    def problem(body, engine="auto", **given):
        dynamics = to.SampledSystem(to.make_backend(body, engine=engine), "semi_implicit_euler")
        hold = to.state_cost(body.manifold, [0.5, 0.2, 0.0, 0.0], 10.0, name="hold")
        return to.OCP.single_phase(dynamics, np.zeros(4), 10, 0.02, [to.control_cost(2, weight=1e-3)], [hold], **given)

    ocp = problem(to.InertialBody(model), parameters={"inertia": inertial_parameters(model)})
    found = to.solve_batch(ocp, {"dynamics.inertia": [inertial_parameters(robot) for robot in robots]}, solver="fddp")
    assert found.meta["how"] == "lanes" and found.success.all() and np.ptp(found.cost) > 1e-3
    for i, robot in enumerate(robots):
        single = to.solve(problem(to.FreeBody(robot), "numpy"), solver="fddp")
        np.testing.assert_allclose(found.xs[i], single.xs, rtol=0, atol=1e-9)
        assert found.cost[i] == pytest.approx(single.cost, rel=1e-10)


def test_bounds_that_only_the_members_have():
    ocp = replace(pendulum_swing_up(), u_lower=None, u_upper=None)
    limits = np.linspace(1.0, 4.0, N)[:, None]
    batch, guess = Batch(ocp, {"u_lower": -limits, "u_upper": limits}), shifted(ocp)[1]
    options = {"max_iterations": 8}
    found = to.solve_batch(batch, guess=guess, options=options, solver="slq", gains=True, threads=1)
    assert found.meta["how"] == "lanes" and (np.abs(found.us[..., 0]) <= limits + 1e-12).all()
    check_each(found, batch, guess, options)


def test_a_non_finite_problem_is_named_and_does_not_stop_the_others():
    ocp = pendulum_swing_up(horizon=20)
    x0 = np.zeros((N, 2))
    x0[4] = np.nan
    found = to.solve_batch(ocp, {"x0": x0}, to.constant_guess(ocp), solver="ilqr")
    assert found.status[4].code == StatusCode.NON_FINITE and "in x0 of problem 4." in found.status[4].message
    assert found.success.sum() == N - 1 and "1 non_finite" in repr(found)
    others = [i for i in range(N) if i != 4]
    batch = Batch(ocp, {"x0": x0[others]})
    check_each(
        to.solve_batch(batch, None, to.constant_guess(ocp), solver="ilqr"),
        batch,
        to.constant_guess(ocp),
        None,
        "ilqr",
        1e-5,
    )


@pytest.mark.parametrize("solver", ["slq", "ddp"])
@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("name", ["x0", "state.reference", "u_upper", "guess.us"])
def test_values_that_are_no_numbers_are_named_wherever_they_stand(name, wrong, solver):
    """Messages name NaN values in the first and in other problems, for a batch of values and for a list of problems."""
    ocp, x0 = pendulum_swing_up(horizon=20), np.zeros((3, 2))
    values = {"x0": x0, "state.reference": np.zeros((3, 2)), "u_upper": np.full((3, 1), np.inf)}
    guess = Guess(np.zeros((3, 21, 2)), np.zeros((3, 20, 1)))
    ({**values, "guess.us": guess.us}[name])[wrong] = np.nan
    batch = Batch(ocp, values)
    rest = [i for i in range(3) if i != wrong]
    listed = [batch[i] for i in range(3)]
    for problems in (batch, listed):
        found = to.solve_batch(problems, None, guess, {"max_iterations": 3}, solver=solver)
        assert found.status[wrong].code is StatusCode.NON_FINITE and np.isnan(found.cost[wrong])
        assert f"in {name} of problem {wrong}." in found.messages[wrong]
        assert np.isfinite(found.cost[rest]).all() and all("NaN" not in found.messages[i] for i in rest)


def test_an_indefinite_quu_is_named():
    ocp = pendulum_swing_up()
    ocp = replace(
        ocp,
        phases=(replace(ocp.phases[0], terms=tuple(t.updated(weight=[0.0]) for t in ocp.phases[0].terms)),),
        terminal=(),
    )
    options = {"max_regularization": 1e-300, "min_regularization": 1e-300}
    ocp = replace(ocp, terminal=(to.state_cost(ocp.manifold, [1.0, 0.0], 0.0, name="far"),))
    weights = np.zeros((3, 2))
    weights[1] = 1.0
    batch = Batch(ocp, {"far.weight": weights})
    check_each(to.solve_batch(batch, options=options, solver="slq"), batch, to.constant_guess(ocp), options)


def test_second_starts_where_linear_gaps_blow_up():
    """Two hanging double pendulums restart, one with an easy guess does not; each solution equals that of a single solve."""
    from trajopt.config.build import build_task
    from trajopt.config.config import load_config

    ocp = build_task(load_config("problems/configs/double_pendulum_swing_up.toml")).ocp
    hanging = Guess(np.zeros((ocp.horizon + 1, 4)), np.zeros((ocp.horizon, 2)))
    single = to.solve(ocp, hanging, {"max_iterations": 200}, solver="slq")
    guesses = [hanging, Guess(single.xs, single.us), hanging]
    found = to.solve_batch(ocp, {"x0": np.tile(ocp.x0, (3, 1))}, guesses, {"max_iterations": 200}, solver="slq")
    assert found.success.all() and found.meta["second_starts"] == [0, 2]
    assert found.messages[0] == str(single.status) and found.iterations[0] == single.iterations
    assert found.cost[[0, 2]] == pytest.approx(single.cost, rel=1e-9)
    first = int(re.search(r"linear gaps ended with \w+ after (\d+) iterations", single.status.message)[1])
    for limit in (first, first + 4):  # defects stay open: without a restart, and with one that fails
        single = to.solve(ocp, hanging, {"max_iterations": limit}, solver="gnms")
        assert not single.status.success and ("second start" in single.status.message) == (limit > first)
        found = to.solve_batch(ocp, {"x0": ocp.x0[None]}, [hanging], {"max_iterations": limit}, solver="gnms")
        assert found.messages == [str(single.status)]


def test_ctrl_c_returns_the_finished_solutions():
    """The first problems start at their goal; the many others take long."""
    goal = [1.0, 0.0, 0.0, 0.0]
    ocp = cart_pole(goal, 40, 0.05)
    x0, guess = shifted(ocp, 2000)
    x0[:20], guess.xs[:20], guess.us[:20] = goal, goal, 0.0
    calls = []

    def interrupt(done, total):
        calls.append((done, total))
        if done >= 20:
            raise KeyboardInterrupt

    options = {"gradient_tolerance": 1e-300, "kkt_tolerance": 1e-300, "max_iterations": 10**6}
    found = to.solve_batch(ocp, {"x0": x0}, guess, options, interrupt, threads=2, solver="fddp")
    assert calls[-1][1] == 2000 and found.success[:20].all()
    assert {s.code for s in found.status[20:]} <= {StatusCode.INTERRUPTED, StatusCode.CONVERGED}
    begun = np.isfinite(found.cost)
    assert begun.sum() < 2000 and np.isfinite(found.xs[begun]).all()
    assert all("before this problem started" in found.messages[i] for i in np.flatnonzero(~begun))


def test_an_error_in_a_callback_ends_the_batch_and_passes():
    ocp = cart_pole([1.0, 0.0, 0.0, 0.0], 40, 0.05)
    x0, guess = shifted(ocp, 40)
    options = {"gradient_tolerance": 1e-300, "kkt_tolerance": 1e-300, "max_iterations": 10**6}
    with pytest.raises(ZeroDivisionError):
        to.solve_batch(ocp, {"x0": x0}, guess, options, lambda done, total: 1 / 0, solver="fddp")


@pytest.mark.parametrize("solver", ["ddp", "ipm"])
def test_solvers_without_lanes_give_the_same(solver):
    ocp = pendulum_swing_up(20, BY_DIFFERENCES)
    x0, _ = shifted(ocp, 3)
    found = to.solve_batch(ocp, {"x0": x0}, solver=solver, gains=True)
    assert found.meta["how"] == "one after the other" and found.success.all()
    for i in range(3):
        single = to.solve(replace(ocp, x0=x0[i]), solver=solver)
        np.testing.assert_allclose(found.xs[i], single.xs, atol=1e-12)
        np.testing.assert_allclose(found.K[i], single.K, atol=1e-12)


def test_in_processes(monkeypatch):
    """Problems that can be pickled are solved in processes if the work is long enough."""
    from trajopt.config.build import build_task
    from trajopt.config.config import load_config

    monkeypatch.setattr(processes, "WORTH", 0.0)
    ocp = build_task(load_config("problems/configs/double_pendulum_swing_up.toml")).ocp
    batch, guess = Batch(ocp, {"x0": np.tile(ocp.x0, (3, 1))}), shifted(ocp, 3)[1]
    for given in (batch, Batch.from_problems([ocp] * 3)):  # values, and a list of problems
        work = pickle.loads(pickle.dumps(processes.Work(given, (guess.xs, guess.us), "sqp", None)))
        assert given.ocp.goals and not any(work.batch[i].goals for i in range(3))  # goals are not pickled
    before = dict(os.environ)
    x0 = ocp.x0 + 0.1 * np.random.default_rng(0).standard_normal((4, 4))
    done = []
    found = to.solve_batch(ocp, {"x0": x0}, None, {"max_iterations": 3}, lambda *a: done.append(a), "sqp", threads=2)
    assert found.meta["how"] == "2 processes" and done[-1] == (4, 4) and dict(os.environ) == before
    for i in range(4):
        np.testing.assert_allclose(
            found.us[i], to.solve(replace(ocp, x0=x0[i]), options={"max_iterations": 3}, solver="sqp").us, atol=1e-9
        )


def failing(monkeypatch):
    """Let single solves raise an error if the first coordinate of x0 is large."""
    whole = processes.solve

    def solve(ocp, *arguments, **named):
        if ocp.x0[0] > 5.0:
            raise ZeroDivisionError("this one")
        return whole(ocp, *arguments, **named)

    monkeypatch.setattr(processes, "solve", solve)


@pytest.mark.parametrize("wrong", [[0], [1], [0, 2]])
def test_a_problem_that_raises_an_error_does_not_stop_the_others(monkeypatch, wrong):
    failing(monkeypatch)
    ocp = pendulum_swing_up(20, BY_DIFFERENCES)
    x0, _ = shifted(ocp, 3)
    x0[wrong, 0] = 10.0
    found = to.solve_batch(ocp, {"x0": x0}, solver="ddp", options={"max_iterations": 2})
    assert [i for i in range(3) if found.status[i].code is StatusCode.ERROR] == wrong
    assert "ZeroDivisionError: this one" in found.messages[wrong[0]] and np.isfinite(found.cost).sum() == 3 - len(wrong)


def test_the_number_of_starts_may_be_of_numpy():
    found = to.multi_start(pendulum_swing_up(horizon=20), np.int64(2), {"max_iterations": 1}, solver="ddp")
    assert len(found.solutions) == 2


def test_optima_of_no_cost_are_one():
    """A mass at its goal: each start ends at rest, with costs of rounding errors."""
    mass = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    step = to.SampledSystem(to.make_backend(mass, "forward_ad", engine="numpy"), "euler")
    running, terminal = [to.control_cost(1)], [to.state_cost(mass.manifold, [0.0, 0.0], 1e2)]
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, running, terminal)
    found = to.multi_start(ocp, [to.constant_guess(ocp, u) for u in (-1.0, 0.0, 0.3, 1.0)], solver="slq")
    assert [len(optimum.starts) for optimum in found.optima] == [4]


def slowed(scheme):
    """Reaches of a pendulum by weak torques; return the problem and starts near the goal, far from it, and in between."""
    pendulum = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 5.0 * sm.sin(x[0])], 2, 1)
    step = to.SampledSystem(to.make_backend(pendulum, "forward_ad"), scheme)
    terminal = [to.state_cost(pendulum.manifold, [0.0, 0.0], 1.0)]
    goal = to.state_goal(pendulum.manifold, [0.0, 0.0])
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 15, 0.2, [to.control_cost(1, weight=1e-2)], terminal, goals=[goal])
    return ocp, np.array([[0.0, 0.0], [0.02, 0.0], [2.5, 0.0], [1.0, 4.0]])


@pytest.mark.parametrize("solver", ["slq", "ddp", "ipm", "dms"])
def test_with_replay_statuses_are_those_of_checked_solves(solver):
    ocp, x0 = slowed("euler")
    found = to.solve_batch(ocp, {"x0": x0}, solver=solver, replay=True, threads=1)
    alone = [to.solve(replace(ocp, x0=x), solver=solver).status.code for x in x0]
    assert [s.code for s in found.status] == alone and len(set(alone)) > 1
    assert found.K is None and found[3].meta["replay"]["open"]["ratio"] > 1.0
    failed = to.solve_batch(ocp, {"x0": x0}, solver=solver, options={"max_iterations": 1}, replay=True, threads=1)[3]
    assert not failed.status.success and "not replayed on finer dynamics: the solve failed" in failed.report()


@pytest.fixture
def default_ctrl_c():
    """A shell may start background processes with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_before_the_replays_keeps_what_the_solver_found(default_ctrl_c):
    ocp, x0 = slowed("rk4")

    def interrupt(done, total):
        if done == total:
            signal.raise_signal(signal.SIGINT)  # to this thread, so that it has arrived on return

    found = to.solve_batch(ocp, {"x0": x0}, callback=interrupt, solver="slq", replay=True, threads=1)
    assert found.stopped and {s.code for s in found.status} == {StatusCode.INTERRUPTED}
    assert all("Converged after" in m and "before its motion was checked" in m for m in found.messages[:3])
    assert found.meta["replays"][0] == {"left_out": "the batch was interrupted"}


def test_an_error_of_all_problems_is_raised(monkeypatch):
    failing(monkeypatch)
    ocp = pendulum_swing_up(20, BY_DIFFERENCES)
    with pytest.raises(ZeroDivisionError):
        to.solve_batch(ocp, {"x0": np.full((2, 2), 10.0)}, solver="ddp")


class Deadly(processes.Work):
    """Work that kills its process, or raises an error, depending on the first state of a problem."""

    def __call__(self, i, stopped=lambda: False):
        value = self.batch.x0()[i, 0]
        if value > 20.0:
            os.kill(os.getpid(), signal.SIGKILL)
        if value > 10.0:
            raise ZeroDivisionError("this one")
        return super().__call__(i, stopped)


@pytest.mark.parametrize("with_loky", [True, False])
def test_a_process_that_dies_takes_one_problem_along(monkeypatch, with_loky):
    if with_loky:
        pytest.importorskip("loky")
    else:
        monkeypatch.setattr(worker_pool, "loky", None)
    from trajopt.config.build import build_task
    from trajopt.config.config import load_config

    monkeypatch.setattr(processes, "WORTH", 0.0)
    monkeypatch.setattr(processes, "Work", Deadly)
    ocp = build_task(load_config("problems/configs/double_pendulum_swing_up.toml")).ocp
    x0 = np.tile(ocp.x0, (6, 1))
    x0[2, 0], x0[4, 0] = 15.0, 25.0
    found = to.solve_batch(ocp, {"x0": x0}, None, {"max_iterations": 1}, solver="sqp", threads=2)
    assert found.meta["how"] == "2 processes"
    assert [i for i in range(6) if found.status[i].code is StatusCode.ERROR] == [2, 4]
    assert "ZeroDivisionError" in found.messages[2] and "died" in found.messages[4]
    assert np.isfinite(np.delete(found.cost, [2, 4])).all()


@pytest.mark.parametrize("with_loky", [True, False])
def test_a_script_without_a_guard_runs_once(tmp_path, with_loky):
    script = tmp_path / "script.py"
    script.write_text(f"""
import numpy as np
import trajopt as to
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.solvers.batch import processes, worker_pool
processes.WORTH = 0.0
worker_pool.loky = worker_pool.loky if {with_loky} else None
ocp = build_task(load_config("problems/configs/double_pendulum_swing_up.toml")).ocp
found = to.solve_batch(ocp, {{"x0": np.tile(ocp.x0, (3, 1))}}, None, {{"max_iterations": 1}}, solver="sqp", threads=2)
print("cost", np.isfinite(found.cost).sum(), found.meta["how"])
""")
    root = str(Path(to.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    ended = subprocess.run(
        [sys.executable, script], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    how = "2 processes" if with_loky and worker_pool.loky is not None else "one after the other"
    assert ended.stdout == f"cost 3 {how}\n"


# -- bad input -----------------------------------------------------------------------------------------------------------


def test_members_of_other_structures_are_named():
    first, other = pendulum_swing_up(horizon=20), pendulum_swing_up(horizon=21)
    with pytest.raises(
        ValueError,
        match="problem 2 of the batch differs in structure from problem 0: in phase 0, knots: 21 instead of 20",
    ):
        Batch.from_problems([first, first, other])
    with pytest.raises(ValueError, match="problem 1 .* bounds on the controls: True instead of False"):
        Batch.from_problems([first, replace(first, u_upper=np.ones(1))])
    renamed = replace(first, terminal=(replace(first.terminal[0], name="other"),))
    with pytest.raises(ValueError, match=r"terminal cost terms: \['other'\] instead of \['state'\]"):
        Batch.from_problems([first, renamed])
    squared = to.residual_cost(
        "state", lambda x, u, t, p: [x[0] * x[0], x[1]], first.manifold, 2, parameters={"reference": [0.0, 0.0]}
    )
    with pytest.raises(ValueError, match="the residual of 'state' is another function"):
        Batch.from_problems([first, replace(first, terminal=(squared,))])
    with pytest.raises(ValueError, match="the dynamics differ"):
        Batch.from_problems(
            [
                cart_pole([0.0] * 4, 20, 1.0),
                replace(cart_pole([0.0] * 4, 20, 1.0), phases=_slower(cart_pole([0.0] * 4, 20, 1.0))),
            ]
        )
    assert len(Batch.from_problems([first, pendulum_swing_up(horizon=20)])) == 2  # built twice, with the same structure


@pytest.mark.parametrize(("changes", "message"), [
    ({"x0": np.zeros(3)}, r"x0 has shape \(3,\); expected \(nx = 4,\)"),
    ({"u_upper": np.ones(3)}, r"u_upper has shape \(3,\); expected \(nu = 2,\) or \(N = 16, 2\)"),
    ({"u_lower": np.zeros(1)}, r"u_lower has shape \(1,\); expected \(nu = 2,\)"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("wrong", [0, 2])
def test_members_with_arrays_of_another_shape_are_named(wrong, changes, message):
    members = [replace(swing(constrained=False), u_lower=-np.ones(2), u_upper=np.ones(2)) for _ in range(3)]
    members[wrong] = replace(members[wrong], **changes)
    with pytest.raises(ValueError, match=f"problem {wrong} of the batch is invalid: {message}"):
        to.solve_batch(members)


def _slower(ocp):
    system = to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], -x[1]], ocp.manifold, 1)
    return (replace(ocp.phases[0], dynamics=sampled(system)),)


@pytest.mark.parametrize(("values", "message"), [
    ({}, "no values given"),
    ({"x0": 1.0}, "single number"),
    ({"x0": np.zeros((0, 2))}, "at least one"),
    ({"x0": np.zeros((3, 5))}, r"x0 has shape \(3, 5\); expected \(3, 2\)"),
    ({"x0": np.zeros((3, 2)), "weight": np.ones(3)}, "no value of a batch is named 'weight'"),
    ({"x0": np.zeros((3, 2)), "control.weight": np.ones(4)}, "different numbers of problems"),
    ({"state.refrence": np.zeros((3, 2))}, "did you mean 'state.reference'"),
    ({"state.reference": np.zeros((3, 3))}, r"expected \(3, 2\) or"),
    ({"state.reference": np.zeros(2)}, r"has shape \(2,\); expected \(2, 2\) or"),
    ({"state.weight": np.zeros((3, 3))}, r"expected \(3,\), \(3, 2\) or"),
    ({"control.weight": [1.0, -1.0]}, "those of problem 1 are not"),
], ids=str)  # fmt: skip
def test_values_that_do_not_fit(values, message):
    with pytest.raises(ValueError, match=message):
        to.solve_batch(pendulum_swing_up(horizon=20), values)


def test_guesses_that_do_not_fit():
    ocp = pendulum_swing_up(horizon=20)
    values = {"x0": np.zeros((3, 2))}
    with pytest.raises(ValueError, match="got 2 guesses for 3 problems"):
        to.solve_batch(ocp, values, [to.constant_guess(ocp)] * 2)
    with pytest.raises(ValueError, match=r"us of the guess has shape \(1, 19, 1\)"):
        to.solve_batch(ocp, values, Guess(np.zeros((21, 2)), np.zeros((19, 1))))
    shorter = Guess(np.zeros((20, 2)), np.zeros((19, 1)))
    with pytest.raises(ValueError, match=r"guess 1 has xs \(20, 2\) .* the 20 steps"):
        to.solve_batch(ocp, values, [to.constant_guess(ocp), shorter, shorter])
    with pytest.raises(ValueError, match="at least one guess"):
        to.multi_start(ocp, [])
    for starts in (2.5, to.constant_guess(ocp), None):
        with pytest.raises(
            TypeError, match=f"starts is a {type(starts).__name__}; expected a number .* or a list of guesses"
        ):
            to.multi_start(ocp, starts)
    for threads in (-1, 0, 1.5):
        with pytest.raises(ValueError, match=f"threads = {threads}; expected a number of at least 1, or None"):
            to.solve_batch(ocp, values, threads=threads)
    with pytest.raises(ValueError, match="one problem without values"):
        to.solve_batch(ocp)
    with pytest.raises(ValueError, match="a list of problems was given"):
        to.solve_batch([ocp, ocp], values)
    assert not ShootingBatch.fits(interpreted(ocp), to.SLQOptions())
    assert to.solve_batch(interpreted(ocp), values, options={"max_iterations": 1}).meta["how"] == "one after the other"


def interpreted(ocp):
    own = ocp.phases[0].dynamics.sampling
    step = to.SampledSystem(to.make_backend(own.backend.map, "forward_ad", engine="numpy"), own.scheme)
    return replace(ocp, phases=(replace(ocp.phases[0], dynamics=step),))


@pytest.mark.parametrize("solver", ["slq", "ilqr", "gnms", "fddp", "ddp"])
@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_cost_in_python_beside_compiled_dynamics_is_solved_in_a_batch(solver, at_the_end):
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler")
    angle = to.residual_cost("angle", lambda x, u, t, p: [math.atan(float(x[0]) - 1.5)], cart.manifold, 1, 10.0)
    running, terminal = [to.control_cost(1)], [to.state_cost(2, [1.0, 0.0])]
    (terminal if at_the_end else running).append(angle)
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 10, 0.1, running, terminal)
    x0 = np.array([[0.0, 0.0], [0.3, 0.0]])
    found = to.solve_batch(ocp, {"x0": x0}, solver=solver)
    for i in range(2):
        single = to.solve(replace(ocp, x0=x0[i]), solver=solver, check=False)
        assert found.success[i] and found.cost[i] == pytest.approx(single.cost, rel=1e-9)


def test_progress_never_goes_back_while_problems_are_solved_again():
    ocp = pendulum_swing_up()
    fastest = np.abs(to.solve(ocp, solver="ddp", check=False).xs[:, 1]).max()
    limit = to.state_bounds(ocp.manifold, [-np.inf, -0.8 * fastest], [np.inf, 0.8 * fastest], "speed")
    tight = replace(ocp, phases=(replace(ocp.phases[0], constraints=(limit,)),))
    seen = []
    x0 = np.tile(ocp.x0, (4, 1)) + 0.01 * np.arange(4)[:, None]
    found = to.solve_batch(tight, {"x0": x0}, callback=lambda done, count: seen.append((done, count)))
    assert found.success.all() and len(found[0].meta["attempts"]) == 2
    assert seen[-1] == (4, 4) and seen == sorted(seen)
