"""The C text of a whole stage: manifold, dynamics, time step, cost terms and the loops over knots around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import NamedTuple

from dynamics_backends.compiled.interface.sources import DynamicsSource, manifold_source
from dynamics_backends.protocol import Map
from trajopt.problem.impact_stage import JUMP
from trajopt.stage.term_source import TermShape, term_source
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER


class StageSource(NamedTuple):
    """C source of a whole stage, to stand behind a prelude; the lengths of theta, and the workspace of its parts in vectors."""

    source: str
    theta: int
    theta_end: int
    room: str


class StageShape(NamedTuple):
    """What of a phase is compiled, beside its dynamics.

    scheme: of the time step, or JUMP. parameters: names and sizes of those of the dynamics. nu: controls of the problem.
    running, terminal: the cost terms. hessian: of the cost, "gauss_newton" or "exact".
    """

    scheme: str
    parameters: tuple[tuple[str, int], ...]
    nu: int
    running: tuple[TermShape, ...]
    terminal: tuple[TermShape, ...]
    hessian: str


def stage_source(dynamics: DynamicsSource, map: Map, shape: StageShape) -> StageSource:
    """The text of kernels/stage.h with all that it asks for."""
    manifold, nu = map.manifold, shape.nu
    read = max([map.nu, *(term.residual.nu for term in shape.running)])
    first = term_source("running", shape.running, manifold, nu, running=True, hessian=shape.hessian, read=read)
    last = term_source("terminal", shape.terminal, manifold, nu, running=False, hessian=shape.hessian)
    terms = {"NT": first.theta, "NTT": last.theta, "TERMS_ROOM": max(first.room, last.room)}
    parts = [
        _step_source(dynamics, map, shape, terms),
        kernel_text("step.h"),
        first.source,
        last.source,
        kernel_text("stage.h"),
    ]
    return StageSource("\n".join(parts), first.theta, last.theta, f"({dynamics.room}) + {terms['TERMS_ROOM']}")


def curvature_source(dynamics: DynamicsSource, second: DynamicsSource, map: Map, shape: StageShape) -> str:
    """The text of kernels/curvature.h with all that it asks for; second: the contracted second derivatives."""
    both = replace(dynamics, source=dynamics.source + second.source, room=f"{dynamics.room} + {second.room}")
    parts = [_step_source(both, map, shape, {}), manifold_source.curvature_source(map.manifold)]
    return "\n".join([*parts, kernel_text("step.h"), kernel_text("curvature.h")])


def _step_source(dynamics: DynamicsSource, map: Map, shape: StageShape, more: Mapping[str, int]) -> str:
    """What kernels/step.h asks for."""
    sizes = {"NX": map.manifold.nx, "ND": map.manifold.ndx, "MU": map.nu, "NU": shape.nu, "NF": dynamics.rows}
    sizes |= {"NP": sum(n for _, n in shape.parameters), **more}
    head = [f"#define {key} {value}" for key, value in sizes.items()]
    context = "typedef struct { const int *const *ti; const double *const *td; V *w; } ctx_t;"
    parts = [*head, f"#define DYNAMICS_ROOM ({dynamics.room})", _scheme(shape.scheme), context]
    return "\n".join([*parts, manifold_source.manifold_source(map.manifold), dynamics.source])


def kernel_text(name: str) -> str:
    """A text of the folder kernels."""
    return (files("trajopt.stage") / "kernels" / name).read_text()


def _scheme(name: str) -> str:
    if name == JUMP:
        return f"#define JUMP\n{tableau_source('euler')}"
    return "#define SEMI_IMPLICIT" if name == SEMI_IMPLICIT_EULER else tableau_source(name)


def tableau_source(scheme: str) -> str:
    """STAGES and the coefficients A_, B_, C_ of a Runge-Kutta method in C."""
    tableau = RUNGE_KUTTA[scheme]
    s = len(tableau.b)
    rows = ", ".join("{" + _numbers((*row, *[0.0] * (s - len(row)))) + "}" for row in tableau.a)
    return (
        f"#define STAGES {s}\nstatic const double A_[{s}][{s}] = {{{rows}}}, "
        f"B_[{s}] = {{{_numbers(tableau.b)}}}, C_[{s}] = {{{_numbers(tableau.c)}}};"
    )


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(repr(float(x)) for x in values)
