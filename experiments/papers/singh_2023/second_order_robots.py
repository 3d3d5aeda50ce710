"""Time of second and first derivatives of robots, compared with AD (Singh, Russell, Wensing 2023, fig. 10 and 19).

Closed forms are compiled (loops, and tapes for small robots) and run on one thread for a batch of points.
CasADi's AD of the closed-form first derivatives runs in the same session, interpreted and as C code, if the compiler
finishes within PATIENCE (long code at -O1, see generated_code). First derivatives are compared with AD of the values.
Published times are the best of two compilers, with or without generated code, on an Intel i5-12400. No file of ATLAS
(36) is available; the G1 (35) replaces it.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from experiments.analysis.timing import joined_samples, medians, program_call
from experiments.baselines.casadi_second_order import first_order_function, second_order_function
from experiments.baselines.fd_tensors import FDSVA_SO
from experiments.baselines.generated_code import generated, interpreted_call
from experiments.baselines.rnea_tensors import IDSVA_SO
from experiments.papers.study import LANES, SINGH, Claim, Comparison, Outcome, times
from problems.robots import load_robot

SOURCE = f"{SINGH}, fig. 10 and 19"
BATCH = 128
PATIENCE, QUICK_PATIENCE = 120.0, 20.0
"""Processor time limit of the compiler for CasADi's code [s]."""
LARGEST_AD = 20
"""Maximum degrees of freedom for AD; for larger robots, CasADi alone takes minutes."""
ON_TAPE = 7
"""Maximum degrees of freedom for tapes."""
PROGRAMS = {"second": {"ID": IDSVA_SO, "FD": FDSVA_SO}, "first": {"ID": IDSVA, "FD": FDSVA}}
BY_AD = {"second": second_order_function, "first": first_order_function}


class Published(NamedTuple):
    """Shortest published times of the paper's algorithm and of AD as C code [us]; None: not possible."""

    ID: float
    FD: float
    ID_AD: float | None
    FD_AD: float | None


FIRST_ORDER = {  # the paper's data sets; none of Baxter
    "double_pendulum": Published(0.50, 1.0, 6.2, 6.3),
    "ur3": Published(1.6, 3.7, 7.5, 8.9),
    "hyq": Published(4.6, 12.0, 16.2, 26.7),
    "g1_29dof_rev_1_0": Published(11.2, 36.0, 36.0, 93.0),
    "talos_full": Published(16.6, 67.0, 82.0, 190.0),
}
ROBOTS = {  # of example-robot-data: name in the paper, base
    "double_pendulum": ("double pendulum (2)", "fixed", Published(1.54, 3.71, 8.44, 8.61)),
    "ur3": ("UR3 (6)", "fixed", Published(8.41, 21.0, 19.4, 28.2)),
    "hyq": ("HyQ (18)", "floating", Published(54.8, 183.0, 105.3, 381.0)),
    "baxter": ("Baxter (19)", "fixed", Published(35.6, 142.0, 98.5, 228.0)),
    "g1_29dof_rev_1_0": ("ATLAS (36), replaced by the G1 (35)", "floating", Published(197.1, 2147.0, 624.0, 8079.0)),
    "talos_full": ("Talos (50)", "floating", Published(365.0, 6209.0, 2459.0, None)),
}
QUICK = ("double_pendulum",)
ANOTHER_ROBOT = "another robot: no comparison"


def run(quick: bool) -> Outcome:
    """Measure all times [us]."""
    rows = [row for name in (QUICK if quick else ROBOTS) for row in _rows(name, quick)]
    return Outcome(rows, [_comparison(row) for row in rows], partial(_draw, rows), [_remark(rows), LANES])


def _rows(name: str, quick: bool) -> list[dict[str, Any]]:
    title, base, published = ROBOTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", URDFWarning)
        model = load_robot(f"erd:{name}", base=base)
    rows = [_row(title, "second", kind, model, published, quick) for kind in PROGRAMS["second"]]
    if name in FIRST_ORDER:
        rows += [_row(title, "first", kind, model, FIRST_ORDER[name], quick) for kind in PROGRAMS["first"]]
    return rows


def _row(title: str, order: str, kind: str, model: Model, published: Published, quick: bool) -> dict[str, Any]:
    tiers = ["loops", "tape"] if model.nv <= ON_TAPE else ["loops"]
    calls = {tier: (program_call(PROGRAMS[order][kind], model, BATCH, tape=tier == "tape"), BATCH) for tier in tiers}
    lines: int | None = None
    ad_code = f"AD not tried: more than {LARGEST_AD} degrees of freedom"
    if model.nq != model.nv:
        ad_code = "AD not tried: floating base"
    elif model.nv <= LARGEST_AD:
        f = BY_AD[order](model, kind)
        calls["AD, interpreted"] = interpreted_call(f, joined_samples(model, 1)[0]), 1
        code = generated(f, joined_samples(model, BATCH), QUICK_PATIENCE if quick else PATIENCE)
        lines, ad_code = code.lines, code.why
        if code.call is not None:
            calls["AD, generated"] = code.call, BATCH
    seconds = medians([call for call, _ in calls.values()], 3 if quick else 9)
    found = {name: 1e6 * t / knots for t, (name, (_, knots)) in zip(seconds, calls.items(), strict=True)}
    return {
        "robot": title,
        "order": order,
        "function": kind,
        "ours": min(found[tier] for tier in tiers),
        "tier": min(tiers, key=found.__getitem__),
        "AD, interpreted": found.get("AD, interpreted"),
        "AD, generated": found.get("AD, generated"),
        "lines of AD's C": lines,
        "AD as C": ad_code,
        "published": getattr(published, kind),
        "published AD": getattr(published, f"{kind}_AD"),
    }


def microseconds(value: float) -> str:
    """Format a time."""
    return f"{value:,.0f} us" if value >= 100 else f"{value:.3g} us"


def _comparison(row: dict[str, Any]) -> Comparison:
    generated_ad, theirs_ad = row["AD, generated"], row["published AD"]
    reference = row["AD as C"]
    if row["lines of AD's C"] is not None:
        made = [] if generated_ad is None else [microseconds(generated_ad)]
        reference = "AD as C " + ", ".join([*made, *filter(None, [reference])])
    ours = f"{microseconds(row['ours'])} ({row['tier']}); {reference}"
    published = f"{microseconds(row['published'])}; AD as C "
    published += "not possible" if theirs_ad is None else microseconds(theirs_ad)
    claims = []
    if "replaced" not in row["robot"]:
        claims.append(Claim("at most the published time", row["ours"] <= row["published"]))
    if generated_ad is not None:
        claims.append(Claim("faster than AD as C in the same run", row["ours"] <= generated_ad))
        if theirs_ad is not None:
            claims.append(Claim("AD as C at most its published time", generated_ad <= theirs_ad))
    why = "" if claims else ANOTHER_ROBOT
    return Comparison(f"{row['order']}-order {row['function']}, {row['robot']}", published, ours, claims, why)


def _remark(rows: list[dict[str, Any]]) -> str:
    ratios = [row["AD, generated"] / row["ours"] for row in rows if row["AD, generated"]]
    if not ratios:
        return "AD was not compiled for any robot."
    theirs = [row["published AD"] / row["published"] for row in rows if row["AD, generated"] and row["published AD"]]
    return (
        f"AD as C takes {times(min(ratios))} to {times(max(ratios))} the time of the closed form,"
        f" {times(min(theirs))} to {times(max(theirs))} for the same functions and robots in the paper."
        " Published times are from an Intel i5-12400; shorter times partly reflect a faster processor."
    )


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    import numpy as np

    from experiments.plots.canvas import COLORS, figure, legend

    series = ("ours", "AD, generated", "AD, interpreted", "published", "published AD")
    with figure(path, 1, 2, 12.0, 4.4, "Second derivatives [us]", bottom=1.4) as axes:
        for axis, kind in zip(axes.flat, PROGRAMS["second"], strict=True):
            own = [row for row in rows if (row["order"], row["function"]) == ("second", kind)]
            for i, name in enumerate(series):
                heights = [row[name] or np.nan for row in own]
                axis.bar(np.arange(len(own)) + 0.16 * (i - 2), heights, 0.15, color=COLORS[i], label=name)
            axis.set_yscale("log")
            axis.set_xticks(
                range(len(own)),
                [row["robot"].replace(", replaced", ",\nreplaced") for row in own],
                rotation=30,
                ha="right",
            )
            axis.set_title({"ID": "inverse dynamics", "FD": "forward dynamics"}[kind])
        legend(axes)
