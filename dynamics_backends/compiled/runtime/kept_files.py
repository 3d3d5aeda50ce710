"""Files that other processes may read, write or lose at any moment: each appears whole, and with its checksum.

A file is written under a name of its own and renamed; its checksum stands beside it (libraries, objects) or in front of its
content (values).  What is truncated, foreign or half written is as good as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import zlib
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """The folder of compiled kernels: TRAJOPT_CACHE_DIR, or the user's cache folder."""
    if os.environ.get("TRAJOPT_CACHE_DIR"):
        return Path(os.environ["TRAJOPT_CACHE_DIR"])
    import platformdirs

    return Path(platformdirs.user_cache_dir("trajopt")) / "kernels"


def prebuilt_folder() -> Path:
    """The folder of kernels that were built with the installation: TRAJOPT_PREBUILT_DIR, or beside the interpreter's packages."""
    return Path(os.environ.get("TRAJOPT_PREBUILT_DIR") or Path(sys.prefix) / "share" / "trajopt" / "kernels")


def intact(file: Path) -> bool:
    """Whether a file with a checksum beside it is there, whole: a truncated library must never reach the dynamic loader."""
    try:
        return checksum_of(file).read_bytes() == _digest(file.read_bytes()).encode()
    except OSError:
        return False


def seal(file: Path) -> None:
    """Write the checksum of a file that has been moved to its place. Raises OSError."""
    replace(checksum_of(file), _digest(file.read_bytes()).encode())


def checksum_of(file: Path) -> Path:
    """Where the checksum of a library or an object is."""
    return file.with_suffix(".sha256" if file.suffix == ".so" else file.suffix + ".sha256")


def replace(file: Path, content: bytes) -> None:
    """Write a file at once. Raises OSError."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def write_value(file: Path, value: Any) -> None:
    """Keep a value of JSON, under the name of the file it is for. Raises OSError."""
    packed = zlib.compress(json.dumps([file.name, value]).encode(), level=1)
    replace(file, _digest(packed).encode() + packed)


def read_value(file: Path) -> Any:
    """The value kept in a file; None where there is none that is whole, and for this name."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    checksum, packed = content[:64], content[64:]
    if checksum != _digest(packed).encode():
        return None
    name, value = json.loads(zlib.decompress(packed))
    return value if name == file.name else None


def known_value(name: str) -> Any:
    """The value kept under a name in the cache, or built with the installation."""
    found = read_value(cache_folder() / name)
    return read_value(prebuilt_folder() / name) if found is None else found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
