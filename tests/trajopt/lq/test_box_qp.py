"""The projected-Newton box QP against the enumeration of all active sets."""

from itertools import product

import numpy as np
import pytest

from trajopt.lq.lq import LQProblem
from trajopt.lq.lq_solver import solve_riccati


def solve_box_qp(H, g, lower, upper):
    """Minimizer x of a step whose only cost is the QP, and its sensitivity to g; (None, None) if it is indefinite."""
    m = len(g)
    zero, eye = np.zeros((2, m, m)), np.eye(m)[None]
    lq = LQProblem(eye, 0 * eye, np.zeros((1, m)), zero, np.zeros((2, m)), eye, H[None], g[None], np.zeros(m))
    policy = solve_riccati(lq, bounds=(lower[None], upper[None]))
    return (None, None) if policy.failed_at is not None else (policy.k[0], policy.K[0])


def _by_enumeration(H, g, lower, upper):
    """The feasible stationary point with the lowest value over all 3^n active sets."""
    best, best_value = None, np.inf
    for pattern in product((-1, 0, 1), repeat=len(g)):
        pattern = np.array(pattern)
        x = np.where(pattern < 0, lower, np.where(pattern > 0, upper, 0.0))
        free = pattern == 0
        if not np.isfinite(x).all():
            continue
        if free.any():
            x[free] = np.linalg.solve(H[np.ix_(free, free)], -(g + H @ np.where(free, 0.0, x))[free])
        value = 0.5 * x @ H @ x + g @ x
        if ((x >= lower - 1e-12) & (x <= upper + 1e-12)).all() and value < best_value:
            best, best_value = x, value
    return best


@pytest.mark.parametrize("seed", range(20))
def test_minimizer_of_random_problems(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    root = rng.standard_normal((n, n))
    H, g = root @ root.T + 0.05 * np.eye(n), 3.0 * rng.standard_normal(n)
    lower, upper = -rng.uniform(0.0, 1.0, n), rng.uniform(0.0, 1.0, n)
    lower[rng.random(n) < 0.2] = -np.inf
    x, K = solve_box_qp(H, g, lower, upper)
    expected = _by_enumeration(H, g, lower, upper)
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-11)
    inside = (expected > lower + 1e-9) & (expected < upper - 1e-9)
    sensitivity = np.zeros((n, n))
    sensitivity[inside] = -np.linalg.solve(H[np.ix_(inside, inside)], np.eye(n)[inside])
    np.testing.assert_allclose(K, sensitivity, atol=1e-9)


def test_without_bounds_it_is_newton():
    H, g = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, -3.0])
    nowhere = np.full(2, np.inf)
    np.testing.assert_allclose(solve_box_qp(H, g, -nowhere, nowhere)[0], -np.linalg.solve(H, g), rtol=1e-14)


def test_equal_bounds_leave_no_freedom():
    x, _ = solve_box_qp(np.eye(2), np.array([1.0, -1.0]), np.array([0.5, 0.2]), np.array([0.5, 0.2]))
    np.testing.assert_array_equal(x, [0.5, 0.2])


def test_indefinite_free_block_is_reported():
    assert solve_box_qp(np.diag([1.0, -1.0]), np.ones(2), np.full(2, -1.0), np.full(2, 1.0))[0] is None


def test_an_indefinite_clamped_block_is_irrelevant():
    x, _ = solve_box_qp(np.diag([1.0, -1.0]), np.array([0.3, 5.0]), np.full(2, -1.0), np.array([1.0, -1.0]))
    np.testing.assert_allclose(x, [-0.3, -1.0], atol=1e-15)
