"""The derivative of HyQ's joint accelerations in its joint torques by five methods (Giftthaler et al. 2017, fig. 1).

The lower right 12 x 12 block of M^-1.  Num-Diff: forward differences of the articulated-body algorithm, 13 evaluations.
Auto-Diff at run time: CasADi's virtual machine on the forward-mode graph.  Auto-Diff codegen: the same as C code.  Analytic,
L'L: CRBA and the branch-sparse factor, inverted.  Analytic, naive: CRBA and a dense factor.  All but the second are C code of
one generator at -O3, one point after another on one thread; operations are counted after common subexpressions are shared.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.deferred import deferred
from dynamics_backends.methods.casadi_ad import MODES
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.model.model import Model
from experiments.analysis.timing import joined_samples, medians
from experiments.baselines.generated_code import generated, interpreted_call, matrix
from experiments.papers.study import GIFTTHALER, Comparison, Outcome, times
from problems.robots import load_robot

ca = deferred("casadi")

SOURCE = f"{GIFTTHALER}, fig. 1"
BATCH, PATIENCE = 64, 120.0
STEP = float(np.sqrt(np.finfo(float).eps))
METHODS = ("Num-Diff", "Auto-Diff at run time", "Auto-Diff codegen", "analytic, L'L", "analytic, naive")


def run(quick: bool) -> Outcome:
    """Times [us], operations, and errors against the sparse inverse."""
    model = load_robot("hyq")
    x = ca.SX.sym("x", model.nq + 2 * model.nv)
    functions, counts = _functions(model, x)
    points = joined_samples(model, BATCH)
    calls = {"Auto-Diff at run time": (interpreted_call(functions["Auto-Diff codegen"], points[0]), 1)}
    for name, f in functions.items():
        if (code := generated(f, points, PATIENCE, "-O1" if quick else "-O3")).call is not None:
            calls[name] = code.call, BATCH
    turns = medians([call for call, _ in calls.values()], 3 if quick else 15)
    times_us = {name: 1e6 * t / calls[name][1] for name, t in zip(calls, turns, strict=True)}
    evaluations = model.nv - 6 + 1
    times_us["Num-Diff"], counts["Num-Diff"] = evaluations * times_us["value"], evaluations * counts["value"]
    counts["Auto-Diff at run time"] = counts["Auto-Diff codegen"]
    exact = np.asarray(functions["analytic, L'L"](points[0]))
    found = {name: np.asarray(f(points[0])) for name, f in functions.items()}
    found["Auto-Diff at run time"] = found["Auto-Diff codegen"]
    found["Num-Diff"] = _differences(functions["value"], points[0], model.nv - 6)
    rows = [
        {
            "method": method,
            "microseconds": times_us.get(method),
            "operations": counts[method],
            "error": float(np.abs(found[method] - exact).max() / np.abs(exact).max()),
        }
        for method in METHODS
    ]
    return Outcome(rows, _comparisons(rows), partial(_draw, rows))


def _functions(model: Model, x: Any) -> tuple[dict[str, Any], dict[str, int]]:
    """The joints' accelerations and the methods' blocks as functions of x = (q, v, tau), and their operations."""
    n, nq = model.nv, model.nq
    joints = slice(6, n)
    q, v, tau = x[:nq], x[nq : nq + n], x[nq + n :]
    a, M = aba(model, q, v, tau), crba(model, q)
    expressions = {
        "value": a[joints],
        "Auto-Diff codegen": MODES["forward"](a[joints], tau)[:, joints],
        "analytic, L'L": matrix(ltl.inverse(ltl.factor(M, model.dof_parent.tolist())))[joints, joints],
    }
    functions = {name: ca.Function("block", [x], [ca.densify(e)]) for name, e in expressions.items()}
    counts = {name: _count([x], e) for name, e in expressions.items()}
    full = ca.SX.sym("M", n, n)  # a factor that knows nothing of the zeros of M
    dense = matrix(ltl.inverse(ltl.factor([[full[i, j] for j in range(n)] for i in range(n)], range(-1, n - 1))))[
        joints, joints
    ]
    inverse, mass = ca.Function("inverse", [full], [dense]), ca.Function("mass", [x], [ca.densify(matrix(M))])
    point = ca.MX.sym("x", x.numel())
    functions["analytic, naive"] = ca.Function("block", [point], [inverse(mass(point))])
    counts["analytic, naive"] = _count([x], matrix(M)) + _count([ca.vec(full)], dense)
    return functions, counts


def _count(symbols: list[Any], expression: Any) -> int:
    return sum(trace_expressions(symbols, [ca.vec(ca.densify(expression))]).count().values())


def _differences(value: Any, point: np.ndarray, count: int) -> np.ndarray:
    """Forward differences in the last ``count`` numbers of the point."""
    base, columns = np.asarray(value(point))[:, 0], []
    for i in range(len(point) - count, len(point)):
        moved = point.copy()
        moved[i] += STEP
        columns.append((np.asarray(value(moved))[:, 0] - base) / STEP)
    return np.stack(columns, axis=1)


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    found = {r["method"]: r for r in rows}
    codegen = found["Auto-Diff codegen"]

    def by_codegen(method: str) -> str:
        t = [found[m]["microseconds"] for m in (method, "Auto-Diff codegen")]
        time = "n/a" if None in t else times(t[0] / t[1])
        return f"{time} in time, {times(found[method]['operations'] / codegen['operations'])} in operations"

    exact = max(found[m]["error"] for m in METHODS if m not in ("Num-Diff",))
    return [
        Comparison("analytic L'L by Auto-Diff codegen", "1.1 x", by_codegen("analytic, L'L")),
        Comparison("naive analytic inverse by Auto-Diff codegen", "more than 7 x", by_codegen("analytic, naive")),
        Comparison("Num-Diff by Auto-Diff codegen", "plotted", by_codegen("Num-Diff")),
        Comparison(
            "difference of Auto-Diff and analytic",
            "< 1e-13",
            f"{exact:.0e}",
            exact > 1e-13,
            "relative to the largest entry",
        ),
        Comparison("difference of Num-Diff", "about 1e-6", f"{found['Num-Diff']['error']:.0e}"),
    ]


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure

    with figure(path, 1, 2, 9.0, 3.8, "Derivative of HyQ's joint accelerations in its torques", bottom=1.1) as axes:
        for axis, key, color in zip(axes.flat, ("microseconds", "operations"), COLORS, strict=False):
            axis.bar(range(len(rows)), [r[key] or 0.0 for r in rows], color=color)
            axis.set_yscale("log")
            axis.set_xticks(range(len(rows)), [r["method"] for r in rows], rotation=30, ha="right", fontsize=7)
            axis.set_title(key)
