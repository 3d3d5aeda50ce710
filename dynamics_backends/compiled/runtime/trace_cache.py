"""Cache of traced functions on disk, keyed by the structure of what was traced: a second process need not trace again.

The key hashes everything that the result depends on (:mod:`~dynamics_backends.compiled.runtime.fingerprints`). Results
are JSON values, such as the data of a tape. The package itself contains traces of bundled problems (tools/build_traces.py).

Each file begins with the checksum of its content and is replaced as a whole. Damaged and foreign files, and those that another user
could have written (:mod:`~dynamics_backends.trusted_files`), count as missing. If the user's folder cannot be written, each process
traces again.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dynamics_backends import environment
from dynamics_backends.compiled.runtime.fingerprints import Unknown, digest, installed_versions
from dynamics_backends.machine.library import FOLDER
from dynamics_backends.trusted_files import checked_content, trusted_folder, user_folder, write_checked

SUFFIX = ".known"
PACKAGED = FOLDER / "traces"
"""Folder of traces that were built with the package."""
_LOG = logging.getLogger(__name__)
_logged: set[str] = set()


def cache_folder() -> Path:
    """Folder of the cache: TRAJOPT_CACHE_DIR, or a folder in the user's cache."""
    return environment.folder(environment.CACHE_FOLDER) or user_folder() / "traces"


def cached_value(compute: Callable[[], Any], *inputs: Any) -> Any:
    """Return the cached JSON value for the inputs, else compute it by ``compute()`` and cache it on disk.

    inputs: all objects that the value depends on. Not cached, which is logged once, if one of them has no structural hash.
    """
    key = _key(*inputs)
    stored = None if key is None else _stored_value(key)
    if stored is None:
        with _without_collection():
            stored = [compute()]
        _store(key, stored)
    return stored[0]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Context without the collection of reference cycles: a trace makes many objects, in no cycles, and a sixth of its time went
    there.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def write_value(file: Path, value: Any) -> None:
    """Write a JSON value, compressed, with a checksum and the name of its file, in place of an existing file. Raises OSError."""
    write_checked(file, zlib.compress(json.dumps([file.name, value]).encode(), level=1))


def read_value(file: Path) -> Any:
    """JSON value of a trusted file; None if the file is missing, damaged, or was written under another name."""
    packed = checked_content(file)
    if packed is None:
        return None
    try:
        name, value = json.loads(zlib.decompress(packed))
    except (zlib.error, ValueError, TypeError):
        return None
    return value if name == file.name else None


def _stored_value(key: str) -> Any:
    """Value of a key in the package, else in the user's cache, as stored: a list with the cached value. None if there is none."""
    packaged = read_value(_file(PACKAGED, key))
    return read_value(_file(cache_folder(), key)) if packaged is None else packaged


def _file(folder: Path, key: str) -> Path:
    """File of a key in a folder. Names of the package's traces ignore the versions of the tracing libraries; those in other folders
    depend on them.
    """
    versions = b"" if folder == PACKAGED else installed_versions()
    return folder / f"{hashlib.sha256(key.encode() + versions).hexdigest()[: len(key)]}{SUFFIX}"


def _key(*inputs: Any) -> str | None:
    """Hash of the inputs; None, which is logged once, if one of them has no structural hash."""
    try:
        return digest(*inputs)
    except Unknown as reason:
        _log_once(f"functions are traced again in each process, because their dependencies are unknown: {reason}")
        return None


def _store(key: str | None, value: Any) -> None:
    """Write a value to the user's cache; does nothing if the key is None. A failure is logged once."""
    if key is None:
        return
    folder = cache_folder()
    try:
        write_value(_file(trusted_folder(folder), key), value)
    except OSError as error:
        _log_once(
            f"the cache {folder} cannot be used ({error.strerror or error}), so each process traces its functions again: set "
            f"{environment.CACHE_FOLDER} to a folder that only you can write to"
        )


def _log_once(message: str) -> None:
    """Log a warning, unless this process has logged it before."""
    if message not in _logged:
        _logged.add(message)
        _LOG.warning("%s", message)
