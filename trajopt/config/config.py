"""Configuration files: TOML in, checked settings out, every mistake named at once.

    backend = "analytic"        # or a table: [backend] name, engine, step, mode
    engine = "auto"
    [problem]                   # name, and the settings of problems/<name>.py; time = "free", see trajopt/config/free_time.py; its
                                # numbers are for the robot that it names
    [solver]                    # name, and the fields of its options
    [output]                    # directory, plots, verbosity
    [check]                     # replay_tolerance
    [replan]                    # how `trajopt replan` runs, see trajopt/config/scenario.py
    [sweep]                     # what `trajopt sweep` varies

The known keys are the fields of dataclasses; their types are checked by pydantic models made from these.
"""

from __future__ import annotations

import math
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from dynamics_backends.names import UnknownName, nearest_names
from dynamics_backends.registry import ENGINES, LARGEST_STEP, METHODS
from dynamics_backends.rigid_body.robots import ROBOT_WARNINGS, is_path
from dynamics_backends.user_input import InputError, parse_toml, quoted, read_bounded, shortened
from trajopt.config.bundled import config_file
from trajopt.config.free_time import TIME_KEYS, TimeSettings
from trajopt.config.registry import PROBLEMS
from trajopt.config.schema import read_table
from trajopt.config.task import Checked, Checks, SettingsError
from trajopt.sweeps.variation import LISTS, Variation

MOST_ISSUES = 30
LARGEST_CONFIG = 4 << 20
"""Bytes of a configuration file, 4 MiB."""
DEFAULT_SOLVER = "auto"
DEFAULT_ENGINE = "auto"
_STEP = f"a positive step of at most {LARGEST_STEP}, with finite differences only"
TABLES = ("problem", "backend", "engine", "solver", "output", "check", "replan", "sweep")
REMOVED = {
    "sized_for": "the numbers of a file are for the robot that it names, and are scaled where --set problem.robot=NAME or --urdf "
    "names another one; leave it out"
}
"""Keys of problems in earlier versions, with the remedy."""
NAMED = ("backend", "solver")
"""Tables that may be given as their name alone."""
ROW = ("problem", "solver", "backend")
"""Tables of which rows of a study are made: no other key varies anything."""


class ConfigError(InputError):
    """``issues`` holds one sentence for each mistake; the message shows MOST_ISSUES of them."""

    def __init__(self, source: str, issues: Sequence[str]) -> None:
        self.issues = list(issues)
        shown = [shortened(issue) for issue in issues[:MOST_ISSUES]]
        more = [f"and {len(issues) - MOST_ISSUES} more"] if len(issues) > MOST_ISSUES else []
        several = f"{len(issues)} problems\n" + "\n".join(f"  - {issue}" for issue in [*shown, *more])
        super().__init__(f"{source}: {issues[0] if len(issues) == 1 else several}")


@dataclass(frozen=True, kw_only=True)
class Backend(Checked):
    """Derivatives. name: derivative method, or a registered backend. engine: "compiled", "numpy", or "auto", the first that works.
    step: step of finite differences. mode: AD mode of casadi_ad. Defaults of step and mode: those of the method. options: arguments
    of a registered backend."""

    name: str = "analytic"
    engine: str = DEFAULT_ENGINE
    step: float | None = None
    mode: Literal["auto", "forward", "reverse"] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def checks(self) -> Checks:
        steps, modes = self.name.endswith("_difference"), self.name == "casadi_ad"
        return {
            "name": (self.name in METHODS, _one_of(self.name, METHODS)),
            "engine": (self.engine in ENGINES, _one_of(self.engine, ENGINES)),
            "step": (self.step is None or (steps and 0 < self.step <= LARGEST_STEP), _STEP),
            "mode": (self.mode is None or modes, "no mode: only casadi_ad has one"),
            "options": (
                not self.options or self.name not in METHODS.builtin,
                "no options: only a registered backend has some",
            ),
        }


@dataclass(frozen=True, kw_only=True)
class Output(Checked):
    """Output of a run. directory: output folder; default: out/<name of the config>. plots: write plots. verbosity: 0 to 3,
    columns of the console table."""

    directory: str | None = None
    plots: bool = True
    verbosity: int = 2

    def checks(self) -> Checks:
        return {"verbosity": (self.verbosity in range(4), "0, 1, 2 or 3")}


@dataclass(frozen=True, kw_only=True)
class Check(Checked):
    """Checks of a solution. replay_tolerance: how far the motion may deviate from the plan when it is replayed on finer dynamics
    [rad, m]; default: 0.05 rad and 0.02 m with a fixed base, 0.1 rad and 0.05 m with a floating one."""

    replay_tolerance: float | None = None

    def checks(self) -> Checks:
        given = self.replay_tolerance
        return {"replay_tolerance": (given is None or 0.0 < given < math.inf, "a positive number")}


@dataclass(frozen=True, kw_only=True)
class SweepSettings(Checked):
    """Settings of a study. n: number of rows. seed: random seed; row i depends on (seed, i) only. vary: sampling of each
    varied key, as a text such as "uniform([0.2, -0.4, 0.3], [0.5, 0.4, 0.6])" or a list of choices, see
    :mod:`trajopt.sweeps.variation`. gains: also store feedback gains."""

    n: int = 100
    seed: int = 0
    vary: Mapping[str, Any] = field(default_factory=dict)
    gains: bool = False

    def checks(self) -> Checks:
        return {"n": (self.n >= 1, "at least 1"), "seed": (self.seed >= 0, "at least 0")}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "vary", dict(_flat(self.vary)))
        failed = {}
        for key, given in self.vary.items():
            try:
                variation = Variation.of(given)
            except (TypeError, ValueError) as error:
                failed[f"vary.{key}"] = str(error)
                continue
            if wrong := _not_of_a_row(key) or _unknown_choice(key, variation):
                failed[f"vary.{key}"] = wrong
        if failed:
            raise SettingsError(failed)


def _not_of_a_row(key: str) -> str:
    """What is wrong with a key that changes no row, empty for others."""
    table = key.partition(".")[0]
    if table in ROW:
        return ""
    if table == "engine":
        return "vary backend.engine instead"
    if table not in TABLES:
        return _unknown(table, ROW)
    return f"varies nothing: rows are made of {', '.join(ROW[:-1])} and {ROW[-1]}; vary one of their keys"


def _unknown_choice(key: str, variation: Variation) -> str:
    """What is wrong with names to choose from of which one is not known, empty for others."""
    from trajopt.solvers.registry import SOLVERS

    names: dict[str, Iterable[str]] = {
        "problem.name": PROBLEMS,
        "solver": SOLVERS,
        "solver.name": SOLVERS,
        "backend": METHODS,
        "backend.name": METHODS,
        "backend.engine": ENGINES,
    }
    if key not in names:
        return ""
    if variation.kind not in LISTS:
        return f"{variation} samples numbers, not names: list the names"
    known = list(names[key])
    wrong = [name for name in variation.arguments if name not in known]
    return f"expected {_one_of(wrong[0], known)}, got {wrong[0]!r}" if wrong else ""


def _flat(tables: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables by their dotted keys."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


@dataclass(frozen=True)
class Config:
    """Checked settings. problem_name, solver_name: keys of the registries. source: the file, for messages.

    replan, sweep: None where the config has no such table. given: keys of the problem whose values the command line gave. notes:
    sentences about numbers that were carried over to another robot, that follow from others, or that are rounded.
    """

    source: str
    problem_name: str
    problem: Any
    solver_name: str
    solver_options: Any
    backend: Backend = field(default_factory=Backend)
    output: Output = field(default_factory=Output)
    check: Check = field(default_factory=Check)
    replan: Any = None
    sweep: SweepSettings | None = None
    time: TimeSettings = field(default_factory=TimeSettings)
    given: frozenset[str] = field(default=frozenset(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def directory(self) -> Path:
        """Where results go."""
        return Path(self.output.directory or Path("out") / Path(self.source).stem)

    def with_backend(self, name: str) -> Config:
        """These settings with another derivative method. Raises ConfigError for an unknown one."""
        if name not in METHODS:
            raise ConfigError(self.source, [f"backend: expected {_one_of(name, METHODS)}, got {name!r}"])
        step = self.backend.step if name.endswith("_difference") else None
        mode = self.backend.mode if name == "casadi_ad" else None
        options = self.backend.options if name == self.backend.name else {}
        return replace(self, backend=replace(self.backend, name=name, step=step, mode=mode, options=options))

    def with_engine(self, name: str) -> Config:
        """These settings on another engine."""
        return replace(self, backend=replace(self.backend, engine=name))

    def resolved(self, settings: Mapping[str, Any]) -> Config:
        """These settings with what those of the problem that were left out came to (:attr:`trajopt.config.task.Task.resolved`)."""
        return replace(self, problem=replace(self.problem, **settings))

    def _time(self) -> dict[str, Any]:
        """The keys of free durations, where they are asked for."""
        return asdict(self.time) if self.time.time == "free" else {}

    def as_dict(self) -> dict[str, Any]:
        """All settings, defaults included, as plain values."""
        return _plain(
            {
                "backend": asdict(self.backend),
                "problem": {"name": self.problem_name, **asdict(self.problem), **self._time()},
                "solver": {"name": self.solver_name, **asdict(self.solver_options)},
                "output": asdict(self.output),
                "check": asdict(self.check),
                "replan": None if self.replan is None else asdict(self.replan),
                "sweep": None if self.sweep is None else asdict(self.sweep),
            }
        )


def load_config(
    path: str | Path,
    changes: Iterable[str] | Mapping[str, Any] = (),
    told: Callable[[str], None] = lambda sentence: None,
) -> Config:
    """Read a file, or the bundled one of a bare name; the name of a problem alone stands for its defaults.

    changes: values of other keys, as texts such as "problem.dt=0.02" (TOML) or as values by dotted key; None removes a key. Where
    they name another solver than the file does, that takes over the file's options that it has. Where they name another robot,
    numbers of the file are carried over to it, and those of the changes are taken as they are; see :func:`read_config`.
    told: called with a sentence about each setting of the file that is left out.

    Raises ConfigError with all mistakes, OSError, and where the robot is another one, what loading both raises.
    """
    changes = changes if isinstance(changes, Mapping) else dict(map(parsed_override, changes))
    source, values = read_file(Path(path))
    return changed_config(values, source, changes, told)


def read_file(path: Path) -> tuple[str, dict[str, Any]]:
    """The name for messages and the values of a file, or of the problem that a bare name stands for."""
    try:
        path = config_file(path)
    except FileNotFoundError:
        if path == Path(path.name) and path.name in PROBLEMS:
            return path.name, {"problem": {"name": path.name}}
        raise
    try:
        values = parse_toml(text := read_bounded(path, LARGEST_CONFIG).decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), [_not_toml(text, error)]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), ["not UTF-8 text; give a TOML file"]) from error
    _place_files(values, lambda file: path.parent / file)
    return str(path), values


def changed_config(
    values: dict[str, Any],
    source: str,
    changes: Mapping[str, Any],
    told: Callable[[str], None] = lambda sentence: None,
) -> Config:
    """The configuration of plain values with changes; see :func:`load_config`. ``values`` are changed too."""
    _change_solver(values, changes, told)
    written = deepcopy(values.get("problem"))
    given = override_problem(values, changes, told)
    if changes.keys() & {"engine", "backend.engine"}:  # in a file either may be
        values.pop("engine", None)
        if isinstance(values.get("backend"), dict):
            values["backend"].pop("engine", None)
    for key, value in changes.items():
        set_value(values, key, value)
    _place_files(values, Path.absolute)  # so that what is saved finds them from any folder
    return read_config(values, source, written=written, given=given)


def override_problem(
    values: dict[str, Any], overrides: Mapping[str, Any], told: Callable[[str], None] = lambda sentence: None
) -> frozenset[str]:
    """The keys of the problem that overrides (values by dotted key) give, such as "running.attitude".

    Of two ways to say one thing, such as a distance and a velocity, what the file says by the other way is removed from ``values``;
    told: called with a sentence about it.
    """
    head = "problem."
    given = frozenset(key.removeprefix(head) for key, _ in _flat(overrides) if key.startswith(head))
    table = values.get("problem")
    if not isinstance(table, dict) or table.get("name") not in PROBLEMS:
        return given
    for one, other in getattr(PROBLEMS[table["name"]].Settings, "ALTERNATIVES", ()):
        for keys, others in ((one, other), (other, one)):
            if given.intersection(keys) and not given.intersection(others):
                for key in set(others).intersection(table):
                    del table[key]
                    told(f"problem.{key} of the file is left out: problem.{min(given.intersection(keys))} is given")
    return given


def _change_solver(values: dict[str, Any], changes: Mapping[str, Any], told: Callable[[str], None]) -> None:
    """The options of the file's solver that the one named by changes takes over; what is no known name is left as it is."""
    from trajopt.solvers.registry import SOLVERS

    wanted, table = deepcopy(values), values.get("solver", {})
    for key, value in changes.items():
        set_value(wanted, key, value)
    table, other = ({"name": t} if isinstance(t, str) else t for t in (table, wanted.get("solver", {})))
    if not isinstance(table, dict) or not isinstance(other, dict):
        return
    old, new = (t.get("name", DEFAULT_SOLVER) for t in (table, other))
    if old == new or not all(isinstance(name, str) and name in SOLVERS for name in (old, new)):
        return
    from trajopt.config.other_solver import carried_over

    kept, left = carried_over({key: value for key, value in table.items() if key != "name"}, old, new)
    values["solver"] = {"name": new, **kept}
    if left:
        told(f"ignored options of {old} that {new} does not have: {', '.join(left)}")


def _place_files(values: dict[str, Any], place: Callable[[Path], Path]) -> None:
    """Replace the paths in a problem (a robot's or a scene's file, folders of packages) by what ``place`` makes of them."""
    problem = values.get("problem")
    if not isinstance(problem, dict):
        return
    for key in ("robot", "scene"):
        text = problem.get(key)
        if isinstance(text, str) and (key == "scene" or is_path(text)):
            problem[key] = str(place(Path(text).expanduser()))
    folders = problem.get("package_dirs")
    if isinstance(folders, list) and all(isinstance(text, str) for text in folders):
        problem["package_dirs"] = [str(place(Path(text).expanduser())) for text in folders]


def _not_toml(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Line, reason and remedy."""
    reason, _, place = str(error).partition(" (at ")
    found = re.match(r"line (\d+)", place)
    line = int(found[1]) if found else max(1, len(text.splitlines()))
    remedy = 'write key = value, strings in "quotes", tables as [name]'
    return f"not valid TOML in line {line}: {reason[:1].lower()}{reason[1:]}; {remedy}"


def parsed_override(override: str) -> tuple[str, Any]:
    """The dotted key and the value of "a.b=value", in TOML; a text that is no TOML value is taken as it stands.

    Raises ConfigError for another form.
    """
    key, equals, text = override.partition("=")
    *tables, last = (part.strip() for part in key.split("."))
    if not equals or not last:
        raise ConfigError("--set", [f"{quoted(override)}: expected key=value, for example problem.dt=0.02"])
    try:
        value = parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    return ".".join((*tables, last)), value


def set_value(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value at a dotted key; None removes it. Raises ConfigError where a part of it is no table."""
    *tables, last = key.split(".")
    at = values
    for table in tables:
        inner = at.setdefault(table, {})
        if at is values and table in NAMED and isinstance(inner, str):
            inner = at[table] = {"name": inner}
        if not isinstance(inner, dict):
            raise ConfigError(key, [f"{table!r} is a value, not a table"])
        at = inner
    named = at is values and last in NAMED and isinstance(at.get(last), dict) and isinstance(value, str)
    if value is None:
        at.pop(last, None)
    else:
        at[last] = {**at[last], "name": value} if named else value


def read_config(
    values: Mapping[str, Any],
    source: str = "config",
    *,
    written: Mapping[str, Any] | None = None,
    given: frozenset[str] = frozenset(),
) -> Config:
    """Check plain values.

    written: the table of the problem as it was written, for the robot that it names. Where ``values`` name another robot, numbers
    that depend on its size are carried over, except those at the keys in ``given``, which were chosen for the other robot. Without
    ``written`` all numbers are taken as they are.

    Raises ConfigError with all mistakes, and where numbers are carried over, what loading both robots raises.
    """
    issues = [_unknown(key, TABLES) for key in values if key not in TABLES]
    problem_name, problem, time = _problem(values.get("problem"), issues)
    solver_name, options = _solver(values.get("solver", {}), issues)
    backend = read_table(Backend, _backend_table(values, issues), "backend", issues)
    output = read_table(Output, values.get("output", {}), "output", issues)
    check = read_table(Check, values.get("check", {}), "check", issues)
    replan = _replan(values["replan"], issues) if "replan" in values else None
    sweep = read_table(SweepSettings, values["sweep"], "sweep", issues) if "sweep" in values else None
    notes: tuple[str, ...] = ()
    if not issues and isinstance(written, Mapping):
        problem, notes = _carried_over(problem, written, given, issues)
    if not issues and hasattr(problem, "lasting"):
        problem, lasting = problem.lasting(None if replan is None else replan.duration)
        notes = (*notes, *lasting)
    if issues:
        raise ConfigError(source, issues)
    if replan is not None:
        from trajopt.config.scenario import rounding

        notes = (*notes, *rounding(replan))
    return Config(
        source, problem_name, problem, solver_name, options, backend, output, check, replan, sweep, time, given, notes
    )


def _carried_over(
    problem: Any, written: Mapping[str, Any], given: frozenset[str], issues: list[str]
) -> tuple[Any, tuple[str, ...]]:
    """The settings of a problem for the robot that they name, and sentences about what was carried over to it."""
    if not hasattr(problem, "carried_over"):
        return problem, ()
    kind = problem.robot_settings()
    robot = {f.name: written[f.name] for f in fields(kind) if f.name in written}
    reference = read_table(kind, robot, "problem", issues)
    if reference is None or reference.robot == problem.robot:
        return problem, ()
    with warnings.catch_warnings():  # of the robot's file; building the task repeats them
        for category in ROBOT_WARNINGS:
            warnings.simplefilter("ignore", category)
        try:
            return problem.carried_over(reference, given)
        except SettingsError as error:
            issues.extend(f"problem.{key}: {text}" for key, text in error.problems.items())
    return problem, ()


def _replan(table: Any, issues: list[str]) -> Any:
    from trajopt.config.scenario import Settings

    return read_table(Settings, table, "replan", issues)


def _backend_table(values: Mapping[str, Any], issues: list[str]) -> Any:
    """The table [backend] from both of its forms."""
    backend = values.get("backend", {})
    table = {"name": backend} if isinstance(backend, str) else backend
    if "engine" not in values or not isinstance(table, Mapping):
        return table
    if "engine" in table:
        issues.append("engine: given twice, at the top level and in [backend]; remove one")
    return {"engine": values["engine"], **table}


def _problem(table: Any, issues: list[str]) -> tuple[str, Any, TimeSettings]:
    none = TimeSettings()
    known = ", ".join(PROBLEMS)
    if table is not None and not isinstance(table, Mapping):
        issues.append(f"problem: expected a table [problem] with a name, one of {known}, got {quoted(table)}")
        return "", None, none
    if table is None or "name" not in table:
        issues.append(f"problem.name: missing; a table [problem] with a name is needed, one of {known}")
        return "", None, none
    if not isinstance(table["name"], str):
        issues.append(f"problem.name: expected one of {known}, got {quoted(table['name'])}")
        return "", None, none
    rest = {k: v for k, v in table.items() if k != "name"}
    try:
        Settings = PROBLEMS[table["name"]].Settings
    except UnknownName as error:
        issues.append(f"problem.name: {error}")
        return "", None, none
    issues.extend(f"problem.{key}: no key any more: {REMOVED[key]}" for key in rest if key in REMOVED)
    rest = {k: v for k, v in rest.items() if k not in REMOVED}
    own = {f.name for f in fields(Settings)}
    timed = {key: rest.pop(key) for key in TIME_KEYS if key in rest and key not in own}
    time = read_table(TimeSettings, timed, "problem", issues)
    return table["name"], read_table(Settings, rest, "problem", issues, extra_known=("name", *TIME_KEYS)), time


def _solver(table: Any, issues: list[str]) -> tuple[str, Any]:
    from trajopt.solvers.registry import SOLVERS, solver_options

    table = {"name": table} if isinstance(table, str) else table
    name = table.get("name", DEFAULT_SOLVER) if isinstance(table, Mapping) else DEFAULT_SOLVER
    if not isinstance(name, str) or name not in SOLVERS:
        issues.append(f"solver.name: expected {_one_of(name, SOLVERS)}, got {quoted(name)}")
        return "", None
    _, Options, _ = SOLVERS[name]
    rest = {k: v for k, v in table.items() if k != "name"} if isinstance(table, Mapping) else table
    before = len(issues)
    read_table(Options, rest, "solver", issues, extra_known=("name",))
    if len(issues) > before:
        return name, None
    try:
        return name, solver_options(name, **rest)
    except ValueError as error:  # an option that contradicts the solver's name
        issues.append(f"solver: {error}")
        return name, None


def _unknown(key: str, known: Iterable[str]) -> str:
    near = nearest_names(key, list(known), 1)
    return f"{key}: unknown key" + (f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}")


def _one_of(name: object, known: Iterable[str]) -> str:
    known = list(known)
    near = nearest_names(str(name), known, 1)
    return f"one of {', '.join(known)}" + (f" (did you mean {near[0]!r}?)" if near and name not in known else "")


def _plain(value: Any) -> Any:
    """Without None, tuples as lists."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
