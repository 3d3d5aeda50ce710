"""Second start of a direct method whose guess has defects that stay open.

If the states of a guess are far from any trajectory of the dynamics, for example all zero with a nonzero x0, the linearized
dynamics do not describe the motion. Steps that would close the defects are rejected or shortened. The iterates stop near a minimum
of the violation, or progress very slowly: Crocoddyl's double pendulum hangs down at x0, with all states of the guess upright, and
two thirds of the defect were left after 300 iterations of every direct method.

The rollout from x0 with the controls of the guess has no defects, so the second start takes its states. It follows if the first
start failed, or used half of its iterations, and

    min of the largest defects of all iterations > OPEN * the largest defect of the guess

unless the median of the last RECENT defects exceeds that of the guess: such defects come from steps.

SQP may also stop at a point where the violation is stationary with open defects, which no small step reduces. Its second start is
the rollout of its last controls. IPM and DMS did not profit from one there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
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
"""Fraction of the largest defect of the guess, below which the defects count as closing."""
RECENT = 20
"""Number of last iterations in the median of the defects."""
SAME_STATES = 1e-9
"""Largest difference of states up to which two guesses are the same."""
PATIENCE = 50
"""Minimum number of iterations of the first start."""
START, LAST = "from the rollout of its controls", "from the rollout of its last controls"

Options = DMSOptions | SQPOptions | IPMOptions
Run = Callable[[Guess, Any, Callback | None], Solution]


def solve_twice(run: Run, ocp: OCP, guess: Guess, options: Options, callback: Callback | None) -> Solution:
    """Solve from a guess; if its defects stay open, solve again from the rollout of its controls, if that is another finite motion.

    A guess that is this rollout has defects too where bounds on states, such as a goal, move its states. The first solve is stopped
    for this after half of its iterations, at least PATIENCE. No second start after a success, Ctrl-C, a
    time limit or an unbounded problem. Iterations and time limits hold for both together.
    """
    report = None if callback is None else Continued(callback)
    watch = _Watch(report, options, ocp, guess)

    def answer(request: SolveRequest) -> Solution:
        """Run the solver from the guess of a request, or from the first guess while watching its defects."""
        if request.guess is not None:
            return run(request.guess, request.limited, report)
        found = run(guess, request.limited, watch)
        return replace(found, status=watch.open_defects) if watch.stopped else found

    def second(found: Solution) -> Second | None:
        """Return the second start from the rollout, or None if the first solve needs none or the rollout is not finite."""
        ended = found.status.success or (found.status.code in (*STOPPED, StatusCode.UNBOUNDED))
        if ended:
            return None
        if watch.is_open and watch.rollout is not None:
            return Second(options, watch.open_defects.message, START, watch.rollout)
        stationary = found.status.code is StatusCode.LOCALLY_INFEASIBLE and isinstance(options, SQPOptions)
        left = watch.defects[-1] if stationary else 0.0
        rollout = rollout_of(ocp, found.us) if left > options.constraint_tolerance else None
        return None if rollout is None else Second(options, f"Defects of {left:.3g} were left.", LAST, rollout)

    return run_alone(started_twice(options, options.max_iterations, second), answer)


def rollout_of(ocp: OCP, us: Array) -> Guess | None:
    """Return the rollout of controls from x0 without feedback, or None if it is not finite."""
    found = feedback_guess(ocp, np.zeros((ocp.nu, ocp.manifold.ndx)), us)
    return found if np.isfinite(found.xs).all() else None


@dataclass
class _Watch:
    """Callback that forwards records and stops a solve whose defects stay open, if there is another start."""

    callback: Callback | None
    options: Options
    ocp: OCP
    guess: Guess
    defects: list[float] = field(default_factory=list)
    stopped: bool = False

    def __call__(self, record: IterationRecord) -> None:
        self.defects.append(record.defect)
        if self.callback is not None:
            self.callback(record)
        half = max(self.options.max_iterations // 2, PATIENCE)
        if record.iteration == half and self.is_open and self.rollout is not None:
            self.stopped = True
            raise KeyboardInterrupt

    @cached_property
    def rollout(self) -> Guess | None:
        """Rollout of the controls of the guess, or None if it is not finite or has the states of the guess."""
        found = rollout_of(self.ocp, self.guess.us)
        return None if found is None or np.allclose(found.xs, self.guess.xs, rtol=0.0, atol=SAME_STATES) else found

    @property
    def is_open(self) -> bool:
        """True if the smallest defect so far exceeds half of that of the guess, and recent defects do not exceed the guess's.

        Compares the median of the last RECENT defects. False if the defects of the guess are within the constraint tolerance.
        """
        tolerance = self.options.constraint_tolerance
        if not self.defects or not self.defects[0] > tolerance:
            return False
        limit = max(OPEN * self.defects[0], tolerance)
        return min(self.defects) > limit and float(np.median(self.defects[-RECENT:])) <= self.defects[0]

    @property
    def open_defects(self) -> Status:
        """Status of a first start that was stopped because its defects stay open."""
        return termination.defects_stay_open(len(self.defects) - 1, self.defects[0], self.defects[-1])
