"""Fingerprint of the toolkit, interpreter and libraries that generate code; part of every cache key."""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dynamics_backends.compiled.runtime.fingerprints.source_texts import counted_as

TOOLKIT = ("dynamics_backends", "trajopt")
"""Packages whose sources are part of every hash."""


@lru_cache(maxsize=1)
def environment() -> bytes:
    """Hash of the toolkit's sources, the interpreter and the versions of the libraries that take part in tracing.

    Sources count without comments and docstrings (:mod:`~dynamics_backends.compiled.runtime.fingerprints.source_texts`).
    """
    content = hashlib.sha256(sys.version.encode())
    content.update(f"numpy {np.__version__}\n".encode() + _installed("casadi"))
    for package in TOOLKIT:
        files = _sources(package)
        for file, counted in zip(files, counted_as(file.read_bytes() for file in files), strict=True):
            content.update(f"{package} {file.name} {counted}\n".encode())
    return content.digest()


def toolkit_texts() -> list[bytes]:
    """Source texts of the toolkit's packages."""
    return [file.read_bytes() for package in TOOLKIT for file in _sources(package)]


def _installed(package: str) -> bytes:
    """Sizes and times of a package's files, which identify the installed version without importing it."""
    spec = find_spec(package)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    files = [] if folder is None else sorted(file for file in folder.iterdir() if package in file.name)
    return "".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}\n" for file in files).encode()


def _sources(package: str) -> list[Path]:
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    return sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".h", ".c") and "__pycache__" not in p.parts)
