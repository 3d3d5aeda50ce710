"""The command `trajopt replan`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from .cli_support import (
    FAILED,
    backend_option,
    command,
    configured,
    fail,
    results_folder,
    set_option,
    urdf_option,
    warn,
)

if TYPE_CHECKING:
    from trajopt.config.config import Config
    from trajopt.replanning.run_log import RunLog
    from ..replan.run import Setup
    from ..view.live import LiveRun

REFRESH = 0.1
"""Seconds between two updates of the progress bar."""
MAX_FAILED_FRACTION = 0.5
"""Fraction of failed solves above which a run counts as failed."""
UNREACHED = 0.1
"""If a failed run never comes closer to its goal than this [m], the report suggests that the goal is out of reach."""


@click.command()
@click.argument("config", type=click.Path(), required=False)
@set_option
@urdf_option
@backend_option
@click.option("--out", type=click.Path(file_okay=False), help="Output folder.")
@click.option(
    "--plant", type=click.Choice(["own", "mujoco"]), help="Plant that simulates the robot; default: from CONFIG."
)
@click.option("--realtime", is_flag=True, help="Run in wall-clock time, with the planner in its own thread.")
@click.option(
    "--view",
    "viewed",
    is_flag=True,
    help="Show plant and plan in a browser during the run, and the whole run afterwards.",
)
@click.option("--video", type=click.Path(dir_okay=False), help="Write a video of the run (.gif, .mp4).")
@click.option(
    "--replay",
    "folder",
    type=click.Path(exists=True, file_okay=False),
    help="Repeat the run saved in this folder exactly.",
)
@command
def replan(
    config: str | None,
    overrides: tuple[str, ...],
    urdf: str | None,
    backend: str | None,
    out: str | None,
    plant: str | None,
    realtime: bool,
    viewed: bool,
    video: str | None,
    folder: str | None,
) -> None:
    """Run a replanning loop (MPC) on a plant, as defined by the table [replan] of CONFIG; save a log, plots and an animation."""
    if folder is not None:
        if any((config, plant, realtime, overrides, urdf, backend, viewed, video)):
            fail("--replay repeats a saved run unchanged: remove CONFIG and all options except --out")
        if out is not None and Path(out).resolve() == Path(folder).resolve():
            fail("--out is the folder of the saved run, which it would replace: choose another folder")
        _replay(Path(folder), out)
        return
    if config is None:
        fail("missing argument: a CONFIG with a table [replan], or --replay FOLDER")
    assert config is not None
    from ..replan.run import require_table
    from .view_command import require_video

    if video is not None:
        require_video(Path(video))
    _run(
        require_table(configured(config, overrides, urdf=urdf, backend=backend, out=out, plant=plant)),
        realtime,
        viewed,
        video,
    )


def _run(config: Config, realtime: bool, viewed: bool, video: str | None) -> None:
    from trajopt.config.schema import to_toml
    from trajopt.replanning.run_log import ARRAYS_FILE, RUN_FILE
    from ..replan.run import CONFIG_FILE, FIRST_PLAN_FILE, INSTEAD_OF, is_plan, setup, simulate
    from .console_reports import print_relaxation_warnings

    folder = results_folder(config.directory, (CONFIG_FILE, FIRST_PLAN_FILE, ARRAYS_FILE, RUN_FILE))
    start = setup(config)
    warn(start.task.warnings)
    print_relaxation_warnings(start.first_plan)
    if not is_plan(start.first_plan):
        warn([f"the first plan did not converge: {start.first_plan.status}"])
    if failed := start.first_plan.meta.get(INSTEAD_OF):
        warn([f"solver {failed['solver']} failed, auto computed the first plan: {failed['status']}"])
    live = _live(start) if viewed else None
    with _progress(config.replan.duration) as on_tick:
        log = simulate(start, on_tick, realtime=realtime, watch=live)
    log.meta = {"plant": config.replan.plant.kind, "realtime": realtime, "first plan": str(start.first_plan.status)}
    written = [start.first_plan.save(folder / FIRST_PLAN_FILE), folder / CONFIG_FILE]
    written[1].write_text(to_toml(config.as_dict()), encoding="utf-8")
    try:
        _finish(start, log, folder, written)
    finally:
        if live is not None or video is not None:
            _show(start, log, live, video)


def _live(start: Setup) -> LiveRun:
    from ..view.live import LiveRun

    live = LiveRun(start.task, start.first_plan, start.config.as_dict())
    click.echo(f"viewer: {live.url}")
    return live


def _show(start: Setup, log: RunLog, live: LiveRun | None, video: str | None) -> None:
    """Write a video of the run, and show the run in the browser."""
    from ..view.live import run_scene
    from .view_command import show_in_window, write_video

    scene = run_scene(start.task, start.first_plan, log, start.config.as_dict())
    if video is not None:
        write_video(Path(video), scene, "visual")
    if live is not None:
        port = live.server.get_port()
        live.close()
        show_in_window(scene, port=port)


def _replay(folder: Path, out: str | None) -> None:
    from ..replan.run import replay

    with _progress(None) as on_tick:
        repeated = replay(folder, on_tick)
    if repeated.difference == 0.0:
        click.echo(f"replay identical to {folder}: {len(repeated.log.times)} ticks, {len(repeated.log.solves)} solves")
    else:
        click.echo(f"replay differs from {folder}: states by up to {repeated.difference:.3g}", err=True)
    if out is not None:
        _finish(repeated.setup, repeated.log, results_folder(Path(out)), [])
    if repeated.difference != 0.0:
        raise click.exceptions.Exit(FAILED)


RECEDING_GOAL = (
    "goal not reached: a terminal weight moves away with the end of a receding horizon; give the goal a running weight "
    "(problem.weights.goal of an arm), or set replan.horizon = 'shrinking'"
)


def _finish(start: Setup, log: RunLog, folder: Path, written: list[Path]) -> None:
    """Print the report of a run and write its files; exit with 1 if the run failed."""
    from trajopt.replanning.run_log import EventKind
    from trajopt.results.report import limit_lines
    from trajopt.validation.limit_violations import simulated_violations
    from ..plots.replanning_plots import plot_run
    from ..replan.run import statistics

    numbers = statistics(start, log)
    for line in statistics_lines(numbers):
        click.echo(line)
    for sentence in [] if start.config.replan.goal.term else start.task.outcome(log.xs[-1]):
        click.echo(sentence)
    if start.config.replan.horizon == "receding" and not start.config.replan.goal.term and start.task.missed(log.xs):
        click.echo(RECEDING_GOAL)
    for sentence in start.task.commands(log.xs, log.times):
        click.echo(sentence)
    limits = simulated_violations(start.task.ocp, log.xs, log.times)
    settings = [f.name for f in fields(start.config.problem)]
    warn([line.text for line in limit_lines([b.as_meta(settings, "tick") for b in limits])])
    failures = list(run_failures(start, log, numbers))
    warn(failures)
    failed = bool(failures) or log.count(EventKind.PLANT_DIVERGED) > 0
    if failed and start.config.replan.charge is None and not log.meta.get("realtime"):
        warn(late_plan_warnings(log))
    written = [*written, *log.save(folder, numbers)]
    if start.config.output.plots:
        written += [*plot_run(start, log, folder), _page(start, log, folder)]
    click.echo(f"written to {folder}: " + ", ".join(path.name for path in written))
    if failed or log.count(EventKind.INTERRUPTED):
        raise click.exceptions.Exit(FAILED)


def run_failures(start: Setup, log: RunLog, numbers: Mapping[str, Any]) -> Iterator[str]:
    """Yield messages about falls, collisions with moving objects, and failed solves if more than half failed.

    numbers: see :func:`experiments.replan.run.statistics`.
    """
    from trajopt.replanning.run_log import EventKind

    yield from start.task.fallen(log.xs, log.times)
    for name, distances in log.clearances.items():
        k = int(distances.argmin())
        if distances[k] < 0.0:
            yield f"the robot enters the {name} by {-distances[k]:.3g} m at {log.times[k]:.3g} s"
    failed = log.count(EventKind.FAILED_SOLVE)
    if failed > MAX_FAILED_FRACTION * len(log.solves):
        first = next(event for event in log.events if event.kind is EventKind.FAILED_SOLVE)
        yield f"{failed} of {len(log.solves)} solves failed, the first at {first.time:.3f} s: {first.message}"
        nearest = numbers.get("distance to the goal [m]", {}).get("smallest", 0.0)
        if nearest > UNREACHED:
            yield f"the smallest distance to the goal was {nearest:.3g} m: it may be out of reach; move it closer to the robot"


def late_plan_warnings(log: RunLog) -> list[str]:
    """Return a warning if plans of a run with measured solve times were late or skipped; no warning otherwise."""
    from trajopt.replanning.run_log import EventKind

    late, skipped = log.count(EventKind.LATE_PLAN), log.count(EventKind.SKIPPED)
    if not (late or skipped):
        return []
    charge = float(f"{np.median([solve.seconds for solve in log.solves]):.1g}")
    return [
        f"the cause may be slow solves: {late} plans were late, and {skipped} times no solve began because the last one still ran. "
        "Each solve takes its measured time, which is longer on a busy computer; a fixed time makes the run repeatable: "
        f"replan.charge = {charge:g} is the median"
    ]


def _page(start: Setup, log: RunLog, folder: Path) -> Path:
    """Write the animation page: the robot's shapes if available (extra [view]), else a stick figure."""
    from ..plots.replanning_animation import write_animation
    from ..view.scenes import has_link_shapes

    path = folder / "animation.html"
    if not has_link_shapes(start.task.ocp.model):
        return write_animation(path, start, log)
    from trajopt.view.files import write_page
    from ..view.live import run_scene

    scene = run_scene(start.task, start.first_plan, log, start.config.as_dict())
    notes = [f"{len(log.events)} events", *(f"{e.time:.3f} s: {e.kind}" for e in log.events)] if log.events else []
    warn(write_page(path, scene.motions, scene.annotations, notes=notes)[1])
    return path


def statistics_lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    """Yield one output line per statistic."""
    width = max(map(len, numbers), default=0) + 2
    for key, value in numbers.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{name} {_number(v)}" for name, v in value.items()) or "none"
        yield f"{key:<{width}}{_number(value)}"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def _progress(duration: float | None) -> Iterator[Callable[[float], None]]:
    """Progress bar of simulated time on the error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("replanning"),
        BarColumn(),
        TextColumn("{task.completed:.2f} s of motion,"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        line, refreshed = bar.add_task("run", total=duration), 0.0

        def on_tick(t: float) -> None:
            nonlocal refreshed
            now = time.perf_counter()
            if now - refreshed > REFRESH:
                refreshed = now
                bar.update(line, completed=t, refresh=True)

        yield on_tick
