"""Gait schedules: sets of feet, swing references, and their problems."""

from __future__ import annotations

import numpy as np
import pytest
from contact_cases import FEET, STANCE, hyq

import trajopt as to
from dynamics_backends.names import UnknownName
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import forward_dynamics, frame_jacobian
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from experiments.analysis.gait_analysis import analyze, contact_forces, contacts
from problems.legged.contact.friction_cone import friction_cost
from problems.legged.gaits.gait import Gait, GaitPhase
from problems.legged.gaits.gait_settings import FootWeights
from problems.legged.gaits.scheduled_gait import Settings, build, holding_torques
from trajopt.config.task import SettingsError, position_of

LF, RF, LH, RH = FEET
TIMES = {"swing": 0.2, "support": 0.1}
SHORT = {"joints": tuple(STANCE), "swing": 0.04, "support": 0.01, "step_length": 0.02, "step_height": 0.01}


# -- the description ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stances"),
    [
        ("trot", [{LF, RH}, {RF, LH}]),
        ("pace", [{RF, RH}, {LF, LH}]),
        ("bound", [{LH, RH}, {LF, RF}]),
        ("walk", [{LF, RF, RH}, {RF, LH, RH}, {LF, RF, LH}, {LF, LH, RH}]),
    ],
)
def test_named_gaits_have_the_right_sets_of_feet(name, stances):
    gait = Gait.named(name, FEET, **TIMES, cycles=2)
    found = [set(phase.stance) for phase in gait.phases if len(phase.stance) < 4]
    assert found == 2 * stances
    assert gait.duration == pytest.approx(len(found) * 0.3 + 0.1)
    assert all(len(gait.swings(foot)) == 2 for foot in FEET)


def test_phases_on_a_grid():
    gait = Gait.named("trot", FEET, swing=0.25, support=0.02)
    knots = [(i.first, i.last) for i in gait.intervals(0.01)]
    assert knots == [(0, 2), (2, 27), (27, 29), (29, 54), (54, 56)]
    with pytest.raises(ValueError, match="has no knot"):
        gait.intervals(0.1)


def test_consecutive_phases_in_the_air_are_one_swing():
    phases = (GaitPhase(FEET, 0.1), GaitPhase((LF, RF), 0.2), GaitPhase((LF,), 0.3), GaitPhase(FEET, 0.1))
    gait = Gait(feet=FEET, phases=phases)
    assert gait.swings(LH) == [pytest.approx((0.1, 0.6))]
    assert gait.swings(RF) == [pytest.approx((0.3, 0.6))]
    assert gait.swings(LF) == []


def test_references_are_smooth_and_reach_the_next_foothold():
    gait = Gait.named("trot", FEET, **TIMES, cycles=2, step_length=0.3, step_height=0.1)
    footholds = np.arange(12.0).reshape(4, 3)
    h = 1e-3
    times = np.arange(0.0, gait.duration + 0.5 * h, h)
    r = gait.references(times, footholds)
    assert np.allclose(r.position[-1] - footholds, [0.6, 0.0, 0.0], atol=1e-12)
    assert np.allclose(r.position[:, :, 2].max(axis=0) - footholds[:, 2], 0.1)
    slope = (r.position[2:] - r.position[:-2]) / (2.0 * h)
    assert np.abs(slope - r.velocity[1:-1]).max() < 0.01 * np.abs(r.velocity).max()
    assert np.abs(r.velocity[r.landing]).max() < 1e-12
    assert r.landing.sum() == 8 and not (r.landing & r.swinging).any()
    still = ~r.swinging
    assert np.abs(r.velocity[still]).max() < 1e-12
    assert np.allclose(r.base[-1], [0.6, 0.0, 0.0]) and np.diff(r.base[:, 0]).min() >= 0.0


def test_its_own_references_are_recognized_as_the_gait():
    gait = Gait.named("trot", FEET, swing=0.25, support=0.05, cycles=4)
    times = np.arange(0.0, gait.duration + 0.005, 0.01)
    r = gait.references(times, np.zeros((4, 3)))
    report = analyze(FEET, times, ~r.swinging[:-1])
    assert report.period == pytest.approx(0.6, abs=0.011)
    assert abs(report.shift(LF, RH)) < 0.02 and abs(report.shift(RF, LH)) < 0.02
    assert abs(abs(report.shift(LF, RF)) - 0.5) < 0.03


def test_errors_name_the_mistake():
    with pytest.raises(UnknownName, match="did you mean 'lf_foot'"):
        Gait.in_turn(FEET, [["lf_fot"]], **TIMES)
    with pytest.raises(UnknownName, match="no foot is named 'tail'"):
        Gait(feet=FEET, phases=(GaitPhase(("tail",), 0.1),))
    with pytest.raises(UnknownName, match="did you mean 'trot'"):
        Gait.named("trott", FEET, **TIMES)
    with pytest.raises(ValueError, match="needs four feet.* name them .feet., and check that the z axis"):
        Gait.named("trot", FEET[:2], **TIMES)
    with pytest.raises(
        ValueError, match="needs two feet or four.*got 3: .* list the groups of feet that swing in turn"
    ):
        Gait.named("trot", FEET[:3], **TIMES)
    with pytest.raises(SettingsError, match="phases"):
        Gait(feet=FEET, phases=(GaitPhase(FEET, 0.0),))
    with pytest.raises(UnknownName, match="did you mean 'lf_foot'"):
        build(Settings(**SHORT, feet=("lf_fot", RF, LH, RH)), make_backend)
    with pytest.raises(UnknownName, match="no foot is named 'lh'"):
        build(Settings(**SHORT, swings=(("lh",),)), make_backend)
    with pytest.raises(SettingsError, match="gait"):
        Settings(gait="canter")
    with pytest.raises(SettingsError, match="swing: expected a positive number, got nan"):
        Settings(swing=float("nan"))
    with pytest.raises(SettingsError, match=r"step_height: expected a number, got nan"):
        Settings(step_height=float("nan"))
    with pytest.raises(SettingsError, match=r"contact_parameters: .* \(did you mean 'stiffness'\?\)"):
        Settings(contact="soft", contact_parameters={"stiffnes": 1.0})
    with pytest.raises(ValueError, match="joints has 2 entries"):
        build(Settings(joints=(0.0, 1.0)), make_backend)
    with pytest.raises(ValueError, match="joints contains NaN or infinity at 'lf_hfe_joint'"):
        build(Settings(joints=(0.0, np.inf, *STANCE[2:])), make_backend)


# -- the problems -------------------------------------------------------------------------------------------------


def test_holding_torques_hold():
    model = hyq()
    x = np.r_[0.0, 0.0, 0.57, 0.0, 0.0, 0.0, 1.0, STANCE, np.zeros(model.nv)]
    system = Holonomic(model, [PointContact(foot) for foot in FEET])
    torques = holding_torques(model, x, FEET)
    xdot = make_backend(system).f(x[None], torques[None])[0]
    assert np.abs(xdot).max() < 1e-8
    free = forward_dynamics(
        model,
        x[: model.nq],
        np.zeros(model.nv),
        system.joint_forces(x[:19, None], x[19:, None], torques[:, None])[:, 0],
    )
    assert np.abs(free).max() > 1.0  # the ground forces have an effect


def test_the_rigid_problem_has_phases_and_impacts():
    task = build(Settings(**SHORT), make_backend)
    ocp = task.ocp
    assert to.validate(ocp, task.guess) == []
    knots = [phase.knots for phase in ocp.phases]
    assert knots == [1, 4, 1, 1, 4, 1, 1]
    assert [bool(phase.dt[0]) for phase in ocp.phases] == [True, True, False, True, True, False, True]
    assert ocp.times[-1] == pytest.approx(0.11) and np.isfinite(task.guess.us).all()
    heights = [position_of(ocp.model, foot, ocp.x0[: ocp.model.nq])[2] for foot in FEET]
    assert np.abs(heights).max() < 1e-9
    forces = contact_forces(ocp, *task.guess)
    assert set(forces) == set(FEET)
    assert not forces[RF][1:5].any() and forces[RF][5:].any()
    assert np.abs(forces[LF][0, 2] + forces[RF][0, 2] + forces[LH][0, 2] + forces[RH][0, 2] - 83.301 * 9.80665) < 1.0
    assert contacts(ocp, FEET, *task.guess, 0.03)[0].all()


def test_the_rigid_problem_is_solved():
    task = build(Settings(**SHORT, control_weight=1e-3), make_backend)
    solution = to.solve(task.ocp, task.guess, {"max_iterations": 12, "gradient_tolerance": 1e-6}, solver="fddp")
    assert solution.status.success, solution.status
    feet = np.stack([position_of(task.ocp.model, f, solution.xs[:, :19]) for f in FEET], axis=1)
    assert np.allclose(feet[-1, :, 0] - feet[0, :, 0], 0.02, atol=2e-3)
    assert np.abs(feet[-1, :, 2]).max() < 1e-3 and feet[:, :, 2].max() > 0.005
    assert "from its foothold" in task.outcome(solution.xs[-1])[-1]


def test_kp_draws_standing_feet_to_their_footholds():
    """At rest in x0, the feet of the last phase are a step of 2 cm behind their footholds."""
    task = build(Settings(**SHORT, gains=(100.0, 20.0)), make_backend)
    model, x0 = task.ocp.model, task.ocp.x0
    backend = task.ocp.phases[-1].dynamics.sampling.backend
    a = backend.f(x0[None], np.zeros((1, 12)))[0, model.nv :]
    for foot in FEET:
        J = frame_jacobian(model, x0[: model.nq], foot, "LOCAL_WORLD_ALIGNED")[:3]
        np.testing.assert_allclose(J @ a, [100.0 * 0.02, 0.0, 0.0], atol=1e-6)


def test_a_soft_solution_starts_the_rigid_problem():
    short = SHORT | {"swing": 0.01}
    soft = build(Settings(**short, contact="soft", substeps=14), make_backend)
    assert len(soft.ocp.phases) == 1 and soft.ocp.horizon == 5
    assert not [f for f in to.validate(soft.ocp, soft.guess) if "stable" in f.message]
    solution = to.solve(soft.ocp, soft.guess, {"max_iterations": 1})
    assert solution.history[-1].merit < solution.history[0].merit
    rigid = build(Settings(**short), make_backend)
    guess = to.resampled_guess(rigid.ocp, solution)
    assert to.validate(rigid.ocp, guess) == []
    assert guess.xs.shape == (8, 37) and guess.us.shape == (7, 12)


def test_friction_is_a_term_of_every_rigid_phase():
    task = build(Settings(**SHORT, foot_weights=FootWeights(friction=1.0)), make_backend)
    sizes = [{t.name: t.residual.n_out for t in phase.terms}.get("friction") for phase in task.ocp.phases]
    assert sizes == [8, 4, None, 8, 4, None, 8]


def test_friction_margins_vanish_inside_the_cone_and_grow_outside():
    model = hyq()
    system = Holonomic(model, [PointContact(foot) for foot in FEET])
    x = np.r_[0.0, 0.0, 0.57, 0.0, 0.0, 0.0, 1.0, STANCE, np.zeros(model.nv)][:, None]
    u = holding_torques(model, x[:, 0], FEET)[:, None]
    inside = friction_cost(system, FEET, 0.7, 1.0)
    values = {k: v[:, None] for k, v in inside.parameters.items()}
    assert np.abs(inside.residual(x, u, np.zeros(1), values)).max() < 2e-3
    forces = system.outputs(x, u, np.zeros(1), {})
    unit = model.total_mass * 9.80665 / 4
    narrow = {**values, "friction": np.full((1, 1), 1e-6), "min_force": np.full((1, 1), 3.0)}
    r = inside.residual(x, u, np.zeros(1), narrow)
    pushes = [3.0 - forces[foot][2, 0] / unit for foot in FEET]
    assert np.allclose(r[::2, 0], pushes, atol=1e-3) and r[1::2].min() > 0.02
    with pytest.raises(ValueError, match="friction = 0"):
        friction_cost(system, FEET, 0.0, 1.0)


@pytest.mark.slow
def test_default_weights_keep_a_robot_upright():
    """A robot's own configuration needs no weights: it reaches the end of its steps at its height, and does not fall."""
    task = build(Settings(dt=0.05, swing=0.2, support=0.05, step_length=0.1), make_backend)
    solution = to.solve(task.ocp, task.guess, {"max_iterations": 30}, solver="fddp", check=False)
    assert solution.status.code is to.StatusCode.CONVERGED
    assert [s for goal in task.goals for s in goal.missed(solution.xs, task.ocp.times)] == []
    assert abs(solution.xs[-1, 2] - solution.xs[0, 2]) < 0.01
