"""The compiled engine beside its peers: time of derivatives, of the Riccati recursion, of a whole iteration, and of
compilation.

    python -m experiments.benchmark_compiled [--quick] [--out DIR]

Derivatives of forward dynamics are those of a batch of 128 knots on one thread, from public arrays into reused public
arrays: packing into lanes is counted.  Pinocchio is called from Python, once for each knot; CasADi's Jacobian (AD of
the articulated-body algorithm) is its own C code at -O3 -march=native, called for each knot by a loop in C.  Peers
and kernels are timed in turns.  Each time is the median of the turns; beside the ratio of medians stands that of the
fastest turns, since other load only adds time.  Pinocchio's wheel is compiled for any x86-64 processor; "generic" is the time of
the same kernel compiled so, in a process of its own after the turns, and the ratio to the peer with it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.loops.kernel import CompiledKernel
from dynamics_backends.compiled.loops.loops import loop_kernel
from dynamics_backends.compiled.loops.unrolled import unrolled_kernel
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.free_body import FreeBody
from experiments.analysis.timing import samples
from experiments.benchmarks.derivatives.benchmark_first_order import load
from experiments.benchmarks.derivatives.benchmark_peers import casadi_call, robot_and_peer
from experiments.benchmarks.generic import COLUMN, GenericProcess, sides
from experiments.benchmarks.tables import machine, markdown, write_report
from experiments.benchmarks.timing import median_time

Array = np.ndarray
BATCH = 128
SHORTEST = 0.004  # [s] of a repetition: short enough to fall between other load
USUAL_JOINTS = ("revolute", "prismatic", "floating")
PINOCCHIO = {  # robot: at least this much faster than Pinocchio, in loops and unrolled
    "ur5": (7.0, 12.0),
    "hyq": (5.0, 8.0),
    "talos": (4.0, 4.0),  # talos_reduced.urdf, whose fingers are fixed: 38 degrees of freedom
    "chain of 110": (1.2, None),
}
CASADI = ("ur5", "hyq")
GROWTH = (16, 64, 256, 1024, 4096)


class Times(NamedTuple):
    """Times of several turns, in the unit of the entry."""

    median: float
    fastest: float


class Entry(NamedTuple):
    """One line. ratio: peer / ours; the figure is a least ratio, or else a greatest value of ours. generic: ours, compiled for any
    processor, and its ratio."""

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
    what: str, unit: str, ours: Times, peer: str = "", theirs: Times | None = None, least=None, most=None
) -> Entry:
    """An entry with its ratio and verdict."""
    ratio = None if theirs is None else theirs.median / ours.median
    fastest = None if theirs is None else theirs.fastest / ours.fastest
    figure = f"ratio >= {least:g}" if least else f"<= {most:g} {unit}" if most else ""
    holds = ratio >= least if least and ratio else ours.median <= most if most else None
    theirs_median = None if theirs is None else theirs.median
    return Entry(what, unit, peer, theirs_median, *ours, ratio, fastest, figure, holds)


def in_turns(functions: Sequence[Callable[[], Any]], turns: int, unit: float = 1e-6) -> list[Times]:
    """Times of functions called in turns, so that load on the machine meets all of them."""
    times = [[median_time(f, 3, SHORTEST) / unit for f in functions] for _ in range(turns)]
    return [Times(median(column), min(column)) for column in zip(*times, strict=True)]


def once(function: Callable[[], Any]) -> tuple[Times, Any]:
    """Seconds of a call that can be made but once, and its result."""
    began = time.perf_counter()
    result = function()
    seconds = time.perf_counter() - began
    return Times(seconds, seconds), result


# -- derivatives of forward dynamics ----------------------------------------------------------------------------------


def kernel(model: Model, tier: str) -> CompiledKernel:
    """FDSVA for a model: a, da/dq, da/dv, M^-1."""
    source = unrolled_kernel(FDSVA, model) if tier == "unrolled" else loop_kernel(FDSVA, USUAL_JOINTS)
    n = model.nv
    return CompiledKernel(source, model, [(n,), (n, n), (n, n), (n, n)])


def call_of(k: CompiledKernel, model: Model, batch: int = BATCH, threads: int = 1) -> Callable[[], Any]:
    """A call for a batch, into reused arrays."""
    inputs, out = samples(model, batch), k.buffers(batch)
    return lambda: k(*inputs, out=out, threads=threads)


def kernel_time(name: str, tier: str, turns: int) -> float:
    """Microseconds a knot, the median of turns."""
    model, _ = robot_and_peer(name, BATCH)
    return in_turns([call_of(kernel(model, tier), model)], turns, BATCH * 1e-6)[0].median


def with_generic(e: Entry, generic: float) -> Entry:
    """The entry with the time of ours compiled for any processor."""
    return e._replace(generic=generic, ratio_of_generic=None if e.peer_time is None else e.peer_time / generic)


def derivatives(name: str, turns: int, quick: bool, process: GenericProcess) -> Iterator[Entry]:
    """One robot in all tiers against Pinocchio and CasADi."""
    model, pinocchio = robot_and_peer(name, BATCH)
    least = dict(zip(("loops", "unrolled"), PINOCCHIO[name], strict=True))
    tiers = [t for t in least if least[t] and not (quick and t == "unrolled" and model.nv > 20)]
    calls = [pinocchio, *(call_of(kernel(model, tier), model) for tier in tiers)]
    casadi = casadi_call(model, BATCH) if name in CASADI and not (quick and model.nv > 6) else None
    if casadi is not None:
        calls.append(casadi)
    theirs, *ours = in_turns(calls, turns, BATCH * 1e-6)
    generic = {tier: process.call(kernel_time, name, tier, turns) for tier in tiers}
    for tier, mine in zip(tiers, ours, strict=False):
        found = entry(f"dFD {name} ({model.nv}), {tier}", "us/knot", mine, "Pinocchio", theirs, least[tier])
        yield with_generic(found, generic[tier])
    if casadi is not None:
        fastest = tiers[-1]
        found = entry(f"dFD {name}, {fastest}", "us/knot", ours[len(tiers) - 1], "CasADi AD, C", ours[-1], 5.0)
        yield with_generic(found, generic[fastest])


# -- the engine by itself -----------------------------------------------------------------------------------------------


def differences(turns: int) -> Entry:
    """Central differences against the closed form, both compiled, through the public backend."""
    model = load("hyq").model
    system = FreeBody(model)
    q, v, tau = samples(model, BATCH)
    x, u = np.concatenate([q, v], axis=1), np.ascontiguousarray(tau[:, 6:])
    backends = [make_backend(system, name, engine="compiled") for name in ("central_difference", "analytic")]
    theirs, ours = in_turns([partial(b.jacobians, x, u) for b in backends], turns, BATCH * 1e-6)
    return entry("Jacobians of HyQ, analytic", "us/knot", ours, "central differences", theirs)


def growth(turns: int) -> Iterator[Entry]:
    """Time a knot for more and more knots, then on two threads."""
    model = load("hyq").model
    k = kernel(model, "loops")
    times = [in_turns([call_of(k, model, n)], turns, n * 1e-6)[0] for n in GROWTH]
    for n, t in zip(GROWTH[1:], times[1:], strict=True):
        yield entry(f"dFD hyq, {n} knots", "us/knot", t, f"{GROWTH[0]} knots", times[0])
    one, two = in_turns([call_of(k, model, GROWTH[-1], threads) for threads in (1, 2)], turns, GROWTH[-1] * 1e-6)
    yield entry(f"dFD hyq, {GROWTH[-1]} knots, two threads", "us/knot", two, "one thread", one, 1.7)


def riccati(turns: int) -> Iterator[Entry]:
    """The backward sweep over 100 knots against the one in NumPy."""
    from trajopt.lq.compiled_lq import CompiledLQ
    from trajopt.lq.lq import LQProblem, solve_riccati

    rng, N = np.random.default_rng(0), 100
    for n, m, most in ((12, 6, 2.5), (36, 12, 22.0)):
        R, Q = np.tile(np.eye(m), (N, 1, 1)), np.tile(np.eye(n), (N + 1, 1, 1))
        A, B = np.eye(n) + 0.01 * rng.standard_normal((N, n, n)), 0.1 * rng.standard_normal((N, n, m))
        rest = [rng.standard_normal(s) for s in ((N + 1, n), (N, m, n), (N, m), n)]
        lq = LQProblem(A, B, np.zeros((N, n)), Q, rest[0], 0.01 * rest[1], R, rest[2], rest[3])
        compiled = CompiledLQ(n, m)
        calls = [partial(solve_riccati, lq), partial(compiled.solve_riccati, lq)]
        theirs, ours = in_turns(calls, turns, N * 1e-6)
        yield entry(f"Riccati, nx {n}, nu {m}", "us/knot", ours, "NumPy", theirs, most=most)


def iteration(turns: int) -> Iterator[Entry]:
    """The UR5's reach with 100 knots, all that the solver does in an iteration included; then a whole solve."""
    import problems
    from trajopt.config.build import build_task, solve_task
    from trajopt.config.config import load_config

    os.environ["TRAJOPT_THREADS"] = "2"
    config = load_config(Path(problems.__file__).parent / "configs" / "ur5_reach.toml", ["engine=compiled"])
    task = build_task(config)
    steps, solves = [], []
    for _ in range(2 * turns):
        stamps: list[float] = []
        solution = solve_task(config, task, partial(_stamp, stamps))
        steps.append((stamps[-1] - stamps[0]) / (len(stamps) - 1) * 1e3)
        solves.append(solution.meta["solve_time"] * 1e3)
    yield entry("SLQ iteration, UR5, 100 knots", "ms", Times(median(steps), min(steps)), most=0.6)
    yield entry(f"SLQ solve, UR5, {solution.iterations} iterations", "ms", Times(median(solves), min(solves)))
    os.environ["TRAJOPT_THREADS"] = "1"


def _stamp(stamps: list[float], record: Any) -> None:
    stamps.append(time.perf_counter())


def compilation() -> Iterator[Entry]:
    """With an empty cache; then from a copy of that cache, which the loader has not seen."""
    hyq, before = load("hyq").model, os.environ.get("TRAJOPT_CACHE_DIR")
    figures = {"loops": 3.0, "unrolled": 8.0}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRAJOPT_CACHE_DIR"] = f"{folder}/new"
        for tier, most in figures.items():
            yield entry(f"first kernel of HyQ, {tier}", "s", once(partial(kernel, hyq, tier))[0], most=most)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        shutil.copytree(f"{folder}/new", f"{folder}/copy")
        os.environ["TRAJOPT_CACHE_DIR"] = f"{folder}/copy"
        seconds, _ = once(lambda: kernel(hyq, "loops"))
        yield entry("warm load of HyQ, loops", "s", seconds, most=0.1)
    yield entry("memory of the compiler", "GiB", Times(memory, memory), most=2.0)
    os.environ.pop("TRAJOPT_CACHE_DIR")
    os.environ |= {} if before is None else {"TRAJOPT_CACHE_DIR": before}


# -- the report ---------------------------------------------------------------------------------------------------------


HEADER = (
    *("what", "unit", "peer", "peer's", "ours", "fastest", "ratio", "ratio of fastest"),
    *(COLUMN, "ratio of generic", "figure", "held"),
)


def cells(e: Entry) -> list[str]:
    """An entry as text."""

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


def entries(turns: int, quick: bool) -> Iterator[Entry]:
    """All of them; compilation first, while the compiler's memory is that of these kernels."""
    yield from compilation()
    with GenericProcess() as process:
        for name in PINOCCHIO:
            yield from derivatives(name, turns, quick, process)
    yield differences(turns)
    yield from riccati(turns)
    yield from iteration(turns)
    yield from growth(turns)


def main() -> None:
    """Run, print each line as it comes, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer turns, no long compilations")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_compiled"), help="folder of the results")
    options = parser.parse_args()
    os.environ["TRAJOPT_THREADS"] = "1"
    results = []
    for e in entries(5 if options.quick else 15, options.quick):
        results.append(e)
        print("  ".join(c for c in cells(e) if c), flush=True)
    how = f"{machine()}\n\n{sides('Pinocchio', 'CasADi')}"
    text = "\n\n".join(["# The compiled engine", how, markdown(HEADER, map(cells, results)) + "\n"])
    write_report(options.out, text, report=results)


if __name__ == "__main__":
    main()
