"""Dynamics under contact on loops: fields of structs and factors, the numbers of the row driver, no call of a compiler."""

import numpy as np
import pytest
from contact_cases import FEET, hyq, standing_states
from rigid_body_cases import foreign, state, tree

from dynamics_backends.composed_map import composed
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.forward_dynamics import EQUATIONS_OF_MOTION
from dynamics_backends.rigid_body.contact.contact_dynamics import (
    CONSTRAINED_FINISH,
    CONSTRAINED_SECOND,
    CONTACT_FINISH,
    CONTACT_MOTION,
    CONTACT_SECOND,
    CONTACT_START,
    RATES_AT,
    finished,
)
from dynamics_backends.rigid_body.passes.drivers import rows
from dynamics_backends.rigid_body.spatial.spatial import Force, Vec, leaves
from dynamics_backends.systems.constraints.constraint_kinds import FrameContact, PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces, SoftForces
from dynamics_backends.systems.contact.impact import Impact
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from dynamics_backends.tape import kernel_driver
from dynamics_backends.tape.driver import by_library

MODELS = {
    "fixed": lambda: tree("fixed172", 6),
    "floating": lambda: tree("floating90", 6),
    "hyq": lambda: foreign("hyq"),
}
SECOND_PARTS = (CONTACT_FINISH, CONTACT_SECOND, CONSTRAINED_FINISH, CONSTRAINED_SECOND, RATES_AT)
SYSTEMS = {
    "points": lambda: Holonomic(hyq(), [PointContact(f) for f in FEET]),
    "frame": lambda: Holonomic(hyq(), [FrameContact("lf_foot"), PointContact("rh_foot")]),
    "soft": lambda: SoftContact(hyq(), FEET),
    "stepped": lambda: SteppedContact(hyq(), FEET),
    "impact": lambda: Impact(hyq(), [PointContact(f) for f in FEET]),
    "forces of points": lambda: ConstraintForces(Holonomic(hyq(), [PointContact(f) for f in FEET])),
    "soft forces": lambda: SoftForces(SoftContact(hyq(), FEET)),
}
each_model = pytest.mark.parametrize("name", MODELS)


def on_kernels(map):
    """Analytic backend on tapes, which call the library's kernels."""
    return make_backend(map, "analytic", engine="compiled")


def given(model, N=5):
    """Rows for the first part, and what the caller finds between the parts."""
    q, v, a = (x.T.copy() for x in state(model, 0, N))
    f = np.random.default_rng(1).standard_normal((6, model.nb, N))
    return {"q": q, "v": v}, {"a": a, "mu": v - a, "f_ground": Force(Vec(*f[:3]), Vec(*f[3:]))}


def numbers(field):
    """All numbers of a field, those of a factor by row and column."""
    if isinstance(field, ltl.Factor):
        return [np.asarray(x) for x in (*(x for row in field.L for _, x in sorted(row.items())), *field.D_inverse)]
    return np.broadcast_arrays(*leaves(field))


def assert_same(program, actual, expected):
    for output in program.outputs:
        found, known = (np.stack(numbers(f[output])) for f in (actual, expected))
        assert found.shape == known.shape, output
        np.testing.assert_allclose(found, known, rtol=0.0, atol=1e-11 * max(1.0, np.abs(known).max()), err_msg=output)


@each_model
def test_all_parts(name):
    model = MODELS[name]()
    start, between = given(model)
    expected = rows(CONTACT_START, model, start)
    actual = by_library(CONTACT_START, model, start)
    assert set(actual) == set(CONTACT_START.outputs)  # rows leave all fields behind
    assert_same(CONTACT_START, actual, expected)
    assert_same(CONTACT_MOTION, by_library(CONTACT_MOTION, model, start), expected)
    for found in (by_library(EQUATIONS_OF_MOTION, model, start), rows(EQUATIONS_OF_MOTION, model, start)):
        assert_same(EQUATIONS_OF_MOTION, found, expected)
    for program in SECOND_PARTS:
        found, known = (
            finished(program, model, f, by, **between) for f, by in ((actual, by_library), (expected, rows))
        )
        assert_same(program, found, known)


@each_model
def test_with_other_rotors(name):
    model = MODELS[name]()
    start, _ = given(model)
    arguments = {**start, "armature": np.random.default_rng(4).uniform(0.1, 0.5, (model.nv, 5))}
    program = CONTACT_START.with_argument("armature")
    assert_same(program, by_library(program, model, arguments), rows(program, model, arguments))


@pytest.mark.parametrize("case", SYSTEMS)
def test_derivatives_of_systems(case):
    """First and second derivatives are those of NumPy, to rounding."""
    system = SYSTEMS[case]()
    reference = make_backend(system, "analytic", engine="numpy")
    own = on_kernels(SYSTEMS[case]())
    x, rng = standing_states(hyq(), FEET, 0, 6), np.random.default_rng(5)
    u = rng.normal(size=(6, system.nu))
    pairs = [(reference.f(x, u), own.f(x, u)), *zip(reference.jacobians(x, u), own.jacobians(x, u), strict=True)]
    if hasattr(reference, "hessian_contraction"):
        lam = rng.normal(size=(6, system.n_out))
        hessians = [b.hessian_contraction(x, u, 0.0, None, lam)[1] for b in (reference, own)]
        pairs += zip(*hessians, strict=True)
    for known, found in pairs:
        np.testing.assert_allclose(found, known, rtol=0.0, atol=1e-9 * max(1.0, np.abs(known).max(initial=0.0)))


def test_the_loops_serve_contact_without_a_compiler(monkeypatch):
    """No program of a system under contact is unrolled."""
    unrolled = []
    run = kernel_driver.run
    monkeypatch.setattr(kernel_driver, "run", lambda p, *rest: unrolled.append(p.name) or run(p, *rest))
    x = standing_states(hyq(), FEET, 0, 2)
    for case in SYSTEMS:
        backend = on_kernels(SYSTEMS[case]())
        u = np.zeros((2, backend.map.nu))
        backend.f(x, u), backend.jacobians(x, u)
    assert unrolled == []


def test_a_composed_map_lends_its_inner_one():
    forces = ConstraintForces(Holonomic(hyq(), [PointContact("lf_foot")]))
    margin = composed(forces, lambda y, p: [y[2]], names=("push",))
    found = margin.with_recursions(by_library)
    assert found.inner.system.driver is by_library
    assert margin.inner.system.driver is not by_library
