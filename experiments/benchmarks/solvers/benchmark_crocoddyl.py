"""FDDP compared with Crocoddyl's FDDP: identical problems, verified optimum, iterations and times on one thread.

    python -m experiments.benchmark_crocoddyl [--environment DIR] [--repeats 15] [--out DIR] [PROBLEM ...]

Crocoddyl is installed in a separate environment with the extra ``bench-crocoddyl`` of pyproject.toml, since its wheel
needs another version of Pinocchio than the tests. A script with a JSON interface (crocoddyl_side.py) runs it. Timed
solves of Crocoddyl stop at its default tolerance, 1e-9 on the expected cost decrease; ours use the loosest tolerance
with at least the same accuracy. Iterations are the steps taken; Crocoddyl's own count is one less. Times are medians of
processor time over alternating rounds. Crocoddyl's wheel is compiled for any x86-64 processor, code of this project for
the local processor; a further column has our times with generic code.
"""

from __future__ import annotations

import statistics
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import trajopt as to
from experiments.benchmarks.generic import COLUMN, GenericProcess, build_notes
from experiments.benchmarks.solvers import crocoddyl_peer
from experiments.benchmarks.solvers.crocoddyl_peer import crocoddyl_solve
from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS, Data, our_guess, our_problem
from experiments.benchmarks.tables import markdown
from trajopt.guesses.guesses import WarmStart
from trajopt.solvers.registry import SOLVERS, solver_options

SOLVER = "fddp"
SAME = 1e-9
"""Relative cost difference up to which two optima count as equal."""
LOOSEST, TIGHT = 1.0, 1e-8
"""First gradient tolerance of the search, and gradient tolerance of the optimum."""
KKT_OFF = 1e-16
"""Tolerance that disables the KKT test, so that only the gradient ends a solve."""
ROUNDS = 3

COLUMNS = (
    "problem",
    "difference of optima",
    "iterations, Crocoddyl",
    "iterations, ours",
    "ms, Crocoddyl",
    "ms, ours",
    "times as fast",
    f"ms, {COLUMN}",
    "times as fast",
)


class Row(NamedTuple):
    """One table row with times [ms]; generic: ours, compiled for any processor."""

    problem: str
    difference: float
    their_iterations: int
    our_iterations: int
    crocoddyl_ms: float
    our_ms: float
    generic: float


def solve_ours(ocp: to.OCP, guess: to.Guess, tolerance: float, p: Data) -> to.Solution:
    """Solve with this toolkit to a tolerance on the largest gradient."""
    options = solver_options(
        SOLVER, gradient_tolerance=tolerance, kkt_tolerance=KKT_OFF, max_iterations=p["max_iterations"]
    )
    return SOLVERS[SOLVER][0](ocp, WarmStart(guess), options, None)


def matching_tolerance(ocp: to.OCP, guess: to.Guess, p: Data, optimum: float, cost: float) -> float:
    """Return the loosest tolerance, by factors of two, with which our solve is at least as accurate as the given cost."""
    tolerance = LOOSEST
    while tolerance > TIGHT and not solve_ours(ocp, guess, tolerance, p).cost - optimum <= cost - optimum:
        tolerance *= 0.5
    return tolerance


def our_times(name: str, guess_controls: np.ndarray, tolerance: float, repeats: int) -> list[float]:
    """Processor times of our solves [ms], after one solve that compiles. guess_controls: controls of the guess."""
    p, ocp, guess = _problem(name, guess_controls.tobytes(), guess_controls.shape)
    solve_ours(ocp, guess, tolerance, p)
    times = []
    for _ in range(repeats):
        began = time.process_time()
        solve_ours(ocp, guess, tolerance, p)
        times.append(1e3 * (time.process_time() - began))
    return times


@lru_cache(maxsize=1)
def _problem(name: str, guess_controls: bytes, shape: tuple[int, ...]) -> tuple[Data, to.OCP, to.Guess]:
    p = PROBLEMS[name]()
    ocp = our_problem(p)
    return p, ocp, our_guess(p, ocp, np.frombuffer(guess_controls).reshape(shape))


def compare(name: str, python: Path, repeats: int, generic: GenericProcess) -> Row:
    """Solve a problem with both libraries and compare results and times."""
    p = PROBLEMS[name]()
    results, arrays = crocoddyl_solve(python, p, 1)
    ocp = our_problem(p)
    guess = our_guess(p, ocp, arrays["guess"])
    best = solve_ours(ocp, guess, TIGHT, p)
    difference = abs(best.cost - results["optimum"]) / abs(results["optimum"])
    apart = float(np.abs(best.us - arrays["us"]).max() / np.abs(best.us).max())
    optima = f"optimum {results['optimum']:.12g} (Crocoddyl), {best.cost:.12g} (here)"
    print(f"{name}: {optima}; relative difference of controls {apart:.1e}", flush=True)
    tolerance = matching_tolerance(ocp, guess, p, min(best.cost, results["optimum"]), results["cost"])
    case = name, arrays["guess"], tolerance, repeats
    times: tuple[list[float], list[float], list[float]] = [], [], []
    for _ in range(ROUNDS):
        results, _ = crocoddyl_solve(python, p, repeats)
        for mine, found in zip(times, (results["ms"], our_times(*case), generic.call(our_times, *case)), strict=True):
            mine += found
    iterations = solve_ours(ocp, guess, tolerance, p).iterations
    return Row(name, difference, results["iterations"], iterations, *map(statistics.median, times))


def main() -> int:
    """Run the benchmark and print the table; return 1 if optima differ."""
    parser = crocoddyl_peer.parser(__doc__, "problem", PROBLEMS)
    parser.add_argument("--repeats", type=int, default=15, help="solves by each library in each of three rounds")
    arguments, python = crocoddyl_peer.read(parser, "problem", PROBLEMS)
    if python is None:
        return 0
    print(build_notes("Crocoddyl"))
    with GenericProcess() as generic:
        rows = [compare(name, python, arguments.repeats, generic) for name in arguments.names]
    print(f"\n{markdown(COLUMNS, map(_cells, rows), arguments.out and arguments.out / 'table.csv')}")
    different = [r.problem for r in rows if not r.difference <= SAME]
    if different:
        print(f"different optima: {', '.join(different)}")
    return 1 if different else 0


def _cells(r: Row) -> list[str]:
    times = r.crocoddyl_ms, r.our_ms, r.crocoddyl_ms / r.our_ms, r.generic, r.crocoddyl_ms / r.generic
    iterations = str(r.their_iterations), str(r.our_iterations)
    return [r.problem, f"{r.difference:.1e}", *iterations, *(f"{value:.3g}" for value in times)]


if __name__ == "__main__":
    raise SystemExit(main())
