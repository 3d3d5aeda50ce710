"""Solves that start before their libraries are compiled: engines used, results, and background compilation."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import pytest
from stage_cases import SHOOTING

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.compiled.runtime import units as units_module
from dynamics_backends.compiled.runtime.toolchain import find_toolchain
from dynamics_backends.compiled.runtime.units import units
from dynamics_backends.compiled.sources.traced_source import TooLong
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.tape.driver import LibraryDriver
from problems.legged.contact.friction_cone import friction_cost
from problems.robots import load_robot
from trajopt.stage.compiled import builds, soon_stages, taped_functions
from trajopt.stage.compiled.bare_stages import BareStages
from trajopt.stage.compiled.choice import CompiledChoice
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.compiled.library import source_of
from trajopt.stage.engine import Wanted, stages_of
from trajopt.stage.evaluation import Direction, StageEvaluator
from trajopt.stage.source.stage_source import StageShape
from trajopt.stage.source.term_source import TermShape
from trajopt.stage.start import starting, starts_at_once

pytestmark = [pytest.mark.needs_compiler]


def bent(x, u, t, p):
    """Curved in states and controls."""
    return [sm.sin(x[0]) * u[0] + p["shift"][0], x[1] * x[2]]


def problem(weight=0.1, engine="compiled", horizon=20):
    """Swing of a double pendulum; each call creates a new backend, whose libraries are not loaded."""
    free = FreeBody(load_robot("double_pendulum"))
    dynamics = to.SampledSystem(make_backend(free, "analytic", engine=engine), "rk4")
    running = [
        to.control_cost(free.nu, np.zeros(free.nu), np.full(free.nu, 0.05)),
        to.residual_cost("bent", bent, free.manifold, 2, weight, nu=free.nu, parameters={"shift": [0.2]}),
    ]
    terminal = [to.state_cost(free.manifold, np.array([0.8, -0.4, 0.0, 0.0]), 20.0)]
    return to.OCP((to.Phase(dynamics, np.full(horizon, 0.05), running),), np.zeros(4), terminal)


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty cache, and functions that are all compiled."""
    for limit in ("OPERATIONS_LIMIT", "FINAL_LIMIT"):
        monkeypatch.setattr(taped_functions, limit, -1)
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


class Worker:
    """Fake background process, which works when ``run`` is called."""

    def __init__(self):
        self.work, self.finished, self.complaint = [], False, ""

    def __call__(self, work):
        self.work.append(work)
        return self

    def run(self):
        while self.work:
            self.work.pop(0)()


@pytest.fixture
def worker(empty, monkeypatch):
    """Fake background process with an empty cache."""
    found = Worker()
    monkeypatch.setattr(builds, "in_background", found)
    return found


def test_nothing_waits_unless_it_is_asked_for(monkeypatch):
    monkeypatch.delenv("TRAJOPT_START", raising=False)
    assert not starts_at_once()
    monkeypatch.setenv("TRAJOPT_START", "at once")
    assert starts_at_once()
    with starting("compiled"):
        assert not starts_at_once()
        with starting(None):
            assert not starts_at_once()
    with pytest.raises(ValueError, match="'compiled', 'at once'"), starting("soon"):
        pass


@pytest.mark.parametrize("solver", ["slq", "ddp", "sqp"])
def test_numpy_serves_where_nothing_is_there(solver, worker):
    plain = to.solve(problem(engine="numpy"), solver=solver)
    found = to.solve(problem(), solver=solver, start="at once")
    assert found.meta["engines"] == ["numpy"] and plain.meta["engines"] == ["numpy"]
    assert found.iterations == plain.iterations and found.status.success
    np.testing.assert_allclose(found.xs, plain.xs, atol=1e-11)  # sweeps of SQP may be compiled
    assert len(worker.work) >= 1


@pytest.mark.parametrize("solver", ["slq", "ddp", "sqp"])
def test_code_is_taken_up_between_iterations(solver, worker):

    def told(record):
        if record.iteration == 2:
            worker.run()

    plain = to.solve(problem(engine="numpy"), solver=solver)
    found = to.solve(problem(), None, None, told, solver=solver, start="at once")
    assert found.meta["engines"] == ["numpy", "compiled"]
    assert found.status.code == plain.status.code
    np.testing.assert_allclose(found.xs, plain.xs, atol=1e-6)
    worker.run()
    again = to.solve(problem(), solver=solver, start="at once")
    assert again.meta["engines"] == ["compiled"] and not worker.work


def test_the_interior_point_starts_before_its_libraries_are_there(worker):
    """In NumPy alone, and with code that is ready during the solve."""
    plain = to.solve(problem(engine="numpy"), solver="ipm")
    first = to.solve(problem(), solver="ipm", start="at once")
    assert first.meta["engines"] == ["numpy"] and worker.work
    assert first.iterations == plain.iterations  # with the same Hessian
    later = to.solve(problem(), None, None, lambda r: worker.run(), solver="ipm", start="at once")
    assert later.meta["engines"] == ["numpy", "compiled"]
    for found in (first, later):
        assert found.status.success
        np.testing.assert_allclose(found.xs, plain.xs, atol=1e-6)


def test_a_refused_library_is_not_waited_for(worker, monkeypatch):
    from dynamics_backends.compiled.sources import traced_source

    monkeypatch.setattr(traced_source, "OPERATIONS_LIMIT", 10)
    found = to.solve(problem(), solver="slq", start="at once", callback=lambda record: worker.run())
    assert found.status.success and "compiled" not in found.meta["engines"]


def test_a_worker_that_dies_leaves_numpy(empty, monkeypatch):
    def dies():
        os.kill(os.getpid(), 9)

    real = builds.in_background
    monkeypatch.setattr(builds, "in_background", lambda work: real(dies))
    found = to.solve(problem(), solver="slq", start="at once")
    assert found.status.success and found.meta["engines"] == ["numpy"]


def test_a_cache_that_cannot_be_written_is_no_place_to_meet(empty, monkeypatch):
    monkeypatch.setattr("dynamics_backends.compiled.runtime.background_process._cache_is_writable", lambda: False)
    assert to.solve(problem(), solver="slq", start="at once").meta["engines"] == ["compiled"]


def test_another_process_compiles(empty):
    ocp = problem()
    with starting("at once"):
        [stages, _] = stages_of(ocp, Wanted(rollout=True), "auto")
        until = time.monotonic() + 300
        while not stages.compiled and time.monotonic() < until:
            time.sleep(0.05)
    assert stages.compiled


def test_a_quick_library_serves_nobody_who_waits(worker):
    ocp = problem()
    shape = builds.search(ocp.phases[0].dynamics.sampling.called, _shape(ocp))
    shape.compile_to_cache(quick=True)
    quick = builds.Search(shape.backend, shape.shape)
    assert quick.lookup() is not None and not quick.is_final
    assert builds.Search(shape.backend, shape.shape).wait() is not None
    assert quick.lookup() is not None and quick.is_final  # and is exchanged


def _shape(ocp):
    with starting("at once"):
        [stages, _] = stages_of(ocp, Wanted(rollout=True), "auto")
    return stages._search.shape


def test_a_hurried_compiler_is_told_apart():
    toolchain = find_toolchain()
    assert toolchain.hurried.fingerprint != toolchain.fingerprint
    assert toolchain.hurried.flags[:-1] == toolchain.flags


def test_flags_in_the_compiler_command_tell_libraries_apart():
    toolchain = find_toolchain()
    commands = [("gcc",), ("gcc", "-ffast-math"), ("gcc", "-fsanitize=address")]
    assert len({replace(toolchain, command=command).fingerprint for command in commands}) == 3


# -- new terms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shooting", SHOOTING)
def test_compiled_steps_with_terms_by_numpy(shooting):
    ocp = problem(horizon=13)
    evaluator, whole = StageEvaluator(problem(engine="numpy", horizon=13)), _bare(ocp)
    rng = np.random.default_rng(1)
    xs, us = 0.3 * rng.standard_normal((14, 4)), 0.3 * rng.standard_normal((13, ocp.nu))
    for ours, theirs in zip(whole.expand(xs, us).lq, evaluator.expand(xs, us).lq, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-11)
    assert whole.expand(xs, us).cost == pytest.approx(evaluator.expand(xs, us).cost, rel=1e-12)
    direction = Direction(
        0.1 * rng.standard_normal((14, 4)),
        0.1 * rng.standard_normal((13, ocp.nu)),
        np.zeros((13, ocp.nu, 4)),
        xs[1:] * 0.01,
    )
    alphas = np.array([1.0, 0.5])
    ours, theirs = (e.rollout(xs, us, direction, alphas, SHOOTING[shooting]) for e in (whole, evaluator))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    lam = rng.standard_normal((13, 4))
    for a, b in zip(whole.curvature(xs, us, lam), evaluator.curvature(xs, us, lam), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def _bare(ocp):
    """An evaluator by the library without terms."""
    found = StageEvaluator(ocp, engine="numpy")
    choice = CompiledChoice(ocp, 0, *found.stages, [(False, "gauss_newton")], required=True)
    found.stages[0] = choice.bare_stages(choice.bare.wait(), found.stages[0])
    return found


def test_time_steps_are_taken_up_before_the_terms_are_there(worker):
    with starting("at once"):
        [stages, _] = stages_of(problem(horizon=13), Wanted(rollout=True), "auto")
    rng = np.random.default_rng(2)
    xs, us = 0.3 * rng.standard_normal((14, 4)), 0.3 * rng.standard_normal((13, 2))
    found = [stages.first(xs[:-1], us, xs[1:])]
    for search, kind in ((stages._interim[0], BareStages), (stages._search, CompiledStages)):
        search.compile_to_cache(quick=True)
        found.append(stages.first(xs[:-1], us, xs[1:]))
        assert type(stages._now) is kind
    for later in found[1:]:
        for ours, theirs in zip(later[1:], found[0][1:], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-11)


def test_time_steps_serve_where_the_whole_is_refused(worker, monkeypatch):
    def refuse():
        raise TooLong("too long")

    with starting("at once"):
        [stages, _] = stages_of(problem(horizon=13), Wanted(rollout=True), "auto")
    stages._interim[0].compile_to_cache(quick=True)
    monkeypatch.setattr(stages._search, "lookup", refuse)
    assert stages.compiled and isinstance(stages._now, BareStages)


def test_a_motion_under_feedback_asks_for_time_steps_alone(worker):
    """The compiled code is reused after terms are edited."""
    ocp, K = problem(), np.zeros((2, 4))
    plain = to.feedback_guess(problem(engine="numpy"), K, 0.1)
    with starting("at once"):
        to.feedback_guess(ocp, K, 0.1)
        worker.run()
        edited = replace(ocp, phases=(replace(ocp.phases[0], terms=ocp.phases[0].terms[:1]),))
        found = to.feedback_guess(edited, K, 0.1)
    assert not worker.work
    np.testing.assert_allclose(found.xs, plain.xs, atol=1e-11)


def test_time_steps_are_made_where_all_else_is_there(worker):
    ocp = problem()
    builds.search(ocp.phases[0].dynamics.sampling.called, _shape(ocp)).compile_to_cache(quick=False)
    worker.work.clear()
    again = problem()
    with starting("at once"):
        [stages, _] = stages_of(again, Wanted(rollout=True), "auto")
    assert isinstance(stages, CompiledStages) and len(worker.work) == 1
    worker.run()
    bare = StageShape("rk4", (), 2)
    assert builds.Search(again.phases[0].dynamics.sampling.called, bare).lookup() is not None


def test_what_serves_most_knots_is_compiled_first(empty, monkeypatch):
    asked = []
    monkeypatch.setattr(builds, "request", lambda *groups: asked.extend(groups))
    phases = [problem(horizon=horizon).phases[0] for horizon in (3, 5, 4)]
    phases = [*phases, replace(phases[0]), *phases[2:]]  # 6, 5 and 8 knots by each library
    with starting("at once"):
        stages_of(to.OCP(tuple(phases), np.zeros(4), problem().terminal), Wanted(rollout=True))
    backends = [phases[i].dynamics.sampling.called for i in (2, 0, 1)]
    for group in asked:
        assert list(dict.fromkeys(search.backend for search in group)) == backends


def test_a_new_term_waits_for_nothing(worker):
    to.solve(problem(), solver="slq", start="at once", callback=lambda record: worker.run())
    worker.run()
    ocp = problem()
    new = to.residual_cost("new", lambda x, u, t, p: [x[3] * x[3]], ocp.manifold, 1, 0.3)
    edited = replace(ocp, phases=(replace(ocp.phases[0], terms=(*ocp.phases[0].terms, new)),))
    found = to.solve(edited, solver="slq", start="at once")
    assert found.meta["engines"][0] == soon_stages.MIXED
    same = replace(edited.phases[0], dynamics=problem(engine="numpy").phases[0].dynamics)
    plain = to.solve(replace(edited, phases=(same,)), solver="slq")
    np.testing.assert_allclose(found.xs, plain.xs, atol=1e-8)


def test_an_edited_term_changes_its_own_code_alone(monkeypatch):
    """Object files of the dynamics and the other terms are unchanged."""
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    ocp = problem()
    sampling = ocp.phases[0].dynamics.sampling

    def code(*more):
        terms = tuple(TermShape.of(term) for term in (*ocp.phases[0].terms, *more))
        end = tuple(TermShape.of(term) for term in ocp.terminal)
        return units(source_of(sampling.called, StageShape(sampling.scheme, (), ocp.nu, terms, end)))

    new = to.residual_cost(
        "new", lambda x, u, t, p: [x[3] * x[3] - p["to"][0]], ocp.manifold, 1, 0.3, parameters={"to": [0.1]}
    )
    before, after = code(), code(new)
    assert before[0] == after[0]
    changed = set(after) - set(before)
    assert 1 <= len(changed) <= 2 < len(after)
    assert all("running_" in text for text in changed)


# -- contact --------------------------------------------------------------------------------------------------------------


def test_robots_in_contact_and_their_friction_begin_on_loops(worker):
    """Results equal those of compiled code, and terms share the arrays of the user's terms."""
    system = Holonomic(load_robot("hyq"), [PointContact("lf_foot"), PointContact("rh_foot")])
    dynamics = to.SampledSystem(make_backend(system, "analytic", engine="compiled"), "semi_implicit_euler")
    cone = friction_cost(system, ["lf_foot", "rh_foot"], 0.7, 1.0)
    x = system.model.neutral()
    ocp = to.OCP((to.Phase(dynamics, np.full(3, 0.01), [cone]),), np.concatenate([x, np.zeros(system.model.nv)]))
    with starting("at once"):
        [stages, _] = stages_of(ocp, Wanted(rollout=True), "auto")
    [now] = stages._now.terms
    forces = now.residual.inner
    assert isinstance(forces.system.driver, LibraryDriver) and isinstance(
        stages._now.dynamics.system.driver, LibraryDriver
    )
    assert now.weight is cone.weight and now.parameters is cone.parameters
    assert not isinstance(cone.residual.inner.system.driver, LibraryDriver)
    [plain, _] = stages_of(ocp, Wanted(rollout=True), "numpy")
    rng = np.random.default_rng(0)
    xs = np.tile(ocp.x0, (3, 1)) + np.pad(0.1 * rng.standard_normal((3, 30)), ((0, 0), (7, 0)))
    us = rng.standard_normal((3, system.nu))
    found, expected = (s.first(xs, us, xs) for s in (stages, plain))
    for ours, theirs in zip((*found.values, *found[1:]), (*expected.values, *expected[1:]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9 * max(1.0, np.abs(theirs).max(initial=0.0)))
