"""Cost terms: residuals on robots and vector spaces, parameters, and errors."""

from functools import partial

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import SO3, Manifold, vector_space
from dynamics_backends.names import UnknownName
from dynamics_backends.protocol import Batch
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.sample_models import random_tree
from dynamics_backends.rigid_body.model.state import state_manifold
from dynamics_backends.rigid_body.spatial.rotations import rpy_matrix
from trajopt import (
    bounded,
    center_of_mass_cost,
    control_cost,
    frame_axis_cost,
    frame_placement_cost,
    frame_position_cost,
    frame_velocity_cost,
    joint_limit_cost,
    quadratize,
    residual_constraint,
    residual_cost,
    state_cost,
)


@pytest.fixture(scope="module")
def robot():
    """A random tree, its state manifold, four states (4, nx), the name of the last frame and its index."""
    model = random_tree(6, 11)
    rng = np.random.default_rng(2)
    x = np.hstack([model.random_configuration(rng, 4), rng.standard_normal((4, model.nv))])
    name = model.frames[-1].name
    return model, state_manifold(model), x, name, model.frame_id(name)


def _residual(term, x, u=None):
    u = np.zeros((len(x), 0)) if u is None else u
    return np.asarray(term.residual(*Batch.of(term.residual, x, u, 0.0, term.parameters))).T


def _rotations(model, q, frame):
    entries = kinematics.frame_rotation(model, q.T, frame)
    return np.stack([np.stack([np.broadcast_to(e, len(q)) for e in row], axis=-1) for row in entries], axis=-2)


def test_frame_position(robot):
    model, manifold, x, name, frame = robot
    at = kinematics.frame_position(model, x[:, : model.nq].T, frame)
    at = np.stack([np.broadcast_to(at[i], 4) for i in range(3)], axis=1)
    goal = np.array([0.1, -0.2, 0.3])
    np.testing.assert_allclose(_residual(frame_position_cost(model, manifold, name, goal), x), at - goal, atol=1e-14)
    moving = frame_position_cost(model, manifold, name, at)
    np.testing.assert_allclose(_residual(moving, x), 0.0, atol=1e-14)


def test_frame_placement_is_position_and_rotation_vector_in_the_goal_frame(robot):
    model, manifold, x, name, frame = robot
    R = _rotations(model, x[:, : model.nq], frame)
    at = _residual(frame_position_cost(model, manifold, name, np.zeros(3)), x)
    goal_R = Rotation.from_rotvec([0.3, -0.5, 0.2]).as_matrix()
    goal_p = np.array([0.4, 0.1, -0.3])
    residual = _residual(frame_placement_cost(model, manifold, name, goal_p, goal_R), x)
    np.testing.assert_allclose(residual[:, :3], (at - goal_p) @ goal_R, atol=1e-13)
    rotation_vector = Rotation.from_matrix(goal_R.T @ R).as_rotvec()
    np.testing.assert_allclose(residual[:, 3:], rotation_vector, atol=1e-12)
    np.testing.assert_allclose(_residual(frame_placement_cost(model, manifold, name, at, R), x), 0.0, atol=1e-7)


def test_a_frame_may_turn_about_its_free_axis(robot):
    """The tilt is the sine of the angle between the axis and where it is to point."""
    model, manifold, x, name, frame = robot
    R = _rotations(model, x[:, : model.nq], frame)
    axis, turn = np.array([0.0, 3.0, 4.0]) / 5.0, Rotation.from_rotvec(0.7 * np.array([0.0, 0.6, 0.8])).as_matrix()
    at = _residual(frame_position_cost(model, manifold, name, np.zeros(3)), x)
    free = _residual(frame_axis_cost(model, manifold, name, at[0], R[0] @ turn, axis), x)
    np.testing.assert_allclose(free[0], 0.0, atol=1e-12)
    sine = np.linalg.norm(np.cross(R @ axis, R[0] @ axis), axis=1)
    np.testing.assert_allclose(np.linalg.norm(free[:, 3:], axis=1), sine, atol=1e-12)
    with pytest.raises(ValueError, match="direction"):
        frame_axis_cost(model, manifold, name, np.zeros(3), np.eye(3), np.zeros(3))


@pytest.mark.parametrize("expressed_in", ["LOCAL", "WORLD", "LOCAL_WORLD_ALIGNED"])
def test_frame_velocity(robot, expressed_in):
    model, manifold, x, name, frame = robot
    reference = np.arange(6.0)
    term = frame_velocity_cost(model, manifold, name, reference, expressed_in=expressed_in)
    velocity = kinematics.frame_velocity(model, x[:, : model.nq].T, x[:, model.nq :].T, frame, expressed_in)
    expected = np.stack([np.broadcast_to(velocity[i], 4) - reference[i] for i in range(6)], axis=1)
    np.testing.assert_allclose(_residual(term, x), expected, atol=1e-13)


def test_frame_velocity_is_the_rate_of_the_frame_position(robot):
    """Along q (+) h v the position moves by h times the linear velocity, world axes."""
    model, manifold, x, name, _ = robot
    h = 1e-6
    drift = np.hstack([x[:, model.nq :], np.zeros((4, model.nv))])
    position = frame_position_cost(model, manifold, name, np.zeros(3))
    forward, backward = (_residual(position, manifold.integrate(x.T, s * h * drift.T).T) for s in (1, -1))
    velocity = _residual(frame_velocity_cost(model, manifold, name), x)
    np.testing.assert_allclose(velocity[:, :3], (forward - backward) / (2 * h), atol=1e-8)


def test_center_of_mass_of_still_bodies(robot):
    model, manifold, x, _, _ = robot
    center = kinematics.center_of_mass(model, x[:, : model.nq].T)
    expected = np.stack([np.broadcast_to(center[i], 4) for i in range(3)], axis=1) - [0.1, 0.2, 0.3]
    np.testing.assert_allclose(
        _residual(center_of_mass_cost(model, manifold, [0.1, 0.2, 0.3]), x), expected, atol=1e-14
    )


def test_robot_terms_have_exact_expansions(robot):
    """Gradient and exact Hessian along random directions, against differences of the value."""
    model, manifold, x, name, _ = robot
    terms = [
        frame_position_cost(model, manifold, name, [0.1, -0.2, 0.3], [1.0, 2.0, 3.0]),
        frame_placement_cost(model, manifold, name, np.zeros(3), np.eye(3)),
        frame_axis_cost(model, manifold, name, np.zeros(3), np.eye(3), np.array([1.0, -2.0, 0.5])),
        frame_velocity_cost(model, manifold, name),
        center_of_mass_cost(model, manifold, np.zeros(3)),
    ]
    rng = np.random.default_rng(3)
    no_u, h = np.zeros((4, 0)), 2e-3
    for term in terms:
        e = quadratize(term, x, no_u, 0.0, hessian="exact")
        for _ in range(3):
            d = 0.3 * rng.standard_normal(manifold.ndx)
            moved = [manifold.integrate(x.T, s * h * np.tile(d[:, None], 4)).T for s in (-2, -1, 0, 1, 2)]
            values = np.array([quadratize(term, m, no_u, 0.0).value for m in moved])
            slope = np.tensordot([1 / 12, -2 / 3, 0, 2 / 3, -1 / 12], values, axes=1) / h
            bend = np.tensordot([-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12], values, axes=1) / h**2
            scale = np.abs(values).max()
            np.testing.assert_allclose(e.lx @ d, slope, rtol=0, atol=1e-8 * scale)
            np.testing.assert_allclose(np.einsum("i,nij,j->n", d, e.lxx, d), bend, rtol=0, atol=1e-6 * scale)


def test_joint_limits_push_back_outside_only():
    model = _with_limits(random_tree(4, 6, ("revolute", "spherical", "prismatic")))
    manifold = state_manifold(model)
    term = joint_limit_cost(model, manifold, 2.0, margin=0.1)
    index = np.flatnonzero(np.isfinite(model.q_lower))
    assert 0 < len(index) < model.nq
    q = np.tile(model.neutral(), (3, 1))
    q[0, index] = model.q_lower[index] + 0.05  # inside, within the margin
    q[1, index] = 0.5 * (model.q_lower[index] + model.q_upper[index])
    q[2, index] = model.q_upper[index] + 0.4
    x = np.hstack([q, np.zeros((3, model.nv))])
    residual = _residual(term, x)
    np.testing.assert_allclose(residual[0], -0.05, atol=1e-12)
    np.testing.assert_array_equal(residual[1], 0.0)
    np.testing.assert_allclose(residual[2], 0.5, atol=1e-12)
    gradient = quadratize(term, x, np.zeros((3, 0)), 0.0).lx
    assert not gradient[1].any()
    np.testing.assert_allclose(np.abs(gradient).sum(axis=1), [2.0 * 0.05 * len(index), 0.0, 2.0 * 0.5 * len(index)])
    with pytest.raises(ValueError, match="leaves no feasible range"):
        joint_limit_cost(model, manifold, margin=1e3)


def _with_limits(model):
    """Limits -1 and 1.5 on the joints with one coordinate."""
    single = np.array([name in model.joint_names for name in model.q_names])
    return model.replace(q_lower=np.where(single, -1.0, -np.inf), q_upper=np.where(single, 1.5, np.inf))


def test_limits_of_another_robot_are_refused():
    arm = to.load_robot("gen3", base="fixed")
    with pytest.raises(ValueError, match=r"lower has shape \(14,\); expected \(nx = 37,\)"):
        to.velocity_limits(arm, to.FreeBody(to.load_robot("hyq")).manifold)


def test_joint_limits_of_an_unlimited_robot_are_refused():
    model = random_tree(3, 5)
    free = model.replace(q_lower=np.full(model.nq, -np.inf), q_upper=np.full(model.nq, np.inf))
    with pytest.raises(ValueError, match="no finite position limit"):
        joint_limit_cost(free, state_manifold(free))


def test_one_sided_limits():
    model = _with_limits(random_tree(3, 5, ("revolute", "prismatic")))
    one = model.replace(q_upper=np.full(model.nq, np.inf))
    term = joint_limit_cost(one, state_manifold(one))
    index = np.flatnonzero(np.isfinite(one.q_lower))
    q = np.tile(one.neutral(), (2, 1))
    q[0, index], q[1, index] = -1.2, 100.0
    residual = _residual(term, np.hstack([q, np.zeros((2, one.nv))]))
    np.testing.assert_allclose(residual[0], -0.2, atol=1e-12)
    np.testing.assert_array_equal(residual[1], 0.0)


def test_state_cost_lives_in_the_tangent_space():
    manifold = Manifold([SO3, vector_space(2)])
    reference = np.r_[Rotation.from_rotvec([0.3, 0.1, -0.2]).as_quat(), 1.0, 2.0]
    x = np.r_[Rotation.from_rotvec([-0.4, 0.8, 0.1]).as_quat(), 0.5, -1.0][None]
    relative = Rotation.from_quat(reference[:4]).inv() * Rotation.from_quat(x[0, :4])
    expected = np.r_[relative.as_rotvec(), -0.5, -3.0]
    np.testing.assert_allclose(_residual(state_cost(manifold, reference), x)[0], expected, atol=1e-14)


def test_user_residual_reads_state_control_time_and_parameters():
    def reach(x, u, t, p):
        return [sm.cos(x[0]) - p["goal"][0], u[0] * p["goal"][1] + 0.0 * t]

    term = residual_cost("reach", reach, Manifold.vector(2), 2, [1.0, 3.0], nu=1, parameters={"goal": [0.5, 2.0]})
    x, u = np.array([[0.3, 0.0]]), np.array([[1.5]])
    np.testing.assert_allclose(_residual(term, x, u), [[np.cos(0.3) - 0.5, 3.0]])
    changed = term.updated(weight=2.0, goal=[0.0, 1.0])
    np.testing.assert_allclose(_residual(changed, x, u), [[np.cos(0.3), 1.5]])
    np.testing.assert_array_equal(changed.weight, [2.0, 2.0])
    np.testing.assert_array_equal(term.weight, [1.0, 3.0])


def test_mistakes_are_rejected_at_construction(robot):
    model, manifold, _, name, _ = robot
    flat = Manifold.vector(2)
    with pytest.raises(ValueError, match="at least zero"):
        control_cost(2, weight=[1.0, -1.0])
    with pytest.raises(ValueError, match="at least zero"):
        control_cost(2, weight=np.nan)
    with pytest.raises(ValueError, match=r"weight has shape \(3,\); expected \(nr = 2,\)"):
        control_cost(2, weight=np.ones(3))
    with pytest.raises(ValueError, match="reference has shape"):
        state_cost(flat, [1.0])
    with pytest.raises(ValueError, match="normalize"):
        state_cost(Manifold([SO3]), [0.0, 0.0, 0.0, 2.0])
    with pytest.raises(ValueError, match="no parameter 'gaol'; it has: reference"):
        control_cost(2).updated(gaol=1.0)
    with pytest.raises(ValueError, match="goal of"):
        frame_position_cost(model, manifold, name, [0.0, 0.0])
    for wrong in (2.0 * np.eye(3), -np.eye(3), np.full((3, 3), np.nan), [0.0, 0.0, 0.0, 2.0], [90.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="the rotation of the goal of .* is "):
            frame_placement_cost(model, manifold, name, np.zeros(3), wrong)
        with pytest.raises(ValueError, match="the rotation of the goal of .* is "):
            frame_axis_cost(model, manifold, name, np.zeros(3), wrong, [0.0, 0.0, 1.0])
    with pytest.raises(ValueError, match=f"term 'position of {name}': parameter 'goal' is nan at entry 1: give finite"):
        frame_position_cost(model, manifold, name, [0.0, np.nan, 0.0])
    with pytest.raises(ValueError, match="parameter 'reference' is inf at entry 0 of knot 1: give finite numbers"):
        control_cost(2, reference=[[0.0, 0.0], [np.inf, 0.0]])
    with pytest.raises(ValueError, match=r"constraint 'goal': lower is NaN for f\[0\]; use infinity for no bound"):
        residual_constraint("goal", lambda x, u, t, p: [x[0]], flat, 1, np.nan, 1.0)
    with pytest.raises(ValueError, match="constraint 'goal': parameter 'r' is nan at entry 0"):
        residual_constraint("goal", lambda x, u, t, p: [x[0] - p["r"][0]], flat, 1, parameters={"r": np.nan})
    with pytest.raises(ValueError, match="known: LOCAL"):
        frame_velocity_cost(model, manifold, name, expressed_in="local")
    with pytest.raises(UnknownName, match="no frame is named 'no such frame'"):
        frame_position_cost(model, manifold, "no such frame", np.zeros(3))


def test_a_goal_orientation_is_a_matrix_a_quaternion_or_angles(robot):
    model, manifold, _, name, _ = robot
    angles = np.array([0.3, -0.4, 0.5])
    quaternion = Rotation.from_euler("xyz", angles).as_quat()
    for term in (frame_placement_cost, partial(frame_axis_cost, axis=[0.0, 0.0, 1.0])):
        by_matrix, *others = (
            term(model, manifold, name, np.zeros(3), form) for form in (rpy_matrix(angles), quaternion, angles)
        )
        for key, value in by_matrix.parameters.items():
            for other in others:
                np.testing.assert_allclose(other.parameters[key], value, atol=1e-14)


def test_a_residual_that_reads_controls_without_nu_is_reported():
    power = residual_cost("power", lambda x, u, t, p: [u[0] * x[1]], Manifold.vector(2), 1)
    with pytest.raises(IndexError) as error:
        quadratize(power, np.ones((1, 2)), np.ones((1, 1)), 0.0)
    assert any("nu=..." in note for note in error.value.__notes__)
    term = residual_cost("power", lambda x, u, t, p: [u[0] * x[1]], Manifold.vector(2), 1, nu=1)
    assert quadratize(term, np.ones((1, 2)), 3.0 * np.ones((1, 1)), 0.0).value == pytest.approx([4.5])


def test_a_control_cost_takes_no_number_whose_meaning_is_unclear():
    with pytest.raises(
        ValueError, match=r"term 'control': 0.001 is the reference, and there is no weight; pass weight=0.001"
    ):
        control_cost(1, 1e-3)
    assert quadratize(control_cost(1, 1.0, 3.0), np.ones((1, 0)), np.ones((1, 1)), 0.0).value == pytest.approx([0.0])
    assert quadratize(control_cost(1, weight=3.0), np.ones((1, 0)), np.ones((1, 1)), 0.0).value == pytest.approx([1.5])


def test_one_bound_leaves_the_other_side_free():
    flat, row = Manifold.vector(2), lambda x, u, t, p: [x[0]]
    assert residual_constraint("low", row, flat, 1, lower=0.8).bounds(1) == (0.8, np.inf)
    assert residual_constraint("high", row, flat, 1, upper=-0.8).bounds(1) == (-np.inf, -0.8)
    assert residual_constraint("zero", row, flat, 1).bounds(1) == (0.0, 0.0)
    assert residual_constraint("below zero", row, flat, 1, lower=-np.inf).bounds(1) == (-np.inf, 0.0)


def test_components_without_weight_are_not_bounded():
    flat = Manifold.vector(2)
    goal = bounded(state_cost(flat, [1.0, 2.0], [3.0, 0.0]))
    np.testing.assert_array_equal(goal.bounds(1), [[[0.0, -np.inf]], [[0.0, np.inf]]])
    np.testing.assert_array_equal(bounded(state_cost(flat, [1.0, 2.0], 0.0)).upper, [0.0, 0.0])
    np.testing.assert_array_equal(bounded(state_cost(flat, [1.0, 2.0], [3.0, 0.0]), -5.0, 5.0).upper, [5.0, 5.0])


def test_terms_of_a_robot_refuse_the_state_of_another_one():
    other, model = (to.load_robot(name) for name in ("iiwa7", "irb4600"))
    state, frame = state_manifold(other), model.frames[-1].name
    with pytest.raises(ValueError, match="the state has q\\[iiwa_joint_1\\]"):
        to.frame_position_cost(model, state, frame, [0.4, 0.1, 0.4])
    with pytest.raises(ValueError, match="constraint 'obstacle': the state has"):
        to.sphere_obstacle(model, state, to.link_points(model, frame, 0.3), [0.4, 0.1, 0.4], 0.1)
    to.frame_position_cost(model, Manifold.vector(12), frame, [0.4, 0.1, 0.4])  # names of no joints


def test_terms_of_frames_refuse_joints_that_follow_others():
    """They would read velocities of the independent joints as angles of the others."""
    body = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
    limit = '<limit lower="0" upper="1" effort="9" velocity="1"/>'
    joint = '<joint name="{0}" type="prismatic"><parent link="base"/><child link="{0}"/>' + limit + "{1}</joint>"
    links = '<link name="base"/>' + "".join(f'<link name="{name}">{body}</link>' for name in ("left", "right"))
    joints = joint.format("left", "") + joint.format("right", '<mimic joint="left"/>')
    model = to.load_urdf(f'<robot name="gripper">{links}{joints}</robot>', mimic="follow")
    states = to.CoupledBody(model).manifold
    for limits, expected in (
        (to.joint_limits, (model.q_lower[0], model.q_upper[0])),
        (to.velocity_limits, (-1.0, 1.0)),
    ):
        assert [bound.ravel().tolist() for bound in limits(model, states).bounds(1)] == [[b] for b in expected]
    with pytest.raises(ValueError, match="mimic joints that follow others"):
        to.frame_position_cost(model, to.CoupledBody(model).manifold, model.frames[-1].name, [0.1, 0.0, 0.5])
