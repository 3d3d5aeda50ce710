"""Functions of a phase: tapes in blocks of any number, cached tapes, and costs of contact forces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from stage_cases import SHOOTING

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import SO3, Manifold
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from problems.legged.contact.friction_cone import friction_cost
from problems.robots import load_robot
from trajopt.stage.compiled import taped_functions
from trajopt.stage.compiled.bare_stages import BareStages
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.engine import StageOperations, stages_of
from trajopt.stage.evaluation import Direction, StageEvaluator
from trajopt.stage.stages import Knots


def nonlinear(x, u, t, p):
    """Curved in states and controls."""
    return [sm.sin(x[0]) * u[0] + p["shift"][0], x[1] * x[2]]


def opaque(x, u, t, p):
    """The second residual of ``nonlinear``, by NumPy functions that cannot be traced."""
    return [np.asarray(x[1], dtype=complex if np.iscomplexobj(x) else float) * x[2]]


def problem(engine="compiled", horizon=20, residual=nonlinear):
    """Swing of a double pendulum; each call creates a new backend."""
    free = FreeBody(load_robot("double_pendulum"))
    dynamics = to.SampledSystem(make_backend(free, "analytic", engine=engine), "rk4")
    cost = to.residual_cost("nonlinear", residual, free.manifold, 2, 0.1, nu=free.nu, parameters={"shift": [0.2]})
    running = [to.control_cost(free.nu, reference=np.zeros(free.nu), weight=np.full(free.nu, 0.05)), cost]
    terminal = [to.state_cost(free.manifold, np.array([0.8, -0.4, 0.0, 0.0]), 20.0)]
    limits = [to.Constraint("speed", nonlinear_rows(free), lower=np.full(2, -3.0), upper=np.full(2, 3.0))]
    return to.OCP((to.Phase(dynamics, np.full(horizon, 0.05), running, constraints=limits),), np.zeros(4), terminal)


def nonlinear_rows(free):
    return to.FunctionMap(lambda x, u, t, p: [x[2] * x[0] + u[1], sm.cos(x[3])], free.manifold.nx, free.nu, n_out=2)


def refuse(*_):
    raise AssertionError("something is traced")


@pytest.mark.parametrize("horizon", [1, 8, 9, 17, 31, 32, 33, 50, 65])
def test_blocks_of_any_number(horizon):
    """Values, first and second derivatives of horizons that fill blocks of lanes, groups of blocks, and neither."""
    rng = np.random.default_rng(horizon)
    xs, us = 0.3 * rng.standard_normal((horizon + 1, 4)), 0.3 * rng.standard_normal((horizon, 2))
    lam, y = rng.standard_normal((horizon, 4)), rng.standard_normal((horizon, 2))
    wanted = StageOperations("exact", second=True, path=[problem().phases[0].constraints])
    found = []
    for engine in ("compiled", "numpy"):
        ocp = problem(engine, horizon)
        [stages, _] = stages_of(ocp, wanted._replace(path=[ocp.phases[0].constraints]))
        assert isinstance(stages, CompiledStages) == (engine == "compiled")
        at = Knots(xs[:-1], us, xs[1:])
        first = stages.first(at)
        second = stages.second(at, 0.7, lam, y)
        terms = stages.second(at, 0.7, None, y)
        found.append([*stages.values(at), *first.values, *first[1:], *second, *terms])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-11)


@pytest.mark.parametrize("manifold", [Manifold.vector(6), Manifold([SO3, to.vector_space(3)])], ids=["vector", "group"])
def test_affine_dynamics_have_no_second_derivatives(manifold):
    """Angular velocities integrate accelerations: only the charts of rotations are curved."""
    at = manifold.nx - 3
    system = to.FunctionMap(lambda x, u, t, p: [*x[at:], *u], manifold, 3, n_out=6)
    rng, horizon, found = np.random.default_rng(3), 11, []
    origin = np.repeat(manifold.identity()[:, None], horizon + 1, 1)
    xs = np.asarray(manifold.integrate(origin, 0.7 * rng.standard_normal((6, horizon + 1)))).T
    us, lam = rng.standard_normal((horizon, 3)), rng.standard_normal((horizon, 6))
    for engine in ("compiled", "numpy"):
        dynamics = to.SampledSystem(make_backend(system, "casadi_ad", engine=engine), "rk4", substeps=2)
        ocp = to.OCP.single_phase(dynamics, xs[0], horizon, 0.1, [to.control_cost(3)])
        [stages, _] = stages_of(ocp, StageOperations("exact", second=True))
        found.append(stages.second(Knots(xs[:-1], us, xs[1:]), 0.0, lam))
        if engine == "compiled":
            assert (
                "dynamics_contracted"
                not in taped_functions.taped_functions(dynamics.backend, stages.library.shape).tapes
            )
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-11)
    assert np.any(found[0][0]) == (manifold.nx > 6)


def numerics_stages(ocp):
    return stages_of(ocp, StageOperations(rollout=True))


def test_tapes_are_cached(monkeypatch, tmp_path):
    """A second process, here a second problem with its own functions of the same text, traces nothing."""
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path))
    numerics_stages(problem())
    monkeypatch.setattr(taped_functions, "term_source", refuse)
    monkeypatch.setattr(taped_functions, "constraint_source", refuse)
    assert isinstance(numerics_stages(problem())[0], CompiledStages)


def test_problems_without_constraints_look_up_no_tapes_of_constraints(monkeypatch):
    asked, cached_value = [], taped_functions.cached_value

    def recorded(answer, kind, name, *question):
        asked.append(name if kind == "term tapes" else kind)
        return cached_value(answer, kind, name, *question)

    monkeypatch.setattr(taped_functions, "cached_value", recorded)
    numerics_stages(problem().unconstrained())
    assert asked == ["terminal", "running tapes", "dynamics tapes"]


def contact(*terms):
    """HyQ on two feet, with rigid contacts, as dynamics."""
    system = Holonomic(load_robot("hyq"), [PointContact("lf_foot"), PointContact("rh_foot")])
    dynamics = to.SampledSystem(make_backend(system, "analytic", engine="compiled"), "semi_implicit_euler")
    x0 = np.concatenate([system.model.neutral(), np.zeros(system.model.nv)])
    cone = friction_cost(system, ["lf_foot", "rh_foot"], 0.7, 1.0)
    return to.OCP((to.Phase(dynamics, np.full(3, 0.01), [to.control_cost(system.nu), *terms]),), x0), cone


def test_an_edited_cost_traces_no_dynamics(monkeypatch):
    ocp, _ = contact()
    numerics_stages(ocp)
    monkeypatch.setattr(taped_functions, "traced_dynamics", refuse)
    new = to.residual_cost(
        "new", lambda x, u, t, p: [x[20] * x[21] - p["to"][0]], ocp.manifold, 1, 0.3, parameters={"to": [0.1]}
    )
    edited, _ = contact(new)
    [stages, _] = numerics_stages(edited)
    assert isinstance(stages, CompiledStages)


@pytest.mark.parametrize(
    ("hessian", "second"), [("gauss_newton", False), ("gauss_newton", True), ("exact", False), ("exact", True)]
)
def test_costs_of_contact_forces(hessian, second):
    """Values, first and second derivatives equal those of NumPy."""
    plain, cone = contact()
    nonlinear = to.residual_cost(
        "nonlinear", lambda x, u, t, p: [sm.sin(x[20]) * u[0], x[9] * u[1]], plain.manifold, 2, 0.3, nu=plain.nu
    )
    ocp = replace(plain, phases=(replace(plain.phases[0], terms=(*plain.phases[0].terms, cone, nonlinear)),))
    rng = np.random.default_rng(4)
    xs = np.tile(ocp.x0, (3, 1)) + np.pad(0.1 * rng.standard_normal((3, 30)), ((0, 0), (7, 0)))
    us, lam = 20.0 * rng.standard_normal((3, ocp.nu)), rng.standard_normal((3, ocp.manifold.ndx))
    found = []
    for engine in ("auto", "numpy"):
        [stages, _] = stages_of(ocp, StageOperations(hessian, rollout=not second, second=second), engine)
        at = Knots(xs, us, xs)
        first = stages.first(at)
        results = [*stages.values(at), *first.values, *first[1:]]
        if second:
            results += [*stages.second(at, 0.7, lam), *stages.second(at, 1.3)]
        found.append(results)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9 * max(1.0, np.abs(theirs).max(initial=0.0)))


@pytest.mark.parametrize("shooting", SHOOTING)
def test_compiled_steps_with_terms_by_numpy(shooting):
    rng = np.random.default_rng(1)
    xs, us = 0.3 * rng.standard_normal((14, 4)), 0.3 * rng.standard_normal((13, 2))
    lam = rng.standard_normal((13, 4))
    direction = Direction(0.1 * xs, 0.1 * rng.standard_normal((13, 2)), np.zeros((13, 2, 4)), xs[1:] * 0.01)
    found = []
    for engine in ("compiled", "numpy"):
        ocp = problem(engine, 13)
        unseen = to.residual_cost("unseen", opaque, ocp.manifold, 1, 0.1, nu=2)
        ocp = replace(ocp, phases=(replace(ocp.phases[0], terms=(*ocp.phases[0].terms, unseen), constraints=()),))
        evaluator = StageEvaluator(ocp, engine="auto")
        assert isinstance(evaluator.stages[0], BareStages) == (engine == "compiled")
        expansion = evaluator.expand(xs, us)
        tried = evaluator.rollout(xs, us, direction, np.array([1.0, 0.5]), SHOOTING[shooting])
        found.append([*expansion.lq, expansion.cost, *tried, *evaluator.curvature(xs, us, lam)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)  # opaque is differentiated by differences
