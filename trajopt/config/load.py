"""Load a problem with its solver settings: by name, from a configuration file, or from a saved solution.

Every bundled task and problem is also a documented function of the namespace ``tasks``.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from dynamics_backends.names import table_lines, unknown_name
from dynamics_backends.protocol import Array
from trajopt.comparison.compare import Variant
from trajopt.config.build import (
    NO_SETTINGS,
    OTHER_ROBOT,
    SETTINGS_OF_SOLUTION,
    build_task,
    same_robot,
    solve_task,
)
from trajopt.config.config import TABLES, Config, changed_config, flat, load_config, read_file
from trajopt.config.free_time import TimeSettings
from trajopt.config.keys import Table, formatted_value, keys, nested_tables
from trajopt.config.registry import PROBLEMS, about, bundled_files
from trajopt.config.task import Task
from trajopt.config.variants import config_variants
from trajopt.problem.guess import Guess, Motion, as_guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.report import ConsoleTable, report_lines
from trajopt.results.solution import Solution
from trajopt.step.other_backend import BackendChoice


@dataclass(frozen=True)
class LoadedProblem:
    """An optimal control problem with its guess, its solver and its settings.

    config: all settings. task: the problem with the data that reports and plots use, such as ``task.feet``.
    """

    config: Config
    task: Task

    @classmethod
    def from_config(cls, config: Config) -> LoadedProblem:
        """Build the problem of a configuration.

        Raises UnknownName, ValueError, URDFError, MJCFError, FileNotFoundError, ModuleNotFoundError for settings that do not match
        the robot or the backend.
        """
        return cls(config, build_task(config))

    def __repr__(self) -> str:
        return f"LoadedProblem({self.name}: {self.ocp!r}, solver {self.solver!r})"

    @property
    def name(self) -> str:
        """Name of the task: the configuration file without suffix, or the name of the problem; for a problem of a saved solution,
        SETTINGS_OF_SOLUTION.
        """
        return Path(self.config.source).stem

    @property
    def ocp(self) -> OCP:
        """The optimal control problem."""
        return self.task.ocp

    @property
    def guess(self) -> Guess:
        """Initial guess: states (N + 1, nx) and controls (N, nu), computed at the first use if that takes long."""
        return self.task.guess

    @property
    def solver(self) -> str:
        """Name of the solver."""
        return self.config.solver_name

    @property
    def options(self) -> Any:
        """Options of the solver, a dataclass."""
        return self.config.solver_options

    @property
    def settings(self) -> Any:
        """Settings of the problem, a dataclass, with the defaults that depend on the robot."""
        return self.config.resolved(self.task.resolved).problem

    def variants(
        self,
        backends: Sequence[BackendChoice],
        solvers: Sequence[str],
        hessians: Sequence[str] = (),
        options: Mapping[str, Mapping[str, Any]] | None = None,
        guess: Guess | None = None,
    ) -> list[Variant]:
        """The combinations that :func:`trajopt.compare` runs, with the same arguments.

        Raises ConfigError for unknown names and wrong options.
        """
        return config_variants(self.config, backends, solvers, hessians, options, guess)

    def starting_at(self, guess: Guess) -> LoadedProblem:
        """Return the problem with another guess and without its relaxed problems."""
        return replace(self, task=replace(self.task, initial=guess, easier=()))

    def solve(
        self,
        guess: Motion | tuple[Array, Array] | None = None,
        callback: Callback | None = None,
        *,
        report: bool = True,
        check: bool = True,
    ) -> Solution:
        """Solve the problem as ``trajopt solve`` does, including continuation and refinement if the task has them.

        guess: states (N + 1, nx) and controls (N, nu); default: that of the task. callback: called with an
        :class:`~trajopt.IterationRecord` after each iteration. report: print the iteration table (see ``output.verbosity``), the
        notes of the configuration and the solution report, with warnings on stderr. check: see :func:`trajopt.solve`.

        Returns the solution with the settings in meta["config"], from which :func:`load_problem` rebuilds the problem. Raises
        InvalidProblem as :func:`trajopt.solve` does. A solve that does not converge raises no exception.
        """
        callbacks = [] if callback is None else [callback]
        table = ConsoleTable(verbosity=self.config.output.verbosity if report else 0)
        if table.verbosity:
            callbacks.append(table)

        def called(record: Any) -> None:
            """Pass a record to all callbacks."""
            for each in callbacks:
                each(record)

        given = None if guess is None else as_guess(guess)
        solution = solve_task(self.config, self.task, called if callbacks else None, given, check=check)
        table.footer()
        if report:
            for note in self.config.notes:
                print(note)
            for line in report_lines(solution):
                print(f"warning: {line.text}" if line.warning else line.text, file=sys.stderr if line.warning else None)
        return solution


def load_problem(name: str | Path | Solution, **changes: Any) -> LoadedProblem:
    """Load a problem: a bundled task or problem by name, a configuration file, or the problem of a saved solution.

    name: one of :func:`tasks`, the path of a TOML file, or a solution of ``trajopt solve`` or :meth:`LoadedProblem.solve`.
    changes: settings of the problem by name, and tables of the configuration: ``solver="ipm"``,
    ``backend="complex_step"``, ``engine="numpy"``, or with options ``solver={"name": "ipm", "max_iterations": 50}``. A mapping
    changes only the keys that it contains; None restores a default. Units are those of ``help(to.tasks()[name])``.

    Raises TypeError for a name of another type; FileNotFoundError for an unknown name, with similar names; ConfigError with all
    mistakes in the settings; ValueError for a solution without settings; UnknownName, ValueError, URDFError, MJCFError or
    ModuleNotFoundError for an invalid robot file or problem. Warns about settings that are likely to be mistakes.

    >>> import trajopt as to
    >>> problem = to.load_problem("cart_pole_swing_up", horizon=75, solver="slq")
    >>> problem.ocp.horizon, problem.solver, problem.guess.xs.shape
    (75, 'slq', (76, 4))
    """
    values = dict(_by_key(changes))
    if isinstance(name, Solution):
        loaded = _problem_of_solution(name, values)
    elif not isinstance(name, (str, Path)):
        raise TypeError(f"name is a {type(name).__name__}; expected the name of a task, a path, or a trajopt.Solution")
    else:
        loaded = LoadedProblem.from_config(load_config(name, values, _warn))
    for sentence in loaded.task.warnings:
        _warn(sentence)
    return loaded


def _problem_of_solution(solution: Solution, changes: Mapping[str, Any]) -> LoadedProblem:
    """Rebuild the problem of a saved solution with changes by dotted key.

    Warns if the robot model has changed since, unless the changes name a robot.

    Raises ValueError for a solution without settings.
    """
    if "config" not in solution.meta:
        raise ValueError(f"{NO_SETTINGS}; solve with `trajopt solve` or LoadedProblem.solve")
    config = changed_config(deepcopy(solution.meta["config"]), SETTINGS_OF_SOLUTION, changes, _warn)
    loaded = LoadedProblem.from_config(config)
    if "problem.robot" not in changes and not same_robot(loaded.task, solution):
        _warn(OTHER_ROBOT)
    return loaded


def _warn(sentence: str) -> None:
    """Issue a warning attributed to the first caller outside of trajopt."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("trajopt."):
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, stacklevel=level)


def _by_key(changes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield changes by dotted key. A name that is not a configuration table is a setting of the problem."""
    for name, value in changes.items():
        key = name if name.partition(".")[0] in TABLES else f"problem.{name}"
        yield from flat({"backend.engine" if key == "engine" else key: _plain(value)})


def _plain(value: Any) -> Any:
    """Convert a value to TOML types: arrays and tuples to lists, dataclasses to tables, paths to strings; others are unchanged."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


TaskFunction = Callable[..., LoadedProblem]


class Tasks(Mapping[str, TaskFunction]):
    """Functions that load the tasks, by name; printed as a table of names and summaries.

    Each function takes the problem's settings as keywords, see :func:`load_problem`. Its signature shows the defaults, its
    docstring the meaning and the unit of each.
    """

    def __init__(self) -> None:
        self._files = bundled_files()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names: bundled files first, then problems without a file of their name."""
        return iter(dict.fromkeys([*self._files, *PROBLEMS]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._files or name in PROBLEMS

    def __getitem__(self, name: str) -> TaskFunction:
        """Function that loads the task of this name. Raises UnknownName, with similar names."""
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
    """Return the function that loads a task, with the settings of its problem in its signature and docstring.

    file: the task's configuration; None for the defaults of the problem ``name``.
    """

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
    """Yield the settings of a problem, then those of free durations, as keyword parameters, with a file's values as defaults.

    Settings of free durations that the problem has itself are yielded once.
    """
    for table in (kind, TimeSettings):
        hints = get_type_hints(table)
        for f in fields(table):
            if table is TimeSettings and f.name in {own.name for own in fields(kind)}:
                continue
            default = f.default if f.default_factory is MISSING else f.default_factory()
            given = values.get(f.name, inspect.Parameter.empty if default is MISSING else default)
            yield inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=hints[f.name])


def _lines(kind: Any, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines for each setting: key, type, default and meaning; then those of nested tables, by dotted key, and of free
    durations.

    values: those of the task's file, which replace the defaults.
    """
    own = {f.name for f in fields(kind)}
    for path, inner in [*nested_tables(Table("", kind)), Table("", TimeSettings)]:
        table: Any = values
        for part in filter(None, path.split(".")):
            table = table.get(part, {}) if isinstance(table, Mapping) else {}
        for key in keys(inner):
            if inner is TimeSettings and key.name in own:
                continue
            written = isinstance(table, Mapping) and key.name in table and not isinstance(table[key.name], Mapping)
            default = formatted_value(table[key.name]) if written else key.default
            yield f"{f'{path}.{key.name}'.lstrip('.')}: {key.type}; {_default(default)}"
            if key.meaning:
                yield f"    {key.meaning}"


def _default(text: str) -> str:
    """Describe a default, given as by :mod:`trajopt.config.keys`: "required", "optional", a table, or "default ..."."""
    return {"needed": "required", "none": "optional", "see below": "a table, its keys below"}.get(
        text, f"default {text}"
    )
