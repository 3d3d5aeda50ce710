"""State manifolds: integrate, difference and their derivatives, against matrix exponentials, complex step and Pinocchio."""

import casadi
import numpy as np
import pytest
from dense_dynamics import motion_cross
from rigid_body_cases import FOREIGN, state, tree, twin
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from dynamics_backends.manifold import SE2, SE3, SO2, SO3, LieGroup, Manifold, vector_space
from dynamics_backends.rigid_body.model.state import configuration_manifold, state_manifold

H = 1e-30
GROUPS = {"R3": vector_space(3), "SO2": SO2, "SO3": SO3, "SE2": SE2, "SE3": SE3}
PRODUCT = Manifold([SE3, vector_space(2), SO3, SO2, SE2])
MANIFOLDS = {**{name: Manifold([g]) for name, g in GROUPS.items()}, "product": PRODUCT}
ANGLES = (0.0, 1e-12, 1e-6, 1e-3, 0.5, 1.0, 2.0, 3.0, np.pi - 1e-6)  # of the rotation of a tangent
LAST = {
    "SO3": [3, 4, 5],
    "SE2": [0, 1, 5],
    "SE3": [0, 1, 2, 3, 4, 5],
}  # tangent components of se(3) = [linear; angular]

each_manifold = pytest.mark.parametrize("manifold", MANIFOLDS.values(), ids=MANIFOLDS)
each_group = pytest.mark.parametrize("name", LAST)


def random_states(manifold: Manifold, seed: int, N: int) -> np.ndarray:
    """States (nx, N) with unit quaternions."""
    rng, rows = np.random.default_rng(seed), []
    for g in manifold.groups:
        x = rng.standard_normal((g.nq, N))
        if g.name in ("SO(3)", "SE(3)"):
            x[-4:] /= np.linalg.norm(x[-4:], axis=0)
        rows.append(x)
    return np.concatenate(rows)


def tangents(manifold: Manifold, seed: int) -> np.ndarray:
    """Tangents (ndx, N) whose rotations have the angles of ANGLES, one column each."""
    rng, rows = np.random.default_rng(seed), []
    for g in manifold.groups:
        d = rng.standard_normal((g.nv, len(ANGLES)))
        turn = {"SO(3)": slice(0, 3), "SE(3)": slice(3, 6), "SE(2)": slice(2, 3), "SO(2)": slice(0, 1)}.get(
            g.name, slice(0, 0)
        )
        d[turn] *= np.array(ANGLES) / (np.linalg.norm(d[turn], axis=0) if d[turn].size else 1.0)
        rows.append(d)
    return np.concatenate(rows)


def embedded(name: str, d: np.ndarray) -> np.ndarray:
    """A tangent of the group as (angular; linear)."""
    six = np.zeros(6, dtype=d.dtype)
    six[LAST[name]] = d
    return np.concatenate([six[3:], six[:3]])


def adjoint(name: str, d: np.ndarray) -> np.ndarray:
    """The matrix of ad_d on the tangents of the group."""
    order = [3, 4, 5, 0, 1, 2]
    return motion_cross(embedded(name, d))[np.ix_(order, order)][np.ix_(LAST[name], LAST[name])]


def complex_columns(function, n: int, N: int) -> np.ndarray:
    """Derivatives (N, m, n) of function(i h e_k) in each of n directions."""
    unit = np.eye(n)[:, :, None] * np.ones(N)
    return np.stack([function(1j * H * unit[k]).imag / H for k in range(n)], axis=-1).transpose(1, 0, 2)


@each_manifold
def test_difference_undoes_integrate(manifold):
    x, d = random_states(manifold, 0, len(ANGLES)), tangents(manifold, 1)
    assert np.allclose(manifold.difference(x, manifold.integrate(x, d)), d, rtol=0, atol=1e-9)
    most = slice(0, -1)  # near pi half an angle's cosine is 5e-7, and 1e-16 of it is lost
    assert np.allclose(manifold.difference(x, manifold.integrate(x, d))[:, most], d[:, most], rtol=0, atol=1e-14)


@each_manifold
def test_integrate_undoes_difference(manifold):
    x0, x1 = random_states(manifold, 2, 50), random_states(manifold, 3, 50)
    there = manifold.integrate(x0, manifold.difference(x0, x1))
    assert np.allclose(np.abs(manifold.difference(there, x1)), 0, atol=1e-14)
    iq = 0
    for g in manifold.groups:
        sign = np.sign(np.sum(there[iq : iq + g.nq][-4:] * x1[iq : iq + g.nq][-4:], axis=0)) if "3)" in g.name else 1.0
        part = there[iq : iq + g.nq].copy()
        part[-4:] *= sign
        if "2)" in g.name:  # an angle, up to whole turns
            part[-1] += 2.0 * np.pi * np.round((x1[iq + g.nq - 1] - part[-1]) / (2.0 * np.pi))
        assert np.allclose(part, x1[iq : iq + g.nq], atol=1e-14), g.name
        iq += g.nq


@pytest.mark.parametrize("group", [SO3, SE3])
def test_quaternions_stay_unit_and_have_a_double_cover(group):
    manifold = Manifold([group])
    x0, x1 = random_states(manifold, 4, 50), random_states(manifold, 5, 50)
    other0, other1 = x0.copy(), x1.copy()
    other0[-4:] *= -1
    other1[-4:] *= -1
    d = manifold.difference(x0, x1)
    for a, b in ((x0, other1), (other0, x1), (other0, other1)):
        assert np.allclose(manifold.difference(a, b), d, rtol=0, atol=1e-14)
    assert np.all(np.linalg.norm(d[-3:], axis=0) <= np.pi)
    moved = manifold.integrate(x0, 3.0 * d)
    assert np.allclose(np.linalg.norm(moved[-4:], axis=0), 1, rtol=1e-15)


def test_a_half_turn_has_a_finite_difference():
    half_turn = np.array([[0.6], [0.0], [0.8], [0.0]])
    d = Manifold([SO3]).difference(np.array([[0.0], [0.0], [0.0], [1.0]]), half_turn)
    assert np.allclose(np.abs(d[:, 0]), np.pi * np.array([0.6, 0.0, 0.8]), atol=1e-15)


@pytest.mark.parametrize("turns", [-3, -1, 0, 2])
def test_the_difference_of_angles_takes_the_nearest_turn(turns):
    manifold = Manifold([SO2, vector_space(1)])
    x0, x1 = np.array([[0.5], [1.0]]), np.array([[0.7 + 2.0 * np.pi * turns], [3.0]])
    assert np.allclose(manifold.difference(x0, x1), [[0.2], [2.0]], atol=1e-14)
    assert manifold.integrate(x0, np.array([[7.0], [0.0]]))[0, 0] == 7.5  # turns are counted on the way
    assert manifold.is_flat and not manifold.is_vector_space
    assert Manifold([vector_space(2)]).is_vector_space and not Manifold([SE2]).is_flat


def test_angles_of_a_path_lose_their_jumps():
    manifold = Manifold([vector_space(1), SO2])
    path = np.linspace(3.0, 5.0, 9)
    wrapped = np.column_stack([10.0 * path, np.arctan2(np.sin(path), np.cos(path))])
    start = np.array([0.0, 3.0 - 2.0 * np.pi])
    found = manifold.without_jumps(start, wrapped)
    assert np.allclose(found, np.column_stack([10.0 * path, path - 2.0 * np.pi]), atol=1e-14)
    both = manifold.without_jumps(np.array([start, start + [0.0, 2.0 * np.pi]]), np.array([wrapped, wrapped]))
    assert np.allclose(both, [found, found + [0.0, 2.0 * np.pi]], atol=1e-14)
    a, b = random_states(PRODUCT, 0, 3), random_states(PRODUCT, 1, 3)
    assert np.array_equal(PRODUCT.gap(a, b), PRODUCT.difference(a, b))
    assert np.array_equal(manifold.gap(a[:2], b[:2] + 7.0), b[:2] + 7.0 - a[:2])
    assert Manifold([SO3]).without_jumps(np.zeros(4), xs := np.ones((3, 4))) is xs


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.1, 1.0, 2.5, 3.1, 5.0])
def test_integrate_on_se3_is_the_matrix_exponential(angle):
    rng = np.random.default_rng(6)
    d = rng.standard_normal(6)
    d[3:] *= angle / np.linalg.norm(d[3:])
    twist = np.zeros((4, 4))
    twist[:3, :3], twist[:3, 3] = motion_cross(np.array([*d[3:], 0, 0, 0]))[:3, :3], d[:3]
    x = random_states(Manifold([SE3]), 7, 1)
    start = np.eye(4)
    start[:3, :3], start[:3, 3] = Rotation.from_quat(x[3:, 0]).as_matrix(), x[:3, 0]
    expected = start @ expm(twist)
    moved = Manifold([SE3]).integrate(x, d[:, None])[:, 0]
    assert np.allclose(moved[:3], expected[:3, 3], atol=1e-14)
    assert np.allclose(Rotation.from_quat(moved[3:]).as_matrix(), expected[:3, :3], atol=1e-14)
    turned = Manifold([SO3]).integrate(x[3:], d[3:, None])[:, 0]
    assert np.allclose(turned, moved[3:], atol=1e-15)


def test_se2_is_se3_in_the_plane():
    d, x = tangents(Manifold([SE2]), 8), random_states(Manifold([SE2]), 9, len(ANGLES))
    zero = np.zeros((1, len(ANGLES)))
    lifted = np.concatenate([x[:2], zero, zero, zero, np.sin(x[2:] / 2), np.cos(x[2:] / 2)])
    twist = np.concatenate([d[:2], zero, zero, zero, d[2:]])
    expected, moved = Manifold([SE3]).integrate(lifted, twist), Manifold([SE2]).integrate(x, d)
    assert np.allclose(moved[:2], expected[:2], atol=1e-14)
    assert np.allclose(np.sin(moved[2] / 2), expected[5], atol=1e-14)


@each_group
@pytest.mark.parametrize("angle", ANGLES)
def test_differentials_of_exp_are_series_in_ad(name, angle):
    """exp(-ad) and the integral of exp(-s ad) over [0, 1], both from one matrix exponential."""
    group = Manifold([GROUPS[name]])
    d = tangents(group, 10)[:, [ANGLES.index(angle)]]
    n, A = group.ndx, adjoint(name, d[:, 0])
    whole = expm(np.block([[-A, np.eye(n)], [np.zeros((n, 2 * n))]]))
    transport, dexp = group.d_integrate(d.T)
    assert np.allclose(transport[0], whole[:n, :n], atol=1e-13)
    assert np.allclose(dexp[0], whole[:n, n:], atol=1e-13)
    _, to_end = group.d_difference(d.T)
    assert np.allclose(to_end[0] @ whole[:n, n:], np.eye(n), atol=1e-12)


@each_manifold
def test_jacobians_of_integrate_against_complex_step(manifold):
    d = tangents(manifold, 11)
    N = d.shape[1]
    x = random_states(manifold, 12, N)
    end = manifold.integrate(x, d)
    in_x = complex_columns(
        lambda e: manifold.difference(end, manifold.integrate(manifold.integrate(x, e), d)), len(d), N
    )
    in_d = complex_columns(lambda e: manifold.difference(end, manifold.integrate(x, d + e)), len(d), N)
    transport, dexp = manifold.d_integrate(d.T)
    assert np.allclose(transport, in_x, atol=1e-14) and np.allclose(dexp, in_d, atol=1e-14)


@each_manifold
def test_jacobians_of_difference_against_complex_step(manifold):
    """At half a turn the derivative of the logarithm is finite but its evaluation loses six digits."""
    d = tangents(manifold, 13)
    N = d.shape[1]
    x0 = random_states(manifold, 14, N)
    x1 = manifold.integrate(x0, d)
    in_0 = complex_columns(lambda e: manifold.difference(manifold.integrate(x0, e), x1), len(d), N)
    in_1 = complex_columns(lambda e: manifold.difference(x0, manifold.integrate(x1, e)), len(d), N)
    from_0, from_1 = manifold.d_difference(d.T)
    for actual, expected in ((from_0, in_0), (from_1, in_1)):
        assert np.allclose(actual[:-1], expected[:-1], atol=1e-13)
        assert np.allclose(actual[-1], expected[-1], atol=1e-8)


@each_manifold
def test_products_with_the_differentials_are_generic(manifold):
    """dexp, its inverse and transport along a vector: equal to the matrices, and differentiable themselves."""
    d = tangents(manifold, 15)[:, 4:7]
    e = np.random.default_rng(16).standard_normal(d.shape)
    transport, dexp = manifold.d_integrate(d.T)
    for which, matrix in (("transport", transport), ("dexp", dexp), ("dexp_inv", np.linalg.inv(dexp))):
        function = getattr(manifold, which)
        assert np.allclose(function(d, e), np.einsum("nij,jn->in", matrix, e), atol=1e-13), which
        h = 1e-6
        slope = (function(d + h * e, e) - function(d - h * e, e)) / (2 * h)
        assert np.allclose(np.imag(function(d + 1j * H * e, e)) / H, slope, atol=1e-7), which


@each_manifold
def test_symbols_and_numbers_agree(manifold):
    x0, x1 = random_states(manifold, 17, 1), random_states(manifold, 18, 1)
    a, b, d = (casadi.SX.sym(n, size) for n, size in (("a", len(x0)), ("b", len(x1)), ("d", manifold.ndx)))
    outputs = [manifold.difference(a, b), manifold.integrate(a, d)]
    tangent = manifold.difference(x0, x1)
    difference, integrated = casadi.Function("f", [a, b, d], outputs)(x0, x1, tangent)
    assert np.allclose(np.asarray(difference), tangent, atol=1e-15)
    assert np.allclose(np.asarray(integrated), manifold.integrate(x0, tangent), atol=1e-15)


@pytest.mark.parametrize("name", FOREIGN)
def test_pinocchio_integrates_and_differentiates_alike(name):
    pin = pytest.importorskip("pinocchio")
    t = twin(name)
    manifold = configuration_manifold(t.model)
    q, v, _ = state(t.model, 19, 5)
    q1 = state(t.model, 20, 5)[0]
    moved, gap = manifold.integrate(q.T, v.T).T, manifold.difference(q.T, q1.T)
    in_q, in_v = manifold.d_integrate(v)
    from_0, from_1 = manifold.d_difference(gap.T)
    turns = np.where(np.isinf(t.model.q_upper))[0] if not t.model.floating_base else []
    for i in range(5):
        p, p1 = t.q(q[i]), t.q(q1[i])
        there = t.q(moved[i])
        expected = pin.integrate(t.pin_model, p, t.v(v[i]))
        assert pin.isSameConfiguration(t.pin_model, there, expected, 1e-13)
        for arg, actual in ((pin.ARG0, in_q), (pin.ARG1, in_v)):
            assert np.allclose(actual[i], t.matrix(pin.dIntegrate(t.pin_model, p, t.v(v[i]), arg)), atol=1e-13)
        difference = t.vector(pin.difference(t.pin_model, p, p1))
        wrapped = gap[:, i].copy()
        wrapped[turns] = (wrapped[turns] + np.pi) % (2 * np.pi) - np.pi  # Pinocchio's circles forget whole turns
        assert np.allclose(wrapped, difference, atol=1e-12)
        for arg, actual in ((pin.ARG0, from_0), (pin.ARG1, from_1)):
            assert np.allclose(actual[i], t.matrix(pin.dDifference(t.pin_model, p, p1, arg)), atol=1e-11)


def test_manifolds_of_models():
    model = tree("floating1")
    manifold = state_manifold(model)
    assert (manifold.nx, manifold.ndx) == (model.nq + model.nv, 2 * model.nv) and not manifold.is_vector_space
    assert manifold.tangent_names[0] == "q[base_x]" and manifold.tangent_names[-1] == f"v[{model.dof_names[-1]}]"
    assert np.array_equal(configuration_manifold(model).identity(), model.neutral())
    assert repr(SO3) == "LieGroup('SO(3)': nq = 4, nv = 3)"
    assert Manifold.vector(3).is_vector_space and repr(PRODUCT) == "Manifold(SE(3) x R^2 x SO(3) x SO(2) x SE(2))"
    with pytest.raises(ValueError, match="2 tangent names for 3 tangent components"):
        Manifold.vector(3, ["a", "b"])


@each_manifold
def test_one_state_at_a_time_is_a_column_of_many(manifold):
    x, d = random_states(manifold, 3, len(ANGLES)), tangents(manifold, 4)
    moved = manifold.integrate(x, d)
    back = manifold.difference(x, moved)
    for k in range(len(ANGLES)):
        np.testing.assert_allclose(manifold.integrate(x[:, k], d[:, k]), moved[:, k], rtol=0.0, atol=1e-14)
        np.testing.assert_allclose(manifold.difference(x[:, k], moved[:, k]), back[:, k], rtol=0.0, atol=1e-13)


def test_other_groups_are_refused():
    doubled = LieGroup("doubled", 1, 1, lambda q, d: [q[0] + 2.0 * d[0]], lambda a, b: [0.5 * (b[0] - a[0])], (0.0,))
    for group in (doubled, 3):
        with pytest.raises(TypeError, match=r"expected vector_space\(n\), SO2, SO3, SE2 or SE3"):
            Manifold([SO3, group])
