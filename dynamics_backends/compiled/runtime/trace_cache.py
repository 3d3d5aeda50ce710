"""Cache of trace results on disk, keyed by the structure of the traced functions: a second process need not trace.

The key hashes everything that the result depends on (:mod:`~dynamics_backends.compiled.runtime.fingerprints.structure`).  Results
are JSON values.  For a library the result is its name in the cache: the library itself is still keyed by the hash of its source and
checked by its checksum.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Callable
from typing import Any

from dynamics_backends.compiled.runtime.cache import cache_folder, existing, key_of, load
from dynamics_backends.compiled.runtime.file_locks import file_lock
from dynamics_backends.compiled.runtime.fingerprints.source_texts import remember
from dynamics_backends.compiled.runtime.fingerprints.structure import Unknown, digest
from dynamics_backends.compiled.runtime.fingerprints.toolkit_version import toolkit_texts
from dynamics_backends.compiled.runtime.kept_files import known_value, write_value
from dynamics_backends.compiled.runtime.toolchain import Toolchain, find_toolchain
from dynamics_backends.trusted_files import trusted_folder

SUFFIX = ".known"
_LOG = logging.getLogger(__name__)
_logged: set[str] = set()


class Sought:
    """Compiled library of a structure, which the cache may know.

    question: the structure. refusals: exceptions by which a source rejects a structure permanently; they are cached too.
    toolchain: compiler of the library, default that of this machine.
    """

    def __init__(
        self, *question: Any, refusals: tuple[type[Exception], ...] = (), toolchain: Toolchain | None = None
    ) -> None:
        self.toolchain = toolchain or find_toolchain()
        self.refusals = refusals
        self._key = _key("library", self.toolchain.definitions, self.toolchain.fingerprint, *question)

    def known(self) -> ctypes.CDLL | None:
        """Cached library of the structure, or None; its source is not generated. Raises a cached refusal."""
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
        """True if the cache has an entry for the structure; as fast as a file lookup."""
        return self._key is not None and (cache_folder() / f"{self._key}{SUFFIX}").exists()

    def found(self, source: Callable[[], str]) -> ctypes.CDLL:
        """Return the cached library of the structure, or that of ``source()``, compiled or cached.

        Raises refusals, and CompilerError if the library has to be compiled and the compilation fails.
        """
        known = self.known()
        if known is not None:
            return known
        if self._key is None:
            return load(source(), self.toolchain)
        with file_lock(cache_folder() / f"{self._key}.turn"):
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


def remembered(answer: Callable[[], Any], *question: Any) -> Any:
    """Return the cached JSON value of a question, else compute it by ``answer()`` and cache it."""
    key = _key("answer", *question)
    known = None if key is None else known_value(f"{key}{SUFFIX}")
    if known is None:
        known = [answer()]
        _remember(key, known)
    return known[0]


def remember_sources() -> None:
    """Cache the hashes of the toolkit's sources without docstrings and comments, so that edits of those invalidate nothing."""
    with contextlib.suppress(OSError):
        remember(toolkit_texts())


def _key(*question: Any) -> str | None:
    """Hash of a question; None, with one log message, if an object in it has no hash."""
    try:
        return digest(*question)
    except Unknown as reason:
        if str(reason) not in _logged:
            _logged.add(str(reason))
            _LOG.warning("kernels are traced again in each process, because their dependencies are unknown: %s", reason)
        return None


def _remember(key: str | None, value: Any) -> None:
    """Cache a value on disk; a failure is logged, and the value is computed again the next time."""
    if key is None:
        return
    file = cache_folder() / f"{key}{SUFFIX}"
    try:
        trusted_folder(file.parent)
        write_value(file, value)
    except OSError as error:
        _LOG.info("%s is not cached: %s", file, error)
