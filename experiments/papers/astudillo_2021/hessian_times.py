"""Hessians of lambda' FD and lambda' ID for the Kinova Gen3 (Astudillo et al. 2021, table 2).

Hessians are in all arguments (q, v, tau) or (q, v, a); the paper does not name its variables. Analytic: CasADi's AD of the gradient
lambda' J from the closed-form Jacobian. AD: AD of the AD gradient. Both are C code with the arguments and weights lambda as input
(long code at -O1, see generated_code). Closed form: the second-order contraction of this library, which includes first derivatives.
The paper leaves it to future work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.unrolled import unrolled_trace
from dynamics_backends.deferred import deferred
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_second_order import ID_SECOND_ORDER
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.trace import trace_expressions
from experiments.analysis.timing import joined_samples, medians, program_call
from experiments.baselines.generated_code import generated, matrix
from experiments.papers.study import ASTUDILLO, LANES, Claim, Comparison, Outcome
from problems.robots import load_robot

ca = deferred("casadi")

SOURCE = f"{ASTUDILLO}, table 2"
KINDS = {"FD": (aba, fd_derivatives, FD_SECOND_ORDER), "ID": (rnea, rnea_derivatives, ID_SECOND_ORDER)}
PUBLISHED = {  # microseconds and operations
    ("FD", "analytic"): (84.33, 135390),
    ("FD", "AD"): (58.84, 84888),
    ("ID", "analytic"): (56.76, 77683),
    ("ID", "AD"): (38.31, 30770),
}
BATCH, PATIENCE = 128, 120.0
CLOSED = "closed form"
COUNTED = "in all 3 n arguments; the paper does not name its variables, and fewer variables need fewer operations"


def run(quick: bool) -> Outcome:
    """Measure times [us] and count operations. Quick runs: double pendulum."""
    model = load_robot("double_pendulum" if quick else "gen3")
    rows = [row for kind in KINDS for row in _rows(model, kind, quick)]
    return Outcome(rows, [] if quick else _comparisons(rows), partial(_draw, rows, model.name), [_remark(rows), LANES])


def _rows(model: Model, kind: str, quick: bool) -> list[dict[str, Any]]:
    value, slopes, second = KINDS[kind]
    n = model.nv
    x, weights = ca.SX.sym("x", 3 * n), ca.SX.sym("lambda", n)
    arguments = x[:n], x[n : 2 * n], x[2 * n :]
    jacobian = ca.horzcat(*(matrix(b) for b in slopes(model, *arguments)[1:4]))
    gradients = {"analytic": jacobian.T @ weights, "AD": ca.gradient(ca.dot(weights, value(model, *arguments)), x)}
    calls: dict[str, Callable[[], Any]] = {CLOSED: program_call(second, model, BATCH, tape=True)}
    code_of = {CLOSED: ""}
    counts = {CLOSED: sum(unrolled_trace(second, model).count().values())}
    points = np.hstack([joined_samples(model, BATCH), np.random.default_rng(0).standard_normal((BATCH, n))])
    for how, gradient in gradients.items():
        hessian = ca.densify(ca.jacobian(gradient, x))
        counts[how] = sum(trace_expressions([x, weights], [hessian]).count().values())
        joined = ca.SX.sym("joined", 4 * n)
        renamed = ca.substitute(hessian, ca.vertcat(x, weights), joined)
        code = generated(ca.Function("hessian", [joined], [renamed]), points, PATIENCE)
        if code.call is not None:
            calls[how] = code.call
        code_of[how] = code.why
    seconds = dict(zip(calls, medians(list(calls.values()), 3 if quick else 9), strict=True))
    return [
        {
            "function": kind,
            "method": method,
            "microseconds": 1e6 * seconds[method] / BATCH if method in seconds else None,
            "operations": count,
            "code": code_of[method],
        }
        for method, count in counts.items()
    ]


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    found = {(r["function"], r["method"]): r for r in rows}
    lines = []
    for (kind, how), (us, count) in PUBLISHED.items():
        row = found[kind, how]
        own = row["microseconds"]
        t = row["code"] if own is None else f"{own:.3g} us"
        claims = [
            Claim(f"at most {us} us", own is not None and own <= us),
            Claim(f"at most {count:,} operations", row["operations"] <= count),
        ]
        ours = f"{t}, {row['operations']:,}"
        lines.append(Comparison(f"Hessian of lambda' {kind}, {how}", f"{us} us, {count:,}", ours, claims, COUNTED))
    for kind in KINDS:
        analytic, ad = found[kind, "analytic"], found[kind, "AD"]
        claims = [Claim("AD of AD has fewer operations", ad["operations"] < analytic["operations"], only_differs=True)]
        if None not in (ad["microseconds"], analytic["microseconds"]):
            faster = ad["microseconds"] < analytic["microseconds"]
            claims.append(Claim("AD of AD takes less time", faster, only_differs=True))
        ours = f"{ad['operations'] / analytic['operations']:.2f} of the operations"
        lines.append(Comparison(f"AD of AD below AD of the closed form, {kind}", "both figures", ours, claims))
    for kind in KINDS:
        row = found[kind, CLOSED]
        ours = f"{row['microseconds']:.3g} us, {row['operations']:,} with first derivatives"
        lines.append(
            Comparison(f"Hessian of lambda' {kind}, closed second order", "n/a", ours, (), "future work in the paper")
        )
    return lines


def _remark(rows: list[dict[str, Any]]) -> str:
    found = {(r["function"], r["method"]): r["operations"] for r in rows}
    fractions = ", ".join(f"{kind} {found[kind, CLOSED] / found[kind, 'AD']:.2f}" for kind in KINDS)
    times = "Published times are of an Intel i7-8850H."
    return f"Operations of the closed form, first derivatives included, relative to AD of AD: {fractions}. {times}"


def _draw(rows: list[dict[str, Any]], robot: str, path: Path) -> None:
    from experiments.plots.canvas import BLUE, GRAY, figure, legend

    with figure(path, 1, 2, 9.0, 3.4, f"Hessians of lambda' FD and lambda' ID, {robot}") as axes:
        names = [f"{r['function']}\n{r['method']}" for r in rows]
        places = np.arange(len(rows))
        for i, (axis, key) in enumerate(zip(axes.flat, ("microseconds", "operations"), strict=True)):
            axis.bar(places - 0.2, [r[key] or 0.0 for r in rows], 0.38, color=BLUE, label="this library")
            if robot == "gen3":
                theirs = [PUBLISHED.get((r["function"], r["method"]), (np.nan, np.nan))[i] for r in rows]
                axis.bar(places + 0.2, theirs, 0.38, color=GRAY, label="published")
            axis.set_xticks(places, names, fontsize=7)
            axis.set_title(key)
        legend(axes)
