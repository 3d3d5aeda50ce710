"""Functions of NumPy in a user's function, by every method and engine, beside closed forms and differences of plain NumPy."""

import logging
import math

import casadi as ca
import numpy as np
import pytest
from scipy.special import erf, expit

from dynamics_backends import scalar as sm
from dynamics_backends.methods.exact_methods import ForwardAD
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.registry import backend_names, make_backend
from dynamics_backends.rigid_body import batched
from dynamics_backends.rigid_body.algorithms.kinematics import frame_position, kinetic_energy
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.scalars.entries import Entry, NoNumber, from_rows, unboxed
from dynamics_backends.scalars.evaluate import evaluated
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.contact.ground_contact import Terrain
from dynamics_backends.trace import trace

METHODS = [name for name in backend_names() if name != "analytic"]
ENGINES = ["numpy", "compiled"]
SECOND = ("forward_ad", "casadi_ad", "central_difference")
EXACT, DIFFERENCES = 1e-12, 2e-6
X = np.array([[0.3, 0.7], [-0.4, 0.2], [0.6, 0.9], [-0.8, 0.45]])
"""States (4, 2); the second number is positive."""

ELEMENTWISE = {  # function of (a, b), its slopes
    "sin": (lambda a, b: np.sin(a), lambda a, b: (np.cos(a), 0)),
    "cos": (lambda a, b: np.cos(a), lambda a, b: (-np.sin(a), 0)),
    "tan": (lambda a, b: np.tan(a), lambda a, b: (1 / np.cos(a) ** 2, 0)),
    "arcsin": (lambda a, b: np.arcsin(a), lambda a, b: (1 / np.sqrt(1 - a * a), 0)),
    "arccos": (lambda a, b: np.arccos(a), lambda a, b: (-1 / np.sqrt(1 - a * a), 0)),
    "arctan": (lambda a, b: np.arctan(a), lambda a, b: (1 / (1 + a * a), 0)),
    "arctan2": (lambda a, b: np.arctan2(a, b), lambda a, b: (b / (a * a + b * b), -a / (a * a + b * b))),
    "sinh": (lambda a, b: np.sinh(a), lambda a, b: (np.cosh(a), 0)),
    "cosh": (lambda a, b: np.cosh(a), lambda a, b: (np.sinh(a), 0)),
    "tanh": (lambda a, b: np.tanh(a), lambda a, b: (1 / np.cosh(a) ** 2, 0)),
    "arcsinh": (lambda a, b: np.arcsinh(a), lambda a, b: (1 / np.sqrt(a * a + 1), 0)),
    "arccosh": (lambda a, b: np.arccosh(1.5 + b), lambda a, b: (0, 1 / np.sqrt((1.5 + b) ** 2 - 1))),
    "arctanh": (lambda a, b: np.arctanh(a), lambda a, b: (1 / (1 - a * a), 0)),
    "exp": (lambda a, b: np.exp(a), lambda a, b: (np.exp(a), 0)),
    "exp2": (lambda a, b: np.exp2(a), lambda a, b: (np.log(2) * 2**a, 0)),
    "expm1": (lambda a, b: np.expm1(a), lambda a, b: (np.exp(a), 0)),
    "log": (lambda a, b: np.log(b), lambda a, b: (0, 1 / b)),
    "log1p": (lambda a, b: np.log1p(a), lambda a, b: (1 / (1 + a), 0)),
    "log2": (lambda a, b: np.log2(b), lambda a, b: (0, 1 / b / np.log(2))),
    "log10": (lambda a, b: np.log10(b), lambda a, b: (0, 1 / b / np.log(10))),
    "logaddexp": (lambda a, b: np.logaddexp(a, b), lambda a, b: (expit(a - b), expit(b - a))),
    "sqrt": (lambda a, b: np.sqrt(b), lambda a, b: (0, 0.5 / np.sqrt(b))),
    "cbrt": (lambda a, b: np.cbrt(a), lambda a, b: (1 / (3 * np.cbrt(a) ** 2), 0)),
    "square": (lambda a, b: np.square(a), lambda a, b: (2 * a, 0)),
    "power": (lambda a, b: np.power(a, 3), lambda a, b: (3 * a * a, 0)),
    "broken power": (lambda a, b: b**1.5, lambda a, b: (0, 1.5 * np.sqrt(b))),
    "power of two": (lambda a, b: b**a, lambda a, b: (b**a * np.log(b), a * b ** (a - 1))),
    "power of a number": (lambda a, b: 2.0**a, lambda a, b: (np.log(2) * 2**a, 0)),
    "reciprocal": (lambda a, b: np.reciprocal(b), lambda a, b: (0, -1 / b**2)),
    "hypot": (lambda a, b: np.hypot(a, b), lambda a, b: (a / np.sqrt(a * a + b * b), b / np.sqrt(a * a + b * b))),
    "abs": (lambda a, b: np.abs(a) * abs(b), lambda a, b: ((1 if a > 0 else -1) * b, abs(a))),
    "sign": (lambda a, b: np.sign(a) * b, lambda a, b: (0, 1 if a > 0 else -1)),
    "copysign": (lambda a, b: np.copysign(b, a) * a, lambda a, b: (np.copysign(b, a), abs(a))),
    "sinc": (lambda a, b: np.sinc(a), lambda a, b: ((np.cos(np.pi * a) - np.sinc(a)) / a, 0)),
    "maximum": (lambda a, b: np.maximum(a, 0.5 * b), lambda a, b: (1, 0) if a > 0.5 * b else (0, 0.5)),
    "minimum": (lambda a, b: np.fmin(a, 0.5 * b), lambda a, b: (1, 0) if a < 0.5 * b else (0, 0.5)),
    "clip": (lambda a, b: np.clip(a, -0.5, 0.5), lambda a, b: (1 if abs(a) < 0.5 else 0, 0)),
    "where": (lambda a, b: np.where(a > 0, a * b, b * b), lambda a, b: (b, a) if a > 0 else (0, 2 * b)),
    "logic": (
        lambda a, b: np.where((a > 0) & ~(b < 0.8) | (a < -0.7), a * a, 3 * a),
        lambda a, b: (2 * a if (a > 0 and b >= 0.8) or a < -0.7 else 3, 0),
    ),
    "floor": (lambda a, b: np.floor(5 * a + 0.3) * b, lambda a, b: (0, np.floor(5 * a + 0.3))),
    "mod": (lambda a, b: np.mod(a, 0.27) * b, lambda a, b: (b, a % 0.27)),
    "degrees": (lambda a, b: np.rad2deg(a) + np.deg2rad(b), lambda a, b: (180 / np.pi, np.pi / 180)),
    "constant": (lambda a, b: np.float64(3.0), lambda a, b: (0, 0)),
}


def all_elementwise(x, u, t, p):
    a, b = x
    return [f(a, b) for f, _ in ELEMENTWISE.values()]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
def test_elementwise_functions(method, engine):
    backend = make_backend(FunctionMap(all_elementwise, 2, 0, len(ELEMENTWISE)), method, engine=engine)
    j = backend.jacobians(X, np.zeros((4, 0)))
    values = np.array([[f(a, b) for f, _ in ELEMENTWISE.values()] for a, b in X])
    slopes = np.array([[slope(a, b) for _, slope in ELEMENTWISE.values()] for a, b in X])
    tolerance = DIFFERENCES if "difference" in method else EXACT
    for i, name in enumerate(ELEMENTWISE):
        np.testing.assert_allclose(j.value[:, i], values[:, i], rtol=EXACT, atol=EXACT, err_msg=name)
        np.testing.assert_allclose(j.fx[:, i], slopes[:, i], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
def test_elementwise_functions_within_a_selection(method, engine):
    """A selection by a truth value, one by a number, and one of a whole vector; the first alternatives are chosen at X."""

    def function(x, u, t, p):
        a, b = x
        chosen = [sm.select(a > -2.0, sm.select(b, f(a, b), a), b) for f, _ in ELEMENTWISE.values()]
        return [*chosen, *sm.select(b, np.abs(np.stack([a, b])), a)]

    map = FunctionMap(function, 2, 0, len(ELEMENTWISE) + 2)
    j = make_backend(map, method, engine=engine).jacobians(X, np.zeros((4, 0)))
    slopes = np.array([[slope(a, b) for _, slope in ELEMENTWISE.values()] for a, b in X])
    tolerance = DIFFERENCES if "difference" in method else EXACT
    assert map.called.why == ""
    for i, name in enumerate(ELEMENTWISE):
        np.testing.assert_allclose(j.fx[:, i], slopes[:, i], rtol=tolerance, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(j.value[:, -2:], np.abs(X), rtol=EXACT)
    np.testing.assert_allclose(j.fx[:, -2:], np.sign(X)[:, :, None] * np.eye(2), rtol=tolerance, atol=tolerance)


def test_a_function_of_arrays_only_is_not_called_with_complex_numbers():
    """np.abs of a complex number is its modulus: a complex step would lose the derivative."""
    map = FunctionMap(lambda x, u, t, p: [erf(x[1]) * np.abs(x[0])], 2, 0, 1)
    j = make_backend(map, "complex_step", engine="numpy").jacobians(X, np.zeros((4, 0)))
    np.testing.assert_allclose(j.fx[:, 0, 0], erf(X[:, 1]) * np.sign(X[:, 0]), atol=DIFFERENCES)
    assert "np.erf has no rule" in map.called.why


@pytest.fixture(params=[-1, 1])
def numpy_mode(request):
    """Sets a mode of CasADi in which it takes over NumPy functions, and sets the old one again."""
    options = ca.GlobalOptions
    if not hasattr(options, "setNumpyMode"):
        pytest.skip("CasADi before 3.7.3 has no such modes")
    given = options.getNumpyMode()
    options.setNumpyMode(request.param)
    yield request.param
    options.setNumpyMode(given)


@pytest.mark.parametrize("name", ["hypot", "arcsinh"])
def test_a_function_in_any_numpy_mode_of_casadi(name, numpy_mode):
    """CasADi's own functions of these names have no instructions of tapes."""
    f, slope = ELEMENTWISE[name]
    backend = make_backend(FunctionMap(lambda x, u, t, p: [f(x[0], x[1])], 2, 0, 1), "forward_ad", engine="compiled")
    j = backend.jacobians(X, np.zeros((4, 0)))
    np.testing.assert_allclose(j.fx[:, 0], [slope(a, b) for a, b in X], rtol=EXACT, atol=EXACT)
    lam = np.ones((4, 1))
    assert np.isfinite(backend.hessian_contraction(X, np.zeros((4, 0)), 0.0, None, lam)[1].xx).all()
    assert ca.GlobalOptions.getNumpyMode() == numpy_mode


@pytest.mark.parametrize("method", SECOND)
def test_sinc_has_derivatives_at_zero(method):
    backend = make_backend(FunctionMap(lambda x, u, t, p: [np.sinc(x[0])], 1, 0, 1), method)
    at, none = np.array([[0.0], [1e-9]]), np.zeros((2, 0))
    tolerance = DIFFERENCES if "difference" in method else EXACT
    np.testing.assert_allclose(
        backend.jacobians(at, none).fx[:, 0, 0],
        -(np.pi**2) / 3.0 * at[:, 0],
        atol=1e-15 if tolerance == EXACT else 1e-5,
    )
    H = backend.hessian_contraction(at, none, 0.0, None, np.ones((2, 1)))[1].xx
    np.testing.assert_allclose(H[:, 0, 0], -(np.pi**2) / 3.0, rtol=1e2 * tolerance)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", SECOND)
def test_second_derivatives_of_elementwise_functions(method, engine):
    """Compared with central differences of closed-form slopes."""
    backend = make_backend(FunctionMap(all_elementwise, 2, 0, len(ELEMENTWISE)), method, engine=engine)
    h, slopes = 1e-6, [slope for _, slope in ELEMENTWISE.values()]
    for i, name in enumerate(ELEMENTWISE):
        lam = np.zeros((4, len(ELEMENTWISE)))
        lam[:, i] = 1.0
        H = backend.hessian_contraction(X, np.zeros((4, 0)), 0.0, None, lam)[1].xx
        for row, at in zip(H, X, strict=True):
            steps = [[np.array(slopes[i](*(at + s * e))) for s in (h, -h)] for e in np.eye(2)]
            expected = np.array([(forward - backward) / (2 * h) for forward, backward in steps])
            tolerance = 1e-4 if method == "central_difference" else 1e-6
            np.testing.assert_allclose(row, expected, rtol=tolerance, atol=tolerance, err_msg=name)


A = np.array([[1.0, -2.0, 0.5], [0.3, 0.9, 2.0]])
P = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]])
TABLE = np.array([-1.0, -0.2, 0.35, 1.0]), np.array([0.0, 2.0, 1.0, 3.0])


def inertia(q):
    return np.array([[2.0 + np.cos(q[0]), 0.2 * np.sin(q[1])], [0.2 * np.sin(q[1]), 1.0 + q[1] ** 2]])


VECTORS = {
    "norm": lambda x, u: [np.linalg.norm(x - np.array([1.0, 2.0, 3.0]))],
    "norms": lambda x, u: [np.linalg.norm(x, 1), np.linalg.norm(x, np.inf), np.linalg.norm(x, 3)],
    "norm of an array": lambda x, u: [np.linalg.norm(np.array([x[0] - 1.0, x[1]]))],
    "norms of rows": lambda x, u: np.linalg.norm(np.outer(x, u), axis=1),
    "matrix": lambda x, u: A @ x,
    "dot": lambda x, u: [np.dot(x, P @ x), x @ x, x.T @ P @ x, np.inner(u, u), np.vdot(x, x)],
    "sums": lambda x, u: [np.sum(x), x.sum(), sum(x), np.mean(x), x.mean(), np.prod(x), np.max(x), np.min(u)],
    "solve": lambda x, u: np.linalg.solve(inertia(x), u - A @ x),
    "pivots": lambda x, u: np.linalg.solve(np.array([[0.0 * x[0], x[1]], [x[0], 1.0]]), u),
    "inverse": lambda x, u: np.linalg.inv(np.outer(x, x) + P) @ x,
    "determinant": lambda x, u: [np.linalg.det(np.outer(x, x) + P)],
    "stack": lambda x, u: np.concatenate([np.stack([x[0], u[1]]), x[::-1], np.hstack([u, x[0]]), [u[0]], 3 * [1.0]]),
    "unpacked": lambda x, u: (lambda a, b, c: [a * b, c])(*x),
    "cross": lambda x, u: np.cross(x, np.array([0.3, -1.0, 2.0])),
    "einsum": lambda x, u: np.einsum("ij,j->i", A, x) * u,
    "where": lambda x, u: np.where(x > 0.1, x**2, -x),
    "clipped": lambda x, u: np.clip(x, -0.3, 0.5) + x.clip(-0.2, 0.2),
    "shapes": lambda x, u: (x.reshape(3, 1) * u[None, :]).ravel(),
    "table": lambda x, u: [np.interp(x[0], *TABLE), np.interp(u[0], *TABLE)],
    "differences": lambda x, u: np.concatenate([np.diff(x), np.cumsum(u)]),
    "rotation": lambda x, u: np.array([[np.cos(x[0]), -np.sin(x[0])], [np.sin(x[0]), np.cos(x[0])]]) @ u,
    "scalar": lambda x, u: np.sqrt(1.0 + x[0] ** 2),
    "nothing of the state": lambda x, u: [1.0, 2.0],
}


def differences_of(f, z, h=1e-6):
    """(n_out, n) by central differences."""
    columns = [(np.ravel(f(z + h * e)) - np.ravel(f(z - h * e))) / (2 * h) for e in np.eye(len(z))]
    return np.array(columns, dtype=float).T


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
def test_linear_algebra_and_array_manipulation(method, engine):
    """Batches are compared with single knots, and derivatives with differences."""
    rng = np.random.default_rng(3)
    x, u = rng.uniform(-0.9, 0.9, (5, 3)), rng.uniform(0.2, 0.9, (5, 2))
    lengths = [np.size(f(x[0], u[0])) for f in VECTORS.values()]

    def function(x, u, t, p):
        return [f(x, u) for f in VECTORS.values()]

    if engine == "compiled" or method == "forward_ad":
        maps = {
            "all": (
                FunctionMap(function, 3, 2, sum(lengths)),
                lambda x, u: np.concatenate([np.ravel(f(x, u)) for f in VECTORS.values()]),
            )
        }
    else:
        maps = {
            name: (FunctionMap(lambda x, u, t, p, f=f: f(x, u), 3, 2, n), f)
            for (name, f), n in zip(VECTORS.items(), lengths, strict=True)
        }
    for name, (map, f) in maps.items():
        j = make_backend(map, method, engine=engine).jacobians(x, u)
        assert map.called.why == "", name
        for k in range(5):
            np.testing.assert_allclose(j.value[k], np.ravel(f(x[k], u[k])), rtol=1e-11, atol=1e-11, err_msg=name)
            expected = differences_of(lambda z, f=f: f(z[:3], z[3:]), np.r_[x[k], u[k]])
            np.testing.assert_allclose(np.hstack([j.fx[k], j.fu[k]]), expected, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "function", [lambda x, u, t, p: [np.mean(x)], lambda x, u, t, p: [x.sum()], lambda x, u, t, p: [np.linalg.norm(x)]]
)
def test_the_batch_is_never_summed(function):
    """Equal knots would hide it: the mean over a batch of equal states is right by chance."""
    backend = make_backend(FunctionMap(function, 2, 0, 1), "forward_ad", engine="numpy")
    backend.f(np.ones((4, 2)), np.zeros((4, 0)))
    np.testing.assert_allclose(backend.f(X, np.zeros((4, 0)))[:, 0], [function(x, None, 0, {})[0] for x in X])


def decides(x, u, t, p):
    return [x[0] * x[1] if x[0] > 0 else np.sin(x[1]), u[0] ** 2 * p["gain"][0] + t]


def loops(x, u, t, p):
    total = 0.0
    while total < 1.03 + abs(x[1]):
        total += 0.4
    return [total * x[0], u[0] * p["gain"][0]]


def fills_an_array(x, u, t, p):
    out = np.zeros(2)
    out[0], out[1] = x[0] * x[1], u[0] * p["gain"][0]
    return out


def asks_a_library(x, u, t, p):
    return [math.erf(x[0] * x[1]), u[0]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("function", [decides, loops, fills_an_array, asks_a_library])
def test_what_cannot_be_traced_is_differentiated_by_differences(function, method, engine, caplog):
    caplog.set_level(logging.WARNING)
    map, p = FunctionMap(function, 2, 1, 2), {"gain": np.array([1.5])}
    backend = make_backend(map, method, engine=engine)
    u = np.array([[0.5], [1.0], [-0.2], [2.0]])
    for _ in range(2):
        j = backend.jacobians(X, u, 0.1, p)
    for k in range(4):
        np.testing.assert_allclose(j.value[k], function(X[k], u[k], 0.1, p), rtol=1e-14)
        expected = differences_of(lambda z: function(z[:2], z[2:], 0.1, p), np.r_[X[k], u[k]])
        np.testing.assert_allclose(np.hstack([j.fx[k], j.fu[k]]), expected, atol=1e-6)
    assert len(caplog.messages) == 1 and f"function {function.__name__} " in caplog.text
    assert map.called.why == caplog.messages[0]
    if method in SECOND:
        H = backend.hessian_contraction(X, u, 0.1, p, np.ones((4, 2)))[1]
        for k in range(4):
            slope = lambda z: differences_of(lambda y: sum(function(y[:2], y[2:], 0.1, p)), z, 1e-4)  # noqa: E731
            expected = differences_of(slope, np.r_[X[k], u[k]], 1e-4)
            np.testing.assert_allclose(H.xx[k], expected[:2, :2], atol=1e-4)
            np.testing.assert_allclose(H.uu[k], expected[2:, 2:], atol=1e-4)


def test_mistakes_are_reported_unchanged():
    x, u = np.ones((2, 2)), np.zeros((2, 0))
    for function, error, what in (
        (lambda x, u, t, p: [np.sin(x[5])], IndexError, "out of bounds"),
        (lambda x, u, t, p: [np.sin(p["gain"][0])], KeyError, "gain"),
        (lambda x, u, t, p: [nowhere], NameError, "nowhere"),  # type: ignore[name-defined]  # noqa: F821
        (lambda x, u, t, p: A @ x, ValueError, "matmul"),
    ):
        with pytest.raises(error, match=what):
            make_backend(FunctionMap(function, 2, 0, 1), "forward_ad", engine="numpy").jacobians(x, u)
    with pytest.raises(ValueError, match="returned 2 rows; expected n_out = 1"):
        make_backend(FunctionMap(lambda x, u, t, p: np.array([x.sum(), 1.0]), 2, 0, 1), "forward_ad").jacobians(x, u)


POWERS = {
    "x ** 0": lambda x, u, t, p: [x[0] ** 0],
    "x ** 0.0": lambda x, u, t, p: [x[0] ** 0.0],
    "x ** 1": lambda x, u, t, p: [x[0] ** 1],
    "x ** 3": lambda x, u, t, p: [x[0] ** 3],
    "x ** 2.5": lambda x, u, t, p: [x[0] ** 2.5],
    "x ** p, p = 0": lambda x, u, t, p: [x[0] ** p["exponents"][0]],
    "x ** p, p = 2": lambda x, u, t, p: [x[0] ** p["exponents"][1]],
    "x ** u": lambda x, u, t, p: [x[0] ** u[0]],
    "np.power(x, u)": lambda x, u, t, p: [np.power(x[0], u[0])],
    "2 ** x": lambda x, u, t, p: [2 ** x[0]],
}
BASES = np.array([[0.0], [0.0], [0.0], [0.0], [-1.5], [2.0], [2.0]])
EXPONENTS = np.array([[0.0], [1.0], [2.0], [2.5], [2.0], [-1.5], [0.0]])


def power_derivatives(name):
    """Value, slopes in x and u, and second derivatives xx, ux, uu (7, 6) by the rule of :func:`power`."""
    rows = []
    for x, u in zip(BASES[:, 0].tolist(), EXPONENTS[:, 0].tolist(), strict=True):
        if name == "2 ** x":
            c = math.log(2.0)
            rows.append([2.0**x, c * 2.0**x, 0.0, c * c * 2.0**x, 0.0, 0.0])
            continue
        constant = {"x ** u": None, "np.power(x, u)": None, "x ** p, p = 0": 0.0, "x ** p, p = 2": 2.0}
        b = constant[name] if name in constant else float(name.split()[-1])
        fixed, b = b is not None, u if b is None else b
        if x < 0.0 and not b.is_integer():
            rows.append([np.nan, np.nan, 0.0, np.nan, np.nan, 0.0])
            continue
        slopes = [
            x**b,
            b * x ** (b - 1.0) if b else 0.0,
            b * (b - 1.0) * x ** (b - 2.0) if b not in (0.0, 1.0) else 0.0,
        ]
        in_u = [0.0, 0.0, 0.0]
        if not fixed and x != 0.0:
            c = math.log(x) if x > 0.0 else np.nan
            in_u = [c * x**b, x ** (b - 1.0) * (1.0 + b * c), c * c * x**b]
        rows.append([slopes[0], slopes[1], in_u[0], slopes[2], in_u[1], in_u[2]])
    return np.array(rows)


@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", POWERS)
def test_powers_agree_at_zero_and_below(name, method, engine):
    """0 ** 0 = 1, and at zero the exponent counts as a constant; the test omits differences that would leave the domain."""
    backend = make_backend(FunctionMap(POWERS[name], 1, 1, 1), method, engine=engine)
    p, expected = {"exponents": np.array([0.0, 2.0])}, power_derivatives(name)
    j = backend.jacobians(BASES, EXPONENTS, 0.0, p)
    found = np.stack([j.value[:, 0], j.fx[:, 0, 0], j.fu[:, 0, 0]], axis=1)
    inside = np.full(len(BASES), True)
    if "difference" in method and ("u" in name or name == "x ** 2.5"):
        inside = BASES[:, 0] > 0.0
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-12, atol=1e-12)
    tolerance = DIFFERENCES if "difference" in method else 1e-10
    np.testing.assert_allclose(found[inside], expected[inside, :3], rtol=tolerance, atol=tolerance)
    if method in SECOND and "difference" not in method:
        H = backend.hessian_contraction(BASES, EXPONENTS, 0.0, p, np.ones((len(BASES), 1)))[1]
        second = np.stack([H.xx[:, 0, 0], H.ux[:, 0, 0], H.uu[:, 0, 0]], axis=1)
        whole = ~np.isnan(expected[:, 0])  # where the value is no number, neither are these
        np.testing.assert_allclose(second[whole], expected[whole, 3:], rtol=1e-8, atol=1e-8)


def assigns(x, u, t, p):
    x[0] = 3.0
    return [x[0]]


def scales(x, u, t, p):
    x *= 2.0
    return [x[0]]


def writes_parameters(x, u, t, p):
    p["gain"] -= x[:1]
    return [p["gain"][0]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("function", [assigns, scales, writes_parameters])
def test_a_function_that_writes_into_its_arguments_is_refused(function, method, engine):
    backend = make_backend(FunctionMap(function, 2, 1, 1), method, engine=engine)
    x, p = X.copy(), {"gain": np.array([1.0])}
    for evaluate in (backend.f, backend.jacobians):
        with pytest.raises(ValueError, match="read-only") as caught:
            evaluate(x, np.ones((4, 1)), 0.0, p)
        (note,) = caught.value.__notes__
        assert note.startswith(f"function {function.__name__} (") and "work on a copy, `x = x.copy()`" in note
    np.testing.assert_array_equal(x, X)
    assert p["gain"] == 1.0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
def test_a_function_may_write_into_a_copy(method, engine):
    def on_a_copy(x, u, t, p):
        x = x.copy()
        x[0] = x[0] * x[1]
        return [x[0] * u[0]]

    map = FunctionMap(on_a_copy, 2, 1, 1)
    j = make_backend(map, method, engine=engine).jacobians(X, np.full((4, 1), 2.0))
    np.testing.assert_allclose(j.fx[:, 0], 2.0 * X[:, ::-1], atol=1e-6)
    assert map.called.why == ""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_function_that_returns_nothing_is_reported(engine):
    def forgets(x, u, t, p):
        x[0] * x[1]

    backend = make_backend(FunctionMap(forgets, 2, 0, 1), "forward_ad", engine=engine)
    for evaluate in (backend.f, backend.jacobians):
        with pytest.raises(
            ValueError, match=r"forgets .* returns None: end it with `return \[...\]`, a list of n_out = 1"
        ):
            evaluate(X, np.zeros((4, 0)))


def test_functions_for_arrays_name_the_replacement_for_residuals(caplog):
    """They are evaluated knot by knot; the log names the traced alternative."""
    model = chain(2)
    functions = {
        "to.kinematics.frame_position": lambda x, u, t, p: [batched.frame_placement(model, x[:2], "body1")[1][0]],
        "to.kinematics.frame_velocity": lambda x, u, t, p: [batched.frame_velocity(model, x[:2], x[2:], "body1")[0]],
        "to.kinematics.center_of_mass": lambda x, u, t, p: [batched.center_of_mass(model, x[:2])[2]],
        "to.MassMatrix": lambda x, u, t, p: [batched.mass_matrix(model, x[:2])[0, 0]],
    }
    for remedy, function in functions.items():
        map = FunctionMap(function, 4, 0, 1)
        make_backend(map, "forward_ad", engine="numpy").jacobians(np.ones((3, 4)), np.zeros((3, 0)))
        assert f"inside of a residual or of dynamics call {remedy}" in map.called.why


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ["forward_ad", "complex_step", "casadi_ad"])
def test_robots_inside_a_users_function(method, engine):
    """Kinematics and dynamics of the library between functions of NumPy."""
    model = chain(3)
    body = FreeBody(model)
    tip = len(model.frames) - 1

    def function(x, u, t, p):
        q, v = x[:3], x[3:]
        force = rnea(model, q, v, np.sin(q))
        energy = kinetic_energy(model, q, v)
        return np.concatenate([[np.linalg.norm(frame_position(model, q, tip)), energy], force, body(x, u, t, p)[3:]])

    rng = np.random.default_rng(0)
    x, u = rng.uniform(-1, 1, (4, 6)), rng.uniform(-1, 1, (4, 3))
    map = FunctionMap(function, 6, 3, 8)
    j = make_backend(map, method, engine=engine).jacobians(x, u)
    at = [np.linalg.norm(frame_position(model, s[:3, None], tip)) for s in x]
    np.testing.assert_allclose(j.value[:, 0], at)
    plain = make_backend(map, "central_difference", engine="numpy").jacobians(x, u)
    np.testing.assert_allclose(j.value, plain.value, atol=1e-10)
    np.testing.assert_allclose(j.fx, plain.fx, atol=1e-5)
    assert map.called.why == ""


def test_number_types_by_themselves():
    x = np.array([[0.3, 0.8]])
    dual = Dual.seed(x, np.eye(1))
    for f, slope in (
        (np.sin, np.cos),
        (np.exp, np.exp),
        (np.tan, lambda v: 1 / np.cos(v) ** 2),
        (np.log1p, lambda v: 1 / (1 + v)),
    ):
        np.testing.assert_allclose(f(dual).val, f(x))
        np.testing.assert_allclose(f(dual).tan[..., 0], slope(x))
    np.testing.assert_allclose((np.array([2.0, 3.0]) * dual).tan[..., 0], [[2.0, 3.0]])
    np.testing.assert_allclose((np.array([[2.0], [3.0]]) @ dual).tan[..., 0], [[2.0, 2.0], [3.0, 3.0]])
    with pytest.raises(TypeError, match="cannot become a NumPy array"):
        np.asarray(dual)


def test_a_trace_evaluated_on_dual_numbers_and_symbols():
    """Values of a function of two variables, and its derivatives by dual numbers and by CasADi, against finite differences."""

    def value(x, y):
        return (
            np.arctan2(x, y) * np.sinh(x) + np.cosh(y) ** 1.5 + np.log(y) * np.arcsin(x) + np.tan(x * y) + np.arccos(x)
        )

    def function(x, y):
        rows = [value(x, y), np.where(x > y, x, np.exp(y)), np.maximum(x, np.abs(y)) + np.hypot(x, y)]
        return [[unboxed(row) for row in rows]]

    t = trace(lambda z: function(Entry(z[0]), Entry(z[1])), [2])
    at, step = np.array([[0.3, 0.7], [0.6, 0.2]]), 1e-6
    (found,) = evaluated(t, [at])
    np.testing.assert_allclose(found, function(*at)[0], rtol=1e-14)
    (duals,) = evaluated(t, [Dual.seed(at, np.eye(2))])
    for j, h in enumerate(step * np.eye(2)[:, :, None]):
        slopes = (np.array(function(*(at + h))[0]) - function(*(at - h))[0]) / (2 * step)
        np.testing.assert_allclose([row.tan[:, j] for row in duals], slopes, atol=1e-8)
    symbol = ca.SX.sym("z", 2)
    (rows,) = evaluated(t, [symbol])
    numbers = ca.Function("rows", [symbol], [ca.vertcat(*rows)])(at)
    np.testing.assert_allclose(numbers, found, rtol=1e-14)


def test_hills_by_functions_of_numpy():
    """Height, slope and curvature of a ground with a step, compared with closed forms."""
    ground = Terrain(lambda x, y: np.where(x > 0.2, 0.1 * np.sin(3 * x) * np.cos(2 * y), 0.05 * np.abs(y)))
    for x, y in ((0.5, 0.3), (-0.5, -0.3)):
        s = ground.surface(Vec(x, y, 0.4), {})
        hilly = x > 0.2
        gap = 0.4 - (0.1 * np.sin(3 * x) * np.cos(2 * y) if hilly else 0.05 * abs(y))
        slope = (0.3 * np.cos(3 * x) * np.cos(2 * y), -0.2 * np.sin(3 * x) * np.sin(2 * y)) if hilly else (0.0, -0.05)
        assert float(s.gap) == pytest.approx(gap)
        assert (float(s.gradient.x), float(s.gradient.y)) == pytest.approx((-slope[0], -slope[1]))
        assert float(s.curvature.gap2.a.x) == pytest.approx(0.9 * np.sin(3 * x) * np.cos(2 * y) if hilly else 0.0)


def test_functions_without_a_rule_are_reported():
    x = from_rows(np.ones((2, 3)))
    for attempt in (
        lambda: bool(x[0] > 0),
        lambda: float(x[0]),
        lambda: [1, 2][x[0]],
        lambda: np.isnan(x),
        lambda: np.where(x > 0),
        lambda: x.sum(where=[True, False]),
        lambda: np.linalg.norm(x, 0),
    ):
        with pytest.raises(NoNumber):
            attempt()
    assert isinstance(x[0] + 1.0, Entry) and (x + 1.0).shape == (2,)


@pytest.mark.parametrize("like", [True, False])
def test_a_matrix_of_entries_inverted_by_lapack_names_the_way_to_keep_it_traceable(like, caplog):
    def inverted(x, u, t, p):
        rows = [[2.0 + np.cos(x[0]), x[1]], [x[1], 3.0]]
        return np.linalg.inv(np.array(rows, like=x) if like else np.array(rows)) @ x

    jacobian = make_backend(FunctionMap(inverted, 2, 0), "casadi_ad").jacobians(
        np.array([[1.0, 0.5]]), np.zeros((1, 0))
    )
    a, b = 2.0 + np.cos(1.0), 0.5
    expected = np.array([3.0 * 1.0 - b * 0.5, a * 0.5 - b * 1.0]) / (3.0 * a - b * b)  # by Cramer's rule
    np.testing.assert_allclose(jacobian.value[0], expected, rtol=1e-12)
    assert [("like=x" in message) for message in caplog.messages] == ([] if like else [True])


def test_differences_take_a_value_for_each_pair_of_numbers():
    """The Hessian of a function of floats, against that by hand, from m^2 + m + 1 values and those of the slopes."""
    calls = []

    def function(x, u, t, p):
        calls.append(1)
        return [math.sin(x[0]) * float(x[1]) ** 2, math.exp(0.1 * u[0]) * float(x[0])]

    system, N, m = FunctionMap(function, 2, 1, 2), 7, 3
    rng = np.random.default_rng(3)
    x, u, lam = rng.normal(size=(N, 2)), rng.normal(size=(N, 1)), rng.normal(size=(N, 2))
    ForwardAD(system).jacobians(x, u, 0.0, None)  # decides how the function is called
    calls.clear()
    first, second = ForwardAD(system).hessian_contraction(x, u, 0.0, None, lam)
    s, c, e = np.sin(x[:, 0]), np.cos(x[:, 0]), np.exp(0.1 * u[:, 0])
    cross = lam[:, 0] * 2.0 * x[:, 1] * c
    right = np.stack([np.stack([-lam[:, 0] * s * x[:, 1] ** 2, cross]), np.stack([cross, 2.0 * lam[:, 0] * s])])
    np.testing.assert_allclose(second.xx, right.transpose(2, 0, 1), atol=1e-6)
    np.testing.assert_allclose(second.ux[:, 0, 0], lam[:, 1] * 0.1 * e, atol=1e-6)
    np.testing.assert_allclose(second.uu[:, 0, 0], lam[:, 1] * 0.01 * e * x[:, 0], atol=1e-6)
    np.testing.assert_allclose(first.fx[:, 0, 0], c * x[:, 1] ** 2, atol=1e-8)
    assert len(calls) <= N * ((m * m + m + 1) + 2 * (2 * m + 2))


@pytest.mark.parametrize("make", [np.array, np.asarray])
def test_vectors_and_matrices_of_entries_by_like_solve_a_linear_system(make):
    def solved(x, u, t, p):
        A = make([[2.0, np.cos(x[0])], [np.cos(x[0]), 3.0 + p["mass"][0]]], like=x)
        return np.linalg.solve(A, make([u[0], x[1] + 1], dtype=float, like=x))

    system = FunctionMap(solved, 2, 1)
    given = np.array([[1.0, 0.5], [0.2, -0.3]]), np.array([[0.7], [-0.4]]), 0.0, {"mass": [0.5]}
    results = [make_backend(system, name).jacobians(*given) for name in ("forward_ad", "casadi_ad", "complex_step")]
    for x, u, value in zip(given[0], given[1], results[0].value, strict=True):
        c = np.cos(x[0])
        np.testing.assert_allclose(np.array([[2.0, c], [c, 3.5]]) @ value, [u[0], x[1] + 1.0], rtol=1e-12)
    for other in results[1:]:
        np.testing.assert_allclose(other.fx, results[0].fx, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", ["forward_ad", "complex_step", "casadi_ad"])
def test_a_function_that_means_something_else_on_symbols_is_evaluated_by_numbers(method, caplog):
    def typed(x, u, t, p):
        return [x[1], u[0] - np.sin(x[0])] if isinstance(x, np.ndarray) else [x[1], 2.0 * u[0]]

    x, u = np.array([[0.3, -0.2], [1.0, 2.0]]), np.array([[0.5], [-1.5]])
    backend = make_backend(FunctionMap(typed, 2, 1), method, engine="compiled")
    np.testing.assert_allclose(backend.f(x, u), np.c_[x[:, 1], u[:, 0] - np.sin(x[:, 0])], atol=1e-15)
    found = backend.jacobians(x, u)
    expected = [[[0.0, 1.0], [-np.cos(angle), 0.0]] for angle in x[:, 0]]
    np.testing.assert_allclose(found.fx, expected, atol=1e-9)
    np.testing.assert_allclose(found.fu, [[[0.0], [1.0]]] * 2, atol=1e-9)
    assert any("does it test types" in message for message in caplog.messages)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", METHODS)
def test_halves_are_rounded_to_even_numbers(method, engine):
    x = np.array([-2.5, -1.5, -0.5, -0.4, 0.0, 0.5, 0.6, 1.5, 2.5, 1e17])[:, None]
    backend = make_backend(FunctionMap(lambda x, u, t, p: [np.rint(x[0])], 1, 1), method, engine=engine)
    np.testing.assert_array_equal(backend.f(x, np.zeros_like(x)), np.rint(x))


def _in_an_object_array(x, u, t, p):
    result = np.empty(2, dtype=object)
    result[0], result[1] = x[1], u[0]
    return result


def test_an_array_of_objects_is_a_list_of_rows():
    listed = FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    packed = FunctionMap(_in_an_object_array, 2, 1)
    array = FunctionMap(lambda x, u, t, p: np.array([x[1], u[0]], dtype=object), 2, 1)
    x, u = np.array([[0.2, 0.1], [0.3, -0.4]]), np.array([[1.0], [2.0]])
    for method in ("forward_ad", "complex_step", "casadi_ad"):
        one, other, third = (make_backend(f, method).jacobians(x, u) for f in (listed, packed, array))
        for a, b, c in zip(one, other, third, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x, u, t, p: [x[1], u[0] * 1j], "returns complex numbers for real arguments"),
        (lambda x, u, t, p: [x[1], np.emath.sqrt(x[0] - 9.0)], "returns complex numbers for real arguments"),
        (lambda x, u, t, p: {0: x[1], 1: u[0]}, "returns a dict"),
        (lambda x, u, t, p: (row for row in (x[1], u[0])), "returns a generator"),
        (lambda x, u, t, p: "ab", "returns a str"),
    ],
)
@pytest.mark.parametrize("method", ["forward_ad", "complex_step", "casadi_ad", "central_difference"])
def test_results_that_are_no_real_numbers_are_refused(function, said, method):
    with pytest.raises(ValueError, match=said):
        make_backend(FunctionMap(function, 2, 1), method).jacobians(np.array([[0.2, 0.1]]), np.array([[1.0]]))


def test_errors_outside_of_a_domain_count_as_nan(caplog):
    """math.sqrt raises there, and np.sqrt returns NaN; an error at the first call is raised."""

    def root(x, u, t, p):
        return [math.sqrt(1.0 - float(x[0]))]

    map = FunctionMap(root, 1, 0, 1)
    values = np.array([[0.0, 0.75, 0.36]])
    np.testing.assert_allclose(map(values, np.zeros((0, 3)), np.zeros(3), {})[0], [1.0, 0.5, 0.8])
    found = np.asarray(map(np.array([[0.0, 2.0, 3.0]]), np.zeros((0, 3)), np.zeros(3), {}))[0]
    assert found[0] == 1.0 and np.isnan(found[1:]).all()
    assert sum("counts as NaN there: math domain error" in r.message for r in caplog.records) == 1
    with pytest.raises(ValueError, match="math domain error"):
        FunctionMap(root, 1, 0, 1)(np.array([[2.0]]), np.zeros((0, 1)), np.zeros(1), {})
