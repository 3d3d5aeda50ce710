"""Cost of directional derivatives over their number, in evaluations of the function (Kudruss, Manns, Kirches 2019, fig. 2).

The multi-pendulum of ten links, its tip held where forces of constraints are asked for (FDCONT).  Cost is counted in arithmetic
operations, which no machine disturbs: the function's and its derivatives' are traced with common subexpressions shared.  FD
and FDC: 1 + n and 2 n evaluations and the quotients.  AD: CasADi's forward mode with n seeds.  ED: the closed form, times
the seeds; for n of the unit directions no product is needed.  The solution of the equations of motion (1) is that of a dense
symmetric system, by L D L': FD factorizes for every direction, AD and ED once (proposition 3), and pay products with the
derivatives of the matrix.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.deferred import deferred
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from experiments.baselines.generated_code import matrix
from experiments.papers.study import KUDRUSS, Comparison, Outcome
from problems.robots.textbook import multi_pendulum

ca = deferred("casadi")

SOURCE = f"{KUDRUSS}, fig. 2"
LINKS, QUICK_LINKS = 10, 3
DIRECTIONS, QUICK_DIRECTIONS = (1, 2, 5, 10, 15, 20, 25, 30), (1, 3, 6)
METHODS = ("FD", "FDC", "AD", "ED", "ED, unit directions")
QUARTER = 0.25
"""AD and ED of the solution of (1) take less than this share of FD's time in the paper."""


class Traced(NamedTuple):
    """A function of columns x as expressions: its value, and its Jacobian in closed form."""

    name: str
    x: Any
    value: Any
    closed: Any


def run(quick: bool) -> Outcome:
    """All counts."""
    model = multi_pendulum(QUICK_LINKS if quick else LINKS)
    numbers = QUICK_DIRECTIONS if quick else DIRECTIONS
    costs = {}
    for make in (constrained_dynamics, nonlinear_effects, mass_matrix):
        function = make(model)
        costs[function.name] = {n: _costs(function, n) for n in numbers}
    costs["solve (1)"] = {n: _solve_costs(model.nv + 2, n) for n in numbers}
    rows = [{"function": f, "directions": n, **c} for f, table in costs.items() for n, c in table.items()]
    return Outcome(rows, _comparisons(costs, max(numbers)), partial(_draw, costs))


def constrained_dynamics(model: Model) -> Traced:
    """FDCONT: the accelerations with the tip held in the plane."""
    system = Holonomic(model, [PointContact("tip1", gains=(0.0, 0.0))])
    n = model.nv
    x = ca.SX.sym("x", 3 * n)
    rows = system(x[: 2 * n], x[2 * n :], 0.0, {})
    p = system.partials(x[: 2 * n], x[2 * n :], 0.0, {})
    closed = ca.horzcat(matrix(p.fx[n:]), matrix(p.fu[n:]))
    return Traced("FDCONT", x, _column(rows)[n:], closed)


def nonlinear_effects(model: Model) -> Traced:
    """NEFF: the forces at zero acceleration."""
    n = model.nv
    x = ca.SX.sym("x", 2 * n)
    d = rnea_derivatives(model, x[:n], x[n:], ca.SX(n, 1))
    return Traced("NEFF", x, _column(rnea(model, x[:n], x[n:], ca.SX(n, 1))), ca.horzcat(matrix(d[1]), matrix(d[2])))


def mass_matrix(model: Model) -> Traced:
    """CRBA, the upper triangle; closed form: the derivatives of M e_k by IDSVA without velocity and gravity."""
    n = model.nv
    q, weightless = ca.SX.sym("q", n), model.replace(gravity=(0.0, 0.0, 0.0))
    M = matrix(crba(model, q))
    blocks = []
    for k in range(n):
        unit = ca.SX(ca.DM.eye(n)[:, k])
        blocks.append(matrix(rnea_derivatives(weightless, q, ca.SX(n, 1), unit)[1])[: k + 1, :])
    return Traced("CRBA", q, ca.vertcat(*(M[: k + 1, k] for k in range(n))), ca.vertcat(*blocks))


def _costs(f: Traced, n: int) -> dict[str, float]:
    """Evaluations of the function that n directions cost."""
    seeds = ca.SX.sym("D", f.x.numel(), n)
    once, flat = _count([f.x], f.value), ca.vec(seeds)
    quotients = 2 * n * f.value.numel()
    return {
        "FD": ((1 + n) * once + quotients) / once,
        "FDC": (2 * n * once + quotients) / once,
        "AD": _count([f.x, flat], f.value, ca.jtimes(f.value, f.x, seeds)) / once,
        "ED": _count([f.x, flat], f.value, f.closed @ seeds) / once,
        "ED, unit directions": _count([f.x], f.value, f.closed[:, : min(n, f.x.numel())]) / once,
    }


def _solve_costs(size: int, n: int) -> dict[str, float]:
    """The costs of a dense symmetric solution K x = b: FD perturbs both and factorizes for each direction, the others once."""
    K, b = _symmetric("K", size), ca.SX.sym("b", size)
    dK, db = [_symmetric(f"dK{i}", size) for i in range(n)], [ca.SX.sym(f"db{i}", size) for i in range(n)]
    symbols = [ca.symvar(ca.vertcat(ca.vec(ca.tril(M)), r)) for M, r in zip([K, *dK], [b, *db], strict=True)]
    columns = [ca.vertcat(*s) for s in symbols]

    def solved(f: ltl.Factor, right: Any) -> Any:
        return ca.vertcat(*ltl.solve(f, [right[i] for i in range(size)]))

    def factor(M: Any) -> ltl.Factor:
        return ltl.factor([[M[i, j] for j in range(size)] for i in range(size)], range(-1, size - 1))

    f = factor(K)
    x = solved(f, b)
    once = _count([columns[0]], x)
    exact = _count(columns, x, *(solved(f, r - M @ x) for M, r in zip(dK, db, strict=True))) / once
    quotients = 2.0 * n * (size + size * (size + 1) / 2.0 + size) / once  # perturbed K and b, and the differences of x
    exact_ways = dict.fromkeys(("AD", "ED", "ED, unit directions"), exact)
    return {"FD": 1.0 + n + quotients, "FDC": 2.0 * n + quotients, **exact_ways}


def _symmetric(name: str, size: int) -> Any:
    lower = ca.SX.sym(name, ca.Sparsity.lower(size))
    return lower + ca.tril(lower, False).T


def _count(symbols: list[Any], *expressions: Any) -> int:
    return sum(trace_expressions(symbols, [ca.vec(ca.densify(e)) for e in expressions]).count().values())


def _column(rows: Any) -> Any:
    return rows if hasattr(rows, "is_symbolic") else ca.vertcat(*rows)


def _comparisons(costs: dict[str, dict[int, dict[str, float]]], n: int) -> list[Comparison]:
    lines = []
    for name, table in costs.items():
        at = table[n]
        ours = ", ".join(f"{m} {at[m]:.1f}" for m in METHODS)
        if name == "solve (1)":
            share = at["ED"] / at["FD"]
            why = "by operations; the published share includes the assembly that FD repeats"
            lines.append(
                Comparison(f"{name}, {n} directions: ED by FD", "< 0.25", f"{share:.2f} ({ours})", share > QUARTER, why)
            )
            continue
        why = "" if name == "FDCONT" else "published: AD between FD and FDC, ED below FD"
        bound = 1.0 + 1.5 * n
        lines.append(
            Comparison(f"{name}, {n} directions", f"AD <= {bound:.0f} (theory)", ours, at["ED"] > at["FD"], why)
        )
    return lines


def _draw(costs: dict[str, Any], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    with figure(path, 1, len(costs), 11.0, 3.2, "Cost of derivatives in evaluations of the function") as axes:
        for axis, (name, table) in zip(axes.flat, costs.items(), strict=True):
            for color, method in zip(COLORS, METHODS, strict=False):
                axis.plot(
                    list(table), [c[method] for c in table.values()], "o-", color=color, label=method, markersize=3
                )
            axis.plot(list(table), [1.0 + 1.5 * n for n in table], ":", color="#8a8f98", label="1 + 1.5 n")
            axis.set_title(name)
            axis.set_xlabel("directions")
        legend(axes)
