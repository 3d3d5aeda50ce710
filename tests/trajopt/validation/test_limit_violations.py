"""Limit violations: found with the right amount, and reported with the setting that enforces the limit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.registry import make_backend
from trajopt import StatusCode
from trajopt.config.registry import PROBLEMS
from trajopt.problem.annotations import Annotations
from trajopt.validation.limit_violations import simulated_violations, weak_postures
from trajopt.view.view import _motion_factory

GO_TO = PROBLEMS["arm_go_to"]
NUMPY = partial(make_backend, engine="numpy")
OFF = {"torque_limits": False, "position_limits": False, "velocity_limits": False}
KINDS = {"position": ("position_limits", 1), "velocity": ("velocity_limits", 9), "torque": ("torque_limits", 2)}


def problem(**limits):
    settings = GO_TO.Settings(
        robot="iiwa7", horizon=10, frame="iiwa_link_ee", goal_position=(0.3, 0.2, 0.7), **OFF | limits
    )
    return GO_TO.build(settings, NUMPY).ocp


def trajectory(ocp, kind, excess):
    """Return a trajectory at rest without forces, except for one violation at knot 4."""
    model, column = ocp.model, KINDS[kind][1]
    xs, us = np.zeros((11, 14)), np.zeros((10, 7))
    limits = {
        "position": np.r_[model.q_upper, model.velocity_limit],
        "velocity": np.r_[model.q_upper, model.velocity_limit],
        "torque": model.effort_limit,
    }
    (us if kind == "torque" else xs)[4, column] = limits[kind][column] + excess
    return xs, us


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_that_was_not_asked_for_is_named_with_its_key(kind):
    ocp, key = problem(), KINDS[kind][0]
    (broken,) = to.limit_violations(ocp, *trajectory(ocp, kind, 0.25))
    assert (broken.kind, broken.knot, broken.knots, broken.enforced) == (kind, 4, 1, False)
    assert broken.excess == pytest.approx(0.25)
    assert broken.time == pytest.approx(ocp.times[4])
    assert f"{key} = true enforces it" in broken.sentence() and "iiwa_joint" in broken.sentence()


@pytest.mark.parametrize("enforced", [False, True])
@pytest.mark.parametrize("kind", ["position", "velocity"])
def test_limits_that_simulated_states_exceed_are_reported(kind, enforced):
    """Of a simulation with other times than the knots, whether the plans enforce the limits or not."""
    ocp = problem(**{KINDS[kind][0]: True} if enforced else {})
    (broken,) = simulated_violations(ocp, trajectory(ocp, kind, 0.25)[0], 0.01 * np.arange(11))
    assert (broken.kind, broken.knot, broken.time, broken.enforced) == (kind, 4, 0.04, enforced)
    text = broken.sentence(sample="tick")
    assert "exceeded by 0.25" in text and "at t = 0.04 s, tick 4" in text
    remedy = f"{KINDS[kind][0]} = true enforces it"
    assert text.endswith(f"{'although it is enforced' if enforced else remedy} in the plans")


def test_times_are_in_seconds_where_durations_are_free():
    """Knot 4 of 10 of a motion of 2 s is at 0.8 s; an instantaneous knot, which chooses the duration, comes first."""
    ocp = problem()
    free = to.free_time(ocp, (0.1, 5.0))
    (broken,) = to.limit_violations(free.ocp, *free.with_durations(trajectory(ocp, "position", 0.25), [2.0]))
    assert broken.knot == 5 and broken.time == pytest.approx(0.8) and "t = 0.8 s" in broken.sentence()


def test_residuals_read_the_time_from_the_start_of_a_problem_on():
    """x = t on the path and at the end, for a problem that starts at 5 s."""
    drift = to.FunctionMap(lambda x, u, t, p: [1.0 + 0.0 * u[0]], 1, 1)
    clock = to.residual_constraint("clock", lambda x, u, t, p: [x[0] - t], 1, 1, 0.0, 0.0)
    ocp = to.OCP.single_phase(
        to.SampledSystem(make_backend(drift, "forward_ad", engine="numpy"), "euler"), [5.0], 4, 0.5, [to.control_cost(1)],
        constraints=[clock], terminal_constraints=[clock],
    )  # fmt: skip
    moved = replace(ocp, start=5.0)
    xs, us = 5.0 + moved.times[:, None], np.zeros((4, 1))
    assert to.limit_violations(moved, xs, us) == []
    assert {b.time for b in to.limit_violations(ocp, xs, us)} == {0.5, 2.0}


def test_violations_in_several_phases_are_one():
    ocp = problem()
    ocp = replace(ocp, phases=tuple(replace(ocp.phases[0], dt=ocp.phases[0].dt[:n]) for n in (3, 7)))
    xs, us = trajectory(ocp, "torque", 0.25)
    us[1, 2] = us[4, 2] + 0.5
    (broken,) = to.limit_violations(ocp, xs, us)
    assert (broken.knot, broken.knots) == (1, 2) and broken.excess == pytest.approx(0.75)
    low, high = (
        to.residual_constraint("limit", lambda x, u, t, p: [u[2]], 14, 1, -np.inf, bound, nu=7) for bound in (0.5, 2.0)
    )
    first, second = ocp.phases
    limited = replace(ocp, phases=(replace(first, constraints=(low,)), replace(second, constraints=(high,))))
    us[[1, 4], 2] = 3.0
    assert [(b.knot, b.limit) for b in to.limit_violations(limited, xs, us)] == [(1, 0.5), (4, 2.0)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_enforced_limit_is_reported_once_and_as_such(kind):
    ocp = problem(**{KINDS[kind][0]: True})
    (broken,) = to.limit_violations(ocp, *trajectory(ocp, kind, 0.25))
    assert broken.enforced and broken.excess == pytest.approx(0.25)
    assert str(broken) == broken.sentence()
    assert "although it is enforced" in broken.sentence() and "enforces it" not in broken.sentence()


def test_no_setting_is_named_that_the_problem_lacks():
    ocp = problem()
    (broken,) = to.limit_violations(ocp, *trajectory(ocp, "position", 0.25))
    assert "position_limits" in broken.sentence(["dt", "position_limits"])
    assert "enforces it" not in broken.sentence(["dt", "torque_limits"])


def test_satisfied_limits_and_non_finite_numbers_are_not_reported():
    ocp = problem()
    assert to.limit_violations(ocp, np.zeros((11, 14)), np.zeros((10, 7))) == []
    assert to.limit_violations(ocp, np.full((11, 14), np.nan), np.zeros((10, 7))) == []


def test_the_given_start_breaks_nothing():
    ocp = problem(position_limits=True)
    xs = np.zeros((11, 14))
    xs[0, 1] = 9.0
    assert to.limit_violations(ocp, xs, np.zeros((10, 7))) == []


def test_constraints_on_the_way_are_looked_at_at_the_end_too():
    """A running constraint by knot that the last state violates is reported as not enforced there, unless it is also terminal."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "euler")
    wall = to.residual_constraint("wall", lambda x, u, t, p: [x[0]], system.manifold, 1, -np.inf, np.ones((2, 1)))
    xs, us = np.array([[0.0, 0.0], [0.5, 0.0], [1.2, 0.0]]), np.zeros((2, 1))
    ocp = to.OCP.single_phase(step, xs[0], 2, 0.1, [to.control_cost(1)], constraints=[wall])
    (violation,) = to.limit_violations(ocp, xs, us)
    assert (violation.knot, violation.excess, violation.enforced, violation.end) == (2, pytest.approx(0.2), False, True)
    assert "add it to terminal_constraints too" in violation.sentence()
    both = to.OCP.single_phase(step, xs[0], 2, 0.1, constraints=[wall.updated(upper=[1.0], lower=[-np.inf])])
    (violation,) = to.limit_violations(both, xs, us)
    assert violation.enforced and not violation.end and violation.knot == 2


@pytest.mark.parametrize(
    ("goal", "scheme", "warned"),
    [
        (1e-9, "semi_implicit_euler", True),
        (1e-9, "rk4", False),  # is scaled
        (1e-3, "semi_implicit_euler", False),
        (0.0, "semi_implicit_euler", False),
    ],
)
def test_a_goal_within_the_tolerance_of_x0_is_reported(goal, scheme, warned):
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    dynamics = to.SampledSystem(to.make_backend(system, "forward_ad"), scheme)
    last = [to.bounded(to.state_cost(2, [goal, 0.0]), name="goal")]
    ocp = to.OCP.single_phase(dynamics, [0.0, 0.0], 5, 0.1, [to.control_cost(1)], terminal_constraints=last)
    expected = warned * [
        f"x0 misses goal: x[0] by {goal:.3g}, less than the tolerance 1e-06: it counts as reached; choose units in which this "
        "distance is near 1"
    ]
    for messages in ([f.message for f in to.validate(ocp)], to.solve(ocp).meta["findings"]):
        assert [m for m in messages if "choose units" in m] == expected


@pytest.mark.parametrize(("bound", "weak"), [(20.0, False), (15.0, True), (None, True)])
def test_postures_that_the_motors_cannot_hold(bound, weak):
    """Two rods of 1 kg and 1 m, stretched out sideways, load the shoulder with (0.5 + 1.5) g and the elbow with 0.5 g."""
    model = to.load_robot("double_pendulum").replace(effort_limit=np.array([30.0, 3.0]))
    dynamics = to.SampledSystem(NUMPY(to.FreeBody(model), "analytic"), "rk4")
    bounds = {} if bound is None else {"u_lower": -bound, "u_upper": bound}
    ocp = to.OCP.single_phase(dynamics, np.zeros(4), 10, 0.1, [to.control_cost(2)], [], model=model, **bounds)
    xs = np.linspace(0.0, 1.0, 11)[:, None] * [0.5 * np.pi, 0.0, 0.0, 0.0]
    found = list(weak_postures(ocp, xs))
    assert len(found) == weak
    needed = {15.0: ("shoulder", "19.6 N m"), None: ("elbow", "4.91 N m")}
    assert all("at its end" in text and all(part in text for part in needed[bound]) for text in found)
    stiff, reference = np.array([0.0, 2.0]), np.array([0.0, 1.25])  # this spring carries the elbow
    carried = replace(ocp, model=model.replace(stiffness=stiff, spring_reference=reference))
    assert len(list(weak_postures(carried, xs))) == (bound == 15.0)
    xs[-1, 2] = 0.1  # it does not end at rest
    assert not list(weak_postures(ocp, xs))


@pytest.mark.parametrize("given", ["at once", "by weights", "by bounds"])
@pytest.mark.parametrize(
    ("duration", "limited", "warned"), [(0.1, True, True), (0.1, False, False), (0.3, True, False)]
)
def test_a_goal_that_the_velocity_limits_exclude(duration, limited, warned, given):
    """A joint with a limit of 10 rad/s turns by 2 rad, which takes at least 0.2 s; joints and rest in one constraint or in two."""
    model = to.load_robot("iiwa7")
    body = to.FreeBody(model)
    end, of_joints = np.eye(14)[0] * 2.0, np.repeat([1.0, 0.0], 7)
    parts = [np.ones(14)] if given == "at once" else [of_joints, 1.0 - of_joints]
    goals = [to.bounded(to.state_cost(body.manifold, end, weight), name=f"goal {weight[0]:g}") for weight in parts]
    if given == "by bounds":
        bounds = [[np.where(part > 0.0, end, far) for far in (-np.inf, np.inf)] for part in parts]
        goals = [to.state_bounds(body.manifold, *pair, name=f"goal {i}") for i, pair in enumerate(bounds)]
    ocp = to.OCP.single_phase(
        to.SampledSystem(NUMPY(body, "analytic"), "rk4"),
        np.zeros(14),
        10,
        duration / 10,
        [to.control_cost(7)],
        [],
        constraints=[to.velocity_limits(model, body.manifold)] if limited else [],
        terminal_constraints=goals,
        model=model,
    )
    found = [f.message for f in to.validate(ocp) if "velocity limit" in f.message]
    assert len(found) == warned
    if warned:
        status = to.solve(ocp).status
        assert status.code is StatusCode.INFEASIBLE and found[0] in status.message
    assert all("takes at least 0.2 s" in text and "lasts 0.1 s" in text for text in found)


@pytest.mark.parametrize("changed", [False, True])
def test_a_goal_outside_the_joint_limits_is_infeasible_at_once(changed):
    """The third joint turns by at most 2.9 rad; the goal is outside from the start, or by a change."""
    model = to.load_robot("iiwa7")
    body = to.FreeBody(model)
    goals = [np.eye(14)[2] * angle for angle in (0.5, 3.5)]
    ocp = to.OCP.single_phase(
        to.SampledSystem(NUMPY(body, "analytic"), "rk4"),
        np.zeros(14),
        10,
        0.1,
        [to.control_cost(7)],
        [],
        constraints=[to.joint_limits(model, body.manifold)],
        terminal_constraints=[to.bounded(to.state_cost(body.manifold, goals[0 if changed else 1]), name="goal")],
        model=model,
    )
    found = to.solve(ocp.updated("goal", reference=goals[1]) if changed else ocp)
    assert found.status.code is StatusCode.INFEASIBLE and found.iterations == 0
    said = "is violated by 0.5" if changed else "the goal violates joint limits: iiwa_joint_3 by 0.5"
    assert said in found.status.message and "move the goal" in found.status.message


def test_a_start_beyond_the_velocity_limit_may_go_farther():
    """The limit holds from the first knot on: a slider at 3 m/s moves by 1.05 m in 1 s, with a limit of 1 m/s."""
    model = replace(to.load_robot("cart_pole"), velocity_limit=np.array([1.0, np.inf]))
    body = to.FreeBody(model)
    step = to.SampledSystem(to.make_backend(body, "analytic"), "rk4")
    goal = to.bounded(to.state_cost(body.manifold, np.array([1.05, 0.0, 0.9, 0.0])), name="goal")
    upright = to.state_cost(body.manifold, np.zeros(4), [0.0, 10.0, 0.0, 1.0])
    ocp = to.OCP.single_phase(
        step,
        np.array([0.0, 0.0, 3.0, 0.0]),
        10,
        0.1,
        [to.control_cost(body.nu, weight=1e-4), upright],
        constraints=[to.velocity_limits(model, body.manifold)],
        terminal_constraints=[goal],
        model=model,
    )
    assert to.solve(ocp, solver="ipm").status.code is not StatusCode.INFEASIBLE


def test_a_goal_may_violate_constraints_by_the_tolerance_of_the_solver():
    step = to.SampledSystem(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "rk4")
    wall = to.residual_constraint("wall", lambda x, u, t, p: [x[0]], 2, 1, upper=1.0, lower=-np.inf)
    goal = to.bounded(to.state_cost(2, [1.0 + 1e-4, 0.0]), name="goal")
    rows = {"constraints": [wall], "terminal_constraints": [goal]}
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, [to.control_cost(1)], **rows)
    assert to.solve(ocp, solver="ipm").status.code is StatusCode.INFEASIBLE
    loose = to.solve(ocp, solver="ipm", options={"constraint_tolerance": 1e-3})
    assert loose.status.code in (StatusCode.CONVERGED, StatusCode.ACCEPTABLE)


def test_a_failure_at_the_longest_duration_names_it():
    step = to.SampledSystem(
        NUMPY(to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True), "forward_ad")
    )
    goal = to.bounded(to.state_cost(2, [4.0, 0.0]), name="goal")
    limits = {"u_lower": -1.0, "u_upper": 1.0}
    far = to.OCP.single_phase(step, [0.0, 0.0], 5, 0.4, [to.control_cost(1)], terminal_constraints=[goal], **limits)
    solution = to.solve(to.free_time(far, (0.5, 3.0)).ocp, solver="ipm")
    assert solution.status.code is StatusCode.LOCALLY_INFEASIBLE
    assert solution.status.advice.startswith(f"The duration is {solution.times[-1]:.4g} s, ")
    assert "the longest allowed duration: it may limit the motion; raise this bound" in solution.status.advice


def test_limits_and_pictures_of_robots_whose_joints_follow_others_have_all_joints():
    """States have the independent joints only; they were read as (q, v) of all joints."""
    body = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
    joint = '<joint name="{0}" type="prismatic"><parent link="base"/><child link="l{0}"/>{1}{2}</joint>'
    limit = '<limit lower="0.01" upper="{}" effort="5" velocity="1.5"/>'.format
    links = '<link name="base"/>' + "".join(f'<link name="l{name}">{body}</link>' for name in "abc")
    follow = '<mimic joint="b" multiplier="2"/>'
    joints = joint.format("a", limit(1), "") + joint.format("b", limit(1), "") + joint.format("c", limit(0.9), follow)
    model = to.load_urdf(f'<robot name="gripper">{links}{joints}</robot>', mimic="follow")
    system = to.CoupledBody(model)
    xs = np.array([[0.1, 0.02, 0.0, 0.0], [0.1, 0.5, 0.0, 0.8], [2.0, 0.02, 0.0, 0.0]])
    us = np.array([[0.0, 0.0], [6.0, 0.0]])
    dynamics = to.SampledSystem(to.make_backend(system, "analytic", engine="numpy"))
    ocp = to.OCP.single_phase(
        dynamics, xs[0], 2, 0.1, constraints=[to.joint_limits(model, system.manifold)], model=model
    )
    found = {(b.kind, b.name): (b.knot, round(b.excess, 9)) for b in to.limit_violations(ocp, xs, us) if not b.enforced}
    assert found == {("position", "c"): (1, 0.1), ("velocity", "c"): (1, 0.1), ("torque", "a"): (1, 1.0)}
    assert not [finding for finding in to.validate(ocp) if "x0" in str(finding)]
    motion = _motion_factory((), ocp, None, (), Annotations())("plan", np.arange(3.0), xs)
    np.testing.assert_allclose(motion.q, [[0.1, 0.02, 0.04], [0.1, 0.5, 1.0], [2.0, 0.02, 0.04]])
