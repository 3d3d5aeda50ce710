"""The C text of a whole stage: manifold, dynamics, time step, cost terms and the loops over knots around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from dynamics_backends.compiled.interface.libraries import template
from dynamics_backends.compiled.interface.sources import DynamicsSource, manifold_source
from dynamics_backends.protocol import Map, damping_offsets
from trajopt.problem.impact_stage import JUMP
from trajopt.stage.source.constraint_source import constraint_source
from trajopt.stage.source.term_source import TermShape, term_source
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER


class StageSource(NamedTuple):
    """C source of a whole stage, to stand behind a prelude; the lengths of theta, the workspace of its parts in vectors, and
    FORCES_ROOM of kernels/stage.h."""

    source: str
    theta: int
    theta_end: int
    room: str
    forces: int


class StageShape(NamedTuple):
    """What of a phase is compiled, beside its dynamics.

    scheme: of the time step, or JUMP. parameters: names and sizes of those of the dynamics. nu: controls of the problem.
    running, terminal: the cost terms; path, final: the constraints. hessian: of the cost, "gauss_newton" or "exact".
    parts: of the functions: "first" (values and first order), "second", "rollout", which needs "first".
    """

    scheme: str
    parameters: tuple[tuple[str, int], ...]
    nu: int
    running: tuple[TermShape, ...] = ()
    terminal: tuple[TermShape, ...] = ()
    path: tuple[TermShape, ...] = ()
    final: tuple[TermShape, ...] = ()
    hessian: str = "gauss_newton"
    parts: tuple[str, ...] = ("first", "rollout")


def stage_source(
    dynamics: DynamicsSource, map: Map, shape: StageShape, second: DynamicsSource | None = None
) -> StageSource:
    """The text of kernels/stage.h with all that it asks for; second: the contracted second derivatives, for the part of that name.

    Raises TooLong for cost terms and constraints whose code would take too long to compile.
    """
    manifold, nu = map.manifold, shape.nu
    orders = ["value", "first"] if second is None else ["value", "first", "second"]
    along = (
        orders[1:] if "rollout" in shape.parts else orders
    )  # roll-outs are of problems whose running constraints are terms
    curved = second is not None and "rollout" not in shape.parts
    moving = map if dynamics.forces else None
    terms = [
        term_source(
            "running", shape.running, manifold, nu, running=True, hessian=shape.hessian, moving=moving, curved=curved
        ),
        term_source("terminal", shape.terminal, manifold, nu, running=False, hessian=shape.hessian),
        constraint_source("path", shape.path, manifold, nu, running=True, orders=along),
        constraint_source("final", shape.final, manifold, nu, running=False, orders=orders),
    ]
    offsets = damping_offsets(map)
    counts = [sum(c.residual.n_out for c in group) for group in (shape.path, shape.final)]
    sizes = {"NX": manifold.nx, "ND": manifold.ndx, "MU": map.nu - (offsets or 0), "NU": nu, "NF": dynamics.rows}
    sizes |= {"NP": sum(n for _, n in shape.parameters), "NG": counts[0], "NGT": counts[1]}
    lengths = dict(zip(("NT", "NTT", "NPG", "NPGT"), (part.theta for part in terms), strict=True))
    sizes |= {
        "THETA_ROOM": theta_room(*(part.theta for part in terms[:2])),
        "PG_ROOM": max(lengths["NPG"], lengths["NPGT"]),
    }
    sizes |= {"FORCES_ROOM": terms[0].forces, "FORCES_BENT": terms[0].bent}
    sizes |= {} if offsets is None else {"IMPLICIT": 1, "NE": offsets}
    terms_room = " + ".join(f"({part.room})" for part in terms)
    if _SUM_OF_NUMBERS.fullmatch(terms_room):
        lengths["TERMS_ROOM"] = sum(int(number) for number in re.findall(r"\d+", terms_room))
    room = dynamics.room if second is None else f"{dynamics.room} + {second.room}"
    text = [
        *(f"#define {key} {value}" for key, value in sizes.items()),
        *(f"#define {part.upper()}" for part in shape.parts),
        f"#define DYNAMICS_ROOM ({room})",
        *(f"NUMBER({key}, {value})" for key, value in lengths.items()),
        *([] if "TERMS_ROOM" in lengths else [f"#define TERMS_ROOM ({terms_room})"]),
        _scheme(shape.scheme),
        template("lanes/context.h"),
        manifold_source.manifold_source(manifold),
        dynamics.source,
        *([] if second is None else [second.source, manifold_source.curvature_source(manifold)]),
        kernel_text("stage_types.h"),
        kernel_text("step.h"),
        *([] if second is None else [kernel_text("curvature.h")]),
        *(part.source for part in terms),
        kernel_text("stage.h"),
        *(
            [template("lanes/rows.h"), *(kernel_text(f"{name}.h") for name in ("rollout", "first_abreast"))]
            if "rollout" in shape.parts
            else []
        ),
    ]
    return StageSource("\n".join(text), terms[0].theta, terms[1].theta, f"({room}) + {terms_room}", terms[0].forces)


_SUM_OF_NUMBERS = re.compile(r"[\d+() ]+")
LEAST_ROOM = 256
"""Weights and parameters that there is always room for, so that most edits of terms change nothing but the terms' own code."""


def theta_room(*lengths: int) -> int:
    """Room for vectors theta of these lengths: LEAST_ROOM, or that doubled as often as it takes."""
    room = LEAST_ROOM
    while room < max(lengths):
        room *= 2
    return room


def kernel_text(name: str) -> str:
    """A text of the folder kernels."""
    return (files("trajopt.stage") / "kernels" / name).read_text()


def _scheme(name: str) -> str:
    if name == JUMP:
        return f"#define JUMP\n{tableau_source('euler')}"
    return "#define SEMI_IMPLICIT" if name == SEMI_IMPLICIT_EULER else tableau_source(name)


def tableau_source(scheme: str) -> str:
    """STAGES and the coefficients A_, B_, C_ of a Runge-Kutta method in C, and AI_ of its implicit damping."""
    tableau = RUNGE_KUTTA[scheme]
    s = len(tableau.b)
    a, implicit = (
        ", ".join("{" + _numbers((*row, *[0.0] * (s - len(row)))) + "}" for row in rows)
        for rows in (tableau.a, tableau.implicit)
    )
    return (
        f"#define STAGES {s}\nstatic const double A_[{s}][{s}] = {{{a}}}, "
        f"B_[{s}] = {{{_numbers(tableau.b)}}}, C_[{s}] = {{{_numbers(tableau.c)}}};\n"
        f"#ifdef IMPLICIT\nstatic const double AI_[{s}][{s}] = {{{implicit}}};\n#endif"
    )


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(repr(float(x)) for x in values)
