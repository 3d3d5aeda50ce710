"""First derivatives: every method on every map of every robot, against the analytic ones, Pinocchio and explicit formulas."""

from __future__ import annotations

from functools import cache

import dense_dynamics as dense
import numpy as np
import pytest
from rigid_body_cases import FOREIGN, TREES, error, robot, state, tree, twin, worst

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.derivative_check import Points, first_order
from dynamics_backends.manifold import SE3, Manifold, vector_space
from dynamics_backends.protocol import FunctionMap, Jacobians
from dynamics_backends.registry import backend_names, make_backend
from dynamics_backends.rigid_body import batched as rb
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.sample_models import chain, random_tree
from dynamics_backends.systems.bodies import rigid_body_map as quantities
from dynamics_backends.systems.bodies.free_body import FreeBody

N = 2
MAPS = {  # name -> map of a model, tolerance between exact methods (1e-10 where M is inverted)
    "ID": (quantities.InverseDynamics, 1e-12),
    "FD": (quantities.ForwardDynamics, 1e-10),
    "nonlinear effects": (quantities.NonlinearEffects, 1e-12),
    "M": (quantities.MassMatrix, 1e-12),
    "frame": (lambda m: quantities.FrameMotion(m, last_moving_frame(m)), 1e-12),
    "actuated ID": (quantities.ActuatedInverseDynamics, 1e-10),
    "free body": (lambda m: FreeBody(m, friction_velocity=0.1), 1e-10),
}
EXACT = ("structured_ad", "forward_ad", "complex_step")
DIFFERENCES = {"central_difference": 1e-7, "forward_difference": 1e-5}
ROBOTS = (*FOREIGN, *TREES)
each_map = pytest.mark.parametrize("which", MAPS)
each_robot = pytest.mark.parametrize("name", ROBOTS)


def last_moving_frame(model: Model) -> str:
    """The frame of the body that hangs from the most joints."""
    b = int(np.argmax(model.depth))
    return next(f.name for f in model.frames if f.body == b)


def arguments(map, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x (N, nx) and u (N, nu) of unit variance, joints within their limits."""
    q, v, _ = state(map.model, seed, N)
    return np.concatenate([q, v], axis=1), np.random.default_rng(seed + 1).standard_normal((N, map.nu))


@cache
def analytic(which: str, name: str) -> Jacobians:
    map = MAPS[which][0](robot(name))
    return make_backend(map, "analytic").jacobians(*arguments(map, 0))


def blocks(map, j: Jacobians) -> dict[str, np.ndarray]:
    """The derivatives in q, v and u; of a system those of the accelerations, for the other rows are trivial."""
    nv = map.model.nv
    first = nv if getattr(map, "second_order", False) else 0
    return {"q": j.fx[:, first:, :nv], "v": j.fx[:, first:, nv:], "u": j.fu[:, first:]}


def compare(which: str, name: str, method: str, tolerance: float) -> None:
    map = MAPS[which][0](robot(name))
    actual, expected = make_backend(map, method).jacobians(*arguments(map, 0)), analytic(which, name)
    exact = blocks(map, expected)
    for block, computed in blocks(map, actual).items():
        assert worst(computed, exact[block]) < tolerance, block
    assert worst(actual.value, expected.value) < MAPS[which][1]


@each_map
@each_robot
@pytest.mark.parametrize("method", EXACT)
def test_exact_methods_agree(which, name, method):
    compare(which, name, method, MAPS[which][1])


@each_map
@each_robot
@pytest.mark.parametrize("method", DIFFERENCES)
def test_differences_approximate(which, name, method):
    compare(which, name, method, DIFFERENCES[method])


@each_map
@each_robot
def test_values_of_analytic_derivatives_are_those_of_the_map(which, name):
    map = MAPS[which][0](robot(name))
    backend = make_backend(map, "analytic")
    x, u = arguments(map, 0)
    j = analytic(which, name)
    assert worst(j.value, backend.f(x, u)) < MAPS[which][1]
    assert j.value.shape == (N, map.n_out) and len(map.output_names) == map.n_out
    assert j.fx.shape == (N, map.n_out, map.manifold.ndx) and j.fu.shape == (N, map.n_out, map.nu)


def test_every_method_is_compared():
    assert {"analytic", *EXACT, *DIFFERENCES} <= set(backend_names())


@pytest.mark.parametrize("method", ["analytic", *EXACT])
@pytest.mark.parametrize("name", FOREIGN)
def test_inverse_dynamics_against_pinocchio(name, method):
    pin = pytest.importorskip("pinocchio")
    t = twin(name)
    map = quantities.InverseDynamics(t.model)
    x, u = arguments(map, 1)
    j = blocks(map, make_backend(map, method).jacobians(x, u))
    q, v = x[:, : t.model.nq], x[:, t.model.nq :]
    for i in range(N):
        theirs = pin.computeRNEADerivatives(t.pin_model, t.data, t.q(q[i]), t.v(v[i]), t.v(u[i]))
        for block, expected in zip("qv", theirs[:2], strict=True):
            assert error(j[block][i], t.matrix(expected)) < 1e-12, block
        upper = np.triu(theirs[2])
        assert error(j["u"][i], t.matrix(upper + np.triu(upper, 1).T)) < 1e-12


@pytest.mark.parametrize("method", ["analytic", *EXACT])
@pytest.mark.parametrize("name", FOREIGN)
def test_forward_dynamics_against_pinocchio(name, method):
    pin = pytest.importorskip("pinocchio")
    t = twin(name)
    map = quantities.ForwardDynamics(t.model)
    x, u = arguments(map, 2)
    j = blocks(map, make_backend(map, method).jacobians(x, u))
    q, v = x[:, : t.model.nq], x[:, t.model.nq :]
    for i in range(N):
        theirs = pin.computeABADerivatives(t.pin_model, t.data, t.q(q[i]), t.v(v[i]), t.v(u[i]))
        for block, expected in zip("qvu", theirs, strict=True):
            assert error(j[block][i], t.matrix(expected)) < 1e-10, block


@pytest.mark.parametrize("name", TREES)
def test_inverse_dynamics_against_the_dense_oracle(name):
    """All joint types; the oracle moves along their tangents independently."""
    model = tree(name)
    q, v, a = (x[0] for x in state(model, 3, 1))
    dq, dv, M = rb.inverse_dynamics_derivatives(model, q, v, a)
    assert error(dq, dense.configuration_derivative(lambda x: dense.inverse_dynamics(model, x, v, a), model, q)) < 1e-12
    steps = (dense.inverse_dynamics(model, q, v + 1j * dense.STEP * e, a) for e in np.eye(model.nv))
    assert error(dv, np.stack([s.imag / dense.STEP for s in steps], axis=1)) < 1e-12
    assert error(M, dense.mass_matrix(model, q)) < 1e-13


def forces_by_pseudo_inverse(model: Model, driven: np.ndarray, q, v, u) -> np.ndarray:
    """Neunert et al. 2016, eq. 12: tau = (S M^-1 S')^-1 u + Sbar' h, Sbar = M^-1 S' (S M^-1 S')^-1."""
    S = np.eye(model.nv)[driven]
    inverse = np.linalg.inv(dense.mass_matrix(model, q))
    weight = np.linalg.inv(S @ inverse @ S.T)
    return weight @ u + (inverse @ S.T @ weight).T @ dense.inverse_dynamics(model, q, v, 0 * v)


@pytest.mark.parametrize("name", [*TREES, "hyq", "ur5"])
def test_actuated_inverse_dynamics_is_the_pseudo_inverse_formula(name):
    model = robot(name)
    map = quantities.ActuatedInverseDynamics(model)
    x, u = (a[0] for a in arguments(map, 4))
    q, v, driven = x[: model.nq], x[model.nq :], np.flatnonzero(model.actuated)

    def formula(q, v, u):
        return forces_by_pseudo_inverse(model, driven, q, v, u)

    def slopes(function, n):
        return np.stack([np.imag(function(1j * dense.STEP * e)) / dense.STEP for e in np.eye(n)], axis=1)

    j = make_backend(map, "analytic").jacobians(x[None], u[None])
    assert error(j.value[0], formula(q, v, u)) < 1e-10
    computed = blocks(map, j)
    assert error(computed["q"][0], dense.configuration_derivative(lambda z: formula(z, v, u), model, q)) < 1e-10
    assert error(computed["v"][0], slopes(lambda e: formula(q, v + e, u), model.nv)) < 1e-10
    assert error(computed["u"][0], slopes(lambda e: formula(q, v, u + e), map.nu)) < 1e-10


@pytest.mark.parametrize("kind", ["floating", "spherical", "planar"])
def test_the_own_block_of_a_joint_with_several_dofs(kind):
    """The force term belongs to strict ancestors: in the own block it would be wrong by the order of the block itself."""
    model = chain(2, kind, rng=5)
    q, v, a = (x[0] for x in state(model, 5, 1))
    own = list(model.dofs(1))
    expected = dense.configuration_derivative(lambda x: dense.inverse_dynamics(model, x, v, a), model, q)[
        np.ix_(own, own)
    ]
    assert error(rb.inverse_dynamics_derivatives(model, q, v, a)[0][np.ix_(own, own)], expected) < 1e-12
    S = dense.joint_subspace(kind, 0.0)
    parallel = np.flatnonzero(np.abs(S).sum(axis=1))
    force = np.zeros(6)
    force[parallel] = S[parallel] @ dense.inverse_dynamics(model, q, v, a)[own]
    trap = np.stack([S.T @ dense.force_cross(s) @ force for s in S.T], axis=1)
    assert error(expected + trap, expected) > 0.1


def test_derivatives_of_an_isolated_body_do_not_depend_on_where_it_is():
    """A free body without gravity: only orientation enters, and that by symmetry not at all."""
    model = random_tree(6, 1, floating_base=True).with_gravity((0.0, 0.0, 0.0))
    q, v, tau = state(model, 6, 3)
    dq, dv, _ = rb.forward_dynamics_derivatives(model, q, v, tau)
    assert np.abs(dq).max() < 1e-12 * np.abs(dv).max()


# -- methods on maps that are no robots -------------------------------------------------------------------------------


def pendulum_on_a_rocket() -> FunctionMap:
    """A user's function of pose, controls, time and parameters, with a plain number among its results."""

    def function(x, u, t, p):
        thrust = u[0] * sm.exp(-p["rate"][0] * t)
        return [x[0] * x[5] + thrust, sm.sin(x[7]) * u[1], 3.0, sm.sqrt(1.0 + x[8] * x[8])]

    return FunctionMap(function, Manifold([SE3, vector_space(2)]), nu=2, n_out=4)


@pytest.mark.parametrize("method", [*EXACT, *DIFFERENCES])
def test_methods_on_a_user_function(method):
    map = pendulum_on_a_rocket()
    rng = np.random.default_rng(7)
    x, u, t = rng.standard_normal((3, 9)), rng.standard_normal((3, 2)), np.array([0.1, 0.2, 0.3])
    x[:, 3:7] /= np.linalg.norm(x[:, 3:7], axis=1, keepdims=True)
    p = {"rate": np.array([0.5])}
    j = make_backend(map, method).jacobians(x, u, t, p)
    assert np.allclose(j.value, make_backend(map, method).f(x, u, t, p))
    fx, fu = np.zeros((3, 4, 8)), np.zeros((3, 4, 2))
    for i in range(3):
        R, (qx, qy, qz, qw) = dense.quaternion_rotation(x[i, 3:7]), x[i, 3:7]
        fx[i, 0, :3] = R[0] * qz
        fx[i, 0, 3:6] = 0.5 * x[i, 0] * np.array([-qy, qx, qw])
        fx[i, 1, 6] = np.cos(x[i, 7]) * u[i, 1]
        fx[i, 3, 7] = x[i, 8] / np.sqrt(1 + x[i, 8] ** 2)
        fu[i, 0, 0], fu[i, 1, 1] = np.exp(-0.5 * t[i]), np.sin(x[i, 7])
    tolerance = DIFFERENCES.get(method, 1e-13)
    assert worst(j.fx, fx) < tolerance and worst(j.fu, fu) < tolerance


@pytest.mark.parametrize("method", [*EXACT, *DIFFERENCES])
def test_a_constant_and_a_map_without_controls(method):
    constant = FunctionMap(lambda x, u, t, p: [1.0, 2.0], 2, nu=0)
    j = make_backend(constant, method).jacobians(np.ones((3, 2)), np.zeros((3, 0)))
    assert np.array_equal(j.value, np.tile([1.0, 2.0], (3, 1)))
    assert j.fx.shape == (3, 2, 2) and not np.any(j.fx) and j.fu.shape == (3, 2, 0)


def test_steps_of_finite_differences():
    """Errors decrease with the order of the scheme; large coordinates get larger steps."""
    map = FunctionMap(lambda x, u, t, p: [sm.exp(x[0])], 1, nu=0)
    x = np.array([[0.3]])
    for scheme, order in (("forward", 1), ("central", 2)):
        deviations = [
            abs(
                make_backend(map, f"{scheme}_difference", step=h).jacobians(x, np.zeros((1, 0))).fx[0, 0, 0]
                - np.exp(0.3)
            )
            for h in (1e-2, 1e-3)
        ]
        assert np.log10(deviations[0] / deviations[1]) == pytest.approx(order, abs=0.05)
    cube = FunctionMap(lambda x, u, t, p: [x[0] * x[0] * x[0]], 1, nu=0)
    far = make_backend(cube, "central_difference").jacobians(np.array([[1e5]]), np.zeros((1, 0))).fx
    assert far[0, 0, 0] == pytest.approx(3e10, rel=1e-9)


def test_wrong_choices_are_answered():
    map = FunctionMap(lambda x, u, t, p: [x[0]], 1, nu=0)
    with pytest.raises(ValueError, match="no backend is named 'analitic'; did you mean 'analytic'"):
        make_backend(map, "analitic")
    with pytest.raises(ValueError, match="no engine is named 'nunpy'"):
        make_backend(map, "forward_ad", engine="nunpy")
    with pytest.raises(TypeError, match="FunctionMap has no analytic derivatives; choose backend = 'forward_ad'"):
        make_backend(map, "analytic")
    with pytest.raises(ValueError, match=r"step = -1.0; it must be positive"):
        make_backend(map, "central_difference", step=-1.0)
    with pytest.raises(ValueError, match=r"x has shape \(2, 3\); expected \(N, nx = 1\)"):
        make_backend(map, "forward_ad").f(np.zeros((2, 3)), np.zeros((2, 0)))
    with pytest.raises(ValueError, match=r"u has shape \(2, 1\); expected \(N = 2, nu = 0\)"):
        make_backend(map, "forward_ad").f(np.zeros((2, 1)), np.zeros((2, 1)))


# -- comparison of derivatives ------------------------------------------------------------------------------------------


def lines(slope, claimed):
    """The report for sin(3 + slope u) and central differences of sin(3 + claimed u)."""
    map = to.FunctionMap(lambda x, u, t, p: [np.sin(3.0 + slope * u[0])], 1, 1)
    other = to.FunctionMap(lambda x, u, t, p: [np.sin(3.0 + claimed * u[0])], 1, 1)
    at = Points(np.zeros((4, 1)), np.linspace(-1.0, 1.0, 4)[:, None], np.zeros(4), np.full(4, 0.1), np.arange(4))
    differences = to.make_backend(other, "central_difference", engine="numpy")
    by_method = {"central_difference": lambda: differences.jacobians(at.x, at.u, at.t, {})}
    return [line for line in first_order("map", map, ("fx", "fu"), at, {}, by_method) if line.block == "fu"]


def test_missing_attributes_of_a_system_are_named():
    class Falling:
        manifold, nu = to.vector_space(2), 0

        def __call__(self, x, u, t, p):
            return [x[1], -9.81]

    with pytest.raises(TypeError, match="Falling is no system: it has no n_out, output_names, control_names; extend"):
        make_backend(Falling(), "forward_ad")


def test_a_small_slope_of_a_large_value_is_lost_in_rounding():
    """eps / h of the value is 4e-11, which is 4e-5 of a slope of 1e-6."""
    (line,) = lines(1e-6, 1e-6)
    assert line.passed


@pytest.mark.parametrize("slope", [1.0, 1e-2])
def test_a_wrong_slope_is_detected(slope):
    (line,) = lines(slope, 1.001 * slope)
    assert not line.passed
    (line,) = lines(slope, slope)
    assert line.passed


def test_controls_of_checked_points_are_within_their_bounds():
    """Rates of a reaction are not defined at zero temperature, nor a logarithm at controls below zero."""
    reaction = FunctionMap(lambda x, u, t, p: [-1e3 * np.exp(-2e3 / u[0]) * x[0] * np.log(u[1])], 1, 2)
    ocp = to.OCP.single_phase(
        to.SampledSystem(reaction, "rk4"), [1.0], 10, 0.1, u_lower=[300.0, 1e-3], u_upper=[400.0, np.inf]
    )
    assert [str(c) for c in to.check_derivatives(ocp) if not c.passed] == []


def test_rounding_errors_of_the_reference_are_no_second_derivatives():
    """The angle of a sum of two rotations about one axis is linear, to rounding."""
    sum_of_angles = FunctionMap(
        lambda x, u, t, p: [sm.atan2(sm.sin(x[0]) * sm.cos(u[0]) + sm.cos(x[0]) * sm.sin(u[0]), sm.cos(x[0] + u[0]))],
        1,
        1,
    )
    ocp = to.OCP.single_phase(to.SampledSystem(sum_of_angles, "euler"), [0.3], 10, 0.1)
    assert [str(c) for c in to.check_derivatives(ocp) if not c.passed] == []


@pytest.mark.parametrize("names", [{"control_names": ("force", "torque")}, {"output_names": ("rate",)}])
def test_names_of_user_functions_are_as_many_as_their_numbers(names):
    with pytest.raises(ValueError, match=r"names for (nu = 1 controls|n_out = 2 outputs)"):
        FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, **names)
