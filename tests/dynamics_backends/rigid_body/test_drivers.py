"""The drivers against each other: rows of floats, complex and dual numbers, and unrolling over symbols."""

import casadi
import numpy as np
import pytest
from rigid_body_cases import TREES, error, state, tree

from dynamics_backends.rigid_body.algorithms.aba import ABA, ABA_EXTERNAL
from dynamics_backends.rigid_body.algorithms.crba import CRBA
from dynamics_backends.rigid_body.algorithms.forward_dynamics import FORWARD_DYNAMICS
from dynamics_backends.rigid_body.algorithms.rnea import RNEA, RNEA_EXTERNAL
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA, fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.model import JOINT_TYPES
from dynamics_backends.rigid_body.passes.drivers import rows, run, unroll
from dynamics_backends.rigid_body.passes.passes import Pass
from dynamics_backends.rigid_body.spatial.perturbed_transform import SpatialDual
from dynamics_backends.rigid_body.spatial.spatial import Force, Vec
from dynamics_backends.scalars.dual import Dual

H = 1e-30
PROGRAMS = {  # program, its arguments, its results
    "RNEA": (RNEA, ("q", "v", "a"), ("tau",)),
    "ABA": (ABA, ("q", "v", "tau"), ("a",)),
    "FD": (FORWARD_DYNAMICS, ("q", "v", "tau"), ("a",)),
    "CRBA": (CRBA, ("q",), ("M",)),
    "IDSVA": (IDSVA, ("q", "v", "a"), ("tau", "M", "dtau_dq", "dtau_dv")),
    "FDSVA": (FDSVA, ("q", "v", "tau"), ("a", "M_inverse", "da_dq", "da_dv")),
}
each_program = pytest.mark.parametrize("program", PROGRAMS)
each_tree = pytest.mark.parametrize("name", TREES)


def arguments(name: str, program: str, N: int = 1) -> dict[str, np.ndarray]:
    """Rows (n, N) for the program."""
    q, v, a = (x.T for x in state(tree(name), 0, N))
    return {n: {"q": q, "v": v}.get(n, a) for n in PROGRAMS[program][1]}


def results(program: str, fields) -> list[np.ndarray]:
    """The program's results as arrays (n, N) and (n, n, N); unwritten entries of a matrix are zero."""
    return [np.array(fields[name], dtype=np.result_type(*np.ravel(fields[name]))) for name in PROGRAMS[program][2]]


def evaluate(program: str, name: str, given) -> list[np.ndarray]:
    return results(program, rows(PROGRAMS[program][0], tree(name), given))


def test_the_trees_hold_every_joint_type():
    assert {kind for name in TREES for kind in tree(name).joint_types} == set(JOINT_TYPES)


def column(field) -> casadi.SX:
    """A list, or nested lists, of symbols and numbers as one column."""
    if isinstance(field, list):
        return casadi.vertcat(*[column(x) for x in field])
    return field


@each_program
@each_tree
def test_unrolled_symbols_agree_with_rows(program, name):
    given = arguments(name, program)
    symbols = {k: casadi.SX.sym(k, len(x)) for k, x in given.items()}
    fields = run(PROGRAMS[program][0], tree(name), symbols)
    flat = [column(fields[n]) for n in PROGRAMS[program][2]]
    values = casadi.Function("f", list(symbols.values()), flat).call(list(given.values()))
    for actual, expected in zip(values, evaluate(program, name, given), strict=True):
        assert error(np.asarray(actual)[:, 0], expected.reshape(-1)) < 1e-13


@each_program
@each_tree
def test_a_batch_is_its_elements(program, name):
    given = arguments(name, program, N=4)
    whole = evaluate(program, name, given)
    for i in range(4):
        single = evaluate(program, name, {k: x[:, [i]] for k, x in given.items()})
        for batch, one in zip(whole, single, strict=True):
            assert error(batch[..., [i]], one) < 1e-14


def perturbation(name: str, program: str, seed: int, N: int) -> dict[str, np.ndarray]:
    """Directions of the arguments; any direction of a quaternion's components will do."""
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal(x.shape) for k, x in arguments(name, program, N).items()}


@each_program
@each_tree
def test_complex_rows_carry_derivatives(program, name):
    """Against central differences; and real parts are those of real rows."""
    given, direction, h = arguments(name, program, 2), perturbation(name, program, 1, 2), 1e-6
    with_step = evaluate(program, name, {k: x + 1j * H * direction[k] for k, x in given.items()})
    ends = [evaluate(program, name, {k: x + s * h * direction[k] for k, x in given.items()}) for s in (1, -1)]
    for actual, plain, forward, backward in zip(with_step, evaluate(program, name, given), *ends, strict=True):
        assert error(actual.real, plain) < 1e-14
        assert error(actual.imag / H, (forward - backward) / (2 * h)) < 1e-7


@pytest.mark.parametrize("program", ["RNEA", "ABA", "CRBA", "IDSVA"])
@each_tree
def test_dual_rows_equal_complex_step(program, name):
    given = arguments(name, program, 2)
    directions = [perturbation(name, program, seed, 2) for seed in (2, 3)]
    duals = {k: Dual(x, np.stack([d[k] for d in directions], axis=-1)) for k, x in given.items()}
    fields = rows(PROGRAMS[program][0], tree(name), duals)
    steps = [evaluate(program, name, {k: x + 1j * H * d[k] for k, x in given.items()}) for d in directions]
    for i, result in enumerate(PROGRAMS[program][2]):
        for k in range(2):
            assert error(fields[result].val, steps[k][i].real) < 1e-13
            assert error(fields[result].tan[..., k], steps[k][i].imag / H) < 1e-12


@pytest.mark.parametrize("program", ["RNEA", "ABA", "CRBA", "IDSVA"])
@each_tree
def test_perturbed_transforms_equal_complex_step(program, name):
    """Directions tangent to the unit quaternions, the only ones a twist can follow."""
    from dynamics_backends.rigid_body.model.state import configuration_manifold

    model, given = tree(name), arguments(name, program, 2)
    tangents = np.random.default_rng(4).standard_normal((model.nv, 2))
    dq = configuration_manifold(model).integrate(given["q"], 1j * H * tangents).imag / H
    direction = {**perturbation(name, program, 5, 2), "q": dq}
    duals = {k: (SpatialDual if k == "q" else Dual)(x, direction[k][..., None]) for k, x in given.items()}
    fields = rows(PROGRAMS[program][0], model, duals)
    step = evaluate(program, name, {k: x + 1j * H * direction[k] for k, x in given.items()})
    for actual, expected in zip((fields[n] for n in PROGRAMS[program][2]), step, strict=True):
        assert error(actual.val, expected.real) < 1e-13
        assert error(actual.tan[..., 0], expected.imag / H) < 1e-12


@pytest.mark.parametrize("program", ["RNEA", "ABA"])
def test_only_one_argument_may_be_dual_or_complex(program):
    given, name = arguments("floating1", program, 2), "floating1"
    last = PROGRAMS[program][1][-1]
    direction = perturbation(name, program, 6, 2)[last]
    expected = evaluate(program, name, {**given, last: given[last] + 1j * H * direction})[0].imag / H
    dual = {**given, last: Dual(given[last], direction[..., None])}
    assert error(rows(PROGRAMS[program][0], tree(name), dual)[PROGRAMS[program][2][0]].tan[..., 0], expected) < 1e-12
    both = {**dual, "v": given["v"] + 0j}
    assert error(rows(PROGRAMS[program][0], tree(name), both)[PROGRAMS[program][2][0]].tan[..., 0], expected) < 1e-12


@pytest.mark.parametrize("program", [RNEA_EXTERNAL, ABA_EXTERNAL], ids=["RNEA", "ABA"])
def test_external_forces_are_unrolled_too(program):
    model = tree("floating1")
    q, v, a = (x.T for x in state(model, 7, 1))
    given = {"q": q, "v": v, "a" if program is RNEA_EXTERNAL else "tau": a}
    f = np.random.default_rng(8).standard_normal((6, model.nb, 1))
    as_rows = rows(program, model, {**given, "f_ext": Force(Vec(*f[:3]), Vec(*f[3:]))})
    listed = [Force(Vec(*f[:3, b, 0].tolist()), Vec(*f[3:, b, 0].tolist())) for b in range(model.nb)]
    unrolled = unroll(program, model, {**{k: casadi.SX(x) for k, x in given.items()}, "f_ext": listed})
    result = "tau" if program is RNEA_EXTERNAL else "a"
    assert error(np.array(unrolled[result], float), as_rows[result][:, 0]) < 1e-13
    assert error(as_rows[result], rows(RNEA if result == "tau" else ABA, model, given)[result]) > 1e-2


def test_symbols_and_numbers_may_be_mixed():
    model, given = tree("floating1"), arguments("floating1", "RNEA")
    q = [casadi.SX.sym("w"), *given["q"][1:, 0].tolist()]
    tau = unroll(RNEA, model, {**{k: x[:, 0].tolist() for k, x in given.items()}, "q": q})["tau"]
    value = casadi.Function("f", [q[0]], [column(tau)])(given["q"][0])
    assert error(np.asarray(value), rows(RNEA, model, given)["tau"]) < 1e-13


@each_tree
def test_derivatives_of_forward_dynamics_of_symbols(name):
    model = tree(name)
    q, v, tau = (x.T for x in state(model, 9, 1))
    symbols = [casadi.SX.sym(k, len(x)) for k, x in (("q", q), ("v", v), ("tau", tau))]
    traced = fd_derivatives(model, *symbols)
    blocks = [casadi.vertcat(*[casadi.vec(r) for r in block]) for block in (traced.dq, traced.dv, traced.dtau)]
    values = casadi.Function("f", symbols, blocks).call([q, v, tau])
    expected = fd_derivatives(model, q, v, tau)
    for actual, block in zip(values, (expected.dq, expected.dv, expected.dtau), strict=True):
        assert error(np.asarray(actual)[:, 0], np.array(block).reshape(-1)) < 1e-12


def test_unknown_fields_are_refused():
    with pytest.raises(KeyError, match="'velocty' names no field"):
        Pass("dof", ("tau",), lambda velocty: velocty)
