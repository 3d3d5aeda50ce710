"""Commands of the compiled engine and the installation: ops, doctor, cache, export."""

from __future__ import annotations

import warnings
from pathlib import Path

import click

from .cli_support import (
    base_option,
    command,
    config_argument,
    configured,
    problem_of,
    results_folder,
    set_option,
    urdf_option,
    warn,
)


@click.command()
@click.argument("robot", metavar="ROBOT_OR_FILE")
@base_option
@click.option("--snap", is_flag=True, help="Round rotations near a quarter turn to exact ones.")
@click.option("--csv", "file", type=click.Path(dir_okay=False), help="Also write the table to this file.")
@command
def ops(robot: str, base: str | None, snap: bool, file: str | None) -> None:
    """Count the operations of the dynamics of ROBOT and their derivatives, compared with published counts."""
    from dynamics_backends.rigid_body.robots import ROBOT_WARNINGS
    from ..analysis.operations import load, operation_counts, table, write_csv

    with warnings.catch_warnings(record=True) as caught:
        for category in ROBOT_WARNINGS:
            warnings.simplefilter("always", category)
        model = load(robot, snap, base)
    warn(str(w.message) for w in caught)
    click.echo(f"{model.name}: nq = {model.nq}, nv = {model.nv}{', rotations snapped' if snap else ''}")
    counts = operation_counts(model, robot)
    for line in table(counts):
        click.echo(line)
    if file is not None:
        write_csv(Path(file), counts)


@click.command()
@command
def doctor() -> None:
    """Print versions, the C compiler, the cache, and missing packages."""
    from .doctor import report

    for line in report():
        click.echo(line)


@click.command()
@click.option("--clear", is_flag=True, help="Delete all cached traces.")
@command
def cache(clear: bool) -> None:
    """Show the cache of traced functions, or clear it."""
    from . import trace_cache

    if clear:
        removed = trace_cache.clear()
        click.echo(f"removed {len(removed.files)} files, {removed.size / 2**20:.1f} MiB, from {removed.folder}")
    else:
        click.echo(str(trace_cache.contents()))


@click.command()
@config_argument
@set_option
@urdf_option
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of the C files.")
@click.option("--name", help="Prefix of files and functions; default: the name of CONFIG.")
@click.option(
    "--solution",
    type=click.Path(exists=True, dir_okay=False),
    help="Start the example at this saved solution, with its gains; default: the guess.",
)
@command
def export(
    config: str, overrides: tuple[str, ...], urdf: str | None, out: str, name: str | None, solution: str | None
) -> None:
    """Write C99 code for a controller without Python: dynamics, derivatives, integrator and one SLQ step of CONFIG.

    If a C compiler is available, the example is compiled and run before any file is written.
    """
    from dynamics_backends.environment import CompilerError, compiler_command
    from trajopt import Solution
    from trajopt.export.controller import controller_files
    from trajopt.export.example import run_example

    settings = configured(config, overrides, urdf=urdf)
    folder = results_folder(Path(out))
    task = problem_of(settings).task
    hessian = getattr(settings.solver_options, "hessian", "gauss_newton")
    prefix = Path(config).stem.replace("-", "_") if name is None else name
    guess = task.guess if solution is None else Solution.load(solution)
    files = controller_files(task.ocp, prefix, guess, hessian, task.removed_by)
    costs = run_example(files)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    click.echo(f"written to {folder}: " + ", ".join(files))
    if costs is None:
        try:
            compiler_command()
        except CompilerError as error:
            click.echo(f"example: not run, {error}")
    else:
        click.echo(f"example: {len(costs)} SLQ steps in C, cost {costs[0]:.6g} -> {costs[-1]:.6g}")


COMMANDS = (ops, doctor, cache, export)
