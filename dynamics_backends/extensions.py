"""Registries of named objects, which scripts and installed packages extend.

A script registers by a function (``to.register_backend``), a package by an entry point of its pyproject.toml::

    [project.entry-points."trajopt.backends"]
    pinocchio = "my_package.backend:Pinocchio"

Entry points are loaded at the first use of their name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from dynamics_backends.names import UnknownName, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
PREFIX = "trajopt."
"""Prefix of the names of entry point groups."""


class ExtensionError(ValueError):
    """An entry point of an installed package cannot be loaded, or refers to an object that its registry rejects."""


class Registry(MutableMapping[str, T]):
    """Objects of one kind by name: built-in, registered by a script, and from entry points, in this order.

    kind: noun of error messages, such as "backend". group: group of entry points, without PREFIX. builtin: the built-in objects.
    checked: called with a name and the object registered for it, or loaded from an entry point; returns the value that the
    registry stores, or raises TypeError or ValueError.

    A lookup raises UnknownName with the nearest names; ExtensionError if an entry point cannot be loaded or fails this check.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        builtin: Mapping[str, T] | None = None,
        checked: Callable[[str, Any], T] = lambda name, value: value,
    ) -> None:
        self.kind, self.group, self._checked = kind, f"{PREFIX}{group}", checked
        self._values: dict[str, T] = dict(builtin or {})
        self._builtin = tuple(self._values)

    def register(self, name: str, value: Any) -> None:
        """Store an object, as ``checked`` returns it, under a name; an earlier registered object is replaced.

        Raises ValueError for the name of a built-in object or a name that is no text or empty, and the errors of ``checked``.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a {self.kind} must be a text that is not empty, got {name!r}")
        if name in self._builtin:
            raise ValueError(f"{self.kind} {name!r} is built in; choose another name")
        self._values[name] = self._checked(name, value)

    def __getitem__(self, name: str) -> T:
        """Return the object of a name; an entry point is loaded and checked at its first use.

        Raises UnknownName for an unknown name, ExtensionError for an entry point that cannot be loaded or fails the check.
        """
        if name not in self._values:
            point = self._points().get(name)
            if point is None:
                raise unknown_name(self.kind, name, self) if self else self._empty_registry_error(name)
            self._values[name] = self._load_entry_point(point)
        return self._values[name]

    def __setitem__(self, name: str, value: T) -> None:
        """Store an object without checks, also in place of a built-in one."""
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __contains__(self, name: object) -> bool:
        """True for stored names and for those of entry points, which are not loaded."""
        return name in self._values or name in self._points()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._values, *self._points()]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def builtin(self) -> tuple[str, ...]:
        """Built-in names."""
        return self._builtin

    def loaded(self) -> dict[str, T]:
        """Built-in and registered objects, and those of entry points that have been used."""
        return dict(self._values)

    def _empty_registry_error(self, name: str) -> UnknownName:
        """Return (not raise) the error for a name in a registry without any object."""
        return UnknownName(
            f"no {self.kind} is named {name!r}: no installed package has entry points of the group {self.group!r}; install trajopt "
            "again (pip install -e . in a source tree)"
        )

    def _points(self) -> Mapping[str, EntryPoint]:
        """Entry points of this registry's group, by name."""
        return _entry_points().get(self.group, {})

    def _load_entry_point(self, point: EntryPoint) -> T:
        """Load and check the object of an entry point. Raises ExtensionError if either fails."""
        package = "" if point.dist is None else f" of the package {point.dist.name}"
        what = f"the {self.kind} {point.name!r}{package} ({point.value}) cannot be used"
        try:
            value = point.load()
        except Exception as error:  # the code of another package may raise any error
            raise ExtensionError(f"{what}: {type(error).__name__}: {error}{_hidden_by(point, error)}") from error
        try:
            return self._checked(point.name, value)
        except (TypeError, ValueError) as error:
            raise ExtensionError(f"{what}: {error}") from error


def _hidden_by(point: EntryPoint, error: Exception) -> str:
    """Hint at a folder on Python's path that may hide an entry point's package.

    "" unless the error is a ModuleNotFoundError and the package itself was imported.
    """
    package = point.module.partition(".")[0]
    places = getattr(sys.modules.get(package), "__path__", None)
    if not isinstance(error, ModuleNotFoundError) or not places:
        return ""
    return f"; Python finds {package} in {next(iter(places))}: rename that folder if it hides the installed package"


@cache
def _entry_points() -> dict[str, dict[str, EntryPoint]]:
    """Entry points of installed packages in groups that start with PREFIX, as group -> name -> entry point; cached.

    If several packages have an entry point of one name, the first on Python's path counts.
    """
    from importlib.metadata import distributions  # slow to load

    found: dict[str, dict[str, EntryPoint]] = {}
    for point in (point for package in distributions() for point in package.entry_points):
        if point.group.startswith(PREFIX):
            found.setdefault(point.group, {}).setdefault(point.name, point)
    return found
