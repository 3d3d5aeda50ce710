"""Cache of compiled kernels: contents, clearing, compilation."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dynamics_backends.compiled.runtime.cache import cache_folder
from dynamics_backends.compiled.runtime.stale_files import remove_stale_files
from dynamics_backends.trusted_files import problem_of

if TYPE_CHECKING:
    from trajopt.config.config import Config

_CACHE_FILE = re.compile(r"[0-9a-f]{32}\.(so|sha256|o|o\.sha256|known|texts|turn)")


class Contents(NamedTuple):
    """Cache files in a folder. size: [bytes]; problem: the reason why kernels cannot be written there, or ''."""

    folder: Path
    files: list[Path]
    size: int
    problem: str

    @property
    def kernels(self) -> int:
        """Number of compiled libraries."""
        return sum(path.suffix == ".so" for path in self.files)

    def __str__(self) -> str:
        count = "1 kernel" if self.kernels == 1 else f"{self.kernels} kernels"
        return f"{self.folder}: {count}, {self.size / 2**20:.1f} MiB, {self.problem or 'writable'}"


def contents() -> Contents:
    """List the files of the kernel cache."""
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
    """Return the reason why kernels cannot be written or read in a folder, or ''; tests with a temporary file."""
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
    remove_stale_files(cache_folder())
    before = contents()
    for path in before.files:
        path.unlink(missing_ok=True)
    return before


def precompile(config: Config, progress: Callable[[str], AbstractContextManager] = nullcontext) -> int:
    """Build all kernels that `solve` needs for a configuration; return the number of new kernels.

    ``progress`` is entered with the name of each step. Raises CompilerError.
    """
    from trajopt.config.build import build_task, make_ready

    before = contents().kernels
    task = build_task(replace(config, backend=replace(config.backend, engine="compiled")))
    with progress("backward passes, stages, dynamics"):
        make_ready(config, task)
    return contents().kernels - before
