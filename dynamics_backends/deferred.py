"""Lazy loading of modules that are slow to import, at their first use; most runs never need them.

The names of a package can be loaded lazily too: a stub lists the module of each name (:func:`modules_by_name`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


class Deferred:
    """Placeholder of a module, imported at the first attribute access. prepare: called once, with the imported module."""

    def __init__(self, name: str, prepare: Callable[[Any], None] | None = None) -> None:
        self._name, self._prepare = name, prepare

    def __getattr__(self, name: str) -> Any:
        """Attribute of the module, which is imported and, once, prepared first.

        It is stored for later accesses unless its name begins with two underscores.
        """
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
    """Placeholder of the module of this name, used in place of an ``import`` statement."""
    return Deferred(name, prepare)


def modules_by_name(stub: Path) -> dict[str, str]:
    """Return name -> module from the lines ``from module import name as name`` of a stub file."""
    import ast

    body = ast.parse(stub.read_text(encoding="utf-8")).body
    found = (node for node in body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in found for alias in node.names}


def exported(module: str, name: str) -> Any:
    """Import and return the object of ``from module import name``: an attribute of the module, else its submodule."""
    found = import_module(module)
    return getattr(found, name) if hasattr(found, name) else import_module(f"{module}.{name}")
