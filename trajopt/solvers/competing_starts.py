"""Competing starts: choose the initial guess of a solve among several, on a coarse time grid.

A solution is a local optimum, and the initial guess decides which one. A guess that stands still does not say which one is meant.
Then it competes with random motions

    x_k = x0 (+) [t_k / T a + sin(pi t_k / T) b; 0],    a, b normal with standard deviation SPREAD, in the first half of the tangent

Each start is solved with FACTOR time steps merged into one, to TOLERANCE and within MAX_ITERATIONS iterations. The cheapest motion
that satisfies the dynamics and the constraints to FEASIBLE is the initial guess on the time grid of the problem. The given guess
wins if its objective is within SAME of the cheapest one. It is used as it is if its coarse solve takes at most FEW iterations, as
in problems that are nearly linear-quadratic, or if no start leads to a feasible motion.

Local searches that are cut short, of which the best one goes on: A. H. G. Rinnooy Kan, G. T. Timmer, Stochastic global optimization
methods, part II: multi level methods, Mathematical Programming 39, 1987.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.guesses.time_grids import can_be_regridded, coarser, on_grid_of
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers.measures import largest_violation
from trajopt.stage.engine import is_compiled
from trajopt.step.sensitivities import SampledSystem

SPREAD = 0.7
"""Standard deviation of the random motions [rad, m]."""
FACTOR = 4
MAX_ITERATIONS = 50
TOLERANCE = 1e-4
"""Tolerance on the scaled KKT error of a coarse solve."""
FEASIBLE = 1e-2
"""Largest violation of a coarse motion that competes."""
SAME = 1e-3
"""Relative difference of objectives on the coarse grid below which the given guess wins."""
FEW = 2
LEAST_KNOTS = 6
"""Minimum number of knots of the coarse grid."""
TIME_SHARE = 0.5
"""Largest fraction of a time limit that the competition takes."""

Solve = Callable[[OCP, Guess], Solution]
"""Solves a coarse problem from a guess, roughly."""


class Start(NamedTuple):
    """A start and its solve on the coarse grid. objective: infinite if the motion is infeasible."""

    name: str
    objective: float
    found: Solution

    @property
    def record(self) -> dict[str, Any]:
        """The entry of ``meta["starts"]``."""
        status, iterations = str(self.found.status.code), self.found.iterations
        return {"start": self.name, "objective": self.objective, "iterations": iterations, "status": status}


class Choice(NamedTuple):
    """The initial guess of the solve. message: sentence for the status if a random start won. starts: all that competed.

    interrupted: the user interrupted the competition.
    """

    guess: Guess
    message: str = ""
    starts: tuple[Start, ...] = ()
    interrupted: bool = False


def may_compete(ocp: OCP, guess: Guess) -> bool:
    """True if a guess stands still, and the compiled problem can be solved on a coarser time grid of the same duration."""
    still = bool((guess.xs == guess.xs[:1]).all() and (guess.us == guess.us[:1]).all())
    if not still or ocp.in_scaled_time or not is_compiled(ocp):
        return False
    knots = sum(phase.knots for phase in ocp.phases if isinstance(phase.dynamics, SampledSystem))
    return can_be_regridded(ocp) and knots >= max(FACTOR * LEAST_KNOTS, ocp.horizon // 2)


def choose_start(ocp: OCP, guess: Guess, count: int, solve: Solve, has_time: Callable[[], bool]) -> Choice:
    """Choose among ``count`` starts. solve: rough solve of the coarse problem; has_time: True while another start may be tried."""
    coarse, rng, starts = coarser(ocp, FACTOR, substeps=1), np.random.default_rng(0), list[Start]()
    for number in range(count):
        if number and not has_time():
            break
        start = random_motion(ocp, guess, rng) if number else guess
        found = solve(coarse, on_grid_of(coarse, ocp, start))
        if found.status.code is StatusCode.INTERRUPTED:
            return Choice(guess, interrupted=True)
        if not number and found.status.success and found.iterations <= FEW:
            return Choice(guess)
        name = f"random motion {number}" if number else "guess"
        starts.append(Start(name, float(found.cost) if _is_feasible(coarse, found) else np.inf, found))
    given, best = starts[0], min(starts, key=lambda s: s.objective)
    if not np.isfinite(best.objective):
        return Choice(guess, starts=tuple(starts))
    if given.objective - best.objective <= SAME * abs(best.objective):
        best = given
    return Choice(on_grid_of(ocp, coarse, best.found), _sentence(starts, best, coarse.horizon), tuple(starts))


def _sentence(starts: list[Start], best: Start, knots: int) -> str:
    given = starts[0]
    if best is given:
        return ""
    there = f"{given.objective:.4g}" if np.isfinite(given.objective) else "to no feasible motion"
    return (
        f"The solve began from the best of {len(starts)} starts on {knots} knots, {best.name} (objective {best.objective:.4g}); "
        f"the guess led to {there}."
    )


def _is_feasible(ocp: OCP, found: Solution) -> bool:
    if not (np.isfinite(found.cost) and np.isfinite(found.xs).all() and np.isfinite(found.us).all()):
        return False
    if found.status.success:
        return True
    worst = largest_violation(ocp, found.xs, found.us, FEASIBLE)
    return worst is None or worst.ratio <= 1.0


def random_motion(ocp: OCP, guess: Guess, rng: np.random.Generator) -> Guess:
    """Random motion from the states of a guess, with its controls; see the module docstring."""
    half = (ocp.manifold.ndx + 1) // 2
    fraction = ocp.times / ocp.times[-1]
    away, bend = SPREAD * rng.standard_normal((2, half))
    move = np.zeros((ocp.horizon + 1, ocp.manifold.ndx))
    move[:, :half] = np.outer(fraction, away) + np.outer(np.sin(np.pi * fraction), bend)
    xs = ocp.manifold.integrate(np.asarray(guess.xs, dtype=float).T, move.T).T
    return Guess(np.ascontiguousarray(xs), guess.us)
