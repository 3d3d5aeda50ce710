"""Robots from MJCF against MuJoCo: equations of motion, derivatives, constraints, shapes, and notes about unsupported elements."""

from __future__ import annotations

import builtins
import warnings

import numpy as np
import pytest
from mjcf_robots import EQUALITIES, TIED, WALKER, tied

import trajopt as to
from dynamics_backends.names import UnknownName
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.rigid_body.geometry.link_shapes import mjcf_scene, mjcf_shapes
from dynamics_backends.rigid_body.geometry.shapes import Cylinder, HalfSpace
from dynamics_backends.rigid_body.mjcf.contact_points import balls
from dynamics_backends.rigid_body.mjcf.mujoco_states import MujocoStates
from dynamics_backends.rigid_body.mjcf.source import Names, attribute_errors, compiled, is_mjcf
from dynamics_backends.systems.constraints.mjcf_constraints import pose_numbers
from problems.robots import load_robot, robot_path
from trajopt.replanning.mujoco_plant import mujoco_urdf

mujoco = pytest.importorskip("mujoco")

FREE_OF_EQUALITIES = pytest.mark.filterwarnings("ignore:(?s).*not part of the free dynamics:trajopt.MJCFWarning")
FREE = ("LIMIT", "FRICTIONLOSS", "EQUALITY", "CONTACT", "ACTUATION")


def simulated(text):
    """MuJoCo's model without contacts, limits and actuators."""
    m = mujoco.MjModel.from_xml_string(text)
    for what in FREE:
        m.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{what}"))
    return m


def pair(text, **options):
    """Model, MuJoCo's, and the conversion of their states."""
    m = simulated(text)
    model = to.load_mjcf(text, **options)
    return model, m, MujocoStates(model, m, Names(m).joints)


def random_states(model, count=4):
    rng = np.random.default_rng(1)
    q = model.random_configuration(rng, count)
    return np.concatenate([q, rng.standard_normal((count, model.nv))], axis=1), rng.standard_normal((count, model.nv))


def hyq_as_mjcf():
    """MuJoCo's output for the bundled HyQ, with six digits."""
    spec = mujoco.MjSpec.from_string(mujoco_urdf(robot_path("hyq").read_text(encoding="utf-8"), True))
    spec.compile()
    return spec.to_xml()


ROBOTS = {"walker": WALKER, "tied": tied("connect"), "hyq": None}


def text_of(name):
    return ROBOTS[name] or hyq_as_mjcf()


@FREE_OF_EQUALITIES
@pytest.mark.parametrize("name", ROBOTS)
def test_the_equations_of_motion_are_those_of_mujoco(name):
    model, m, states = pair(text_of(name))
    xs, taus = random_states(model)
    data = mujoco.MjData(m)
    body = to.FreeBody(model, actuated=model.dof_names)
    acceleration = to.make_backend(body, "analytic")
    for x, tau in zip(xs, taus, strict=True):
        data.qpos[:], data.qvel[:] = states.to_mujoco(x)
        data.qfrc_applied[:] = states.force_to_mujoco(x, tau)
        mujoco.mj_forward(m, data)
        q, v = x[: model.nq], x[model.nq :]
        a = acceleration.f(x[None], tau[None])[0, model.nv :]
        expected = states.acceleration_from_mujoco(x, np.array(data.qacc))
        np.testing.assert_allclose(a, expected, rtol=0.0, atol=1e-10 * max(1.0, np.abs(expected).max()))
        columns = []
        for unit in np.eye(model.nv):  # M of the one in the axes of the other
            column = np.zeros(model.nv)
            mujoco.mj_mulM(m, data, column, states.velocity_to_mujoco(x, unit))
            columns.append(states.force_from_mujoco(x, column))
        M = to.mass_matrix(model, q)
        np.testing.assert_allclose(M, np.array(columns), rtol=0.0, atol=1e-10 * np.abs(M).max())
        mujoco.mj_mulM(m, data, column, states.acceleration_to_mujoco(x, np.zeros(model.nv)))
        bias = states.force_from_mujoco(x, np.array(data.qfrc_bias) + column)
        np.testing.assert_allclose(to.nonlinear_effects(model, q, v), bias, rtol=0.0, atol=1e-10 * np.abs(bias).max())


def test_frames_are_where_mujoco_puts_bodies_and_sites():
    model, m, states = pair(WALKER)
    data = mujoco.MjData(m)
    for x in random_states(model)[0]:
        data.qpos[:] = states.to_mujoco(x)[0]
        mujoco.mj_kinematics(m, data)
        for name in ("trunk", "thigh", "shank", "sole", "arm", "rod"):
            R, p = frame_placement(model, x[: model.nq], name)
            np.testing.assert_allclose(p, data.body(name).xpos, atol=1e-13)
            np.testing.assert_allclose(R.ravel(), data.body(name).xmat, atol=1e-13)
        R, p = frame_placement(model, x[: model.nq], "imu")
        np.testing.assert_allclose(p, data.site("imu").xpos, atol=1e-13)
        np.testing.assert_allclose(R.ravel(), data.site("imu").xmat, atol=1e-13)


def test_the_file_of_a_urdf_is_the_same_robot():
    ours, theirs = load_robot("hyq"), to.load_mjcf(hyq_as_mjcf())
    assert set(theirs.joint_names) == set(ours.joint_names) and theirs.floating_base
    rng = np.random.default_rng(2)
    q, v, tau = ours.random_configuration(rng), rng.standard_normal(ours.nv), rng.standard_normal(ours.nv)
    order = [theirs.dof_names.index(n) for n in ours.dof_names]
    at = [theirs.q_names.index(n) for n in ours.q_names]
    q_theirs, v_theirs, tau_theirs = np.empty(ours.nq), np.empty(ours.nv), np.empty(ours.nv)
    q_theirs[at], v_theirs[order], tau_theirs[order] = q, v, tau
    a = to.forward_dynamics(theirs, q_theirs, v_theirs, tau_theirs)
    expected = to.forward_dynamics(ours, q, v, tau)
    np.testing.assert_allclose(a[order], expected, rtol=0.0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.numpy
def test_armature_damping_and_springs_are_in_all_derivatives():
    model = to.load_mjcf(WALKER)
    body = to.FreeBody(model, friction_velocity=0.1)
    xs, _ = random_states(model, 2)
    rng = np.random.default_rng(3)
    us, lam = rng.standard_normal((2, body.nu)), rng.standard_normal((2, body.n_out))
    analytic, other = (to.make_backend(body, m, engine="numpy") for m in ("analytic", "complex_step"))
    first, expected = analytic.jacobians(xs, us), other.jacobians(xs, us)
    for ours, theirs in zip(first, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-10 * np.abs(theirs).max())
    second, others = (
        backend.hessian_contraction(xs, us, 0.0, None, lam)
        for backend in (analytic, to.make_backend(body, "forward_ad", engine="numpy"))
    )
    for ours, theirs in zip((*second[0], *second[1]), (*others[0], *others[1]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-10 * max(1.0, np.abs(theirs).max()))


FLOATING = """<mujoco><option gravity="0.3 -0.2 -9.81"/><worldbody>
<body name="base" pos="0 0 1"><joint name="free" type="free" armature="{a}" damping="0.2"/>
  <inertial pos="0.1 -0.05 0.2" mass="{m}" fullinertia="0.3 0.4 0.5 0.01 0.02 -0.03"/>
  <body name="thigh" pos="0.2 0.1 -0.1" euler="10 20 30"><joint name="hip" axis="0 1 0" armature="0.05" damping="0.3"/>
    <inertial pos="0.1 0 0.2" mass="1" diaginertia="0.1 0.2 0.15"/>
    <body name="shank" pos="0.1 0.3 0"><joint name="ball" type="ball" armature="0.07"/>
      <inertial pos="0 0.1 0" mass="0.5" diaginertia="0.02 0.03 0.04"/></body></body></body>
<body name="second" pos="1 0 0"><joint name="second" type="free" armature="{b}"/>
  <inertial pos="0.1 0 0" mass="1" diaginertia="0.1 0.2 0.15"/></body></worldbody></mujoco>"""
"""Two trees whose free joints have rotors."""


@pytest.mark.parametrize(("a", "b", "m"), [(0.5, 0.0, 3.0), (0.02, 4.0, 0.3), (8.0, 0.1, 1.0)])
def test_rotors_of_free_joints_act_as_in_mujoco(a, b, m):
    model, simulated_model, states = pair(FLOATING.format(a=a, b=b, m=m), strict=True)
    data, rng = mujoco.MjData(simulated_model), np.random.default_rng(7)
    assert model.armature[:6].tolist() == [a] * 6
    for _ in range(5):
        q, v, tau = model.random_configuration(rng), 2.0 * rng.standard_normal(model.nv), rng.standard_normal(model.nv)
        x = np.concatenate([q, v])
        data.qpos[:], data.qvel[:] = states.to_mujoco(x)
        data.qfrc_applied[:] = states.velocity_to_mujoco(x, tau)
        mujoco.mj_forward(simulated_model, data)
        found = to.forward_dynamics(model, q, v, tau - model.damping * v)
        np.testing.assert_allclose(to.inverse_dynamics(model, q, v, found), tau - model.damping * v, atol=1e-10)
        for start in (i for _, i in states.free):  # MuJoCo's linear acceleration is that of the origin in the world
            found[start : start + 3] += np.cross(v[start + 3 : start + 6], v[start : start + 3])
        scale = np.abs(data.qacc).max()
        np.testing.assert_allclose(states.velocity_to_mujoco(x, found), data.qacc, rtol=0.0, atol=1e-10 * scale)


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("kind", ["free", "soft contact", "constrained"])
def test_rotors_of_free_joints_are_in_all_derivatives(kind, engine):
    model = to.load_mjcf(FLOATING.format(a=0.5, b=0.3, m=3.0))
    system = {
        "free": lambda: to.FreeBody(model),
        "soft contact": lambda: to.SoftContact(model, ["shank"]),
        "constrained": lambda: to.Holonomic(model, [to.PointContact("shank")]),
    }[kind]()
    xs, _ = random_states(model, 3)
    rng = np.random.default_rng(3)
    us, lam = rng.standard_normal((3, system.nu)), rng.standard_normal((3, system.n_out))
    analytic = to.make_backend(system, "analytic", engine=engine)
    other = to.make_backend(system, "complex_step", engine="numpy")
    for ours, theirs in zip(analytic.jacobians(xs, us), other.jacobians(xs, us), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-10 * np.abs(theirs).max())
    twice = to.make_backend(system, "forward_ad", engine="numpy")
    second, others = (b.hessian_contraction(xs, us, 0.0, None, lam) for b in (analytic, twice))
    for ours, theirs in zip((*second[0], *second[1]), (*others[0], *others[1]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-9 * max(1.0, np.abs(theirs).max()))


def test_limits_resistances_and_names():
    model = to.load_mjcf(WALKER)
    assert model.body_names[:4] == ("trunk", "thigh:hip_x", "thigh", "shank")
    assert model.joint_names[-2:] == ("body9_joint0", "body9_joint1")
    at = {name: d for d, name in enumerate(model.dof_names)}
    assert (model.q_lower[7], model.q_upper[7]) == (-1.0, 1.2)
    assert model.effort_limit[at["hip_x"]] == 50.0  # of -100 .. 50 that which holds both ways
    assert model.effort_limit[at["knee"]] == 40.0 and np.isinf(model.effort_limit[at["twist"]])
    assert model.friction[at["knee"]] == 0.5 and model.stiffness[at["hip_y"]] == 12.0
    assert model.spring_reference[at["hip_y"]] == 0.2 and model.damping[at["shoulder_rx"]] == 0.1
    assert model.armature[at["knee"]] == 0.02 and model.damping[at["rolls_x"]] == 0.2
    np.testing.assert_array_equal(model.gravity, [0.3, -0.2, -9.7])


@pytest.mark.parametrize(("limits", "larger"), [("0 30", 30.0), ("-30 0", 30.0), ("5 30", 30.0)])
def test_a_force_of_one_direction_is_reported(limits, larger):
    text = WALKER.replace('forcerange="-20 20"', f'forcerange="{limits}"')
    with pytest.warns(
        to.MJCFWarning, match="one direction only in the file; here the larger limit applies in both: knee"
    ):
        model = to.load_mjcf(text)
    assert model.effort_limit[model.dof_names.index("knee")] == 2 * larger  # behind a gear of 2
    assert not any("smaller one holds" in note and "knee" in note for note in model.notes)


def test_ignored_elements_are_reported():
    notes = "\n".join(to.load_mjcf(WALKER).notes)
    assert "motor actuators behind a gear of 50: hip_x" in notes
    assert "position actuators of kp 80 and kv 3 behind a gear of 2: knee" in notes
    assert "drive no single joint are ignored: actuator2 (joint 'shoulder')" in notes
    assert "effort limits differ by direction; the smaller one applies here: hip_x" in notes
    assert "dry friction counts only with friction_velocity: knee" in notes
    assert "yet it has a control here: hip_y, reach, twist, body9_joint0, body9_joint1" in notes
    assert "not used: 1 sensors, 1 lights" in notes
    assert "note: not used" in to.load_mjcf(WALKER).describe()


@pytest.mark.parametrize(
    ("change", "with_", "message"),
    [
        ("<option", '<option density="1000" viscosity="0.1"', "forces of the medium"),
        ('<body name="arm"', '<body name="arm" gravcomp="1"', "gravity compensation is ignored"),
        ('type="ball" pos', 'type="ball" stiffness="3" pos', "springs of ball and free joints are ignored: shoulder"),
        ('type="ball" pos', 'type="ball" range="0 1" pos', "limits of ball joints are ignored: shoulder"),
        (
            "<sensor>",
            '<tendon><fixed name="rope" stiffness="5"><joint joint="knee" coef="1"/></fixed></tendon><sensor>',
            "limits and inertia of tendons are ignored: rope",
        ),
    ],
)
def test_elements_that_change_the_motion_give_a_warning(change, with_, message):
    text = WALKER.replace(change, with_, 1)
    assert text != WALKER
    with pytest.warns(to.MJCFWarning, match="moves otherwise here than in MuJoCo") as caught:
        model = to.load_mjcf(text)
    assert message in str(caught[0].message) and any(message in note for note in model.notes)
    with pytest.raises(to.MJCFError, match="strict=True"):
        to.load_mjcf(text, strict=True)


def test_the_comparison_finds_unlisted_differences(monkeypatch):
    """An unreported medium, and an inertia that differs from the file's."""
    from dynamics_backends.rigid_body.mjcf import loader, notes

    monkeypatch.setattr(loader, "left_out", lambda *_: ([], []))
    with pytest.warns(to.MJCFWarning, match="passive forces: the difference from MuJoCo's is up to"):
        to.load_mjcf(WALKER.replace("<option", '<option density="1000"', 1))
    model, m, _ = pair(WALKER)
    heavier = model.replace(mass=1.01 * model.mass)
    found = notes.differences(heavier, m, Names(m))
    assert [sentence.split(":")[0] for sentence in found] == ["mass matrix", "bias"]


# -- equalities ---------------------------------------------------------------------------------------------------------


def constrained(text):
    """The model and a Holonomic system of the file's equalities, MuJoCo's model with these alone, its state and a consistent x."""
    model = to.load_mjcf(text)
    constraints = to.mjcf_constraints(text)
    m = mujoco.MjModel.from_xml_string(text)
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT) | int(mujoco.mjtDisableBit.mjDSBL_LIMIT)
    m.opt.jacobian = int(mujoco.mjtJacobian.mjJAC_DENSE)
    return model, constraints, m, MujocoStates(model, m, Names(m).joints)


@FREE_OF_EQUALITIES
@pytest.mark.parametrize("name", EQUALITIES)
def test_equalities_are_constraints(name):
    """Accelerations from rest at a configuration that fulfills them: M a + J' f = tau - bias, J a = 0 with MuJoCo's M and J."""
    model, constraints, m, states = constrained(tied(name))
    bare = [type(c)(**{**vars(c), "gains": (0.0, 0.0)}) for c in constraints]
    system = to.Holonomic(model, bare, actuated=model.dof_names, damping_ratio=0.0)
    closed = to.Holonomic(model, constraints, actuated=model.dof_names)
    rng = np.random.default_rng(4)
    start = states.from_mujoco(m.qpos0, np.zeros(m.nv))
    moved = closed.manifold.integrate(start[:, None], np.r_[0.2 * rng.standard_normal(m.nv), np.zeros(m.nv)][:, None])
    x = to.closed_state(closed.constraints, np.asarray(moved)[:, 0])
    x[model.nq :] = 0.0
    tau = rng.standard_normal(model.nv)
    data = mujoco.MjData(m)
    data.qpos[:], data.qvel[:] = states.to_mujoco(x)
    mujoco.mj_forward(m, data)
    assert np.abs(data.efc_pos).max() < 1e-10
    M, column = np.zeros((m.nv, m.nv)), np.zeros(m.nv)
    for d, unit in enumerate(np.eye(m.nv)):
        mujoco.mj_mulM(m, data, column, unit)
        M[d] = column
    J = data.efc_J.reshape(-1, m.nv)
    force = states.force_to_mujoco(x, tau) + data.qfrc_passive - data.qfrc_bias
    kkt = np.block([[M, J.T], [J, np.zeros((len(J), len(J)))]])
    a = np.linalg.solve(kkt, np.concatenate([force, np.zeros(len(J))]))[: m.nv]
    ours = to.make_backend(system, "analytic", engine="numpy").f(x[None], tau[None])[0, model.nv :]
    expected = states.acceleration_from_mujoco(x, a)
    np.testing.assert_allclose(ours, expected, rtol=0.0, atol=1e-9 * np.abs(expected).max())


@FREE_OF_EQUALITIES
def test_gains_are_those_of_the_reference_acceleration():
    """MuJoCo's aref = -b J v - k r of a constraint, from its own solref and solimp, and the direct form of both."""
    for solref, solimp in (("0.03 0.8", "0.9 0.95 0.001"), ("-300 -40", "0.9 0.9 0.001")):
        text = TIED.format(
            equality=f'<equality><joint joint1="b1" polycoef="0.1 0 0 0 0" solref="{solref}" solimp="{solimp}"/></equality>'
        )
        _, (relation,), m, _ = constrained(text)
        data = mujoco.MjData(m)
        data.qvel[:] = np.random.default_rng(5).standard_normal(m.nv)
        mujoco.mj_forward(m, data)
        kp, kd = relation.gains
        imp = 0.95 if solref[0] != "-" else 0.9  # far from the constraint it is dmax
        assert data.efc_KBIP[0][2] == pytest.approx(imp)
        expected = -kd * data.efc_vel[0] - kp * imp * data.efc_pos[0]
        assert data.efc_aref[0] == pytest.approx(expected, rel=1e-9)


def test_joints_of_a_tendon_follow_the_joint_with_the_actuator():
    """The length of a fixed tendon stays that at qpos0, plus the constant of the equality."""
    tendon = EQUALITIES["tendon"] + "</equality><actuator>{}</actuator><equality>"
    for driven, joint, multiplier, offset in (
        ('<motor joint="b1"/>', "d1", -4.0, 0.4),
        ('<motor joint="d1"/>', "b1", -0.25, 0.1),
        ("", "d1", -4.0, 0.4),
    ):
        text = TIED.format(equality=f"<equality>{tendon.format(driven)}</equality>")
        model = to.load_mjcf(text, mimic="follow")
        undriven = next((note for note in model.notes if note.startswith("no actuator drives")), "")
        assert joint not in undriven.split(": ")[-1].split(", ") and bool(undriven) == bool(driven)
        (relation,) = to.mjcf_constraints(text)
        assert (relation.joint, relation.multiplier) == (joint, multiplier)
        assert relation.offset == pytest.approx(offset)
        assert model.coupling is not None
        assert model.coupling.multiplier[model.dof_names.index(joint)] == multiplier


def test_equalities_without_a_constraint_are_reported():
    quadratic = (
        '<equality><joint joint1="b1" joint2="d1" polycoef="0 1 2 0 0"/><weld body1="e" active="false"/></equality>'
    )
    with pytest.warns(to.MJCFWarning) as caught:
        model = to.load_mjcf(TIED.format(equality=quadratic))
    said = str(caught[0].message)
    assert "is a polynomial of higher degree between two joints: ignored" in said
    assert "is not active" not in said and any("is not active: ignored" in note for note in model.notes)
    assert not to.mjcf_constraints(TIED.format(equality=quadratic)) and model.nv == 14


def test_equalities_within_one_rigid_body_are_omitted():
    text = (
        '<mujoco><worldbody><body name="a"><joint name="j"/><geom size=".1" pos=".2 0 0"/><body name="b" pos="0 0 1">'
        '<geom size=".1"/></body></body></worldbody><equality><weld body1="a" body2="b"/></equality></mujoco>'
    )
    assert to.mjcf_constraints(text) == ()


@FREE_OF_EQUALITIES
def test_equalities_of_locked_joints_are_omitted():
    for name in ("joint", "connect", "weld to the world"):
        whole = to.load_mjcf(tied(name))
        assert len(to.mjcf_constraints(tied(name), whole)) == 1
        rigid = to.lock_joints(whole, whole.joint_names)
        assert not to.mjcf_constraints(tied(name), rigid)


def test_equalities_that_bind_change_the_motion():
    for name, kind in (("joint", "joint"), ("connect", "connect"), ("weld", "weld")):
        with pytest.warns(to.MJCFWarning, match=rf"not part of the free dynamics.*equality0 \({kind}\)"):
            to.load_mjcf(tied(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to.load_mjcf(tied("joint"), mimic="follow", strict=True)
        to.load_mjcf(tied("joint"), mimic="lock", strict=True)


@FREE_OF_EQUALITIES
def test_equalities_next_to_a_locked_joint_are_converted_or_refused():
    whole = to.load_mjcf(tied("joint"))
    for locked, other in (("d1", "b1"), ("b1", "d1")):
        with pytest.raises(
            ValueError, match=f"'equality0' ties the joint '{other}' to '{locked}', which is locked: lock"
        ):
            to.mjcf_constraints(tied("joint"), to.lock_joints(whole, [locked]))
    one, two = (to.lock_joints(whole, joints) for joints in (["a1"], set(whole.joint_names) - {"b1"}))
    assert to.mjcf_constraints(tied("joint alone"), one)[0].source == "b2"
    with pytest.raises(ValueError, match="'equality0' holds the joint 'b1', the only single one, at 0.1: lock it"):
        to.mjcf_constraints(tied("joint alone"), two)
    for name, joints in (("connect", ["c1", "d1", "d2"]), ("connect", ["a1", "b1", "b2"]), ("weld", ["e1"])):
        model = to.lock_joints(to.load_mjcf(tied(name)), joints)
        (bound,) = to.mjcf_constraints(tied(name), model)
        free = to.mjcf_constraints(tied(name))[0]
        other = free.frame_b if bound.frame == free.frame_a else free.frame_a
        R, p = frame_placement(model, model.neutral(), other)
        offset = getattr(free, "offset_b" if other == free.frame_b else "offset_a", (0.0, 0.0, 0.0))
        np.testing.assert_allclose(bound.reference[:3], p + R @ np.array(offset), atol=1e-12)
        assert bound.gains == free.gains and bound.bind(model).labels


@FREE_OF_EQUALITIES
def test_joint_equalities_as_followers():
    text = tied("joint")
    following, locked = (to.load_mjcf(text, mimic=m) for m in ("follow", "lock"))
    d = following.dof_names.index("b1")
    assert following.coupling.multiplier[d] == -1.5
    assert following.coupling.offset[d] == pytest.approx(0.1 + 1.5 * 0.2)
    assert "b1" not in locked.joint_names and locked.nv == following.nv - 1
    assert not to.mjcf_constraints(text, following) and not to.mjcf_constraints(text, locked)
    assert len(to.mjcf_constraints(text, to.load_mjcf(text))) == 1


@FREE_OF_EQUALITIES
@pytest.mark.parametrize(
    ("driven", "more", "followers"),
    [("a", "", ["b"]), ("b", "", ["a"]), ("ab", "", ["a"]), ("", "", ["a"]), ("a", ("b", "c"), ["a", "b"])],
)
def test_the_joint_with_the_only_actuator_leads(driven, more, followers):
    """Unless the other one follows a third joint. With references, all relations hold as in MuJoCo."""
    bodies = "".join(
        f'<body name="{n}"><joint name="{n}" ref="{ref}"/><geom size="0.1" pos="0.2 0 0"/></body>'
        for n, ref in (("a", 0.2), ("b", -0.1), ("c", 0.0))
    )
    ties = [f'<joint joint1="{x}" joint2="{y}" polycoef="0.3 -2 0 0 0"/>' for x, y in filter(None, [("a", "b"), more])]
    motors = "".join(f'<motor joint="{n}" ctrlrange="-4 4"/>' for n in driven)
    text = (
        f'<mujoco><compiler angle="radian"/><worldbody>{bodies}</worldbody><equality>{"".join(ties)}</equality>'
        f"<actuator>{motors}</actuator></mujoco>"
    )
    model = to.load_mjcf(text, mimic="follow")
    coupling = model.coupling
    assert [model.dof_names[d] for d in coupling.followers] == followers
    q = coupling.expand_q(np.full(len(coupling.independent), 0.7))
    assert q[0] - 0.2 == pytest.approx(0.3 - 2.0 * (q[1] + 0.1))
    assert not to.mjcf_constraints(text, model)


# -- base, options, errors ------------------------------------------------------------------------------------------------


def test_the_base_may_be_bolted_or_freed():
    bolted = to.load_mjcf(WALKER, base="fixed")
    assert not bolted.floating_base and bolted.joint_names[0] == "hip_x"
    assert any(note.endswith("is rigid, at its pose in the file") for note in bolted.notes)
    R, p = frame_placement(bolted, bolted.neutral(), "trunk")
    np.testing.assert_allclose(p, [0, 0, 0.6])
    assert R[0, 0] < 1.0
    link = '<body name="link" pos="0 0 1"><joint name="j"/><geom size="0.1" pos="0.3 0 0"/></body>'
    arm = f'<mujoco><worldbody><body name="stand"><geom size="0.1"/>{link}</body></worldbody></mujoco>'
    freed = to.load_mjcf(arm, base="floating")
    assert (
        freed.floating_base
        and freed.joint_names == ("root_joint", "j")
        and freed.total_mass > to.load_mjcf(arm).total_mass
    )
    sliding = arm.replace('<body name="stand">', '<body name="stand"><joint name="rail" type="slide"/>')
    with pytest.raises(to.MJCFError, match="'stand' of .* moves by the joints rail, not freely"):
        to.load_mjcf(sliding, base="floating")


def test_options():
    assert to.load_mjcf(WALKER, armature={"knee": 0.5}).armature.max() == 0.5
    np.testing.assert_array_equal(to.load_mjcf(WALKER, gravity=(0, 0, 0)).gravity, np.zeros(3))
    assert "knee" not in to.load_mjcf(WALKER, locked={"knee": 0.3}).joint_names
    with pytest.raises(UnknownName, match="did you mean 'knee'"):
        to.load_mjcf(WALKER, armature={"kne": 0.5})
    with pytest.raises(ValueError, match="mimic is 'no'; choose one of free, lock, follow"):
        to.load_mjcf(WALKER, mimic="no")
    with pytest.raises(ValueError, match="base is 'loose'; choose one of fixed, floating"):
        to.load_mjcf(WALKER, base="loose")


def test_undriven_bodies_may_be_omitted():
    model = to.load_mjcf(WALKER, trees="driven")
    assert (
        model.joint_names[0] == "root" and "rolls" not in model.joint_names and "body9_joint0" not in model.joint_names
    )
    assert any(note == "ignored, because no actuator drives them: ball, body9" for note in model.notes)
    bolted = to.load_mjcf(WALKER, base="fixed")  # a robot with a base is no collection of things
    assert bolted.joint_names == model.joint_names[1:]
    assert "rolls" in to.load_mjcf(WALKER, base="fixed", trees="all").joint_names
    tendon = WALKER.replace(
        "<sensor>", '<tendon><fixed name="t"><joint joint="body9_slide" coef="1"/></fixed></tendon><sensor>'
    )
    tendon = tendon.replace(
        '<joint type="slide" axis="1 0 0"/>', '<joint name="body9_slide" type="slide" axis="1 0 0"/>'
    )
    pulled = to.load_mjcf(tendon.replace("</actuator>", '<motor tendon="t"/></actuator>'), trees="driven")
    assert "body9_slide" in pulled.joint_names and "rolls" not in pulled.joint_names


def test_file_formats_are_distinguished(tmp_path):
    file = tmp_path / "robot.xml"
    file.write_text(f"<?xml version='1.0'?>\n<!-- a robot <robot> -->\n{WALKER}", encoding="utf-8")
    model = to.load_robot(file)
    assert model.digest == to.load_mjcf(WALKER).digest and model.source == str(file) and is_mjcf(file)
    urdf = tmp_path / "other.xml"
    urdf.write_text(robot_path("double_pendulum").read_text(encoding="utf-8"), encoding="utf-8")
    assert to.load_robot(str(urdf)).nv == 2 and not is_mjcf(urdf)
    with pytest.raises(to.MJCFError, match="other.xml: the first element is not <mujoco>"):
        to.load_mjcf(urdf)
    with pytest.raises(FileNotFoundError, match="there is no MJCF or URDF file"):
        to.load_robot(str(tmp_path / "no.xml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<mujoco><worldbody><body><joint axs='0 0 1'/></body></worldbody></mujoco>", "axs.*line 1"),
        ("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>", "no body of 'robot' has a joint"),
        ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "mass and inertia of moving bodies"),
        ("<mujoco><worldbody>", "MJCF text: "),
        ("<robot/>", "not <mujoco>"),
    ],
)
def test_bad_files_are_named_with_the_place(text, said):
    with pytest.raises(to.MJCFError, match=said):
        to.load_mjcf(text)
    with pytest.raises(to.MJCFError, match="there is no such file"):
        to.load_mjcf("no_such_file.xml")


def test_the_missing_package_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "mujoco":
            raise ModuleNotFoundError(name="mujoco")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"urdf-trajopt\[sim\]"):
        to.load_mjcf(WALKER)


def test_notes_are_about_the_joints_that_move():
    """Locked joints need no actuator, have no gains, and satisfy their equality."""
    text = """<mujoco><worldbody><body><joint name="arm" axis="0 1 0"/><geom size="0.1"/>
      <body pos="0 0 1"><joint name="left" type="slide"/><geom size="0.1"/></body>
      <body pos="0 1 1"><joint name="right" type="slide"/><geom size="0.1"/></body></body></worldbody>
      <equality><joint name="pair" joint1="right" joint2="left"/></equality>
      <actuator><motor joint="arm"/><position joint="left" kp="5"/></actuator></mujoco>"""
    with pytest.warns(to.MJCFWarning, match="equalities are not part of the free dynamics"):
        free = to.load_mjcf(text)
    assert "kp 5" in str(free.notes) and "yet it has a control here: right" in str(free.notes)
    (note,) = to.load_mjcf(text, locked=["left", "right"]).notes
    assert note.endswith("motor actuators behind a gear of 1: arm")


def test_warnings_of_mujoco_are_notes_and_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = WALKER.replace('autolimits="true"', 'autolimits="true" settotalmass="30"')
    notes = to.load_mjcf(text).notes
    assert any(note.startswith("MuJoCo says: ") and "settotalmass" in note for note in notes)
    assert not list(tmp_path.iterdir())


# -- shapes and contacts --------------------------------------------------------------------------------------------------


def test_the_tip_of_a_leg_is_its_ball_and_that_of_a_stretched_one_its_end():
    model = to.load_mjcf(WALKER)
    tips = {f.name: f for f in model.frames if f.kind == "contact"}
    assert set(tips) == {"shank_tip", "rod_tip", "toy", "body9_tip"}
    np.testing.assert_allclose(tips["shank_tip"].p, model.frames[model.frame_id("sole")].p, atol=1e-15)
    flat = to.load_mjcf(
        """<mujoco><worldbody><body name="leg"><joint pos="0.1 0 0" axis="0 1 0"/>
        <geom name="toe" type="capsule" fromto="0.1 0 0 0.5 0 0" size="0.02"/></body></worldbody></mujoco>"""
    )
    p = frame_placement(flat, flat.neutral(), "toe")[1]
    np.testing.assert_allclose(p, [0.5, 0, 0], atol=1e-12)


def test_the_tip_of_a_foot_is_the_middle_of_its_sole():
    corners = "".join(f'<geom size="0.01" pos="{x} {y} -0.05"/>' for x in (-0.05, 0.15) for y in (-0.04, 0.04))
    foot = to.load_mjcf(
        f"""<mujoco><worldbody><body name="shin" pos="0 0 1"><joint name="ankle" axis="0 1 0"/>
        <geom type="box" size="0.1 0.04 0.02" pos="0.05 0 -0.02"/>{corners}</body></worldbody></mujoco>"""
    )
    p = frame_placement(foot, foot.neutral(), "shin_tip")[1]
    np.testing.assert_allclose(p, [0.05, 0.0, 0.95], atol=1e-12)


def test_balls_of_geoms():
    simulated = compiled(WALKER).simulated
    geoms = Names(simulated, WALKER).geoms
    centers, radii = balls(simulated, geoms.index("ball"))
    assert len(centers) == 1 and radii.tolist() == [0.04]
    assert len(balls(simulated, geoms.index("box"))[0]) == 8
    assert not len(balls(simulated, geoms.index("floor"))[0])


def test_the_scene_contains_bodies_that_no_joint_moves():
    scene = mjcf_scene(WALKER)
    floor, post = scene.bodies
    assert isinstance(floor.shape, HalfSpace) and floor.name == "floor"
    assert post.shape == Cylinder(0.1, 1.0)
    np.testing.assert_allclose(post.p, [2, 0, 0])
    placed = mjcf_shapes(WALKER, "collision").placed
    assert {shape.link for shape in placed} == {"trunk", "thigh", "shank", "sole", "arm", "rod", "ball", "body9"}


def test_surfaces_of_meshes_are_where_mujoco_has_them():
    """A tetrahedron, turned, moved and scaled: its corners in the body's frame."""
    text = """<mujoco><asset><mesh name="m" scale="2 1 1" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset><worldbody><body name="b">
      <joint/><geom type="mesh" mesh="m" pos="0.1 0.2 0.3" euler="0 0 90"/></body></worldbody></mujoco>"""
    (shape,) = mjcf_shapes(text, "collision").placed
    corners = shape.triangles().vertices
    expected = np.array([[0, 0, 0], [0, 2, 0], [-1, 0, 0], [0, 0, 1]]) + [0.1, 0.2, 0.3]
    assert np.abs(corners[:, None] - expected[None]).max(axis=2).min(axis=1).max() < 1e-6


def test_quaternions_of_rotations():
    rng = np.random.default_rng(6)
    for q in [*rng.standard_normal((20, 4)), *np.eye(4)]:
        q = q / np.linalg.norm(q) * np.copysign(1.0, q[3])
        m = np.zeros(9)
        mujoco.mju_quat2Mat(m, q[[3, 0, 1, 2]])
        np.testing.assert_allclose(pose_numbers(m.reshape(3, 3), np.arange(3.0)), [0.0, 1.0, 2.0, *q], atol=1e-14)


def test_models_with_notes_are_saved_in_files():
    from dynamics_backends.rigid_body.model.model_data import model_from_data, model_to_data

    model = to.load_mjcf(WALKER)
    again = model_from_data(model_to_data(model))
    assert again.notes == model.notes and again.digest == model.digest
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert to.lock_joints(model, ["knee"]).notes == model.notes


def test_a_file_is_compiled_once_until_it_or_what_it_includes_changes(tmp_path, monkeypatch):
    inner, outer = tmp_path / "parts" / "arm.xml", tmp_path / "robot.xml"
    inner.parent.mkdir()
    inner.write_text('<mujoco><body name="arm"><joint name="j"/><geom size="0.1" mass="1"/></body></mujoco>')
    outer.write_text('<mujoco model="one"><worldbody><include file="parts/arm.xml"/></worldbody></mujoco>')
    count, load = [], mujoco.MjModel.from_xml_path
    monkeypatch.setattr(mujoco.MjModel, "from_xml_path", lambda path: count.append(path) or load(path))
    assert to.load_mjcf(outer).mass[0] == pytest.approx(1.0)
    mjcf_shapes(outer)
    mjcf_scene(outer)
    assert len(count) == 1
    inner.write_text(inner.read_text().replace('mass="1"', 'mass="2.5"'))
    assert to.load_mjcf(str(outer)).mass[0] == pytest.approx(2.5)
    assert len(count) == 2


def test_included_files_may_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = '<mujoco model="one"><worldbody><include file="arm.xml"/></worldbody></mujoco>'
    for mass in (1.0, 2.5, 12.0):
        body = f'<body name="arm"><joint name="j"/><geom size="0.1" mass="{mass}"/></body>'
        (tmp_path / "arm.xml").write_text(f"<mujoco>{body}</mujoco>")
        assert to.load_mjcf(text).mass[0] == pytest.approx(mass)


HOSTILE = {
    "nan": ('<geom size="0.1" mass="nan"/>', "<geom>: mass is 'nan': give finite numbers"),
    "inf": ('<geom size="0.1" pos="0 inf 0"/>', "<geom>: pos is '0 inf 0': give finite numbers"),
    "underscore": ('<geom size="0.1" mass="1_000"/>', "MuJoCo cannot compile it.*mass"),
    "far": ('<geom size="0.1" pos="1e29 0 0"/>', r"geom '.*' lies at .*1e\+29|has its center of mass"),
    "heavy": ('<geom size="0.1" mass="1e30"/>', r"body 'b' has the mass \[1e\+30\] kg"),
    "copies": (
        '<replicate count="1000">' * 3 + '<geom size="0.1"/>' + "</replicate>" * 3,
        "line 1, <replicate>: 1000000 copies: MuJoCo would need too much memory; give at most 100000",
    ),
    "points": ('<flexcomp name="f" count="10000 10000 10000"/>', "<flexcomp>: count is 1000000000000"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_numbers_are_refused_before_they_are_compiled(name):
    inner, message = HOSTILE[name]
    text = f'<mujoco><worldbody><body name="b"><joint name="j"/>{inner}</body></worldbody></mujoco>'
    with pytest.raises(to.MJCFError, match=message):
        to.load_mjcf(text)


@pytest.mark.parametrize(
    "head", ['<size nkey="1000000000"/>', '<asset><hfield name="h" nrow="100000" ncol="100000"/></asset>']
)
def test_sizes_that_exhaust_the_memory_are_refused(head):
    text = f'<mujoco>\n{head}<worldbody><body><joint/><geom size="0.1"/></body></worldbody></mujoco>'
    with pytest.raises(to.MJCFError, match="line 2, <(size|hfield)>: .*MuJoCo would need too much memory"):
        to.load_mjcf(text)


def test_infinite_ranges_and_odd_names_are_no_errors():
    text = (
        '<mujoco><worldbody><body name="inf"><joint name="nan" axis="0 0 1"/><geom size="0.1"/></body></worldbody>'
        '<actuator><motor joint="nan" ctrlrange="-inf inf"/></actuator></mujoco>'
    )
    assert not list(attribute_errors(text))


def test_comments_without_an_end_are_read_in_linear_time():
    assert not list(attribute_errors("<mujoco>" + "<!--" * 200_000))
    (error,) = attribute_errors("<!-- mass='nan'\n -->\n" * 10_000 + "<geom mass='nan'/>")
    assert error.startswith("line 20001, <geom>: mass is 'nan'")


@pytest.mark.parametrize(
    ("actuator", "limit"),
    [
        ('<motor joint="j" gear="50" ctrlrange="-1 1" forcerange="-40 40"/>', 50.0),
        ('<motor joint="j" gear="2" ctrlrange="-60 60" forcerange="-30 30"/>', 60.0),
        ('<general joint="j" gear="3" gainprm="10" ctrlrange="-2 2" forcerange="-100 100"/>', 60.0),
        ('<position joint="j" kp="100" ctrlrange="-1 1" forcerange="-40 40"/>', 40.0),
    ],
)
def test_the_force_of_a_motor_is_limited_by_its_control_and_its_force(actuator, limit):
    body = '<body><joint name="j" axis="0 1 0"/><geom type="capsule" size="0.05 0.2"/></body>'
    model = to.load_mjcf(f"<mujoco><worldbody>{body}</worldbody><actuator>{actuator}</actuator></mujoco>")
    assert model.effort_limit[0] == limit
