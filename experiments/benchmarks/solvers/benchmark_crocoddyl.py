"""Shooting beside Crocoddyl's FDDP: the same problems, the same optimum first, then iterations and times in one run on one thread.

    python -m experiments.benchmark_crocoddyl [--environment DIR] [--repeats 15] [PROBLEM ...]

Crocoddyl lives in an environment of its own, made with what the extra ``bench-crocoddyl`` of pyproject.toml names: its wheel needs
another Pinocchio than the tests of this project.  It is asked by a script that speaks JSON (crocoddyl_side.py).  Crocoddyl's solves
that are timed stop at its own tolerance, 1e-9 on the expected decrease of the cost; ours at the loosest with which they end at
least as near to the optimum.  Iterations are the steps that were taken, on both sides; Crocoddyl's own count is one less.  Times
are those of the processor, so that other programs on the machine count less; the two sides take turns, and medians count.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import trajopt as to
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
    """One line of the table; times in milliseconds."""

    problem: str
    difference: float
    their_iterations: int
    own_iterations: int
    theirs: float
    own: float


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


def compared(name: str, python: Path, repeats: int) -> Row:
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
    their_times, own_times = [], []
    for _ in range(TURNS):
        told, _ = theirs(python, p, repeats)
        their_times += told["ms"]
        for _ in range(repeats):
            began = time.process_time()
            found = own(ocp, guess, tolerance, p)
            own_times.append(1e3 * (time.process_time() - began))
    medians = statistics.median(their_times), statistics.median(own_times)
    return Row(name, difference, told["iterations"], found.iterations, *medians)


def main() -> int:
    parser = crocoddyl_peer.parser(__doc__, "problem", PROBLEMS)
    parser.add_argument("--repeats", type=int, default=15, help="solves of each side in each of three turns")
    arguments, python = crocoddyl_peer.read(parser, "problem", PROBLEMS)
    if python is None:
        return 0
    rows = [compared(name, python, arguments.repeats) for name in arguments.names]
    print(f"\n{'problem':14s} {'optimum':>9s} {'iterations':>16s} {'Crocoddyl':>10s} {'here':>8s} {'times':>6s}")
    for r in rows:
        counts = f"{r.their_iterations} / {r.own_iterations}"
        print(
            f"{r.problem:14s} {r.difference:9.1e} {counts:>16s} {r.theirs:7.2f} ms {r.own:5.2f} ms {r.theirs / r.own:6.1f}"
        )
    different = [r.problem for r in rows if not r.difference <= SAME]
    if different:
        print(f"not the same optimum: {', '.join(different)}")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
