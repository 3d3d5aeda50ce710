"""Solves of the first-try benchmark, one row per instance and solver."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from experiments.benchmarks.first_try.instance import Instance
from trajopt.results.status import StatusCode

GROUPS = {
    "optimum": "experiments.benchmarks.first_try.optimum",
    "minimum time": "experiments.benchmarks.first_try.minimum_time",
    "complementarity": "experiments.benchmarks.first_try.complementarity",
    "units": "experiments.benchmarks.first_try.units",
}
"""The module of each group, imported when the group is requested."""

FEASIBLE = tuple(
    code.value
    for code in (
        StatusCode.CONVERGED,
        StatusCode.ACCEPTABLE,
        StatusCode.VIOLATED_BETWEEN_KNOTS,
        StatusCode.DOES_NOT_HOLD,
        StatusCode.GOAL_MISSED,
    )
)
"""Status codes of motions that are feasible at the knots."""


class Row(NamedTuple):
    """Results of one solve; missing numbers are NaN.

    solver: "auto" (the default) or a name. status: status code, or "error". seconds, processor: wall-clock and
    processor time of the second call in the process [s]. replay: largest deviation of the finely integrated motion from
    the plan [rad, m]; replay_ratio: relative to its tolerance. violation: largest violation of an inequality between
    knots; violation_ratio: relative to its tolerance. reason: message of the status if the solve did not converge.
    objective: of the problem as it was given, also where the solution has more substeps.
    """

    group: str
    family: str
    instance: str
    seed: int
    solver: str
    status: str
    success: bool
    iterations: int
    seconds: float
    processor: float
    objective: float
    replay: float
    replay_ratio: float
    violation: float
    violation_ratio: float
    reason: str

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Key of instance and solver."""
        return self.group, self.instance, self.seed, self.solver

    @property
    def feasible(self) -> bool:
        """True if dynamics and constraints hold at the knots, so that the objective can be compared."""
        return self.status in FEASIBLE


class Job(NamedTuple):
    """A pending solve. calls: number of repetitions, of which the last one is timed."""

    group: str
    instance: str
    seed: int
    solver: str
    time_limit: float | None
    calls: int = 2


@cache
def instances(group: str, seed: int) -> tuple[Instance, ...]:
    """Return the instances of a group. Raises ModuleNotFoundError if its module is missing."""
    return tuple(import_module(GROUPS[group]).instances(seed))


def solve_job(job: Job) -> Row:
    """Solve a job; an error while building or solving also gives a row."""
    found = next(i for i in instances(job.group, job.seed) if i.name == job.instance)
    head = job.group, found.family, job.instance, job.seed, job.solver
    try:
        ocp, guess = found.build()
        solution, elapsed = timed_solve(ocp, guess, job)
    except Exception as error:  # a failing instance must not stop the others
        sentence = f"{type(error).__name__}: {error}".splitlines()[0]
        nothing = (np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan)
        return Row(*head, "error", False, 0, *nothing, sentence)
    status = solution.status
    reason = "" if status.success else status.message
    return Row(
        *head,
        status.code.value,
        status.success,
        solution.iterations,
        *elapsed,
        _objective(ocp, solution),
        *_replay(solution),
        *_violation(solution),
        reason,
    )


def timed_solve(ocp: to.OCP, guess: Any, job: Job) -> tuple[to.Solution, tuple[float, float]]:
    """Solve ``job.calls`` times; return the last solution and its wall-clock and processor time [s]."""
    limit = {} if job.time_limit is None else {"time_limit": job.time_limit}
    for _ in range(job.calls):
        began = time.perf_counter(), time.process_time()
        solution = to.solve(ocp, guess, limit, solver=job.solver)
        elapsed = time.perf_counter() - began[0], time.process_time() - began[1]
    return solution, elapsed


def _objective(ocp: to.OCP, solution: to.Solution) -> float:
    """Return the objective of the given problem. A solution with more substeps is that of another one: it becomes the guess."""
    if solution.meta.get("substeps", 1) == 1:
        return float(solution.cost)
    found = to.solve(ocp, to.Guess(solution.xs, solution.us), check=False)
    return float(found.cost) if found.status.success else np.nan


def _replay(solution: to.Solution) -> tuple[float, float]:
    """Return deviation and ratio of the replay with gains if it exists, else with open-loop controls."""
    found = solution.meta.get("replay", {})
    run = found.get("gains") or found.get("open") or {}
    return float(run.get("amount", np.nan)), float(run.get("ratio", np.nan))


def _violation(solution: to.Solution) -> tuple[float, float]:
    found = solution.meta.get("between_knots", {})
    return float(found.get("amount", np.nan)), float(found.get("ratio", np.nan))


# -- files ---------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """Read the rows of an earlier run, [] if the file does not exist. Raises KeyError for another kind of file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [_read(line) for line in csv.DictReader(file)]


def _read(line: dict[str, str]) -> Row:
    kinds: dict[str, Any] = dict.fromkeys(("group", "family", "instance", "solver", "status", "reason"), str)
    kinds |= {"seed": int, "iterations": int, "success": "True".__eq__}
    return Row(*(kinds.get(key, float)(line[key]) for key in Row._fields))


# -- many solves ---------------------------------------------------------------------------------------------


def run_all(jobs: list[Job], processes: int) -> Iterator[Row]:
    """Yield the rows of all jobs as they finish; several processes use one thread each."""
    if processes == 1:
        yield from map(solve_job, jobs)
        return
    os.environ["TRAJOPT_THREADS"] = "1"
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(solve_job, job) for job in jobs]):
            yield done.result()


def jobs_of(
    groups: Iterable[str], seed: int, count: int | None, solvers: Iterable[str], time_limit: float | None
) -> list[Job]:
    """Return the jobs of the first ``count`` instances of each group; default: all."""
    names = [(group, i.name) for group in groups for i in instances(group, seed)[:count]]
    return [Job(group, name, seed, solver, time_limit) for group, name in names for solver in solvers]
