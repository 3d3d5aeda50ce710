"""The command that runs experiments: `trajopt experiment NAME`."""

from __future__ import annotations

from pathlib import Path

import click

from .cli_support import command, results_folder

PAPERS = Path(__file__).parents[1] / "papers"
"""Package of the experiments; a wheel does not contain it."""


@click.command()
@click.argument("name")
@click.option("--quick", is_flag=True, help="Short horizons and few points; compares nothing.")
@click.option(
    "--out", type=click.Path(file_okay=False), default="out/experiments", show_default=True, help="Output folder."
)
@click.option("--resume", is_flag=True, help="With NAME = all: skip finished experiments.")
@command
def experiment(name: str, quick: bool, out: str, resume: bool) -> None:
    """Run the experiment NAME of a paper; write data, a plot, and a report that compares with the published figures.

    NAME = list prints the names; NAME = all runs every experiment and writes one page of reports.
    """
    if not PAPERS.is_dir():
        raise ModuleNotFoundError("the experiments are in the repository only: run this command in a clone of it")
    from ..papers.registry import STUDIES, study
    from ..papers.report import REPORT, conduct

    if name == "list":
        width = max(map(len, STUDIES))
        for each, what in STUDIES.items():
            click.echo(f"{each:<{width}}  {what}")
        return
    if name == "all":
        _all(Path(out), quick, resume)
        return
    chosen = study(name)
    folder = results_folder(Path(out) / name)
    conduct(chosen, folder, quick)
    click.echo((folder / REPORT).read_text(encoding="utf-8"), nl=False)
    click.echo(f"written to {folder}")


def _all(out: Path, quick: bool, resume: bool) -> None:
    """Run every experiment and write one page of reports. Experiments that need a missing extra are skipped with a message."""
    from ..papers.registry import STUDIES, study
    from ..papers.report import PAGE, conduct, is_done, page

    results_folder(out)
    folders = []
    for name in STUDIES:
        folder = out / name
        if resume and is_done(folder, quick):
            click.echo(f"{name}: already finished")
        else:
            click.echo(f"{name} ...")
            try:
                conduct(study(name), folder, quick)
            except ModuleNotFoundError as error:
                click.echo(f"{name}: skipped, {error}", err=True)
                continue
        folders.append(folder)
    (out / PAGE).write_text(page(folders, "Experiments"), encoding="utf-8")
    click.echo(f"written to {out / PAGE}: {len(folders)} of {len(STUDIES)} experiments")
