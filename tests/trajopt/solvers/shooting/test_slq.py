"""The shooting solvers on textbook problems with known or independently computed solutions.

A second start with nonlinear gaps, after linear gaps diverge, solves the problem, and the status reports it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import textbook_systems as textbook
from numpy_lq import reduced_gradient
from scipy.linalg import solve_discrete_are
from scipy.optimize import lsq_linear
from shooting_cases import (
    PROBLEMS,
    SETTINGS,
    attitude_slew,
    cart_pole,
    check_optimum,
    crane,
    pendulum_swing_up,
    polished,
    sampled,
)
from shooting_numpy import measured
from slq_solve import solve
from swing_ups import bundled_swing_up, swing_up_from_elsewhere

import trajopt as to
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from problems.robots import erd_names
from trajopt import (
    OCP,
    Guess,
    Phase,
    StatusCode,
    constant_guess,
    control_cost,
    interpolated_guess,
    residual_cost,
    state_cost,
)
from trajopt.solvers.methods.delegation import Second, merged_solution
from trajopt.solvers.rules.line_search import adapted
from trajopt.solvers.termination import OPEN_DEFECTS, Errors, Measured, line_search_failed
from trajopt.stage.evaluation import StageEvaluator

# -- linear problems ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_linear_quadratic_problem_takes_one_step(name):
    """From an infeasible guess too; far from the end the gain is that of the algebraic Riccati equation."""
    system, h = textbook.double_integrator(), 0.1
    Q, R = np.diag([2.0, 0.5]), np.array([[0.3]])
    running = [state_cost(system.manifold, [0.0, 0.0], np.diag(Q)), control_cost(1, weight=R[0])]
    ocp = OCP.single_phase(sampled(system), [1.0, -0.5], 150, h, running)
    rng = np.random.default_rng(0)
    guess = Guess(rng.standard_normal((151, 2)), rng.standard_normal((150, 1)))
    solution = solve(ocp, guess, SETTINGS[name] | {"gradient_tolerance": 1e-10})
    assert solution.status.code is StatusCode.CONVERGED
    assert solution.iterations == 1
    A, B = np.array([[1.0, h], [0.0, 1.0]]), np.array([[0.5 * h * h], [h]])
    P = solve_discrete_are(A, B, Q * h, R * h)
    gain = -np.linalg.solve(R * h + B.T @ P @ B, B.T @ P @ A)
    np.testing.assert_allclose(solution.K[0], gain, rtol=1e-8)
    np.testing.assert_allclose(solution.us[0], gain @ ocp.x0, rtol=1e-7)


def _condensed(A, B, x0, N):
    """x_k = free_k + forced_k u, k = 1 .. N, for a linear system with one control."""
    free, forced = np.zeros((N, 2)), np.zeros((N, 2, N))
    x, G = x0, np.zeros((2, N))
    for k in range(N):
        x, G = A @ x, A @ G
        G[:, k] += B[:, 0]
        free[k], forced[k] = x, G
    return free, forced


@pytest.mark.parametrize("name", SETTINGS)
def test_box_limited_double_integrator_is_the_bounded_least_squares_solution(name):
    system, h, N = textbook.double_integrator(), 0.1, 30
    running = [control_cost(1, weight=0.01)]
    terminal = [state_cost(system.manifold, [1.0, 0.0], 100.0)]
    ocp = OCP.single_phase(sampled(system), [0.0, 0.0], N, h, running, terminal, u_lower=[-0.6], u_upper=[0.5])
    solution = polished(ocp, name, interpolated_guess(ocp, [1.0, 0.0]))
    assert solution.status.success
    A, B = np.array([[1.0, h], [0.0, 1.0]]), np.array([[0.5 * h * h], [h]])
    free, forced = _condensed(A, B, ocp.x0, N)
    root_u, root_x = np.sqrt(0.01 * h), 10.0
    matrix = np.vstack([root_u * np.eye(N), root_x * forced[-1]])
    target = np.concatenate([np.zeros(N), root_x * (np.array([1.0, 0.0]) - free[-1])])
    expected = lsq_linear(matrix, target, (-0.6, 0.5), method="bvls", tol=1e-15)
    np.testing.assert_allclose(solution.us[:, 0], expected.x, rtol=0, atol=1e-7)
    assert solution.cost == pytest.approx(expected.cost, rel=1e-10)
    at_bound = (solution.us == -0.6) | (solution.us == 0.5)
    assert 5 < at_bound.sum() < N
    assert not solution.K[at_bound[:, 0]].any()


# -- nonlinear problems -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS)
def test_all_settings_reach_the_same_optimum(problem):
    """Each starts near the solution of the first, off the dynamics and from other controls."""
    ocp = PROBLEMS[problem]()
    first = polished(ocp, "gnms", constant_guess(ocp))
    assert first.status.success
    check_optimum(ocp, first)
    rng = np.random.default_rng(2)
    steps = 0.02 * rng.standard_normal((ocp.horizon + 1, ocp.manifold.ndx))
    infeasible = ocp.manifold.integrate(first.xs.T, steps.T).T
    guess = Guess(infeasible, first.us + 0.02 * rng.standard_normal(first.us.shape))
    for name in SETTINGS:
        solution = polished(ocp, name, guess)
        assert solution.status.success, (name, str(solution.status))
        assert solution.cost == pytest.approx(first.cost, rel=1e-8)
        np.testing.assert_allclose(solution.us, first.us, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_pendulum_swings_up_from_rest(name):
    ocp = pendulum_swing_up()
    solution = polished(ocp, name, constant_guess(ocp, 0.1))
    assert solution.status.success
    assert solution.xs[-1, 0] == pytest.approx(np.pi, abs=0.05)


def test_cart_pole_swings_up():
    ocp = cart_pole([0.0, np.pi, 0.0, 0.0], 60, 0.05)
    solution = solve(ocp, options={"max_iterations": 500})
    assert solution.status.success
    np.testing.assert_allclose(solution.xs[-1], [0.0, np.pi, 0.0, 0.0], rtol=0, atol=0.02)
    check_optimum(ocp, solution)


@pytest.mark.parametrize("solver", ["gnms", "fddp"])
def test_attitude_problem_does_not_depend_on_the_world_frame(solver):
    """Rotating start, goal and guess together rotates the solution: same controls, same gains."""
    goal, ocp = attitude_slew()
    spun = ocp.manifold.integrate(
        np.array([0.5, 0.5, -0.5, 0.5, 0, 0, 0])[:, None], np.r_[0.3, 1.0, -2.0, 0, 0, 0][:, None]
    )[:4, 0]

    def rotated(x):
        from scipy.spatial.transform import Rotation

        return np.r_[(Rotation.from_quat(spun) * Rotation.from_quat(x[:4])).as_quat(), x[4:]]

    other = OCP.single_phase(
        ocp.phases[0].dynamics,
        rotated(ocp.x0),
        ocp.horizon,
        ocp.dt,
        [t.updated(reference=rotated(goal)) if t.name == "state" else t for t in ocp.phases[0].terms],
        [t.updated(reference=rotated(goal)) for t in ocp.terminal],
    )
    options = {"gradient_tolerance": 1e-10}
    a, b = (
        solve(o, interpolated_guess(o, g), options, solver=solver) for o, g in ((ocp, goal), (other, rotated(goal)))
    )
    assert a.status.success
    np.testing.assert_allclose(b.us, a.us, rtol=0, atol=1e-7)
    np.testing.assert_allclose(b.K, a.K, rtol=0, atol=1e-6)


def test_every_backend_reaches_the_same_cost():
    costs = {}
    for backend in ("forward_ad", "complex_step", "central_difference", "forward_difference"):
        solution = solve(pendulum_swing_up(backend=backend), options={"gradient_tolerance": 1e-6})
        assert solution.status.success, backend
        costs[backend] = solution.cost
    for cost in costs.values():
        assert cost == pytest.approx(costs["forward_ad"], rel=1e-8)


def test_exact_hessian_of_the_cost_reaches_the_same_optimum_in_fewer_iterations():
    """A residual with strong curvature: Gauss-Newton converges slowly where residuals stay large."""
    system = textbook.double_integrator()
    far = residual_cost("far", lambda x, u, t, p: [x[0] * x[0] + 2.0, x[1]], system.manifold, 2, [1.0, 0.1])
    ocp = OCP.single_phase(sampled(system), [1.0, 0.0], 20, 0.1, [control_cost(1, weight=0.1), far], [far])
    counts = {}
    for hessian in ("gauss_newton", "exact"):
        solution = solve(ocp, options={"hessian": hessian, "gradient_tolerance": 1e-8, "max_iterations": 1000})
        assert solution.status.success
        assert {r.hessian for r in solution.history} == {hessian}
        counts[hessian] = solution.iterations, solution.cost
    assert counts["exact"][1] == pytest.approx(counts["gauss_newton"][1], rel=1e-10)
    assert counts["exact"][0] < counts["gauss_newton"][0]


def test_gradient_reaches_rounding_level():
    ocp = pendulum_swing_up()
    solution = solve(ocp, options={"gradient_tolerance": 1e-12, "kkt_tolerance": 1e-16, "max_iterations": 500})
    assert solution.status.code is StatusCode.CONVERGED
    lq = StageEvaluator(ocp).expand(solution.xs, solution.us).lq
    assert np.abs(reduced_gradient(lq)).max() <= 1e-12


@pytest.mark.parametrize(("fraction", "counts"), [(1e-13, False), (1e-9, True)])
def test_gaps_of_rounding_ask_for_no_penalty(fraction, counts):
    """A step that promises too much would otherwise have the merit weigh noise above the cost, which could rise to any height."""
    ocp = pendulum_swing_up()
    evaluator, guess = StageEvaluator(ocp), constant_guess(ocp)
    expansion = evaluator.expand(*guess)
    d = np.full_like(expansion.lq.d, fraction * (1.0 + np.abs(guess.xs).max()))
    noisy = expansion._replace(lq=expansion.lq._replace(d=d))
    at = measured(*guess, noisy, evaluator, None)
    assert (adapted(0.0, 1.0, 0.0, at.theta) > 0.0) is counts
    assert at.defect == d.max()


@pytest.mark.parametrize("solver", ["slq", "fddp", "gnms"])
def test_gaps_close_at_a_cost_of_zero(solver):
    """Zero controls are optimal for a cost of the controls alone, but the states of the guess do not follow each other."""
    ocp = replace(pendulum_swing_up(), x0=np.array([1.4, 0.2]), terminal=())
    solution = solve(ocp, solver=solver)
    assert solution.status.code is StatusCode.CONVERGED
    assert np.abs(solution.us).max() == 0.0
    assert np.abs(StageEvaluator(ocp).expand(solution.xs, solution.us).lq.d).max() < 1e-9


def test_merit_falls_at_every_accepted_step_of_single_shooting():
    history = solve(crane(), solver="ilqr", options={"max_iterations": 60}).history
    costs = [r.cost for r in history]
    assert all(after <= before for before, after in pairwise(costs))
    taken = [r for r in history if r.step_length > 0 and r.expected_decrease > 1e-10 * r.merit]
    assert taken
    assert all(r.actual_decrease >= 0.1 * r.expected_decrease for r in taken)


@pytest.mark.parametrize("regularize", ["control", "state"])
def test_regularization_in_both_spaces_converges(regularize):
    ocp = crane()
    reference = polished(ocp, "gnms")
    solution = solve(ocp, options={"regularize": regularize, "initial_regularization": 1.0})
    assert solution.status.success
    assert solution.history[0].regularization == 1.0
    assert solution.cost == pytest.approx(reference.cost, rel=1e-8)


# -- phases -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_phases_with_different_dynamics_controls_and_steps(name):
    """A cart that is driven, coasts without control, and is driven by a stronger motor."""
    manifold = Manifold.vector(2, ("position", "speed"))

    driven = FunctionMap(lambda x, u, t, p: [x[1], p["gain"][0] * u[0]], manifold, 1, second_order=True)
    coasting = FunctionMap(lambda x, u, t, p: [x[1], -0.5 * x[1]], manifold, 0, second_order=True)
    term = control_cost(1, weight=0.1)
    phases = (
        Phase(sampled(driven), np.full(10, 0.1), (term,), {"gain": [1.0]}),
        Phase(sampled(coasting), np.full(8, 0.05), ()),
        Phase(sampled(driven), np.full(7, 0.1), (term,), {"gain": np.linspace(2.0, 3.0, 7)[:, None]}),
    )
    terminal = (state_cost(manifold, [1.0, 0.0], 100.0),)
    ocp = OCP(phases, np.zeros(2), terminal)
    solution = polished(ocp, name, constant_guess(ocp, 0.2))
    assert solution.status.success
    np.testing.assert_allclose(solution.us[10:18], 0.2)  # controls that nothing reads do not change
    # the same problem, condensed: a linear least-squares problem in the 17 controls that count
    evaluator = StageEvaluator(ocp)
    lq = evaluator.expand(np.zeros((26, 2)), np.zeros((25, 1))).lq
    forced = np.zeros((2, 25))
    for k in range(25):
        forced = lq.A[k] @ forced
        forced[:, k] += lq.B[k][:, 0]
    used = np.r_[0:10, 18:25]
    matrix = np.vstack([np.sqrt(0.1 * 0.1) * np.eye(25)[used], 10.0 * forced])[:, used]
    target = np.concatenate([np.zeros(17), [10.0, 0.0]])
    expected = np.linalg.lstsq(matrix, target, rcond=None)[0]
    np.testing.assert_allclose(solution.us[used, 0], expected, rtol=0, atol=1e-7)


def test_parts_between_nodes_are_rolled_out():
    """With nodes every 7 knots the start is feasible except at the nodes."""
    ocp = pendulum_swing_up(horizon=20)
    rng = np.random.default_rng(3)
    guess = Guess(rng.standard_normal((21, 2)), rng.standard_normal((20, 1)))
    solution = solve(ocp, guess, {"shooting": 7, "max_iterations": 0})
    assert solution.status.code is StatusCode.MAX_ITERATIONS
    defects = np.abs(StageEvaluator(ocp).expand(solution.xs, solution.us).lq.d).max(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(defects > 1e-12), [6, 13])
    np.testing.assert_array_equal(solution.xs[[7, 14]], guess.xs[[7, 14]])
    np.testing.assert_array_equal(solution.xs[0], ocp.x0)


def test_nonlinear_gaps_shrink_by_one_minus_alpha():
    ocp = crane()
    rng = np.random.default_rng(4)
    guess = Guess(0.3 * rng.standard_normal((51, 4)), np.zeros((50, 1)))
    history = solve(ocp, guess, {"max_iterations": 20}, solver="fddp").history
    for before, after in pairwise(history):
        assert after.defect == pytest.approx((1.0 - before.step_length) * before.defect, rel=1e-9, abs=1e-12)
    assert history[0].defect > 0.1


@pytest.mark.parametrize("name", ["gnms", "fddp"])
def test_bounds_that_are_met_while_gaps_close(name):
    """From states on the way to the goal and idle controls, with a torque limit that the first steps would exceed."""
    ocp = pendulum_swing_up(horizon=70, limit=12.0)
    rng = np.random.default_rng(5)
    guess = interpolated_guess(ocp, [np.pi, 0.0])
    guess = Guess(guess.xs + 0.5 * rng.standard_normal(guess.xs.shape), guess.us)
    solution = solve(ocp, guess, {"max_iterations": 500}, solver=name)
    assert solution.status.success
    assert np.abs(solution.us).max() <= 12.0
    assert max(r.constraint_violation for r in solution.history) == 0.0
    check_optimum(ocp, solution)


def test_the_scaled_measure_ends_a_solve_as_well_as_the_gradient():
    """A gradient in units of a cost a million times as large falls below no tolerance; the measure has no units."""
    ocp = pendulum_swing_up()
    terms = [replace(t, weight=1e6 * t.weight) for t in ocp.phases[0].terms]
    final = tuple(replace(t, weight=1e6 * t.weight) for t in ocp.terminal)
    large = replace(ocp, phases=(replace(ocp.phases[0], terms=tuple(terms)),), terminal=final)
    options = {"gradient_tolerance": 1e-9, "max_iterations": 500}
    found, same = (solve(p, options=options, check=False) for p in (ocp, large))  # not scaled
    assert same.status.code is StatusCode.CONVERGED and same.status.kkt <= 1e-8
    assert same.history[-1].gradient > 1e-6
    assert abs(same.iterations - found.iterations) <= 2


AGAIN = Second(to.SLQOptions(gaps="nonlinear"), "The first one did not converge.", "with nonlinear gaps")


def first_start(found):
    """Iterations of the first start, which differ by a few between processors."""
    return int(re.search(r"linear gaps ended with \w+ after (\d+) iterations", found.status.message)[1])


@pytest.mark.parametrize("solver", ["slq", "gnms"])
def test_a_swing_up_from_rest(solver):
    """It ends at the optimum of FDDP; the records of both starts follow each other."""
    ocp, guess = bundled_swing_up()
    records = []
    found = to.solve(ocp, guess, {"max_iterations": 200}, records.append, solver)
    assert found.status.success and "A second start with nonlinear gaps converged" in found.status.message
    assert found.cost == pytest.approx(to.solve(ocp, guess, {"max_iterations": 200}, solver="fddp").cost, rel=1e-9)
    assert [r.iteration for r in found.history] == list(range(len(found.history)))
    assert [r.iteration for r in records] == [r.iteration for r in found.history]
    assert max(r.defect for r in found.history[: len(found.history) // 4]) > 10.0
    assert ocp.cost(found.xs, found.us) == pytest.approx(found.cost, rel=1e-12)


def test_both_starts_share_the_iterations():
    ocp, guess = bundled_swing_up()
    limit = first_start(to.solve(ocp, guess, {"max_iterations": 200}, solver="gnms")) + 4
    found = to.solve(ocp, guess, {"max_iterations": limit}, solver="gnms")
    assert not found.status.success and found.iterations == limit
    assert "A second start with nonlinear gaps ended with max_iterations" in found.status.message


def test_nonlinear_gaps_are_advised_where_they_were_not_tried():
    ocp, guess = bundled_swing_up()
    second = to.solve(ocp, guess, {"max_iterations": 4}, solver="fddp", check=False)
    first = replace(second, status=line_search_failed(OPEN_DEFECTS, Measured(26, Errors(defect=1.0), Errors())))
    both = merged_solution(first, second, AGAIN).status
    assert "the defects do not close" in both.message
    assert "Try nonlinear gaps (solver = 'fddp')" in first.status.advice
    assert "gaps" not in both.advice and "Increase max_iterations" in both.advice


def test_an_unstable_integration_is_blamed_whatever_the_second_start_says():
    ocp, guess = bundled_swing_up()
    found = to.solve(ocp, guess, {"max_iterations": 1}, solver="gnms")
    unstable = to.Status(to.StatusCode.LINE_SEARCH_FAILED, "unstable", knot=3, advice="Shorten dt.")
    assert merged_solution(replace(found, status=unstable), found, AGAIN).status.advice == "Shorten dt."


def test_other_ends_are_left_alone():
    """Nonlinear gaps, single shooting, and a solve that converges start once."""
    ocp, guess = bundled_swing_up()
    for solver in ("fddp", "ilqr"):
        assert "second start" not in to.solve(ocp, guess, {"max_iterations": 200}, solver=solver).status.message


@pytest.mark.skipif(not erd_names(), reason="example-robot-data is not installed")
@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
def test_ddp_starts_twice_too():
    ocp, guess = swing_up_from_elsewhere()
    found = to.solve(ocp, guess, solver="ddp")
    assert found.status.success and "A second start with nonlinear gaps converged" in found.status.message
    assert found.cost == pytest.approx(to.solve(ocp, guess, solver="fddp").cost, rel=1e-9)
    assert [r.iteration for r in found.history] == list(range(len(found.history)))
    records: list[int] = []
    batch = to.solve_batch(
        ocp, {"x0": ocp.x0[None]}, guess, None, lambda done, of: records.append(done), solver="ddp", gains=True
    )
    assert batch.meta["referred"] == [0] and batch.messages == [str(found.status)] and records[-1] == 1
    np.testing.assert_allclose(batch.K[0], found.K, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not erd_names(), reason="example-robot-data is not installed")
@pytest.mark.filterwarnings("ignore::dynamics_backends.rigid_body.urdf.loader.URDFWarning")
@pytest.mark.parametrize("solver", ["ddp", "auto"])
def test_an_interrupted_second_start_ends_the_solve(solver):
    """No other attempt follows."""
    ocp, guess = swing_up_from_elsewhere()
    first = first_start(to.solve(ocp, guess, solver="ddp"))
    records = []

    def stop(record):
        records.append(record)
        if len(records) == first + 4:
            raise KeyboardInterrupt

    found = to.solve(ocp, guess, {"starts": 1} if solver == "auto" else None, stop, solver)
    assert found.status.code == "interrupted" and "A second start with nonlinear gaps" in found.status.message
    assert len(records) == first + 4
