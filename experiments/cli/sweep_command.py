"""The command `trajopt sweep`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from .cli_support import (
    FAILED,
    backend_option,
    command,
    config_argument,
    configured,
    fail,
    problem_of,
    results_folder,
    set_option,
    solver_option,
    urdf_option,
    warn,
)
from .saving import SOLUTION_FILE

if TYPE_CHECKING:
    from trajopt import Sweep
    from trajopt.config.config import Config
    from trajopt.sweeps.run import Progress

CONFIG_FILE, PICTURE = "config.toml", "sweep.png"
REASONS = 5
"""Maximum number of failure reasons printed."""


@click.command()
@config_argument
@set_option
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="KEY=HOW",
    help="Vary a key: 'problem.dt=uniform(0.01, 0.05)', normal(..), log_uniform(..), integers(..), solver.name=slq,ddp "
    "(one of these at random), 'solver.name=each(slq, ddp)' (all of them, with the same samples).",
)
@click.option("--n", type=click.IntRange(1), help="Number of rows (problems).")
@click.option("--seed", type=click.IntRange(0), help="Random seed; row i depends only on the seed and i.")
@click.option("--out", type=click.Path(file_okay=False), help="Output folder; an unfinished study there is resumed.")
@click.option(
    "--workers",
    type=click.IntRange(0),
    help="Number of processes; default: one per processor; 0: solve in this process.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler, tcp://host:8786, instead of local processes.")
@click.option("--shard", type=click.IntRange(1), help="Rows per shard, solved and written together.")
@click.option("--gains", is_flag=True, default=None, help="Also store feedback gains.")
@urdf_option
@backend_option
@solver_option
@command
def sweep(config: str, overrides: tuple[str, ...], varied: tuple[str, ...], **named: Any) -> None:
    """Solve CONFIG many times with sampled values; store all results in one dataset and plot success and cost.

    An interrupted study resumes. Failed rows are stored with their reason; the exit code is 1 if no row succeeds.
    """
    from ..sweep.run import with_variations

    study = {key: named.pop(key) for key in ("n", "seed", "gains")}
    own = {key: named.pop(key) for key in ("urdf", "backend", "solver", "out")}
    settings = configured(config, overrides, **own)
    _run(with_variations(settings, vary=_by_key(varied), **study), **named)


def _by_key(varied: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, how in map(_split, varied):
        if key in found:
            fail(f"--vary {key} is given twice, as {found[key]} and as {how}: remove one of them")
        found[key] = how
    return found


def _split(text: str) -> tuple[str, str]:
    key, equals, how = text.partition("=")
    if not equals or not key.strip() or not how.strip():
        fail(f"--vary {text!r}: expected KEY=HOW, for example 'problem.dt=uniform(0.01, 0.05)' or solver.name=slq,ddp")
    return key.strip(), how.strip()


def _run(config: Config, **options: Any) -> None:
    from trajopt.config.schema import to_toml
    from trajopt.sweeps.stored import FOLDER
    from trajopt.validation.validation import require_valid
    from ..sweep.run import run

    assert config.sweep is not None
    task = problem_of(config).task
    warn(f.message for f in require_valid(task.ocp, task.start))
    if (config.directory / SOLUTION_FILE).exists() and not (config.directory / FOLDER).exists():
        fail(
            f"{config.directory} contains a {SOLUTION_FILE}, and a study would overwrite its {CONFIG_FILE}: choose another --out"
        )
    folder = results_folder(config.directory, (CONFIG_FILE, PICTURE))
    try:
        with _progress(config.sweep.n) as (on_rows, before):
            found = run(config, progress=on_rows, **options)
    except KeyboardInterrupt:
        click.echo(f"Interrupted: finished rows are in {folder}; run the same command to resume.")
        raise click.exceptions.Exit(FAILED) from None
    config_of_all = replace(config, sweep=replace(config.sweep, n=max(found.n, config.sweep.n)))
    (folder / CONFIG_FILE).write_text(to_toml(config_of_all.as_dict()), encoding="utf-8")
    solved_before = sum(before)
    if solved_before == config.sweep.n:
        click.echo(f"all {solved_before} rows were already solved")
    elif solved_before:
        click.echo(f"{solved_before} rows were already solved, {config.sweep.n - solved_before} now")
    if found.n > config.sweep.n:
        unsolved = found.n - len(found.finished)
        rest = f", {unsolved} of them not solved yet: use --n {found.n}" if unsolved else ""
        click.echo(f"the dataset has {found.n} rows; --n {config.sweep.n} does not remove any{rest}")
    for line in summary_lines(found):
        click.echo(line)
    if config.output.plots:
        from ..plots.sweep_plots import plot_sweep

        plot_sweep(found, folder / PICTURE)
    click.echo(f"written to {folder}")
    if not found.scalars()["success"].any():
        raise click.exceptions.Exit(FAILED)


def summary_lines(found: Sweep) -> Iterator[str]:
    """Yield the number of solved rows, their medians, and the most frequent failure reasons."""
    table = found.scalars()
    solved = table[table["success"]]
    yield f"{len(solved)} of {len(table)} rows solved"
    if len(solved):
        cost, seconds, iterations = (solved[key].median() for key in ("cost", "solve_time", "iterations"))
        yield f"medians: cost {cost:.6g}, {iterations:.0f} iterations, {1e3 * seconds:.1f} ms per solve"
    failures = table[~table["success"]]
    for status, rows in list(failures.groupby("status"))[:REASONS]:
        yield f"{len(rows)} {status}, for example row {rows.index[0]}: {rows['reason'].iloc[0]}"


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[Progress], None], list[int]]]:
    """Progress bar on the error stream; yields its callback and a list that receives the number of rows solved earlier."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("solving"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        line, before = bar.add_task("rows", total=total, said=""), list[int]()

        def on_rows(progress: Progress) -> None:
            said = f"{progress.failed} failed, {progress.rate:.3g} rows/s," if progress.rate else ""
            bar.update(line, completed=progress.done, said=said)
            before[:] = [progress.before]

        yield on_rows, before
