"""Hessians by their stages against dense matrices, and what the Riccati method asks for."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import textbook_systems as textbook

from dynamics_backends.registry import make_backend
from trajopt import OCP, SampledSystem, control_cost, solve, state_bounds, state_cost
from trajopt.guesses.guesses import constant_guess
from trajopt.solvers.direct.direct_sqp import staged_program
from trajopt.solvers.direct.real_time_iteration import RealTimeIteration
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.options import SQPOptions
from trajopt.solvers.qp.newton import ActiveSetNewton
from trajopt.solvers.qp.qp import QP, QPStatus, StageLayout, kkt_residual, make_qp_solver
from trajopt.solvers.qp.stage_hessian import StageHessian, StagePlaces
from trajopt.solvers.sqp.convexify import convexified, penalized, shifted

N, n, m = 5, 3, 2
SIZE = N * (n + m) + n
IX = (n + m) * np.arange(N + 1)[:, None] + np.arange(n)
IU = (n + m) * np.arange(N)[:, None] + n + np.arange(m)


def _random(seed, shift=0.1):
    """Blocks of M M' + shift I, and the same as a dense matrix."""
    rng, blocks = np.random.default_rng(seed), np.zeros((N + 1, n + m, n + m))
    for k in range(N + 1):
        width = n + m if k < N else n
        M = rng.standard_normal((width, width))
        blocks[k, :width, :width] = M @ M.T + shift * np.eye(width)
    dense = np.zeros((SIZE, SIZE))
    for k in range(N + 1):
        own = np.r_[IX[k], IU[k]] if k < N else IX[k]
        dense[np.ix_(own, own)] = blocks[k, : len(own), : len(own)]
    return StageHessian(blocks, StagePlaces(IX, IU, SIZE)), dense


def _qp(seed, H):
    """An LQ problem with this Hessian, bounded controls, one inequality a stage, x_0 fixed."""
    rng = np.random.default_rng(100 + seed)
    rows, A, G = np.arange(N * n).reshape(N, n), np.zeros((N * n, SIZE)), np.zeros((N, SIZE))
    for k in range(N):
        A[np.ix_(rows[k], IX[k])] = np.eye(n) + 0.3 * rng.standard_normal((n, n))
        A[np.ix_(rows[k], IU[k])] = rng.standard_normal((n, m))
        A[np.ix_(rows[k], IX[k + 1])] = -np.eye(n)
        G[k, np.r_[IX[k], IU[k]]] = rng.standard_normal(n + m)
    d, lb, ub = rng.standard_normal(N * n), np.full(SIZE, -np.inf), np.full(SIZE, np.inf)
    lb[IU], ub[IU] = -2.0, 2.0
    lb[IX[0]] = ub[IX[0]] = 0.1 * rng.standard_normal(n)
    bounds = np.r_[d, np.full(N, -np.inf)], np.r_[d, np.full(N, 2.0)]
    layout = StageLayout(IX, IU, rows, np.zeros(0, dtype=int))
    return QP(H, rng.standard_normal(SIZE), sp.csc_matrix(np.vstack([A, G])), *bounds, lb, ub, layout)


def test_the_operations_of_an_sqp_method_are_those_of_the_matrix():
    (H, dense), (other, dense_other) = _random(0), _random(1)
    rng = np.random.default_rng(2)
    w, d, weights = rng.standard_normal(SIZE), rng.random(SIZE), rng.random(N)
    G = _qp(0, H).A.toarray()[N * n :]
    rows = H.places.rows(sp.csr_matrix(G))
    for found, expected in (
        (H, dense),
        (np.float64(0.3) * H + 0.7 * other, 0.3 * dense + 0.7 * dense_other),
        (H / np.float64(3.0), dense / 3.0),
        (H.plus_diagonal(d), dense + np.diag(d)),
        (H.plus_squares(rows, weights), dense + G.T @ np.diag(weights) @ G),
    ):
        np.testing.assert_allclose(found.assembled.toarray(), expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(found @ w, expected @ w, rtol=0, atol=1e-12)
        assert np.abs(found.data).max() == pytest.approx(np.abs(expected).max(), rel=1e-14)
    assert not rows.crossing.any()
    np.testing.assert_array_equal(H.assembled.toarray(), dense)


def test_a_sparse_matrix_is_taken_apart_unless_it_couples_stages():
    H, dense = _random(0)
    np.testing.assert_array_equal(H.places.taken_apart(sp.csc_matrix(dense)).blocks, H.blocks)
    dense[IX[0, 0], IX[1, 0]] = dense[IX[1, 0], IX[0, 0]] = 0.1
    assert H.places.taken_apart(sp.csc_matrix(dense)) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["interior_point", "osqp", "daqp", "riccati"])
def test_blocks_and_the_matrix_have_one_solution(name, seed):
    H, dense = _random(seed)
    blocks, matrix = (_qp(seed, given) for given in (H, sp.csc_matrix(dense)))
    by_blocks, by_matrix = (make_qp_solver(name).solve(qp) for qp in (blocks, matrix))
    assert by_blocks.status is QPStatus.SOLVED
    np.testing.assert_allclose(by_blocks.w, by_matrix.w, rtol=0, atol=1e-9)
    assert max(kkt_residual(matrix, by_blocks)) < 1e-7


def test_convexity_and_its_remedies_are_those_of_the_matrix():
    """An indefinite H, a row that crosses stages among those with a multiplier, and one within a stage."""
    H, dense = _random(0, shift=-1.5)
    qp, matrix = _qp(0, H), _qp(0, sp.csc_matrix(dense))
    across = sp.csc_matrix(np.eye(SIZE)[[IU[0, 0]]] + np.eye(SIZE)[[IU[2, 0]]])
    for solver in (make_qp_solver("interior_point"), make_qp_solver("riccati")):
        for delta in (0.0, 1.0, 5.0):
            assert solver.is_convex(shifted(qp, delta)) == solver.is_convex(shifted(matrix, delta))
    y, z = np.zeros(len(qp.l)), np.zeros(SIZE)
    y[-2:] = 10.0
    for more in (False, True):
        if more:
            added = {"l": np.r_[qp.l, -np.inf], "u": np.r_[qp.u, 1.0], "A": sp.vstack([qp.A, across], format="csc")}
            qp, matrix, y = replace(qp, **added), replace(matrix, **added), np.r_[y, 10.0]
        weights, upper = np.where(np.r_[y, z] > 0.0, 2.0, 0.0), np.ones(len(y) + SIZE, dtype=bool)
        found, expected = penalized(qp, weights, upper), penalized(matrix, weights, upper)
        assert isinstance(found.H, StageHessian) is not more
        np.testing.assert_allclose(found.sparse_H.toarray(), expected.H.toarray(), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found.g, expected.g)
        found, expected = (convexified(q, y, z, (make_qp_solver("interior_point"),)) for q in (qp, matrix))
        assert (found.delta, found.share) == (expected.delta, expected.share)
        np.testing.assert_allclose(found.qp.sparse_H.toarray(), expected.qp.H.toarray(), rtol=1e-12, atol=1e-12)


# -- what the Riccati method asks for -----------------------------------------------------------------------------------


def _pendulum(angle=0.2, limit=2.0):
    system = textbook.autonomous_pendulum()
    return OCP.single_phase(
        SampledSystem(make_backend(system, "forward_ad"), "rk4"),
        [angle, 0.0],
        20,
        0.1,
        [control_cost(1, weight=0.1)],
        [state_cost(system.manifold, [np.pi, 0.0], 100.0)],
        constraints=[state_bounds(system.manifold, [-np.inf, -limit], [np.inf, limit])],
        u_lower=[-6.0],
        u_upper=[6.0],
    )


@pytest.fixture
def no_sparse_hessian(monkeypatch):
    """Every assembly of a sparse H raises; Newton's method on the active set, which asks for one, is left out."""

    def refuse(self):
        raise AssertionError("a sparse Hessian was asked for")

    monkeypatch.setattr(ActiveSetNewton, "solve", lambda *_: None)
    monkeypatch.setattr(StagePlaces, "assembly", property(refuse))
    monkeypatch.setattr(Transcription, "_hessian", property(refuse))


def _guess():
    return constant_guess(_pendulum())


@pytest.mark.parametrize(("hessian", "angle", "limit"), [("scqp", 0.2, 2.0), ("exact", 2.8, 0.3)])
def test_the_riccati_method_asks_for_no_sparse_hessian(hessian, angle, limit, request):
    """The exact Hessian where it is convex along the dynamics; elsewhere the interior-point method is asked too."""
    ocp = _pendulum(angle, limit)
    reference = solve(ocp, options={"hessian": hessian}, solver="sqp")
    request.getfixturevalue("no_sparse_hessian")
    found = solve(ocp, options={"hessian": hessian, "qp_solver": "riccati"}, solver="sqp")
    assert reference.status.success and found.status.success
    assert found.cost == pytest.approx(reference.cost, rel=1e-8)
    assert found.xs[:, 1].max() == pytest.approx(limit, abs=1e-7)
    with pytest.raises(AssertionError, match="sparse Hessian"):
        solve(ocp, options={"hessian": hessian, "qp_solver": "interior_point"}, solver="sqp")


def test_real_time_iterations_by_riccati_ask_for_no_sparse_hessian(no_sparse_hessian):
    ocp, options = _pendulum(), SQPOptions(qp_solver="riccati")
    program = staged_program(ocp, _guess(), options)
    iteration, w = RealTimeIteration(program, options), program.variables(*_guess())
    for _ in range(8):
        iteration.prepare(w)
        last, found = w, iteration.feedback(ocp.x0)
        assert found.status is QPStatus.SOLVED
        w = found.w
    assert np.abs(w - last).max() < 1e-3
