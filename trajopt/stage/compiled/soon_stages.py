"""Stages that change hands: what serves at once, until compiled code is there; the same numbers, to rounding.

Every call goes to the best that is there when it comes.  A roll-out in NumPy is left for compiled code as soon as that is
there; where it would take longer than PATIENCE it first waits for that, for as long as it would take itself.
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
from trajopt.stage.start import note_serving

PATIENCE = 3.0
"""[s] of the processor for a roll-out in NumPy, from which on it makes room for the compiler."""
_POLL, _LOOK = 0.01, 0.1
"""[s] Between looks into the cache, of who waits and of who works meanwhile."""
NUMPY, MIXED, COMPILED = "numpy", "compiled steps and numpy terms", "compiled"
"""What :func:`~trajopt.stage.start.served` tells of."""


class _Better(Exception):
    """There is compiled code now."""


class SoonStages:
    """See :class:`~trajopt.stage.stages.Stages`.

    now: what serves at once. soon: where its library will be. made: the stages by a library. never: what serves where it turns out
    that there will be none. before: another search, and the stages by its library, which serves until the first is there, and if
    that is refused.
    """

    def __init__(
        self,
        now: Stages,
        soon: Search,
        made: Callable[[Library], Stages],
        never: Stages,
        before: tuple[Search, Callable[[Library], Stages]] | None = None,
    ) -> None:
        self._now, self._soon, self._made, self._never, self._before = now, soon, made, never, before
        self._by: Library | None = None
        self._settled = False

    @property
    def compiled(self) -> bool:
        """True if compiled code is used now."""
        return self._best().compiled

    @property
    def will_be_whole(self) -> bool:
        """True if its library will have second derivatives of the whole stage, as far as is known."""
        return "second" in self._soon.shape.parts

    def _best(self) -> Stages:
        if not self._settled:
            self._look()
        now = self._now
        note_serving(NUMPY if isinstance(now, NumpyStages) else MIXED if isinstance(now, BareStages) else COMPILED)
        return now

    def _look(self) -> None:
        goes_on = self._soon.is_being_made  # asked first: what is made may be there by then
        try:
            library = self._soon.look()
        except TooLong:
            if self._before is None:
                self._now, self._settled = self._never, True
            else:
                (self._soon, self._made), self._before = self._before, None
                self._look()
            return
        made = self._made
        if library is None and self._before is not None:
            made = self._before[1]
            library = self._looked_before(self._before[0])
        if library is not self._by and library is not None:
            self._now, self._by = made(library), library
        self._settled = self._soon.is_final or not goes_on

    def _looked_before(self, search: Search) -> Library | None:
        """The library that serves before, where it is there."""
        try:
            return search.look()
        except TooLong:
            self._before = None
            return None

    def values(self, x: Array, u: Array, nodes: Array) -> StageValues:
        """See :class:`~trajopt.stage.stages.Stages`."""
        return self._best().values(x, u, nodes)

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
        return self._best().first(x, u, nodes, quadratic=quadratic, out=out, pool=pool)

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
        return self._best().second(x, u, nodes, sigma, lam, y, first, out)

    def sweep_part(self, x: Array, u: Array, nodes: Array) -> tuple[Any, Any] | None:
        """See :class:`~trajopt.stage.stages.SweptStages`."""
        best = self._best()
        return best.sweep_part(x, u, nodes) if isinstance(best, SweptStages) else None

    def finer(self, pieces: int) -> Stages:
        """See :class:`~trajopt.stage.stages.Stages`; of what serves now."""
        return self._best().finer(pieces)

    def shortened(self, share: float) -> Stages:
        """See :class:`~trajopt.stage.stages.Stages`; of what serves now."""
        return self._best().shortened(share)

    def rollout(self, trials: Trials) -> Array:
        """See :class:`~trajopt.stage.stages.Stages`."""
        best = self._best()
        if not isinstance(best, NumpyStages):
            return best.rollout(trials)
        first: tuple[float, float] | None = None
        waited, looked = False, time.monotonic()

        def pause(done: float) -> None:
            nonlocal first, waited, looked
            now = time.thread_time()
            if first is None:  # the first knot loads and prepares
                first = now, done
            elif not waited and done < 1.0:
                takes = (now - first[0]) * (1.0 - done) / (done - first[1])
                waited = takes > PATIENCE
                if waited:
                    self._wait(takes)
            if self._now is best and time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                self._best()
            if self._now is not best:
                raise _Better

        try:
            return best.rollout(trials, pause)
        except _Better:
            return self.rollout(trials)

    def _wait(self, seconds: float) -> None:
        """Until there is a better one, nobody makes one any more, or so long."""
        before, until = self._now, time.monotonic() + seconds
        while self._best() is before and self._soon.is_being_made and time.monotonic() < until:
            time.sleep(_POLL)
