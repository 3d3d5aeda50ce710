"""Many problems at once: solutions a second of ``solve_batch``, of single solves in a loop, and of peers with one process a core.

    python -m experiments.benchmark_batch [--n 1000] [--loop 50] [--peers N] [--environment DIR] [--repeats 3] [kinova] [ur5]

kinova   reaches of Crocoddyl's Kinova example (100 knots) from random postures to random places, by DDP and by FDDP to a
         gradient of 1e-6; Crocoddyl's FDDP solves the same problems from the same guesses to its own tolerance
ur5      a UR5 moves around a sphere (20 shots) to random goals, by the interior point to a KKT measure of 1e-6, with the
         Hessian of the cost and with that of the Lagrangian, and by FDDP and DDP in an augmented Lagrangian; CasADi with IPOPT
         solves the same program with the Hessian of the Lagrangian, its C code compiled once, the goals being bounds of rows

The first line is what the others are compared with: how many found its optimum, and in brackets its speed over theirs.
Peers solve the first ``--peers`` problems (0: none), the loop the first ``--loop``.  Solutions a second count wall time on all
processors, but for the loop, which has one; seconds of processor time for a solve are less sensitive to what else the machine does.
"Generic" are solutions a second where our code is compiled for any processor, as wheels are, in a process of its own.  The fastest
of ``--repeats`` batches counts.  Memory is how much the peak of this process grew during the first batch.
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
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import platformdirs

import trajopt as to
from dynamics_backends.protocol import Array
from experiments.benchmarks.generic import COLUMN, GenericProcess, sides
from experiments.benchmarks.solvers.benchmark_dms import CONFIGS, _casadi_program, _compiled, _settings, _written
from experiments.benchmarks.solvers.crocoddyl_peer import environment
from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS, own_problem
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.solvers.direct.dms import transcribed

SAME = 1e-6
"""Relative difference of costs below which two solutions are the same optimum."""
BASIN = 1e-2
"""Relative difference of costs below which two solutions are on the way to the same optimum."""
LOOSEST = 0.1
"""The first tolerance on the gradient with which a batch may end as near to the optima as a peer."""
SPREAD_POSTURE, SPREAD_GOAL = 0.3, 0.15
"""Standard deviation of postures [rad], half-width of the boxes of goals [m]."""
PATIENCE = 600.0
"""[s] for the compiler of the peer's code."""
COLUMNS = (
    "problems",
    "solved by",
    "solved",
    "same optimum",
    "iterations",
    "solutions a second",
    f"solutions a second, {COLUMN}",
    "processor ms a solve",
    "told",
)


class Run(NamedTuple):
    """The results of one method on a set of problems.

    cost: one per problem, NaN where the solve failed. iterations: their mean. wall, processor: times [s].
    told: remarks for the table. generic: solutions per second with our code compiled for a generic processor.
    """

    by: str
    cost: Array
    iterations: float
    wall: float
    processor: float
    told: str = ""
    generic: float = float("nan")


class Way(NamedTuple):
    """A way of ours to solve ``n`` problems of a kind as a batch, or the first ``loop`` of them by single solves in a loop."""

    kind: str
    n: int
    batched: bool
    solver: str
    options: dict[str, Any]
    loop: int
    repeats: int
    name: str = ""


def own_run(way: Way) -> Run:
    """The problems solved in a way of ours."""
    batch, guess, _ = _problems(way.kind, way.n)
    if way.batched:
        return batch_run(batch, guess, way.options, way.solver, way.repeats, way.name)
    return loop_run(batch, guess, way.options, way.solver, way.loop, way.name)


def own_speed(way: Way) -> float:
    """Solutions a second."""
    found = own_run(way)
    return len(found.cost) / found.wall


@lru_cache(maxsize=1)
def _problems(kind: str, n: int) -> tuple[to.Batch, to.Guess, Any]:
    return {"kinova": kinova, "ur5": ur5}[kind](n)


def processor_time() -> float:
    """[s] of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def peak_memory() -> float:
    """[MiB] of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def batch_run(
    batch: to.Batch, guess: to.Guess, options: dict[str, Any], solver: str, repeats: int, way: str = ""
) -> Run:
    """The fastest of some batches, after one of a few problems, which compiles."""
    few = batch.subset(range(2))
    to.solve_batch(few, guess=_part(guess, 2), options=options, solver=solver)
    runs, memory = [], [peak_memory()]
    for _ in range(repeats):
        wall, processor = time.perf_counter(), processor_time()
        found = to.solve_batch(batch, guess=guess, options=options, solver=solver)
        runs.append((time.perf_counter() - wall, processor_time() - processor))
        memory.append(peak_memory())
    told = [f"{found.meta['how']}, {memory[1] - memory[0]:.0f} MiB"]
    shares = {
        of: f"{100 * share:.0f} %" for of, share in found.meta.get("lanes", {}).items() if isinstance(share, float)
    }
    alone = shares.pop("alone", None)
    if shares:
        told.append("lanes at work: " + ", ".join(f"{of} {share}" for of, share in shares.items()))
    if alone:
        told.append(f"iterations alone: {alone}")
    cost = np.where(found.success, found.cost, np.nan)
    return Run(f"solve_batch, {way or solver}", cost, float(found.iterations.mean()), *min(runs), ", ".join(told))


def loop_run(batch: to.Batch, guess: to.Guess, options: dict[str, Any], solver: str, count: int, way: str = "") -> Run:
    """Single solves one after the other, on one thread."""
    before, os.environ["TRAJOPT_THREADS"] = os.environ.get("TRAJOPT_THREADS"), "1"
    problems = [(batch[i], to.Guess(*(rows[i] if rows.ndim == 3 else rows for rows in guess))) for i in range(count)]
    to.solve(*problems[0], options, solver=solver, check=False)
    wall, processor = time.perf_counter(), processor_time()
    found = [to.solve(*problem, options, solver=solver, check=False) for problem in problems]
    times = time.perf_counter() - wall, processor_time() - processor
    del os.environ["TRAJOPT_THREADS"]
    os.environ.update({} if before is None else {"TRAJOPT_THREADS": before})
    cost = np.array([s.cost if s.status.success else np.nan for s in found])
    return Run(f"to.solve in a loop, {way or solver}", cost, float(np.mean([s.iterations for s in found])), *times)


def _part(guess: to.Guess, count: int) -> to.Guess:
    return to.Guess(*(rows[:count] if rows.ndim == 3 else rows for rows in guess))


# -- the Kinova ----------------------------------------------------------------------------------------------------------


def kinova(n: int) -> tuple[to.Batch, to.Guess, dict[str, Any]]:
    """Problems, guesses that hold the posture, and the problem's data."""
    p = PROBLEMS["kinova reach"]()
    ocp, rng = own_problem(p), np.random.default_rng(0)
    system: Any = ocp.phases[0].dynamics.sampling.backend.map  # type: ignore[union-attr]
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
    """The first problems by Crocoddyl, in as many processes as there are processors, one thread each."""
    processes = min(os.cpu_count() or 1, count)
    shares = [p["many"][:count][i::processes] for i in range(processes)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    script = Path(__file__).with_name("crocoddyl_side.py")

    def solved(many: list[Any]) -> dict[str, Any]:
        given = json.dumps(p | {"many": many})
        done = subprocess.run([python, script], input=given, check=True, capture_output=True, text=True, env=alone)
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    with ThreadPoolExecutor(processes) as pool:
        told = list(pool.map(solved, shares))
    cost = np.empty(count)
    for i, t in enumerate(told):
        cost[i::processes] = t["costs"]
    iterations = float(np.mean([k for t in told for k in t["iterations"]]))
    wall, processor = max(t["wall"] for t in told), sum(t["processor"] for t in told)
    return Run("Crocoddyl, one process a core", cost, iterations, wall, processor)


def as_near(batch: to.Batch, guess: to.Guess, options: dict[str, Any], best: Run, peer: Run) -> Run:
    """The batch once more, to the loosest tolerance with which it ends, in the median, as near to the optima as the peer does."""
    count = len(peer.cost)

    def away(cost: Array) -> float:
        excess = cost[:count] / best.cost[:count] - 1.0
        near = excess[np.isfinite(excess) & (np.abs(excess) < BASIN)]
        return float(np.median(near)) if len(near) else np.inf

    tolerance = LOOSEST
    while True:
        found = batch_run(batch, guess, options | {"gradient_tolerance": tolerance}, "fddp", 1)
        if away(found.cost) <= away(peer.cost) or tolerance <= options["gradient_tolerance"]:
            return found._replace(by=f"solve_batch, as near as the peer: gradient {tolerance:g}")
        tolerance *= 0.1


# -- the UR5 -------------------------------------------------------------------------------------------------------------


def ur5(n: int) -> tuple[to.Batch, to.Guess, Any]:
    """Problems around the sphere, the configuration's guess, and the configuration."""
    config = load_config(CONFIGS / "ur5_obstacle.toml", ["solver={name='dms', barrier_strategy='adaptive'}"])
    task, rng = build_task(config), np.random.default_rng(0)
    goal = next(c for c in task.ocp.terminal_constraints if c.name == "goal")
    goals = np.tile(goal.lower, (n, 1))
    goals[:, :3] += SPREAD_GOAL * rng.uniform(-1.0, 1.0, (n, 3))
    return to.Batch(task.ocp, {"goal.lower": goals, "goal.upper": goals}), task.guess, config


_solver: dict[str, Any] = {}
"""In a process of the peer's pool: its solver and what all problems share."""


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
    """The first problems by CasADi and IPOPT, in as many processes as there are processors; None where its code takes too long."""
    import casadi as ca

    options = replace(config.solver_options, gradient_tolerance=1e-6)
    programs = [transcribed(batch[i], guess, options) for i in range(count)]
    first = programs[0]
    variables, objective, rows = _casadi_program(ca, first)
    processes = min(os.cpu_count() or 1, count)
    settings = _settings(options)
    with tempfile.TemporaryDirectory() as folder:
        nlp = {"x": variables, "f": objective, "g": rows}
        source, began = _written(ca, nlp, "ipopt", settings, Path(folder)), time.perf_counter()
        library, level = _compiled(source, "-O3", PATIENCE), "-O3"
        if library is None:
            library, level = _compiled(source, "-O1", PATIENCE), "-O1"
        if library is None:
            return None
        compiled = time.perf_counter() - began
        bounds = [{"lbx": p.x_lower, "ubx": p.x_upper, "lbg": p.g_lower, "ubg": p.g_upper} for p in programs]
        context = get_context("spawn")
        with ProcessPoolExecutor(processes, context, _load, (str(library), settings, first.variables(*guess))) as pool:
            list(pool.map(_solve, bounds[:1] * processes))  # libraries are loaded
            wall = time.perf_counter()
            found = list(pool.map(_solve, bounds))
            wall = time.perf_counter() - wall
    cost, iterations, _, processor = (np.array(column) for column in zip(*found, strict=True))
    told = f"code compiled at {level} in {compiled:.0f} s"
    return Run(
        "CasADi and IPOPT, one process a core", cost, float(iterations.mean()), wall, float(processor.sum()), told
    )


# -- the table -----------------------------------------------------------------------------------------------------------


def tell(name: str, runs: Iterable[Run]) -> None:
    """A line for each run as soon as it is done; the first is that of a batch."""
    own: Run | None = None
    for r in runs:
        own, k = own or r, len(r.cost)
        same = np.abs(r.cost - own.cost[:k]) <= SAME * np.abs(own.cost[:k])
        speed = k / r.wall
        times = "" if r is own else f" (1/{len(own.cost) / own.wall / speed:.1f})"
        solved = f"{np.isfinite(r.cost).sum()} of {k} | {same.sum()} | {r.iterations:.1f}"
        generic = "" if np.isnan(r.generic) else f"{r.generic:.1f}"
        print(
            f"| {name} | {r.by} | {solved} | {speed:.1f}{times} | {generic} | {1e3 * r.processor / k:.2f} | {r.told} |",
            flush=True,
        )


def kinova_runs(n: int, loop: int, peers: int, repeats: int, folder: Path, process: GenericProcess) -> Iterator[Run]:
    """All ways to solve the reaches."""
    batch, guess, p = _problems("kinova", n)
    options = {"gradient_tolerance": 1e-6, "max_iterations": p["max_iterations"]}
    own = {}
    for batched in (True, False):
        for solver in ("ddp", "fddp"):
            way = Way("kinova", n, batched, solver, options, loop, repeats)
            own[batched, solver] = _with_generic(way, process)
            yield own[batched, solver]
    if not peers:
        return
    try:
        peer = crocoddyl_run(environment(folder), p, peers)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"Crocoddyl is left out: {error}", file=sys.stderr)
        return
    yield peer
    yield as_near(batch, guess, options, own[True, "fddp"], peer)


def ur5_runs(n: int, loop: int, peers: int, repeats: int, process: GenericProcess) -> Iterator[Run]:
    """All ways around the sphere."""
    batch, guess, config = _problems("ur5", n)
    options = {"gradient_tolerance": 1e-6, "constraint_tolerance": 1e-6}
    ipm = {"ipm, the Hessian of the cost": {"hessian": "gauss_newton"}, "ipm, that of the Lagrangian": {}}
    for batched in (True, False):
        for name, own in ipm.items():
            yield _with_generic(Way("ur5", n, batched, "ipm", options | own, loop, repeats, name), process)
        for solver in ("fddp", "ddp"):
            yield _with_generic(Way("ur5", n, batched, solver, options, loop, repeats), process)
    found = casadi_run(batch, guess, config, peers) if peers else None
    if found is not None:
        yield found


def _with_generic(way: Way, process: GenericProcess) -> Run:
    """The run of a way, with the speed of code that is compiled for any processor."""
    return own_run(way)._replace(generic=process.call(own_speed, way))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="kinova, ur5; default both")
    parser.add_argument("--n", type=int, default=1000, help="problems in a batch")
    parser.add_argument("--loop", type=int, default=50, help="problems that are solved one by one")
    parser.add_argument("--peers", type=int, default=200, help="problems that the peers solve; 0: no peers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--environment", type=Path, default=platformdirs.user_cache_path("trajopt") / "crocoddyl")
    arguments = parser.parse_args()
    n, loop, peers = arguments.n, min(arguments.loop, arguments.n), min(arguments.peers, arguments.n)
    unknown = set(arguments.problems) - {"kinova", "ur5"}
    if unknown:
        parser.error(f"no problem {min(unknown)!r}; there are: kinova, ur5")
    print(sides(*(("Crocoddyl", "CasADi", "IPOPT") if peers else ())) + "\n")
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    chosen = arguments.problems or ["kinova", "ur5"]
    given = n, loop, peers, arguments.repeats
    with GenericProcess() as process:
        if "kinova" in chosen:
            tell("Kinova reaches", kinova_runs(*given, arguments.environment, process))
        if "ur5" in chosen:
            tell("UR5 around a sphere", ur5_runs(*given, process))


if __name__ == "__main__":
    main()
