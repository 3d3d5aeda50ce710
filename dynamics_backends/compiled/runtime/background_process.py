"""Background process that outlives this one; its only results are files and an error message.

The process is a copy of this one (fork), so that functions written in a script or a notebook are there too.  It is a grandchild in
a session of its own, with no open file of this one: nobody waits for it, no Ctrl-C reaches it, and a pipe that this process wrote
to ends with it.  While it works, a turn (:mod:`~dynamics_backends.compiled.runtime.file_locks`) in the cache says so, and how far
it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from dynamics_backends.compiled.runtime import file_locks, memory, progress
from dynamics_backends.compiled.runtime.cache import (
    CacheWarning,
    CompilerError,
    _fallback_folder,
    cache_folder,
    remove_fallback,
)
from dynamics_backends.compiled.runtime.file_locks import turn
from dynamics_backends.trusted_files import trusted_folder

NICER = 10
"""By how much the process steps back behind this one."""
_MOST = 4000
"""Bytes of a complaint."""


class BackgroundProcess:
    """The work, as seen from here."""

    def __init__(self, pipe: int) -> None:
        self._pipe: int | None = pipe
        self._said = b""

    @property
    def finished(self) -> bool:
        """True once the process has exited, successfully or not."""
        while self._pipe is not None:
            try:
                said = os.read(self._pipe, _MOST)
            except BlockingIOError:
                return False
            self._said += said
            if not said:
                os.close(self._pipe)
                self._pipe = None
        return True

    @property
    def complaint(self) -> str:
        """Why the work failed, as far as is known; '' where it did not."""
        return self._said.decode(errors="replace").strip()


def in_background(work: Callable[[], object]) -> BackgroundProcess | None:
    """Begin some work in another process; None where this system has none of the kind, or the cache cannot keep what it makes."""
    if not sys.platform.startswith("linux") or not _can_be_kept():
        return None
    reading, writing = os.pipe()
    note = cache_folder() / f"{uuid4().hex}.turn"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which are idle or gone there
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    if child == 0:
        _in_child(work, writing, note)
    os.close(writing)
    os.waitpid(child, 0)
    os.set_blocking(reading, False)
    progress.follow(note)
    return BackgroundProcess(reading)


def _can_be_kept() -> bool:
    """True where another process can leave a library where this one finds it."""
    try:
        folder = trusted_folder(cache_folder())
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _in_child(work: Callable[[], object], pipe: int, note: Path) -> NoReturn:
    """The life of the child, whose own child does the work."""
    try:
        os.setsid()
        if os.fork() == 0:
            _work(work, pipe, note)
    finally:
        os._exit(0)


def _work(work: Callable[[], object], pipe: int, note: Path) -> NoReturn:
    try:
        _forget_parent(pipe)
        with turn(note), progress.noted(note), warnings.catch_warnings():
            warnings.simplefilter("error", CacheWarning)  # kernels elsewhere are lost with this process
            work()
    except BaseException as error:
        kind = "" if isinstance(error, CacheWarning | CompilerError) else f"{type(error).__name__}: "
        with contextlib.suppress(OSError):
            os.write(pipe, f"{kind}{error}".encode()[:_MOST])
    finally:
        remove_fallback()
        os._exit(0)


def _forget_parent(pipe: int) -> None:
    """No files, locks and threads of the process that this one is a copy of."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    with contextlib.suppress(OSError):
        os.nice(NICER)
    progress.restart()
    file_locks._here.clear()
    memory._pool.cache_clear()
    _fallback_folder.cache_clear()
