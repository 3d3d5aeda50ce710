"""Compiled libraries on disk, by the hash of source, flags, compiler and processor.

One file name per hash, written under a temporary name and renamed, with its own checksum beside it: concurrent
processes, a killed compiler, a truncated or foreign file cost a recompilation at most.  Where the folder cannot be
written, a temporary one serves this process, and a warning says so once.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import threading
import warnings
from functools import lru_cache
from pathlib import Path

from dynamics_backends.compiled.runtime.toolchain import find_toolchain


class CacheWarning(UserWarning):
    """The kernel cache cannot be used as it should."""


def cache_folder() -> Path:
    """The folder of compiled kernels: TRAJOPT_CACHE_DIR, or the user's cache folder."""
    if os.environ.get("TRAJOPT_CACHE_DIR"):
        return Path(os.environ["TRAJOPT_CACHE_DIR"])
    import platformdirs

    return Path(platformdirs.user_cache_dir("trajopt")) / "kernels"


@lru_cache(maxsize=1)
def _fallback_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="trajopt_kernels_"))


def load(source: str) -> ctypes.CDLL:
    """The library compiled from this source, from the cache or from the compiler.

    Raises CompilerError where it has to be compiled and cannot be.
    """
    toolchain = find_toolchain()
    text = toolchain.definitions + source
    key = hashlib.sha256((text + toolchain.fingerprint).encode()).hexdigest()[:32]
    try:
        return _load_from(_ready(cache_folder()), key, text)
    except OSError as error:
        folder = _fallback_folder()
        warnings.warn(
            f"the kernel cache {cache_folder()} cannot be used ({error}); kernels go to {folder} and are compiled anew next time. "
            "Set TRAJOPT_CACHE_DIR to a folder that can be written",
            CacheWarning,
            stacklevel=2,
        )
        return _load_from(_ready(folder), key, text)


def _ready(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _load_from(folder: Path, key: str, source: str) -> ctypes.CDLL:
    library, checksum = folder / f"{key}.so", folder / f"{key}.sha256"
    if not _intact(library, checksum):
        find_toolchain().compile(source, library)
        temporary = checksum.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        temporary.write_text(_digest(library))
        temporary.replace(checksum)
    return ctypes.CDLL(str(library))


def _intact(library: Path, checksum: Path) -> bool:
    """Whether the library is there, whole: a truncated one must never reach the dynamic loader."""
    try:
        return checksum.read_bytes() == _digest(library).encode()
    except OSError:
        return False


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
