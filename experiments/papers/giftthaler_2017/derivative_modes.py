"""Derivatives of HyQ's dynamics and of its feet by differences and by AD, forward and reverse (Giftthaler et al. 2017, fig. 2).

Forward dynamics in (q, v, tau of the 12 joints), inverse dynamics in (q, v, a), positions and velocities of the four feet in
(q, v).  q has 19 numbers here, a quaternion among them, 18 in the paper.  Num-Diff: one evaluation more than there are inputs,
each of the value's C code.  AD: CasADi's forward and reverse mode as C code.  Closed form: this library's, compiled as loops,
in lanes (none for feet, whose C follows from AD there too).  One thread.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.deferred import deferred
from dynamics_backends.methods.casadi_ad import MODES
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.kinematics import frame_position, frame_velocity
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import Program
from experiments.analysis.timing import joined_samples, medians, program_call
from experiments.baselines.generated_code import generated
from experiments.papers.study import GIFTTHALER, Comparison, Outcome, times
from problems.robots import load_robot

ca = deferred("casadi")

SOURCE = f"{GIFTTHALER}, fig. 2"
BATCH, PATIENCE = 64, 120.0
FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
WAYS = ("Num-Diff", "AD, forward", "AD, reverse", "closed form")
GAIN = (10.0, 40.0)
"""Num-Diff by AD as C code, in the paper."""


class Quantity(NamedTuple):
    """A function of x = (q, v, input) as an expression, the inputs it is differentiated in, and the closed form's program."""

    name: str
    value: Any
    inputs: Any
    closed: Program | None


def run(quick: bool) -> Outcome:
    """Times [us] and operations; a quick run takes the feet only."""
    model = load_robot("hyq")
    x = ca.SX.sym("x", model.nq + 2 * model.nv)
    rows = []
    for quantity in _quantities(model, x)[2 if quick else 0 :]:
        rows += _rows(model, x, quantity, quick)
    return Outcome(rows, _comparisons(rows), partial(_draw, rows))


def _quantities(model: Model, x: Any) -> list[Quantity]:
    nq, n = model.nq, model.nv
    q, v, u = x[:nq], x[nq : nq + n], x[nq + n :]
    feet = []
    for foot in FEET:
        frame = model.frame_id(foot)
        position, velocity = frame_position(model, q, frame), frame_velocity(model, q, v, frame)
        feet += [ca.vertcat(*(position[i] for i in range(3))), ca.vertcat(*(velocity[i] for i in range(3)))]
    return [
        Quantity("forward dynamics", aba(model, q, v, u), ca.vertcat(q, v, u[6:]), FDSVA),
        Quantity("inverse dynamics", rnea(model, q, v, u), x, IDSVA),
        Quantity("feet", ca.vertcat(*feet), ca.vertcat(q, v), None),
    ]


def _rows(model: Model, x: Any, quantity: Quantity, quick: bool) -> list[dict[str, Any]]:
    points, level = joined_samples(model, BATCH), "-O1" if quick else "-O2"
    modes = {f"AD, {mode}": MODES[mode](quantity.value, quantity.inputs) for mode in ("forward", "reverse")}
    calls, counts = {}, {}
    for name, expression in {"value": quantity.value, **modes}.items():
        counts[name] = sum(trace_expressions([x], [ca.vec(ca.densify(expression))]).count().values())
        code = generated(ca.Function("f", [x], [ca.densify(expression)]), points, PATIENCE, level)
        if code.call is not None:
            calls[name] = code.call
    if quantity.closed is not None:
        calls["closed form"] = program_call(quantity.closed, model, BATCH)
    seconds = dict(zip(calls, medians(list(calls.values()), 3 if quick else 9), strict=True))
    evaluations = quantity.inputs.numel() + 1
    seconds["Num-Diff"], counts["Num-Diff"] = evaluations * seconds["value"], evaluations * counts["value"]
    size = {"inputs": quantity.inputs.numel(), "outputs": quantity.value.numel()}
    return [
        {
            "quantity": quantity.name,
            "way": way,
            "microseconds": 1e6 * seconds[way] / BATCH,
            "operations": counts.get(way),
            **size,
        }
        for way in WAYS
        if way in seconds
    ]


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    lines = []
    for name in dict.fromkeys(r["quantity"] for r in rows):
        own = {r["way"]: r for r in rows if r["quantity"] == name}
        size = f"{own['Num-Diff']['inputs']}:{own['Num-Diff']['outputs']}"
        t = {way: r["microseconds"] for way, r in own.items()}
        best = min(t[way] for way in t if way.startswith("AD"))
        gain = t["Num-Diff"] / best
        told = ", ".join(f"{way} {us:.3g} us" for way, us in t.items())
        lines.append(
            Comparison(f"{name}: Num-Diff by AD as C", "10 to 40 x", times(gain), gain < GAIN[0], f"{size}; {told}")
        )
        if "AD, forward" in t and "AD, reverse" in t:
            better = "forward" if t["AD, forward"] < t["AD, reverse"] else "reverse"
            theirs = "reverse" if name == "inverse dynamics" else "forward"
            lines.append(Comparison(f"{name}: the faster mode", theirs, better))
    return lines


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    names = list(dict.fromkeys(r["quantity"] for r in rows))
    with figure(path, 1, 1, 7.0, 3.6, "Derivatives on HyQ [us]") as axes:
        for i, way in enumerate(WAYS):
            own = {r["quantity"]: r["microseconds"] for r in rows if r["way"] == way}
            heights = [own.get(name, np.nan) for name in names]
            axes[0, 0].bar(np.arange(len(names)) + 0.2 * (i - 1.5), heights, 0.18, color=COLORS[i], label=way)
        axes[0, 0].set_yscale("log")
        axes[0, 0].set_xticks(range(len(names)), names)
        legend(axes)
