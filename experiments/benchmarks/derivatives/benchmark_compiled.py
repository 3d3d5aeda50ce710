"""The compiled engine compared with other libraries: derivatives, Riccati recursion, complete iterations.

    python -m experiments.benchmark_compiled [--quick] [--out DIR]

Derivatives of forward dynamics are computed for a batch of 128 knots on one thread, between preallocated public arrays, by
the kernels of the library and on tapes; packing into lanes is included. Pinocchio is called from Python, once per knot.
CasADi's Jacobian (AD of the articulated-body algorithm) is CasADi's C code at -O3 -march=native, called once per knot by a
C loop. Peers and kernels are timed in alternating rounds. Each time is the median of the rounds. The table also has the
ratio of the fastest rounds, since other load only adds time. Pinocchio's wheel is compiled for any x86-64 processor;
"generic" is the time of our library for such processors, measured in a separate process afterwards.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.systems.bodies.free_body import FreeBody
from experiments.analysis.timing import program_call, samples
from experiments.benchmarks.derivatives.benchmark_first_order import load
from experiments.benchmarks.derivatives.benchmark_peers import casadi_call, robot_and_peer
from experiments.benchmarks.generic import COLUMN, GenericProcess, build_notes
from experiments.benchmarks.tables import machine, markdown, write_report
from experiments.benchmarks.timing import median_time

Array = np.ndarray
BATCH = 128
SHORTEST = 0.004  # [s] minimum time of a repetition: short enough to run between other load
TIERS = ("loops", "tape")
PINOCCHIO = {  # robot: required speed-up of the loops over Pinocchio
    "ur5": 7.0,
    "hyq": 5.0,
    "talos": 4.0,  # talos_reduced.urdf, whose fingers are fixed: 38 degrees of freedom
    "chain of 110": 1.2,
}
CASADI = ("ur5", "hyq")
GROWTH = (16, 64, 256, 1024, 4096)
DERIVATIVES = "first derivatives of forward dynamics"


class Times(NamedTuple):
    """Median and fastest time over rounds, in the unit of the entry."""

    median: float
    fastest: float


class Entry(NamedTuple):
    """One table row. ratio: peer / ours; figure: required ratio, or largest allowed value; generic: ours, for any CPU."""

    what: str
    unit: str
    peer: str
    peer_time: float | None
    ours: float
    ours_fastest: float
    ratio: float | None
    ratio_of_fastest: float | None
    figure: str
    holds: bool | None
    generic: float | None = None
    ratio_of_generic: float | None = None


def entry(
    what: str, unit: str, ours: Times, peer: str = "", theirs: Times | None = None, min_ratio=None, max_value=None
) -> Entry:
    """Create an entry with its ratio, and check it against its figure."""
    ratio = None if theirs is None else theirs.median / ours.median
    fastest = None if theirs is None else theirs.fastest / ours.fastest
    figure = f"ratio >= {min_ratio:g}" if min_ratio else f"<= {max_value:g} {unit}" if max_value else ""
    holds = ratio >= min_ratio if min_ratio and ratio else ours.median <= max_value if max_value else None
    theirs_median = None if theirs is None else theirs.median
    return Entry(what, unit, peer, theirs_median, *ours, ratio, fastest, figure, holds)


def interleaved_times(functions: Sequence[Callable[[], Any]], rounds: int, unit: float = 1e-6) -> list[Times]:
    """Time functions in alternating rounds, so that other load affects all of them."""
    times = [[median_time(f, 3, SHORTEST) / unit for f in functions] for _ in range(rounds)]
    return [Times(median(column), min(column)) for column in zip(*times, strict=True)]


# -- derivatives of forward dynamics ----------------------------------------------------------------------------------


def kernel_time(name: str, tier: str, rounds: int) -> float:
    """Return the median time per knot [us]."""
    model, _ = robot_and_peer(name, BATCH)
    call = program_call(FDSVA, model, BATCH, tape=tier == "tape")
    return interleaved_times([call], rounds, BATCH * 1e-6)[0].median


def with_generic(e: Entry, generic: float) -> Entry:
    """Add the time of our library for any processor to an entry."""
    return e._replace(generic=generic, ratio_of_generic=None if e.peer_time is None else e.peer_time / generic)


def derivatives(name: str, rounds: int, quick: bool, process: GenericProcess) -> Iterator[Entry]:
    """Compare all code forms of one robot with Pinocchio and CasADi."""
    model, pinocchio = robot_and_peer(name, BATCH)
    tiers = TIERS if name in CASADI else TIERS[:1]
    calls = [pinocchio, *(program_call(FDSVA, model, BATCH, tape=tier == "tape") for tier in tiers)]
    casadi = casadi_call(model, BATCH) if name in CASADI and not (quick and model.nv > 6) else None
    if casadi is not None:
        calls.append(casadi)
    theirs, *ours = interleaved_times(calls, rounds, BATCH * 1e-6)
    generic = {tier: process.call(kernel_time, name, tier, rounds) for tier in tiers}
    for tier, mine in zip(tiers, ours, strict=False):
        min_ratio = PINOCCHIO[name] if tier == "loops" else None
        found = entry(f"{DERIVATIVES}, {name} ({model.nv}), {tier}", "us/knot", mine, "Pinocchio", theirs, min_ratio)
        yield with_generic(found, generic[tier])
    if casadi is not None:
        fastest = tiers[-1]
        found = entry(
            f"{DERIVATIVES}, {name}, {fastest}", "us/knot", ours[len(tiers) - 1], "CasADi AD, C", ours[-1], 5.0
        )
        yield with_generic(found, generic[fastest])


# -- comparisons within the engine -----------------------------------------------------------------------------------------------


def differences(rounds: int) -> Entry:
    """Compare central differences with the closed form, both compiled, through the public backend."""
    model = load("hyq").model
    system = FreeBody(model)
    q, v, tau = samples(model, BATCH)
    x, u = np.concatenate([q, v], axis=1), np.ascontiguousarray(tau[:, 6:])
    backends = [make_backend(system, name, engine="compiled") for name in ("central_difference", "analytic")]
    theirs, ours = interleaved_times([partial(b.jacobians, x, u) for b in backends], rounds, BATCH * 1e-6)
    return entry("Jacobians of HyQ, analytic", "us/knot", ours, "central differences", theirs)


def growth(rounds: int) -> Iterator[Entry]:
    """Measure the time per knot over the number of knots, and on two threads."""
    model = load("hyq").model
    times = [interleaved_times([program_call(FDSVA, model, n)], rounds, n * 1e-6)[0] for n in GROWTH]
    for n, t in zip(GROWTH[1:], times[1:], strict=True):
        yield entry(f"{DERIVATIVES}, hyq, {n} knots", "us/knot", t, f"{GROWTH[0]} knots", times[0])
    one, two = interleaved_times(
        [program_call(FDSVA, model, GROWTH[-1], threads=threads) for threads in (1, 2)], rounds, GROWTH[-1] * 1e-6
    )
    yield entry(f"{DERIVATIVES}, hyq, {GROWTH[-1]} knots, two threads", "us/knot", two, "one thread", one, 1.7)


def riccati(rounds: int) -> Iterator[Entry]:
    """Time the Riccati recursion over 100 knots."""
    from trajopt.lq.lq import LQProblem
    from trajopt.lq.lq_solver import solve_riccati

    rng, N = np.random.default_rng(0), 100
    for n, m, max_value in ((12, 6, 2.5), (36, 12, 22.0)):
        R, Q = np.tile(np.eye(m), (N, 1, 1)), np.tile(np.eye(n), (N + 1, 1, 1))
        A, B = np.eye(n) + 0.01 * rng.standard_normal((N, n, n)), 0.1 * rng.standard_normal((N, n, m))
        rest = [rng.standard_normal(s) for s in ((N + 1, n), (N, m, n), (N, m), n)]
        lq = LQProblem(A, B, np.zeros((N, n)), Q, rest[0], 0.01 * rest[1], R, rest[2], rest[3])
        (times,) = interleaved_times([partial(solve_riccati, lq)], rounds, N * 1e-6)
        yield entry(f"Riccati, nx {n}, nu {m}", "us/knot", times, max_value=max_value)


def iteration(rounds: int) -> Iterator[Entry]:
    """Measure complete solver iterations of the UR5 reach with 100 knots, and a complete solve."""
    import problems
    from trajopt.config.build import build_task, solve_task
    from trajopt.config.config import load_config

    os.environ["TRAJOPT_THREADS"] = "2"
    config = load_config(Path(problems.__file__).parent / "configs" / "ur5_reach.toml", ["engine=compiled"])
    task = build_task(config)
    steps, solves = [], []
    for _ in range(2 * rounds):
        stamps: list[float] = []
        solution = solve_task(config, task, partial(_stamp, stamps))
        steps.append((stamps[-1] - stamps[0]) / (len(stamps) - 1) * 1e3)
        solves.append(solution.meta["solve_time"] * 1e3)
    yield entry("SLQ iteration, UR5, 100 knots", "ms", Times(median(steps), min(steps)), max_value=0.6)
    yield entry(f"SLQ solve, UR5, {solution.iterations} iterations", "ms", Times(median(solves), min(solves)))
    os.environ["TRAJOPT_THREADS"] = "1"


def _stamp(stamps: list[float], record: Any) -> None:
    stamps.append(time.perf_counter())


# -- the report ---------------------------------------------------------------------------------------------------------


HEADER = (
    *("what", "unit", "peer", "peer's", "ours", "fastest", "ratio", "ratio of fastest"),
    *(COLUMN, "ratio of generic", "figure", "held"),
)


def cells(e: Entry) -> list[str]:
    """Format an entry as table cells."""

    def number(x: float | None) -> str:
        return "" if x is None else f"{x:.3g}"

    verdict = {None: "", True: "yes", False: "NO"}[e.holds]
    ratios = (number(e.ratio), number(e.ratio_of_fastest))
    return [
        e.what,
        e.unit,
        e.peer,
        number(e.peer_time),
        number(e.ours),
        number(e.ours_fastest),
        *ratios,
        number(e.generic),
        number(e.ratio_of_generic),
        e.figure,
        verdict,
    ]


def entries(rounds: int, quick: bool) -> Iterator[Entry]:
    """Yield all entries."""
    with GenericProcess() as process:
        for name in PINOCCHIO:
            yield from derivatives(name, rounds, quick, process)
    yield differences(rounds)
    yield from riccati(rounds)
    yield from iteration(rounds)
    yield from growth(rounds)


def main() -> None:
    """Run, print each row, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, CasADi for the smallest robot only")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_compiled"), help="folder of the results")
    options = parser.parse_args()
    os.environ["TRAJOPT_THREADS"] = "1"
    results = []
    for e in entries(5 if options.quick else 15, options.quick):
        results.append(e)
        print("  ".join(c for c in cells(e) if c), flush=True)
    how = f"{machine()}\n\n{build_notes('Pinocchio', 'CasADi')}"
    table = markdown(HEADER, map(cells, results), options.out / "table.csv")
    text = "\n\n".join(["# The compiled engine", how, table + "\n"])
    write_report(options.out, text, report=results)


if __name__ == "__main__":
    main()
