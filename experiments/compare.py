"""One problem solved by several backends and solvers: a table, a CSV file, and a plot of their convergence."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.build import build_task, engine_in_use, make_ready, solve_task
from experiments.config import Config, read_config
from trajopt import Solution, StatusCode
from trajopt.records import PHASES

COLUMNS = (
    "problem",
    "backend",
    "engine",
    "solver",
    "status",
    "iterations",
    "final_cost",
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
        """Solver and backend."""
        return self.config.solver_name, self.config.backend.name

    def row(self) -> dict[str, Any]:
        """The values of :data:`COLUMNS`; times in seconds."""
        s, c = self.solution, self.config
        values = (
            Path(c.source).stem,
            c.backend.name,
            engine_in_use(c.backend),
            c.solver_name,
            str(s.status.code),
            s.iterations,
            s.cost,
            s.meta["solve_time"],
            *s.time_total.values(),
        )
        return dict(zip(COLUMNS, values, strict=True))


def with_solver(config: Config, name: str) -> Config:
    """The configuration with another solver; options that the names of both do not stand for are kept.

    Raises ConfigError for an unknown solver.
    """
    if name == config.solver_name:
        return config
    from trajopt.solvers import SOLVERS

    implied = {key for solver in (name, config.solver_name) for key in SOLVERS.get(solver, (0, 0, {}))[2]}
    kept = {k: v for k, v in asdict(config.solver_options).items() if k not in implied and v is not None}
    values = config.as_dict() | {"solver": {**kept, "name": name}}
    return read_config(values, config.source)


def variants(config: Config, backends: Sequence[str], solvers: Sequence[str]) -> list[Config]:
    """Every solver with every backend; empty lists stand for those of the configuration."""
    chosen = [with_solver(config, name) for name in solvers or [config.solver_name]]
    names = backends or [config.backend.name]
    return [read_config(c.with_backend(b).as_dict(), c.source) for c in chosen for b in names]


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
