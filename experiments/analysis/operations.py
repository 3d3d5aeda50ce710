"""Operation counts, by type, of a robot's dynamics and their derivatives as straight-line code; comparison with a paper.

    trajopt ops ROBOT_OR_FILE [--snap]

A function is traced with the constants of the robot folded and common subexpressions shared. Operations that the outputs do
not use are not counted. x + x counts as an addition, 1 / x as an inversion.

Published: A. Astudillo, J. Carpentier, J. Gillis, G. Pipeleers, J. Swevers, Mixed use of analytical derivatives and
algorithmic differentiation for NMPC of robot manipulators, MECC 2021, supplementary table S1, analytic derivatives.
The paper does not name the variables of its derivatives. The table therefore has derivatives with and without the block of
the input (tau or a).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dynamics_backends.compiled.loops.unrolled import unrolled_trace
from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.algorithms.rnea import RNEA
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.model import Model

FUNCTIONS = {  # name: program, outputs, name in the published table
    "FD": (ABA, ("a",), "FD"),
    "J_FD (q, v)": (FDSVA, ("da_dq", "da_dv"), "J_FD"),
    "J_FD (q, v, tau)": (FDSVA, ("da_dq", "da_dv", "M_inverse"), "J_FD"),
    "ID": (RNEA, ("tau",), "ID"),
    "J_ID (q, v)": (IDSVA, ("dtau_dq", "dtau_dv"), "J_ID"),
    "J_ID (q, v, a)": (IDSVA, ("dtau_dq", "dtau_dv", "M"), "J_ID"),
}
TYPES = ("add/sub", "mul", "div", "neg", "sq", "sqrt", "sin", "cos", "inv", "other")
_TYPE_OF = {"ADD": "add/sub", "SUB": "add/sub", "TWICE": "add/sub"}
_TYPE_OF |= {name.upper(): name for name in TYPES if name.isalpha()}

PUBLISHED: dict[str, dict[str, dict[str, int]]] = {
    robot: {function: dict(zip(TYPES, counts, strict=True)) for function, counts in table.items()}
    for robot, table in {
        "iiwa7": {
            "FD": (1207, 1424, 32, 0, 0, 0, 6, 6, 0, 0),
            "J_FD": (5479, 6102, 101, 106, 66, 0, 7, 7, 6, 0),
            "ID": (509, 629, 0, 0, 0, 0, 6, 6, 0, 0),
            "J_ID": (3643, 4014, 0, 0, 68, 0, 7, 7, 0, 0),
        },
        "gen3": {
            "FD": (1543, 1833, 34, 0, 0, 0, 7, 7, 0, 0),
            "J_FD": (6734, 7505, 114, 114, 78, 0, 7, 7, 6, 0),
            "ID": (657, 821, 0, 0, 0, 0, 7, 7, 0, 0),
            "J_ID": (4444, 4890, 0, 0, 78, 0, 7, 7, 0, 0),
        },
    }.items()
}


class Count(NamedTuple):
    """Operation counts of one function by type, and the published total for this robot or None."""

    function: str
    by_type: Mapping[str, int]
    published: int | None

    @property
    def total(self) -> int:
        """Sum over all types."""
        return sum(self.by_type.values())

    def cells(self) -> list[str]:
        """Return the table row; columns: :data:`HEADER`."""
        ratio = "" if self.published is None else f"{self.total / self.published:.2f}"
        published = "" if self.published is None else str(self.published)
        return [self.function, *(str(self.by_type[t] or "") for t in TYPES), str(self.total), published, ratio]


HEADER = ("function", *TYPES, "total", "published", "ratio")


def by_type(counts: Mapping[str, int]) -> dict[str, int]:
    """Convert counts by CasADi's operation names to counts by TYPES."""
    totals = dict.fromkeys(TYPES, 0)
    for name, count in counts.items():
        totals[_TYPE_OF.get(name, "other")] += count
    return totals


def operation_counts(model: Model, robot: str = "") -> list[Count]:
    """Count the operations of FUNCTIONS for a model. ``robot``: its name in PUBLISHED."""
    published = {name: sum(counts.values()) for name, counts in PUBLISHED.get(robot, {}).items()}
    return [
        Count(name, by_type(unrolled_trace(program, model, outputs).count()), published.get(key))
        for name, (program, outputs, key) in FUNCTIONS.items()
    ]


def load(robot: str, snap: bool = False, base: str | None = None) -> Model:
    """Load a bundled robot, "erd:NAME", or a URDF or MJCF file. base: "fixed", "floating", None for the robot's default.

    snap: round rotations near a quarter turn to exact ones. Raises UnknownName, FileNotFoundError, URDFError, MJCFError.
    """
    from dynamics_backends.rigid_body.robots import load_robot

    options: dict[str, Any] = {} if base is None else {"base": base}
    return load_robot(robot, **options, **({"snap": True} if snap else {}))


def table(counts: Iterable[Count]) -> list[str]:
    """Format counts as text lines with aligned columns; empty columns are omitted."""
    rows = [list(HEADER), *(count.cells() for count in counts)]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(
            x.ljust(w) if i == 0 else x.rjust(w) for i, (x, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in zip(*columns, strict=True)
    ]


def write_csv(path: Path, counts: Iterable[Count]) -> None:
    """Write all columns to a CSV file, one line per function."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(count.cells() for count in counts)
