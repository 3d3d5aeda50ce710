"""Read and check configuration files (TOML). One error reports the mistakes of all tables.

    backend = "analytic"        # or a table: [backend] name, engine, step, mode
    engine = "auto"
    [problem]                   # name, and the settings of problems/<name>.py, for the robot that the file names;
                                # time = "free", see trajopt/config/free_time.py
    [solver]                    # name, and the fields of its options
    [output]                    # directory, plots, verbosity
    [check]                     # replay_tolerance
    [replan]                    # settings of `trajopt replan`, see trajopt/config/scenario.py
    [sweep]                     # settings of `trajopt sweep`

The known keys are the fields of dataclasses, which also define the types; pydantic models made from these report wrong types.
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
from dynamics_backends.user_input import InputError, parse_toml, parse_value, quoted, read_bounded, shortened
from trajopt.config.free_time import TIME_KEYS, TimeSettings
from trajopt.config.registry import PROBLEMS, config_file
from trajopt.config.schema import NAMED, plain_values, read_table
from trajopt.config.task import Checked, Checks, SettingsError
from trajopt.sweeps.variation import LISTS, Variation

MAX_ISSUES = 30
LARGEST_CONFIG = 4 << 20
"""Maximum size of a configuration file, 4 MiB [bytes]."""
DEFAULT_SOLVER = "auto"
DEFAULT_ENGINE = "auto"
_STEP = f"a positive step of at most {LARGEST_STEP}, with finite differences only"
TABLES = ("problem", "backend", "engine", "solver", "output", "check", "replan", "sweep")
REMOVED = {
    "sized_for": "a file's numbers belong to the robot that it names, and are scaled if --set problem.robot=NAME or --urdf "
    "selects another robot; remove this key"
}
"""Keys of problems removed since earlier versions, with the remedy."""
ROW = ("problem", "solver", "backend")
"""Tables that a study can vary."""


class ConfigError(InputError):
    """A configuration has mistakes. ``issues`` holds one sentence per mistake; the message shows up to MAX_ISSUES."""

    def __init__(self, source: str, issues: Sequence[str]) -> None:
        self.issues = list(issues)
        shown = [shortened(issue) for issue in issues[:MAX_ISSUES]]
        more = [f"and {len(issues) - MAX_ISSUES} more"] if len(issues) > MAX_ISSUES else []
        several = f"{len(issues)} problems\n" + "\n".join(f"  - {issue}" for issue in [*shown, *more])
        super().__init__(f"{source}: {issues[0] if len(issues) == 1 else several}")


@dataclass(frozen=True, kw_only=True)
class Backend(Checked):
    """Derivatives. name: derivative method, or a registered backend. engine: "compiled", "numpy", or "auto", which is "compiled".
    step: finite-difference step. mode: AD mode of casadi_ad. Default of step and mode: the method's default. options: arguments
    of a registered backend.
    """

    name: str = "analytic"
    engine: str = DEFAULT_ENGINE
    step: float | None = None
    mode: Literal["auto", "forward", "reverse"] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def checks(self) -> Checks:
        """Checks by key, (True if acceptable, acceptable values): known name and engine, and options that belong to the method.

        A step is positive, at most LARGEST_STEP, and only for finite differences; a mode only for casadi_ad; options only for a
        registered backend.
        """
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
    """Output of a run. directory: output folder; default: out/<name of the config>. plots: write plots. verbosity: of the console
    table, from 0, no table, to 3, all columns.
    """

    directory: str | None = None
    plots: bool = True
    verbosity: int = 2

    def checks(self) -> Checks:
        """Check of the verbosity, 0 to 3: (True if acceptable, description of acceptable values) by key."""
        return {"verbosity": (self.verbosity in range(4), "0, 1, 2 or 3")}


@dataclass(frozen=True, kw_only=True)
class Check(Checked):
    """Checks of a solution. replay_tolerance: maximum deviation from the plan in its replay on finer dynamics [rad, m]; default:
    0.05 rad and 0.02 m with a fixed base, 0.1 rad and 0.05 m with a floating one; without a robot 0.05 times the range of each
    component of the state along the plan, and at least 0.05.
    """

    replay_tolerance: float | None = None

    def checks(self) -> Checks:
        """Check of the replay tolerance by key, (True if acceptable, acceptable values): None, or positive and finite."""
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
        """Checks by key, (True if acceptable, description of acceptable values): n >= 1, seed >= 0."""
        return {"n": (self.n >= 1, "at least 1"), "seed": (self.seed >= 0, "at least 0")}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "vary", dict(flat(self.vary)))
        failed = {}
        for key, given in self.vary.items():
            try:
                variation = Variation.from_value(given)
            except (TypeError, ValueError) as error:
                failed[f"vary.{key}"] = str(error)
                continue
            if wrong := _row_key_error(key) or _unknown_choice(key, variation):
                failed[f"vary.{key}"] = wrong
        if failed:
            raise SettingsError(failed)


def _row_key_error(key: str) -> str:
    """Return why a study cannot vary a key, if it is in none of the tables problem, solver and backend; "" for keys in these."""
    table = key.partition(".")[0]
    if table in ROW:
        return ""
    if table == "engine":
        return "vary backend.engine instead"
    if table not in TABLES:
        return _unknown(table, ROW)
    return f"does not change the rows of a study: vary keys of {', '.join(ROW[:-1])} or {ROW[-1]}"


def _unknown_choice(key: str, variation: Variation) -> str:
    """Return the error of a variation of names (problem, solver, backend, engine), or "" for a valid one and for other keys.

    An error is an unknown name, or a variation that samples numbers.
    """
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
        return f"{variation} samples numbers, not names: give a list of names"
    known = list(names[key])
    wrong = [name for name in variation.arguments if name not in known]
    return f"expected {_one_of(wrong[0], known)}, got {wrong[0]!r}" if wrong else ""


def flat(tables: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by dotted key."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


@dataclass(frozen=True)
class Config:
    """Checked settings. problem_name, solver_name: keys of the registries. source: the file, for messages.

    replan, sweep: None if the config has no such table. overridden: problem keys set by changes, as on the command line. notes:
    sentences about numbers that were scaled to another robot, derived from other settings, or rounded.
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
    overridden: frozenset[str] = field(default=frozenset(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def directory(self) -> Path:
        """Output folder: that of the settings, else out/NAME with the name of the configuration file."""
        return Path(self.output.directory or Path("out") / Path(self.source).stem)

    def with_backend(self, name: str) -> Config:
        """Return these settings with another derivative method.

        A step is kept only for finite differences, a mode only for casadi_ad, options only if the method is the present one.
        Raises ConfigError for an unknown method.
        """
        if name not in METHODS:
            raise ConfigError(self.source, [f"backend: expected {_one_of(name, METHODS)}, got {name!r}"])
        step = self.backend.step if name.endswith("_difference") else None
        mode = self.backend.mode if name == "casadi_ad" else None
        options = self.backend.options if name == self.backend.name else {}
        return replace(self, backend=replace(self.backend, name=name, step=step, mode=mode, options=options))

    def with_engine(self, name: str) -> Config:
        """Return these settings with another engine. Raises SettingsError for an unknown one."""
        return replace(self, backend=replace(self.backend, engine=name))

    def resolved(self, settings: Mapping[str, Any]) -> Config:
        """Return these settings with resolved values for omitted problem settings (:attr:`trajopt.config.task.Task.resolved`)."""
        return replace(self, problem=replace(self.problem, **settings))

    def _time(self) -> dict[str, Any]:
        """Return the free-time keys ``time``, ``durations``, ``time_weight`` for the table [problem]; empty for fixed durations."""
        return asdict(self.time) if self.time.time == "free" else {}

    def as_dict(self) -> dict[str, Any]:
        """Return all settings, including defaults, as tables of a configuration file: plain values, without those that are None."""
        return plain_values(
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
    report: Callable[[str], None] = lambda sentence: None,
) -> Config:
    """Read a configuration file, a bundled file by name, or the defaults of a problem by its name.

    changes: values by dotted key, or texts such as "problem.dt=0.02" (TOML); None removes a key. If the solver changes, options
    of the file's solver are carried over where the new solver has them. If the robot changes, numbers of the file are scaled to the
    new robot; numbers in ``changes`` are not. See :func:`read_config`.
    report: called with a sentence about each setting of the file that is ignored.

    Raises ConfigError with all mistakes, OSError, and loading errors of both robots if the robot changes.
    """
    changes = changes if isinstance(changes, Mapping) else dict(map(parsed_override, changes))
    source, values = read_file(Path(path))
    return changed_config(values, source, changes, report)


def read_file(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of a configuration for messages, and its values: those of a file, or the defaults of a named problem.

    Relative paths of robots, scenes and packages are taken from the folder of the file. Raises FileNotFoundError, OSError,
    ConfigError for a file that is not TOML, and InputError for a file of more than LARGEST_CONFIG bytes.
    """
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
    folder = path.parent.absolute()  # the same before and after changes
    _place_files(values, lambda file: folder / file)
    return str(path), values


def changed_config(
    values: dict[str, Any],
    source: str,
    changes: Mapping[str, Any],
    report: Callable[[str], None] = lambda sentence: None,
) -> Config:
    """Apply changes (values by dotted key) to plain values, in place, and return the checked result; see :func:`load_config`."""
    _change_solver(values, changes, report)
    written = deepcopy(values.get("problem"))
    given = override_problem(values, changes, report)
    if changes.keys() & {"engine", "backend.engine"}:  # a file may use either form
        values.pop("engine", None)
        if isinstance(values.get("backend"), dict):
            values["backend"].pop("engine", None)
    for key, value in changes.items():
        set_value(values, key, value)
    _place_files(values, Path.absolute)  # absolute paths, valid from any working directory
    return read_config(values, source, written=written, overridden=given)


def override_problem(
    values: dict[str, Any], overrides: Mapping[str, Any], report: Callable[[str], None] = lambda sentence: None
) -> frozenset[str]:
    """Return the problem keys that overrides (values by dotted key) set, such as "running.attitude".

    For alternative settings, such as a distance and a velocity, an override of only one removes the other from ``values``.
    report: called with a sentence about each removed setting.
    """
    head = "problem."
    given = frozenset(key.removeprefix(head) for key, _ in flat(overrides) if key.startswith(head))
    table = values.get("problem")
    if not isinstance(table, dict) or table.get("name") not in PROBLEMS:
        return given
    for one, other in getattr(PROBLEMS[table["name"]].Settings, "ALTERNATIVES", ()):
        for keys, others in ((one, other), (other, one)):
            if given.intersection(keys) and not given.intersection(others):
                for key in set(others).intersection(table):
                    del table[key]
                    report(f"problem.{key} of the file is left out: problem.{min(given.intersection(keys))} is given")
    return given


def _change_solver(values: dict[str, Any], changes: Mapping[str, Any], report: Callable[[str], None]) -> None:
    """If changes name another solver, replace that of the values by it, with the options that it has; report the other options.

    Works in place. Nothing changes if either solver is unknown; later checks find that.
    """
    from trajopt.solvers.registry import SOLVERS, carried_over

    wanted, table = deepcopy(values), values.get("solver", {})
    for key, value in changes.items():
        set_value(wanted, key, value)
    table, other = ({"name": t} if isinstance(t, str) else t for t in (table, wanted.get("solver", {})))
    if not isinstance(table, dict) or not isinstance(other, dict):
        return
    old, new = (t.get("name", DEFAULT_SOLVER) for t in (table, other))
    if old == new or not all(isinstance(name, str) and name in SOLVERS for name in (old, new)):
        return
    accepted, left = carried_over({key: value for key, value in table.items() if key != "name"}, old, new)
    values["solver"] = {"name": new, **accepted}
    if left:
        report(f"ignored options of {old} that {new} does not have: {', '.join(left)}")


def _place_files(values: dict[str, Any], place: Callable[[Path], Path]) -> None:
    """Replace the paths in a problem (robot and scene files, package folders) by ``place(path)``, in place.

    A robot's name that is no path is unchanged. "~" is expanded.
    """
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
    """Return the message for invalid TOML: line, reason and remedy."""
    reason, _, place = str(error).partition(" (at ")
    found = re.match(r"line (\d+)", place)
    line = int(found[1]) if found else max(1, len(text.splitlines()))
    remedy = 'write key = value, strings in "quotes", tables as [name]'
    return f"not valid TOML in line {line}: {reason[:1].lower()}{reason[1:]}; {remedy}"


def parsed_override(override: str) -> tuple[str, Any]:
    """Parse "a.b=value" into a dotted key and a TOML value; text that is not valid TOML becomes a string.

    Raises ConfigError if the text is not of the form key=value.
    """
    key, equals, text = override.partition("=")
    *tables, last = (part.strip() for part in key.split("."))
    if not equals or not last:
        raise ConfigError("--set", [f"{quoted(override)}: expected key=value, for example problem.dt=0.02"])
    return ".".join((*tables, last)), parse_value(text)


def set_value(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value at a dotted key, in place; None removes it.

    A backend or solver given by its name alone becomes a table; a name for a backend or solver that is a table changes only its
    name.
    Raises ConfigError if a parent of the key is not a table.
    """
    *tables, last = key.split(".")
    if any(part.endswith("]") for part in (*tables, last)):
        raise ConfigError(key, [f"set {key.partition('[')[0]} as a whole, not one of its entries"])
    at = values
    for table in tables:
        inner = at.setdefault(table, {})
        if at is values and table in NAMED and isinstance(inner, str):
            inner = at[table] = {"name": inner}
        if isinstance(inner, list):
            raise ConfigError(key, [f"{table!r} is a list: set it as a whole, not one of its entries"])
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
    overridden: frozenset[str] = frozenset(),
) -> Config:
    """Check plain values and return the configuration.

    written: the problem table before changes, with the robot that its numbers belong to; defaults belong to the default robot.
    If ``values`` name another robot, size-dependent numbers are scaled to it, except those at the keys in ``overridden``, which
    were chosen for the new robot. Without ``written`` no number is scaled.

    Raises ConfigError with the mistakes of all tables (of a table with keys of wrong types, only these), and loading errors of
    both robots if numbers are scaled.
    """
    issues = [_unknown(key, TABLES) for key in values if key not in TABLES]
    problem_name, problem, time = _read_problem(values.get("problem"), issues)
    solver_name, options = _read_solver(values.get("solver", {}), issues)
    backend = read_table(Backend, _backend_table(values, issues), "backend", issues)
    output = read_table(Output, values.get("output", {}), "output", issues)
    check = read_table(Check, values.get("check", {}), "check", issues)
    replan = _replan(values["replan"], issues) if "replan" in values else None
    sweep = read_table(SweepSettings, values["sweep"], "sweep", issues) if "sweep" in values else None
    notes: tuple[str, ...] = ()
    if not issues and isinstance(written, Mapping):
        problem, notes = _carried_over(problem, written, overridden, issues)
        if notes and replan is not None:
            notes = (*notes, f"times of [replan] are not scaled: period {replan.period:g} s, lead {replan.lead:g} s")
    if not issues and hasattr(problem, "with_run_duration"):
        problem, run_notes = problem.with_run_duration(None if replan is None else replan.duration)
        notes = (*notes, *run_notes)
    if issues:
        raise ConfigError(source, issues)
    if replan is not None:
        from trajopt.config.scenario import rounding

        notes = (*notes, *rounding(replan))
    return Config(
        source,
        problem_name,
        problem,
        solver_name,
        options,
        backend,
        output,
        check,
        replan,
        sweep,
        time,
        overridden,
        notes,
    )


def _carried_over(
    problem: Any, written: Mapping[str, Any], given: frozenset[str], issues: list[str]
) -> tuple[Any, tuple[str, ...]]:
    """Return the problem settings with numbers scaled to the robot that they name, and sentences about the scaled numbers.

    Defaults are scaled from the default robot. written: the table before changes, whose robot the numbers belong to. given: keys
    that are not scaled. Unchanged for a problem without scaling, and after a mistake, which is appended to ``issues``.
    """
    if not hasattr(problem, "carried_over"):
        return problem, ()
    kind = problem.robot_settings()
    robot = {f.name: written[f.name] for f in fields(kind) if f.name in written}
    reference = read_table(kind, robot, "problem", issues)
    if reference is None or reference.robot == problem.robot == kind.robot:
        return problem, ()
    notes: tuple[str, ...] = ()
    with warnings.catch_warnings():  # building the task repeats the warnings of the robot's file
        for category in ROBOT_WARNINGS:
            warnings.simplefilter("ignore", category)
        try:
            if reference.robot != kind.robot:
                own = {f.name: getattr(problem, f.name) for f in fields(kind)}
                chosen = given.union(key for key, _ in flat(written))
                problem, notes = replace(problem, **vars(reference)).with_scaled_defaults(chosen)
                problem = replace(problem, **own)
            if reference.robot != problem.robot:
                problem, changes = problem.carried_over(reference, given)
                notes = (*notes, *changes)
        except SettingsError as error:
            issues.extend(f"problem.{key}: {text}" for key, text in error.problems.items())
    return problem, notes


def _replan(table: Any, issues: list[str]) -> Any:
    """Read the table [replan]; None after a mistake, which is appended to ``issues``."""
    from trajopt.config.scenario import Settings

    return read_table(Settings, table, "replan", issues)


def _backend_table(values: Mapping[str, Any], issues: list[str]) -> Any:
    """Return the table [backend] from either form, a name or a table, with the key ``engine`` of the top level added to it.

    An engine in both places is a mistake, which is appended to ``issues``; that of [backend] is then used. A value that is
    neither a name nor a table is returned unchanged.
    """
    backend = values.get("backend", {})
    table = {"name": backend} if isinstance(backend, str) else backend
    if "engine" not in values or not isinstance(table, Mapping):
        return table
    if "engine" in table:
        issues.append("engine: given twice, at the top level and in [backend]; remove one")
    return {"engine": values["engine"], **table}


def _read_problem(table: Any, issues: list[str]) -> tuple[str, Any, TimeSettings]:
    """Return the name, settings and free durations of the table [problem].

    Mistakes are appended to ``issues``; settings and free durations may then be None. The name is "" if it is missing or unknown.
    """
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
    issues.extend(f"problem.{key}: removed: {REMOVED[key]}" for key in rest if key in REMOVED)
    rest = {k: v for k, v in rest.items() if k not in REMOVED}
    own = {f.name for f in fields(Settings)}
    timed = {key: rest.pop(key) for key in TIME_KEYS if key in rest and key not in own}
    time = read_table(TimeSettings, timed, "problem", issues)
    return table["name"], read_table(Settings, rest, "problem", issues, extra_known=("name", *TIME_KEYS)), time


def _read_solver(table: Any, issues: list[str]) -> tuple[str, Any]:
    """Return the name and the options of the solver, given as a name or a table.

    Mistakes are appended to ``issues``; the options are then None, and the name is "" if it is unknown.
    """
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
    """Return the message for an unknown key, with the most similar known key, or else all of them."""
    near = nearest_names(key, list(known), 1)
    return f"{key}: unknown key" + (f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}")


def _one_of(name: object, known: Iterable[str]) -> str:
    """Return "one of ..." with the known names, and the most similar one if the name is unknown."""
    known = list(known)
    near = nearest_names(str(name), known, 1)
    return f"one of {', '.join(known)}" + (f" (did you mean {near[0]!r}?)" if near and name not in known else "")
