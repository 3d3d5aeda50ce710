"""Textbook nonlinear programs with known solutions; derivatives by second-order Taylor numbers.

W. Hock, K. Schittkowski, Test Examples for Nonlinear Programming Codes, 1981 (by number); J. Nocedal, S. Wright, Numerical
Optimization, 2006 (by page or equation).  Inequalities are c(x) >= 0 in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import acos, cos, inf, log, pi, sqrt

import numpy as np
import scipy.sparse as sp


class Taylor:
    """A value with its gradient (n,) and Hessian (n, n)."""

    def __init__(self, value, gradient, hessian):
        self.value, self.gradient, self.hessian = value, gradient, hessian

    @classmethod
    def variables(cls, x):
        n = len(x)
        return [cls(value, row, np.zeros((n, n))) for value, row in zip(x, np.eye(n), strict=True)]

    def apply(self, value, first, second):
        outer = np.outer(self.gradient, self.gradient)
        return Taylor(value, first * self.gradient, first * self.hessian + second * outer)

    def __add__(self, other):
        if not isinstance(other, Taylor):
            return Taylor(self.value + other, self.gradient, self.hessian)
        return Taylor(self.value + other.value, self.gradient + other.gradient, self.hessian + other.hessian)

    def __mul__(self, other):
        if not isinstance(other, Taylor):
            return Taylor(self.value * other, self.gradient * other, self.hessian * other)
        cross = np.outer(self.gradient, other.gradient)
        hessian = self.value * other.hessian + other.value * self.hessian + cross + cross.T
        return Taylor(self.value * other.value, self.value * other.gradient + other.value * self.gradient, hessian)

    def __pow__(self, k):
        first = k * self.value ** (k - 1)
        second = k * (k - 1) * self.value ** (k - 2) if k > 1 or k < 0 else 0.0
        return self.apply(self.value**k, first, second)

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + -other

    def __rsub__(self, other):
        return -self + other

    def __rtruediv__(self, other):
        return self**-1 * other

    def __truediv__(self, other):
        return self * other**-1

    __radd__, __rmul__ = __add__, __mul__


def sin(a):
    return a.apply(np.sin(a.value), np.cos(a.value), -np.sin(a.value))


def cosine(a):
    return a.apply(np.cos(a.value), -np.sin(a.value), -np.cos(a.value))


def exp(a):
    return a.apply(np.exp(a.value), np.exp(a.value), np.exp(a.value))


def ln(a):
    return a.apply(np.log(a.value), 1 / a.value, -1 / a.value**2)


@dataclass
class Problem:
    """min f(x), equalities(x) = 0, inequalities(x) >= 0, lower <= x <= upper; solutions: the known f at minimizers."""

    name: str
    start: Sequence[float]
    f: Callable
    optimum: float
    equalities: Callable = lambda x: []
    inequalities: Callable = lambda x: []
    lower: Sequence[float] | float = -inf
    upper: Sequence[float] | float = inf
    x: Sequence[float] | None = None
    digits: float = 1e-8
    """Number of digits of the published optimum."""
    others: Sequence[float] = field(default_factory=tuple)
    """Values at other local minimizers."""


class TextbookNLP:
    """Textbook problem in the solver's interface, with dense matrices."""

    def __init__(self, problem: Problem):
        x = Taylor.variables(np.array(problem.start, dtype=float))
        self.problem, n = problem, len(x)
        equal, unequal = len(problem.equalities(x)), len(problem.inequalities(x))
        self.x_lower, self.x_upper = np.full(n, problem.lower, dtype=float), np.full(n, problem.upper, dtype=float)
        self.g_lower = np.zeros(equal + unequal)
        self.g_upper = np.r_[np.zeros(equal), np.full(unequal, inf)]
        self.x_names = [f"x{i + 1}" for i in range(n)]
        self.g_names = [f"equality {i + 1}" for i in range(equal)] + [f"inequality {i + 1}" for i in range(unequal)]
        self.evaluations = 0

    def _all(self, w):
        x = Taylor.variables(np.array(w, dtype=float))
        rows = [*self.problem.equalities(x), *self.problem.inequalities(x)]
        zero = x[0] * 0.0
        return self.problem.f(x) + zero, [row + zero for row in rows]

    def evaluate(self, w):
        self.evaluations += 1
        f, g = self._all(w)
        return f.value, np.array([row.value for row in g])

    def differentiate(self, w):
        f, g = self._all(w)
        return f.gradient, full(np.array([row.gradient for row in g]).reshape(len(g), len(w)))

    def hessian(self, w, sigma, multipliers):
        f, g = self._all(w)
        return full(sigma * f.hessian + sum(y * row.hessian for y, row in zip(multipliers, g, strict=True)))

    def recentered(self, w):
        return self, w


def full(M):
    """A csc matrix that stores every entry."""
    m, n = M.shape
    return sp.csc_matrix((M.T.ravel(), np.tile(np.arange(m), n), np.arange(n + 1) * m), shape=(m, n))


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


def product(x):
    result = x[0]
    for factor in x[1:]:
        result = result * factor
    return result


def squares(x):
    return sum(v**2 for v in x)


def _hs51_f(x):
    return (x[0] - x[1]) ** 2 + (x[1] + x[2] - 2) ** 2 + (x[3] - 1) ** 2 + (x[4] - 1) ** 2


def _hs52_h(x):
    return [x[0] + 3 * x[1], x[2] + x[3] - 2 * x[4], x[1] - x[4]]


def _hs78_h(x):
    return [squares(x) - 10, x[1] * x[2] - 5 * x[3] * x[4], x[0] ** 3 + x[1] ** 3 + 1]


def _hs100_f(x):
    a, b, c, d, e, f, g = x
    first = (a - 10) ** 2 + 5 * (b - 12) ** 2 + c**4 + 3 * (d - 11) ** 2
    return first + 10 * e**6 + 7 * f**2 + g**4 - 4 * f * g - 10 * f - 8 * g


def _hs100_c(x):
    a, b, c, d, e, f, g = x
    return [
        127 - 2 * a**2 - 3 * b**4 - c - 4 * d**2 - 5 * e,
        282 - 7 * a - 3 * b - 10 * c**2 - d + e,
        196 - 23 * a - b**2 - 6 * f**2 + 8 * g,
        -4 * a**2 - b**2 + 3 * a * b - 2 * c**2 - 5 * f + 11 * g,
    ]


_A2 = sqrt(598 / 1200)
_HS2_X = 2 * _A2 * cos(acos(1 / (400 * _A2**3)) / 3)

HOCK_SCHITTKOWSKI = [
    Problem("HS1", (-2, 1), rosenbrock, 0.0, lower=(-inf, -1.5), x=(1, 1)),
    Problem("HS2", (-2, 1), rosenbrock, 0.0504261879, lower=(-inf, 1.5), others=(4.94122932,), digits=1e-8),
    Problem("HS3", (10, 1), lambda x: x[1] + 1e-5 * (x[1] - x[0]) ** 2, 0.0, lower=(-inf, 0), x=(0, 0)),
    Problem("HS4", (1.125, 0.125), lambda x: (x[0] + 1) ** 3 / 3 + x[1], 8 / 3, lower=(1, 0), x=(1, 0)),
    Problem(
        "HS5",
        (0, 0),
        lambda x: sin(x[0] + x[1]) + (x[0] - x[1]) ** 2 - 1.5 * x[0] + 2.5 * x[1] + 1,
        -sqrt(3) / 2 - pi / 3,
        lower=(-1.5, -3),
        upper=(4, 3),
        x=(-pi / 3 + 0.5, -pi / 3 - 0.5),
    ),
    Problem("HS6", (-1.2, 1), lambda x: (1 - x[0]) ** 2, 0.0, lambda x: [10 * (x[1] - x[0] ** 2)], x=(1, 1)),
    Problem(
        "HS7",
        (2, 2),
        lambda x: ln(1 + x[0] ** 2) - x[1],
        -sqrt(3),
        lambda x: [(1 + x[0] ** 2) ** 2 + x[1] ** 2 - 4],
        x=(0, sqrt(3)),
    ),
    Problem("HS8", (2, 1), lambda x: -1.0, -1.0, lambda x: [squares(x) - 25, x[0] * x[1] - 9]),
    Problem(
        "HS9",
        (0, 0),
        lambda x: sin(pi / 12 * x[0]) * cosine(pi / 16 * x[1]),
        -0.5,
        lambda x: [4 * x[0] - 3 * x[1]],
    ),
    Problem(
        "HS10",
        (-10, 10),
        lambda x: x[0] - x[1],
        -1.0,
        inequalities=lambda x: [-3 * x[0] ** 2 + 2 * x[0] * x[1] - x[1] ** 2 + 1],
        x=(0, 1),
    ),
    Problem(
        "HS11",
        (4.9, 0.1),
        lambda x: (x[0] - 5) ** 2 + x[1] ** 2 - 25,
        -8.498464223,
        inequalities=lambda x: [x[1] - x[0] ** 2],
    ),
    Problem(
        "HS12",
        (0, 0),
        lambda x: 0.5 * x[0] ** 2 + x[1] ** 2 - x[0] * x[1] - 7 * x[0] - 7 * x[1],
        -30.0,
        inequalities=lambda x: [25 - 4 * x[0] ** 2 - x[1] ** 2],
        x=(2, 3),
    ),
    Problem(
        "HS14",
        (2, 2),
        lambda x: (x[0] - 2) ** 2 + (x[1] - 1) ** 2,
        9 - 2.875 * sqrt(7),
        lambda x: [x[0] - 2 * x[1] + 1],
        lambda x: [1 - 0.25 * x[0] ** 2 - x[1] ** 2],
        x=((sqrt(7) - 1) / 2, (sqrt(7) + 1) / 4),
    ),
    Problem(
        "HS15",
        (-2, 1),
        rosenbrock,
        306.5,
        inequalities=lambda x: [x[0] * x[1] - 1, x[0] + x[1] ** 2],
        upper=(0.5, inf),
        others=(360.379767,),
    ),
    Problem(
        "HS16",
        (-2, 1),
        rosenbrock,
        0.25,
        inequalities=lambda x: [x[0] + x[1] ** 2, x[0] ** 2 + x[1]],
        lower=(-0.5, -inf),
        upper=(0.5, 1),
        others=(23.1446609, 3.98208),
    ),
    Problem(
        "HS17",
        (-2, 1),
        rosenbrock,
        1.0,
        inequalities=lambda x: [x[1] ** 2 - x[0], x[0] ** 2 - x[1]],
        lower=(-0.5, -inf),
        upper=(0.5, 1),
        x=(0, 0),
    ),
    Problem(
        "HS18",
        (2, 2),
        lambda x: 0.01 * x[0] ** 2 + x[1] ** 2,
        5.0,
        inequalities=lambda x: [x[0] * x[1] - 25, squares(x) - 25],
        lower=(2, 0),
        upper=(50, 50),
        x=(sqrt(250), sqrt(2.5)),
    ),
    Problem(
        "HS19",
        (20.1, 5.84),
        lambda x: (x[0] - 10) ** 3 + (x[1] - 20) ** 3,
        -6961.81381,
        inequalities=lambda x: [
            (x[0] - 5) ** 2 + (x[1] - 5) ** 2 - 100,
            82.81 - (x[1] - 5) ** 2 - (x[0] - 6) ** 2,
        ],
        lower=(13, 0),
        upper=(100, 100),
    ),
    Problem(
        "HS20",
        (-2, 1),
        rosenbrock,
        81.5 - 25 * sqrt(3),
        inequalities=lambda x: [x[0] + x[1] ** 2, x[0] ** 2 + x[1], squares(x) - 1],
        lower=(-0.5, -inf),
        upper=(0.5, inf),
        others=(81.5 - 25 * sqrt(3) + 2.0,),
    ),
    Problem(
        "HS21",
        (-1, -1),
        lambda x: 0.01 * x[0] ** 2 + x[1] ** 2 - 100,
        -99.96,
        inequalities=lambda x: [10 * x[0] - x[1] - 10],
        lower=(2, -50),
        upper=(50, 50),
        x=(2, 0),
    ),
    Problem(
        "HS22",
        (2, 2),
        lambda x: (x[0] - 2) ** 2 + (x[1] - 1) ** 2,
        1.0,
        inequalities=lambda x: [2 - x[0] - x[1], x[1] - x[0] ** 2],
        x=(1, 1),
    ),
    Problem(
        "HS23",
        (3, 1),
        squares,
        2.0,
        inequalities=lambda x: [
            x[0] + x[1] - 1,
            squares(x) - 1,
            9 * x[0] ** 2 + x[1] ** 2 - 9,
            x[0] ** 2 - x[1],
            x[1] ** 2 - x[0],
        ],
        lower=-50,
        upper=50,
        x=(1, 1),
    ),
    Problem(
        "HS24",
        (1, 0.5),
        lambda x: ((x[0] - 3) ** 2 - 9) * x[1] ** 3 / (27 * sqrt(3)),
        -1.0,
        inequalities=lambda x: [x[0] / sqrt(3) - x[1], x[0] + sqrt(3) * x[1], 6 - x[0] - sqrt(3) * x[1]],
        lower=0,
        x=(3, sqrt(3)),
    ),
    Problem(
        "HS26",
        (-2.6, 2, 2),
        lambda x: (x[0] - x[1]) ** 2 + (x[1] - x[2]) ** 4,
        0.0,
        lambda x: [(1 + x[1] ** 2) * x[0] + x[2] ** 4 - 3],
    ),
    Problem(
        "HS27",
        (2, 2, 2),
        lambda x: 0.01 * (x[0] - 1) ** 2 + (x[1] - x[0] ** 2) ** 2,
        0.04,
        lambda x: [x[0] + x[2] ** 2 + 1],
        x=(-1, 1, 0),
    ),
    Problem(
        "HS28",
        (-4, 1, 1),
        lambda x: (x[0] + x[1]) ** 2 + (x[1] + x[2]) ** 2,
        0.0,
        lambda x: [x[0] + 2 * x[1] + 3 * x[2] - 1],
        x=(0.5, -0.5, 0.5),
    ),
    Problem(
        "HS29",
        (1, 1, 1),
        lambda x: -product(x),
        -16 * sqrt(2),
        inequalities=lambda x: [48 - x[0] ** 2 - 2 * x[1] ** 2 - 4 * x[2] ** 2],
    ),
    Problem(
        "HS30",
        (1, 1, 1),
        squares,
        1.0,
        inequalities=lambda x: [x[0] ** 2 + x[1] ** 2 - 1],
        lower=(1, -10, -10),
        upper=10,
        x=(1, 0, 0),
    ),
    Problem(
        "HS31",
        (1, 1, 1),
        lambda x: 9 * x[0] ** 2 + x[1] ** 2 + 9 * x[2] ** 2,
        6.0,
        inequalities=lambda x: [x[0] * x[1] - 1],
        lower=(-10, 1, -10),
        upper=(10, 10, 1),
        x=(1 / sqrt(3), sqrt(3), 0),
    ),
    Problem(
        "HS32",
        (0.1, 0.7, 0.2),
        lambda x: (x[0] + 3 * x[1] + x[2]) ** 2 + 4 * (x[0] - x[1]) ** 2,
        1.0,
        lambda x: [1 - x[0] - x[1] - x[2]],
        lambda x: [6 * x[1] + 4 * x[2] - x[0] ** 3 - 3],
        lower=0,
        x=(0, 0, 1),
    ),
    Problem(
        "HS33",
        (0, 0, 3),
        lambda x: (x[0] - 1) * (x[0] - 2) * (x[0] - 3) + x[2],
        sqrt(2) - 6,
        inequalities=lambda x: [x[2] ** 2 - x[1] ** 2 - x[0] ** 2, squares(x) - 4],
        lower=0,
        upper=(inf, inf, 5),
        others=(-4.0,),
    ),
    Problem(
        "HS34",
        (0, 1.05, 2.9),
        lambda x: -x[0],
        -log(log(10)),
        inequalities=lambda x: [x[1] - exp(x[0]), x[2] - exp(x[1])],
        lower=0,
        upper=(100, 100, 10),
        x=(log(log(10)), log(10), 10),
    ),
    Problem(
        "HS35",
        (0.5, 0.5, 0.5),
        lambda x: (
            9
            - 8 * x[0]
            - 6 * x[1]
            - 4 * x[2]
            + 2 * x[0] ** 2
            + 2 * x[1] ** 2
            + x[2] ** 2
            + 2 * x[0] * x[1]
            + 2 * x[0] * x[2]
        ),
        1 / 9,
        inequalities=lambda x: [3 - x[0] - x[1] - 2 * x[2]],
        lower=0,
        x=(4 / 3, 7 / 9, 4 / 9),
    ),
    Problem(
        "HS36",
        (10, 10, 10),
        lambda x: -product(x),
        -3300.0,
        inequalities=lambda x: [72 - x[0] - 2 * x[1] - 2 * x[2]],
        lower=0,
        upper=(20, 11, 42),
        x=(20, 11, 15),
    ),
    Problem(
        "HS37",
        (10, 10, 10),
        lambda x: -product(x),
        -3456.0,
        inequalities=lambda x: [72 - x[0] - 2 * x[1] - 2 * x[2], x[0] + 2 * x[1] + 2 * x[2]],
        lower=0,
        upper=42,
        x=(24, 12, 12),
    ),
    Problem(
        "HS38",
        (-3, -1, -3, -1),
        lambda x: (
            rosenbrock(x[:2])
            + 90 * (x[3] - x[2] ** 2) ** 2
            + (1 - x[2]) ** 2
            + 10.1 * ((x[1] - 1) ** 2 + (x[3] - 1) ** 2)
            + 19.8 * (x[1] - 1) * (x[3] - 1)
        ),
        0.0,
        lower=-10,
        upper=10,
        x=(1, 1, 1, 1),
    ),
    Problem(
        "HS39",
        (2, 2, 2, 2),
        lambda x: -x[0],
        -1.0,
        lambda x: [x[1] - x[0] ** 3 - x[2] ** 2, x[0] ** 2 - x[1] - x[3] ** 2],
        x=(1, 1, 0, 0),
    ),
    Problem(
        "HS40",
        (0.8, 0.8, 0.8, 0.8),
        lambda x: -product(x),
        -0.25,
        lambda x: [x[0] ** 3 + x[1] ** 2 - 1, x[0] ** 2 * x[3] - x[2], x[3] ** 2 - x[1]],
    ),
    Problem(
        "HS41",
        (2, 2, 2, 2),
        lambda x: 2 - x[0] * x[1] * x[2],
        52 / 27,
        lambda x: [x[0] + 2 * x[1] + 2 * x[2] - x[3]],
        lower=0,
        upper=(1, 1, 1, 2),
        others=(2.0,),
    ),
    Problem(
        "HS42",
        (1, 1, 1, 1),
        lambda x: (x[0] - 1) ** 2 + (x[1] - 2) ** 2 + (x[2] - 3) ** 2 + (x[3] - 4) ** 2,
        28 - 10 * sqrt(2),
        lambda x: [x[0] - 2, x[2] ** 2 + x[3] ** 2 - 2],
    ),
    Problem(
        "HS43",
        (0, 0, 0, 0),
        lambda x: squares(x) + x[2] ** 2 - 5 * x[0] - 5 * x[1] - 21 * x[2] + 7 * x[3],
        -44.0,
        inequalities=lambda x: [
            8 - squares(x) - x[0] + x[1] - x[2] + x[3],
            10 - squares(x) - x[1] ** 2 - x[3] ** 2 + x[0] + x[3],
            5 - squares(x[:3]) - x[0] ** 2 - 2 * x[0] + x[1] + x[3],
        ],
        x=(0, 1, 2, -1),
    ),
    Problem(
        "HS48",
        (3, 5, -3, 2, -2),
        lambda x: (x[0] - 1) ** 2 + (x[1] - x[2]) ** 2 + (x[3] - x[4]) ** 2,
        0.0,
        lambda x: [sum(x) - 5, x[2] - 2 * (x[3] + x[4]) + 3],
        x=(1, 1, 1, 1, 1),
    ),
    Problem(
        "HS50",
        (35, -31, 11, 5, -5),
        lambda x: (x[0] - x[1]) ** 2 + (x[1] - x[2]) ** 2 + (x[2] - x[3]) ** 4 + (x[3] - x[4]) ** 2,
        0.0,
        lambda x: [x[i] + 2 * x[i + 1] + 3 * x[i + 2] - 6 for i in range(3)],
    ),
    Problem(
        "HS51",
        (2.5, 0.5, 2, -1, 0.5),
        _hs51_f,
        0.0,
        lambda x: [x[0] + 3 * x[1] - 4, x[2] + x[3] - 2 * x[4], x[1] - x[4]],
        x=(1, 1, 1, 1, 1),
    ),
    Problem("HS52", (2,) * 5, lambda x: _hs51_f([4 * x[0], *x[1:]]), 1859 / 349, _hs52_h),
    Problem("HS53", (2,) * 5, _hs51_f, 176 / 43, _hs52_h, lower=-10, upper=10),
    Problem(
        "HS60",
        (2, 2, 2),
        lambda x: (x[0] - 1) ** 2 + (x[0] - x[1]) ** 2 + (x[1] - x[2]) ** 4,
        0.03256820025,
        lambda x: [x[0] * (1 + x[1] ** 2) + x[2] ** 4 - 4 - 3 * sqrt(2)],
        lower=-10,
        upper=10,
    ),
    Problem(
        "HS61",
        (0, 0, 0),
        lambda x: 4 * x[0] ** 2 + 2 * x[1] ** 2 + 2 * x[2] ** 2 - 33 * x[0] + 16 * x[1] - 24 * x[2],
        -143.6461422,
        lambda x: [3 * x[0] - 2 * x[1] ** 2 - 7, 4 * x[0] - x[2] ** 2 - 11],
    ),
    Problem(
        "HS63",
        (2, 2, 2),
        lambda x: 1000 - squares(x) - x[1] ** 2 - x[0] * x[1] - x[0] * x[2],
        961.7151721,
        lambda x: [8 * x[0] + 14 * x[1] + 7 * x[2] - 56, squares(x) - 25],
        lower=0,
    ),
    Problem(
        "HS64",
        (1, 1, 1),
        lambda x: 5 * x[0] + 50000 / x[0] + 20 * x[1] + 72000 / x[1] + 10 * x[2] + 144000 / x[2],
        6299.842428,
        inequalities=lambda x: [1 - 4 / x[0] - 32 / x[1] - 120 / x[2]],
        lower=1e-5,
    ),
    Problem(
        "HS65",
        (-5, 5, 0),
        lambda x: (x[0] - x[1]) ** 2 + (x[0] + x[1] - 10) ** 2 / 9 + (x[2] - 5) ** 2,
        0.9535288567,
        inequalities=lambda x: [48 - squares(x)],
        lower=(-4.5, -4.5, -5),
        upper=(4.5, 4.5, 5),
    ),
    Problem(
        "HS66",
        (0, 1.05, 2.9),
        lambda x: 0.2 * x[2] - 0.8 * x[0],
        0.5181632741,
        inequalities=lambda x: [x[1] - exp(x[0]), x[2] - exp(x[1])],
        lower=0,
        upper=(100, 100, 10),
    ),
    Problem(
        "HS71",
        (1, 5, 5, 1),
        lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
        17.0140173,
        lambda x: [squares(x) - 40],
        lambda x: [product(x) - 25],
        lower=1,
        upper=5,
    ),
    Problem(
        "HS76",
        (0.5, 0.5, 0.5, 0.5),
        lambda x: (
            x[0] ** 2
            + 0.5 * x[1] ** 2
            + x[2] ** 2
            + 0.5 * x[3] ** 2
            - x[0] * x[2]
            + x[2] * x[3]
            - x[0]
            - 3 * x[1]
            + x[2]
            - x[3]
        ),
        -4.681818181,
        inequalities=lambda x: [
            5 - x[0] - 2 * x[1] - x[2] - x[3],
            4 - 3 * x[0] - x[1] - 2 * x[2] + x[3],
            x[1] + 4 * x[2] - 1.5,
        ],
        lower=0,
    ),
    Problem(
        "HS77",
        (2,) * 5,
        lambda x: (x[0] - 1) ** 2 + (x[0] - x[1]) ** 2 + (x[2] - 1) ** 2 + (x[3] - 1) ** 4 + (x[4] - 1) ** 6,
        0.24150513,
        lambda x: [
            x[0] ** 2 * x[3] + sin(x[3] - x[4]) - 2 * sqrt(2),
            x[1] + x[2] ** 4 * x[3] ** 2 - 8 - sqrt(2),
        ],
    ),
    Problem("HS78", (-2, 1.5, 2, -1, -1), product, -2.91970041, _hs78_h),
    Problem(
        "HS79",
        (2,) * 5,
        lambda x: (x[0] - 1) ** 2 + (x[0] - x[1]) ** 2 + (x[1] - x[2]) ** 2 + (x[2] - x[3]) ** 4 + (x[3] - x[4]) ** 4,
        0.0787768209,
        lambda x: [
            x[0] + x[1] ** 2 + x[2] ** 3 - 2 - 3 * sqrt(2),
            x[1] - x[2] ** 2 + x[3] + 2 - 2 * sqrt(2),
            x[0] * x[4] - 2,
        ],
    ),
    Problem(
        "HS80",
        (-2, 2, 2, -1, -1),
        lambda x: exp(product(x)),
        0.0539498478,
        _hs78_h,
        lower=(-2.3, -2.3, -3.2, -3.2, -3.2),
        upper=(2.3, 2.3, 3.2, 3.2, 3.2),
    ),
    Problem("HS100", (1, 2, 0, 4, 0, 1, 1), _hs100_f, 680.6300573, inequalities=_hs100_c),
]

NOCEDAL_WRIGHT = [
    Problem(
        "NW example 12.1",
        (0.5, -2.0),
        lambda x: x[0] + x[1],
        -2.0,
        lambda x: [squares(x) - 2],
        x=(-1, -1),
    ),
    Problem(
        "NW example 12.3",
        (1.0, 1.0),
        lambda x: x[0] + x[1],
        -sqrt(2),
        inequalities=lambda x: [2 - squares(x), x[1]],
        x=(-sqrt(2), 0),
    ),
    Problem(
        "NW example 15.4",
        (cos(1.0), sqrt(1 - cos(1.0) ** 2)),
        lambda x: 2 * (squares(x) - 1) - x[0],
        -1.0,
        lambda x: [squares(x) - 1],
        x=(1, 0),
    ),
    Problem(
        "NW example 16.4",
        (2.0, 0.0),
        lambda x: (x[0] - 1) ** 2 + (x[1] - 2.5) ** 2,
        0.8,
        inequalities=lambda x: [
            x[0] - 2 * x[1] + 2,
            -x[0] - 2 * x[1] + 6,
            -x[0] + 2 * x[1] + 2,
        ],
        lower=0,
        x=(1.4, 1.7),
    ),
    Problem(
        "NW exercise 18.3",
        (-1.71, 1.59, 1.82, -0.763, -0.763),
        lambda x: exp(product(x)) - 0.5 * (x[0] ** 3 + x[1] ** 3 + 1) ** 2,
        0.0539498478,
        _hs78_h,
    ),
]
NW_EXAMPLE_19_1 = Problem(
    "NW example 19.1",
    (-2.0, 3.0, 1.0),
    lambda x: x[0],
    1.0,
    lambda x: [x[0] ** 2 - x[1] - 1, x[0] - x[2] - 0.5],
    lower=(-inf, 0, 0),
    x=(1, 0, 0.5),
)
"""From x[0] < 0 the violation leads to its stationary point (-1, 0, 0)."""
ALL = HOCK_SCHITTKOWSKI + NOCEDAL_WRIGHT
