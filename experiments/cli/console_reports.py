"""Solution reports on the console, progress bars, and multi-start solves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import numpy as np

from dynamics_backends.names import table_lines
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP
from .cli_support import ACCEPTABLE, FAILED, warn

MAX_LISTED_STARTS = 8
"""Maximum number of starts listed for one optimum."""
INTERRUPTED_STARTS = "interrupted starts"
"""Key in ``Solution.meta`` with the number of interrupted starts."""

if TYPE_CHECKING:
    from trajopt import Solution
    from trajopt.config.load import LoadedProblem
    from trajopt.results.report import Line
    from trajopt.results.status import Status


def print_report(solution: Solution) -> None:
    """Print the report of a solution; warnings go to the error stream."""
    from trajopt.results.report import report_lines

    print_lines(report_lines(solution))


def print_lines(lines: Sequence[Line]) -> None:
    """Print report lines; warnings go to the error stream."""
    for line in lines:
        if line.warning:
            warn([line.text])
        else:
            click.echo(line.text)


def exit_code(status: Status) -> int:
    """Return the exit code of a solve: 0 converged, 3 acceptable, 1 otherwise."""
    return 0 if status.success else ACCEPTABLE if status.acceptable else FAILED


def print_relaxation_warnings(solution: Solution) -> None:
    """Print a warning for each relaxed problem of a continuation that was not solved."""
    ends = enumerate(solution.meta.get("easier", ()), 1)
    warn(f"relaxed problem {number} was not solved: {end['status']}" for number, end in ends if not end["success"])


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on the error stream; yields the function ``(done, total)`` that updates it."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, _: bar.update(task, completed=done)


def best_of(problem: LoadedProblem, count: int) -> Solution:
    """Solve from ``count`` starts, print all local optima, and return the best solution."""
    from dataclasses import replace

    from trajopt import multi_start
    from ..analysis.starts import guesses

    settings, task = problem.config, problem.task
    if task.easier:
        warn(["with --starts, relaxed problems are skipped"])
    starts = list(guesses(task, count))
    with progress(count, "starts") as report_progress:
        result = multi_start(
            task.ocp, starts, settings.solver_options, report_progress, settings.solver_name, check=False
        )
    codes = Counter(str(s.code) for s in result.solutions.status).most_common()
    ends = ", ".join(f"{number} {code}" for code, number in codes)
    click.echo(f"{count} starts, {result.solutions.meta['seconds']:.3f} s ({result.solutions.meta['how']}): {ends}")
    distinct = "1 local optimum" if len(result.optima) == 1 else f"{len(result.optima)} distinct local optima"
    click.echo(f"{distinct}, by {sum(o.times_found for o in result.optima)} of {count} starts")
    for o in result.optima:
        listed = ", ".join(str(i + 1) for i in o.starts[:MAX_LISTED_STARTS])
        more = ", ..." if o.times_found > MAX_LISTED_STARTS else ""
        frequency = "once" if o.times_found == 1 else f"{o.times_found} times"
        click.echo(f"  cost {o.solution.cost:.10g}, found {frequency}, from start {listed}{more}")
    if "interrupted" in dict(codes):
        if not math.isfinite(result.best.cost):
            raise KeyboardInterrupt  # before the first start finished
        config = settings.resolved(task.resolved).as_dict()
        facts = {
            "config": config,
            "solve_time": result.solutions.meta["seconds"],
            INTERRUPTED_STARTS: dict(codes)["interrupted"],
        }
        return replace(result.best, meta={**result.best.meta, **facts})
    return problem.solve(starts[result.best_start], report=False)


TITLES = ("constraint", "kind", "knots", "size")
CONTROL_BOUNDS = "control bounds"


def constraint_table(ocp: OCP) -> list[str]:
    """Lines of the table, titles first; empty for a problem without constraints.

    Constraints with the same name, kind and size share a line. knots: knots 0 to N where the constraint is imposed; one without
    controls is not imposed at knot 0, where x0 is fixed. size: rows at each knot, or number of bounded entries.
    """
    result: dict[tuple[str, str, int], set[int]] = {}
    bounds = ocp.control_bounds
    if bounds is not None:
        bounded = np.isfinite(bounds[0]) | np.isfinite(bounds[1])
        if bounded.any():
            at = set(np.flatnonzero(bounded.any(axis=1)).tolist())
            result[CONTROL_BOUNDS, "bounds", int(bounded.any(axis=0).sum())] = at
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        for c in phase.constraints:
            first = max(knots.start, 0 if c.residual.nu else 1)
            result.setdefault(_key(c), set()).update(range(first, knots.stop))
    for c in ocp.terminal_constraints:
        result.setdefault(_key(c), set()).add(ocp.horizon)
    if not result:
        return []
    rows = [(name, kind, _ranges(sorted(knots)), str(size)) for (name, kind, size), knots in result.items()]
    return table_lines([TITLES, *rows])


def _key(c: Constraint) -> tuple[str, str, int]:
    kind = c.kind if chosen_coordinates(c) is None or c.kind == "equality" else "bounds"
    return c.name, kind, c.residual.n_out


def _ranges(knots: Iterable[int]) -> str:
    """Text of knots as ranges, such as "1 to 9, 20"."""
    ranges: list[list[int]] = []
    for k in knots:
        if ranges and k == ranges[-1][1] + 1:
            ranges[-1][1] = k
        else:
            ranges.append([k, k])
    return ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in ranges) or "none"
