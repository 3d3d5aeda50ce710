"""Competing starts: choose the initial guesses of a solve among several, on a coarse time grid.

A solution is a local optimum, and the initial guess decides which one. A guess that stands still does not say which one is meant.
Then it competes with random motions, the ones that look cheapest first (:mod:`trajopt.solvers.random_motions`).

Each start is solved with FACTOR time steps merged into one, to TOLERANCE and within MAX_ITERATIONS iterations. A solve without
constraints is stopped when it can no longer become the cheapest one (:class:`Cutoff`). The competition ends when AGREEMENT starts
of at least LEAST_STARTS lead to the cheapest objective, or after ALL_ITERATIONS iterations if a motion is feasible.

The motions that satisfy the dynamics and the constraints to FEASIBLE, and whose objectives are at most NEAR times the cheapest one,
at most CONTINUED of them, are initial guesses on the time grid of the problem; the cheapest solution is returned. The given guess
wins if its objective is within SAME of the cheapest one. It is used as it is if its coarse solve takes at most FEW iterations, as
in problems that are nearly linear-quadratic, and as the last one if it does not lead to a feasible motion.

Local searches that are cut short, of which the best ones go on, and a stopping rule on optima found repeatedly: A. H. G. Rinnooy
Kan, G. T. Timmer, Stochastic global optimization methods, part II: multi level methods, Mathematical Programming 39, 1987.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.guesses.time_grids import can_be_regridded, coarser, on_grid_of
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers.measures import largest_violation
from trajopt.solvers.random_motions import random_motions
from trajopt.stage.engine import is_compiled
from trajopt.step.sensitivities import SampledSystem

FACTOR = 4
MAX_ITERATIONS, ALL_ITERATIONS = 50, 600
"""Maximum number of iterations of a coarse solve, and number of iterations of all of them after which no other one begins."""
TOLERANCE = 1e-4
"""Tolerance on the scaled KKT error of a coarse solve."""
FEASIBLE = 1e-2
"""Largest violation of a coarse motion that competes."""
SAME = 1e-3
"""Relative difference below which objectives on the coarse grid are the same."""
AGREEMENT, AGREES, LEAST_STARTS = 4, 3e-3, 5
"""Number of starts that lead to the cheapest objective before the competition ends, their relative tolerance on it, and the minimum
number of starts."""
NEAR, CONTINUED = 1.2, 3
"""Largest ratio of objectives on the coarse grid, and maximum number, of the motions that are solved on the grid of the problem."""
AHEAD, CLOSED = 5.0, 1.0
"""Factor on the larger one of the last two decreases of a cost that bounds its further decrease, and largest defect for that."""
FEW = 2
LEAST_KNOTS = 6
"""Minimum number of knots of the coarse grid."""
TIME_SHARE = 0.5
"""Largest fraction of a time limit that the competition takes."""

Solve = Callable[[OCP, Guess, Callback | None], Solution]
"""Solves a coarse problem from a guess, roughly; the callback may stop it."""


class Start(NamedTuple):
    """A start and its solve on the coarse grid. objective: infinite if the motion is infeasible, or if the solve was stopped."""

    name: str
    objective: float
    found: Solution
    stopped: bool = False

    @property
    def record(self) -> dict[str, Any]:
        """The entry of ``meta["starts"]``."""
        status = "too expensive" if self.stopped else str(self.found.status.code)
        return {"start": self.name, "objective": self.objective, "iterations": self.found.iterations, "status": status}


class Choice(NamedTuple):
    """The initial guesses of solves, the cheapest first, each with a sentence for the status. starts: all that competed.

    interrupted: the user interrupted the competition.
    """

    guesses: tuple[tuple[Guess, str], ...]
    starts: tuple[Start, ...] = ()
    interrupted: bool = False


class Cutoff:
    """Callback that stops a solve whose cost will not fall below a bound.

    The further decrease is at most AHEAD times the larger one of the last two. Iterates with defects above CLOSED do not count.
    """

    def __init__(self, bound: float) -> None:
        self.bound, self.costs, self.stopped = bound, list[float](), False

    def __call__(self, record: IterationRecord) -> None:
        """Raise KeyboardInterrupt, which ends the solve."""
        self.costs = [*self.costs[-2:], record.cost] if record.iteration else [record.cost]
        if len(self.costs) < 3 or not record.defect <= CLOSED:
            return
        a, b, c = self.costs
        if c - AHEAD * max(abs(a - b), abs(b - c)) > self.bound:
            self.stopped = True
            raise KeyboardInterrupt


def may_compete(ocp: OCP, guess: Guess) -> bool:
    """True if a guess stands still, and the compiled problem can be solved on a coarser time grid of the same duration."""
    still = bool((guess.xs == guess.xs[:1]).all() and (guess.us == guess.us[:1]).all())
    if not still or ocp.in_scaled_time or not is_compiled(ocp):
        return False
    knots = sum(phase.knots for phase in ocp.phases if isinstance(phase.dynamics, SampledSystem))
    return can_be_regridded(ocp) and knots >= max(FACTOR * LEAST_KNOTS, ocp.horizon // 2)


def choose_starts(ocp: OCP, guess: Guess, count: int, solve: Solve, has_time: Callable[[], bool]) -> Choice:
    """Choose among at most ``count`` starts.

    solve: rough solve of the coarse problem. has_time: True while another start may be tried.
    """
    coarse, starts = coarser(ocp, FACTOR, substeps=1), list[Start]()
    start = on_grid_of(coarse, ocp, guess)
    motions = random_motions(coarse, start, np.random.default_rng(0))
    best, agreeing = np.inf, 0
    for number in range(count):
        if number and not has_time():
            break
        cutoff = Cutoff(best - SAME * abs(best)) if np.isfinite(best) and not ocp.constraints() else None
        found = solve(coarse, next(motions) if number else start, cutoff)
        stopped = cutoff is not None and cutoff.stopped
        if found.status.code is StatusCode.INTERRUPTED and not stopped:
            return Choice(((guess, ""),), interrupted=True)
        linear = found.status.success and found.iterations <= FEW
        if not number and (linear or found.status.code is StatusCode.UNBOUNDED):
            return Choice(((guess, ""),))
        name = f"random motion {number}" if number else "guess"
        objective = float(found.cost) if not stopped and _is_feasible(coarse, found) else np.inf
        starts.append(Start(name, objective, found, stopped))
        if abs((found.cost if stopped else objective) - best) <= AGREES * abs(best):
            agreeing += 1
        elif objective < best:
            agreeing = 1
        best = min(best, objective)
        used_up = np.isfinite(best) and sum(s.found.iterations for s in starts) >= ALL_ITERATIONS
        if (agreeing >= AGREEMENT or used_up) and len(starts) >= LEAST_STARTS:
            break
    going_on = _chosen(starts)[:CONTINUED]
    chosen = [(on_grid_of(ocp, coarse, s.found), _sentence(starts, s, coarse.horizon)) for s in going_on]
    unused = [] if np.isfinite(starts[0].objective) else [(guess, "")]
    return Choice((*chosen, *unused), tuple(starts))


def _chosen(starts: list[Start]) -> list[Start]:
    """The starts with objectives near the cheapest one, cheapest first, without equal ones; the guess wins among equals."""
    chosen = list[Start]()
    for start in sorted((s for s in starts if np.isfinite(s.objective)), key=lambda s: (s.objective, s.name)):
        least = chosen[0].objective if chosen else start.objective
        if start.objective - least > (NEAR - 1.0) * abs(least):
            break
        same = next((i for i, s in enumerate(chosen) if start.objective - s.objective <= SAME * abs(s.objective)), None)
        if same is None:
            chosen.append(start)
        elif start is starts[0]:
            chosen[same] = start
    return chosen


def _sentence(starts: list[Start], chosen: Start, knots: int) -> str:
    given = starts[0]
    if chosen is given:
        return ""
    there = f"{given.objective:.4g}" if np.isfinite(given.objective) else "no feasible motion"
    return (
        f"The solve began from the best of {len(starts)} starts on {knots} knots, {chosen.name} "
        f"(objective {chosen.objective:.4g}); the guess led to {there}."
    )


def _is_feasible(ocp: OCP, found: Solution) -> bool:
    if not (np.isfinite(found.cost) and np.isfinite(found.xs).all() and np.isfinite(found.us).all()):
        return False
    if found.status.success:
        return True
    worst = largest_violation(ocp, found.xs, found.us, FEASIBLE)
    return worst is None or worst.ratio <= 1.0
