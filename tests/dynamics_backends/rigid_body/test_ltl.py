"""The branch-sparse factorization against dense linear algebra."""

import casadi
import numpy as np
import pytest

from dynamics_backends.rigid_body.algorithms import ltl

N = 4
PARENTS = {
    "chain": list(range(-1, 7)),
    "star": [-1] + [0] * 7,
    "forest": [-1] * 8,
    "tree": [-1, 0, 1, 1, 3, 0, 5, 5],
    "random": [-1, *(int(np.random.default_rng(b).integers(-1, b)) for b in range(1, 12))],
}
each_tree = pytest.mark.parametrize("parents", PARENTS.values(), ids=PARENTS)


def branch_sparse(parents: list[int], seed: int) -> np.ndarray:
    """Symmetric positive definite matrices (n, n, N) with entries only between DoFs on one path."""
    rng, n = np.random.default_rng(seed), len(parents)
    M = np.zeros((n, n, N))
    for k in range(n):
        path, d = np.zeros(n, bool), k
        while d >= 0:
            path[d], d = True, parents[d]
        column = rng.standard_normal((n, N)) * path[:, None]
        M += column[:, None] * column[None]
        M[k, k] += 0.5
    return M


def lower_only(M: np.ndarray) -> np.ndarray:
    """The matrix with its upper triangle spoiled, which the factorization must not read."""
    spoiled = M.copy()
    spoiled[np.triu_indices(len(M), 1)] = np.nan
    return spoiled


def dense(M: np.ndarray) -> np.ndarray:
    return np.moveaxis(M, -1, 0)


@each_tree
def test_factors_multiply_to_the_matrix_and_keep_its_sparsity(parents):
    M = branch_sparse(parents, 0)
    f = ltl.factor(lower_only(M), parents)
    L, D = np.zeros((N, len(parents), len(parents))), np.zeros((N, len(parents), len(parents)))
    for k in range(len(parents)):
        assert set(f.L[k]) == set(f.ancestors[k])
        L[:, k, k], D[:, k, k] = 1.0, 1.0 / f.D_inverse[k]
        for i, entry in f.L[k].items():
            L[:, k, i] = entry
    assert np.allclose(L.transpose(0, 2, 1) @ D @ L, dense(M), atol=1e-13)


@each_tree
def test_solutions(parents):
    M, b = branch_sparse(parents, 1), np.random.default_rng(2).standard_normal((len(parents), N))
    x = np.stack(ltl.solve(ltl.factor(lower_only(M), parents), b))
    expected = np.linalg.solve(dense(M), b.T[:, :, None])[:, :, 0].T
    assert np.allclose(x, expected, rtol=1e-11, atol=1e-12)


@each_tree
def test_many_right_hand_sides(parents):
    M, b = branch_sparse(parents, 3), np.random.default_rng(4).standard_normal((len(parents), 5, N))
    before = b.copy()
    x = np.stack(ltl.solve(ltl.factor(M, parents), list(b)))
    expected = np.linalg.solve(dense(M), b.transpose(2, 0, 1)).transpose(1, 2, 0)
    assert np.allclose(x, expected, rtol=1e-11, atol=1e-12) and np.array_equal(b, before)


@each_tree
def test_complex_step_through_a_solution(parents):
    """d(M^-1 b) = M^-1 (db - dM M^-1 b), for a factorization without conjugation."""
    M, dM = branch_sparse(parents, 5), branch_sparse(parents, 6)
    b, db = np.random.default_rng(7).standard_normal((2, len(parents), N))
    x = np.stack(ltl.solve(ltl.factor(M + 1e-30j * dM, parents), b + 1e-30j * db))
    solution = np.linalg.solve(dense(M), b.T[:, :, None])
    slope = np.linalg.solve(dense(M), db.T[:, :, None] - dense(dM) @ solution)
    assert np.allclose(x.imag / 1e-30, slope[:, :, 0].T, rtol=1e-9, atol=1e-11)
    large = np.stack(ltl.solve(ltl.factor(M + 0.1j * dM, parents), b))
    assert np.allclose(np.einsum("ijn,jn->in", M + 0.1j * dM, large), b, atol=1e-11)


def test_symbols_and_nested_lists():
    parents = PARENTS["tree"]
    M, b = branch_sparse(parents, 8)[:, :, 0], np.random.default_rng(9).standard_normal(8)
    expected = np.linalg.solve(M, b)
    assert np.allclose(ltl.solve(ltl.factor(M.tolist(), parents), b.tolist()), expected, atol=1e-12)
    A, right = casadi.SX.sym("A", 8, 8), casadi.SX.sym("b", 8)
    nested = [[A[i, j] for j in range(8)] for i in range(8)]
    x = ltl.solve(ltl.factor(nested, parents), [right[i] for i in range(8)])
    value = casadi.Function("f", [A, right], [casadi.vertcat(*x)])(M, b)
    assert np.allclose(np.asarray(value)[:, 0], expected, atol=1e-12)


def test_small_dense_systems():
    rng = np.random.default_rng(10)
    root = rng.standard_normal((3, 3))
    A, b = root @ root.T + np.eye(3), rng.standard_normal(3)
    assert np.allclose(ltl.solve_dense(A, b), np.linalg.solve(A, b), atol=1e-13)


def test_ancestor_lists():
    assert ltl.ancestor_lists([-1, 0, 1, 0]) == [[], [0], [1, 0], [0]]
