"""Cache of compiled libraries on disk, keyed by the hash of source, flags, compiler and processor.

Libraries that serve many robots may have been built with the installation, in a folder that is searched after the cache.  A library
is written under a temporary name, renamed, and stored with its checksum.  Concurrent processes, a killed compiler, a truncated or a
foreign file therefore cost one recompilation at most.  If the folder is not writable, or writable by other users, this process uses
a temporary folder and warns.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import shutil
import tempfile
import threading
import warnings
from functools import lru_cache
from pathlib import Path

from dynamics_backends.compiled.runtime.kept_files import (
    cache_folder as cache_folder,
    intact,
    seal,
)
from dynamics_backends.compiled.runtime.toolchain import CompilerError, Toolchain, find_toolchain
from dynamics_backends.trusted_files import trusted_folder

_warned: set[str] = set()
_warning = threading.Lock()


class CacheWarning(UserWarning):
    """Warning that the kernel cache is unusable and a temporary folder replaces it."""


@lru_cache(maxsize=1)
def _fallback_folder() -> Path:
    """Temporary folder of this process, removed at exit."""
    atexit.register(remove_fallback)
    return Path(tempfile.mkdtemp(prefix="trajopt_kernels_"))


def remove_fallback() -> None:
    """Remove the temporary folder of this process, if it has one."""
    if _fallback_folder.cache_info().currsize:
        shutil.rmtree(_fallback_folder(), ignore_errors=True)
        _fallback_folder.cache_clear()


def load(source: str, toolchain: Toolchain | None = None) -> ctypes.CDLL:
    """Load the library of a C source from the cache, or compile it.

    Raises CompilerError if the library has to be compiled and the compilation fails.
    """
    toolchain = toolchain or find_toolchain()
    key = key_of(source, toolchain)
    found = existing(key)
    if found is not None:
        return found
    try:
        return _load_from(trusted_folder(cache_folder()), key, source, toolchain)
    except OSError as error:
        reason = error
    try:
        folder = _fallback_folder()
        folder.mkdir(exist_ok=True)
        _warn_once(
            f"the kernel cache {cache_folder()} cannot be used: {_words(reason)}. Kernels go to {folder}, and the next process "
            "compiles them again. Set TRAJOPT_CACHE_DIR to a folder that only you can write to"
        )
        return _load_from(folder, key, source, toolchain)
    except OSError as error:
        raise CompilerError(
            f"no kernel can be written: neither to the cache {cache_folder()} ({_words(reason)}), nor to a temporary folder "
            f"({_words(error)}). Make space there, or set TRAJOPT_CACHE_DIR to another folder; engine = 'numpy' writes none"
        ) from error


def _warn_once(message: str) -> None:
    """Warn, unless this process has issued the same message before."""
    with _warning:
        if message not in _warned:
            _warned.add(message)
            warnings.warn(message, CacheWarning, stacklevel=3)


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def key_of(source: str, toolchain: Toolchain | None = None) -> str:
    """Name of a source's library: the hash of source, definitions, flags, compiler and processor."""
    toolchain = toolchain or find_toolchain()
    text = toolchain.definitions + source + toolchain.fingerprint
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def existing(key: str) -> ctypes.CDLL | None:
    """Library of this name from the cache, if intact and trusted; else None."""
    library = cache_folder() / f"{key}.so"
    if intact(library):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(str(library))
    return None


def _load_from(folder: Path, key: str, source: str, toolchain: Toolchain) -> ctypes.CDLL:
    library = folder / f"{key}.so"
    if not intact(library):
        toolchain.compile(toolchain.definitions + source, library)
        seal(library)
    return ctypes.CDLL(str(library))
