"""Comparison of compiled stages with their NumPy counterparts."""

import numpy as np
import pytest
from stage_cases import close, compiled_evaluator

from trajopt.stage.evaluation import Direction, StageEvaluator

HORIZON = 13


def trajectory(ocp):
    """xs (N + 1, nx) off the dynamics, us (N, nu)."""
    rng, N = np.random.default_rng(1), ocp.horizon
    away = 0.4 * rng.standard_normal((ocp.manifold.ndx, N + 1))
    xs = ocp.manifold.integrate(np.repeat(ocp.x0[:, None], N + 1, axis=1), away).T
    return np.ascontiguousarray(xs), rng.standard_normal((N, ocp.nu))


def assert_same_expansion(ocp, hessian="gauss_newton", tolerance=1e-11):
    xs, us = trajectory(ocp)
    actual, expected = (E(ocp, hessian).expand(xs, us) for E in (compiled_evaluator, StageEvaluator))
    assert actual.cost == pytest.approx(expected.cost, rel=1e-11)
    for a, e in zip((actual.x_next, *actual.lq), (expected.x_next, *expected.lq), strict=True):
        close(a, e, tolerance)


def assert_same_rollout(ocp, shooting, count=9):
    xs, us = trajectory(ocp)
    rng, n = np.random.default_rng(2), ocp.manifold.ndx
    gains = 0.1 * rng.standard_normal((ocp.horizon, ocp.nu, n))
    gaps = StageEvaluator(ocp).expand(xs, us).lq.d
    direction = Direction(0.1 * rng.standard_normal((ocp.horizon + 1, n)), rng.standard_normal(us.shape), gains, gaps)
    alphas = 0.7 ** np.arange(count)
    actual, expected = (
        E(ocp).rollout(xs, us, direction, alphas, shooting) for E in (compiled_evaluator, StageEvaluator)
    )
    for a, e in zip(actual, expected, strict=True):
        close(a, e, 1e-11)


def assert_same_curvature(ocp):
    xs, us = trajectory(ocp)
    lam = np.random.default_rng(3).standard_normal((ocp.horizon, ocp.manifold.ndx))
    compiled = compiled_evaluator(ocp)
    assert compiled.knot_curvatures(xs, us) is not None
    for a, e in zip(compiled.curvature(xs, us, lam), StageEvaluator(ocp).curvature(xs, us, lam), strict=True):
        close(a, e, 1e-10)
        if a.shape[1] == a.shape[2]:
            np.testing.assert_array_equal(a, a.transpose(0, 2, 1))
