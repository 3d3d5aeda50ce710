"""Solves of the first-try benchmark: one row for each instance and solver."""

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
"""Codes of motions that are feasible at the knots."""


class Row(NamedTuple):
    """A solve.

    solver: "auto" (the default) or a name. status: by the checks of the solve, or "error". seconds, processor: of the second call
    in the process [s]. replay: largest deviation of the finely integrated motion from the plan [rad, m], replay_ratio: relative to
    its tolerance. violation: largest violation of an inequality between the knots, violation_ratio: relative to its tolerance.
    Numbers are NaN where there are none. reason: the sentence of the status where the solve did not converge.
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
        """The instance and the solver."""
        return self.group, self.instance, self.seed, self.solver

    @property
    def feasible(self) -> bool:
        """True if dynamics and constraints hold at the knots, so that the objective can be compared."""
        return self.status in FEASIBLE


class Job(NamedTuple):
    """A solve to be done; calls: how often the problem is solved, the last call counts."""

    group: str
    instance: str
    seed: int
    solver: str
    time_limit: float | None
    calls: int = 2


@cache
def instances(group: str, seed: int) -> tuple[Instance, ...]:
    """The instances of a group. Raises ModuleNotFoundError for a group whose module is not there."""
    return tuple(import_module(GROUPS[group]).instances(seed))


def solved(job: Job) -> Row:
    """The row of a solve; an error while building or solving is a row, too."""
    found = next(i for i in instances(job.group, job.seed) if i.name == job.instance)
    head = job.group, found.family, job.instance, job.seed, job.solver
    try:
        ocp, guess = found.build()
        solution, elapsed = timed_solve(ocp, guess, job)
    except Exception as error:  # one broken instance stops nobody
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
        float(solution.cost),
        *_replay(solution),
        *_violation(solution),
        reason,
    )


def timed_solve(ocp: to.OCP, guess: Any, job: Job) -> tuple[to.Solution, tuple[float, float]]:
    """The solution of the last of ``job.calls`` equal calls, and its wall and processor time [s]."""
    limit = {} if job.time_limit is None else {"time_limit": job.time_limit}
    for _ in range(job.calls):
        began = time.perf_counter(), time.process_time()
        solution = to.solve(ocp, guess, limit, solver=job.solver)
        elapsed = time.perf_counter() - began[0], time.process_time() - began[1]
    return solution, elapsed


def _replay(solution: to.Solution) -> tuple[float, float]:
    """Deviation of the last run of the replay: with gains, where the one with held controls leaves the plan."""
    found = solution.meta.get("replay", {})
    run = found.get("gains") or found.get("open") or {}
    return float(run.get("amount", np.nan)), float(run.get("ratio", np.nan))


def _violation(solution: to.Solution) -> tuple[float, float]:
    found = solution.meta.get("between_knots", {})
    return float(found.get("amount", np.nan)), float(found.get("ratio", np.nan))


# -- files ---------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file that an earlier run has written; none where there is no file. Raises KeyError for another file."""
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
    """The rows of all jobs as they end, each process on one thread where there are several."""
    if processes == 1:
        yield from map(solved, jobs)
        return
    os.environ["TRAJOPT_THREADS"] = "1"
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(solved, job) for job in jobs]):
            yield done.result()


def jobs_of(
    groups: Iterable[str], seed: int, count: int | None, solvers: Iterable[str], time_limit: float | None
) -> list[Job]:
    """The jobs of the first ``count`` instances of each group, default all."""
    names = [(group, i.name) for group in groups for i in instances(group, seed)[:count]]
    return [Job(group, name, seed, solver, time_limit) for group, name in names for solver in solvers]
