"""Spatial algebra against dense 6 x 6 matrices, and poses perturbed by twists against the chain rule over components."""

import casadi
import numpy as np
import pytest
from dense_dynamics import force_cross, motion_cross, motion_transform, skew, spatial_inertia
from scipy.spatial.transform import Rotation

from dynamics_backends.rigid_body.spatial import spatial as sp
from dynamics_backends.rigid_body.spatial.perturbed_transform import PerturbedTransform
from dynamics_backends.scalars.dual import Dual

N, K = 5, 3


class Sample:
    """Random operands: structs with components (N,), and for each element the equivalent dense matrix."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.R = Rotation.random(N, random_state=seed).as_matrix()
        self.p, self.com, self.mass = rng.standard_normal((N, 3)), rng.standard_normal((N, 3)), rng.uniform(1, 2, N)
        root = rng.standard_normal((N, 3, 3))
        self.central = root @ root.transpose(0, 2, 1)
        self.m1, self.m2, self.f1, self.f2 = rng.standard_normal((4, N, 6))
        self.dense_inertia = np.array(
            [spatial_inertia(*x) for x in zip(self.mass, self.com, self.central, strict=True)]
        )
        self.dense_X = np.array([motion_transform(*x) for x in zip(self.R, self.p, strict=True)])

    @property
    def X(self) -> sp.Transform:
        return sp.Transform(sp.Mat(*(vec(self.R[:, :, i]) for i in range(3))), vec(self.p))

    @property
    def inertia(self) -> sp.Inertia:
        return sp.Inertia(self.mass, vec(self.mass[:, None] * self.com), sym(self.dense_inertia[:, :3, :3]))


def vec(a) -> sp.Vec:
    return sp.Vec(*np.moveaxis(np.asarray(a), -1, 0))


def sym(A) -> sp.Sym:
    return sp.Sym(*(A[..., i, j] for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))))


def mat(A) -> sp.Mat:
    return sp.Mat(*(vec(A[..., :, i]) for i in range(3)))


def motion(m) -> sp.Motion:
    return sp.Motion(vec(m[:, :3]), vec(m[:, 3:]))


def force(f) -> sp.Force:
    return sp.Force(vec(f[:, :3]), vec(f[:, 3:]))


def general(A) -> sp.ArticulatedInertia:
    return sp.ArticulatedInertia(sym(A[:, :3, :3]), mat(A[:, :3, 3:]), sym(A[:, 3:, 3:]))


def numbers(x) -> np.ndarray:
    """The components of a struct, (N, size)."""
    return np.stack(np.broadcast_arrays(*sp.leaves(x)), axis=-1)


def dense_general(a: sp.ArticulatedInertia) -> np.ndarray:
    """The matrices (N, 6, 6)."""
    J, H, M = (numbers(x.full() if isinstance(x, sp.Sym) else x).reshape(-1, 3, 3) for x in (a.J, a.H, a.M))
    return np.block([[J, H.transpose(0, 2, 1)], [H, M.transpose(0, 2, 1)]])  # numbers of a Mat come column by column


def times(A, x) -> np.ndarray:
    return np.einsum("nij,nj->ni", A, x)


def inverse_transpose(X) -> np.ndarray:
    return np.linalg.inv(X).transpose(0, 2, 1)


def each(function, *arrays) -> np.ndarray:
    return np.array([function(*x) for x in zip(*arrays, strict=True)])


CASES = {
    "v x m": lambda s: (motion(s.m1).cross(motion(s.m2)), times(each(motion_cross, s.m1), s.m2)),
    "v x* f": lambda s: (motion(s.m1).cross_force(force(s.f1)), times(each(force_cross, s.m1), s.f1)),
    "m . f": lambda s: (motion(s.m1).dot(force(s.f1)), np.sum(s.m1 * s.f1, axis=1)[:, None]),
    "m + n": lambda s: (motion(s.m1) + motion(s.m2), s.m1 + s.m2),
    "f - g": lambda s: (force(s.f1) - force(s.f2), s.f1 - s.f2),
    "-f s": lambda s: (-force(s.f1) * s.mass, -s.f1 * s.mass[:, None]),
    "I v": lambda s: (s.inertia * motion(s.m1), times(s.dense_inertia, s.m1)),
    "X m": lambda s: (s.X.to_parent(motion(s.m1)), times(s.dense_X, s.m1)),
    "X^-1 m": lambda s: (s.X.to_child(motion(s.m1)), times(np.linalg.inv(s.dense_X), s.m1)),
    "X* f": lambda s: (s.X.force_to_parent(force(s.f1)), times(inverse_transpose(s.dense_X), s.f1)),
    "X' f": lambda s: (s.X.force_to_child(force(s.f1)), times(s.dense_X.transpose(0, 2, 1), s.f1)),
    "X p": lambda s: (s.X.point(vec(s.com)), times(s.R, s.com) + s.p),
    "R' v": lambda s: (mat(s.R).transpose_times(vec(s.p)), times(s.R.transpose(0, 2, 1), s.p)),
    "a b'": lambda s: (vec(s.p).outer(vec(s.com)), (s.com[:, :, None] * s.p[:, None, :]).reshape(N, 9)),
    "R A R'": lambda s: (sym(s.central).turned(mat(s.R)), numbers(sym(s.R @ s.central @ s.R.transpose(0, 2, 1)))),
    "A + A'": lambda s: ((mat(s.R) + mat(s.R).transpose()).symmetric(), numbers(sym(s.R + s.R.transpose(0, 2, 1)))),
    "Y v": lambda s: (general(s.dense_inertia) * motion(s.m1), times(s.dense_inertia, s.m1)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_operations(case):
    actual, expected = case(Sample(0))
    assert np.allclose(numbers(actual), expected, rtol=0, atol=1e-13)


def dense_coriolis(inertia, v) -> np.ndarray:
    """v x* I - I v x + (I v) xbar*, with f xbar* m = m x* f."""
    n, f = skew((inertia @ v)[:3]), skew((inertia @ v)[3:])
    swapped = np.block([[-n, -f], [-f, np.zeros((3, 3))]])
    return force_cross(v) @ inertia - inertia @ motion_cross(v) + swapped


def test_the_body_coriolis_matrix_has_a_zero_right_half():
    s = Sample(1)
    dense = each(dense_coriolis, s.dense_inertia, s.m1)
    assert np.allclose(dense[:, :, 3:], 0, atol=1e-13)
    B = sp.coriolis(s.inertia, motion(s.m1), (s.inertia * motion(s.m1)).f)
    assert np.allclose(numbers(B * motion(s.m2)), times(dense, s.m2), atol=1e-12)
    transposed = times(dense.transpose(0, 2, 1), s.m2)
    assert np.allclose(numbers(B.transpose_times(motion(s.m2))), transposed[:, :3], atol=1e-12)
    halved = times(dense, s.m1) / 2
    gyroscopic = times(each(force_cross, s.m1), times(s.dense_inertia, s.m1))
    assert np.allclose(halved, gyroscopic, atol=1e-12)


def test_inertias_change_frames():
    s = Sample(2)
    moved = s.X.inertia_to_parent(s.mass, vec(s.com), sym(s.central))
    dense = inverse_transpose(s.dense_X) @ s.dense_inertia @ np.linalg.inv(s.dense_X)
    assert np.allclose(dense_general(sp.articulated(moved)), dense, atol=1e-12)


def random_general(rng: np.random.Generator) -> np.ndarray:
    root = rng.standard_normal((N, 6, 6))
    return root @ root.transpose(0, 2, 1)


def test_articulated_inertias():
    s = Sample(3)
    dense = random_general(s.rng)
    A = general(dense)
    assert np.allclose(dense_general(A), dense)
    for axis in range(6):
        assert np.allclose(numbers(A.column(axis)), dense[:, :, axis], atol=0)
    moved = inverse_transpose(s.dense_X) @ dense @ np.linalg.inv(s.dense_X)
    assert np.allclose(dense_general(s.X.articulated_to_parent(A)), moved, atol=1e-11)
    less = dense - s.f1[:, :, None] * s.f1[:, None, :] * s.mass[:, None, None]
    assert np.allclose(dense_general(A.minus_outer(force(s.f1) * s.mass, force(s.f1))), less, atol=1e-12)
    assert np.allclose(dense_general(sp.articulated(s.inertia)), s.dense_inertia, atol=1e-14)


def test_transforms_compose():
    a, b = Sample(4), Sample(5)
    composed = a.X @ b.X
    assert np.allclose(numbers(composed.to_parent(motion(a.m1))), times(a.dense_X @ b.dense_X, a.m1), atol=1e-13)


def test_point_inertia_and_rotation_of_quaternion():
    s = Sample(6)
    h = vec(s.mass[:, None] * s.com)
    expected = each(lambda m, c: m * skew(c) @ skew(c).T, s.mass, s.com)
    assert np.allclose(numbers(sp.point_inertia(vec(s.com), h)), numbers(sym(expected)), atol=1e-13)
    quaternions = Rotation.from_matrix(s.R).as_quat()
    R = sp.rotation_of_quaternion(*quaternions.T)
    assert np.allclose(numbers(R).reshape(N, 3, 3).transpose(0, 2, 1), s.R, atol=1e-14)


def test_structs_pack_and_unpack():
    s = Sample(7)
    for x in (s.X, s.inertia, motion(s.m1), general(s.dense_inertia)):
        assert sp.size(type(x)) == len(sp.leaves(x))
        assert np.array_equal(numbers(sp.build(type(x), iter(sp.leaves(x)))), numbers(x))
    assert "Motion(Vec(" in repr(motion(s.m1))


def test_operations_on_symbols():
    s = Sample(8)
    symbols = casadi.SX.sym("x", 12)
    m, f = (sp.build(kind, iter([symbols[i + k] for i in range(6)])) for kind, k in ((sp.Motion, 0), (sp.Force, 6)))
    f_out = casadi.Function("f", [symbols], [casadi.vertcat(*sp.leaves(m.cross_force(f)))])
    expected = force_cross(s.m1[0]) @ s.f1[0]
    assert np.allclose(np.asarray(f_out(np.concatenate([s.m1[0], s.f1[0]])))[:, 0], expected, atol=1e-14)


# -- poses perturbed by twists ----------------------------------------------------------------------------------------


def perturbed(s: Sample, seed: int) -> PerturbedTransform:
    twist = np.random.default_rng(seed).standard_normal((6, N, K))
    return PerturbedTransform(s.X.R, s.X.p, sp.Motion(sp.Vec(*twist[:3]), sp.Vec(*twist[3:])))


def with_tangents(x, seed: int):
    """A struct of dual components."""
    rng = np.random.default_rng(seed)
    return sp.build(type(x), iter([Dual(leaf, rng.standard_normal((N, K))) for leaf in sp.leaves(x)]))


BOTH = {  # operations that a pose and a perturbed pose have in common
    "compose": lambda X, s: (X @ s.X).components(),
    "composed": lambda X, s: (s.X @ X).components(),
    "point": lambda X, s: X.point(with_tangents(vec(s.com), 1)),
    "constant point": lambda X, s: X.point(vec(s.com)),
    "to_parent": lambda X, s: X.to_parent(with_tangents(motion(s.m1), 2)),
    "constant to_parent": lambda X, s: X.to_parent(motion(s.m1)),
    "to_child": lambda X, s: X.to_child(with_tangents(motion(s.m1), 3)),
    "force_to_parent": lambda X, s: X.force_to_parent(with_tangents(force(s.f1), 4)),
    "force_to_child": lambda X, s: X.force_to_child(with_tangents(force(s.f1), 5)),
    "inertia": lambda X, s: sp.articulated(X.inertia_to_parent(s.mass, vec(s.com), sym(s.central))),
    "articulated": lambda X, s: X.articulated_to_parent(
        with_tangents(general(random_general(np.random.default_rng(6))), 7)
    ),
}


@pytest.mark.parametrize("operation", BOTH.values(), ids=BOTH)
def test_twists_give_the_tangents_of_components(operation):
    s = Sample(9)
    X = perturbed(s, 10)
    for actual, expected in zip(sp.leaves(operation(X, s)), sp.leaves(operation(X.components(), s)), strict=True):
        if not isinstance(expected, Dual):  # a mass
            assert np.array_equal(actual, expected)
            continue
        assert np.allclose(actual.val, expected.val, atol=1e-12)
        assert np.allclose(actual.tan, expected.tan, atol=1e-11)


def test_components_of_a_perturbed_pose_are_those_of_an_exponential():
    s = Sample(11)
    X, h = perturbed(s, 12), 1e-6
    twist = numbers(sp.Motion(*(sp.Vec(*(c[:, 1] for c in (v.x, v.y, v.z))) for v in (X.twist.w, X.twist.l))))
    ends = [
        (s.R @ Rotation.from_rotvec(d * twist[:, :3]).as_matrix(), s.p + d * times(s.R, twist[:, 3:])) for d in (h, -h)
    ]
    turned = (ends[0][0] - ends[1][0]).transpose(0, 2, 1).reshape(N, 9) / (2 * h)
    tangents = np.stack([leaf.tan[:, 1] for leaf in sp.leaves(X.components())], axis=-1)
    assert np.allclose(tangents[:, :9], turned, atol=1e-8)
    assert np.allclose(tangents[:, 9:], (ends[0][1] - ends[1][1]) / (2 * h), atol=1e-8)
