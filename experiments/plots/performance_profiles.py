"""Performance profiles: fraction of problems that a solver solves within a factor of the best solver on each problem.

E. D. Dolan, J. J. More, Benchmarking optimization software with performance profiles, Math. Program. 91, 2002.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from .canvas import COLORS, LINES, PANEL_HEIGHT, PANEL_WIDTH, figure, legend

FLOOR = 1e-8
"""Smaller values are drawn at this value of the logarithmic axis."""


class Profile(NamedTuple):
    """One panel: axis label, and the values of each solver, one per problem, infinite for failures."""

    label: str
    values: Mapping[str, Array]


def draw_profiles(rows: Mapping[str, Sequence[Profile]], path: Path) -> None:
    """Write a plot with one row of panels per group of problems; all rows have the same number of panels."""
    columns = max(len(panels) for panels in rows.values())
    width, height = columns * PANEL_WIDTH + 0.8, len(rows) * (PANEL_HEIGHT + 0.66) + 0.6
    with figure(path, len(rows), columns, width, height, "Performance profiles") as axes:
        for i, (group, panels) in enumerate(rows.items()):
            for j, panel in enumerate(panels):
                axis = axes[i][j]
                for k, (solver, values) in enumerate(panel.values.items()):
                    finite = np.sort(values[np.isfinite(values)])
                    fraction = np.arange(1, len(finite) + 1) / max(len(values), 1)
                    line = LINES[k % len(LINES)]
                    axis.step(
                        np.maximum(finite, FLOOR),
                        fraction,
                        line,
                        where="post",
                        label=solver,
                        color=COLORS[k % len(COLORS)],
                    )
                axis.set(xscale="log", xlabel=panel.label, ylim=(0.0, 1.02))
                axis.xaxis.set_minor_formatter("")
            axes[i][0].set_ylabel(f"fraction of {group}")
        legend(axes)
