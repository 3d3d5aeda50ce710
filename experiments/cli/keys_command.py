"""The command `trajopt keys`: the keys of configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterable
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

    NAME is a problem, a solver, or backend, output, time, replan or sweep. Without NAME: list problems, solvers and bundled
    configurations.
    """
    from trajopt.config.keys import tables_of

    if name is None:
        _names()
        return
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
    click.echo("`trajopt keys NAME` lists the keys of a problem, a solver or a table")


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
