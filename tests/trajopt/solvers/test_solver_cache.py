"""Solver cache: it stores no values, few structures, and no workspace of a running solve."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import textbook_systems as textbook

import trajopt as to
from trajopt.solvers.window.newton_slot import NewtonSlot
from trajopt.solvers.window.shooting_slot import ShootingSlot
from trajopt.stage import solver_cache
from trajopt.stage.solver_cache import SolverCache

SOLVERS = ("fddp", "slq", "ddp", "ipm")


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch):
    monkeypatch.setattr(solver_cache, "_thread_cache", solver_cache._ThreadCache())


def pull(x, u, t, p):
    return [x[1], p["gain"][0] * u[0] - p["gain"][1] * to.sin(x[0])]


def reach(solver, horizon=12):
    """A pendulum whose gains are parameters; for DDP one whose second derivatives are compiled, without any."""
    if solver == "ddp":
        system, gain, step = to.FreeBody(to.chain(1)), {}, "analytic"
    else:
        system, gain, step = to.FunctionMap(pull, 2, 1, second_order=True), {"gain": [1.0, 2.0]}, "forward_ad"
    goal = to.state_cost(system.manifold, [1.0, 0.0], 10.0, "goal")
    dynamics = to.SampledSystem(to.make_backend(system, step), "rk4")
    return to.OCP.single_phase(dynamics, [0.0, 0.0], horizon, 0.1, [goal, to.control_cost(1)], [goal], parameters=gain)


def others(ocp):
    """Yield problems of the same structure, with the name of the value that differs."""
    (phase,) = ocp.phases
    yield "x0", replace(ocp, x0=np.array([0.3, -0.2]))
    yield "bounds", replace(ocp, u_lower=np.array([-0.5]), u_upper=np.array([0.4]))
    yield "other bounds", replace(ocp, u_lower=np.array([-0.2]), u_upper=np.array([0.9]))
    yield "weight", ocp.updated("goal", weight=[3.0, 0.5])
    yield "reference", ocp.updated("goal", reference=np.linspace([0.5, 0.0], [1.5, 0.1], ocp.horizon)[-1])
    yield "time steps", replace(ocp, phases=(replace(phase, dt=np.linspace(0.05, 0.2, ocp.horizon)),))
    parameters = {name: value[::-1].copy() for name, value in phase.parameters.items()}
    yield "parameters", replace(ocp, phases=(replace(phase, parameters=parameters),))
    yield "itself", ocp


def alone(ocp, solver, **options):
    """The solution of a solve that finds nothing."""
    with_nothing, solver_cache._thread_cache = solver_cache._thread_cache, solver_cache._ThreadCache()
    try:
        return to.solve(ocp, solver=solver, check=False, options=options)
    finally:
        solver_cache._thread_cache = with_nothing


def check_same(found, expected):
    assert found.status == expected.status and found.iterations == expected.iterations
    for key in ("xs", "us", "K", "k", "times"):
        np.testing.assert_array_equal(getattr(found, key), getattr(expected, key))


@pytest.mark.parametrize("solver", SOLVERS)
def test_values_are_those_of_the_problem(solver):
    """A solve after others of the same structure equals a solve without cache."""
    ocp = reach(solver)
    to.solve(ocp, solver=solver, check=False)
    for name, other in others(ocp):
        found = to.solve(other, solver=solver, check=False)
        assert len(solver_cache._thread_cache.by_structure) == 1, name
        check_same(found, alone(other, solver))


@pytest.mark.parametrize("solver", SOLVERS)
def test_arrays_that_were_given_other_values_count(solver):
    ocp, fresh = reach(solver), reach(solver)
    to.solve(ocp, solver=solver, check=False)
    for own in (ocp, fresh):
        (phase,) = own.phases
        own.x0[:], phase.dt[:] = [0.2, 0.1], 0.07
        phase.terms[0].weight[:] = 4.0
        for value in phase.parameters.values():
            value[:] = [1.5, 0.5]
    check_same(to.solve(ocp, solver=solver, check=False), alone(fresh, solver))


def test_options_are_those_of_the_solve():
    ocp = reach("fddp")
    for options in (
        {"max_iterations": 1},
        {"max_backtracks": 2, "penalty": 3.0},
        {"regularize": "state"},
        {"shooting": "all"},
    ):
        check_same(to.solve(ocp, solver="slq", options=options, check=False), alone(ocp, "slq", **options))


@pytest.mark.parametrize("solver", SOLVERS)
def test_replays_and_findings_are_those_of_the_problem(solver):
    ocp = reach(solver)
    found = [to.solve(other, solver=solver).meta for _, other in others(ocp)]
    solver_cache._thread_cache.by_structure.clear()
    for meta, (_, other) in zip(found, others(ocp), strict=True):
        own = to.solve(other, solver=solver).meta
        assert meta["replay"] == own["replay"] and meta["findings"] == own["findings"]
        solver_cache._thread_cache.by_structure.clear()


@pytest.mark.parametrize(("solver", "kind", "times"), [("fddp", ShootingSlot, 3), ("ddp", NewtonSlot, 1)])
def test_a_second_solve_binds_nothing_anew(solver, kind, times, monkeypatch):
    """The one for steps of a merit has other memory for controls within bounds: it is made without them, with them, and without."""
    made, original = [], kind.__init__
    monkeypatch.setattr(kind, "__init__", lambda self, *a, **k: made.append(0) or original(self, *a, **k))
    ocp = reach(solver)
    for _, other in [("", ocp), *others(ocp)]:
        to.solve(other, solver=solver, check=False)
    assert len(made) == times


def test_few_structures_are_cached(monkeypatch):
    problems = [reach("fddp", horizon) for horizon in range(5, 5 + solver_cache.MAX_STRUCTURES + 2)]
    for ocp in problems:
        to.solve(ocp, solver="fddp", check=False)
    assert list(solver_cache._thread_cache.by_structure) == [
        solver_cache.structure_of(ocp) for ocp in problems[-solver_cache.MAX_STRUCTURES :]
    ]
    monkeypatch.setattr(solver_cache, "MAX_ENTRIES", 2 * solver_cache.problem_size(problems[0]))
    to.solve(problems[0], solver="fddp", check=False)
    assert list(solver_cache._thread_cache.by_structure) == [solver_cache.structure_of(problems[0])]
    monkeypatch.setattr(solver_cache, "MAX_ENTRIES", solver_cache.problem_size(problems[0]) - 1)
    to.solve(problems[1], solver="fddp", check=False)
    assert solver_cache.structure_of(problems[1]) not in solver_cache._thread_cache.by_structure


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solve_inside_of_another_has_memory_of_its_own(solver):
    ocp, inner = reach(solver), []
    other = replace(ocp, x0=np.array([0.3, -0.2]))
    to.solve(ocp, solver=solver, check=False)

    def callback(record):
        if len(inner) < 2:
            inner.append(to.solve(other, solver=solver, check=False))

    outer = to.solve(ocp, solver=solver, callback=callback, check=False)
    check_same(outer, alone(ocp, solver))
    for found in inner:
        check_same(found, alone(other, solver))


@pytest.mark.parametrize("solver", SOLVERS)
def test_each_thread_keeps_its_own(solver):
    ocp = reach(solver)
    problems = [replace(ocp, x0=np.array([0.1 * i, 0.0])) for i in range(6)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda own: to.solve(own, solver=solver, check=False), 3 * problems))
    for mine, own in zip(found, 3 * problems, strict=True):
        check_same(mine, alone(own, solver))


def test_what_fails_leaves_nothing(monkeypatch):
    ocp = reach("fddp")
    to.solve(ocp, solver="fddp", check=False)

    def callback(record):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        to.solve(ocp, solver="fddp", callback=callback, check=False)
    assert not solver_cache._thread_cache.by_structure


def test_a_time_step_that_was_changed_is_another():
    ocp, fresh = reach("fddp"), reach("fddp")
    to.solve(ocp, solver="fddp", check=False)
    for own in (ocp, fresh):
        dynamics = own.phases[0].dynamics
        dynamics.substeps, dynamics.sampling = 3, dynamics.sampling._replace(substeps=3)
    check_same(to.solve(ocp, solver="fddp", check=False), alone(fresh, "fddp"))


def test_a_given_cache_replaces_that_of_the_thread():
    ocp, own = reach("fddp"), SolverCache()
    start = to.WarmStart(to.constant_guess(ocp), cache=own)
    to.solve(ocp, solver="fddp", warm_start=start, check=False)
    assert own.prepared and not solver_cache._thread_cache.by_structure


def test_systems_of_textbooks_do_not_mix():
    """Two problems of the same sizes with other functions."""
    step = [
        to.SampledSystem(to.make_backend(system(), "forward_ad"), "euler")
        for system in (textbook.double_integrator,) * 2
    ]
    goals = [to.state_cost(step[0].manifold, goal, 5.0) for goal in ([1.0, 0.0], [0.0, 1.0])]
    problems = [to.OCP.single_phase(s, [0.0, 0.0], 8, 0.1, [goal, to.control_cost(1)]) for s in step for goal in goals]
    for ocp in 2 * problems:
        check_same(to.solve(ocp, solver="slq", check=False), alone(ocp, "slq"))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_cache_belongs_to_the_thread_that_filled_it(solver):
    """Another thread replaces the workspaces, because compiled code is bound to those of the first thread."""
    ocp, given = reach(solver), SolverCache()
    to.solve(ocp, solver=solver, check=False, warm_start=to.WarmStart(to.constant_guess(ocp), cache=given))
    left = dict(given.prepared)
    assert left
    with ThreadPoolExecutor(1) as pool:
        warm = to.WarmStart(to.constant_guess(ocp), cache=given)
        found = pool.submit(to.solve, ocp, solver=solver, check=False, warm_start=warm).result()
    check_same(found, alone(ocp, solver))
    assert all(given.prepared[name] is not part for name, part in left.items())


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solve_inside_a_solve_with_the_same_cache_changes_nothing(solver):
    ocp, given = reach(solver), SolverCache()
    other, expected = ocp.updated("goal", weight=[3.0, 0.5]), alone(ocp, solver)

    def solve(problem, callback=None):
        warm = to.WarmStart(to.constant_guess(problem), cache=given)
        return to.solve(problem, None, None, callback, solver, warm_start=warm, check=False)

    solve(ocp)
    inner = []
    found = solve(ocp, lambda record: inner.append(solve(other)))
    assert inner
    check_same(found, expected)
    check_same(inner[0], alone(other, solver))
