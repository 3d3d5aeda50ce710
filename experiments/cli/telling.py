"""What `trajopt solve` tells of a solution: how it ended, where, and which limits it breaks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from experiments.cli.cli_support import warn

MOST_LISTED = 8
"""Starts of one optimum that are listed."""
CUT = "interrupted starts"
"""In the meta of the best of several starts, how many were interrupted."""

if TYPE_CHECKING:
    from experiments.config.config import Config
    from problems.task import Task
    from trajopt import Solution


def tell(solution: Solution, task: Task) -> bool:
    """Print it; whether the motion does what was asked for: it reaches its goal, and nothing is inside of an obstacle."""
    from trajopt.results.report import account

    click.echo(str(solution.status))
    times = ", ".join(f"{name} {value:.3f} s" for name, value in solution.time_total.items())
    total = solution.meta["solve_time"]
    click.echo(f"{account(solution)}, {total:.3f} s ({times})")
    if before := solution.meta.get("easier"):
        click.echo(f"easier problems came before, in {' + '.join(str(end['iterations']) for end in before)} iterations")
    warn_of_easier(solution)
    engines, steps = solution.meta.get("engines", ()), [phase.dynamics.sampling for phase in task.ocp.phases]
    if set(engines) - {step.backend.engine for step in steps if step is not None}:
        click.echo(f"by {', then '.join(engines)}: code is compiled beside it, and kept for the next time")
    for number, attempt in enumerate(solution.meta.get("attempts", ()), 1):
        click.echo(f"attempt {number}: {attempt['solver']}, {attempt['status']}, {attempt['iterations']} iterations")
    return not tell_motion(solution, task)


def tell_motion(solution: Solution, task: Task) -> list[str]:
    """Print where it leads, and what it breaks and runs into; returns what it does not do of what was asked for."""
    from trajopt.results.report import replay_doubts, replayed

    amiss: list[str] = []
    if math.isfinite(solution.cost):
        for sentence in [*task.carried, *task.outcome(solution.xs[-1]), *replayed(solution, task.outcome)]:
            click.echo(sentence)
        warn(replay_doubts(solution))
        if "check" in solution.meta:
            click.echo(f"{solution.meta['check']}; solves: {solution.meta['rounds']}")
        _tell_limits(solution, task)
        near = task.nearness(solution.xs)
        for sentence in near.sentences:
            click.echo(sentence)
        amiss += [*near.warnings, *task.fallen(solution.xs, solution.times)]
        amiss += task.missed(solution.xs) if solution.status.success else ()
        warn(amiss)
    return amiss


def warn_of_easier(solution: Solution) -> None:
    """Tell which of the easier problems that led to a solution have failed."""
    ends = enumerate(solution.meta.get("easier", ()), 1)
    warn(f"easier problem {number} was not solved: {end['status']}" for number, end in ends if not end["success"])


def _tell_limits(solution: Solution, task: Task) -> None:
    """Every limit broken: those that were not to be kept as warnings."""
    from trajopt import broken_limits

    ocp = task.ocp if task.latest is None else task.latest()
    broken = [*broken_limits(ocp, solution.xs, solution.us), *task.contact_limits(solution.xs, solution.us)]
    if not broken:
        click.echo(f"all limits are kept{'' if solution.status.success else ' by this iterate, which is no solution'}")
    settings = _settings(solution)
    for b in broken:
        if b.enforced:
            click.echo(b.sentence(settings))
        else:
            warn([b.sentence(settings)])


def _settings(solution: Solution) -> list[str]:
    """The names of the settings of the problem that a solution is of; none where it does not tell."""
    from dataclasses import fields

    from problems.registry import load_problem

    name = solution.meta.get("config", {}).get("problem", {}).get("name")
    return [] if name is None else [f.name for f in fields(load_problem(name).Settings)]


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the error stream, while what is yielded is told how many of all are done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, _: bar.update(task, completed=done)


def best_of(settings: Config, task: Task, count: int) -> Solution:
    """The best of the solutions from several starts, all local optima told."""
    from dataclasses import replace

    from experiments.analysis.starts import guesses
    from experiments.config.build import solve_task
    from trajopt import multi_start

    if task.easier:
        warn(["from several starts the problem is solved at once: easier problems before it are left out"])
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
    return solve_task(settings, task, guess=starts[found.best_start])
