"""Packages of the extra ``sweep``, loaded when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(package: str) -> Any:
    """The package. Raises ModuleNotFoundError, which says how to get it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.split(".")[0]:
            raise
        message = f"studies need the package {error.name}: pip install 'urdf-trajopt[sweep]'"
        raise ModuleNotFoundError(message, name=error.name) from error
