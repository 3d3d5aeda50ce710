"""Pictures of robots that walk: path of the base, heights of the feet with the gait diagram, contact forces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dynamics_backends.protocol import Array
from experiments.plots.canvas import COLORS, GRAY, PANEL_HEIGHT, PANEL_WIDTH
from experiments.plots.sheet import Bar, Curve, Graph, draw_sheet, with_room
from experiments.plots.side_by_side import draw
from problems.legged.gaits.gait_analysis import GaitReport, analyze, contact_forces, contacts, foot_positions
from problems.task import Task
from trajopt import Solution

BAR = 0.62
"""Height of the bars of a gait diagram, the distance of two feet being 1."""
AROUND = 0.08
"""Room around paths, as a share of what is drawn."""
MARKS = 8
"""Pictures of the robot along the base's path, at equal times."""


def plot_legs(solution: Solution, folder: Path, task: Task) -> list[Path]:
    """All pictures of a task with feet."""
    return draw(leg_pictures(solution, folder, task))


def leg_pictures(solution: Solution, folder: Path, task: Task) -> dict[Path, Callable[[], object]]:
    """What draws them."""
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
    """The base and the feet from above and from the side; footholds as dots."""
    base = solution.xs[:, :3]
    views = ((0, 1, "from above"), (0, 2, "from the side"))
    graphs = [_seen(base, positions, touching, feet, i, j, title) for i, j, title in views]
    return draw_sheet(path, "Path of the base and the feet", graphs, 1, 8.2, 6.4)


def _seen(base: Array, positions: Array, touching: Array, feet: Sequence[str], i: int, j: int, title: str) -> Graph:
    """The paths of the base (M, 3) and of the feet (M, F, 3) [m] along two axes."""
    every = np.linspace(0, len(base) - 1, MARKS).round().astype(int)
    curves = [Curve(base[:, i], base[:, j], GRAY, name="base", width=2.6)]
    curves.append(Curve(base[every, i], base[every, j], GRAY, width=0.0, dots=4.5))
    for f, foot in enumerate(feet):
        a, b, color = positions[:, f, i], positions[:, f, j], COLORS[f % len(COLORS)]
        held = np.append(touching[:, f], touching[-1, f])
        curves.append(Curve(a, b, color, name=foot, width=1.0))
        curves.append(Curve(a[held], b[held], color, width=0.0, dots=3.0, strength=0.5))
    across, up = (np.concatenate([[*base[:, k]], positions[:, :, k].ravel()]) for k in (i, j))
    low, high = with_room(float(up.min()), float(up.max()), AROUND)
    span = with_room(float(across.min()), float(across.max()), AROUND)
    return Graph(title, "", curves, low, high, across="x [m]", span=span, up=f"{'xyz'[j]} [m]", alike=True)


def plot_gait(path: Path, times: Array, heights: Array, touching: Array, report: GaitReport) -> Path:
    """Heights (M + 1, F) [m] of the feet, and bars while they are on the ground, with duty factor and phase."""
    colors = [COLORS[f % len(COLORS)] for f in range(len(report.feet))]
    above = [Curve(times, 100.0 * heights[:, f], colors[f], name=foot) for f, foot in enumerate(report.feet)]
    above.append(Curve(times[[0, -1]], np.zeros(2), GRAY, width=0.8))
    low, high = with_room(min(100.0 * float(heights.min()), 0.0), max(100.0 * float(heights.max()), 1.0), AROUND)
    graphs = [Graph("", "", above, low, high, up="height of the feet [cm]")]
    graphs.append(_diagram(times, touching, report, colors))
    return draw_sheet(path, _gait_title(report), graphs, 1, 8.2, 5.4, right=0.85, heights=(3, 2))


def _gait_title(report: GaitReport) -> str:
    if not np.isfinite(report.period):
        return "Feet"
    return f"Feet, period {report.period:.2f} s"


def _diagram(times: Array, touching: Array, report: GaitReport, colors: Sequence[str]) -> Graph:
    """Bars while feet are on the ground, the first foot above."""
    bars = [
        Bar((start, -f - 0.5 * BAR), (start + length, -f + 0.5 * BAR), color)
        for f, color in enumerate(colors)
        for start, length in _spans(times, touching[:, f])
    ]
    names = {-float(f): foot for f, foot in enumerate(report.feet)}
    ends = {-float(f): _told(report, f) for f in range(len(report.feet))}
    whole = Curve(times[[0, -1]], np.zeros(2), GRAY, width=0.0)
    return Graph("on the ground", "", [whole], 0.4 - len(report.feet), 0.6, bars=bars, names=names, ends=ends)


def _told(report: GaitReport, f: int) -> str:
    """A foot's share of the time on the ground, and its phase."""
    phase = "" if not np.isfinite(report.shifts[f]) else f"\nphase {report.shifts[f]:+.2f}"
    return f"{100 * report.duty[f]:.0f} %{phase}"


def _spans(times: Array, on: Array) -> list[tuple[float, float]]:
    """(start, length) of the intervals on which a signal held from times[k] on is true."""
    change = np.flatnonzero(np.diff(np.r_[False, on, False].astype(int)))
    return [(float(times[a]), float(times[b] - times[a])) for a, b in zip(change[::2], change[1::2], strict=True)]


def plot_forces(path: Path, times: Array, forces: dict[str, Array]) -> Path:
    """The components of each contact's force (N, 3) [N] in world axes."""
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
