"""Tapes: each instruction against NumPy, graphs against CasADi's virtual machine, robots against NumPy's algorithms."""

import ctypes
import itertools
import pickle
import threading

import casadi as ca
import numpy as np
import pytest
from compiled_text import compiled_text
from rigid_body_cases import foreign

from dynamics_backends.compiled.loops.kernel import header, kernel_text, prelude
from dynamics_backends.compiled.runtime.memory import address, aligned, bound, pointers
from dynamics_backends.machine import library
from dynamics_backends.machine.library import X86_64, library_file
from dynamics_backends.symbols import called, preserved_calls
from dynamics_backends.tape import encode
from dynamics_backends.tape.encode import UnknownOperation
from dynamics_backends.tape.tape import Tape
from dynamics_backends.trace import Operation, Trace, trace_expressions
from dynamics_backends.user_input import InputError

NAN, INF = np.nan, np.inf
NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.3, 2.0, 3.7, -8.25, 1e-310, 1e200, -1e200, INF, -INF, NAN])
PAIRS = np.array(np.meshgrid(NUMBERS, NUMBERS)).reshape(2, -1)


def where(condition, value):
    """Masked value: where the condition is false, also NaN becomes 0."""
    return np.where(condition, value, 0.0)


ONE = {
    **{
        name: getattr(np, name.lower())
        for name in ("SIN", "COS", "TAN", "EXP", "LOG", "SINH", "COSH", "TANH", "FLOOR", "SQRT")
    },
    **{name: getattr(np, name.lower()) for name in ("EXPM1", "LOG1P", "FABS")},
    "ASIN": np.arcsin,
    "ACOS": np.arccos,
    "ATAN": np.arctan,
    "NEG": np.negative,
    "SQ": np.square,
    "TWICE": lambda a: a + a,
    "INV": lambda a: 1.0 / a,
    "SIGN": lambda a: 1.0 * (a > 0) - 1.0 * (a < 0),
    "NOT": lambda a: 1.0 * (a == 0),
}
TWO = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
    "ATAN2": np.arctan2,
    "POW": np.power,
    "CONSTPOW": np.power,
    "FMIN": lambda a, b: np.where(a < b, a, b),
    "FMAX": lambda a, b: np.where(a > b, a, b),
    "LT": lambda a, b: 1.0 * (a < b),
    "LE": lambda a, b: 1.0 * (a <= b),
    "EQ": lambda a, b: 1.0 * (a == b),
    "NE": lambda a, b: 1.0 * (a != b),
    "AND": lambda a, b: 1.0 * ((a != 0) & (b != 0)),
    "OR": lambda a, b: 1.0 * ((a != 0) | (b != 0)),
    "IF_ELSE_ZERO": lambda c, a: where(c != 0, a),
}


def tape_of(operations, outputs, sizes):
    """Tape of operations (name, *operands)."""
    listed = [Operation(i, name, tuple(operands)) for i, (name, *operands) in enumerate(operations)]
    return Tape.of(Trace(listed, outputs), sizes)


def assert_same(actual, expected, ulps=4):
    """Values equal to rounding, the same where they are NaN, infinite, or zero of either sign."""
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    exact = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(actual[exact], expected[exact])
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(expected[zero]))
    np.testing.assert_allclose(actual[~exact], expected[~exact], rtol=ulps * 2.0**-53, atol=5e-324)


@pytest.mark.parametrize("name", ONE)
def test_operations_of_one_value(name):
    tape = tape_of([(name, (0, 0))], [[0]], [1])
    with np.errstate(all="ignore"):
        assert_same(tape.rows(NUMBERS[:, None])[0][:, 0], ONE[name](NUMBERS))


@pytest.mark.parametrize("name", TWO)
def test_operations_of_two_values(name):
    tape = tape_of([(name, (0, 0), (1, 0))], [[0]], [1, 1])
    with np.errstate(all="ignore"):
        assert_same(tape.rows(PAIRS[0][:, None], PAIRS[1][:, None])[0][:, 0], TWO[name](*PAIRS))


@pytest.mark.parametrize("constant", [0.0, -0.0, 2.5, -1.0, INF, NAN])
@pytest.mark.parametrize("name", TWO)
def test_operations_with_a_constant(name, constant):
    left = tape_of([(name, constant, (0, 0))], [[0]], [1]).rows(NUMBERS[:, None])[0][:, 0]
    right = tape_of([(name, (0, 0), constant)], [[0]], [1]).rows(NUMBERS[:, None])[0][:, 0]
    with np.errstate(all="ignore"):
        assert_same(left, TWO[name](constant, NUMBERS))
        assert_same(right, TWO[name](NUMBERS, constant))


@pytest.mark.parametrize("decision", ["LT", "LE", "EQ", "AND"])
def test_selections(decision):
    """CasADi's choice between two values, with NaN in the condition and in the values that are not chosen."""
    flags = [
        (decision, (0, 0), (0, 1)),
        ("NOT", 0),
        ("IF_ELSE_ZERO", 0, (0, 2)),
        ("IF_ELSE_ZERO", 1, (0, 3)),
        ("ADD", 2, 3),
    ]
    tape = tape_of(flags, [[4]], [4])
    assert len(tape.code) < len(tape_of(flags, [[4, 2]], [4]).code)  # one instruction if nothing else reads the parts
    first, second = np.full(PAIRS.shape[1], 3.0), np.full(PAIRS.shape[1], NAN)
    for a, b in ((first, second), (second, first)):
        chosen = TWO[decision](*PAIRS) != 0
        assert_same(tape.rows(np.stack([*PAIRS, a, b], axis=1))[0][:, 0], np.where(chosen, a, b))


SUMS = {
    "ab + cd": lambda a, b, c, d: a * b + c * d,
    "ab - cd": lambda a, b, c, d: a * b - c * d,
    "-ab + cd": lambda a, b, c, d: -(a * b) + c * d,
    "-ab - cd": lambda a, b, c, d: -(a * b) - c * d,
    "ab + c": lambda a, b, c, d: a * b + c,
    "c + ab": lambda a, b, c, d: c + a * b,
    "ab - c": lambda a, b, c, d: a * b - c,
    "c - ab": lambda a, b, c, d: c - a * b,
    "3a + b": lambda a, b, c, d: 3.0 * a + b,
    "b - 3a": lambda a, b, c, d: b - 3.0 * a,
    "a + b + c": lambda a, b, c, d: a + b + c,
    "-a - b": lambda a, b, c, d: -a - b,
    "-(-a + b - c)": lambda a, b, c, d: -(-a + b - c),
    "1 - a": lambda a, b, c, d: 1.0 - a,
    "a - (b - cd)": lambda a, b, c, d: a - (b - c * d),
    "(ab + c) - (d - a)": lambda a, b, c, d: (a * b + c) - (d - a),
    "2 - 3ab + c^2 - 2d + 1": lambda a, b, c, d: 2.0 - 3.0 * a * b + c * c - 2.0 * d + 1.0,
    "(a + b)(c - d) + 0.1 a - 0.2 b + 5": lambda a, b, c, d: (a + b) * (c - d) + 0.1 * a - 0.2 * b + 5.0,
    "a/d + b/d - c/d": lambda a, b, c, d: a / d + b / d - c / d,
    "1/d + b/d": lambda a, b, c, d: 1.0 / d + b / d,
    "long": lambda a, b, c, d: sum(((-1) ** i * a * (b + i) for i in range(70)), c * d),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums(name):
    x = ca.SX.sym("x", 4)
    numbers = np.random.default_rng(0).normal(size=(37, 4))
    tape = Tape.of(trace_expressions([x], [SUMS[name](*(x[i] for i in range(4)))]), [4])
    expected, size = SUMS[name](*numbers.T), SUMS[name](*np.abs(numbers).T) + 10.0
    assert np.all(np.abs(tape.rows(numbers)[0][:, 0] - expected) <= 1e-14 * np.abs(size) + 1e-13)


def test_terms_of_a_sum_keep_their_order():
    """Cancellations stay exact: (1e16 - 1e16) + 1, and 0.1 + (1e16 - 1e16)."""
    x = ca.SX.sym("x", 4)
    parts = [x[0] * x[3] - x[1] * x[3] + x[2] * x[3], x[2] + (x[0] - x[1]), x[2] * x[3] - (x[0] - x[1] * x[3])]
    tape = Tape.of(trace_expressions([x], [ca.vertcat(*parts)]), [4])
    np.testing.assert_array_equal(tape.rows(np.array([[1e16, 1e16, 0.1, 1.0]]))[0], [[0.1, 0.1, 0.1]])


# -- graphs ---------------------------------------------------------------------------------------------------------------


def random_graph(seed, operations):
    """Expressions of random operations on 5 + 3 symbols."""
    rng = np.random.default_rng(seed)
    inputs = [ca.SX.sym("x", 5), ca.SX.sym("u", 3)]
    values = [x[i] for x in inputs for i in range(x.numel())] + [ca.SX(0.3), ca.SX(-2.0)]
    one = [ca.sin, ca.cos, ca.tanh, ca.fabs, ca.sign, ca.floor, ca.atan, lambda a: -a, lambda a: a * a]
    one += [lambda a: ca.exp(-a * a), lambda a: ca.sqrt(1.0 + a * a), lambda a: 1.0 / (2.0 + ca.cos(a)), ca.logic_not]
    two = [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, ca.fmin, ca.fmax, ca.lt, ca.le, ca.logic_and]
    two += [lambda a, b: a / (1.5 + ca.sin(b)), ca.atan2, ca.logic_or, lambda a, b: ca.if_else(a < b, a * b, b)]
    two += [lambda a, b: ca.if_else(a > 0, b, a + 1.0)] + 6 * [lambda a, b: a * b - b + a, lambda a, b: a + b * b]
    for _ in range(operations):
        a, b = (values[max(0, len(values) - 1 - int(rng.exponential(15)))] for _ in range(2))
        value = one[rng.integers(len(one))](a) if rng.uniform() < 0.3 else two[rng.integers(len(two))](a, b)
        values.append(ca.tanh(value) if len(values) % 5 == 0 else value)
    outputs = [ca.vertcat(*(values[i] for i in rng.integers(0, len(values), n))) for n in (7, 1, 12)]
    return inputs, [*outputs, ca.SX.zeros(2)]


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed):
    inputs, outputs = random_graph(seed, 20 + 60 * seed)
    rng, n = np.random.default_rng(seed), 41
    given = [rng.normal(size=(n, 5)), rng.normal(size=(n, 3))]
    tape = Tape.of(trace_expressions(inputs, outputs), [5, 3])
    expected = ca.Function("f", inputs, [ca.densify(e) for e in outputs]).map(n).call([ca.DM(a.T) for a in given])
    for actual, reference in zip(tape.rows(*given), expected, strict=True):
        np.testing.assert_allclose(actual, np.array(reference).T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 23, 47, 64, 65, 1000])
def test_any_number_of_rows(n):
    inputs, outputs = random_graph(3, 100)
    tape = Tape.of(trace_expressions(inputs, outputs), [5, 3])
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(n, 5)), rng.normal(size=(n, 3))
    results = tape.rows(x, u)
    assert [r.shape for r in results] == [(n, 7), (n, 1), (n, 12), (n, 2)]
    for i in range(0, n, 13):
        for all_rows, alone in zip(results, tape.rows(x[i : i + 1], u[i : i + 1]), strict=True):
            np.testing.assert_array_equal(all_rows[i], alone[0])


def test_outputs_and_rows_of_any_layout():
    """Shapes of outputs, reused arrays, columns, slices, repeated rows, integers, several threads."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u", 3)
    tape = Tape.of(trace_expressions([x, u], [ca.vec(ca.mtimes(u, x.T).T), x[0]]), [2, 3], [(3, 2), ()])
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(300, 7))
    a, b = wide[:, 1:3], wide[:, 3:6]
    outer = b[:, :, None] * a[:, None]
    for given in ((a, b), (np.asfortranarray(a), np.asfortranarray(b)), (a[::-1][::-1], b)):
        product, first = tape.rows(*given)
        np.testing.assert_array_equal(product, outer)
        np.testing.assert_array_equal(first, a[:, 0])
    np.testing.assert_array_equal(tape.rows(np.broadcast_to(a[:1], (300, 2)), b)[0], b[:, :, None] * a[:1, None])
    np.testing.assert_array_equal(tape.rows(np.ones((4, 2), int), np.ones((4, 3)))[0], np.ones((4, 3, 2)))
    np.testing.assert_array_equal(tape.rows(a, b, threads=3)[0], outer)


def test_arrays_of_another_shape_are_errors():
    x = ca.SX.sym("x", 2)
    tape = Tape.of(trace_expressions([x], [x[0] + x[1]]), [2])
    for given in ([np.ones((3, 1))], [np.ones(2)], [np.ones((3, 2)), np.ones((3, 1))], []):
        with pytest.raises(ValueError, match="shape"):
            tape.rows(*given)
    with pytest.raises(ValueError, match="do not fit"):
        Tape.of(trace_expressions([x], [x]), [2], [(3,)])


def test_an_unknown_operation_is_an_error():
    with pytest.raises(UnknownOperation, match="no operation ERFINV; use engine = 'numpy'"):
        tape_of([("ERFINV", (0, 0))], [[0]], [1])


def test_without_outputs_or_operations():
    x = ca.SX.sym("x", 3)
    none, same = Tape.of(Trace([], []), [3]), Tape.of(trace_expressions([x], [x[[2, 0, 0]], ca.SX(0, 1)]), [3])
    assert none.rows(np.ones((4, 3))) == []
    given = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_array_equal(same.rows(given)[0], given[:, [2, 0, 0]])
    assert same.rows(given)[1].shape == (9, 0)


# -- subroutines ----------------------------------------------------------------------------------------------------------


def _inner(a, b):
    return [ca.sin(a) * b if hasattr(a, "is_symbolic") else np.sin(a) * b, a, 2.0]


def _outer(a, b, unused):
    first = called(_inner, a, b)
    second = called(_inner, first[0], b * b)
    return [second[0] - first[0], second[1] * first[2], b]


def test_subroutines():
    """Functions called from several places and from other functions; some arguments and results are not read."""
    x = ca.SX.sym("x", 4)
    with preserved_calls():
        parts = [called(_outer, x[i], x[i + 1] * x[0], x[0]) for i in range(3)]
        parts += [called(_inner, parts[0][1], parts[1][0]), called(_inner, 0.3, x[3])]
    t = trace_expressions([x], [ca.vertcat(*(e for p in parts for e in p)), parts[0][0] - x[1]])
    assert set(t.called) == {"outer", "inner"}
    given = np.random.default_rng(0).normal(size=(77, 4))
    a = given.T
    values = [_outer(a[i], a[i + 1] * a[0], a[0]) for i in range(3)]
    values += [_inner(values[0][1], values[1][0]), _inner(0.3, a[3])]
    expected = np.stack([np.broadcast_to(e, 77) for p in values for e in p], axis=1)
    results = Tape.of(t, [4]).rows(given)
    np.testing.assert_allclose(results[0], expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(results[1][:, 0], values[0][0] - a[1], rtol=1e-13, atol=1e-13)


def test_calls_that_are_nested_too_deep(monkeypatch):
    x = ca.SX.sym("x", 3)
    with preserved_calls():
        t = trace_expressions([x], [ca.vertcat(*called(_outer, x[0], x[1], x[2]))])
    monkeypatch.setattr(encode, "DEPTH", 1)
    with pytest.raises(UnknownOperation, match="nested 2 deep"):
        Tape.of(t, [3])


# -- tapes as data --------------------------------------------------------------------------------------------------------


def test_tapes_are_data():
    inputs, outputs = random_graph(5, 200)
    tape = Tape.of(trace_expressions(inputs, outputs), [5, 3])
    given = np.ones((3, 5)), np.ones((3, 3))
    before = tape.rows(*given)
    assert tape.code.dtype == np.int32 and tape.constants.dtype == float
    copy = pickle.loads(pickle.dumps(tape))
    for a, b in zip(copy.rows(*given), before, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(AttributeError):
        tape.registers = 3


def test_threads_that_call_the_same_tape():
    inputs, outputs = random_graph(7, 200)
    tape = Tape.of(trace_expressions(inputs, outputs), [5, 3])
    rng = np.random.default_rng(0)
    given = [(rng.normal(size=(200, 5)), rng.normal(size=(200, 3))) for _ in range(8)]
    expected, results = [tape.rows(*g) for g in given], [None] * 8

    def evaluate(i):
        for _ in range(20):
            results[i] = tape.rows(*given[i])

    threads = [threading.Thread(target=evaluate, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found, reference in zip(results, expected, strict=True):
        for a, b in zip(found, reference, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", X86_64)
def test_every_instruction_set(name, monkeypatch):
    if not library_file(name).is_file():
        pytest.skip("not built: `make kernels` builds all")
    monkeypatch.setenv("TRAJOPT_MARCH", name)
    try:
        library.chosen_instructions()
    except InputError:
        pytest.skip("this processor lacks the instructions")
    inputs, outputs = random_graph(9, 300)
    n, rng = 45, np.random.default_rng(0)
    given = [rng.normal(size=(n, 5)), rng.normal(size=(n, 3))]
    results = Tape.of(trace_expressions(inputs, outputs), [5, 3]).rows(*given)
    expected = ca.Function("f", inputs, [ca.densify(e) for e in outputs]).map(n).call([ca.DM(a.T) for a in given])
    for actual, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, np.array(reference).T, rtol=1e-9, atol=1e-9)


# -- in kernels -----------------------------------------------------------------------------------------------------------


RUN = """
EXPORT void run_tape(const tape_t *tape, const double *const *in, double *const *out, void *workspace, int blocks)
{
    tape_run(tape, (const V *const *)in, (V *const *)out, workspace, blocks, (places_t){blocks, 1});
}
EXPORT void run_apart(const tape_t *tape, const double *const *in, double *const *out, void *workspace, int blocks, long apart)
{
    tape_blocks(tape, (const V *const *)in, (V *const *)out, workspace, blocks, apart);
}
EXPORT long workspace_of_tape(const tape_t *tape, int blocks) { return tape_workspace(tape, blocks); }
"""


@pytest.mark.needs_compiler
@pytest.mark.parametrize("cached", [1 << 17, 1 << 10], ids=["all registers fit", "few registers fit"])
def test_vectors_in_blocks_of_any_size(cached):
    """The entry for kernels: component by component, any number of vectors, and no memory behind the workspace."""
    text = kernel_text("dynamics_backends.tape", "tape.h", "interpreter.h").replace("(1L << 17)", str(cached))
    loaded = compiled_text("\n".join([prelude(), header("loops.h"), header("tape.h"), text, RUN]))
    run, workspace_of = bound(loaded, "run_tape", "pppp i"), bound(loaded, "workspace_of_tape", "pi", ctypes.c_long)
    inputs, outputs = random_graph(4, 150)
    tape, lanes, rng = (
        Tape.of(trace_expressions(inputs, outputs), [5, 3]),
        library.lanes(),
        np.random.default_rng(0),
    )
    at = tape.address
    for blocks in (1, 2, 3, 5, 7, 8, 9, 12, 17):
        given = [rng.normal(size=(n, blocks * lanes)) for n in tape.sizes]
        arrays = [aligned(a.size).reshape(a.shape) for a in given]
        for array, values in zip(arrays, given, strict=True):
            array[:] = values
        results = [aligned(shape[0] * blocks * lanes).reshape(shape[0], -1) for shape in tape.shapes]
        size = workspace_of(at, blocks) * lanes
        workspace = aligned(size + 8)
        workspace[size:] = 7.0
        read, written = pointers(arrays), pointers(results)
        run(at, ctypes.addressof(read), ctypes.addressof(written), address(workspace), blocks)
        for actual, expected in zip(results, tape.rows(*(a.T for a in given)), strict=True):
            np.testing.assert_allclose(actual.T, expected, rtol=1e-13, atol=1e-13)
        assert np.all(workspace[size:] == 7.0)


@pytest.mark.needs_compiler
def test_blocks_apart():
    """The entry for stages: a component is next to the last, and blocks are any number of vectors apart."""
    text = kernel_text("dynamics_backends.tape", "tape.h", "interpreter.h")
    loaded = compiled_text("\n".join([prelude(), header("loops.h"), header("tape.h"), text, RUN]))
    run, workspace_of = bound(loaded, "run_apart", "pppp il"), bound(loaded, "workspace_of_tape", "pi", ctypes.c_long)
    inputs, outputs = random_graph(4, 150)
    tape, lanes = Tape.of(trace_expressions(inputs, outputs), [5, 3]), library.lanes()
    rng, at = np.random.default_rng(1), tape.address
    sizes = [*tape.sizes, *(shape[0] for shape in tape.shapes)]
    starts = np.cumsum([0, *sizes])
    for blocks in (1, 2, 3, 4, 5, 6, 7, 8, 11):
        most = 1 << (blocks - 1).bit_length()
        memory = aligned(most * (starts[-1] + 2) * lanes).reshape(most, starts[-1] + 2, lanes)
        memory[:] = rng.normal(size=memory.shape)
        places = [memory[0, start] for start in starts[:-1]]
        read, written = pointers(places[:2]), pointers(places[2:])
        workspace = aligned(workspace_of(at, most) * lanes)
        run(at, ctypes.addressof(read), ctypes.addressof(written), address(workspace), blocks, int(starts[-1] + 2))
        rows = memory[:blocks].transpose(0, 2, 1).reshape(blocks * lanes, -1)
        parts = [rows[:, a:b] for a, b in itertools.pairwise(starts)]
        for actual, expected in zip(parts[2:], tape.rows(*parts[:2]), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=1e-13)


# -- robots ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ["ur5", "hyq"])
def test_derivatives_of_robots(robot):
    """Large traces of first and second derivatives against NumPy's algorithms on rows."""
    from dynamics_backends.compiled.sources.traced_source import TracedDynamics
    from dynamics_backends.registry import make_backend
    from dynamics_backends.systems.bodies.free_body import FreeBody

    body = FreeBody(foreign(robot))
    traced, lam = TracedDynamics(body, {}), ca.SX.sym("lam", body.n_out)
    t = trace_expressions([*traced.symbols, lam], traced.both(lam))
    assert len(t.operations) > 5000
    n, ndx, m, nu = 19, body.manifold.ndx, body.n_out, body.nu
    shapes = [(m,), (m, ndx), (m, nu), (ndx, ndx), (nu, ndx), (nu, nu)]
    tape = Tape.of(t, [body.manifold.nx, nu, 1, m], shapes)
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(ndx, n))
    x = body.manifold.integrate(np.repeat(body.manifold.identity()[:, None], n, axis=1), steps).T
    u, factors = rng.normal(size=(n, nu)), rng.normal(size=(n, m))
    first, second = make_backend(body, "analytic", engine="numpy").hessian_contraction(x, u, 0.0, None, factors)
    for actual, expected in zip(tape.rows(x, u, np.zeros((n, 1)), factors), (*first, *second), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-11 * np.abs(expected).max(initial=1.0))
