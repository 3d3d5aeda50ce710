"""Panels on one sheet, drawn without axes: those of matplotlib take fifty milliseconds each, and a humanoid has forty.

A panel is a frame at a place known beforehand, a grid at round numbers, what is drawn in it in units of its data, and words
around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from experiments.plots.canvas import (
    BETWEEN_COLUMNS,
    BETWEEN_ROWS,
    BETWEEN_SHARED_ROWS,
    BOTTOM,
    GRAY,
    GRID,
    INK,
    LEFT,
    RED,
    RIGHT,
    TOP,
)
from experiments.plots.ink import POINTS, Ink

TICKS_X, TICKS_Y = 6, 5
"""Round numbers along an axis, at most."""
SMALL, INSIDE, NORMAL, LARGE = 7.0, 8.0, 9.0, 11.0
"""Sizes of words [points]."""
ROOM = 0.01
"""Beside the curves, as a share of the time."""
DASH = 4.0
"""The length of dashes and of gaps [points]."""
TIME, WHITE = "time [s]", "#ffffff"
Range = tuple[float, float]


class Curve(NamedTuple):
    """Values (M,) over times (M,), or over whatever is across; held: values are held from each time to the next.

    name: in the legend. width: of the line [points], 0 for none. dots: their diameter [points], 0 for none; every: how many
    points there are from a dot to the next. cross: a cross in place of each dot. strength: of the dots.
    """

    times: Array
    values: Array
    color: str
    held: bool = False
    name: str = ""
    width: float = 1.5
    dash: float = 0.0
    dots: float = 0.0
    every: int = 1
    cross: bool = False
    strength: float = 1.0


class Bar(NamedTuple):
    """A filled box between two corners."""

    low: tuple[float, float]
    high: tuple[float, float]
    color: str


@dataclass
class Graph:
    """One panel. low, high: of its values. rules: values of dashed lines. note: at its upper right; red where it is alarming.

    across: what its lower axis is, and span: the range of that, where it is not the time of all panels. unit: of its values; up:
    other words beside its axis. alike: a length is as long across as up, for which ranges grow. powers: the values are logarithms
    to base 10. bars: below the curves. names: words in place of numbers beside its axis. ends: words at the right of values.
    legend: inside the panel.
    """

    title: str
    unit: str
    curves: Sequence[Curve]
    low: float
    high: float
    rules: Sequence[float] = field(default_factory=list)
    note: str = ""
    alarming: bool = False
    across: str = TIME
    span: Range | None = None
    up: str = ""
    alike: bool = False
    powers: bool = False
    bars: Sequence[Bar] = ()
    names: Mapping[float, str] | None = None
    ends: Mapping[float, str] | None = None
    legend: bool = False


class _Place(NamedTuple):
    """A panel's frame [in], and the values at its corners."""

    x: float
    y: float
    width: float
    height: float
    start: float
    end: float
    low: float
    high: float

    def at(self, times: Array, values: Array) -> Array:
        """Points (M, 2) [in]."""
        x = self.x + self.width * (np.asarray(times, float) - self.start) / (self.end - self.start)
        y = self.y + self.height * (np.asarray(values, float) - self.low) / (self.high - self.low)
        return np.stack(np.broadcast_arrays(x, y), axis=-1)

    def across(self, value: float) -> Array:
        """The line (2, 2) [in] at a value."""
        return self.at(np.array([self.start, self.end]), np.full(2, value))

    def along(self, time: float) -> Array:
        """The line (2, 2) [in] at a time."""
        return self.at(np.full(2, time), np.array([self.low, self.high]))


def draw_sheet(
    path: Path,
    title: str,
    graphs: Sequence[Graph],
    columns: int,
    width: float,
    height: float,
    *,
    right: float = RIGHT,
    heights: Sequence[float] = (),
) -> Path:
    """Write panels in rows; width, height: of the picture [in]; right: room [in] beside the panels; heights: shares of the rows.

    Panels without a span of their own are over the same time, which is then told below the lowest of a column.
    """
    ink = Ink(width, height)
    places = _places(graphs, columns, width, height, right, heights)
    _draw_lines(ink, graphs, places)
    ink.write((0.08, height - 0.08), title, LARGE, anchor="la", bold=True)
    shared = all(graph.span is None for graph in graphs)
    for i, (graph, place) in enumerate(zip(graphs, places, strict=True)):
        _label(ink, graph, place, not shared or i + columns >= len(graphs))
        if graph.legend:
            _add_legend_inside(ink, graph.curves, place)
    if not graphs[0].legend:
        _add_legend(ink, graphs[0].curves, width, height)
    return ink.save(path)


def _places(
    graphs: Sequence[Graph], columns: int, width: float, height: float, right: float, heights: Sequence[float]
) -> list[_Place]:
    rows = -(-len(graphs) // columns)
    shares = np.array(heights or [1.0] * rows) / (sum(heights) or rows)
    shared = all(graph.span is None for graph in graphs)
    between = BETWEEN_SHARED_ROWS if shared else BETWEEN_ROWS
    w = (width - LEFT - right - (columns - 1) * BETWEEN_COLUMNS) / columns
    h = (height - TOP - BOTTOM - (rows - 1) * between) * shares
    top = height - TOP - np.cumsum(h) - between * np.arange(rows)
    time = _time(graphs)
    found = []
    for i, graph in enumerate(graphs):
        row, column = divmod(i, columns)
        frame = (LEFT + column * (w + BETWEEN_COLUMNS), float(top[row]), w, float(h[row]))
        across, up = graph.span or time, (graph.low, graph.high)
        if graph.alike:
            scale = max((across[1] - across[0]) / w, (up[1] - up[0]) / frame[3])
            across, up = _widened(across, scale * w), _widened(up, scale * frame[3])
        found.append(_Place(*frame, *across, *up))
    return found


def _time(graphs: Sequence[Graph]) -> Range:
    """The range of all panels without one of their own."""
    over_time = [curve.times for graph in graphs if graph.span is None for curve in graph.curves if len(curve.times)]
    times = np.concatenate(over_time) if over_time else np.array([0.0, 1.0])
    return with_room(float(times.min()), float(times.max()), ROOM)


def with_room(low: float, high: float, room: float) -> Range:
    """A range with a share of it beside both ends; one of its own where it is a point."""
    more = room * (high - low) or max(1e-3 * abs(low), 1e-9 if low else 1.0)
    return low - more, high + more


def _widened(values: Range, length: float) -> Range:
    middle = 0.5 * (values[0] + values[1])
    return middle - 0.5 * length, middle + 0.5 * length


def _draw_lines(ink: Ink, graphs: Sequence[Graph], places: Sequence[_Place]) -> None:
    both = list(zip(graphs, places, strict=True))
    grid = [p.along(t) for p in places for t in ticks(p.start, p.end, TICKS_X)]
    grid += [p.across(v) for g, p in both if g.names is None for v in _marked(g, p)]
    ink.straight(grid, GRID, 0.7)
    for graph, place in both:
        for bar in graph.bars:
            corners = place.at(*np.array([bar.low, bar.high]).T)
            ink.bar(corners[0], corners[1], bar.color)
    ink.straight([line for p in places for line in (p.across(p.low), p.along(p.start))], INK, 0.8)
    ink.straight([p.across(v) for g, p in both for v in g.rules], RED, 1.0, DASH)
    for kind in dict.fromkeys((c.color, c.width, c.dash) for g in graphs for c in g.curves if c.width):
        color, width, dash = kind
        alike = [(c, p) for g, p in both for c in g.curves if (c.color, c.width, c.dash) == kind]
        ink.lines([p.at(*(_steps(c) if c.held else (c.times, c.values))) for c, p in alike], color, width, dash)
    for graph, place in both:
        for curve in graph.curves:
            _draw_dots(ink, curve, place.at(curve.times, curve.values)[:: curve.every])


def _draw_dots(ink: Ink, curve: Curve, points: Array) -> None:
    """The dots or crosses of a curve at points (n, 2) [in]."""
    if curve.cross:
        arm = 0.5 * curve.dots / POINTS / np.sqrt(2.0) * np.array([[[-1, -1], [1, 1]], [[-1, 1], [1, -1]]])
        ink.lines([point + line for point in points for line in arm], curve.color, 2.0)
    elif curve.dots:
        ink.dots(points, curve.color, curve.dots, curve.strength)


def _steps(curve: Curve) -> tuple[Array, Array]:
    """A curve that is held from each time to the next."""
    return np.repeat(curve.times, 2)[1:], np.repeat(curve.values, 2)[:-1]


def _label(ink: Ink, graph: Graph, place: _Place, lowest: bool) -> None:
    """The words around a panel; those of what is across only where it is the lowest of a column."""
    left, bottom, right, top = place.x, place.y, place.x + place.width, place.y + place.height
    ink.write((left, top + 0.05), graph.title, NORMAL)
    if graph.note:
        ink.write((right, top + 0.05), graph.note, SMALL, RED if graph.alarming else GRAY, anchor="rs")
    for value, text in _named_up(graph, place):
        ink.write((left - 0.05, place.across(value)[0, 1]), text, SMALL, anchor="rm")
    for value, text in (graph.ends or {}).items():
        ink.write((right + 0.06, place.across(value)[0, 1]), text, SMALL, anchor="lm")
    words = graph.up or (f"[{graph.unit}]" if graph.unit else "")
    if words:
        ink.write((left - 0.52, 0.5 * (bottom + top)), words, NORMAL, upward=True)
    if lowest:
        for value, text in _named(ticks(place.start, place.end, TICKS_X)):
            ink.write((place.along(value)[0, 0], bottom - 0.05), text, SMALL, anchor="ma")
        ink.write((0.5 * (left + right), bottom - 0.22), graph.across, NORMAL, anchor="ma")


def _marked(graph: Graph, place: _Place) -> Array:
    """Where a panel has lines across."""
    return powers(place.low, place.high, TICKS_Y) if graph.powers else ticks(place.low, place.high, TICKS_Y)


def _named_up(graph: Graph, place: _Place) -> list[tuple[float, str]]:
    if graph.names is not None:
        return list(graph.names.items())
    marked = _marked(graph, place)
    return [(float(v), f"{10.0**v:.0e}") for v in marked] if graph.powers else _named(marked)


def _add_legend(ink: Ink, curves: Sequence[Curve], width: float, height: float) -> None:
    """The names of curves at the upper right."""
    right, y = width - RIGHT, height - 0.2
    for curve in [c for c in curves if c.name][::-1]:
        ink.write((right, y), curve.name, NORMAL, anchor="rm")
        right -= ink.length(curve.name, NORMAL) + 0.08
        _draw_sample(ink, curve, right - 0.25, right, y)
        right -= 0.45


def _add_legend_inside(ink: Ink, curves: Sequence[Curve], place: _Place) -> None:
    """The names of curves below one another, in a panel's upper right corner."""
    named = [curve for curve in curves if curve.name]
    right, top = place.x + place.width, place.y + place.height
    left = right - max((ink.length(c.name, INSIDE) for c in named), default=0.0) - 0.05
    if named:
        ink.bar((left - 0.4, top - 0.03 - 0.17 * len(named)), (right, top), WHITE)
    for i, curve in enumerate(named):
        y = top - 0.1 - 0.17 * i
        ink.write((left, y), curve.name, INSIDE, anchor="lm")
        _draw_sample(ink, curve, left - 0.35, left - 0.08, y)


def _draw_sample(ink: Ink, curve: Curve, start: float, end: float, y: float) -> None:
    """What a curve looks like, from one place [in] to another."""
    line = np.array([[start, y], [end, y]])
    if curve.width:
        ink.lines([line], curve.color, curve.width, curve.dash)
    _draw_dots(ink, curve, line.mean(axis=0, keepdims=True))


def ticks(low: float, high: float, most: int) -> Array:
    """Multiples of 1, 2 or 5 times a power of ten between two values, at most so many and at least two."""
    raw = (high - low) / most
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= raw * (1.0 - 1e-9))
    return step * np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1)


def powers(low: float, high: float, most: int) -> Array:
    """Whole numbers between two values, at equal distances, about so many at most."""
    step = max(1, int(np.ceil((high - low) / (most + 2))))
    return step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)


def _named(values: Array) -> list[tuple[float, str]]:
    """Round numbers with as many digits as tell them apart."""
    step = values[1] - values[0] if len(values) > 1 else max(abs(float(values.sum())), 1e-300)
    largest = max(float(np.abs(values).max(initial=0.0)), step)
    digits = int(np.ceil(-np.log10(step) - 1e-9))
    if digits > 4 or largest >= 1e5:
        shown = [f"{v:.{max(int(np.ceil(np.log10(largest / step))), 0)}e}" for v in values]
    else:
        shown = [f"{v:.{max(digits, 0)}f}" for v in values]
    return [(float(v), "0" if abs(v) < 1e-9 * step else text) for v, text in zip(values, shown, strict=True)]
