"""Competing starts: choose the initial guesses of a solve among several, on a coarse time grid.

A solution is a local optimum, and the initial guess decides which one. A guess at rest does not say which one is meant.
Then it competes with random motions (:func:`may_compete`, :func:`random_motions`).

Each start is solved with several time steps merged into one (FACTORS), to TOLERANCE and within MAX_ITERATIONS iterations. A solve
without constraints is stopped when its extrapolated cost stays above the cheapest one (:class:`Cutoff`). The competition ends
when AGREEMENT starts lead to the cheapest objective, or UNANIMOUS ones if no start led to another result, or after ALL_ITERATIONS
iterations, fewer in large problems (ALL_WORK, ALL_STEPS, ALL_ENTRIES), or after HOPELESS starts without a feasible motion.

The motions of solves that succeed, or that satisfy the dynamics and the constraints to FEASIBLE, and whose objectives are at most
NEAR times the cheapest one, at most CONTINUED of them, are initial guesses on the time grid of the problem; the cheapest solution
is returned. Of motions whose objectives agree to SAME only one counts: that of the given guess, else the cheapest. The given
guess as it is follows if all fail, or if durations are free. It is used alone if its coarse solve succeeds in at most FEW
iterations, as in problems that are nearly linear-quadratic.

Local searches that are cut short, of which the best ones go on, and a stopping rule on optima found repeatedly: A. H. G. Rinnooy
Kan, G. T. Timmer, Stochastic global optimization methods, part II: multi level methods, Mathematical Programming 39, 1987.

Random motions end near a minimum of the terminal cost and the violation of the terminal constraints, and pass through states
that satisfy the equalities of way points (:class:`~trajopt.solvers.destinations.Destinations`). With a the displacement of the
end in the directions of positions (:mod:`trajopt.guesses.position_directions`), from a normal draw with standard deviation SPREAD,
and b normal with standard deviation BEND, a motion without way points is

    x_k = x0 (+) [t_k / T a + sin(pi t_k / T) b; 0]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.runtime.memory import default_threads
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import with_free_durations, without_durations
from trajopt.guesses.time_grids import can_be_regridded, coarser, on_grid_of
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode, iterations_text
from trajopt.solvers.destinations import DRAWN, SPREAD, Destinations, displaced_states
from trajopt.solvers.direct.program_parts import runs_compiled
from trajopt.solvers.measures import is_feasible, is_finite
from trajopt.stage.solver_cache import problem_size
from trajopt.step.sensitivities import SampledSystem

BEND, STRETCH = 0.5, 0.5
"""Standard deviations of the bends of random motions [rad, m], and of the logarithm of the factor on free durations."""


def random_motions(ocp: OCP, guess: Guess, rng: np.random.Generator) -> Iterator[Guess]:
    """Yield random motions from x0 to states of low terminal cost and violation, without end.

    Controls are those of a guess, and its free durations are multiplied by log-normal factors, within their bounds.
    """
    destinations, times = Destinations(ocp), ocp.times
    knots, positions = [0, *destinations.knots], destinations.positions
    bow, sizes = np.sin(np.pi * times / times[-1])[:, None], (DRAWN, len(positions))
    while True:
        away, bends = SPREAD * rng.standard_normal(sizes), BEND * rng.standard_normal(sizes)
        points = np.array([np.zeros(sizes), *destinations.near(away)])
        for i in range(DRAWN):
            move = np.zeros((1, len(times), ocp.manifold.ndx))
            move[0][:, positions] = np.column_stack([np.interp(times, times[knots], a) for a in points[:, i].T])
            move[0][:, positions] += bow * bends[i]
            yield with_random_durations(ocp, Guess(displaced_states(ocp, move)[0], guess.us), guess.xs[-1], rng)


FACTORS = (5, 2)
"""Numbers of time steps that are merged into one: the second one if motions on the first grid are feasible there only, as when
they jump over an obstacle between its knots. The first one is smaller for horizons of less than FACTORS[0] times LEAST_KNOTS."""
MAX_ITERATIONS, ALL_ITERATIONS, ALL_WORK, ALL_STEPS, ALL_ENTRIES = 50, 4000, 4e7, 1e6, 2.5e8
"""Maximum number of iterations of a coarse solve, number of iterations of all of them after which no other one begins, and that
number times the entries of second derivatives at the knots, the integration steps, and the entries at all steps, which limit it for
large problems and long horizons: arms of 7 joints with 100 steps on 20 knots stay below."""
WIDE = 50
"""Number of states and controls above which an entry takes time proportional to their number, as in products of matrices."""
TOLERANCE = 1e-4
"""Tolerance on the scaled KKT error of a coarse solve."""
FEASIBLE = 1e-2
"""Tolerance on the violations of a coarse motion whose solve failed, relative to bounds beyond 1; it competes if it meets it."""
SAME, VANISHING = 1e-3, 1e-9
"""Relative difference below which objectives on the coarse grid are the same, and fraction of the cost of the guess below which all
are: costs that vanish, as of a curve that fits all data, differ by rounding errors."""
UNANIMOUS, AGREEMENT, AGREES = 8, 16, 3e-3
"""Numbers of starts that lead to the cheapest objective before the competition ends, if all starts do and if some do not, and their
relative tolerance on it. The Bayesian estimate of the number of optima asks for 8 local searches if one optimum is known, for 17 if
two are (C. G. E. Boender, A. H. G. Rinnooy Kan, Bayesian stopping rules for multistart global optimization methods, Mathematical
Programming 37, 1987)."""
NEAR, CONTINUED = 1.2, 3
"""Largest ratio of objectives on the coarse grid, and maximum number, of the motions that are solved on the grid of the problem."""
AHEAD, CLOSED = 5.0, 1.0
"""Factor on the larger one of the last two decreases of a cost that bounds its further decrease, and largest defect for that."""
FEW, HOPELESS = 2, 24
"""Maximum number of iterations of a coarse solve from the guess for the guess alone to be used, and number of starts without a
feasible motion after which the competition ends."""
THREADS, QUEUED = 4, 8
"""Maximum number of threads that solve, and number of starts that are begun before the solution of the first of them is taken. The
bound on the cost of a start depends on the solutions taken, not on the number of threads."""
LEAST_KNOTS = 10
"""Minimum number of knots of the coarse grid; solves on fewer, with long steps, rarely end."""
TIME_SHARE = 0.5
"""Largest fraction of a time limit that the competition takes."""

Solve = Callable[[OCP, Guess, Callback], Solution]
"""Solves a coarse problem from a guess, roughly; the callback may stop it. Several threads call it."""


class Start(NamedTuple):
    """A start and its solve on the coarse grid.

    objective: infinite if the motion is infeasible, or if the solve was stopped. stopped: True if a :class:`Cutoff` stopped it.
    """

    name: str
    objective: float
    found: Solution
    stopped: bool = False

    @property
    def decides(self) -> bool:
        """True if no other start is needed: the solve succeeded in at most FEW iterations, or the problem is unbounded."""
        few = self.found.status.success and self.found.iterations <= FEW
        return few or self.found.status.code is StatusCode.UNBOUNDED

    @property
    def record(self) -> dict[str, Any]:
        """Name, costs, iterations and status of the start, as in ``meta["starts"]`` of the solution."""
        return {
            "start": self.name,
            "objective": self.objective,
            "cost_of_guess": self.found.history[0].cost if self.found.history else 0.0,
            "iterations": self.found.iterations,
            "status": "too expensive" if self.stopped else str(self.found.status.code),
        }


class Choice(NamedTuple):
    """The initial guesses of solves, the cheapest first, each with a sentence for the status, "" for the user's guess.

    They are coarse motions, or the user's guess as given, alone. starts: all that competed, empty if the guess alone is used.
    interrupted: True if the user interrupted the competition, which then has the starts that were solved before.
    """

    guesses: tuple[tuple[Guess, str], ...]
    starts: tuple[Start, ...] = ()
    interrupted: bool = False

    @property
    def any_feasible(self) -> bool:
        """True if the motion of a start is feasible on the coarse grid."""
        return any(np.isfinite(start.objective) for start in self.starts)


class Cutoff:
    """Callback that stops a solve whose cost is not expected to fall below a bound, or that another thread closes.

    The further decrease is estimated as AHEAD times the larger one of the last two changes. Iterates with defects above CLOSED do
    not stop the solve. bound: infinite for none. stopped: True if the bound stopped the solve.
    """

    def __init__(self, bound: float) -> None:
        self.bound, self.costs, self.stopped, self._closed = bound, list[float](), False, False

    def __call__(self, record: IterationRecord) -> None:
        """Raise KeyboardInterrupt, which ends the solve, if the extrapolated cost stays above the bound; then set ``stopped``.

        The extrapolation subtracts AHEAD times the larger of the last two changes of the cost. Needs three costs and an iterate
        with defects of at most CLOSED. Also raises it after :meth:`close`.
        """
        if self._closed:
            raise KeyboardInterrupt
        self.costs = [*self.costs[-2:], record.cost] if record.iteration else [record.cost]
        if len(self.costs) < 3 or not record.defect <= CLOSED:
            return
        a, b, c = self.costs
        if c - AHEAD * max(abs(a - b), abs(b - c)) > self.bound:
            self.stopped = True
            raise KeyboardInterrupt

    def close(self) -> None:
        """End the solve at its next iteration, as interrupted."""
        self._closed = True


Taken = Callable[[], tuple[Solution, bool]]
"""Returns a solution, after waiting for it, and True if its :class:`Cutoff` stopped it."""


@contextmanager
def solver_threads(ocp: OCP, solve: Solve) -> Iterator[Callable[[Guess, float], Taken]]:
    """Context manager that yields a function to begin a solve from a guess, with a bound on its cost, on up to THREADS threads.

    With one thread it begins when its solution is taken. At the end, solves that still run end at their next iteration.
    """
    count, cutoffs = min(THREADS, default_threads()), list[Cutoff]()
    with nullcontext() if count == 1 else ThreadPoolExecutor(count, thread_name_prefix="starts") as pool:

        def begin(guess: Guess, bound: float) -> Taken:
            """Begin a solve in the context of the caller, which contains the start of the time limit."""
            cutoff = Cutoff(bound)
            cutoffs.append(cutoff)
            work = partial(copy_context().run, partial(solve, ocp, guess, cutoff))
            try:
                finish = work if pool is None else pool.submit(work).result
            except RuntimeError:  # the interpreter ends, and starts no threads
                finish = work
            return lambda: (finish(), cutoff.stopped)

        try:
            yield begin
        finally:
            for cutoff in cutoffs:
                cutoff.close()


def is_at_rest(ocp: OCP, guess: Guess) -> bool:
    """True if the states and the controls of a motion are constant, whatever its durations."""
    moving = np.concatenate([np.full(phase.knots, phase.dynamics.takes_time) for phase in ocp.phases])
    us, states = guess.us[moving], guess.xs[:, : without_durations(ocp)]
    return bool((states == states[:1]).all() and (us == us[:1]).all())


def may_compete(ocp: OCP, guess: Guess) -> bool:
    """True if the guess is at rest, no part of the problem and no Hessian runs in NumPy, and a coarser grid has knots enough.

    Its time steps can be merged, and at least half of its knots, and at least FACTORS[1] times LEAST_KNOTS, belong to sampled
    systems.
    """
    knots = _sampled_knots(ocp)
    enough = knots >= max(FACTORS[1] * LEAST_KNOTS, ocp.horizon // 2)
    return enough and is_at_rest(ocp, guess) and can_be_regridded(ocp) and runs_compiled(ocp)


def _sampled_knots(ocp: OCP) -> int:
    """Return the number of knots of sampled systems."""
    return sum(phase.knots for phase in ocp.phases if isinstance(phase.dynamics, SampledSystem))


def merge_factors(ocp: OCP) -> tuple[int, ...]:
    """Return the numbers of time steps that are merged into one in the competitions: FACTORS, with LEAST_KNOTS remaining."""
    most = max(FACTORS[1], _sampled_knots(ocp) // LEAST_KNOTS)
    return tuple(dict.fromkeys(min(factor, most) for factor in FACTORS))


def with_random_durations(ocp: OCP, guess: Guess, end: Array, rng: np.random.Generator) -> Guess:
    """Return a guess whose free durations are those of the state ``end`` (nx,) times random factors; others unchanged."""
    durations = end[without_durations(ocp) :]
    return with_free_durations(ocp, guess, durations * np.exp(STRETCH * rng.standard_normal(len(durations))))


PUSH = 1e-2
"""Moves of a guess that is a stationary point, of controls relative to those beyond 1."""


def pushed(ocp: OCP, guess: Guess) -> Guess:
    """Return the guess with controls moved by random amounts up to PUSH, and states along a line to a random one, by up to PUSH."""
    rng, fraction = np.random.default_rng(0), np.linspace(0.0, 1.0, len(guess.xs))[:, None]
    moves = rng.uniform(-PUSH, PUSH, guess.us.shape)
    away = fraction * rng.uniform(-PUSH, PUSH, (1, ocp.manifold.ndx))
    xs = np.ascontiguousarray(ocp.manifold.integrate(guess.xs.T, away.T).T)
    return Guess(xs, guess.us + moves * np.maximum(1.0, np.abs(guess.us)))


def choose_starts(
    ocp: OCP, guess: Guess, count: int, solve: Solve, has_time: Callable[[], bool], factor: int = FACTORS[0]
) -> Choice:
    """Solve from the guess and random motions on a coarse grid, and return the best initial guesses on the grid of the problem.

    solve: rough solve of the coarse problem. count: maximum number of starts. has_time: True while another start may be tried.
    factor: number of time steps that are merged into one.
    Ends early if AGREEMENT starts agree on the cheapest objective, or UNANIMOUS ones if no start led to another result, after
    ALL_ITERATIONS iterations, ALL_WORK, ALL_STEPS or ALL_ENTRIES, or after HOPELESS starts if no motion is feasible. Only the guess
    is returned if its solve succeeds in at most FEW iterations or is unbounded. The user may interrupt any solve.
    """
    coarse, starts, interrupted = coarser(ocp, factor), list[Start](), False
    try:
        _compete(starts, coarse, on_grid_of(coarse, ocp, guess), count, solve, has_time)
    except KeyboardInterrupt:
        interrupted = True
    if not interrupted and starts[0].decides:
        return Choice(((guess, ""),))
    going_on = _chosen(starts)[:CONTINUED]
    chosen = [(on_grid_of(ocp, coarse, s.found), _sentence(starts, s, coarse.horizon)) for s in going_on]
    return Choice(tuple(chosen), tuple(starts), interrupted)


def _compete(
    starts: list[Start], coarse: OCP, guess: Guess, count: int, solve: Solve, has_time: Callable[[], bool]
) -> None:
    """Solve a coarse problem from a guess and from random motions, and append them to ``starts``; see :func:`choose_starts`.

    Raises KeyboardInterrupt if the user interrupts any solve.
    """
    best, agreeing, bounded = np.inf, 0, not coarse.constraints()
    motions = random_motions(coarse, guess, np.random.default_rng(0))
    steps = sum(phase.knots * getattr(phase.dynamics, "substeps", 1) for phase in coarse.phases)
    size = problem_size(coarse) * max(1.0, (coarse.manifold.ndx + coarse.nu) / WIDE)
    most = min(ALL_ITERATIONS, ALL_WORK / size, ALL_STEPS / steps, ALL_ENTRIES / (size * steps / coarse.horizon))
    with solver_threads(coarse, solve) as begin:
        begun = deque([begin(guess, np.inf)])
        while begun:
            found, stopped = begun.popleft()()
            if found.status.code is StatusCode.INTERRUPTED and not stopped:
                raise KeyboardInterrupt
            name = f"random motion {len(starts)}" if starts else "guess"
            objective = float(found.cost) if not stopped and _is_feasible(coarse, found) else np.inf
            starts.append(Start(name, objective, found, stopped))
            if abs((found.cost if stopped else objective) - best) <= AGREES * _size(best, starts):
                agreeing += 1
            elif objective < best:
                agreeing = 1
            best = min(best, objective)
            if starts[0].decides or _is_over(starts, agreeing, most):
                break
            bound = best - SAME * abs(best) if bounded and np.isfinite(best) else np.inf
            while len(begun) < QUEUED and len(starts) + len(begun) < count and has_time():
                begun.append(begin(next(motions), bound))


def _size(objective: float, starts: Sequence[Start]) -> float:
    """Return the size to which differences from an objective are relative: its magnitude, at least VANISHING times the guess's."""
    of_guess = abs(float(starts[0].record["cost_of_guess"]))
    return max(abs(objective), VANISHING * of_guess if np.isfinite(of_guess) else 0.0)


def _is_over(starts: Sequence[Start], agreeing: int, most: float) -> bool:
    """True if no other start is solved: enough agree on the cheapest objective, or too many were needed without that.

    most: number of iterations of all starts after which no other one begins.
    """
    used_up = sum(start.found.iterations for start in starts) >= most
    hopeless = len(starts) >= HOPELESS and not any(np.isfinite(start.objective) for start in starts)
    return used_up or hopeless or agreeing >= (UNANIMOUS if agreeing == len(starts) else AGREEMENT)


def _chosen(starts: list[Start]) -> list[Start]:
    """Return the starts with objectives within a factor NEAR of the cheapest one, sorted.

    Of those that agree to SAME only one: the guess, else the cheapest.
    """
    chosen = list[Start]()
    for start in sorted((s for s in starts if np.isfinite(s.objective)), key=lambda s: (s.objective, s.name)):
        size = _size(chosen[0].objective if chosen else start.objective, starts)
        if chosen and start.objective - chosen[0].objective > (NEAR - 1.0) * size:
            break
        same = next((i for i, s in enumerate(chosen) if start.objective - s.objective <= SAME * size), None)
        if same is None:
            chosen.append(start)
        elif start is starts[0]:
            chosen[same] = start
    return chosen


def _sentence(starts: list[Start], chosen: Start, knots: int) -> str:
    """Return a sentence for the status on the start that was chosen, or "" if that is the user's guess.

    knots: number of knots of the coarse grid.
    """
    given = starts[0]
    if chosen is given:
        return ""
    there = (
        f"{given.objective:.4g}"
        if np.isfinite(given.objective)
        else f"no feasible motion in {iterations_text(given.found.iterations)}"
    )
    return (
        f"The solve began from one of the best of {len(starts)} starts on {knots} knots, {chosen.name} "
        f"(objective {chosen.objective:.4g} there); the guess led to {there}."
    )


def _is_feasible(ocp: OCP, found: Solution) -> bool:
    """True if a solution on the coarse grid is finite, and a success or within FEASIBLE of dynamics, bounds and constraints."""
    if not (np.isfinite(found.cost) and is_finite(found.xs, found.us)):
        return False
    return found.status.success or is_feasible(ocp, found.xs, found.us, FEASIBLE)
