"""Stages that start in NumPy and switch to compiled code once it is ready; results are equal to rounding.

Every call uses the best stages available at that time. A rollout in NumPy restarts in compiled code as soon as that is ready. If
the rollout would take longer than PATIENCE, it first waits for the compiler, at most its own estimated duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dynamics_backends.compiled.interface.sources import TooLong
from dynamics_backends.protocol import Array, Hessians
from trajopt.stage.compiled.bare_stages import BareStages
from trajopt.stage.compiled.builds import Search
from trajopt.stage.compiled.library import Library
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.pool import Pool
from trajopt.stage.stages import StageDerivatives, Stages, StageValues, SweptStages, Trials
from trajopt.stage.start import record_engine

PATIENCE = 3.0
"""Estimated processor time [s] of a NumPy rollout above which it waits for the compiler."""
_POLL, _LOOK = 0.01, 0.1
"""Intervals [s] between cache lookups: of a rollout that waits, and of one that runs in NumPy."""
NUMPY, MIXED, COMPILED = "numpy", "compiled steps and numpy terms", "compiled"
"""Engine names reported by :func:`~trajopt.stage.start.served`."""


class _Better(Exception):
    """Raised in a NumPy rollout when compiled code is ready."""


class SoonStages:
    """Stages whose library is still compiling: see :class:`~trajopt.stage.stages.Stages`.

    now: stages used at the start. search: search for the library. make: makes stages from the library. fallback: stages used if the
    library cannot be compiled. interim: search for an interim library and the function that makes stages from it; they are used
    until the library is ready, or for good if it cannot be compiled.
    """

    def __init__(
        self,
        now: Stages,
        search: Search,
        make: Callable[[Library], Stages],
        fallback: Stages,
        interim: tuple[Search, Callable[[Library], Stages]] | None = None,
    ) -> None:
        self._now, self._search, self._make, self._fallback, self._interim = now, search, make, fallback, interim
        self._by: Library | None = None
        self._settled = False

    @property
    def compiled(self) -> bool:
        """True if compiled code evaluates these stages at present."""
        return self._current().compiled

    @property
    def will_be_whole(self) -> bool:
        """True if the library is expected to have second derivatives of the whole stage."""
        return self._search.shape.second

    def _current(self) -> Stages:
        if not self._settled:
            self._update()
        now = self._now
        record_engine(NUMPY if isinstance(now, NumpyStages) else MIXED if isinstance(now, BareStages) else COMPILED)
        return now

    def _update(self) -> None:
        compiling = self._search.is_compiling  # read before the lookup: compilation may end in between
        try:
            library = self._search.lookup()
        except TooLong:
            if self._interim is None:
                self._now, self._settled = self._fallback, True
            else:
                (self._search, self._make), self._interim = self._interim, None
                self._update()
            return
        make = self._make
        if library is None and self._interim is not None:
            make = self._interim[1]
            library = self._lookup_interim(self._interim[0])
        if library is not self._by and library is not None:
            self._now, self._by = make(library), library
        self._settled = self._search.is_final or not compiling

    def _lookup_interim(self, search: Search) -> Library | None:
        """Interim library, None if it is not in the cache."""
        try:
            return search.lookup()
        except TooLong:
            self._interim = None
            return None

    def values(self, x: Array, u: Array, nodes: Array) -> StageValues:
        """See :class:`~trajopt.stage.stages.Stages`."""
        return self._current().values(x, u, nodes)

    def first(
        self,
        x: Array,
        u: Array,
        nodes: Array,
        *,
        quadratic: bool = True,
        out: StageDerivatives | None = None,
        pool: Pool | None = None,
    ) -> StageDerivatives:
        """See :class:`~trajopt.stage.stages.Stages`."""
        return self._current().first(x, u, nodes, quadratic=quadratic, out=out, pool=pool)

    def second(
        self,
        x: Array,
        u: Array,
        nodes: Array,
        sigma: float,
        lam: Array | None = None,
        y: Array | None = None,
        first: int = 0,
        out: Hessians | None = None,
    ) -> Hessians:
        """See :class:`~trajopt.stage.stages.Stages`."""
        return self._current().second(x, u, nodes, sigma, lam, y, first, out)

    def sweep_part(self, x: Array, u: Array, nodes: Array) -> tuple[Any, Any] | None:
        """See :class:`~trajopt.stage.stages.SweptStages`."""
        best = self._current()
        return best.sweep_part(x, u, nodes) if isinstance(best, SweptStages) else None

    def finer(self, pieces: int) -> Stages:
        """See :class:`~trajopt.stage.stages.Stages`; of the stages in use at present."""
        return self._current().finer(pieces)

    def shortened(self, share: float) -> Stages:
        """See :class:`~trajopt.stage.stages.Stages`; of the stages in use at present."""
        return self._current().shortened(share)

    def rollout(self, trials: Trials) -> Array:
        """See :class:`~trajopt.stage.stages.Stages`."""
        best = self._current()
        if not isinstance(best, NumpyStages):
            return best.rollout(trials)
        first: tuple[float, float] | None = None
        waited, looked = False, time.monotonic()

        def pause(done: float) -> None:
            nonlocal first, waited, looked
            now = time.thread_time()
            if first is None:  # the first knot includes loading, so timing starts after it
                first = now, done
            elif not waited and done < 1.0:
                takes = (now - first[0]) * (1.0 - done) / (done - first[1])
                waited = takes > PATIENCE
                if waited:
                    self._wait(takes)
            if self._now is best and time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                self._current()
            if self._now is not best:
                raise _Better

        try:
            return best.rollout(trials, pause)
        except _Better:
            return self.rollout(trials)

    def _wait(self, seconds: float) -> None:
        """Wait until better stages are ready, compilation has ended, or ``seconds`` have passed."""
        previous, until = self._now, time.monotonic() + seconds
        while self._current() is previous and self._search.is_compiling and time.monotonic() < until:
            time.sleep(_POLL)
