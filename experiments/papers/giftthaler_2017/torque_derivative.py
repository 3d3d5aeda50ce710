"""Derivative of HyQ's joint accelerations in the joint torques by five methods (Giftthaler et al. 2017, fig. 1).

The lower right 12 x 12 block of M^-1. Num-Diff: 13 times the time of the articulated-body algorithm, as forward differences take.
Auto-Diff at run time: CasADi's virtual machine on the forward-mode graph. Auto-Diff codegen: the same as C code.
Analytic, L'L: CRBA and the branch-sparse factor, inverted. Analytic, naive: CRBA and the inverse by a dense L L'.

The analytic methods have two forms. "in loops": generated code for M, then C loops with run-time sizes, like the libraries of the
paper (RobCoGen's factorization, Eigen's general solver); the published ratios refer to this form. "generated": straight-line C
code, which the paper uses for Auto-Diff only; operation counts refer to this form. Points run one by one on one thread, at -O3.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.methods.casadi_ad import MODES
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.trace import trace_expressions
from experiments.analysis.timing import joined_samples, medians
from experiments.baselines.generated_code import Continuation, generated, interpreted_call, matrix
from experiments.papers.study import GIFTTHALER, Claim, Comparison, Outcome, times
from problems.robots import load_robot

ca = deferred("casadi")

SOURCE = f"{GIFTTHALER}, fig. 1"
BATCH, PATIENCE = 64, 120.0
STEP = float(np.sqrt(np.finfo(float).eps))
METHODS = (
    "Num-Diff",
    "Auto-Diff at run time",
    "Auto-Diff codegen",
    "analytic, L'L in loops",
    "analytic, naive in loops",
    "analytic, L'L generated",
    "analytic, naive generated",
)
FACTORED, NAIVE = 1.1, 7.0
"""Published times relative to Auto-Diff codegen."""
NEAR = 0.25
"""Relative tolerance within which a ratio counts as equal to the published one."""
LOOPS = """
static int n = {n};
static const int parent[] = {{{parent}}};

static void factored(const double *in, double *out)
{{
    double L[{n} * {n}], B[{n} * {n}] = {{0}};
    for (int i = 0; i < n * n; i++) L[i] = in[i];
    for (int k = n - 1; k >= 0; k--) {{
        L[k * n + k] = sqrt(L[k * n + k]);
        for (int i = parent[k]; i >= 0; i = parent[i]) L[k * n + i] /= L[k * n + k];
        for (int i = parent[k]; i >= 0; i = parent[i])
            for (int j = i; j >= 0; j = parent[j]) L[i * n + j] -= L[k * n + i] * L[k * n + j];
    }}
    for (int i = 0; i < n; i++) {{ /* B = L^-1, as sparse as L */
        B[i * n + i] = 1.0 / L[i * n + i];
        for (int j = parent[i]; j >= 0; j = parent[j]) {{
            double sum = 0.0;
            for (int k = parent[i]; k >= j; k = parent[k]) sum += L[i * n + k] * B[k * n + j];
            B[i * n + j] = -sum * B[i * n + i];
        }}
    }}
    for (int i = 6; i < n; i++)
        for (int j = 6; j < n; j++) {{
            double sum = 0.0;
            for (int k = i; k >= 0; k = parent[k]) sum += B[i * n + k] * B[j * n + k];
            out[(i - 6) * (n - 6) + j - 6] = sum;
        }}
}}

static void naive(const double *in, double *out)
{{
    double L[{n} * {n}], x[{n}];
    for (int j = 0; j < n; j++)
        for (int i = j; i < n; i++) {{
            double sum = in[i * n + j];
            for (int k = 0; k < j; k++) sum -= L[i * n + k] * L[j * n + k];
            L[i * n + j] = i == j ? sqrt(sum) : sum / L[j * n + j];
        }}
    for (int c = 0; c < n; c++) {{ /* one solution for each column of the identity */
        for (int i = 0; i < n; i++) {{
            double sum = i == c;
            for (int k = 0; k < i; k++) sum -= L[i * n + k] * x[k];
            x[i] = sum / L[i * n + i];
        }}
        for (int i = n - 1; i >= 0; i--) {{
            double sum = x[i];
            for (int k = i + 1; k < n; k++) sum -= L[k * n + i] * x[k];
            x[i] = sum / L[i * n + i];
        }}
        for (int i = 6; c >= 6 && i < n; i++) out[(i - 6) * (n - 6) + c - 6] = x[i];
    }}
}}

void resize(int size) {{ n = size; }} /* keeps the size a variable */
"""


def run(quick: bool) -> Outcome:
    """Measure times [us], operations, and errors relative to the sparse inverse."""
    model = load_robot("hyq")
    x = ca.SX.sym("x", model.nq + 2 * model.nv)
    functions, counts = _functions(model, x)
    points, level = joined_samples(model, BATCH), "-O1" if quick else "-O3"
    calls = {"Auto-Diff at run time": (interpreted_call(functions["Auto-Diff codegen"], points[0]), 1)}
    found = {}
    for name, f in functions.items():
        found[name] = np.asarray(f(points[0]))
        if (code := generated(f, points, PATIENCE, level)).call is not None:
            calls[name] = code.call, BATCH
    mass = found.pop("mass")
    calls.pop("mass", None)
    for name, loops in _loops(model).items():
        found[name] = block_in_loops(loops, mass)
        if (code := generated(functions["mass"], points, PATIENCE, level, loops)).call is not None:
            calls[name] = code.call, BATCH
    turns = medians([call for call, _ in calls.values()], 3 if quick else 15)
    times_us = {name: 1e6 * t / calls[name][1] for name, t in zip(calls, turns, strict=True)}
    evaluations = model.nv - 6 + 1
    times_us["Num-Diff"], counts["Num-Diff"] = evaluations * times_us["value"], evaluations * counts["value"]
    counts["Auto-Diff at run time"] = counts["Auto-Diff codegen"]
    exact = found["analytic, L'L generated"]
    found["Auto-Diff at run time"] = found["Auto-Diff codegen"]
    found["Num-Diff"] = _differences(functions["value"], points[0], model.nv - 6)
    rows = [
        {
            "method": method,
            "microseconds": times_us.get(method),
            "operations": counts.get(method),
            "error": float(np.abs(found[method] - exact).max() / np.abs(exact).max()),
        }
        for method in METHODS
    ]
    return Outcome(rows, _comparisons(rows), partial(_draw, rows))


def _loops(model: Model) -> dict[str, Continuation]:
    """Return the analytic inverses as C loops that run after the code of the mass matrix."""
    n, size = model.nv, (model.nv - 6) ** 2
    source = LOOPS.format(n=n, parent=", ".join(map(str, model.dof_parent.tolist())))
    return {
        f"analytic, {w} in loops": Continuation(source, f, size) for w, f in (("L'L", "factored"), ("naive", "naive"))
    }


def block_in_loops(loops: Continuation, mass: np.ndarray) -> np.ndarray:
    """Compute the block of M^-1 from a mass matrix (n, n) by the C loops."""
    n = len(mass)
    M = ca.SX.sym("M", n * n)
    point = np.ascontiguousarray(mass.ravel())
    code = generated(ca.Function("given", [M], [M]), point[None], PATIENCE, "-O1", loops)
    assert code.call is not None and code.output is not None  # a short function
    code.call()
    return code.output[n * n :].reshape(n - 6, n - 6)


def _functions(model: Model, x: Any) -> tuple[dict[str, Any], dict[str, int]]:
    """Return joint accelerations and the methods' blocks as functions of x = (q, v, tau), and their operation counts."""
    n, nq = model.nv, model.nq
    joints = slice(6, n)
    q, v, tau = x[:nq], x[nq : nq + n], x[nq + n :]
    a, M = aba(model, q, v, tau), crba(model, q)
    expressions = {
        "value": a[joints],
        "Auto-Diff codegen": MODES["forward"](a[joints], tau)[:, joints],
        "analytic, L'L generated": matrix(ltl.inverse(ltl.factor(M, model.dof_parent.tolist())))[joints, joints],
    }
    functions = {name: ca.Function("block", [x], [ca.densify(e)]) for name, e in expressions.items()}
    counts = {name: _count([x], e) for name, e in expressions.items()}
    full = ca.SX.sym("M", n, n)  # dense factorization, which ignores the zeros of M
    dense = matrix(ltl.inverse(ltl.factor([[full[i, j] for j in range(n)] for i in range(n)], range(-1, n - 1))))[
        joints, joints
    ]
    inverse, mass = ca.Function("inverse", [full], [dense]), ca.Function("mass", [x], [ca.densify(matrix(M))])
    functions["mass"] = mass
    point = ca.MX.sym("x", x.numel())
    functions["analytic, naive generated"] = ca.Function("block", [point], [inverse(mass(point))])
    counts["analytic, naive generated"] = _count([x], matrix(M)) + _count([ca.vec(full)], dense)
    return functions, counts


def _count(symbols: list[Any], expression: Any) -> int:
    return sum(trace_expressions(symbols, [ca.vec(ca.densify(expression))]).count().values())


def _differences(value: Any, point: np.ndarray, count: int) -> np.ndarray:
    """Return forward differences in the last ``count`` entries of the point."""
    base, columns = np.asarray(value(point))[:, 0], []
    for i in range(len(point) - count, len(point)):
        moved = point.copy()
        moved[i] += STEP
        columns.append((np.asarray(value(moved))[:, 0] - base) / STEP)
    return np.stack(columns, axis=1)


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    found = {r["method"]: r for r in rows}

    def ratio(method: str, key: str = "microseconds") -> float:
        one, other = (found[m][key] for m in (method, "Auto-Diff codegen"))
        return float("nan") if None in (one, other) else one / other

    def both(method: str) -> str:
        return f"{times(ratio(method))} in time, {times(ratio(method, 'operations'))} in operations"

    factored, naive = ratio("analytic, L'L in loops"), ratio("analytic, naive in loops")
    exact = max(r["error"] for r in rows if r["method"] != "Num-Diff")
    differences, runtime = found["Num-Diff"]["error"], ratio("Auto-Diff at run time")
    straight = "straight-line code, which the paper does not have; the compiler knows all sizes"
    return [
        Comparison(
            "analytic L'L / Auto-Diff codegen, in loops",
            f"{FACTORED} x",
            times(factored),
            [Claim(f"about {FACTORED} x", abs(factored / FACTORED - 1.0) <= NEAR, only_differs=True)],
            f"loops over the tree, as RobCoGen's; about: within {100 * NEAR:.0f} %",
        ),
        Comparison(
            "analytic L'L / Auto-Diff codegen, generated",
            f"{FACTORED} x",
            both("analytic, L'L generated"),
            [Claim("Auto-Diff is faster than L'L", ratio("analytic, L'L generated") >= 1.0, only_differs=True)],
            straight,
        ),
        Comparison(
            "naive analytic inverse / Auto-Diff codegen, in loops",
            f"more than {NAIVE:g} x",
            times(naive),
            [Claim(f"more than {NAIVE:g} x", naive > NAIVE, only_differs=True)],
            "dense L L' and 18 solutions, as Eigen's general solver",
        ),
        Comparison(
            "naive analytic inverse / Auto-Diff codegen, generated",
            f"more than {NAIVE:g} x",
            both("analytic, naive generated"),
            [Claim(f"more than {NAIVE:g} x", ratio("analytic, naive generated") > NAIVE, only_differs=True)],
            straight,
        ),
        Comparison(
            "Num-Diff / Auto-Diff codegen",
            "plotted: the slowest method",
            both("Num-Diff"),
            [
                Claim("Num-Diff is slower than Auto-Diff codegen", ratio("Num-Diff") > 1.0),
                Claim("Auto-Diff at run time is faster than Num-Diff", runtime < ratio("Num-Diff")),
            ],
            f"Auto-Diff at run time {times(runtime)}: CasADi's virtual machine, called from Python",
        ),
        Comparison(
            "difference of Auto-Diff and analytic",
            "< 1e-13",
            f"{exact:.0e}",
            [Claim("below 1e-13", exact <= 1e-13)],
            "relative to the largest entry",
        ),
        Comparison(
            "difference of Num-Diff",
            "about 1e-6",
            f"{differences:.0e}",
            [Claim("at most 1e-6", differences <= 1e-6)],
            "relative to the largest entry",
        ),
    ]


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure

    with figure(path, 1, 2, 9.0, 3.8, "Derivative of HyQ's joint accelerations in its torques", bottom=1.1) as axes:
        for axis, key, color in zip(axes.flat, ("microseconds", "operations"), COLORS, strict=False):
            own = [r for r in rows if r[key] is not None]
            axis.bar(range(len(own)), [r[key] for r in own], color=color)
            axis.set_yscale("log")
            axis.set_xticks(range(len(own)), [r["method"] for r in own], rotation=30, ha="right", fontsize=7)
            axis.set_title(key)
