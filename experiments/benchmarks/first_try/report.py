"""Tables of the first-try benchmark, and the values of its performance profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from dynamics_backends.protocol import Array
from experiments.benchmarks.first_try.best_known import Key
from experiments.benchmarks.first_try.runs import Row
from experiments.benchmarks.tables import STATUS_HEADS, markdown, status_counts
from experiments.plots.performance_profiles import Profile

NEAR, WITHIN = 0.01, 0.1
"""Relative distances to the best known objective that the table counts."""
SMALL = 1e-6
"""Objectives are compared relative to their magnitude, at least SMALL."""
HEADER = [
    "group",
    "family",
    "solver",
    "problems",
    *STATUS_HEADS,
    "iterations",
    "s, 50 / 90 %",
    "within 1 / 10 % of best",
    "above best, 50 / 90 %",
    "replay error",
    "between knots",
]


def above(row: Row, best: Mapping[Key, float]) -> float:
    """Return the relative excess over the best known objective; inf for an infeasible motion."""
    best_objective = best.get(row.key[:3], np.nan)
    if not row.feasible:
        return np.inf
    return (row.objective - best_objective) / max(abs(best_objective), SMALL)


def table(rows: Sequence[Row], best: Mapping[Key, float], file: Path | None = None) -> str:
    """Format the results, one row per family and solver, and per group and solver; file: CSV file to write them to."""
    lines = []
    for group in _unique(r.group for r in rows):
        own = [r for r in rows if r.group == group]
        for family in (*_unique(r.family for r in own), "all"):
            members = [r for r in own if family in ("all", r.family)]
            for solver in _unique(r.solver for r in members):
                lines.append([group, family, solver, *_cells([r for r in members if r.solver == solver], best)])
    return markdown(HEADER, lines, file)


def _cells(rows: Sequence[Row], best: Mapping[Key, float]) -> list[str]:
    excess = [above(r, best) for r in rows]
    finite = [e for e in excess if np.isfinite(e)]
    near, within = (sum(e <= limit for e in excess) for limit in (NEAR, WITHIN))
    return [
        str(len(rows)),
        *status_counts(r.status for r in rows),
        quantile([r.iterations for r in rows], 50),
        f"{quantile([r.seconds for r in rows], 50)} / {quantile([r.seconds for r in rows], 90)}",
        f"{near} / {within}",
        f"{quantile(finite, 50, 100.0)} / {quantile(finite, 90, 100.0)} %",
        largest(r.replay for r in rows if r.feasible),
        largest(r.violation for r in rows if r.feasible),
    ]


def quantile(values: Sequence[float], percent: float, unit: float = 1.0) -> str:
    """Format a percentile of the finite values; "-" if there are none."""
    finite = [v for v in values if np.isfinite(v)]
    return f"{unit * np.percentile(finite, percent):.3g}" if finite else "-"


def largest(values) -> str:
    """Format the largest finite value; "-" if there is none."""
    finite = [v for v in values if np.isfinite(v)]
    return f"{max(finite):.2g}" if finite else "-"


def failures(rows: Sequence[Row]) -> str:
    """List the solves that did not converge."""
    lines = [f"- {r.instance}, {r.solver}: {r.status}: {r.reason}" for r in rows if not r.success]
    return "\n".join(lines) or "All solves converged."


def worse_solves(rows: Sequence[Row], best: Mapping[Key, float], solver: str = "auto") -> str:
    """List a solver's solves that ended more than NEAR above the best known objective, worst first."""
    found = sorted(((above(r, best), r) for r in rows if r.solver == solver and r.feasible), key=lambda pair: -pair[0])
    lines = [f"- {r.instance}: {r.objective:.6g}, {100.0 * a:.1f} % above the best known" for a, r in found if a > NEAR]
    return "\n".join(lines) or "None."


# -- performance profiles ------------------------------------------------------------------------------------


def profile(rows: Sequence[Row], measure: Callable[[Row], float]) -> dict[str, Array]:
    """Return the sorted ratios of each solver to the best solver on each problem; inf for failures.

    measure: positive, smaller is better.
    """
    solvers, problems = _unique(r.solver for r in rows), _unique(r.key[:3] for r in rows)
    values = {(r.key[:3], r.solver): max(measure(r), 1e-12) if r.success else np.inf for r in rows}
    table = np.array([[values.get((p, s), np.inf) for s in solvers] for p in problems])
    with np.errstate(invalid="ignore"):
        ratios = np.where(np.isfinite(table), table / table.min(axis=1, keepdims=True), np.inf)
    return {s: np.sort(ratios[:, i]) for i, s in enumerate(solvers)}


def panels(rows: Sequence[Row], best: Mapping[Key, float]) -> dict[str, list[Profile]]:
    """Return the panels of each group: profiles of time and iterations, and excess over the best known objective."""
    found = {}
    for group in _unique(r.group for r in rows):
        own = [r for r in rows if r.group == group]
        excess = {s: np.array([above(r, best) for r in own if r.solver == s]) for s in _unique(r.solver for r in own)}
        found[group] = [
            Profile("time / best of the solvers", profile(own, _seconds)),
            Profile("iterations / best of the solvers", profile(own, _iterations)),
            Profile("objective above the best known, relative", excess),
        ]
    return found


def _seconds(row: Row) -> float:
    return row.seconds


def _iterations(row: Row) -> float:
    return float(max(row.iterations, 1))


def _unique(values) -> list:
    return list(dict.fromkeys(values))
