"""Modules that take long to load, loaded when something is first asked of them: most runs find what they made earlier."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Deferred:
    """Stands for a module in another's globals."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        if not name.startswith("__"):
            setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return dir(import_module(self._name))


def deferred(name: str) -> Any:
    """The module of this name, to be bound where ``import`` would stand."""
    return Deferred(name)
