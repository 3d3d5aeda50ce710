"""What the commands share: options, errors as sentences, warnings on the error stream.

Exit codes: 0 solved or in order, 1 not converged, not what was asked for, or a check that failed, 2 bad input.
"""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynamics_backends.names import UnknownName

if TYPE_CHECKING:
    from experiments.config.config import Config
    from problems.task import Task

FAILED, BAD_INPUT, ACCEPTABLE = 1, 2, 3
LONG = 3.0
"""Seconds of setting up a problem after which a line tells that it goes on."""


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Bad input as one sentence and exit code 2, with --debug its traceback too; Python's warnings as lines; SIGTERM as Ctrl-C, and
    what that ends as a sentence and exit code 1."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def wrapped(*args: Any, debug: bool, **options: Any) -> Any:
        try:
            with _warnings_as_lines(), _stopped_as_by_ctrl_c():
                return function(*args, **options)
        except KeyboardInterrupt:
            click.echo(f"interrupted: `trajopt {function.__name__.removesuffix('_config')}` was not finished", err=True)
            raise click.exceptions.Exit(FAILED) from None
        except BrokenPipeError:  # the reader has gone, as with `| head`: click ends quietly
            raise
        except Exception as error:
            if debug or not _is_bad_input(error):
                raise
            fail(_sentence(error))

    return wrapped


@contextmanager
def _stopped_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM, by which batch systems end a process, saves what Ctrl-C saves."""
    if threading.current_thread() is not threading.main_thread():  # no other is told of signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_bad_input(error: Exception) -> bool:
    """Whether the error is the user's to mend; anything else is a defect, and keeps its traceback."""
    from dynamics_backends.compiled.runtime.toolchain import CompilerError

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
    """One line each on the error stream, none of them twice in a command."""
    for message in messages:
        if _is_new(message):
            click.echo(f"warning: {message}", err=True)


def _is_new(key: object) -> bool:
    context = click.get_current_context(silent=True)
    if context is None:
        return True
    told = context.meta.setdefault(__name__, set())
    new = key not in told
    told.add(key)
    return new


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """What modules warn the user about as :func:`warn` tells it; warnings to programmers stay as they are."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            from dynamics_backends.compiled.runtime.cache import CacheWarning

            if not issubclass(category, UserWarning):
                others(message, category, *where, **more)
            elif not issubclass(category, CacheWarning) or _is_new(CacheWarning):  # its text differs by kernel
                warn([str(message)])

        warnings.showwarning = show
        yield


def results_folder(folder: Path, files: Iterable[str] = (), option: str = "--out") -> Path:
    """The folder, created, after a trial whether it and these files in it can be written; else exit code 2."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".trajopt.") as probe:
            probe.write(b"trajopt")
    except OSError as error:
        reason = "it is no folder" if isinstance(error, FileExistsError) else error.strerror or error
        fail(f"{folder} cannot hold the results ({reason}): choose another {option}")
    for name in files:
        if (folder / name).is_dir():
            fail(f"{folder} cannot hold the results ({name} there is a folder): choose another {option}")
        if (folder / name).exists() and not os.access(folder / name, os.W_OK):
            fail(f"{folder} cannot hold the results ({name} there is write-protected): choose another {option}")
    return folder


config_argument = click.argument("config", type=click.Path())
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting, e.g. problem.dt=0.02 (TOML)."
)
urdf_option = click.option("--urdf", type=click.Path(), help="Take the robot from this file, URDF or MJCF.")
backend_option = click.option("--backend", metavar="NAME", help="Derivative method, instead of the config's.")
solver_option = click.option("--solver", metavar="NAME", help="Solver, instead of the config's.")


def configured(path: str, overrides: Iterable[str] = (), **named: str | None) -> Config:
    """The configuration with what the command line changes; named: urdf, backend, solver, out, verbosity."""
    from experiments.config.config import load_config

    keys = {"urdf": "problem.robot", "backend": "backend.name", "solver": "solver.name"}
    keys |= {"out": "output.directory", "verbosity": "output.verbosity"}
    literal = [f"{keys[k]}={_quoted(v)}" for k, v in named.items() if v is not None]
    config = load_config(path, [*overrides, *literal], lambda sentence: click.echo(sentence, err=True))
    for sentence in config.notes:
        click.echo(sentence)
    return config


def _quoted(value: object) -> str:
    import json

    return json.dumps(value)


def task_of(config: Config) -> Task:
    """The task, with its warnings printed."""
    from experiments.config.build import build_task

    with told_when_long("setting up the problem: its robot, shapes and guess ..."):
        task = build_task(config)
    warn(task.warnings)
    return task


@contextmanager
def told_when_long(sentence: str) -> Iterator[None]:
    """The sentence on the error stream where what is done within takes :data:`LONG`."""
    timer = threading.Timer(LONG, click.echo, (sentence,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _told_if_interrupted(sentence: str) -> Iterator[None]:
    """Ctrl-C as a sentence and exit code 1."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted {sentence}", err=True)
        raise click.exceptions.Exit(FAILED) from None


def saved_before(folder: Path) -> AbstractContextManager[None]:
    """Around what tells and draws a solution that is saved: Ctrl-C as a sentence and exit code 1."""
    return _told_if_interrupted(f"after the solution was saved in {folder}, before all was told and drawn")


def nothing_to_save(when: str) -> AbstractContextManager[None]:
    """Around what has no iterate to save: Ctrl-C as a sentence, which tells when it came, and exit code 1."""
    return _told_if_interrupted(f"{when}; nothing to save")
