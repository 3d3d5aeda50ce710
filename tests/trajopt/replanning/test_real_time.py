"""The real-time iteration of SLQ and SQP: exact where one step is enough, safe where it is not, and never compiled twice."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from replanning_cases import KNOTS, WatchedPlant, loop, off_the_optimum, problem, spin
from textbook_systems import autonomous_pendulum

import trajopt as to
from dynamics_backends.registry import make_backend
from problems.robots import load_robot
from trajopt.guesses.guesses import WarmStart
from trajopt.problem.guess import Guess
from trajopt.replanning import converged_planner, real_time, real_time_sqp
from trajopt.replanning.converged_planner import ConvergedPlanner, feedback_rollout
from trajopt.replanning.plan import Plan, fault_of, warm_start
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.real_time_sqp import RealTimeSQP
from trajopt.replanning.workers import Timing
from trajopt.results.status import StatusCode
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.options import IPMOptions, SQPOptions


def cold(ocp):
    """Warm start without multipliers, with zero gains."""
    guess = to.constant_guess(ocp)
    return WarmStart(guess, np.zeros((ocp.horizon, ocp.nu, ocp.manifold.ndx)), {})


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize("limit", [None, np.inf, 3.0])
def test_a_linear_quadratic_problem_is_solved_in_one_iteration(search, limit):
    ocp, x0 = problem(limit=limit), np.array([-0.3, 0.8])
    planner = RealTimeSLQ(search=search)
    planner.prepare(ocp, cold(ocp))
    found = planner.respond(x0)
    exact = to.solve(replace(ocp, x0=x0))
    assert found.status.code == StatusCode.MAX_ITERATIONS
    tolerance = 1e-9 if limit != 3.0 else 2e-2  # bounded LQ problems are solved to a share of their gradient
    np.testing.assert_allclose(found.xs, exact.xs, atol=tolerance)
    np.testing.assert_allclose(found.us, exact.us, atol=tolerance * 10)
    if limit != 3.0:
        np.testing.assert_allclose(found.K, exact.K, atol=1e-9)


def swing(horizon=40):
    """A pendulum that swings up."""
    dynamics = to.SampledSystem(make_backend(autonomous_pendulum(), "forward_ad"), "rk4")
    goal = [np.pi, 0.0]
    running = [to.control_cost(1, weight=0.01), to.state_cost(dynamics.manifold, goal, 0.1)]
    return to.OCP.single_phase(
        dynamics, np.zeros(2), horizon, 0.05, running, [to.state_cost(dynamics.manifold, goal, 50.0)]
    )


@pytest.mark.parametrize("search", [True, False])
def test_repeated_iterations_converge_to_the_solution(search):
    ocp = swing()
    exact = to.solve(ocp)
    planner, found = RealTimeSLQ(search=search), exact
    x0 = np.array([0.1, -0.1])
    for _ in range(20):
        planner.prepare(ocp, warm_start(Plan.from_solution(found, 0.0), ocp, 0.0))
        found = planner.respond(x0)
    exact = to.solve(replace(ocp, x0=x0), Guess(found.xs, found.us))
    assert exact.iterations <= 2
    np.testing.assert_allclose(found.xs, exact.xs, atol=1e-5)


def test_the_search_starts_from_the_state_and_never_costs_more_than_the_feedback_alone():
    ocp = swing()
    plan = Plan.from_solution(to.solve(ocp), 0.0)
    x0 = np.array([0.5, 2.0])
    warm = warm_start(plan, ocp, 0.0)
    planner = RealTimeSLQ()
    planner.prepare(ocp, warm)
    found = planner.respond(x0)
    np.testing.assert_array_equal(found.xs[0], x0)
    moved = ocp.phases[0].dynamics.step(found.xs[:-1], found.us, 0.0, ocp.dt)
    np.testing.assert_allclose(moved, found.xs[1:], atol=1e-10)
    from trajopt.stage.evaluation import StageEvaluator

    alone = feedback_rollout(replace(ocp, x0=x0), warm)
    costs = StageEvaluator(ocp).cost(np.stack([found.xs, alone.xs]), np.stack([found.us, alone.us]))
    assert costs[0] == pytest.approx(found.cost) and costs[0] <= costs[1]


def test_shortened_steps_raise_the_regularization():
    ocp = swing()
    planner = RealTimeSLQ(regularization=1e-3)
    assert planner.mu == 1e-3
    planner.prepare(ocp, cold(ocp))
    found = planner.respond(ocp.x0)
    assert found.history[0].step_length < 1.0  # from hanging, the full step is far off
    for _ in range(30):
        planner.prepare(ocp, cold(ocp))
        planner.respond(ocp.x0)
    assert planner.mu > 1e-3


def test_a_motion_on_a_lie_group():
    assert off_the_optimum(RealTimeSLQ(), spin(0.8, 15, 0.1), 12) < 1e-6


def test_workspaces_are_reused_for_problems_of_the_same_structure(monkeypatch):
    ocp, asked = swing(), []
    from trajopt.replanning import real_time

    whole = real_time.evaluator_for
    monkeypatch.setattr(real_time, "evaluator_for", lambda *a: asked.append(a) or whole(*a))
    planner = RealTimeSLQ()
    for k in range(3):
        moved = replace(ocp, x0=np.array([0.1 * k, 0.0]))
        planner.prepare(moved, cold(moved))
        found = planner.respond(moved.x0)
    # the exact Hessian is compiled beforehand, and taken once steps have been shortened
    assert [hessian for _, hessian in asked] == ["exact", "gauss_newton", "exact"]
    np.testing.assert_array_equal(found.xs[0], moved.x0)
    planner.prepare(replace(moved, u_lower=[-0.1], u_upper=[0.1]), cold(moved))  # another value of the same structure
    assert len(asked) == 3 and np.abs(planner.respond(moved.x0).us).max() <= 0.1
    for changed in (replace(moved, terminal=()), swing()):
        before = len(asked)
        planner.prepare(changed, cold(changed))
        assert len(asked) == before + 1
    with pytest.raises(RuntimeError, match="prepare before"):
        RealTimeSLQ().respond(np.zeros(2))


@pytest.mark.parametrize("planner", [RealTimeSLQ(), to.RealTimeSQP()])
def test_each_response_needs_a_preparation(planner):
    ocp = problem()
    planner.prepare(ocp, cold(ocp))
    planner.respond(ocp.x0)
    with pytest.raises(RuntimeError, match="prepare before"):
        planner.respond(ocp.x0)


def test_a_failed_preparation_does_not_affect_the_next_one():
    ocp, planner = problem(), to.RealTimeSQP()
    planner.prepare(ocp, cold(ocp))
    first, bad = planner.respond(ocp.x0), cold(ocp)
    bad.guess.xs[:] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity along the trajectory"):
        planner.prepare(ocp, bad)
    with pytest.raises(RuntimeError, match="prepare before"):
        planner.respond(ocp.x0)
    planner.prepare(ocp, cold(ocp))
    np.testing.assert_allclose(planner.respond(ocp.x0).xs, first.xs, atol=1e-9)


def test_a_failure_is_a_status():
    ocp = problem()
    terms = (ocp.phases[0].terms[0], ocp.phases[0].terms[1])  # nothing weighs the control of the last knot
    flat = replace(ocp, phases=(replace(ocp.phases[0], terms=terms),), terminal=())
    planner = RealTimeSLQ()
    planner.prepare(flat, cold(flat))
    assert planner.respond(flat.x0).status.code == StatusCode.NOT_POSITIVE_DEFINITE
    assert planner.mu > 0.0
    planner.prepare(flat, cold(flat))
    assert planner.respond(flat.x0).status.code == StatusCode.MAX_ITERATIONS  # the next sweep is regularized


def test_single_shooting_may_start_from_the_feedback():
    ocp = swing()
    plan = Plan.from_solution(to.solve(ocp), 0.0)
    planner = ConvergedPlanner("ilqr", {"max_iterations": 0}, follow=True)
    planner.prepare(ocp, warm_start(plan, ocp, 0.0))
    x0 = np.array([0.05, 0.1])
    found = planner.respond(x0)
    off = ocp.manifold.difference(plan.xs[:-1].T, found.xs[:-1].T).T
    np.testing.assert_allclose(found.us, plan.us + (plan.K @ off[:, :, None])[:, :, 0], atol=1e-9)


def far_reach(goal, weight, engine="compiled"):
    """Double pendulum whose tip must reach a goal."""
    model = load_robot("double_pendulum")
    system = to.FreeBody(model)
    dynamics = to.SampledSystem(make_backend(system, "analytic", engine=engine), "rk4")
    speed = np.array([0.0, 0.0, 1.0, 1.0])

    def wanted(factor):
        tip = to.frame_position_cost(model, system.manifold, "tip", goal, factor * weight, "goal")
        return [tip, to.state_cost(system.manifold, np.zeros(4), 0.1 * factor * speed)]

    return to.OCP.single_phase(
        dynamics, np.zeros(4), 30, 0.02, [to.control_cost(2, weight=1e-3), *wanted(1)], wanted(10)
    )


@pytest.mark.parametrize(("goal", "weight"), [([2.0, 0.0, 2.0], 10.0), ([3.0, 0.0, 1.0], 100.0)])
def test_a_goal_out_of_reach_is_approached_by_the_exact_hessian(goal, weight):
    ocp, warm = far_reach(goal, weight), None
    planner = RealTimeSLQ()
    for _ in range(25):
        planner.prepare(ocp, warm or cold(ocp))
        found = planner.respond(ocp.x0)
        warm = warm_start(Plan.from_solution(found, 0.0), ocp, 0.0)
    assert found.history[0].hessian == "exact"
    assert found.cost == pytest.approx(
        to.solve(ocp, solver="ddp").cost, rel=1e-9
    )  # Gauss-Newton: 3e-3 to 1e-2 above it


def test_a_single_shortened_step_changes_no_hessian():
    ocp = far_reach([1.5, 0.0, -3.0], 10.0)
    planner, used = RealTimeSLQ(), []
    for _ in range(3):  # always from the cold plan, where steps are shortened
        planner.prepare(ocp, cold(ocp))
        found = planner.respond(ocp.x0)
        used.append((found.history[0].hessian, found.history[0].step_length < 1.0))
    assert used == [("gauss_newton", True), ("gauss_newton", True), ("exact", used[2][1])]


def test_the_exact_hessian_is_taken_from_the_first_step_on_where_it_is_compiled():
    used = []
    for engine in ("compiled", "numpy"):
        ocp, planner = far_reach([1.5, 0.0, -3.0], 10.0, engine), RealTimeSLQ(curved=True)
        planner.prepare(ocp, cold(ocp))
        used.append(planner.respond(ocp.x0).history[0].hessian)
    assert used == ["exact", "gauss_newton"]


def test_rounding_errors_at_a_goal_that_is_reached_shorten_no_step():
    """The cost there is 1e-30; its rounding errors switched to the exact Hessian for good, and raised the regularization."""
    model, q0 = load_robot("double_pendulum"), np.array([0.3, 0.4])
    hold = to.inverse_dynamics(model, q0, np.zeros(2), np.zeros(2))
    ocp = far_reach(to.frame_placement(model, q0, "tip")[1], 300.0)
    (phase,) = ocp.phases
    terms = (to.control_cost(2, reference=hold, weight=1e-3), *phase.terms[1:])
    ocp = replace(ocp, x0=np.concatenate([q0, np.zeros(2)]), phases=(replace(phase, terms=terms),))
    planner, plant, x = RealTimeSLQ(), to.Simulator(phase.dynamics), ocp.x0
    mpc = to.MPC(ocp, planner, period=0.01)
    for _ in range(40):
        x = plant.advance(x, mpc.step(x)[None], 0.01)
    planner.prepare(ocp, cold(ocp))
    assert planner.respond(x).history[0].hessian == "gauss_newton" and planner.mu == 0.0


def test_a_step_without_a_finite_trial_is_replaced_by_a_solve(monkeypatch):
    from trajopt.stage.evaluation import StageEvaluator

    ocp, whole = far_reach([1.5, 0.0, -3.0], 10.0), StageEvaluator.rollout
    planner = RealTimeSLQ()
    planner.prepare(ocp, cold(ocp))
    monkeypatch.setattr(StageEvaluator, "rollout", lambda *a: whole(*a)._replace(cost=np.full(5, np.nan)))
    assert planner.respond(ocp.x0).cost == pytest.approx(to.solve(ocp, solver="ddp").cost, rel=1e-3)
    planner.prepare(ocp, cold(ocp))
    monkeypatch.undo()
    assert planner.respond(ocp.x0).history[0].hessian == "exact"


def reach_of_seven_joints():
    """An arm that holds a point."""
    model = load_robot("gen3")
    system, n = to.FreeBody(model), model.nv
    dynamics = to.SampledSystem(make_backend(system, "analytic"), "semi_implicit_euler")
    x0, speed = np.zeros(2 * n), np.repeat([0.0, 1.0], n)
    x0[:n] = [0.0, 0.6, 0.0, 1.6, 0.0, 0.9, 0.0]
    hold = to.inverse_dynamics(model, x0[:n], np.zeros(n), np.zeros(n))
    here = to.frame_placement(model, x0[:n], "EndEffector")[1]
    goal = [to.frame_position_cost(model, system.manifold, "EndEffector", here, w, "goal") for w in (300.0, 1e3)]
    slow = [to.state_cost(system.manifold, x0, w * speed) for w in (0.5, 1.0)]
    running = [to.control_cost(n, reference=hold, weight=1e-3), goal[0], slow[0]]
    return to.OCP.single_phase(dynamics, x0, 30, 0.02, running, [goal[1], slow[1]], model=model)


def test_a_loop_may_start_far_from_the_first_plan():
    """The search alone diverges to infinite velocities in all four runs."""
    ocp = reach_of_seven_joints()
    first, plant = to.solve(ocp), to.Simulator(ocp.phases[0].dynamics)
    goal = to.frame_placement(ocp.model, ocp.x0[:7], "EndEffector")[1]
    for seed in range(4):
        x = ocp.x0 + np.r_[np.random.default_rng(seed).uniform(-1.5, 1.5, 7), np.zeros(7)]
        mpc, fastest = to.MPC(ocp, initial_plan=first), 0.0
        for _ in range(100):
            x = plant.advance(x, mpc.step(x)[None], 0.01)
            fastest = max(fastest, np.abs(x[7:]).max())
        assert fastest < 12.0 and np.linalg.norm(to.frame_placement(ocp.model, x[:7], "EndEffector")[1] - goal) < 0.05
        assert mpc.statistics()["failed"] == 0


def test_negative_eigenvalues_of_the_exact_hessian_are_removed():
    from trajopt.stage.evaluation import StageEvaluator

    ocp, warm = far_reach([0.6, 0.0, -0.6], 10.0), None  # nearer than where the tip hangs
    guess = to.constant_guess(ocp)
    assert np.linalg.eigvalsh(StageEvaluator(ocp, "exact").expand(*guess).lq.Q).min() < -1.0
    planner, codes = RealTimeSLQ("exact"), set()
    for _ in range(40):
        planner.prepare(ocp, warm or cold(ocp))
        found = planner.respond(ocp.x0)
        codes.add(found.status.code)
        warm = warm_start(Plan.from_solution(found, 0.0), ocp, 0.0)
    assert found.cost == pytest.approx(to.solve(ocp, solver="ddp").cost, rel=1e-9)
    assert codes == {StatusCode.MAX_ITERATIONS}


def test_replanning_traces_nothing(monkeypatch):
    """New goals, states, step lengths and horizons are inputs of the first stage."""
    from dynamics_backends.systems.bodies.free_body import FreeBody
    from trajopt.stage.compiled import library

    model = load_robot("double_pendulum")
    system = FreeBody(model)
    dynamics = to.SampledSystem(make_backend(system, "analytic", engine="compiled"), "rk4")
    goal = to.frame_position_cost(model, system.manifold, "tip", [0.5, 0.0, 0.5], 10.0, "goal")
    ocp = to.OCP.single_phase(dynamics, np.zeros(4), KNOTS, 0.02, [to.control_cost(2), goal], [goal])
    planner, plan = RealTimeSLQ(), Plan.from_solution(to.solve(ocp), 0.0)

    def replanned(ocp, knots):
        rows = np.tile([0.4, 0.0, 0.4], (knots + 1, 1))
        changed = ocp.updated("goal", goal=rows)
        planner.prepare(changed, warm_start(plan, changed, 0.01))
        return planner.respond(np.full(4, 0.01))

    assert replanned(ocp, KNOTS).status.code == StatusCode.MAX_ITERATIONS
    monkeypatch.setattr(library, "taped_functions", None)
    from trajopt.replanning.plan import remaining

    for _ in range(3):
        assert replanned(ocp, KNOTS).status.code == StatusCode.MAX_ITERATIONS
    rest = remaining(ocp, 0.05)
    assert rest is not None and replanned(rest, rest.horizon).status.code == StatusCode.MAX_ITERATIONS


WALL = 0.8


def walled(limit=None):
    """The goal at 1 lies behind a wall."""
    ocp = problem(limit=limit)
    phase = ocp.phases[0]
    wall = to.state_bounds(ocp.manifold, [-np.inf, -np.inf], [WALL, np.inf])
    return replace(ocp, phases=(replace(phase, constraints=(wall,)),), terminal_constraints=(wall,))


def still(ocp):
    """A warm start at rest."""
    return WarmStart(to.constant_guess(ocp), np.zeros((ocp.horizon, ocp.nu, ocp.manifold.ndx)), {})


@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
@pytest.mark.parametrize("limit", [None, 4.0])
def test_a_quadratic_program_is_solved_in_one_iteration(hessian, limit):
    ocp, x0 = walled(limit), np.array([-0.2, 0.5])
    planner = RealTimeSQP(SQPOptions(hessian=hessian))
    planner.prepare(ocp, still(ocp))
    found = planner.respond(x0)
    exact = to.solve(replace(ocp, x0=x0), solver="sqp")
    assert found.status.code == StatusCode.MAX_ITERATIONS and exact.status.success
    np.testing.assert_allclose(found.xs, exact.xs, atol=1e-6)
    np.testing.assert_allclose(found.us, exact.us, atol=1e-5)
    assert found.xs[:, 0].max() == pytest.approx(WALL, abs=1e-6)
    assert found.cost == pytest.approx(exact.cost, rel=1e-6)


def test_repeated_iterations_converge_on_a_manifold():
    assert off_the_optimum(RealTimeSQP(), spin(0.5, 8, 0.15), 8) < 1e-5


def test_contradictory_constraints_are_a_failed_solve():
    ocp = walled(limit=0.1)  # too weak to stop before the wall
    planner = RealTimeSQP()
    planner.prepare(ocp, still(ocp))
    assert planner.respond(np.array([0.7, 3.0])).status.code == StatusCode.LOCALLY_INFEASIBLE
    with pytest.raises(RuntimeError, match="prepare before"):
        RealTimeSQP().respond(np.zeros(2))


def test_failed_complete_solves_are_tried_again_at_growing_intervals(monkeypatch):
    tried, x0 = [], np.array([0.7, 3.0])
    monkeypatch.setattr(real_time_sqp, "restarted", lambda *given: tried.append(step) or real_time.restarted(*given))
    ocp, planner = walled(limit=0.1), RealTimeSQP()
    for step in range(16):
        planner.prepare(ocp, still(ocp))
        found = planner.respond(x0)
        assert found.status.code == StatusCode.LOCALLY_INFEASIBLE
        assert found.status.message.startswith("No feasible point" if step in tried else "The step failed, as the last")
    assert tried == [0, 2, 6, 14]
    planner.prepare(ocp, still(ocp))
    assert planner.respond(np.zeros(2)).status.code == StatusCode.MAX_ITERATIONS  # a step, as soon as there is one
    planner.prepare(ocp, still(ocp))
    planner.respond(x0)
    assert len(tried) == 5


def test_a_complete_solve_that_ends_far_from_feasible_is_a_failure(monkeypatch):
    """Its motion has gaps: a robot that followed it would fly away, without an event."""
    ocp, x0 = walled(limit=0.1), np.array([0.7, 3.0])
    for most, code in ((1, StatusCode.NOT_FEASIBLE), (50, StatusCode.LOCALLY_INFEASIBLE)):
        monkeypatch.setattr(real_time_sqp, "RESTART", IPMOptions(max_iterations=most))
        planner = RealTimeSQP()
        planner.prepare(ocp, still(ocp))
        found = planner.respond(x0)
        assert found.status.code == code and fault_of(found) is not None


def test_an_obstacle_that_crosses_the_plan_is_avoided_at_low_speed():
    """The full step alone gives a first plan with speeds of 67 rad/s."""
    ocp = reach_of_seven_joints()
    model, manifold = ocp.model, ocp.manifold
    tool = to.frame_placement(model, ocp.x0[:7], "EndEffector")[1]
    points = to.link_points(model, "EndEffector", 0.1)
    sphere = to.sphere_obstacle(model, manifold, points, tool + [0.0, 0.35, 0.0], 0.08)
    held = (to.joint_limits(model, manifold), sphere)
    ocp = replace(ocp, phases=(replace(ocp.phases[0], constraints=held),), terminal_constraints=held)
    mpc, plant, x = to.MPC(ocp), to.Simulator(ocp.phases[0].dynamics), ocp.x0
    for k in range(20):
        times = 0.01 * k + ocp.times
        mpc.set("obstacle", center=tool + np.outer(0.35 - 0.5 * np.sin(2.0 * times), [0.0, 1.0, 0.0]))
        x = plant.advance(x, mpc.step(x)[None], 0.01)
        assert np.abs(mpc.plan.xs[:, 7:]).max() < 4.0 and np.abs(x[7:]).max() < 2.0
    assert mpc.statistics()["failed"] == 0


@pytest.mark.parametrize("planner", [RealTimeSQP(), ConvergedPlanner("sqp", {"hessian": "gauss_newton"})])
def test_the_loop_stops_at_the_wall(planner):
    ocp = walled()
    plant = WatchedPlant()
    timing = Timing(tick=0.05, period=0.05, prepare_early=isinstance(planner, RealTimeSQP))
    log = loop(planner, plant, ocp=ocp, timing=timing).run(2.0)
    assert all(solve.success for solve in log.solves)
    assert abs(log.xs[-1, 0] - WALL) < 1e-3
    assert log.xs[:, 0].max() < WALL + 1e-3


def test_solutions_without_gains_get_them():
    ocp = problem()
    planner = ConvergedPlanner("sqp", {"hessian": "gauss_newton"})
    planner.prepare(ocp, still(ocp))
    found, exact = planner.respond(ocp.x0), to.solve(ocp)
    np.testing.assert_allclose(found.K, exact.K, atol=1e-6)
    flat = replace(ocp, terminal=(), phases=(replace(ocp.phases[0], terms=ocp.phases[0].terms[:2]),))
    assert not tracking_gains(flat, *still(flat).guess).any()  # nothing weighs the controls: no gains
    assert len(found.K) == KNOTS


def test_only_the_first_problem_is_validated(monkeypatch):
    """Validation and replay take longer than a solve from the last plan, also without multipliers in it."""
    checks = []
    monkeypatch.setattr(
        converged_planner,
        "solve",
        lambda *args, check, **options: checks.append(check) or to.solve(*args, check=check, **options),
    )
    mpc, x = to.MPC(problem(), "slq", period=0.05), np.zeros(2)
    for _ in range(3):
        mpc.step(x)
    assert checks == [True, False, False, False]


@pytest.mark.parametrize("planner", ["RealTimeSQP()", "ConvergedPlanner('sqp')"])
def test_a_planner_imports_the_sparse_matrices_before_its_first_step(planner):
    """Their import takes 0.2 s."""
    code = f"import sys, trajopt as to; to.{planner}; assert 'scipy.sparse.linalg' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
