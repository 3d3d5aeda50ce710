"""C source of constraint forces and their derivatives, for cost terms that are functions of forces.

    forces_value(x, u, t, y, w)         y: the forces (rows)
    forces_first(x, u, t, y, J, w)      J: their derivatives (rows x columns) in (q, v, u)
    forces_second(x, u, t, phi, J, xx, ux, w)      J, and the second derivatives of phi' y

Straight-line code computes the right-hand sides, loops solve them for all directions, as for the motion
(:mod:`~dynamics_backends.compiled.sources.constrained_source`).  All names begin with a prefix, so that one text can hold several
such maps and the dynamics of a stage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.sources.constrained_source import (
    bent_equations,
    entries,
    factor_entries,
    reports_shifted_forces,
    slopes_of,
    solution_text,
    still_curvature,
    tables,
    unsolved_equations,
)
from dynamics_backends.compiled.sources.traced_source import TracedDynamics, by_rows
from dynamics_backends.deferred import deferred
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces

ca = deferred("casadi")
STRAIGHT_UP_TO = 6
"""Maximum number of force rows that straight-line code solves together with their cost terms.

An expansion of HyQ's rigid trot, mostly on two feet, takes 1.19 ms this way and 1.34 ms in loops; four feet would take 140,000
operations instead of 33,000.
"""
_DEFINITION = re.compile(
    r"#define (\w+)|static (?:const )?(?:int|V|void) (\w+)[\[(]|ALWAYS_INLINE void (\w+)\(|\} (constrained_\w+_t);"
)


class ForcesSource(NamedTuple):
    """C source of PREFIX_forces_value and other functions; rows and columns of the derivatives; the workspace in vectors."""

    source: str
    prefix: str
    rows: int
    columns: int
    room: str


def solved_in_loops(map: Any, *, second: bool = False) -> bool:
    """True if loops solve a map of constraint forces: it has many rows or second derivatives, and reports forces as solved."""
    return (
        isinstance(map, ConstraintForces)
        and isinstance(map.system, Holonomic)
        and (second or map.n_out > STRAIGHT_UP_TO)
        and not reports_shifted_forces(map.system)
    )


def forces_source(forces: ConstraintForces, prefix: str, kinds: Sequence[str]) -> ForcesSource:
    """Write the functions "value", "first", "second" listed in ``kinds`` (see the module docstring). Raises TooLong, TraceError."""
    system = forces.system
    traced = TracedDynamics(system, {})
    written = {"value": _value, "first": _first, "second": _second}
    texts, rooms = [], ["0"]
    for kind in kinds:
        before, code, after, room = written[kind](traced, forces, f"{prefix}_")
        names = {*_names(before), *_names(after), "forces_alone", "forces_unsolved", "forces_bent"}
        texts += [_prefixed(before, names, prefix), code, _prefixed(after, names, prefix)]
        rooms.append(room)
    columns = 2 * system.model.nv + system.nu
    return ForcesSource("\n".join(texts), prefix, forces.n_out, columns, " + ".join(rooms))


Written = tuple[str, str, str, str]
"""Text before the straight-line code, that code, the text after it, and the workspace in vectors as C text."""


def _value(traced: TracedDynamics, forces: ConstraintForces, prefix: str) -> Written:
    s = traced.symbols
    y = traced.attempt(lambda: forces(s.x, s.u, s.t, {}))
    code, room = traced.function(f"{prefix}forces_alone", {"y": y}, {})
    return "", code, template("constrained/constraint_forces_value.h"), room


def _first(traced: TracedDynamics, forces: ConstraintForces, prefix: str) -> Written:
    parts = traced.attempt(lambda: unsolved_equations(traced))
    outputs = {"y": ca.densify(ca.vertcat(*parts.f)), "top": by_rows(parts.top), "bottom": by_rows(parts.bottom)}
    outputs["entries"] = factor_entries(parts)
    code, room = traced.function(f"{prefix}forces_unsolved", outputs, {})
    before, after = "\n".join(solution_text(parts)), template("constrained/constraint_forces.h")
    return before, code, after, f"{room} + {sum(e.numel() for e in outputs.values())}"


def _second(traced: TracedDynamics, forces: ConstraintForces, prefix: str) -> Written:
    phi = ca.SX.sym("phi", forces.n_out)
    parts = traced.attempt(lambda: bent_equations(traced, phi, ca.SX.zeros(forces.system.model.nv)))
    slopes = slopes_of(parts)
    outputs = {"top": by_rows(parts.top), "bottom": by_rows(parts.bottom), "xx": still_curvature(traced, parts)}
    outputs |= {"entries": factor_entries(parts), "slopes": entries(slopes)}
    code, room = traced.function(f"{prefix}forces_bent", outputs, {"phi": phi})
    before = "\n".join([*solution_text(parts), *tables(slopes), template("constrained/constrained_second.h")])
    columns = parts.top[0].shape[0]
    numbers = sum(e.numel() for e in outputs.values()) + (len(parts.top) + columns) * columns
    return before, code, template("constrained/constraint_forces_second.h"), f"{room} + {numbers}"


def _names(text: str) -> set[str]:
    """Names that a C text defines."""
    return {name for match in _DEFINITION.finditer(text) for name in match.groups() if name}


def _prefixed(text: str, names: set[str], prefix: str) -> str:
    """C text with a prefix added to these names."""
    return re.sub(rf"\b({'|'.join(sorted(names))})\b", rf"{prefix}_\1", text)
