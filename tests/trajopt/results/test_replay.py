"""Plans replayed on finely integrated dynamics, open loop and with their gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import trajopt as to
from dynamics_backends.manifold import Manifold, vector_space
from dynamics_backends.protocol import IMPLICIT_STEP
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt.results.report import replayed
from trajopt.solvers.solution_checks import checked
from trajopt.stage.evaluation import StageEvaluator
from trajopt.validation.replay import FINEST, TOLERANCES, _Refined, replay

N, DT = 20, 0.05


def plan(scheme: str, engine: str = "numpy"):
    builder = ModelBuilder("pendulum")
    link = {"mass": 1.0, "com": (0, 0, -0.5), "inertia": np.diag([0.05, 0.05, 0.01])}
    builder.add_body("rod", joint=JointSpec(axis=(0, 1, 0), damping=0.1), **link)
    system = FreeBody(builder.build())
    running, goal = [to.control_cost(1, weight=1e-2)], np.array([2.0, 0.0])
    last = [to.state_cost(system.manifold, goal, 100.0)]
    dynamics = to.SampledSystem(make_backend(system, engine=engine), scheme)
    ocp = to.OCP.single_phase(dynamics, np.zeros(2), N, DT, running, last, model=system.model)
    return ocp, to.solve(ocp, solver="slq"), system


def accurate(system, us, xs=None, K=None):
    step, x = to.SampledSystem(make_backend(system, engine="numpy"), "rk4", 8), np.zeros((1, 2))
    for k, u in enumerate(us):
        held = u if K is None else u + K[k] @ (x[0] - xs[k])
        x = step.step(x, held[None], 0.0, DT)
    return x[0]


@pytest.mark.parametrize(("scheme", "near"), [("semi_implicit_euler", 1e-4), ("rk4", 1e-5)])
def test_the_replay_is_the_motion_under_held_controls(scheme: str, near: float) -> None:
    ocp, s, system = plan(scheme)
    found = replay(ocp, s.xs, s.us, s.K, StageEvaluator, holds=lambda run: False)
    assert found is not None
    held, gains = found.runs
    np.testing.assert_allclose(held.xs[-1], accurate(system, s.us), atol=near)
    np.testing.assert_allclose(gains.xs[-1], accurate(system, s.us, s.xs, s.K), atol=near)
    for run in found.runs:
        off = np.abs(run.xs[:, 0] - s.xs[:, 0])
        assert (run.amount, run.knot) == (pytest.approx(off.max()), int(np.argmax(off)))
        assert run.ratio == pytest.approx(off.max() / TOLERANCES["fixed"]["rad"])


def test_runs_are_extrapolated_to_increasing_orders() -> None:
    """Euler's method for x' = x, with n steps until t = 1."""
    runs = {n: np.array([[1.0], [(1.0 + 1.0 / n) ** n]]) for n in (1, 8, 16, 32)}
    refined = _Refined(Manifold([vector_space(1)]), 1)
    errors, corrections = [], []
    for n, run in runs.items():
        corrections.append(refined.add(run, n))
        errors.append(abs(refined.best[-1, 0] - np.e))
    assert corrections[0] is None
    # the error constants of orders 1 to 4 are below 1
    assert errors[0] < 1.0 and errors[1] < 1 / 8 and errors[2] < 1 / (8 * 16) and errors[3] < 1 / (8 * 16 * 32)
    assert errors[3] < abs(corrections[3][-1, 0]) < 1 / (8 * 16)
    assert refined.add(np.full((2, 1), np.nan), 64) is None and refined.add(runs[32], 128) is None


def test_a_solve_reports_the_replay() -> None:
    ocp, coarse, _ = plan("semi_implicit_euler", "compiled")
    _, fine, _ = plan("rk4", "compiled")
    own = replay(ocp, coarse.xs, coarse.us, coarse.K, StageEvaluator)
    assert own is not None
    np.testing.assert_allclose(coarse.meta["replay"]["open"]["x"], own.runs[0].xs[-1], atol=1e-9)
    assert fine.meta["replay"]["open"]["amount"] < 1e-4 < 1e-2 < coarse.meta["replay"]["open"]["amount"]
    lines = replayed(coarse)
    assert f"with its controls held: within {own.runs[0].amount:.2g} rad of the plan" in lines[0]
    assert "with its feedback gains" in lines[1] and len(replayed(fine)) == 1


@pytest.mark.parametrize("scheme", ["semi_implicit_euler", "rk4"])
def test_a_replay_without_compiled_code_has_the_same_numbers(scheme: str, monkeypatch) -> None:
    ocp, s, _ = plan(scheme, "compiled")
    expected = s.meta["replay"]["open"]
    monkeypatch.setattr(StageEvaluator, "compiled", False)
    found = checked(ocp, s, to.solver_options("slq")).meta["replay"]["open"]
    np.testing.assert_allclose(found["x"], expected["x"], atol=1e-10)
    assert found["amount"] == pytest.approx(expected["amount"], rel=1e-6)


START, KNOTS, STEP, LAW = [0.003, -0.4], 5, 0.01, RelaxedCone(stiffness=2e4, relaxation=0.05, dissipation=0.01)


def landing(slower: float):
    """Height and speed of a mass of 2 kg that lands on ground slower by ``slower`` [s], from an independent integrator."""

    def rates(t, x):
        y = x[0] + (LAW.dissipation + slower) * x[1]
        force = 0.5 * LAW.stiffness * (np.sqrt(y * y + 4.0 * LAW.relaxation / LAW.stiffness) - y)
        return [x[1], force / 2.0 - 9.81]

    return solve_ivp(rates, (0.0, KNOTS * STEP), START, rtol=1e-9, atol=1e-9).y[:, -1]


@pytest.mark.parametrize("at_run_time", [False, True])
def test_contacts_of_long_steps_stay_as_slow_as_in_the_plan(at_run_time: bool, monkeypatch) -> None:
    monkeypatch.setitem(FINEST, 1, 16)
    monkeypatch.setattr("trajopt.validation.replay.FAR", np.inf)
    builder = ModelBuilder("mass")
    builder.add_body("mass", joint=JointSpec(kind="prismatic"), mass=2.0, inertia=np.eye(3))
    builder.add_frame("foot", "mass")
    system = SteppedContact(builder.build((0.0, 0.0, -9.81)), ["foot"], law=LAW)
    dynamics = to.SampledSystem(make_backend(system, engine="numpy"), "semi_implicit_euler")
    given = {"contact_dissipation": [LAW.dissipation]} if at_run_time else {}
    phase = to.Phase(dynamics, np.full(KNOTS, STEP), (to.control_cost(1),), given)
    ocp, still = to.OCP((phase,), START), np.zeros((KNOTS, 1))
    xs = np.tile(START, (KNOTS + 1, 1))
    found = replay(ocp, xs, still, np.zeros((KNOTS, 1, 2)), lambda fine: StageEvaluator(fine, engine="numpy"))
    assert found is not None and found.slower == pytest.approx(STEP)
    (run,) = found.runs
    np.testing.assert_allclose(run.xs[-1], landing(STEP), atol=1e-4)
    assert np.abs(run.xs[-1] - landing(0.0)).max() > 1e-2


def test_a_slower_law_is_that_of_a_longer_step() -> None:
    n, w = Vec(0.0, 0.6, 0.8), Vec(0.3, -0.2, -0.4)
    long = LAW.force(0.001, n, w, {IMPLICIT_STEP: [STEP]})
    for given in ({}, {"contact_dissipation": np.array([LAW.dissipation])}):
        law, p = LAW.slower(STEP, given)
        short = law.force(0.001, n, w, {**p, IMPLICIT_STEP: [0.0]})
        np.testing.assert_allclose([short.x, short.y, short.z], [long.x, long.y, long.z], rtol=1e-12)


def test_reports_of_replays_say_what_happened() -> None:
    _, plain, _ = plan("semi_implicit_euler")
    good = {"x": [0.0, 0.0], "amount": 1e-9, "limit": 0.05, "unit": "rad", "name": "q[joint]"}
    lost = replace(plain, meta={"replay": {"open": good | {"x": None}, "gains": good}})
    assert replayed(lost) == [
        "replayed on finer dynamics, with its controls held: the motion diverges",
        "replayed on finer dynamics, with its feedback gains: within 1e-09 rad of the plan (q[joint], tolerance 0.05 rad)",
    ]
    left_out = replace(plain, meta={"replay": {"left_out": "its time steps cannot be divided"}})
    assert replayed(left_out) == ["not replayed on finer dynamics: its time steps cannot be divided"]
    slow = replace(plain, meta={"replay": {"slower": 0.02, "gains": good | {"x": None}}})
    assert replayed(slow) == [
        "replayed on finer dynamics (contact time constants of 20 ms steps), with its feedback gains: the motion diverges"
    ]


def test_time_steps_that_compare_by_their_values_are_replayed() -> None:
    """Their class has no hash."""

    class Compared(to.SampledSystem):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Compared) and other.substeps == self.substeps

        __hash__ = None  # type: ignore[assignment]

    ocp, plain, system = plan("rk4", "compiled")
    (phase,) = ocp.phases
    own = Compared(make_backend(system, engine="compiled"), "rk4")
    found = to.solve(replace(ocp, phases=(replace(phase, dynamics=own),)), solver="slq")
    assert found.meta["replay"]["open"]["x"] == pytest.approx(plain.meta["replay"]["open"]["x"], abs=1e-9)
