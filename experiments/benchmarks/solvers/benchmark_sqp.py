"""SQP on textbook problems: iterations, evaluations, accuracy and time by QP solver.

    python -m experiments.benchmark_sqp [--out DIR]

The problems are those of tests/cases/hock_schittkowski.py (Hock & Schittkowski 1981; Nocedal & Wright 2006); the benchmark needs a
source tree. Derivatives are computed in Python, which takes most of the time.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmarks.tables import markdown, write_report
from trajopt import SQPOptions, solve_nlp

PROBLEMS = Path(__file__).parents[3] / "tests" / "cases" / "hock_schittkowski.py"
KNOWN = 2e-8  # the literature gives some optima to nine digits
SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"qp_solver": "interior_point"},
    {"qp_solver": "osqp"},
    {"qp_solver": "daqp"},
)


class Entry(NamedTuple):
    """One solve. error: relative error of the objective; gradient, violation: final values."""

    problem: str
    qp_solver: str
    status: str
    iterations: int
    evaluations: int
    objective: float
    error: float
    gradient: float
    violation: float
    milliseconds: float
    holds: bool


def textbook() -> Any:
    """Load the module with the problems."""
    spec = importlib.util.spec_from_file_location("hock_schittkowski", PROBLEMS)
    if spec is None or spec.loader is None or not PROBLEMS.exists():
        raise SystemExit(f"{PROBLEMS} is missing; run this from a source tree")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def solves() -> Iterator[Entry]:
    """Solve all problems with all settings."""
    problems = textbook()
    for settings in SETTINGS:
        options = SQPOptions(**settings)
        for problem in problems.ALL:
            nlp = problems.TextbookNLP(problem)
            began = time.perf_counter()
            s = solve_nlp(nlp, np.array(problem.start, dtype=float), options)
            elapsed = 1e3 * (time.perf_counter() - began)
            optima = (problem.optimum, *problem.others)
            error = min(abs(s.objective - v) / max(1.0, abs(v)) for v in optima)
            last = s.history[-1]
            holds = s.status.success and error <= KNOWN
            names = problem.name, options.qp_solver, str(s.status.code)
            numbers = s.objective, error, last.gradient, last.constraint_violation, elapsed
            yield Entry(*names, s.iterations, nlp.evaluations, *numbers, holds)


def summary(entries: list[Entry], file: Path | None = None) -> str:
    """Format the results, one row per setting; file: CSV file to write them to."""
    rows = []
    for settings in SETTINGS:
        o = SQPOptions(**settings)
        own = [e for e in entries if e.qp_solver == o.qp_solver]
        solved, iterations = sum(e.holds for e in own), sum(e.iterations for e in own)
        seconds = sum(e.milliseconds for e in own) / 1e3
        rows.append([o.qp_solver, f"{solved} of {len(own)}", str(iterations), f"{seconds:.2f}"])
    return markdown(["qp solver", "solved", "iterations", "seconds"], rows, file)


def details(entries: list[Entry], file: Path | None = None) -> str:
    """Format the results of the first setting, one row per problem; file: CSV file to write them to."""
    first = entries[: len(entries) // len(SETTINGS)]
    header = ["problem", "iterations", "evaluations", "objective", "error", "gradient", "violation", "ms", "solved"]
    rows = [
        [
            e.problem,
            str(e.iterations),
            str(e.evaluations),
            f"{e.objective:.10g}",
            *(f"{value:.1e}" for value in (e.error, e.gradient, e.violation)),
            f"{e.milliseconds:.1f}",
            "yes" if e.holds else "NO",
        ]
        for e in first
    ]
    return markdown(header, rows, file)


def main() -> None:
    """Run, print the report, and write it with the CSV file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_sqp"), help="folder of the results")
    options = parser.parse_args()
    entries = list(solves())
    tables = summary(entries, options.out / "table.csv"), details(entries, options.out / "problems.csv")
    text = "\n\n".join(["# SQP on textbook problems", *tables]) + "\n"
    write_report(options.out, text, sqp=entries)


if __name__ == "__main__":
    main()
