"""Files that other processes may read, write or lose at any moment: each appears whole, and with its checksum.

A file is written under a temporary name and renamed; its checksum is beside it (libraries, objects) or in front of its content
(values).  What is truncated, foreign, half written, or could have been written by another user counts as missing
(:mod:`~dynamics_backends.compiled.runtime.permissions`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from dynamics_backends.compiled.runtime.permissions import FILE, is_trusted_file, problem_of

_LOG = logging.getLogger(__name__)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def cache_folder() -> Path:
    """The folder of compiled kernels: TRAJOPT_CACHE_DIR, or the user's cache folder."""
    if os.environ.get("TRAJOPT_CACHE_DIR"):
        return Path(os.environ["TRAJOPT_CACHE_DIR"])
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("trajopt"))
    if not folder.is_absolute():  # neither HOME nor the list of users knows this user's folder
        folder = Path(tempfile.gettempdir()) / f"trajopt-{os.getuid()}"
    return folder / "kernels"


def prebuilt_folder() -> Path:
    """The folder of kernels that were built with the installation: TRAJOPT_PREBUILT_DIR, or beside the interpreter's packages."""
    return Path(os.environ.get("TRAJOPT_PREBUILT_DIR") or Path(sys.prefix) / "share" / "trajopt" / "kernels")


def content_of(file: Path) -> bytes | None:
    """The bytes of a trusted file in a trusted folder; None where there is none."""
    try:
        problem = problem_of(file.parent)
        if problem:
            _log_once(file.parent, problem)
            return None
        with os.fdopen(os.open(file, os.O_RDONLY | _NO_LINKS), "rb") as opened:
            return opened.read() if is_trusted_file(opened.fileno()) else None
    except OSError:
        return None


@lru_cache(maxsize=16)
def _log_once(folder: Path, problem: str) -> None:
    """Log why kernels of the installation are not used; of the cache, whoever compiles instead warns."""
    if folder == prebuilt_folder():
        _LOG.warning("the kernels of the installation are not used: %s", problem)


def intact(file: Path) -> bool:
    """True for a trusted file with its checksum beside it: a truncated library must never reach the dynamic loader."""
    content = content_of(file)
    return content is not None and content_of(checksum_of(file)) == _digest(content).encode()


def seal(file: Path) -> None:
    """Write the checksum of a file that has been moved to its place. Raises OSError."""
    replace(checksum_of(file), _digest(file.read_bytes()).encode())


def checksum_of(file: Path) -> Path:
    """Where the checksum of a library or an object is."""
    return file.with_suffix(".sha256" if file.suffix == ".so" else file.suffix + ".sha256")


def replace(file: Path, content: bytes) -> None:
    """Write a file that appears whole, whatever is in its place. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".tmp", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        temporary.chmod(FILE)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def write_value(file: Path, value: Any) -> None:
    """Write a value of JSON, with the name of its file. Raises OSError."""
    packed = zlib.compress(json.dumps([file.name, value]).encode(), level=1)
    replace(file, _digest(packed).encode() + packed)


def read_value(file: Path) -> Any:
    """The value in a trusted file; None where there is none that is whole, and written for this name."""
    content = content_of(file)
    if content is None:
        return None
    checksum, packed = content[:64], content[64:]
    if checksum != _digest(packed).encode():
        return None
    try:
        name, value = json.loads(zlib.decompress(packed))
    except (zlib.error, ValueError, TypeError):
        return None
    return value if name == file.name else None


def known_value(name: str) -> Any:
    """The value kept under a name in the cache, or built with the installation."""
    found = read_value(cache_folder() / name)
    return read_value(prebuilt_folder() / name) if found is None else found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
