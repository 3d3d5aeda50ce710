"""The library on the rigid-body programs: the numbers of the row driver, by loops and tapes."""

import threading
import time

import numpy as np
import pytest
from rigid_body_cases import foreign, state, tree
from unrolled_programs import on_tape

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body import batched
from dynamics_backends.rigid_body.algorithms.aba import ABA, ABA_EXTERNAL
from dynamics_backends.rigid_body.algorithms.crba import CRBA
from dynamics_backends.rigid_body.algorithms.forward_dynamics import FORWARD_DYNAMICS
from dynamics_backends.rigid_body.algorithms.rnea import RNEA, RNEA_EXTERNAL
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.derivatives.rnea_second_order import ID_SECOND_ORDER
from dynamics_backends.rigid_body.model.model import JOINT_TYPES
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.rigid_body.passes.drivers import rows
from dynamics_backends.rigid_body.spatial.spatial import Force, Vec
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.tape.driver import by_library

PROGRAMS = {p.name: p for p in (RNEA, RNEA_EXTERNAL, ABA, ABA_EXTERNAL, FORWARD_DYNAMICS, CRBA, IDSVA, FDSVA)}
PROGRAMS |= {p.name: p for p in (ID_SECOND_ORDER, FD_SECOND_ORDER)}
FORWARD = ("aba", "aba_external", "forward_dynamics", "fdsva", "fd_second_order")  # these solve with the mass matrix
MODELS = {  # the trees hold a joint of every type
    "fixed tree": lambda: tree("fixed172", 6),
    "floating tree": lambda: tree("floating90", 6),
    "ur5": lambda: foreign("ur5"),
    "hyq": lambda: foreign("hyq"),
}
TOLERANCE = 1e-12
METHODS = {  # what rounding of the values becomes in the derivatives
    "analytic": 1.0,
    "forward_ad": 1.0,
    "structured_ad": 1.0,
    "complex_step": 1.0,
    "central_difference": 1e6,
    "forward_difference": 1e8,
}
each_program = pytest.mark.parametrize("program", PROGRAMS)
each_model = pytest.mark.parametrize("name", MODELS)


DRIVERS = {"loops": by_library, "tapes": on_tape}
each_driver = pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)


def arguments(model, program, N):
    """Rows (n, N) for a program."""
    q, v, a = (x.T.copy() for x in state(model, 0, N))
    f = np.random.default_rng(1).standard_normal((6, model.nb, N))
    known = {
        "q": q,
        "v": v,
        "a": a,
        "tau": a,
        "mu": v - a,
        "lam": a - 2.0 * v,
        "f_ext": Force(Vec(*f[:3]), Vec(*f[3:])),
    }
    return {name: known[name] for name in PROGRAMS[program].arguments}


def condition(model, q):
    """Condition numbers (N,) of the mass matrices."""
    return np.linalg.cond(batched.mass_matrix(model, q.T))


def deviations(actual, expected):
    """Largest deviation of each knot (..., N) relative to the largest entry of its block."""
    actual, expected = np.asarray(actual), np.array(expected)
    assert actual.shape == expected.shape
    axes = tuple(range(expected.ndim - 1))
    return np.abs(actual - expected).max(axis=axes) / np.abs(expected).max(axis=axes)


def assert_same(program, model, given, actual, expected):
    """Outputs equal to rounding: 1e-12, times the condition number where the mass matrix is solved with."""
    limit = TOLERANCE * (condition(model, np.real(given["q"])) if program in FORWARD else 1.0)
    for output in PROGRAMS[program].outputs:
        assert np.all(deviations(actual[output], expected[output]) <= limit), output


def test_the_trees_hold_every_joint_type():
    for name in ("fixed tree", "floating tree"):
        assert set(MODELS[name]().joint_types) == set(JOINT_TYPES)


# -- the same numbers ---------------------------------------------------------------------------------------------------


@each_driver
@each_program
@each_model
def test_real_numbers(driver, program, name):
    model = MODELS[name]()
    given = arguments(model, program, 9)
    actual = driver(PROGRAMS[program], model, given)
    assert_same(program, model, given, actual, rows(PROGRAMS[program], model, given))


def test_a_single_point_goes_with_a_batch():
    model = MODELS["ur5"]()
    given = arguments(model, "rnea", 9)
    single = {**given, "v": given["v"][:, :1]}
    repeated = {**given, "v": np.repeat(given["v"][:, :1], 9, axis=1)}
    driver = DRIVERS["loops"]
    np.testing.assert_array_equal(driver(RNEA, model, single)["tau"], driver(RNEA, model, repeated)["tau"])


def test_a_long_chain_in_loops():
    """60 bodies, the usual joint types."""
    model, driver = chain(60, rng=0), DRIVERS["loops"]
    for program in ("rnea", "aba", "idsva", "fdsva"):
        given = arguments(model, program, 2)
        actual = driver(PROGRAMS[program], model, given)
        assert_same(program, model, given, actual, rows(PROGRAMS[program], model, given))


# -- batches and threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [1, 7, 8, 9, 130])
@each_driver
def test_batches_of_any_size(N, driver):
    model = MODELS["ur5"]()
    given = arguments(model, "fdsva", N)
    actual = driver(FDSVA, model, given)
    assert_same("fdsva", model, given, actual, rows(FDSVA, model, given))


@each_driver
def test_threads_change_no_bit(driver, monkeypatch):
    monkeypatch.setattr("dynamics_backends.compiled.runtime.memory.SECONDS_PER_THREAD", 1e-9)
    model, results = MODELS["ur5"](), []
    given = arguments(model, "fdsva", 331)
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("TRAJOPT_THREADS", threads)
        results.append(driver(FDSVA, model, given))
    for output in FDSVA.outputs:
        np.testing.assert_array_equal(results[1][output], results[0][output])
        np.testing.assert_array_equal(results[2][output], results[0][output])


def test_a_kernel_may_be_called_from_two_threads(monkeypatch):
    monkeypatch.setenv("TRAJOPT_THREADS", "1")
    model, driver = MODELS["hyq"](), DRIVERS["loops"]
    batches = [arguments(model, "fdsva", N) for N in (90, 100)]
    expected = [driver(FDSVA, model, given)["da_dq"].copy() for given in batches]
    wrong = []

    def repeat(i):
        for _ in range(50):
            wrong.append(not np.array_equal(driver(FDSVA, model, batches[i])["da_dq"], expected[i]))

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(wrong)


@each_driver
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_knot_stays_alone(driver, bad):
    model = MODELS["ur5"]()
    given = arguments(model, "fdsva", 13)
    spoiled = {**given, "q": given["q"].copy()}
    spoiled["q"][2, 5] = bad
    clean, result = (driver(FDSVA, model, g) for g in (given, spoiled))
    others = np.arange(13) != 5
    for output in FDSVA.outputs:
        np.testing.assert_array_equal(result[output][..., others], clean[output][..., others])
        assert np.isnan(result[output][..., 5]).any()


# -- methods on a system ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@each_model
def test_every_method_on_the_compiled_engine(method, name):
    model = MODELS[name]()
    system = FreeBody(model, friction_velocity=0.1)
    q, v, _ = state(model, 4, 5)
    x, u = np.concatenate([q, v], axis=1), np.random.default_rng(5).standard_normal((5, system.nu))
    expected = make_backend(system, method, engine="numpy").jacobians(x, u)
    actual = make_backend(system, method, engine="compiled").jacobians(x, u)
    limit = TOLERANCE * METHODS[method] * condition(model, q.T)
    for a, e in zip(actual, expected, strict=True):
        assert np.all(deviations(np.moveaxis(a, 0, -1), np.moveaxis(e, 0, -1)) <= limit)


# -- threads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "threads"), [(1e-6, 1), (1e-4, 3), (1e-2, 4)])
def test_threads_are_taken_for_work_that_takes_long(seconds, threads, monkeypatch):
    """The number of threads depends on the processor time of the first knots: 72 more of 100 us suffice for three, 2 ms each."""
    from dynamics_backends.compiled.runtime import memory

    clock, parts = [0.0], []

    def part(first, last, workspace):
        clock[0] += seconds * (last - first)
        parts.append((first, last))

    monkeypatch.setenv("TRAJOPT_THREADS", "4")
    monkeypatch.setattr(memory.time, "thread_time", lambda: clock[0])
    memory.over_threads(part, 80, 8, memory.Workspaces(8), least=16)
    assert sorted(parts)[0] == (0, 8)
    assert len(parts) == 1 + threads
    assert [first for first, _ in sorted(parts)[1:]] + [80] == [8, *(last for _, last in sorted(parts)[1:])]


@pytest.mark.parametrize("knots", [2, 7, 8, 9, 17])
def test_the_first_knots_are_no_more_than_there_are(knots, monkeypatch):
    """The parts cover exactly the knots if one knot is worth a thread: otherwise, compiled code would exceed its arrays."""
    from dynamics_backends.compiled.runtime import memory

    parts = []
    monkeypatch.setenv("TRAJOPT_THREADS", "4")
    memory.over_threads(
        lambda first, last, workspace: parts.append((first, last)), knots, 8, memory.Workspaces(8), least=1
    )
    assert [k for part in sorted(parts) for k in range(*part)] == list(range(knots))


def test_an_interrupt_waits_for_the_workers():
    """Arrays in use by compiled code must not be freed: the call returns only when all parts are finished."""
    from dynamics_backends.compiled.runtime.memory import Workspaces, over_threads

    done = []

    def part(first, last, workspace):
        if first == 0:
            raise KeyboardInterrupt
        time.sleep(0.2)
        done.append(first)

    with pytest.raises(KeyboardInterrupt):
        over_threads(part, 256, 8, Workspaces(8), threads=2)
    assert done == [128]
