"""Compilation of stage libraries: while the caller waits, or in a background process while NumPy evaluates the stages.

A background process compiles for solves that start at once (:mod:`trajopt.stage.start`): first with quick compiler flags, then with
full optimization.
It outlives this process. Solves that wait never use a "quick" library.
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
from trajopt.stage.compiled.library import Library, library_lookup, source_of
from trajopt.stage.compiled.taped_functions import TapedFunctions, taped_functions
from trajopt.stage.source.stage_source import StageShape
from trajopt.stage.start import starts_at_once

_LOG = logging.getLogger(__name__)
_logged: set[str] = set()


class Search:
    """Lookup of the library of a phase's structure in the cache, with its optimized and its quick version."""

    def __init__(self, backend: Any, shape: StageShape) -> None:
        self.backend, self.shape = backend, shape
        self.library: Library | None = None
        self.is_final = False
        self.maker: BackgroundProcess | None = None

    @cached_property
    def _well(self) -> Any:
        return library_lookup(self.backend, self.shape)

    @cached_property
    def _tapes(self) -> TapedFunctions | None:
        """The functions as tapes; None if they have to be compiled, or cannot be traced."""
        try:
            return taped_functions(self.backend, self.shape)
        except (TooLong, TraceError):
            return None

    @property
    def needs_compiler(self) -> bool:
        """True if some functions have no tape."""
        return self._tapes is None

    @cached_property
    def _quick(self) -> Any:
        return library_lookup(self.backend, self.shape, quick=True)

    def lookup(self) -> Library | None:
        """Return the best library in the cache, or None. Raises TooLong if compilation was refused before."""
        if self._tapes is not None:
            return self.wait()
        if not self.is_final and self._well.may_be_known:
            self._load(self._well)
            self.is_final = self.library is not None
        elif self.library is None and self._quick.may_be_known:
            self._load(self._quick)
        return self.library

    def _load(self, lookup: Any) -> None:
        library = lookup.known()
        self.library = self.library if library is None else Library(library, self.backend, self.shape)

    @property
    def is_compiling(self) -> bool:
        """True while a background process of this process compiles the library; logs a failure once."""
        if self.maker is None or not self.maker.finished:
            return self.maker is not None
        if self.maker.complaint and self.maker.complaint not in _logged:
            _logged.add(self.maker.complaint)
            _LOG.warning("continuing with NumPy, because compilation failed: %s", self.maker.complaint)
        return False

    def wait(self) -> Library:
        """Return the optimized library, compiled in this process if needed. Raises TooLong, TraceError, CompilerError."""
        if not self.is_final or self.library is None:
            source = self._well.found(self._written) if self._tapes is None else self._tapes
            self.library = Library(source, self.backend, self.shape)
            self.is_final = True
        return self.library

    def compile_to_cache(self, *, quick: bool) -> None:
        """Compile the library into the cache, for other processes. Raises the errors of :meth:`wait`."""
        (self._quick if quick else self._well).found(lambda: self._text)

    @cached_property
    def _text(self) -> str:
        return self._written()

    def _written(self) -> str:
        with tracing:
            return source_of(self.backend, self.shape)


@lru_cache(maxsize=128)
def search(backend: Any, shape: StageShape) -> Search:
    """Return the cached :class:`Search` of a structure, shared by problems that differ in values only."""
    return Search(backend, shape)


def request(wanted: Sequence[Search], steps: Sequence[Search] = ()) -> None:
    """Start a background process that compiles the missing libraries, first quick, then optimized.

    steps: libraries of time steps alone, used until the others are compiled and again after terms are edited. Without background
    processes, the ``wanted`` libraries are compiled in this process.
    """
    missing, alone = (
        [s for s in dict.fromkeys(group) if s.maker is None and _is_missing(s)] for group in (wanted, steps)
    )
    if not missing and not alone:
        return
    made = in_background(lambda: _make_all(missing, alone))
    if made is None:
        run_in_parallel([s.wait for s in missing])
        return
    for s in (*missing, *alone):
        s.maker = made


def _is_missing(s: Search) -> bool:
    try:
        s.lookup()
    except TooLong:
        return False
    return not s.is_final


def make_here(wanted: Sequence[Search]) -> None:
    """Compile libraries in parallel; a failure is raised again when its library is waited for."""
    missing = [s for s in dict.fromkeys(wanted) if not s.is_final]
    if len(missing) > 1:
        run_in_parallel([s.wait for s in missing])


def run_in_parallel(work: Sequence[Callable[[], Any]]) -> None:
    """Run calls on threads; failures are logged and are raised again when the results are requested."""

    def attempt(call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as reason:
            _LOG.info("a library could not be precompiled: %s", reason)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(attempt, work))


def _make_all(wanted: Sequence[Search], steps: Sequence[Search]) -> None:
    """Work of the background process; the first failure ends it and is reported to the parent."""
    early = steps if wanted else ()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for group, quick in ((early, True), (wanted, True), (wanted, False), (steps, False)):
            list(pool.map(lambda s, quick=quick: _unless_refused(s, quick), group))
    remember_sources()


def _unless_refused(s: Search, quick: bool) -> None:
    with contextlib.suppress(TooLong, TraceError):
        s.compile_to_cache(quick=quick)


def library_for(backend: Any, shape: StageShape) -> Library | None:
    """Return the library of a structure: compiled now, or, for solves that start at once, the best in the cache.

    Raises TooLong, TraceError.
    """
    result = search(backend, shape)
    if not starts_at_once():
        return result.wait()
    library = result.lookup()
    request([result])
    return library
