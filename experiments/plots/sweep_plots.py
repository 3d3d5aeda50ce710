"""Plots of a study: success rate and cost of solutions over each varied value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt import Sweep
from trajopt.sweeps.results import by_entry
from .canvas import BLUE, GRAY, PANEL_HEIGHT, RED, figure

MAX_PANELS = 12
"""Maximum number of varied keys that are drawn."""
BINS = 10
FEW = 12
"""Maximum number of distinct numbers that are drawn as separate groups."""
WIDTH = 8.2  # [in]
MAX_LABEL = 24
"""Maximum number of characters of a label."""


def plot_sweep(found: Sweep, path: Path) -> Path:
    """Plot a study that has finished rows, with one row of panels per varied value."""
    success, cost = (found.group[name][:][found.finished] for name in ("success", "cost"))
    columns = {name: values for key in found.keys for name, values in by_entry(key, found.values(key)).items()}
    shown = dict(list(columns.items())[:MAX_PANELS])
    title = f"{int(success.sum())} of {len(success)} rows solved"
    height = 0.7 + (PANEL_HEIGHT + 0.55) * len(shown)
    with figure(path, len(shown), 2, WIDTH, height, title) as axes:
        for (left, right), (name, values) in zip(axes, shown.items(), strict=True):
            at, labels, group = places(values)
            _draw_success(left, at, group, success)
            _draw_cost(right, at if labels else values, group if labels else None, cost, success)
            for axis in (left, right):
                axis.set_xlabel(name if len(name) <= 2 * MAX_LABEL else f"...{name[-2 * MAX_LABEL :]}")
                if labels:
                    axis.set_xticks(at, labels)
        axes[0][0].set_title("success rate with standard error")
        axes[0][1].set_title("cost of solved rows")
    return path


def places(values: Array) -> tuple[Array, list[str], Array]:
    """Return positions of the groups (m,), their labels (none for bins of numbers), and the group of each value."""
    texts = values.dtype.kind not in "bif"
    distinct, group = np.unique([str(v) for v in values] if texts else values, return_inverse=True)
    if texts or len(distinct) <= FEW:
        return np.arange(len(distinct)), [_label(v) for v in distinct], group
    edges = np.linspace(values.min(), values.max(), BINS + 1)
    return (edges[:-1] + edges[1:]) / 2.0, [], np.clip(np.searchsorted(edges, values, "right") - 1, 0, BINS - 1)


def _label(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, np.floating) else str(value)
    return text if len(text) <= MAX_LABEL else f"{text[:MAX_LABEL]}..."


def _draw_success(axis: Any, at: Array, group: Array, success: Array) -> None:
    counts = np.bincount(group, minlength=len(at))
    nonempty = counts > 0
    rate = np.bincount(group, success, len(at))[nonempty] / counts[nonempty]
    error = np.sqrt(rate * (1.0 - rate) / counts[nonempty])
    width = 0.8 * (at[1] - at[0] if len(at) > 1 else 1.0)
    axis.grid(False, axis="x")
    axis.set_axisbelow(True)
    axis.bar(at[nonempty], rate, width, yerr=error, color=BLUE, ecolor=GRAY)
    axis.set_ylim(0.0, 1.05)


def _draw_cost(axis: Any, at: Array, group: Array | None, cost: Array, success: Array) -> None:
    """Draw one point per solution, and the median of each group."""
    good = success & np.isfinite(cost)
    where = at if group is None else at[group] + np.linspace(-0.3, 0.3, len(group))
    axis.plot(where[good], cost[good], ".", color=BLUE, markersize=4, alpha=0.5, markeredgewidth=0)
    for i in range(0 if group is None else len(at)):
        if (good & (group == i)).any():
            axis.plot(at[i], np.median(cost[good & (group == i)]), "_", color=RED, markersize=18, markeredgewidth=2)
    if good.any() and cost[good].min() > 0 and cost[good].max() > 100.0 * cost[good].min():
        axis.set_yscale("log")
