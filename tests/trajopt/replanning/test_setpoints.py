"""Setpoints of a plan for a controller: at its rate, with feet and forces, from a loop, and through a ROS 2 node."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from replanning_cases import TICK, loop, mass

import trajopt as to
from dynamics_backends.names import UnknownName
from dynamics_backends.rigid_body.model.model_builder import ModelBuilder
from experiments.analysis.gait_analysis import contact_forces

NODE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "ros2_node.py"
KNOTS, DT = 4, 0.02


def legged():
    """A double pendulum that hangs free, then holds its tip, and a plan of random numbers for it."""
    model = to.load_robot("double_pendulum")
    tip = [f.name for f in model.frames if f.kind == "link"][-1]
    free = to.FreeBody(model)
    held = to.Holonomic(model, [to.PointContact(tip, name="ground")])
    phases = []
    for system in (free, held):
        dynamics = to.SampledSystem(to.make_backend(system, "analytic", engine="numpy"), "semi_implicit_euler")
        phases.append(to.Phase(dynamics, np.full(KNOTS, DT), (to.control_cost(2),)))
    ocp = to.OCP(tuple(phases), np.zeros(4), model=model)
    rng = np.random.default_rng(0)
    N = 2 * KNOTS
    xs, us, K = rng.standard_normal((N + 1, 4)), rng.standard_normal((N, 2)), rng.standard_normal((N, 2, 4))
    return ocp, to.Plan(0.5, ocp.times, xs, us, K), held, tip


def test_a_stream_ends_with_the_plan_at_any_rate():
    ocp, plan, _, _ = legged()
    stream = list(to.setpoints(ocp, plan, 333.3))
    assert stream[-1].t == plan.end and [s.last for s in stream] == [False] * (len(stream) - 1) + [True]
    np.testing.assert_allclose(np.diff([s.t for s in stream])[:-1], 1.0 / 333.3)


def test_a_plan_of_another_problem_is_refused():
    ocp, plan, _, _ = legged()
    other = to.OCP.single_phase(mass(), np.zeros(2), KNOTS, DT, [to.control_cost(1)], [])
    with pytest.raises(ValueError, match=r"the plan has states of shape \(9, 4\); those of the problem have nx = 2"):
        to.setpoints(other, plan, 100.0)
    arm = to.FreeBody(to.chain(2))
    steps = to.SampledSystem(to.make_backend(arm, "analytic", engine="numpy"))
    other = to.OCP.single_phase(steps, np.zeros(4), KNOTS, DT, [to.control_cost(2)], [], model=arm.model)
    with pytest.raises(ValueError, match="the plan is of another problem, with the robot double_pendulum"):
        to.setpoints(other, to.solve(ocp, solver="slq"), 100.0)


def test_a_stream_has_the_rate_of_the_controller():
    ocp, plan, _, tip = legged()
    stream = list(to.setpoints(ocp, plan, 1000.0, [tip]))
    assert len(stream) == 161 and [s.last for s in stream] == [False] * 160 + [True]
    np.testing.assert_allclose([s.t for s in stream], 0.5 + 0.001 * np.arange(161), atol=1e-12)
    for k in range(2 * KNOTS):
        s = stream[20 * k]
        np.testing.assert_allclose(s.x, plan.xs[k], atol=1e-9)
        middle = stream[20 * k + 10]
        np.testing.assert_allclose(middle.x, 0.5 * (plan.xs[k] + plan.xs[k + 1]), atol=1e-9)
        np.testing.assert_allclose(middle.rate, (plan.xs[k + 1] - plan.xs[k]) / DT, rtol=1e-9)
        np.testing.assert_array_equal(middle.u, plan.us[k])
        y = middle.x + [0.1, -0.2, 0.3, 0.0]
        np.testing.assert_allclose(middle.control(y, ocp.manifold), plan.control(middle.t, y, ocp.manifold))


def test_a_stream_equals_single_setpoints():
    ocp, plan, _, tip = legged()
    for s in to.setpoints(ocp, plan, 90.0, [tip]):
        alone = to.setpoint(ocp, plan, s.t, [tip])
        np.testing.assert_allclose(s.x, plan.reference(s.t, ocp.manifold), atol=1e-14)
        for ours, theirs in zip((s.x, s.rate, s.u, s.K), (alone.x, alone.rate, alone.u, alone.K), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-14)
        for ours, theirs in (
            (s.forces, alone.forces),
            (s.feet, alone.feet),
            (s.foot_velocities, alone.foot_velocities),
        ):
            assert ours.keys() == theirs.keys()
            np.testing.assert_allclose(*([at[key] for key in ours] for at in (ours, theirs)), rtol=1e-12, atol=1e-12)


def test_feet_are_where_the_robot_has_them():
    ocp, plan, _, tip = legged()
    s = to.setpoint(ocp, plan, 0.553, [tip])
    q, v = s.x[:2], s.x[2:]
    np.testing.assert_allclose(s.feet[tip], to.frame_placement(ocp.model, q, tip)[1], atol=1e-12)
    h = 1e-6
    moved = [to.frame_placement(ocp.model, q + d * v, tip)[1] for d in (-h, h)]
    np.testing.assert_allclose(s.foot_velocities[tip], (moved[1] - moved[0]) / (2 * h), atol=1e-8)
    with pytest.raises(UnknownName):
        to.setpoint(ocp, plan, 0.5, ["no foot"])


def test_forces_of_long_steps_are_those_that_move_the_robot():
    """m (v+ - v) / h = F + m g at every setpoint of a point mass that falls on the ground, from knot to knot."""
    builder, m, h = ModelBuilder("ball"), 2.0, 0.02
    builder.add_body("ball", joint="floating", mass=m, inertia=0.01 * np.eye(3))
    system = to.SteppedContact(builder.build(), ["ball"])
    x0 = system.manifold.identity()
    x0[2], x0[7] = 0.03, 0.4
    dynamics = to.SampledSystem(to.make_backend(system, "analytic", engine="numpy"), "semi_implicit_euler")
    ocp = to.OCP.single_phase(dynamics, x0, 6, h, [to.state_cost(system.manifold, x0, 1.0)], model=system.model)
    fall = to.feedback_guess(ocp, np.zeros((0, 12)))
    plan = to.Plan(0.0, ocp.times, *fall, np.zeros((6, 0, 12)))
    for s in list(to.setpoints(ocp, plan, 200.0))[:-1]:
        k = plan.knot(s.t)
        pushed = m * (plan.xs[k + 1, 7:10] - plan.xs[k, 7:10]) / h
        np.testing.assert_allclose(s.forces["ball"], pushed + [0.0, 0.0, m * 9.81], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(contact_forces(ocp, plan.xs, plan.us)["ball"][-1], s.forces["ball"], rtol=1e-9)


def test_forces_are_those_of_the_contact_and_zero_without_it():
    ocp, plan, held, _ = legged()
    free = to.setpoint(ocp, plan, 0.51)
    np.testing.assert_array_equal(free.forces["ground"], np.zeros(3))
    standing = to.setpoint(ocp, plan, 0.6)
    x, u = standing.x[:, None], standing.u[:, None]
    expected = held.outputs(x, u, 0.0, {})["ground"]
    np.testing.assert_allclose(standing.forces["ground"], np.asarray(expected)[:, 0], rtol=1e-12)
    assert np.abs(standing.forces["ground"]).max() > 0.1


def test_behind_its_end_a_plan_stays():
    ocp, plan, _, _ = legged()
    after = to.setpoint(ocp, plan, 2.0)
    np.testing.assert_allclose(after.x, plan.xs[-1], rtol=1e-12)
    assert after.last and not after.rate.any()
    with pytest.raises(ValueError, match="rate = 0"):
        next(to.setpoints(ocp, plan, 0.0))


def test_setpoints_of_a_plan_with_free_durations_are_in_seconds():
    """Two phases of 0.08 s that take 0.2 s and 0.04 s: the states at the knots come when these say."""
    ocp, plan, _, _ = legged()
    free = to.free_time(ocp)
    scaled = free.ocp
    xs, us = free.with_durations(plan, [0.2, 0.04])
    K = np.concatenate([np.zeros((1, 2, 6)), np.pad(plan.K, ((0, 0), (0, 0), (0, 2)))])
    stretched = to.Plan(0.5, scaled.times, xs, us, K)
    expected = np.r_[0.0, 0.05 * np.arange(5), 0.2 + 0.01 * np.arange(1, 5)]
    np.testing.assert_allclose(scaled.times_of(xs), expected, atol=1e-12)
    np.testing.assert_allclose(scaled.times_of(xs), free.times(xs), atol=1e-12)
    stream = list(to.setpoints(scaled, stretched, 1000.0))
    assert len(stream) == 241 and stream[-1].t == pytest.approx(0.74) and stream[-1].last
    for k in range(KNOTS):
        np.testing.assert_allclose(stream[50 * k].x[:4], plan.xs[k], atol=1e-9)
        np.testing.assert_allclose(stream[50 * k + 1].rate[:4], (plan.xs[k + 1] - plan.xs[k]) / 0.05, rtol=1e-9)
        np.testing.assert_allclose(stream[200 + 10 * k].x[:4], plan.xs[KNOTS + k], atol=1e-9)
    s = to.setpoint(scaled, stretched, 0.6)
    np.testing.assert_array_equal(s.x, stream[100].x)
    measured = s.x[:4] + 0.1  # the robot measures no durations
    np.testing.assert_allclose(s.control(measured, scaled.manifold), s.u + s.K[:, :4] @ np.full(4, 0.1))


def accelerated(duration: float):
    """A double pendulum whose joints' accelerations are the controls, for a free duration, and a plan of random numbers for it."""
    model = to.load_robot("double_pendulum")
    dynamics = to.SampledSystem(to.make_backend(to.DoubleIntegrator(model.dof_names), engine="numpy"), "rk4")
    free = to.free_time(to.OCP.single_phase(dynamics, np.zeros(4), KNOTS, DT, [to.control_cost(2)], model=model))
    rng = np.random.default_rng(2)
    xs, us, K = (
        rng.standard_normal((KNOTS + 1, 4)),
        rng.standard_normal((KNOTS, 2)),
        rng.standard_normal((KNOTS + 1, 2, 5)),
    )
    xs, us = free.with_durations((xs, us), [duration])
    return free.ocp, to.Plan(0.0, free.ocp.times, xs, us, K)


def test_joint_accelerations_are_converted_to_joint_forces():
    ocp, plan = accelerated(0.4)
    model, stream = ocp.model, list(to.setpoints(ocp, plan, 100.0))
    assert stream[-1].t == pytest.approx(0.4)
    for s in stream:
        a = to.forward_dynamics(model, s.x[:2], s.x[2:4], s.u)
        np.testing.assert_allclose(a, plan.us[1 + min(int(10 * s.t + 1e-9), KNOTS - 1)], rtol=1e-9)
    s, h = stream[17], 1e-6
    for y in np.eye(5)[:4]:  # the feedback in accelerations, to first order
        asked = [plan.us[2] + plan.K[2] @ (d * y) for d in (-h, h)]
        forces = [
            to.inverse_dynamics(model, *np.split(s.x[:4] + d * y[:4], 2), a)
            for d, a in zip((-h, h), asked, strict=True)
        ]
        np.testing.assert_allclose(s.K @ y, (forces[1] - forces[0]) / (2 * h), rtol=1e-6, atol=1e-6)


def test_accelerations_are_constant_between_knots_as_where_motions_are_checked():
    ocp, plan = accelerated(0.4)
    x, us = plan.xs[1, :4], plan.us[1:]
    plan.xs[2:, :4] = [x := np.r_[x[:2] + 0.1 * x[2:] + 0.005 * a, x[2:] + 0.1 * a] for a in us]
    stream = list(to.setpoints(ocp, plan, 1000.0))
    q, v, a = (np.array(rows) for rows in zip(*(np.split(np.r_[s.x[:4], s.rate[2:4]], 3) for s in stream), strict=True))
    np.testing.assert_allclose(np.diff(v, axis=0), np.repeat(us, 100, axis=0) * 1e-3, atol=1e-12)
    np.testing.assert_allclose(np.diff(q, axis=0), 5e-4 * (v[1:] + v[:-1]), atol=1e-12)  # exact, as v is linear
    np.testing.assert_allclose(a[:-1], np.repeat(us, 100, axis=0))
    np.testing.assert_allclose([s.rate[:2] for s in stream], v)
    np.testing.assert_allclose(stream[-1].x, plan.xs[-1], atol=1e-12)


def test_a_loop_returns_setpoints_of_the_current_plan():
    setpoints = []
    run = loop(on_tick=lambda t: setpoints.append(run.setpoint(t)))
    log = run.run(0.5)
    np.testing.assert_allclose([s.t for s in setpoints], TICK * np.arange(len(setpoints)), atol=1e-12)
    np.testing.assert_allclose([s.x for s in setpoints], log.references, atol=1e-12)
    np.testing.assert_allclose(
        [s.control(x, log.manifold) for s, x in zip(setpoints, log.estimates, strict=True)], log.us
    )


def test_controls_are_interpolated_with_a_first_order_hold():
    """Fed to the dynamics, the stream ends where the plan does, and a batch keeps the last control."""
    pendulum = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 2.0 * to.sin(x[0])], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(pendulum, "forward_ad", engine="numpy"), "rk4")
    goal = to.bounded(to.state_cost(2, [1.0, 0.0]), name="goal")
    ocp = to.OCP.single_phase(step, [0.0, 0.0], 10, 0.2, [to.control_cost(1)], terminal_constraints=[goal])
    options = {"hold": "first_order"}
    solution = to.solve(ocp, solver="sqp", options=options)
    x, stream = ocp.x0[None], list(to.setpoints(ocp, solution, rate=1000.0))
    for now, after in itertools.pairwise(stream):
        x = step.step(x, 0.5 * (now.u + after.u)[None], 0.0, after.t - now.t)
    np.testing.assert_allclose(x[0], [1.0, 0.0], atol=1e-4)
    (again,) = to.solve_batch([ocp], solver="sqp", options=options)
    np.testing.assert_allclose(again.meta["last_control"], solution.meta["last_control"], atol=1e-8)
