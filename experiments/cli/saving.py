"""Output files of a solve: solution, settings, plots, HTML page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_support import warn

if TYPE_CHECKING:
    from trajopt import Solution
    from trajopt.config.config import Config
    from trajopt.config.task import Task
    from ..plots.drawer import Drawer

SOLUTION_FILE, CONFIG_FILE, DRAWING_LOG = "solution.npz", "config.toml", "drawing.log"
NOTEBOOK = "JPY_PARENT_PID"
"""Environment variable of a Jupyter kernel. Its cells have a terminal, but the next cell shows the plots."""


def draws_in_background(settings: Config) -> bool:
    """True if plots are drawn in a background process: in a terminal, outside notebooks."""
    return settings.output.plots and sys.stdout.isatty() and NOTEBOOK not in os.environ


def drawer_for(task: Task, settings: Config) -> Drawer | None:
    """Start a process that prepares plotting during the solve; None if plots are off or drawn in the background."""
    if not settings.output.plots or draws_in_background(settings):
        return None
    from ..plots.drawer import start_drawer

    return start_drawer(task)


def save(solution: Solution, task: Task, settings: Config) -> list[Path]:
    """Write a solution and its settings to the output folder; return the paths."""
    from trajopt.config.schema import to_toml

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
    """Plot a saved solution, and print all files in the output folder."""
    folder, later = settings.directory, draws_in_background(settings)
    if settings.output.plots and not later:
        drawn = None if drawer is None else drawer.draw(folder / SOLUTION_FILE, folder)
        written += _draw_in_process(solution, folder, task) if drawn is None else drawn
    if animate:
        written.append(animation(solution, folder, task))
    click.echo(f"written to {folder}: " + ", ".join(path.name for path in written))
    if later:
        _draw_in_background(folder)


def _draw_in_process(solution: Solution, folder: Path, task: Task) -> list[Path]:
    from ..plots.plotting import plot_solution

    return plot_solution(solution, folder, task)


def _draw_in_background(folder: Path) -> None:
    """Plot a saved solution in a separate process, so that the command returns at once."""
    with (folder / DRAWING_LOG).open("w") as log:
        command = [
            sys.executable,
            "-m",
            f"{__package__}.main",
            "show",
            str(folder / SOLUTION_FILE),
            "--plot",
            str(folder),
        ]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    click.echo(f"drawing plots in the background, into {folder}")


def animation(solution: Solution, folder: Path, task: Task) -> Path:
    """Write the animation page: the robot's shapes if available (extra [view]), else a stick figure."""
    from ..plots.animation import FILE, write_animation
    from ..view.scenes import has_link_shapes, task_scene

    if not has_link_shapes(task.ocp.model):
        return write_animation(folder / FILE, solution, task)
    from trajopt.view.files import write_page

    scene = task_scene(solution, task, solution.meta.get("config"))
    path, missing = write_page(folder / FILE, scene.motions, scene.annotations)
    warn(missing)
    return path
