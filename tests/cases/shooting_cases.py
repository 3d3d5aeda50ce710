"""Problems for the shooting solvers, with settings that all reach the same solutions, and a test of optimality."""

import numpy as np
import pytest
import textbook_systems as textbook
from slq_solve import solve

from dynamics_backends.registry import make_backend
from trajopt import OCP, Guess, SampledSystem, control_cost, state_cost
from trajopt.guesses.guesses import constant_guess
from trajopt.results.records import NUMBERS
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator

SETTINGS = {
    "ilqr": {"shooting": "single"},
    "every 7, linear": {"shooting": 7, "gaps": "linear"},
    "every 7, nonlinear": {"shooting": 7, "gaps": "nonlinear"},
    "gnms": {"shooting": "all", "gaps": "linear"},
    "fddp": {"shooting": "all", "gaps": "nonlinear"},
}


def sampled(system, scheme="rk4", backend="forward_ad"):
    return SampledSystem(make_backend(system, backend), scheme)


def pendulum_swing_up(horizon=60, backend="forward_ad", limit=None):
    system = textbook.autonomous_pendulum()
    bounds = {} if limit is None else {"u_lower": [-limit], "u_upper": [limit]}
    return OCP.single_phase(
        sampled(system, backend=backend),
        [0.0, 0.0],
        horizon,
        0.05,
        [control_cost(1, weight=0.1)],
        [state_cost(system.manifold, [np.pi, 0.0], [100.0, 10.0])],
        **bounds,
    )


def cart_pole(goal, horizon, control_weight):
    """Swing-up of a cart-pole from rest to rest at a goal."""
    system = textbook.cart_pole()
    return OCP.single_phase(
        sampled(system),
        [0.0, 0.0, 0.0, 0.0],
        horizon,
        0.04,
        [control_cost(1, weight=control_weight)],
        [state_cost(system.manifold, goal, [200.0, 200.0, 20.0, 20.0])],
    )


def crane():
    """Move the cart by two meters and leave the pole at rest."""
    return cart_pole([2.0, 0.0, 0.0, 0.0], 50, 0.05)


def attitude_slew():
    """Turn a spinning body by 2.5 rad about a skew axis and stop it."""
    system = textbook.spinning_body()
    turned = system.manifold.integrate(
        system.manifold.identity()[:, None], np.r_[2.5 * np.array([0.6, 0.0, 0.8]), 0, 0, 0][:, None]
    )[:, 0]
    x0 = np.r_[system.manifold.identity()[:4], 0.3, -0.2, 0.1]
    return turned, OCP.single_phase(
        sampled(system),
        x0,
        35,
        0.1,
        [control_cost(3, weight=0.1), state_cost(system.manifold, turned, 0.05)],
        [state_cost(system.manifold, turned, 50.0)],
    )


def polished(ocp, name, guess=None, solver="slq", **options):
    options = {"gradient_tolerance": 1e-9, "max_iterations": 500, **SETTINGS[name], **options}
    return solve(ocp, guess, options, solver=solver)


def check_optimum(ocp, solution):
    """Check feasibility, and that the gradient of the rolled-out cost (central differences) vanishes off the bounds."""
    evaluator = StageEvaluator(ocp)
    x_next = evaluator.expand(solution.xs, solution.us).x_next
    assert np.abs(ocp.manifold.difference(solution.xs[1:].T, x_next.T)).max() < 1e-9

    def cost(us):
        xs = [ocp.x0]
        for k, u in enumerate(us):
            xs.append(ocp.phases[0].dynamics.step(xs[-1][None], u[None], ocp.times[k], ocp.dt[k])[0])
        return evaluator.cost(np.array(xs)[None], us[None])[0]

    rng = np.random.default_rng(1)
    for k, j in zip(rng.integers(0, ocp.horizon, 4), rng.integers(0, ocp.nu, 4), strict=True):
        if ocp.control_bounds is not None and np.isclose(abs(solution.us[k, j]), ocp.u_upper[j]):
            continue
        step = np.zeros_like(solution.us)
        step[k, j] = 1e-4
        slope = (cost(solution.us + step) - cost(solution.us - step)) / 2e-4
        assert abs(slope) < 1e-6 * max(1.0, solution.cost)


PROBLEMS = {
    "pendulum": pendulum_swing_up,
    "pendulum with limits": lambda: pendulum_swing_up(horizon=70, limit=6.0),
    "crane": crane,
    "attitude": lambda: attitude_slew()[1],
}


def rolled_out(ocp, us):
    """Return a dynamically feasible guess."""
    N, ndx = ocp.horizon, ocp.manifold.ndx
    still = Direction(np.zeros((N + 1, ndx)), np.zeros_like(us), np.zeros((N, ocp.nu, ndx)), np.zeros((N, ndx)))
    xs = np.tile(ocp.x0, (N + 1, 1))
    found = StageEvaluator(ocp).rollout(xs, us, still, np.zeros(1), Shooting())
    return found.xs[0], found.us[0]


def order_of_one_iteration(ocp, solution, solver, **options):
    """Return the slope of log |gradient| after an iteration over log |gradient| before it, for starts ever closer to a solution."""
    direction = np.random.default_rng(0).standard_normal(solution.us.shape)
    direction *= max(1.0, np.abs(solution.us).max()) / np.abs(direction).max()
    before, after = [], []
    for size in 10.0 ** -np.array([4.5, 5.0, 5.5]):
        xs, us = rolled_out(ocp, solution.us + size * direction)
        limits = {"shooting": "single", "gradient_tolerance": 1e-15, "max_iterations": 1}
        history = solve(ocp, Guess(xs, us), limits | options, solver=solver).history
        assert history[0].step_length == 1.0
        before.append(history[0].gradient)
        after.append(history[1].gradient)
    return np.polyfit(np.log(before), np.log(after), 1)[0]


def random_guess(ocp, size=0.3):
    rng = np.random.default_rng(3)
    still = constant_guess(ocp)
    away = size * rng.standard_normal((ocp.horizon + 1, ocp.manifold.ndx))
    return Guess(ocp.manifold.integrate(still.xs.T, away.T).T, size * rng.standard_normal(still.us.shape))


def check_same(actual, expected, rel=1e-6):
    assert actual.status.code is expected.status.code
    assert actual.iterations == expected.iterations
    for a, e in zip(actual.history, expected.history, strict=True):
        floor = 1e-9 * max(1.0, abs(e.cost))  # tolerances of cost differences, and of final gradients
        for name in NUMBERS:
            least = 1e4 * floor if name == "stop" else floor  # a gradient of 1e-12, by its tolerance of 1e-7
            assert getattr(a, name) == pytest.approx(getattr(e, name), rel=rel, abs=least), (a.iteration, name)
    for name in ("xs", "us", "K", "k"):
        a, e = getattr(actual, name), getattr(expected, name)
        assert a == pytest.approx(e, rel=rel, abs=rel * np.abs(e).max(initial=1e-6)), name
