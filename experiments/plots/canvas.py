"""The canvas of all pictures: colors, style, and a figure that is written when it is done. matplotlib is imported only to draw."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

BLUE, RED, GRAY, GREEN, ORANGE = "#1f5fa8", "#c03a2b", "#8a8f98", "#2a8a4a", "#d98a1f"
COLORS = (BLUE, ORANGE, GREEN, RED, "#7a4fa3", "#3a9aa8", "#8c6d46", "#5b6472")
LINES = ("-", "--", ":", "-.")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#5b6472",
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.dpi": 110,
    "savefig.dpi": 150,
}
PANEL_WIDTH, PANEL_HEIGHT = 3.3, 2.0  # [in]


@contextmanager
def figure(path: Path, rows: int, columns: int, width: float, height: float, title: str, **options: Any):
    """A grid of axes in the shared style, written to ``path`` at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **options
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        try:
            yield axes
            figure.savefig(path)
        finally:
            plt.close(figure)
