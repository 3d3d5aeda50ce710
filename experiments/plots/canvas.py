"""Colors, style and figure layout shared by all plots. matplotlib is imported only to draw."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BLUE, RED, GRAY, GREEN, ORANGE = "#1f5fa8", "#c03a2b", "#8a8f98", "#2a8a4a", "#d98a1f"
INK, GRID = "#5b6472", "#e3e6ea"
"""Colors of panel frames and of grid lines."""
COLORS = (BLUE, ORANGE, GREEN, RED, "#7a4fa3", "#3a9aa8", "#8c6d46", INK)
LINES = ("-", "--", ":", "-.")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # fixed, which skips matplotlib's search for a position
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,  # bars hide the grid
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.handlelength": 2.8,  # long enough to show dashes next to a marker
    "figure.dpi": 110,
    "savefig.dpi": 150,
}
PNG_COMPRESSION = 2
"""PNG compression level: files are a fifth larger than at level 6, and written in a third of the time."""
PANEL_WIDTH, PANEL_HEIGHT = 3.3, 2.0  # [in]
POINTS = 72.0
"""Points per inch."""
HANDLE, TITLE = 0.7, 1.2
"""Width of a legend's line with its spaces, and of a title beside a legend [in]."""
TICK = 14.0
"""Width of a tick and the space on both sides of its label [points]."""


LEFT, RIGHT, TOP, BOTTOM = 0.68, 0.16, 0.62, 0.52  # [in] around the panels, for labels and the title
BETWEEN_COLUMNS, BETWEEN_ROWS, BETWEEN_SHARED_ROWS = (
    0.72,
    0.66,
    0.38,
)  # [in]; rows that share an axis have no labels between them


@contextmanager
def figure(
    path: Path,
    rows: int,
    columns: int,
    width: float,
    height: float,
    title: str,
    *,
    left: float = LEFT,
    right: float = RIGHT,
    bottom: float = BOTTOM,
    **options: Any,
):
    """Create a grid of axes in the shared style, and save it to ``path`` at the end. left, right, bottom: margins [in].

    Panel positions are computed here, since matplotlib's automatic layout takes longer than drawing.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        drawing = Figure(figsize=(width, height))
        FigureCanvasAgg(drawing)
        between = BETWEEN_SHARED_ROWS if options.get("sharex") else BETWEEN_ROWS
        panel_width = (width - left - right - (columns - 1) * BETWEEN_COLUMNS) / columns
        panel_height = (height - TOP - bottom - (rows - 1) * between) / rows
        places = {
            "left": left / width,
            "right": 1.0 - right / width,
            "bottom": bottom / height,
            "top": 1.0 - TOP / height,
        }
        places |= {"wspace": BETWEEN_COLUMNS / panel_width, "hspace": between / panel_height}
        ratios = {key: options.pop(key) for key in ("height_ratios",) if key in options}
        axes = drawing.subplots(rows, columns, squeeze=False, gridspec_kw={**places, **ratios}, **options)
        drawing.suptitle(
            title, x=0.08 / width, y=1.0 - 0.08 / height, ha="left", va="top", fontsize=11, fontweight="bold"
        )
        yield axes
        drawing.savefig(path, pil_kwargs={"compress_level": PNG_COMPRESSION} if path.suffix == ".png" else None)


def text_width(text: str, size: float = STYLE["font.size"]) -> float:
    """Return the width [in] of a text in a font size [points]."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0]) / POINTS


def margin_for(names: Sequence[str]) -> float:
    """Return the left margin [in] for tick labels of a vertical axis, at least LEFT."""
    return max(LEFT, max(map(text_width, names)) + TICK / POINTS)


def legend(axes: Any, where: str = "upper right", **options: Any) -> None:
    """Draw one legend for all panels, with the labels of the first panel: beside the title or below the panels.

    Labels that are too long for a row beside the title are listed in the first panel.
    """
    first = axes.flat[0]
    handles, labels = first.get_legend_handles_labels()
    row = sum(text_width(label) + HANDLE for label in labels)
    if where == "upper right" and row > first.figure.get_figwidth() - TITLE:
        first.legend(handles, labels, fontsize=8, frameon=True)
        return
    options = {"ncols": len(labels), "borderaxespad": 0.2, **options}
    first.figure.legend(handles, labels, loc=where, **options)
