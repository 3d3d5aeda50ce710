"""Elementary functions of vectors against extended precision: a few units in the last place, the values of C at the edges."""

import ctypes
import itertools
from pathlib import Path

import numpy as np
import pytest
from compiled_text import compiled_text

from dynamics_backends.compiled.loops.kernel import prelude
from dynamics_backends.compiled.runtime.memory import address, aligned, bound
from dynamics_backends.environment import CompilerError

pytestmark = [
    pytest.mark.needs_compiler,
    pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no longer than double here"),
]

NAMES = ["sin", "cos", "tan", "exp", "expm1", "log", "log1p", "sinh", "cosh", "tanh", "asin", "acos", "atan"]
SETS = ("x86-64", "x86-64-v3", "x86-64-v4")
FLAGS = {"x86-64-v3": {"avx2", "fma"}, "x86-64-v4": {"avx512f", "avx512dq", "avx512vl"}}
UNITS = 4.0
"""[units in the last place] An error below this, as of the C library's own vector functions."""
EDGES = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    5e-324,
    -5e-324,
    2.2e-308,
    1e-310,
    709.7,
    -745.2,
    710.0,
    711.0,
    1e308,
]
EDGES += [-710.0, -1e308, 2.0, -2.0, 1e22, -0.9999999999999999, 0.5, -0.5, np.sqrt(2.0) - 1.0, np.pi / 2.0, 40.0, -50.0]

ANGLES = [
    ("uniform", -4.0, 4.0),
    ("uniform", -1e4, 1e4),
    ("uniform", -5e5, 5e5),
    ("powers", -300.0, 0.0),
    ("uniform", -1e9, 1e9),
]
HYPERBOLIC = [("uniform", -1.0, 1.0), ("uniform", -710.0, 710.0), ("uniform", -1e-5, 1e-5)]
SINES = [("uniform", -1.0, 1.0), ("powers", -300.0, 0.0), ("near one", -16.0, 0.0)]
RANGES = {
    **dict.fromkeys(("sin", "cos", "tan"), ANGLES),
    "exp": [("uniform", -1.0, 1.0), ("uniform", -708.0, 709.7)],
    "expm1": [("uniform", -1.0, 1.0), ("uniform", -50.0, 709.7), ("uniform", -1e-5, 1e-5)],
    "log": [("powers", -307.0, 308.0), ("uniform", 0.5, 2.0), ("powers", -323.0, -307.0)],
    "log1p": [("uniform", -0.9999, 2.0), ("powers", -300.0, 300.0), ("uniform", -1e-5, 1e-5)],
    **dict.fromkeys(("sinh", "cosh", "tanh"), HYPERBOLIC),
    **dict.fromkeys(("asin", "acos"), SINES),
    "atan": [("uniform", -3.0, 3.0), ("uniform", -1e6, 1e6), ("powers", -300.0, 300.0)],
}  # fmt: skip


def text() -> str:
    """Functions of arrays whose length is a multiple of the lanes."""
    head = "EXPORT void array_{0}(const double *x, const double *y, double *r, long n)"
    loop = "{{ (void)y; for (long i = 0; i < n; i += LANES) *(V *)(r + i) = v_{0}(*(const V *)(x + i){1}); }}"
    other = ", *(const V *)(y + i)"
    return "\n".join(
        [prelude(), *(f"{head}\n{loop}".format(n, other if n == "atan2" else "") for n in (*NAMES, "atan2"))]
    )


@pytest.fixture(scope="module", params=SETS)
def functions(request):
    """NAME(x, y) on an instruction set, for those that this processor has."""
    has = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
    if not FLAGS.get(request.param, set()) <= has:
        pytest.skip("this processor lacks the instructions")
    try:
        library = compiled_text(text(), request.param)
    except CompilerError:
        pytest.skip("the compiler does not know the instructions")

    def function(name: str, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        n = -(-len(x) // 8) * 8
        a, b, r = aligned(n), aligned(n), aligned(n)
        a[: len(x)], b[: len(x)] = x, 0.0 if y is None else y
        bound(library, f"array_{name}", "ppp l")(*map(address, (a, b, r)), ctypes.c_long(n))
        return r[: len(x)]

    return function


def of_numpy(name):
    return getattr(np, {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}.get(name, name))


def points(kind, lower, upper, n=4096):
    """Numbers at random."""
    drawn = np.random.default_rng(3).uniform(lower, upper, n)
    if kind == "uniform":
        return drawn
    return 10.0**drawn if kind == "powers" else (1.0 - 10.0**drawn) * np.where(np.arange(n) % 2, 1.0, -1.0)


def units(found, expected):
    """Errors in units in the last place of the expected doubles."""
    return np.abs((found.astype(np.longdouble) - expected) / np.spacing(np.abs(expected.astype(float))))


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_a_few_units_in_the_last_place(functions, name):
    for given in RANGES[name]:
        x = points(*given)
        assert units(functions(name, x), of_numpy(name)(x.astype(np.longdouble))).max() < UNITS, given


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_multiples_of_a_right_angle_keep_their_digits(functions, name):
    """Some are within 1e-18 of a zero or a pole."""
    x = 0.5 * np.pi * np.arange(-3000.0, 3000.0)
    assert units(functions(name, x), of_numpy(name)(x.astype(np.longdouble))).max() < UNITS


def test_angles_of_points(functions):
    rng = np.random.default_rng(1)
    for scale_y, scale_x in ((1.0, 1.0), (1e-5, 1.0), (1.0, 1e-5), (1e-300, 1.0)):
        y, x = scale_y * rng.standard_normal(4096), scale_x * rng.standard_normal(4096)
        assert units(functions("atan2", y, x), np.arctan2(y.astype(np.longdouble), x)).max() < UNITS


def agree(found, expected):
    """True if numbers are equal to rounding, with the same signs of zeros."""
    same = (found == expected) & (np.signbit(found) == np.signbit(expected)) | (np.isnan(found) & np.isnan(expected))
    finite = np.isfinite(expected) & (expected != 0.0)
    return same | (finite & (np.abs(found - expected) <= 4.0 * np.spacing(np.abs(np.where(finite, expected, 1.0)))))


@pytest.mark.parametrize("name", NAMES)
def test_edges_are_those_of_c(functions, name):
    x = np.array(EDGES)
    with np.errstate(all="ignore"):
        expected = of_numpy(name)(x)
        assert agree(functions(name, x), expected).all(), (x, functions(name, x), expected)


def test_edges_of_two_arguments_are_those_of_c(functions):
    y, x = np.array(list(itertools.product(EDGES, EDGES))).T
    assert agree(functions("atan2", y, x), np.arctan2(y, x)).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_lane_changes_nothing_in_others(functions, name):
    """Not even where the number in it is handled apart."""
    x = points("uniform", 0.1, 0.9, 64)
    for odd in (np.nan, np.inf, 1e300, -1e9):
        spoiled = np.where(np.arange(64) % 8 == 3, odd, x)
        np.testing.assert_array_equal(
            functions(name, spoiled)[np.arange(64) % 8 != 3], functions(name, x)[np.arange(64) % 8 != 3]
        )
