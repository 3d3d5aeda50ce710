"""Hessians and Jacobians by stages against dense matrices, and the requests of the Riccati method."""

import numpy as np
import pytest
from staged_qps import carried_qp, staged_qp, with_terminal_rows

from trajopt.solvers.qp.blocks.sparse_assembly import Assembly
from trajopt.solvers.qp.qp import QPStatus, kkt_residual, make_qp_solver
from trajopt.solvers.sqp.convexify import convexified, penalized, shifted
from trajopt.solvers.sqp.elastic import ElasticInteriorPoint, elastic


@pytest.mark.parametrize("make", [staged_qp, carried_qp])
def test_the_operations_of_an_sqp_method_are_those_of_the_matrix(make):
    qp, other = make(0), make(1)
    H, dense, dense_other = qp.H, qp.sparse_H.toarray(), other.sparse_H.toarray()
    rng, size = np.random.default_rng(2), len(qp.g)
    w, d = rng.standard_normal(size), rng.random(size)
    for found, expected in (
        (H, dense),
        (np.float64(0.3) * H + 0.7 * other.H, 0.3 * dense + 0.7 * dense_other),
        (H / np.float64(3.0), dense / 3.0),
        (H.plus_diagonal(d), dense + np.diag(d)),
        (H.plus(other.H.blocks), dense + dense_other),
    ):
        np.testing.assert_allclose(found.assembled.toarray(), expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(found @ w, expected @ w, rtol=0, atol=1e-12)
        if make is staged_qp:  # where controls are carried over, an entry is the sum of two
            assert np.abs(found.data).max() == pytest.approx(np.abs(expected).max(), rel=1e-14)


@pytest.mark.parametrize(
    "qp",
    [with_terminal_rows(staged_qp(0), np.arange(6.0).reshape(2, 3), [0.0, 0.0], [1.0, 1.0]), carried_qp(0)],
    ids=["two more rows at the end", "carried controls"],
)
def test_the_operations_of_an_sqp_method_are_those_of_the_jacobian(qp):
    J, dense, rng = qp.A, qp.sparse_A.toarray(), np.random.default_rng(2)
    assert J.shape == dense.shape
    w, y = rng.standard_normal(J.shape[1]), rng.standard_normal(J.shape[0])
    np.testing.assert_allclose(J @ w, dense @ w, rtol=0, atol=1e-13)
    np.testing.assert_allclose(y @ J, dense.T @ y, rtol=0, atol=1e-13)
    np.testing.assert_allclose(J.square_lengths(), (dense * dense).sum(axis=1), rtol=1e-14)
    np.testing.assert_allclose(J.absolute_transposed_product(y), np.abs(dense).T @ y, rtol=0, atol=1e-13)
    weights = rng.random(len(y))
    weights[J.places.dynamics] = 0.0
    squares = qp.H.plus(J.squares(weights)).assembled.toarray() - qp.sparse_H.toarray()
    np.testing.assert_allclose(squares, dense.T @ np.diag(weights) @ dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [staged_qp, carried_qp])
@pytest.mark.parametrize("name", ["interior_point", "osqp", "daqp"])
def test_blocks_and_the_matrix_have_one_solution(name, make, seed):
    qp = make(seed)
    by_blocks, by_matrix = make_qp_solver(name).solve(qp), make_qp_solver("interior_point").solve(qp.sparse)
    assert by_blocks.status is QPStatus.SOLVED
    np.testing.assert_allclose(by_blocks.w, by_matrix.w, rtol=0, atol=1e-9)
    assert max(kkt_residual(qp.sparse, by_blocks)) < 1e-7


@pytest.mark.parametrize("sides", ["first controls", "all controls", "one control"])
def test_fixed_controls_that_are_carried_over(sides):
    qp = carried_qp(3)
    fixed = qp.H.places.states[:, 3:]
    fixed = {"first controls": fixed[0], "all controls": fixed, "one control": fixed[4, 1]}[sides]
    qp.lb[fixed] = qp.ub[fixed] = 0.2
    qp.u[-6:] = np.inf
    by_blocks, by_matrix = make_qp_solver("interior_point").solve(qp), make_qp_solver("interior_point").solve(qp.sparse)
    assert by_blocks.status is by_matrix.status is QPStatus.SOLVED
    np.testing.assert_allclose(by_blocks.w, by_matrix.w, rtol=0, atol=1e-9)


def _contradictory(make, seed):
    """Two rows that no motion satisfies, in the same stage."""
    qp = make(seed)
    qp.A.G[2] = 0.0
    qp.u[len(qp.u) - 6 + 2] = -1.0
    return qp


@pytest.mark.parametrize("weight", [1e-2, 1.0, 1e4])
@pytest.mark.parametrize("make", [staged_qp, carried_qp])
def test_elastic_qps_have_solutions_where_rows_contradict_each_other(make, weight):
    """Slacks with the smallest sum satisfy inconsistent rows."""
    qp = _contradictory(make, 1)
    assert make_qp_solver("interior_point").solve(qp.sparse).status is QPStatus.INFEASIBLE
    whole = elastic(qp, weight)
    found = ElasticInteriorPoint().solve(whole)
    assert found.status is QPStatus.SOLVED
    assert max(kkt_residual(whole, found)) < 1e-8 * (1.0 + weight)
    n = len(qp.g)
    assert found.w[n:].sum() > 0.1


def test_convexity_and_its_remedies_are_those_of_the_matrix():
    """An indefinite H, and a row with a multiplier."""
    qp = staged_qp(0, shift=-1.5)
    matrix, solver, plain = qp.sparse, make_qp_solver("interior_point"), make_qp_solver("interior_point")
    for delta in (0.0, 1.0, 5.0):
        assert solver.is_convex(shifted(qp, delta)) == plain.is_convex(shifted(matrix, delta))
    y, z = np.zeros(len(qp.l)), np.zeros(len(qp.g))
    y[-2:] = 10.0
    weights, upper = np.where(np.r_[y, z] > 0.0, 2.0, 0.0), np.ones(len(y) + len(z), dtype=bool)
    found, expected = penalized(qp, weights, upper), penalized(matrix, weights, upper)
    np.testing.assert_allclose(found.sparse_H.toarray(), expected.H.toarray(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.g, expected.g, rtol=0, atol=1e-14)
    found = convexified(qp, y, z, (solver,))
    assert found.solver is solver and solver.is_convex(found.qp) and plain.is_convex(found.qp.sparse)


@pytest.mark.parametrize("twice", [False, True])
def test_the_entries_of_a_sparse_matrix_are_those_of_the_matrix(twice):
    """Blocks with a row that is nowhere and an empty column; entries at one place are added up."""
    rng = np.random.default_rng(4)
    places = [(np.array([[0, 2], [3, -1]]), np.array([[1, 4], [0, 2]]))] * (2 if twice else 1)
    blocks = [rng.standard_normal((2, 2, 2)) for _ in places]
    dense = np.zeros((4, 6))
    for (rows, columns), block in zip(places, blocks, strict=True):
        for k, i, j in np.ndindex(2, 2, 2):
            if rows[k, i] >= 0:
                dense[rows[k, i], columns[k, j]] += block[k, i, j]
    assembly = Assembly((4, 6), *((rows, columns, True) for rows, columns in places))
    np.testing.assert_allclose(assembly(blocks).toarray(), dense, rtol=0, atol=1e-15)
    np.testing.assert_allclose(assembly.values(blocks), dense[assembly.indices, assembly.columns], rtol=0, atol=1e-15)
    assert list(zip(assembly.indices, assembly.columns, strict=True)) == sorted(
        zip(*np.nonzero(dense.T)[::-1], strict=True), key=lambda p: p[::-1]
    )
