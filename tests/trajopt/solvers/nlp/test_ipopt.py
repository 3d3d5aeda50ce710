"""Interface to IPOPT: a textbook program with a known solution, numbers of evaluations, and errors in callbacks."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from trajopt.results.status import StatusCode
from trajopt.solvers.nlp.ipopt import solve_ipopt
from trajopt.solvers.options import DMSOptions

pytest.importorskip("cyipopt")
JACOBIAN = np.tile([0, 1], 4), np.repeat(np.arange(4), 2)
HESSIAN = np.tile(np.arange(4), 4), np.repeat(np.arange(4), 4)


class Product:
    """Problem 71 of Hock and Schittkowski: minimize w0 w3 (w0 + w1 + w2) + w2, prod w >= 25, w'w = 40, 1 <= w <= 5."""

    x_lower, x_upper = np.ones(4), np.full(4, 5.0)
    g_lower, g_upper = np.array([25.0, 40.0]), np.array([np.inf, 40.0])
    x_names, g_names = ("w0", "w1", "w2", "w3"), ("product", "length")

    def __init__(self):
        self.points = []

    def solve(self, callback=None, **options):
        chosen = DMSOptions(**{"gradient_tolerance": 1e-10, **options})
        return solve_ipopt(self, np.array([1.0, 5.0, 5.0, 1.0]), chosen, callback)

    def patterns(self):
        return JACOBIAN, HESSIAN

    def evaluate(self, w):
        self.points.append(("values", w.tobytes()))
        return w[0] * w[3] * w[:3].sum() + w[2], np.array([w.prod(), w @ w])

    def differentiate(self, w):
        self.points.append(("derivatives", w.tobytes()))
        gradient = w[3] * np.array([w[:3].sum() + w[0], w[0], w[0], 0.0])
        gradient[2] += 1.0
        gradient[3] = w[0] * w[:3].sum()
        return gradient, _csc(np.array([w.prod() / w, 2.0 * w]), JACOBIAN)

    def hessian(self, w, sigma, multipliers):
        cost = np.zeros((4, 4))
        cost[0, 0], cost[1, 0], cost[2, 0] = 2.0 * w[3], w[3], w[3]
        cost[3] = [2.0 * w[0] + w[1] + w[2], w[0], w[0], 0.0]
        cost = np.tril(cost) + np.tril(cost, -1).T
        product = w.prod() / np.outer(w, w) - np.diag(w.prod() / w**2)
        return _csc(sigma * cost + multipliers[0] * product + 2.0 * multipliers[1] * np.eye(4), HESSIAN)


def _csc(dense, pattern):
    return sp.csc_matrix((dense[pattern], pattern), dense.shape)


def test_hock_schittkowski_71():
    program = Product()
    found = program.solve()
    w, y, z = found.w, found.multipliers, found.bound_multipliers
    assert found.status.success
    assert found.objective == pytest.approx(17.0140172891, rel=1e-9)
    np.testing.assert_allclose(w, [1.0, 4.7429994, 3.8211503, 1.3794082], atol=1e-6)
    np.testing.assert_allclose(found.constraints, [25.0, 40.0], atol=1e-7)
    gradient, jacobian = program.differentiate(w)
    np.testing.assert_allclose(gradient + y @ jacobian + z, 0.0, atol=1e-7)
    assert y[0] < 0.0 and z[0] < 0.0  # at lower bounds


def test_each_point_is_evaluated_once():
    program = Product()
    program.solve()
    assert len(set(program.points)) == len(program.points)


def test_records():
    records = []
    found = Product().solve(records.append)
    assert [r.iteration for r in records] == list(range(len(records))) and tuple(records) == found.history
    assert records[-1].cost == pytest.approx(found.objective, rel=1e-12)
    assert records[-1].kkt < 1e-8


@pytest.mark.parametrize("name", ["evaluate", "differentiate", "hessian", "callback"])
@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt()])
def test_what_a_callback_raises_ends_the_solve(name, error):
    program, count = Product(), 0

    def failing(function):
        def call(*arguments):
            nonlocal count
            count += 1
            if count == 3:
                raise error
            return function(*arguments)

        return call

    callback = failing(lambda record: None) if name == "callback" else None
    if callback is None:
        setattr(program, name, failing(getattr(program, name)))
    if isinstance(error, KeyboardInterrupt):
        assert program.solve(callback).status.code is StatusCode.INTERRUPTED
        return
    with pytest.raises(KeyError) as raised:
        program.solve(callback)
    assert raised.value is error


def test_an_option_that_ipopt_does_not_know_is_refused():
    with pytest.raises(ValueError, match="IPOPT does not accept mu_strategy = 'golden'"):
        Product().solve(ipopt={"mu_strategy": "golden"})


def test_without_a_hessian_ipopt_approximates_it():
    program = Product()
    program.hessian = None
    assert program.solve(hessian="limited_memory").objective == pytest.approx(17.0140172891, rel=1e-8)


LOADED = """
import sys
import subprocess
import sys

import numpy as np
from trajopt.solvers.nlp.ipopt_library import ipopt_library

library = ipopt_library()
print("scipy.optimize" in sys.modules, ipopt_library() is library)
from cyipopt import minimize_ipopt
found = minimize_ipopt(lambda x: float((x - 2.0) @ (x - 2.0)), np.zeros(2), options={"print_level": 0, "sb": "yes"})
print("scipy.optimize" in sys.modules, found.x.round(4).tolist())
print(hasattr(library, "no_such_name"))
"""


def test_ipopt_is_loaded_without_the_optimizers_of_scipy_and_these_are_there_when_asked_for():
    process = subprocess.run([sys.executable, "-W", "ignore", "-c", LOADED], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == ["False True", "True [2.0, 2.0]", "False"]
