"""The commands `robots` and `show`."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dynamics_backends.names import table_lines
from .cli_support import base_option, command, content_checked, fail, results_folder, warn
from .console_reports import print_lines
from .saving import animation

if TYPE_CHECKING:
    from dynamics_backends.rigid_body.model.model import Frame, Model
    from trajopt import Solution
    from trajopt.config.task import Task


@click.command()
@command
def robots() -> None:
    """List robots that are available by name."""
    from dynamics_backends.rigid_body.robots import ERD_PACKAGE, ERD_PREFIX, erd_names, load_robot, robot_names

    click.echo(f"{'name':<18}{'nq':>4}{'nv':>4}{'mass [kg]':>12}  base")
    for name in robot_names():
        model = load_robot(name)
        base = "floating" if model.floating_base else "fixed"
        click.echo(f"{name:<18}{model.nq:>4}{model.nv:>4}{model.total_mass:>12.2f}  {base}")
    names = erd_names()
    if not names:
        click.echo(f"\nMore robots: pip install {ERD_PACKAGE}, then use the names {ERD_PREFIX}NAME")
        return
    click.echo(f"\nfrom {ERD_PACKAGE}:")
    click.echo(click.wrap_text(" ".join(ERD_PREFIX + name for name in names), 100, "  ", "  "))


@click.command()
@click.argument("solution", metavar="SOLUTION_OR_ROBOT")
@click.option("--plot", type=click.Path(file_okay=False), help="Write plots into this folder.")
@click.option("--animate", is_flag=True, help="With --plot: also write an HTML page that plays the motion.")
@click.option(
    "--geometry",
    is_flag=True,
    help="For a robot, with --plot: draw visual meshes, collision shapes, and fitted capsules.",
)
@base_option
@command
def show(solution: str, plot: str | None, animate: bool, geometry: bool, base: str | None) -> None:
    """Describe a saved SOLUTION and plot it again; or describe a ROBOT: a name listed by `trajopt robots`, or a URDF or MJCF
    file."""
    from dynamics_backends.rigid_body.robots import ERD_PREFIX, FILES, robot_names
    from trajopt import Solution

    if solution.endswith(FILES) or solution.startswith(ERD_PREFIX) or solution in robot_names():
        if geometry and plot is None:
            fail("--geometry needs an output folder: add --plot FOLDER")
        model = _describe_robot(solution, base)
        if geometry and plot is not None:
            _draw_geometry(model, results_folder(Path(plot), option="--plot"))
        elif plot is not None:
            warn(["--plot applies to solutions; for a robot add --geometry"])
        if animate:
            warn(["--animate applies to solutions"])
        return
    if base is not None:
        fail("--base applies to robots; the robot of a solution has its base")
    if geometry:
        fail("--geometry applies to robots; for a solution use `trajopt view --geometry`")
    if not Path(solution).is_file():
        if Path(solution).is_dir():
            fail(f"{solution!r} is a folder; give a file in it, as {str(Path(solution, 'solution.npz'))!r}")
        fail(f"{solution!r} is neither a file nor a known robot; `trajopt robots` lists the robots")
    if plot is None and animate:
        fail("--animate needs an output folder: add --plot FOLDER")
    from trajopt.results.report import check_lines

    loaded = Solution.load(solution)
    with content_checked(solution):
        _describe(loaded)
        task = None if plot is None and "config" not in loaded.meta else _task_of(loaded)
        print_lines(check_lines(loaded.with_self_collision()))
    if plot is None:
        return
    from ..plots.plotting import plot_solution

    folder = results_folder(Path(plot), option="--plot")
    with content_checked(solution):
        written = plot_solution(loaded, folder, task)
        if animate and task is not None:
            written.append(animation(loaded, folder, task))
    click.echo(f"written to {plot}: " + ", ".join(path.name for path in written))


def _draw_geometry(model: Model, folder: Path) -> None:
    from ..plots.robot_picture import draw_shapes

    name = re.sub(r"[^\w.-]+", "_", f"{model.name}_geometry.png")  # robot names may contain any characters
    warn(draw_shapes(folder / name, model))
    click.echo(f"written to {folder}: {name}")


def _describe_robot(robot: str, base: str | None) -> Model:
    """Print the bodies, joints and frames of a robot, the notes of its file, and warnings; return the model.

    base: "fixed", "floating", or None for the default of the robot.
    """
    from dynamics_backends.rigid_body.robots import load_robot

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = load_robot(robot, **({} if base is None else {"base": base}))
    click.echo(model.describe())
    click.echo("\n".join(_frame_lines(model)))
    warn(str(w.message) for w in caught)
    return model


def _frame_lines(model: Model) -> list[str]:
    """Return a table of frames with world poses at the neutral configuration; joints equal to a link's frame are omitted.

    For a robot without moving bodies, return a sentence instead.
    """
    import numpy as np

    from dynamics_backends.rigid_body.algorithms import kinematics
    from dynamics_backends.rigid_body.spatial.rotations import rpy_angles

    if not model.nb:
        return ["no joint moves the robot; --base floating gives it a floating base"]
    q0, links = model.neutral(), [frame for frame in model.frames if frame.kind == "link"]
    rows = [["frame", "kind", "body", "x", "y", "z [m]", "roll", "pitch", "yaw [rad]"]]
    for number, frame in enumerate(model.frames):
        if frame.kind == "joint" and any(_same_place(frame, link) for link in links):
            continue
        R, p = np.array(kinematics.frame_rotation(model, q0, number)), kinematics.frame_position(model, q0, number)
        body = model.body_names[frame.body] if frame.body >= 0 else "world"
        numbers = [f"{round(float(value), 4) + 0.0:.4f}" for value in (*p, *rpy_angles(R))]
        rows.append([frame.name, frame.kind, body, *numbers])
    title = "frames in the world with all joints at 0; an unlisted joint has the frame of the link that it moves:"
    return [title, *table_lines(rows)]


def _same_place(a: Frame, b: Frame) -> bool:
    return a.body == b.body and bool((a.R == b.R).all() and (a.p == b.p).all())


def _task_of(solution: Solution) -> Task | None:
    from trajopt.config.build import task_of_solution

    task, remarks = task_of_solution(solution)
    warn(
        f"{warning}: the goals and limits of the problem are unknown" if task is None else warning
        for warning in remarks
    )
    return task


def _describe(solution: Solution) -> None:
    meta = solution.meta
    model = meta.get("model") or {}
    rows = {
        "problem": meta.get("problem"),
        "robot": model.get("name"),
        "solver": meta.get("solver"),
        "backend": ", ".join(meta.get("backends", [])),
        "integrator": ", ".join(meta.get("schemes", [])),
        "status": str(solution.status),
        "cost": f"{solution.cost:.10g}" if math.isfinite(solution.cost) else None,
        "iterations": solution.iterations,
        "solve time": f"{meta['solve_time']:.3f} s" if "solve_time" in meta else None,
        "horizon": f"{len(solution.us)} knots, {solution.duration:.6g} s",
        "sizes": f"nx = {solution.xs.shape[1]}, ndx = {solution.K.shape[2]}, nu = {solution.us.shape[1]}",
    }
    for key, value in rows.items():
        if value:
            click.echo(f"{key:<12}{value}")
