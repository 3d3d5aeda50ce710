"""Crocoddyl's ten gaits by several solvers: HyQ and ANYmal walk, trot, pace, bound and jump.

    python -m experiments.benchmark_crocoddyl_gaits [--environment DIR] [--solvers SOLVER,...] [--iterations 300] [GAIT ...]

GAIT: as "hyq walk"; default all.  The problems are those of :mod:`~experiments.benchmarks.solvers.crocoddyl_gaits`, from a robot
that stands still with the torques that hold it, which Crocoddyl tells together with its optimum.  Each solver has its defaults;
"ddp:gauss_newton" is DDP with that Hessian of the cost.  Times are those of the processor, on one thread, of a second solve, behind
one that has compiled what it needs; above: the cost above Crocoddyl's optimum.
"""

from __future__ import annotations

import time
from pathlib import Path

import trajopt as to
from experiments.benchmarks.solvers import crocoddyl_peer
from experiments.benchmarks.solvers.crocoddyl_gaits import GAITS, ROBOTS, gait
from experiments.benchmarks.solvers.crocoddyl_peer import theirs
from experiments.benchmarks.solvers.crocoddyl_problems import own_guess, own_problem
from experiments.benchmarks.tables import markdown

NAMES = tuple(f"{robot} {kind}" for robot in ROBOTS for kind in GAITS)
COLUMNS = ("gait", "Crocoddyl", "solver", "end", "iterations", "above", "ms")


def compared(name: str, python: Path, solvers: list[str], iterations: int) -> list[list[str]]:
    """The rows of a gait."""
    robot, kind = name.split()
    p = gait(robot, kind)
    told, arrays = theirs(python, p, 1)
    ocp = own_problem(p)
    guess = own_guess(p, ocp, arrays["guess"])
    rows = []
    for solver in solvers:
        name_of_solver, _, own = solver.partition(":")
        hessian = {"hessian": own} if own else {}
        for _ in range(2):
            began = time.process_time()
            found = to.solve(ocp, guess, {"max_iterations": iterations} | hessian, solver=name_of_solver)
            ms = 1e3 * (time.process_time() - began)
        above = found.cost / told["optimum"] - 1.0
        row = [name, f"{told['optimum']:.6g}, {told['iterations']} iterations", solver, str(found.status.code)]
        rows.append([*row, str(found.iterations), f"{above:.1e}", f"{ms:.0f}"])
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def main() -> int:
    parser = crocoddyl_peer.parser(__doc__, "gait", NAMES)
    parser.add_argument("--solvers", default="fddp,slq,ddp:gauss_newton,ilqr")
    parser.add_argument("--iterations", type=int, default=300, help="at most so many a solve")
    arguments, python = crocoddyl_peer.read(parser, "gait", NAMES)
    if python is None:
        return 0
    solvers = arguments.solvers.split(",")
    print(
        markdown(
            COLUMNS, (row for name in arguments.names for row in compared(name, python, solvers, arguments.iterations))
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
