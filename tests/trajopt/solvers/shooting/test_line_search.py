"""Line search on the merit function: accepted step lengths, and the slope of the cost at its start."""

import numpy as np
import pytest
from numpy_lq import NumpyLQ, cost_change, forward, solve_riccati
from shooting_numpy import slope

from trajopt.lq.lq import LQProblem
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.methods.shooting import Models, ShootingMethod
from trajopt.solvers.methods.shooting_requests import Direction, Point
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules.line_search import ADRIFT, Drift, Found, Trial, reference


def searched(cost, before=()) -> tuple[Found, list[float]]:
    """The accepted step and the step lengths tried, for a cost of slope -1 in alpha and a model whose minimum is at alpha = 1.

    before: costs of the iterates before, which a nonmonotone search looks back at.
    """
    tried: list[float] = []

    def trial(alpha):
        tried.append(alpha)
        return Trial(cost(alpha), 0.0)

    method = ShootingMethod(Models(("gauss_newton",)), SLQOptions(), False, 1)
    method.at = Point(True, cost(0.0), 1.0, 0.0, 0.0, 0.0)
    start = reference([Trial(value, 0.0) for value in (*before, cost(0.0))], method.penalty)
    search = method._line_search(Direction(-1, -1.0, 1.0, 1.0, 1.0, trial(1.0)), start, 0.5)
    return run_alone(search, lambda r: [trial(0.5**i) for i in range(r.first, r.first + r.count)]), tried


def test_a_step_that_does_as_promised_is_taken_at_once():
    found, tried = searched(lambda a: 0.5 * a * a - a)
    assert found.accepted and found.alpha == 1.0 and tried == [1.0]


@pytest.mark.parametrize(("curvature", "alpha"), [(0.1, 8.0), (0.24, 4.0), (0.45, 2.0), (0.6, 1.0)])
def test_a_step_that_gains_too_much_is_stretched(curvature, alpha):
    found, _ = searched(lambda a: 0.5 * curvature * a * a - a)
    assert found.accepted and found.alpha == alpha
    assert found.actual == pytest.approx(alpha - 0.5 * curvature * alpha**2)


def test_non_finite_longer_steps_are_not_accepted():
    found, _ = searched(lambda a: 0.05 * a * a - a if a < 3.0 else np.nan)
    assert found.alpha == 2.0


def test_a_poor_step_gives_way_to_a_shorter_one_that_gains_more():
    """The full step realizes a fifth of its promise, which is enough to be accepted; the half one gains more than twice that."""
    found, _ = searched(lambda a: 0.9 * a * a - a)
    assert found.accepted and found.alpha == 0.5 and found.actual == pytest.approx(0.275)


def test_where_no_shorter_step_gains_more_the_first_one_stays():
    found, _ = searched(lambda a: {0.0: 0.0, 1.0: -0.2}.get(float(a), -0.1))
    assert found.accepted and found.alpha == 1.0


def test_a_nonmonotone_search_compares_with_the_largest_merit_of_the_last_iterates():
    """The full step raises the cost, to less than it was before; one that gains less than its share of that is shortened."""

    def cost(alpha):
        return alpha * alpha - 0.7 * alpha

    found, tried = searched(cost, [0.4, 0.9, 0.1])
    assert found.accepted and found.alpha == 1.0 and found.actual == pytest.approx(0.6) and tried == [1.0]
    assert searched(cost, [0.31])[0].alpha == 0.5 and searched(cost)[0].alpha == 0.25


def test_the_slope_of_an_unstable_motion():
    """Costates of the open loop grow by 3^60; under the gains the slope is that of exact arithmetic, to rounding."""
    rng, N, n = np.random.default_rng(7), 60, 2
    A, B = np.tile(3.0 * np.eye(n), (N, 1, 1)), np.tile(np.eye(n), (N, 1, 1))
    Q, R, S = np.tile(np.eye(n), (N + 1, 1, 1)), np.tile(np.eye(n), (N, 1, 1)), np.zeros((N, n, n))
    d, q, r = rng.normal(size=(N, n)), rng.normal(size=(N + 1, n)), rng.normal(size=(N, n))
    lq = LQProblem(A, B, d, Q, q, S, R, r, np.zeros(n))
    policy = solve_riccati(lq)
    step = forward(lq, policy)
    exact = cost_change(lq, step)[0]
    assert slope(lq, policy.K, step, d) == pytest.approx(exact, rel=1e-10)
    lam, gradient = NumpyLQ().adjoint(lq)
    assert abs(np.sum(gradient * step.du) + np.sum(lam[1:] * d) - exact) > 1e-2 * abs(exact)


def test_gaps_that_do_not_close_are_given_up():
    stuck = closing = Drift()
    for i in range(ADRIFT + 1):
        assert not stuck.over
        stuck, closing = stuck.after(0.0625, 10.0), closing.after(0.0625, 10.0 * 0.8**i)
    assert stuck.over and not closing.over
    assert not stuck.after(0.5, 10.0).over
