"""Crocoddyl's ten gaits with several solvers: HyQ and ANYmal walk, trot, pace, bound and jump.

    python -m experiments.benchmark_crocoddyl_gaits [--environment DIR] [--solvers SOLVER,...] [--iterations 300]
                                                  [--out DIR] [GAIT ...]

GAIT: for example "hyq walk"; default: all. The problems are those of
:mod:`~experiments.benchmarks.solvers.crocoddyl_gaits`. The guess is a standing robot with its holding torques, which
Crocoddyl computes together with its optimum. Solvers use default options; "ddp:gauss_newton" is DDP with this Hessian.
The status is that of all checks. Times are processor times on one thread of a second solve without checks, after a
checked solve that compiles the kernels. The last column has the times of code compiled for any processor, like
Crocoddyl's wheel. above: relative cost above Crocoddyl's optimum.
"""

from __future__ import annotations

import time
from pathlib import Path

import trajopt as to
from dynamics_backends.protocol import Array
from experiments.benchmarks.generic import COLUMN, GenericProcess, build_notes
from experiments.benchmarks.solvers import crocoddyl_peer
from experiments.benchmarks.solvers.crocoddyl_gaits import GAITS, ROBOTS, gait
from experiments.benchmarks.solvers.crocoddyl_peer import crocoddyl_solve
from experiments.benchmarks.solvers.crocoddyl_problems import our_guess, our_problem
from experiments.benchmarks.tables import markdown

NAMES = tuple(f"{robot} {kind}" for robot in ROBOTS for kind in GAITS)
COLUMNS = ("gait", "Crocoddyl", "solver", "status", "iterations", "above", "ms", f"ms, {COLUMN}")


def solve_gait(name: str, held: Array, solver: str, iterations: int) -> tuple[str, int, float, float]:
    """Return status by all checks, iterations, cost, and time of a second solve without checks [ms].

    held: torques that hold the robot.
    """
    p = gait(*name.split())
    ocp = our_problem(p)
    guess = our_guess(p, ocp, held)
    name_of_solver, _, hessian = solver.partition(":")
    options = {"max_iterations": iterations} | ({"hessian": hessian} if hessian else {})
    found = to.solve(ocp, guess, options, solver=name_of_solver)
    began = time.process_time()
    to.solve(ocp, guess, options, solver=name_of_solver, check=False)
    ms = 1e3 * (time.process_time() - began)
    return str(found.status.code), found.iterations, found.cost, ms


def gait_rows(name: str, python: Path, solvers: list[str], iterations: int, generic: GenericProcess) -> list[list[str]]:
    """Measure the rows of a gait."""
    results, arrays = crocoddyl_solve(python, gait(*name.split()), 1)
    rows = []
    for solver in solvers:
        case = name, arrays["guess"], solver, iterations
        code, steps, cost, ms = solve_gait(*case)
        *_, ms_generic = generic.call(solve_gait, *case)
        above = cost / results["optimum"] - 1.0
        row = [name, f"{results['optimum']:.6g}, {results['iterations']} iterations", solver, code]
        rows.append([*row, str(steps), f"{above:.1e}", f"{ms:.0f}", f"{ms_generic:.0f}"])
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def main() -> int:
    """Run the benchmark and print the table."""
    parser = crocoddyl_peer.parser(__doc__, "gait", NAMES)
    parser.add_argument("--solvers", default="fddp,slq,ddp,ilqr")
    parser.add_argument("--iterations", type=int, default=300, help="maximum number of iterations of a solve")
    arguments, python = crocoddyl_peer.read(parser, "gait", NAMES)
    if python is None:
        return 0
    solvers = arguments.solvers.split(",")
    print(build_notes("Crocoddyl"))
    with GenericProcess() as generic:
        found = [gait_rows(name, python, solvers, arguments.iterations, generic) for name in arguments.names]
    file = arguments.out and arguments.out / "table.csv"
    print(markdown(COLUMNS, (row for rows in found for row in rows), file))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
