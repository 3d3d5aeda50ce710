"""C kernels and NumPy give shooting methods the same answers: equal iterations and statuses, up to rounding."""

from dataclasses import replace

import numpy as np
import pytest
import textbook_systems as textbook
from shooting_cases import PROBLEMS, SETTINGS, check_same, pendulum_swing_up, random_guess, sampled
from shooting_numpy import ShootingNumpy

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import FunctionMap
from trajopt import OCP, Phase, SLQOptions, StatusCode, control_cost, state_cost
from trajopt.guesses.guesses import constant_guess
from trajopt.solvers.methods.shooting_requests import SolveLQ
from trajopt.solvers.slq import slq
from trajopt.solvers.window import shooting
from trajopt.solvers.window.shooting_slot import ShootingSlot
from trajopt.stage.evaluation import StageEvaluator


@pytest.fixture
def in_numpy(monkeypatch):
    """Return a solve function whose requests NumPy answers."""

    def run(*args, **kwargs):
        with monkeypatch.context() as patched:
            patched.setattr(StageEvaluator, "may_follow", False)
            patched.setattr(shooting, "CallingShootingSlot", ShootingNumpy)
            return slq(*args, **kwargs)

    return run


@pytest.fixture
def in_python(monkeypatch):
    """Return a solve function whose kernels call Python for the stages."""

    def run(*args, **kwargs):
        with monkeypatch.context() as patched:
            patched.setattr(StageEvaluator, "may_follow", False)
            return slq(*args, **kwargs)

    return run


@pytest.fixture
def directions(monkeypatch):
    """Record the SolveLQ requests that the kernels answer."""
    asked, original = [], ShootingSlot.answer

    def noted(slot, request):
        if isinstance(request, SolveLQ):
            asked.append(request)
        return original(slot, request)

    monkeypatch.setattr(ShootingSlot, "answer", noted)
    return asked


@pytest.mark.parametrize("guess", ["constant", "random"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_iteration_is_the_same(problem, name, guess, in_numpy, in_python, directions):
    ocp = PROBLEMS[problem]()
    start = constant_guess(ocp) if guess == "constant" else random_guess(ocp)
    options = SLQOptions(**SETTINGS[name], max_iterations=12)  # few, as rounding grows
    found = slq(ocp, start, options)
    assert len(directions) >= found.iterations > 0
    expected = in_numpy(ocp, start, options)
    check_same(found, expected)
    check_same(in_python(ocp, start, options), expected)


@pytest.mark.parametrize("changes", [
    {"regularize": "state", "initial_regularization": 1.0},
    {"initial_regularization": 1e-2, "hessian": "exact"},
    {"max_backtracks": 0},
    {"max_backtracks": 2, "penalty": 50.0},
    {"cost_tolerance": 1e-3},
    {"nonmonotone": 4},
    {"gradient_tolerance": 1e-18, "kkt_tolerance": 1e-18, "max_iterations": 200},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("limit", [None, 6.0])
def test_options_mean_the_same(changes, limit, in_numpy):
    ocp = pendulum_swing_up(horizon=70, limit=limit)
    options = SLQOptions(**{"max_iterations": 15, **changes})
    found, expected = slq(ocp, constant_guess(ocp), options), in_numpy(ocp, constant_guess(ocp), options)
    if "gradient_tolerance" in changes:  # at rounding level, paths differ and statuses agree
        assert found.status.code is expected.status.code is StatusCode.PRECISION_LIMIT
        assert found.cost == pytest.approx(expected.cost, rel=1e-12)
    else:
        check_same(found, expected)


@pytest.mark.parametrize("name", SETTINGS)
def test_phases_with_controls_that_nothing_reads(name, in_numpy, directions):
    pendulum, manifold = textbook.autonomous_pendulum(), textbook.autonomous_pendulum().manifold
    falling = FunctionMap(lambda x, u, t, p: [x[1], -p["g"][0] * sm.sin(x[0])], manifold, 0, second_order=True)
    phases = (
        Phase(sampled(pendulum), np.full(13, 0.05), (control_cost(1, weight=0.1),)),
        Phase(sampled(falling, "euler"), np.full(9, 0.04), (), {"g": [5.0]}),
        Phase(sampled(pendulum), np.full(20, 0.05), (control_cost(1, weight=0.1),)),
    )
    ocp = OCP(phases, [0.0, 0.0], (state_cost(manifold, [np.pi, 0.0], [100.0, 10.0]),), u_lower=[-9.0], u_upper=[9.0])
    start, options = constant_guess(ocp, 0.2), SLQOptions(max_iterations=10, **SETTINGS[name])
    found = slq(ocp, start, options)
    assert len(directions) >= found.iterations > 0
    np.testing.assert_allclose(found.us[13:22], 0.2)
    check_same(found, in_numpy(ocp, start, options))


def test_an_indefinite_quu_is_named(in_numpy):
    ocp = pendulum_swing_up()
    phase = ocp.phases[0]
    concave = replace(phase, terms=tuple(t.updated(weight=[0.0]) for t in phase.terms))
    ocp = replace(ocp, phases=(concave,), terminal=())
    options = SLQOptions(max_regularization=1e-300, min_regularization=1e-300)
    found, expected = slq(ocp, constant_guess(ocp), options), in_numpy(ocp, constant_guess(ocp), options)
    assert found.status == expected.status
    assert found.status.code in (StatusCode.CONVERGED, StatusCode.NOT_POSITIVE_DEFINITE)


def test_a_start_that_is_no_number_is_refused(in_numpy):
    ocp = pendulum_swing_up()
    guess = constant_guess(ocp)
    guess.us[7] = np.nan
    found, expected = slq(ocp, guess), in_numpy(ocp, guess)
    assert found.status == expected.status and found.status.code is StatusCode.NON_FINITE
    assert len(found.history) == 1


def test_ctrl_c_leaves_the_iterate_so_far(in_numpy):
    ocp = pendulum_swing_up()

    def stop(record):
        if record.iteration == 4:
            raise KeyboardInterrupt

    found, expected = (run(ocp, constant_guess(ocp), None, stop) for run in (slq, in_numpy))
    assert found.status == expected.status and found.status.code is StatusCode.INTERRUPTED
    assert found.xs == pytest.approx(expected.xs, rel=1e-9, abs=1e-9)


def test_a_solve_within_a_callback_and_one_after_it_leave_solutions_alone():
    ocp, other = pendulum_swing_up(), replace(pendulum_swing_up(), x0=[0.3, 0.1])
    alone, then = slq(ocp, constant_guess(ocp)), slq(other, constant_guess(other))
    inner = []

    def nested(record):
        if record.iteration == 3:
            inner.append(slq(other, constant_guess(other)))

    outer = slq(ocp, constant_guess(ocp), None, nested)
    slq(other, random_guess(other))
    for found, expected in ((outer, alone), (inner[0], then)):
        np.testing.assert_array_equal(found.xs, expected.xs)
        np.testing.assert_array_equal(found.K, expected.K)


def test_times_of_the_parts_are_reported():
    found = slq(pendulum_swing_up(), constant_guess(pendulum_swing_up()))
    assert all(set(r.times) == {"derivatives", "backward", "rollout"} for r in found.history[:-1])
    assert all(seconds > 0.0 for r in found.history[1:-1] for seconds in r.times.values())
