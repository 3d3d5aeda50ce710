"""Registries of problems and of folders of configuration files; packages extend both by entry points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dynamics_backends.extensions import Registry
from trajopt.config.task import Task


class Problem(NamedTuple):
    """A registered problem. Settings: frozen dataclass. build(settings, backend): returns a Task. summary: docstring's start."""

    Settings: Any
    build: Callable[..., Task]
    summary: str = ""


def _problem(name: str, given: Any) -> Problem:
    """Return the problem of a module, class or object with Settings and build. Raises TypeError if they are missing."""
    kind, build = getattr(given, "Settings", None), getattr(given, "build", None)
    if not (isinstance(kind, type) and is_dataclass(kind) and callable(build)):
        raise TypeError(
            f"a problem has Settings, a frozen dataclass, and build(settings, backend), which returns a trajopt.Task; got {given!r}"
        )
    return Problem(kind, build, (getattr(given, "__doc__", None) or "").strip().partition("\n\n")[0])


def _folder(name: str, given: Any) -> Path:
    """Return the folder of a package. Raises TypeError if the argument is not a package."""
    places = list(getattr(given, "__path__", ()))
    if not places:
        raise TypeError(f"expected a package whose folder contains configuration files, got {given!r}")
    return Path(places[0])


PROBLEMS: Registry[Problem] = Registry("problem", "problems", checked=_problem)
"""Registered problems; an entry point names a module with ``Settings`` and ``build``."""
CONFIG_FOLDERS: Registry[Path] = Registry("folder of configurations", "configs", checked=_folder)
"""Registered folders of configuration files; an entry point names the package that contains them."""


def register_problem(name: str, problem: Any) -> None:
    """Register a problem under a name, for :func:`trajopt.load_problem`, configuration files and the command line.

    problem: a module, class or object with ``Settings``, a frozen dataclass that extends :class:`trajopt.Sampling` or
    :class:`trajopt.Checked`, and ``build(settings, backend)``, which returns a :class:`trajopt.Task`; ``backend`` turns a system
    into the backend that the configuration names. A package registers its problems by entry points of the group
    ``trajopt.problems``. A problem that was registered before is replaced.

    Raises TypeError if Settings or build is missing.
    """
    PROBLEMS.register(name, problem)
