"""Methods of a user's own solve as the built-in ones do: alone, in batches, on every engine."""

import runpy
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import trajopt as to
from trajopt.config.config import read_config
from trajopt.solvers import registry
from trajopt.solvers.methods import GAUSS_NEWTON, Accept, End, FirstGains, Start, Step
from trajopt.solvers.methods.requests import AcceptOnBounds, Gains, OnBounds, Restore, Roll

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "own_method.py"


@pytest.fixture(autouse=True)
def _nothing_stays_registered():
    before = registry.SOLVERS.loaded()
    yield
    for name in set(registry.SOLVERS.loaded()) - set(before):
        del registry.SOLVERS[name]


def full_steps(size, options):
    """Gauss-Newton's method without a search."""
    yield Start()
    at = yield FirstGains(0.0)
    while at.gradient > options.gradient_tolerance or at.defect > options.defect_tolerance:
        step = yield Step(0, GAUSS_NEWTON, GAUSS_NEWTON + 1)
        if step is None:
            return End.NO_STEP
        at = yield Accept(0, 0, 1 << GAUSS_NEWTON)
    return End.OPTIMAL


def pendulum(backend="forward_ad", **changes):
    """A pendulum is pushed to an angle."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 2.0 * to.sin(x[0])], 2, 1, second_order=True)
    goal = to.state_cost(system.manifold, [0.6, 0.0], 50.0, "goal")
    dynamics = to.SampledSystem(to.make_backend(system, backend), "rk4")
    return to.OCP.single_phase(dynamics, [0.0, 0.0], 20, 0.1, [to.control_cost(1)], [goal], **changes)


def test_the_example_finds_the_optimum_of_the_built_in_solver(capsys):
    runpy.run_path(str(EXAMPLE))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all("converged" in line for line in lines)
    costs = [float(line.split("cost ")[1].split(",")[0]) for line in lines]
    assert costs[::2] == pytest.approx(costs[1::2], rel=1e-8)
    assert lines[4].startswith("batch, nonmonotone_gnms: 100 converged")
    assert len(EXAMPLE.read_text().splitlines()) <= 80


@pytest.mark.parametrize("backend", ["forward_ad", "central_difference"])
def test_it_solves_as_a_built_in_solver_does(backend):
    to.register_method("full_steps", full_steps)
    ocp = pendulum(backend)
    found, expected = to.solve(ocp, solver="full_steps"), to.solve(ocp, solver="gnms")
    assert found.status.code is to.StatusCode.CONVERGED
    assert found.cost == pytest.approx(expected.cost, rel=1e-9)
    assert pytest.approx(expected.K, rel=1e-5, abs=1e-6) == found.K
    assert found.meta["solver"] == "full_steps" and len(found.history) == found.iterations + 1
    assert [r.step_length for r in found.history[:-1]] == [1.0] * found.iterations


def test_limits_of_iterations_and_time_hold_for_a_user_method():
    to.register_method("full_steps", full_steps)
    few = to.solve(pendulum(), None, {"max_iterations": 1}, solver="full_steps", check=False)
    assert few.status.code is to.StatusCode.MAX_ITERATIONS and few.iterations == 1
    late = to.solve(pendulum(), None, {"time_limit": 1e-9}, solver="full_steps", check=False)
    assert late.status.code is to.StatusCode.TIME_LIMIT and late.iterations == 0


def test_ctrl_c_leaves_where_it_was():
    to.register_method("full_steps", full_steps)
    seen = []

    def stop(record):
        seen.append(record.iterate())
        raise KeyboardInterrupt

    found = to.solve(pendulum(), solver="full_steps", callback=stop, check=False)
    assert found.status.code is to.StatusCode.INTERRUPTED
    np.testing.assert_array_equal(found.xs, seen[0][0])


@pytest.mark.parametrize("backend", ["forward_ad", "central_difference"])
def test_an_error_ends_its_own_problem_alone(backend):
    def fragile(size, options):
        yield Start()
        at = yield FirstGains(0.0)
        if at.cost > 100.0:
            raise RuntimeError("too far away")
        return (yield from full_steps(size, options))

    to.register_method("fragile", fragile)
    goals = [[0.6, 0.0], [9.0, 0.0], [0.5, 0.0]]
    found = to.solve_batch(pendulum(backend), {"goal.reference": goals}, solver="fragile")
    assert [str(s.code) for s in found.status] == ["converged", "error", "converged"]
    assert "too far away" in found.status[1].message
    with pytest.raises(RuntimeError, match="too far away"):
        to.solve_batch(pendulum(backend), {"goal.reference": goals[1:2] * 2}, solver="fragile")


def without_start(size, options):
    yield FirstGains(0.0)


def ends_at_once(size, options):
    return End.OPTIMAL
    yield


def raises_at_once(size, options):
    raise RuntimeError("not today")
    yield


@pytest.mark.parametrize("backend", ["forward_ad", "central_difference"])
@pytest.mark.parametrize(
    ("method", "message"),
    [
        (without_start, "before the first Start"),
        (ends_at_once, "before its first Start"),
        (raises_at_once, "not today"),
    ],
)
def test_a_method_that_ends_before_its_start_is_an_error(backend, method, message):
    to.register_method("own", method)
    with pytest.raises((ValueError, RuntimeError), match=message):
        to.solve(pendulum(backend), solver="own")
    with pytest.raises((ValueError, RuntimeError), match=message):
        to.solve_batch(pendulum(backend), {"x0": np.zeros((3, 2))}, solver="own")


def test_a_success_needs_a_point_without_gaps():
    def ends_with(end, *requests):
        def method(size, options):
            yield Start()
            for request in requests:
                _ = yield request
            return end

        return method

    jump = to.Guess(np.linspace([0.0, 0.0], [9.0, 0.0], 21), np.zeros((20, 1)))
    for end in (End.OPTIMAL, End.CONVERGED, End.CHEAPER, End.ROUNDED):
        to.register_method("own", ends_with(end, FirstGains(0.0)))
        alone = to.solve(pendulum(), jump, solver="own", check=False)
        batch = to.solve_batch(pendulum(), {"x0": np.zeros((2, 2))}, jump, solver="own")
        for status in (alone.status, *batch.status):
            assert status.code is to.StatusCode.NOT_FEASIBLE and "reported success" in status.message
        to.register_method("own", ends_with(end))
        with pytest.raises(ValueError, match="before its first Point"):
            to.solve(pendulum(), solver="own")
    to.register_method("own", ends_with(End.NOT_POSITIVE_DEFINITE, FirstGains(0.0)))
    status = to.solve(pendulum(), solver="own", check=False).status
    assert status.code is to.StatusCode.NOT_POSITIVE_DEFINITE and "No LQ problem was convex" in status.message


def test_an_error_before_the_start_leaves_the_guess():
    calls = []

    def second_refuses(size, options):
        calls.append(size)
        if len(calls) == 2:
            raise RuntimeError("not this one")
        return (yield from full_steps(size, options))

    to.register_method("own", second_refuses)
    found = to.solve_batch(pendulum(), {"x0": [[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]]}, solver="own", threads=1)
    assert [str(s.code) for s in found.status] == ["converged", "error", "converged"]
    np.testing.assert_array_equal(found.xs[1], np.tile([0.2, 0.0], (21, 1)))
    assert np.isnan(found.cost[1]) and np.isfinite(found.cost[[0, 2]]).all()


@pytest.mark.parametrize("backend", ["forward_ad", "central_difference"])
def test_a_time_limit_ends_a_method_that_rolls_out_for_ever(backend):
    def rolls(size, options):
        yield Start()
        yield FirstGains(0.0)
        yield Step(0, GAUSS_NEWTON, GAUSS_NEWTON + 1)
        while True:
            yield Roll(0, 1, 5)

    to.register_method("own", rolls)
    found = to.solve_batch(
        pendulum(backend), {"x0": np.zeros((3, 2))}, solver="own", options={"time_limit": 0.01}, check=False
    )
    assert [s.code for s in found.status] == [to.StatusCode.TIME_LIMIT] * 3


@pytest.mark.parametrize("backend", ["forward_ad", "complex_step"])
def test_step_lengths_may_be_as_short_as_a_method_likes(backend):
    found = []

    def short(size, options):
        yield Start()
        at = yield FirstGains(0.0)
        yield FULL
        for first in (24, 25, 1000):
            trials = yield Roll(0, first, 1)
            found.append(trials[0].cost - at.cost)
        return End.NO_STEP

    to.register_method("short", short)
    ocp = pendulum(backend)
    to.solve(ocp, to.constant_guess(ocp), solver="short")
    first, half, none = found
    assert first < 0.0 and half == pytest.approx(0.5 * first, rel=1e-4) and none == pytest.approx(0.0, abs=1e-12)


def test_a_batch_is_the_single_solves(count=8):
    to.register_method("full_steps", full_steps)
    body = to.FreeBody(to.chain(2))
    goal = to.state_cost(body.manifold, [0.3, 0.2, 0.0, 0.0], 50.0, "goal")
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), "semi_implicit_euler")
    ocp = to.OCP.single_phase(dynamics, np.zeros(4), 16, 0.02, [to.control_cost(2, weight=1e-2)], [goal])
    x0 = np.random.default_rng(0).normal(0.0, 0.05, (count, 4))
    found = to.solve_batch(ocp, {"x0": x0}, solver="full_steps", gains=True, threads=1)
    assert found.meta["how"] == "1 thread"
    for i in range(0, count, 7):
        single = to.solve(replace(ocp, x0=x0[i]), solver="full_steps", check=False)
        assert found.status[i].code is single.status.code is to.StatusCode.CONVERGED
        assert found.cost[i] == pytest.approx(single.cost, rel=1e-9)
        assert found.iterations[i] == single.iterations
        assert pytest.approx(single.K, rel=1e-6, abs=1e-8) == found.K[i]


def test_wrong_registrations_name_the_remedy():
    @dataclass
    class NotAMethodOptions:
        memory: int = 3

    with pytest.raises(ValueError, match="'ddp' is built in; choose another name"):
        to.register_method("ddp", full_steps)
    with pytest.raises(TypeError, match="extends trajopt.MethodOptions"):
        to.register_method("own", full_steps, NotAMethodOptions)
    with pytest.raises(TypeError, match="a NoneType; expected a generator function"):
        to.register_method("own", None)
    with pytest.raises(TypeError, match="the class NotAMethodOptions; expected a generator function"):
        to.register_method("own", NotAMethodOptions)
    assert "own" not in to.solver_names()


def test_what_no_method_yields_or_returns_is_named():
    def forgets_its_end(size, options):
        yield Start()

    def asks_for_a_number(size, options):
        yield 3.0

    to.register_method("own", forgets_its_end)
    with pytest.raises(TypeError, match="the method returned None; expected an End"):
        to.solve(pendulum(), solver="own")
    to.register_method("own", asks_for_a_number)
    with pytest.raises(TypeError, match="the method yielded a float; expected a request"):
        to.solve(pendulum(), solver="own")


def test_what_it_cannot_honor_is_refused():
    to.register_method("full_steps", full_steps)
    ocp = pendulum()
    limit = to.state_bounds(ocp.manifold, [-1.0, -1.0], [1.0, 1.0])
    constrained = replace(ocp, phases=(replace(ocp.phases[0], constraints=(limit,)),))
    with pytest.raises(
        to.InvalidProblem, match="the method 'full_steps' cannot enforce constraints: choose a built-in solver"
    ):
        to.solve(constrained, solver="full_steps")
    with pytest.raises(to.InvalidProblem, match="lower < upper"):
        to.solve(replace(ocp, u_lower=[1.0], u_upper=[1.0]), solver="full_steps")


def test_a_config_takes_it():
    to.register_method("full_steps", full_steps)
    values = tomllib.loads((EXAMPLE.parents[2] / "problems" / "configs" / "ur5_reach.toml").read_text())
    config = read_config(values | {"solver": {"name": "full_steps", "max_iterations": 7}})
    assert config.solver_name == "full_steps" and config.solver_options.max_iterations == 7


FULL = Step(0, GAUSS_NEWTON, GAUSS_NEWTON + 1)


@pytest.mark.parametrize(
    "requests, message",
    [
        ([FirstGains(0.0)], "comes before the first Start"),
        ([Start(0.5)], "push must be between 0 and 0.5"),
        ([Start(), FirstGains(0.0), Step(5, GAUSS_NEWTON, GAUSS_NEWTON + 1)], "the place must be 0 or 1"),
        ([Start(), FirstGains(0.0), Step(0, GAUSS_NEWTON, 7)], "the fractions with indices"),
        ([Start(), FirstGains(0.0), FULL._replace(delta=np.nan)], "delta and mu must be finite"),
        ([Start(), FirstGains(-1.0)], "delta and mu must be finite"),
        ([Start(), FirstGains(0.0), FULL, Accept(0, 0, 1 << GAUSS_NEWTON, mu=-5.0)], "delta and mu must be finite"),
        ([Start(), FirstGains(0.0), Restore(1 << GAUSS_NEWTON, mu=np.nan)], "delta and mu must be finite"),
        ([Start(), FirstGains(0.0), Accept(0, 0, 1 << GAUSS_NEWTON)], "no Step in place 0"),
        ([Start(), FirstGains(0.0), FULL, Accept(0, 100_000, 1 << GAUSS_NEWTON)], "have rows 0 to 0"),
        ([Start(), FirstGains(0.0), FULL, Accept(0, 0, 64)], "fractions must have at least one of the bits"),
        ([Start(), FirstGains(0.0), FULL, Roll(0, -1, 3)], "first must be at least 0"),
        ([Start(), FirstGains(0.0), OnBounds()], "the controls have no bounds"),
        ([Start(), FirstGains(0.0), AcceptOnBounds()], "it must follow OnBounds"),
        ([Start(), FirstGains(0.0), Gains(9)], "first must be"),
    ],
)
def test_requests_that_cannot_be_answered_are_refused(requests, message):
    def method(size, options):
        for request in requests:  # "yield from" a list cannot be sent answers
            _ = yield request
        return End.OPTIMAL

    to.register_method("impossible", method)
    problem = pendulum()
    with pytest.raises(ValueError, match=message):
        to.solve(problem, to.constant_guess(problem), solver="impossible")
