"""Fingerprints of the toolkit, and of the interpreter and the libraries that take part in tracing; parts of cache keys."""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

TOOLKIT = ("dynamics_backends", "trajopt")
"""Packages whose sources are part of every hash."""


@lru_cache(maxsize=1)
def toolkit_sources() -> bytes:
    """Hash of the toolkit's sources and of the format of byte code, the same on all machines."""
    content = hashlib.sha256(str(sys.implementation.cache_tag).encode())
    for package in TOOLKIT:
        for file in _sources(package):
            content.update(f"{package} {file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return content.digest()


@lru_cache(maxsize=1)
def installed_versions() -> bytes:
    """Hash of the interpreter and of the versions of the libraries that take part in tracing."""
    content = f"{sys.version}\nnumpy {np.__version__}\n".encode() + _installed("casadi")
    return hashlib.sha256(content).digest()


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
