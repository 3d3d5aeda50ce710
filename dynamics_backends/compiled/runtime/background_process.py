"""Background process that outlives this one; its only results are files and an error message.

The process is a fork of this one, so that functions defined in a script or a notebook exist in it.  It is a grandchild in a new
session without open files of this process: no parent waits for it, Ctrl-C does not reach it, and pipes of this process are closed
in it.  While it works it holds a lock file in the cache (:mod:`~dynamics_backends.compiled.runtime.file_locks`) and writes its
progress there.
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
from dynamics_backends.compiled.runtime.file_locks import file_lock
from dynamics_backends.trusted_files import trusted_folder

NICENESS = 10
"""Increase of the niceness of the background process."""
_MAX_MESSAGE = 4000
"""Maximum length of an error message [bytes]."""


class BackgroundProcess:
    """Handle of a background process: its exit and its error message."""

    def __init__(self, pipe: int) -> None:
        self._pipe: int | None = pipe
        self._said = b""

    @property
    def finished(self) -> bool:
        """True once the process has exited, successfully or not."""
        while self._pipe is not None:
            try:
                said = os.read(self._pipe, _MAX_MESSAGE)
            except BlockingIOError:
                return False
            self._said += said
            if not said:
                os.close(self._pipe)
                self._pipe = None
        return True

    @property
    def complaint(self) -> str:
        """Error message of the work, as far as it has been read; '' without an error."""
        return self._said.decode(errors="replace").strip()


def in_background(work: Callable[[], object]) -> BackgroundProcess | None:
    """Run a function in a background process; None if the system has no fork or the cache folder is not writable."""
    if not sys.platform.startswith("linux") or not _cache_is_writable():
        return None
    reading, writing = os.pipe()
    note = cache_folder() / f"{uuid4().hex}.turn"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # fork with threads: they are idle, and absent from the copy
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


def _cache_is_writable() -> bool:
    """True if a background process can write libraries to the cache that this process trusts."""
    try:
        folder = trusted_folder(cache_folder())
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _in_child(work: Callable[[], object], pipe: int, note: Path) -> NoReturn:
    """Body of the child process: it starts the grandchild, which does the work, and exits."""
    try:
        os.setsid()
        if os.fork() == 0:
            _work(work, pipe, note)
    finally:
        os._exit(0)


def _work(work: Callable[[], object], pipe: int, note: Path) -> NoReturn:
    try:
        _forget_parent(pipe)
        with file_lock(note), progress.noted(note), warnings.catch_warnings():
            warnings.simplefilter(
                "error", CacheWarning
            )  # kernels in a temporary folder would be lost when this process exits
            work()
    except BaseException as error:
        kind = "" if isinstance(error, CacheWarning | CompilerError) else f"{type(error).__name__}: "
        with contextlib.suppress(OSError):
            os.write(pipe, f"{kind}{error}".encode()[:_MAX_MESSAGE])
    finally:
        remove_fallback()
        os._exit(0)


def _forget_parent(pipe: int) -> None:
    """Drop open files, locks and thread pools that the fork copied from the parent process."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    progress.restart()
    file_locks._here.clear()
    memory._pool.cache_clear()
    _fallback_folder.cache_clear()
