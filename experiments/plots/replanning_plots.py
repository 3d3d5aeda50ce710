"""Plots of a replanning run: path and distances, states and controls, solve times with the deadline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.config.scenario import path_of
from trajopt.config.task import Task
from trajopt.replanning.run_log import EventKind, RunLog
from ..replan.run import Setup, distances
from .canvas import BLUE, COLORS, GRAY, GREEN, ORANGE, RED, figure, legend
from .plotting import Panel, plot_panels

BINS = 40
NEGLIGIBLE = 0.01
"""Preparation times below this fraction of the response times are not drawn."""
WIDE = 30.0
"""Ratio of largest to smallest value above which an axis is logarithmic."""
FAULTS = (EventKind.FAILED_SOLVE, EventKind.LATE_PLAN, EventKind.SKIPPED)
FLOOR = 1e-6
"""Smaller values are drawn at this value of a logarithmic axis."""
CONTOUR_PANELS = ("distance from the contour [mm]", "path parameter [mm]", "its speed [mm/s]")
MAX_POINTS = 4000
"""Curves are thinned to about this number of points."""


def plot_run(start: Setup, log: RunLog, folder: Path) -> list[Path]:
    """Write all plots of a run; return the paths."""
    every = max(1, len(log.times) // MAX_POINTS)
    model, nq = start.task.ocp.model, start.task.ocp.model.nq
    t, x, u = log.times[::every], log.xs[::every], log.us[::every]
    states = [Panel(name, "", t, x[:, i]) for i, name in enumerate(model.q_names)]
    states += [Panel(f"d {name}/dt", "", t, x[:, nq + i]) for i, name in enumerate(model.dof_names)]
    controls = [Panel(name, "", t, u[:, i], held=True) for i, name in enumerate(start.task.ocp.control_names)]
    written = [
        plot_panels(folder / "states.png", "States of the plant", states),
        plot_panels(folder / "controls.png", "Controls", controls),
        plot_solve_times(folder / "solve_times.png", log, 1e3 * start.config.replan.timing.limit),
    ]
    if (path := path_of(start.task, log.xs)) is not None:
        written.insert(0, plot_tracking(folder / "tracking.png", start, log, path))
    if path is not None and start.task.contour is not None:
        written.insert(0, plot_contour(folder / "contour.png", start.task, log, path))
    return written


def plot_tracking(file: Path, start: Setup, log: RunLog, path: Array) -> Path:
    """Plot the paths of frame and objects in three projections; distances and tracking error over time."""
    every = max(1, len(path) // MAX_POINTS)
    with figure(file, 2, 3, 11.0, 6.4, f"Path of {start.task.frame}") as axes:
        for axis, (i, j) in zip(axes[0], ((0, 1), (0, 2), (1, 2)), strict=True):
            axis.plot(path[::every, i], path[::every, j], color=BLUE, label=str(start.task.frame))
            axis.plot(*path[0, [i, j]], "o", color=GREEN, label="start")
            for color, (name, p) in zip((RED, ORANGE, *COLORS), log.objects.items(), strict=False):
                if p.shape[1] == 3:
                    axis.plot(p[::every, i], p[::every, j], "--", color=color, linewidth=1.0, label=name)
                _draw_nearest(axis, start, log, name, (i, j), color)
            axis.set_xlabel(f"{'xyz'[i]} [m]")
            axis.set_ylabel(f"{'xyz'[j]} [m]")
            axis.set_aspect("equal", adjustable="datalim")
        axes[0, 0].legend(fontsize=8)
        _draw_distances(axes[1, 0], start, log, every)
        _draw_tracking(axes[1, 1], start, log, every)
        axes[1, 2].set_visible(False)
    return file


def _draw_nearest(axis: Any, start: Setup, log: RunLog, name: str, plane: tuple[int, int], color: str) -> None:
    """Draw the obstacle as a disc at its closest approach."""
    radius = _radius(start)
    if name in log.clearances and radius is not None:
        from matplotlib.patches import Circle

        place = log.objects[name][int(np.argmin(log.clearances[name]))]
        axis.add_patch(Circle(tuple(place[list(plane)]), radius, color=color, alpha=0.2, linewidth=0))


def plot_contour(file: Path, task: Task, log: RunLog, path: Array) -> Path:
    """Plot the frame's path and the tube around its contour in three projections; error, s and ds/dt over time."""
    assert task.contour is not None
    every = max(1, len(path) // MAX_POINTS)
    t, path, states = log.times[::every], path[::every], log.xs[::every]
    contour, tube = task.contour.at(states), task.contour.tube
    error = 1e3 * np.linalg.norm(path - contour, axis=1)
    with figure(file, 2, 3, 11.0, 6.4, f"{task.frame} along its contour") as axes:
        for axis, (i, j) in zip(axes[0], ((0, 1), (0, 2), (1, 2)), strict=True):
            axis.fill(*_band(contour[:, [i, j]], tube).T, color=GREEN, alpha=0.2, linewidth=0, label="tube")
            axis.plot(contour[:, i], contour[:, j], "--", color=GREEN, linewidth=1.0, label="contour")
            axis.plot(path[:, i], path[:, j], color=BLUE, label=str(task.frame))
            axis.set_xlabel(f"{'xyz'[i]} [m]")
            axis.set_ylabel(f"{'xyz'[j]} [m]")
            axis.set_aspect("equal", adjustable="datalim")
        axes[0, 0].legend(fontsize=8)
        below = zip(axes[1], (error, 1e3 * states[:, -2], 1e3 * states[:, -1]), CONTOUR_PANELS, strict=True)
        for axis, values, title in below:
            axis.plot(t, values, color=BLUE)
            axis.set_title(title)
            axis.set_xlabel("time [s]")
            axis.set_ylim(bottom=min(0.0, values.min()))
        axes[1, 0].axhline(1e3 * tube, color=RED, linestyle="--", linewidth=1.0)
        _mark_events(axes[1, 0], log)
    return file


def _band(curve: Array, width: float) -> Array:
    """Return the outline (2 M, 2) of a band of half-width ``width`` around a curve (M, 2); a single point is unchanged."""
    if len(curve) < 2:
        return curve
    slope = np.gradient(curve, axis=0)
    normal = np.stack([-slope[:, 1], slope[:, 0]], axis=1) / np.maximum(np.linalg.norm(slope, axis=1), 1e-12)[:, None]
    return np.concatenate([curve + width * normal, (curve - width * normal)[::-1]])


def _draw_distances(axis: Any, start: Setup, log: RunLog, every: int) -> None:
    found = distances(start, log) | {f"of the links from the {name} [m]": c for name, c in log.clearances.items()}
    axis.set_visible(bool(found))
    for color, (name, values) in zip((RED, ORANGE, *COLORS), found.items(), strict=False):
        axis.plot(log.times[::every], np.maximum(values[::every], FLOOR), color=color, label=name)
    if found and _dynamic_range(list(found.values())) > WIDE:
        axis.set_yscale("log")
    elif found:
        axis.set_ylim(bottom=0.0)
    if log.clearances and (radius := _radius(start)) is not None:
        axis.axhline(radius, color=GRAY, linestyle="--", linewidth=1.0, label="radius of the obstacle [m]")
    _mark_events(axis, log)
    axis.set_title("distances")
    axis.set_xlabel("time [s]")
    if found:
        axis.legend(fontsize=8)


def _draw_tracking(axis: Any, start: Setup, log: RunLog, every: int) -> None:
    manifold = start.task.ocp.manifold
    error = np.abs(manifold.difference(log.references[::every].T, log.xs[::every].T)).max(axis=0)
    axis.semilogy(log.times[::every], np.maximum(error, FLOOR), color=BLUE)
    _mark_events(axis, log)
    axis.set_title("largest deviation from the current plan")
    axis.set_xlabel("time [s]")


def _mark_events(axis: Any, log: RunLog) -> None:
    """Draw a gray line at each event other than failed, late or skipped solves."""
    for event in log.events:
        if event.kind not in FAULTS:
            axis.axvline(event.time, color=GRAY, linewidth=0.6, alpha=0.2)


def _radius(start: Setup) -> float | None:
    return getattr(getattr(start.config.problem, "obstacle", None), "radius", None)


def _dynamic_range(values: list[Array]) -> float:
    """Return the ratio of largest to smallest value, at least FLOOR each."""
    everything = np.maximum(np.concatenate(values), FLOOR)
    return float(everything.max() / everything.min())


def plot_solve_times(file: Path, log: RunLog, deadline: float) -> Path:
    """Plot response and preparation times over time and as a histogram, with the response deadline [ms]."""
    response = np.array([(s.start, 1e3 * s.seconds) for s in log.solves]).reshape(-1, 2)
    prepared = np.array([(s.start * log.tick, 1e3 * s.prepare) for s in log.spells]).reshape(-1, 2)
    series = [("response", BLUE, response)]
    if len(prepared) and prepared[:, 1].max() > NEGLIGIBLE * response[:, 1].max(initial=0.0):
        series.append(("preparation", GRAY, prepared))
    series = [(name, color, np.maximum(values, [-np.inf, 1e-3])) for name, color, values in series if len(values)]
    with figure(file, 1, 2, 9.0, 3.8, "Solve times", bottom=0.75) as axes:
        timeline, histogram = axes.flat
        every = np.concatenate([[deadline], *(values[:, 1] for *_, values in series)])
        wide = _dynamic_range([every]) > WIDE
        bins = (np.geomspace if wide else np.linspace)(0.99 * every.min(), 1.01 * every.max(), BINS)
        for name, color, values in series:
            shown = values[:, 1]
            timeline.plot(values[:, 0], shown, ".", color=color, markersize=3, label=name)
            histogram.hist(shown, bins=bins, color=color, alpha=0.7, label=name)
        timeline.axhline(deadline, color=RED, linestyle="--", linewidth=1.0, label="deadline of the response")
        histogram.axvline(deadline, color=RED, linestyle="--", linewidth=1.0)
        failed = np.array([(s.start, 1e3 * s.seconds) for s in log.solves if not s.success]).reshape(-1, 2)
        if len(failed):
            timeline.plot(
                failed[:, 0], np.maximum(failed[:, 1], 1e-3), ".", color=RED, markersize=3, label="failed solve"
            )
        timeline.set_xlabel("time [s]")
        timeline.set_ylabel("[ms]")
        if wide:
            timeline.set_yscale("log")
            histogram.set_xscale("log")
        else:
            timeline.set_ylim(bottom=0.0)
            histogram.set_xlim(left=0.0)
        histogram.set_xlabel("[ms]")
        histogram.set_ylabel("solves")
        legend(axes, "lower center", fontsize=8)
    return file
