"""Termination of solves and its report: typed statuses with a message, the console table."""

import io
import time
from dataclasses import replace

import numpy as np
import pytest
import textbook_systems as textbook
from slq_solve import solve

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from trajopt import (
    OCP,
    ConsoleTable,
    Guess,
    SampledSystem,
    SLQOptions,
    Status,
    StatusCode,
    control_cost,
    residual_cost,
    solver_names,
    solver_options,
    state_cost,
)
from trajopt.solvers.methods.shooting import ShootingMethod

SOLVERS = ["ilqr", "gnms", "fddp"]


def _problem(function=None, names=("angle", "rate"), horizon=30):
    system = textbook.autonomous_pendulum()
    if function is not None:
        system = FunctionMap(function, Manifold.vector(2, names), 1, second_order=True)
    return OCP.single_phase(
        SampledSystem(make_backend(system, "forward_ad"), "rk4"),
        [0.2, 0.0],
        horizon,
        0.05,
        [control_cost(1, weight=0.1)],
        [state_cost(system.manifold, [np.pi, 0.0], 100.0)],
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_convergence_names_the_tests_that_fired(solver):
    solution = solve(_problem(), solver=solver)
    assert solution.status.code is StatusCode.CONVERGED
    assert solution.status.success
    assert "gradient" in solution.status.message
    assert "defect" in solution.status.message
    assert solution.history[-1].stop <= 1.0 < solution.history[-2].stop


@pytest.mark.parametrize("solver", SOLVERS)
def test_unreachable_tolerance_ends_at_the_precision_limit(solver):
    unreachable = {"gradient_tolerance": 1e-30, "kkt_tolerance": 1e-30}
    solution = solve(_problem(), options={**unreachable, "max_iterations": 1000}, solver=solver)
    assert solution.status.code is StatusCode.CONVERGED and "Double precision" in solution.status.message
    assert solution.status.kkt <= 1e-6  # the optimum, as far as numbers go
    assert solution.history[-1].gradient < 1e-10
    assert not solution.status.advice


def test_iteration_limit():
    solution = solve(_problem(), options={"max_iterations": 3})
    assert solution.status.code is StatusCode.MAX_ITERATIONS
    assert solution.iterations == 3
    assert ", 1 iteration," in repr(replace(solution, iterations=1))
    assert "max_iterations = 3" in solution.status.message


def test_time_limit():
    def slow(record):
        time.sleep(0.2)

    solution = solve(_problem(), options={"time_limit": 0.1}, callback=slow)
    assert solution.status.code is StatusCode.TIME_LIMIT
    assert solution.iterations >= 1


def test_cost_tolerance_is_another_way_to_succeed():
    solution = solve(_problem(), options={"cost_tolerance": 1e-3, "gradient_tolerance": 1e-12})
    assert solution.status.code is StatusCode.CONVERGED
    assert "cost_tolerance" in solution.status.message


@pytest.mark.parametrize("solver", SOLVERS)
def test_interrupt_returns_the_best_iterate(solver):
    def stop_at_three(record):
        if record.iteration == 3:
            raise KeyboardInterrupt

    solution = solve(_problem(), callback=stop_at_three, solver=solver)
    assert solution.status.code is StatusCode.INTERRUPTED
    assert len(solution.history) == 4
    assert np.isfinite(solution.cost)
    assert solution.cost <= solution.history[3].cost
    assert solution.K.any()


def test_interrupt_before_the_first_step_leaves_the_initial_guess(monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(ShootingMethod, "solve", interrupt)
    table = ConsoleTable(io.StringIO())
    solution = solve(_problem(), callback=table)
    table.finish(solution)
    assert solution.status.code is StatusCode.INTERRUPTED
    assert "initial guess" in solution.status.message
    assert "best" not in table.stream.getvalue() and "nan" not in table.stream.getvalue()


@pytest.mark.numpy  # a function that is nowhere finite folds into a constant when it is traced
@pytest.mark.parametrize("solver", SOLVERS)
def test_nan_in_the_dynamics_is_located(solver):
    def breaks(x, u, t, p):
        return [x[1], sm.select(t - 0.99, sm.log(-1.0 + 0.0 * x[0]), -sm.sin(x[0]) + u[0])]

    solution = solve(_problem(breaks), solver=solver)
    assert solution.status.code is StatusCode.NON_FINITE
    assert solution.status.knot is not None
    assert abs(solution.status.knot - 20) <= 1
    assert "angle" in solution.status.component or "rate" in solution.status.component
    assert not np.isnan(solution.us).any()


def test_nan_in_a_cost_gradient_is_located():
    """The square root of zero has a value but no slope."""
    ocp = _problem()
    root = residual_cost(
        "root", lambda x, u, t, p: [sm.sqrt(x[1] - p["at"][0])], ocp.manifold, 1, parameters={"at": [0.0]}
    )
    broken = OCP.single_phase(ocp.phases[0].dynamics, [0.2, 0.0], 5, 0.1, [root])
    solution = solve(broken)
    assert solution.status.code is StatusCode.NON_FINITE
    assert solution.status.knot == 0
    assert solution.status.component.startswith("the cost gradient of")


def test_control_without_weight_is_not_positive_definite():
    manifold = Manifold.vector(1)
    idle = FunctionMap(lambda x, u, t, p: [-x[0] + 0.0 * u[0]], manifold, 1)
    dynamics = SampledSystem(make_backend(idle, "forward_ad"), "euler")
    pull = residual_cost("pull", lambda x, u, t, p: [sm.sqrt(1.0 + u[0] * u[0]) - 3.0], manifold, 1, nu=1)
    ocp = OCP.single_phase(dynamics, [1.0], 4, 0.1, [pull])
    options = {"hessian": "exact", "max_regularization": 1e-7}
    status = solve(ocp, Guess(np.ones((5, 1)), np.full((4, 1), 0.1)), options).status
    assert status.code is StatusCode.NOT_POSITIVE_DEFINITE
    assert status.knot == 3
    assert "hessian = 'gauss_newton'" in status.advice


def test_wrong_derivatives_end_in_a_failed_line_search():
    ocp = _problem()

    class Reversed(SampledSystem):
        def linearize(self, x, u, t, dt, p=None):
            step = super().linearize(x, u, t, dt, p)
            return step._replace(B=-step.B)

    wrong = Reversed(ocp.phases[0].dynamics.backend, "rk4")
    broken = OCP.single_phase(wrong, ocp.x0, 30, 0.05, ocp.phases[0].terms, ocp.terminal)
    status = solve(broken, solver="ilqr").status
    assert status.code is StatusCode.ACCEPTABLE and not status.success  # a motion, but far from an optimum
    assert "not yet optimal" in status.message and "derivatives" in status.advice


def test_divergence_of_the_guess_is_reported_not_warned_about():
    solution = solve(_problem(lambda x, u, t, p: [x[1], 50.0 * sm.exp(x[0] * x[0]) + u[0]]), solver="ilqr")
    assert solution.status.code is StatusCode.NON_FINITE
    assert "change the option shooting" in solution.status.advice


def test_status_is_a_sentence_and_survives_json():
    status = Status(StatusCode.NON_FINITE, "NaN, first at knot 3 in u.", 3, "u", "Try this.")
    assert str(status) == "non_finite: NaN, first at knot 3 in u. Try this."
    assert Status.from_dict(status.to_dict()) == status


# -- options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shooting", 0),
        ("shooting", "some"),
        ("shooting", True),
        ("gaps", "cubic"),
        ("hessian", "newton"),
        ("regularize", "both"),
        ("max_iterations", -1),
        ("max_iterations", 2.5),
        ("time_limit", 0.0),
        ("gradient_tolerance", 0.0),
        ("gradient_tolerance", float("nan")),
        ("accept_ratio", 1.0),
        ("nonmonotone", 0),
        ("regularization_factor", 1.0),
        ("penalty", -1.0),
    ],
)
def test_options_out_of_range_are_refused(key, value):
    with pytest.raises(ValueError, match=f"{key} = "):
        SLQOptions(**{key: value})


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(TypeError):
        SLQOptions(max_iteration=3)
    with pytest.raises(ValueError, match="did you mean 'max_iterations'"):
        solve(_problem(), options={"max_iteration": 3})
    with pytest.raises(ValueError, match="did you mean 'fddp'"):
        solve(_problem(), solver="fdpp")
    with pytest.raises(TypeError, match="takes SLQOptions or a mapping"):
        solve(_problem(), options="fast")


def test_names_stand_for_settings():
    assert {"slq", "ilqr", "gnms", "fddp"} <= set(solver_names())
    assert solver_options("fddp").gaps == "nonlinear"
    assert solver_options("ilqr", max_iterations=7) == SLQOptions(shooting="single", max_iterations=7)
    with pytest.raises(ValueError, match="solver 'gnms' requires shooting = 'all'"):
        solver_options("gnms", shooting="single")


# -- the table ----------------------------------------------------------------------------------------------------------


def _printed(verbosity, iterations=12):
    stream = io.StringIO()
    table = ConsoleTable(stream, verbosity)
    solution = solve(_problem(), options={"max_iterations": iterations, "gradient_tolerance": 1e-15}, callback=table)
    table.finish(solution)
    return stream.getvalue().splitlines(), table, solution


def test_table_repeats_its_header_every_ten_rows():
    lines, _, solution = _printed(verbosity=2)
    headers = [i for i, line in enumerate(lines) if line.split()[:3] == ["iter", "cost", "merit"]]
    assert headers == [0, 11]
    assert len(lines) == 13 + 2 + 13 + 2  # rows 0 .. 12, two headers, the footer, status and totals
    for title in (
        "iter",
        "cost",
        "merit",
        "stop",
        "|grad|",
        "reg",
        "step",
        "defect",
        "constr",
        "expected",
        "actual",
        "alpha",
    ):
        assert title in lines[0].split()
    first = lines[1].split()
    assert first[0] == "0"
    assert float(first[1]) == pytest.approx(solution.history[0].cost, rel=1e-6)
    assert "max_iterations = 12" in lines[-2]


def test_verbosity_and_legend():
    silent, _, _ = _printed(verbosity=0)
    assert silent == []
    short, table, _ = _printed(verbosity=1)
    assert short[0].split() == ["iter", "cost", "|grad|", "defect", "alpha"]
    legend = table.legend().splitlines()
    assert [line.split()[0] for line in legend] == short[0].split()
    assert short[-2 - len(legend) : -2] == legend
    timed, _, _ = _printed(verbosity=3)
    assert "backward" in timed[1]
    assert "hessian" in timed[0] and "hessian" not in _printed(verbosity=2)[0][0]
    with pytest.raises(ValueError, match="verbosity = 4"):
        ConsoleTable(verbosity=4)
