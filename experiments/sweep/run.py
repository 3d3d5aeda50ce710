"""Parameter studies of a configuration: each row is one `trajopt solve` with varied keys."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dynamics_backends.rigid_body.robots import is_path
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
    """Factory of the rows of a study: the configuration ``values``, read from ``source``, with other values at some keys.

    A varied solver starts from its default options; options that both solvers have are copied. If the robot is varied, values
    of the problem are transferred to the new robot, except for varied keys and the keys in ``overridden``.
    """

    values: Mapping[str, Any]
    source: str
    overridden: frozenset[str] = frozenset()

    @classmethod
    def from_config(cls, config: Config) -> FromConfig:
        """Create the factory of a configuration; file paths become absolute, so that workers in other folders find them."""
        tables = {k: v for k, v in config.as_dict().items() if k in ("backend", "problem", "solver")}
        problem = tables["problem"]
        paths = {key: str(Path(problem[key]).expanduser().resolve()) for key in _FILES if _is_file(problem.get(key))}
        return cls(tables | {"problem": problem | paths}, config.source, config.overridden)

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the study: its settings, and the hashes of the files that they name."""
        named = {key: Path(v) for key in _FILES if _is_file(v := self.values["problem"].get(key))}
        hashes = {key: hashlib.sha256(path.read_bytes()).hexdigest() for key, path in named.items() if path.is_file()}
        return {**self.values, **({"files": hashes} if hashes else {})}

    def config(self, values: Mapping[str, Any]) -> Config:
        """Return the configuration of a row. Raises ConfigError for invalid keys and values."""
        tables: Any = deepcopy(self.values)
        if "solver.name" in values:
            chosen = with_solver(read_config(tables, self.source), values["solver.name"])
            tables["solver"] = chosen.as_dict()["solver"]
        given = override_problem(tables, values)
        for key, value in values.items():
            set_value(tables, key, value)
        return read_config(tables, self.source, written=self.values["problem"], overridden=self.overridden | given)

    def __call__(self, **values: Any) -> SweepProblem:
        config = self.config(values)
        task = build_task(config)
        once = task.refined is None and not task.easier
        by_steps = None if once else partial(solve_task, config, task, check=False)
        return SweepProblem(task.ocp, task.guess, config.solver_name, config.solver_options, by_steps)


def _is_file(value: object) -> bool:
    return isinstance(value, str) and (is_path(value) or value.endswith(".toml"))


def with_variations(config: Config, **given: Any) -> Config:
    """Return the configuration with other settings of its study. None keeps a setting; ``vary`` is merged with the file.

    Raises ConfigError if no key is varied, or if a setting is invalid.
    """
    settings = config.sweep or SweepSettings()
    given = {key: value for key, value in given.items() if value is not None}
    try:
        study = replace(settings, **{**given, "vary": {**settings.vary, **given.get("vary", {})}})
    except SettingsError as error:
        raise ConfigError(config.source, [f"sweep.{key}: {text}" for key, text in error.problems.items()]) from error
    if not study.vary:
        remedy = "use --vary KEY=uniform(low, high) or KEY=a,b, or a table [sweep.vary]"
        raise ConfigError(config.source, [f"sweep.vary: no key is varied; {remedy}"])
    return replace(config, sweep=study)


def run(
    config: Config,
    *,
    workers: int | None = None,
    scheduler: Any = None,
    shard: int | None = None,
    progress: Report | None = None,
) -> Sweep:
    """Run the study of a configuration into its output folder. Raises as :func:`trajopt.sweeps.run.sweep`."""
    study = config.sweep
    assert study is not None  # see with_variations
    return sweep(
        FromConfig.from_config(config),
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
