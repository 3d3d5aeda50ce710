"""Batch of problems that threads solve in slots: one problem at a time on each thread, or several in a window.

Kernels read the values of the problems from a table with one row of array addresses for each problem (:class:`Rows`).
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dynamics_backends.compiled.runtime.memory import address, default_threads
from dynamics_backends.machine.library import lanes as lanes_in_use
from dynamics_backends.protocol import Array
from trajopt.problem.ocp import OCP
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.batch.solution import BatchSolution, guess_of
from trajopt.solvers.batch.threads import ENDED, STOP, run_workers
from trajopt.solvers.methods.driver import ProgressCallback, run_alone
from trajopt.solvers.methods.method import End, Ended, Solve
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.window.status import Culprit, failed_expansion, status_of
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.evaluation import StageEvaluator


class SlotBatch(ABC):
    """Problems of a batch and the arrays of their solutions. ``rows``: the addresses of each problem's data (:meth:`table`).

    guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu). max_iterations (n,): limit of each problem; None for that of the options.
    Attributes: ``order`` lists the problems to solve. ``ended`` holds the termination of each problem, None until its solve has
    ended or was stopped at an iterate. ``errors`` holds exceptions of methods by problem number.
    """

    rows: Array
    measures: ClassVar[Mapping[str, str]] = {
        "gradient": "gradient",
        "defect": "defect",
        "kkt": "kkt",
        "violation": "defect",
    }
    """Attribute of a termination for each measure of a solution; without constraints, the violation is the defect."""

    def __init__(
        self,
        batch: Batch,
        guess: tuple[Array, Array],
        options: Any,
        *,
        gains: bool,
        threads: int | None,
        max_iterations: Array | None = None,
    ) -> None:
        n, ocp = len(batch), batch[0]  # batch[0] also has the bounds that only members have
        N, nx, nu, ndx = ocp.horizon, ocp.manifold.nx, ocp.nu, ocp.manifold.ndx
        self.count, self._arrays = n, list[Array]()
        self.batch, self.guess, self.options, self.ocp = batch, guess, options, ocp
        self.limits = np.full(n, options.max_iterations) if max_iterations is None else max_iterations
        self.xs, self.us = np.full((n, N + 1, nx), np.nan), np.full((n, N, nu), np.nan)
        self.K = np.zeros((n, N, nu, ndx)) if gains else None
        self.k = np.zeros((n, N, nu)) if gains else None
        self.cost, self.seconds = np.full(n, np.nan), np.zeros(n)
        self.ended: list[Any] = [None] * n
        self.errors: dict[int, Exception] = {}
        self.order: Sequence[int] = range(n)
        self.threads = min(threads or default_threads(), n)

    @classmethod
    @abstractmethod
    def fits(cls, ocp: OCP, options: Any) -> bool:
        """True if compiled kernels answer all requests of the solver with these options for this problem."""

    @classmethod
    def solved(
        cls, batch: Batch, guess: tuple[Array, Array], options: Any, *, on_finished: ProgressCallback, **rest: Any
    ) -> BatchSolution:
        """Solve a batch and return its solutions; arguments as in the class.

        ``on_finished`` is called with the number of finished problems.
        """
        began = time.perf_counter()
        problems = cls(batch, guess, options, **rest)
        meta = problems.solve(on_finished)
        return problems.solution(began, meta)

    @abstractmethod
    def solve(self, on_finished: ProgressCallback) -> dict[str, Any]:
        """Solve the problems of :attr:`order` on threads; return metadata on how threads and lanes shared the work."""

    @abstractmethod
    def _method(self, number: int, slot: Any) -> Any:
        """Return the solver method of a problem whose data a slot points to."""

    def _evaluators(self, ocp: OCP) -> Sequence[StageEvaluator]:
        """Return the evaluators of a problem that find the culprit of a failure; none by default."""
        return ()

    # -- addresses of values ----------------------------------------------------------------------------------------------
    def table(self, columns: Sequence[Array | None]) -> Array:
        """Return a contiguous table (n, columns) of addresses: of the row of each problem in arrays with n rows or one shared row.

        0 for None.
        """
        return np.ascontiguousarray(np.stack([self.addresses(column) for column in columns], axis=1))

    def addresses(self, array: Array | None) -> Array:
        """Return one column (n,) of the table: the address of the row of each problem in an array; 0 for None.

        An array whose length is not n is shared: all problems get the address of its first row. The array is kept alive.
        """
        if array is None:
            return np.zeros(self.count, np.int64)
        array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        self._arrays.append(array)
        step = array.strides[0] if len(array) == self.count else 0
        return address(array) + step * np.arange(self.count, dtype=np.int64)

    def stages(self, batch: Batch, i: int, own: Any, path: Array | None = None) -> Array:
        """Return the C struct of phase i for each problem as 64-bit words (n, 7): addresses of times, weights and parameters.

        own: struct of one problem, for the shared words. path: parameters of its path constraints, by problem; None to share.
        """
        knots = batch.ocp.phase_slices[i]
        values = (
            batch.t()[:, knots],
            batch.weights(i),
            batch.parameters(i),
            batch.theta(lambda ocp: ocp.phases[i].terms, batch.ocp.phases[i].knots),
        )
        fixed = [np.full(self.count, word, np.int64) for word in (own.structure, own.substeps)]
        last = np.full(self.count, own.pg, np.int64) if path is None else self.addresses(path)
        return np.stack([*fixed, *map(self.addresses, values), last], axis=1)

    def end(self, batch: Batch, end: CompiledEnd, path: Array | None = None) -> list[Array]:
        """Return the columns of the C struct of the final knot for each problem, one 64-bit word each.

        path: parameters of the final constraints, by problem; None to share those of ``end``.
        """
        values = batch.t()[:, -1:], batch.theta(lambda ocp: ocp.terminal, 1)
        last = np.full(self.count, end.data.pg, np.int64) if path is None else self.addresses(path)
        return [np.full(self.count, end.data.structure, np.int64), *map(self.addresses, values), last]

    # -- solves -----------------------------------------------------------------------------------------------------------
    def solve_one_by_one(
        self, make: Callable[[], Any], stages: Sequence[Any], on_finished: ProgressCallback
    ) -> dict[str, Any]:
        """Solve one problem after the other in a slot on each thread, with the knots of a problem in lanes; return metadata.

        make: creates a slot. Metadata: number of threads, and "expansions": fraction of the lanes that hold a knot in the
        expansions of the phases ``stages``.
        """
        stopped = self._run(lambda stop: self._run_slot(make(), stop), on_finished)
        knots, lanes = [len(s.plain.t) for s in stages], lanes_in_use()
        share = sum(knots) / sum(-(-count // lanes) * lanes for count in knots)
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return {"how": threads, "lanes": {"threads": self.threads, "expansions": share}, **stopped}

    def _run(self, work: Callable[[Array], None], on_finished: ProgressCallback) -> dict[str, bool]:
        """Run ``work`` on threads, counting problems from the first in :attr:`order`."""
        self._turns = itertools.count()
        return run_workers(work, self.threads, on_finished)

    def _take(self, slot: Any, stop: Array) -> tuple[int, Any] | None:
        """Point a slot at the next problem of :attr:`order`; return its number and method, None if none remains or after a stop."""
        place = next(self._turns)
        if stop[STOP] or place >= len(self.order):
            return None
        number = int(self.order[place])
        slot.data.problem = address(self.rows) + number * self.rows.strides[0]
        return number, self._method(number, slot)

    def _solve(self, method: Any) -> Solve:
        """Return the generator of a solve by a method, with feedback gains if the batch returns them."""
        return method.solve(gains=self.K is not None)

    def _run_slot(self, slot: Any, stop: Array) -> None:
        """Solve problems one after the other in a slot until none remains or the batch is stopped; store results and exceptions."""
        while (own := self._take(slot, stop)) is not None:
            number, method = own
            ended: Any
            try:
                ended = run_alone(self._solve(method), slot.answer, lambda: bool(stop[STOP]))
            except Exception as error:  # raised by user code
                ended = error
            if ended is None:
                self._store_stopped(number, method, slot)
                return
            self._store_result(number, method, slot, ended, stop)

    def _store_stopped(self, number: int, method: Any, slot: Any) -> None:
        """Store the current iterate of a stopped solve as interrupted, if the solve has an iterate."""
        if method.begun:
            ended = run_alone(method.stopped(gains=self.K is not None), slot.answer)
            self._store_result(number, method, slot, ended, np.zeros(2, np.int64))

    def _store_result(self, number: int, method: Any, slot: Any, ended: Any, stop: Array) -> None:
        """Store the result of a solve: trajectory, termination, cost and time; and count it as finished.

        ended: a termination, or an exception, which is stored in :attr:`errors` with the current iterate, if there is one, else
        the guess, and End.NO_STEP.
        """
        if isinstance(ended, Exception):
            self.errors[number], ended = ended, method.ended(End.NO_STEP)
        if method.begun or number not in self.errors:
            slot.put()
            self.cost[number] = self._cost(slot, ended)
        else:
            self._put_guess(number)
        self.ended[number] = ended
        self.seconds[number] = time.perf_counter() - method.began
        stop[ENDED] += 1

    def _cost(self, slot: Any, ended: Any) -> float:
        """Return the cost of the final iterate in a slot."""
        return float(slot.cost)

    def _put_guess(self, i: int) -> None:
        """Store the guess of problem i as its trajectory, and NaN as its cost."""
        self.xs[i], self.us[i] = guess_of(self.guess, i, self.count)
        self.cost[i] = np.nan

    # -- results ----------------------------------------------------------------------------------------------------------
    def solution(self, began: float, meta: dict[str, Any]) -> BatchSolution:
        """Return the solutions of a batch that started at time ``began`` [s]; meta: further metadata.

        Raises the first exception if all methods raised one.
        """
        if len(self.errors) == self.count:
            raise next(iter(self.errors.values()))
        status = tuple(self.status(i) for i in range(self.count))
        measures = {f"{name}s": [getattr(e, of, np.nan) for e in self.ended] for name, of in self.measures.items()}
        iterations = np.array([0 if e is None else e.iterations for e in self.ended])
        meta = {**meta, "solve_times": self.seconds.tolist(), "seconds": time.perf_counter() - began, **measures}
        arrays = self.xs, self.us, self.cost, iterations
        return BatchSolution(*arrays, status, self.batch.times(), self.K, self.k, meta)

    def status(self, i: int) -> Status:
        """Return the status of problem i, equal to that of a single solve.

        After a non-finite start, it replaces the trajectory by the guess and the cost by NaN.
        """
        ended: Ended | None = self.ended[i]
        if ended is None:
            return termination.not_started()
        if i in self.errors:
            return termination.error(self.errors[i])
        xs, us = self.xs[i].copy(), self.us[i].copy()
        if ended.end is End.NOT_FINITE:
            self._put_guess(i)

        def culprit() -> Culprit:
            """Return the expansion that is not finite or whose line search failed, without warnings of NumPy."""
            ocp = self.batch[i]
            with np.errstate(all="ignore"):
                return failed_expansion(ocp, xs, us, self._evaluators(ocp))

        options = self.options
        if ended.end is End.MOST_ITERATIONS:
            options = replace(options, max_iterations=int(self.limits[i]))
        return status_of(ended, options, culprit)
