"""Competing starts: choose the initial guesses of a solve among several, on a coarse time grid.

A solution is a local optimum, and the initial guess decides which one. A guess that stands still does not say which one is meant.
Then it competes with random motions (:func:`may_compete`, :func:`random_motions`).

Each start is solved with several time steps merged into one (FACTORS), to TOLERANCE and within MAX_ITERATIONS iterations. A solve
without constraints is stopped when its extrapolated cost stays above the cheapest one (:class:`Cutoff`). The competition ends
when AGREEMENT starts lead to the cheapest objective, or UNANIMOUS ones if no start led to another result, or after ALL_ITERATIONS
iterations if a motion is feasible, else after HOPELESS starts.

The motions of solves that succeed, or that satisfy the dynamics and the constraints to FEASIBLE, and whose objectives are at most
NEAR times the cheapest one, at most CONTINUED of them, are initial guesses on the time grid of the problem; the cheapest solution
is returned. Of motions whose objectives agree to SAME only one counts: that of the given guess, else the cheapest. The given
guess is used as it is, alone, if its coarse solve succeeds in at most FEW iterations, as in problems that are nearly
linear-quadratic, and as the last one if it does not lead to a feasible motion.

Local searches that are cut short, of which the best ones go on, and a stopping rule on optima found repeatedly: A. H. G. Rinnooy
Kan, G. T. Timmer, Stochastic global optimization methods, part II: multi level methods, Mathematical Programming 39, 1987.

Random motions end near a minimum of the terminal cost. With a the displacement of its end in the first half of the tangent, from a
normal draw with standard deviation SPREAD, and b normal with standard deviation BEND,

    x_k = x0 (+) [t_k / T a + sin(pi t_k / T) b; 0]

If no motion is feasible, direct motions to states at the terminal constraints follow, from rest to rest, the one first whose cost
is least (:func:`direct_motions`):

    sum_k l_k(x_k, u_k) + l_N(x_N),   x_k = x0 (+) [s(t_k / T) a; v_k],   s(r) = 10 r^3 - 15 r^4 + 6 r^5,
    v_(k+1) = (s_(k+1) - s_k) a / dt_k,   u_k = argmin_u |F_k(x_k, u) (-) x_(k+1)|^2, within the bounds

u is one Gauss-Newton step from the controls of the guess. For a robot with a motor in each joint it is the inverse dynamics of a
minimum-jerk motion (T. Flash, N. Hogan, The coordination of arm movements, J. Neuroscience 5, 1985). States without velocities
(an odd tangent) move without v.

Final states of both (:class:`TerminalStates`) are minima of the terminal cost and the violation of the terminal constraints,

    min_a  l_N(x) + w/2 |g(x) - clip(g(x))|^2,      x = x0 (+) [a; 0],      a in the first half of the tangent

by Levenberg-Marquardt steps from random displacements a. For an arm with a goal for its tool these are solutions of its inverse
kinematics: steps have the smallest norm, so that the remaining freedom keeps its random values and the starts end in different
branches. w makes the violation of the terminal constraints, with rows g and their bounds, count more than the cost.
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

from dynamics_backends.compiled.interface import default_threads
from dynamics_backends.protocol import Array
from trajopt.guesses.time_grids import can_be_regridded, coarser, on_grid_of
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers.direct.program_parts import coordinate_bounds, with_rows
from trajopt.solvers.measures import evaluated_stages, largest_violation, runs_compiled
from trajopt.step.sensitivities import SampledSystem

ITERATIONS = 8
PRECISION = 3e-2
"""Iterations end below this largest entry of a step [rad, m]. Final states that differ by more count as different."""
DAMPING = 1e-3
"""Damping relative to the largest diagonal entry of the Hessian."""
LONGEST = 0.5
"""Largest entry of a step [rad, m]."""
WEIGHT, LEAST_WEIGHT = 1e3, 1e-3
"""Weight w of the violation relative to the largest diagonal entry of the Hessian of the cost, and its smallest value."""


class TerminalStates:
    """Search for final states of small terminal cost and constraint violation."""

    def __init__(self, ocp: OCP) -> None:
        rows = with_rows(ocp)
        self.ocp, self.half = ocp, (_size(ocp) + 1) // 2
        self.end = evaluated_stages(ocp)[-1]
        bounds = [c.bounds(1) for c in rows[-1]]
        self.lower, self.upper = (np.concatenate([b[i].ravel() for b in bounds] or [np.zeros(0)]) for i in (0, 1))
        self.bounds = [
            (chosen, lower[-1], upper[-1])
            for _, knots, chosen, lower, upper in coordinate_bounds(ocp)
            if knots.stop >= ocp.horizon
        ]

    def near(self, displacements: Array, iterations: int = ITERATIONS, precision: float = PRECISION) -> Array:
        """Return displacements (M, half) near the given ones, of states with small terminal cost and constraint violation.

        Displacements from x0 in the first half of its tangent. Takes at most ``iterations`` Levenberg-Marquardt steps whose
        entries are at most LONGEST, within the bounds on state components of the last phase and the final knot, until the largest
        entry of a step is below ``precision`` or a step is not finite.
        """
        found, moving = np.array(displacements, dtype=float), np.arange(len(displacements))
        for _ in range(iterations):
            steps = self._steps(found[moving])
            longest = np.abs(steps).max(axis=1, initial=0.0)
            usable = np.isfinite(longest)
            moving, steps, longest = moving[usable], steps[usable], longest[usable]
            moved = found[moving] + steps * np.minimum(1.0, LONGEST / np.maximum(longest, LONGEST))[:, None]
            found[moving] = self._clipped(moved)
            moving = moving[longest >= precision]
            if not len(moving):
                break
        return found

    def _steps(self, a: Array) -> Array:
        """Return the Levenberg-Marquardt steps (M, half) at displacements a (M, half); all NaN if a matrix is singular.

        Steps of the terminal cost plus w/2 times the squared violation of the terminal constraints (module header); no step is
        tested for a decrease.
        """
        M, n, manifold = len(a), self.half, self.ocp.manifold
        x = manifold.integrate(
            np.repeat(self.ocp.x0[:, None], M, axis=1), np.vstack([a.T, np.zeros((manifold.ndx - n, M))])
        )
        H, gradient = np.empty((M, n, n)), np.empty((M, n))
        for i, row in enumerate(np.ascontiguousarray(x.T)[:, None]):
            found = self.end.first(row, np.zeros((1, 0)), row[:0])
            H[i], gradient[i] = found.Q[0, :n, :n], found.lx[0, :n]
            if not len(self.lower):
                continue
            violation = found.values.g[0] - np.clip(found.values.g[0], self.lower, self.upper)
            if violation.any():
                G = found.gx[0][violation != 0.0, :n]
                weight = max(WEIGHT * float(np.diag(H[i]).max(initial=0.0)), LEAST_WEIGHT)
                H[i] += weight * G.T @ G
                gradient[i] += weight * G.T @ violation[violation != 0.0]
        diagonal = np.abs(np.einsum("kii->ki", H)).max(axis=1, initial=0.0)
        H[:, range(n), range(n)] += (DAMPING * diagonal + np.finfo(float).tiny)[:, None]
        try:
            return -np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            return np.full((M, n), np.nan)

    def violation(self, a: Array) -> float:
        """Return the largest violation of the terminal constraints at a displacement (half,).

        On a vector space, bounds on components do not count.
        """
        x = _moved(self.ocp, np.r_[a, np.zeros(self.ocp.manifold.ndx - self.half)][None, None])[0]
        g = self.end.values(x, np.zeros((1, 0)), x[:0]).g[0]
        return float(np.abs(g - np.clip(g, self.lower, self.upper)).max(initial=0.0))

    def _clipped(self, a: Array) -> Array:
        """Clip displacements a (M, half), in place, and return them.

        Then x0 + a lies in the bounds of the last phase and the final knot on state components.
        """
        x0 = self.ocp.x0
        for chosen, lower, upper in self.bounds:
            own = [i for i, component in enumerate(chosen) if component < self.half]
            at = [chosen[i] for i in own]
            a[:, at] = np.clip(x0[at] + a[:, at], lower[own], upper[own]) - x0[at]
        return a


SPREAD, BEND = 1.2, 0.5
"""Standard deviations of the displacements from which ends of motions are searched, and of the bends of motions [rad, m]."""
DRAWN = 16
"""Number of final states that are searched together."""
PRECISE, REACHED = 100, 1e-6
"""Maximum number of steps to a state that satisfies the terminal constraints, and their tolerance."""
CONTROL_DAMPING = 1e-9
"""Damping of the Gauss-Newton step for the controls, relative to the mean diagonal entry of its matrix."""


def random_motions(ocp: OCP, guess: Guess, rng: np.random.Generator) -> Iterator[Guess]:
    """Yield random motions from x0 to states of low terminal cost and violation, without end, with the controls of a guess."""
    ends, r = TerminalStates(ocp), (ocp.times / ocp.times[-1])[:, None]
    bow, sizes = np.sin(np.pi * r), (DRAWN, ends.half)
    while True:
        away, bends = SPREAD * rng.standard_normal(sizes), BEND * rng.standard_normal(sizes)
        for end, bend in zip(ends.near(away), bends, strict=True):
            move = np.zeros((1, len(r), ocp.manifold.ndx))
            move[0, :, : ends.half] = r * end + bow * bend
            yield Guess(_moved(ocp, move)[0], guess.us)


def direct_motions(ocp: OCP, guess: Guess) -> Iterator[Guess]:
    """Yield up to CONTINUED minimum-jerk motions from x0 to different states at the terminal constraints, the cheapest first.

    The states are found by at most PRECISE Levenberg-Marquardt steps from DRAWN random states near x0; they satisfy the
    constraints to REACHED (:meth:`TerminalStates.violation`). guess: its controls are those from which the controls of a motion
    are computed.
    """
    ends = TerminalStates(ocp)
    drawn = SPREAD * np.random.default_rng(0).standard_normal((DRAWN, ends.half))
    reached = ends.near(drawn, PRECISE, 0.01 * REACHED)
    xs, us, costs = direct_motions_to(ocp, guess.us, reached)
    order = np.argsort(costs, kind="stable")
    different = list[int]()
    for i in order:
        usable = np.isfinite(costs[i]) and ends.violation(reached[i]) <= REACHED
        if usable and all(np.abs(reached[i] - reached[j]).max() > PRECISION for j in different):
            different.append(i)
    yield from (Guess(xs[i], us[i]) for i in different[:CONTINUED])


def direct_motions_to(ocp: OCP, us: Array, ends: Array) -> tuple[Array, Array, Array]:
    """Return minimum-jerk motions from x0 to displacements ends (M, half).

    Returns states (M, N + 1, nx), controls (M, N, nu) and estimated costs (M,).

    us (N, nu): controls, from which one Gauss-Newton step on the defects, clipped to the bounds, gives those of each motion. Costs
    contain the terminal ones; constraints are ignored.
    """
    (M, half), N, r = ends.shape, ocp.horizon, (ocp.times / ocp.times[-1])[:, None]
    move = np.zeros((M, N + 1, ocp.manifold.ndx))
    move[:, :, :half] = ends[:, None] * (r**3 * (10.0 - 15.0 * r + 6.0 * r**2))
    if 2 * half == _size(ocp):
        dt = np.diff(ocp.times_of(np.repeat(ocp.x0[None], N + 1, axis=0)))[:, None]
        np.divide(np.diff(move[:, :, :half], axis=1), dt, out=move[:, 1:, half : 2 * half], where=dt > 0.0)
    xs, total = _moved(ocp, move), np.zeros(M)
    controls = np.repeat(us[None], M, axis=0)
    *phases, end = evaluated_stages(ocp)
    with np.errstate(all="ignore"):
        for own, k in zip(phases, ocp.phase_slices, strict=True):
            after = slice(k.start + 1, k.stop + 1)
            found = [own.first(x[k], us[k], x[after], quadratic=False) for x in xs]
            B, d = np.stack([f.B for f in found]), np.stack([f.values.d for f in found])
            H = B.swapaxes(2, 3) @ B
            diagonal = np.einsum("...ii->...i", H)
            diagonal += CONTROL_DAMPING * diagonal.mean(axis=2, keepdims=True) + np.finfo(float).tiny
            step = np.linalg.solve(H, B.swapaxes(2, 3) @ d[..., None])[..., 0]
            u = us[k] - step
            controls[:, k] = u if ocp.control_bounds is None else np.clip(u, *(b[k] for b in ocp.control_bounds))
            total += [own.values(x[k], c[k], x[after]).cost.sum() for x, c in zip(xs, controls, strict=True)]
        total += [end.values(x[-1:], us[:1, :0], x[:0]).cost[0] for x in xs]
    return xs, controls, total


def _size(ocp: OCP) -> int:
    """Return the number of tangent components of the state without its durations."""
    return ocp.manifold.ndx - (ocp.phases[0].dynamics.nu if ocp.in_scaled_time else 0)


def _moved(ocp: OCP, move: Array) -> Array:
    """Return the states (M, N + 1, nx) at displacements (M, N + 1, ndx) from x0."""
    flat = move.reshape(-1, move.shape[-1]).T
    xs = ocp.manifold.integrate(np.repeat(ocp.x0[:, None], flat.shape[1], axis=1), flat)
    return np.ascontiguousarray(xs.T).reshape(*move.shape[:2], -1)


FACTORS = (5, 2)
"""Numbers of time steps that are merged into one: the second one if motions on the first grid are feasible there only, as when
they jump over an obstacle between its knots."""
MAX_ITERATIONS, ALL_ITERATIONS = 50, 4000
"""Maximum number of iterations of a coarse solve, and number of iterations of all of them after which no other one begins if a
motion is feasible."""
TOLERANCE = 1e-4
"""Tolerance on the scaled KKT error of a coarse solve."""
FEASIBLE = 1e-2
"""Tolerance on the violations of a coarse motion whose solve failed, relative to bounds beyond 1; it competes if it meets it."""
SAME = 1e-3
"""Relative difference below which objectives on the coarse grid are the same."""
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
LEAST_KNOTS = 5
"""Minimum number of knots of the coarse grid."""
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
        """Name, objective, iterations and status of the start, as in ``meta["starts"]`` of the solution."""
        status = "too expensive" if self.stopped else str(self.found.status.code)
        return {"start": self.name, "objective": self.objective, "iterations": self.found.iterations, "status": status}


class Choice(NamedTuple):
    """The initial guesses of solves, the cheapest first, each with a sentence for the status, "" for the user's guess.

    The user's guess as given comes last. starts: all that competed, empty if the guess alone is used. interrupted: True if the
    user interrupted the competition.
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
            finish = work if pool is None else pool.submit(work).result
            return lambda: (finish(), cutoff.stopped)

        try:
            yield begin
        finally:
            for cutoff in cutoffs:
                cutoff.close()


def may_compete(ocp: OCP, guess: Guess) -> bool:
    """True if the guess stands still, durations are fixed, no part of the problem runs in NumPy, and a coarser grid has knots
    enough.

    Its time steps can be merged, and at least half of its knots, and at least FACTORS[0] times LEAST_KNOTS, belong to sampled
    systems.
    """
    if not guess.stands_still or ocp.in_scaled_time:
        return False
    knots = sum(phase.knots for phase in ocp.phases if isinstance(phase.dynamics, SampledSystem))
    enough = knots >= max(FACTORS[0] * LEAST_KNOTS, ocp.horizon // 2)
    return enough and can_be_regridded(ocp) and runs_compiled(ocp)


PUSH = 1e-2
"""Moves of a guess that is a stationary point, of controls relative to those beyond 1."""


def pushed(ocp: OCP, guess: Guess) -> Guess:
    """Return the guess with controls moved by random amounts up to PUSH, and states along a line to a random one, by up to PUSH."""
    rng, share = np.random.default_rng(0), np.linspace(0.0, 1.0, len(guess.xs))[:, None]
    moves = rng.uniform(-PUSH, PUSH, guess.us.shape)
    away = share * rng.uniform(-PUSH, PUSH, (1, ocp.manifold.ndx))
    xs = np.ascontiguousarray(ocp.manifold.integrate(guess.xs.T, away.T).T)
    return Guess(xs, guess.us + moves * np.maximum(1.0, np.abs(guess.us)))


def choose_starts(
    ocp: OCP, guess: Guess, count: int, solve: Solve, has_time: Callable[[], bool], factor: int = FACTORS[0]
) -> Choice:
    """Solve from the guess and random motions on a coarse grid, and return the best initial guesses on the grid of the problem.

    solve: rough solve of the coarse problem. count: maximum number of starts. has_time: True while another start may be tried.
    factor: number of time steps that are merged into one.
    Ends early if AGREEMENT starts agree on the cheapest objective, or UNANIMOUS ones if no start led to another result, after
    ALL_ITERATIONS iterations if a motion is feasible, or after HOPELESS starts if none is. Only the guess is returned if its solve
    succeeds in at most FEW iterations or is unbounded, or if the user interrupts any solve. The guess as given comes last if its
    coarse motion is infeasible; otherwise its coarse solution competes.
    """
    coarse = coarser(ocp, factor)
    try:
        starts = _competed(coarse, on_grid_of(coarse, ocp, guess), count, solve, has_time)
    except KeyboardInterrupt:
        return Choice(((guess, ""),), interrupted=True)
    if starts[0].decides:
        return Choice(((guess, ""),))
    going_on = _chosen(starts)[:CONTINUED]
    chosen = [(on_grid_of(ocp, coarse, s.found), _sentence(starts, s, coarse.horizon)) for s in going_on]
    unused = [] if np.isfinite(starts[0].objective) else [(guess, "")]
    return Choice((*chosen, *unused), tuple(starts))


def _competed(coarse: OCP, guess: Guess, count: int, solve: Solve, has_time: Callable[[], bool]) -> list[Start]:
    """Solve a coarse problem from a guess and from random motions; arguments and end as in :func:`choose_starts`.

    Raises KeyboardInterrupt if the user interrupts any solve.
    """
    starts, best, agreeing, bounded = list[Start](), np.inf, 0, not coarse.constraints()
    motions = random_motions(coarse, guess, np.random.default_rng(0))
    with solver_threads(coarse, solve) as begin:
        begun = deque([begin(guess, np.inf)])
        while begun:
            found, stopped = begun.popleft()()
            if found.status.code is StatusCode.INTERRUPTED and not stopped:
                raise KeyboardInterrupt
            name = f"random motion {len(starts)}" if starts else "guess"
            objective = float(found.cost) if not stopped and _is_feasible(coarse, found) else np.inf
            starts.append(Start(name, objective, found, stopped))
            if abs((found.cost if stopped else objective) - best) <= AGREES * abs(best):
                agreeing += 1
            elif objective < best:
                agreeing = 1
            best = min(best, objective)
            if starts[0].decides or _is_over(starts, agreeing):
                break
            bound = best - SAME * abs(best) if bounded and np.isfinite(best) else np.inf
            while len(begun) < QUEUED and len(starts) + len(begun) < count and has_time():
                begun.append(begin(next(motions), bound))
    return starts


def _is_over(starts: Sequence[Start], agreeing: int) -> bool:
    """True if no other start is solved: enough agree on the cheapest objective, or too many were needed without that."""
    feasible = any(np.isfinite(start.objective) for start in starts)
    if not feasible:
        return len(starts) >= HOPELESS
    used_up = sum(start.found.iterations for start in starts) >= ALL_ITERATIONS
    return used_up or agreeing >= (UNANIMOUS if agreeing == len(starts) else AGREEMENT)


def _chosen(starts: list[Start]) -> list[Start]:
    """Return the starts with objectives within a factor NEAR of the cheapest one, sorted.

    Of those that agree to SAME only one: the guess, else the cheapest.
    """
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
    """Return a sentence for the status on the start that was chosen, or "" if that is the user's guess.

    knots: number of knots of the coarse grid.
    """
    given = starts[0]
    if chosen is given:
        return ""
    there = f"{given.objective:.4g}" if np.isfinite(given.objective) else "no feasible motion"
    return (
        f"The solve began from the best of {len(starts)} starts on {knots} knots, {chosen.name} "
        f"(objective {chosen.objective:.4g}); the guess led to {there}."
    )


def _is_feasible(ocp: OCP, found: Solution) -> bool:
    """True if a solution on the coarse grid is finite, and a success or within FEASIBLE of dynamics, bounds and constraints."""
    if not (np.isfinite(found.cost) and np.isfinite(found.xs).all() and np.isfinite(found.us).all()):
        return False
    if found.status.success:
        return True
    worst = largest_violation(ocp, found.xs, found.us, FEASIBLE)
    return worst is None or worst.ratio <= 1.0
