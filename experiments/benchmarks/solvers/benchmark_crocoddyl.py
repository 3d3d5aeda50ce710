"""Shooting beside Crocoddyl's FDDP: the same problems, the same optimum first, then iterations and times in one run on one thread.

    python -m experiments.benchmark_crocoddyl [--environment DIR] [--repeats 15] [PROBLEM ...]

Crocoddyl lives in an environment of its own, made with what the extra ``bench-crocoddyl`` of pyproject.toml names: its wheel needs
another Pinocchio than the tests of this project.  It is asked by a script that speaks JSON (crocoddyl_side.py).  Crocoddyl's solves
that are timed stop at its own tolerance, 1e-9 on the expected decrease of the cost; ours at the loosest with which they end at
least as near to the optimum.  Iterations are the steps that were taken, on both sides; Crocoddyl's own count is one less.  Times
are those of the processor, so that other programs on the machine count less; the sides take turns, and medians count.

Crocoddyl's wheel is compiled for any x86-64 processor, code of this project for the one at hand: a column has its times when it is
compiled as the wheel is.
"""

from __future__ import annotations

import statistics
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import trajopt as to
from experiments.benchmarks.generic import COLUMN, GenericProcess, sides
from experiments.benchmarks.solvers import crocoddyl_peer
from experiments.benchmarks.solvers.crocoddyl_peer import theirs
from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS, Data, own_guess, own_problem
from trajopt.guesses.warm_start import WarmStart
from trajopt.solvers.registry import SOLVERS, solver_options

SOLVER = "fddp"
SAME = 1e-9
"""Relative difference of the optimal costs below which they are the same."""
LOOSEST, TIGHT = 1.0, 1e-8
"""Tolerances on the largest gradient: the first that is tried, and that of the optimum."""
KKT_OFF = 1e-16
"""So that the gradient alone ends a solve."""
TURNS = 3


class Row(NamedTuple):
    """One line of the table; times in milliseconds; generic: ours, compiled for any processor."""

    problem: str
    difference: float
    their_iterations: int
    own_iterations: int
    theirs: float
    own: float
    generic: float


def own(ocp: to.OCP, guess: to.Guess, tolerance: float, p: Data) -> to.Solution:
    """Our solve, to a tolerance on the largest gradient."""
    options = solver_options(
        SOLVER, gradient_tolerance=tolerance, kkt_tolerance=KKT_OFF, max_iterations=p["max_iterations"]
    )
    return SOLVERS[SOLVER][0](ocp, WarmStart(guess), options, None)


def as_near(ocp: to.OCP, guess: to.Guess, p: Data, optimum: float, cost: float) -> float:
    """The loosest tolerance, by factors of two, with which our solve ends at least as near to the optimum as the cost is."""
    tolerance = LOOSEST
    while tolerance > TIGHT and not own(ocp, guess, tolerance, p).cost - optimum <= cost - optimum:
        tolerance *= 0.5
    return tolerance


def own_times(name: str, given: np.ndarray, tolerance: float, repeats: int) -> list[float]:
    """Processor times of our solves [ms], after one solve that compiles. given: the guess as Crocoddyl received it."""
    p, ocp, guess = _problem(name, given.tobytes(), given.shape)
    own(ocp, guess, tolerance, p)
    times = []
    for _ in range(repeats):
        began = time.process_time()
        own(ocp, guess, tolerance, p)
        times.append(1e3 * (time.process_time() - began))
    return times


@lru_cache(maxsize=1)
def _problem(name: str, given: bytes, shape: tuple[int, ...]) -> tuple[Data, to.OCP, to.Guess]:
    p = PROBLEMS[name]()
    ocp = own_problem(p)
    return p, ocp, own_guess(p, ocp, np.frombuffer(given).reshape(shape))


def compared(name: str, python: Path, repeats: int, generic: GenericProcess) -> Row:
    """Both sides of a problem."""
    p = PROBLEMS[name]()
    told, arrays = theirs(python, p, 1)
    ocp = own_problem(p)
    guess = own_guess(p, ocp, arrays["guess"])
    best = own(ocp, guess, TIGHT, p)
    difference = abs(best.cost - told["optimum"]) / abs(told["optimum"])
    away = float(np.abs(best.us - arrays["us"]).max() / np.abs(best.us).max())
    optima = f"optimum {told['optimum']:.12g} (Crocoddyl), {best.cost:.12g} (here)"
    print(f"{name}: {optima}; controls differ by {away:.1e} of the largest", flush=True)
    tolerance = as_near(ocp, guess, p, min(best.cost, told["optimum"]), told["cost"])
    given = name, arrays["guess"], tolerance, repeats
    times: tuple[list[float], list[float], list[float]] = [], [], []
    for _ in range(TURNS):
        told, _ = theirs(python, p, repeats)
        for mine, found in zip(times, (told["ms"], own_times(*given), generic.call(own_times, *given)), strict=True):
            mine += found
    iterations = own(ocp, guess, tolerance, p).iterations
    return Row(name, difference, told["iterations"], iterations, *map(statistics.median, times))


def main() -> int:
    parser = crocoddyl_peer.parser(__doc__, "problem", PROBLEMS)
    parser.add_argument("--repeats", type=int, default=15, help="solves of each side in each of three turns")
    arguments, python = crocoddyl_peer.read(parser, "problem", PROBLEMS)
    if python is None:
        return 0
    print(sides("Crocoddyl"))
    with GenericProcess() as generic:
        rows = [compared(name, python, arguments.repeats, generic) for name in arguments.names]
    head = f"{'problem':14s} {'optimum':>9s} {'iterations':>16s} {'Crocoddyl':>10s} {'here':>8s} {'times':>6s}"
    print(f"\n{head} {COLUMN:>14s} {'times':>6s}")
    for r in rows:
        counts = f"{r.their_iterations} / {r.own_iterations}"
        print(
            f"{r.problem:14s} {r.difference:9.1e} {counts:>16s} {r.theirs:7.2f} ms {r.own:5.2f} ms {r.theirs / r.own:6.1f}"
            f" {r.generic:11.2f} ms {r.theirs / r.generic:6.1f}"
        )
    different = [r.problem for r in rows if not r.difference <= SAME]
    if different:
        print(f"not the same optimum: {', '.join(different)}")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
