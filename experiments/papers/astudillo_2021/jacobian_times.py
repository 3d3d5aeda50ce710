"""Times of forward and inverse dynamics and their Jacobians by AD and in closed form (Astudillo et al. 2021, fig. 1).

One thread, batches of points, all methods in the same run: closed forms of this library, as loops and on tapes;
CasADi's Jacobian by reverse AD, as C code and interpreted; Pinocchio's closed forms, called from Python. The G1 (29) on a fixed
base replaces Atlas (30). No robot file of Yumi is available.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.rigid_body.algorithms.aba import ABA, aba
from dynamics_backends.rigid_body.algorithms.rnea import RNEA, rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.state import PinocchioConverter
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from experiments.analysis.timing import joined_samples, medians, program_call, samples
from experiments.baselines.generated_code import generated, interpreted_call
from experiments.papers.study import ASTUDILLO, LANES, Claim, Comparison, Outcome, times
from problems.robots import load_robot, robot_path

ca = deferred("casadi")

SOURCE = f"{ASTUDILLO}, fig. 1"
BATCH = 128
ROBOTS = {
    "double_pendulum": "double pendulum (2)",
    "iiwa7": "KUKA iiwa7 (7)",
    "gen3": "Kinova Gen3 (7)",
    "erd:g1_29dof_rev_1_0": "Atlas (30), replaced by the G1 (29)",
}
QUICK = ("double_pendulum",)
LARGEST_AD = 10
"""Maximum degrees of freedom for compiled AD; C code of larger robots compiles for minutes."""
PATIENCE = 120.0
VALUES = {"FD": (ABA, aba), "ID": (RNEA, rnea)}
SLOPES = {"FD": FDSVA, "ID": IDSVA}
SAVED = {"FD": 0.5799, "ID": 0.2120}
"""Published: mean time saved by closed forms against AD, both as C code."""
NATIVE = {"FD": 2.35, "ID": 1.42}
"""Published ratio: time of Pinocchio's own closed forms / time of their generated code."""


def run(quick: bool) -> Outcome:
    """Measure all times per point [us]."""
    rows = []
    for robot in QUICK if quick else ROBOTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", URDFWarning)
            model = load_robot(robot, base="fixed")
        for kind in VALUES:
            calls = _calls(robot, model, kind)
            seconds = medians([call for call, _ in calls.values()], 3 if quick else 9)
            for (name, (_, knots)), t in zip(calls.items(), seconds, strict=True):
                rows.append({"robot": ROBOTS[robot], "function": kind, "method": name, "microseconds": 1e6 * t / knots})
    return Outcome(rows, _comparisons(rows), partial(_draw, rows), [LANES])


def _calls(robot: str, model: Model, kind: str) -> dict[str, tuple[Callable[[], Any], int]]:
    """Return the calls by method, and the number of points per call."""
    program, value = VALUES[kind]
    found = {
        "value": (program_call(program, model, BATCH), BATCH),
        "closed form, loops": (program_call(SLOPES[kind], model, BATCH), BATCH),
    }
    if model.nv <= LARGEST_AD:
        found["closed form, tape"] = program_call(SLOPES[kind], model, BATCH, tape=True), BATCH
        n = model.nv
        x = ca.SX.sym("x", 3 * n)
        f = ca.Function("jacobian", [x], [ca.densify(ca.jacobian(value(model, x[:n], x[n : 2 * n], x[2 * n :]), x))])
        found["AD, interpreted"] = interpreted_call(f, joined_samples(model, 1)[0]), 1
        if (code := generated(f, joined_samples(model, BATCH), PATIENCE)).call is not None:
            found["AD, generated"] = code.call, BATCH
    if (call := _pinocchio(robot, model, kind)) is not None:
        found["Pinocchio"] = call, BATCH
    return found


def _pinocchio(robot: str, model: Model, kind: str) -> Callable[[], Any] | None:
    """Return a Python loop over the points, or None if Pinocchio is not installed."""
    try:
        import pinocchio as pin
    except ModuleNotFoundError:
        return None
    pin_model = pin.buildModelFromUrdf(str(robot_path(robot)))
    c, data = PinocchioConverter(model, pin_model), pin_model.createData()
    q, v, x = samples(model, BATCH)
    points = list(zip(c.q_to_pin(q), c.v_to_pin(v), c.v_to_pin(x), strict=True))
    function = pin.computeABADerivatives if kind == "FD" else pin.computeRNEADerivatives

    def call() -> None:
        for point in points:
            function(pin_model, data, *point)

    return call


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    by_method = {(r["robot"], r["function"], r["method"]): r["microseconds"] for r in rows}
    robots = list(dict.fromkeys(r["robot"] for r in rows))
    lines = []
    for kind in VALUES:
        closed = {
            r: min(t for (o, k, w), t in by_method.items() if (o, k) == (r, kind) and w.startswith("closed"))
            for r in robots
        }
        ad = {r: by_method[r, kind, "AD, generated"] for r in robots if (r, kind, "AD, generated") in by_method}
        if ad:
            fractions = {r: 1.0 - closed[r] / ad[r] for r in ad}
            saved = float(np.mean(list(fractions.values())))
            each = ", ".join(f"{r} {fraction:.0%}" for r, fraction in fractions.items())
            lines.append(
                Comparison(
                    f"J_{kind}: time saved by closed forms against AD as C",
                    f"{SAVED[kind]:.1%}",
                    f"{saved:.1%}",
                    [
                        Claim(f"at least {SAVED[kind]:.1%}", saved >= SAVED[kind]),
                        Claim("closed forms take less time for every robot", min(fractions.values()) > 0.0),
                    ],
                    f"mean over robots whose AD was compiled ({each}); over five robots in the paper",
                )
            )
        small = {r: closed[r] / by_method[r, kind, "value"] for r in robots if "replaced" not in r}
        each = ", ".join(f"{r} {times(ratio)}" for r, ratio in small.items())
        what = f"J_{kind}: closed form / {kind}, at most 7 joints"
        lines.append(Comparison(what, "comparable", each, (), "the paper shows it in a plot only"))
        native = {r: by_method[r, kind, "Pinocchio"] / closed[r] for r in robots if (r, kind, "Pinocchio") in by_method}
        if native:
            ratio = float(np.mean(list(native.values())))
            why = (
                "by the closed form of this library, in lanes; Pinocchio is called from Python, which costs about 1 us"
            )
            lines.append(
                Comparison(
                    f"J_{kind}: Pinocchio's own code / generated code",
                    times(NATIVE[kind]),
                    times(ratio),
                    [Claim(f"at least {NATIVE[kind]} x", ratio >= NATIVE[kind])],
                    why,
                )
            )
    return [*lines, Comparison("ABB Yumi (14)", "plotted", "n/a", (), "no file of this robot is available")]


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    methods = ("value", "closed form, tape", "closed form, loops", "AD, generated", "AD, interpreted", "Pinocchio")
    robots = list(dict.fromkeys(r["robot"] for r in rows))
    with figure(path, 1, 2, 12.0, 4.2, "Jacobians of dynamics [us]", bottom=1.2) as axes:
        for axis, kind in zip(axes.flat, VALUES, strict=True):
            for i, method in enumerate(methods):
                own = {r["robot"]: r["microseconds"] for r in rows if (r["function"], r["method"]) == (kind, method)}
                heights = [own.get(r, np.nan) for r in robots]
                axis.bar(np.arange(len(robots)) + 0.14 * (i - 2.5), heights, 0.13, color=COLORS[i], label=method)
            axis.set_yscale("log")
            axis.set_xticks(
                range(len(robots)), [r.replace(", replaced", ",\nreplaced") for r in robots], rotation=20, ha="right"
            )
            axis.set_title(kind)
        legend(axes, ncols=3, fontsize=7)
