"""Modules that take long to load, loaded when something is first asked of them: most runs find what they made earlier.

The names of a package may be loaded so as well: a stub says where each is (:func:`places`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


class Deferred:
    """Stands for a module in another's globals. prepare: called with the module before anything else is asked of it."""

    def __init__(self, name: str, prepare: Callable[[Any], None] | None = None) -> None:
        self._name, self._prepare = name, prepare

    def __getattr__(self, name: str) -> Any:
        module = import_module(self._name)
        prepare, self._prepare = self._prepare, None
        if prepare is not None:
            prepare(module)
        value = getattr(module, name)
        if not name.startswith("__"):
            setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return dir(import_module(self._name))


def deferred(name: str, prepare: Callable[[Any], None] | None = None) -> Any:
    """The module of this name, to be bound where ``import`` would stand."""
    return Deferred(name, prepare)


def places(stub: Path) -> dict[str, str]:
    """Name -> module, of the lines ``from module import name as name`` of a stub."""
    import ast

    body = ast.parse(stub.read_text(encoding="utf-8")).body
    found = (node for node in body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in found for alias in node.names}


def exported(module: str, name: str) -> Any:
    """What ``from module import name`` gives; a name may be that of a module in a package."""
    found = import_module(module)
    return getattr(found, name) if hasattr(found, name) else import_module(f"{module}.{name}")
