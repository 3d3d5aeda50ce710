"""A second start of a direct method, where the gaps of its guess stay open.

States of a guess that no motion joins, as all zeros are where x0 is not, make the first linearized dynamics those of another
motion.  Steps that would close the gaps by them are refused or cut short, and the iterates end near a point of least violation,
or creep: for Crocoddyl's double pendulum, which hangs down with all states of the guess upright, two thirds of the gap were open
after 300 iterations of every direct method.  The motion from x0 under the guess's controls has no gaps: so the second start has
its states.  It follows where the first ended without a solution, or has spent half of its iterations, and the guess's largest
gap was never closed but for a share OPEN.  Gaps that are larger than it, in the median LATELY, have come from steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from trajopt.guesses.guesses import Guess, feedback_guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, Status, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.methods.delegation import Continued, Second, SolveRequest, started_twice
from trajopt.solvers.methods.driver import run_alone
from trajopt.solvers.options import DMSOptions, IPMOptions, SQPOptions

OPEN = 0.5
"""Share of the guess's largest gap: below it gaps are closing."""
LATELY = 20
"""Iterations."""
PATIENCE = 50
"""A solve has at least so many iterations before it is given up."""
START = "from the rollout of its controls"

Options = DMSOptions | SQPOptions | IPMOptions
Run = Callable[[Guess, Any, Callback | None], Solution]


def solve_twice(run: Run, ocp: OCP, guess: Guess, options: Options, callback: Callback | None) -> Solution:
    """Solve from a guess; if its defects stay open, solve again from the rollout of its controls, if that is finite."""
    tell = None if callback is None else Continued(callback)
    watch = _Watch(tell, options, ocp, guess)

    def answer(request: SolveRequest) -> Solution:
        if request.guess is not None:
            return run(request.guess, request.limited, tell)
        found = run(guess, request.limited, watch)
        return replace(found, status=watch.open_defects) if watch.gave_up else found

    def second(found: Solution) -> Second | None:
        ended = found.status.success or (found.status.code in (*STOPPED, StatusCode.UNBOUNDED))
        if ended or not watch.is_open or watch.moved is None:
            return None
        return Second(options, watch.open_defects.message, START, watch.moved)

    found: Solution = run_alone(started_twice(options, options.max_iterations, second), answer)
    return found


@dataclass
class _Watch:
    """Passes records on, and gives a solve up whose gaps stay open, where there is another start."""

    callback: Callback | None
    options: Options
    ocp: OCP
    guess: Guess
    gaps: list[float] = field(default_factory=list)
    gave_up: bool = False

    def __call__(self, record: IterationRecord) -> None:
        self.gaps.append(record.defect)
        if self.callback is not None:
            self.callback(record)
        half = max(self.options.max_iterations // 2, PATIENCE)
        if record.iteration == half and self.is_open and self.moved is not None:
            self.gave_up = True
            raise KeyboardInterrupt

    @cached_property
    def moved(self) -> Guess | None:
        """The motion under the guess's controls; None where it is not finite."""
        still = np.zeros((self.ocp.nu, self.ocp.manifold.ndx))
        found = feedback_guess(self.ocp, still, self.guess.us)
        return found if np.isfinite(found.xs).all() else None

    @property
    def is_open(self) -> bool:
        """True if the guess had a gap that is still open."""
        tolerance = self.options.constraint_tolerance
        if not self.gaps or not self.gaps[0] > tolerance:
            return False
        least = max(OPEN * self.gaps[0], tolerance)
        return min(self.gaps) > least and float(np.median(self.gaps[-LATELY:])) <= self.gaps[0]

    @property
    def open_defects(self) -> Status:
        """The status of a first start that was given up."""
        return termination.defects_stay_open(len(self.gaps) - 1, self.gaps[0], self.gaps[-1])
