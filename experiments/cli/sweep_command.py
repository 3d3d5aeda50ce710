"""The command `trajopt sweep`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from experiments.cli.cli_support import (
    FAILED,
    backend_option,
    command,
    config_argument,
    configured,
    fail,
    results_folder,
    set_option,
    solver_option,
    task_of,
    urdf_option,
    warn,
)
from experiments.cli.saving import SOLUTION_FILE

if TYPE_CHECKING:
    from experiments.config.config import Config
    from trajopt import Sweep
    from trajopt.sweeps.run import Progress

CONFIG_FILE, PICTURE = "config.toml", "sweep.png"
REASONS = 5
"""So many of the commonest reasons are told."""


@click.command()
@config_argument
@set_option
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="KEY=HOW",
    help="Vary a setting: 'problem.dt=uniform(0.01, 0.05)', normal(..), log_uniform(..), integers(..), solver.name=slq,ddp "
    "(one of these, drawn), 'solver.name=each(slq, ddp)' (every one, on the same draws).",
)
@click.option("--n", type=click.IntRange(1), help="Number of problems.")
@click.option("--seed", type=click.IntRange(0), help="Of the draws: row i depends on the seed and i alone.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder of the results; a study there goes on.")
@click.option(
    "--workers", type=click.IntRange(0), help="Processes; default one for each processor, 0 for none but this."
)
@click.option("--scheduler", metavar="ADDRESS", help="Of a Dask cluster, tcp://host:8786, instead of processes here.")
@click.option("--shard", type=click.IntRange(1), help="Rows that are computed and written at once.")
@click.option("--gains", is_flag=True, default=None, help="Keep feedback gains too.")
@urdf_option
@backend_option
@solver_option
@command
def sweep(config: str, overrides: tuple[str, ...], varied: tuple[str, ...], **named: Any) -> None:
    """Solve CONFIG many times with drawn values; keep all results in one dataset, and draw success and cost over them.

    A study that was stopped goes on where it was. Rows that fail are kept with their reason; exit code 1 where all of them do.
    """
    from experiments.sweep.run import with_variations

    study = {key: named.pop(key) for key in ("n", "seed", "gains")}
    own = {key: named.pop(key) for key in ("urdf", "backend", "solver", "out")}
    settings = configured(config, overrides, **own)
    _run(with_variations(settings, vary=_by_key(varied), **study), **named)


def _by_key(varied: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, how in map(_split, varied):
        if key in found:
            fail(f"--vary {key} is given twice, as {found[key]} and as {how}: leave one of them out")
        found[key] = how
    return found


def _split(text: str) -> tuple[str, str]:
    key, equals, how = text.partition("=")
    if not equals or not key.strip() or not how.strip():
        fail(f"--vary {text!r}: expected KEY=HOW, for example 'problem.dt=uniform(0.01, 0.05)' or solver.name=slq,ddp")
    return key.strip(), how.strip()


def _run(config: Config, **options: Any) -> None:
    from experiments.config.toml_text import to_toml
    from experiments.sweep.run import run
    from trajopt.sweeps.stored import FOLDER
    from trajopt.validation.validation import require_valid

    assert config.sweep is not None
    task = task_of(config)
    warn(f.message for f in require_valid(task.ocp, task.start))
    if (config.directory / SOLUTION_FILE).exists() and not (config.directory / FOLDER).exists():
        fail(
            f"{config.directory} holds a solve ({SOLUTION_FILE}), whose {CONFIG_FILE} a study would overwrite: choose another --out"
        )
    folder = results_folder(config.directory, (CONFIG_FILE, PICTURE))
    try:
        with _progress(config.sweep.n) as (on_rows, before):
            found = run(config, progress=on_rows, **options)
    except KeyboardInterrupt:
        click.echo(f"Interrupted: finished rows are in {folder}; the same command goes on.")
        raise click.exceptions.Exit(FAILED) from None
    config_of_all = replace(config, sweep=replace(config.sweep, n=max(found.n, config.sweep.n)))
    (folder / CONFIG_FILE).write_text(to_toml(config_of_all.as_dict()), encoding="utf-8")
    there = sum(before)
    if there == config.sweep.n:
        click.echo(f"all {there} rows were there already: nothing was solved again")
    elif there:
        click.echo(f"{there} rows were there already, {config.sweep.n - there} were solved now")
    if found.n > config.sweep.n:
        unsolved = found.n - len(found.finished)
        rest = f", {unsolved} of them are still missing: give --n {found.n}" if unsolved else ""
        click.echo(f"the dataset has {found.n} rows, of which --n {config.sweep.n} takes none away{rest}")
    for line in told(found):
        click.echo(line)
    if config.output.plots:
        from experiments.plots.sweep_plots import plot_sweep

        plot_sweep(found, folder / PICTURE)
    click.echo(f"written to {folder}")
    if not found.scalars()["success"].any():
        raise click.exceptions.Exit(FAILED)


def told(found: Sweep) -> Iterator[str]:
    """What came out: how many were solved, and the commonest reasons why others were not."""
    table = found.scalars()
    solved = table[table["success"]]
    yield f"{len(solved)} of {len(table)} rows solved"
    if len(solved):
        cost, seconds, iterations = (solved[key].median() for key in ("cost", "solve_time", "iterations"))
        yield f"medians of these: cost {cost:.6g}, {iterations:.0f} iterations, {1e3 * seconds:.1f} ms a solve"
    failures = table[~table["success"]]
    for status, rows in list(failures.groupby("status"))[:REASONS]:
        yield f"{len(rows)} {status}, such as row {rows.index[0]}: {rows['reason'].iloc[0]}"


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[Progress], None], list[int]]]:
    """A bar of rows on the error stream, with rate and time left; and a list that comes to hold how many rows were there."""
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
