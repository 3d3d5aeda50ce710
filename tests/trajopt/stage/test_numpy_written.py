"""Problems written with functions of NumPy: solved like those of the library's own functions; what is slow is told."""

import logging

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.compiled.sources import traced_source
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator
from trajopt.validation.evaluation_doubts import length_doubts

ENGINES = ["numpy", pytest.param("compiled", marks=pytest.mark.needs_compiler)]
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


def told(caplog):
    """What was said, but for how long a compiler takes on a busy machine."""
    return [message for message in caplog.messages if not message.startswith("compiling (")]


@pytest.mark.needs_compiler
@pytest.mark.parametrize("solver", ["slq", "ddp", "dms", "sqp"])
def test_a_decision_in_python_is_solved_by_differences_and_told(solver, caplog):
    caplog.set_level(logging.WARNING)
    constrained = solver in ("dms", "sqp")
    exact = to.solve(problem((pendulum, distance, speed), "compiled", constrained), solver=solver)
    assert not told(caplog)
    ocp = problem((pendulum, decided, speed), "compiled", constrained)
    findings = [f.message for f in to.validate(ocp)]
    assert any("term 'far': function decided" in m and "if x[0] > -50.0" in m for m in findings)
    caplog.clear()
    solution = to.solve(ocp, solver=solver)
    assert solution.cost == pytest.approx(exact.cost, rel=1e-6)
    assert any("term 'far': function decided" in m for m in solution.meta["findings"])
    (slow,) = solution.meta["not_compiled"]
    assert slow.startswith("'far' of phase 0 of 'ocp' runs in NumPy") and "function decided" in slow
    assert not told(caplog)  # validation has said it


@pytest.mark.needs_compiler
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
    second = [e.stages[0].second(xs[:-1], us, xs[1:], sigma, lam) for e in (by_parts, whole)]
    for own, other in zip(*second, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-6)


@pytest.mark.needs_compiler
def test_what_is_too_long_to_compile_is_told_before_and_after(monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    ocp = problem((pendulum, distance, speed), "compiled", constrained=False)
    assert not list(length_doubts(ocp))
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 20)
    (doubt,) = length_doubts(ocp)
    assert "the running cost takes" in doubt and "the largest part is 'far'" in doubt and "HasPartials" in doubt
    assert any(f.message == doubt and f.severity == "warning" for f in to.validate(ocp))
    solution = to.solve(ocp, solver="slq")
    assert solution.status.success and solution.meta["not_compiled"]
    assert sum("runs in NumPy" in m for m in caplog.messages) == 1
