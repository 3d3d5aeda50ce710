"""Cache of the last solution: a time step and the friction at its knots share it; other states, systems and settings do not."""

import pickle
import threading

import numpy as np
import pytest
from contact_cases import FEET, hyq, standing_states

from dynamics_backends.compiled.interface import Likeness
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from dynamics_backends.tape.driver import LibraryDriver


class Counted(Holonomic):
    """Counts its solutions."""

    solved = 0

    def _sensitivities(self, x, u, p):
        Counted.solved += 1
        return super()._sensitivities(x, u, p)


@pytest.fixture
def solved():
    """Number of solutions of the equations so far."""
    before = Counted.solved
    return lambda: Counted.solved - before


def system(model=None):
    return Counted(model or hyq(), [PointContact(f) for f in FEET])


def knots(seed=0, N=4):
    return standing_states(hyq(), FEET, seed, N), np.random.default_rng(seed).normal(size=(N, 12))


def backends(holonomic):
    return (make_backend(map, "analytic", engine="numpy") for map in (holonomic, ConstraintForces(holonomic)))


def fresh(x, u, p=None, model=None):
    """The derivatives of a system that has solved nothing yet."""
    return make_backend(system(model), "analytic", engine="numpy").jacobians(x, u, 0.0, p)


def test_one_solution_serves_step_and_forces(solved):
    step, forces = backends(system())
    x, u = knots()
    first = step.jacobians(x, u)
    shared = forces.jacobians(x.copy(), u.copy())
    assert solved() == 1
    alone = next(iter(list(backends(system()))[1:])).jacobians(x, u)
    for a, b in zip((*shared, *first), (*alone, *fresh(x, u)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_result_is_stale(solved):
    """Arrays changed in place, other controls, parameters, batches and copies of the system with other settings."""
    holonomic = system()
    step, _ = backends(holonomic)
    x, u = knots()
    off = {"active[lf_foot]": np.zeros((4, 1))}
    twin = holonomic.fully_driven(hyq().replace(mass=2.0 * np.asarray(hyq().mass)))
    step.jacobians(x, u)
    x[1, 8] += 1e-9
    np.testing.assert_array_equal(step.jacobians(x, u).fx, fresh(x, u).fx)
    np.testing.assert_array_equal(step.jacobians(x, u, 0.0, off).fx, fresh(x, u, off).fx)
    np.testing.assert_array_equal(step.jacobians(x, u + 1.0).fu, fresh(x, u + 1.0).fu)
    np.testing.assert_array_equal(step.jacobians(x[:2], u[:2]).fx, fresh(x[:2], u[:2]).fx)
    assert solved() == 9
    heavy, light = (
        make_backend(map, "analytic", engine="numpy").jacobians(x, np.zeros((4, 18))).fx
        for map in (twin, holonomic.fully_driven(hyq()))
    )
    assert np.abs(heavy - light).max() > 0.1


def test_each_driver_has_its_own_cache(solved):
    """NumPy's numbers are never those of loops, which differ by rounding; the twins of one system share theirs."""
    holonomic = system()
    driver = LibraryDriver()
    twins = [map.with_recursions(driver) for map in (holonomic, ConstraintForces(holonomic))]
    x, u = knots()
    for map in (holonomic, *twins):
        map.partials(x.T, u.T, 0.0, {})
    assert solved() == 2


def test_other_number_types_and_large_batches_are_not_cached(solved, monkeypatch):
    monkeypatch.setattr("dynamics_backends.systems.constraints.holonomic.KNOTS", 3)
    step, forces = backends(system())
    x, u = knots()
    step.jacobians(x, u), forces.jacobians(x, u)
    assert solved() == 2
    holonomic = system()
    for _ in range(2):
        holonomic.partials((x[:2] + 0j).T, u[:2].T, 0.0, {})
    assert solved() == 4


def test_cached_arrays_are_read_only():
    holonomic = system()
    x, u = knots()
    _, da, df = holonomic.sensitivities(x.T, u.T, {})
    for rows in (da, df):
        with pytest.raises(ValueError, match="read-only"):
            rows[0][:] = 0.0


def test_threads_get_their_own_solutions():
    holonomic = system()
    step, _ = backends(holonomic)
    cases = [knots(seed) for seed in range(4)]
    expected = [fresh(*case).fx for case in cases]
    wrong = []

    def ask(i):
        for _ in range(5):
            if not np.array_equal(step.jacobians(*cases[i]).fx, expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_the_cache_is_not_part_of_a_systems_identity():
    """Neither of its structure, on which kernels depend, nor of a copy for another process."""
    holonomic, other = system(), system()
    x, u = knots()
    holonomic.sensitivities(x.T, u.T, {})
    assert Likeness()(holonomic, other)
    assert len(pickle.dumps(holonomic.last)) < 200
