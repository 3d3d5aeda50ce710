"""Registries of problems and of folders of configuration files, which packages extend by entry points; their files by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dynamics_backends.extensions import Registry
from dynamics_backends.names import nearest_names
from trajopt.config.task import Task


class Problem(NamedTuple):
    """A registered problem. Settings: frozen dataclass. build(settings, backend): returns a Task. summary: first paragraph of the
    docstring.
    """

    Settings: Any
    build: Callable[..., Task]
    summary: str = ""


def _problem(name: str, given: Any) -> Problem:
    """Return the problem of a module, class or object with Settings and build.

    Raises TypeError if Settings is no dataclass, or build is not callable.
    """
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
    ``trajopt.problems``. A problem of the same name that was registered before is replaced.

    Raises TypeError if Settings is no dataclass or build cannot be called, ValueError for an empty name.
    """
    PROBLEMS.register(name, problem)


SUFFIX = ".toml"


def bundled_files() -> dict[str, Path]:
    """Return the bundled configuration files by name, without suffix, sorted.

    Of two with one name, the one in the folder registered first is returned.
    """
    found: dict[str, Path] = {}
    for folder in CONFIG_FOLDERS.values():
        for file in folder.glob(f"*{SUFFIX}"):
            found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def bundled_names() -> list[str]:
    """Return the names of the bundled files, without suffix."""
    return list(bundled_files())


def about(file: Path) -> str:
    """Return the comment at the beginning of a configuration file as one line; "" without one."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words += line.lstrip("# ").split()
    return " ".join(words)


def config_file(path: Path) -> Path:
    """Return a path if it is a file, else the bundled file of that name, with or without suffix.

    Raises FileNotFoundError with similar names.
    """
    if path.is_file():
        return path
    bundled = bundled_files().get(path.name.removesuffix(SUFFIX))
    if path == Path(path.name) and bundled is not None and not path.is_dir():
        return bundled
    raise FileNotFoundError(_no_file(path))


def _no_file(path: Path) -> str:
    """Return the message for a missing file, with similar names in its folder or of bundled files."""
    what = f"{path} is a folder, not a config file" if path.is_dir() else f"config file {path} does not exist"
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        what += f": folder {folder} does not exist"
    own = nearest_names(path.stem, [file.stem for file in sorted(folder.glob(f"*{SUFFIX}"))])
    near = [str(folder / f"{name}{SUFFIX}") for name in own] or nearest_names(path.stem, bundled_names(), 1)
    if near:
        named = " or ".join(near)
        return f"{what}; did you mean {named}{'' if own else ', a bundled configuration'}?"
    return f"{what}; `trajopt keys` lists the bundled configurations"
