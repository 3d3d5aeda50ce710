"""Errors of second derivatives over the number of bodies (Singh, Russell, Wensing 2023, fig. 11, 12 and 20).

The reference is bicomplex numbers in the recursive Newton-Euler and articulated-body algorithms. Closed forms have four metrics:
largest and root-mean-square error, absolute and relative. The other methods have the root-mean-square relative error (RMSRE): chain
rule in hyper-dual numbers, central differences of values (FD-1) and of first derivatives (FD-2). Relative errors use entries above
1e-12 of the largest. Comparisons use the numbers of bodies that all methods compute. FD-2 of forward dynamics is not in the paper.
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
ORDERS = {"ID": "closed form as chain rule < FD-2 < FD-1", "FD": "chain rule < closed form < FD-1"}
"""Published ranking of the errors."""
SIMILAR = 10.0
"""Errors within this factor count as similar; the paper shows them in a plot only."""
PLOTTED = "the paper's values are plotted only"


def run(quick: bool) -> Outcome:
    """Measure all errors."""
    rows = [
        {"function": kind, "shape": shape, "bodies": n, "method": method, **measures(found, expected)}
        for shape, make in SHAPES.items()
        for n in (QUICK_BODIES if quick else BODIES)
        for kind, method, found, expected in tensors(make(n))
    ]
    remark = (
        "Relative errors include entries down to 1e-12 of the largest entry. Finite differences have no correct digit of the"
        " smallest entries, and a few of these dominate their RMSRE."
    )
    return Outcome(rows, _comparisons(rows), partial(_draw, rows), [remark])


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    """Compare the ranking of the methods, and trees with chains; the paper has no other numbers in its text."""
    sizes = set.intersection(*({r["bodies"] for r in rows if r["method"] == m} for m in _methods(rows)))
    common = f"2 to {max(sizes)} bodies; {PLOTTED}"
    lines = []
    for kind, published in ORDERS.items():
        own = [r for r in rows if r["function"] == kind and r["bodies"] in sizes]
        worst = {m: max(r["RMSRE"] for r in own if r["method"] == m) for m in _methods(rows)}
        exact = {worst["closed form"], worst["chain rule"]}
        claims = [
            Claim("FD-1 is the least accurate", worst["FD-1"] == max(worst.values())),
            Claim("the closed form is more accurate than differences", worst["closed form"] < worst["FD-2"]),
        ]
        if kind == "ID":
            similar = max(exact) <= SIMILAR * min(exact)
            claims.append(Claim("the closed form is as accurate as the chain rule", similar))
        else:
            better = worst["chain rule"] < worst["closed form"]
            claims.append(Claim("the chain rule is more accurate than the closed form", better, only_differs=True))
        ours = ", ".join(f"{m} {e:.1e}" for m, e in worst.items())
        lines.append(Comparison(f"worst RMSRE of second-order {kind}", published, ours, claims, common))
    for kind in ORDERS:
        ratios = {m: _mean(rows, kind, m, "binary tree") / _mean(rows, kind, m, "chain") for m in _methods(rows)}
        ours = ", ".join(f"{m} {ratio:.1e}" for m, ratio in ratios.items())
        claims = [
            Claim(f"trees are more accurate than chains by {m}", ratio < 1.0, only_differs=True)
            for m, ratio in ratios.items()
        ]
        what, why = (
            f"mean RMSRE of second-order {kind}, trees / chains",
            f"mean over all bodies of a method; {PLOTTED}",
        )
        lines.append(Comparison(what, "trees below chains", ours, claims, why))
    return lines


def _mean(rows: list[dict[str, Any]], kind: str, method: str, shape: str) -> float:
    """Return the mean RMSRE over the numbers of bodies."""
    own = [r for r in rows if (r["function"], r["method"], r["shape"]) == (kind, method, shape)]
    return float(np.mean([r["RMSRE"] for r in own]))


def _methods(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(r["method"] for r in rows))


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, LINES, figure

    sizes = list(dict.fromkeys(r["bodies"] for r in rows))
    with figure(path, 2, 2, 9.0, 7.6, "Errors of second derivatives against bicomplex numbers", bottom=1.5) as axes:
        for row, kind in zip(axes, ORDERS, strict=True):
            for line, shape in zip(LINES, SHAPES, strict=False):
                own = [r for r in rows if r["function"] == kind and r["shape"] == shape]
                exact = [r for r in own if r["method"] == "closed form"]
                curves = [(row[0], metric, exact, metric) for metric in METRICS]
                curves += [(row[1], m, [r for r in own if r["method"] == m], "RMSRE") for m in _methods(rows)]
                for color, (axis, name, some, metric) in zip(2 * COLORS[: len(METRICS)], curves, strict=True):
                    bodies, errors = [r["bodies"] for r in some], [r[metric] for r in some]
                    axis.loglog(bodies, errors, line, color=color, label=f"{name}, {shape}")
            row[0].set_title(f"{kind}, closed form, four metrics")
            row[1].set_title(f"{kind}, RMSRE by method")
            for axis in row:
                axis.set_xlabel("bodies")
                axis.minorticks_off()
                axis.set_xticks(sizes, [str(n) for n in sizes])
        for axis in axes[1]:  # one legend per column
            axis.legend(fontsize=7, ncols=2, loc="upper left", bbox_to_anchor=(0.0, -0.18))
