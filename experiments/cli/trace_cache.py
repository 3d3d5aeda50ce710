"""Cache of traced functions on disk: contents and clearing."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from dynamics_backends.compiled.runtime.trace_cache import cache_folder
from dynamics_backends.trusted_files import problem_of

_CACHE_FILE = re.compile(r"[0-9a-f]{32}\.known(\.[a-z0-9_]{8}\.tmp)?")
"""Names of cache files, and of those that a killed process left unfinished."""


class Contents(NamedTuple):
    """Cache files in a folder. size: [bytes]; problem: the reason why nothing can be written there, or ''."""

    folder: Path
    files: list[Path]
    size: int
    problem: str

    def __str__(self) -> str:
        count = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        return f"{self.folder}: {count}, {self.size / 2**20:.1f} MiB, {self.problem or 'writable'}"


def contents() -> Contents:
    """List the files of the cache."""
    folder = cache_folder()
    own = [path for path in folder.iterdir() if _is_cache_file(path)] if folder.is_dir() else []
    return Contents(folder, sorted(own), sum(map(_size, own)), _problem(folder))


def _size(path: Path) -> int:
    """Return the size of a file [bytes], 0 if another process has just removed it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_cache_file(path: Path) -> bool:
    return _CACHE_FILE.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def _problem(folder: Path) -> str:
    """Return the reason why a folder cannot be written or read, or ''; tests with a temporary file."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    problem = problem_of(folder) if folder.is_dir() else ""
    if problem:
        return f"not used: {problem}; or set TRAJOPT_CACHE_DIR to a folder that others cannot write to"
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"not writable ({error.strerror}): set TRAJOPT_CACHE_DIR to a writable folder"


def clear() -> Contents:
    """Remove the cache files and no others; return the removed files."""
    before = contents()
    for path in before.files:
        path.unlink(missing_ok=True)
    return before
