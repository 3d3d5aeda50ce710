"""Compiled second-order tensors: the numbers of the row driver by loops and tapes, and structural zeros in reused arrays."""

from functools import cache

import numpy as np
import pytest
from compiled_text import compiled_kernel
from rigid_body_cases import foreign, state, tree
from unrolled_programs import on_tape

from dynamics_backends.compiled.loops.kernel_data import shapes_of
from dynamics_backends.compiled.loops.loops import loop_kernel
from dynamics_backends.compiled.loops.sparsity import zero_masks
from dynamics_backends.compiled.loops.unrolled import argument_sizes
from dynamics_backends.rigid_body import batched
from dynamics_backends.rigid_body.model.model import JOINT_TYPES
from dynamics_backends.rigid_body.model.sample_models import binary_tree, random_tree
from dynamics_backends.rigid_body.passes.drivers import rows
from experiments.baselines.fd_tensors import FDSVA_SO
from experiments.baselines.rnea_tensors import IDSVA_SO

pytestmark = pytest.mark.needs_compiler

PROGRAMS = {p.name: p for p in (IDSVA_SO, FDSVA_SO)}
MODELS = {
    "fixed tree": lambda: tree("fixed172", 6),
    "floating tree": lambda: tree("floating90", 6),
    "several roots": lambda: random_tree(3, 6),
    "ur5": lambda: foreign("ur5"),
    "hyq": lambda: foreign("hyq"),
    "one joint": lambda: binary_tree(1),
}
TOLERANCE = 1e-12
each_program = pytest.mark.parametrize("program", PROGRAMS)


@cache
def kernel(program, name):
    """The compiled loops, which serve every joint type."""
    p, model = PROGRAMS[program], MODELS[name]()
    zeros = [zero_masks(p, model).get(o) for o in p.outputs]
    loops = loop_kernel(p, JOINT_TYPES)
    return compiled_kernel(loops, model, argument_sizes(p, model), shapes_of(p, model), zeros)


def arguments(model, program, N, seed=0):
    q, v, a = state(model, seed, N)
    known = {"q": q, "v": v, "a": a, "tau": a}
    return {name: known[name] for name in PROGRAMS[program].arguments}


def assert_same(program, model, given, results):
    """Compare to rounding: 1e-12, times the condition number of M for solutions with M."""
    expected = rows(PROGRAMS[program], model, {name: x.T for name, x in given.items()})
    condition = np.linalg.cond(batched.mass_matrix(model, given["q"])) if program == "fdsva_so" else 1.0
    for name, result in zip(PROGRAMS[program].outputs, results, strict=True):
        correct = np.moveaxis(np.asarray(expected[name]), -1, 0)
        axes = tuple(range(1, correct.ndim))
        scale = np.maximum(np.abs(correct).max(axis=axes), 1e-3)  # a block may vanish
        assert np.all(np.abs(result - correct).max(axis=axes) <= TOLERANCE * condition * scale), name


def test_there_is_a_model_with_several_trees_and_all_joint_types_occur():
    assert sum(MODELS["several roots"]().parent < 0) > 1
    assert {t for m in MODELS.values() for t in m().joint_types} == set(JOINT_TYPES)


@each_program
@pytest.mark.parametrize("name", MODELS)
def test_loops(program, name):
    """The batches have full and partial blocks of lanes; a second call writes into the same arrays."""
    model, k = MODELS[name](), kernel(program, name)
    results = k.results(19)
    for seed in (0, 1):
        given = arguments(model, program, 19, seed)
        k.write([np.ascontiguousarray(x) for x in given.values()], results)
        assert_same(program, model, given, results)
    assert_same(program, model, given, k(*given.values()))


@each_program
@pytest.mark.parametrize("name", ["ur5", "one joint"])
def test_tapes(program, name):
    model = MODELS[name]()
    given = arguments(model, program, 11)
    fields = on_tape(PROGRAMS[program], model, {n: x.T for n, x in given.items()})
    assert_same(program, model, given, [np.moveaxis(fields[o], -1, 0) for o in PROGRAMS[program].outputs])
