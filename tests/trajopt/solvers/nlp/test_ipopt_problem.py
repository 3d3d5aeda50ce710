"""Interface to IPOPT: a textbook program with a known solution, numbers of evaluations, and errors in callbacks."""

import subprocess
import sys

import numpy as np
import pytest

from trajopt.problem.constraints import INFINITE
from trajopt.solvers.nlp.ipopt_problem import IpoptProblem

pytest.importorskip("cyipopt")
QUIET = {"print_level": 0, "sb": "yes", "tol": 1e-10, "bound_relax_factor": 0.0}


class Product:
    """Problem 71 of Hock and Schittkowski: minimize w0 w3 (w0 + w1 + w2) + w2, prod w >= 25, w'w = 40, 1 <= w <= 5."""

    bounds = (np.ones(4), np.full(4, 5.0), np.array([25.0, 40.0]), np.array([np.inf, 40.0]))
    jacobian = (np.repeat([0, 1], 4), np.tile(np.arange(4), 2))
    hessian_places = np.tril_indices(4)

    def __init__(self):
        self.points, self.progress, self.iterates = [], [], []

    def problem(self):
        bounds = [np.clip(b, -INFINITE, INFINITE) for b in self.bounds]
        self.solver = IpoptProblem(self, bounds, self.jacobian, self.hessian_places)
        self.solver.set_options(QUIET)
        return self.solver

    def solve(self):
        return self.problem().solve(np.array([1.0, 5.0, 5.0, 1.0]), np.zeros(2), np.zeros(4))

    def values(self, w):
        self.points.append(("values", w.tobytes()))
        return w[0] * w[3] * w[:3].sum() + w[2], np.array([w.prod(), w @ w])

    def derivatives(self, w):
        self.points.append(("derivatives", w.tobytes()))
        gradient = w[3] * np.array([w[:3].sum() + w[0], w[0], w[0], 0.0])
        gradient[2] += 1.0
        gradient[3] = w[0] * w[:3].sum()
        return gradient, np.concatenate([w.prod() / w, 2.0 * w])

    def hessian(self, w, sigma, multipliers):
        cost = np.zeros((4, 4))
        cost[0, 0], cost[1, 0], cost[2, 0] = 2.0 * w[3], w[3], w[3]
        cost[3] = [2.0 * w[0] + w[1] + w[2], w[0], w[0], 0.0]
        product = w.prod() / np.outer(w, w) - np.diag(w.prod() / w**2)
        full = sigma * cost + multipliers[0] * product + 2.0 * multipliers[1] * np.eye(4)
        return full[self.hessian_places]

    def intermediate(self, progress):
        self.progress.append(progress)
        self.iterates.append(self.solver.iterate())


def test_hock_schittkowski_71():
    program = Product()
    code, objective, (w, g, y, z) = program.solve()
    assert code == 0
    assert objective == pytest.approx(17.0140172891, rel=1e-9)
    np.testing.assert_allclose(w, [1.0, 4.7429994, 3.8211503, 1.3794082], atol=1e-6)
    np.testing.assert_allclose(g, [25.0, 40.0], atol=1e-7)
    gradient, entries = program.derivatives(w)
    np.testing.assert_allclose(gradient + y @ entries.reshape(2, 4) + z, 0.0, atol=1e-7)
    assert y[0] < 0.0 and z[0] < 0.0  # at lower bounds


def test_each_point_is_evaluated_once():
    program = Product()
    program.solve()
    assert len(set(program.points)) == len(program.points)


def test_progress_and_iterates():
    program = Product()
    _, objective, end = program.solve()
    assert [p.iteration for p in program.progress] == list(range(len(program.progress)))
    assert program.progress[-1].objective == pytest.approx(objective, rel=1e-12)
    np.testing.assert_allclose(program.iterates[-1].w, end.w, atol=1e-7)
    np.testing.assert_allclose(program.iterates[-1].y, end.y, atol=1e-6)


@pytest.mark.parametrize("name", ["values", "derivatives", "hessian", "intermediate"])
@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt()])
def test_what_a_callback_raises_is_raised_by_the_solve(name, error):
    def fail(*arguments):
        raise error

    program = Product()
    setattr(program, name, fail)
    with pytest.raises(type(error)) as raised:
        program.solve()
    assert raised.value is error


def test_an_option_that_ipopt_does_not_know_is_refused():
    with pytest.raises(ValueError, match="IPOPT does not accept mu_strategy = 'golden'"):
        Product().problem().set_options({"mu_strategy": "golden"})


def test_without_a_hessian_ipopt_approximates_it():
    program = Product()
    program.hessian_places = None
    program.problem().set_options({"hessian_approximation": "limited-memory"})
    found = program.solver.solve(np.array([1.0, 5.0, 5.0, 1.0]), np.zeros(2), np.zeros(4))
    assert found.objective == pytest.approx(17.0140172891, rel=1e-8)


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
