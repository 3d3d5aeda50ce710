"""The LQ problem with equations at its knots, against dense solutions of its KKT system."""

import ctypes

import numpy as np
import pytest

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, kernels, lanes_in_use, structs_in
from trajopt.lq.equality_lq import TYPES, EqualityLQ


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
    lq = EqualityLQ(n, m, N, sum(counts), max(counts))
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


def test_another_right_hand_side_takes_the_same_factors():
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


def test_soft_dynamics_give_way():
    rng = np.random.default_rng(3)
    lq = random_problem(rng, 6, 5, 3, CASES["none"])
    dx0 = lq.dx[0].copy()
    assert lq.factor(0.1, soft=0.7) is None
    lq.solve()
    dx, du, lam, _ = dense_solution(lq, dx0, soft=0.7, shift=0.1)
    for own, dense in ((lq.dx, dx), (lq.du, du), (lq.lam, lam)):
        np.testing.assert_allclose(own, dense, atol=1e-9 * max(1.0, np.abs(dense).max()))


def test_dependent_equations_do_no_harm_and_contradictions_are_measured():
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
    """By inertia: the dense KKT matrix has as many negative eigenvalues as equations, or the sweep says where it fails."""
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


class SideBySide:
    """Sweep with a problem in each lane, starting at the knots ``first``, with the later knots known."""

    def __init__(self, problems, first, least=1):
        (Lane,) = structs_in(TYPES, "elq_lane")
        self.lanes = (Lane * len(problems))()
        for lane, (lq, k) in enumerate(zip(problems, first, strict=True)):
            for name in ("P", "K", "G"):
                lq.factors[name][: k + 1] = np.nan
            self.lanes[lane] = Lane(lq.parts[0], lq.parts[2], k, 7, 7)
        n, m = problems[0].n, problems[0].m
        library, most = kernels(len(problems)), problems[0].most
        room = aligned(bound(library, "elq_abreast_room", "iil", ctypes.c_long)(n, m, most))
        factor = bound(library, "elq_factor_abreast", "pip")
        factor(ctypes.addressof(self.lanes), min(least, len(problems) + 1), address(room))
        self.failed, self.left = ([getattr(lane, name) for lane in self.lanes] for name in ("failed", "left"))


def copied(lq):
    return {name: rows.copy() for name, rows in lq.factors.items()}


def assert_same_factors(lq, factors, done):
    """G: by its lower triangle, the factor."""
    for name in ("P", "K", "G"):
        own, other = (k[name][done] for k in (lq.factors, factors))
        if name == "G":
            own, other = (np.tril(g.reshape(-1, lq.m, lq.m)) for g in (own, other))
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("least", [1, 10**6])
def test_sweeps_side_by_side_are_those_alone(least):
    """Lanes begin at different knots, and two fail; the sweep stops when fewer than ``least`` lanes are active."""
    N, n, m, lanes = 9, 3, 2, lanes_in_use()
    rng = np.random.default_rng(4)
    alone, again, failed = [], [], []
    for lane in range(lanes):
        lq = random_problem(rng, N, n, m, [0] * (N + 1))
        if lane in (0, 1):
            lq.R[5 - 3 * lane] -= 50.0 * np.eye(m)
        failed.append(lq.factor(shift=0.1 * lane))
        alone.append(copied(lq))
        again.append(lq)
    assert failed[:2] == [5, 2][:lanes] and all(f is None for f in failed[2:])
    swept = SideBySide(again, [N - 1 - lane % 3 for lane in range(lanes)], least)
    for lane, lq in enumerate(again):
        got_failed, got_left = swept.failed[lane], swept.left[lane]
        assert (got_failed == -1) == (failed[lane] is None or least > 1)
        if least > 1:
            assert got_left == N - 3 if lanes > 2 else got_left >= N - 3  # where all have begun
            continue
        assert got_left == -1 and got_failed == (-1 if failed[lane] is None else failed[lane])
        assert_same_factors(lq, alone[lane], slice(got_failed + 1, N))


@pytest.mark.parametrize("name", CASES)
def test_sweeps_side_by_side_with_equations_solve_as_those_alone(name):
    """Pivots differ from problem to problem; the lanes begin at the last knot and at one before."""
    lanes, rng = lanes_in_use(), np.random.default_rng(7)
    problems = [random_problem(rng, 6, 5, 3, CASES[name]) for _ in range(lanes)]
    x0, solutions, factors = [], [], []
    for lq in problems:
        assert lq.factor() is None
        x0.append(lq.dx[0].copy())
        lq.solve()
        solutions.append([a.copy() for a in (lq.dx, lq.du, lq.lam, lq.y)])
        factors.append(copied(lq))
    swept = SideBySide(problems, [6 - lane % 2 for lane in range(lanes)])
    assert swept.failed == swept.left == [-1] * lanes
    for lq, start, solution, alone in zip(problems, x0, solutions, factors, strict=True):
        assert_same_factors(lq, alone, slice(0, 6))
        lq.dx[0] = start
        assert lq.solve() < 1e-9
        for own, other in zip((lq.dx, lq.du, lq.lam, lq.y), solution, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-8, atol=1e-8 * max(1.0, np.abs(other).max(initial=0.0)))


def test_lanes_with_another_rank_are_left_where_they_differ():
    """One problem has dependent equations, another one has fewer; the sweep deactivates both lanes there."""
    lanes, rng, N = lanes_in_use(), np.random.default_rng(8), 5
    if lanes < 4:
        pytest.skip("problems that differ take lanes beside those that do not")
    problems = [random_problem(rng, N, 4, 2, [0, 0, 0, 2, 0, 3]) for _ in range(lanes)]
    problems[1].C[1], problems[1].D[1] = 2.0 * problems[1].C[0], 2.0 * problems[1].D[0]
    problems[2].row[4:] -= 1
    rows = [problem.row.copy() for problem in problems]
    factors = []
    for lq in problems:
        assert lq.factor() is None
        factors.append(copied(lq))
    swept = SideBySide(problems, [N] * lanes)
    assert swept.failed == [-1] * lanes
    assert swept.left == [3 if lane in (1, 2) else -1 for lane in range(lanes)]
    for lane, (lq, alone) in enumerate(zip(problems, factors, strict=True)):
        np.testing.assert_array_equal(lq.row, rows[lane])
        assert_same_factors(lq, alone, slice(4 if lane in (1, 2) else 0, N))
