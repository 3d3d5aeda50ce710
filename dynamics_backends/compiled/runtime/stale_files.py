"""Removal of stale files that killed processes left in the cache: unused locks, compilation folders, unfinished files.

Only entries with names of the cache are removed, a day after their last change, and lock files only while no process holds them.  A
process that takes a lock in the moment of its removal repeats work, as without locks.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

COMPILING = "compiling_"
"""Prefix of temporary compilation folders."""
STALE_AGE = 24 * 3600.0
"""[s] Age from which an entry is stale: no compilation takes this long."""
_COMPILING = re.compile(rf"{COMPILING}[a-z0-9_]{{8}}")
_COMPILED = re.compile(r"(kernel|[0-9a-f]{32})\.(c|o|so)")
_LOCK_FILE = re.compile(r"[0-9a-f]{32}\.turn")
_UNFINISHED = re.compile(r"[0-9a-f]{32}\.[a-z0-9.]+\.[a-z0-9_]{8}\.tmp")


def remove_stale_files(folder: Path) -> None:
    """Remove stale entries of a cache folder; entries that cannot be removed stay."""
    for entry in _old(folder):
        if entry.is_dir(follow_symlinks=False):
            if _COMPILING.fullmatch(entry.name) and _holds_nothing_else(entry):
                shutil.rmtree(entry.path, ignore_errors=True)
        elif _UNFINISHED.fullmatch(entry.name) or (_LOCK_FILE.fullmatch(entry.name) and _is_free(Path(entry.path))):
            with contextlib.suppress(OSError):
                Path(entry.path).unlink()


def _old(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Entries of a folder that may be stale, by name and age."""
    latest = time.time() - STALE_AGE
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                ours = entry.name.startswith(COMPILING) or entry.name.endswith((".turn", ".tmp"))
                if ours and max(entry.stat(follow_symlinks=False).st_mtime, *_written(entry)) < latest:
                    yield entry


def _holds_nothing_else(entry: os.DirEntry[str]) -> bool:
    """True if a folder holds only files that a compilation writes."""
    with os.scandir(entry.path) as inside:
        return all(file.is_file(follow_symlinks=False) and _COMPILED.fullmatch(file.name) for file in inside)


def _written(entry: os.DirEntry[str]) -> list[float]:
    """Modification times of the files in a folder; [0] for a file."""
    if not entry.is_dir(follow_symlinks=False):
        return [0.0]
    with os.scandir(entry.path) as inside:
        return [0.0, *(file.stat(follow_symlinks=False).st_mtime for file in inside)]


def _is_free(lock: Path) -> bool:
    """True if this process can lock a lock file, so that no other process holds it."""
    try:
        import fcntl

        handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
