"""Operations of forward and inverse dynamics and their Jacobians (Astudillo et al. 2021, table 1 and S1).

AD: CasADi's reverse mode of the value's expression graph. Analytic: the closed forms as straight-line code. Every arithmetic
operation and elementary function counts as one, after folding the robot's constants and sharing common subexpressions. The URDF is
used unchanged, and with rotations within 1e-4 of a quarter turn made exact ("snapped"). Jacobians are in (q, v, tau) or (q, v, a).
No robot file of Yumi is available; the G1 (29) on a fixed base replaces Atlas (30).
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

from dynamics_backends.compiled.loops.unrolled import unrolled_trace
from dynamics_backends.deferred import deferred
from dynamics_backends.rigid_body.algorithms.aba import ABA, aba
from dynamics_backends.rigid_body.algorithms.rnea import RNEA, rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from dynamics_backends.trace import trace_expressions
from experiments.analysis.operations import by_type
from experiments.papers.study import ASTUDILLO, Claim, Comparison, Outcome
from problems.robots import load_robot

ca = deferred("casadi")

SOURCE = f"{ASTUDILLO}, table 1 and S1"
FUNCTIONS = ("FD", "J_FD AD", "J_FD analytic", "ID", "J_ID AD", "J_ID analytic")
ROBOTS = {  # our name: name in the paper, totals of FUNCTIONS
    "double_pendulum": ("double pendulum", (85, 292, 327, 65, 162, 241)),
    "iiwa7": ("KUKA iiwa7", (2675, 33160, 11874, 1150, 9472, 7739)),
    "gen3": ("Kinova Gen3", (3424, 40051, 14565, 1492, 11955, 9426)),
    "erd:g1_29dof_rev_1_0": ("Atlas (30), replaced by the G1 (29)", (11564, 703094, 164975, 4627, 74628, 52604)),
}
DIVISIONS = {"double pendulum": (9, 12), "KUKA iiwa7": (101, 272), "Kinova Gen3": (114, 291)}
"""Published divisions of J_FD, in closed form and by AD, without inverses (table S1)."""
QUICK = ("double_pendulum",)
ANOTHER_ROBOT = "another robot: no comparison"
CLOSED = {"FD": (ABA, FDSVA, aba, ("a",)), "ID": (RNEA, IDSVA, rnea, ("tau",))}
BLOCKS = {"FD": ("da_dq", "da_dv", "M_inverse"), "ID": ("dtau_dq", "dtau_dv", "M")}


def run(quick: bool) -> Outcome:
    """Count all operations by type."""
    rows: list[dict[str, Any]] = []
    for robot, (title, published) in ROBOTS.items():
        if quick and robot not in QUICK:
            continue
        for snap in (False, True):
            for function, counts in _counts(_load(robot, snap)).items():
                of_paper = published[FUNCTIONS.index(function)]
                total = {"total": sum(counts.values()), "published": of_paper}
                rows.append({"robot": title, "function": function, "snapped": snap, **counts, **total})
    remark = (
        "Snapped: rotations of the URDF within 1e-4 of a quarter turn are made exact, such as 1.5708 for pi / 2; the claims use"
        " the counts without snapping. data.csv has the counts by operation. Jacobians are in (q, v, tau) or (q, v, a)."
    )
    return Outcome(rows, _comparisons(rows), partial(_draw, rows), [remark])


def _load(robot: str, snap: bool) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", URDFWarning)
        return load_robot(robot, snap=snap, base="fixed")


def _counts(model: Model) -> dict[str, dict[str, int]]:
    """Count the operations of FUNCTIONS by type."""
    found = {}
    for kind, (program, slopes, value, outputs) in CLOSED.items():
        found[kind] = by_type(unrolled_trace(program, model, outputs).count())
        x = [ca.SX.sym(name, model.nv) for name in ("q", "v", "input")]
        jacobian = ca.jacobian(value(model, *x), ca.vertcat(*x))
        found[f"J_{kind} AD"] = by_type(trace_expressions(x, [jacobian]).count())
        found[f"J_{kind} analytic"] = by_type(unrolled_trace(slopes, model, BLOCKS[kind]).count())
    return {name: found[name] for name in FUNCTIONS}


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    plain, snapped = ({(r["robot"], r["function"]): r for r in rows if r["snapped"] == s} for s in (False, True))
    lines = []
    for (robot, function), row in plain.items():
        other = "replaced" in robot
        ours = f"{row['total']:,} (snapped {snapped[robot, function]['total']:,})"
        claims = [] if other else [Claim(f"at most {row['published']:,}", row["total"] <= row["published"])]
        why = ANOTHER_ROBOT if other else ""
        lines.append(Comparison(f"{function}, {robot}", f"{row['published']:,}", ours, claims, why))
    lines += [_divisions(plain, robot) for robot in DIVISIONS if (robot, "J_FD AD") in plain]
    return [
        *lines,
        Comparison("all functions, ABB Yumi", "2,416 to 99,890", "n/a", (), "no file of this robot is available"),
    ]


def _divisions(plain: dict[tuple[str, str], dict[str, Any]], robot: str) -> Comparison:
    """Compare the divisions of J_FD; table S1 counts inverses separately."""
    closed, ad = (plain[robot, f"J_FD {how}"] for how in ("analytic", "AD"))
    theirs, theirs_ad = DIVISIONS[robot]
    claims = [
        Claim("fewer in the closed form than by AD", closed["div"] < ad["div"]),
        Claim(f"at most {theirs}", closed["div"] <= theirs),
    ]
    ours = f"{closed['div']}, {ad['div']} by AD"
    why = f"inverses, counted apart: {closed['inv']} and {ad['inv']} by AD"
    return Comparison(f"divisions of J_FD analytic, {robot}", f"{theirs}, {theirs_ad} by AD", ours, claims, why)


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    import numpy as np

    from experiments.plots.canvas import BLUE, GRAY, figure

    robots = list(dict.fromkeys(r["robot"] for r in rows))
    with figure(path, 1, len(robots), 2.0 + 2.8 * len(robots), 3.8, "Operations", bottom=1.0) as axes:
        for axis, robot in zip(axes.flat, robots, strict=True):
            own = [r for r in rows if r["robot"] == robot and not r["snapped"]]
            places = np.arange(len(own))
            axis.bar(places - 0.2, [r["total"] for r in own], 0.38, color=BLUE, label="this library")
            axis.bar(places + 0.2, [r["published"] for r in own], 0.38, color=GRAY, label="published")
            axis.set_yscale("log")
            axis.set_xticks(places, [r["function"] for r in own], rotation=40, ha="right")
            axis.set_title(robot)
        axes.flat[0].legend(fontsize=7)
