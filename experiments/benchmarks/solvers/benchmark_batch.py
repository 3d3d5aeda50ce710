"""Throughput of batches: ``solve_batch`` compared with single solves in a loop, and with other libraries, one process per core.

    python -m experiments.benchmark_batch [--n 1000] [--loop 50] [--peers N] [--environment DIR] [--repeats 3] [--out DIR]
                                        [kinova] [ur5]

kinova   reaches of Crocoddyl's Kinova example (100 knots) with random postures and goals, by DDP and FDDP to a gradient of
         1e-6; Crocoddyl's FDDP solves the same problems from the same guesses with its default tolerance
ur5      a UR5 around a sphere (20 shots) with random goals: interior point to a KKT error of 1e-6, with the Hessian of the
         cost or of the Lagrangian; FDDP and DDP in an augmented Lagrangian; CasADi with IPOPT, the same program with the
         Hessian of the Lagrangian, C code compiled once, goals as bounds of rows

The first row is the reference: other rows have the number of equal optima, and in brackets their speed relative to it.
Peers solve the first ``--peers`` problems (0: none), the loop the first ``--loop``. Solutions per second use wall-clock
time on all processors; the loop uses one processor. Processor time per solve is less sensitive to other load. "Generic"
is the throughput of our code compiled for any processor, like a wheel, in a separate process. The fastest of
``--repeats`` batches counts. Memory is the growth of the peak memory of this process during the first batch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from experiments.benchmarks.generic import COLUMN, GenericProcess, build_notes
from experiments.benchmarks.solvers.benchmark_dms import CONFIGS, _casadi_program, _compile, _settings, _write_code
from experiments.benchmarks.solvers.crocoddyl_peer import FOLDER, environment
from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS, our_problem
from experiments.benchmarks.tables import print_table
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.solvers.direct.dms import transcribed

SAME = 1e-6
"""Relative cost difference up to which two solutions count as the same optimum."""
BASIN = 1e-2
"""Relative cost difference up to which two solutions count as converging to the same optimum."""
LOOSEST = 0.1
"""First gradient tolerance in the search for the accuracy of a peer."""
SPREAD_POSTURE, SPREAD_GOAL = 0.3, 0.15
"""Standard deviation of postures [rad], half-width of the boxes of goals [m]."""
PATIENCE = 600.0
"""Time limit of the compiler for the peer's code [s]."""
COLUMNS = (
    "problems",
    "solver",
    "solved",
    "same optimum",
    "iterations",
    "solutions per second",
    f"solutions per second, {COLUMN}",
    "processor ms per solve",
    "remarks",
)


class Run(NamedTuple):
    """The results of one method on a set of problems.

    cost: one per problem, NaN where the solve failed. iterations: their mean. wall, processor: times [s].
    remarks: for the table. generic: solutions per second with our code compiled for a generic processor.
    """

    method: str
    cost: Array
    iterations: float
    wall: float
    processor: float
    remarks: str = ""
    generic: float = float("nan")


class Settings(NamedTuple):
    """Settings of our solves: a batch of ``n`` problems of a kind, or single solves of the first ``loop`` problems."""

    kind: str
    n: int
    batched: bool
    solver: str
    options: dict[str, Any]
    loop: int
    repeats: int
    name: str = ""


def measure(settings: Settings) -> Run:
    """Solve the problems with the given settings."""
    batch, guess, _ = _problems(settings.kind, settings.n)
    if settings.batched:
        return batch_run(batch, guess, settings.options, settings.solver, settings.repeats, settings.name)
    return loop_run(batch, guess, settings.options, settings.solver, settings.loop, settings.name)


def throughput(settings: Settings) -> float:
    """Return the number of solutions per second."""
    found = measure(settings)
    return len(found.cost) / found.wall


@lru_cache(maxsize=1)
def _problems(kind: str, n: int) -> tuple[to.Batch, to.Guess, Any]:
    return {"kinova": kinova, "ur5": ur5}[kind](n)


def processor_time() -> float:
    """Return the processor time [s] of this process and its finished child processes."""
    return sum(os.times()[:4])


def peak_memory() -> float:
    """Return the peak memory of this process [MiB]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def batch_run(
    batch: to.Batch, guess: to.Guess, options: dict[str, Any], solver: str, repeats: int, settings: str = ""
) -> Run:
    """Measure the fastest of some batches, after a small batch that compiles."""
    few = batch.subset(range(2))
    to.solve_batch(few, guess=_part(guess, 2), options=options, solver=solver)
    runs, memory = [], [peak_memory()]
    for _ in range(repeats):
        wall, processor = time.perf_counter(), processor_time()
        found = to.solve_batch(batch, guess=guess, options=options, solver=solver)
        runs.append((time.perf_counter() - wall, processor_time() - processor))
        memory.append(peak_memory())
    remarks = [f"{found.meta['how']}, {memory[1] - memory[0]:.0f} MiB"]
    lane_use = {
        of: f"{100 * fraction:.0f} %"
        for of, fraction in found.meta.get("lanes", {}).items()
        if isinstance(fraction, float)
    }
    single = lane_use.pop("alone", None)
    if lane_use:
        remarks.append("lanes at work: " + ", ".join(f"{of} {fraction}" for of, fraction in lane_use.items()))
    if single:
        remarks.append(f"iterations alone: {single}")
    cost = np.where(found.success, found.cost, np.nan)
    return Run(
        f"solve_batch, {settings or solver}", cost, float(found.iterations.mean()), *min(runs), ", ".join(remarks)
    )


def loop_run(
    batch: to.Batch, guess: to.Guess, options: dict[str, Any], solver: str, count: int, settings: str = ""
) -> Run:
    """Measure single solves in a loop on one thread."""
    before, os.environ["TRAJOPT_THREADS"] = os.environ.get("TRAJOPT_THREADS"), "1"
    problems = [(batch[i], to.Guess(*(rows[i] if rows.ndim == 3 else rows for rows in guess))) for i in range(count)]
    to.solve(*problems[0], options, solver=solver, check=False)
    wall, processor = time.perf_counter(), processor_time()
    found = [to.solve(*problem, options, solver=solver, check=False) for problem in problems]
    times = time.perf_counter() - wall, processor_time() - processor
    del os.environ["TRAJOPT_THREADS"]
    os.environ.update({} if before is None else {"TRAJOPT_THREADS": before})
    cost = np.array([s.cost if s.status.success else np.nan for s in found])
    return Run(f"to.solve in a loop, {settings or solver}", cost, float(np.mean([s.iterations for s in found])), *times)


def _part(guess: to.Guess, count: int) -> to.Guess:
    return to.Guess(*(rows[:count] if rows.ndim == 3 else rows for rows in guess))


# -- the Kinova ----------------------------------------------------------------------------------------------------------


def kinova(n: int) -> tuple[to.Batch, to.Guess, dict[str, Any]]:
    """Return the problems, guesses that hold the posture, and the problem's data."""
    p = PROBLEMS["kinova reach"]()
    ocp, rng = our_problem(p), np.random.default_rng(0)
    system = ocp.phases[0].system
    x0 = np.tile(ocp.x0, (n, 1))
    nv = x0.shape[1] // 2
    x0[:, :nv] += SPREAD_POSTURE * rng.standard_normal((n, nv))
    goals = np.array(p["goal"]) + SPREAD_GOAL * rng.uniform(-1.0, 1.0, (n, 3))
    held = to.inverse_dynamics(system.model, x0[:, :nv], np.zeros((n, nv)), np.zeros((n, nv)))
    N = ocp.horizon
    guess = to.Guess(np.repeat(x0[:, None], N + 1, axis=1), np.repeat(held[:, None], N, axis=1))
    batch = to.Batch(ocp, {"x0": x0, "goal.goal": goals, "final goal.goal": goals, "state.reference": x0})
    many = [{"x0": x.tolist(), "goal": g.tolist()} for x, g in zip(x0, goals, strict=True)]
    return batch, guess, p | {"many": many}


def crocoddyl_run(python: Path, p: dict[str, Any], count: int) -> Run:
    """Solve the first problems with Crocoddyl, one process per processor, one thread each."""
    processes = min(os.cpu_count() or 1, count)
    lane_use = [p["many"][:count][i::processes] for i in range(processes)]
    single = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    script = Path(__file__).with_name("crocoddyl_side.py")

    def solved(many: list[Any]) -> dict[str, Any]:
        given = json.dumps(p | {"many": many})
        done = subprocess.run([python, script], input=given, check=True, capture_output=True, text=True, env=single)
        remarks: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return remarks

    with ThreadPoolExecutor(processes) as pool:
        remarks = list(pool.map(solved, lane_use))
    cost = np.empty(count)
    for i, t in enumerate(remarks):
        cost[i::processes] = t["costs"]
    iterations = float(np.mean([k for t in remarks for k in t["iterations"]]))
    wall, processor = max(t["wall"] for t in remarks), sum(t["processor"] for t in remarks)
    return Run("Crocoddyl, one process a core", cost, iterations, wall, processor)


def equally_accurate(batch: to.Batch, guess: to.Guess, options: dict[str, Any], best: Run, peer: Run) -> Run:
    """Solve the batch with the loosest tolerance that gives, in the median, the accuracy of the peer."""
    count = len(peer.cost)

    def median_excess(cost: Array) -> float:
        excess = cost[:count] / best.cost[:count] - 1.0
        near = excess[np.isfinite(excess) & (np.abs(excess) < BASIN)]
        return float(np.median(near)) if len(near) else np.inf

    tolerance = LOOSEST
    while True:
        found = batch_run(batch, guess, options | {"gradient_tolerance": tolerance}, "fddp", 1)
        if median_excess(found.cost) <= median_excess(peer.cost) or tolerance <= options["gradient_tolerance"]:
            return found._replace(method=f"solve_batch, accuracy of the peer: gradient {tolerance:g}")
        tolerance *= 0.1


# -- the UR5 -------------------------------------------------------------------------------------------------------------


def ur5(n: int) -> tuple[to.Batch, to.Guess, Any]:
    """Return the problems around the sphere, the configuration's guess, and the configuration."""
    config = load_config(CONFIGS / "ur5_obstacle.toml", ["solver={name='dms', barrier_strategy='adaptive'}"])
    task, rng = build_task(config), np.random.default_rng(0)
    goal = next(c for c in task.ocp.terminal_constraints if c.name == "goal")
    goals = np.tile(goal.lower, (n, 1))
    goals[:, :3] += SPREAD_GOAL * rng.uniform(-1.0, 1.0, (n, 3))
    return to.Batch(task.ocp, {"goal.lower": goals, "goal.upper": goals}), task.guess, config


_solver: dict[str, Any] = {}
"""Solver and shared data of a process of the peer's pool."""


def _load(library: str, settings: dict[str, Any], start: Array) -> None:
    import casadi as ca

    _solver.update(call=ca.nlpsol("solver", "ipopt", library, settings), start=start)


def _solve(bounds: dict[str, Array]) -> tuple[float, int, float, float]:
    began, processor = time.perf_counter(), time.process_time()
    found = _solver["call"](x0=_solver["start"], **bounds)
    stats = _solver["call"].stats()
    times = time.perf_counter() - began, time.process_time() - processor
    return (float(found["f"]) if stats["success"] else np.nan), int(stats["iter_count"]), *times


def casadi_run(batch: to.Batch, guess: to.Guess, config: Any, count: int) -> Run | None:
    """Solve the first problems with CasADi and IPOPT, one process per processor; None if the code does not compile in time."""
    import casadi as ca

    options = replace(config.solver_options, gradient_tolerance=1e-6)
    programs = [transcribed(batch[i], guess, options) for i in range(count)]
    first = programs[0]
    variables, objective, rows = _casadi_program(ca, first)
    processes = min(os.cpu_count() or 1, count)
    settings = _settings(options)
    with tempfile.TemporaryDirectory() as folder:
        nlp = {"x": variables, "f": objective, "g": rows}
        source, began = _write_code(ca, nlp, "ipopt", settings, Path(folder)), time.perf_counter()
        library, level = _compile(source, "-O3", PATIENCE), "-O3"
        if library is None:
            library, level = _compile(source, "-O1", PATIENCE), "-O1"
        if library is None:
            return None
        compiled = time.perf_counter() - began
        bounds = [{"lbx": p.x_lower, "ubx": p.x_upper, "lbg": p.g_lower, "ubg": p.g_upper} for p in programs]
        context = get_context("spawn")
        with ProcessPoolExecutor(processes, context, _load, (str(library), settings, first.variables(*guess))) as pool:
            list(pool.map(_solve, bounds[:1] * processes))  # loads the libraries
            wall = time.perf_counter()
            found = list(pool.map(_solve, bounds))
            wall = time.perf_counter() - wall
    cost, iterations, _, processor = (np.array(column) for column in zip(*found, strict=True))
    remarks = f"code compiled at {level} in {compiled:.0f} s"
    return Run(
        "CasADi and IPOPT, one process a core", cost, float(iterations.mean()), wall, float(processor.sum()), remarks
    )


# -- the table -----------------------------------------------------------------------------------------------------------


def table_rows(name: str, runs: Iterable[Run]) -> Iterator[list[str]]:
    """Yield a table row for each run as it finishes; the first run is the reference."""
    reference: Run | None = None
    for r in runs:
        reference, k = reference or r, len(r.cost)
        same = np.abs(r.cost - reference.cost[:k]) <= SAME * np.abs(reference.cost[:k])
        speed = k / r.wall
        ratio = "" if r is reference else f" (1/{len(reference.cost) / reference.wall / speed:.1f})"
        solved = [f"{np.isfinite(r.cost).sum()} of {k}", str(same.sum()), f"{r.iterations:.1f}"]
        generic = "" if np.isnan(r.generic) else f"{r.generic:.1f}"
        yield [name, r.method, *solved, f"{speed:.1f}{ratio}", generic, f"{1e3 * r.processor / k:.2f}", r.remarks]


def kinova_runs(n: int, loop: int, peers: int, repeats: int, folder: Path, process: GenericProcess) -> Iterator[Run]:
    """Yield all runs of the Kinova reaches."""
    batch, guess, p = _problems("kinova", n)
    options = {"gradient_tolerance": 1e-6, "max_iterations": p["max_iterations"]}
    own = {}
    for batched in (True, False):
        for solver in ("ddp", "fddp"):
            settings = Settings("kinova", n, batched, solver, options, loop, repeats)
            own[batched, solver] = _with_generic(settings, process)
            yield own[batched, solver]
    if not peers:
        return
    try:
        peer = crocoddyl_run(environment(folder), p, peers)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"Crocoddyl is skipped: {error}", file=sys.stderr)
        return
    yield peer
    yield equally_accurate(batch, guess, options, own[True, "fddp"], peer)


def ur5_runs(n: int, loop: int, peers: int, repeats: int, process: GenericProcess) -> Iterator[Run]:
    """Yield all runs of the UR5 around a sphere."""
    batch, guess, config = _problems("ur5", n)
    options = {"gradient_tolerance": 1e-6, "constraint_tolerance": 1e-6}
    ipm = {"ipm, Hessian of the cost": {"hessian": "gauss_newton"}, "ipm, Hessian of the Lagrangian": {}}
    for batched in (True, False):
        for name, own in ipm.items():
            yield _with_generic(Settings("ur5", n, batched, "ipm", options | own, loop, repeats, name), process)
        for solver in ("fddp", "ddp"):
            yield _with_generic(Settings("ur5", n, batched, solver, options, loop, repeats), process)
    found = casadi_run(batch, guess, config, peers) if peers else None
    if found is not None:
        yield found


def _with_generic(settings: Settings, process: GenericProcess) -> Run:
    """Measure a run, and its throughput with code compiled for any processor."""
    return measure(settings)._replace(generic=process.call(throughput, settings))


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="kinova, ur5; default: both")
    parser.add_argument("--n", type=int, default=1000, help="number of problems in a batch")
    parser.add_argument("--loop", type=int, default=50, help="number of problems solved one by one")
    parser.add_argument("--peers", type=int, default=200, help="number of problems solved by peers; 0: no peers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder of table.csv")
    parser.add_argument("--environment", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    n, loop, peers = arguments.n, min(arguments.loop, arguments.n), min(arguments.peers, arguments.n)
    unknown = set(arguments.problems) - {"kinova", "ur5"}
    if unknown:
        parser.error(f"unknown problem {min(unknown)!r}; expected kinova or ur5")
    print(build_notes(*(("Crocoddyl", "CasADi", "IPOPT") if peers else ())) + "\n")
    chosen = arguments.problems or ["kinova", "ur5"]
    given = n, loop, peers, arguments.repeats
    with GenericProcess() as process:
        rows = {
            "kinova": table_rows("Kinova reaches", kinova_runs(*given, arguments.environment, process)),
            "ur5": table_rows("UR5 around a sphere", ur5_runs(*given, process)),
        }
        found = chain.from_iterable(rows[name] for name in rows if name in chosen)
        print_table(COLUMNS, found, arguments.out and arguments.out / "table.csv")


if __name__ == "__main__":
    main()
