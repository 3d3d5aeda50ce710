"""Files that other processes may read, write or lose at any moment: each appears whole, and with its checksum.

A file is written under a name of its own and renamed; its checksum stands beside it (libraries, objects) or in its first line
(texts).  What is truncated, foreign or half written is as good as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any


def intact(file: Path) -> bool:
    """Whether a file with a checksum beside it is there, whole: a truncated library must never reach the dynamic loader."""
    try:
        return checksum_of(file).read_bytes() == _digest(file.read_bytes()).encode()
    except OSError:
        return False


def seal(file: Path) -> None:
    """Write the checksum of a file that has been moved to its place. Raises OSError."""
    replace_text(checksum_of(file), _digest(file.read_bytes()))


def checksum_of(file: Path) -> Path:
    """Where the checksum of a library or an object is."""
    return file.with_suffix(".sha256" if file.suffix == ".so" else file.suffix + ".sha256")


def replace_text(file: Path, text: str) -> None:
    """Write a text at once. Raises OSError."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def write_value(file: Path, value: Any) -> None:
    """Keep a value of JSON, under the name of the file it is for. Raises OSError."""
    text = json.dumps([file.name, value])
    replace_text(file, f"{_digest(text.encode())}\n{text}")


def read_value(file: Path) -> Any:
    """The value kept in a file; None where there is none that is whole, and for this name."""
    try:
        checksum, _, text = file.read_text().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    if checksum != _digest(text.encode()):
        return None
    name, value = json.loads(text)
    return value if name == file.name else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
