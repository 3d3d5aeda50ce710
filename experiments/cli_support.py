"""What the commands share: options, errors as sentences, warnings on the error stream.

Exit codes: 0 solved or in order, 1 not converged or a check that failed, 2 bad input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from dynamics_backends.rigid_body.names import UnknownName

if TYPE_CHECKING:
    from experiments.config import Config
    from problems.task import Task

FAILED, BAD_INPUT = 1, 2


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Bad input as one sentence and exit code 2; with --debug its traceback too."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def wrapped(*args: Any, debug: bool, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:
            if debug or not _is_bad_input(error):
                raise
            fail(_sentence(error))

    return wrapped


def _is_bad_input(error: Exception) -> bool:
    """Whether the error is the user's to mend; anything else is a defect, and keeps its traceback."""
    from dynamics_backends.compiled.toolchain import CompilerError

    return isinstance(error, (ValueError, UnknownName, OSError, ModuleNotFoundError, CompilerError))


def fail(message: str) -> None:
    """End with exit code 2."""
    click.echo(f"error: {message}", err=True)
    raise click.exceptions.Exit(BAD_INPUT)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def warn(messages: Iterable[str]) -> None:
    """One line each on the error stream."""
    for message in messages:
        click.echo(f"warning: {message}", err=True)


config_argument = click.argument("config", type=click.Path(exists=True, dir_okay=False))
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting, e.g. problem.dt=0.02 (TOML)."
)
urdf_option = click.option("--urdf", type=click.Path(), help="Take the robot from this URDF file.")
backend_option = click.option("--backend", metavar="NAME", help="Derivative method, instead of the config's.")
solver_option = click.option("--solver", metavar="NAME", help="Solver, instead of the config's.")


def configured(path: str, overrides: Iterable[str] = (), **named: str | None) -> Config:
    """The configuration with what the command line changes; named: urdf, backend, solver, out, verbosity."""
    from experiments.config import load_config

    keys = {"urdf": "problem.robot", "backend": "backend.name", "solver": "solver.name"}
    keys |= {"out": "output.directory", "verbosity": "output.verbosity"}
    literal = [f"{keys[k]}={_quoted(v)}" for k, v in named.items() if v is not None]
    return load_config(path, [*overrides, *literal])


def _quoted(value: object) -> str:
    import json

    return json.dumps(value)


def task_of(config: Config) -> Task:
    """The task, with its warnings printed."""
    from experiments.build import build_task

    task = build_task(config)
    warn(task.warnings)
    return task
