"""Crocoddyl's ten gaits by several solvers: HyQ and ANYmal walk, trot, pace, bound and jump.

    python -m experiments.benchmark_crocoddyl_gaits [--environment DIR] [--solvers SOLVER,...] [--iterations 300] [GAIT ...]

GAIT: as "hyq walk"; default all.  The problems are those of :mod:`~experiments.benchmarks.solvers.crocoddyl_gaits`, from a robot
that stands still with the torques that hold it, which Crocoddyl tells together with its optimum.  Each solver has its defaults;
"ddp:gauss_newton" is DDP with that Hessian of the cost.  The end is that of all checks.  Times are processor times, on one thread,
of a second solve without checks, after a checked solve that compiles what both need.  The last column has the times of code that
is compiled for any processor, as Crocoddyl's wheel is.  above: the cost above Crocoddyl's optimum.
"""

from __future__ import annotations

import time
from pathlib import Path

import trajopt as to
from dynamics_backends.protocol import Array
from experiments.benchmarks.generic import COLUMN, GenericProcess, sides
from experiments.benchmarks.solvers import crocoddyl_peer
from experiments.benchmarks.solvers.crocoddyl_gaits import GAITS, ROBOTS, gait
from experiments.benchmarks.solvers.crocoddyl_peer import theirs
from experiments.benchmarks.solvers.crocoddyl_problems import own_guess, own_problem
from experiments.benchmarks.tables import markdown

NAMES = tuple(f"{robot} {kind}" for robot in ROBOTS for kind in GAITS)
COLUMNS = ("gait", "Crocoddyl", "solver", "end", "iterations", "above", "ms", f"ms, {COLUMN}")


def solved(name: str, held: Array, solver: str, iterations: int) -> tuple[str, int, float, float]:
    """Status by all checks, iterations, cost, and milliseconds of a second solve without checks.

    held: the torques that hold the robot.
    """
    p = gait(*name.split())
    ocp = own_problem(p)
    guess = own_guess(p, ocp, held)
    name_of_solver, _, own = solver.partition(":")
    options = {"max_iterations": iterations} | ({"hessian": own} if own else {})
    found = to.solve(ocp, guess, options, solver=name_of_solver)
    began = time.process_time()
    to.solve(ocp, guess, options, solver=name_of_solver, check=False)
    ms = 1e3 * (time.process_time() - began)
    return str(found.status.code), found.iterations, found.cost, ms


def compared(name: str, python: Path, solvers: list[str], iterations: int, generic: GenericProcess) -> list[list[str]]:
    """The rows of a gait."""
    told, arrays = theirs(python, gait(*name.split()), 1)
    rows = []
    for solver in solvers:
        given = name, arrays["guess"], solver, iterations
        code, steps, cost, ms = solved(*given)
        *_, ms_generic = generic.call(solved, *given)
        above = cost / told["optimum"] - 1.0
        row = [name, f"{told['optimum']:.6g}, {told['iterations']} iterations", solver, code]
        rows.append([*row, str(steps), f"{above:.1e}", f"{ms:.0f}", f"{ms_generic:.0f}"])
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def main() -> int:
    parser = crocoddyl_peer.parser(__doc__, "gait", NAMES)
    parser.add_argument("--solvers", default="fddp,slq,ddp,ilqr")
    parser.add_argument("--iterations", type=int, default=300, help="at most so many a solve")
    arguments, python = crocoddyl_peer.read(parser, "gait", NAMES)
    if python is None:
        return 0
    solvers = arguments.solvers.split(",")
    print(sides("Crocoddyl"))
    with GenericProcess() as generic:
        found = [compared(name, python, solvers, arguments.iterations, generic) for name in arguments.names]
    print(markdown(COLUMNS, (row for rows in found for row in rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
