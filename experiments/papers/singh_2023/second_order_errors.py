"""Errors of second derivatives over the number of bodies (Singh, Russell, Wensing 2023, fig. 11, 12 and 20).

Against bicomplex numbers over the recursive Newton-Euler and articulated-body algorithms: the four metrics of the closed forms
(largest and root-mean-square, absolute and relative), and the root-mean-square relative error of the chain rule in hyper-dual
numbers and of central differences of values (FD-1) and first derivatives (FD-2).  Relative errors are over entries that are not
zero: above 1e-12 of the largest.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.model.sample_models import binary_tree, chain
from experiments.baselines.second_order_errors import METRICS, measures, tensors
from experiments.papers.study import SINGH, Claim, Comparison, Outcome

SOURCE = f"{SINGH}, fig. 11, 12, 20"
SHAPES = {"chain": chain, "binary tree": binary_tree}
BODIES, QUICK_BODIES = (2, 3, 7, 15, 31), (2, 3)


def run(quick: bool) -> Outcome:
    """All errors."""
    rows = [
        {"function": kind, "shape": shape, "bodies": n, "method": method, **measures(found, expected)}
        for shape, make in SHAPES.items()
        for n in (QUICK_BODIES if quick else BODIES)
        for kind, method, found, expected in tensors(make(n))
    ]
    return Outcome(rows, _comparisons(rows), partial(_draw, rows))


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    """The paper prints no numbers, but an order of the methods."""
    lines = []
    for kind in ("ID", "FD"):
        worst = {m: max(r["RMSRE"] for r in rows if r["function"] == kind and r["method"] == m) for m in _methods(rows)}
        ours = ", ".join(f"{m} {e:.1e}" for m, e in worst.items())
        claims = [
            Claim("FD-1 is the least accurate", worst["FD-1"] == max(worst.values())),
            Claim("the closed form is more accurate than FD-2", worst["closed form"] < worst["FD-2"]),
        ]
        why = "the paper's values are plotted only (n/a as numbers)"
        lines.append(Comparison(f"worst RMSRE of second-order {kind}", "closed form < FD-2 < FD-1", ours, claims, why))
    means = {s: np.mean([r["RMSRE"] for r in rows if r["shape"] == s and r["method"] == "closed form"]) for s in SHAPES}
    ours = f"chains {means['chain']:.1e}, trees {means['binary tree']:.1e}"
    claim = Claim("trees are more accurate than chains", means["binary tree"] < means["chain"], only_differs=True)
    return [*lines, Comparison("mean RMSRE of the closed forms", "trees below chains", ours, [claim])]


def _methods(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(r["method"] for r in rows))


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, LINES, figure

    sizes = list(dict.fromkeys(r["bodies"] for r in rows))
    with figure(path, 2, 2, 9.0, 6.4, "Errors of second derivatives against bicomplex numbers") as axes:
        for row, kind in zip(axes, ("ID", "FD"), strict=True):
            for line, shape in zip(LINES, SHAPES, strict=False):
                own = [r for r in rows if r["function"] == kind and r["shape"] == shape]
                exact = [r for r in own if r["method"] == "closed form"]
                for color, metric in zip(COLORS, METRICS, strict=False):
                    row[0].loglog(
                        [r["bodies"] for r in exact],
                        [r[metric] for r in exact],
                        line,
                        color=color,
                        label=f"{metric}, {shape}",
                    )
                for color, method in zip(COLORS, _methods(rows), strict=False):
                    some = [r for r in own if r["method"] == method]
                    row[1].loglog(
                        [r["bodies"] for r in some],
                        [r["RMSRE"] for r in some],
                        line,
                        color=color,
                        label=f"{method}, {shape}",
                    )
            row[0].set_title(f"{kind}, closed form, four metrics")
            row[1].set_title(f"{kind}, RMSRE by method")
            for axis in row:
                axis.legend(fontsize=6, framealpha=0.8)
                axis.set_xlabel("bodies")
                axis.minorticks_off()
                axis.set_xticks(sizes, [str(n) for n in sizes])
