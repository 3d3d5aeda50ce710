"""Plots of walking robots: path of the base, foot heights with gait diagram, contact forces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt import Solution
from trajopt.config.task import Task
from ..analysis.gait_analysis import GaitReport, analyze, contact_forces, contacts, foot_positions
from .canvas import COLORS, GRAY, PANEL_HEIGHT, PANEL_WIDTH, figure, legend, margin_for
from .sheet import Curve, Graph, draw_sheet
from .side_by_side import draw

BAR = 0.62
"""Height of the bars of a gait diagram, relative to the distance of two rows."""
MARKS = 8
"""Number of dots on the base's path, at equal time intervals."""
SHORT = 0.8
"""Ratio of the length of a motion to its width or height below which it is not drawn to scale, in panels that are wide."""
THIN, WIDER = 0.9, 1.8
"""Line width of the last foot, and increase for the first one: coinciding curves remain visible."""


def plot_legs(solution: Solution, folder: Path, task: Task) -> list[Path]:
    """Write all plots of a task with feet; return the paths."""
    return draw(leg_pictures(solution, folder, task))


def leg_pictures(solution: Solution, folder: Path, task: Task) -> dict[Path, Callable[[], object]]:
    """Return the drawing function of each plot file of a task with feet."""
    feet, ocp = task.feet, task.ocp
    positions = foot_positions(ocp, feet, solution.xs)
    touching = contacts(ocp, feet, solution.xs, solution.us)
    report = analyze(feet, solution.times, touching)
    base, gait, pushes = (folder / f"{name}.png" for name in ("base", "gait", "contact_forces"))
    pictures: dict[Path, Callable[[], object]] = {
        base: lambda: plot_base(base, solution, positions, touching, feet),
        gait: lambda: plot_gait(gait, solution.times, positions[:, :, 2], touching, report),
    }
    forces = contact_forces(ocp, solution.xs, solution.us)
    if forces:
        pictures[pushes] = lambda: plot_forces(pushes, solution.times, forces)
    return pictures


def plot_base(path: Path, solution: Solution, positions: Array, touching: Array, feet: Sequence[str]) -> Path:
    """Plot base and feet from above and from the side, with footholds as dots."""
    base = solution.xs[:, :3]
    with figure(path, 2, 1, 8.2, 6.4, "Base and feet") as axes:
        for axis, (i, j, title) in zip(axes.flat, ((0, 1, "from above"), (0, 2, "from the side")), strict=True):
            axis.plot(base[:, i], base[:, j], color=GRAY, linewidth=2.6, label="base")
            every = np.linspace(0, len(base) - 1, MARKS).round().astype(int)
            axis.plot(base[every, i], base[every, j], "o", color=GRAY, markersize=4)
            for f, foot in enumerate(feet):
                look = COLORS[f % len(COLORS)], _width(f, len(feet)), foot
                _draw_foot(axis, positions[:, f, i], positions[:, f, j], touching[:, f], *look)
            axis.set_xlabel("x [m]")
            axis.set_ylabel(f"{'xyz'[j]} [m]")
            along, across = (float(np.ptp(np.r_[base[:, c], positions[:, :, c].ravel()])) for c in (i, j))
            to_scale = along >= SHORT * across
            axis.set_title(title if to_scale else f"{title}, not to scale")
            if to_scale:
                axis.set_aspect("equal", adjustable="datalim")
        legend(axes)
    return path


def _width(foot: int, feet: int) -> float:
    return THIN + WIDER * (feet - 1 - foot) / max(feet - 1, 1)


def _draw_foot(axis: Any, a: Array, b: Array, touching: Array, color: str, width: float, name: str) -> None:
    axis.plot(a, b, color=color, linewidth=width, label=name)
    held = np.append(touching, touching[-1])
    axis.plot(a[held], b[held], ".", color=color, markersize=4 + 2 * width, alpha=0.35, markeredgewidth=0)


def plot_gait(path: Path, times: Array, heights: Array, touching: Array, report: GaitReport) -> Path:
    """Plot foot heights (M + 1, F) [m] and the gait diagram, which names the feet, with duty factor and phase."""
    options: dict[str, Any] = {"sharex": True, "height_ratios": (3, 2), "left": margin_for(report.feet), "right": 0.85}
    with figure(path, 2, 1, 8.2, 5.4, _gait_title(report), **options) as axes:
        above, diagram = axes.flat
        for f in range(len(report.feet)):
            above.plot(
                times,
                100 * heights[:, f],
                color=COLORS[f % len(COLORS)],
                linewidth=_width(f, len(report.feet)),
            )
        above.axhline(0.0, color=GRAY, linewidth=0.8)
        above.set_ylabel("height of the feet [cm]")
        above.margins(x=0.01)
        _draw_diagram(diagram, times, touching, report)
    return path


def _gait_title(report: GaitReport) -> str:
    if not np.isfinite(report.period):
        return "Feet"
    return f"Feet, period {report.period:.2f} s"


def _draw_diagram(axis: Any, times: Array, touching: Array, report: GaitReport) -> None:
    for f in range(len(report.feet)):
        axis.broken_barh(_spans(times, touching[:, f]), (f - 0.5 * BAR, BAR), color=COLORS[f % len(COLORS)], zorder=3)
        phase = "" if not np.isfinite(report.shifts[f]) else f"\nphase {report.shifts[f]:+.2f}"
        text = f"{100 * report.duty[f]:.0f} %{phase}"
        axis.annotate(
            text, (1.01, f), xycoords=("axes fraction", "data"), va="center", fontsize=7, annotation_clip=False
        )
    axis.set_yticks(range(len(report.feet)), report.feet)
    axis.set_ylim(len(report.feet) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("time [s]")
    axis.set_title("on the ground")


def _spans(times: Array, on: Array) -> list[tuple[float, float]]:
    """Return (start, duration) of the intervals in which a piecewise constant signal is true."""
    change = np.flatnonzero(np.diff(np.r_[False, on, False].astype(int)))
    return [(float(times[a]), float(times[b] - times[a])) for a, b in zip(change[::2], change[1::2], strict=True)]


def plot_forces(path: Path, times: Array, forces: dict[str, Array]) -> Path:
    """Plot the components of each contact force (N, 3) [N] in world axes."""
    columns = min(2, len(forces))
    rows = -(-len(forces) // columns)
    size = (1.25 * PANEL_WIDTH * max(columns, 2), 1.1 * PANEL_HEIGHT * rows + 0.8)
    low, high = (f(np.nan_to_num(np.stack(list(forces.values())))) for f in (np.min, np.max))
    pad = 0.05 * max(float(high - low), 1.0)
    graphs = [_pushing(name, times, force, float(low) - pad, float(high) + pad) for name, force in forces.items()]
    return draw_sheet(path, "Contact forces", graphs, columns, *size)


def _pushing(name: str, times: Array, force: Array, low: float, high: float) -> Graph:
    held = np.vstack([force, force[-1:]])
    curves = [Curve(times, held[:, i], COLORS[i], True, "xyz"[i]) for i in range(3)]
    pull = -float(force[:, 2].min())
    return Graph(name, "N", curves, low, high, note=f"pulls {pull:.0f} N" if pull > 1.0 else "", alarming=True)
