"""CasADi's AD against complex step: every joint type, both engines, every mode; its messages about untraceable functions."""

import math
import re
import subprocess
import sys

import numpy as np
import pytest
from rigid_body_cases import state, tree, worst

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import SE3, SO3, Manifold, vector_space
from dynamics_backends.methods import casadi_ad
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies import rigid_body_map as quantities
from dynamics_backends.systems.bodies.free_body import FreeBody

N = 5
TREES = ("fixed14", "floating26")  # of four bodies, all joint types between them
ENGINES = ("numpy", "compiled")
MODES = ("forward", "reverse", "auto")
TOLERANCE = 1e-12
each_engine = pytest.mark.parametrize("engine", ENGINES)
each_tree = pytest.mark.parametrize("name", TREES)
each_mode = pytest.mark.parametrize("mode", MODES)
MAPS = {
    "ID": quantities.InverseDynamics,
    "M": quantities.MassMatrix,
    "frame": lambda m: quantities.FrameMotion(m, m.frames[-1].name),
    "actuated ID": quantities.ActuatedInverseDynamics,
}


def arguments(map, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    q, v, _ = state(map.model, seed, N)
    return np.concatenate([q, v], axis=1), np.random.default_rng(seed + 1).standard_normal((N, map.nu))


def assert_same(actual, expected, tolerance: float = TOLERANCE) -> None:
    """Value, fx and fu, each relative to its largest entry at the point."""
    for block, reference in zip(actual, expected, strict=True):
        assert block.shape == reference.shape
        assert worst(block, reference) < tolerance


@each_mode
@each_engine
@each_tree
def test_free_bodies_with_damping_and_friction(name, engine, mode):
    map = FreeBody(tree(name, 4), friction_velocity=0.1)
    x, u = arguments(map)
    backend = make_backend(map, "casadi_ad", engine=engine, mode=mode)
    assert_same(backend.jacobians(x, u), make_backend(map, "complex_step").jacobians(x, u))
    assert worst(backend.f(x, u), make_backend(map, "complex_step").f(x, u)) < TOLERANCE


@pytest.mark.parametrize("which", MAPS)
@each_tree
def test_quantities_of_robots(name, which):
    map = MAPS[which](tree(name, 4))
    x, u = arguments(map)
    assert_same(make_backend(map, "casadi_ad").jacobians(x, u), make_backend(map, "complex_step").jacobians(x, u))


def rocket() -> FunctionMap:
    """A function of a pose, an attitude and two numbers with parameters and time, and every function of the scalar module."""

    def function(x, u, t, p):
        thrust = u[0] * sm.exp(-p["rate"][0] * t)
        selected = sm.select(x[11] - p["edge"][1], sm.sqrt(2.0 + x[11]), x[12] * x[12])
        twisted = sm.atan2(x[4] + p["edge"][0], x[9]) * sm.tanh(x[12])
        return [
            x[0] * x[5] + thrust,
            sm.sin(x[11]) * u[1],
            3.0,
            selected,
            twisted,
            sm.log(4.0 + sm.cos(x[2] * x[8])) ** 3,
        ]

    return FunctionMap(function, Manifold([SE3, SO3, vector_space(2)]), nu=2, n_out=6)


def rocket_arguments(seed: int = 3):
    rng = np.random.default_rng(seed)
    x, u, t = rng.standard_normal((N, 13)), rng.standard_normal((N, 2)), rng.uniform(size=N)
    for first in (3, 7):
        x[:, first : first + 4] /= np.linalg.norm(x[:, first : first + 4], axis=1, keepdims=True)
    return x, u, t, {"rate": np.array([0.5]), "edge": rng.uniform(size=(N, 2))}


@each_mode
@each_engine
def test_a_function_of_parameters_and_time(engine, mode):
    map, given = rocket(), rocket_arguments()
    backend = make_backend(map, "casadi_ad", engine=engine, mode=mode)
    assert_same(backend.jacobians(*given), make_backend(map, "complex_step").jacobians(*given))


@each_engine
def test_values_change_and_sizes_change(engine, monkeypatch):
    """New parameter values reuse the graph; new sizes make another one."""
    map = FunctionMap(lambda x, u, t, p: [sum(g * x[0] for g in sm.rows_of(p["gains"])) * x[1], t * u[0]], 2, 1)
    backend = make_backend(map, "casadi_ad", engine=engine)
    built = []
    original = casadi_ad.CasadiAD.expressions
    monkeypatch.setattr(casadi_ad.CasadiAD, "expressions", lambda self, s: built.append(1) or original(self, s))
    x, u = np.array([[2.0, 3.0]]), np.ones((1, 1))
    for gains, graphs in (([1.0], 1), ([4.0], 1), ([1.0, 4.0], 2), ([3.0, 7.0], 2), ([2.0], 2)):
        j = backend.jacobians(x, u, 0.5, {"gains": np.array(gains)})
        assert np.allclose(j.fx[0], [[sum(gains) * 3.0, sum(gains) * 2.0], [0.0, 0.0]]) and j.fu[0, 1, 0] == 0.5
        assert len(built) == graphs


@each_engine
def test_constants_and_empty_batches(engine):
    constant = make_backend(FunctionMap(lambda x, u, t, p: [1.0, 2.0], 2, nu=0), "casadi_ad", engine=engine)
    j = constant.jacobians(np.ones((3, 2)), np.zeros((3, 0)))
    assert np.array_equal(j.value, np.tile([1.0, 2.0], (3, 1)))
    assert j.fx.shape == (3, 2, 2) and not np.any(j.fx) and j.fu.shape == (3, 2, 0)
    j = constant.jacobians(np.ones((0, 2)), np.zeros((0, 0)))
    assert j.value.shape == (0, 2) and j.fx.shape == (0, 2, 2) and j.fu.shape == (0, 2, 0)


def branches(x, u, t, p):
    return [x[0] * x[1] if x[0] > 0 else -x[0], u[0] ** 2]


def leaves_the_symbols(x, u, t, p):
    return [math.sin(x[0] * x[1]), u[0]]


@each_engine
@pytest.mark.parametrize(
    ("function", "what"),
    [
        (branches, "a Python condition .* in line .*if x.0. > 0 else"),
        (leaves_the_symbols, r"takes floats only .* in line .*math.sin"),
    ],
)
def test_functions_that_cannot_be_traced(function, what, engine, caplog):
    """They are evaluated knot by knot and differentiated by finite differences; one log message reports it."""
    backend = make_backend(FunctionMap(function, 2, 1), "casadi_ad", engine=engine)
    x, u = np.array([[0.7, 2.0], [-0.3, 1.0]]), np.array([[0.5], [3.0]])
    slopes = {
        branches: [[[2.0, 0.7], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0]]],
        leaves_the_symbols: [[math.cos(a * b) * np.array([b, a]), [0.0, 0.0]] for a, b in x],
    }
    for _ in range(2):
        j = backend.jacobians(x, u)
        np.testing.assert_allclose(j.value[:, 0], [function(*row, 0.0, {})[0] for row in zip(x, u, strict=True)])
        np.testing.assert_allclose(j.fx, slopes[function], atol=1e-8)
    messages = caplog.messages
    assert len(messages) == 1 and re.search(f"function {function.__name__} .*{what}", messages[0])


def test_errors_unrelated_to_symbols_are_raised_unchanged():
    x, u = np.ones((1, 2)), np.ones((1, 1))
    with pytest.raises(KeyError, match="gain"):
        make_backend(FunctionMap(lambda x, u, t, p: [p["gain"][0], u[0]], 2, 1), "casadi_ad").jacobians(x, u)
    with pytest.raises(ValueError, match="returned 1 rows; expected n_out = 2"):
        make_backend(FunctionMap(lambda x, u, t, p: [x[0]], 2, 1), "casadi_ad").jacobians(x, u)
    with pytest.raises(ValueError, match="mode = 'backward'; known: forward, reverse, auto"):
        make_backend(FunctionMap(lambda x, u, t, p: [x[0]], 1, 0), "casadi_ad", mode="backward")


def test_the_registry_loads_casadi_on_first_use():
    code = "import sys, dynamics_backends.registry as r; r.make_backend; print('casadi' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def test_large_graphs_of_second_derivatives_are_announced(monkeypatch, caplog):
    map = FreeBody(tree(TREES[0], 2))
    x, u = arguments(map)
    lam = np.random.default_rng(1).standard_normal((len(x), map.n_out))
    monkeypatch.setattr(casadi_ad, "LARGE_GRAPH", 10)
    make_backend(map, "casadi_ad", engine="numpy").hessian_contraction(x, u, 0.0, None, lam)
    assert "second derivatives of FreeBody have about" in caplog.text and "backend = 'analytic'" in caplog.text
