"""Problems with NumPy functions: the same solutions as with library functions, and reports of slow parts."""

import logging
import re
from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.compiled.sources import traced_source
from trajopt.stage.engine import StageOperations, stages_of
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator
from trajopt.stage.not_compiled import NotCompiled, NumpyWork, _log_once
from trajopt.stage.stages import Knots

ENGINES = ["numpy", "compiled"]
GOAL = np.array([np.pi, 0.0])


def pendulum(x, u, t, p):
    angle, rate = x
    return np.array([rate, u[0] - 9.81 * np.sin(angle) - 0.1 * np.tanh(rate)])


def pendulum_of_rows(x, u, t, p):
    return [x[1], u[0] - 9.81 * to.sin(x[0]) - 0.1 * to.tanh(x[1])]


def distance(x, u, t, p):
    return [np.sqrt(0.1 + np.sum((x - GOAL) ** 2))]


def distance_of_rows(x, u, t, p):
    return [to.sqrt(0.1 + (x[0] - np.pi) * (x[0] - np.pi) + x[1] * x[1])]


def speed(x, u, t, p):
    return np.abs(x[1:])


def speed_of_rows(x, u, t, p):
    return [to.select(x[1], x[1], -x[1])]


def decided(x, u, t, p):
    return [np.sqrt(0.1 + np.sum((x - GOAL) ** 2)) if x[0] > -50.0 else 0.0]


def problem(functions, engine, constrained):
    motion, far, fast = functions
    system = to.FunctionMap(motion, 2, 1, second_order=True)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad", engine=engine), "rk4")
    m = dynamics.manifold
    limits = [to.residual_constraint("speed", fast, m, 1, -np.inf, 6.0)] if constrained else []
    terms = [to.control_cost(1, weight=0.1), to.residual_cost("far", far, m, 1, 0.5)]
    return to.OCP.single_phase(
        dynamics, np.array([0.3, 0.0]), 20, 0.05, terms, [to.state_cost(m, GOAL, 50.0)], constraints=limits
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", ["slq", "ddp", "dms", "sqp"])
def test_every_solver_sees_the_same_problem(solver, engine):
    written = (pendulum, distance, speed), (pendulum_of_rows, distance_of_rows, speed_of_rows)
    found = [to.solve(problem(functions, engine, solver in ("dms", "sqp")), solver=solver) for functions in written]
    assert all(s.status.success for s in found)
    assert found[0].cost == pytest.approx(found[1].cost, rel=1e-9)
    assert "not_compiled" not in found[0].meta
    np.testing.assert_allclose(found[0].xs, found[1].xs, atol=1e-5)


@pytest.mark.parametrize("solver", ["slq", "ddp", "dms", "sqp"])
def test_a_decision_in_python_is_solved_by_differences_and_told(solver, caplog):
    caplog.set_level(logging.WARNING)
    constrained = solver in ("dms", "sqp")
    exact = to.solve(problem((pendulum, distance, speed), "compiled", constrained), solver=solver)
    assert not caplog.messages
    ocp = problem((pendulum, decided, speed), "compiled", constrained)
    findings = [f.message for f in to.validate(ocp)]
    assert any("term 'far': function decided" in m and "if x[0] > -50.0" in m for m in findings)
    caplog.clear()
    solution = to.solve(ocp, solver=solver)
    assert solution.cost == pytest.approx(exact.cost, rel=1e-6)
    assert any("term 'far': function decided" in m for m in solution.meta["findings"])
    (slow,) = solution.meta["not_compiled"]
    assert slow.startswith("'far' of phase 0 of 'ocp' runs in NumPy") and "function decided" in slow
    assert not caplog.messages  # validation has reported it


def test_a_term_that_cannot_be_compiled_leaves_the_rest_of_its_phase_compiled():
    rng = np.random.default_rng(3)
    by_parts, whole = (
        StageEvaluator(problem((pendulum, decided, speed), "compiled", constrained=False), "gauss_newton", engine)
        for engine in ("auto", "numpy")
    )
    assert by_parts.compiled and not whole.compiled
    N, n, m = 20, 2, 1
    xs, us = rng.normal(size=(N + 1, n)), rng.normal(size=(N, m))
    a, b = by_parts.expand(xs, us), whole.expand(xs, us)
    assert a.cost == pytest.approx(b.cost, rel=1e-12)
    for name, own, other in zip(a.lq._fields, a.lq, b.lq, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-7, atol=1e-8, err_msg=name)
    along = Direction(rng.normal(size=(N + 1, n)), rng.normal(size=(N, m)), rng.normal(size=(N, m, n)), a.lq.d)
    tried = [
        e.rollout(xs, us, along, np.array([1.0, 0.5]), Shooting.every("all", N, "linear")) for e in (by_parts, whole)
    ]
    assert tried[0].cost == pytest.approx(tried[1].cost, rel=1e-12)
    sigma, lam = 0.7, rng.normal(size=(N, n))
    second = [e.stages[0].second(Knots(xs[:-1], us, xs[1:]), sigma, lam) for e in (by_parts, whole)]
    for own, other in zip(*second, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-6)


def too_fast(x, u, t, p):
    return [abs(x[1])] if x[1] > -50.0 else [0.0]


@pytest.mark.parametrize(
    ("functions", "numpy_part"),
    [
        ((pendulum, decided, speed), "cost"),
        ((pendulum, distance, too_fast), "constraints"),
        ((pendulum, decided, too_fast), "both"),
    ],
)
def test_only_what_cannot_be_traced_runs_in_numpy(functions, numpy_part):
    """Values, first and second derivatives equal those of NumPy; constraints and the final knot that can be traced are compiled."""
    ocp = problem(functions, "compiled", constrained=True)
    rows = StageOperations(second=True, path=[ocp.phases[0].constraints])
    (own, end), (other, other_end) = (stages_of(ocp, rows, engine) for engine in ("auto", "numpy"))
    assert end.compiled and own.compiled
    assert bool(own.plain.constraints) == (numpy_part != "cost")
    assert [term.name for term in own.plain.terms] == ([] if numpy_part == "constraints" else ["far"])
    rng = np.random.default_rng(4)
    xs, us, lam, y = (rng.normal(size=size) for size in ((21, 2), (20, 1), (20, 2), (20, 1)))
    at, final_knot = Knots(xs[:-1], us, xs[1:]), Knots.of(xs, us, slice(20, 21))
    found = []
    for stages, last in ((own, end), (other, other_end)):
        first, final = stages.first(at), last.first(final_knot)
        second = [*stages.second(at, 0.7, lam, y), *stages.second(at, 0.0, None, y), *stages.second(at, 1.3)]
        found.append([*stages.values(at), *first.values, *first[1:], *second, *final.values, *final[1:]])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_functions_too_long_to_compile_are_reported(monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    ocp = problem((pendulum, distance, speed), "compiled", constrained=False)
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 20)
    solution = to.solve(ocp, solver="slq")
    (sentence,) = solution.meta["not_compiled"]
    assert solution.status.success and "the running cost takes" in sentence
    assert "the largest part is 'far'" in sentence and "HasPartials" in sentence
    assert sum("runs in NumPy" in m for m in caplog.messages) == 1


# -- second derivatives -----------------------------------------------------------------------------------------------------


def cart_pole(x, u, t, p):
    """With the mass of the pole as a parameter."""
    s, c, m = np.sin(x[1]), np.cos(x[1]), p["mass"][0]
    a = (u[0] + m * s * (0.5 * x[3] * x[3] - 9.81 * c)) / (1.0 + m * s * s)
    return [x[2], x[3], a, (9.81 * s - a * c) / 0.5]


def swing_up(method, function=cart_pole):
    """The fastest motion of a cart between two places, with the pole up at both."""
    system = to.FunctionMap(function, 4, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, method, engine="compiled"), "rk4")
    goal = np.array([0.5, 0.0, 0.0, 0.0])
    terms, limits = [to.control_cost(1, weight=1e-2)], [to.state_bounds(system.manifold, goal, goal)]
    fixed = to.OCP.single_phase(
        step,
        np.zeros(4),
        20,
        0.05,
        terms,
        terminal_constraints=limits,
        parameters={"mass": [0.1]},
        u_lower=-20.0,
        u_upper=20.0,
    )
    free = to.free_time(fixed, (0.3, 3.0))
    return free.ocp, free.with_durations(to.interpolated_guess(fixed, goal))


def by_casadi(x, T, u, lam):
    """Hessian in (x, T, u) of lam' x_next of an RK4 step of duration T / 20, by CasADi from independent code."""
    import casadi as ca

    z = ca.SX.sym("z", 6)
    state, h, force = z[:4], z[4] / 20.0, z[5]

    def f(s):
        sine, cosine = ca.sin(s[1]), ca.cos(s[1])
        a = (force + 0.1 * sine * (0.5 * s[3] ** 2 - 9.81 * cosine)) / (1.0 + 0.1 * sine**2)
        return ca.vertcat(s[2], s[3], a, (9.81 * sine - a * cosine) / 0.5)

    k1 = f(state)
    k2 = f(state + h / 2 * k1)
    k3 = f(state + h / 2 * k2)
    k4 = f(state + h * k3)
    x_next = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    weights = ca.SX.sym("lam", 4)
    hessian = ca.Function("hessian", [z, weights], [ca.hessian(ca.dot(weights, x_next), z)[0]])
    return np.array([hessian(np.r_[a, b, c], d).full() for a, b, c, d in zip(x, T, u, lam, strict=True)])


@pytest.mark.parametrize("method", ["forward_ad", "structured_ad", "complex_step", "casadi_ad"])
def test_compiled_second_derivatives_of_a_step_of_free_duration_are_those_of_casadi(method):
    (ocp, _), rng = swing_up(method), np.random.default_rng(5)
    stages = StageEvaluator(ocp, engine="auto").stages[1]
    assert stages.compiled and stages.second_orders == (False, True)
    x, T, u, lam = (
        rng.normal(size=(20, 4)),
        rng.uniform(0.5, 2.0, 20),
        rng.normal(size=(20, 1)),
        rng.normal(size=(20, 5)),
    )
    states = np.c_[x, T]
    xx, ux, uu = stages.second(Knots(states, u, np.zeros((20, 5))), 0.0, lam)
    expected = by_casadi(x, T, u[:, 0], lam[:, :4])
    for own, other in ((xx, expected[:, :5, :5]), (ux, expected[:, 5:, :5]), (uu, expected[:, 5:, 5:])):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", ["forward_ad", "structured_ad", "complex_step", "casadi_ad"])
def test_every_exact_method_solves_with_a_compiled_exact_hessian(method):
    ocp, guess = swing_up(method)
    solution = to.solve(ocp, guess, solver="ipm")
    assert solution.status.success and solution.iterations < 40
    assert (solution.meta["hessian"], solution.meta["engines"]) == ("exact", ["compiled"])
    assert "not_compiled" not in solution.meta and not solution.meta["findings"]
    assert not to.validate(ocp)


def test_second_derivatives_by_differences_are_reported_with_their_share_at_every_solve(caplog):
    """The log has them once, else a replanning loop would repeat them at each step."""
    caplog.set_level(logging.WARNING)
    _log_once.cache_clear()
    ocp, guess = swing_up("central_difference")
    exact = to.solve(*swing_up("forward_ad"), solver="ipm")
    (warning,) = to.validate(ocp)
    assert "the Hessian of phase 1 of 'ocp' runs in NumPy" in warning.message and "'forward_ad'" in warning.message
    for _ in range(2):  # the second one takes up what the first has prepared
        solution = to.solve(ocp, guess, solver="ipm")
        assert solution.cost == pytest.approx(exact.cost, rel=1e-6)
        (slow,) = solution.meta["not_compiled"]
        assert re.match(r"the Hessian of phase 1 of 'ocp' runs in NumPy \(\d\d? % of the solve time\)", slow)
        assert "central_difference takes it by differences; choose backend = 'forward_ad'" in slow
        assert solution.meta["engines"] == ["compiled", "numpy"] and slow in solution.report()
    assert sum("the Hessian of phase 1" in message for message in caplog.messages) == 1


def test_a_hessian_that_is_approximated_is_reported_with_the_remedy():
    ocp, guess = swing_up("forward_difference")
    (warning,) = to.validate(ocp)
    assert "forward_difference has no second derivatives; choose backend = 'forward_ad'" in warning.message
    solution = to.solve(ocp, guess, {"max_iterations": 2}, solver="ipm")
    (finding,) = solution.meta["findings"]
    assert "until then ipm uses hessian = 'gauss_newton'" in finding and solution.meta["hessian"] == "gauss_newton"
    assert solution.status.code == "max_iterations" and "'forward_ad'" in solution.status.advice
    assert "Increase max_iterations" not in solution.status.advice
    assert not to.solve(ocp, guess, {"max_iterations": 2, "hessian": "gauss_newton"}, solver="ipm").meta["findings"]
    exact = to.solve(ocp, guess, solver="dms")  # whose default takes second derivatives from the source of the dynamics
    assert exact.status.success and exact.meta["hessian"] == "exact" and "not_compiled" not in exact.meta


@pytest.mark.parametrize("method", ["forward_ad", "complex_step"])
def test_dynamics_that_cannot_be_traced_are_solved_and_named(method):
    def decides(x, u, t, p):
        return cart_pole(x, u, t, p) if x[0] > -50.0 else [0.0] * 4

    exact, found = (to.solve(*swing_up(method, function), solver="ipm") for function in (cart_pole, decides))
    assert found.status.acceptable and found.cost == pytest.approx(exact.cost, rel=1e-5)
    (slow,) = found.meta["not_compiled"]
    assert "the whole of phase 1 of 'ocp' runs in NumPy (" in slow and "decides" in slow
    assert found.meta["engines"] == ["compiled", "numpy"]


@pytest.mark.parametrize("method", ["forward_ad", "complex_step"])
def test_a_batch_is_solved_by_compiled_code(method):
    ocp, guess = swing_up(method)
    starts = np.tile(ocp.x0, (3, 1))
    starts[:, 0] = [-0.1, 0.0, 0.1]
    found = to.solve_batch(ocp, {"x0": starts}, guess, threads=2)
    assert found.success.all() and found.meta["how"] == "2 threads"
    for x0, cost in zip(starts, found.cost, strict=True):
        assert to.solve(replace(ocp, x0=x0), guess).cost == pytest.approx(cost, rel=1e-8)


def test_parts_with_one_reason_share_a_sentence():
    parts = [NotCompiled(f"the whole of phase {i} of 'gait'", "its dynamics cannot be traced", "") for i in range(4)]
    work = NumpyWork(
        [*parts, NotCompiled("the cost of phase 9 of 'gait'", "it is too long", "simplify it")], seconds=1.0
    )
    assert work.sentences(4.0) == [
        "the whole of phase 0 of 'gait', the whole of phase 1 of 'gait' and 2 more runs in NumPy (together 25 % of the solve time)"
        ", which may be a hundred times slower: its dynamics cannot be traced",
        "the cost of phase 9 of 'gait' runs in NumPy (together 25 % of the solve time), which may be a hundred times slower: it is "
        "too long; simplify it",
    ]
