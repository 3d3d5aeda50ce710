"""Cost of directional derivatives, in evaluations of the function (Kudruss, Manns, Kirches 2019, fig. 2).

A multi-pendulum of ten links; FDCONT holds its tip fixed and computes the constraint forces. Two measures:

Time, as in the paper: derivatives in all unit directions, divided by the time of the function. FD, FDC: forward and
central differences. AD: dual numbers. ED: structured forward sweeps. Closed form: the analytic backend of this library,
not in the paper. All run in NumPy on batches of points so large that arithmetic outweighs calls. (The compiled engine
has the same kernel for AD and ED.)

Arithmetic operations over the number of directions, independent of the machine, with common subexpressions shared. FD
and FDC: 1 + n and 2 n evaluations and the difference quotients. AD: CasADi's forward mode with n seeds; FDCONT by
algorithm 4 of the paper, which reuses the factorization of the equations of motion (1) for all directions (proposition
3). Closed form: analytic Jacobian times the seeds; unit directions need no product. (1) is a dense symmetric linear
system. FD factorizes it for every direction; AD and ED factorize once and multiply by the derivatives of the matrix,
with equal operation counts. Factorizations: QR, RBDL's default, and the cheaper L D L' of this library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Map
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.algorithms.kinematics import frame_position
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.rigid_body_map import MassMatrix, NonlinearEffects
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.trace import trace_expressions
from experiments.analysis.timing import medians
from experiments.baselines.generated_code import matrix
from experiments.papers.study import KUDRUSS, Claim, Comparison, Outcome
from problems.robots.textbook import multi_pendulum

ca = deferred("casadi")

SOURCE = f"{KUDRUSS}, fig. 2"
LINKS, QUICK_LINKS = 10, 3
DIRECTIONS, QUICK_DIRECTIONS = (1, 2, 5, 10, 15, 20, 25, 30), (1, 3, 6)
METHODS = ("FD", "FDC", "AD", "closed form", "closed form, unit directions")
TIMED = {
    "FD": "forward_difference",
    "FDC": "central_difference",
    "AD": "forward_ad",
    "ED": "structured_ad",
    "closed form": "analytic",
}
BATCH, QUICK_BATCH = 1024, 16
"""Points of a timed call."""
QUARTER = 0.25
"""Published: AD and ED of the linear solve (1) take less than this fraction of FD's time."""
SIMILAR = 1.25
"""Costs within this factor count as similar; the paper shows them in a plot only."""


class Traced(NamedTuple):
    """A function of x as an expression. forward(seeds): derivatives by AD; closed: analytic Jacobian."""

    name: str
    x: Any
    value: Any
    forward: Any
    closed: Any


def run(quick: bool) -> Outcome:
    """Measure all times and count all operations."""
    model = multi_pendulum(QUICK_LINKS if quick else LINKS)
    numbers = QUICK_DIRECTIONS if quick else DIRECTIONS
    costs = {}
    for make in (constrained_dynamics, nonlinear_effects, mass_matrix):
        function = make(model)
        costs[function.name] = {n: _costs(function, n) for n in numbers}
    for name, factorization in SOLVES.items():
        costs[name] = {n: _solve_costs(model.nv + 2, n, factorization) for n in numbers}
    times = derivative_times(model, QUICK_BATCH if quick else BATCH, 3 if quick else 7)
    rows = [
        {"measure": "operations", "function": f, "directions": n, "method": m, "evaluations": c}
        for f, table in costs.items()
        for n, cost in table.items()
        for m, c in cost.items()
    ] + [
        {"measure": "time", "function": f, "directions": n, "method": m, "evaluations": c}
        for f, (n, cost) in times.items()
        for m, c in cost.items()
    ]
    lines = [*_timed_comparisons(times), *_comparisons(costs, max(numbers))]
    return Outcome(rows, lines, partial(_draw, costs, times))


def derivative_times(model: Model, batch: int, rounds: int) -> dict[str, tuple[int, dict[str, float]]]:
    """Return, by function, the number of unit directions and the time of all derivatives / time of the function, in NumPy."""
    systems: dict[str, Map] = {"FDCONT": _fixed_tip(model), "NEFF": NonlinearEffects(model), "CRBA": MassMatrix(model)}
    rng, found = np.random.default_rng(0), {}
    for name, system in systems.items():
        points = [
            (rng.uniform(-1.0, 1.0, (batch, 2 * model.nv)), rng.uniform(-1.0, 1.0, (batch, system.nu))) for _ in "ab"
        ]
        backends = {m: make_backend(system, method, engine="numpy") for m, method in TIMED.items()}
        functions = [backends["FD"].f, *(b.jacobians for b in backends.values())]
        once, *seconds = medians([_alternating(f, points) for f in functions], rounds)
        found[name] = 2 * model.nv + system.nu, {m: t / once for m, t in zip(TIMED, seconds, strict=True)}
    return found


def _alternating(f: Callable[..., Any], points: list[tuple[Any, Any]]) -> Callable[[], Any]:
    """Return a call that alternates between batches, so that a system cannot reuse its last solution."""
    batches = cycle(points)
    return lambda: f(*next(batches))


def _fixed_tip(model: Model) -> Holonomic:
    return Holonomic(model, [PointContact("tip1", gains=(0.0, 0.0))])


def constrained_dynamics(model: Model) -> Traced:
    """FDCONT: accelerations with a fixed tip in the plane, by one dense solution of (1), constraints first.

    AD is algorithm 4: forward-mode derivatives of matrix and right-hand side, then solves with the factorization of the value.
    """
    n = model.nv
    x = ca.SX.sym("x", 3 * n)
    q, v, tau = x[:n], x[n : 2 * n], x[2 * n :]
    position = frame_position(model, q, model.frame_id("tip1"))
    tip = ca.vertcat(position[0], position[2])
    G = ca.jacobian(tip, q)
    gamma = ca.jtimes(G @ v, q, v)
    K = ca.densify(ca.blockcat([[ca.SX(2, 2), G], [G.T, matrix(crba(model, q))]]))
    b = ca.vertcat(-gamma, tau - _column(rnea(model, q, v, ca.SX(n, 1))))
    f = _factor(K)
    y = _solve(f, b)

    def forward(seeds: Any) -> Any:
        columns = []
        for k in range(seeds.shape[1]):
            dK, db = (ca.jtimes(e, x, seeds[:, k]) for e in (ca.vec(K), b))
            columns.append(_solve(f, db - ca.reshape(dK, K.shape) @ y)[2:])
        return ca.horzcat(*columns)

    p = _fixed_tip(model).partials(x[: 2 * n], tau, 0.0, {})
    return Traced("FDCONT", x, y[2:], forward, ca.horzcat(matrix(p.fx[n:]), matrix(p.fu[n:])))


def nonlinear_effects(model: Model) -> Traced:
    """NEFF: generalized forces at zero acceleration."""
    n = model.nv
    x = ca.SX.sym("x", 2 * n)
    d = rnea_derivatives(model, x[:n], x[n:], ca.SX(n, 1))
    value = _column(rnea(model, x[:n], x[n:], ca.SX(n, 1)))
    return Traced("NEFF", x, value, partial(ca.jtimes, value, x), ca.horzcat(matrix(d[1]), matrix(d[2])))


def mass_matrix(model: Model) -> Traced:
    """CRBA: upper triangle of the mass matrix. Closed form: derivatives of M e_k by IDSVA without velocity and gravity."""
    n = model.nv
    q, weightless = ca.SX.sym("q", n), model.replace(gravity=(0.0, 0.0, 0.0))
    M = matrix(crba(model, q))
    blocks = []
    for k in range(n):
        unit = ca.SX(ca.DM.eye(n)[:, k])
        blocks.append(matrix(rnea_derivatives(weightless, q, ca.SX(n, 1), unit)[1])[: k + 1, :])
    value = ca.vertcat(*(M[: k + 1, k] for k in range(n)))
    return Traced("CRBA", q, value, partial(ca.jtimes, value, q), ca.vertcat(*blocks))


def _costs(f: Traced, n: int) -> dict[str, float]:
    """Return the cost of n directions by method, in evaluations of the function."""
    seeds = ca.SX.sym("D", f.x.numel(), n)
    once, flat = _count([f.x], f.value), ca.vec(seeds)
    quotients = 2 * n * f.value.numel()
    return {
        "FD": ((1 + n) * once + quotients) / once,
        "FDC": (2 * n * once + quotients) / once,
        "AD": _count([f.x, flat], f.value, f.forward(seeds)) / once,
        "closed form": _count([f.x, flat], f.value, f.closed @ seeds) / once,
        "closed form, unit directions": _count([f.x], f.value, f.closed[:, : min(n, f.x.numel())]) / once,
    }


def _solve_costs(size: int, n: int, factorization: tuple[Any, Any]) -> dict[str, float]:
    """Return the costs of the derivatives of K x = b: FD factorizes for each direction, the other methods once."""
    factor, solve_with = factorization
    K, b = _symmetric("K", size), ca.SX.sym("b", size)
    dK, db = [_symmetric(f"dK{i}", size) for i in range(n)], [ca.SX.sym(f"db{i}", size) for i in range(n)]
    symbols = [ca.symvar(ca.vertcat(ca.vec(ca.tril(M)), r)) for M, r in zip([K, *dK], [b, *db], strict=True)]
    columns = [ca.vertcat(*s) for s in symbols]
    f = factor(K)
    x = solve_with(f, b)
    once = _count([columns[0]], x)
    exact = _count(columns, x, *(solve_with(f, r - M @ x) for M, r in zip(dK, db, strict=True))) / once
    quotients = (
        2.0 * n * (size + size * (size + 1) / 2.0 + size) / once
    )  # perturbations of K and b, and differences of x
    return {"FD": 1.0 + n + quotients, "FDC": 2.0 * n + quotients, "AD": exact}


def _factor(K: Any) -> ltl.Factor:
    """Factorize a dense symmetric matrix as L' D L, from the last row to the first."""
    size = K.shape[0]
    return ltl.factor([[K[i, j] for j in range(size)] for i in range(size)], range(-1, size - 1))


def _solve(f: ltl.Factor, right: Any) -> Any:
    return ca.vertcat(*ltl.solve(f, [right[i] for i in range(right.numel())]))


def _solve_by_qr(f: tuple[Any, Any], right: Any) -> Any:
    """Solve R x = Q' b by back substitution."""
    (Q, R), size = f, right.numel()
    rest, x = Q.T @ right, [ca.SX(0)] * size
    for i in reversed(range(size)):
        x[i] = (rest[i] - sum((R[i, j] * x[j] for j in range(i + 1, size)), ca.SX(0))) / R[i, i]
    return ca.vertcat(*x)


SOLVES = {"solve (1) by QR": (lambda K: ca.qr(ca.densify(K)), _solve_by_qr), "solve (1) by L D L'": (_factor, _solve)}


def _symmetric(name: str, size: int) -> Any:
    lower = ca.SX.sym(name, ca.Sparsity.lower(size))
    return lower + ca.tril(lower, False).T


def _count(symbols: list[Any], *expressions: Any) -> int:
    return sum(trace_expressions(symbols, [ca.vec(ca.densify(e)) for e in expressions]).count().values())


def _column(rows: Any) -> Any:
    return rows if hasattr(rows, "is_symbolic") else ca.vertcat(*rows)


def _claims(at: dict[str, float], name: str, exploiting: str) -> list[Claim]:
    """Return the paper's claims about a function: AD costs as much as FD for FDCONT, else between FD and FDC."""
    ad, fd, fdc = (at[m] for m in ("AD", "FD", "FDC"))
    if name == "FDCONT":
        expected = Claim("AD costs about as much as FD", ad <= SIMILAR * fd)
    else:
        expected = Claim("AD costs no more than FDC", ad <= fdc)
    return [expected, Claim(f"{exploiting} costs less than AD and FD", at[exploiting] < min(ad, fd))]


def _published(name: str) -> str:
    return "AD as FD, ED below" if name == "FDCONT" else "AD between FD and FDC, ED below FD"


def _timed_comparisons(times: dict[str, tuple[int, dict[str, float]]]) -> list[Comparison]:
    why = f"time of all unit directions / time of one evaluation, for {BATCH} points in NumPy; C++ for one point in the paper"
    return [
        Comparison(
            f"{name}, time of {n} directions",
            _published(name),
            ", ".join(f"{m} {c:.1f}" for m, c in at.items()),
            [*_claims(at, name, "ED"), Claim("FD costs at least 1 + n", at["FD"] >= 1 + n, only_differs=True)],
            why,
        )
        for name, (n, at) in times.items()
    ]


def _comparisons(costs: dict[str, dict[int, dict[str, float]]], n: int) -> list[Comparison]:
    lines = []
    for name, table in costs.items():
        at = table[n]
        ours = ", ".join(f"{m} {c:.1f}" for m, c in at.items())
        if name in SOLVES:
            fraction = at["AD"] / at["FD"]
            why = "operations; the paper has times"
            if "QR" not in name:
                why += "; L D L' is cheaper than QR: proposition 3 has less to save"
            claim = Claim("AD and ED below a quarter of FD", fraction < QUARTER)
            what = f"{name}, {n} directions: AD and ED / FD"
            lines.append(Comparison(what, "< 0.25", f"{fraction:.2f} ({ours})", [claim], why))
            continue
        why = "operations of scalars: a product costs two products and a sum for each direction"
        claims = _claims(at, name, "closed form")
        if name != "CRBA":  # the paper's AD exceeds the bound for CRBA
            claims.append(
                Claim(f"AD costs at most 1 + 1.5 n = {1.0 + 1.5 * n:.0f} (theory)", at["AD"] <= 1.0 + 1.5 * n)
            )
        lines.append(Comparison(f"{name}, operations of {n} directions", _published(name), ours, claims, why))
    return lines


def _draw(costs: dict[str, Any], times: dict[str, Any], path: Path) -> None:
    from experiments.plots.canvas import COLORS, GRAY, figure, legend

    colors = dict(zip(dict.fromkeys([*METHODS, *TIMED]), COLORS, strict=False))
    with figure(path, 2, 3, 11.0, 6.4, "Cost of derivatives [evaluations]") as axes:
        *curves, bars = axes.flat
        for axis, (name, table) in zip(curves, costs.items(), strict=True):
            for method in METHODS:
                if method in next(iter(table.values())):
                    cost = [c[method] for c in table.values()]
                    axis.plot(list(table), cost, "o-", color=colors[method], label=method, markersize=3)
            axis.plot(list(table), [1.0 + 1.5 * n for n in table], ":", color=GRAY, label="1 + 1.5 n")
            axis.set_title(f"{name}: operations")
            axis.set_xlabel("directions")
        for i, method in enumerate(TIMED):
            heights = [at.get(method, np.nan) for _, at in times.values()]
            bars.bar(np.arange(len(times)) + 0.16 * (i - 2), heights, 0.15, color=colors[method], label=method)
        bars.set_xticks(range(len(times)), [f"{name}\nn = {n}" for name, (n, _) in times.items()], fontsize=7)
        bars.set_title("time")
        bars.legend(fontsize=7)
        legend(axes, fontsize=8)
