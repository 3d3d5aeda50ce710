"""The LQ problem with equations at its knots, against dense solutions of its KKT system."""

import ctypes

import numpy as np
import pytest

from dynamics_backends.compiled.runtime.memory import bound
from dynamics_backends.machine.library import kernels
from trajopt.lq.equality_lq import EqualityLQ


class SolvableLQ(EqualityLQ):
    """LQ problem with the kernels that solve it."""

    def factor(self, shift=0.0, soft=0.0):
        """Factor with ``shift`` added to the diagonals of Q and R; returns the knot where this fails, None after a success."""
        if soft > 0.0:
            self.soften()
        self._matrices.shift, self._matrices.soft = shift, soft
        failed = bound(kernels(), "elq_factor", "pp", ctypes.c_long)(self.parts[0], self.parts[2])
        return None if failed < 0 else failed

    def solve(self):
        """Solve with the last factors; returns the largest right-hand side of linearly dependent equations."""
        return bound(kernels(), "elq_solve", "pppp", ctypes.c_double)(*self.parts)


def dense_solution(lq, dx0, soft=0.0, shift=0.0):
    """dx, du, lam and y by one dense least-squares solution of the KKT system."""
    N, n, m = lq.N, lq.n, lq.m
    size, count = (N + 1) * n + N * m, (N + 1) * n + len(lq.e)
    H, g, J, c = np.zeros((size, size)), np.zeros(size), np.zeros((count, size)), np.zeros(count)
    weak = np.zeros((count, count))
    x = [slice(k * (n + m), k * (n + m) + n) for k in range(N + 1)]
    u = [slice(k * (n + m) + n, (k + 1) * (n + m)) for k in range(N)]
    for k in range(N + 1):
        H[x[k], x[k]], g[x[k]] = lq.Q[k], lq.q[k]
        own = slice(lq.row[k], lq.row[k + 1])
        rows = slice((N + 1) * n + own.start, (N + 1) * n + own.stop)
        J[rows, x[k]], c[rows] = lq.C[own], lq.e[own]
        if k == N:
            break
        H[u[k], u[k]], H[u[k], x[k]], H[x[k], u[k]], g[u[k]] = lq.R[k], lq.S[k], lq.S[k].T, lq.r[k]
        J[rows, u[k]] = lq.D[own]
        step = slice(n * k, n * (k + 1))
        J[step, x[k]], J[step, u[k]], J[step, x[k + 1]], c[step] = lq.A[k], lq.B[k], -np.eye(n), lq.d[k]
        weak[step, step] = soft * np.eye(n)
    first = slice(N * n, (N + 1) * n)
    J[first, x[0]], c[first] = np.eye(n), -dx0
    H += shift * np.eye(size)
    K = np.block([[H, J.T], [J, -weak]])
    found = np.linalg.lstsq(K, -np.r_[g, c], rcond=1e-13)[0]
    z, y = found[:size], found[size:]
    dx, du = np.array([z[s] for s in x]), np.array([z[s] for s in u])
    return dx, du, y[: N * n].reshape(N, n), y[(N + 1) * n :]


def random_problem(rng, N, n, m, counts, *, indefinite=False):
    """Random data with ``counts`` equations by knot; indefinite: convex only on the equations' null space or not at all."""
    lq = SolvableLQ(n, m, N, sum(counts), max(counts))
    lq.row[1:] = np.cumsum(counts)
    for array in (lq.A, lq.B, lq.C, lq.D, lq.d, lq.q, lq.r, lq.e):
        array[...] = rng.normal(size=array.shape)
    for k in range(N + 1):
        size = n + m if k < N else n
        root = rng.normal(size=(size, size))
        W = root @ root.T + 0.1 * np.eye(size) - (3.0 * np.eye(size) if indefinite else 0.0)
        lq.Q[k] = W[:n, :n]
        if k < N:
            lq.S[k], lq.R[k] = W[n:, :n], W[n:, n:]
    lq.D[lq.row[N] :] = 0.0
    lq.dx[0] = rng.normal(size=n)
    return lq


CASES = {
    "none": [0] * 7,
    "controls": [2, 0, 1, 2, 0, 1, 0],
    "end": [0, 0, 0, 0, 0, 0, 5],
    "all controls bound": [0, 3, 0, 0, 3, 0, 2],
    "more than the controls": [0, 0, 0, 4, 0, 0, 5],
}


@pytest.mark.parametrize("name", CASES)
def test_solution_is_that_of_the_dense_system(name):
    rng = np.random.default_rng(1)
    lq = random_problem(rng, 6, 5, 3, CASES[name])
    dx0 = lq.dx[0].copy()
    assert lq.factor(0.3) is None
    assert lq.solve() < 1e-9
    dx, du, lam, y = dense_solution(lq, dx0, shift=0.3)
    for own, dense in ((lq.dx, dx), (lq.du, du), (lq.lam, lam), (lq.y, y)):
        np.testing.assert_allclose(own, dense, atol=1e-8 * max(1.0, np.abs(dense).max(initial=0.0)))


def test_factors_are_reused_for_another_right_hand_side():
    rng = np.random.default_rng(2)
    lq = random_problem(rng, 6, 5, 3, CASES["controls"])
    lq.factor()
    lq.solve()
    for array in (lq.d, lq.q, lq.r, lq.e):
        array[...] = rng.normal(size=array.shape)
    lq.solve()
    dx, du, lam, y = dense_solution(lq, lq.dx[0].copy())
    for own, dense in ((lq.dx, dx), (lq.du, du), (lq.lam, lam), (lq.y, y)):
        np.testing.assert_allclose(own, dense, atol=1e-8 * max(1.0, np.abs(dense).max()))


def test_soft_dynamics_may_be_violated():
    rng = np.random.default_rng(3)
    lq = random_problem(rng, 6, 5, 3, CASES["none"])
    dx0 = lq.dx[0].copy()
    assert lq.factor(0.1, soft=0.7) is None
    lq.solve()
    dx, du, lam, _ = dense_solution(lq, dx0, soft=0.7, shift=0.1)
    for own, dense in ((lq.dx, dx), (lq.du, du), (lq.lam, lam)):
        np.testing.assert_allclose(own, dense, atol=1e-9 * max(1.0, np.abs(dense).max()))


def test_dependent_equations_are_accepted_and_contradictions_measured():
    rng = np.random.default_rng(4)
    lq = random_problem(rng, 6, 5, 3, [0, 0, 0, 4, 0, 0, 4])
    lq.C[4:], lq.D[4:], lq.e[4:] = lq.C[4:5], 0.0, lq.e[4:5]  # one equation at the end, four times
    lq.C[3], lq.D[3], lq.e[3] = lq.C[2] + lq.C[1], lq.D[2] + lq.D[1], lq.e[2] + lq.e[1]
    dx0 = lq.dx[0].copy()
    assert lq.factor() is None
    assert lq.solve() < 1e-9
    dx, du, lam, _ = dense_solution(lq, dx0)
    np.testing.assert_allclose(lq.dx, dx, atol=1e-9 * np.abs(dx).max())
    np.testing.assert_allclose(lq.du, du, atol=1e-9 * np.abs(du).max())
    np.testing.assert_allclose(lq.lam, lam, atol=1e-8 * np.abs(lam).max())
    lq.e[5] += 1.0
    assert lq.solve() > 1e-3


@pytest.mark.parametrize("seed", range(6))
def test_the_factored_matrix_is_positive_definite_on_the_null_space_of_the_equations(seed):
    """By inertia: the dense KKT matrix has one negative eigenvalue per equation, or the sweep returns the failing knot."""
    rng = np.random.default_rng(seed)
    lq = random_problem(rng, 4, 3, 2, [0, 1, 0, 1, 2], indefinite=seed % 2 == 1)
    shift = [0.0, 1.0, 5.0][seed % 3]
    failed = lq.factor(shift)
    N, n, m = lq.N, lq.n, lq.m
    size = (N + 1) * n + N * m
    rows = (N + 1) * n + len(lq.e)
    K = _kkt(lq, shift)
    assert (failed is None) == (int((np.linalg.eigvalsh(K) < 0).sum()) == rows), (size, failed)


def _kkt(lq, shift):
    N, n, m = lq.N, lq.n, lq.m
    w, size = n + m, (N + 1) * n + N * m
    H, J = shift * np.eye(size), np.zeros(((N + 1) * n + len(lq.e), size))
    for k in range(N + 1):
        z = slice(k * w, min((k + 1) * w, size))
        H[z, z] += np.block([[lq.Q[k], lq.S[k].T], [lq.S[k], lq.R[k]]]) if k < N else lq.Q[k]
        own = slice(lq.row[k], lq.row[k + 1])
        J[(N + 1) * n + own.start : (N + 1) * n + own.stop, z] = np.c_[lq.C[own], lq.D[own]] if k < N else lq.C[own]
        if k < N:
            J[k * n : (k + 1) * n, z] = np.c_[lq.A[k], lq.B[k]]
            J[k * n : (k + 1) * n, (k + 1) * w : (k + 1) * w + n] = -np.eye(n)
    J[N * n : (N + 1) * n, :n] = np.eye(n)
    return np.block([[H, J.T], [J, np.zeros((len(J), len(J)))]])


def test_nan_is_reported_as_a_failure():
    lq = random_problem(np.random.default_rng(5), 3, 3, 2, [0, 1, 0, 1])
    lq.R[1, 0, 0] = np.nan
    assert lq.factor() is not None
