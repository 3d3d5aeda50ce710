"""Files that a solve writes: solution, settings, plots, HTML page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.cli.cli_support import warn

if TYPE_CHECKING:
    from experiments.plots.drawer import Drawer
    from trajopt import Solution
    from trajopt.config.config import Config
    from trajopt.config.task import Task

SOLUTION_FILE, CONFIG_FILE, DRAWING_LOG = "solution.npz", "config.toml", "drawing.log"
NOTEBOOK = "JPY_PARENT_PID"
"""A variable of a kernel of Jupyter, whose cells give their commands a terminal, and whose next cell shows the pictures."""


def is_drawn_aside(settings: Config) -> bool:
    """True if pictures are drawn in the background: for someone at a terminal."""
    return settings.output.plots and sys.stdout.isatty() and NOTEBOOK not in os.environ


def drawer_for(task: Task, settings: Config) -> Drawer | None:
    """A process that gets ready to draw while the problem is solved; None where nobody waits for pictures."""
    if not settings.output.plots or is_drawn_aside(settings):
        return None
    from experiments.plots.drawer import ready_to_draw

    return ready_to_draw(task)


def save(solution: Solution, task: Task, settings: Config) -> list[Path]:
    """Write a solution and its settings into the folder of the results."""
    from trajopt.config.toml_text import to_toml

    solved, config = settings.directory / SOLUTION_FILE, settings.directory / CONFIG_FILE
    solution.save(solved)
    config.write_text(to_toml(settings.resolved(task.resolved).as_dict()), encoding="utf-8")
    return [solved, config]


def draw(
    solution: Solution,
    task: Task,
    settings: Config,
    written: list[Path],
    animate: bool = False,
    drawer: Drawer | None = None,
) -> None:
    """Draw a solution that is written, and tell all that is in the folder of the results."""
    folder, later = settings.directory, is_drawn_aside(settings)
    if settings.output.plots and not later:
        drawn = None if drawer is None else drawer.draw(folder / SOLUTION_FILE, folder)
        written += _drawn_here(solution, folder, task) if drawn is None else drawn
    if animate:
        written.append(animation(solution, folder, task))
    click.echo(f"written to {folder}: " + ", ".join(path.name for path in written))
    if later:
        _draw_aside(folder)


def _drawn_here(solution: Solution, folder: Path, task: Task) -> list[Path]:
    from experiments.plots.plotting import plot_solution

    return plot_solution(solution, folder, task)


def _draw_aside(folder: Path) -> None:
    """Draw a saved solution in a process of its own, for someone who waits for the command line."""
    with (folder / DRAWING_LOG).open("w") as log:
        command = [
            sys.executable,
            "-m",
            "experiments.cli.main",
            "show",
            str(folder / SOLUTION_FILE),
            "--plot",
            str(folder),
        ]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    click.echo(f"drawing plots in the background, into {folder}")


def animation(solution: Solution, folder: Path, task: Task) -> Path:
    """The page with the robot as it looks, where its file shows it and the extra view is there; else with a stick figure."""
    from experiments.plots.animation import FILE, write_animation
    from experiments.view.shown import can_be_shown, of_task

    if not can_be_shown(task.ocp.model):
        return write_animation(folder / FILE, solution, task)
    from trajopt.view.page import write_page

    scene = of_task(solution, task, solution.meta.get("config"))
    path, missing = write_page(folder / FILE, scene.motions, scene.marks)
    warn(missing)
    return path
