"""What `trajopt solve` tells of a solution: how it ended, where, and which limits it breaks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from experiments.cli.cli_support import warn

if TYPE_CHECKING:
    from experiments.config.config import Config
    from problems.task import Task
    from trajopt import Solution


def tell(solution: Solution, task: Task) -> None:
    """Print it."""
    from trajopt.results.report import account, replayed

    click.echo(str(solution.status))
    times = ", ".join(f"{name} {value:.3f} s" for name, value in solution.time_total.items())
    total = solution.meta["solve_time"]
    click.echo(f"{account(solution)}, {total:.3f} s ({times})")
    engines, steps = solution.meta["engines"], [phase.dynamics.sampling for phase in task.ocp.phases]
    if set(engines) - {step.backend.engine for step in steps if step is not None}:
        click.echo(f"by {', then '.join(engines)}: code is compiled beside it, and kept for the next time")
    for number, attempt in enumerate(solution.meta.get("attempts", ()), 1):
        click.echo(f"attempt {number}: {attempt['solver']}, {attempt['status']}, {attempt['iterations']} iterations")
    if math.isfinite(solution.cost):
        for sentence in [*task.outcome(solution.xs[-1]), *replayed(solution, task.outcome)]:
            click.echo(sentence)
        if "check" in solution.meta:
            click.echo(f"{solution.meta['check']}; solves: {solution.meta['rounds']}")
        _tell_limits(solution, task)


def _tell_limits(solution: Solution, task: Task) -> None:
    """Every limit broken: those that were not to be kept as warnings."""
    from trajopt import broken_limits

    ocp = task.ocp if task.latest is None else task.latest()
    broken = [*broken_limits(ocp, solution.xs, solution.us), *task.contact_limits(solution.xs, solution.us)]
    if not broken:
        click.echo("all limits are kept")
    for b in broken:
        if b.enforced:
            click.echo(b.sentence())
        else:
            warn([b.sentence()])


def best_of(settings: Config, task: Task, count: int) -> Solution:
    """The best of the solutions from several starts, all local optima told."""
    from experiments.analysis.starts import best, optima, solutions
    from trajopt.results.report import account

    found = []
    for s in solutions(settings, task, count):
        found.append(s)
        click.echo(f"start {len(found)} of {count}: {s.status.code}, {account(s)}, {s.meta['solve_time']:.3f} s")
        if s.status.code == "interrupted":
            break
    distinct = optima(found)
    click.echo(
        f"{len(distinct)} distinct local optima, by {sum(len(o.starts) for o in distinct)} of {len(found)} starts"
    )
    for o in distinct:
        click.echo(f"  cost {o.solution.cost:.10g} from start {', '.join(str(i + 1) for i in sorted(o.starts))}")
    return best(found)
