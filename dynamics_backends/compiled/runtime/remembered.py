"""What was once found by tracing, kept on disk by the structure of the question: a second process asks, and need not trace.

A question is everything that the answer depends on, hashed by :mod:`~dynamics_backends.compiled.runtime.structure`.  Answers are
values of JSON; the answer to which library belongs to a structure is the library's name in the cache, so that the library itself is
still that of one source, found by its own hash and checked by its own checksum.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynamics_backends.compiled.runtime.cache import cache_folder, existing, key_of, load
from dynamics_backends.compiled.runtime.kept_files import read_value, write_value
from dynamics_backends.compiled.runtime.structure import Unknown, digest
from dynamics_backends.compiled.runtime.toolchain import find_toolchain

SUFFIX = ".known"
_LOG = logging.getLogger(__name__)
_told: set[str] = set()


def library(source: Callable[[], str], *question: Any, refusals: tuple[type[Exception], ...] = ()) -> ctypes.CDLL:
    """The library of a structure: the one known for it, or that of ``source()``, compiled or from the cache.

    refusals: errors of ``source`` by which it refuses a structure for good; they are remembered too, and raised again.
    Raises CompilerError where it has to be compiled and cannot be.
    """
    toolchain = find_toolchain()
    key = _key("library", toolchain.definitions, toolchain.fingerprint, *question)
    known = None if key is None else read_value(_file(key))
    if known is not None:
        name, refusal = known
        for kind in refusals:
            if kind.__name__ == name:
                raise kind(refusal)
        found = existing(name)
        if found is not None:
            return found
    try:
        text = source()
    except refusals as reason:
        _remember(key, [type(reason).__name__, str(reason)])
        raise
    found = load(text)
    _remember(key, [key_of(text), ""])
    return found


def remembered(answer: Callable[[], Any], *question: Any) -> Any:
    """The answer to a question, a value of JSON: as it was found before, or by asking ``answer()``."""
    key = _key("answer", *question)
    known = None if key is None else read_value(_file(key))
    if known is None:
        known = [answer()]
        _remember(key, known)
    return known[0]


def _key(*question: Any) -> str | None:
    """None where the structure of the question cannot be told, which is said once."""
    try:
        return digest(*question)
    except Unknown as reason:
        if str(reason) not in _told:
            _told.add(str(reason))
            _LOG.warning(
                "kernels are traced anew in each process, since it cannot be told what they depend on: %s", reason
            )
        return None


def _file(key: str) -> Path:
    return cache_folder() / f"{key}{SUFFIX}"


def _remember(key: str | None, value: Any) -> None:
    """Keep a value; where that is impossible it is found again the next time."""
    if key is None:
        return
    file = _file(key)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_value(file, value)
    except OSError as error:
        _LOG.info("%s is not kept: %s", file, error)
