"""C source of the functions of a phase that the stages of the package's library call: kernels/functions.h."""

from __future__ import annotations

from typing import Any, NamedTuple

from dynamics_backends.compiled.interface.libraries import kernel_text, template
from dynamics_backends.compiled.interface.sources import DynamicsSource
from dynamics_backends.protocol import Map
from trajopt.stage.source.term_source import TermShape, term_source
from trajopt.step.integrators import RUNGE_KUTTA


class StageShape(NamedTuple):
    """Structure of a phase that determines its functions, together with the dynamics.

    scheme: integration scheme, or JUMP. parameters: names and sizes of the dynamics parameters. nu: controls of the problem.
    running, terminal: cost terms. path, final: constraints. hessian: Hessian of the cost, "gauss_newton" or "exact". second: second
    derivatives of dynamics and constraints are compiled too.
    """

    scheme: str
    parameters: tuple[tuple[str, int], ...]
    nu: int
    running: tuple[TermShape, ...] = ()
    terminal: tuple[TermShape, ...] = ()
    path: tuple[TermShape, ...] = ()
    final: tuple[TermShape, ...] = ()
    hessian: str = "gauss_newton"
    second: bool = False


class StageSource(NamedTuple):
    """C source of the functions, which needs a prelude before it.

    room: their workspace in vectors, a C expression in nb, nv, nq. numbers: rows, forces and bent of functions_t.
    """

    source: str
    room: str
    numbers: dict[str, int]


def stage_source(
    dynamics: DynamicsSource | None,
    rows: int,
    system: Map,
    shape: StageShape,
    contraction: DynamicsSource | None = None,
) -> StageSource:
    """C source of the dynamics, the running and the terminal cost, and of the table stage_functions.

    dynamics, contraction: value and partial derivatives, and second derivatives of the dynamics; None for functions that the
    package's library has. rows: computed rows of xdot. Raises TooLong if the code of terms would take too long to compile,
    TraceError for a term that cannot be traced.
    """
    manifold, nu, hessian = system.manifold, shape.nu, shape.hessian
    moving = system if dynamics is not None and dynamics.forces else None
    running = term_source(
        "running", shape.running, manifold, nu, running=True, hessian=hessian, moving=moving, curved=shape.second
    )
    terminal = term_source("terminal", shape.terminal, manifold, nu, running=False, hessian=hessian)
    sources: list[Any] = [part for part in (dynamics, contraction) if part is not None]
    written = [
        *([("dynamics_value", "")] if dynamics is not None else []),
        *([("dynamics_partials", "")] if dynamics is not None and dynamics.has_partials else []),
        *([("dynamics_contracted", "")] if contraction is not None else []),
        *((name, _adapted(name, *counts)) for name, counts in _COSTS.items()),
    ]
    members = "".join(f".{name} = {{{name}_adapted, NULL}}, " for name, _ in written)
    numbers = {"rows": rows, "forces": running.forces, "bent": running.bent}
    table = _TABLE.format(members=members, numbers=", ".join(f".{key} = {value}" for key, value in numbers.items()))
    headers = template("lanes/function.h"), template("lanes/context.h"), kernel_text("trajopt.stage", "functions.h")
    adapters = [_DYNAMICS.get(name, text) for name, text in written]
    parts = [*sources, running, terminal]
    room = " + ".join(f"({part.room})" for part in parts)
    return StageSource("\n".join([*headers, *(part.source for part in parts), *adapters, table]), room, numbers)


_COSTS = {
    "running_value": (6, 1),
    "running_expand": (6, 7),
    "terminal_value": (3, 1),
    "terminal_expand": (3, 3),
}
"""Numbers of arguments and of results of the functions of the costs."""
_HEAD = (
    "static void {name}_adapted(const void *self, const V *const *in, V *const *out, V *w)\n{{\n(void)self;\n{body}\n}}"
)
_DYNAMICS = {
    "dynamics_value": _HEAD.format(
        name="dynamics_value",
        body="dynamics_value((ctx_t){.w = w, .forces = out[1]}, in[0], in[1], *in[2], in[3], out[0]);",
    ),
    "dynamics_partials": _HEAD.format(
        name="dynamics_partials",
        body="dynamics_partials((ctx_t){.w = w, .forces = out[3]}, in[0], in[1], *in[2], in[3], out[0], out[1], out[2]);",
    ),
    "dynamics_contracted": _HEAD.format(
        name="dynamics_contracted",
        body="const contraction_t to = {out[0], out[1], out[2], out[3], out[4], out[5]};\n"
        "dynamics_contracted((ctx_t){.w = w, .phi = in[5]}, in[0], in[1], *in[2], in[3], in[4], to);",
    ),
}
_TABLE = """
#ifdef FEW_ROWS
#define SPARSE_ROWS .full_row = full_row, .few_row = few_row, .few_first = few_first, .few_column = few_column, \\
                    .few_rows = FEW_ROWS, .few_entries = FEW_ENTRIES,
#else
#define SPARSE_ROWS
#endif
CONSTANT functions_t stage_functions = {{ {members}SPARSE_ROWS {numbers} }};
"""


def _adapted(name: str, inputs: int, outputs: int) -> str:
    """C function with the signature of function.h that calls a function of the costs."""
    results = [f"out[{i}]" for i in range(outputs)]
    if name == "running_expand":
        results = [results[-1], *results[:-1]]  # phi precedes the other results
    arguments = ", ".join([*(f"in[{i}]" for i in range(inputs)), *results, "w"])
    return _HEAD.format(name=name, body=f"{name}({arguments});")


def has_stages(scheme: str) -> bool:
    """True if the scheme has more than one stage."""
    return scheme in RUNGE_KUTTA and len(RUNGE_KUTTA[scheme].b) > 1
