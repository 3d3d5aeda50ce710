"""Import of optional packages of the extra ``sweep``."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(package: str) -> Any:
    """Import a package. Raises ModuleNotFoundError with the command that installs it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.split(".")[0]:
            raise
        message = f"studies need the package {error.name}: pip install 'urdf-trajopt[sweep]'"
        raise ModuleNotFoundError(message, name=error.name) from error
