"""Plans replayed on finely integrated dynamics, open loop and with their gains."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.model.joint_spec import JointSpec
from dynamics_backends.rigid_body.model.model_builder import ModelBuilder
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.results.report import replayed
from trajopt.stage.evaluation import StageEvaluator
from trajopt.validation.replay import replay

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
