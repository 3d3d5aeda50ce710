"""Impacts: velocities and impulses against Pinocchio, energy, derivatives of both orders, and the stage of an OCP."""

import numpy as np
import pytest
from contact_cases import FEET, arguments, contraction_error, hyq, methods_agree, relative
from rigid_body_cases import tree, twin

import trajopt as to
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.sample_models import four_bar
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.consistency import rows_at
from dynamics_backends.systems.constraints.constraint_kinds import (
    FrameContact,
    FrameLoop,
    JointRelation,
    PointContact,
    PointLoop,
)
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.impact import Impact
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP, Phase
from trajopt.stage.evaluation import StageEvaluator
from trajopt.step.sensitivities import SampledSystem, contraction_of
from trajopt.validation.validation import validate

TWO_FEET = [PointContact("lf_foot"), PointContact("rh_foot")]
CASES = {
    "two points": TWO_FEET,
    "four points": [PointContact(f) for f in FEET],
    "frame": [FrameContact("lf_foot")],
    "point loop": [PointLoop("lf_foot", "rf_foot")],
    "frame loop": [FrameLoop("lf_foot", "rf_foot")],
    "relation": [JointRelation("lf_haa_joint", "rf_haa_joint", multiplier=2.0), PointContact("lh_foot")],
}
each_case = pytest.mark.parametrize("case", CASES)


def impact_of(case: str) -> Impact:
    return Impact(hyq(), CASES[case], restitution=0.3)


@each_case
def test_all_methods_agree(case):
    impact = impact_of(case)
    x, u, _ = arguments(impact, FEET)
    methods = ("complex_step", "forward_ad", "structured_ad", *(["casadi_ad"] if case == "frame" else []))
    assert methods_agree(impact, x, u, methods=methods) < 1e-11


@each_case
def test_second_order(case):
    impact = impact_of(case)
    assert contraction_error(impact, *arguments(impact, FEET, N=1)) < 1e-9


@pytest.mark.parametrize("name", ["fixed1", "floating1"])
def test_trees_of_all_joints(name):
    model = tree(name)
    frame = next(f.name for f in model.frames if f.body == model.nb - 1)
    impact = Impact(model, [PointContact(frame, offset=(0.1, 0.2, 0.3))], restitution=0.5)
    x, u, lam = arguments(impact, [frame])
    assert methods_agree(impact, x, u, methods=("complex_step", "forward_ad")) < 1e-11
    assert contraction_error(impact, x, u, lam) < 1e-9


@each_case
def test_the_velocity_of_the_constraints_is_reflected(case):
    impact = impact_of(case)
    x, u, _ = arguments(impact, FEET)
    jump = make_backend(impact).f(x, u)[:, impact.model.nv :]
    for xi, di in zip(x, jump, strict=True):
        J, _ = rows_at(impact.constraints, xi)
        before = J @ xi[impact.model.nq :]
        assert relative(before + J @ di, -0.3 * before) < 1e-9


def test_against_pinocchio():
    pin = pytest.importorskip("pinocchio")
    t = twin("hyq")
    impact = Impact(t.model, CASES["four points"], damping_ratio=0.0)
    x, u, _ = arguments(impact, FEET)
    for e in (0.0, 0.4):
        p = {"restitution": np.array([e])}
        jumps = make_backend(impact).f(x, u, 0.0, p)[:, t.model.nv :]
        for xi, jump in zip(x, jumps, strict=True):
            q, v = t.q(xi[: t.model.nq]), t.v(xi[t.model.nq :])
            pin.computeJointJacobians(t.pin_model, t.data, q)
            pin.updateFramePlacements(t.pin_model, t.data)
            frames = [t.pin_model.getFrameId(f) for f in FEET]
            J = [pin.getFrameJacobian(t.pin_model, t.data, f, pin.LOCAL_WORLD_ALIGNED)[:3] for f in frames]
            after = pin.impulseDynamics(t.pin_model, t.data, q, v, np.concatenate(J), e, 0.0)
            assert relative(xi[t.model.nq :] + jump, t.vector(after)) < 1e-9
            own = impact.outputs(xi[:, None], u[:1].T, 0.0, {"restitution": np.array([[e]])})
            expected = np.array(t.data.impulse_c).reshape(4, 3)
            assert relative(np.stack([own[f][:, 0] for f in FEET]), expected) < 1e-9


def test_a_switched_impact_is_that_of_the_active_feet():
    all_feet, two = impact_of("four points"), impact_of("two points")
    p = {f"active[{f}]": np.array([s]) for f, s in zip(FEET, (1.0, 0.0, 0.0, 1.0), strict=True)}
    x, u, lam = arguments(all_feet, FEET)
    for one, other in zip(
        make_backend(all_feet).jacobians(x, u, 0.0, p), make_backend(two).jacobians(x, u), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
    assert contraction_error(all_feet, x[:1], u[:1], lam[:1], p) < 1e-9


@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_energy_lost_is_that_of_the_jump(restitution):
    """T+ - T = -(1 - e) / (1 + e) d' M d / 2, in which d' M d / 2 is the kinetic energy of the jump d."""
    impact = Impact(hyq(), TWO_FEET, restitution=restitution)
    x, u, _ = arguments(impact, FEET)
    q, v = x.T[: impact.model.nq], x.T[impact.model.nq :]
    d = make_backend(impact).f(x, u).T[impact.model.nv :]
    energies = [kinematics.kinetic_energy(impact.model, q, w) for w in (v, v + d, d)]
    expected = -(1.0 - restitution) / (1.0 + restitution) * energies[2]
    np.testing.assert_allclose(energies[1] - energies[0], expected, rtol=1e-9, atol=1e-9 * energies[0].max())


# -- as a stage -------------------------------------------------------------------------------------------------------


def test_the_stage_is_the_jump_and_its_derivatives():
    impact = impact_of("two points")
    backend = make_backend(impact)
    stage = ImpactStage(backend)
    x, _, _ = arguments(impact, FEET)
    ignored = np.ones((len(x), 12))
    step = stage.linearize(x, ignored, 0.0, 0.0)
    np.testing.assert_array_equal(step.x_next[:, :19], x[:, :19])
    np.testing.assert_allclose(step.x_next, stage.step(x, ignored, 0.0, 0.0), rtol=1e-14)
    h = 1e-6
    for k in range(36):
        e = np.broadcast_to(h * np.eye(36)[:, [k]], (36, len(x)))
        ends = [stage.step(impact.manifold.integrate(x.T, s * e).T, ignored, 0.0, 0.0).T for s in (1.0, -1.0)]
        column = [impact.manifold.difference(step.x_next.T, end) for end in ends]
        np.testing.assert_allclose(step.A[:, :, k], ((column[0] - column[1]) / (2 * h)).T, rtol=1e-6, atol=1e-6)
    assert step.B.shape == (len(x), 36, 0)
    lam = np.random.default_rng(0).standard_normal((len(x), 36))
    second = stage.contract(x, ignored, 0.0, 0.0, None, lam)
    np.testing.assert_array_equal(second.xx, backend.hessian_contraction(x, ignored[:, :0], 0.0, None, lam)[1].xx)


def test_a_phase_without_duration():
    model = hyq()
    flight = Phase(SampledSystem(make_backend(FreeBody(model)), "euler"), [0.01, 0.01])
    stage = ImpactStage(make_backend(Impact(model, TWO_FEET)))
    x0 = np.concatenate([model.neutral(), np.zeros(model.nv)])

    def errors(dt):
        return [f.message for f in validate(OCP((flight, Phase(stage, dt), flight), x0)) if f.severity == "error"]

    said = "phase 1 has no duration, as ImpactStage.takes_time is False; give it one knot with dt = 0"
    assert errors([0.0]) == []
    assert errors([0.01]) == errors([0.0, 0.0]) == [said]
    timeless = Phase(flight.dynamics, [0.01, 0.0])
    messages = [f.message for f in validate(OCP((flight, timeless), x0))]
    assert "dt is 0.0 at knot 3; time steps must be positive and finite" in messages


def test_wrong_arguments_raise_errors():
    with pytest.raises(ValueError, match=r"restitution = 1.5; it must lie between 0 \(sticks\) and 1 \(bounces\)"):
        Impact(hyq(), TWO_FEET, restitution=1.5)
    with pytest.raises(ValueError, match="an impact stage needs a jump with n_out = ndx = 36; this map has n_out = 2"):
        ImpactStage(
            make_backend(FunctionMap(lambda x, u, t, p: [x[0], x[1]], FreeBody(hyq()).manifold, 0, 2), "complex_step")
        )
    stage = ImpactStage(make_backend(Impact(hyq(), TWO_FEET), "forward_difference"))
    assert stage.contract is None
    with pytest.raises(TypeError, match="has no second derivatives; choose backend = 'forward_ad', 'complex_step'"):
        contraction_of(stage)


def test_newton_through_an_impact():
    """Swinging rods whose ends meet half-way and stay together: DDP and Gauss-Newton find the same cost, DDP in fewer steps."""
    model, loop = four_bar(), [PointLoop("coupler_tip", "rocker_tip")]
    free, held = (
        Phase(SampledSystem(make_backend(system)), np.full(5, 0.05), [to.control_cost(model.nv, weight=1e-2)])
        for system in (FreeBody(model), Holonomic(model, loop))
    )
    problem = Phase(ImpactStage(make_backend(Impact(model, loop))), [0.0])
    goal = to.state_cost(free.dynamics.manifold, [0.5, 1.0, -0.3, 0.0, 0.0, 0.0], 10.0)
    ocp = OCP((free, problem, held), np.array([0.3, 1.2, -0.2, 0.0, 0.0, 0.0]), (goal,), replay_tolerance=np.inf)
    newton, gauss = (to.solve(ocp, to.constant_guess(ocp), solver=name, check=False) for name in ("ddp", "slq"))
    assert newton.status.success and gauss.status.success
    assert newton.cost == pytest.approx(gauss.cost, rel=1e-6)
    assert newton.iterations < gauss.iterations


def test_a_stage_without_duration_weighs_its_terms_with_one():
    """Costs at an impact, like terminal costs, are not multiplied by a time step; shooting and collocation agree."""
    model, loop = four_bar(), [PointLoop("coupler_tip", "rocker_tip")]
    free, held = (
        Phase(SampledSystem(make_backend(system)), np.full(5, 0.05), [to.control_cost(model.nv, weight=1e-2)])
        for system in (FreeBody(model), Holonomic(model, loop))
    )
    manifold = free.dynamics.manifold
    there = to.state_cost(manifold, [0.4, 1.1, -0.3, 0.0, 0.0, 0.0], 3.0, "there")
    jump = ImpactStage(make_backend(Impact(model, loop)))
    goal = to.state_cost(manifold, [0.5, 1.0, -0.3, 0.0, 0.0, 0.0], 10.0)
    x0 = np.array([0.3, 1.2, -0.2, 0.0, 0.0, 0.0])
    plain, weighed = (OCP((free, Phase(jump, [0.0], terms), held), x0, (goal,)) for terms in ((), (there,)))
    guess = to.constant_guess(plain)
    xs, us = guess.xs + 0.1 * np.arange(12)[:, None], guess.us
    without, with_it = (float(StageEvaluator(ocp).cost(xs[None], us[None])[0]) for ocp in (plain, weighed))
    offset = xs[5] - [0.4, 1.1, -0.3, 0.0, 0.0, 0.0]
    assert with_it - without == pytest.approx(1.5 * offset @ offset, rel=1e-12)
    costs = [to.solve(weighed, guess, solver=name).cost for name in ("ddp", "dms")]
    assert costs[0] == pytest.approx(costs[1], rel=1e-5)
    assert to.solve(plain, guess, solver="ddp").cost < costs[0]


def test_a_map_in_discrete_time_with_dt_0_is_pointed_to_the_jump():
    step = to.discrete_dynamics(lambda x, u, t, p: [x[0] + u[0]], 1, 1)
    ocp = to.OCP((to.Phase(step, np.zeros(1), [to.control_cost(1)]),), [0.0])
    (found,) = [f.message for f in to.validate(ocp) if f.severity == "error"]
    assert (
        found
        == "dt is 0.0 at knot 0; time steps must be positive and finite; a jump of the state without duration is a to.ImpactStage"
    )


TURNS = {
    "held": lambda x, u, t, p: [0.0, 0.0, 0.0, 0.0, 0.0, u[0]],
    "constant": lambda x, u, t, p: [0.5, 0.3, 0.0, 0.0, 0.0, u[0]],
    "by controls": lambda x, u, t, p: [u[0], u[1], 0.1 * x[4], 0.0, 0.0, u[0]],
    "by states": lambda x, u, t, p: [x[0] + 0.3, x[1] * x[4], 0.1 * x[4], 0.0, 0.0, u[0]],
}


def turning(turn, engine="compiled"):
    """A jump that also turns a body, before it rotates to a goal."""
    states = to.Manifold([to.SO3, to.vector_space(3)])
    jump = ImpactStage(make_backend(FunctionMap(turn, states, 2), "forward_ad", engine=engine))
    flow = FunctionMap(lambda x, u, t, p: [x[4], x[5], x[6], u[0], u[1], 0.0], states, 2)
    flight = SampledSystem(make_backend(flow, "forward_ad", engine=engine), "rk4")
    start = np.r_[np.array([0.1, 0.2, 0.3, 0.9]) / np.sqrt(0.95), 0.3, 0.2, 0.1]
    goal = to.state_cost(states, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 10.0)
    effort = (to.control_cost(2),)
    return OCP((Phase(jump, [0.0], effort), Phase(flight, np.full(10, 0.2), effort)), start, (goal,))


@pytest.mark.parametrize("turn", TURNS)
def test_jumps_of_rotations(turn):
    """Both orders agree with complex step, and solutions with those of compiled code."""
    ocp = turning(TURNS[turn])
    checks = list(to.check_derivatives(ocp))
    assert any("time step of phase 0" in str(c) for c in checks)
    assert [str(c) for c in checks if not c.passed] == []
    costs = [to.solve(turning(TURNS[turn], engine), solver="ddp").cost for engine in ("compiled", "numpy")]
    assert costs[0] == pytest.approx(costs[1], rel=1e-8)
