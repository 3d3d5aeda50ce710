"""Cache of trace results on disk, keyed by the structure of the question: a second process need not trace.

A question is everything that the answer depends on, hashed by :mod:`~dynamics_backends.compiled.runtime.fingerprints.structure`.
Answers are values of JSON; the answer to which library belongs to a structure is the library's name in the cache, so that the
library itself is still that of one source, found by its own hash and checked by its own checksum."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Callable
from typing import Any

from dynamics_backends.compiled.runtime.cache import cache_folder, existing, key_of, load
from dynamics_backends.compiled.runtime.file_locks import turn
from dynamics_backends.compiled.runtime.fingerprints.source_texts import remember
from dynamics_backends.compiled.runtime.fingerprints.structure import Unknown, digest
from dynamics_backends.compiled.runtime.fingerprints.toolkit_version import toolkit_texts
from dynamics_backends.compiled.runtime.kept_files import known_value, write_value
from dynamics_backends.compiled.runtime.toolchain import Toolchain, find_toolchain
from dynamics_backends.trusted_files import trusted_folder

SUFFIX = ".known"
_LOG = logging.getLogger(__name__)
_told: set[str] = set()


class Sought:
    """A library for a structure, which may be known.

    question: the structure. refusals: errors by which a source refuses a structure for good; they are remembered too.
    toolchain: what compiles it, default that of this machine.
    """

    def __init__(
        self, *question: Any, refusals: tuple[type[Exception], ...] = (), toolchain: Toolchain | None = None
    ) -> None:
        self.toolchain = toolchain or find_toolchain()
        self.refusals = refusals
        self._key = _key("library", self.toolchain.definitions, self.toolchain.fingerprint, *question)

    def known(self) -> ctypes.CDLL | None:
        """The library known for the structure, without a look at its source. Raises a refusal that is known."""
        known = None if self._key is None else known_value(f"{self._key}{SUFFIX}")
        if known is None:
            return None
        name, refusal = known
        for kind in self.refusals:
            if kind.__name__ == name:
                raise kind(refusal)
        return existing(name)

    @property
    def may_be_known(self) -> bool:
        """True if it is worth asking: as quick as a look into a folder."""
        return self._key is not None and (cache_folder() / f"{self._key}{SUFFIX}").exists()

    def found(self, source: Callable[[], str]) -> ctypes.CDLL:
        """The library known for the structure, or that of ``source()``, compiled or from the cache.

        Raises refusals, and CompilerError where it has to be compiled and cannot be.
        """
        known = self.known()
        if known is not None:
            return known
        if self._key is None:
            return load(source(), self.toolchain)
        with turn(cache_folder() / f"{self._key}.turn"):
            known = self.known()
            return self._made(source) if known is None else known

    def _made(self, source: Callable[[], str]) -> ctypes.CDLL:
        try:
            text = source()
        except self.refusals as reason:
            _remember(self._key, [type(reason).__name__, str(reason)])
            raise
        made = load(text, self.toolchain)
        _remember(self._key, [key_of(text, self.toolchain), ""])
        return made


def library(source: Callable[[], str], *question: Any, refusals: tuple[type[Exception], ...] = ()) -> ctypes.CDLL:
    """See :meth:`Sought.found`."""
    return Sought(*question, refusals=refusals).found(source)


def remembered(answer: Callable[[], Any], *question: Any) -> Any:
    """The answer to a question, a value of JSON: as it was found before, or by asking ``answer()``."""
    key = _key("answer", *question)
    known = None if key is None else known_value(f"{key}{SUFFIX}")
    if known is None:
        known = [answer()]
        _remember(key, known)
    return known[0]


def remember_sources() -> None:
    """Keep what the toolkit's sources mean, so that edits of docstrings and comments make nothing unknown."""
    with contextlib.suppress(OSError):
        remember(toolkit_texts())


def _key(*question: Any) -> str | None:
    """None where the structure of the question cannot be told, which is said once."""
    try:
        return digest(*question)
    except Unknown as reason:
        if str(reason) not in _told:
            _told.add(str(reason))
            _LOG.warning("kernels are traced again in each process, because their dependencies are unknown: %s", reason)
        return None


def _remember(key: str | None, value: Any) -> None:
    """Keep a value; where that is impossible it is found again the next time."""
    if key is None:
        return
    file = cache_folder() / f"{key}{SUFFIX}"
    try:
        trusted_folder(file.parent)
        write_value(file, value)
    except OSError as error:
        _LOG.info("%s is not cached: %s", file, error)
