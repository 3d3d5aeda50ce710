"""QP solvers: optimality conditions, agreement with each other, and what they say of QPs without a solution."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from trajopt.solvers.qp.convexity import (
    _inertia_is_right,
    convex_along_dynamics,
    convex_on_equalities,
    positive_definite,
)
from trajopt.solvers.qp.newton import ActiveSetNewton
from trajopt.solvers.qp.osqp_solver import COARSE
from trajopt.solvers.qp.qp import QP, QP_SOLVERS, QPSolution, QPStatus, StageLayout, kkt_residual, make_qp_solver
from trajopt.solvers.qp.riccati_kkt import UnstructuredQP
from trajopt.solvers.qp.sparse_kkt import SparseKKT, pattern_of
from trajopt.solvers.sqp.convexify import convexified

GENERAL = ["interior_point", "osqp", "daqp"]
RESIDUAL = 1e-10


def _random_qp(seed, n=20, equal=5, unequal=15):
    """Feasible by construction; bounds on one side, both sides, and none."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.3)
    A = rng.standard_normal((equal + unequal, n)) * (rng.random((equal + unequal, n)) < 0.4)
    w = rng.standard_normal(n)
    l, u = A @ w, A @ w
    l[equal:] -= 2.0 * rng.random(unequal)
    u[equal:] += 2.0 * rng.random(unequal)
    l[equal : equal + 3], u[equal + 3 : equal + 6] = -np.inf, np.inf
    lb, ub = w - rng.random(n), w + rng.random(n)
    lb[:4], ub[2:6] = -np.inf, np.inf
    return QP(sp.csc_matrix(M @ M.T + 0.1 * np.eye(n)), 3.0 * rng.standard_normal(n), sp.csc_matrix(A), l, u, lb, ub)


def _staged_qp(seed, N=6, n=3, m=2, limit=0.5, hold=False, sign=-1.0):
    """An LQ problem with bounds on controls, one inequality a stage, x_0 fixed."""
    rng, width = np.random.default_rng(seed), n + m
    ix, iu = width * np.arange(N + 1)[:, None] + np.arange(n), width * np.arange(N)[:, None] + n + np.arange(m)
    size, rows = N * width + n, np.arange(N * n).reshape(N, n)
    blocks = [rng.standard_normal((s, s)) for s in [width] * N + [n]]
    H = sp.block_diag([M @ M.T + 0.1 * np.eye(len(M)) for M in blocks], format="csc")
    A, G = np.zeros((N * n, size)), np.zeros((N, size))
    for k in range(N):
        A[np.ix_(rows[k], ix[k])] = -sign * (np.eye(n) + 0.3 * rng.standard_normal((n, n)))
        A[np.ix_(rows[k], iu[k])] = -sign * rng.standard_normal((n, m))
        A[np.ix_(rows[k], ix[k + 1])] = sign * np.eye(n)
        G[k, iu[k]] = rng.standard_normal(m)
    d = rng.standard_normal(N * n)
    lb, ub = np.full(size, -np.inf), np.full(size, np.inf)
    lb[iu], ub[iu] = -1.0, 1.5
    lb[ix[0]] = ub[ix[0]] = rng.standard_normal(n)
    if hold:
        lb[iu[:, 0]] = ub[iu[:, 0]] = 0.3
    bounds = np.r_[d, np.full(N, -np.inf)], np.r_[d, np.full(N, limit)]
    layout = StageLayout(ix, iu, rows, np.zeros(0, dtype=int))
    return QP(H, rng.standard_normal(size), sp.csc_matrix(np.vstack([A, G])), *bounds, lb, ub, layout)


def _appended(qp, row, l, u):
    return replace(qp, A=sp.vstack([qp.A, row], format="csc"), l=np.r_[qp.l, l], u=np.r_[qp.u, u])


# -- solutions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", GENERAL)
def test_optimality_conditions(name, seed):
    qp = _random_qp(seed)
    found = make_qp_solver(name).solve(qp)
    assert found.status is QPStatus.SOLVED
    assert max(kkt_residual(qp, found)) < RESIDUAL


@pytest.mark.parametrize("seed", range(3))
def test_all_solvers_agree_on_a_staged_problem(seed):
    qp = _staged_qp(seed, hold=seed == 2, sign=1.0 if seed == 1 else -1.0)
    found = {name: make_qp_solver(name).solve(qp) for name in (*GENERAL, "riccati")}
    assert (np.abs(found["riccati"].y[-6:]) > 1e-3).any()  # a path inequality is active, and a bound
    assert (np.abs(found["riccati"].z[6:]) > 1e-3).any() or seed == 0
    for solution in found.values():
        assert solution.status is QPStatus.SOLVED
        assert max(kkt_residual(qp, solution)) < RESIDUAL
        np.testing.assert_allclose(solution.w, found["daqp"].w, rtol=0, atol=1e-9)
        np.testing.assert_allclose(solution.y, found["daqp"].y, rtol=0, atol=1e-8)


def test_initial_state_by_rows_instead_of_bounds():
    qp = _staged_qp(3)
    states, x0 = qp.layout.states[0], qp.lb[qp.layout.states[0]]
    rows = -np.eye(len(qp.g))[states]
    lb, ub = qp.lb.copy(), qp.ub.copy()
    lb[states], ub[states] = -np.inf, np.inf
    other = replace(_appended(qp, sp.csc_matrix(rows), -x0, -x0), lb=lb, ub=ub)
    other = replace(other, layout=qp.layout._replace(initial=np.arange(len(qp.l), len(other.l))))
    by_bounds, by_rows = (make_qp_solver("riccati").solve(q) for q in (qp, other))
    np.testing.assert_allclose(by_rows.w, by_bounds.w, rtol=0, atol=1e-10)
    np.testing.assert_allclose(by_rows.y[len(qp.l) :], -by_bounds.z[states], rtol=0, atol=1e-8)
    assert max(kkt_residual(other, by_rows)) < RESIDUAL


@pytest.mark.parametrize("seed", range(6))
def test_qrqp_is_right_or_says_that_it_is_not(seed):
    qp = _random_qp(seed)
    found = make_qp_solver("qrqp").solve(qp)
    assert (found.status is QPStatus.SOLVED) == (max(kkt_residual(qp, found)) < RESIDUAL)


def test_qrqp_takes_over_from_a_neighbor():
    qp = _random_qp(1)
    start = make_qp_solver("daqp").solve(qp)
    near = replace(qp, g=qp.g * 1.001)
    found = make_qp_solver("qrqp").solve(near, start)
    assert found.status is QPStatus.SOLVED
    assert found.iterations < 10


@pytest.mark.parametrize("name", ["interior_point", "osqp"])
def test_redundant_rows(name):
    qp = _random_qp(1)
    doubled = _appended(qp, qp.A[:2], qp.l[:2], qp.u[:2])
    found, plain = make_qp_solver(name).solve(doubled), make_qp_solver(name).solve(qp)
    assert found.status is QPStatus.SOLVED
    assert max(kkt_residual(doubled, found)) < RESIDUAL
    np.testing.assert_allclose(found.w, plain.w, rtol=0, atol=1e-9)


def test_osqp_starts_from_a_solution_and_updates_its_numbers():
    qp = _random_qp(2)
    solver = make_qp_solver("osqp")
    first = solver.solve(qp)
    again = solver.solve(qp, first)
    assert again.iterations < first.iterations
    other = replace(qp, H=qp.H * 2.0, g=-qp.g, A=qp.A * 0.5)
    found = solver.solve(other)
    assert (found.status is QPStatus.INFEASIBLE) or max(kkt_residual(other, found)) < RESIDUAL
    fresh = make_qp_solver("osqp").solve(other)
    assert fresh.status is found.status


def test_osqp_coarse_is_coarser_and_cheaper():
    qp = _random_qp(0)
    coarse, tight = make_qp_solver("osqp", **COARSE).solve(qp), make_qp_solver("osqp").solve(qp)
    assert coarse.iterations < tight.iterations
    assert 1e-2 > max(kkt_residual(qp, coarse)) > RESIDUAL


def test_multipliers_are_sensitivities():
    """d value / d u of an active row is -y (the envelope theorem)."""
    qp = _random_qp(4)
    found = make_qp_solver("daqp").solve(qp)
    i = int(np.argmax(found.y[5:])) + 5
    assert found.y[i] > 0.1
    moved = qp.u + 1e-4 * (np.arange(len(qp.u)) == i)
    change = qp.value(make_qp_solver("daqp").solve(replace(qp, u=moved)).w) - qp.value(found.w)
    assert change / 1e-4 == pytest.approx(-found.y[i], rel=1e-2)


# -- no solution --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["interior_point", "osqp"])
@pytest.mark.parametrize("seed", range(3))
def test_contradictory_rows(name, seed):
    qp = _random_qp(seed)
    equal = _appended(qp, qp.A[0], qp.l[0] + 1.0, qp.u[0] + 1.0)
    beyond = _appended(qp, qp.A[0], qp.l[0] + 1.0, np.inf)
    for contradiction in (equal, beyond):
        assert make_qp_solver(name).solve(contradiction).status is QPStatus.INFEASIBLE


@pytest.mark.parametrize("name", QP_SOLVERS)
def test_crossed_bounds(name):
    qp = _staged_qp(0)
    lb = qp.lb.copy()
    lb[qp.layout.controls[0, 0]] = 2.0
    assert make_qp_solver(name).solve(replace(qp, lb=lb)).status is QPStatus.INFEASIBLE


def test_riccati_finds_state_bounds_out_of_reach():
    qp = _staged_qp(1)
    last = qp.layout.states[-1]
    lb = qp.lb.copy()
    lb[last] = 1e3
    assert make_qp_solver("riccati").solve(replace(qp, lb=lb)).status is QPStatus.INFEASIBLE


@pytest.mark.parametrize("name", ["interior_point", "osqp"])
def test_unbounded(name):
    qp = _random_qp(0)
    free = np.full(20, np.inf)
    flat = QP(0.0 * qp.H, qp.g, qp.A[:3], qp.l[:3], qp.u[:3], -free, free)
    assert make_qp_solver(name).solve(flat).status is QPStatus.UNBOUNDED


def test_iteration_limit_is_told():
    assert make_qp_solver("interior_point", max_iterations=2).solve(_random_qp(0)).status is QPStatus.MAX_ITERATIONS


def test_unknown_solver_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'osqp'"):
        make_qp_solver("osqb")


# -- structure ----------------------------------------------------------------------------------------------------------


def test_riccati_refuses_what_it_cannot_honor():
    qp, solver = _staged_qp(0), make_qp_solver("riccati")
    N, one = len(qp.layout.controls), sp.csc_matrix(np.eye(len(qp.g))[:1])
    with pytest.raises(UnstructuredQP, match="no stages"):
        solver.solve(replace(qp, layout=None))
    with pytest.raises(UnstructuredQP, match="equality") as caught:
        solver.solve(_appended(qp, one, 0.0, 0.0))
    assert caught.value.row == len(qp.l)
    across = sp.csc_matrix(np.eye(len(qp.g))[[0]] + np.eye(len(qp.g))[[10]])
    with pytest.raises(UnstructuredQP, match="several knots"):
        solver.solve(_appended(qp, across, 0.0, 1.0))
    lb, ub = qp.lb.copy(), qp.ub.copy()
    lb[qp.layout.states[N]] = ub[qp.layout.states[N]] = 0.0
    with pytest.raises(UnstructuredQP, match="fixed"):
        solver.solve(replace(qp, lb=lb, ub=ub))
    coupled = qp.H.tolil()
    coupled[0, 10] = coupled[10, 0] = 0.1
    with pytest.raises(UnstructuredQP, match="couples stages"):
        solver.solve(replace(qp, H=coupled.tocsc()))


def test_convexity_along_the_dynamics_is_that_of_the_reduced_hessian():
    """Both tests against the eigenvalues of Z'HZ, with Z by SVD."""
    for shift in (0.0, 0.5, 5.0, 50.0):
        qp = _staged_qp(0)
        qp = replace(qp, H=sp.csc_matrix(qp.H - shift * sp.identity(len(qp.g))))
        fixed = np.eye(len(qp.g))[qp.lb == qp.ub]
        E = np.vstack([qp.A.toarray()[qp.l == qp.u], fixed])
        Z = np.linalg.svd(E)[2][len(E) :].T
        expected = np.linalg.eigvalsh(Z.T @ qp.H.toarray() @ Z).min() > 0.0
        assert convex_along_dynamics(qp) == expected
        assert convex_on_equalities(replace(qp, layout=None)) == expected
        assert _inertia_is_right(qp.H, sp.csr_matrix(E)) == expected
    assert not positive_definite(qp.H)


def test_large_sparse_matrices_are_told_apart():
    n = 400
    chain = sp.diags([-np.ones(n - 1), 2.0 * np.ones(n), -np.ones(n - 1)], [-1, 0, 1], format="csc")
    assert positive_definite(chain)  # the smallest eigenvalue is 6e-5
    assert not positive_definite(chain - 1e-4 * sp.identity(n, format="csc"))


@pytest.mark.parametrize("name", ["osqp", "daqp"])
def test_convexified_problem_has_the_same_solution(name):
    """Indefinite on the whole space, convex on the null space of an equality and an active inequality."""
    H = sp.csc_matrix(np.diag([1.0, -2.0, -1.0]))
    A = sp.csc_matrix(np.array([[0.0, 1.0, 0.5], [0.0, 0.0, 1.0]]))
    free = np.full(3, np.inf)
    qp = QP(H, np.array([1.0, 0.5, 5.0]), A, np.array([1.0, -1.0]), np.array([1.0, np.inf]), -free, free)
    # by hand: w3 = -1, w2 = 1.5, w1 = -1; H w + g + A'y = 0
    y2 = -(-2.0 * 1.5 + 0.5)
    exact = QPSolution(
        np.array([-1.0, 1.5, -1.0]), np.array([y2, -(1.0 + 5.0) - 0.5 * y2]), np.zeros(3), QPStatus.SOLVED
    )
    assert max(kkt_residual(qp, exact)) < 1e-15
    solver = make_qp_solver(name)
    near = replace(qp, l=np.array([1.0, -1.0]))
    convex = convexified(near, exact.y, exact.z, (solver,))
    assert convex.delta == 0.0
    found = solver.solve(convex.qp)
    np.testing.assert_allclose(found.w, exact.w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.y, exact.y, rtol=0, atol=1e-8)


# -- from a neighbor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_newton_on_the_active_set_of_a_neighbor(seed):
    qp = _staged_qp(seed)
    first = make_qp_solver("interior_point").solve(qp)
    near = replace(qp, g=qp.g + 1e-2 * np.random.default_rng(seed).standard_normal(len(qp.g)))
    found = ActiveSetNewton().solve(near, first.y, first.z)
    assert found is not None
    assert found.iterations <= 4
    assert max(kkt_residual(near, found)) < 1e-9
    np.testing.assert_allclose(found.w, make_qp_solver("interior_point").solve(near).w, atol=1e-8)


def test_newton_resolves_controls_that_weigh_far_less_than_states():
    """x = u_1 + u_2, where only their own weight tells u_1 from u_2: a shift of the states' scale would exceed it tenfold."""
    state, control = 1e4, 1e-6
    H, g = sp.diags([state, control, control], format="csc"), np.array([-state, control, -control])
    free = np.full(3, np.inf)
    qp = QP(H, g, sp.csc_matrix([[1.0, -1.0, -1.0]]), np.zeros(1), np.zeros(1), -free, free)
    found = ActiveSetNewton().solve(qp, np.zeros(1), np.zeros(3))
    assert found is not None
    x = state / (state + 0.5 * control)
    np.testing.assert_allclose(found.w, [x, 0.5 * x - 1.0, 0.5 * x + 1.0], rtol=0, atol=1e-12)


def test_newton_without_a_guess_is_right_or_says_nothing():
    answers = 0
    for seed in range(10):
        qp = _staged_qp(seed)
        found = ActiveSetNewton().solve(qp, np.zeros_like(qp.l), np.zeros_like(qp.g))
        answers += found is not None
        assert found is None or max(kkt_residual(qp, found)) < 1e-9
    assert answers > 0


def test_newton_does_not_answer_contradictory_bounds():
    qp = _staged_qp(0)
    assert ActiveSetNewton().solve(replace(qp, lb=qp.ub + 1.0), np.zeros_like(qp.l), np.zeros_like(qp.g)) is None


def test_one_analysis_serves_matrices_of_one_pattern_and_another_pattern_is_noticed():
    assert pattern_of(_staged_qp(0)) is pattern_of(_staged_qp(1)) is not pattern_of(_staged_qp(0, n=4))
    rng = np.random.default_rng(0)
    for qp in (_staged_qp(0), _staged_qp(1), _staged_qp(0, hold=True), _staged_qp(2)):
        system = SparseKKT(qp)
        for scale in (1.0, 1e3):
            m, n = qp.A.shape
            weights = np.where(np.r_[qp.l == qp.u, qp.lb == qp.ub], np.inf, scale)
            weights[np.r_[np.zeros(m, dtype=bool), ~np.isfinite(qp.lb)]] = 0.0
            assert system.factorize(weights)
            a, b = rng.standard_normal(n), rng.standard_normal(m + n)
            dw, dC = system.solve(a, b)
            on = weights > 0.0
            np.testing.assert_allclose(qp.H @ dw + qp.A.T @ dC[:m] + dC[m:], a, atol=1e-8)
            left = np.r_[qp.A @ dw, dw] - dC / np.where(on, weights, 1.0)
            np.testing.assert_allclose(left[on], b[on], atol=1e-8)


def test_a_second_semidefinite_hessian_makes_convex_without_regard_to_units():
    """Two variables in very different units, one with negative curvature; H_0 is the curvature with its sign changed."""
    H = sp.diags([1e3, -1e-3], format="csc")
    nothing = np.zeros(0)
    qp = QP(H, np.ones(2), sp.csc_matrix((0, 2)), nothing, nothing, np.full(2, -np.inf), np.full(2, np.inf))
    none = np.zeros(0), np.zeros(2)
    found = convexified(qp, *none, (make_qp_solver("interior_point"),), semidefinite=lambda: abs(H))
    assert found.share == 0.25
    np.testing.assert_allclose(found.qp.H.toarray(), np.diag([1e3, 0.5e-3]))
