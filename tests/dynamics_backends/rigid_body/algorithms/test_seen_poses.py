"""Poses as independent variables: derivatives, compared with CasADi's through the whole recursion."""

import casadi as ca
import numpy as np
import pytest

import trajopt as to
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.algorithms.seen_poses import watching


def residual(model, q):
    """Functions of two frames and a joint: positions, a distance, a logarithm, entries of a Jacobian."""
    a, b = (kinematics.frame_position(model, q, model.frames[i].name) for i in (-1, len(model.frames) // 2))
    R = kinematics.frame_rotation(model, q, model.frames[-1].name)
    J = kinematics.frame_jacobian(model, q, model.frames[-1].name)
    apart = [a[i] - b[i] for i in range(3)]
    log = kinematics.rotation_log(R)
    return ca.vertcat(*(a[i] for i in range(3)), *apart, *log, a[0] * q[1], J[1], J[3 * model.nv])


@pytest.mark.parametrize("joints", [("revolute",), ("prismatic",), ("revolute", "prismatic", "helical")], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_derivatives_are_those_of_the_recursion(joints, seed):
    model = to.random_tree(seed, 6, joints)
    q, w = ca.SX.sym("q", model.nq), np.random.default_rng(seed).standard_normal(12)
    plain = residual(model, q)
    value = 0.5 * ca.dot(w, plain * plain)
    with watching(q) as seen:
        r = residual(model, q)
    n, both = model.nq, ca.vertcat(q, seen.xi)
    through = ca.vertcat(ca.SX.eye(n), seen.jacobian(n))
    first = ca.jacobian(r, both)
    own = ca.hessian(0.5 * ca.dot(w, r * r), both)[0]
    H = ca.mtimes(through.T, ca.mtimes(own, through)) + seen.curvature(ca.mtimes(first[:, n:].T, w * r), n)
    found = ca.Function("found", [q], seen.at_q([r, ca.mtimes(first, through), H]))
    expected = ca.Function("expected", [q], [plain, ca.jacobian(plain, q), ca.hessian(value, q)[0]])
    at = 0.7 * np.random.default_rng(seed + 10).standard_normal(n)
    for a, e in zip(found(at), expected(at), strict=True):
        np.testing.assert_allclose(np.array(a), np.array(e), rtol=1e-9, atol=1e-9 * np.abs(np.array(e)).max())


def test_functions_of_more_than_the_state_are_traced_unchanged():
    """Kinematics at other postures, and of robots whose joints have several degrees of freedom."""
    model, q = to.random_tree(0, 3, ("revolute",)), ca.SX.sym("q", 3)
    with watching(q) as seen:
        kinematics.frame_position(model, 2.0 * q, model.frames[-1].name)
        assert not seen.poses
        kinematics.frame_position(model, q, model.frames[-1].name)
        assert len(seen.poses) == 1
    ball = to.random_tree(0, 2, ("spherical",))
    x = ca.SX.sym("x", ball.nq)
    with watching(x) as seen:
        kinematics.frame_position(ball, x, ball.frames[-1].name)
    assert not seen.poses


def test_poses_are_variables_only_inside_the_context():
    model, q = to.random_tree(1, 3, ("revolute",)), ca.SX.sym("q", 3)
    with watching(q):
        pass
    names = {symbol.name() for symbol in ca.symvar(kinematics.frame_position(model, q, model.frames[-1].name))}
    assert names <= {"q_0", "q_1", "q_2"}
