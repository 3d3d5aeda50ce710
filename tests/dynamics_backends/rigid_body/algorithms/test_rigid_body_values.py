"""Values of the rigid-body algorithms: published robots against Pinocchio, random trees against dense 6 x 6 matrices."""

from itertools import permutations

import dense_dynamics as dense
import numpy as np
import pytest
from rigid_body_cases import FOREIGN, TREES, Twin, error, foreign, robot, state, tree, twin, worst
from scipy.spatial.transform import Rotation

from dynamics_backends.manifold import SO3, Manifold
from dynamics_backends.rigid_body import batched as rb
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.algorithms.forward_dynamics import forward_dynamics
from dynamics_backends.rigid_body.algorithms.kinematics import REFERENCES
from dynamics_backends.rigid_body.model.model import Frame, Model
from dynamics_backends.rigid_body.model.sample_models import chain

N = 5
each_robot = pytest.mark.parametrize("name", FOREIGN)
each_tree = pytest.mark.parametrize("name", TREES)
each_reference = pytest.mark.parametrize("reference", REFERENCES)


def some_frames(model: Model) -> list[Frame]:
    """Links spread over the robot, joints among them, and one of the world if there is any."""
    moving = [f for f in model.frames if f.body >= 0]
    ground = [f for f in model.frames if f.body < 0][:1]
    unique = [f for f in moving if sum(g.name == f.name for g in model.frames) == 1]
    return [unique[i] for i in np.linspace(0, len(unique) - 1, 6).astype(int)] + ground


def pin_frame(t: Twin, frame: Frame) -> int:
    """The number of a frame in Pinocchio."""
    import pinocchio as pin

    kinds = (pin.FrameType.BODY,) if frame.kind == "link" else (pin.FrameType.JOINT, pin.FrameType.FIXED_JOINT)
    return next(t.pin_model.getFrameId(frame.name, k) for k in kinds if t.pin_model.existFrame(frame.name, k))


# -- dynamics ---------------------------------------------------------------------------------------------------------


@each_robot
def test_dynamics_of_published_robots(name):
    pin = pytest.importorskip("pinocchio")
    t = twin(name)
    q, v, a = state(t.model, 0, N)
    forces, M = rb.inverse_dynamics(t.model, q, v, a), rb.mass_matrix(t.model, q)
    effects, accelerations = rb.nonlinear_effects(t.model, q, v), rb.forward_dynamics(t.model, q, v, a)
    for i in range(N):
        pq, pv, pa = t.q(q[i]), t.v(v[i]), t.v(a[i])
        assert error(forces[i], t.vector(pin.rnea(t.pin_model, t.data, pq, pv, pa))) < 1e-12
        assert error(effects[i], t.vector(pin.nonLinearEffects(t.pin_model, t.data, pq, pv))) < 1e-12
        upper = np.triu(pin.crba(t.pin_model, t.data, pq))
        assert error(M[i], t.matrix(upper + np.triu(upper, 1).T)) < 1e-12
        assert error(accelerations[i], t.vector(pin.aba(t.pin_model, t.data, pq, pv, pa))) < 1e-10


@each_tree
def test_dynamics_of_random_trees(name):
    """All joint types, with rotors."""
    model = tree(name)
    q, v, a = state(model, 1, N)
    expected = np.array([dense.inverse_dynamics(model, *x) for x in zip(q, v, a, strict=True)])
    masses = np.array([dense.mass_matrix(model, x) for x in q])
    assert worst(rb.inverse_dynamics(model, q, v, a), expected) < 1e-13
    assert worst(rb.mass_matrix(model, q), masses) < 1e-13
    assert worst(rb.forward_dynamics(model, q, v, expected), a) < 1e-12
    assert worst(forward_dynamics(model, q.T, v.T, expected.T).T, a) < 1e-12
    at_rest = np.array([dense.inverse_dynamics(model, *x, 0 * a[0]) for x in zip(q, v, strict=True)])
    assert worst(rb.nonlinear_effects(model, q, v), at_rest) < 1e-13
    solved = rb.solve_mass_matrix(model, q, a)
    assert worst(np.einsum("nij,nj->ni", masses, solved), a) < 1e-12


@pytest.mark.parametrize("kind", ["revolute", "prismatic", "helical", "spherical", "planar", "floating"])
def test_dynamics_of_chains_of_one_joint_type(kind):
    model = chain(3, kind, rng=2)
    q, v, a = state(model, 3, 1)
    assert error(rb.inverse_dynamics(model, q, v, a)[0], dense.inverse_dynamics(model, q[0], v[0], a[0])) < 1e-13


@each_robot
@each_reference
def test_external_forces(name, reference):
    """A wrench on a frame is the joint force -J' w, with Pinocchio's Jacobian in the same reference."""
    pin = pytest.importorskip("pinocchio")
    t = twin(name)
    q, v, a = state(t.model, 4, N)
    frames = some_frames(t.model)
    wrenches = np.random.default_rng(5).standard_normal((len(frames), N, 6))
    listed = [(f.name, w, reference) for f, w in zip(frames, wrenches, strict=True)]
    with_forces = rb.inverse_dynamics(t.model, q, v, a, listed)
    accelerations = rb.forward_dynamics(t.model, q, v, a, listed)
    for i in range(N):
        pin.computeJointJacobians(t.pin_model, t.data, t.q(q[i]))
        pin.framesForwardKinematics(t.pin_model, t.data, t.q(q[i]))
        axes, pushed = getattr(pin.ReferenceFrame, reference), np.zeros(t.model.nv)
        for frame, w in zip(frames, wrenches[:, i], strict=True):
            pushed += pin.getFrameJacobian(t.pin_model, t.data, pin_frame(t, frame), axes).T @ w
        pq, pv, pa = t.q(q[i]), t.v(v[i]), t.v(a[i])
        assert error(with_forces[i], t.vector(pin.rnea(t.pin_model, t.data, pq, pv, pa) - pushed)) < 1e-12
        assert error(accelerations[i], t.vector(pin.aba(t.pin_model, t.data, pq, pv, pa + pushed))) < 1e-10


def test_many_wrenches_at_one_configuration():
    """Their virtual work, by differences of where the frame is."""
    model = chain(3)
    frame, h, (q, v, a) = model.frames[-1].name, 1e-6, np.random.default_rng(7).standard_normal((3, 3))
    wrenches = np.random.default_rng(8).standard_normal((4, 6)) * [1, 1, 1, 0, 0, 0]
    changed = [
        rb.frame_placement(model, q + h * e, frame)[1] - rb.frame_placement(model, q - h * e, frame)[1]
        for e in np.eye(3)
    ]
    pushed = wrenches[:, :3] @ (np.array(changed).T / (2.0 * h))
    found = rb.inverse_dynamics(model, q, v, a, [(frame, wrenches, "LOCAL_WORLD_ALIGNED")])
    np.testing.assert_allclose(found, rb.inverse_dynamics(model, q, v, a) - pushed, atol=1e-8)


@pytest.mark.parametrize("shape", [(3,), (7,), (6, 1), (2, 2, 6)])
def test_a_wrench_has_six_entries(shape):
    q, v, a = np.zeros((3, 3))
    with pytest.raises(
        ValueError, match=r"the wrench on 'tip' has shape .* expected \(\[force; moment\] = 6,\) or \(N, 6\)"
    ):
        rb.inverse_dynamics(chain(3), q, v, a, [("tip", np.ones(shape), "WORLD")])


def test_one_wrench_in_a_list():
    q, v, a = np.zeros((3, 3))
    with pytest.raises(ValueError, match="a list of"):
        rb.forward_dynamics(chain(3), q, v, a, ("tip", np.ones(6), "WORLD"))


def test_bad_arguments_name_the_remedy():
    model = tree("fixed0")
    q, v, a = state(model, 6, 2)
    with pytest.raises(ValueError, match=r"q has shape \(2, 3\); expected \(nq = "):
        rb.mass_matrix(model, q[:, :3])
    with pytest.raises(ValueError, match=r"batches of different sizes \[2, 3\]"):
        rb.inverse_dynamics(model, q, np.zeros((3, model.nv)), a)
    with pytest.raises(ValueError, match="reference = 'GLOBAL'; known: LOCAL, WORLD, LOCAL_WORLD_ALIGNED"):
        rb.frame_velocity(model, q, v, model.frames[0].name, "GLOBAL")
    with pytest.raises(ValueError, match="reference = 'GLOBAL'"):
        rb.inverse_dynamics(model, q, v, a, [(model.frames[0].name, np.zeros(6), "GLOBAL")])


def test_single_points_and_mixed_batches():
    model = tree("floating1")
    q, v, a = state(model, 7, 3)
    whole = rb.inverse_dynamics(model, q, v, a)
    assert rb.inverse_dynamics(model, q[0], v[0], a[0]).shape == (model.nv,)
    assert error(rb.inverse_dynamics(model, q[0], v[0], a[0]), whole[0]) < 1e-14
    assert error(rb.inverse_dynamics(model, q, v[0], a)[0], whole[0]) < 1e-14
    assert rb.mass_matrix(model, q[0]).shape == (model.nv, model.nv)


# -- kinematics -------------------------------------------------------------------------------------------------------


@each_robot
def test_frame_placements(name):
    pin = pytest.importorskip("pinocchio")
    t = twin(name)
    q = state(t.model, 8, N)[0]
    for frame in some_frames(t.model):
        R, p = rb.frame_placement(t.model, q, frame.name)
        for i in range(N):
            pin.framesForwardKinematics(t.pin_model, t.data, t.q(q[i]))
            expected = t.data.oMf[pin_frame(t, frame)]
            assert np.allclose(R[i], expected.rotation, atol=1e-13)
            assert np.allclose(p[i], expected.translation, atol=1e-13)


@each_robot
@each_reference
def test_frame_velocities_jacobians_and_their_rates(name, reference):
    pin = pytest.importorskip("pinocchio")
    t, axes = twin(name), getattr(pin.ReferenceFrame, reference)
    q, v, _ = state(t.model, 9, N)
    for frame in some_frames(t.model):
        velocity = rb.frame_velocity(t.model, q, v, frame.name, reference)
        J = rb.frame_jacobian(t.model, q, frame.name, reference)
        rate = rb.frame_jacobian_rate(t.model, q, v, frame.name, reference)
        for i in range(N):
            pin.forwardKinematics(t.pin_model, t.data, t.q(q[i]), t.v(v[i]))
            pin.computeJointJacobiansTimeVariation(t.pin_model, t.data, t.q(q[i]), t.v(v[i]))
            pin.updateFramePlacements(t.pin_model, t.data)
            number = pin_frame(t, frame)
            twist = pin.getFrameVelocity(t.pin_model, t.data, number, axes).vector
            assert error(velocity[i], twist, at_least=1e-3) < 1e-12
            assert error(J[i], t.columns(pin.getFrameJacobian(t.pin_model, t.data, number, axes))) < 1e-12
            expected = t.columns(pin.getFrameJacobianTimeVariation(t.pin_model, t.data, number, axes))
            assert error(rate[i], expected, at_least=np.abs(J[i]).max()) < 1e-12, frame.name


@each_tree
@each_reference
def test_jacobian_rates_are_the_derivatives_of_jacobians(name, reference):
    """Along v by complex step; and J v is the velocity."""
    model = with_end_frames(tree(name))
    q, v, _ = state(model, 10, 1)
    for frame in (f.name for f in model.frames if f.kind == "user"):
        index = model.frame_id(frame)

        def jacobian(x, index=index):
            return kinematics.frame_jacobian(model, x[:, None], index, reference)[:, 0].reshape(6, model.nv)

        J = rb.frame_jacobian(model, q, frame, reference)[0]
        rate, expected = rb.frame_jacobian_rate(model, q, v, frame, reference), dense.along(jacobian, model, q[0], v[0])
        assert error(rate[0], expected, at_least=np.abs(J).max()) < 1e-12
        assert error(J @ v[0], rb.frame_velocity(model, q, v, frame, reference)[0]) < 1e-13


def with_end_frames(model: Model) -> Model:
    """The frame is off every body's origin."""
    for b in range(model.nb):
        R = dense.turn_about_z(0.3 + b)[[1, 2, 0]]
        frame = Frame(f"end{b}", b, R, np.array([0.1, -0.2, 0.3]) * (b + 1), "user")
        model = model.replace(frames=(*model.frames, frame))
    return model


@each_tree
def test_frames_of_random_trees(name):
    """Placement and LOCAL velocity, of the dense oracle."""
    model = with_end_frames(tree(name))
    q, v, _ = state(model, 11, 1)
    jacobians = dense.body_jacobians(model, q[0])
    for frame in (f for f in model.frames if f.kind == "user"):
        X, J, _ = jacobians[frame.body]
        local = dense.motion_transform(frame.R, frame.p)
        whole = X @ local
        R, p = rb.frame_placement(model, q, frame.name)
        assert np.allclose(R[0], whole[:3, :3], atol=1e-14)
        assert np.allclose(dense.skew(p[0]) @ R[0], whole[3:, :3], atol=1e-13)
        twist = np.linalg.inv(local) @ J @ v[0]
        expected = np.concatenate([twist[3:], twist[:3]])
        assert error(rb.frame_velocity(model, q, v, frame.name, "LOCAL")[0], expected) < 1e-13


@each_robot
def test_center_of_mass_and_energies(name):
    pin = pytest.importorskip("pinocchio")
    t = twin(name)
    q, v, _ = state(t.model, 12, N)
    center, (kinetic, potential) = rb.center_of_mass(t.model, q), rb.energy(t.model, q, v)
    momentum = rb.spatial_momentum(t.model, q, v)
    for i in range(N):
        pq, pv = t.q(q[i]), t.v(v[i])
        assert np.allclose(center[i], pin.centerOfMass(t.pin_model, t.data, pq), atol=1e-12)
        assert kinetic[i] == pytest.approx(pin.computeKineticEnergy(t.pin_model, t.data, pq, pv), rel=1e-12)
        assert potential[i] == pytest.approx(pin.computePotentialEnergy(t.pin_model, t.data, pq), rel=1e-12)
        pin.computeCentroidalMomentum(t.pin_model, t.data, pq, pv)
        central = t.data.hg
        about_origin = central.angular + np.cross(center[i], central.linear)
        assert error(momentum[i], np.concatenate([central.linear, about_origin])) < 1e-12


@each_tree
def test_energies_and_momentum_of_random_trees(name):
    model = tree(name)
    q, v, _ = state(model, 13, 1)
    assert error(np.concatenate(rb.energy(model, q, v)), np.array(dense.energy(model, q[0], v[0]))) < 1e-13
    angular_first = np.roll(rb.spatial_momentum(model, q, v)[0], 3)
    assert error(angular_first, dense.momentum(model, q[0], v[0])) < 1e-13


ROTATIONS = [  # one for each of Shepperd's four formulas, the identity, and half turns
    *([a * e for e in np.eye(3) for a in (1e-9, 1.0, 2.5, 3.1, -3.1)]),
    np.zeros(3),
    *(np.pi * e for e in np.eye(3)),
    *(2.9 * np.array(axis) / np.linalg.norm(axis) for axis in permutations((0.3, 0.1, -0.9))),
]


@pytest.mark.parametrize("w", ROTATIONS, ids=lambda w: "{:.3g},{:.3g},{:.3g}".format(*w))
def test_rotation_log(w):
    """Also its derivative by complex step: R exp(e) moves the logarithm by dexp^-1 e."""
    R = Rotation.from_rotvec(w).as_matrix()
    log = np.array(kinematics.rotation_log(R[:, :, None]))[:, 0]
    assert np.linalg.norm(log) <= np.pi + 1e-15
    assert np.allclose(Rotation.from_rotvec(log).as_matrix(), R, atol=1e-14)
    if np.linalg.norm(w) < 3.0:
        assert np.allclose(log, w, atol=1e-13)
        to_end = Manifold([SO3]).d_difference(w[None])[1][0]
        for k in range(3):
            turned = R @ (np.eye(3) + dense.STEP * 1j * dense.skew(np.eye(3)[k]))
            slope = np.imag(kinematics.rotation_log(turned[:, :, None]))[:, 0] / dense.STEP
            assert np.allclose(slope, to_end[:, k], atol=1e-12)


# -- far from the origin ----------------------------------------------------------------------------------------------

FLOATING = [name for name in (*FOREIGN, *TREES) if "floating" in (name[:8], FOREIGN.get(name))]
INVARIANT = {  # what the base's position does not change
    "ID": lambda m, q, v, a: rb.inverse_dynamics(m, q, v, a),
    "FD": lambda m, q, v, a: rb.forward_dynamics(m, q, v, a),
    "M": lambda m, q, v, a: rb.mass_matrix(m, q),
    "ID derivatives": lambda m, q, v, a: np.concatenate(rb.inverse_dynamics_derivatives(m, q, v, a), axis=2),
    "FD derivatives": lambda m, q, v, a: np.concatenate(rb.forward_dynamics_derivatives(m, q, v, a), axis=2),
    "kinetic energy": lambda m, q, v, a: rb.energy(m, q, v)[0][:, None],
    "LOCAL velocity": lambda m, q, v, a: rb.frame_velocity(m, q, v, m.frames[-1].name, "LOCAL"),
    "aligned velocity": lambda m, q, v, a: rb.frame_velocity(m, q, v, m.frames[-1].name),
    "LOCAL J": lambda m, q, v, a: rb.frame_jacobian(m, q, m.frames[-1].name, "LOCAL"),
    "aligned J": lambda m, q, v, a: rb.frame_jacobian(m, q, m.frames[-1].name),
    "LOCAL rate": lambda m, q, v, a: rb.frame_jacobian_rate(m, q, v, m.frames[-1].name, "LOCAL"),
    "aligned rate": lambda m, q, v, a: rb.frame_jacobian_rate(m, q, v, m.frames[-1].name),
    "aligned wrench": lambda m, q, v, a: rb.inverse_dynamics(
        m, q, v, a, [(m.frames[-1].name, np.arange(1.0, 7.0), "LOCAL_WORLD_ALIGNED")]
    ),
}


@pytest.mark.parametrize("quantity", INVARIANT)
@pytest.mark.parametrize("name", FLOATING)
def test_a_kilometer_away_no_digit_is_lost(name, quantity):
    model = robot(name)
    q, v, a = state(model, 14, 2)
    q[:, :3] = 0.0
    far = q.copy()
    far[:, 0] = 1000.0
    evaluate = INVARIANT[quantity]
    assert worst(evaluate(model, far, v, a), evaluate(model, q, v, a)) < 1e-12


@pytest.mark.parametrize("name", FLOATING)
def test_positions_a_kilometer_away_shift_with_the_base(name):
    model = robot(name)
    q = state(model, 15, 2)[0]
    q[:, :3] = 0.0
    far = q.copy()
    far[:, :3] = [1000.0, -20.0, 3.0]
    shift = model.placement_R[0] @ [1000.0, -20.0, 3.0]
    assert np.allclose(rb.center_of_mass(model, far) - rb.center_of_mass(model, q), shift, rtol=0, atol=1e-12)
    hanging = [f for f in model.frames if f.body >= 0 and 0 in model.ancestors(f.body)]
    frame = hanging[-1].name
    ends = [rb.frame_placement(model, x, frame)[1] for x in (far, q)]
    assert np.allclose(ends[0] - ends[1], shift, rtol=0, atol=1e-12)


def test_published_robots_are_available():
    assert [foreign(n).nv for n in FOREIGN] == [6, 9, 6, 18, 18, 38]
