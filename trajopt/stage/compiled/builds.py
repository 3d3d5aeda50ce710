"""Libraries of stages that are not there yet: made while the caller waits, or aside while NumPy serves.

Another process compiles for a solve that starts at once (:mod:`trajopt.stage.start`), quickly at first, then well, and goes on when
this one has ended. A quick library never serves a solve that waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import Any

from dynamics_backends.compiled.interface.libraries import BackgroundProcess, in_background, remember_sources
from dynamics_backends.compiled.interface.sources import TooLong, TraceError
from dynamics_backends.symbols import tracing
from trajopt.stage.compiled.library import Library, sought, source_of
from trajopt.stage.source.stage_source import StageShape
from trajopt.stage.start import starts_at_once

_LOG = logging.getLogger(__name__)
_told: set[str] = set()


class Search:
    """The library of a structure: looked for, and told apart by whether it was made in a hurry."""

    def __init__(self, backend: Any, shape: StageShape) -> None:
        self.backend, self.shape = backend, shape
        self.library: Library | None = None
        self.is_final = False
        self.maker: BackgroundProcess | None = None

    @cached_property
    def _well(self) -> Any:
        return sought(self.backend, self.shape)

    @cached_property
    def _quick(self) -> Any:
        return sought(self.backend, self.shape, quick=True)

    def look(self) -> Library | None:
        """The best library that is there now. Raises TooLong where it is known that there will be none."""
        if not self.is_final and self._well.may_be_known:
            self._take(self._well)
            self.is_final = self.library is not None
        elif self.library is None and self._quick.may_be_known:
            self._take(self._quick)
        return self.library

    def _take(self, found: Any) -> None:
        library = found.known()
        self.library = self.library if library is None else Library(library, self.backend, self.shape)

    @property
    def is_being_made(self) -> bool:
        """True while a background process that this one started compiles it; a failure is reported once."""
        if self.maker is None or not self.maker.finished:
            return self.maker is not None
        if self.maker.complaint and self.maker.complaint not in _told:
            _told.add(self.maker.complaint)
            _LOG.warning("continuing with NumPy, because compilation failed: %s", self.maker.complaint)
        return False

    def wait(self) -> Library:
        """The library, made here where it is not there. Raises TooLong, TraceError, CompilerError."""
        if not self.is_final or self.library is None:
            self.library = Library(self._well.found(self._written), self.backend, self.shape)
            self.is_final = True
        return self.library

    def keep(self, *, quick: bool) -> None:
        """Have it in the cache, for other processes. Raises as :meth:`wait`."""
        (self._quick if quick else self._well).found(lambda: self._text)

    @cached_property
    def _text(self) -> str:
        return self._written()

    def _written(self) -> str:
        with tracing:
            return source_of(self.backend, self.shape)


@lru_cache(maxsize=128)
def search(backend: Any, shape: StageShape) -> Search:
    """One for each structure, kept for problems that differ in values only."""
    return Search(backend, shape)


def request(wanted: Sequence[Search], steps: Sequence[Search] = ()) -> None:
    """Have libraries made aside that are not there and that nobody makes yet: quickly, then well.

    steps: libraries of time steps alone, which serve before the others are there, and whenever terms are edited. Where making them
    aside is impossible, those that are wanted are made here.
    """
    missing, alone = (
        [s for s in dict.fromkeys(group) if s.maker is None and _is_missing(s)] for group in (wanted, steps)
    )
    if not missing and not alone:
        return
    made = in_background(lambda: _make_all(missing, alone))
    if made is None:
        side_by_side([s.wait for s in missing])
        return
    for s in (*missing, *alone):
        s.maker = made


def _is_missing(s: Search) -> bool:
    try:
        s.look()
    except TooLong:
        return False
    return not s.is_final


def make_here(wanted: Sequence[Search]) -> None:
    """Make libraries side by side; what cannot be made is told to whoever asks for it."""
    missing = [s for s in dict.fromkeys(wanted) if not s.is_final]
    if len(missing) > 1:
        side_by_side([s.wait for s in missing])


def side_by_side(work: Sequence[Callable[[], Any]]) -> None:
    """Do some work on threads, whose refusals and failures show again where the results are asked for."""

    def attempt(call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as reason:
            _LOG.info("a library could not be precompiled: %s", reason)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(attempt, work))


def _make_all(wanted: Sequence[Search], steps: Sequence[Search]) -> None:
    """The work of the other process; the first failure ends it, and is told."""
    early = steps if wanted else ()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for group, quick in ((early, True), (wanted, True), (wanted, False), (steps, False)):
            list(pool.map(lambda s, quick=quick: _unless_refused(s, quick), group))
    remember_sources()


def _unless_refused(s: Search, quick: bool) -> None:
    with contextlib.suppress(TooLong, TraceError):
        s.keep(quick=quick)


def library_at(backend: Any, shape: StageShape) -> Library | None:
    """The library of a structure: waited for, or as good as there is at once. Raises TooLong, TraceError."""
    found = search(backend, shape)
    if not starts_at_once():
        return found.wait()
    library = found.look()
    request([found])
    return library
