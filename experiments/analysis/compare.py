"""One problem solved by several backends, solvers and Hessians: a table, a CSV file, and a plot of their convergence."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from experiments.config.build import build_task, engine_in_use, make_ready, solve_task
from experiments.config.config import Config, ConfigError, read_config
from experiments.config.other_solver import accepts, carried_over
from trajopt import Solution, StatusCode
from trajopt.results.records import PHASES
from trajopt.solvers.registry import SOLVERS

COLUMNS = (
    "problem",
    "backend",
    "engine",
    "solver",
    "hessian",
    "status",
    "iterations",
    "final_cost",
    "gradient",
    "violation",
    "time_total",
    *(f"time_{phase}" for phase in PHASES),
)


@dataclass(frozen=True)
class Run:
    """One solve."""

    config: Config
    solution: Solution

    @property
    def key(self) -> tuple[str, str]:
        """Solver, with its Hessian where it has a choice, and backend."""
        return f"{self.config.solver_name} {self.hessian}".strip(), self.config.backend.name

    @property
    def hessian(self) -> str:
        """The solver's Hessian, empty where it has no choice."""
        return getattr(self.config.solver_options, "hessian", "")

    def row(self) -> dict[str, Any]:
        """The values of :data:`COLUMNS`; times in seconds; gradient of the Lagrangian and violation at the end."""
        s, c = self.solution, self.config
        last = s.history[-1] if s.history else None
        values = (
            Path(c.source).stem,
            c.backend.name,
            engine_in_use(c.backend),
            c.solver_name,
            self.hessian,
            str(s.status.code),
            s.iterations,
            s.cost,
            float("nan") if last is None else last.gradient,
            float("nan") if last is None else max(last.defect, last.constraint_violation),
            s.meta["solve_time"],
            *s.time_total.values(),
        )
        return dict(zip(COLUMNS, values, strict=True))


def with_solver(config: Config, name: str) -> Config:
    """The configuration with another solver. Options that differ from their defaults are kept where it has them too and
    accepts them, but for those that one of the names stands for.

    Raises ConfigError for an unknown solver.
    """
    if name == config.solver_name or name not in SOLVERS:
        return config if name == config.solver_name else _with_options(config, name, {})
    return _with_options(config, name, carried_over(vars(config.solver_options), config.solver_name, name)[0])


def with_hessian(config: Config, hessian: str) -> Config | None:
    """The configuration with another Hessian; None for a solver that does not have it."""
    Options = type(config.solver_options)
    if "hessian" not in {f.name for f in fields(Options)} or not accepts(Options, "hessian", hessian):
        return None
    return _with_options(config, config.solver_name, {**asdict(config.solver_options), "hessian": hessian})


def _with_options(config: Config, solver: str, options: dict[str, Any]) -> Config:
    given = {key: value for key, value in options.items() if value is not None}
    return read_config(config.as_dict() | {"solver": {**given, "name": solver}}, config.source)


def variants(
    config: Config, backends: Sequence[str], solvers: Sequence[str], hessians: Sequence[str] = ()
) -> list[Config]:
    """Every solver with every Hessian that it has and every backend; empty lists stand for those of the configuration.

    Raises ConfigError for an unknown name, and for a Hessian that none of the solvers has.
    """
    chosen = [with_solver(config, name) for name in solvers or [config.solver_name]]
    for hessian in hessians:
        if not any(with_hessian(c, hessian) for c in chosen):
            names = ", ".join(c.solver_name for c in chosen)
            raise ConfigError(config.source, [f"--hessians: none of the solvers ({names}) has hessian = {hessian!r}"])
    if hessians:
        chosen = [found for c in chosen for hessian in hessians if (found := with_hessian(c, hessian)) is not None]
    methods = backends or [config.backend.name]
    return [read_config(c.with_backend(b).as_dict(), c.source) for c in chosen for b in methods]


def run_all(configs: Sequence[Config]) -> Iterator[Run]:
    """Solve one after the other; Ctrl-C ends it, without the run that was interrupted."""
    for config in configs:
        try:
            task = build_task(config)
            make_ready(config, task)  # compiling and tracing are not timed
            run = Run(config, solve_task(config, task))
        except KeyboardInterrupt:  # while building
            return
        if run.solution.status.code == StatusCode.INTERRUPTED:
            return
        yield run


def markdown(runs: Sequence[Run]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, run.row().values())) + " |" for run in runs)]) + "\n"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_csv(path: Path, runs: Sequence[Run]) -> Path:
    """All digits, one row for each run."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(run.row() for run in runs)
    return path
