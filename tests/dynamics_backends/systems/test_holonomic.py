"""Holonomic constraints: accelerations and forces against Pinocchio, derivatives of both orders by every method, drift."""

import pickle

import numpy as np
import pytest
from contact_cases import (
    EXACT,
    FEET,
    QUICK,
    STANCE,
    arguments,
    contraction_error,
    hyq,
    methods_agree,
    relative,
    second_orders_agree,
    standing_states,
)
from rigid_body_cases import tree, twin

from dynamics_backends.names import UnknownName
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.algorithms.pose_error import pose_error
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from dynamics_backends.rigid_body.model.sample_models import four_bar
from dynamics_backends.rigid_body.spatial.spatial import Mat, Transform, Vec, leaves
from dynamics_backends.systems.constraints.consistency import closed_state, errors_at, redundant_constraints, rows_at
from dynamics_backends.systems.constraints.constraint_kinds import (
    FrameContact,
    FrameLoop,
    JointRelation,
    PointContact,
    PointLoop,
)
from dynamics_backends.systems.constraints.holonomic import Holonomic
from trajopt.step.sensitivities import SampledSystem

GAINS = (25.0, 10.0)
POSE = (0.1, 0.2, -0.3, 0.1, -0.2, 0.3, np.sqrt(1.0 - 0.14))
CASES = {
    "two points": [PointContact("lf_foot"), PointContact("rh_foot")],
    "four points, gains": [PointContact(f, reference=(0.1, -0.2, 0.01), gains=GAINS) for f in FEET],
    "offset point": [PointContact("lf_foot", offset=(0.1, 0.0, -0.1), gains=(0.0, 3.0))],
    "frame": [FrameContact("lf_foot", gains=(0.0, 7.0))],
    "frame, gains": [FrameContact("lf_foot", reference=POSE, gains=GAINS), PointContact("rh_foot")],
    "point loop": [PointLoop("lf_foot", "rf_foot", offset_a=(0.0, 0.1, 0.0), gains=GAINS)],
    "frame loop": [FrameLoop("lf_foot", "rf_foot", gains=GAINS)],
    "loop on one leg": [PointLoop("lf_foot", "lf_upperleg", gains=GAINS)],
    "relation": [
        JointRelation("lf_haa_joint", "rf_haa_joint", multiplier=2.0, offset=0.1, gains=GAINS),
        PointContact("lh_foot"),
    ],
}
each_case = pytest.mark.parametrize("case", CASES)


def system_of(case: str, **options) -> Holonomic:
    return Holonomic(hyq(), CASES[case], friction_velocity=0.1, **options)


# -- derivatives ------------------------------------------------------------------------------------------------------


@each_case
def test_all_methods_agree(case):
    system = system_of(case)
    x, u, _ = arguments(system, FEET)
    methods = EXACT if case == "two points" else QUICK
    assert methods_agree(system, x, u, methods=methods) < 1e-11


@each_case
def test_second_order(case):
    system = system_of(case)
    assert contraction_error(system, *arguments(system, FEET, N=1)) < 1e-9


def test_second_derivatives_by_forward_ad():
    system = system_of("frame, gains")
    assert second_orders_agree(system, *arguments(system, FEET, N=1)) < 1e-9


def test_the_system_pickles():
    system = system_of("frame loop")
    x, u, _ = arguments(system, FEET)
    other = pickle.loads(pickle.dumps(system))
    np.testing.assert_array_equal(make_backend(other).f(x, u), make_backend(system).f(x, u))


@pytest.mark.parametrize("name", ["fixed0", "fixed2", "floating1"])
def test_trees_of_all_joints(name):
    model = tree(name)
    frames = [next(f.name for f in model.frames if f.body == b) for b in (model.nb - 1, model.nb // 2)]
    place = (0.1, 0.2, 0.3, 0.5, -0.5, 0.5, 0.5)
    in_one_tree = not model.floating_base or len({0 in model.ancestors(b) for b in (model.nb - 1, model.nb // 2)}) == 1
    candidates = [
        *([[FrameLoop(*frames, gains=GAINS)]] if in_one_tree else []),
        [FrameContact(frames[0], reference=place, gains=GAINS)],
        [PointLoop(*frames, offset_a=(0.1, 0.0, 0.2), gains=GAINS)],
        [PointContact(frames[0], reference=place[:3], gains=GAINS)],
        [PointContact(frames[0], offset=(0.3, 0.1, 0.0)), PointContact(frames[1])],
    ]
    systems = [Holonomic(model, c) for c in candidates]
    x, u, lam = arguments(systems[0], frames, N=1)
    solvable = [s for s in systems if not redundant_constraints(s.constraints, x[0], tolerance=1e-3)]
    assert len(solvable) >= 2
    for system in solvable[:2]:
        assert methods_agree(system, x, u, methods=QUICK) < 1e-10
        assert contraction_error(system, x, u, lam) < 1e-8


def test_references_at_run_time():
    given = Holonomic(hyq(), [FrameContact("lf_foot", gains=GAINS), PointContact("rh_foot", gains=GAINS)])
    built = Holonomic(
        hyq(),
        [
            FrameContact("lf_foot", reference=POSE, gains=GAINS),
            PointContact("rh_foot", reference=POSE[:3], gains=GAINS),
        ],
    )
    p = {"reference[lf_foot]": np.array(POSE), "reference[rh_foot]": np.array(POSE[:3])}
    x, u, _ = arguments(given, FEET)
    for a, b in zip(make_backend(given).jacobians(x, u, 0.0, p), make_backend(built).jacobians(x, u), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"'lf_foot' has no reference"):
        make_backend(given).f(x, u)


def test_switched_constraints_are_those_of_a_phase():
    """A system with four contacts of which two are active is the system with these two."""
    four = [PointContact(f, reference=(0.1, -0.2, 0.01), gains=GAINS) for f in FEET]
    switched, phase = Holonomic(hyq(), four), Holonomic(hyq(), [four[0], four[3]])
    p = {f"active[{f}]": np.array([s]) for f, s in zip(FEET, (1.0, 0.0, 0.0, 1.0), strict=True)}
    x, u, lam = arguments(switched, FEET)
    for one, other in zip(
        make_backend(switched).hessian_contraction(x, u, 0.0, p, lam),
        make_backend(phase).hessian_contraction(x, u, 0.0, None, lam),
        strict=True,
    ):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11 * np.abs(b).max())
    assert methods_agree(switched, x, u, p, methods=QUICK) < 1e-11
    forces = switched.outputs(x.T, u.T, 0.0, {k: v[:, None] for k, v in p.items()})
    assert not forces["rf_foot"].any() and forces["lf_foot"].any()


def test_far_from_the_origin():
    system = system_of("two points")
    x, u, _ = arguments(system, FEET)
    here = make_backend(system).jacobians(x, u)
    x[:, :2] += 1000.0
    for near, far in zip(here, make_backend(system).jacobians(x, u), strict=True):
        assert relative(far, near) < 1e-11


# -- Pinocchio --------------------------------------------------------------------------------------------------------


def pinocchio_constraint(pin, t, kind, frame, other=None, reference=None, gains=(0.0, 0.0)):
    """Its rigid constraint between two frames, or a frame and a pose in the world."""
    place = [t.pin_model.frames[t.pin_model.getFrameId(f)] for f in (frame, other) if f]
    where = [(f.parentJoint, f.placement) for f in place]
    if other is None:
        pose = pin.SE3.Identity() if reference is None else pin.XYZQUATToSE3(np.array(reference))
        where.append((0, pose))
    contact = pin.RigidConstraintModel(kind, t.pin_model, *where[0], *where[1], pin.LOCAL)
    parameters = contact.m_baumgarte_parameters
    parameters.Kp, parameters.Kd = gains
    contact.m_baumgarte_parameters = parameters
    return contact


def against_pinocchio(system, t, contacts, x, u) -> None:
    import pinocchio as pin

    models, data = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    for c in contacts:
        models.append(c)
        data.append(c.createData())
    pin.initConstraintDynamics(t.pin_model, t.data, models, data)
    settings = pin.ProximalSettings(1e-14, 0.0, 50)
    nq = t.model.nq
    for xi, ui in zip(x, u, strict=True):
        actual = make_backend(system).f(xi[None], ui[None])[0, t.model.nv :]
        tau = t.v(np.concatenate([np.zeros(6), ui]))
        a = pin.constraintDynamics(t.pin_model, t.data, t.q(xi[:nq]), t.v(xi[nq:]), tau, models, data, settings)
        assert relative(actual, t.vector(a)) < 1e-9
        forces = system.outputs(xi[:, None], ui[:, None], 0.0, {})
        pin.updateFramePlacements(t.pin_model, t.data)
        for bound, own in zip(system.constraints.bound, data, strict=True):
            frame = bound.name.split("-")[0]
            R = t.data.oMf[t.pin_model.getFrameId(frame)].rotation
            expected = R @ own.contact_force.linear
            if len(bound.labels) == 6:
                expected = np.concatenate([expected, R @ own.contact_force.angular])
            assert relative(forces[bound.name][:, 0], expected) < 1e-9


def closed_velocities(system, x) -> np.ndarray:
    """The states with the velocities that the constraints allow."""
    nq, x = system.model.nq, x.copy()
    for xi in x:
        J, _ = rows_at(system.constraints, xi)
        xi[nq:] -= np.linalg.pinv(J) @ (J @ xi[nq:])
    return x


def test_contacts_against_pinocchio():
    pin = pytest.importorskip("pinocchio")
    t = twin("hyq")
    point, frame = pin.ContactType.CONTACT_3D, pin.ContactType.CONTACT_6D
    options = {"damping": False, "damping_ratio": 0.0}
    points = Holonomic(t.model, [PointContact(f) for f in FEET], **options)
    x, u, _ = arguments(points, FEET)
    against_pinocchio(points, t, [pinocchio_constraint(pin, t, point, f) for f in FEET], x, u)
    held = Holonomic(t.model, [FrameContact("lf_foot", reference=POSE, gains=GAINS)], **options)
    contact = pinocchio_constraint(pin, t, frame, "lf_foot", reference=POSE, gains=GAINS)
    against_pinocchio(held, t, [contact], x, u)


def test_loops_against_pinocchio():
    """The velocities satisfy the loop: otherwise the two differ by terms that vanish with its velocity."""
    pin = pytest.importorskip("pinocchio")
    t = twin("hyq")
    pair = ("lf_foot", "rf_foot")
    kinds = ((PointLoop, pin.ContactType.CONTACT_3D), (FrameLoop, pin.ContactType.CONTACT_6D))
    for loop, kind in kinds:
        system = Holonomic(t.model, [loop(*pair)], damping=False, damping_ratio=0.0)
        x, u, _ = arguments(system, FEET)
        x = closed_velocities(system, x)
        against_pinocchio(system, t, [pinocchio_constraint(pin, t, kind, *pair)], x, u)


# -- identities -------------------------------------------------------------------------------------------------------


@each_case
def test_constraints_hold_at_the_acceleration(case):
    """J a + gamma = 0 with the rows of the diagnosis, exactly where there is no damping."""
    system = system_of(case, damping_ratio=0.0)
    x, u, _ = arguments(system, FEET, N=1)
    a = make_backend(system).f(x, u)[0, system.model.nv :]
    J, gamma = rows_at(system.constraints, x[0])
    assert np.abs(J @ a + gamma).max() < 1e-9 * np.abs(gamma).max()


def test_point_rows_are_the_second_derivative_of_the_position():
    system = system_of("two points")
    x, u, _ = arguments(system, FEET, N=1)
    model, h = system.model, 1e-4
    xdot = make_backend(system).f(x, u)

    def position(time: float) -> np.ndarray:
        """Along the motion q exp(v t + a t^2 / 2), exact to second order."""
        v, a = xdot[0, : model.nv], xdot[0, model.nv :]
        dq = np.concatenate([v * time + 0.5 * a * time**2, np.zeros(model.nv)])
        q = system.manifold.integrate(x.T, dq[:, None])[: model.nq]
        return np.concatenate(
            [kinematics.frame_position(model, q, model.frame_id(f))[:, 0] for f in ("lf_foot", "rh_foot")]
        )

    second = (position(h) - 2.0 * position(0.0) + position(-h)) / h**2
    assert np.abs(second).max() < 1e-4 * np.abs(xdot).max()


def test_constraint_forces_do_no_work():
    """d(kinetic + potential)/dt = tau v at velocities that the constraints allow."""
    system = Holonomic(hyq(), CASES["two points"], damping=False)
    model = system.model
    x = closed_velocities(system, standing_states(model, FEET, 2, 2))
    u = np.random.default_rng(3).standard_normal((2, system.nu))

    def energy(z):
        q, v = z[: model.nq], z[model.nq :]
        return kinematics.kinetic_energy(model, q, v) + kinematics.potential_energy(model, q)

    moved = system.manifold.integrate(x.T.astype(complex), 1e-30j * system(x.T, u.T, 0.0, {}))
    np.testing.assert_allclose(energy(moved).imag / 1e-30, (u * x[:, model.nq + 6 :]).sum(axis=1), rtol=1e-8, atol=1e-8)


def test_four_feet_carry_the_weight():
    system = Holonomic(hyq(), [PointContact(f) for f in FEET])
    model, x = system.model, standing_states(hyq(), FEET, 4, 1)
    x[:, model.nq :] = 0.0
    u = np.zeros((1, system.nu))
    forces = system.outputs(x.T, u.T, 0.0, {})
    a = make_backend(system).f(x, u)[:, model.nv :]
    moved = system.manifold.integrate(x.T.astype(complex), 1e-30j * np.concatenate([0 * a, a], axis=1).T)
    momentum_rate = kinematics.spatial_momentum(model, x.T[: model.nq] + 0j, moved[model.nq :]).imag[:3, 0] / 1e-30
    total = sum(f[:, 0] for f in forces.values()) + model.total_mass * np.asarray(model.gravity)
    np.testing.assert_allclose(total, momentum_rate, rtol=1e-9, atol=1e-7)


def test_the_pose_error_is_the_logarithm():
    """The poses are a known screw apart, in world axes about the origin."""
    rng = np.random.default_rng(0)
    from dynamics_backends.manifold import SE3

    twist = 0.5 * rng.standard_normal(6)
    start = np.array(POSE)
    end = SE3.integrate(list(start), list(twist))
    A, B = (_transform(np.array([float(c) for c in pose])) for pose in (end, start))
    e = A.to_child(pose_error(A, B))
    np.testing.assert_allclose(leaves(e), [*twist[3:], *twist[:3]], rtol=1e-12)


def _transform(pose) -> Transform:
    from dense_dynamics import quaternion_rotation

    R = quaternion_rotation(pose[3:])
    return Transform(Mat(*(Vec(*c) for c in R.T)), Vec(*pose[:3]))


# -- simulation -------------------------------------------------------------------------------------------------------


def simulated(system: Holonomic, x: np.ndarray, steps: int) -> np.ndarray:
    """After this number of RK4 steps of 1 ms, without control."""
    stage = SampledSystem(make_backend(system), "rk4")
    for _ in range(steps):
        x = stage.step(x[None], np.zeros((1, system.nu)), 0.0, 1e-3)[0]
    return x


def test_the_error_of_a_loop_decays_with_the_baumgarte_gains():
    """The error is e0 (1 + 10 t) exp(-10 t) with kp = 100, kd = 20 from rest, here at 50 ms, for any motion of the linkage."""
    system = Holonomic(four_bar(), [PointLoop("coupler_tip", "rocker_tip", gains=(100.0, 20.0))], actuated=[])
    closed = closed_state(system.constraints, np.array([0.3, 1.2, -0.2, 6.0, 0.0, 0.0]))
    np.testing.assert_allclose(closed_state(system.constraints, closed, iterations=0), closed, rtol=1e-12)
    with pytest.raises(ValueError, match="after 1 steps"):
        closed_state(system.constraints, np.array([0.3, 1.2, -0.2, 6.0, 0.0, 0.0]), iterations=1)
    assert np.abs(errors_at(system.constraints, closed)).max() < 1e-12
    assert abs(closed[3]) > 1.0 and np.abs(errors_at(system.constraints, simulated(system, closed, 50))).max() < 1e-8
    opened = closed + [0.02, -0.01, 0.03, 0.0, 0.0, 0.0]
    opened[3:] = 0.0
    e0 = errors_at(system.constraints, opened)
    e = errors_at(system.constraints, simulated(system, opened, 50))
    assert np.abs(e0).max() > 0.01
    np.testing.assert_allclose(e, e0 * 1.5 * np.exp(-0.5), atol=1e-7 * np.abs(e0).max())


def test_standing_feet_stay():
    model = hyq()
    q = model.neutral()
    q[7:] = STANCE
    places = [kinematics.frame_position(model, q[:, None], model.frame_id(f))[:, 0] for f in FEET]
    contacts = [PointContact(f, reference=tuple(r), gains=(100.0, 20.0)) for f, r in zip(FEET, places, strict=True)]
    system = Holonomic(model, contacts)
    x = simulated(system, np.concatenate([q, np.zeros(model.nv)]), 20)
    assert np.abs(x[model.nq :]).max() > 0.1  # it falls on its feet
    assert np.abs(errors_at(system.constraints, x)).max() < 1e-9


def test_states_that_cannot_be_closed_are_reported():
    far = PointContact("lf_foot", reference=(0.0, 0.0, 0.0), name="here")
    other = PointContact("lf_foot", reference=(0.0, 0.0, 1.0), name="there")
    system = Holonomic(hyq(), [far, other])
    with pytest.raises(ValueError, match=r"constraints do not close: the error is 0\.5 after 50 steps"):
        closed_state(system.constraints, standing_states(hyq(), FEET, 0, 1)[0])


def test_inactive_constraints_do_not_count_for_closed_states():
    far = PointContact("lf_foot", reference=(0.0, 0.0, 0.0), name="here")
    other = PointContact("lf_foot", reference=(0.0, 0.0, 1.0), name="there")
    system = Holonomic(hyq(), [far, other])
    p = {"active[here]": np.array([0.0]), "active[there]": np.array([1.0])}
    x = closed_state(system.constraints, standing_states(hyq(), FEET, 0, 1)[0], p)
    model = system.model
    foot = kinematics.frame_position(model, x[: model.nq, None], model.frame_id("lf_foot"))[:, 0]
    np.testing.assert_allclose(foot, [0.0, 0.0, 1.0], atol=1e-9)
    assert not redundant_constraints(system.constraints, x, p) and redundant_constraints(system.constraints, x)


def test_relations_of_one_joint_and_frame_loops_across_trees_are_refused():
    with pytest.raises(ValueError, match="with itself; name two joints"):
        JointRelation("lf_haa_joint", "lf_haa_joint", multiplier=2.0).bind(hyq())

    def two_trees(*bodies):
        builder = ModelBuilder("two trees")
        for name, joint in bodies:
            builder.add_body(name, joint=joint, mass=1.0, inertia=np.eye(3))
            builder.add_frame(f"{name} tip", name, xyz=(1.0, 0.0, 0.0))
        return builder.build()

    free, hinged = ("free", "floating"), ("hinged", "revolute")
    model = two_trees(free, hinged)
    with pytest.raises(ValueError, match="one moves with the floating base, the other does not; make .* the last body"):
        FrameLoop("free tip", "hinged tip").bind(model)
    assert PointLoop("free tip", "hinged tip").bind(model).labels == ("x", "y", "z")
    assert FrameLoop("free tip", "hinged tip").bind(two_trees(hinged, free)).labels


@pytest.mark.parametrize(
    "constraint, message",
    [
        (FrameContact("lf_foot", reference=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0)), "is not a unit quaternion"),
        (FrameContact("lf_foot", reference=(0.0, 0.0, 0.0)), "expected 7 finite numbers"),
        (PointContact("lf_foot", reference=POSE), "expected 3 finite numbers"),
        (PointContact("lf_foot", reference=(0.0, np.nan, 0.0)), "expected 3 finite numbers"),
        (PointContact("lf_foot", offset=(0.0, 0.1)), "the offset from frame 'lf_foot' is"),
        (PointContact("lf_foot", gains=(-1.0, 0.0)), r"expected \(kp, kd\), both at least 0"),
        (PointContact("lf_foot", gains=(1.0,)), r"expected \(kp, kd\), both at least 0"),
        (PointLoop("lf_foot", "lf_foot", offset_a=(0.1, 0.0, 0.0)), "are on one body"),
        (FrameLoop("lf_foot", "lf_foot"), "are on one body"),
        (JointRelation("lf_haa_joint", "rf_haa_joint", multiplier=np.nan), "must be finite"),
    ],
)
def test_numbers_that_make_no_constraint_are_refused(constraint, message):
    with pytest.raises(ValueError, match=message):
        constraint.bind(hyq())


def test_quaternions_of_references_are_normalized():
    system = Holonomic(hyq(), [FrameContact("lf_foot", gains=GAINS)])
    x, u, _ = arguments(system, FEET)
    poses = [np.r_[POSE[:3], size * np.array(POSE[3:])] for size in (1.0, 1.1)]
    one, other = (make_backend(system).f(x, u, 0.0, {"reference[lf_foot]": pose}) for pose in poses)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_system_is_no_set_of_constraints():
    system = Holonomic(hyq(), [PointContact("lf_foot")])
    with pytest.raises(TypeError, match="give the attribute ``constraints`` of the system"):
        closed_state(system, standing_states(hyq(), FEET, 0, 1)[0])


# -- redundancy -------------------------------------------------------------------------------------------------------


def test_redundant_constraints_do_not_change_the_motion():
    once = Holonomic(hyq(), CASES["two points"])
    twice = Holonomic(hyq(), [*CASES["two points"], PointContact("lf_foot", name="again")])
    x, u, lam = arguments(once, FEET)
    for a, b in zip(make_backend(twice).jacobians(x, u), make_backend(once).jacobians(x, u), strict=True):
        assert relative(a, b) < 1e-8
    assert methods_agree(twice, x, u, methods=("complex_step",)) < 1e-8
    assert contraction_error(twice, x[:1], u[:1], lam[:1]) < 1e-6
    forces = [s.outputs(x.T, u.T, 0.0, {}) for s in (once, twice)]
    assert relative(forces[1]["lf_foot"] + forces[1]["again"], forces[0]["lf_foot"]) < 1e-6


def test_redundant_and_contradictory_constraints_are_named():
    constraints = [*CASES["two points"], PointContact("lf_foot", name="again")]
    system = Holonomic(hyq(), constraints)
    x, _, _ = arguments(system, FEET)
    assert redundant_constraints(Holonomic(hyq(), CASES["two points"]).constraints, x[0]) == []
    found = redundant_constraints(system.constraints, x[0])
    assert [(d.constraint, d.row, d.depends_on, d.contradictory) for d in found] == [
        ("again", row, ("lf_foot",), False) for row in "xyz"
    ]
    assert found[0].message == "row x of constraint 'again' is implied by 'lf_foot'; remove one of them"
    other = PointContact("lf_foot", name="elsewhere", reference=(0.0, 0.0, 5.0), gains=GAINS)
    found = redundant_constraints(Holonomic(hyq(), [*CASES["two points"], other]).constraints, x[0])
    assert all(d.contradictory for d in found) and "contradicts 'lf_foot'" in found[0].message


def test_a_constraint_row_without_moving_joints():
    builder = ModelBuilder("pendulum")
    builder.add_body(
        "rod", joint=JointSpec(axis=(0.0, 1.0, 0.0)), mass=1.0, com=(0.0, 0.0, -0.5), inertia=np.eye(3) * 0.1
    )
    system = Holonomic(builder.build(), [PointContact("rod", offset=(0.0, 0.0, -1.0))])
    found = redundant_constraints(system.constraints, np.array([0.1, 0.0]))
    assert [d.row for d in found] == ["y", "z"] and found[0].message.endswith(
        "depends on no joint in this state; remove it"
    )


# -- bad input --------------------------------------------------------------------------------------------------------


def test_wrong_arguments_raise_errors():
    model = hyq()
    with pytest.raises(ValueError, match="constraints is empty"):
        Holonomic(model, [])
    with pytest.raises(UnknownName, match="did you mean 'lf_foot'"):
        Holonomic(model, [PointContact("lf_fot")])
    with pytest.raises(ValueError, match="two constraints are named 'lf_foot'"):
        Holonomic(model, [PointContact("lf_foot"), FrameContact("lf_foot")])
    with pytest.raises(ValueError, match=r"damping_ratio = -1; it must be positive"):
        Holonomic(model, [PointContact("lf_foot")], damping_ratio=-1)
    with pytest.raises(ValueError, match="has 6 degrees of freedom; a relation needs single ones"):
        Holonomic(model, [JointRelation(model.joint_names[0], "lf_haa_joint")])
