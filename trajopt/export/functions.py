"""C source of the functions of a phase for an export: the table of kernels/functions.h, as straight-line code.

The derivatives of the dynamics are exact: analytic where the system defines them, else CasADi's.
"""

from __future__ import annotations

from typing import NamedTuple

from dynamics_backends.compiled.interface import kernel_text, straight_functions, template
from dynamics_backends.protocol import Map
from trajopt.stage.source.stage_shape import StageShape
from trajopt.stage.source.term_source import term_source

_ADAPTER = """static void {name}_adapted(const void *self, const V *const *in, V *const *out, V *w)
{{
    (void)self;
    {name}({arguments}, w);
}}"""
_TABLE = "CONSTANT functions_t stage_functions = {{ {members}, .rows = {rows} }};"


class FunctionsSource(NamedTuple):
    """C source of the functions, which needs a prelude before it; their workspace in vectors, and the computed rows of xdot."""

    source: str
    workspace: int
    rows: int


def functions_source(system: Map, shape: StageShape) -> FunctionsSource:
    """C source of the dynamics and the costs of a phase. Raises TooLong, TraceError."""
    dynamics, rows = straight_functions(system)
    given = system.manifold, shape.nu
    costs = [
        term_source(name, terms, *given, running=name == "running", hessian=shape.hessian, kernels=False)
        for name, terms in (("running", shape.running), ("terminal", shape.terminal))
    ]
    functions = [*dynamics, *(f for cost in costs for f in cost.functions)]
    texts, workspaces = zip(*(f.source() for f in functions), strict=True)
    adapters = []
    for f in functions:
        arguments = [f"in[{i}]" for i in range(len(f.arguments))] + [f"out[{i}]" for i in range(len(f.outputs))]
        adapters.append(_ADAPTER.format(name=f.name, arguments=", ".join(arguments)))
    members = ", ".join(f".{f.name} = {{{f.name}_adapted, NULL}}" for f in functions)
    headers = template("lanes/function.h"), template("lanes/context.h"), kernel_text("trajopt.stage", "functions.h")
    source = "\n".join([*headers, *texts, *adapters, _TABLE.format(members=members, rows=rows)])
    return FunctionsSource(source, max(workspaces), rows)
