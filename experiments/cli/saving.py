"""What a solve leaves in its folder: the solution, its settings, pictures, a page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.cli.cli_support import warn

if TYPE_CHECKING:
    from experiments.config.config import Config
    from problems.task import Task
    from trajopt import Solution

SOLUTION_FILE, CONFIG_FILE, DRAWING_LOG = "solution.npz", "config.toml", "drawing.log"
NOTEBOOK = "JPY_PARENT_PID"
"""A variable of a kernel of Jupyter, whose cells give their commands a terminal, and whose next cell shows the pictures."""


def save(solution: Solution, task: Task, settings: Config, animate: bool = False) -> None:
    """Write a solution and its settings into the folder of the results, and draw it: aside, for someone at a terminal."""
    from experiments.config.toml_text import to_toml

    folder = settings.directory
    written = [solution.save(folder / SOLUTION_FILE), folder / CONFIG_FILE]
    written[1].write_text(to_toml(settings.resolved(task.resolved).as_dict()), encoding="utf-8")
    later = settings.output.plots and sys.stdout.isatty() and NOTEBOOK not in os.environ
    if settings.output.plots and not later:
        from experiments.plots.plotting import plot_solution

        written += plot_solution(solution, folder, task)
    if animate:
        written.append(animation(solution, folder, task))
    click.echo(f"written to {folder}: " + ", ".join(path.name for path in written))
    if later:
        _draw_aside(folder)


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
    click.echo(f"pictures are being drawn; they will be in {folder}")


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
