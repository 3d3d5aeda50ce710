"""List of the published figures, each with its experiment, or with the reason why none reproduces it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from experiments.papers.study import Comparison


class Figure(NamedTuple):
    """A published figure. what: start of the comparison's name in the report; why: reason for a missing experiment."""

    paper: str
    what: str
    figure: str
    experiment: str | None
    why: str = ""


def _kudruss() -> Iterable[Figure]:
    paper = "Kudruss 2019"
    for method, error in {"FD": "5e-06", "FDC": "1e-08", "AD": "1e-14", "ED": "1e-14"}.items():
        yield Figure(paper, f"mean error of {method},", f"about {error}", "derivative-accuracy")
    for model in ("minimal", "with constraints"):
        what = f"order of the algorithms by FD's mean error, {model}"
        yield Figure(paper, what, "CRBA best, ABA worst", "derivative-accuracy")
    yield Figure(paper, "gain of exact derivatives over FD", "up to 5 orders", "derivative-accuracy")
    yield Figure(paper, "solve (1) by QR", "ED below a quarter of FD", "directions-cost")
    for measure in ("time", "operations"):
        yield Figure(paper, f"FDCONT, {measure}", "AD as FD, ED below", "directions-cost")
        for name in ("NEFF", "CRBA"):
            yield Figure(paper, f"{name}, {measure}", "AD between FD and FDC, ED below FD", "directions-cost")
    for load in (0, 5, 15):
        yield Figure(paper, f"iterations with {load} kg", "AD up to 10 % fewer", "lifting-convergence")
    why = "theory: roots of the machine epsilon; measured errors are compared with the measured ones"
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
    for shape in ("chain", "binary tree"):
        yield Figure(paper, f"ID, {shape}: other methods / closed form", "more than 10 x", "second-order-growth")
    yield Figure(paper, "FD, chain: chain rule / FD-1", "more than 1 x", "second-order-growth")
    accuracies = {"ID": "closed form as chain rule < FD-2 < FD-1", "FD": "chain rule < closed form < FD-1"}
    for kind, accuracy in accuracies.items():
        yield Figure(paper, f"worst RMSRE of second-order {kind}", accuracy, "second-order-errors")
        what = f"mean RMSRE of second-order {kind}, trees / chains"
        yield Figure(paper, what, "trees below chains", "second-order-errors")
    for method in ("FD-1", "FD-2"):
        yield Figure(paper, f"best steps of {method}", "one range for nearly all sizes", "difference-steps")
    for term in ("inner", "outer"):
        for avx in ("AVX on", "AVX off"):
            yield Figure(paper, f"{term} term, {avx}", "plotted", "tensor-products")
        yield Figure(paper, f"{term} term: AVX off / AVX on", "plotted", "tensor-products")
    yield Figure(paper, "C code of second-order ID", "AD: millions of lines, 12 MB", "code-size")
    why = "plotted only; its crossovers depend on the machine, and those of chains are compared"
    yield Figure(paper, "inner and outer terms of binary trees (fig. 14)", "plotted", None, why)
    why = (
        "the available text lacks the ratio; this library has the loops over three bodies, the faster ones in the paper"
    )
    yield Figure(paper, "loops over three bodies by loops over two", "faster", None, why)
    why = "of an earlier version, other processor; the rows of fig. 10 and 19 hold the later figures"
    yield Figure(paper, "a quadruped, conference version", "51 us; 1.5 to 3 x AD", None, why)
    why = "C++ for both in the paper; the experiment peers compares both from Python in the same run"
    yield Figure(paper, "first order compared with Pinocchio", "up to 1.4 x", None, why)


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
    divisions = {"double pendulum": "9, 12 by AD", "KUKA iiwa7": "101, 272 by AD", "Kinova Gen3": "114, 291 by AD"}
    for robot, numbers in divisions.items():
        yield Figure(paper, f"divisions of J_FD analytic, {robot}", numbers, "operation-counts")
    yield Figure(paper, "all functions, ABB Yumi", "2,416 to 99,890", "operation-counts")
    for kind, saved, native in (("FD", "58 %", "2.35 x"), ("ID", "21 %", "1.42 x")):
        yield Figure(paper, f"J_{kind}: time saved by closed forms against AD as C", saved, "jacobian-times")
        yield Figure(paper, f"J_{kind}: closed form / {kind}, at most 7 joints", "comparable", "jacobian-times")
        yield Figure(paper, f"J_{kind}: Pinocchio's own code / generated code", native, "jacobian-times")
    times = {("FD", "analytic"): 84.33, ("FD", "AD"): 58.84, ("ID", "analytic"): 56.76, ("ID", "AD"): 38.31}
    for (kind, how), t in times.items():
        yield Figure(paper, f"Hessian of lambda' {kind}, {how}", f"{t} us", "hessian-times")
    for form, ratio in (("OCP-FD", 1.29), ("OCP-ID", 1.09)):
        what = f"{form}: time with AD / time with closed forms, QPs by qrqp"
        yield Figure(paper, what, f"{ratio} x", "contour-times")
    for kind in ("FD", "ID"):
        yield Figure(paper, f"AD of AD below AD of the closed form, {kind}", "both figures", "hessian-times")


def _giftthaler() -> Iterable[Figure]:
    paper = "Giftthaler 2017"
    for form in ("in loops", "generated"):
        yield Figure(paper, f"analytic L'L / Auto-Diff codegen, {form}", "1.1 x", "torque-derivative")
        yield Figure(paper, f"naive analytic inverse / Auto-Diff codegen, {form}", "more than 7 x", "torque-derivative")
    yield Figure(paper, "Num-Diff / Auto-Diff codegen", "the slowest of all", "torque-derivative")
    yield Figure(paper, "difference of Auto-Diff and analytic", "< 1e-13", "torque-derivative")
    yield Figure(paper, "difference of Num-Diff", "about 1e-6", "torque-derivative")
    for quantity, mode in {"forward dynamics": "forward", "inverse dynamics": "reverse", "feet": "forward"}.items():
        yield Figure(paper, f"{quantity}: Num-Diff / AD as C", "10 to 40 x", "derivative-modes")
        yield Figure(paper, f"{quantity}: the faster mode", mode, "derivative-modes")
    for way in ("pseudo-inverse", "elimination"):
        yield Figure(paper, f"free-base ID, {way}: Num-Diff / AD as C", "n/a (eq. 12 to 15)", "derivative-modes")
    for task in ("trot", "gallop"):
        yield Figure(paper, f"{task}: time of an iteration", "up to 5 x", "slq-gaits")
        yield Figure(paper, f"{task}: iterations of SLQ", "15 to 50", "slq-gaits")
    yield Figure(paper, "planning, 1 threads: Num-Diff / Auto-Diff", "2 x", "replanning-times")
    yield Figure(paper, "IPOPT iterations of replanning", "13 to 15", "replanning-times")
    yield Figure(paper, "replanning with exact derivatives, longest", "below 50 ms", "replanning-times")
    yield Figure(paper, "the arm keeps clear of the sphere", "shown on the robot", "avoiding-arm")
    why = "another robot and processor, horizon of 0.5 s; our replanning rates: python -m experiments.benchmark_replanning"
    yield Figure(paper, "NMPC of a later paper (Neunert 2018)", "up to 190 Hz", None, why)
    why = "the duration of whole solves of SLQ on that machine; times and numbers of iterations are above"
    yield Figure(paper, "SLQ, absolute", "more than a minute saved", None, why)
    why = "commercial; the paper found it slower than IPOPT in all experiments and shows no figure of it"
    yield Figure(paper, "planning by SNOPT", "slower than IPOPT", None, why)


FIGURES: tuple[Figure, ...] = (*_kudruss(), *_singh(), *_astudillo(), *_giftthaler())
"""All published figures."""


def missing(experiment: str, comparisons: Iterable[Comparison]) -> list[Figure]:
    """Return the figures of an experiment that its comparisons lack."""
    named = [c.what for c in comparisons]
    return [f for f in FIGURES if f.experiment == experiment and not any(what.startswith(f.what) for what in named)]
