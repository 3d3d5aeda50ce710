"""The forces of constraints and their derivatives as C, for cost terms that are functions of them.

    forces_value(x, u, t, y, w)         y: the forces (rows)
    forces_first(x, u, t, y, J, w)      J: their derivatives (rows x columns) in (q, v, u)
    forces_second(x, u, t, phi, J, xx, ux, w)      the second derivatives of phi' y

Straight-line code gives the right-hand sides, loops solve them for all directions, as for the motion itself
(:mod:`~dynamics_backends.compiled.sources.constrained_source`).  All names begin with a prefix, so that several such maps, and the
dynamics of a stage, stand in one text.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.sources.constrained_source import (
    bent,
    entries,
    factor_entries,
    slopes_of,
    solution_text,
    tables,
    unsolved,
)
from dynamics_backends.compiled.sources.traced_source import TracedDynamics, by_rows
from dynamics_backends.deferred import deferred
from dynamics_backends.systems.constraints.constraint_kinds import is_shifted
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces

ca = deferred("casadi")
STRAIGHT_UP_TO = 6
"""Forces of so many rows are solved for in straight-line code with their terms: an expansion of HyQ's rigid trot, most of
it on two feet, takes 1.19 ms so and 1.34 in loops; four feet would take 140,000 operations in place of 33,000."""
_OWN = re.compile(
    r"#define (\w+)|static (?:const )?(?:int|V|void) (\w+)[\[(]|ALWAYS_INLINE void (\w+)\(|\} (constrained_\w+_t);"
)


class ForcesSource(NamedTuple):
    """C source of PREFIX_forces_value and PREFIX_forces_first; rows and columns of the derivatives; the workspace, in vectors."""

    source: str
    prefix: str
    rows: int
    columns: int
    room: str


def solved_in_loops(map: Any, *, second: bool = False) -> bool:
    """Whether a map is the forces of constraints whose rows are reported as they are solved for, and many, or second derivatives
    are asked for."""
    return (
        isinstance(map, ConstraintForces)
        and isinstance(map.system, Holonomic)
        and (second or map.n_out > STRAIGHT_UP_TO)
        and not any(is_shifted(c) for c in map.system.constraints.bound)
    )


def forces_source(forces: ConstraintForces, prefix: str, *, second: bool = False) -> ForcesSource:
    """The functions of the module docstring, the last one where ``second``. Raises TooLong, TraceError."""
    traced = TracedDynamics(forces.system, {})
    parts = traced.attempt(lambda: unsolved(traced))
    s = traced.symbols
    y = traced.attempt(lambda: forces(s.x, s.u, s.t, {}))
    outputs = {"y": ca.densify(ca.vertcat(*parts.f)), "top": by_rows(parts.top), "bottom": by_rows(parts.bottom)}
    outputs["entries"] = factor_entries(parts)
    first, room = traced.function(f"{prefix}_forces_unsolved", outputs, {})
    alone, room_alone = traced.function(f"{prefix}_forces_alone", {"y": y}, {})
    before, after = "\n".join(solution_text(parts)), template("constrained/constraint_forces.h")
    names = {*_names(before), *_names(after), "forces_unsolved", "forces_alone"}
    text = "\n".join([_prefixed(before, names, prefix), first, alone, _prefixed(after, names, prefix)])
    numbers = sum(e.numel() for e in outputs.values())
    rows, columns = len(parts.bottom), parts.top[0].shape[0]
    rooms = f"{room} + {room_alone} + {numbers}"
    if second:
        more, room_second = _second(traced, rows, prefix, names)
        text, rooms = f"{text}\n{more}", f"{rooms} + {room_second}"
    return ForcesSource(text, prefix, rows, columns, rooms)


def _second(traced: TracedDynamics, rows: int, prefix: str, names: set[str]) -> tuple[str, str]:
    """PREFIX_forces_second behind the others, whose names are given, and its workspace in vectors, as text."""
    phi = ca.SX.sym("phi", rows)
    parts, xx = traced.attempt(lambda: bent(traced, phi))
    slopes = slopes_of(parts)
    outputs = {"top": by_rows(parts.top), "bottom": by_rows(parts.bottom), "xx": xx}
    outputs |= {"entries": factor_entries(parts), "slopes": entries(slopes)}
    code, room = traced.function(f"{prefix}_forces_bent", outputs, {"phi": phi})
    before = "\n".join([*tables(slopes), template("constrained/constrained_second.h")])
    after = template("constrained/constraint_forces_second.h")
    names = {*names, *_names(before), *_names(after), "forces_bent"}
    columns = parts.top[0].shape[0]
    numbers = sum(e.numel() for e in outputs.values()) + (len(parts.top) + columns) * columns
    return "\n".join([_prefixed(before, names, prefix), code, _prefixed(after, names, prefix)]), f"{room} + {numbers}"


def _names(text: str) -> set[str]:
    """What a text defines."""
    return {name for match in _OWN.finditer(text) for name in match.groups() if name}


def _prefixed(text: str, names: set[str], prefix: str) -> str:
    """The text with a prefix before these names."""
    return re.sub(rf"\b({'|'.join(sorted(names))})\b", rf"{prefix}_\1", text)
