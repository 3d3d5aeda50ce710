"""Robots with flat feet: soles from a file, wrench cones as cost and constraint, reports, and a walking task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from contact_cases import FEET, arguments, hyq

from dynamics_backends.names import UnknownName
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.constraint_kinds import FrameContact, PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from problems.legged.contact.contact_limits import beside_sole
from problems.legged.contact.wrench_cone import wrench_constraint, wrench_cost
from problems.legged.robot.soles import Sole
from problems.legged.robot.stance import UPRIGHT, Stance
from problems.robots import load_robot
from problems.robots.loading import load_floating_base
from trajopt.config.registry import PROBLEMS
from trajopt.config.task import position_of
from trajopt.stage.evaluation import StageEvaluator

NUMPY = partial(make_backend, engine="numpy")
SOLE = Sole("lf_foot", 0.06, 0.16, 0.04, 0.05)
MU = 0.6
LINKS = ("yaw", "roll", "thigh", "shin", "ankle", "foot")
AXES = ("0 0 1", "1 0 0", "0 1 0", "0 1 0", "0 1 0", "1 0 0")
DOWN = (0.0, 0.0, 0.0, 0.4, 0.4, 0.0)


def biped_file(folder, size: float = 1.0, shapes: bool = True, arm: bool = True):
    """Return a file with a trunk, two legs of six joints with a box as foot, and an arm."""

    def link(name: str, mass: float, shape: str = "") -> str:
        m, i = mass * size**3, 0.01 * mass * size**5
        inertia = f'<inertia ixx="{i}" iyy="{i}" izz="{i}" ixy="0" ixz="0" iyz="0"/>'
        return f'<link name="{name}"><inertial><mass value="{m}"/>{inertia}</inertial>{shape}</link>'

    def joint(name: str, parent: str, child: str, axis: str, at: tuple[float, float, float]) -> str:
        xyz = " ".join(str(size * a) for a in at)
        ends = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="{xyz}"/><axis xyz="{axis}"/>'
        return f'<joint name="{name}" type="revolute">{ends}<limit lower="-2" upper="2" effort="300" velocity="20"/></joint>'

    edges = " ".join(str(size * e) for e in (0.22, 0.1, 0.04))
    box = f'<origin xyz="{0.05 * size} 0 {-0.05 * size}"/><geometry><box size="{edges}"/></geometry>'
    parts = [link("trunk", 30.0)]
    for side, y in (("left", 0.1), ("right", -0.1)):
        parent = "trunk"
        for name, axis, down in zip(LINKS, AXES, DOWN, strict=True):
            shape = f"<collision>{box}</collision>" if shapes and name == "foot" else ""
            parts.append(link(f"{side}_{name}", 2.0, shape))
            at = (0.0, y if parent == "trunk" else 0.0, -down)
            parts.append(joint(f"{side}_{name}_joint", parent, f"{side}_{name}", axis, at))
            parent = f"{side}_{name}"
    if arm:
        parts += [link("arm", 1.0), joint("shoulder", "trunk", "arm", "0 1 0", (0.0, 0.2, 0.4))]
    file = folder / f"biped_{size:g}_{shapes}.urdf"
    file.write_text(f'<robot name="biped">{"".join(parts)}</robot>')
    return str(file)


def test_soles_are_the_lowest_faces_of_the_feet(tmp_path):
    stance = Stance.from_model(load_floating_base(biped_file(tmp_path)))
    left, right = stance.soles
    assert stance.feet == (left.frame, right.frame) == ("left_foot sole", "right_foot sole")
    for sole in stance.soles:
        np.testing.assert_allclose(sole[1:5], (0.06, 0.16, 0.05, 0.05), atol=1e-12)
        assert sole.measured
    q = stance.configuration(stance.posture())
    at = np.stack([position_of(stance.model, foot, q) for foot in stance.feet])
    np.testing.assert_allclose(at[:, 2], 0.0, atol=1e-6)
    np.testing.assert_allclose(at[0] - at[1], [0.0, 0.2, 0.0], atol=1e-6)
    np.testing.assert_allclose(stance.places(stance.posture())[:, 2], -UPRIGHT, atol=1e-6)


def test_a_foot_without_shapes_is_as_long_as_that_of_a_human(tmp_path):
    soles = Stance.from_model(load_floating_base(biped_file(tmp_path, shapes=False))).soles
    assert not soles[0].measured and "proportions of a human foot" in soles[0].sentence
    assert 0.2 < soles[0].back + soles[0].front < 0.3


def test_joints_of_no_leg_are_made_rigid(tmp_path):
    stance = Stance.from_model(load_floating_base(biped_file(tmp_path)))
    alone = stance.with_legs_only()
    assert alone.model.nv == stance.model.nv - 1 and "shoulder" not in alone.model.joint_names
    assert alone.feet == stance.feet and alone.model.total_mass == pytest.approx(stance.model.total_mass)
    np.testing.assert_allclose(
        alone.posture(), np.delete(stance.posture(), stance.model.q_names.index("shoulder") - 7), atol=1e-6
    )


def held():
    return Holonomic(hyq(), [FrameContact("lf_foot"), PointContact("rh_foot")])


def test_rows_are_those_of_a_sole():
    """The margins are positive if the force is within the pyramid and its center of pressure within the sole."""
    system = held()
    c = wrench_constraint(system, [SOLE], MU, feet=4)
    x, u, _ = arguments(c.residual.inner, FEET)
    g = NUMPY(c.residual).f(x, u, 0.0, c.parameters)
    f, m = np.split(system.outputs(x.T, u.T, 0.0, {})["lf_foot"].T, 2, axis=1)
    unit = hyq().total_mass * np.linalg.norm(hyq().gravity) / 4
    np.testing.assert_allclose(g[:, 0] * unit, f[:, 2], rtol=1e-9, atol=1e-9)
    reach = ((SOLE.front * f[:, 2] + m[:, 1]) / 0.11, (SOLE.back * f[:, 2] - m[:, 1]) / 0.11)
    sides = ((SOLE.left * f[:, 2] - m[:, 0]) / 0.045, (SOLE.right * f[:, 2] + m[:, 0]) / 0.045)
    np.testing.assert_allclose(g[:, 5:9] * unit, np.stack([*reach, *sides], axis=1), rtol=1e-9, atol=1e-9)
    turn = 0.5 * (0.11 + 0.045)
    np.testing.assert_allclose(
        g[:, 9:] * unit, np.stack([MU * f[:, 2] - m[:, 2] / turn, MU * f[:, 2] + m[:, 2] / turn], 1)
    )
    inside = (g[:, [0, *range(5, 9)]] >= 0).all(axis=1)
    np.testing.assert_array_equal(inside, (f[:, 2] > 0) & (beside_sole(SOLE, f[:, 2], m) <= 0))


@pytest.mark.parametrize("kind", ["cost", "constraint"])
def test_derivatives_are_those_of_complex_steps(kind):
    system = held()
    c = wrench_cost(system, [SOLE], MU, 2.0) if kind == "cost" else wrench_constraint(system, [SOLE], MU)
    x, u, _ = arguments(c.residual.inner, FEET)
    found = NUMPY(c.residual).jacobians(x, u, 0.0, c.parameters)
    expected = NUMPY(c.residual, "complex_step").jacobians(x, u, 0.0, c.parameters)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-11 * max(1.0, np.abs(b).max()))


def test_center_of_pressure_outside_the_sole_is_measured():
    normal, moment = np.array([100.0, 100.0, 0.0]), np.array([[0.0, -20.0, 0.0], [3.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
    found = beside_sole(SOLE, normal, moment)
    np.testing.assert_allclose(found[0], 0.2 - SOLE.front - 1e-4)
    assert found[1] < 0 and found[2] < 0


def test_mistakes():
    with pytest.raises(UnknownName, match="no frame contact"):
        wrench_cost(held(), [replace_frame("rh_foot")], MU, 1.0)
    with pytest.raises(ValueError, match="expected a positive number"):
        wrench_constraint(held(), [SOLE], 0.0)
    gait = PROBLEMS["scheduled_gait"]
    with pytest.raises(ValueError, match="needs four feet"):
        gait.build(gait.Settings(robot="hyq", feet=("lf_foot", "rh_foot"), gait="trot"), NUMPY)


def replace_frame(frame: str) -> Sole:
    return SOLE._replace(frame=frame)


def test_a_walk_on_two_legs_is_the_same_for_a_smaller_copy(tmp_path):
    """At half the size, the cost of the guess is the same number: the problem is equal in other units."""
    gait = PROBLEMS["scheduled_gait"]
    large, small = biped_file(tmp_path), biped_file(tmp_path, size=0.5)
    own = gait.Settings(
        robot=large, gait="walk", other_joints="rigid", step_length=0.1, swing=0.04, support=0.04, dt=0.02
    )
    own = replace(
        own, foot_weights=replace(own.foot_weights, friction=10.0), running=replace(own.running, attitude=5.0)
    )
    tasks = [gait.build(s, NUMPY) for s in (own, replace(own, robot=small).carried_over(own)[0])]
    assert tasks[0].feet == ("left_foot sole", "right_foot sole")
    phases = [len(p.dt) for p in tasks[0].ocp.phases]
    assert phases == [2, 2, 1, 2, 2, 1, 2]
    costs = [StageEvaluator(t.ocp).expand(t.guess.xs, t.guess.us).cost for t in tasks]
    assert costs[0] > 0 and costs[1] == pytest.approx(costs[0], rel=1e-6)


def test_bundled_robots_stand_as_before():
    assert not Stance.from_model(load_robot("hyq")).soles
