"""QP solvers: optimality conditions, agreement with each other, and statuses of QPs without a solution."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from staged_qps import staged_qp, with_terminal_rows

import trajopt as to
from trajopt.solvers.qp import casadi_qp, newton
from trajopt.solvers.qp.convexity import _inertia_is_right, convex_on_equalities, positive_definite
from trajopt.solvers.qp.newton import active_set_newton
from trajopt.solvers.qp.polishing import polished
from trajopt.solvers.qp.qp import QP, QP_SOLVERS, QPSolution, QPStatus, kkt_residual, make_qp_solver
from trajopt.solvers.sqp.convexify import Convexified, convexified, penalized

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


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_all_solvers_agree_on_a_staged_problem(seed):
    qp = staged_qp(seed, hold=seed == 2)
    found = {name: make_qp_solver(name).solve(qp) for name in GENERAL}
    assert (np.abs(found["interior_point"].y[-6:]) > 1e-3).any()  # a path inequality is active, and a bound
    assert (np.abs(found["interior_point"].z[6:]) > 1e-3).any()
    for solution in found.values():
        assert solution.status is QPStatus.SOLVED
        assert max(kkt_residual(qp, solution)) < RESIDUAL
        np.testing.assert_allclose(solution.w, found["daqp"].w, rtol=0, atol=1e-9)
        np.testing.assert_allclose(solution.y, found["daqp"].y, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_equalities_at_the_end_and_a_free_first_state(seed):
    """A fixed part of x_N, a row across it, and half of x_0 left free, against an active-set method."""
    qp = with_terminal_rows(staged_qp(seed), np.array([[0.0, 1.0, -2.0]]), [0.4], [0.4])
    places = qp.H.places
    lb, ub = qp.lb.copy(), qp.ub.copy()
    lb[places.states[-1, 0]] = ub[places.states[-1, 0]] = 0.2
    lb[places.states[0, 1:]], ub[places.states[0, 1:]] = -np.inf, np.inf
    qp = replace(qp, lb=lb, ub=ub)
    found, expected = (make_qp_solver(name).solve(qp) for name in ("interior_point", "daqp"))
    assert found.status is expected.status is QPStatus.SOLVED
    assert max(kkt_residual(qp, found)) < RESIDUAL
    np.testing.assert_allclose(found.w, expected.w, rtol=0, atol=1e-9)
    assert abs(found.y[-1]) > 1e-3


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
    other = replace(qp, H=qp.H * 2.0, g=-qp.g, A=qp.A * 0.5, l=qp.l * 0.5, u=qp.u * 0.5)
    found = solver.solve(other)
    assert found.status is QPStatus.SOLVED and max(kkt_residual(other, found)) < RESIDUAL
    infeasible = replace(qp, A=qp.A * 0.5)
    for osqp in (solver, make_qp_solver("osqp")):
        assert osqp.solve(infeasible).status is QPStatus.INFEASIBLE


def test_multipliers_are_sensitivities():
    """d value / d u of an active row is -y (the envelope theorem)."""
    qp = _random_qp(4)
    found = make_qp_solver("daqp").solve(qp)

    def value(w):
        return w @ (0.5 * (qp.H @ w) + qp.g)

    i = int(np.argmax(found.y[5:])) + 5
    assert found.y[i] > 0.1
    moved = qp.u + 1e-4 * (np.arange(len(qp.u)) == i)
    change = value(make_qp_solver("daqp").solve(replace(qp, u=moved)).w) - value(found.w)
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
    qp = staged_qp(0)
    lb = qp.lb.copy()
    lb[qp.H.places.controls[0, 0]] = 2.0
    assert make_qp_solver(name).solve(replace(qp, lb=lb)).status is QPStatus.INFEASIBLE


def test_state_bounds_out_of_reach_are_infeasible():
    qp = staged_qp(1)
    last = qp.H.places.states[-1]
    lb = qp.lb.copy()
    lb[last] = 1e3
    assert make_qp_solver("interior_point").solve(replace(qp, lb=lb)).status is QPStatus.INFEASIBLE


@pytest.mark.parametrize("name", ["interior_point", "osqp"])
def test_unbounded(name):
    qp = _random_qp(0)
    free = np.full(20, np.inf)
    flat = QP(0.0 * qp.H, qp.g, qp.A[:3], qp.l[:3], qp.u[:3], -free, free)
    assert make_qp_solver(name).solve(flat).status is QPStatus.UNBOUNDED


def test_rows_without_bounds_have_no_effect(capfd):
    qp = _random_qp(0)
    free = replace(qp, A=sp.vstack([qp.A[:1], qp.A], format="csc"), l=np.r_[-np.inf, qp.l], u=np.r_[np.inf, qp.u])
    found, expected = (make_qp_solver("interior_point").solve(same) for same in (free, qp))
    np.testing.assert_allclose(found.w, expected.w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.y, np.r_[0.0, expected.y], rtol=0, atol=1e-7)
    assert capfd.readouterr() == ("", "")


def test_a_feasible_qp_with_a_distant_solution_is_not_infeasible():
    """w = (-5e6, 5e6); PIQP reports "primal infeasible"."""
    row, goal, free = sp.csc_matrix([[1e-6, 1e-6]]), np.array([1e-7]), np.full(2, np.inf)
    qp = QP(1e-3 * sp.identity(2, format="csc"), np.array([1e4, 0.0]), row, goal, goal, -free, free)
    assert make_qp_solver("interior_point").solve(qp).status is not QPStatus.INFEASIBLE


def test_iteration_limit_is_reported(monkeypatch):
    monkeypatch.setitem(casadi_qp.SETTINGS["piqp"]["piqp"], "max_iter", 2)
    assert make_qp_solver("interior_point").solve(_random_qp(0)).status is QPStatus.MAX_ITERATIONS


def test_unknown_solver_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'osqp'"):
        make_qp_solver("osqb")


# -- structure ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1])
def test_convexity_by_a_sweep_is_that_of_the_reduced_hessian(rows):
    """All tests against the eigenvalues of Z'HZ, with Z by SVD, without and with an equality at the end."""
    seen = set()
    for shift in (0.0, 0.5, 5.0, 50.0):
        qp = staged_qp(0)
        qp = replace(qp, H=qp.H.plus_diagonal(np.full(len(qp.g), -shift)))
        qp = with_terminal_rows(qp, np.ones((1, 3)), [0.4], [0.4]) if rows else qp
        matrices = qp.sparse
        fixed = np.eye(len(qp.g))[qp.lb == qp.ub]
        E = np.vstack([matrices.A.toarray()[qp.l == qp.u], fixed])
        Z = np.linalg.svd(E)[2][len(E) :].T
        expected = np.linalg.eigvalsh(Z.T @ matrices.H.toarray() @ Z).min() > 0.0
        seen.add(expected)
        assert convex_on_equalities(qp) == expected
        assert convex_on_equalities(matrices) == expected
        assert _inertia_is_right(matrices.H, sp.csr_matrix(E)) == expected
    assert seen == {True, False}
    assert not positive_definite(matrices.H)


def test_definite_and_indefinite_sparse_matrices_are_distinguished():
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


def test_multipliers_without_the_penalty_satisfy_the_original_stationarity():
    """One equality, and an inequality that counts as active though the solution is inside: w2 = 0.2 by hand."""
    H, A, free = (
        sp.csc_matrix(np.diag([1.0, 5.0])),
        sp.csc_matrix(np.array([[1.0, 0.0], [0.0, 1.0]])),
        np.full(2, np.inf),
    )
    qp = QP(H, np.array([0.5, -1.0]), A, np.array([2.0, 0.0]), np.array([2.0, np.inf]), -free, free)
    weights = np.array([3.0, 1e-3, 0.0, 0.0])
    convex = Convexified(
        penalized(qp, weights, np.zeros(4) > 0.0), make_qp_solver("daqp"), 0.0, weights, np.zeros(4) > 0.0
    )
    found = convex.solver.solve(convex.qp)
    corrected = convex.unpenalized(found)
    np.testing.assert_allclose(found.w, [2.0, 1.0 / 5.001], rtol=0, atol=1e-9)
    np.testing.assert_allclose(corrected.y, [-2.5, 1e-3 / 5.001], rtol=0, atol=1e-8)
    assert kkt_residual(qp, corrected).stationarity < 1e-9 < 1e-4 < kkt_residual(qp, found).stationarity


# -- from a neighbor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_stages", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_newton_on_the_active_set_of_a_neighbor(seed, by_stages):
    qp = staged_qp(seed) if by_stages else staged_qp(seed).sparse
    first = make_qp_solver("interior_point").solve(qp)
    near = replace(qp, g=qp.g + 1e-2 * np.random.default_rng(seed).standard_normal(len(qp.g)))
    found = active_set_newton(near, first.y, first.z)
    assert found is not None
    assert found.iterations <= 4
    assert max(kkt_residual(near, found)) < 1e-9
    np.testing.assert_allclose(found.w, make_qp_solver("interior_point").solve(near).w, atol=1e-8)


@pytest.mark.parametrize("name", ["interior_point", "osqp", "daqp"])
def test_controls_that_weigh_far_less_than_states_are_resolved(name):
    """x = u_1 + u_2: only small weights distinguish u_1 from u_2, and a shift at the scale of the states is ten times larger."""
    state, control = 1e4, 1e-6
    H, g = sp.diags([state, control, control], format="csc"), np.array([-state, control, -control])
    free = np.full(3, np.inf)
    qp = QP(H, g, sp.csc_matrix([[1.0, -1.0, -1.0]]), np.zeros(1), np.zeros(1), -free, free)
    found = polished(qp, make_qp_solver(name).solve(qp))
    x = state / (state + 0.5 * control)
    np.testing.assert_allclose(found.w, [x, 0.5 * x - 1.0, 0.5 * x + 1.0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("by_stages", [False, True])
def test_newton_without_a_guess_is_right_or_says_nothing(by_stages):
    answers = 0
    for seed in range(10):
        qp = staged_qp(seed) if by_stages else staged_qp(seed).sparse
        found = active_set_newton(qp, np.zeros_like(qp.l), np.zeros_like(qp.g))
        answers += found is not None
        assert found is None or max(kkt_residual(qp, found)) < 1e-9
    assert answers > 0


def test_newton_does_not_answer_contradictory_bounds():
    qp = staged_qp(0)
    assert active_set_newton(replace(qp, lb=qp.ub + 1.0), np.zeros_like(qp.l), np.zeros_like(qp.g)) is None


def test_newton_ends_at_the_second_contradictory_active_set(monkeypatch):
    """A mass within a disc that it must avoid from the first knot on."""
    sets, solve = [], newton.solved_equations
    monkeypatch.setattr(newton, "solved_equations", lambda *args: sets.append(args[1]) or solve(*args))
    mass = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2, second_order=True), "rk4")
    disc = to.residual_constraint("disc", lambda x, u, t, p: [(x[0] - 0.05) ** 2 + x[1] ** 2], 4, 1, lower=0.09)
    costs = [to.control_cost(2, weight=0.01), to.state_cost(4, [1.0, 0.0, 0.0, 0.0])]
    ocp = to.OCP.single_phase(mass, np.zeros(4), 10, 0.1, costs, constraints=[disc], u_lower=-2.0, u_upper=2.0)
    assert to.solve(ocp, solver="sqp", check=False).status.code is to.StatusCode.LOCALLY_INFEASIBLE
    assert len(sets) < 10  # 15 without this end


def test_polishing_by_stages_and_by_sparse_factors_agrees():
    """From a solution with errors of 1e-6, also with a row that is there twice."""
    rng = np.random.default_rng(0)
    for seed in range(4):
        qp = staged_qp(seed)
        exact = make_qp_solver("daqp").solve(qp)
        rough = exact._replace(w=exact.w + 1e-6 * rng.standard_normal(len(exact.w)))
        for same in (qp, qp.sparse):
            found = polished(same, rough)
            np.testing.assert_allclose(found.w, exact.w, rtol=0, atol=1e-9)
        twice = replace(qp.sparse, A=sp.vstack([qp.sparse_A, qp.sparse_A[:1]], format="csc"))
        twice = replace(twice, l=np.append(qp.l, qp.l[0]), u=np.append(qp.u, qp.u[0]))
        found = polished(twice, rough._replace(y=np.append(rough.y, 0.0)))
        np.testing.assert_allclose(found.w, exact.w, rtol=0, atol=1e-9)


def test_a_second_semidefinite_hessian_makes_convex_without_regard_to_units():
    """Two variables in very different units, one with negative curvature; H_0 is the curvature with its sign changed."""
    H = sp.diags([1e3, -1e-3], format="csc")
    nothing = np.zeros(0)
    qp = QP(H, np.ones(2), sp.csc_matrix((0, 2)), nothing, nothing, np.full(2, -np.inf), np.full(2, np.inf))
    none = np.zeros(0), np.zeros(2)
    found = convexified(qp, *none, (make_qp_solver("interior_point"),), semidefinite=lambda: abs(H))
    assert found.fraction == 0.25
    np.testing.assert_allclose(found.qp.H.toarray(), np.diag([1e3, 0.5e-3]))


@pytest.mark.parametrize(("curvature", "mixed"), [(2.0, True), (0.0, False)])
def test_a_second_hessian_without_curvature_is_not_mixed_in(curvature, mixed):
    """The Hessian of a terminal objective is zero in the controls; QPs with it have their solutions at bounds."""
    H, infinite = sp.csc_matrix(np.diag([-1.0, 1.0])), np.full(2, np.inf)
    qp = QP(H, np.ones(2), sp.csc_matrix((0, 2)), np.zeros(0), np.zeros(0), -infinite, infinite)
    other = sp.csc_matrix(np.diag([curvature, 1.0]))
    solvers = (make_qp_solver("interior_point"),)
    found = convexified(qp, np.zeros(0), np.zeros(2), solvers, semidefinite=lambda: other)
    assert (found.fraction < 1.0) == mixed
    assert (found.delta > 1.0) != mixed
