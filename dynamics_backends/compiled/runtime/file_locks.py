"""File locks among the threads and processes that share a cache: each library is compiled once.

A turn that cannot be had (a folder that cannot be written, a file system without locks) is taken at once: then work is done
twice.  Locks are held by open files, so that a killed process leaves none.
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
def turn(file: Path) -> Iterator[None]:
    """While nobody else is in a turn of the same name; the file is there as long as somebody is, or was killed."""
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
        with contextlib.suppress(OSError):  # who waits for it holds the removed file, and finds the work done
            file.unlink()
        os.close(handle)
