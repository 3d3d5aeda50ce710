"""A study of a configuration: keys of the file are varied, each row is what `trajopt solve` would solve."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from problems.robots import is_path
from trajopt import Sweep, SweepProblem, sweep
from trajopt.config.build import build_task, solve_task
from trajopt.config.config import Config, ConfigError, SweepSettings, override_problem, read_config, set_value
from trajopt.config.task import SettingsError
from trajopt.config.variants import with_solver
from trajopt.sweeps.run import Report

_FILES = ("robot", "scene")
"""Keys of problems that may be paths."""


@dataclass(frozen=True)
class FromConfig:
    """The problem of a row: the configuration ``values``, read from ``source``, with other values at some keys.

    A solver that is varied brings its own defaults; options are kept where it has them too. Where the robot is varied, numbers of
    the problem are carried over to it, but for those that are varied too and those at the keys in ``given``.
    """

    values: Mapping[str, Any]
    source: str
    given: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: Config) -> FromConfig:
        """What makes the problem of a configuration; paths become absolute, so that workers elsewhere find them."""
        tables = {k: v for k, v in config.as_dict().items() if k in ("backend", "problem", "solver")}
        problem = tables["problem"]
        paths = {key: str(Path(problem[key]).expanduser().resolve()) for key in _FILES if _is_file(problem.get(key))}
        return cls(tables | {"problem": problem | paths}, config.source, config.given)

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this study from others: the settings, and the content of the files that they name."""
        named = {key: Path(v) for key in _FILES if _is_file(v := self.values["problem"].get(key))}
        hashes = {key: hashlib.sha256(path.read_bytes()).hexdigest() for key, path in named.items() if path.is_file()}
        return {**self.values, **({"files": hashes} if hashes else {})}

    def config(self, values: Mapping[str, Any]) -> Config:
        """The configuration of a row. Raises ConfigError for keys and values that it does not take."""
        tables: Any = deepcopy(self.values)
        if "solver.name" in values:
            chosen = with_solver(read_config(tables, self.source), values["solver.name"])
            tables["solver"] = chosen.as_dict()["solver"]
        given = override_problem(tables, values)
        for key, value in values.items():
            set_value(tables, key, value)
        return read_config(tables, self.source, written=self.values["problem"], given=self.given | given)

    def __call__(self, **values: Any) -> SweepProblem:
        config = self.config(values)
        task = build_task(config)
        once = task.refined is None and not task.easier
        by_steps = None if once else partial(solve_task, config, task, check=False)
        return SweepProblem(task.ocp, task.guess, config.solver_name, config.solver_options, by_steps)


def _is_file(value: object) -> bool:
    return isinstance(value, str) and (is_path(value) or value.endswith(".toml"))


def with_variations(config: Config, **given: Any) -> Config:
    """The configuration with other settings of its study; those that are None stay. vary: added to those of the file.

    Raises ConfigError where nothing is varied, or a setting is wrong.
    """
    own = config.sweep or SweepSettings()
    given = {key: value for key, value in given.items() if value is not None}
    try:
        study = replace(own, **{**given, "vary": {**own.vary, **given.get("vary", {})}})
    except SettingsError as error:
        raise ConfigError(config.source, [f"sweep.{key}: {text}" for key, text in error.problems.items()]) from error
    if not study.vary:
        remedy = "use --vary KEY=uniform(low, high) or KEY=a,b, or a table [sweep.vary]"
        raise ConfigError(config.source, [f"sweep.vary: nothing is varied; {remedy}"])
    return replace(config, sweep=study)


def run(
    config: Config,
    *,
    workers: int | None = None,
    scheduler: Any = None,
    shard: int | None = None,
    progress: Report | None = None,
) -> Sweep:
    """The study of a configuration, into its directory; see :func:`trajopt.sweeps.run.sweep` for what is raised."""
    study = config.sweep
    assert study is not None  # see with_variations
    return sweep(
        FromConfig.of(config),
        study.vary,
        study.n,
        config.directory,
        seed=study.seed,
        workers=workers,
        scheduler=scheduler,
        gains=study.gains,
        shard=shard,
        progress=progress,
    )
