"""The forces of constraints and their derivatives as C, for cost terms that are functions of them.

    forces_value(x, u, t, y, w)         y: the forces (rows)
    forces_first(x, u, t, y, J, w)      J: their derivatives (rows x columns) in (q, v, u)

Straight-line code gives the right-hand sides, loops solve them for all directions, as for the motion itself
(:mod:`~dynamics_backends.compiled.sources.constrained_source`).  All names begin with a prefix, so that several such maps, and the
dynamics of a stage, stand in one text.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.sources.constrained_source import factor_entries, solution_text, unsolved
from dynamics_backends.compiled.sources.traced_source import TracedDynamics, by_rows
from dynamics_backends.deferred import deferred
from dynamics_backends.systems.constraints.constraint_kinds import BoundFrame
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces

ca = deferred("casadi")
STRAIGHT_UP_TO = 6
"""Forces of so many rows are solved for in straight-line code with their terms: an expansion of HyQ's rigid trot, most of
it on two feet, takes 1.19 ms so and 1.34 in loops; four feet would take 140,000 operations in place of 33,000."""
_OWN = re.compile(
    r"#define (\w+)|static (?:const )?(?:int|V|void) (\w+)[\[(]|ALWAYS_INLINE void (\w+)\(|\} (constrained_factor_t);"
)


class ForcesSource(NamedTuple):
    """C source of PREFIX_forces_value and PREFIX_forces_first; rows and columns of the derivatives; the workspace, in vectors."""

    source: str
    prefix: str
    rows: int
    columns: int
    room: str


def solved_in_loops(map: Any) -> bool:
    """Whether a map is the forces of several constraints whose rows are reported as they are solved for."""
    return (
        isinstance(map, ConstraintForces)
        and isinstance(map.system, Holonomic)
        and map.n_out > STRAIGHT_UP_TO
        and not any(isinstance(c, BoundFrame) for c in map.system.constraints.bound)
    )


def forces_source(forces: ConstraintForces, prefix: str) -> ForcesSource:
    """The functions of the module docstring. Raises TooLong, TraceError."""
    traced = TracedDynamics(forces.system, {})
    parts = traced.attempt(lambda: unsolved(traced))
    s = traced.symbols
    y = traced.attempt(lambda: forces(s.x, s.u, s.t, {}))
    outputs = {"y": ca.densify(ca.vertcat(*parts.f)), "top": by_rows(parts.top), "bottom": by_rows(parts.bottom)}
    outputs["entries"] = factor_entries(parts)
    first, room = traced.function(f"{prefix}_forces_unsolved", outputs, {})
    alone, room_alone = traced.function(f"{prefix}_forces_alone", {"y": y}, {})
    before, after = "\n".join(solution_text(parts)), template("constraint_forces.h")
    names = {*_names(before), *_names(after), "forces_unsolved", "forces_alone"}
    text = "\n".join([_prefixed(before, names, prefix), first, alone, _prefixed(after, names, prefix)])
    numbers = sum(e.numel() for e in outputs.values())
    rows, columns = len(parts.bottom), parts.top[0].shape[0]
    return ForcesSource(text, prefix, rows, columns, f"{room} + {room_alone} + {numbers}")


def _names(text: str) -> set[str]:
    """What a text defines."""
    return {name for match in _OWN.finditer(text) for name in match.groups() if name}


def _prefixed(text: str, names: set[str], prefix: str) -> str:
    """The text with a prefix before these names."""
    return re.sub(rf"\b({'|'.join(sorted(names))})\b", rf"{prefix}_\1", text)
