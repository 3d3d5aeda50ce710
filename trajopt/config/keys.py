"""List the keys of each configuration table: type, default and meaning.

Types and defaults come from the dataclasses that check the tables. Meanings are parsed from their docstrings: "horizon: number of
time steps. dt: their length [s].".
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, NamedTuple, get_type_hints

from dynamics_backends.names import unknown_name
from trajopt.config.config import Backend, Check, Output, SweepSettings
from trajopt.config.free_time import TimeSettings
from trajopt.config.registry import PROBLEMS
from trajopt.config.schema import describe, table_kind


class Entry(NamedTuple):
    """Explanation of one or more names in a docstring, for example "horizon, dt: the time grid."."""

    names: tuple[str, ...]
    text: str


def paragraphs(text: str) -> list[str]:
    """Split a docstring at blank lines into paragraphs, without common indentation."""
    return [block.strip("\n") for block in re.split(r"\n\s*\n", inspect.cleandoc(text)) if block.strip()]


def entries(paragraph: str, names: Collection[str]) -> tuple[str, list[Entry]]:
    """Split a paragraph into the prose before the first explained name, and the explanations of ``names``, with their units.

    A name is explained at the start of a sentence, "name [unit]: explanation"; several names are separated by commas.
    """
    prose = " ".join(line.strip() for line in paragraph.splitlines())
    if not names:
        return prose, []
    one = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    unit = r"(?: \([^()]*\)| \[[^\]]*\])*"
    found = list(re.finditer(rf"(?:^|(?<=[.;:] ))((?:{one})(?:{unit}, (?:{one}))*{unit})(?=[:;.](?: |$))", prose))
    if not found:
        return prose, []
    explained = []
    for match, following in zip(found, [*found[1:], None], strict=True):
        text = prose[match.end() + 1 : following.start() if following else None].strip()
        given = re.findall(r"\[[^\]]*\]|\([^()]*\)", match[1])
        keys = tuple(name for name in re.findall(r"\w+", re.sub(unit, "", match[1])) if name in names)
        explained.append(Entry(keys, " ".join([*given, text]).strip()))
    return prose[: found[0].start()].strip(), explained


def meaning_of(kind: type, name: str, names: Collection[str]) -> str:
    """Return the first explanation of a name in the docstrings of a class and its bases, or "". names: all names of its fields."""
    for owner in kind.__mro__:
        for block in paragraphs(owner.__dict__.get("__doc__") or ""):
            for entry in entries(block, names)[1]:
                if name in entry.names and entry.text:
                    return entry.text
    return ""


class Table(NamedTuple):
    """A table of a configuration file: its path, such as "problem.weights", and the dataclass of its keys."""

    path: str
    kind: Any


class Key(NamedTuple):
    """One key of a table, all as text."""

    name: str
    type: str
    default: str
    meaning: str


def keys(kind: Any) -> list[Key]:
    """The keys of a table, given by its dataclass: name, type, default and meaning, all as text."""
    hints = get_type_hints(kind)
    names = {f.name for f in fields(kind)}
    return [Key(f.name, describe(hints[f.name]), _default(f), meaning_of(kind, f.name, names)) for f in fields(kind)]


def _default(f: Field) -> str:
    """Default of a field as in a configuration file; "needed" without one, "see below" for a table."""
    if f.default is not MISSING:
        return formatted_value(f.default)
    if f.default_factory is not MISSING:
        return formatted_value(f.default_factory())
    return "needed"


def formatted_value(value: Any) -> str:
    """Format a value as in a configuration file; "none" for None, "see below" for a table."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(formatted_value, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return "see below" if hasattr(value, "__dataclass_fields__") else repr(value)


def nested_tables(table: Table) -> Iterator[Table]:
    """Yield the table, then its nested tables, breadth first.

    A dataclass that occurs at several paths is yielded at each of them, the tables nested in it only at the first.
    """
    seen: set[Any] = set()
    waiting = [table]
    while waiting:
        path, kind = waiting.pop(0)
        yield Table(path, kind)
        if kind in seen:
            continue
        seen.add(kind)
        hints = get_type_hints(kind)
        inner = [(f.name, table_kind(hints[f.name])) for f in fields(kind)]
        waiting += [Table(f"{path}.{name}", found) for name, found in inner if found is not None]


OTHERS = ("backend", "output", "check", "time", "replan", "sweep")
"""Names of tables other than those of problems and solvers."""


def _others() -> dict[str, list[Table]]:
    """Tables of :data:`OTHERS`, each with its nested tables."""
    from trajopt.config.scenario import Settings as Replan

    kinds = dict(zip(OTHERS, (Backend, Output, Check, TimeSettings, Replan, SweepSettings), strict=True))
    return {
        name: list(nested_tables(Table("problem" if name == "time" else name, kind))) for name, kind in kinds.items()
    }


def chapters() -> dict[str, tuple[str, list[Table]]]:
    """Return the title and the tables of each page of the documentation of keys, by file name without suffix."""
    from trajopt.solvers.registry import SOLVERS

    others = _others()
    general = [*others["backend"], *others["output"], *others["check"]]
    found = {"general": ("Derivatives, output and checks", general)}
    for name in PROBLEMS:
        found[f"problem_{name}"] = (f"Problem {name}", tables_of(name))
    kinds: dict[Any, list[str]] = {}
    for name, (_, kind, _) in SOLVERS.items():
        kinds.setdefault(kind, []).append(name)
    for kind, names in kinds.items():
        found[f"solver_{names[0]}"] = (f"Solver {', '.join(names)}", [Table("solver", kind)])
    titles = {"replan": "Replanning", "time": "Free durations, of any problem", "sweep": "Studies"}
    return found | {name: (title, others[name]) for name, title in titles.items()}


def tables_of(name: str) -> list[Table]:
    """Return the tables of a problem, of a solver, or of an entry of :data:`OTHERS`. Raises UnknownName, with similar names."""
    from trajopt.solvers.registry import SOLVERS

    if name in PROBLEMS:
        return list(nested_tables(Table("problem", PROBLEMS[name].Settings)))
    if name in SOLVERS:
        return [Table("solver", SOLVERS[name][1])]
    if name in OTHERS:
        return _others()[name]
    raise unknown_name("problem, solver or table", name, [*PROBLEMS, *SOLVERS, *OTHERS])
