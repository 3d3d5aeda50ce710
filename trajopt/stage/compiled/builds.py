"""Libraries of phases: their tapes, and compiled code for dynamics that have no tape."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import Any

from dynamics_backends.compiled.interface.sources import TooLong, TraceError
from trajopt.stage.compiled.library import Library, compiled_code
from trajopt.stage.compiled.taped_functions import TapedFunctions, taped_functions
from trajopt.stage.source.stage_source import StageShape

_LOG = logging.getLogger(__name__)


class Build:
    """Library of a phase's structure, made on demand. library: None until it is made."""

    def __init__(self, backend: Any, shape: StageShape) -> None:
        self.backend, self.shape = backend, shape
        self.library: Library | None = None

    @cached_property
    def _tapes_or_refusal(self) -> TapedFunctions | TooLong | TraceError:
        try:
            return taped_functions(self.backend, self.shape)
        except (TooLong, TraceError) as refusal:
            return refusal

    @property
    def _taped(self) -> TapedFunctions:
        if isinstance(self._tapes_or_refusal, Exception):
            raise self._tapes_or_refusal
        return self._tapes_or_refusal

    @property
    def needs_compiler(self) -> bool:
        """True if some functions have no tape. Raises TooLong, TraceError."""
        return self._taped.compiled is not None

    def made(self) -> Library:
        """Return the library, compiled or from the cache. Raises TooLong, TraceError, CompilerError."""
        if self.library is None:
            compiled = self._taped.compiled
            code = None if compiled is None else compiled_code(self.backend, compiled)
            self.library = Library(code, self._taped, self.backend, self.shape)
        return self.library


@lru_cache(maxsize=128)
def build(backend: Any, shape: StageShape) -> Build:
    """Return the cached :class:`Build` of a structure, shared by problems that differ in values only."""
    return Build(backend, shape)


def make_in_parallel(builds: Sequence[Build]) -> None:
    """Make libraries on threads; failures are logged, and raised again when the library is requested."""

    def attempt(b: Build) -> None:
        try:
            b.made()
        except Exception as reason:
            _LOG.info("a library could not be made: %s", reason)

    missing = [b for b in dict.fromkeys(builds) if b.library is None]
    if len(missing) > 1:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(attempt, missing))
