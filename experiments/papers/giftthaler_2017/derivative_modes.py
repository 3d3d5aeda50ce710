"""Derivatives of HyQ's dynamics and of its feet by differences and by AD, forward and reverse (Giftthaler et al. 2017, fig. 2).

Forward dynamics in (q, v, tau of the 12 joints), inverse dynamics in (q, v, a), positions and velocities of the four feet in
(q, v). Beyond the figure, inverse dynamics with a free base (eq. 12 to 15) in (q, v, a of the 12 joints): by the
inertia-weighted pseudo-inverse, as the equations are written, and by elimination of the base, which gives the same numbers.
q has 19 numbers here, a quaternion among them, 18 in the paper.

Num-Diff: one evaluation more than there are inputs, each of the value's C code. AD: CasADi's forward and reverse mode as C code
at -O2. Closed form: this library's, compiled, in lanes (none for feet, whose C follows from AD there too; that of the free base
runs in NumPy between compiled passes). One thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.deferred import deferred
from dynamics_backends.methods.casadi_ad import MODES
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.algorithms.kinematics import frame_position, frame_velocity
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.rigid_body_quantities import ActuatedInverseDynamics
from experiments.analysis.timing import joined_samples, medians, program_call, samples
from experiments.baselines.generated_code import generated, matrix
from experiments.papers.study import GIFTTHALER, Claim, Comparison, Outcome, times
from problems.robots import load_robot

ca = deferred("casadi")

SOURCE = f"{GIFTTHALER}, fig. 2"
BATCH, PATIENCE = 64, 120.0
FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
WAYS = ("Num-Diff", "AD, forward", "AD, reverse", "closed form")
GAIN = (10.0, 40.0)
"""Num-Diff by AD as C code, in the paper."""
FASTER = {"forward dynamics": "forward", "inverse dynamics": "reverse", "feet": "forward"}
"""The faster mode, in the paper."""


PSEUDO_INVERSE, ELIMINATION = "free-base ID, pseudo-inverse", "free-base ID, elimination"


class Quantity(NamedTuple):
    """A function of x = (q, v, input) as an expression, the inputs it is differentiated in, and a call of its closed form."""

    name: str
    value: Any
    inputs: Any
    closed: Callable[[], Any] | None


def run(quick: bool) -> Outcome:
    """Times [us] and operations; a quick run takes the feet only."""
    model = load_robot("hyq")
    x = ca.SX.sym("x", model.nq + 2 * model.nv)
    quantities = [_feet(model, x)] if quick else _quantities(model, x)
    rows = [row for quantity in quantities for row in _rows(model, x, quantity, quick)]
    remark = "A base's attitude is a quaternion here: one input more than in the paper (48, 54 and 36)."
    return Outcome(rows, _comparisons(rows), partial(_draw, rows), [remark])


def _quantities(model: Model, x: Any) -> list[Quantity]:
    nq, n = model.nq, model.nv
    q, v, u = x[:nq], x[nq : nq + n], x[nq + n :]
    free = ActuatedInverseDynamics(model)
    eliminated = free(x[: nq + n], u[6:], 0.0, {})
    backend = make_backend(free, "analytic", engine="compiled")
    angles, rates, inputs = samples(model, BATCH)
    closed = partial(backend.jacobians, np.concatenate([angles, rates], axis=1), inputs[:, 6:])
    joints = ca.vertcat(q, v, u[6:])
    return [
        Quantity("forward dynamics", aba(model, q, v, u), joints, program_call(FDSVA, model, BATCH)),
        Quantity("inverse dynamics", rnea(model, q, v, u), x, program_call(IDSVA, model, BATCH)),
        _feet(model, x),
        Quantity(PSEUDO_INVERSE, pseudo_inverse_dynamics(model, q, v, u[6:]), joints, closed),
        Quantity(ELIMINATION, ca.vertcat(*(eliminated[i] for i in range(n - 6))), joints, closed),
    ]


def pseudo_inverse_dynamics(model: Model, q: Any, v: Any, a: Any) -> Any:
    """Torques of the joints for their accelerations, the base free: tau = (S M^-1 S')^-1 a + Sbar' h (eq. 12).

    With Sbar = M^-1 S' (S M^-1 S')^-1 that is one solution, (S M^-1 S') tau = a + S M^-1 h.
    """
    n = model.nv
    joints, size = slice(6, n), n - 6
    inverse = matrix(ltl.inverse(ltl.factor(crba(model, q), model.dof_parent.tolist())))
    bias = rnea(model, q, v, ca.SX(n, 1))
    right = a + inverse[joints, :] @ ca.vertcat(*(bias[i] for i in range(n)))
    block = inverse[joints, joints]
    factor = ltl.factor([[block[i, j] for j in range(size)] for i in range(size)], range(-1, size - 1))
    return ca.vertcat(*ltl.solve(factor, [right[i] for i in range(size)]))


def _feet(model: Model, x: Any) -> Quantity:
    q, v = x[: model.nq], x[model.nq : model.nq + model.nv]
    feet = []
    for foot in FEET:
        frame = model.frame_id(foot)
        position, velocity = frame_position(model, q, frame), frame_velocity(model, q, v, frame)
        feet += [ca.vertcat(*(position[i] for i in range(3))), ca.vertcat(*(velocity[i] for i in range(3)))]
    return Quantity("feet", ca.vertcat(*feet), ca.vertcat(q, v), None)


def _rows(model: Model, x: Any, quantity: Quantity, quick: bool) -> list[dict[str, Any]]:
    points, level = joined_samples(model, BATCH), "-O1" if quick else "-O2"
    modes = {f"AD, {mode}": MODES[mode](quantity.value, quantity.inputs) for mode in ("forward", "reverse")}
    calls, counts, uncompiled = {}, {}, {}
    for name, expression in {"value": quantity.value, **modes}.items():
        counts[name] = sum(trace_expressions([x], [ca.vec(ca.densify(expression))]).count().values())
        code = generated(ca.Function("f", [x], [ca.densify(expression)]), points, PATIENCE, level)
        if code.call is not None:
            calls[name] = code.call
        else:
            uncompiled[name] = code.why
    if quantity.closed is not None:
        calls["closed form"] = quantity.closed
    seconds = dict(zip(calls, medians(list(calls.values()), 3 if quick else 9), strict=True))
    evaluations = quantity.inputs.numel() + 1
    seconds["Num-Diff"], counts["Num-Diff"] = evaluations * seconds["value"], evaluations * counts["value"]
    size = {"inputs": quantity.inputs.numel(), "outputs": quantity.value.numel()}
    return [
        {
            "quantity": quantity.name,
            "way": way,
            "microseconds": 1e6 * seconds[way] / BATCH if way in seconds else None,
            "operations": counts.get(way),
            "code": uncompiled.get(way, ""),
            **size,
        }
        for way in WAYS
        if way in seconds or way in uncompiled
    ]


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    lines = []
    for name in dict.fromkeys(r["quantity"] for r in rows):
        own = {r["way"]: r for r in rows if r["quantity"] == name}
        size = f"{own['Num-Diff']['inputs']} inputs, {own['Num-Diff']['outputs']} outputs"
        t = {way: r["microseconds"] for way, r in own.items() if r["microseconds"] is not None}
        figures = [f"{way} {us:.3g} us" for way, us in t.items()] + [
            f"{w} {r['code']}" for w, r in own.items() if r["code"]
        ]
        measures = f"{size}; {', '.join(figures)}"
        modes = {way: us for way, us in t.items() if way.startswith("AD")}
        if not modes:
            lines.append(Comparison(f"{name}: Num-Diff by AD as C", "n/a", "n/a", (), measures))
            continue
        gain, measured = t["Num-Diff"] / min(modes.values()), name not in (PSEUDO_INVERSE, ELIMINATION)
        claims = [Claim("at least 10 x", gain >= GAIN[0])] if measured else []
        why = f"{measures}; " + (
            "the differenced function is straight-line C here" if measured else "not measured there"
        )
        lines.append(
            Comparison(f"{name}: Num-Diff by AD as C", "10 to 40 x" if measured else "n/a", times(gain), claims, why)
        )
        if len(modes) == 2:
            better = min(modes, key=modes.__getitem__).removeprefix("AD, ")
            theirs = FASTER.get(name, "n/a")
            claims = [Claim(f"{theirs} is the faster mode", better == theirs, only_differs=True)] if measured else []
            ratio = modes["AD, forward"] / modes["AD, reverse"]
            why = f"forward by reverse {ratio:.2f} in time, {_operations(own):.2f} in operations"
            lines.append(Comparison(f"{name}: the faster mode", theirs, better, claims, why))
    return lines


def _operations(own: dict[str, dict[str, Any]]) -> float:
    """Operations of forward by those of reverse mode."""
    return float(own["AD, forward"]["operations"] / own["AD, reverse"]["operations"])


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    names = list(dict.fromkeys(r["quantity"] for r in rows))
    with figure(path, 1, 1, 10.0, 3.6, "Derivatives on HyQ [us]; no bar: no such code") as axes:
        for i, way in enumerate(WAYS):
            own = {r["quantity"]: r["microseconds"] or np.nan for r in rows if r["way"] == way}
            heights = [own.get(name, np.nan) for name in names]
            axes[0, 0].bar(np.arange(len(names)) + 0.2 * (i - 1.5), heights, 0.18, color=COLORS[i], label=way)
        axes[0, 0].set_yscale("log")
        axes[0, 0].set_xticks(range(len(names)), names, fontsize=8)
        legend(axes)
