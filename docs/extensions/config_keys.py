"""The reference of configuration files: a table for each table of a file, from the dataclasses that check it.

The meaning of a key is what the docstring of its dataclass says of it, its type the one that the schema checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, NamedTuple, get_type_hints

from docstrings import meaning_of, paragraphs

from experiments.config.config import Backend, Output, SweepSettings
from experiments.config.schema import describe, table_kind
from problems.free_time import TimeSettings
from problems.registry import PROBLEMS, load_problem


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
    """The keys of a table."""
    hints = get_type_hints(kind)
    names = {f.name for f in fields(kind)}
    return [Key(f.name, describe(hints[f.name]), _default(f), meaning_of(kind, f.name, names)) for f in fields(kind)]


def _default(f: Field) -> str:
    if f.default is not MISSING:
        return _shown(f.default)
    if f.default_factory is not MISSING:
        made = f.default_factory()
        return "see below" if hasattr(made, "__dataclass_fields__") else _shown(made)
    return "needed"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return "see below" if hasattr(value, "__dataclass_fields__") else repr(value)


def within(table: Table) -> Iterator[Table]:
    """The table and those inside it; what is inside a kind that was there before is left out."""
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


def chapters() -> dict[str, tuple[str, list[Table]]]:
    """File -> title and tables."""
    from problems.replanning.scenario import Settings as Replan
    from trajopt.solvers.registry import SOLVERS

    found = {"general": ("Derivatives and output", [Table("backend", Backend), Table("output", Output)])}
    for name in PROBLEMS:
        found[f"problem_{name}"] = (f"Problem {name}", list(within(Table("problem", load_problem(name).Settings))))
    kinds: dict[Any, list[str]] = {}
    for name, (_, kind, _) in SOLVERS.items():
        kinds.setdefault(kind, []).append(name)
    for kind, names in kinds.items():
        found[f"solver_{names[0]}"] = (f"Solver {', '.join(names)}", [Table("solver", kind)])
    found["replan"] = ("Replanning", list(within(Table("replan", Replan))))
    found["time"] = ("Free durations, of any problem", [Table("problem", TimeSettings)])
    found["sweep"] = ("Studies", [Table("sweep", SweepSettings)])
    return found


HEAD = """# Configuration files

A TOML file has the tables `[problem]`, `[solver]`, `[output]`, `[replan]` for replanning, and `[sweep]` for studies;
`backend = "NAME"` and `engine = "NAME"` at the top choose the derivatives, or a table `[backend]` with more keys. Every key is
checked, and a wrong one is answered with the nearest known key. `--set table.key=value` overrides a key. A relative path of a
robot in a file starts at the file. The pages below are made from the classes that check the files.

"""


def pages() -> dict[str, str]:
    """File name -> Markdown of each page, the index among them."""
    found = chapters()
    toctree = "\n".join(["```{toctree}", ":maxdepth: 1", "", *found, "```", ""])
    return {"index.md": HEAD + toctree} | {f"{file}.md": page(title, tables) for file, (title, tables) in found.items()}


def page(title: str, tables: list[Table]) -> str:
    """One chapter."""
    parts, first = [f"# {title}\n"], dict[Any, str]()
    for table in tables:
        parts.append(f"## `[{table.path}]`\n")
        if table.kind in first:
            parts.append(f"The keys are those of `[{first[table.kind]}]`.\n")
            continue
        first[table.kind] = table.path
        said = paragraphs(table.kind.__doc__ or "")
        if said and not said[0].startswith(table.kind.__name__ + "("):
            parts.append(_prose(said[0].split(". ")[0].split("\n\n")[0].rstrip(".") + ".") + "\n")
        rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
        rows += [
            f"| `{k.name}` | {_cell(k.type)} | {_code(k.default)} | {_cell(k.meaning)} |" for k in keys(table.kind)
        ]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Markdown of a docstring's sentence: roles become code, marks mean themselves."""
    text = re.sub(r":[a-z:]+:`~?([^`]+)`", lambda m: f"`{m[1].split('.')[-1]}`", " ".join(text.split()))
    text = text.replace("``", "`")
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(p if i % 2 else re.sub(r"([*_<>|\[\]$])", r"\\\1", p) for i, p in enumerate(parts))


def _cell(text: str) -> str:
    return _prose(text).replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`" if text not in ("none", "needed", "see below") else text
