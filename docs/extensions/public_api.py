"""Reference pages of the public interface: all names of ``import trajopt as to``, grouped by theme.

The theme of a name follows from the folder that defines it. A folder without a theme gets its own page.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any, NamedTuple

STUB = Path(__file__).resolve().parents[2] / "trajopt" / "__init__.pyi"
THEMES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("robots", "Robots", tuple(f"dynamics_backends.rigid_body.{name}" for name in ("model", "urdf", "mjcf", "robots"))),
    ("quantities", "Rigid-body quantities", ("dynamics_backends.rigid_body",)),
    ("scenes", "Shapes and scenes", ("dynamics_backends.rigid_body.geometry",)),
    ("systems", "Systems of bodies", ("dynamics_backends.systems.bodies",)),
    ("contact", "Contacts, constraints and impacts", ("dynamics_backends.systems",)),
    (
        "backends",
        "Maps and derivative backends",
        ("dynamics_backends.protocol", "dynamics_backends.registry", "dynamics_backends.names"),
    ),
    ("manifolds", "Manifolds", ("dynamics_backends.manifold",)),
    ("functions", "Functions of rows", ("dynamics_backends.scalar",)),
    ("problems", "Optimal control problems", ("trajopt.problem",)),
    ("tasks", "Tasks and configurations", ("trajopt.config",)),
    ("guesses", "Guesses and inverse kinematics", ("trajopt.guesses",)),
    ("solvers", "Solvers and their options", ("trajopt.solvers",)),
    ("comparison", "Comparisons", ("trajopt.comparison",)),
    ("solutions", "Solutions, statuses and reports", ("trajopt.results",)),
    ("validation", "Validation", ("trajopt.validation",)),
    ("sweeps", "Studies of many problems", ("trajopt.sweeps",)),
    ("view", "Pictures in three dimensions", ("trajopt.view",)),
    ("replanning", "Replanning", ("trajopt.replanning",)),
    ("numerics", "Time steps, stages and LQ problems", ("trajopt.step", "trajopt.stage", "trajopt.lq")),
)
"""(file, title, modules and folders); the longest matching prefix of a module counts."""


class Name(NamedTuple):
    """A public name and the module that defines it."""

    name: str
    module: str


def public_names() -> list[Name]:
    """Return the public names of the package stub, in order."""
    body = ast.parse(STUB.read_text(encoding="utf-8")).body
    return [
        Name(alias.asname or alias.name, str(node.module))
        for node in body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def theme_of(module: str) -> tuple[str, str]:
    """Return file and title of the page for the names of a module."""
    matches = [
        (len(prefix), file, title) for file, title, prefixes in THEMES for prefix in prefixes if _within(module, prefix)
    ]
    if matches:
        return max(matches)[1:]
    folder = module.split(".")[1] if "." in module else module
    return folder, folder.replace("_", " ").capitalize()


def _within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def themes() -> dict[str, tuple[str, list[Name]]]:
    """Return title and names by file, in the order of THEMES."""
    found: dict[str, tuple[str, list[Name]]] = {file: (title, []) for file, title, _ in THEMES}
    for name in public_names():
        file, title = theme_of(name.module)
        found.setdefault(file, (title, []))[1].append(name)
    return {file: entry for file, entry in found.items() if entry[1]}


def pages() -> dict[str, str]:
    """Return the reStructuredText of all pages by file name, with the index."""
    import trajopt

    out = {}
    for file, (title, names) in themes().items():
        out[f"{file}.rst"] = page(title, [(n.name, getattr(trajopt, n.name)) for n in names])
    lines = ["Public interface", "================", "", "All names are available after ``import trajopt as to``.", ""]
    lines += [".. toctree::", "   :maxdepth: 1", "", *(f"   {file}" for file in themes()), ""]
    for file, (title, names) in themes().items():
        lines += [f":doc:`{title} <{file}>`", "   " + ", ".join(f":py:obj:`~trajopt.{n.name}`" for n in names), ""]
    return {**out, "index.rst": "\n".join(lines)}


def page(title: str, objects: list[tuple[str, Any]]) -> str:
    """Return one page with the documentation of all its objects."""
    lines = [title, "=" * len(title), "", ".. currentmodule:: trajopt", ""]
    for name, thing in objects:
        directive, options = _directive(thing)
        target = thing.__name__ if directive == "automodule" else name
        lines += [name, "-" * len(name), "", f".. {directive}:: {target}", *(f"   :{o}:" for o in options), ""]
        lines += [".. currentmodule:: trajopt", ""] if directive == "automodule" else []
        if "module docstring" in (getattr(thing, "__doc__", None) or "") and not inspect.ismodule(thing):
            lines += ["From the module:", "", f".. automodule:: {thing.__module__}", "   :no-index:", ""]
            lines += [".. currentmodule:: trajopt", ""]
    return "\n".join(lines)


def _directive(thing: Any) -> tuple[str, tuple[str, ...]]:
    if inspect.ismodule(thing):
        return "automodule", ("members",)
    if inspect.isclass(thing):
        from enum import Enum

        return "autoclass", ("members", "undoc-members") if issubclass(thing, Enum) else ("members",)
    return ("autofunction", ()) if inspect.isfunction(thing) else ("autodata", ())
