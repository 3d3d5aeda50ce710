"""Time of second derivatives over the number of bodies (Singh, Russell, Wensing 2023, fig. 7, 8, 16 to 18, table III).

Chains and binary trees of rods. Inverse dynamics in NumPy for one point: bicomplex numbers, the chain rule in
hyper-dual numbers, central differences of values (FD-1) and of first derivatives (FD-2), the closed form (IDSVA-SO) and
first order (IDSVA-FO); Python overhead is part of these times. Then the compiled closed forms with 8 points per call,
one block of lanes. Forward dynamics: the same methods with the articulated-body algorithm, the closed form FDSVA-SO and
its parts. Orders are log-log slopes over all sizes of a method. Operations are those that the compiled loops execute.
Compiled calls are timed after a warm-up call; long NumPy calls run once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA, fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA, rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.sample_models import binary_tree, chain
from experiments.analysis.tally import operations
from experiments.analysis.timing import medians, program_call, samples
from experiments.baselines import second_order_references as references
from experiments.baselines.fd_tensors import FDSVA_SO, fd_tensors
from experiments.baselines.rnea_tensors import IDSVA_SO, rnea_tensors
from experiments.papers.study import SINGH, Claim, Comparison, Outcome, times

SOURCE = f"{SINGH}, fig. 7, 8, 16-18, table III"
SHAPES = {"chain": chain, "binary tree": binary_tree}
BODIES, QUICK_BODIES = (2, 3, 7, 15, 31, 63, 110), (2, 3)
KNOTS = 8
MAX_REPEATED = 0.3
"""NumPy calls that take longer than this [s] are timed once."""
LIMITS = {"chain rule": 15, "bicomplex": 31, "FD-1": 63}
"""Largest number of bodies of a method; larger robots take minutes, or too much memory."""
PUBLISHED = {  # orders over chains and binary trees, of inverse dynamics
    "bicomplex": (2.98, 2.98),
    "chain rule": (3.05, 3.17),
    "FD-1": (3.02, 3.03),
    "FD-2": (2.38, 2.15),
    "IDSVA-SO, compiled": (3.08, 1.45),
    "IDSVA-FO, compiled": (1.76, 1.03),
}
COUNTED = {"IDSVA-SO, compiled": IDSVA_SO, "IDSVA-FO, compiled": IDSVA}
LABELS = {
    "IDSVA-SO": "closed form",
    "FDSVA-SO": "closed form",
    "IDSVA-SO, compiled": "closed form, compiled",
    "FDSVA-SO, compiled": "closed form, compiled",
    "IDSVA-FO, compiled": "first order, compiled",
    "FDSVA-FO, compiled": "first order, compiled",
}
"""Plot labels of the methods, with one color for both functions."""
FASTER = 10.0
"""Published: the other methods take more than this multiple of the closed form's time (fig. 8)."""
Times = dict[tuple[str, str, str], dict[int, float]]
"""(function, shape, method) -> number of bodies -> time of one point [s]."""


def run(quick: bool) -> Outcome:
    """Measure all times."""
    sizes, rounds = (QUICK_BODIES, 1) if quick else (BODIES, 5)
    found: Times = {}
    for shape, make in SHAPES.items():
        for n in sizes:
            model = make(n)
            for kind, method, call, knots in _calls(model):
                if n <= LIMITS.get(method, max(BODIES)):
                    seconds = _seconds(call, rounds, np.inf if method.endswith("compiled") else MAX_REPEATED) / knots
                    found.setdefault((kind, shape, method), {})[n] = seconds
    counts = {
        (s, m): {n: operations(p, make(n)) for n in sizes} for s, make in SHAPES.items() for m, p in COUNTED.items()
    }
    rows = [
        {
            "function": kind,
            "shape": shape,
            "method": method,
            "bodies": n,
            "microseconds": 1e6 * t,
            "operations": counts.get((shape, method), {}).get(n) if kind == "ID" else None,
        }
        for (kind, shape, method), table in found.items()
        for n, t in table.items()
    ]
    return Outcome(rows, _comparisons(found, counts), partial(_draw, found), _remarks(found))


def _seconds(call: Callable[[], Any], rounds: int, max_repeated: float) -> float:
    """Return the median time [s] over rounds, or the time of the first call if it exceeds ``max_repeated``."""
    began = time.process_time()
    call()
    spent = time.process_time() - began
    return spent if spent > max_repeated else medians([call], rounds)[0]


def _calls(model: Model) -> Iterator[tuple[str, str, Callable[[], Any], int]]:
    """Yield (function, method, call, points per call)."""
    q, v, x = (rows.T for rows in samples(model, 1))
    point = q, v, x
    for kind, value, first in (("ID", rnea, rnea_derivatives), ("FD", aba, fd_derivatives)):
        f = partial(value, model)
        yield kind, "bicomplex", partial(references.bicomplex, model, f, *point), 1
        yield kind, "chain rule", partial(references.chain_rule, model, f, *point), 1
        yield kind, "FD-1", partial(references.differences_of_values, model, f, *point), 1
        yield (
            kind,
            "FD-2",
            partial(references.differences_of_first_order, model, partial(_slopes, first, model), *point),
            1,
        )
    yield "ID", "IDSVA-SO", partial(rnea_tensors, model, *point), 1
    yield "FD", "FDSVA-SO", partial(fd_tensors, model, *point), 1
    for kind, name, program in (
        ("ID", "IDSVA-SO, compiled", IDSVA_SO),
        ("ID", "IDSVA-FO, compiled", IDSVA),
        ("FD", "FDSVA-SO, compiled", FDSVA_SO),
        ("FD", "FDSVA-FO, compiled", FDSVA),
    ):
        yield kind, name, program_call(program, model, KNOTS), KNOTS


def _slopes(first: Callable[..., Any], model: Model, *point: Any) -> Any:
    return first(model, *point)[1:4]


def order(table: Mapping[int, float]) -> float:
    """Return the least-squares slope in a log-log plot over the number of bodies."""
    return float(np.polyfit(np.log(list(table)), np.log(list(table.values())), 1)[0])


def _comparisons(found: Times, counts: dict[tuple[str, str], dict[int, int]]) -> list[Comparison]:
    lines = []
    for method, published in PUBLISHED.items():
        for shape, theirs in zip(SHAPES, published, strict=True):
            table = found["ID", shape, method]
            ours, why = order(table), f"{min(table)} to {max(table)} bodies"
            if method in COUNTED:
                why += f"; order of the operations {order(counts[shape, method]):.2f}"
            lines.append(
                Comparison(
                    f"order of {method}, {shape}",
                    f"{theirs:.2f}",
                    f"{ours:.2f}",
                    [Claim(f"at most {theirs:.2f}", ours <= theirs + 0.05)],
                    why,
                )
            )
    return [*lines, *(_speedups(found, "ID", shape) for shape in SHAPES), _chain_rule_comparison(found)]


def _chain_rule_comparison(found: Times) -> Comparison:
    """Compare chain rule and FD-1 in forward dynamics, at the largest chain of both."""
    chain_rule, differences = (found["FD", "chain", method] for method in ("chain rule", "FD-1"))
    n = max(chain_rule.keys() & differences.keys())
    ratio = chain_rule[n] / differences[n]
    claim = Claim("the chain rule takes longer than FD-1", ratio > 1.0, only_differs=True)
    why = "hyper-dual arrays, where NumPy takes all directions in one call"
    return Comparison("FD, chain: chain rule / FD-1", "more than 1 x", f"{times(ratio)} ({n} bodies)", [claim], why)


def _speedups(found: Times, kind: str, shape: str) -> Comparison:
    """Compare the other methods with the closed form, all in NumPy, at the largest number of bodies of each."""
    closed, ratios = found[kind, shape, f"{kind}SVA-SO"], []
    for method in ("bicomplex", "chain rule", "FD-1", "FD-2"):
        n = max(found[kind, shape, method])
        ratios.append((method, n, found[kind, shape, method][n] / closed[n]))
    return Comparison(
        f"{kind}, {shape}: other methods / closed form",
        "more than 10 x",
        ", ".join(f"{method} {times(ratio)} ({n} bodies)" for method, n, ratio in ratios),
        [Claim(f"{method} takes more than {FASTER:g} x", ratio > FASTER) for method, _, ratio in ratios],
        "all in NumPy, where call overhead dominates; Fortran in the paper",
    )


def _remarks(found: Times) -> list[str]:
    """Return remarks: speed-ups of forward dynamics (published as a plot), parts of FDSVA-SO, and the effect of NumPy."""
    parts = [f"FD, {shape}: other methods / closed form: {_speedups(found, 'FD', shape).ours}." for shape in SHAPES]
    fractions = []
    for shape in SHAPES:
        n = max(found["FD", shape, "FDSVA-SO, compiled"])
        total, inverse, first = (
            found[key][n]
            for key in (
                ("FD", shape, "FDSVA-SO, compiled"),
                ("ID", shape, "IDSVA-SO, compiled"),
                ("FD", shape, "FDSVA-FO, compiled"),
            )
        )
        fractions.append(
            f"{shape} of {n}: tensors of ID {100 * inverse / total:.0f} %, first order {100 * first / total:.0f} %, inner and outer"
            f" products and the rest {100 * (1 - (inverse + first) / total):.0f} %"
        )
    parts.append("Parts of FDSVA-SO, compiled: " + "; ".join(fractions) + ".")
    parts.append(
        "Times in NumPy grow more slowly than operations, since call overhead dominates; orders below the published ones"
        " are an effect of this overhead. The published algorithms are Fortran."
    )
    return parts


def _draw(found: Times, path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure, legend

    with figure(path, 1, 4, 14.0, 4.2, "Time of second derivatives [us] over the number of bodies") as axes:
        names = list(dict.fromkeys(LABELS.get(m, m) for _, _, m in found))
        for axis, (kind, shape) in zip(axes.flat, [(k, s) for k in ("ID", "FD") for s in SHAPES], strict=True):
            for (own_kind, own_shape, method), table in found.items():
                if (own_kind, own_shape) == (kind, shape):
                    name = LABELS.get(method, method)
                    color, line = COLORS[names.index(name)], "--" if "compiled" in name else "-"
                    axis.loglog(
                        list(table),
                        [1e6 * t for t in table.values()],
                        line,
                        marker="o",
                        markersize=3,
                        color=color,
                        label=name,
                    )
            axis.set_title(f"{kind}, {shape}")
            axis.set_xlabel("bodies")
        legend(axes, ncols=4, fontsize=7)
