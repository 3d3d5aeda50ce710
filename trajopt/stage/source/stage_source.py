"""C source of a whole stage: manifold, dynamics, time step, cost terms, constraints, and the loops over knots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dynamics_backends.compiled.interface.libraries import kernel_text, template
from dynamics_backends.compiled.interface.sources import DynamicsSource, manifold_source
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Map, damping_offsets
from trajopt.problem.impact_stage import JUMP
from trajopt.stage.source.constraint_source import constraint_source
from trajopt.stage.source.term_source import TermShape, TermSource, term_source
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER


class StageSource(NamedTuple):
    """C source of a whole stage, which needs a prelude before it; lengths of theta of running and terminal terms, the workspace in
    vectors, and FORCES_ROOM of kernels/stage.h."""

    source: str
    theta: int
    theta_end: int
    room: str
    forces: int


class StageShape(NamedTuple):
    """Structure of a phase that determines its library, together with the dynamics.

    scheme: integration scheme, or JUMP. parameters: names and sizes of the dynamics parameters. nu: controls of the problem.
    running, terminal: cost terms. path, final: constraints. hessian: Hessian of the cost, "gauss_newton" or "exact".
    parts: groups of functions: "first" (values and first derivatives), "second", "rollout", which needs "first", "abreast", where
    lanes hold the same knot of several problems, or "newton" alone, for Newton's loop with a problem in each lane.
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
    """C source of kernels/stage.h with everything that it includes. second: contracted second derivatives of the dynamics, for the
    parts that need them.

    Raises TooLong if the code of cost terms or constraints would take too long to compile.
    """
    traced = _traced(dynamics, map, shape, second)
    room = dynamics.room if second is None else f"{dynamics.room} + {second.room}"
    terms_room = " + ".join(f"({part.room})" for part in traced)
    text = [
        *(f"#define {key} {value}" for key, value in _sizes(dynamics, map, shape, traced).items()),
        *(f"#define {part.upper()}" for part in shape.parts),
        f"#define DYNAMICS_ROOM ({room})",
        *_lengths(traced, terms_room),
        _scheme(shape.scheme),
        template("lanes/context.h"),
        *_motion(dynamics, map.manifold, second),
        *(part.source for part in traced),
        *([template("lanes/rows.h")] if {"abreast", *_MORE}.intersection(shape.parts) else []),
        kernel_text("trajopt.stage", "knots.h"),
        kernel_text("trajopt.stage", "stage.h"),
        *(kernel_text("trajopt.stage", name) for part in shape.parts for name in _MORE.get(part, ())),
    ]
    lengths = traced.running.theta, traced.terminal.theta
    return StageSource("\n".join(text), *lengths, f"({room}) + {terms_room}", traced.running.forces)


class _Traced(NamedTuple):
    """C source of the cost terms and constraints."""

    running: TermSource
    terminal: TermSource
    path: TermSource
    final: TermSource


def _traced(dynamics: DynamicsSource, map: Map, shape: StageShape, second: DynamicsSource | None) -> _Traced:
    manifold, nu = map.manifold, shape.nu
    orders = ["value", "first"] if second is None else ["value", "first", "second"]
    rolled = "rollout" in shape.parts
    along = orders[1:] if rolled else orders  # problems of rollouts have their running constraints as terms
    moving, curved = map if dynamics.forces else None, second is not None and not rolled
    hessian = shape.hessian
    return _Traced(
        term_source(
            "running", shape.running, manifold, nu, running=True, hessian=hessian, moving=moving, curved=curved
        ),
        term_source("terminal", shape.terminal, manifold, nu, running=False, hessian=hessian),
        constraint_source("path", shape.path, manifold, nu, running=True, orders=along),
        constraint_source("final", shape.final, manifold, nu, running=False, orders=orders),
    )


def _sizes(dynamics: DynamicsSource, map: Map, shape: StageShape, traced: _Traced) -> dict[str, int]:
    """Macros of kernels/stage.h with the sizes known at compile time."""
    manifold, offsets = map.manifold, damping_offsets(map)
    rows = [sum(c.residual.n_out for c in group) for group in (shape.path, shape.final)]
    sizes = {"NX": manifold.nx, "ND": manifold.ndx, "MU": map.nu - (offsets or 0), "NU": shape.nu, "NF": dynamics.rows}
    sizes |= {"NP": sum(n for _, n in shape.parameters), "NG": rows[0], "NGT": rows[1]}
    sizes |= {
        "THETA_ROOM": theta_room(traced.running.theta, traced.terminal.theta),
        "PG_ROOM": max(traced.path.theta, traced.final.theta),
    }
    sizes |= {"FORCES_ROOM": traced.running.forces, "FORCES_BENT": traced.running.bent}
    return sizes if offsets is None else {**sizes, "IMPLICIT": 1, "NE": offsets}


def _lengths(traced: _Traced, terms_room: str) -> list[str]:
    """Declarations of numbers that the linker sets, so that editing a term recompiles little: lengths of theta, and the workspace
    of the terms if it is a number."""
    lengths = dict(zip(("NT", "NTT", "NPG", "NPGT"), (part.theta for part in traced), strict=True))
    known = _SUM_OF_NUMBERS.fullmatch(terms_room) is not None
    if known:
        lengths["TERMS_ROOM"] = sum(int(number) for number in re.findall(r"\d+", terms_room))
    numbers = [f"NUMBER({key}, {value})" for key, value in lengths.items()]
    return numbers if known else [*numbers, f"#define TERMS_ROOM ({terms_room})"]


def _motion(dynamics: DynamicsSource, manifold: Manifold, second: DynamicsSource | None) -> list[str]:
    """C source of the manifold, the dynamics and the time step; with ``second``, of their second derivatives too."""
    first = [manifold_source.manifold_source(manifold), dynamics.source]
    step = [
        kernel_text("trajopt.stage", "stage_types.h"),
        kernel_text("trajopt.stage", "step.h"),
        kernel_text("trajopt.stage", "sensitivities.h"),
    ]
    if second is None:
        return [*first, *step]
    curvature = ["#define CURVATURE", kernel_text("trajopt.stage", "curvature.h")]
    return [*first, second.source, manifold_source.curvature_source(manifold), *step, *curvature]


_MORE = {"rollout": ("rollout.h", "abreast.h", "first_abreast.h"), "newton": ("abreast.h", "newton_abreast.h")}
"""Kernels included after stage.h, by part."""
_SUM_OF_NUMBERS = re.compile(r"[\d+() ]+")
MIN_THETA_ROOM = 256
"""Minimum capacity of theta, so that most edits of terms change only the code of these terms."""


def theta_room(*lengths: int) -> int:
    """Capacity for vectors theta of these lengths: the smallest MIN_THETA_ROOM 2^k that holds them."""
    room = MIN_THETA_ROOM
    while room < max(lengths):
        room *= 2
    return room


def _scheme(name: str) -> str:
    if name == JUMP:
        return f"#define JUMP\n{tableau_source('euler')}"
    return "#define SEMI_IMPLICIT" if name == SEMI_IMPLICIT_EULER else tableau_source(name)


def has_stages(scheme: str) -> bool:
    """True if the scheme has more than one stage."""
    return scheme in RUNGE_KUTTA and len(RUNGE_KUTTA[scheme].b) > 1


def tableau_source(scheme: str) -> str:
    """C source of STAGES, the coefficients A_, B_, C_ of a Runge-Kutta method, and AI_ of its implicit damping."""
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
