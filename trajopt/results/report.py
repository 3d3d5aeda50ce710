"""A plain-text table of the iterations."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TextIO

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.results.records import IterationRecord
from trajopt.results.solution import Solution

HEADER_EVERY = 10
# title, attribute, width, format, meaning
_COLUMNS = (
    ("iter", "iteration", 5, "d", "iteration; the row tells where it started and the step it took"),
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
    ("kkt", "kkt", 9, ".1e", "scaled measure of optimality: gradient relative to its terms, gaps, complementarity"),
    ("reg", "regularization", 9, ".1e", "mu, the regularization of the backward sweep"),
    ("step", "step_norm", 9, ".1e", "largest entry of the change of states and controls; 0 if it was rejected"),
    ("defect", "defect", 9, ".1e", "largest gap between a shooting node and the roll-out that leads to it"),
    ("constr", "constraint_violation", 9, ".1e", "largest violation of bounds and constraints"),
    ("expected", "expected_decrease", 10, ".2e", "decrease of the merit that the LQ model predicts"),
    ("actual", "actual_decrease", 10, ".2e", "decrease of the merit that the roll-out found"),
    ("alpha", "step_length", 9, ".2e", "step length"),
    (
        "hessian",
        "hessian",
        13,
        "s",
        "second derivatives that were used: of the cost, and of the dynamics under DDP",
    ),
)
_SHORT = ("iteration", "cost", "gradient", "defect", "step_length")
_LONG = ("hessian",)


def account(solution: Solution) -> str:
    """Cost and iterations; without a cost where there is none."""
    cost = f"cost {solution.cost:.10g}, " if math.isfinite(solution.cost) else ""
    return f"{cost}{solution.iterations} iterations"


WITHIN = 1e-3
"""A replay that ends nearer to the plan than this, in its largest entry, confirms it."""
LEFT_OUT = "left_out"
"""In meta["replay"], beside no replays, the reason why there are none."""
_REPLAYED = {"open": "with its controls held", "gains": "with its feedback gains"}


def replayed(solution: Solution, outcome: Callable[[Array], list[str]]) -> list[str]:
    """Sentences about how the plan ends on finely integrated dynamics; outcome: those of a task about a final state (nx,)."""
    sentences, plan, ends = [], outcome(solution.xs[-1]), solution.meta.get("replay", {})
    where = f"on accurate dynamics{_contacts(ends.get('slower', 0.0))}"
    for key, end in ends.items():
        if key not in _REPLAYED:
            continue
        start = f"{where}, {_REPLAYED[key]},"
        if end is None:
            sentences.append(f"{start} the motion diverges")
        elif end["largest"] > WITHIN:
            told = _with_unit(solution.model, end["largest"], end["at"])
            differs = [new for new, old in zip(outcome(np.array(end["x"])), plan, strict=False) if new != old]
            sentences.append("; ".join([f"{start} the end differs from the plan by {told}", *differs]))
        elif sentences:
            sentences.append(f"{start} the motion ends as planned")
    if reason := ends.get(LEFT_OUT):
        return [f"the plan was not replayed on accurate dynamics: {reason}"]
    if not sentences and ends:
        sentences.append(f"{where} the plan ends as it says")
    return sentences


def replay_doubts(solution: Solution) -> list[str]:
    """That a plan diverges on finely integrated dynamics, with its feedback gains where it has some, and what helps."""
    ends = solution.meta.get("replay", {})
    told = [ends[key] for key in _REPLAYED if key in ends]
    if not told or told[-1] is not None:
        return []
    scheme = "" if "rk4" in solution.meta.get("schemes", ()) else ', or integrator = "rk4"'
    what = (
        "no robot moves as this plan says, which diverges on accurate dynamics"
        if not any(told)
        else "its feedback gains do not hold this plan, which diverges with them on accurate dynamics"
    )
    return [f"{what}: take shorter time steps (a smaller dt with a larger horizon, or more substeps){scheme}"]


def _with_unit(model: Model | None, value: float, name: str) -> str:
    """A difference of the tangent direction "q[joint]" or "v[joint]" of a robot, in its unit."""
    units = {} if model is None else dict(zip(model.dof_names, model.dof_units, strict=True))
    unit = units.get(name[2:-1], "")
    per_second = "/s" if unit and name.startswith("v[") else ""
    return f"{value:.2g}{' ' if unit else ''}{unit}{per_second} ({name})"


def _contacts(slower: float) -> str:
    """In which time contacts met that the plan lets meet in time steps of this length [s], or nothing."""
    return f" with contacts as slow as in time steps of {1e3 * slower:.3g} ms" if slower else ""


def _level(key: str) -> int:
    """The verbosity from which on a column is shown."""
    return 1 if key in _SHORT else 3 if key in _LONG else 2


class ConsoleTable:
    """A callback that prints one line per iteration.

    stream: where to, default standard output. verbosity: 0 nothing, 1 the main columns, 2 all numbers, 3 also the
    Hessian and the time of each phase. Use :meth:`finish` to print how the solve ended.
    """

    def __init__(self, stream: TextIO | None = None, verbosity: int = 2) -> None:
        if verbosity not in (0, 1, 2, 3):
            raise ValueError(f"verbosity = {verbosity!r}; expected 0, 1, 2 or 3")
        self.stream = stream
        self.verbosity = verbosity
        self.columns = [c for c in _COLUMNS if verbosity >= _level(c[1])]
        self._rows = 0

    def __call__(self, record: IterationRecord) -> None:
        """Print a record."""
        if self.verbosity == 0:
            return
        if self._rows % HEADER_EVERY == 0:
            self._print(" ".join(f"{title:>{width}}" for title, _, width, _, _ in self.columns))
        cells = [f"{getattr(record, key):>{width}{form}}" for _, key, width, form, _ in self.columns]
        if self.verbosity >= 3:
            cells.append("  ".join(f"{name} {1e3 * value:.1f} ms" for name, value in record.times.items()))
        self._print(" ".join(cells))
        self._rows += 1

    def finish(self, solution: Solution) -> None:
        """Print which test stopped the solve, the final cost, and the time by phase."""
        if self.verbosity == 0:
            return
        times = ", ".join(f"{name} {value:.3f} s" for name, value in solution.time_total.items())
        self._print(f"{solution.status}\n{account(solution)}; {times}")

    def legend(self) -> str:
        """What each column means, one to a line."""
        return "\n".join(f"{title:>10}  {meaning}" for title, _, _, _, meaning in self.columns)

    def _print(self, line: str) -> None:
        print(line, file=self.stream or sys.stdout, flush=True)
