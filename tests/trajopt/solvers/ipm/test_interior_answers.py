"""The interior point takes the same steps with compiled stages and with stages in Python, up to rounding."""

from dataclasses import replace

import numpy as np
import pytest
from tumble_cases import tumble

import trajopt as to
from trajopt import Guess, StatusCode, WarmStart
from trajopt.results.records import NUMBERS
from trajopt.solvers.interior.feasibility import Restoration
from trajopt.solvers.methods import interior_point
from trajopt.solvers.methods.interior_point import BLOCKED, InteriorEnd, InteriorPoint, InteriorSize
from trajopt.solvers.methods.interior_requests import RestorationEnd, Restored, Take
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.rules.interior_measures import Violation
from trajopt.solvers.window import interior
from trajopt.solvers.window.interior_slot import InteriorSlot
from trajopt.stage import solver_cache

GOAL = np.array([0.4, 0.3, 0.0, 0.0])


def swing(goal=GOAL, corner=0.4):
    """Double pendulum that reaches a posture, with joint speed limits and a forbidden corner of joint angles."""
    body = to.FreeBody(to.load_robot("double_pendulum", turns="counted"))
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), "semi_implicit_euler")
    terms = [to.control_cost(2, weight=1e-2), to.state_cost(body.manifold, GOAL, [0.1, 0.1, 0.01, 0.01], name="way")]
    slow = to.state_bounds(body.manifold, [-np.inf, -np.inf, -2.0, -2.0], [np.inf, np.inf, 1.4, 1.4], name="speed")
    rows = (lambda x, u, t, p: [x[1] * x[1] - x[0] - p["room"][0]], body.manifold, 1, -np.inf)
    away = to.residual_constraint("corner", *rows, parameters={"room": [corner]})
    reach = to.state_bounds(body.manifold, goal, goal, name="reach")
    fields = {
        "constraints": [slow, away],
        "terminal_constraints": [reach],
        "u_lower": [-30.0] * 2,
        "u_upper": [30.0] * 2,
    }
    return to.OCP.single_phase(dynamics, np.zeros(4), 16, 0.05, terms, [], **fields)


def guess_of(ocp, size=0.3, seed=3):
    rng = np.random.default_rng(seed)
    return Guess(size * rng.standard_normal((ocp.horizon + 1, 4)), size * rng.standard_normal((ocp.horizon, 2)))


@pytest.fixture
def in_numpy(monkeypatch):
    """Return a solve function whose kernels call Python for the stages."""

    def run(*args, **fields):
        with monkeypatch.context() as patched:
            patched.setattr(interior, "serves", lambda *_, **__: False)
            patched.setattr(solver_cache, "_thread_cache", solver_cache._ThreadCache())
            return to.solve(*args, solver="ipm", **fields)

    return run


@pytest.fixture
def calls(monkeypatch):
    """Record the requests that the kernels answer."""
    asked, original = [], InteriorSlot.answer

    def noted(self, request):
        if type(self) is InteriorSlot:
            asked.append(request)
        return original(self, request)

    monkeypatch.setattr(InteriorSlot, "answer", noted)
    return asked


def check_same(actual, expected, rel=1e-4):
    first = [
        str(found.status).split(":")[:2] for found in (actual, expected)
    ]  # the rest of the text may contain rounding errors
    assert first[0] == first[1] and actual.iterations == expected.iterations
    for a, e in zip(actual.history, expected.history, strict=True):
        assert a.hessian == e.hessian
        for name in NUMBERS:
            least = 1e-3 if name == "stop" else 1e-9  # in units of the tolerance
            assert getattr(a, name) == pytest.approx(getattr(e, name), rel=rel, abs=least), (a.iteration, name)
    for name in ("xs", "us", "K"):
        a, e = getattr(actual, name), getattr(expected, name)
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-8 * max(1.0, np.abs(e).max()), err_msg=name)
    assert actual.multipliers.keys() == expected.multipliers.keys()
    for name, e in expected.multipliers.items():
        np.testing.assert_allclose(actual.multipliers[name], e, rtol=rel, atol=1e-6, err_msg=name)
    assert actual.meta["barrier"] == pytest.approx(expected.meta["barrier"], rel=1e-6)


@pytest.mark.parametrize("options", [
    {},
    {"hessian": "gauss_newton"},
    {"barrier_strategy": "monotone"},
    {"barrier": 1e-4, "hessian": "gauss_newton"},
    {"max_iterations": 4},
    {"time_limit": 1e-9},
    {"gradient_tolerance": 1e-11, "constraint_tolerance": 1e-12},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("seed", [3, 4])
def test_every_iteration_is_the_same(options, seed, in_numpy, calls):
    ocp = swing()
    found = to.solve(ocp, guess_of(ocp, seed=seed), options, solver="ipm")
    expected = in_numpy(ocp, guess_of(ocp, seed=seed), options)
    assert calls
    check_same(found, expected)


@pytest.mark.parametrize(
    "options", [{}, {"barrier_strategy": "monotone"}, {"hessian": "gauss_newton", "max_iterations": 6}], ids=str
)
@pytest.mark.parametrize("scheme", ["semi_implicit_euler", "rk4"])
def test_every_iteration_of_a_free_base_is_the_same(options, scheme, in_numpy, calls):
    """States on a Lie group: retractions, and multipliers transported from one tangent space to the next."""
    ocp, rng = replace(tumble(scheme), replay_tolerance=np.inf), np.random.default_rng(5)
    away = 0.2 * rng.standard_normal((ocp.manifold.ndx, ocp.horizon + 1))
    xs = ocp.manifold.integrate(np.repeat(ocp.x0[:, None], ocp.horizon + 1, axis=1), away).T
    guess = Guess(np.ascontiguousarray(xs), 0.3 * rng.standard_normal((ocp.horizon, ocp.nu)))
    found = to.solve(ocp, guess, options, solver="ipm")
    assert calls
    check_same(found, in_numpy(ocp, guess, options))
    assert found.status.code is StatusCode.CONVERGED or found.iterations == options["max_iterations"]
    assert np.abs(found.us).max() == pytest.approx(0.5, rel=0.05)  # the limit is active
    again = to.solve(ocp, guess, options, solver="ipm")
    np.testing.assert_array_equal(again.xs, found.xs)


def test_warm_starts_and_cached_workspaces(in_numpy, calls):
    ocp = swing()
    first = to.solve(ocp, guess_of(ocp), solver="ipm")
    other = replace(ocp, x0=np.array([0.02, -0.01, 0.0, 0.0]))
    warm = WarmStart(Guess(first.xs, first.us), multipliers=first.multipliers, barrier=1e-6)
    expected = in_numpy(other, warm_start=warm)
    before = len(calls)
    found = to.solve(other, warm_start=warm, solver="ipm")
    assert len(calls) > before and found.iterations < first.iterations
    check_same(found, expected)
    again = to.solve(other, warm_start=warm, solver="ipm")  # in reused memory
    np.testing.assert_array_equal(again.xs, found.xs)


@pytest.mark.parametrize(
    ("most", "last", "code"),
    [
        (30, RestorationEnd.LIMIT, StatusCode.MAX_ITERATIONS),
        (200, RestorationEnd.LEAST_VIOLATION, StatusCode.LOCALLY_INFEASIBLE),
    ],
)
def test_steps_for_feasibility_alone_come_between(most, last, code, in_numpy, monkeypatch):
    """A goal out of reach at the speed limit: the first restoration succeeds, the second one ends the solve."""
    ran, original = [], Restoration.run
    monkeypatch.setattr(Restoration, "run", lambda self, *a, **k: ran.append(original(self, *a, **k)) or ran[-1])
    ocp = swing(np.array([30.0, 0.3, 0.0, 0.0]))
    found = by_ipm(ocp, guess_of(ocp, 1.0), {"max_iterations": most})
    ways = [restored.end for restored, *_ in ran]
    ran.clear()
    expected = in_numpy(ocp, guess_of(ocp, 1.0), {"max_iterations": most})
    assert ways == [restored.end for restored, *_ in ran] == [RestorationEnd.ACCEPTABLE, last]
    assert found.status.code is expected.status.code is code
    assert found.iterations == expected.iterations and found.cost == pytest.approx(expected.cost, rel=1e-6)


def test_steps_that_creep_give_way_to_steps_for_feasibility_alone(in_numpy, monkeypatch):
    """A joint stays in a narrow range until the last time step, and then has to move far out of it."""
    ran, original = [], Restoration.run
    monkeypatch.setattr(
        Restoration, "run", lambda self, p, other, r: ran.append(r.to_feasible) or original(self, p, other, r)
    )
    ocp = swing(np.array([0.5, 0.2, 0.0, 0.0]))
    dynamics = to.SampledSystem(ocp.phases[0].dynamics.sampling.called, "rk4")
    phase = replace(ocp.phases[0], dynamics=dynamics, constraints=(narrow(ocp),), terms=ocp.phases[0].terms[:1])
    ocp = replace(ocp, phases=(phase,), u_lower=None, u_upper=None)
    found = to.solve(ocp, options={"max_iterations": 60}, solver="ipm")
    assert ran == [True]
    expected = in_numpy(ocp, options={"max_iterations": 60})
    assert ran == [True, True] and found.iterations == expected.iterations
    for a, e in zip(found.history, expected.history, strict=True):
        assert (a.cost, a.step_length) == pytest.approx((e.cost, e.step_length), rel=1e-4), a.iteration
    again = to.solve(ocp, options={"max_iterations": 60}, solver="ipm")  # in reused memory
    np.testing.assert_array_equal(again.xs, found.xs)


def narrow(ocp):
    far = np.full(3, np.inf)
    return to.state_bounds(ocp.manifold, np.r_[-0.1, -far], np.r_[0.1, far], name="narrow")


def test_a_filter_that_shortens_step_after_step_is_emptied(in_numpy, monkeypatch):
    seed, most = 118, 40
    monkeypatch.setattr(interior_point, "PARTLY", most)
    methods, reset = [], InteriorPoint._reset_blocked_filter
    monkeypatch.setattr(InteriorPoint, "_reset_blocked_filter", lambda self: methods.append(self) or reset(self))
    ocp = swing(np.array([3.0, 0.3, 0.0, 0.0]))
    found = by_ipm(ocp, guess_of(ocp, 2.0, seed), {"max_iterations": most})
    expected = in_numpy(ocp, guess_of(ocp, 2.0, seed), {"max_iterations": most})
    assert methods[0].emptied == methods[-1].emptied == 1 and methods[0] is not methods[-1]
    for a, e in zip(found.history, expected.history, strict=True):
        assert a.cost == pytest.approx(e.cost, rel=1e-4), a.iteration
        assert a.step_length == pytest.approx(e.step_length, rel=1e-3), a.iteration


def test_only_steps_in_a_row_that_the_filter_shortens_empty_it():
    method = InteriorPoint(InteriorSize(1, 1, False), IPMOptions())
    method.filter.add((1e-3, 2.0))
    for matched in [True] * (BLOCKED - 1) + [False] + [True] * (BLOCKED - 1):
        method.matched = matched
        method._reset_blocked_filter()
        assert method.filter.pairs and not method.matched
    method.matched = True
    method._reset_blocked_filter()
    assert not method.filter.pairs and method.emptied == 1


@pytest.mark.parametrize("crept", [False, True])
@pytest.mark.parametrize(("slow", "end"), [(False, InteriorEnd.STOPPED), (True, InteriorEnd.STALLED)])
def test_restoration_at_its_limit_reports_if_more_iterations_would_help(slow, end, crept):
    """The solve ends at the final point of the restoration."""
    method, at = InteriorPoint(InteriorSize(1, 1, False), IPMOptions()), Violation(*5 * [2.0])
    steps = method._restore(crept=crept)
    next(steps)
    with pytest.raises(StopIteration) as ended:
        steps.send(Restored(RestorationEnd.LIMIT, 90, 3.0, at, slow=slow))
    assert ended.value.value is end and (method.objective, method.at) == (3.0, at)


@pytest.mark.parametrize("number", [0.0, 5e-324, 1e-300, 1.0, 1e300, np.inf, np.nan])
@pytest.mark.parametrize("slope", [0.0, -5e-324, -1e-200, -1.0, -1e300, -np.inf, np.nan])
def test_numbers_however_large_or_small_end_no_solve(number, slope):
    """Python rules raise no exceptions for extreme numbers, for which C arithmetic yields infinity."""
    method = InteriorPoint(InteriorSize(1, 1, False), IPMOptions())
    for problem in (method.filter, replace(method.filter, scale=1e300)):
        assert problem.least_length(number, slope) > 0.0
        assert problem.accepts((number, 1.0), (number, 1.0), slope) in (True, False)
    for mu in (number, 1e300):
        method.barrier.mu = mu
        assert not method.barrier.lowered() > max(mu, method.barrier.min_mu)
    if number > 0.0:
        low, high = method.barrier.range_of_sigma(number)
        assert not high < low
    method.at = Violation(*5 * [number])
    method._measure([number] * 5 + [3.0, 2.0] + [number] * 2)  # counts are numbers
    method._termination()


def by_ipm(*args, **fields):
    return to.solve(*args, solver="ipm", **fields)


def test_a_start_that_is_no_number_is_refused(in_numpy):
    ocp = swing()
    guess = guess_of(ocp)
    guess.xs[3] = 1e200
    found, expected = (run(ocp, guess, check=False) for run in (by_ipm, in_numpy))
    assert str(found.status) == str(expected.status) and found.status.code is StatusCode.NON_FINITE
    assert len(found.history) == 1


def test_ctrl_c_returns_the_last_reported_iterate(in_numpy):
    ocp, seen = swing(), {}

    def stop(record):
        seen[record.iteration] = record.iterate()
        if record.iteration == 5:
            raise KeyboardInterrupt

    found = by_ipm(ocp, guess_of(ocp), None, stop)
    np.testing.assert_array_equal(found.xs, seen[5][0])
    check_same(found, in_numpy(ocp, guess_of(ocp), None, stop))
    assert found.status.code is StatusCode.INTERRUPTED


def test_ctrl_c_during_a_call_leaves_the_iterate_that_it_led_to(monkeypatch):
    """Python raises Ctrl-C after the call, when the memory of the previous iterate already holds the next step."""
    calls, original = [], InteriorSlot.answer

    def interrupted(slot, request):
        found = original(slot, request)
        calls.extend([request] * isinstance(request, Take))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return found

    ocp, seen = swing(), []
    by_ipm(ocp, guess_of(ocp), None, lambda record: seen.append((record.cost, *record.iterate())))
    monkeypatch.setattr(InteriorSlot, "answer", interrupted)
    found = by_ipm(ocp, guess_of(ocp))
    assert found.status.code is StatusCode.INTERRUPTED and found.iterations == len(found.history) == 4
    cost, xs, _ = seen[4]
    np.testing.assert_array_equal(found.xs, xs)
    assert found.cost == cost
