"""Reports of a solution: plain text, the console table of iterations, and an HTML summary for notebooks.

The summary has a table, and plots of states, controls and convergence. The plots are SVG written by this module, so that notebooks
need no plotting package.
"""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.results.records import IterationRecord
from trajopt.results.status import Status, StatusCode, iterations_text

HEADER_EVERY = 10
# title, attribute, width, format, meaning
_COLUMNS = (
    ("iter", "iteration", 5, "d", "iteration: its start, and the step taken from there"),
    ("cost", "cost", 14, ".7e", "total cost"),
    ("merit", "merit", 14, ".7e", "cost + penalty * l1 norm of the defects; what the line search reduces"),
    ("stop", "stop", 9, ".1e", "max(|grad| / its tolerance, defect / its tolerance); converged at 1"),
    (
        "|grad|",
        "gradient",
        9,
        ".1e",
        "largest entry of the reduced gradient in the controls, projected on their bounds",
    ),
    ("kkt", "kkt", 9, ".1e", "scaled KKT error: gradient relative to its terms, defects, complementarity"),
    ("reg", "regularization", 9, ".1e", "mu, the regularization of the backward sweep"),
    ("step", "step_norm", 9, ".1e", "largest entry of the change of states and controls; 0 if it was rejected"),
    ("defect", "defect", 9, ".1e", "largest defect at a shooting node"),
    ("constr", "constraint_violation", 9, ".1e", "largest violation of bounds and constraints"),
    ("expected", "expected_decrease", 10, ".2e", "decrease of the merit that the LQ model predicts"),
    ("actual", "actual_decrease", 10, ".2e", "decrease of the merit in the rollout"),
    ("alpha", "step_length", 9, ".2e", "step length"),
    (
        "hessian",
        "hessian",
        13,
        "s",
        "second derivatives used: of the cost, and of the dynamics in DDP",
    ),
)
_SHORT = ("iteration", "cost", "gradient", "defect", "step_length")
_LONG = ("hessian",)


class Reported(Protocol):
    """Attributes of a :class:`~trajopt.results.solution.Solution` that reports use."""

    @property
    def status(self) -> Status: ...
    @property
    def cost(self) -> float: ...
    @property
    def iterations(self) -> int: ...
    @property
    def meta(self) -> Mapping[str, Any]: ...
    @property
    def time_total(self) -> dict[str, float]: ...


def cost_and_iterations(solution: Reported) -> str:
    """Text with the cost and the number of iterations; without the cost if it is not finite."""
    cost = f"cost {solution.cost:.10g}, " if math.isfinite(solution.cost) else ""
    return f"{cost}{iterations_text(solution.iterations)}"


class Line(NamedTuple):
    """Sentence of a report. warning: True for a warning."""

    text: str
    warning: bool = False


def report_lines(solution: Reported) -> list[Line]:
    """Report of a solution: status, cost, iterations and time, relaxed problems, barrier strategy, attempts of ``auto``, checks.

    Parts that ``meta`` does not contain are left out. A relaxed problem that was not solved gives a warning. Checks: as in
    :func:`check_lines`.
    """
    meta = solution.meta
    times = ", ".join(f"{name} {value:.3f} s" for name, value in solution.time_total.items())
    total = f", {meta['solve_time']:.3f} s ({times})" if "solve_time" in meta else ""
    lines = [Line(str(solution.status)), Line(cost_and_iterations(solution) + total)]
    if easier := meta.get("easier"):
        lines.append(Line(f"Relaxed problems: {' + '.join(iterations_text(e['iterations']) for e in easier)}."))
        failed = (e for e in enumerate(easier, 1) if not e[1]["success"])
        lines += [Line(f"relaxed problem {number} was not solved: {e['status']}", warning=True) for number, e in failed]
    if "monotone_since" in meta:
        since = meta["monotone_since"]
        lines.append(Line(f"ipm: adaptive barrier made no progress; monotone strategy from iteration {since} on"))
    attempts = meta.get("attempts", ())
    most = max((attempt.get("knots", 0) for attempt in attempts), default=0)
    for number, attempt in enumerate(attempts, 1):
        knots = attempt.get("knots", most)
        on = f" on {knots} knots" if knots < most else ""
        on += f" with durations of {', '.join(f'{T:.3g}' for T in attempt['held'])} s" if attempt.get("held") else ""
        on = " from a coarse solution" if attempt.get("from_coarse") else on
        ended = f"{attempt['status']}, {iterations_text(attempt['iterations'])}"
        lines.append(Line(f"attempt {number}: {attempt['solver']}{on}, {ended}"))
    if "starts_seconds" in meta:
        count, seconds = len(meta["starts"]), meta["starts_seconds"]
        lines.append(Line(f"{count} starts competed on a coarse time grid in {seconds:.3f} s (starts = 1 omits them)"))
    return [*lines, *check_lines(solution)]


def check_lines(solution: Reported) -> list[Line]:
    """Part of a report on the motion: results of the checks after the solve, from ``meta``; empty if the cost is not finite.

    Goals and replay come first, then refinement, violations between knots, and limits; missed goals and other warnings are last.
    Missed goals and violations between knots are left out if the status describes them.
    """
    meta = solution.meta
    if not math.isfinite(solution.cost):
        return []
    goals = meta.get("goals", {})
    lines = [Line(s) for s in (*goals.get("report", ()), *replayed(solution))]
    if "check" in meta:
        lines.append(Line(f"{meta['check']}; solves: {meta['rounds']}"))
    between = meta.get("between_knots", {})
    if between and solution.status.code is not StatusCode.VIOLATED_BETWEEN_KNOTS:  # that status has the sentence
        held = between["ratio"] <= 1.0
        most = f" within their tolerance: {between['sentence']}" if between["sentence"] else ""
        text = f"all inequalities hold{most}" if held else between["sentence"]
        lines.append(Line(f"between the knots: {text}", warning=not held))
    if "limits" in meta:
        lines += _limits(meta["limits"], meta.get("self_collision", ""), solution.status.acceptable)
    missed = () if solution.status.code is StatusCode.GOAL_MISSED else goals.get("missed", ())  # the status lists them
    warnings = [*missed, *meta.get("findings", ()), *meta.get("not_compiled", ())]
    return lines + [Line(s, warning=True) for s in dict.fromkeys(warnings)]


def report(solution: Reported) -> str:
    """Lines of :func:`report_lines` as one text; warnings begin with "warning: "."""
    return "\n".join(f"warning: {line.text}" if line.warning else line.text for line in report_lines(solution))


def _limits(limits: Sequence[Mapping[str, Any]], self_collision: str, usable: bool) -> list[Line]:
    """Lines on exceeded limits, warnings for those that the problem does not enforce; without any, a line that all are satisfied.

    self_collision: sentence to include, or "". usable: False adds to the latter line that the motion is no solution.
    """
    if not limits:
        iterate = "" if usable else " (by an iterate that is not a solution)"
        return [Line(f"all limits are satisfied{iterate}{f'; {self_collision}' if self_collision else ''}")]
    return [*([Line(self_collision)] if self_collision else []), *limit_lines(limits)]


MOST = 3
"""Largest number of exceeded limits of a kind that have a line each, besides a single further one."""


def limit_lines(limits: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Lines on exceeded limits, as of :meth:`~trajopt.validation.limit_violations.LimitViolation.as_meta`; see :data:`MOST`.

    Of a kind with more than MOST + 1 exceeded limits, the MOST worst have their own lines, the others one together.
    """
    kinds, lines = dict[tuple[str, bool], list[Mapping[str, Any]]](), list[Line]()
    for limit in limits:
        kinds.setdefault((limit.get("kind", ""), limit["enforced"]), []).append(limit)
    for (kind, enforced), some in kinds.items():
        count = MOST if kind and len(some) > MOST + 1 else len(some)
        worst = sorted(some, key=lambda limit: -limit["excess"]) if count < len(some) else some
        lines += [Line(limit["sentence"], warning=not enforced) for limit in worst[:count]]
        if rest := ", ".join(limit["short"] for limit in worst[count:]):
            lines.append(Line(f"{len(some) - count} more {kind} violations: {rest}", warning=not enforced))
    return lines


LEFT_OUT = "left_out"
"""Key of meta["replay"] with the reason why there was no replay."""
_RUNS = {"open": "with its controls held", "gains": "with its feedback gains"}


def replayed(solution: Reported) -> list[str]:
    """Sentences on the replay with finer dynamics: deviations of its runs from the plan, or the reason why there was no replay.

    Empty if ``meta`` contains neither.
    """
    runs = solution.meta.get("replay", {})
    if reason := runs.get(LEFT_OUT):
        return [f"not replayed on finer dynamics: {reason}"]
    contacts = f" (contact time constants of {1e3 * runs['slower']:.3g} ms steps)" if "slower" in runs else ""
    sentences = []
    for key, how in _RUNS.items():
        run = runs.get(key)
        if run is None:
            continue
        if run["x"] is None:
            sentences.append(f"replayed on finer dynamics{contacts}, {how}: the motion diverges")
            continue
        amount, limit = (f"{run[k]:.2g} {run['unit']}".strip() for k in ("amount", "limit"))
        sentences.append(
            f"replayed on finer dynamics{contacts}, {how}: within {amount} of the plan ({run['name']}, tolerance {limit})"
        )
    return sentences


def _level(key: str) -> int:
    """Minimum verbosity at which a column is shown: 1 for the main ones, 3 for the Hessian, else 2."""
    return 1 if key in _SHORT else 3 if key in _LONG else 2


class ConsoleTable:
    """Callback that prints one line per iteration.

    stream: output stream, default standard output. verbosity: 0 nothing, 1 the main columns, 2 all numbers, 3 also the
    Hessian and the time of each phase. Call :meth:`finish` to print the final status and the footer. Raises ValueError for another
    verbosity.
    """

    def __init__(self, stream: TextIO | None = None, verbosity: int = 2) -> None:
        if verbosity not in (0, 1, 2, 3):
            raise ValueError(f"verbosity = {verbosity!r}; expected 0, 1, 2 or 3")
        self.stream = stream
        self.verbosity = verbosity
        self.columns = [c for c in _COLUMNS if verbosity >= _level(c[1])]
        self._rows = 0

    def __call__(self, record: IterationRecord) -> None:
        """Print a record as one row, after the column titles every HEADER_EVERY rows; nothing with verbosity 0."""
        if self.verbosity == 0:
            return
        if self._rows % HEADER_EVERY == 0:
            self._print(" ".join(f"{title:>{width}}" for title, _, width, _, _ in self.columns))
        cells = [f"{getattr(record, key):>{width}{form}}" for _, key, width, form, _ in self.columns]
        if self.verbosity >= 3:
            cells.append("  ".join(f"{name} {1e3 * value:.1f} ms" for name, value in record.times.items()))
        self._print(" ".join(cells))
        self._rows += 1

    def finish(self, solution: Reported) -> None:
        """Print the footer, the status, cost and iterations of the solve, and the time by phase; nothing with verbosity 0."""
        if self.verbosity == 0:
            return
        self.footer()
        times = ", ".join(f"{name} {value:.3f} s" for name, value in solution.time_total.items())
        self._print(f"{solution.status}\n{cost_and_iterations(solution)}; {times}")

    def footer(self) -> None:
        """Print the meaning of each column, if any row was printed since the table was created."""
        if self._rows:
            self._print(self.legend())

    def legend(self) -> str:
        """Return the meaning of each column, one per line."""
        return "\n".join(f"{title:>10}  {meaning}" for title, _, _, _, meaning in self.columns)

    def _print(self, line: str) -> None:
        """Print a line to the stream, or to the present standard output without one, and flush it."""
        print(line, file=self.stream or sys.stdout, flush=True)


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
    """HTML with a sentence, a table of ``rows``, and the panels side by side; panels with fewer than two points are left out.

    success: True for a green bar beside the sentence, else red.
    """
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
    """SVG element of a panel, with curves (M, n) over its axis and numbers at the ends of both axes.

    Curves have at most POINTS points; points that are not finite are omitted.
    """
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
    """Axis and curves (logarithms if requested) at no more than POINTS points."""
    chosen = np.unique(np.linspace(0, len(panel.axis) - 1, POINTS).astype(int))
    curves = np.asarray(panel.curves, dtype=float)[chosen]
    if panel.logarithmic:
        with np.errstate(invalid="ignore"):
            curves = np.log10(np.maximum(np.abs(curves), MIN_PLOTTED))
    return np.asarray(panel.axis, dtype=float)[chosen], curves


def _range(curves: Array) -> tuple[float, float]:
    """Limits of the vertical axis, with a margin around nearly constant curves; entries that are not finite are ignored."""
    fine = curves[np.isfinite(curves)]
    low, high = (float(fine.min()), float(fine.max())) if fine.size else (0.0, 1.0)
    pad = max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-9)
    return (low, high) if high - low >= pad else (low - 0.5 * pad, high + 0.5 * pad)


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False, color: str = "#333333") -> str:
    """SVG element of a text at (x, y) in pixels; anchor: the part of the text at this point, "start" or "end"."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="10" font-family="sans-serif" text-anchor="{anchor}" '
        f'fill="{color}"{weight}>{html.escape(text)}</text>'
    )


def _legend(panel: Panel) -> str:
    """SVG elements with the names of the curves; "" without names and for more than NAMED of them."""
    if not panel.names or len(panel.names) > NAMED:
        return ""
    return "".join(
        _text(WIDTH - RIGHT - 4, TOP + 12 + 11 * j, name, "end", color=COLORS[j % len(COLORS)])
        for j, name in enumerate(panel.names)
    )
