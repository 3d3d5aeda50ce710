"""Kernels do not depend on what a workspace held before, also where degrees of freedom are not numbered depth first."""

from dataclasses import replace

import numpy as np
import pytest
from compiled_text import compiled_kernel
from rigid_body_cases import state

from dynamics_backends.compiled.loops.kernel_data import INT_TABLES, int_tables
from dynamics_backends.compiled.loops.loops import LoopKernel, loop_kernel
from dynamics_backends.compiled.loops.unrolled import argument_sizes
from dynamics_backends.rigid_body import batched
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.model.model import JOINT_TYPES
from dynamics_backends.rigid_body.model.sample_models import binary_tree, random_tree
from dynamics_backends.rigid_body.passes.drivers import rows

pytestmark = pytest.mark.needs_compiler


def with_rotors(model):
    """Rotors on all degrees of freedom: a base with them no longer moves everything as one."""
    return model.replace(armature=np.linspace(0.1, 0.4, model.nv))


MODELS = {
    "binary tree": lambda: binary_tree(15),
    "several roots": lambda: random_tree(3, 6),
    "floating base": lambda: random_tree(1, 7, floating_base=True),
    "rotors on a floating base": lambda: with_rotors(random_tree(2, 5, floating_base=True)),
}
ORDER = {"a": 1}
each_model = pytest.mark.parametrize("name", MODELS)

_SOLUTION = """
static void solution(const int* const* ti, const double* const* td, const V* M, const V* b, V* x, V* workspace)
{{
const int nv = ti[0][1];
ltl_factor(nv, ti[{up}], M, workspace);
ltl_solve((branches_t){{nv, ti[{up}], ti[{end}]}}, workspace, b, x, 1, 1.0, 0);
}}
""".format(up=INT_TABLES.index("up"), end=INT_TABLES.index("end"))
SOLUTION = LoopKernel("solution", _SOLUTION, ["M", "b"], ["x"], ["nv * nv", "nv"], ["nv"], "nv * (nv + 1)")


def spoiled(kernel: LoopKernel) -> LoopKernel:
    """The kernel behind another that fills its outputs and its workspace with NaN."""
    names = [*kernel.inputs, *kernel.outputs]
    sizes = dict(zip(kernel.outputs, kernel.output_sizes, strict=True)) | {"workspace": kernel.workspace}
    arguments = [f"const V* {i}" for i in kernel.inputs] + [f"V* {o}" for o in (*kernel.outputs, "workspace")]
    fills = "\n".join(f"for (long i = 0; i < {size}; i++) {n}[i] = splat(NAN);" for n, size in sizes.items())
    outer = f"""
static void {kernel.name}_spoiled(const int* const* ti, const double* const* td, {", ".join(arguments)})
{{
const int nb = ti[0][0], nv = ti[0][1], nq = ti[0][2]; (void)nb; (void)nv; (void)nq;
{fills}
{kernel.name}(ti, td, {", ".join(names)}, workspace);
}}
"""
    return replace(kernel, name=f"{kernel.name}_spoiled", source=kernel.source + outer)


def test_the_binary_tree_is_not_numbered_depth_first():
    """Other DoFs lie between a DoF and the last of its subtree."""
    up, end = (int_tables(MODELS["binary tree"]())[INT_TABLES.index(n)] for n in ("up", "end"))
    subtree = np.ones(len(up), int)
    for d in reversed(range(len(up))):
        if up[d] >= 0:
            subtree[up[d]] += subtree[d]
    assert np.any(end - np.arange(len(up)) > subtree)


@each_model
def test_factorization_and_solution(name):
    model = MODELS[name]()
    q, b, _ = state(model, 0, 11)
    M = batched.mass_matrix(model, q)
    (x,) = compiled_kernel(spoiled(SOLUTION), model, [model.nv**2, model.nv], [(model.nv,)], [None])(
        M.reshape(11, -1), b
    )
    expected = np.linalg.solve(M, b[..., None])[..., 0]
    assert np.abs(x - expected).max() <= 1e-12 * np.linalg.cond(M).max() * np.abs(expected).max()


@each_model
@pytest.mark.parametrize("program", [FDSVA, FD_SECOND_ORDER], ids=lambda p: p.name)
def test_derivatives_of_forward_dynamics(program, name):
    model = MODELS[name]()
    q, v, tau = state(model, 1, 11)
    known = {"q": q, "v": v, "tau": tau, "lam": tau[:, ::-1] - v}
    shapes = [(model.nv,) * ORDER.get(o, 2) for o in program.outputs]
    loops, sizes = spoiled(loop_kernel(program, sorted(JOINT_TYPES))), argument_sizes(program, model)
    kernel = compiled_kernel(loops, model, sizes, shapes, [None] * len(shapes))
    given = {n: np.ascontiguousarray(known[n]) for n in program.arguments}
    expected = rows(program, model, {n: x.T for n, x in given.items()})
    condition = np.linalg.cond(batched.mass_matrix(model, q)).max()
    for o, actual in zip(program.outputs, kernel(*given.values()), strict=True):
        correct = np.moveaxis(np.asarray(expected[o]), -1, 0)
        assert np.abs(actual - correct).max() <= 1e-12 * condition * np.abs(correct).max(), o
