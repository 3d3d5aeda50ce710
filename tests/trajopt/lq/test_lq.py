"""The Riccati solution against a dense solve of the KKT system, and its KKT residual."""

import numpy as np
import pytest
from numpy_lq import cost_change, costates, forward, kkt_residual, reduced_gradient, solve_riccati
from scipy.optimize import minimize

from trajopt.lq.lq import LQProblem, LQStep


def _random_problem(seed, N=6, n=4, m=2, indefinite_at=None):
    rng = np.random.default_rng(seed)
    joint = rng.standard_normal((N, n + m, n + m))
    H = joint @ joint.transpose(0, 2, 1) + 0.1 * np.eye(n + m)  # convex in (dx, du) together
    last = rng.standard_normal((n, n))
    R = H[:, n:, n:].copy()
    if indefinite_at is not None:
        R[indefinite_at] = -1e3 * np.eye(m)
    return LQProblem(
        A=np.eye(n) + 0.3 * rng.standard_normal((N, n, n)),
        B=rng.standard_normal((N, n, m)),
        d=rng.standard_normal((N, n)),
        Q=np.concatenate([H[:, :n, :n], (last @ last.T)[None]]),
        q=rng.standard_normal((N + 1, n)),
        S=H[:, n:, :n],
        R=R,
        r=rng.standard_normal((N, m)),
        dx0=rng.standard_normal(n),
    )


def _dense(lq):
    """H, g of the cost and C, c of the constraints C z = c, z = (dx_0 .. dx_N, du_0 .. du_(N-1))."""
    N, (n, m) = lq.horizon, lq.B.shape[1:]
    X, U = (lambda k: slice(k * n, (k + 1) * n)), (lambda k: slice((N + 1) * n + k * m, (N + 1) * n + (k + 1) * m))
    size = (N + 1) * n + N * m
    H, g, C, c = np.zeros((size, size)), np.zeros(size), np.zeros(((N + 1) * n, size)), np.zeros((N + 1) * n)
    for k in range(N + 1):
        H[X(k), X(k)], g[X(k)] = lq.Q[k], lq.q[k]
    for k in range(N):
        H[U(k), U(k)], g[U(k)] = lq.R[k], lq.r[k]
        H[U(k), X(k)], H[X(k), U(k)] = lq.S[k], lq.S[k].T
        C[X(k + 1), X(k + 1)], C[X(k + 1), X(k)], C[X(k + 1), U(k)] = np.eye(n), -lq.A[k], -lq.B[k]
        c[X(k + 1)] = lq.d[k]
    C[X(0), X(0)], c[X(0)] = np.eye(n), lq.dx0
    return H, g, C, c


@pytest.mark.parametrize("seed", range(5))
def test_solution_is_that_of_the_dense_kkt_system(seed):
    lq = _random_problem(seed)
    step = forward(lq, solve_riccati(lq))
    H, g, C, c = _dense(lq)
    kkt = np.block([[H, C.T], [C, np.zeros((len(c), len(c)))]])
    solved = np.linalg.solve(kkt, np.concatenate([-g, c]))
    z, nu = solved[: len(g)], solved[len(g) :]
    np.testing.assert_allclose(np.concatenate([step.dx.ravel(), step.du.ravel()]), z, rtol=0, atol=1e-9)
    # in the Lagrangian cost + nu'(C z - c) the multipliers nu are minus the costates
    np.testing.assert_allclose(costates(lq, step).ravel(), -nu, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_kkt_residual_vanishes_at_the_solution_only(seed):
    lq = _random_problem(seed, N=40)
    step = forward(lq, solve_riccati(lq))
    scale = max(np.abs(part).max() for part in (*step, costates(lq, step)))
    residual = kkt_residual(lq, step)
    assert max(np.abs(part).max() for part in residual) < 1e-11 * scale
    off = LQStep(step.dx, step.du + 0.1)
    assert np.abs(kkt_residual(lq, off).control).max() > 1e-3


def test_value_function_is_the_cost_to_go_of_the_policy():
    lq = _random_problem(7)
    for mu, where in ((0.0, "control"), (3.0, "control"), (3.0, "state")):
        policy = solve_riccati(lq, mu, where)
        still = lq._replace(d=np.zeros_like(lq.d))
        values = []
        for dx0 in (np.zeros(4), lq.dx0):
            start = still._replace(dx0=dx0)
            policy = solve_riccati(start, mu, where)
            D1, D2 = cost_change(start, forward(start, policy))
            values.append(D1 + 0.5 * D2)
        gained = policy.Vx[0] @ lq.dx0 + 0.5 * lq.dx0 @ policy.Vxx[0] @ lq.dx0
        assert values[1] - values[0] == pytest.approx(gained, rel=1e-10)


def test_cost_change_is_the_cost_along_the_step():
    lq = _random_problem(8)
    step = forward(lq, solve_riccati(lq))
    H, g, _, _ = _dense(lq)
    z = np.concatenate([step.dx.ravel(), step.du.ravel()])
    D1, D2 = cost_change(lq, step)
    assert pytest.approx(g @ z, rel=1e-12) == D1
    assert pytest.approx(z @ H @ z, rel=1e-12) == D2


def test_reduced_gradient_is_the_slope_of_the_cost_in_the_controls():
    lq = _random_problem(9)._replace(d=np.zeros((6, 4)), dx0=np.zeros(4))
    rng = np.random.default_rng(0)
    du = rng.standard_normal(lq.r.shape)
    dx = np.zeros_like(lq.q)
    for k in range(lq.horizon):
        dx[k + 1] = lq.A[k] @ dx[k] + lq.B[k] @ du[k]
    assert np.sum(reduced_gradient(lq) * du) == pytest.approx(cost_change(lq, LQStep(dx, du))[0], rel=1e-12)


def test_regularization_shortens_the_step():
    lq = _random_problem(10)._replace(d=np.zeros((6, 4)), dx0=np.zeros(4))
    for where in ("control", "state"):
        lengths = [np.linalg.norm(solve_riccati(lq, mu, where).k) for mu in (0.0, 1.0, 100.0)]
        assert lengths[0] > lengths[1] > lengths[2]


def test_failure_to_factorize_is_data():
    policy = solve_riccati(_random_problem(11, indefinite_at=3))
    assert policy.failed_at == 3
    assert solve_riccati(_random_problem(11, indefinite_at=3), mu=1e5).failed_at is None


def test_bounded_sweep_finds_the_constrained_minimum_of_one_stage():
    """With one stage the box-constrained LQ problem is a box QP."""
    lq = _random_problem(12, N=1)._replace(dx0=np.zeros(4))
    lower, upper = np.full((1, 2), -0.1), np.full((1, 2), 0.05)
    policy = solve_riccati(lq, bounds=(lower, upper))

    def cost(u):
        dx = lq.B[0] @ u + lq.d[0]
        return 0.5 * u @ lq.R[0] @ u + lq.r[0] @ u + 0.5 * dx @ lq.Q[1] @ dx + lq.q[1] @ dx

    found = minimize(cost, np.zeros(2), bounds=[(-0.1, 0.05)] * 2, tol=1e-14)
    np.testing.assert_allclose(policy.k[0], found.x, rtol=0, atol=1e-7)
    clamped = (policy.k[0] == -0.1) | (policy.k[0] == 0.05)
    assert clamped.any()
    assert not policy.K[0][clamped].any()


def test_infinite_bounds_have_no_effect():
    lq = _random_problem(13)
    nowhere = np.full(lq.r.shape, np.inf)
    free, bounded = solve_riccati(lq), solve_riccati(lq, bounds=(-nowhere, nowhere))
    np.testing.assert_allclose(bounded.k, free.k, rtol=0, atol=1e-10)
    np.testing.assert_allclose(bounded.K, free.K, rtol=0, atol=1e-10)
