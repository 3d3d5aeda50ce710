"""An arm that avoids a walking person, by replanning and by constraints."""

from __future__ import annotations

import numpy as np
import pytest
from two_link_arm import two_link_arm

import trajopt as to
from experiments.replan.run import setup, simulate
from trajopt.config.build import build_task
from trajopt.config.config import ConfigError, read_config

ARM = two_link_arm(effort=40, velocity=4)
PERSON = {"name": "person", "type": "capsule", "radius": 0.2, "length": 1.4, "position": [1.0, 0.87, 0.0]}
POST = {"name": "post", "type": "sphere", "radius": 0.05, "position": [0.0, 0.9, 0.0]}


@pytest.fixture
def robot(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    return str(path)


def config(robot, **around):
    """Task: the arm holds its position, but a person walks through it, measured at 10 Hz."""
    problem = {
        "name": "arm_go_to",
        "robot": robot,
        "q0": [0.4, 0.1],
        "goal_q": [0.4, 0.1],
        "horizon": 12,
        "dt": 0.06,
        "guess": "quasi_static",
        "velocity_limits": False,
        "position_limits": False,
        "weights": {"goal": 20.0, "terminal_goal": 20.0, "control": 1e-3, "velocity": 0.1},
        "surroundings": {"person": PERSON, "body": [POST], "margin": 0.05, "weight": 1e4} | around,
    }
    run = {"duration": 1.6, "tick": 0.04, "period": 0.08, "lead": 0.04, "charge": 0.02, "plant": {"step": 0.04}}
    walk = {"center": [1.0, 0.43, 0.0], "amplitude": [0.0, 0.55, 0.0], "frequency": [0.0, 0.15, 0.0]}
    run["obstacle"] = {"term": "person", "parameter": "center", **walk, "phase": [0.0, 2.2, 0.0], "period": 0.1}
    problem["surroundings"] = {k: v for k, v in problem["surroundings"].items() if v is not None}
    return read_config({"engine": "numpy", "problem": problem, "solver": "slq", "replan": run}, "test")


def test_replanning_avoids_a_walking_person(robot):
    start = setup(config(robot))
    log = simulate(start)
    away, walked = log.clearances["person"], log.objects["person"]
    still = np.tile(start.task.ocp.x0, (len(walked), 1))
    assert start.task.clearance(still, walked).min() < -0.05  # without motion it would be hit
    assert away.min() > 0.03 and log.statistics()["failed"] == 0
    tip = np.stack([0.5 * np.cos(log.xs[:, 0]) + 0.5 * np.cos(log.xs[:, :2].sum(axis=1)),
                    0.5 * np.sin(log.xs[:, 0]) + 0.5 * np.sin(log.xs[:, :2].sum(axis=1))])  # fmt: skip
    apart = np.hypot(tip[0] - 1.0, tip[1] - 0.43 - 0.55 * np.sin(0.3 * np.pi * log.times[: tip.shape[1]] + 2.2))
    assert apart.min() > 0.2 + 0.02  # tip positions by hand, without the link's width


def test_a_start_too_near_is_reported(robot):
    with pytest.raises(ValueError, match=r"the start is in collision: l2 and person, .* mm deep"):
        build_task(config(robot, person={**PERSON, "position": [0.95, 0.45, 0.0]}))
    with pytest.raises(ConfigError, match="expected a person or a body"):
        config(robot, person=None, body=None)


def test_derivatives_of_distances_from_moving_bodies(robot):
    """Displacing a moving body is equivalent to a static body at another place."""
    (person,) = (t for t in build_task(config(robot)).ocp.terms() if t.name == "person")
    inner = person.residual.inner
    x, u = np.random.default_rng(0).normal(size=(6, 4)), np.zeros((6, 0))
    moved = {"pairs": person.parameters["pairs"], "center": np.array([0.3, -0.2, 0.1])}
    placed = moved["pairs"].reshape(-1, 21).copy()
    placed[:, 15:18] += moved["center"]
    stands = {"pairs": placed.ravel(), "center": np.zeros(3)}
    exact = to.make_backend(inner, "forward_ad", engine="numpy").jacobians(x, u, 0.0, stands)
    for p in (moved, stands):
        for a, b in zip(to.make_backend(inner, engine="numpy").jacobians(x, u, 0.0, p), exact, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


def test_a_goal_inside_a_body_is_a_warning_and_the_reason_of_a_failure(robot):
    """The tip is inside the post at goal_q: no weight helps."""
    tip = [0.5 * np.cos(0.4) + 0.5 * np.cos(0.5), 0.5 * np.sin(0.4) + 0.5 * np.sin(0.5), 0.0]
    asked = config(robot, person=None, body=[POST | {"position": tip}])
    task = build_task(
        read_config(asked.as_dict() | {"problem": asked.as_dict()["problem"] | {"q0": [-0.6, 0.1]}}, "test")
    )
    (warning,) = (w for w in task.warnings if "post" in w)
    assert warning.startswith("the goal itself is inside post: at goal_q l2 is ") and "choose another goal" in warning
    (inside,) = task.nearness(np.array([[0.4, 0.1, 0.0, 0.0]])).warnings
    assert inside.endswith("the goal itself is inside a body: choose another goal, or move the body")
    assert task.missed(np.array([[-0.6, 0.1, 0.0, 0.0], [0.2, 0.1, 0.0, 0.0]]))[0].endswith(warning)
    assert not any("post" in w for w in build_task(config(robot)).warnings)


def test_a_go_to_that_ends_inside_a_body_is_a_failure(robot):
    """The post has too small a weight, and is at the goal of the arm."""
    asked = config(robot, person=None, body=[POST | {"position": [0.65, 0.5, 0.0]}], weight=1e-3)
    task = build_task(asked)
    assert not task.nearness(task.ocp.x0[None]).warnings
    inside = task.nearness(np.array([[0.65, 0.0, 0.0, 0.0]])).warnings  # the post is 0.82 m away in this direction
    assert len(inside) == 1 and "inside post" in inside[0] and "surroundings.weight = 0.001" in inside[0]
