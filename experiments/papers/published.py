"""The published figures, each with the experiment that sets ours beside it, or why none does.

``what`` begins the name of the comparison in the experiment's report.  ``why``: for figures without an experiment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from experiments.papers.study import Comparison


class Figure(NamedTuple):
    """One published figure."""

    paper: str
    what: str
    figure: str
    experiment: str | None
    why: str = ""


def _kudruss() -> Iterable[Figure]:
    paper = "Kudruss 2019"
    for method, error in {"FD": "5e-06", "FDC": "1e-08", "AD": "1e-14", "ED": "1e-14"}.items():
        yield Figure(paper, f"mean error of {method},", f"about {error}", "derivative-accuracy")
    for name in ("solve (1)",):
        yield Figure(paper, name, "ED below a quarter of FD", "directions-cost")
    yield Figure(paper, "FDCONT", "FD 1 + n, FDC 1 + 2 n, AD at most 1 + 1.5 n evaluations", "directions-cost")
    for load in (0, 5, 15):
        yield Figure(paper, f"iterations with {load} kg", "AD up to 10 % fewer", "lifting-convergence")
    why = "theory: roots of the machine epsilon; what is measured stands beside the measured ones"
    yield Figure(paper, "theoretical errors of FD and FDC", "1.05e-8, 2.31e-11", None, why)


def _singh() -> Iterable[Figure]:
    paper = "Singh 2023"
    robots = ("double pendulum (2)", "UR3 (6)", "HyQ (18)", "Baxter (19)", "ATLAS (36)", "Talos (50)")
    second = {"ID": (1.54, 8.41, 54.8, 35.6, 197.1, 365.0), "FD": (3.71, 21.0, 183.0, 142.0, 2147.0, 6209.0)}
    first = {"ID": (0.5, 1.6, 4.6, None, 11.2, 16.6), "FD": (1.0, 3.7, 12.0, None, 36.0, 67.0)}
    for order, times in (("second", second), ("first", first)):
        for kind, values in times.items():
            for robot, t in zip(robots, values, strict=True):
                if t is not None:
                    yield Figure(paper, f"{order}-order {kind}, {robot}", f"{t:.4g} us", "second-order-robots")
    orders = {
        "bicomplex": (2.98, 2.98),
        "chain rule": (3.05, 3.17),
        "FD-1": (3.02, 3.03),
        "FD-2": (2.38, 2.15),
        "IDSVA-SO, compiled": (3.08, 1.45),
        "IDSVA-FO, compiled": (1.76, 1.03),
    }
    for method, pair in orders.items():
        for shape, slope in zip(("chain", "binary tree"), pair, strict=True):
            yield Figure(paper, f"order of {method}, {shape}", f"{slope:.2f}", "second-order-growth")
    for kind in ("ID", "FD"):
        yield Figure(paper, f"worst RMSRE of second-order {kind}", "closed form < FD-2 < FD-1", "second-order-errors")
    for method in ("FD-1", "FD-2"):
        yield Figure(paper, f"best steps of {method}", "one range for nearly all sizes", "difference-steps")
    for term in ("inner", "outer"):
        yield Figure(paper, f"{term} term", "plotted", "tensor-products")
    yield Figure(paper, "C code of second-order ID", "AD: millions of lines, 12 MB", "code-size")
    why = "of an earlier version, other processor; the rows of fig. 10 and 19 hold the later figures"
    yield Figure(paper, "a quadruped, conference version", "51 us; 1.5 to 3 x AD", None, why)
    why = "C++ on both sides there; from Python in the same run by the experiment peers"
    yield Figure(paper, "first order beside Pinocchio", "up to 1.4 x", None, why)


def _astudillo() -> Iterable[Figure]:
    paper = "Astudillo 2021"
    functions = ("FD", "J_FD AD", "J_FD analytic", "ID", "J_ID AD", "J_ID analytic")
    totals = {
        "double pendulum": (85, 292, 327, 65, 162, 241),
        "KUKA iiwa7": (2675, 33160, 11874, 1150, 9472, 7739),
        "Kinova Gen3": (3424, 40051, 14565, 1492, 11955, 9426),
        "Atlas (30)": (11564, 703094, 164975, 4627, 74628, 52604),
    }
    for robot, counts in totals.items():
        for function, count in zip(functions, counts, strict=True):
            yield Figure(paper, f"{function}, {robot}", f"{count:,}", "operation-counts")
    yield Figure(paper, "all functions, ABB Yumi", "2,416 to 99,890", "operation-counts")
    for kind, saved, native in (("FD", "58 %", "2.35 x"), ("ID", "21 %", "1.42 x")):
        yield Figure(paper, f"J_{kind}: time that closed forms save against AD as C", saved, "jacobian-times")
        yield Figure(paper, f"J_{kind}: Pinocchio's own by generated code", native, "jacobian-times")
    times = {("FD", "analytic"): 84.33, ("FD", "AD"): 58.84, ("ID", "analytic"): 56.76, ("ID", "AD"): 38.31}
    for (kind, how), t in times.items():
        yield Figure(paper, f"Hessian of lambda' {kind}, {how}", f"{t} us", "hessian-times")
    for form, ratio in (("OCP-FD", 1.29), ("OCP-ID", 1.09)):
        yield Figure(paper, f"{form}: time with AD by that with closed forms", f"{ratio} x", "contour-times")


def _giftthaler() -> Iterable[Figure]:
    paper = "Giftthaler 2017"
    yield Figure(paper, "analytic L'L by Auto-Diff codegen", "1.1 x", "torque-derivative")
    yield Figure(paper, "naive analytic inverse by Auto-Diff codegen", "more than 7 x", "torque-derivative")
    yield Figure(paper, "difference of Auto-Diff and analytic", "< 1e-13", "torque-derivative")
    yield Figure(paper, "difference of Num-Diff", "about 1e-6", "torque-derivative")
    for quantity in ("forward dynamics", "inverse dynamics"):
        yield Figure(paper, f"{quantity}: Num-Diff by AD as C", "10 to 40 x", "derivative-modes")
    for task in ("trot", "gallop"):
        yield Figure(paper, f"{task}: time of an iteration", "up to 5 x", "slq-gaits")
    yield Figure(paper, "planning, 1 threads: Num-Diff by Auto-Diff", "2 x", "replanning-times")
    yield Figure(paper, "IPOPT iterations of replanning", "13 to 15", "replanning-times")
    yield Figure(paper, "replanning with generated derivatives, longest", "below 50 ms", "replanning-times")
    yield Figure(paper, "the arm keeps clear of the sphere", "shown on the robot", "avoiding-arm")
    why = "another robot and processor, horizon of 0.5 s; rates of replanning here: python -m experiments.benchmark_replanning"
    yield Figure(paper, "NMPC of a later paper (Neunert 2018)", "up to 190 Hz", None, why)
    why = "the duration of whole solves of SLQ on that machine; times of an iteration stand above"
    yield Figure(paper, "SLQ, absolute", "more than a minute, 15 to 50 iterations", None, why)


FIGURES: tuple[Figure, ...] = (*_kudruss(), *_singh(), *_astudillo(), *_giftthaler())
"""All of them."""


def missing(experiment: str, comparisons: Iterable[Comparison]) -> list[Figure]:
    """The figures of an experiment that none of its comparisons is about."""
    named = [c.what for c in comparisons]
    return [f for f in FIGURES if f.experiment == experiment and not any(what.startswith(f.what) for what in named)]
