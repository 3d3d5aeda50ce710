"""Files of the cache that other processes may read, write or remove at any time, each with a checksum.

A file is written under a temporary name and renamed.  The checksum of a library or an object is a second file; the checksum of a
JSON value precedes its content.  Truncated, foreign, half-written files and files that another user could have written count as
missing (:mod:`~dynamics_backends.trusted_files`).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

from dynamics_backends import environment
from dynamics_backends.trusted_files import content_of, replace, user_folder


def cache_folder() -> Path:
    """Folder of compiled kernels: TRAJOPT_CACHE_DIR, or a folder in the user's cache."""
    return environment.folder(environment.CACHE_FOLDER) or user_folder() / "kernels"


def intact(file: Path) -> bool:
    """True for a trusted file that matches its stored checksum: a truncated library must never reach the dynamic loader."""
    content = content_of(file)
    return content is not None and content_of(checksum_of(file)) == _digest(content).encode()


def seal(file: Path) -> None:
    """Write the checksum of a file that has its final name. Raises OSError."""
    replace(checksum_of(file), _digest(file.read_bytes()).encode())


def checksum_of(file: Path) -> Path:
    """Path of the checksum file of a library or an object."""
    return file.with_suffix(".sha256" if file.suffix == ".so" else file.suffix + ".sha256")


def write_value(file: Path, value: Any) -> None:
    """Write a JSON value together with the name of its file. Raises OSError."""
    packed = zlib.compress(json.dumps([file.name, value]).encode(), level=1)
    replace(file, _digest(packed).encode() + packed)


def read_value(file: Path) -> Any:
    """JSON value of a trusted file; None if the file is missing, damaged, or was written under another name."""
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
    """Value stored under a name in the cache; None if there is none."""
    return read_value(cache_folder() / name)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
