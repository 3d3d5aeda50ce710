"""Table of the constraints of a problem: name, kind, knots and size."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dynamics_backends.names import table_lines
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP

TITLES = ("constraint", "kind", "knots", "size")
CONTROL_BOUNDS = "control bounds"


def constraint_table(ocp: OCP) -> list[str]:
    """Lines of the table, titles first; empty for a problem without constraints.

    Constraints with the same name, kind and size share a line. knots: knots 0 to N where the constraint is imposed; one without
    controls is not imposed at knot 0, where x0 is fixed. size: rows at each knot, or number of bounded entries.
    """
    result: dict[tuple[str, str, int], set[int]] = {}
    bounds = ocp.control_bounds
    if bounds is not None:
        bounded = np.isfinite(bounds[0]) | np.isfinite(bounds[1])
        if bounded.any():
            at = set(np.flatnonzero(bounded.any(axis=1)).tolist())
            result[CONTROL_BOUNDS, "bounds", int(bounded.any(axis=0).sum())] = at
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        for c in phase.constraints:
            first = max(knots.start, 0 if c.residual.nu else 1)
            result.setdefault(_key(c), set()).update(range(first, knots.stop))
    for c in ocp.terminal_constraints:
        result.setdefault(_key(c), set()).add(ocp.horizon)
    if not result:
        return []
    rows = [(name, kind, _ranges(sorted(knots)), str(size)) for (name, kind, size), knots in result.items()]
    return table_lines([TITLES, *rows])


def _key(c: Constraint) -> tuple[str, str, int]:
    kind = c.kind if chosen_coordinates(c) is None or c.kind == "equality" else "bounds"
    return c.name, kind, c.residual.n_out


def _ranges(knots: Iterable[int]) -> str:
    """Text of knots as ranges, such as "1 to 9, 20"."""
    ranges: list[list[int]] = []
    for k in knots:
        if ranges and k == ranges[-1][1] + 1:
            ranges[-1][1] = k
        else:
            ranges.append([k, k])
    return ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in ranges) or "none"
