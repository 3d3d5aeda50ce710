"""Plots of many small panels, drawn without matplotlib axes, which take 50 ms each; a humanoid has forty panels.

A panel is a frame with a grid, curves, dashed limit lines and labels. All lines of one kind are one collection in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from .canvas import (
    BETWEEN_COLUMNS,
    BETWEEN_SHARED_ROWS,
    BOTTOM,
    GRAY,
    GRID,
    INK,
    LEFT,
    PNG_COMPRESSION,
    RED,
    RIGHT,
    STYLE,
    TOP,
    text_width,
)

TICKS_X, TICKS_Y = 6, 5
"""Maximum number of ticks along an axis."""
SMALL, NORMAL, LARGE = 7.0, 9.0, 11.0
"""Font sizes [points]."""
MARGIN = 0.01
"""Margin before and after the curves, as a fraction of the time span."""


class Curve(NamedTuple):
    """One curve: times (M,), values (M,). held: piecewise constant between times; name: legend entry."""

    times: Array
    values: Array
    color: str
    held: bool = False
    name: str = ""


@dataclass
class Graph:
    """One panel. low, high: axis range; rules: values of dashed lines; note: text at the upper right, red if alarming."""

    title: str
    unit: str
    curves: Sequence[Curve]
    low: float
    high: float
    rules: Sequence[float] = field(default_factory=list)
    note: str = ""
    alarming: bool = False


class _Place(NamedTuple):
    """Frame of a panel [pixels], and the axis values at its corners."""

    x: float
    y: float
    width: float
    height: float
    start: float
    end: float
    low: float
    high: float

    def at(self, times: Array, values: Array) -> Array:
        """Convert times and values (M,) to points (M, 2) [pixels]."""
        x = self.x + self.width * (np.asarray(times) - self.start) / (self.end - self.start)
        y = self.y + self.height * (np.asarray(values) - self.low) / (self.high - self.low)
        return np.column_stack([x, y])

    def across(self, value: float) -> Array:
        """Return the horizontal line (2, 2) [pixels] at a value."""
        return self.at(np.array([self.start, self.end]), np.full(2, value))

    def along(self, time: float) -> Array:
        """Return the vertical line (2, 2) [pixels] at a time."""
        return self.at(np.full(2, time), np.array([self.low, self.high]))


def draw_sheet(path: Path, title: str, graphs: Sequence[Graph], columns: int, width: float, height: float) -> Path:
    """Write panels in rows over a common time axis. width, height: of the image [in]."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        sheet = Figure(figsize=(width, height), dpi=STYLE["savefig.dpi"])
        canvas = FigureCanvasAgg(sheet)
        places = _places(graphs, columns, width, height, sheet.dpi)
        _draw_lines(sheet, graphs, places)
        _write(sheet, 0.08, height - 0.08, title, LARGE, ha="left", va="top", fontweight="bold")
        for i, (graph, place) in enumerate(zip(graphs, places, strict=True)):
            _label(sheet, graph, place, i + columns >= len(graphs))
        _add_legend(sheet, graphs[0].curves, width, height)
        canvas.print_png(path, pil_kwargs={"compress_level": PNG_COMPRESSION})
    return path


def _places(graphs: Sequence[Graph], columns: int, width: float, height: float, dpi: float) -> list[_Place]:
    rows = -(-len(graphs) // columns)
    w = (width - LEFT - RIGHT - (columns - 1) * BETWEEN_COLUMNS) / columns
    h = (height - TOP - BOTTOM - (rows - 1) * BETWEEN_SHARED_ROWS) / rows
    times = np.concatenate([curve.times for graph in graphs for curve in graph.curves])
    start, end = float(times.min()), float(times.max())
    margin = MARGIN * (end - start) or 1.0
    found = []
    for i, graph in enumerate(graphs):
        row, column = divmod(i, columns)
        x, y = LEFT + column * (w + BETWEEN_COLUMNS), BOTTOM + (rows - 1 - row) * (h + BETWEEN_SHARED_ROWS)
        frame = (dpi * x, dpi * y, dpi * w, dpi * h)
        found.append(_Place(*frame, start - margin, end + margin, graph.low, graph.high))
    return found


def _draw_lines(sheet: Any, graphs: Sequence[Graph], places: Sequence[_Place]) -> None:
    both = list(zip(graphs, places, strict=True))
    grid = [p.along(t) for p in places for t in ticks(p.start, p.end, TICKS_X)]
    grid += [p.across(v) for p in places for v in ticks(p.low, p.high, TICKS_Y)]
    frames = [line for p in places for line in (p.across(p.low), p.along(p.start))]
    rules = [p.across(v) for g, p in both for v in g.rules]
    curves = [(p.at(*(_steps(c) if c.held else (c.times, c.values))), c.color) for g, p in both for c in g.curves]
    _add(sheet, grid, colors=GRID, linewidths=0.7)
    _add(sheet, frames, colors=INK, linewidths=0.8)
    _add(sheet, rules, colors=RED, linewidths=1.0, linestyles="--")
    _add(sheet, [line for line, _ in curves], colors=[color for _, color in curves], linewidths=1.5)


def _steps(curve: Curve) -> tuple[Array, Array]:
    """Return the points of a piecewise constant curve."""
    return np.repeat(curve.times, 2)[1:], np.repeat(curve.values, 2)[:-1]


def _add(sheet: Any, lines: Sequence[Array], **style: Any) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.transforms import IdentityTransform

    if lines:
        sheet.add_artist(LineCollection(lines, transform=IdentityTransform(), **style), clip=False)


def _label(sheet: Any, graph: Graph, place: _Place, lowest: bool) -> None:
    """Write the labels of a panel; time labels only below the lowest panel of a column."""
    dpi = sheet.dpi
    left, bottom, right, top = (v / dpi for v in (place.x, place.y, place.x + place.width, place.y + place.height))
    title, note = text_width(graph.title, NORMAL), text_width(graph.note, SMALL)
    _write(sheet, left, top + 0.05, graph.title, NORMAL * min(1.0, (right - left) / title) if title else NORMAL)
    if graph.note:  # within the panel if there is no space beside the title
        y = top + 0.05 if title + note < right - left else top - 0.12
        _write(sheet, right, y, graph.note, SMALL, ha="right", color=RED if graph.alarming else GRAY)
    for value, text in _tick_labels(ticks(place.low, place.high, TICKS_Y)):
        _write(sheet, left - 0.05, place.across(value)[0, 1] / dpi, text, SMALL, ha="right", va="center")
    if graph.unit:
        _write(
            sheet, left - 0.52, 0.5 * (bottom + top), f"[{graph.unit}]", NORMAL, ha="center", va="center", rotation=90
        )
    if lowest:
        for value, text in _tick_labels(ticks(place.start, place.end, TICKS_X)):
            _write(sheet, place.along(value)[0, 0] / dpi, bottom - 0.05, text, SMALL, ha="center", va="top")
        _write(sheet, 0.5 * (left + right), bottom - 0.22, "time [s]", NORMAL, ha="center", va="top")


def _add_legend(sheet: Any, curves: Sequence[Curve], width: float, height: float) -> None:
    """Draw the legend at the upper right."""
    named, right, y = [c for c in curves if c.name], width - RIGHT, height - 0.2
    lines = []
    for curve in reversed(named):
        _write(sheet, right, y, curve.name, NORMAL, ha="right", va="center")
        right -= 0.08 * len(curve.name) + 0.08
        lines.append(sheet.dpi * np.array([[right - 0.25, y], [right, y]]))
        right -= 0.45
    _add(sheet, lines, colors=[c.color for c in reversed(named)], linewidths=1.5)


def _write(sheet: Any, x: float, y: float, text: str, size: float, **style: Any) -> None:
    """Write text at a position [in]."""
    width, height = sheet.get_size_inches()
    sheet.text(x / width, y / height, text, fontsize=size, **style)


def ticks(low: float, high: float, max_count: int) -> Array:
    """Return ticks between two values: multiples of 1, 2 or 5 times a power of ten, at most ``max_count``, at least two."""
    raw = (high - low) / max_count
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= raw * (1.0 - 1e-9))
    return step * np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1)


def _tick_labels(values: Array) -> list[tuple[float, str]]:
    """Return (value, label) of ticks, with the number of digits that distinguishes them."""
    step = values[1] - values[0] if len(values) > 1 else max(abs(float(values.sum())), 1e-300)
    largest = max(float(np.abs(values).max(initial=0.0)), step)
    digits = int(np.ceil(-np.log10(step) - 1e-9))
    if digits > 4 or largest >= 1e5:
        shown = [f"{v:.{max(int(np.ceil(np.log10(largest / step))), 0)}e}" for v in values]
    else:
        shown = [f"{v:.{max(digits, 0)}f}" for v in values]
    return [(float(v), "0" if abs(v) < 1e-9 * step else text) for v, text in zip(values, shown, strict=True)]
