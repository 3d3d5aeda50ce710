"""HTML summary of a solution for notebooks: a table, and plots of states, controls and convergence.

The plots are SVG written by this module, so that notebooks need no plotting package.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array

WIDTH, HEIGHT = 290.0, 170.0
"""Size of a panel in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 46.0, 8.0, 22.0, 22.0
"""Margins of a panel in pixels."""
POINTS = 120
"""Maximum number of points of a curve."""
NAMED = 7
"""Maximum number of curves of a panel with a legend."""
COLORS = ("#1f5fa8", "#d98a1f", "#2a8a4a", "#c03a2b", "#7a4fa3", "#3a9aa8", "#666666")
MIN_PLOTTED = 1e-16
"""Smallest value in logarithmic panels."""


class Panel(NamedTuple):
    """Curves (M, n) over an axis (M,). logarithmic: plot the decimal logarithm of absolute values."""

    title: str
    axis: Array
    curves: Array
    names: Sequence[str] = ()
    logarithmic: bool = False


def as_html(rows: Mapping[str, object], sentence: str, success: bool, panels: Sequence[Panel]) -> str:
    """HTML with a sentence, a table of ``rows``, and the panels side by side."""
    color = COLORS[2] if success else COLORS[3]
    cells = "".join(
        f"<tr><td style='text-align:left'><b>{html.escape(key)}</b></td>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for key, value in rows.items()
    )
    head = f"<p style='margin:0.3em 0;border-left:4px solid {color};padding-left:0.6em'>{html.escape(sentence)}</p>"
    pictures = "".join(svg(panel) for panel in panels if len(panel.axis) > 1 and panel.curves.size)
    return f"<div>{head}<table style='font-size:90%'>{cells}</table><div>{pictures}</div></div>"


def svg(panel: Panel) -> str:
    """SVG of a panel, with the ends of its axes labeled."""
    axis, curves = _thinned(panel)
    low, high = _range(curves)
    begin, end = float(axis[0]), max(float(axis[-1]), float(axis[0]) + 1e-12)
    x = LEFT + (axis - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)
    y = HEIGHT - BOTTOM - (curves - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    lines = []
    for j in range(curves.shape[1]):
        fine = np.isfinite(y[:, j])
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[fine], y[fine, j], strict=True))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[j % len(COLORS)]}" stroke-width="1.3"/>')
    shown = (lambda v: f"1e{v:.0f}") if panel.logarithmic else (lambda v: f"{v:.3g}")
    texts = [
        _text(LEFT, TOP - 8, panel.title, "start", bold=True),
        _text(LEFT - 4, TOP + 8, shown(high), "end"),
        _text(LEFT - 4, HEIGHT - BOTTOM, shown(low), "end"),
        _text(LEFT, HEIGHT - 8, f"{begin:.3g}", "start"),
        _text(WIDTH - RIGHT, HEIGHT - 8, f"{end:.3g}", "end"),
    ]
    frame = (
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}" '
        'fill="white" stroke="#bbbbbb"/>'
    )
    return (
        f'<svg width="{WIDTH:.0f}" height="{HEIGHT:.0f}" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" '
        f'aria-label="{html.escape(panel.title, quote=True)}" style="background:white">'
        f"{frame}{''.join(lines)}{''.join(texts)}{_legend(panel)}</svg>"
    )


def _thinned(panel: Panel) -> tuple[Array, Array]:
    chosen = np.unique(np.linspace(0, len(panel.axis) - 1, POINTS).astype(int))
    curves = np.asarray(panel.curves, dtype=float)[chosen]
    if panel.logarithmic:
        with np.errstate(invalid="ignore"):
            curves = np.log10(np.maximum(np.abs(curves), MIN_PLOTTED))
    return np.asarray(panel.axis, dtype=float)[chosen], curves


def _range(curves: Array) -> tuple[float, float]:
    fine = curves[np.isfinite(curves)]
    low, high = (float(fine.min()), float(fine.max())) if fine.size else (0.0, 1.0)
    pad = max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-9)
    return (low, high) if high - low >= pad else (low - 0.5 * pad, high + 0.5 * pad)


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False, color: str = "#333333") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="10" font-family="sans-serif" text-anchor="{anchor}" '
        f'fill="{color}"{weight}>{html.escape(text)}</text>'
    )


def _legend(panel: Panel) -> str:
    if not panel.names or len(panel.names) > NAMED:
        return ""
    return "".join(
        _text(WIDTH - RIGHT - 4, TOP + 12 + 11 * j, name, "end", color=COLORS[j % len(COLORS)])
        for j, name in enumerate(panel.names)
    )
