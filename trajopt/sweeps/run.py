"""A study: n rows, solved where workers are free, written shard by shard as they come.

    row i  ->  values (seed, i)  ->  problem  ->  solution, or why there is none

Rows go to workers in jobs, each within a shard. A worker that dies takes jobs along: they are run again, and those whose workers
die again are run alone at the end, then in halves, until the row is found whose worker dies each time; that is its result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from trajopt.sweeps.dataset import Dataset
from trajopt.sweeps.identity import identity
from trajopt.sweeps.results import Sweep
from trajopt.sweeps.rows import (
    DIED,
    Make,
    Result,
    Study,
    failed,
    kinds,
    solve_rows,
    together,
    valid,
)
from trajopt.sweeps.variation import Variation, Variations
from trajopt.sweeps.workers import Pool, pool_of

TRIES = 8
"""Rows of a kind that are tried until one can be made ready."""
DEATH = "each process that solved this row died: out of memory, or an error in compiled code"


@dataclass(frozen=True)
class Progress:
    """How far a study is. done: rows that are there, before: those of them that were there at the start; failed: of the others,
    those without success; seconds: since the start."""

    done: int
    total: int
    before: int
    failed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second."""
        return (self.done - self.before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float:
        """Seconds to go, infinite where there is no rate yet."""
        return (self.total - self.done) / self.rate if self.rate > 0 else float("inf")

    def __str__(self) -> str:
        left = f", {self.left:.0f} s left" if self.rate > 0 else ""
        return f"{self.done} of {self.total} rows, {self.failed} failed, {self.rate:.3g} rows/s{left}"


Report = Callable[[Progress], None]


def sweep(
    make: Make,
    vary: Mapping[str, Variation | str | Sequence[Any]],
    n: int,
    out: str | Path,
    *,
    seed: int = 0,
    solver: str | None = None,
    options: Any = None,
    workers: int | None = None,
    scheduler: Any = None,
    gains: bool = False,
    shard: int | None = None,
    progress: Report | None = None,
) -> Sweep:
    """Solve n problems that differ in drawn values; the results are in the folder ``out``, as a dataset.

    make: from a row's values, as keyword arguments, to its problem: an OCP, an OCP and a guess, or a
    :class:`~trajopt.sweeps.rows.SweepProblem`. vary: by key how its value is drawn, as a text ("uniform([0, 0], [1, 2])"), a
    list to choose from, or a :class:`~trajopt.sweeps.variation.Variation`. Row i depends on (seed, i) alone. solver, options: as
    in ``solve``, where the problem brings none.
    workers: processes on this machine, default one for each processor, 0 for none but this one; or scheduler: the address of a Dask
    scheduler, or a Client. Each has one thread. gains: keep feedback gains too. shard: rows that are written at once; a study
    that goes on keeps its own.
    progress: called with a :class:`Progress` at the start and after each shard.

    A study that was stopped goes on where it was; with a larger n it grows. Failures are rows with a status and a reason.

    Raises :class:`~trajopt.sweeps.dataset.ForeignDataset` where the folder holds another study, ModuleNotFoundError without the
    extra sweep, OSError where results cannot be written: then the rows finished before are kept. Raises what ``make`` raises
    where it does so for the first rows of every kind.
    """
    if n < 1:
        raise ValueError(f"n = {n}; expected at least 1 row")
    if shard is not None and shard < 1:
        raise ValueError(f"shard = {shard}; expected at least 1 row")
    study = Study(make, Variations(vary, seed), solver, options, gains)
    folder = Path(out)
    with Dataset(folder, described(study), study.variations, n, shard) as dataset:
        jobs = list(dataset.missing(n))
        if not jobs and progress is not None:
            progress(Progress(n, n, n, 0, 0.0))
        if jobs:
            prepare_kinds(study, n)
            pool = pool_of(workers, scheduler)
            try:
                _run(pool, study, jobs, dataset, n, progress)
            finally:
                pool.close()
    return Sweep(folder)


def _run(pool: Pool, study: Study, jobs: list[range], dataset: Dataset, n: int, progress: Report | None) -> None:
    began, fails = time.perf_counter(), 0
    before = done = n - sum(map(len, jobs))
    report = progress or (lambda _: None)
    report(Progress(done, n, before, fails, 0.0))
    for results in finished(pool, study, jobs):
        dataset.write(results)
        done += len(results)
        fails += sum(not r.scalars["success"] for r in results)
        report(Progress(done, n, before, fails, time.perf_counter() - began))


def finished(pool: Pool, study: Study, jobs: Sequence[range]) -> Iterator[list[Result]]:
    """The results of each job, or of its parts, as they come."""
    waiting, suspects, again = deque(jobs), deque[range](), set[range]()
    running: dict[Future, range] = {}
    while waiting or running:
        while waiting and len(running) < pool.most:
            rows = waiting.popleft()
            running[_submitted(pool, study, rows)] = rows
        done = wait(running, return_when=FIRST_COMPLETED).done
        for future in sorted(done, key=lambda f: running[f].start):
            rows = running.pop(future)
            if not pool.died(future.exception()):
                yield future.result()
            elif rows in again:
                suspects.append(rows)
            else:
                again.add(rows)
                waiting.append(rows)
    while suspects:
        rows = suspects.popleft()
        future = _submitted(pool, study, rows)
        if not pool.died(future.exception()):
            yield future.result()
        elif len(rows) == 1:
            yield [failed(rows[0], DIED, DEATH)]
        else:
            suspects.extend((rows[: len(rows) // 2], rows[len(rows) // 2 :]))


def _submitted(pool: Pool, study: Study, rows: range) -> Future:
    """Rows on their way; a pool whose workers died since it was asked last begins anew, what they had is told by its future."""
    while True:
        try:
            return pool.submit(solve_rows, study, rows)
        except Exception as error:
            if not pool.died(error):
                raise


def prepare_kinds(study: Study, n: int) -> None:
    """Compile what rows will call, before workers begin: a row of each kind is made ready.

    A kind of which no row can be made ready is left to its rows. Raises the first error where that is so for all.
    """
    errors: list[Exception] = []
    ready = [any(_is_ready(study, row, errors) for row in rows[:TRIES]) for rows in kinds(study, n)]
    if not any(ready):
        raise errors[0]


def _is_ready(study: Study, row: int, errors: list[Exception]) -> bool:
    from trajopt.guesses.guesses import constant_guess
    from trajopt.solvers.prepare import prepare
    from trajopt.solvers.registry import chosen_options
    from trajopt.stage.start import starting

    try:
        problem = study.problem(row)
        ocp, guess, solver, options, *_ = problem
        with starting("compiled"):
            if any(solution is None for *_, solution in together([(row, valid(problem))], study.gains)):
                prepare(ocp, constant_guess(ocp) if guess is None else guess, chosen_options(solver, options)[1])
    except Exception as error:
        errors.append(error)
        return False
    return True


def described(study: Study) -> dict[str, Any]:
    """What the rows are functions of, as plain values."""
    options = asdict(study.options) if is_dataclass(study.options) else study.options  # type: ignore[arg-type]
    found = {
        "problem": identity(study.make),
        "vary": study.variations.described(),
        "seed": study.variations.seed,
        "solver": study.solver,
        "options": options,
        "gains": study.gains,
    }
    return {key: value for key, value in found.items() if value is not None}
