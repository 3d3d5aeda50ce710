"""Plots of solutions: states and controls with limits, path of the end effector, convergence.

Each joint has its own panel, so that limits remain legible on humanoids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import inverse_dynamics
from trajopt import OCP, IterationRecord, Solution
from trajopt.config.task import Task, position_of
from ..view.scenes import can_be_drawn, task_scene, with_motion_times
from .canvas import (
    BLUE,
    BOTTOM,
    COLORS,
    GRAY,
    GREEN,
    LINES,
    ORANGE,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    figure,
    legend,
)
from .gait_plots import leg_pictures
from .robot_picture import draw_poses
from .sheet import Curve, Graph, draw_sheet
from .side_by_side import draw

NEAR = 0.6  # a limit farther from the curve than this fraction of its span is printed, not drawn
MIN_SPAN = 0.05  # smallest span of a panel's axis, as a fraction of the largest span in the plot
FLAT = 1e-6  # [m] coordinates that change less are not drawn
TINY = 1e-16  # floor of logarithmic plots
SIGNED = 0.95  # [in] left margin for ticks such as -0.0125, and the label of the axis


class Panel(NamedTuple):
    """One curve: times (M,), values (M,), limits (infinite if none). held: piecewise constant between knots."""

    title: str
    unit: str
    times: Array
    values: Array
    lower: float = -np.inf
    upper: float = np.inf
    held: bool = False


def plot_solution(solution: Solution, folder: Path, task: Task | None = None) -> list[Path]:
    """Write all plots of a solution; without its task, only those that need neither limits nor a robot."""
    folder.mkdir(parents=True, exist_ok=True)
    solution = with_motion_times(solution, task)
    pictures: dict[Path, Callable[[], object]] = {}
    if task is not None and can_be_drawn(task.ocp.model):
        poses, scene = folder / "poses.png", task_scene(solution, task, solution.meta.get("config"))
        pictures[poses] = lambda: draw_poses(poses, scene)
    for name, (title, panels) in _panels(solution, task).items():
        if panels:
            pictures[folder / f"{name}.png"] = partial(plot_panels, folder / f"{name}.png", title, panels)
    if task is not None and task.frame is not None and task.ocp.model is not None:
        pictures[folder / "end_effector.png"] = partial(plot_path, folder / "end_effector.png", solution, task)
    if task is not None and task.feet and task.ocp.model is not None:
        pictures |= leg_pictures(solution, folder, task)
    if solution.history:
        tolerances, path = solution.meta.get("options", {}), folder / "convergence.png"
        attempts = solution.meta.get("attempts", ())
        pictures[path] = partial(plot_convergence, path, solution.history, tolerances, solution.status.code, attempts)
    return draw(pictures)


def _panels(solution: Solution, task: Task | None) -> dict[str, tuple[str, list[Panel]]]:
    """Return title and panels by file name."""
    controls = _control_panels(solution, task)
    if task is None or task.ocp.model is None:
        names = solution.meta.get("state_names") or []
        if len(names) != solution.xs.shape[1]:
            names = [f"x[{i}]" for i in range(solution.xs.shape[1])]
        states = [Panel(n, "", solution.times, x) for n, x in zip(names, solution.xs.T, strict=True)]
        return {"states": ("States", states), "controls": ("Controls", controls)}
    positions, velocities = _state_panels(solution, task.ocp.model)
    return {
        "positions": ("Joint positions", positions),
        "velocities": ("Joint velocities", velocities),
        **_control_panels_by_file(solution, task, controls),
    }


def _control_panels_by_file(
    solution: Solution, task: Task, controls: list[Panel]
) -> dict[str, tuple[str, list[Panel]]]:
    """Return the panels of the controls; for joint accelerations also the joint torques from inverse dynamics."""
    model, names = task.ocp.model, solution.meta.get("control_names") or []
    if names[: model.nv] != [f"a[{name}]" for name in model.dof_names]:
        return {"controls": ("Joint forces and torques", controls)}
    lasting, nq, nv = _positive_steps(solution), model.nq, model.nv
    x, times = solution.xs[:-1][lasting], np.append(solution.times[:-1][lasting], solution.times[-1])
    forces = inverse_dynamics(model, x[:, :nq], x[:, nq : nq + nv], solution.us[lasting, :nv])
    held, limit = np.vstack([forces, forces[-1:]]), model.effort_limit
    panels = [
        Panel(*_control_label(name, task), times, held[:, i], -limit[i], limit[i], held=True)
        for i, name in enumerate(model.dof_names)
    ]
    return {
        "controls": ("Joint accelerations", controls),
        "torques": ("Joint forces and torques at the knots", panels),
    }


def _state_panels(solution: Solution, model: Any) -> tuple[list[Panel], list[Panel]]:
    q, v = solution.xs[:, : model.nq].T, solution.xs[:, model.nq :].T
    positions = [
        Panel(name, model.q_units[i], solution.times, q[i], model.q_lower[i], model.q_upper[i])
        for i, name in enumerate(model.q_names)
    ]
    limit = model.velocity_limit
    velocities = [
        Panel(name, f"{model.dof_units[i]}/s", solution.times, v[i], -limit[i], limit[i])
        for i, name in enumerate(model.dof_names)
    ]
    return positions, velocities


def _control_panels(solution: Solution, task: Task | None) -> list[Panel]:
    names = solution.meta.get("control_names") or [f"u[{i}]" for i in range(solution.us.shape[1])]
    lower, upper = _control_limits(solution, task)
    lasting = _positive_steps(solution)
    held, times = solution.us[lasting], np.append(solution.times[:-1][lasting], solution.times[-1])
    held = np.vstack([held, held[-1:]])
    return [
        Panel(*_control_label(name, task), times, held[:, i], lower[i], upper[i], held=True)
        for i, name in enumerate(names)
    ]


def _positive_steps(solution: Solution) -> Array:
    """Mask (N,) of time steps with positive duration; controls of zero-length steps are no forces."""
    return np.diff(solution.times) > 0.0


def _control_label(name: str, task: Task | None) -> tuple[str, str]:
    """Return title and unit of a control. A robot's controls are named u[joint] (force) or a[joint] (acceleration)."""
    model, joint = (None if task is None else task.ocp.model), name.removeprefix("u[").removesuffix("]")
    accelerates = joint.startswith("a[")
    joint = joint.removeprefix("a[")
    if model is None or joint not in model.dof_names:
        return name, ""
    unit = model.dof_units[model.dof_names.index(joint)]
    return joint, f"{unit}/s^2" if accelerates else "N" if unit == "m" else "N m"


def _control_limits(solution: Solution, task: Task | None) -> tuple[Array, Array]:
    """Return lower and upper control limits (nu,): the problem's bounds, else the model's effort limits."""
    nu = solution.us.shape[1]
    if task is None:
        return np.full(nu, -np.inf), np.full(nu, np.inf)
    if task.ocp.control_bounds is not None:
        lower, upper = task.ocp.control_bounds
        lasting = _positive_steps(solution)
        return lower[lasting].max(axis=0), upper[lasting].min(axis=0)
    return _effort_limits(task.ocp)


def _effort_limits(ocp: OCP) -> tuple[Array, Array]:
    model = ocp.model
    known = dict(zip(model.dof_names, model.effort_limit, strict=True)) if model is not None else {}
    limits = np.array([known.get(n.removeprefix("u[").removesuffix("]"), np.inf) for n in ocp.control_names])
    return -limits, limits


def plot_panels(path: Path, title: str, panels: Sequence[Panel]) -> Path:
    """Plot one small panel per curve, over a common time axis."""
    columns = min(len(panels), 2 if len(panels) <= 4 else 3 if len(panels) <= 12 else 5)
    rows = -(-len(panels) // columns)
    size = (PANEL_WIDTH * max(columns, 2), PANEL_HEIGHT * rows + 0.7)
    least = MIN_SPAN * max(float(np.ptp(panel.values)) for panel in panels)
    return draw_sheet(path, title, [_graph(panel, least) for panel in panels], columns, *size)


def _graph(panel: Panel, least_span: float) -> Graph:
    low, high = float(np.nanmin(panel.values)), float(np.nanmax(panel.values))
    span = max(high - low, least_span, 1e-3 * max(abs(low), abs(high)), TINY)
    near = [b for b in (panel.lower, panel.upper) if np.isfinite(b) and low - NEAR * span <= b <= high + NEAR * span]
    low, high = min([low, *near]), max([high, *near])
    pad = 0.5 * max(span - (high - low), 0.0) + 0.08 * max(high - low, span)
    limited = bool(np.isfinite([panel.lower, panel.upper]).any())
    note = f"limits {panel.lower:.3g} … {panel.upper:.3g}" if limited else ""
    curve = Curve(panel.times, panel.values, BLUE, panel.held)
    return Graph(panel.title, panel.unit, [curve], low - pad, high + pad, near, note, _violated(panel))


def _violated(panel: Panel) -> bool:
    return bool(np.any(panel.values < panel.lower) or np.any(panel.values > panel.upper))


# -- end effector --------------------------------------------------------------------------------------------


def plot_path(path: Path, solution: Solution, task: Task) -> Path:
    """Plot the path of the task's frame in three projections, and its distance to the goal (else its speed) over time.

    A planar robot has one projection.
    """
    model, frame = task.ocp.model, str(task.frame)
    p = position_of(model, frame, solution.xs[:, : model.nq])
    moving = np.ptp(p, axis=0) > FLAT
    views = [view for view in ((0, 2), (1, 2), (0, 1)) if moving[list(view)].all()] or [(0, 2)]
    rows = 1 if len(views) == 1 else 2
    with figure(path, rows, 2, 7.9, 3.4 * rows + 0.4, f"Path of {frame}", left=SIGNED) as axes:
        for axis, (i, j) in zip(axes.flat, views, strict=False):
            _draw_projection(axis, p, i, j, task.goal)
        _draw_progress(axes.flat[len(views)], solution.times, p, task.goal)
        legend(axes)
    return path


def _draw_projection(axis: Any, p: Array, i: int, j: int, goal: Array | None) -> None:
    axis.plot(p[:, i], p[:, j], color=BLUE)
    every = max(1, len(p) // 10)
    axis.plot(p[::every, i], p[::every, j], ".", color=BLUE, markersize=4)
    axis.plot(*p[0, [i, j]], "o", color=BLUE, markerfacecolor="white", markersize=7, label="start")
    if goal is None:
        axis.plot(*p[-1, [i, j]], "s", color=BLUE, markersize=6, label="end")
    else:  # same color as in the 3D viewer
        axis.plot(*goal[[i, j]], "x", color=GREEN, markersize=9, markeredgewidth=2, label="goal")
    axis.set_xlabel(f"{'xyz'[i]} [m]")
    axis.set_ylabel(f"{'xyz'[j]} [m]")
    axis.set_aspect("equal", adjustable="datalim")
    axis.margins(0.12)


def _draw_progress(axis: Any, times: Array, p: Array, goal: Array | None) -> None:
    axis.set_xlabel("time [s]")
    if goal is not None:
        axis.plot(times, np.linalg.norm(p - goal, axis=1), color=BLUE)
        axis.set_ylabel("distance to the goal [m]")
    else:
        lasting = np.diff(times) > 0.0
        speed = np.linalg.norm(np.diff(p, axis=0), axis=1)[lasting] / np.diff(times)[lasting]
        axis.plot(times[:-1][lasting], speed, color=BLUE)
        axis.set_ylabel("speed [m/s]")
    axis.set_ylim(bottom=0)
    axis.margins(x=0.01)


# -- convergence ---------------------------------------------------------------------------------------------


def plot_convergence(
    path: Path,
    history: Sequence[IterationRecord],
    options: Mapping[str, Any] | None = None,
    end: str = "",
    attempts: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Plot distance to the final cost, gradient and defects over the iterations, with tolerances.

    end: status code for the title, since no curve shows a termination by small cost changes. attempts: those of the solver auto
    ("solver", "iterations"), which a line separates if the history has the records of all of them.
    """
    options = options or {}
    counts = [attempt["iterations"] + 1 for attempt in attempts]  # the last record of an attempt is that of its result
    starts = np.cumsum(counts)[:-1].tolist() if sum(counts) == len(history) else []
    parts = [history[a:b] for a, b in pairwise([0, *starts, len(history)])]
    with figure(path, 1, 2, 8.6, 3.6, f"Convergence{f', status {end}' if end else ''}") as axes:
        cost, residual = axes.flat
        for part in parts:
            _draw_excess(cost, part, history[-1].cost, color=BLUE, markersize=3)
        _draw_residuals(residual, parts, options)
        for axis in axes.flat if starts else ():
            for start, attempt in zip([0, *starts], attempts, strict=True):
                at = history[start].iteration
                axis.axvline(at - 0.5, color=GRAY, linestyle=":", linewidth=1.0, alpha=1.0 if start else 0.0)
                place = axis.get_xaxis_transform()
                axis.text(at - 0.3, 0.01, attempt["solver"], color=GRAY, fontsize=8, transform=place, clip_on=True)
    return path


def _draw_excess(axis: Any, history: Sequence[IterationRecord], best: float, **style: Any) -> None:
    """Plot |cost - best| where it exceeds rounding errors."""
    excess = np.array([abs(r.cost - best) for r in history])
    shown = excess > 1e-15 * max(abs(best), 1.0)
    axis.semilogy(np.array([r.iteration for r in history])[shown], excess[shown], marker="o", **style)
    axis.set_title("cost - final cost")
    axis.set_xlabel("iteration")
    _plain_ticks(axis)


def _draw_residuals(axis: Any, parts: Sequence[Sequence[IterationRecord]], options: Mapping[str, Any]) -> None:
    """Plot gradients and defects; parts: records that lines connect."""
    for label, color in (("gradient", BLUE), ("defect", ORANGE)):
        if not any(getattr(r, label) > TINY for part in parts for r in part):
            continue
        for i, part in enumerate(parts):
            values = np.array([getattr(r, label) for r in part])
            at, name = [r.iteration for r in part], {"label": label} if i == 0 else {}
            axis.semilogy(at, np.where(values > TINY, values, np.nan), "o-", color=color, markersize=3, **name)
        tolerance = options.get(f"{label}_tolerance")
        if tolerance:
            axis.axhline(tolerance, color=color, linestyle="--", linewidth=1.0, label=f"{label} tolerance")
    axis.set_title("gradient and defects")
    axis.set_xlabel("iteration")
    if axis.get_legend_handles_labels()[0]:  # none without a positive number, as of a solve that failed at its guess
        axis.legend(fontsize=8)
    _plain_ticks(axis)


def plot_comparison(path: Path, histories: Mapping[tuple[str, str], Sequence[IterationRecord]], title: str) -> Path:
    """Plot solves of one problem by (solver, backend): cost and gradient over iterations, gradient over time.

    Colors stand for backends, line styles for solvers. Later curves are thinner, so that coinciding curves remain visible.
    """
    best = min(history[-1].cost for history in histories.values())
    solvers, backends = (list(dict.fromkeys(key[i] for key in histories)) for i in (0, 1))
    columns = min(4, len(histories))
    below = BOTTOM + 0.2 * -(-len(histories) // columns)
    with figure(path, 1, 3, 12.0, 4.4, title, bottom=below) as axes:
        for i, ((solver, backend), history) in enumerate(histories.items()):
            style = {
                "color": COLORS[backends.index(backend) % len(COLORS)],
                "linestyle": LINES[solvers.index(solver) % len(LINES)],
                "linewidth": 1.2 + 2.0 * (len(histories) - 1 - i) / len(histories),
                "markersize": 3,
            }
            _draw_excess(axes.flat[0], history, best, label=f"{solver}, {backend}", **style)
            gradient = [r.gradient for r in history]
            axes.flat[1].semilogy([r.iteration for r in history], gradient, marker="o", **style)
            elapsed = np.cumsum([sum(r.times.values()) for r in history])
            axes.flat[2].semilogy(elapsed, gradient, marker="o", **style)
        for axis, name in zip(axes.flat[1:], ("iteration", "time [s]"), strict=True):
            axis.set_title("gradient")
            axis.set_xlabel(name)
            _plain_ticks(axis, whole=name == "iteration")
        legend(axes, "lower center", ncols=columns, fontsize=8)
    return path


def _plain_ticks(axis: Any, whole: bool = True) -> None:
    """Format powers of ten as 1e-3, without typesetting. whole: integer ticks on the horizontal axis."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.0e}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    if whole:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
