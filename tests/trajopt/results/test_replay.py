"""Plans replayed on finely integrated dynamics, open loop and with their gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import trajopt as to
from dynamics_backends.protocol import IMPLICIT_STEP
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.model.joint_spec import JointSpec
from dynamics_backends.rigid_body.model.model_builder import ModelBuilder
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt.results.report import replayed
from trajopt.stage.evaluation import StageEvaluator
from trajopt.validation.replay import FINEST, replay

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
    step, x = to.SampledSystem(make_backend(system, engine="numpy"), "rk4", 16), np.zeros((1, 2))
    for k, u in enumerate(us):
        held = u if K is None else u + K[k] @ (x[0] - xs[k])
        x = step.step(x, held[None], 0.0, DT)
    return x[0]


@pytest.mark.parametrize(("scheme", "near"), [("semi_implicit_euler", 2e-3), ("rk4", 1e-5)])
def test_the_replay_is_the_motion_under_held_controls(scheme: str, near: float) -> None:
    ocp, s, system = plan(scheme)
    found = replay(ocp, s.xs, s.us, s.K, StageEvaluator)
    assert found is not None and found.gains is not None
    np.testing.assert_allclose(found.open, accurate(system, s.us), atol=near)
    np.testing.assert_allclose(found.gains, accurate(system, s.us, s.xs, s.K), atol=near)


@pytest.mark.needs_compiler
def test_a_solve_tells_it() -> None:
    ocp, coarse, _ = plan("semi_implicit_euler", "compiled")
    _, fine, _ = plan("rk4", "compiled")
    own = replay(ocp, coarse.xs, coarse.us, coarse.K, StageEvaluator)
    assert own is not None
    np.testing.assert_allclose(coarse.meta["replay"]["open"]["x"], own.open, atol=1e-9)
    assert fine.meta["replay"]["open"]["largest"] < 1e-4 < 1e-2 < coarse.meta["replay"]["open"]["largest"]

    def outcome(x):
        return [f"the rod ends at {x[0]:.3f}"]

    told = replayed(coarse, outcome)
    assert "with its controls held" in told[0] and f"the rod ends at {own.open[0]:.3f}" in told[0]
    assert replayed(fine, outcome) == ["on accurate dynamics the plan ends as it says"]


START, KNOTS, STEP, LAW = [0.003, -0.4], 5, 0.01, RelaxedCone(stiffness=2e4, relaxation=0.05, dissipation=0.01)


def landing(slower: float):
    """Height and speed of a mass of 2 kg that meets a ground which is so much slower, by an integrator of its own."""

    def rates(t, x):
        y = x[0] + (LAW.dissipation + slower) * x[1]
        force = 0.5 * LAW.stiffness * (np.sqrt(y * y + 4.0 * LAW.relaxation / LAW.stiffness) - y)
        return [x[1], force / 2.0 - 9.81]

    return solve_ivp(rates, (0.0, KNOTS * STEP), START, rtol=1e-9, atol=1e-9).y[:, -1]


@pytest.mark.parametrize("at_run_time", [False, True])
def test_contacts_of_long_steps_stay_as_slow_as_in_the_plan(at_run_time: bool, monkeypatch) -> None:
    monkeypatch.setitem(FINEST, 1, 16)
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
    np.testing.assert_allclose(found.open, landing(STEP), atol=1e-4)
    assert np.abs(found.open - landing(0.0)).max() > 1e-2


def test_a_slower_law_is_that_of_a_longer_step() -> None:
    n, w = Vec(0.0, 0.6, 0.8), Vec(0.3, -0.2, -0.4)
    long = LAW.force(0.001, n, w, {IMPLICIT_STEP: [STEP]})
    for given in ({}, {"contact_dissipation": np.array([LAW.dissipation])}):
        law, p = LAW.slower(STEP, given)
        short = law.force(0.001, n, w, {**p, IMPLICIT_STEP: [0.0]})
        np.testing.assert_allclose([short.x, short.y, short.z], [long.x, long.y, long.z], rtol=1e-12)


def test_it_is_told_how_slow_contacts_are() -> None:
    _, plain, _ = plan("semi_implicit_euler")
    lost = replace(plain, meta={"replay": {"open": None, "gains": {"x": [0.0, 0.0], "largest": 1e-9, "at": "q"}}})
    assert replayed(lost, lambda x: []) == [
        "on accurate dynamics, with its controls held, the motion diverges",
        "on accurate dynamics, with its feedback gains, the motion ends as planned",
    ]
    left_out = replace(plain, meta={"replay": {"left_out": "it is not finite"}})
    assert replayed(left_out, lambda x: []) == ["the plan was not replayed on accurate dynamics: it is not finite"]
    slow = replace(plain, meta={"replay": {"slower": 0.02, "gains": None}})
    assert replayed(slow, lambda x: []) == [
        "on accurate dynamics with contacts as slow as in time steps of 20 ms, with its feedback gains, the motion diverges"
    ]


@pytest.mark.needs_compiler
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
