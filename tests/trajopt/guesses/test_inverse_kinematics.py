"""Inverse kinematics, compared with independent forward kinematics and with closed-form solutions."""

from __future__ import annotations

import numpy as np
import pytest
from kinematics_oracle import frame_matrices

import trajopt as to
from dynamics_backends.names import UnknownName
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from problems.robots import load_robot
from trajopt.validation.replay import tolerances

LENGTHS = 0.7, 0.5


def planar_arm(limit: float = np.pi):
    """Two links in the plane z = 0 that turn about z, with the tip at the end of the second."""
    builder = ModelBuilder("planar")
    inertia = {"mass": 1.0, "com": [0.2, 0.0, 0.0], "inertia": 0.1 * np.eye(3)}
    for i, (parent, x) in enumerate(((None, 0.0), ("link0", LENGTHS[0]))):
        joint = JointSpec(name=f"joint{i}", q_lower=-limit, q_upper=limit)
        builder.add_body(f"link{i}", parent, joint, xyz=[x, 0, 0], **inertia)
    builder.add_frame("tip", "link1", xyz=[LENGTHS[1], 0.0, 0.0])
    return builder.build()


def tip(model, frame, q):
    names = [f.name for f in model.frames]
    return frame_matrices(model, q)[names.index(frame)]


@pytest.mark.parametrize(
    ("robot", "frame"), [("iiwa7", "iiwa_link_ee"), ("irb4600", "ee"), ("gen3", "EndEffector_Link")]
)
@pytest.mark.parametrize("held", ["position", "placement", "axis"])
def test_the_frame_is_at_the_goal_within_the_limits(robot, frame, held):
    model, rng = load_robot(robot), np.random.default_rng(5)
    for q in model.random_configuration(rng, 5):
        T = tip(model, frame, q)
        given = {"position": T[:3, 3], "rotation": None if held == "position" else T[:3, :3]}
        axis = (0.0, 0.0, 1.0) if held == "axis" else None
        found = to.inverse_kinematics(model, frame, **given, free_axis=axis, q0=model.random_configuration(rng))
        assert found.reached
        for solution in found.solutions[0]:
            assert (solution >= model.q_lower).all() and (solution <= model.q_upper).all()
            at = tip(model, frame, solution)
            np.testing.assert_allclose(at[:3, 3], T[:3, 3], atol=2e-4)
            if held == "placement":
                np.testing.assert_allclose(at[:3, :3], T[:3, :3], atol=2e-4)
            if held == "axis":
                np.testing.assert_allclose(at[:3, 2], T[:3, 2], atol=2e-4)


def test_a_planar_base_moves_the_frame_to_the_goal():
    """Its velocities are in the axes of the body, its coordinates in those of the world."""
    builder = ModelBuilder("mobile")
    solid = {"mass": 1.0, "inertia": 0.1 * np.eye(3)}
    builder.add_body("base", joint=JointSpec("planar", "drive"), **solid)
    builder.add_body("arm", "base", JointSpec(name="lift", axis=(0, 1, 0), q_lower=-1.0, q_upper=1.0), **solid)
    builder.add_frame("tip", "arm", xyz=[0.5, 0.0, 0.0])
    model, q0 = builder.build(), np.array([1.0, 2.0, 2.0, 0.3])
    goal = tip(model, "tip", np.array([-0.5, 0.4, -1.0, -0.6]))
    found = to.inverse_kinematics(model, "tip", goal[:3, 3], goal[:3, :3], q0=q0)
    assert found.reached
    np.testing.assert_allclose(tip(model, "tip", found.q), goal, atol=2e-4)
    near = to.inverse_kinematics(model, "tip", tip(model, "tip", q0)[:3, 3] + [0.0, 0.0, 0.1], q0=q0)
    assert near.reached and np.linalg.norm(near.q - q0) < 0.3


def test_both_elbows_of_a_planar_arm_are_found_the_nearer_first():
    model, target = planar_arm(), np.array([0.6, 0.5, 0.0])
    a, b = LENGTHS
    bend = np.arccos((target @ target - a * a - b * b) / (2 * a * b))
    expected = [
        np.array([np.arctan2(target[1], target[0]) - np.arctan2(b * np.sin(e), a + b * np.cos(e)), e])
        for e in (bend, -bend)
    ]
    for near, far in (expected, expected[::-1]):
        found = to.inverse_kinematics(model, "tip", target, q0=near + 0.1)
        (solutions,) = found.solutions
        np.testing.assert_allclose(solutions, [near, far], atol=1e-5)
        np.testing.assert_array_equal(found.q, solutions[0])


def test_the_nearest_point_of_a_goal_out_of_reach():
    goal = np.array([[2.0, 0.0, 0.0], [0.0, 0.1, 0.0], [0.5, 0.5, 0.3]])
    found = to.inverse_kinematics(planar_arm(), "tip", goal)
    np.testing.assert_allclose(
        found.position_error, [2.0 - sum(LENGTHS), LENGTHS[0] - LENGTHS[1] - 0.1, 0.3], atol=1e-4
    )
    assert not found.reached.any() and [len(s) for s in found.solutions] == [0, 0, 0]


def test_limits_are_enforced_or_ignored():
    model, goal = planar_arm(limit=0.4), np.array([-0.8, 0.3, 0.0])
    assert not to.inverse_kinematics(model, "tip", goal).reached
    assert to.inverse_kinematics(model, "tip", goal, limits=False).reached


def test_a_batch_equals_single_goals():
    model, rng = load_robot("irb4600"), np.random.default_rng(2)
    qs = model.random_configuration(rng, 4)
    goals = np.stack([tip(model, "ee", q)[:3, 3] for q in qs])
    found = to.inverse_kinematics(model, "ee", goals, q0=qs)
    assert found.q.shape == (4, 6) and found.reached.all()
    np.testing.assert_allclose(found.q, qs, atol=1e-4)


def test_continuous_joints_stay_within_half_a_turn():
    model, goal = planar_arm(limit=np.inf), np.array([0.6, 0.5, 0.0])
    q0 = np.array([4 * np.pi, -2 * np.pi])
    assert np.abs(to.inverse_kinematics(model, "tip", goal, q0=q0).q - q0).max() <= np.pi


def test_manipulability_is_that_of_the_closed_form():
    """|det J| of two links is a b |sin q_1|; lengths are in units of the reach."""
    found = to.inverse_kinematics(planar_arm(), "tip", np.array([0.6, 0.5, 0.0]))
    assert found.manipulability == pytest.approx(np.prod(LENGTHS) * abs(np.sin(found.q[1])) / sum(LENGTHS) ** 2)


def test_configurations_clear_of_obstacles_come_first():
    model, goal = planar_arm(), np.array([0.6, 0.5, 0.0])
    near = to.inverse_kinematics(model, "tip", goal)
    blocked = np.sign(near.q[1])
    found = to.inverse_kinematics(model, "tip", goal, clearance=lambda q: -blocked * q[:, 1])
    assert found.clear and np.sign(found.q[1]) == -blocked


@pytest.mark.parametrize("tilt", [0.0, 1e-17, 1e-13, 1e-10, 1e-4])
def test_an_axis_that_points_the_opposite_way_is_turned_around(tilt):
    """The cross product of the two axes vanishes at the start configuration."""
    model, frame = load_robot("iiwa7"), "iiwa_link_ee"
    T = tip(model, frame, model.neutral())
    c, s = -np.cos(tilt), -np.sin(tilt)
    down = T[:3, :3] @ np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
    found = to.inverse_kinematics(model, frame, None, down, free_axis=[0.0, 0.0, 1.0], q0=model.neutral())
    assert found.reached
    np.testing.assert_allclose(tip(model, frame, found.q)[:3, 2], down[:, 2], atol=2e-4)


BAD = {
    "no goal": ({}, "needs a goal"),
    "shape": ({"position": np.zeros(2)}, "position has shape"),
    "not finite": ({"position": np.full(3, np.nan)}, "NaN"),
    "axis": ({"rotation": np.eye(3), "free_axis": np.zeros(3)}, "free_axis"),
    "axis that is none": ({"rotation": np.eye(3), "free_axis": [np.nan, 0.0, 1.0]}, "free_axis"),
    "axis of no rotation": ({"position": np.zeros(3), "free_axis": [0.0, 0.0, 1.0]}, "together with a rotation"),
    "scaled rotation": ({"rotation": 2.0 * np.eye(3)}, "rotation is not a rotation"),
    "degrees": ({"rotation": [90.0, 0.0, 0.0]}, "degrees"),
    "reflection": ({"rotation": np.stack([np.eye(3), -np.eye(3)])}, "rotation is not a rotation"),
    "batches": ({"position": np.zeros((3, 3)), "rotation": np.stack([np.eye(3)] * 2)}, r"have \[2, 3\] goals"),
    "no goals": ({"position": np.zeros((0, 3))}, "at least one"),
    "q0": ({"position": np.zeros(3), "q0": np.zeros(3)}, r"q0 has shape \(3,\); expected .* \(2,\) or \(N = 1, 2\)"),
    "q0 that is none": ({"position": np.zeros(3), "q0": [0.0, np.nan]}, "finite"),
    "starts": ({"position": np.zeros(3), "starts": 0}, "starts = 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_goals_are_refused(case):
    arguments, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        to.inverse_kinematics(planar_arm(), "tip", **arguments)


def test_unknown_frames_and_floating_robots_are_refused():
    with pytest.raises(UnknownName):
        to.inverse_kinematics(planar_arm(), "hand", np.zeros(3))
    with pytest.raises(ValueError, match="quaternions.* supports fixed-base robots only"):
        to.inverse_kinematics(load_robot("hyq"), "lf_foot", np.zeros(3))
    builder = ModelBuilder("ball")
    builder.add_body("hand", None, "spherical", mass=1.0, inertia=np.eye(3))
    with pytest.raises(ValueError, match="does not support ball joints: hand_joint"):
        to.inverse_kinematics(builder.build(), "hand", np.zeros(3))


def gantry(path, stroke):
    """A tool moved by three prismatic joints of this stroke in both directions, without any lengths between them."""
    text = '<robot name="gantry"><link name="l0"/>'
    for i, axis in enumerate(("1 0 0", "0 1 0", "0 0 1")):
        text += (
            f'<link name="l{i + 1}"><inertial><mass value="1"/>'
            '<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>'
            f'<joint name="j{i}" type="prismatic"><parent link="l{i}"/><child link="l{i + 1}"/><axis xyz="{axis}"/>'
            f'<limit lower="{-stroke}" upper="{stroke}" effort="100" velocity="1"/></joint>'
        )
    path.write_text(text + "</robot>")
    return to.load_urdf(path)


@pytest.mark.parametrize("stroke", [0.001, 0.2, 5.0])
def test_prismatic_joints_reach_as_far_as_their_strokes(tmp_path, stroke):
    model, rng = gantry(tmp_path / "gantry.urdf", stroke), np.random.default_rng(0)
    for goal in rng.uniform(-stroke, stroke, (10, 3)):
        found = to.inverse_kinematics(model, "l3", goal)
        assert found.reached
        np.testing.assert_allclose(found.q, goal, atol=2e-4 * stroke)


def test_tolerances_of_small_robots_are_small(tmp_path):
    """A stage with strokes of 1 mm: to miss a goal by a part of a millimeter is no success."""
    stroke = 1e-3
    model = gantry(tmp_path / "stage.urdf", stroke)
    stage = to.FreeBody(model)
    step = to.SampledSystem(stage, "rk4")
    running, goal = [to.control_cost(3, weight=1e-3)], [0.6 * stroke, -0.7 * stroke, 0.2 * stroke]
    for weight, code in ((1.0, "goal_missed"), (1e6, "converged")):
        terminal = [to.frame_position_cost(model, stage.manifold, "l3", goal, weight)]
        ocp = to.OCP.single_phase(step, np.zeros(6), 50, 0.02, running, terminal, model=model)
        assert to.solve(ocp, solver="slq").status.code == code
    limits, units = tolerances(ocp, np.zeros((51, 6)))
    assert units == ("m", "m", "m")
    np.testing.assert_allclose(limits, 0.05 * 2.0 * stroke)
