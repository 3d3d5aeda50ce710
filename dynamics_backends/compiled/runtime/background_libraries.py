"""Compiled libraries that many problems share: loaded if ready, else compiled in a background process for the next run."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from dynamics_backends.compiled.runtime.background_process import BackgroundProcess, in_background
from dynamics_backends.compiled.runtime.cache import existing, key_of, load
from dynamics_backends.compiled.runtime.toolchain import find_toolchain


def is_there(source: str) -> bool:
    """True if the library of a text can be had without compiling it; where it cannot, another process is asked to.

    Where there is none to ask, it is compiled here.
    """
    if existing(key_of(source)) is not None:
        return True
    if _asked(source) is not None:
        return False
    load(source)
    return True


def loaded_soon(source: str) -> ctypes.CDLL:
    """The library of a text, where it has to be compiled the one of a compiler in a hurry; another process then does it well.

    Raises CompilerError as :func:`~dynamics_backends.compiled.runtime.cache.load`.
    """
    return load(source) if is_there(source) else load(source, find_toolchain().hurried)


@lru_cache(maxsize=32)
def _asked(source: str) -> BackgroundProcess | None:
    return in_background(lambda: load(source))
