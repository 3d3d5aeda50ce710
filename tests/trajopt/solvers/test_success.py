"""The contract of success: feasible, optimal, confirmed by the replay, goals met; one code for each check that fails."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import solve_discrete_are

import trajopt as to
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from trajopt.problem.goals import Goal, state_goal
from trajopt.results.status import STATIONARY, Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.measures import Measures, Violation, measures
from trajopt.solvers.success import (
    FEASIBLE,
    SENSITIVE,
    _on_large_multipliers,
    _shorter_steps,
    checked_status,
    unchecked_status,
)
from trajopt.validation.reach import frame_goals, reach_warnings

N, DT = 20, 0.1
A, B = np.array([[1.0, DT], [0.0, 1.0]]), np.array([[0.5 * DT * DT], [DT]])
SLQ = {"solver": "slq"}


def cart(**fields):
    """A double integrator that goes from 0 to 1; its rk4 steps are exact."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "rk4")
    terminal = [to.state_cost(system.manifold, [1.0, 0.0], 1e4)]
    return to.OCP.single_phase(step, [0.0, 0.0], N, DT, [to.control_cost(1)], terminal, **fields)


def pendulum(dt, **fields):
    """A pendulum that swings up by Euler's scheme, whose steps of 0.2 s are far from its motion."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 9.81 * to.sin(x[0])], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "euler")
    terminal = [to.state_cost(system.manifold, [np.pi, 0.0], 1e3)]
    return to.OCP.single_phase(
        step, [0.0, 0.0], round(2.0 / dt), dt, [to.control_cost(1, weight=0.1)], terminal, **fields
    )


def optimum(ocp):
    """The minimizer of the linear problem by its normal equations, without the library."""
    rows = np.zeros((2, N))
    for k in range(N):
        rows[:, k] = (np.linalg.matrix_power(A, N - 1 - k) @ B)[:, 0]
    H = DT * np.eye(N) + 1e4 * rows.T @ rows
    us = np.linalg.solve(H, 1e4 * rows.T @ np.array([1.0, 0.0]))[:, None]
    xs = np.zeros((N + 1, 2))
    for k in range(N):
        xs[k + 1] = A @ xs[k] + B @ us[k]
    return xs, us


def lqr_gains():
    P = solve_discrete_are(A, B, np.eye(2), np.eye(1))
    return np.repeat(-np.linalg.solve(np.eye(1) + B.T @ P @ B, B.T @ P @ A)[None], N, axis=0)


@pytest.mark.parametrize("solver", ["slq", "ddp", "ipm"])
def test_a_motion_that_stays_where_it_is_holds(solver):
    """Its ranges are rounding errors, to which no deviation of a replay can be relative."""
    ocp = replace(pendulum(0.05), x0=np.zeros(2), terminal=(to.state_cost(2, [0.0, 0.0]),))
    found = to.solve(ocp, to.constant_guess(ocp, 0.3), solver=solver)
    assert found.status.success and np.abs(found.xs).max() < 1e-9, found.status


@pytest.mark.parametrize("solver", ["auto", "ipm", "ddp"])
def test_every_feasible_motion_is_optimal_without_a_cost(solver):
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    ocp = replace(cart(u_lower=[-2.0], u_upper=[2.0], terminal_constraints=(goal,)), terminal=())
    ocp = replace(ocp, phases=(replace(ocp.phases[0], terms=()),))
    found = to.solve(ocp, solver=solver)
    assert found.status.success, found.status


@pytest.mark.parametrize("solver", ["auto", "ipm"])
@pytest.mark.parametrize("offset", [0.0, 1e-8, 1e-10])
def test_a_motion_at_its_goal_within_constraints_is_optimal(solver, offset):
    """The cost is zero but for rounding errors, to which no product of a multiplier and a distance can be relative."""
    disc = to.residual_constraint("disc", lambda x, u, t, p: [x[0] * x[0] + x[1] * x[1]], 2, 1, upper=25.0)
    ocp = replace(cart(u_lower=[-1.0], u_upper=[1.0]), x0=np.array([offset, 0.0]), terminal=())
    terms = to.control_cost(1, weight=0.1), to.state_cost(2, [0.0, 0.0])
    ocp = replace(ocp, phases=(replace(ocp.phases[0], terms=terms, constraints=(disc,)),))
    found = to.solve(ocp, solver=solver)
    assert found.status.success, found.status


def test_a_cost_in_tiny_units_is_not_optimal_at_controls_of_zero():
    """A gradient of 1e-12 is small, but not beside its terms: the solver goes on."""
    small = [replace(t, weight=1e-12 * t.weight) for t in (to.control_cost(1), to.state_cost(2, [1.0, 0.0], 1e4))]
    ocp = replace(cart(u_lower=[-5.0], u_upper=[5.0]), terminal=(small[1],))
    ocp = replace(ocp, phases=(replace(ocp.phases[0], terms=(small[0],)),))
    found = to.solve(ocp, solver="slq")
    assert found.iterations > 0 and found.status.success
    assert found.cost == pytest.approx(
        1e-12 * to.solve(cart(u_lower=[-5.0], u_upper=[5.0]), solver="slq").cost, rel=1e-6
    )


@pytest.mark.parametrize("gains", [False, True])
def test_the_measures_of_a_known_optimum_are_rounding(gains):
    ocp = cart()
    xs, us = optimum(ocp)
    K = lqr_gains() if gains else np.zeros((N, 1, 2))
    found = measures(ocp, xs, us, K, {}, FEASIBLE)
    assert found.kkt < 1e-9 and found.sensitivity < 1e-9
    assert found.violation is None or found.violation.ratio < 1e-6


@pytest.mark.parametrize("fraction", [1e-3, 1e-2])
def test_the_measures_grow_with_the_distance_from_the_optimum(fraction):
    """At us (1 + share) the gradient of this quadratic problem is share H us, which is known."""
    ocp = cart()
    xs, us = optimum(ocp)
    found = measures(ocp, (1.0 + fraction) * xs, (1.0 + fraction) * us, np.zeros((N, 1, 2)), {}, FEASIBLE)
    rows = np.array([(np.linalg.matrix_power(A, N - 1 - k) @ B)[:, 0] for k in range(N)]).T
    H = DT * np.eye(N) + 1e4 * rows.T @ rows
    gradient = fraction * (H @ us)
    cost = ocp.cost((1.0 + fraction) * xs, (1.0 + fraction) * us)
    expected = np.abs(gradient).max() * (1.0 + fraction) * np.abs(us).max() / cost
    assert found.sensitivity == pytest.approx(expected, rel=1e-6)


def test_a_violation_is_named_with_its_knot():
    xs, us = optimum(cart())
    xs[7, 0] += 1e-3
    limit = us.max()  # above 1: violations are relative to it
    us[3] = limit + 0.2
    found = measures(cart(u_upper=[limit]), xs, us, np.zeros((N, 1, 2)), {}, FEASIBLE).violation
    assert found.ratio == pytest.approx(0.2 / limit / FEASIBLE, rel=1e-9) and found.sentence.endswith("at knot 3")
    only_defect = measures(cart(), xs, optimum(cart())[1], np.zeros((N, 1, 2)), {}, FEASIBLE).violation
    assert "dynamics" in only_defect.sentence and only_defect.ratio == pytest.approx(1e-3 / FEASIBLE, rel=1e-6)


@pytest.mark.parametrize("solver", ["slq", "ddp", "sqp", "ipm", "auto"])
def test_every_solver_ends_with_the_same_code_and_measures(solver):
    found = to.solve(cart(), solver=solver)
    assert found.status.code is StatusCode.CONVERGED and found.status.success
    assert found.meta["measures"]["kkt"] <= STATIONARY and found.status.kkt <= found.meta["measures"]["kkt"]


@pytest.mark.parametrize("solver", ["slq", "sqp"])
def test_constraints_and_their_multipliers_count(solver):
    """Bounds on the speed that bind: without their multipliers the gradient would not vanish."""
    ocp = cart()
    bound = to.state_bounds(ocp.manifold, [-np.inf, -0.6], [np.inf, 0.6])
    phase = replace(ocp.phases[0], constraints=(bound,))
    found = to.solve(replace(ocp, phases=(phase,)), solver=solver)
    assert found.status.code is StatusCode.CONVERGED, found.status
    assert np.abs(found.xs[:, 1]).max() == pytest.approx(0.6, abs=1e-5)
    alone = measures(replace(ocp, phases=(phase,)), found.xs, found.us, found.K, {}, FEASIBLE)
    assert alone.kkt > STATIONARY > found.meta["measures"]["kkt"]


def test_a_motion_that_its_time_steps_invent_does_not_hold():
    coarse, fine = to.solve(pendulum(0.2), **SLQ), to.solve(pendulum(0.004), **SLQ)
    assert coarse.status.code is StatusCode.DOES_NOT_HOLD and not coarse.status.acceptable
    assert "replayed" in coarse.status.message and "use substeps = " in coarse.status.advice
    assert fine.status.code is StatusCode.CONVERGED, fine.status
    middle = to.solve(pendulum(0.05), **SLQ)
    assert middle.status.code is StatusCode.DOES_NOT_HOLD and "(substeps = 4 instead of 1, or" in middle.status.advice
    loose = to.solve(pendulum(0.2, replay_tolerance=100.0), **SLQ)
    assert loose.status.code is StatusCode.CONVERGED


DAMPING, COM, INERTIA = 5.0, 0.2, 0.05


def damped_arm() -> to.OCP:
    """Rod with strong damping that turns by 1 rad to rest, as a constraint."""
    builder = ModelBuilder("arm")
    joint = JointSpec(axis=(0, 1, 0), damping=DAMPING)
    turning = INERTIA - COM**2
    builder.add_body("rod", mass=1.0, com=(0, 0, -COM), inertia=np.diag([turning, turning, 0.005]), joint=joint)
    robot = to.FreeBody(builder.build())
    goal = to.bounded(to.state_cost(robot.manifold, [1.0, 0.0]), name="goal")
    step = to.SampledSystem(to.make_backend(robot, "analytic"), "rk4")
    cost = to.control_cost(1, weight=1e-3)
    return to.OCP.single_phase(step, np.zeros(2), 20, 0.05, [cost], [], terminal_constraints=[goal], model=robot.model)


def final_speed(us) -> float:
    """Speed at the end under controls us, by an independent integrator."""
    x = np.zeros(2)
    for u in us[:, 0]:

        def rates(t, x, u=u):
            return [x[1], (u - DAMPING * x[1] - COM * 9.81 * np.sin(x[0])) / INERTIA]

        x = solve_ivp(rates, (0.0, 0.05), x, rtol=1e-9, atol=1e-10).y[:, -1]
    return abs(x[1])


def test_rest_at_the_end_must_hold_in_the_replay():
    s = to.solve(damped_arm(), solver="ipm")
    assert s.status.code is StatusCode.DOES_NOT_HOLD and final_speed(s.us) > 0.05
    assert "constraint goal: v[rod_joint] is exceeded by" in s.status.message
    finer = to.solve(damped_arm())
    assert finer.status.success and finer.meta["substeps"] > 1
    assert final_speed(finer.us) < 0.05


@pytest.mark.parametrize("solver", ["dms", "sqp"])
def test_controls_that_are_interpolated_are_replayed_as_such(solver):
    pytest.importorskip("cyipopt")
    found = to.solve(cart(), solver=solver, options={"hold": "first_order"})
    assert found.status.code is StatusCode.CONVERGED, found.status
    held = found.meta["replay"]["open"]
    assert held["amount"] < 1e-9 and "interpolated" in held["sentence"] and "gains" not in found.meta["replay"]
    xs, us = found.xs, np.vstack([found.us, found.meta["last_control"]])
    for k in range(N):  # the motion under a linear control is a cubic
        rise = (us[k + 1] - us[k])[0]
        x = xs[k, 0] + DT * xs[k, 1] + DT**2 * (us[k, 0] / 2.0 + rise / 6.0)
        assert xs[k + 1, 0] == pytest.approx(x, abs=1e-8)


def test_a_goal_that_is_missed_has_its_code_and_sentence():
    def missed(xs, times):
        return [f"the cart ends at {xs[-1, 0]:.2f} m"] if abs(xs[-1, 0] - 2.0) > 0.1 else []

    found = to.solve(cart(goals=(Goal("two meters", missed),)), **SLQ)
    assert found.status.code is StatusCode.GOAL_MISSED
    assert "the cart ends at 1.00 m" in found.status.message and "the cart ends at 1.00 m" in found.report()
    manifold = cart().manifold
    assert to.solve(cart(goals=(state_goal(manifold, np.array([1.0, 0.0])),)), **SLQ).status.success
    assert not to.solve(
        cart(goals=(state_goal(manifold, np.array([1.1, 0.0]), [manifold.tangent_names[0]]),)), **SLQ
    ).status.success


def test_a_feasible_trajectory_that_is_not_optimal_is_acceptable():
    found = to.solve(cart(), to.constant_guess(cart(), 0.3), solver="ilqr", options={"max_iterations": 0})
    assert found.status.code is StatusCode.ACCEPTABLE and found.status.acceptable and not found.status.success
    assert f"tolerance {STATIONARY:.0e}" in found.status.message and "max_iterations = 0" in found.status.message


def test_without_checks_the_numbers_of_the_solver_decide():
    found = to.solve(pendulum(0.2), check=False, **SLQ)
    assert found.status.code is StatusCode.CONVERGED and "replay" not in found.meta
    ended = Status(StatusCode.PRECISION_LIMIT, "Stopped.", kkt=1e-7)
    assert unchecked_status(ended, 1e-9, np.ones((2, 1)), 1.0).code is StatusCode.CONVERGED
    unstable = unchecked_status(ended, 1e120, np.ones((2, 1)), 1.0)
    assert unstable.code is StatusCode.ACCEPTABLE and unstable.message.startswith(
        "Feasible, but not yet optimal: cost sensitivity"
    )
    failed = replace(ended, code=StatusCode.LINE_SEARCH_FAILED)
    assert unchecked_status(failed, 1e-9, np.ones((2, 1)), 1.0) == failed


def unstable(engine, x0=2.001):
    """xdot = x^3 + u near x = 2, where u = -8 holds it: costates of the open loop grow by e^12 a second, for 6 seconds."""
    system = to.FunctionMap(lambda x, u, t, p: [x[0] * x[0] * x[0] + u[0]], 1, 1)
    step = to.SampledSystem(to.make_backend(system, "forward_ad", engine=engine), "rk4")
    hold = to.state_cost(system.manifold, [2.0], 1.0)
    return to.OCP.single_phase(step, [x0], 300, 0.02, [to.control_cost(1, reference=-8.0, weight=1e-2), hold], [hold])


@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_without_checks_an_unstable_motion_is_optimal_by_the_gradient_under_feedback(engine):
    """Rounding alone makes the gradient of the open loop larger than the cost."""
    ocp = unstable(engine)
    guess = to.Guess(np.full((301, 1), 2.0), np.full((300, 1), -8.0))
    found = to.solve(ocp, guess, solver="fddp", check=False)
    several = to.solve_batch([ocp, unstable(engine, 2.0005)], guess=guess, solver="fddp")
    assert found.status.code is StatusCode.CONVERGED and several.success.all()
    assert found.history[-1].gradient < 1e-6 and found.history[-2].gradient > 1.0


GOOD = Measures(None, 1e-9, 1e-9)
ENDED = Status(StatusCode.CONVERGED, "Converged.", kkt=1e-9)


@pytest.mark.parametrize(
    ("reason", "found", "broken", "missed", "code"),
    [
        (StatusCode.CONVERGED, GOOD, (), (), "converged"),
        (StatusCode.COST_CONVERGED, GOOD, (), (), "converged"),
        (StatusCode.MAX_ITERATIONS, GOOD, (), (), "converged"),
        (StatusCode.CONVERGED, GOOD._replace(kkt=2.0 * STATIONARY), (), (), "acceptable"),
        (StatusCode.CONVERGED, GOOD._replace(sensitivity=2.0 * SENSITIVE), (), (), "acceptable"),
        (StatusCode.CONVERGED, GOOD._replace(violation=Violation(2.0, "x")), (), ("no",), "not_feasible"),
        (StatusCode.LINE_SEARCH_FAILED, GOOD._replace(violation=Violation(2.0, "x")), (), (), "line_search_failed"),
        (StatusCode.CONVERGED, GOOD._replace(kkt=1.0), ("away",), ("no",), "does_not_hold"),
        (StatusCode.CONVERGED, GOOD._replace(kkt=1.0), (), ("no",), "goal_missed"),
        (StatusCode.INTERRUPTED, GOOD, (), (), "interrupted"),
        (StatusCode.NON_FINITE, GOOD, (), (), "non_finite"),
        (StatusCode.CONVERGED, GOOD._replace(violation=Violation(float("nan"), "x")), (), (), "not_feasible"),
    ],
)
def test_the_first_check_that_fails_is_the_code(reason, found, broken, missed, code):
    assert str(checked_status(replace(ENDED, code=reason, kkt=None), found, broken, missed).code) == code


def reach(goal, weight=1e3):
    model = to.load_robot("iiwa7")
    robot = to.FreeBody(model)
    step = to.SampledSystem(to.make_backend(robot, "analytic", engine="numpy"), "semi_implicit_euler")
    x0 = np.r_[[0.1, 0.5, 0.0, -1.2, 0.0, 0.8, 0.0], np.zeros(7)]
    terminal = [to.frame_position_cost(model, robot.manifold, "iiwa_link_ee", goal, weight, "goal")]
    return to.OCP.single_phase(step, x0, 10, 0.05, [to.control_cost(7, weight=1e-4)], terminal, model=model)


def test_goals_of_frames_follow_from_terminal_costs():
    ocp = reach([0.5, 0.1, 0.5])
    (goal,) = frame_goals(ocp)
    assert goal.frame == "iiwa_link_ee" and list(goal.position) == [0.5, 0.1, 0.5]
    assert frame_goals(reach([0.5, 0.1, 0.5], weight=0.0)) == []
    assert list(reach_warnings(ocp.model, goal, ocp.x0[:7])) == []


def test_a_frame_that_no_joint_moves_is_named():
    ocp = reach([0.5, 0.1, 0.5])
    (goal,) = frame_goals(ocp)
    (fixed,) = [f.name for f in ocp.model.frames if f.body < 0][:1]
    (warning,) = reach_warnings(ocp.model, goal._replace(frame=fixed), ocp.x0[:7])
    assert warning.startswith(f"no joint moves {fixed}, which stays")


@pytest.mark.parametrize(
    ("goal", "message"), [([1.6, 0.0, 0.4], "beyond the reach"), ([500.0, 100.0, 500.0], "(millimeters?)")]
)
def test_scripts_report_goals_out_of_reach(goal, message):
    ocp = reach(goal)
    assert any(message in f.message for f in to.validate(ocp))
    found = to.solve(ocp, solver="ddp", options={"max_iterations": 3})
    assert not found.status.acceptable and message in found.report()


@pytest.mark.parametrize("weight", [1.0, 1e-5])
def test_a_guess_that_was_not_solved_is_not_converged_however_small_the_weights(weight):
    """Bounds far from the controls do not hide the gradient."""
    pendulum = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 2.0 * to.sin(x[0])], 2, 1, second_order=True)
    ocp = to.OCP.single_phase(
        to.SampledSystem(pendulum, "rk4"),
        [0.0, 0.0],
        20,
        0.1,
        [to.control_cost(1, weight=weight)],
        [to.state_cost(2, [1.6, 0.0], 30.0 * weight)],
        u_lower=-2.5,
        u_upper=2.5,
    )
    stopped = to.solve(ocp, solver="ddp", options={"max_iterations": 0})
    assert not stopped.status.success and stopped.meta["measures"]["kkt"] > 0.1
    assert to.solve(ocp, solver="ddp").status.code is to.StatusCode.CONVERGED


@pytest.mark.parametrize("solver", ["slq", "sqp"])
def test_a_time_limit_before_the_first_iteration_is_the_status_of_a_guess_that_misses_its_goal(solver):
    cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    goal = to.state_goal(cart.manifold, [1.0, 0.0])
    costs = [to.control_cost(1)], [to.state_cost(cart.manifold, [1.0, 0.0], 10.0)]
    ocp = to.OCP.single_phase(to.SampledSystem(cart, "rk4"), [0.0, 0.0], 20, 0.1, *costs, goals=(goal,))
    found = to.solve(ocp, solver=solver, options={"time_limit": 1e-9})
    assert found.status.code is to.StatusCode.TIME_LIMIT and found.iterations == 0 and found.meta["goals"]["missed"]


def test_a_tolerance_that_is_too_large_for_a_small_cost_is_named():
    """The cost falls to 1e-11 of that of the guess, where IPOPT's absolute tolerance ends the solve."""
    pytest.importorskip("cyipopt")
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    follow = to.control_cost(1, reference=1.0 + np.sin(0.2 * np.arange(50.0))[:, None])
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 50, 0.02, [follow], [], u_lower=0.0)
    found = to.solve(ocp, to.constant_guess(ocp, 0.5), solver="dms")
    assert found.status.code is StatusCode.ACCEPTABLE and found.status.advice == "Lower gradient_tolerance to continue."
    sharper = to.solve(ocp, to.constant_guess(ocp, 0.5), {"gradient_tolerance": 1e-11}, solver="dms")
    assert sharper.status.code is StatusCode.CONVERGED


def test_without_checks_a_large_kkt_error_is_no_success():
    converged = to.Status(StatusCode.CONVERGED, "Converged after 9 iterations.", kkt=2.4e-2)
    status = unchecked_status(converged, 0.0, np.zeros((3, 1)), 1.0)
    assert status.code is StatusCode.ACCEPTABLE and "scaled KKT error 2.4e-02, tolerance 1e-04" in status.message
    assert unchecked_status(converged, 0.0, np.zeros((3, 1)), 1.0, tolerance=0.1).code is StatusCode.CONVERGED


class OwnSteps(to.FunctionMap):
    """A double integrator whose accelerations are means over semi-implicit Euler steps."""

    scheme = "semi_implicit_euler"


@pytest.mark.parametrize(("kind", "advised"), [(to.FunctionMap, True), (OwnSteps, False)])
def test_rk4_is_advised_only_to_systems_that_can_use_it(kind, advised):
    system = kind(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "central_difference", engine="numpy"), "semi_implicit_euler")
    ocp = to.OCP.single_phase(step, [0.0, 0.0], N, DT, [to.control_cost(1)])
    assert ("rk4" in _shorter_steps(ocp)) is advised


@pytest.mark.parametrize("size", [1.0, 1e-2])
def test_the_replay_tolerance_depends_on_the_size_of_the_motion(size):
    """An oscillator (3 rad/s) with Euler steps of 0.12 s that is to come to rest."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], -9.0 * x[0] + u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad"), "euler")
    goal = to.bounded(to.state_cost(system.manifold, [0.0, 0.0]), name="goal")
    cost = to.control_cost(1, weight=size**-2)
    ocp = to.OCP.single_phase(step, [size, 0.0], 20, 0.12, [cost], terminal_constraints=[goal])
    assert to.solve(ocp, solver="ipm").status.code is StatusCode.DOES_NOT_HOLD


@pytest.mark.parametrize("weight", [1e-9, 1e-4, 1.0, 1e4])
@pytest.mark.parametrize("solver", ["auto", "ipm"])
def test_the_unit_of_the_cost_does_not_change_the_optimum(solver, weight):
    """With an active limit on the speed; the barrier must not outweigh a small cost."""

    def optimum_for(weight, solver):
        system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
        step = to.SampledSystem(to.make_backend(system, "forward_ad"), "rk4")
        goal = to.bounded(to.state_cost(system.manifold, [0.0, 0.0]), name="goal")
        speed = to.residual_constraint("speed", lambda x, u, t, p: [x[1] ** 2], 2, 1, upper=1.45**2)
        ocp = to.OCP.single_phase(
            step,
            [1.0, 0.0],
            20,
            0.05,
            [to.control_cost(1, weight=weight)],
            constraints=[speed],
            terminal_constraints=[goal],
        )
        return to.solve(ocp, solver=solver)

    expected, found = optimum_for(1.0, "sqp"), optimum_for(weight, solver)
    assert found.status.success
    assert found.cost / weight == pytest.approx(expected.cost, rel=1e-3)


@pytest.mark.parametrize("weight", [1e2, 1e6, 1e9])
def test_large_weights_at_the_guess_do_not_blunt_the_tolerance(weight):
    """A soft goal, far from the guess, with an active control bound."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 0.5 * np.sin(x[0])], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad"), "rk4")
    goal = to.state_cost(system.manifold, [2.0, 0.0], weight)
    ocp = to.OCP.single_phase(
        step, [0.0, 0.0], 30, 0.1, [to.control_cost(1, weight=0.2)], [goal], u_lower=-np.inf, u_upper=0.9
    )
    expected, found = to.solve(ocp, solver="fddp"), to.solve(ocp, solver="ipm")
    assert found.status.success and expected.status.success
    assert found.cost == pytest.approx(expected.cost, rel=2e-3)


@pytest.mark.parametrize("solver", ["ilqr", "dms", "slq", "fddp"])
def test_a_control_that_vanishes_at_the_optimum_does_not_hide_it(solver):
    """A point mass in the plane with drag; the goal lies on the x axis, so that the best second control is 0."""

    def with_drag(x, u, t, p):
        speed = to.sqrt(x[2] ** 2 + x[3] ** 2 + 0.01)
        return [x[2], x[3], u[0] - 0.3 * x[2] * speed, u[1] - 0.3 * x[3] * speed]

    step = to.SampledSystem(to.FunctionMap(with_drag, 4, 2), "rk4")
    goal = to.state_cost(4, [2.0, 0.0, 0.0, 0.0], 100.0)
    ocp = to.OCP.single_phase(step, np.zeros(4), 30, 0.1, [to.control_cost(2, weight=0.1)], [goal])
    guess = to.constant_guess(ocp, [0.3, 0.3])
    found = to.solve(ocp, guess, solver=solver)
    assert found.status.code is StatusCode.CONVERGED and found.status.kkt <= 1e-4
    assert np.abs(found.us[:, 1]).max() <= 1e-6
    assert to.solve(ocp, guess, solver=solver, check=False).status.code is StatusCode.CONVERGED
    stopped = to.solve(ocp, guess, {"max_iterations": 1}, solver=solver)
    assert not stopped.status.success and stopped.meta["measures"]["kkt"] > 1e-3


@pytest.mark.parametrize("solver", ["slq", "ddp", "ipm", "sqp", "dms", "auto"])
def test_an_objective_that_falls_without_bound_is_unbounded(solver):
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    ocp = to.OCP.single_phase(step, [-1.0, 0.0], 30, 0.1, [to.linear_cost(2, control=[1.0])])
    status = to.solve(ocp, solver=solver).status
    assert status.code is StatusCode.UNBOUNDED and "bounds" in status.advice


@pytest.mark.parametrize("solver", ["auto", "ipm", "sqp", "dms", "ddp", "fddp", "slq"])
@pytest.mark.parametrize("curved", [True, False])
def test_a_bounded_objective_in_small_units_is_not_unbounded(solver, curved):
    """1e13 times a convex cost with the optimum -1.435, or its linear part with |u| <= 1 and the optimum -2.1."""
    size, limits = 1e13, {} if curved else {"u_lower": -1.0, "u_upper": 1.0}
    cost = to.objective_term("cost", lambda x, u, t, p: [curved * 0.5 * u[0] ** 2 - u[0] * (2.0 - t)], 2, size, nu=1)
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    found = to.solve(to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, [cost], **limits), solver=solver)
    assert found.status.code is not StatusCode.UNBOUNDED
    if curved or solver != "ddp":  # ddp stops before the corner
        assert found.status.success and found.cost / size == pytest.approx(-1.435 if curved else -2.1, rel=1e-6)


@pytest.mark.parametrize("solver", ["fddp", "slq", "ddp"])
def test_batches_report_unbounded_objectives_as_single_solves_do(solver):
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    ocp = to.OCP.single_phase(step, [-1.0, 0.0], 20, 0.1, [to.linear_cost(2, control=[1.0])])
    batch = to.solve_batch(ocp, {"x0": [[-1.0, 0.0], [0.0, 0.0]]}, solver=solver)
    alone = to.solve(ocp, solver=solver, check=False)
    assert batch.status[0] == alone.status and alone.status.code is batch.status[1].code is StatusCode.UNBOUNDED


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("solver", ["sqp", "dms", "ipm", "ddp"])
def test_a_constraint_that_is_not_finite_at_the_guess_leaves_its_cost(solver):
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    row = to.residual_constraint("inverse", lambda x, u, t, p: [1.0 / x[0]], 2, 1, -np.inf, 5.0)
    ocp = to.OCP.single_phase(
        step, [0.0, 0.0], 15, 0.1, [to.control_cost(1), to.state_cost(2, [0.0, 2.0])], constraints=[row]
    )
    found = to.solve(ocp, solver=solver)
    assert found.status.code is StatusCode.NON_FINITE and found.cost == pytest.approx(3.0)


def contradiction():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    rows = [
        to.residual_constraint("one", lambda x, u, t, p: [u[0] - 1.0], 2, 1, nu=1),
        to.residual_constraint("two", lambda x, u, t, p: [u[0] - 2.0], 2, 1, nu=1),
    ]
    return to.OCP.single_phase(step, [0.0, 0.0], 15, 0.1, [to.control_cost(1)], constraints=rows)


@pytest.mark.parametrize("solver", ["ddp", "slq", "fddp", "sqp", "ipm"])
def test_contradicting_equations_are_locally_infeasible(solver):
    for check in (True, False):
        assert to.solve(contradiction(), solver=solver, check=check).status.code is StatusCode.LOCALLY_INFEASIBLE
    batch = to.solve_batch(contradiction(), {"x0": [[0.0, 0.0], [1.0, 0.0]]}, solver=solver)
    assert {s.code for s in batch.status} == {StatusCode.LOCALLY_INFEASIBLE}


def test_an_infeasible_problem_with_a_large_profit_is_not_unbounded():
    """A force within 1 N cannot move 1 kg by 1 m in 1 s; its profit grows with the distance."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    profit = to.objective_term("profit", lambda x, u, t, p: [-1e9 * x[0]], 2)
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    limits = {"u_lower": -1.0, "u_upper": 1.0}
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.05, [profit], terminal_constraints=[goal], **limits)
    for solver in ("auto", "ipm"):
        assert to.solve(ocp, solver=solver).status.code is StatusCode.LOCALLY_INFEASIBLE
    assert to.solve(ocp, solver="slq").status.code is not StatusCode.UNBOUNDED


def test_iterates_far_from_feasible_are_not_unbounded():
    """An isoperimetric problem (optimum -1.4), which slq leaves far behind."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [u[0], u[0] ** 2], 2, 1), "rk4")
    area = to.objective_term("area", lambda x, u, t, p: [-1e3 * x[0]], 2)
    ends = to.bounded(to.state_cost(2, [0.0, 4.0]), name="ends")
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 40, 0.05, [area], terminal_constraints=[ends])
    assert to.solve(ocp, solver="slq").status.code is not StatusCode.UNBOUNDED


def test_defects_are_relative_to_large_states():
    """A duration that ends at its bound of 1e6 s is clipped to it, by 1e-10 of its size."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1, second_order=True), "rk4")
    full = to.bounded(to.state_cost(1, [1.0]), name="full")
    base = to.OCP.single_phase(step, [0.0], 40, 1.25e4, [to.control_cost(1, weight=2e6)], terminal_constraints=[full])
    free = to.free_time(base, (1e5, 1e6), 0.0)
    found = to.solve(free.ocp, free.with_durations(to.constant_guess(base)), solver="ipm")
    assert found.status.success and found.times[-1] == pytest.approx(1e6, rel=1e-9)


def test_a_stationary_guess_that_a_solver_does_not_leave_is_reported():
    """The double well has its maximum at u = 0."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1), "rk4")
    well = to.objective_term("double well", lambda x, u, t, p: [u[0] ** 4 / 4 - u[0] ** 2], 2, 1, nu=1)
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 10, 0.1, [well])
    at_maximum = to.solve(ocp, solver="ddp")
    assert at_maximum.cost == 0.0 and any("did not leave the guess" in f for f in at_maximum.meta["findings"])
    beside = to.solve(ocp, to.constant_guess(ocp, 0.01), solver="ddp")
    assert beside.cost == pytest.approx(-1.0) and not any("did not leave" in f for f in beside.meta["findings"])


@pytest.mark.parametrize("solver", ["slq", "ipm"])
def test_a_tiny_motion_has_left_its_guess(solver):
    """An integrator from x0 = 1e-7, whose optimal controls are below 1e-6."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [u[0]], 1, 1), "rk4")
    costs = [to.control_cost(1, weight=0.01)], [to.state_cost(1, [0.0])]
    found = to.solve(to.OCP.single_phase(step, [1e-7], 20, 0.05, *costs), solver=solver)
    assert found.status.success and not any("did not leave" in f for f in found.meta["findings"])


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_the_tolerance_of_a_state_goal_depends_on_the_size_of_the_motion(size):
    """An oscillator that a small terminal cost does not bring to rest."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 9.0 * x[0]], 2, 1, second_order=True)
    costs = [to.control_cost(1, weight=size**-2)], [to.state_cost(2, [0.0, 0.0], 0.1 * size**-2)]
    goal = to.state_goal(system.manifold, np.zeros(2))
    ocp = to.OCP.single_phase(to.SampledSystem(system, "rk4"), [size, 0.0], 20, 0.12, *costs, goals=(goal,))
    assert to.solve(ocp).status.code is StatusCode.GOAL_MISSED


def test_rows_that_follow_from_others_are_named():
    """Rest and "no slip" hold at the last knot, where the second follows from the first."""
    large = {"terminal rest": np.full((1, 2), 1e12), "terminal tip": np.ones((1, 2))}
    advice = _on_large_multipliers(replace(to.solve(cart(), **SLQ), multipliers=large))
    assert "multipliers of terminal rest are very large" in advice and advice.endswith("or use solver = 'ipm'.")
    own = replace(to.solve(cart(), solver="ipm"), multipliers=large)
    assert _on_large_multipliers(own).endswith("or start from another guess.")


@pytest.mark.parametrize("free", [False, True])
def test_a_constraint_that_a_change_makes_the_goal_violate_is_not_feasible(free):
    """The first goal satisfies the disc, which is then no terminal constraint; the changed disc covers the goal."""
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[2], x[3], u[0], u[1]], 4, 2), "rk4")
    disc = to.residual_constraint(
        "disc",
        lambda x, u, t, p: [(x[0] - p["c"][0]) ** 2 + (x[1] - p["c"][1]) ** 2],
        4,
        1,
        lower=0.25,
        upper=np.inf,
        parameters={"c": [1.5, 0.3]},
    )
    goal = to.bounded(to.state_cost(4, [3.0, 0.0, 0.0, 0.0]), name="goal")
    ocp = to.OCP.single_phase(
        step, np.zeros(4), 30, 0.1, [to.control_cost(2)], constraints=[disc], terminal_constraints=[goal]
    )
    given = to.free_time(ocp, (0.5, 10.0)).ocp if free else ocp
    covered = given.updated("disc", c=[2.998, 0.495])
    for check in (True, False):
        status = to.solve(covered, check=check).status
        assert status.code is (StatusCode.INFEASIBLE if check and not free else StatusCode.NOT_FEASIBLE)
        assert "disc: f[0] is violated by 0.005 at the final state" in status.message
    assert to.solve(given).status.success
    if not free:
        guess = to.interpolated_guess(ocp, [3.0, 0.0, 0.0, 0.0])
        found = to.solve_batch(ocp, {"disc.c": [[1.5, 0.3], [2.998, 0.495]]}, guess)
        assert [s.code for s in found.status] == [StatusCode.CONVERGED, StatusCode.NOT_FEASIBLE]


def test_a_profit_in_small_units_is_not_unbounded():
    """Catalyst mixing (J. Jackson 1968): the profit is 0.048, here times 1e8, from a guess with none."""

    def mixing(x, u, t, p):
        made = u[0] * (10.0 * x[1] - x[0])
        return [made, -made - (1.0 - u[0]) * x[1]]

    step = to.SampledSystem(to.FunctionMap(mixing, 2, 1), "rk4")
    profit = to.objective_term("profit", lambda x, u, t, p: [1e8 * (x[0] + x[1] - 1.0)], 2)
    ocp = to.OCP.single_phase(step, [1.0, 0.0], 100, 0.01, [], [profit], u_lower=[0.0], u_upper=[1.0])
    for solver in ("ddp", "ipm"):
        found = to.solve(ocp, solver=solver)
        assert found.status.code is not StatusCode.UNBOUNDED and found.cost < -4e6


@pytest.mark.parametrize("solver", ["auto", "dms", "ipm"])
@pytest.mark.parametrize("height", [0.0, 2.0])
def test_a_sum_of_squares_that_vanishes_is_least(solver, height):
    """Hovering at the forces that the cost asks for: the cost is zero except for rounding errors."""
    hover = to.FunctionMap(
        lambda x, u, t, p: [
            x[3],
            x[4],
            x[5],
            -(u[0] + u[1]) * np.sin(x[2]),
            (u[0] + u[1]) * np.cos(x[2]) - 9.81,
            5.0 * (u[1] - u[0]),
        ],
        6,
        2,
        second_order=True,
    )
    x0 = np.array([0.0, height, 0.0, 0.0, 0.0, 0.0])
    running = [to.control_cost(2, reference=9.81 / 2, weight=0.1)]
    terminal = [to.bounded(to.state_cost(6, x0))]
    step = to.SampledSystem(hover, "rk4")
    ocp = to.OCP.single_phase(step, x0, 60, 1 / 60, running, terminal_constraints=terminal, u_lower=0.0, u_upper=8.0)
    found = to.solve(ocp, solver=solver)
    assert found.status.code == "converged" and found.cost < 1e-20


def test_large_gains_do_not_spoil_the_measure_of_optimality():
    """Springs in a row come to rest in least time: gains near the end are so large that the sweep with them loses all digits."""
    n = 6

    def rates(x, u, t, p):
        forces = [5.0 * ((x[i - 1] if i else 0.0) - x[i]) - 0.1 * x[n + i] for i in range(n)]
        pulls = [5.0 * (x[i + 1] - x[i]) for i in range(n - 1)]
        return [*(x[n + i] for i in range(n)), *(a + b for a, b in zip(forces, [*pulls, u[0]], strict=True))]

    x0 = np.concatenate([0.1 * np.arange(1, n + 1), np.zeros(n)])
    step = to.SampledSystem(to.FunctionMap(rates, 2 * n, 1), "rk4", 2)
    fixed = to.OCP.single_phase(
        step,
        x0,
        60,
        8 / 60,
        terminal_constraints=[to.bounded(to.state_cost(2 * n, np.zeros(2 * n)))],
        u_lower=-1.0,
        u_upper=1.0,
    )
    free = to.free_time(fixed, (0.5, 30.0))
    found = to.solve(free.ocp, free.with_durations(to.constant_guess(fixed)), solver="ipm")
    assert found.status.code == "converged", found.status
    assert found.meta["measures"]["sensitivity"] < 1e-6


@pytest.mark.parametrize("solver", ["slq", "ddp", "auto"])
def test_failures_of_unstable_steps_name_the_step(solver):
    """A mass on a spring whose period is shorter than the time step."""
    spring = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 1e6 * x[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(spring, "forward_ad"), "rk4")
    terminal = [to.state_cost(spring.manifold, [1e-3, 0.0], 1e4)]
    ocp = to.OCP.single_phase(step, [1e-4, 0.0], 60, 0.02, [to.control_cost(1)], terminal)
    status = to.solve(ocp, solver=solver).status
    assert not status.success and "use substeps =" in status.advice, status


def test_many_small_gradients_toward_bounds_are_not_optimal():
    """A linear cost whose optimum is the lower bound of all controls: each gradient is small, their sum is not."""
    carts = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - u[1]], 2, 2)
    dynamics = to.SampledSystem(to.make_backend(carts, "forward_ad"), "rk4")
    cost = to.linear_cost(2, control=[1.0, 1.0], weight=1e-4)
    ocp = to.OCP.single_phase(dynamics, [0.0, 0.0], 300, 2.0 / 300, [cost], u_lower=0.5, u_upper=2.0)
    for u, sensitive in ((0.5, False), (0.66, True)):
        xs, us = to.constant_guess(ocp).xs, np.full((300, 2), u)
        found = measures(ocp, xs, us, np.zeros((300, 2, 2)), {}, FEASIBLE)
        assert (found.sensitivity > SENSITIVE) == sensitive
    assert found.sensitivity == pytest.approx((0.66 - 0.5) / 0.66, rel=1e-9)


@pytest.mark.parametrize(("costs", "settled"), [([0.0, -9e9, -1e10, -1e10], True), ([0.0, -1e2, -1e4, -1e10], False)])
def test_an_objective_that_settles_is_not_unbounded(costs, settled):
    assert termination.has_settled(costs, costs[-1]) == settled
    assert not termination.has_settled([], costs[-1])
