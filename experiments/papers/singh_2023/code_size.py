"""Size of generated code for second derivatives (Singh, Russell, Wensing 2023, fig. 9).

Lines of C code and library sizes of the second derivatives of inverse dynamics of chains: CasADi's AD of the closed-form first
derivatives, as in the paper; the closed form as straight-line code; and the closed form as loops, which is the same for all robots.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from dynamics_backends.compiled.emit.emit import Argument, TracedFunction
from dynamics_backends.compiled.loops.loops import loop_kernel
from dynamics_backends.compiled.loops.unrolled import argument_sizes, unrolled_trace
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.sample_models import chain
from experiments.analysis.compiled_program import USUAL_JOINTS
from experiments.analysis.timing import joined_samples
from experiments.baselines.casadi_second_order import second_order_function
from experiments.baselines.generated_code import generated
from experiments.baselines.rnea_tensors import IDSVA_SO
from experiments.papers.study import SINGH, Claim, Comparison, Outcome

SOURCE = f"{SINGH}, fig. 9"
BODIES, QUICK_BODIES = (2, 4, 6, 8, 10, 12), (2, 3)
PATIENCE = 90.0


def run(quick: bool) -> Outcome:
    """Measure lines of code and library sizes."""
    loops = loop_kernel(IDSVA_SO, USUAL_JOINTS).source.count("\n")
    rows: list[dict[str, Any]] = []
    for n in QUICK_BODIES if quick else BODIES:
        model = chain(n)
        code = generated(second_order_function(model, "ID"), joined_samples(model, 1), PATIENCE, "-O1")
        straight = _straight_line_code(model).count("\n")
        rows.append(
            {
                "bodies": n,
                "AD": code.lines,
                "bytes of AD's library": code.size,
                "straight-line code": straight,
                "loops": loops,
                "why": code.why,
            }
        )
    return Outcome(rows, [_comparison(rows)], partial(_draw, rows))


def _straight_line_code(model: Model) -> str:
    arguments = [Argument(*pair) for pair in zip(IDSVA_SO.arguments, argument_sizes(IDSVA_SO, model), strict=True)]
    return TracedFunction("id", unrolled_trace(IDSVA_SO, model), arguments, IDSVA_SO.outputs).source()[0]


def _comparison(rows: list[dict[str, Any]]) -> Comparison:
    last = rows[-1]
    compiled = [row for row in rows if row["bytes of AD's library"] is not None]
    parts = [f"{last['bodies']} bodies: AD {last['AD']:,} lines" + (", not compiled" if last not in compiled else "")]
    if compiled:
        size = compiled[-1]["bytes of AD's library"] / 1e6
        parts.append(
            f"largest library of AD {size:.2g} MB, of {compiled[-1]['AD']:,} lines, {compiled[-1]['bodies']} bodies"
        )
    parts.append(f"closed form, {last['bodies']} bodies: {last['straight-line code']:,} lines without loops")
    parts.append(f"{last['loops']:,} lines with loops, for any robot")
    why = (
        "CasADi shares common subexpressions, and long code is compiled at -O1; the paper's text does not name the number of"
        " bodies of its figures"
    )
    claims = [
        Claim("AD's code is longer than the closed form's", last["AD"] > last["straight-line code"]),
        Claim("AD's code grows beyond what compiles", last not in compiled, only_differs=True),
    ]
    return Comparison("C code of second-order ID", "AD: millions of lines, 12 MB", "; ".join(parts), claims, why)


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import BLUE, COLORS, figure

    bodies = [r["bodies"] for r in rows]
    with figure(path, 1, 2, 9.0, 3.6, "C code of second derivatives of inverse dynamics, chains") as axes:
        lines, sizes = axes.flat
        for color, form in zip(COLORS, ("AD", "straight-line code", "loops"), strict=False):
            lines.semilogy(bodies, [r[form] for r in rows], "o-", color=color, label=form)
        lines.set_title("lines of C")
        lines.legend()
        megabytes = [(r["bytes of AD's library"] or float("nan")) / 1e6 for r in rows]
        sizes.semilogy(bodies, megabytes, "o-", color=BLUE)
        sizes.set_title("library of AD [MB], where it was compiled")
        for axis in axes.flat:
            axis.set_xlabel("bodies")
            axis.set_xticks(bodies)
