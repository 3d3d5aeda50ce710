"""File locks between the threads and processes that share a cache: each library is compiled once.

If a lock is unavailable (a read-only folder, a file system without locks) the caller proceeds without it, and work may be done
twice.  Open files hold the locks, so that a killed process leaves none.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynamics_backends.trusted_files import FILE, trusted_folder

_here: dict[str, threading.Lock] = {}
_all = threading.Lock()


@contextmanager
def file_lock(file: Path) -> Iterator[None]:
    """Hold the lock of a file exclusively, among threads and processes; the file exists while the lock is held."""
    with _all:
        mine = _here.setdefault(str(file), threading.Lock())
    with mine, _locked(file):
        yield


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    try:
        import fcntl

        trusted_folder(file.parent)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):  # a waiting process locks the removed file, and finds the work done
            file.unlink()
        os.close(handle)
