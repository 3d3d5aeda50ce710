"""Newton's method takes the same steps with compiled stages, with stages in Python, and with answers in NumPy, up to rounding."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from newton_numpy import NewtonNumpy
from shooting_cases import PROBLEMS, check_same, random_guess, sampled

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from trajopt import DDPOptions, Guess, SLQOptions, StatusCode, control_cost, residual_cost
from trajopt.guesses.guesses import constant_guess
from trajopt.solvers.ddp import ddp
from trajopt.solvers.methods.requests import Accept
from trajopt.solvers.slq import slq
from trajopt.solvers.window import newton
from trajopt.solvers.window.memory import TRIALS, trials_together
from trajopt.solvers.window.newton_slot import NewtonSlot

GOAL = np.array([0.4, 0.3, 0.0, 0.0])


def swing(horizon=24, **limits):
    """Double pendulum that moves from one posture to another."""
    body = to.FreeBody(to.load_robot("double_pendulum"))
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), "semi_implicit_euler")
    terms = [to.control_cost(2, weight=1e-2), to.state_cost(body.manifold, GOAL, [0.1, 0.1, 0.01, 0.01])]
    last = [to.state_cost(body.manifold, GOAL, 200.0)]
    return to.OCP.single_phase(dynamics, np.zeros(4), horizon, 0.05, terms, last, **limits)


def throw(horizon=24):
    """Double pendulum whose tip has to move far in a short time: indefinite curvature at first, and nonlinear residuals."""
    body = to.FreeBody(to.load_robot("double_pendulum"))
    dynamics = to.SampledSystem(to.make_backend(body, "analytic"), "semi_implicit_euler")
    goal = to.frame_position_cost(body.model, body.manifold, "tip", [0.2, 0.0, 0.1], 1e3)
    last = [goal, to.state_cost(body.manifold, np.zeros(4), 0.1)]
    return to.OCP.single_phase(dynamics, np.zeros(4), horizon, 0.05, [to.control_cost(2, weight=1e-3)], last)


LIMITS = {"u_lower": [-10.0, -np.inf], "u_upper": [10.0, 3.0]}
CASES = {
    **{("slq", name): problem for name, problem in PROBLEMS.items()},
    **{(kind, "swing"): swing for kind in ("ddp", "ddp, Gauss-Newton cost", "slq")},
    ("ddp", "swing with limits"): partial(swing, **LIMITS),
    ("ddp", "throw"): throw,
}
KINDS = {
    "ddp": (ddp, DDPOptions, {}),
    "ddp, Gauss-Newton cost": (ddp, DDPOptions, {"hessian": "gauss_newton"}),
    "slq": (slq, SLQOptions, {"globalization": "filter"}),
}


@pytest.fixture
def in_numpy(monkeypatch):
    """Return a solve function whose requests NumPy answers, once it has taken the same steps with kernels that call Python."""

    def run(solver, *args):
        with monkeypatch.context() as patched:
            patched.setattr(newton, "serves", lambda *_: False)
            called = solver(*args)
            patched.setattr(newton, "CallingNewtonSlot", NewtonNumpy)
            found = solver(*args)
        assert called.status.code is found.status.code
        # at rounding level, paths differ and statuses agree
        if np.isfinite(found.cost) and found.status.code is not StatusCode.PRECISION_LIMIT:
            check_same(called, found)
        return found

    return run


@pytest.fixture
def steps(monkeypatch):
    """Record the Accept requests that the kernels answer."""
    counted = []
    original = NewtonSlot.answer

    def answer(self, request):
        if isinstance(request, Accept):
            counted.append(request)
        return original(self, request)

    monkeypatch.setattr(NewtonSlot, "answer", answer)
    return counted


@pytest.mark.parametrize("guess", ["constant", "random"])
@pytest.mark.parametrize(("kind", "problem"), CASES)
def test_every_iteration_is_the_same(kind, problem, guess, in_numpy, steps):
    ocp, (solver, options, given) = CASES[kind, problem](), KINDS[kind]
    start = constant_guess(ocp) if guess == "constant" else random_guess(ocp)
    o = options(**given, max_iterations=8)  # few, as rounding grows
    found = solver(ocp, start, o)
    assert len(steps) == found.iterations > 0
    expected = in_numpy(solver, ocp, start, o)
    check_same(found, expected)
    assert [r.hessian for r in found.history] == [r.hessian for r in expected.history]
    assert str(found.status) == str(expected.status)


@pytest.mark.parametrize("changes", [
    {"max_backtracks": 0},
    {"cost_tolerance": 1e-3},
    {"cost_tolerance": 1e-1},
    {"gradient_tolerance": 1e-30, "kkt_tolerance": 1e-30, "max_iterations": 200},
    {"time_limit": 1e-9},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("limits", [{}, LIMITS], ids=["free", "within limits"])
def test_options_mean_the_same(changes, limits, in_numpy):
    ocp = swing(**limits)
    options = DDPOptions(**{"max_iterations": 15, **changes})
    found, expected = ddp(ocp, constant_guess(ocp), options), in_numpy(ddp, ocp, constant_guess(ocp), options)
    if "gradient_tolerance" in changes:  # at rounding level, paths differ and statuses agree
        assert found.status.code is expected.status.code is StatusCode.PRECISION_LIMIT
        assert found.cost == pytest.approx(expected.cost, rel=1e-12)
    else:
        check_same(found, expected)


def test_phases_of_which_one_reads_no_controls(in_numpy, steps):
    ocp = swing()
    phase = replace(ocp.phases[0], terms=(to.state_cost(ocp.manifold, GOAL, 0.1),))
    ocp = replace(ocp, phases=(ocp.phases[0], phase), u_lower=[-9.0, -9.0], u_upper=[9.0, 9.0])
    start, options = constant_guess(ocp, 0.2), DDPOptions(max_iterations=8)
    found = ddp(ocp, start, options)
    assert steps
    check_same(found, in_numpy(ddp, ocp, start, options))


def root_problem(start):
    """Problem with a cost whose slope is infinite at state zero."""
    line = Manifold.vector(1, ("a",))
    system = FunctionMap(lambda x, u, t, p: [u[0]], line, 1)
    root = residual_cost("root", lambda x, u, t, p: [sm.sqrt(x[0])], line, 1, 1.0)
    return to.OCP.single_phase(sampled(system, "euler"), [start], 4, 0.5, [control_cost(1, weight=1.0), root])


def test_a_start_that_is_no_number_is_refused(in_numpy):
    ocp = swing()
    guess = constant_guess(ocp)
    guess.us[7] = np.nan
    found, expected = ddp(ocp, guess), in_numpy(ddp, ocp, guess)
    assert found.status == expected.status and found.status.code is StatusCode.NON_FINITE
    assert len(found.history) == 1 and np.isnan(found.cost) and not found.K.any()
    np.testing.assert_array_equal(found.us, guess.us)


def test_an_expansion_that_is_no_number_is_no_optimum(in_numpy):
    """A guess with finite cost and non-finite derivatives must not count as one with a small gradient."""
    ocp = root_problem(1.0)
    guess = Guess(np.array([[1.0], [1.0], [1.0], [0.0], [1.0]]), np.zeros((4, 1)))
    options = SLQOptions(globalization="filter")
    found, expected = slq(ocp, guess, options), in_numpy(slq, ocp, guess, options)
    assert found.status == expected.status and found.status.code is StatusCode.NON_FINITE


@pytest.mark.parametrize("limits", [{}, LIMITS], ids=["free", "within limits"])
def test_ctrl_c_returns_the_last_reported_iterate(limits, in_numpy):
    ocp, seen = swing(**limits), {}

    def stop(record):
        seen[record.iteration] = record.iterate()
        if record.iteration == 4:
            raise KeyboardInterrupt

    found = ddp(ocp, constant_guess(ocp), None, stop)
    np.testing.assert_array_equal(found.xs, seen[4][0])
    np.testing.assert_array_equal(found.us, seen[4][1])
    expected = in_numpy(ddp, ocp, constant_guess(ocp), None, stop)
    assert found.status == expected.status and found.status.code is StatusCode.INTERRUPTED
    assert pytest.approx(expected.K, rel=1e-6, abs=1e-9) == found.K
    assert [r.cost for r in found.history] == pytest.approx([r.cost for r in expected.history], rel=1e-9)


def test_a_solve_within_a_callback_leaves_the_other_alone():
    ocp, other = swing(), replace(swing(), x0=[0.3, 0.1, 0.0, 0.0])
    alone, then = ddp(ocp, constant_guess(ocp)), ddp(other, constant_guess(other))
    inner = []

    def nested(record):
        if record.iteration == 3:
            inner.append(ddp(other, constant_guess(other)))

    outer = ddp(ocp, constant_guess(ocp), None, nested)
    for found, expected in ((outer, alone), (inner[0], then)):
        np.testing.assert_array_equal(found.xs, expected.xs)
        np.testing.assert_array_equal(found.K, expected.K)


@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("knots", [1, 2, 20, 33, 100])
def test_as_few_step_lengths_are_tried_at_once_as_fill_the_lanes(knots, lanes):
    count = trials_together(knots, lanes)
    blocks = -(-count * knots // lanes)
    assert count == TRIALS or count * knots / (blocks * lanes) >= 0.8
    assert 1 <= count <= TRIALS and (count == 1 or (count - 1) * knots < 4 * lanes)
