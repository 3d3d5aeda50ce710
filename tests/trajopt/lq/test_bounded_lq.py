"""The bounded LQ solution against a dense bounded least-squares problem in the controls alone."""

import numpy as np
import pytest
from numpy_lq import cost_change, forward, solve_riccati
from scipy.optimize import lsq_linear

from trajopt.lq.lq import LQProblem, LQStep
from trajopt.lq.lq_solver import LQSolver


def _random_problem(seed, gaps, N=8, n=3, m=2):
    rng = np.random.default_rng(seed)
    joint = rng.standard_normal((N, n + m, n + m))
    H = joint @ joint.transpose(0, 2, 1) + 0.1 * np.eye(n + m)
    last = rng.standard_normal((n, n))
    return LQProblem(
        A=np.eye(n) + 0.3 * rng.standard_normal((N, n, n)),
        B=rng.standard_normal((N, n, m)),
        d=gaps * rng.standard_normal((N, n)),
        Q=np.concatenate([H[:, :n, :n], 10.0 * (last @ last.T)[None]]),
        q=rng.standard_normal((N + 1, n)),
        S=H[:, n:, :n],
        R=H[:, n:, n:],
        r=rng.standard_normal((N, m)),
        dx0=gaps * rng.standard_normal(n),
    )


def solve_bounded_lq(lq, bounds, mu=0.0, regularize="control"):
    return LQSolver().solve_bounded(lq, bounds, mu, regularize)


def _rolled_out(lq, du):
    dx = [lq.dx0]
    for k in range(lq.horizon):
        dx.append(lq.A[k] @ dx[-1] + lq.B[k] @ du[k] + lq.d[k])
    return LQStep(np.array(dx), du)


def _value(lq, du):
    D1, D2 = cost_change(lq, _rolled_out(lq, du))
    return D1 + 0.5 * D2


def _dense_solution(lq, lower, upper):
    """H and g by evaluation on the unit vectors, then min 1/2 |L'u + L^-1 g|^2 within bounds."""
    N, m = lq.r.shape
    unit = np.eye(N * m).reshape(-1, N, m)
    origin, ends = _value(lq, 0 * unit[0]), np.array([_value(lq, e) for e in unit])
    H = np.array([[_value(lq, a + b) for b in unit] for a in unit]) - ends[:, None] - ends[None] + origin
    g = ends - origin - 0.5 * np.diag(H)
    L = np.linalg.cholesky(H)
    found = lsq_linear(L.T, -np.linalg.solve(L, g), (lower.ravel(), upper.ravel()), method="bvls", tol=1e-15)
    return found.x.reshape(N, m)


@pytest.mark.parametrize("gaps", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_gain_is_nearly_all_that_bounds_allow(seed, gaps):
    lq = _random_problem(seed, gaps)
    lower, upper = np.full(lq.r.shape, -0.3), np.full(lq.r.shape, 0.4)
    best = _dense_solution(lq, lower, upper)
    policy, step = solve_bounded_lq(lq, (lower, upper))
    assert policy.failed_at is None
    assert ((step.du >= lower) & (step.du <= upper)).all()
    np.testing.assert_allclose(step.dx, _rolled_out(lq, step.du).dx, rtol=0, atol=1e-10)
    closing = _value(lq, forward(lq, solve_riccati(lq), (lower, upper)).du) if gaps else 0.0
    start = max(closing, _value(lq, np.zeros_like(best)))
    assert start - _value(lq, step.du) >= 0.95 * (start - _value(lq, best))


@pytest.mark.parametrize("seed", range(6))
def test_controls_that_begin_at_their_bounds_find_descent(seed):
    """Feedback moves many controls against their bounds, so that the step of a bounded sweep may raise the cost."""
    lq = _random_problem(seed, 0.0, N=15)
    weights = np.concatenate([np.tile(0.01 * np.eye(3), (15, 1, 1)), 100.0 * np.eye(3)[None]])
    lq = lq._replace(Q=weights, S=0.0 * lq.S, R=np.tile(0.1 * np.eye(2), (15, 1, 1)))
    side = np.random.default_rng(seed).integers(0, 3, lq.r.shape)
    lower, upper = np.where(side == 0, 0.0, -0.3), np.where(side == 1, 0.0, 0.3)
    _, step = solve_bounded_lq(lq, (lower, upper))
    assert _value(lq, step.du) <= 0.8 * _value(lq, _dense_solution(lq, lower, upper)) < 0.0


@pytest.mark.parametrize("gaps", [0.0, 1.0])
def test_clamped_controls_have_no_feedback(gaps):
    lq = _random_problem(3, gaps)
    lower, upper = np.full(lq.r.shape, -0.3), np.full(lq.r.shape, 0.4)
    policy, step = solve_bounded_lq(lq, (lower, upper))
    best = _dense_solution(lq, lower, upper)
    clamped = (best == lower) | (best == upper)
    assert clamped.any()
    at_bound = (step.du == lower) | (step.du == upper)
    assert not policy.K[clamped & at_bound].any()


@pytest.mark.parametrize("regularize", ["control", "state"])
def test_wide_bounds_give_the_unbounded_solution(regularize):
    lq = _random_problem(1, 1.0)
    wide = np.full(lq.r.shape, 1e6)
    policy, step = solve_bounded_lq(lq, (-wide, wide), mu=0.5, regularize=regularize)
    damped = lq._replace(R=lq.R + 0.5 * np.eye(2))
    expected = solve_riccati(damped) if regularize == "control" else solve_riccati(lq, 0.5, "state")
    np.testing.assert_allclose(policy.K, expected.K, rtol=0, atol=1e-12)
    np.testing.assert_allclose(step.du, forward(lq, expected).du, rtol=0, atol=1e-12)


def test_failure_to_factorize_is_data():
    lq = _random_problem(4, 1.0)
    lq.R[5] = -1e3 * np.eye(2)
    bounds = np.full(lq.r.shape, -1.0), np.full(lq.r.shape, 1.0)
    assert solve_bounded_lq(lq, bounds)[0].failed_at == 5
    assert solve_bounded_lq(lq._replace(d=0 * lq.d, dx0=0 * lq.dx0), bounds)[0].failed_at == 5
