"""Step sizes of finite differences for second derivatives (Singh, Russell, Wensing 2023, app. A, fig. 21 to 23).

Root-mean-square relative error (RMSRE) of second derivatives of inverse dynamics, relative to bicomplex numbers, over
the step size. FD-1: second central differences of values (fig. 21 and 22). FD-2: central differences of first
derivatives (fig. 23). Robots are chains and binary trees. FD-1 uses one step for positions and velocities; the paper
varies two steps, for 2 to 110 bodies.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.sample_models import binary_tree, chain
from experiments.analysis.timing import samples
from experiments.baselines import second_order_references as references
from experiments.baselines.second_order_errors import measures
from experiments.papers.study import SINGH, Claim, Comparison, Outcome

SOURCE = f"{SINGH}, fig. 21-23"
SHAPES = {"chain": chain, "binary tree": binary_tree}
BODIES, QUICK_BODIES = (2, 4, 8, 16), (2,)
EPS = float(np.finfo(float).eps)
RULES = {"FD-1": EPS ** (1 / 4), "FD-2": EPS ** (1 / 3)}
"""Steps that balance truncation and rounding errors."""
RANGE = 10.5
"""Largest ratio of best steps that count as one range (one decade)."""


def run(quick: bool) -> Outcome:
    """Measure all errors."""
    steps = 10.0 ** -np.arange(2.0, 9.0, 1.0 if quick else 0.5)
    rows = []
    for shape, make in SHAPES.items():
        for n in QUICK_BODIES if quick else BODIES:
            model = make(n)
            q, v, x = (rows.T for rows in samples(model, 1))
            point = q, v, x
            expected = references.bicomplex(model, partial(rnea, model), *point)
            for step in steps:
                for method, found in _differences(model, point, float(step)).items():
                    error = measures(found, expected)["RMSRE"]
                    rows.append({"method": method, "shape": shape, "bodies": n, "step": float(step), "RMSRE": error})
    return Outcome(rows, _comparisons(rows), partial(_draw, rows))


def _differences(model: Model, point: tuple[Any, Any, Any], step: float) -> dict[str, references.SecondDerivatives]:
    f = partial(rnea, model)
    return {
        "FD-1": references.differences_of_values(model, f, *point, step=step),
        "FD-2": references.differences_of_first_order(model, partial(_slopes, model), *point, step=step),
    }


def _slopes(model: Model, *point: Any) -> Any:
    return rnea_derivatives(model, *point)[1:4]


def best_steps(rows: list[dict[str, Any]], method: str) -> dict[tuple[str, int], tuple[float, float]]:
    """Return best step and error by (shape, number of bodies)."""
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for r in rows:
        key = r["shape"], r["bodies"]
        if r["method"] == method and r["RMSRE"] < found.get(key, (0.0, np.inf))[1]:
            found[key] = r["step"], r["RMSRE"]
    return found


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    lines = []
    for method, rule in RULES.items():
        steps, errors = zip(*best_steps(rows, method).values(), strict=True)
        claim = Claim("one range for nearly all sizes", max(steps) <= RANGE * min(steps), only_differs=True)
        sizes = [r["bodies"] for r in rows]
        ours = f"{min(steps):.0e} to {max(steps):.0e}, errors {min(errors):.1e} to {max(errors):.1e}"
        ours += f" ({min(sizes)} to {max(sizes)} bodies)"
        why = f"the paper's text has no numbers; rounding and truncation balance near {rule:.0e}"
        if method == "FD-1":
            why += "; one step for positions and velocities, two in the paper"
        lines.append(Comparison(f"best steps of {method}", "one range for nearly all sizes", ours, [claim], why))
    return lines


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, GRAY, LINES, figure

    with figure(path, 1, 2, 9.0, 3.8, "Error of second derivatives over the step of differences") as axes:
        sizes = list(dict.fromkeys(r["bodies"] for r in rows))
        for axis, method in zip(axes.flat, RULES, strict=True):
            for line, shape in zip(LINES, SHAPES, strict=False):
                for color, n in zip(COLORS, sizes, strict=False):
                    own = [r for r in rows if (r["method"], r["shape"], r["bodies"]) == (method, shape, n)]
                    axis.loglog(
                        [r["step"] for r in own], [r["RMSRE"] for r in own], line, color=color, label=f"{shape} of {n}"
                    )
            axis.axvline(RULES[method], color=GRAY, linewidth=0.8)
            axis.set_title(f"{method}; gray: where rounding and truncation balance")
            axis.set_xlabel("step")
        axes.flat[0].set_ylabel("RMSRE")
        axes.flat[0].legend(fontsize=6)
