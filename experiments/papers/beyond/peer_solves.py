"""Solve times compared with other libraries: identical problem, verified optimum, one thread each.

| peer | problems |
|---|---|
| Crocoddyl's FDDP, in a separate environment | problems of `experiments.benchmark_crocoddyl` |
| CasADi with IPOPT, CasADi with fatrop; AD as C code | UR5 with a sphere, formulated as in `experiments.benchmark_dms` |

Crocoddyl is compared with our FDDP at a tolerance that gives the same accuracy, CasADi with our interior point. Times are processor
times, medians or minima of rounds. An installed wheel does not contain the benchmarks; the report names missing peers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import problems
from experiments.analysis.environment import with_variable
from experiments.benchmarks.solvers.crocoddyl_peer import FOLDER
from experiments.papers.method import require
from trajopt.results.solution import uninterrupted

CONFIGS = Path(problems.__file__).parent / "configs"
CONFIG = "ur5_obstacle"
CROCODDYL = "Crocoddyl: python -m experiments.benchmark_crocoddyl makes its environment"
REPEATS, PATIENCE = 5, 240.0
SAME = 1e-6
"""Relative cost difference up to which two optima count as equal."""


def solves() -> tuple[list[dict[str, Any]], list[str]]:
    """Return the table rows and the missing peers."""
    rows, absent = [], []
    try:
        import experiments.benchmarks.solvers.benchmark_dms  # noqa: F401
    except ModuleNotFoundError:
        return [], ["solves of all peers: the benchmarks are in a source tree only"]
    with with_variable("TRAJOPT_THREADS", 1):
        rows += list(_casadi())
        python = FOLDER / "bin" / "python"
        if python.exists():
            rows += list(_crocoddyl(python))
        else:
            absent.append(CROCODDYL)
    return rows, absent


def _row(problem: str, peer: str, own_ms: float, peer_ms: float, apart: float) -> dict[str, Any]:
    return {
        "robot": problem,
        "what": "whole solve" if apart <= SAME else "whole solve, to another optimum",
        "peer": peer,
        "ours [us]": 1e3 * own_ms,
        "peer [us]": 1e3 * peer_ms,
        "peer / ours": peer_ms / own_ms,
        "largest difference": apart,
    }


def _crocoddyl(python: Path) -> Iterator[dict[str, Any]]:
    from experiments.benchmarks.generic import GenericProcess
    from experiments.benchmarks.solvers.benchmark_crocoddyl import compare
    from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS

    with GenericProcess() as generic:
        for name in PROBLEMS:
            r = compare(name, python, REPEATS, generic)
            iterations = f"{r.their_iterations} iterations, ours {r.our_iterations}"
            yield _row(name, f"Crocoddyl ({iterations})", r.our_ms, r.crocoddyl_ms, r.difference)


def _casadi() -> Iterator[dict[str, Any]]:
    from experiments.benchmarks.solvers.benchmark_dms import casadi_rows
    from trajopt.config.build import build_task
    from trajopt.config.config import load_config
    from trajopt.solvers.direct.dms import transcribed

    config = load_config(CONFIGS / f"{CONFIG}.toml", ["solver={name='dms', barrier_strategy='adaptive'}"])
    task, options = build_task(config), config.solver_options
    milliseconds, iterations, cost = _our_time(task.ocp, task.guess)
    program = transcribed(task.ocp, task.guess, options)
    w = program.variables(*task.guess)
    for row in casadi_rows(CONFIG, program, w, options, REPEATS, PATIENCE):
        apart = abs(row.cost - cost) / abs(cost)
        peer = f"{row.method} ({row.iterations} iterations, ours {iterations})"
        yield _row(CONFIG, peer, milliseconds, row.total * row.iterations, apart)


def _our_time(ocp: Any, guess: Any) -> tuple[float, int, float]:
    """Return the fastest time of the interior point [ms], its iterations and its cost."""
    from trajopt import solve

    seconds = []
    for _ in range(REPEATS + 1):  # the first one may compile
        began = time.process_time()
        options = {"hessian": "exact", "barrier_strategy": "adaptive"}
        found = require(uninterrupted(solve(ocp, guess, options, solver="ipm", check=False)), solver="ipm")
        seconds.append(time.process_time() - began)
    return 1e3 * min(seconds), found.iterations, found.cost
