"""Every bundled task and problem as a documented function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from dynamics_backends.names import table_lines, unknown_name
from trajopt.config.config import read_file
from trajopt.config.free_time import TimeSettings
from trajopt.config.keys import Table, keys, shown, within
from trajopt.config.load import LoadedProblem, load_problem
from trajopt.config.registry import PROBLEMS, about, bundled_files

TaskFunction = Callable[..., LoadedProblem]


class Tasks(Mapping[str, TaskFunction]):
    """Functions that load the tasks, by name; printed as a table of names and summaries.

    Each function takes the problem's settings as keywords, see :func:`load_problem`. Its signature shows the defaults, its
    docstring the meaning and the unit of each.
    """

    def __init__(self) -> None:
        self._files = bundled_files()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._files, *PROBLEMS]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._files or name in PROBLEMS

    def __getitem__(self, name: str) -> TaskFunction:
        if name not in self:
            raise unknown_name("task", name, self)
        return _task_function(name, self._files.get(name))

    def __repr__(self) -> str:
        return "\n".join(table_lines([(name, _summary(name, self._files.get(name))) for name in self]))


def tasks() -> Tasks:
    """Return the bundled tasks and problems, also of other installed packages, as functions by name.

    ``to.tasks()["ur5_reach"](dt=0.02)`` is ``to.load_problem("ur5_reach", dt=0.02)``, ``help(to.tasks()["ur5_reach"])`` explains
    every argument with its unit and default, and ``print(to.tasks())`` lists all.

    >>> import trajopt as to
    >>> "hyq_trot" in to.tasks(), to.tasks()["cart_pole"].__name__
    (True, 'cart_pole')
    """
    return Tasks()


def _summary(name: str, file: Path | None) -> str:
    """Return the first sentence of a file's header comment, or of a problem's documentation."""
    text = about(file) if file is not None else " ".join(PROBLEMS[name].summary.split())
    return re.split(r"(?<!et al)\.\s|[.:]$", text, maxsplit=1)[0] + "."


def _task_function(name: str, file: Path | None) -> TaskFunction:
    def task(**changes: Any) -> LoadedProblem:
        return load_problem(name if file is None else file, **changes)

    values: Mapping[str, Any] = {"name": name} if file is None else read_file(file)[1]["problem"]
    kind = PROBLEMS[values["name"]].Settings
    text = PROBLEMS[name].summary if file is None else about(file)
    task.__name__ = task.__qualname__ = name
    task.__module__ = "trajopt"
    task.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*_parameters(kind, values), inspect.Parameter("tables", inspect.Parameter.VAR_KEYWORD)],
        return_annotation=LoadedProblem,
    )
    task.__doc__ = "\n".join([text, "", f"Settings of the problem {values['name']}:", "", *_lines(kind, values), *_END])
    return task


_END = (
    "",
    "Further keywords are other tables of a configuration, such as solver and backend; see trajopt.load_problem.",
)


def _parameters(kind: Any, values: Mapping[str, Any]) -> Iterator[inspect.Parameter]:
    """Yield the settings of a problem and of free durations as parameters, with a file's values as defaults."""
    for table in (kind, TimeSettings):
        hints = get_type_hints(table)
        for f in fields(table):
            if table is TimeSettings and f.name in {own.name for own in fields(kind)}:
                continue
            default = f.default if f.default_factory is MISSING else f.default_factory()
            given = values.get(f.name, inspect.Parameter.empty if default is MISSING else default)
            yield inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=hints[f.name])


def _lines(kind: Any, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines for each setting: key, type, default and meaning; then those of nested tables, by dotted key."""
    own = {f.name for f in fields(kind)}
    for path, inner in [*within(Table("", kind)), Table("", TimeSettings)]:
        table: Any = values
        for part in filter(None, path.split(".")):
            table = table.get(part, {}) if isinstance(table, Mapping) else {}
        for key in keys(inner):
            if inner is TimeSettings and key.name in own:
                continue
            written = isinstance(table, Mapping) and key.name in table and not isinstance(table[key.name], Mapping)
            default = shown(table[key.name]) if written else key.default
            yield f"{f'{path}.{key.name}'.lstrip('.')}: {key.type}; {_default(default)}"
            if key.meaning:
                yield f"    {key.meaning}"


def _default(text: str) -> str:
    return {"needed": "required", "none": "optional", "see below": "a table, its keys below"}.get(
        text, f"default {text}"
    )
