"""Reports of solutions on the console, progress, and the best of several starts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from experiments.cli.cli_support import ACCEPTABLE, FAILED, warn

MOST_LISTED = 8
"""Starts of one optimum that are listed."""
CUT = "interrupted starts"
"""In the meta of the best of several starts, how many were interrupted."""

if TYPE_CHECKING:
    from trajopt import Solution
    from trajopt.config.load import LoadedProblem
    from trajopt.results.report import Line
    from trajopt.results.status import Status


def print_report(solution: Solution) -> None:
    """Print the report of a solution, its warnings to the error stream."""
    from trajopt.results.report import report_lines

    print_lines(report_lines(solution))


def print_lines(lines: Sequence[Line]) -> None:
    """Print lines of a report, its warnings to the error stream."""
    for line in lines:
        if line.warning:
            warn([line.text])
        else:
            click.echo(line.text)


def exit_code(status: Status) -> int:
    """0 converged, 3 acceptable, 1 neither."""
    return 0 if status.success else ACCEPTABLE if status.acceptable else FAILED


def warn_of_easier(solution: Solution) -> None:
    """Warn of the easier problems that led to a solution and were not solved."""
    ends = enumerate(solution.meta.get("easier", ()), 1)
    warn(f"relaxed problem {number} was not solved: {end['status']}" for number, end in ends if not end["success"])


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the error stream, while what is yielded is told how many of all are done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, _: bar.update(task, completed=done)


def best_of(problem: LoadedProblem, count: int) -> Solution:
    """The best of the solutions from several starts, all local optima told."""
    from dataclasses import replace

    from experiments.analysis.starts import guesses
    from trajopt import multi_start

    settings, task = problem.config, problem.task
    if task.easier:
        warn(["with --starts, relaxed problems are skipped"])
    starts = list(guesses(task, count))
    with progress(count, "starts") as told:
        found = multi_start(task.ocp, starts, settings.solver_options, told, settings.solver_name, check=False)
    codes = Counter(str(s.code) for s in found.found.status).most_common()
    ends = ", ".join(f"{number} {code}" for code, number in codes)
    click.echo(f"{count} starts, {found.found.meta['seconds']:.3f} s ({found.found.meta['how']}): {ends}")
    distinct = "1 local optimum" if len(found.optima) == 1 else f"{len(found.optima)} distinct local optima"
    click.echo(f"{distinct}, by {sum(o.times_found for o in found.optima)} of {count} starts")
    for o in found.optima:
        listed = ", ".join(str(i + 1) for i in o.starts[:MOST_LISTED])
        more = ", ..." if o.times_found > MOST_LISTED else ""
        often = "once" if o.times_found == 1 else f"{o.times_found} times"
        click.echo(f"  cost {o.solution.cost:.10g}, found {often}, from start {listed}{more}")
    if "interrupted" in dict(codes):
        if not math.isfinite(found.best.cost):
            raise KeyboardInterrupt  # before any of them ended
        config = settings.resolved(task.resolved).as_dict()
        facts = {"config": config, "solve_time": found.found.meta["seconds"], CUT: dict(codes)["interrupted"]}
        return replace(found.best, meta={**found.best.meta, **facts})
    return problem.solve(starts[found.best_start], report=False)
