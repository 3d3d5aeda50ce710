"""The compiled stage of a gait with rigid contacts, friction and impacts, on a small robot, against the same stage in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from contact_cases import FEET, FOOT, hop, hyq
from stage_cases import SHOOTING, pendulum
from twin_cases import assert_same_curvature, assert_same_expansion, assert_same_rollout, trajectory

from dynamics_backends.compiled.sources import traced_source
from dynamics_backends.compiled.sources.traced_source import TooLong
from dynamics_backends.protocol import unwrapped
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import FrameContact, JointRelation, PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.impact import Impact
from problems.legged.contact.friction_cone import friction_constraint, friction_cost
from problems.legged.contact.wrench_cone import wrench_cost
from problems.legged.robot.soles import Sole
from trajopt import OCP, Phase, SampledSystem, free_time, softened, state_cost
from trajopt.problem.impact_stage import ImpactStage
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.engine import StageOperations, stages_of
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.evaluators import evaluator_for
from trajopt.stage.source import term_source as term_source_module
from trajopt.stage.source.term_source import TermShape, term_source
from trajopt.stage.stages import Knots


def test_expansion():
    assert_same_expansion(hop())


def test_an_impact_moves_velocities_only():
    ocp = hop()
    xs, us = trajectory(ocp)
    e = StageEvaluator(ocp, engine="compiled").expand(xs, us)
    nq = ocp.manifold.nx - ocp.manifold.ndx // 2
    np.testing.assert_array_equal(e.x_next[4, :nq], xs[4, :nq])
    assert np.abs(e.x_next[4, nq:] - xs[4, nq:]).max() > 1e-2
    assert not e.lq.B[4].any()
    np.testing.assert_array_equal(e.lq.R[4], np.eye(1))


@pytest.mark.parametrize("kind", ["single", "every 10, linear", "all, nonlinear"])
def test_rollout(kind):
    assert_same_rollout(hop(), SHOOTING[kind])


def test_curvature_of_an_impact():
    """Two arms that lock onto each other."""
    body = FreeBody(pendulum())
    swinging = SampledSystem(make_backend(body, "analytic", engine="numpy"), "semi_implicit_euler")
    impact = Impact(body.model, [JointRelation(*body.model.dof_names, multiplier=0.5)], restitution=0.2)
    locking = ImpactStage(make_backend(impact, "analytic", engine="numpy"))
    parts = [Phase(swinging, np.full(2, 0.1)), Phase(locking, np.zeros(1)), Phase(swinging, np.full(2, 0.1))]
    assert_same_curvature(OCP(tuple(parts), 0.3 * np.ones(4), (state_cost(body.manifold, np.ones(4)),)))


def test_who_serves_a_gait():
    stages = evaluator_for(hop("compiled")).stages
    assert all(isinstance(part, CompiledStages) for part in stages[:-1])


@pytest.mark.parametrize("hessian", ["gauss_newton", "exact"])
def test_forces_of_the_motion_come_with_the_step(hessian):
    """Costs and second derivatives, where the first stage of the first substep gives the forces that friction reads."""
    ocp = hop()
    first = ocp.phases[0]
    finely = replace(first, dynamics=SampledSystem(first.dynamics.backend, "rk4", 2))
    ocp = replace(ocp, phases=(finely,), terminal=())
    xs, us = trajectory(ocp)
    N = ocp.horizon
    numpy, compiled = (
        stages_of(ocp, StageOperations(hessian, second=True), engine)[0] for engine in ("numpy", "compiled")
    )
    assert isinstance(compiled, CompiledStages) and compiled.second_orders[0]
    given = Knots(xs[:N], us, xs[1:])
    for lam in (np.random.default_rng(1).standard_normal((N, ocp.manifold.ndx)), None):
        for ours, theirs in zip(compiled.second(given, 2.0, lam), numpy.second(given, 2.0, lam), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10 * np.abs(theirs).max())
    ours, theirs = (stages.first(given) for stages in (compiled, numpy))
    np.testing.assert_allclose(ours.values.cost, theirs.values.cost, rtol=1e-12)
    np.testing.assert_allclose(ours.Q, theirs.Q, rtol=0, atol=1e-10 * np.abs(theirs.Q).max())


def test_functions_of_forces():
    """Cones as costs, pyramids softened and as constraints."""
    assert_same_expansion(on_a_pyramid())
    assert_same_expansion(on_a_pyramid(), "exact")
    assert_same_rollout(on_a_pyramid(), SHOOTING["single"])


def test_functions_of_wrenches():
    """The cone of a flat foot, whose wrench is solved for at its origin."""
    assert_same_expansion(on_a_sole())
    assert_same_expansion(on_a_sole(), "exact")


def on_a_sole():
    """The hop on a foot that keeps its pose, with the cone of a sole."""
    ocp = hop()
    standing = ocp.phases[0]
    model = unwrapped(standing.dynamics.backend.map).model
    system = Holonomic(model, [FrameContact(FOOT, gains=(0.0, 20.0))], actuated=model.dof_names[6:])
    cone = wrench_cost(system, [Sole(FOOT, 0.1, 0.2, 0.05, 0.06)], 0.3, 2.0, min_force=0.5, feet=1)
    dynamics = SampledSystem(make_backend(system, "analytic", engine="numpy"), "semi_implicit_euler")
    first, last = (
        replace(phase, dynamics=dynamics, terms=(*phase.terms[:2], cone)) for phase in (standing, ocp.phases[3])
    )
    return replace(ocp, phases=(first, *ocp.phases[1:3], last))


def on_a_pyramid():
    """The hop with other costs of its forces, of two systems in one stage."""
    ocp = hop()
    standing = ocp.phases[0]
    system = unwrapped(standing.dynamics.backend.map)
    soft = softened(friction_constraint(system, [FOOT], 0.2, min_force=0.8, feet=1, facets=5), 3.0, 0.05)
    other = Holonomic(system.model, [PointContact(FOOT, gains=(0.0, 3.0))], actuated=system.model.dof_names[6:])
    terms = (*standing.terms, soft, friction_cost(other, [FOOT], 0.5, 0.4, feet=1, name="of another system"))
    return replace(ocp, phases=(replace(standing, terms=terms), *ocp.phases[1:3], replace(ocp.phases[3], terms=terms)))


def test_forces_of_many_feet_are_solved_by_kernels(monkeypatch):
    """Kernels solve for the forces of four feet: the trace stays short, and without kernels it is too long."""
    system = Holonomic(hyq(), [PointContact(foot) for foot in FEET])
    many = friction_cost(system, FEET, 0.7, 1.0)
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 50_000)
    given = ("running", [TermShape.of(many)], many.residual.manifold, 12)
    functions = term_source(*given, running=True, hessian="gauss_newton").functions
    assert [len(f.trace.called) > 0 for f in functions] == [True, True]
    with pytest.raises(TooLong):
        term_source(*given, running=True, hessian="gauss_newton", kernels=False)


def test_terms_too_long_to_trace_say_so(monkeypatch):
    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 1000)
    cone = hop().phases[0].terms[-1]
    with pytest.raises(TooLong, match="the running cost takes .* operations; the limit is 1000"):
        term_source("running", [TermShape.of(cone)], cone.residual.manifold, 1, running=True, hessian="gauss_newton")


def test_friction_with_free_durations(monkeypatch):
    """Exact Hessians of stretched costs of forces are analytic, as those of a fixed duration: short, and NumPy's numbers."""
    ocp = free_time(hop()).ocp
    assert_same_expansion(ocp, "exact")
    assert_same_curvature(ocp)
    cone = ocp.phases[1].terms[2]
    assert cone.name == "friction"
    monkeypatch.setattr(term_source_module, "require_short_hessian", _refuse)
    term_source("running", [TermShape.of(cone)], ocp.manifold, ocp.nu, running=True, hessian="exact")


def _refuse(what, value, z):
    raise AssertionError(what)
