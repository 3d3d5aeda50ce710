"""Second-order derivatives compared with Singh, Russell, Wensing (arXiv 2302.06001): time, accuracy, growth.

    python -m experiments.benchmark_second_order [--full] [--out DIR]

Time: tensors of a batch of 128 knots on one thread, between preallocated public arrays, including packing. Times are
medians of processor time over alternating rounds, for the faster of the library's loops and a tape. The paper's times are
the best of its compilers, with and without generated code, on an Intel i5-12400 (figures 10 and 19); its ATLAS (36) is
compared with the G1 (35). The contraction is compared with first order alone.

Accuracy: relative to bicomplex numbers in the recursive Newton-Euler and articulated-body algorithms. Growth: log-log
slopes over the number of bodies, of the time per knot and of the operations of the loops. Times are measured for calls
with 8 knots, one block of lanes, since the paper times single calls (call overhead affects small models); and for
batches, where large models exceed the caches.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.loops.unrolled import unrolled_trace
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.derivatives.rnea_second_order import ID_SECOND_ORDER
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.sample_models import binary_tree, chain
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from experiments.analysis.tally import operations
from experiments.analysis.timing import interleaved_times, program_call, samples
from experiments.baselines import second_order_errors, second_order_references as references
from experiments.baselines.fd_tensors import FDSVA_SO
from experiments.baselines.rnea_tensors import IDSVA_SO, rnea_tensors
from experiments.benchmarks.derivatives.benchmark_compiled import BATCH
from experiments.benchmarks.tables import machine, markdown, write_report
from problems.robots import load_robot

Array = np.ndarray
ON_TAPE_UP_TO = 10  # maximum degrees of freedom for tapes of tensors
ROBOTS = {  # name in example-robot-data: base, published times of ID and FD tensors, largest allowed time of ID [us]
    "double_pendulum": ("fixed", 1.54, 3.71, None),
    "ur3": ("fixed", 8.41, 21.0, None),
    "ur5": ("fixed", None, None, 3.5),
    "hyq": ("floating", 54.8, 183.0, 16.0),
    "baxter": ("fixed", 35.6, 142.0, None),
    "g1_29dof_rev_1_0": ("floating", 197.1, 2147.0, None),
    "talos": ("floating", None, None, 80.0),
    "talos_full": ("floating", 365.0, 6209.0, None),
}
CONTRACTED = {"ur5": 7_000, "hyq": 25_100}  # largest allowed operations of first-order ID with the contraction
USUAL = ("double_pendulum", "ur5", "hyq", "talos")  # without --full
TENSORS = {
    IDSVA_SO.name: "second derivatives of inverse dynamics",
    FDSVA_SO.name: "second derivatives of forward dynamics",
}
RATIO = 1.8  # largest allowed ratio of first order with contraction / first order alone
SHAPES = {"chain": chain, "binary tree": binary_tree}
BODIES = (2, 3, 7, 15, 31, 63, 110)  # the paper's range
KNOTS = 8  # smallest call whose growth is measured
GROWTH = {  # largest allowed slopes over chains and binary trees
    "IDSVA-SO": (IDSVA_SO, 3.08, 1.45),
    "IDSVA-FO": (IDSVA, 1.76, 1.03),
    "contraction": (ID_SECOND_ORDER, 2.1, 1.3),
}


class Line(NamedTuple):
    """One measurement, the value it is compared with, and its largest allowed value."""

    what: str
    unit: str
    ours: float
    other: float | None = None
    figure: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """True if the value is at most the largest allowed one; None without one."""
        return None if self.figure is None else self.ours <= self.figure

    def cells(self) -> list[str]:
        """Format as table cells."""
        ratio = None if self.other is None else self.ours / self.other
        numbers = ("" if x is None else f"{x:.3g}" for x in (self.ours, self.other, ratio, self.figure))
        return [self.what, self.unit, *numbers, {None: "", True: "yes", False: "NO"}[self.holds], self.note]


HEADER = ("what", "unit", "ours", "other", "ratio", "at most", "held", "note")


def robot(name: str) -> Model:
    """Load a robot of ROBOTS."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", URDFWarning)
        return load_robot(f"erd:{name}", base=ROBOTS[name][0])


# -- time -----------------------------------------------------------------------------------------------------------------


def cpu_times(calls: Sequence[Callable[[], Any]], rounds: int, knots: int = BATCH) -> list[list[float]]:
    """Return the processor time per knot [us] of each call in each round."""
    return [[1e6 * seconds / knots for seconds in column] for column in interleaved_times(calls, rounds)]


def tensors(name: str, rounds: int) -> Iterator[Line]:
    """Measure ID and FD tensors of one robot."""
    model, (_, *paper, most) = robot(name), ROBOTS[name]
    for program, theirs in zip((IDSVA_SO, FDSVA_SO), paper, strict=True):
        tiers = (False, True) if model.nv <= ON_TAPE_UP_TO else (False,)
        calls = [program_call(program, model, BATCH, tape=tape) for tape in tiers]
        times = cpu_times(calls, rounds)
        medians = [median(t) for t in times]
        best = int(np.argmin(medians))
        note = f"{('loops', 'tape')[best]}, fastest turn {min(times[best]):.3g}"
        if model.nv <= ON_TAPE_UP_TO:
            note += f", {sum(unrolled_trace(program, model).count().values())} operations"
        figure = most if program is IDSVA_SO else None
        yield Line(
            f"{TENSORS[program.name]}, {name} ({model.nv})", "us/knot", min(medians), theirs, figure or theirs, note
        )


def contraction(name: str, rounds: int) -> Iterator[Line]:
    """Compare first order with contraction to first order alone; count both operations in inverse dynamics."""
    model = robot(name)
    for tape in (False, True) if model.nv <= 20 else (False,):
        calls = [program_call(p, model, BATCH, tape=tape) for p in (FDSVA, FD_SECOND_ORDER)]
        first, both = map(median, cpu_times(calls, 4 * rounds))
        note = f"{both:.3g} / {first:.3g} us/knot, {'tape' if tape else 'loops'}"
        yield Line(
            f"forward dynamics, {name}: first order with contraction / first order", "", both / first, None, RATIO, note
        )
    if name in CONTRACTED:
        count = sum(unrolled_trace(ID_SECOND_ORDER, model).count().values())
        yield Line(
            f"inverse dynamics, {name}: first order with contraction", "operations", count, None, CONTRACTED[name]
        )


def double_loop(name: str, rounds: int) -> Line:
    """Compare the paper's double loop of IDSVA-SO with the form that vectorizes over all triples, both in NumPy."""
    model = robot(name)
    point = [rows.T for rows in samples(model, 8)]
    ours, other = map(
        median,
        cpu_times([partial(f, model, *point) for f in (rnea_tensors, references.rnea_tensors_double_loop)], rounds, 8),
    )
    return Line(
        f"{TENSORS[IDSVA_SO.name]} in NumPy, {name}, all triples vectorized, compared with the double loop",
        "us/knot",
        ours,
        other,
    )


# -- accuracy -------------------------------------------------------------------------------------------------------------


def accuracy(shape: str, bodies: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Measure the errors of all methods relative to bicomplex numbers, for inverse and forward dynamics."""
    for function, method, found, expected in second_order_errors.tensors(SHAPES[shape](bodies)):
        yield f"{function}, {shape} of {bodies}, {method}", second_order_errors.measures(found, expected)


# -- growth ---------------------------------------------------------------------------------------------------------------


def slope(values: list[float]) -> float:
    """Return the least-squares slope of log value over log BODIES."""
    return float(np.polyfit(np.log(BODIES[: len(values)]), np.log(values), 1)[0])


def _batch(bodies: int) -> int:
    """Return a batch size that hides call overhead, as far as the memory of the tensors allows."""
    return int(np.clip(2**21 // bodies**3 // KNOTS * KNOTS, KNOTS, BATCH))


def growth(rounds: int) -> Iterator[Line]:
    """Measure the orders of time, in loops, and of operations."""
    for name, (program, *most) in GROWTH.items():
        for (shape, make), figure in zip(SHAPES.items(), most, strict=True):
            models = [make(n) for n in BODIES]
            for what, batches in (
                ("a call for 8 knots", [KNOTS] * len(BODIES)),
                ("batches", list(map(_batch, BODIES))),
            ):
                pairs = list(zip(models, batches, strict=True))
                times = [median(cpu_times([program_call(program, m, n)], rounds, n)[0]) for m, n in pairs]
                note = f"{times[0]:.3g} us/knot for {BODIES[0]} bodies, {times[-1]:.3g} for {BODIES[-1]}"
                yield Line(f"{name}, {shape}, order of the time of {what}", "", slope(times), None, figure, note)
            counts = [float(operations(program, model)) for model in models]
            note = f"{counts[-1]:.3g} operations for {BODIES[-1]} bodies"
            yield Line(f"{name}, {shape}, order of operations", "", slope(counts), None, figure, note)


# -- the report -----------------------------------------------------------------------------------------------------------


def lines(rounds: int, full: bool) -> Iterator[Line]:
    """Yield all comparisons."""
    for name in ROBOTS if full else USUAL:
        yield from tensors(name, rounds)
    for name in ("ur5", "hyq", "talos"):
        yield from contraction(name, rounds)
    for name in ("ur5", "hyq"):
        yield double_loop(name, rounds)
    yield from growth(rounds)


def main() -> None:
    """Run, print each row, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all robots, more rounds, longer chains and trees")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_second_order"), help="folder of the results")
    options = parser.parse_args()
    os.environ["TRAJOPT_THREADS"] = "1"
    results = []
    for line in lines(21 if options.full else 5, options.full):
        results.append(line)
        print("  ".join(c for c in line.cells() if c), flush=True)
    errors = [e for n in ((3, 7, 15) if options.full else (3, 7)) for shape in SHAPES for e in accuracy(shape, n)]
    error_rows = ([name, *(f"{x:.1e}" for x in e.values())] for name, e in errors)
    table = markdown(("robot", *errors[0][1]), error_rows, options.out / "errors.csv")
    parts = [
        "# Second-order derivatives",
        machine(),
        markdown(HEADER, (line.cells() for line in results), options.out / "table.csv"),
        table + "\n",
    ]
    write_report(options.out, "\n\n".join(parts), report=results)


if __name__ == "__main__":
    main()
