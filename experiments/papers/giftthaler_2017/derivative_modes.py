"""Derivatives of HyQ's dynamics and feet by finite differences and by forward and reverse AD (Giftthaler et al. 2017, fig. 2).

Forward dynamics in (q, v, tau of the 12 joints), inverse dynamics in (q, v, a), positions and velocities of the four feet in
(q, v). Beyond the figure, inverse dynamics with a free base (eq. 12 to 15) in (q, v, a of the 12 joints): by the
inertia-weighted pseudo-inverse, as the equations are written, and by elimination of the base, which gives the same numbers.
q has 19 entries in this library, with a quaternion, and 18 in the paper.

Num-Diff: n + 1 times the time of the value's C code for n inputs. AD: CasADi's forward and reverse mode as C code at -O2, long
code at -O1. Both evaluate one point after the other. Closed form: that of this library, compiled, with several points in the lanes
of SIMD instructions. Feet have no closed form. One thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
from dynamics_backends.systems.bodies.rigid_body_map import ActuatedInverseDynamics
from dynamics_backends.trace import trace_expressions
from experiments.analysis.environment import with_variable
from experiments.analysis.timing import joined_samples, medians, program_call, samples
from experiments.baselines.generated_code import generated, matrix
from experiments.papers.study import GIFTTHALER, LANES, Claim, Comparison, Outcome, times
from problems.robots import load_robot

ca = deferred("casadi")

SOURCE = f"{GIFTTHALER}, fig. 2"
BATCH, PATIENCE = 64, 120.0
FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
METHODS = ("Num-Diff", "AD, forward", "AD, reverse", "closed form")
GAIN = (10.0, 40.0)
"""Published ratio: time of Num-Diff / time of AD as C code."""
FASTER = {"forward dynamics": "forward", "inverse dynamics": "reverse", "feet": "forward"}
"""Published faster mode of AD."""


PSEUDO_INVERSE, ELIMINATION = "free-base ID, pseudo-inverse", "free-base ID, elimination"


class Quantity(NamedTuple):
    """An expression in x = (q, v, input), the variables of its derivative, and a call of the closed form."""

    name: str
    value: Any
    inputs: Any
    closed: Callable[[], Any] | None


def run(quick: bool) -> Outcome:
    """Measure times [us] and count operations. Quick runs: feet only."""
    model = load_robot("hyq")
    x = ca.SX.sym("x", model.nq + 2 * model.nv)
    quantities = [_feet(model, x)] if quick else _quantities(model, x)
    with with_variable("TRAJOPT_THREADS", 1):
        rows = [row for quantity in quantities for row in _rows(model, x, quantity, quick)]
    remark = "The base's attitude is a quaternion: one input more than in the paper (48, 54 and 36)."
    return Outcome(rows, _comparisons(rows), partial(_draw, rows), [remark, LANES])


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
    """Joint torques for joint accelerations with a free base: tau = (S M^-1 S')^-1 a + Sbar' h (eq. 12).

    With Sbar = M^-1 S' (S M^-1 S')^-1, this is one linear solve: (S M^-1 S') tau = a + S M^-1 h.
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
            "method": method,
            "microseconds": 1e6 * seconds[method] / BATCH if method in seconds else None,
            "operations": counts.get(method),
            "code": uncompiled.get(method, ""),
            **size,
        }
        for method in METHODS
        if method in seconds or method in uncompiled
    ]


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    lines = []
    for name in dict.fromkeys(r["quantity"] for r in rows):
        own = {r["method"]: r for r in rows if r["quantity"] == name}
        size = f"{own['Num-Diff']['inputs']} inputs, {own['Num-Diff']['outputs']} outputs"
        t = {method: r["microseconds"] for method, r in own.items() if r["microseconds"] is not None}
        figures = [f"{method} {us:.3g} us" for method, us in t.items()] + [
            f"{w} {r['code']}" for w, r in own.items() if r["code"]
        ]
        measures = f"{size}; {', '.join(figures)}"
        modes = {method: us for method, us in t.items() if method.startswith("AD")}
        if not modes:
            lines.append(Comparison(f"{name}: Num-Diff / AD as C", "n/a", "n/a", (), measures))
            continue
        gain, measured = t["Num-Diff"] / min(modes.values()), name not in (PSEUDO_INVERSE, ELIMINATION)
        claims = [Claim("at least 10 x", gain >= GAIN[0])] if measured else []
        why = f"{measures}; " + ("the differenced function is straight-line C" if measured else "not measured there")
        lines.append(
            Comparison(f"{name}: Num-Diff / AD as C", "10 to 40 x" if measured else "n/a", times(gain), claims, why)
        )
        if len(modes) == 2:
            better = min(modes, key=modes.__getitem__).removeprefix("AD, ")
            theirs = FASTER.get(name, "n/a")
            claims = [Claim(f"{theirs} is the faster mode", better == theirs, only_differs=True)] if measured else []
            ratio = modes["AD, forward"] / modes["AD, reverse"]
            why = f"forward / reverse {ratio:.2f} in time, {_operations(own):.2f} in operations"
            lines.append(Comparison(f"{name}: the faster mode", theirs, better, claims, why))
    return lines


def _operations(own: dict[str, dict[str, Any]]) -> float:
    """Return the ratio of operations, forward / reverse mode."""
    return float(own["AD, forward"]["operations"] / own["AD, reverse"]["operations"])


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    names = list(dict.fromkeys(r["quantity"] for r in rows))
    with figure(path, 1, 1, 10.0, 3.6, "Derivatives on HyQ [us]; no bar: no such code") as axes:
        for i, method in enumerate(METHODS):
            own = {r["quantity"]: r["microseconds"] or np.nan for r in rows if r["method"] == method}
            heights = [own.get(name, np.nan) for name in names]
            axes[0, 0].bar(np.arange(len(names)) + 0.2 * (i - 1.5), heights, 0.18, color=COLORS[i], label=method)
        axes[0, 0].set_yscale("log")
        axes[0, 0].set_xticks(range(len(names)), names, fontsize=8)
        legend(axes)
