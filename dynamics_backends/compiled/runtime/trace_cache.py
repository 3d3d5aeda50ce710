"""Cache of trace results on disk, keyed by the structure of the traced functions: a second process need not trace.

The key hashes everything that the result depends on (:mod:`~dynamics_backends.compiled.runtime.fingerprints.structure`).  Results
are JSON values.  For a library the result is its name in the cache: the library itself is still keyed by the hash of its source and
checked by its checksum.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any

from dynamics_backends.compiled.runtime.cache import cache_folder, existing, key_of, load
from dynamics_backends.compiled.runtime.file_locks import file_lock
from dynamics_backends.compiled.runtime.fingerprints.structure import Unknown, digest
from dynamics_backends.compiled.runtime.kept_files import known_value, write_value
from dynamics_backends.compiled.runtime.toolchain import find_toolchain
from dynamics_backends.trusted_files import trusted_folder

SUFFIX = ".known"
_LOG = logging.getLogger(__name__)
_logged: set[str] = set()


def library(source: Callable[[], str], *question: Any, refusals: tuple[type[Exception], ...] = ()) -> ctypes.CDLL:
    """Library of a structure: the cached one, or that of ``source()``, compiled or cached.

    question: the structure. refusals: exceptions by which a source rejects a structure permanently; they are cached too. Raises
    refusals, and CompilerError if the library has to be compiled and the compilation fails.
    """
    toolchain = find_toolchain()
    key = _key("library", toolchain.definitions, toolchain.fingerprint, *question)
    if key is None:
        return load(source())
    found = _known_library(key, refusals)
    if found is not None:
        return found
    with file_lock(cache_folder() / f"{key}.turn"):
        found = _known_library(key, refusals)
        if found is not None:
            return found
        try:
            text = source()
        except refusals as reason:
            _remember(key, [type(reason).__name__, str(reason)])
            raise
        made = load(text)
        _remember(key, [key_of(text), ""])
        return made


def _known_library(key: str, refusals: tuple[type[Exception], ...]) -> ctypes.CDLL | None:
    """Cached library of a structure, or None; its source is not generated. Raises a cached refusal."""
    known = known_value(f"{key}{SUFFIX}")
    if known is None:
        return None
    name, refusal = known
    for kind in refusals:
        if kind.__name__ == name:
            raise kind(refusal)
    return existing(name)


def remembered(answer: Callable[[], Any], *question: Any) -> Any:
    """Return the cached JSON value of a question, else compute it by ``answer()`` and cache it."""
    key = _key("answer", *question)
    known = None if key is None else known_value(f"{key}{SUFFIX}")
    if known is None:
        known = [answer()]
        _remember(key, known)
    return known[0]


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
