"""Products of tensors and matrices beside recursions (Singh, Russell, Wensing 2023, fig. 14 and 15).

The second derivatives of forward dynamics need A(F) = M_q F for three matrices F (inner terms) and M^-1 T for tensors T (outer
terms).  DTM multiplies; IDFOZA runs IDSVA without velocity and gravity for each column of F, AZA the articulated-body
algorithm for each column of T.  Here both ways compiled on one thread, for one point: products by BLAS (dgemm), recursions
with eight columns in the lanes of a block.  Chains of rods, with the vector instructions that the processor has; the paper's
curves without them are n/a.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.sample_models import chain
from experiments.analysis.timing import medians, program_call
from experiments.papers.study import SINGH, Comparison, Outcome

SOURCE = f"{SINGH}, fig. 14, 15"
BODIES, QUICK_BODIES = (2, 4, 8, 16, 32, 64, 110), (2, 4)
TERMS = {"inner": ("DTM", "IDFOZA"), "outer": ("DTM", "AZA")}


def run(quick: bool) -> Outcome:
    """All times [us]."""
    rows = []
    for n in QUICK_BODIES if quick else BODIES:
        names, calls = zip(*_calls(n).items(), strict=True)
        for (term, way), t in zip(names, medians(calls, 3 if quick else 7), strict=True):
            rows.append({"bodies": n, "term": term, "way": way, "microseconds": 1e6 * t})
    return Outcome(rows, [_comparison(rows, term) for term in TERMS], partial(_draw, rows))


def _calls(n: int) -> dict[tuple[str, str], Callable[[], Any]]:
    """One inner term, M_q times an n x n matrix, and one outer term, M^-1 times an n x n x n tensor."""
    model, rng = chain(n), np.random.default_rng(0)
    tensor, matrix = rng.standard_normal((n, n, n)), rng.standard_normal((n, n))
    rows, flat = tensor.reshape(n * n, n), tensor.reshape(n, n * n)
    inner, outer = np.empty((n * n, n)), np.empty((n, n * n))
    return {
        ("inner", "DTM"): partial(np.matmul, rows, matrix, out=inner),
        ("inner", "IDFOZA"): program_call(IDSVA, model, n),
        ("outer", "DTM"): partial(np.matmul, matrix, flat, out=outer),
        ("outer", "AZA"): program_call(ABA, model, n * n),
    }


def crossover(rows: list[dict[str, Any]], term: str) -> int | None:
    """The least size from which on the recursion is faster, if it is at the largest."""
    product, recursion = (
        {r["bodies"]: r["microseconds"] for r in rows if (r["term"], r["way"]) == (term, w)} for w in TERMS[term]
    )
    faster = [n for n in product if all(recursion[m] < product[m] for m in product if m >= n)]
    return min(faster) if faster else None


def _comparison(rows: list[dict[str, Any]], term: str) -> Comparison:
    found, largest = crossover(rows, term), max(r["bodies"] for r in rows)
    ours = f"none up to {largest} bodies" if found is None else f"at {found} bodies or less"
    published = "at some size for chains (plotted only)" if term == "inner" else "beyond the sizes of robots"
    why = "the recursions here run in lanes, and pay for the rest of IDSVA too" if term == "inner" else ""
    return Comparison(f"{term} term: the recursion becomes faster", published, ours, False, why)


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure

    with figure(path, 1, 2, 9.0, 3.6, "Inner and outer terms by products and by recursions [us]") as axes:
        for axis, (term, ways) in zip(axes.flat, TERMS.items(), strict=True):
            for color, way in zip(COLORS, ways, strict=False):
                own = [r for r in rows if (r["term"], r["way"]) == (term, way)]
                axis.loglog(
                    [r["bodies"] for r in own],
                    [r["microseconds"] for r in own],
                    "o-",
                    color=color,
                    label=way,
                    markersize=3,
                )
            axis.set_title(f"{term} term")
            axis.set_xlabel("bodies")
            axis.legend()
