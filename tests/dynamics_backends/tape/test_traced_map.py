"""Any map as a tape: the numbers of the map itself, by every method, without a compiler and with one trace for all values."""

import pickle
import subprocess
import sys

import casadi as ca
import numpy as np
import pytest
from rigid_body_cases import tree, worst

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.manifold import SE3, Manifold, vector_space
from dynamics_backends.protocol import IMPLICIT_STEP, Batch, FunctionMap
from dynamics_backends.registry import ENGINES, make_backend
from dynamics_backends.rigid_body.model.coupling import Coupling
from dynamics_backends.rigid_body.model.sample_models import random_tree
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.systems.bodies.coupled_body import CoupledBody
from dynamics_backends.systems.bodies.rigid_body_map import (
    ActuatedInverseDynamics,
    FrameMotion,
    InverseDynamics,
    MassMatrix,
)
from dynamics_backends.tape import traced_map
from dynamics_backends.tape.tape import Tape
from dynamics_backends.tape.traced_map import TracedMap

N = 7  # no multiple of the lanes
TOLERANCES = {  # rounding of the values over the step of the differences
    "complex_step": 1e-12,
    "forward_ad": 1e-12,
    "structured_ad": 1e-12,
    "casadi_ad": 1e-12,
    "central_difference": 1e-8,
    "forward_difference": 1e-6,
}


def following() -> CoupledBody:
    """A tree in which a prismatic joint follows a revolute one."""
    model = random_tree(5, 4, joints=("revolute", "prismatic"))
    source, multiplier, offset = np.arange(4), np.ones(4), np.zeros(4)
    source[2], multiplier[2], offset[2] = 0, -0.5, 0.1
    coupled = model.replace(coupling=Coupling(source, multiplier, offset, coordinate=np.arange(4), nq=4))
    return CoupledBody(coupled.replace(damping=np.full(4, 0.2)))


def flight() -> FunctionMap:
    """A user's function on a pose and two numbers, with parameters and time."""

    def function(x, u, t, p):
        thrust = u[0] * sm.exp(-p["rate"][0] * t)
        selected = sm.select(x[7] - p["edge"][1], sm.sqrt(2.0 + x[7] * x[7]), x[8] * x[8])
        return [
            x[0] * x[5] + thrust,
            sm.sin(x[7]) * u[1],
            3.0,
            selected,
            sm.atan2(x[8], x[2]) * sm.tanh(p["edge"][0] * t),
        ]

    return FunctionMap(function, Manifold([SE3, vector_space(2)]), nu=2, n_out=5)


MAPS = {
    "function": flight,
    "coupled body": following,
    "actuated ID": lambda: ActuatedInverseDynamics(tree("floating26", 4)),
    "inverse dynamics": lambda: InverseDynamics(tree("floating90", 4)),
    "mass matrix": lambda: MassMatrix(tree("floating26", 4)),
    "frame": lambda: FrameMotion(tree("fixed14", 4), "body3"),
}


def arguments(map, size: int = N, seed: int = 0):
    """x, u, t and the parameters of `flight`, quaternions normalized by construction."""
    rng = np.random.default_rng(seed)
    x = map.manifold.integrate(
        np.tile(map.manifold.identity()[:, None], size), rng.standard_normal((map.manifold.ndx, size))
    )
    p = {"rate": np.array([0.5]), "edge": rng.uniform(size=(size, 2))} if map.nu == 2 and map.n_out == 5 else {}
    return np.ascontiguousarray(x.T), rng.standard_normal((size, map.nu)), rng.uniform(size=size), p


def assert_same(actual, expected, tolerance: float) -> None:
    for block, reference in zip(actual, expected, strict=True):
        assert block.shape == reference.shape
        assert worst(block, reference) < tolerance


@pytest.mark.parametrize("method", TOLERANCES)
@pytest.mark.parametrize("name", MAPS)
def test_methods_on_maps(name, method):
    map = MAPS[name]()
    given = arguments(map)
    actual, expected = (make_backend(map, method, engine=engine) for engine in ("compiled", "numpy"))
    assert_same(actual.jacobians(*given), expected.jacobians(*given), TOLERANCES[method])
    assert worst(actual.f(*given), expected.f(*given)) < 1e-12
    assert actual.compiled.jacobians(actual, Batch.of(map, *given)) is not None


@pytest.mark.parametrize("method", ["analytic", "forward_ad", "complex_step", "central_difference", "casadi_ad"])
@pytest.mark.parametrize("name", ["coupled body", "actuated ID", "frame"])
def test_engines_agree(name, method):
    map = MAPS[name]()
    given = arguments(map)
    backends = [make_backend(map, method, engine=engine) for engine in ("compiled", "numpy", "auto")]
    expected = backends[1].jacobians(*given)
    for backend in backends:
        assert_same(backend.jacobians(*given), expected, 1e-8 if method == "central_difference" else 1e-12)
        assert worst(backend.f(*given), expected.value) < 1e-12


def test_what_serves_a_map_on_the_compiled_engine():
    inverse, user = InverseDynamics(tree("fixed14", 4)), flight()
    for method in ("forward_ad", "casadi_ad"):
        for map in (inverse, user):
            assert isinstance(make_backend(map, method, engine="compiled").map, TracedMap)
    assert make_backend(user, "forward_ad").map is user
    traced = TracedMap(following())
    assert traced.second_order and traced.n_out == traced.manifold.ndx and not hasattr(traced, "jacobians")


def test_new_values_are_not_traced_again(monkeypatch):
    """Time, parameters and the size of the batch are inputs: one tape for each kind of numbers."""
    made, original = [], Tape.of
    monkeypatch.setattr(Tape, "of", lambda *a: made.append(1) or original(*a))
    methods = ("forward_ad", "complex_step", "central_difference", "casadi_ad")
    backends = {m: make_backend(flight(), m, engine="compiled") for m in methods}
    plain = make_backend(flight(), "complex_step")
    for round_ in range(3):
        x, u, t, p = arguments(flight(), N + round_, seed=round_)
        p["rate"] = np.array([0.3 + round_])
        for name, backend in backends.items():
            tolerance = TOLERANCES[name]
            assert_same(backend.jacobians(x, u, t, p), plain.jacobians(x, u, t, p), tolerance)
            backend.f(x, u, t, p)
        if round_ == 0:
            first = len(made)
    assert len(made) == first == 7  # values of four maps, slopes by complex and dual numbers, CasADi's derivatives


@pytest.mark.parametrize("method", ["forward_ad", "complex_step", "casadi_ad"])
def test_second_derivatives(method):
    map = flight()
    lam = np.random.default_rng(1).normal(size=(N, map.n_out))
    backends = [make_backend(map, method, engine=engine) for engine in ("compiled", "numpy")]
    actual, expected = (b.hessian_contraction(*arguments(map), lam) for b in backends)
    assert_same((*actual[0], *actual[1]), (*expected[0], *expected[1]), 1e-11)


@pytest.mark.parametrize("offset", [None, False, True])
@pytest.mark.parametrize("floating", [False, True])
def test_second_derivatives_of_coupled_joints(floating, offset):
    """Also with damping that is implicit in a time step, with and without offsets of its velocities."""
    model = random_tree(5, 4, joints=("revolute", "prismatic"), floating_base=floating)
    extra = model.nq - model.nv
    source, multiplier = np.arange(model.nv), np.ones(model.nv)
    source[-1], multiplier[-1] = model.nv - 3, -0.5
    places = np.arange(model.nv) + extra * (np.arange(model.nv) >= 3)
    coupling = Coupling(source, multiplier, np.zeros(model.nv), coordinate=places, nq=model.nq)
    system = CoupledBody(model.replace(coupling=coupling, damping=np.full(model.nv, 0.2)))
    map = system if offset is None else system.implicit(offset=offset)
    x, u, t, _ = arguments(map)
    p = {} if offset is None else {IMPLICIT_STEP: np.array([0.05])}
    lam = np.random.default_rng(1).normal(size=(N, map.n_out))
    methods = ("analytic", "compiled"), ("analytic", "numpy"), ("forward_ad", "numpy")
    *found, expected = (
        make_backend(map, method, engine=engine).hessian_contraction(x, u, t, p, lam) for method, engine in methods
    )
    for first, second in found:
        for block, reference in zip((*first, *second), (*expected[0], *expected[1]), strict=True):
            np.testing.assert_allclose(block, reference, rtol=1e-10, atol=1e-9)
    assert np.abs(expected[1].xx).max() > 1.0


def test_backends_in_other_processes():
    backend = make_backend(FunctionMap(_pendulum, 2, 1), "forward_ad", engine="compiled")
    x, u, lam = np.ones((3, 2)), np.ones((3, 1)), np.ones((3, 2))
    first, second = backend.hessian_contraction(x, u, 0.0, None, lam)
    copied = pickle.loads(pickle.dumps(backend)).hessian_contraction(x, u, 0.0, None, lam)
    assert_same((*copied[0], *copied[1]), (*first, *second), 1e-15)


def _pendulum(x, u, t, p):
    return [x[1], u[0] - np.sin(x[0])]


def test_rows_of_every_form():
    """Numbers for time, one column for all knots, lists of rows, an empty batch; a large batch on threads."""
    map = flight()
    traced = TracedMap(map)
    x, u, t, p = arguments(map, 500)
    rows = {"rate": np.full((1, 1), 0.5), "edge": p["edge"].T}
    expected = map(x.T, u.T, t, rows)
    assert np.allclose(traced(x.T, u.T, t, rows), expected, rtol=1e-14)
    assert np.allclose(traced(list(x.T), list(u.T), t, rows), expected, rtol=1e-14)
    assert np.allclose(traced(x.T, u.T, 0.25, rows), map(x.T, u.T, 0.25, rows), rtol=1e-14)
    assert traced(x[:0].T, u[:0].T, t[:0], {"rate": np.zeros((1, 0)), "edge": np.zeros((2, 0))}).shape == (5, 0)


def test_other_scalars_go_to_the_map_itself(monkeypatch):
    monkeypatch.setattr(traced_map, "Tape", None)
    map = FunctionMap(lambda x, u, t, p: [x[0] * x[1], sm.sin(x[1])], 2, 0)
    traced = TracedMap(map)
    symbol = ca.SX.sym("x", 2)
    assert traced(symbol, ca.SX(0, 1), ca.SX(0), {}).shape == (2, 1)
    second = Dual.seed(np.array([[1.0 + 1e-30j], [2.0]]), np.eye(2))
    result = traced(second, np.zeros((0, 1)), np.zeros(1), {})
    assert result.tan[0, 0, 1].imag == 1e-30


def test_a_function_that_cannot_be_traced(caplog):
    """Numbers other than symbols: the map calls the function itself and logs this once."""

    def cut(x, u, t, p):
        return [min(max(float(x[0]), 0.0), 1.0)]

    backend = make_backend(FunctionMap(cut, 1, 0), "central_difference", engine="compiled")
    for _ in range(2):
        j = backend.jacobians(np.array([[0.3], [3.0]]), np.zeros((2, 0)))
        np.testing.assert_allclose(j.value, [[0.3], [1.0]])
        np.testing.assert_allclose(j.fx[:, 0, 0], [1.0, 0.0], atol=1e-9)
    assert len(caplog.messages) == 1 and "with finite differences" in caplog.text


def test_a_reason_is_logged_once_for_all_methods(caplog):
    class Clipped(FunctionMap):
        def __call__(self, x, u, t, p):
            return sm.stack([np.maximum(x[0], 0.0)])

    for method in ("central_difference", "forward_difference"):
        backend = make_backend(Clipped(None, 1, 0), method, engine="compiled")
        np.testing.assert_array_equal(backend.f(np.array([[-1.0], [2.0]]), np.zeros((2, 0))), [[0.0], [2.0]])
    (message,) = caplog.messages
    assert "such as to.sqrt and to.select (instead of if)" in message


def test_names_of_engines():
    assert ENGINES == ("compiled", "numpy", "auto")
    with pytest.raises(ValueError, match="no engine is named 'compild'; did you mean 'compiled'"):
        make_backend(flight(), "forward_ad", engine="compild")


def test_the_compiled_engine_is_the_default():
    """A separate process is necessary: this suite sets another default."""
    code = (
        "from dynamics_backends.protocol import FunctionMap; from dynamics_backends.registry import make_backend; "
        "print(make_backend(FunctionMap(lambda x, u, t, p: [x[0]], 1, 0), 'forward_ad').engine)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "compiled"


def test_time_steps_of_coupled_joints_are_compiled():
    """With analytic derivatives, the default, whose rows of inverse dynamics are lists for symbols."""
    system = following()
    step = to.SampledSystem(make_backend(system, "analytic", engine="compiled"), "rk4")
    goal = to.state_cost(system.manifold, np.full(system.manifold.ndx, 0.1), 10.0)
    effort = to.control_cost(system.nu, weight=1e-2)
    ocp = to.OCP.single_phase(step, np.zeros(system.manifold.nx), 10, 0.05, [effort], [goal])
    found = to.solve(ocp, solver="slq")
    assert found.status.success and found.meta["engines"] == ["compiled"]
