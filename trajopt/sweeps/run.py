"""Run a study: n rows, solved by a pool of workers and written shard by shard as results arrive.

    row i  ->  values (seed, i)  ->  problem  ->  solution, or the reason for its absence

Workers get jobs, each with rows of one shard. A row that kills its worker again and again
(:mod:`trajopt.solvers.batch.worker_pool`) is reported as "died".

The workers are processes of this machine (loky), those of a Dask cluster, or this process. Each worker process has one thread, so
rows run in parallel.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dynamics_backends.compiled.runtime.fingerprints import Unknown, source_digest
from trajopt.solvers.batch.worker_pool import ONE_THREAD, Pool, Processes, run_jobs
from trajopt.sweeps.dataset import Dataset
from trajopt.sweeps.results import Sweep
from trajopt.sweeps.rows import (
    DIED,
    Make,
    Study,
    check_problem,
    failed,
    solve_rows,
)
from trajopt.sweeps.stored import require
from trajopt.sweeps.variation import Variation, Variations

JOBS_PER_WORKER = 2
"""Unfinished jobs per worker, running or queued, so that no worker waits for its next job."""


class InProcess:
    """Run jobs in this process, one after the other. A crash in C code ends the study."""

    max_jobs = 1

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        """Run a job now, and return a finished future; its errors are raised here."""
        future: Future = Future()
        future.set_result(job(*arguments))
        return future

    def died(self, error: BaseException | None) -> bool:
        """Return False: a job cannot end without this process."""
        return False

    def close(self) -> None:
        """Do nothing."""


class StudyProcesses(Processes):
    """Worker processes on this machine; default: one for each processor available to this process."""

    def __init__(self, count: int | None = None) -> None:
        loky = require("loky")
        count = count or loky.cpu_count()
        super().__init__(count, JOBS_PER_WORKER * count)

    def _initialization(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Return the function that starts a worker process, with the number of this process."""
        return _initialize_worker, (os.getpid(),)

    def close(self) -> None:
        """Kill the worker processes, also while they work."""
        self._executor.shutdown(wait=True, kill_workers=True)


def _initialize_worker(parent: int) -> None:
    """Initialize a worker process: ignore Ctrl-C, which the parent handles, and exit when the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        """Exit this process within a second after its parent has exited."""
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Cluster:
    """Workers of Dask distributed. scheduler: an address such as "tcp://host:8786", or a Client.

    patience: time [s] to wait for the scheduler at an address, and a tenth of the time to wait for its first worker; a Client waits
    for its first worker without limit. Raises OSError if none answers in time, ValueError for workers with several threads.
    """

    def __init__(self, scheduler: Any, patience: float = 30.0) -> None:
        distributed = require("distributed")
        self._own = isinstance(scheduler, str)
        self._executor: Any = None
        try:
            self._client = distributed.Client(scheduler, timeout=patience) if self._own else scheduler
            self._client.wait_for_workers(1, timeout=None if not self._own else 10 * patience)
        except (OSError, TimeoutError) as error:
            raise OSError(
                f"no worker responds at the scheduler {scheduler}: {error or 'start one by dask worker'}"
            ) from error
        wide = [a for a, w in self._workers().items() if w["nthreads"] != 1]
        if wide:
            self.close()
            raise ValueError(
                f"the worker {wide[0]} has several threads: start workers with --nthreads 1, one for each processor"
            )
        self._client.register_plugin(_plugin(distributed))
        self._executor = self._client.get_executor(pure=False)
        self._died = distributed.KilledWorker

    def _workers(self) -> Any:
        """Return the scheduler's information on each worker, by address."""
        return self._client.scheduler_info(n_workers=-1)["workers"]

    @property
    def max_jobs(self) -> int:
        """Maximum number of unfinished jobs, for the workers that are connected now."""
        return JOBS_PER_WORKER * max(1, len(self._workers()))

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future:
        """Start a job on a worker of the cluster, and return its future."""
        return self._executor.submit(job, *arguments)

    def died(self, error: BaseException | None) -> bool:
        """True if a job failed because the workers that ran it were killed.

        error: exception of the job, None for a job that did not fail (False).
        """
        return isinstance(error, self._died)

    def close(self) -> None:
        """Shut down without waiting for jobs, and disconnect from a scheduler that was given by its address."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
        if self._own:
            self._client.close()


def _plugin(distributed: Any) -> Any:
    """Return a Dask plugin that limits each worker to one thread."""

    class OneThread(distributed.WorkerPlugin):
        """Dask plugin that limits numerical libraries to one thread."""

        name = "trajopt-one-thread"

        def setup(self, worker: Any) -> None:
            """Limit numerical libraries to one thread in a worker."""
            os.environ.update(ONE_THREAD)

    return OneThread()


def pool_of(workers: int | None, scheduler: Any) -> Pool:
    """Return the pool for these options: the cluster of a scheduler, this process (0 workers), or worker processes.

    workers: number of processes, None for one per processor. Raises ValueError if both options are set.
    """
    if scheduler is None:
        return InProcess() if workers == 0 else StudyProcesses(workers)
    if workers is not None:
        raise ValueError(
            f"workers = {workers} and a scheduler: the cluster defines the number of workers; remove one of the two options"
        )
    return Cluster(scheduler)


TRIES = 8
"""Maximum number of rows that are tried before workers start, until one gives a problem."""
DEATH = "each process that solved this row died: out of memory, or an error in compiled code"


@dataclass(frozen=True)
class Progress:
    """Progress of a study. done: finished rows, of ``total``; before: rows finished before the start; failed: rows without success
    since the start; seconds: time since the start.
    """

    done: int
    total: int
    before: int
    failed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows finished per second since the start; 0 at the start."""
        return (self.done - self.before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float:
        """Estimated remaining time [s]; infinite before the first result."""
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
    """Solve n problems that differ in drawn values, and store the results as a dataset in the folder ``out``.

    make: function of a row's values, as keyword arguments, that returns its problem: an OCP, an OCP and a guess, or a
    :class:`~trajopt.sweeps.rows.SweepProblem`. vary: distribution of each key, as a text ("uniform([0, 0], [1, 2])"), a
    list of choices, or a :class:`~trajopt.sweeps.variation.Variation`. The values of row i depend on (vary, seed, i) alone. solver,
    options: as in ``solve``, for problems that set neither.
    workers: number of processes on this machine; default: one for each processor; 0: solve in this process. scheduler: address of
    a Dask scheduler, or a Client, in place of ``workers``. Each worker has one thread. gains: also store feedback gains. shard:
    rows per written file; a resumed study keeps its shard size.
    progress: called with a :class:`Progress` at the start and after each job, which may be a part of a shard.

    A stopped study resumes with the missing rows; a larger n adds rows. Failed rows have a status and a reason.

    Returns the stored study. Raises :class:`~trajopt.sweeps.dataset.ForeignDataset` if the folder contains another study or damaged
    rows, ModuleNotFoundError without the extra sweep, OSError if results cannot be written (rows written before are intact),
    ValueError for wrong arguments, and the errors of pools and variations. If none of TRIES rows, spread over the study, can be
    made and checked, raises the first error.
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
            require_a_problem(study, n)
            pool = pool_of(workers, scheduler)
            try:
                _run(pool, study, jobs, dataset, n, progress)
            finally:
                pool.close()
    return Sweep(folder)


def _run(pool: Pool, study: Study, jobs: list[range], dataset: Dataset, n: int, progress: Report | None) -> None:
    """Solve the rows of ``jobs``, store each result and report the progress. n: number of all rows."""
    began, fails = time.perf_counter(), 0
    before = done = n - sum(map(len, jobs))
    report = progress or (lambda _: None)
    report(Progress(done, n, before, fails, 0.0))
    for rows, found in run_jobs(pool, partial(solve_rows, study), jobs):
        results = [failed(rows[0], DIED, DEATH)] if found is None else found
        dataset.write(results)
        done += len(results)
        fails += sum(not r.scalars["success"] for r in results)
        report(Progress(done, n, before, fails, time.perf_counter() - began))


def require_a_problem(study: Study, n: int) -> None:
    """Raise the error of the first row, if none of TRIES rows, spread over the study, can be made and checked."""
    errors: list[Exception] = []
    for row in sorted({i * (n - 1) // (TRIES - 1) for i in range(TRIES)}):
        try:
            check_problem(study.problem(row))
        except Exception as error:
            errors.append(error)
        else:
            return
    raise errors[0]


def identity(make: Callable[..., Any]) -> Any:
    """Identity of a function that makes problems, as plain values, so that two different studies are never confused.

    It is the attribute ``identity``, or else the name, and a hash of the source and of the carried values: closure variables,
    argument defaults, arguments of a ``functools.partial``, and the state of a callable object. Global variables are ignored.
    Raises ValueError if the function carries a value of unknown content.
    """
    given = getattr(make, "identity", None)
    if given is not None:
        return given
    try:
        return {"function": getattr(make, "__qualname__", type(make).__qualname__), "content": source_digest(make)}
    except Unknown as error:
        raise ValueError(
            f"a study cannot identify the function {make!r} ({error}): give it an attribute `identity`, a plain "
            "value (numbers, strings, lists, dictionaries) that determines its problems"
        ) from error


def described(study: Study) -> dict[str, Any]:
    """Return the definition of a study as plain values, without those that are None; its hash identifies the study."""
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
