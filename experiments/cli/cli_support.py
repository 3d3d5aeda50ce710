"""Helpers shared by the commands: options, error messages, warnings on the error stream, exit codes.

Exit codes: 0 success, 1 failure, 2 invalid input; `trajopt solve` also has 3 for an acceptable solution.
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

from dynamics_backends import environment
from dynamics_backends.names import UnknownName
from dynamics_backends.user_input import shortened

if TYPE_CHECKING:
    from trajopt.config.config import Config
    from trajopt.config.load import LoadedProblem

FAILED, BAD_INPUT, ACCEPTABLE = 1, 2, 3
SLOW = 3.0
"""Problem set-up longer than this [s] prints a progress line."""


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with error handling.

    Invalid input prints one message and exits with 2; --debug prints the traceback. Warnings print as lines. Ctrl-C and
    SIGTERM exit with 1.
    """

    @click.option("--debug", is_flag=True, help="Print the traceback of an error.")
    @functools.wraps(function)
    def wrapped(*args: Any, debug: bool, **options: Any) -> Any:
        try:
            with _warnings_as_lines(), _sigterm_as_ctrl_c():
                environment.threads()  # reports a wrong number before the work starts
                return function(*args, **options)
        except KeyboardInterrupt:
            click.echo(f"interrupted: `trajopt {function.__name__.removesuffix('_config')}` did not finish", err=True)
            raise click.exceptions.Exit(FAILED) from None
        except BrokenPipeError:  # the reader closed the pipe, as `| head` does: click exits without a message
            raise
        except Exception as error:
            if debug or not _is_bad_input(error):
                raise
            fail(_sentence(error))

    return wrapped


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM, which batch systems send, like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_bad_input(error: Exception) -> bool:
    """True for errors that the user can correct; other errors print their traceback."""
    from dynamics_backends.environment import CompilerError
    from dynamics_backends.machine.library import LibraryMissing

    return isinstance(error, (ValueError, UnknownName, OSError, ModuleNotFoundError, LibraryMissing, CompilerError))


@contextmanager
def content_checked(path: object) -> Iterator[None]:
    """Raise SolutionFileError for wrong values in the metadata of a solution file."""
    from trajopt import SolutionFileError

    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ZeroDivisionError, OverflowError) as error:
        if isinstance(error, UnknownName):
            raise
        what = f"{type(error).__name__}: {error}"
        raise SolutionFileError(f"the metadata of {path} cannot be used ({what}): solve and save again") from error


def fail(message: str) -> None:
    """Print an error message and exit with code 2."""
    click.echo(f"error: {shortened(message)}", err=True)
    raise click.exceptions.Exit(BAD_INPUT)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def warn(messages: Iterable[str]) -> None:
    """Print each message once per command, on the error stream."""
    for message in messages:
        if _is_new(message):
            click.echo(f"warning: {shortened(message)}", err=True)


def _is_new(key: object) -> bool:
    context = click.get_current_context(silent=True)
    if context is None:
        return True
    printed = context.meta.setdefault(__name__, set())
    new = key not in printed
    printed.add(key)
    return new


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print UserWarnings with :func:`warn`; leave other warnings unchanged."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, UserWarning):
                warn([str(message)])
            else:
                others(message, category, *where, **more)

        warnings.showwarning = show
        yield


def results_folder(folder: Path, files: Iterable[str] = (), option: str = "--out") -> Path:
    """Create the folder and return it; exit with code 2 if it or one of the files is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".trajopt.") as probe:
            probe.write(b"trajopt")
    except OSError as error:
        reason = "not a folder" if isinstance(error, FileExistsError) else error.strerror or error
        fail(f"{folder} cannot store the results ({reason}): choose another {option}")
    for name in files:
        if (folder / name).is_dir():
            fail(f"{folder} cannot store the results ({name} is a folder there): choose another {option}")
        if (folder / name).exists() and not os.access(folder / name, os.W_OK):
            fail(f"{folder} cannot store the results ({name} is write-protected there): choose another {option}")
    return folder


config_argument = click.argument("config", type=click.Path())
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. problem.dt=0.02 (TOML syntax)."
)
urdf_option = click.option("--urdf", type=click.Path(), help="Robot file, URDF or MJCF.")
base_option = click.option(
    "--base",
    type=click.Choice(["fixed", "floating"]),
    help="Base of a robot. Default: from the MJCF file; otherwise floating for HyQ, fixed for other robots.",
)
backend_option = click.option("--backend", metavar="NAME", help="Derivative method; default: from CONFIG.")
solver_option = click.option("--solver", metavar="NAME", help="Solver; default: from CONFIG.")


def configured(path: str, overrides: Iterable[str] = (), **named: str | None) -> Config:
    """Load a configuration with command-line overrides. named: values of urdf, backend, solver, out, verbosity, plant."""
    from trajopt.config.config import load_config

    keys = {"urdf": "problem.robot", "backend": "backend.name", "solver": "solver.name"}
    keys |= {"out": "output.directory", "verbosity": "output.verbosity", "plant": "replan.plant.kind"}
    literal = [f"{keys[k]}={_quoted(v)}" for k, v in named.items() if v is not None]
    config = load_config(path, [*overrides, *literal], lambda sentence: click.echo(sentence, err=True))
    for sentence in config.notes:
        click.echo(sentence)
    return config


def _quoted(value: object) -> str:
    import json

    return json.dumps(value)


def problem_of(config: Config) -> LoadedProblem:
    """Build the problem of a configuration and print its warnings."""
    from trajopt.config.load import LoadedProblem

    with message_if_slow("setting up the problem (robot, shapes, guess) ..."):
        problem = LoadedProblem.from_config(config)
    warn(problem.task.warnings)
    return problem


@contextmanager
def message_if_slow(sentence: str) -> Iterator[None]:
    """Print the sentence on the error stream if the block takes longer than :data:`SLOW`."""
    timer = threading.Timer(SLOW, click.echo, (sentence,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _exit_if_interrupted(sentence: str) -> Iterator[None]:
    """On Ctrl-C, print a sentence and exit with 1."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted {sentence}", err=True)
        raise click.exceptions.Exit(FAILED) from None


def after_saving(folder: Path) -> AbstractContextManager[None]:
    """Context for reporting and drawing a saved solution: Ctrl-C prints a sentence and exits with 1."""
    return _exit_if_interrupted(
        f"after the solution was saved in {folder}, before the report and the plots were complete"
    )


def interrupted_before_results(when: str) -> AbstractContextManager[None]:
    """Context without an iterate to save: Ctrl-C prints ``when`` and exits with 1."""
    return _exit_if_interrupted(f"{when}; nothing to save")
