"""Second-order tensors of inverse and forward dynamics: against independent formulas, identities, and each other."""

from functools import cache, partial

import dense_dynamics as dense
import numpy as np
import pytest
from rigid_body_cases import error, foreign, state

from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.rnea import nonlinear_effects, rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.fd_second_order import fd_second_order
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_second_order import rnea_contracted_hessian
from dynamics_backends.rigid_body.model.model import JOINT_TYPES
from dynamics_backends.rigid_body.model.sample_models import random_tree
from dynamics_backends.rigid_body.model.state import configuration_manifold
from experiments.baselines import second_order_references as references
from experiments.baselines.fd_tensors import fd_tensors
from experiments.baselines.rnea_tensors import rnea_tensors
from problems.robots import load_robot

H = 1e-30
TREES = [f"tree {seed}" for seed in range(6)]  # of all joint types; the odd ones float
VECTOR_TREES = [f"vectors {seed}" for seed in range(3)]  # of joints with one degree of freedom
ROBOTS = ["iiwa7", "gen3", "hyq", "ur5", "talos"]
each_model = pytest.mark.parametrize("name", [*TREES, "tree of 30", *ROBOTS])
each_tree = pytest.mark.parametrize("name", TREES)
each_vector_tree = pytest.mark.parametrize("name", VECTOR_TREES)


@cache
def model_of(name):
    kind, _, number = name.partition(" ")
    if name in ("ur5", "talos"):
        return foreign(name)
    if name in ROBOTS:
        return load_robot(name)
    if kind == "vectors":
        model = random_tree(int(number), 7, joints=("revolute", "prismatic", "helical"))
    elif name == "tree of 30":
        model = random_tree(11, 30, floating_base=True)
    else:
        bodies = 3 if kind == "small" else 7
        model = random_tree(int(number), bodies, floating_base=bool(int(number) % 2))
    return model.replace(armature=np.linspace(0.0, 0.3, model.nv))


def point(name, N=1):
    """The model and rows q, v, a."""
    model = model_of(name)
    return model, *(x.T for x in state(model, 3, N))


def along(model, q, v, x, directions):
    """Rows (n, K) perturbed by an imaginary step along each of K directions (3 nv, K)."""
    dq, dv, dx = np.split(1j * H * directions, 3)
    return configuration_manifold(model).integrate(q + 0.0 * dq[:1], dq), v + dv, x + dx


def assert_derivatives(actual, first, model, q, v, x, tolerance):
    """qq, vv, qv and the derivative of the matrix in the input, against complex steps of the first derivatives along some c."""
    n = model.nv
    some = np.random.default_rng(6).permutation(n)[:12]
    qq, vv, qv, x_q = (np.asarray(T) for T in actual)
    in_q = first(model, *along(model, q, v, x, np.eye(3 * n)[:, some]))[1:4]
    in_v = first(model, *along(model, q, v, x, np.eye(3 * n)[:, n + some])).dv
    dq, dv, dx, bend = (np.asarray(m).imag / H for m in (*in_q, in_v))
    for k, c in enumerate(some):
        pairs = ((qq[:, :, c], dq), (qv[:, c], dv), (x_q[:, :, c], dx), (vv[:, :, c], bend))
        for ours, expected in pairs:
            assert error(ours[..., 0], expected[..., k], 0.1 * np.abs(qq).max()) < tolerance


def test_the_trees_hold_every_joint_type():
    assert {kind for name in TREES for kind in model_of(name).joint_types} == set(JOINT_TYPES)


# -- inverse dynamics ---------------------------------------------------------------------------------------------------


@each_model
def test_inverse_dynamics_against_complex_steps_of_the_first_derivatives(name):
    model, q, v, a = point(name)
    assert_derivatives(rnea_tensors(model, q, v, a), rnea_derivatives, model, q, v, a, 1e-11)


@each_tree
def test_inverse_dynamics_against_dense_matrices(name):
    """The second derivative along two random directions by Cauchy's integral over two circles in the complex plane."""
    model, q, v, a = point(name)
    n, M, radius = model.nv, 12, 0.05
    b, c = (x / np.linalg.norm(x) for x in np.random.default_rng(4).standard_normal((2, 3 * n)))
    turns = np.exp(2j * np.pi * np.arange(M) / M)
    total = np.zeros(n)
    for s in turns:
        for t in turns:
            first, then = radius * s * c, radius * t * b
            at = dense.moved(model, dense.moved(model, q[:, 0], first[:n]), then[:n])
            step = first + then
            values = dense.inverse_dynamics(model, at, v[:, 0] + step[n : 2 * n], a[:, 0] + step[2 * n :])
            total = total + (values / (s * t)).real
    T = rnea_tensors(model, q, v, a)
    (bq, bv, ba), (cq, cv, ca) = np.split(b, 3), np.split(c, 3)

    def bilinear(tensor, x, y):
        return np.einsum("ibcn,b,c->i", tensor, x, y)

    ours = bilinear(T.qq, bq, cq) + bilinear(T.vv, bv, cv) + bilinear(T.qv, bq, cv) + bilinear(T.qv, cq, bv)
    ours += bilinear(T.M_q, ba, cq) + bilinear(T.M_q, ca, bq)
    assert error(ours, total / (M * radius) ** 2) < 1e-11


@each_model
def test_contraction_of_inverse_dynamics_is_that_of_its_tensors(name):
    model, q, v, a = point(name)
    mu = np.random.default_rng(1).standard_normal(a.shape)
    T, G = rnea_tensors(model, q, v, a), rnea_contracted_hessian(model, q, v, a, mu)
    qq, vv, qv, M_q = (np.einsum("in,ibcn->bcn", mu, tensor) for tensor in T)
    for contracted, expected in ((G.qq, qq), (G.vv, vv), (G.qv, qv), (G.qa, np.swapaxes(M_q, 0, 1))):
        assert error(contracted, expected, 1e-9) < 1e-12


@each_tree
def test_entries_vanish_unless_the_three_joints_lie_on_one_path(name):
    model, q, v, a = point(name)
    paths = [set(model.ancestors(b)) for b in range(model.nb)]
    together = np.array([[any({i, j} <= p for p in paths) for j in range(model.nv)] for i in range(model.nv)])
    all_three = together[:, :, None] & together[:, None, :] & together[None]
    for tensor in rnea_tensors(model, q, v, a):
        assert not tensor[~all_three].any()


# -- identities ---------------------------------------------------------------------------------------------------------


@each_vector_tree
def test_second_derivatives_in_v_are_twice_the_christoffel_symbols(name):
    T = rnea_tensors(*point(name))
    assert error(T.vv, T.M_q + np.swapaxes(T.M_q, 1, 2) - np.moveaxis(T.M_q, 2, 0)) < 1e-12


@each_tree
def test_a_quadratic_form_in_the_velocities_is_rebuilt_from_its_derivatives(name):
    model, q, v, a = point(name)
    T, D = rnea_tensors(model, q, v, a), rnea_derivatives(model, q, v, a)
    assert error(np.einsum("abcn,cn->abn", T.vv, v), D.dv) < 1e-12
    weight = nonlinear_effects(model.replace(gravity=np.zeros(3)), q, v)
    assert error(0.5 * np.einsum("abcn,bn,cn->an", T.vv, v, v), weight) < 1e-12


@each_tree
def test_mixed_derivatives_times_the_velocities_are_the_slope_of_the_coriolis_forces(name):
    model, q, v, a = point(name)
    T, free = rnea_tensors(model, q, v, a), model.replace(gravity=np.zeros(3))
    assert error(0.5 * np.einsum("abcn,cn->abn", T.qv, v), rnea_derivatives(free, q, v, 0.0 * a).dq) < 1e-12
    assert not rnea_tensors(model, q, 0.0 * v, a).qv.any()


@each_tree
def test_slope_of_the_mass_matrix_times_the_accelerations(name):
    model, q, v, a = point(name)
    T, free = rnea_tensors(model, q, v, a), model.replace(gravity=np.zeros(3))
    expected = rnea_derivatives(free, q, 0.0 * v, a).dq
    assert error(np.einsum("abcn,bn->acn", T.M_q, a), expected) < 1e-12
    assert error(T.M_q, np.swapaxes(T.M_q, 0, 1)) < 1e-14


@each_vector_tree
def test_second_derivatives_in_q_are_symmetric_for_single_degrees_of_freedom(name):
    T = rnea_tensors(*point(name))
    assert error(T.qq, np.swapaxes(T.qq, 1, 2)) < 1e-13


def test_lie_derivatives_within_a_joint_do_not_commute():
    """d_z d_y - d_y d_z is the derivative along the bracket [z, y] = -x of rotations about the axes of the base."""
    model, q, v, a = point("hyq")
    T, D = rnea_tensors(model, q, v, a), rnea_derivatives(model, q, v, a)
    x, y, z = 3, 4, 5
    assert np.abs(D.dq[:, x]).max() > 0.1
    assert error(T.qq[:, y, z] - T.qq[:, z, y], -D.dq[:, x]) < 1e-12


# -- forward dynamics ---------------------------------------------------------------------------------------------------


@each_model
def test_forward_dynamics_against_complex_steps_of_the_first_derivatives(name):
    model, q, v, tau = point(name)
    T = fd_tensors(model, q, v, tau)
    for ours, alone in zip(T[:4], fd_derivatives(model, q, v, tau), strict=True):
        assert error(ours, alone) < 1e-13
    qq, vv, qv, qtau = (np.asarray(t) for t in T[4:])
    assert_derivatives((qq, vv, qv, np.swapaxes(qtau, 1, 2)), fd_derivatives, model, q, v, tau, 1e-11)


@each_model
def test_contraction_of_forward_dynamics_is_that_of_its_tensors(name):
    model, q, v, tau = point(name)
    lam = np.random.default_rng(1).standard_normal(tau.shape)
    T, L = fd_tensors(model, q, v, tau), fd_second_order(model, q, v, tau, lam)
    qq, vv, qv, qtau = (np.einsum("in,ibcn->bcn", lam, np.asarray(tensor)) for tensor in T[4:])
    for contracted, expected in ((L.qq, qq), (L.vv, vv), (L.qv, qv), (L.qtau, qtau)):
        assert error(contracted, expected) < 1e-11


# -- references ---------------------------------------------------------------------------------------------------------

METHODS = {
    "bicomplex": (references.bicomplex, 1e-11),
    "hyper_dual": (references.hyper_dual, 1e-11),
    "chain_rule": (references.chain_rule, 1e-11),
    "differences of values": (references.differences_of_values, 1e-5),
}
RECURSIONS = {"rnea": rnea, "aba": aba}


@cache
def closed_form(recursion, name):
    model, q, v, x = point(name)
    if recursion == "rnea":
        qq, vv, qv, M_q = rnea_tensors(model, q, v, x)
        return references.SecondDerivatives(qq, vv, qv, np.swapaxes(M_q, 1, 2))
    return references.SecondDerivatives(*map(np.asarray, fd_tensors(model, q, v, x)[4:]))


@pytest.mark.parametrize("recursion", RECURSIONS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["small 0", "small 1"])
def test_references_agree_with_the_closed_forms(recursion, method, name):
    model, q, v, x = point(name)
    function, tolerance = METHODS[method]
    found = function(model, partial(RECURSIONS[recursion], model), q, v, x)
    for actual, expected in zip(found, closed_form(recursion, name), strict=True):
        assert error(actual, expected) < tolerance


@pytest.mark.parametrize(("recursion", "first"), [("rnea", rnea_derivatives), ("aba", fd_derivatives)])
@each_tree
def test_differences_of_first_derivatives_agree_with_the_closed_forms(recursion, first, name):
    model, q, v, x = point(name)
    found = references.differences_of_first_order(model, lambda *z: first(model, *z)[1:], q, v, x)
    for actual, expected in zip(found, closed_form(recursion, name), strict=True):
        assert error(actual, expected) < 1e-7


@each_tree
def test_products_by_recursions_give_the_tensors_of_forward_dynamics(name):
    model, q, v, tau = point(name, 2)
    found = references.fd_tensors_by_recursions(model, q, v, tau)
    for actual, expected in zip(found, fd_tensors(model, q, v, tau), strict=True):
        assert error(actual, np.asarray(expected)) < 1e-11


@each_tree
def test_recursions_multiply_by_the_inverse_mass_matrix_and_by_its_slope(name):
    model, q, _, a = point(name)
    M = dense.mass_matrix(model, q[:, 0])
    assert error(references.inverse_mass_times(model, q, a)[:, 0], np.linalg.solve(M, a[:, 0])) < 1e-10
    slope = dense.configuration_derivative(lambda at: dense.mass_matrix(model, at) @ a[:, 0], model, q[:, 0])
    assert error(references.mass_slope_times(model, q, a)[..., 0], slope) < 1e-11


@each_tree
def test_the_double_loop_gives_the_tensors_of_inverse_dynamics(name):
    for actual, expected in zip(
        references.rnea_tensors_double_loop(*point(name)), rnea_tensors(*point(name)), strict=True
    ):
        assert error(actual, expected) < 1e-13
