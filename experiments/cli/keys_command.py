"""The command `trajopt keys`: the keys of configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_support import command

if TYPE_CHECKING:
    from trajopt.config.keys import Key

WIDTH = 120


@click.command()
@click.argument("name", required=False)
@command
def keys(name: str | None) -> None:
    """List the configuration keys of NAME with type, default, unit and meaning.

    NAME is a problem, a configuration (for the keys of its problem), a solver, or backend, output, check, time, replan or sweep.
    Without NAME: list problems, solvers and bundled configurations.
    """
    from trajopt.config.keys import tables_of
    from trajopt.config.registry import PROBLEMS

    if name is None:
        _names()
        return
    name = _problem_of(name)
    printed: set[object] = set()
    for table in tables_of(name):
        click.echo(f"[{table.path}]")
        if table.kind in printed:
            click.echo("  as above\n")
            continue
        printed.add(table.kind)
        if table.path in ("problem", "solver") and name != "time":
            click.echo(f'name = "{name}"')
        _table(table.kind)
    if name in PROBLEMS:
        click.echo("keys for free durations, unless the keys above set them: `trajopt keys time`")


def _problem_of(name: str) -> str:
    """Return the name of the problem of a configuration; other names are unchanged. Raises ConfigError for a file without one."""
    from trajopt.config.config import ConfigError, read_file
    from trajopt.config.keys import OTHERS
    from trajopt.config.registry import PROBLEMS, SUFFIX, bundled_names
    from trajopt.solvers.registry import SOLVERS

    if name in (*PROBLEMS, *SOLVERS, *OTHERS) or not (name in bundled_names() or name.endswith(SUFFIX)):
        return name
    problem = read_file(Path(name))[1].get("problem")
    if not isinstance(problem, dict) or "name" not in problem:
        raise ConfigError(name, [f"a table [problem] with a name is needed, one of {', '.join(PROBLEMS)}"])
    return str(problem["name"])


def _names() -> None:
    from trajopt.config.keys import OTHERS
    from trajopt.config.registry import PROBLEMS, bundled_names
    from trajopt.solvers.registry import SOLVERS

    sections: dict[str, Iterable[str]] = {
        "problems": PROBLEMS,
        "solvers": SOLVERS,
        "other tables": OTHERS,
        "bundled configurations (usable by name in every command)": bundled_names(),
    }
    for what, names in sections.items():
        click.echo(f"{what}:\n{click.wrap_text('  '.join(names), WIDTH, '  ', '  ')}")
    click.echo("`trajopt keys NAME` lists the keys of a problem, a configuration, a solver or a table")


def _table(kind: object) -> None:
    from trajopt.config import keys

    for key in keys.keys(kind):
        click.echo(_head(key))
        if key.meaning:
            click.echo(click.wrap_text(_plain(key.meaning), WIDTH, "    ", "    "))
    click.echo()


def _head(key: Key) -> str:
    if key.default == "see below":
        return f"{key.name}: a table, see below"
    default = {"none": "optional", "needed": "required"}.get(key.default, f"default {key.default}")
    return f"{key.name}: {default}; {key.type}"


def _plain(text: str) -> str:
    """Remove reStructuredText markup."""
    return re.sub(r":[a-z:]+:`~?([^`]+)`", r"\1", text).replace("``", "")
