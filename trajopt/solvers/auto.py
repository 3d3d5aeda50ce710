"""Solver ``auto``: choose a method by the constraints of a problem, and try others if it fails.

    no constraints                shooting, then direct methods from its last iterate
    bounds on state components    shooting without the bounds; if it violates some or fails, direct methods with all bounds.
                                  A solution without the bounds that satisfies them solves the problem; their multipliers are zero
    any other constraint          direct methods

Shooting is DDP, or SLQ if a time step has no second derivatives. The direct methods are two, the second from the last iterate of
the first, and if no motion is feasible then again from the guess: IPM, then DMS with IPOPT, or SQP without IPOPT. If a time step
has no second derivatives, IPM has the Gauss-Newton Hessian; DMS and SQP do so only if they cannot differentiate its source.

If the attempts so far, the first direct method included, find no feasible motion of a problem with free durations, that method
solves the problem on the coarse grids COARSE from the guess. If no coarse motion is feasible, durations are held at LONGER
multiples of the guess's until one is. Then it solves on the full grid from each coarse solution. The cheapest solution counts; if
there is none, the second method follows. Coarse grids leave fewer ways to be infeasible; free durations may shrink to a minimum
of the violation, as when a mass moves away from its goal. Batches that are solved together omit coarse grids.

After an attempt with a status in ASTRAY, or whose violation has grown, the next one starts from the guess. If all attempts fail,
the solution is the cheapest motion that satisfies the constraints, or the last one. If it violates constraints, single solves
with checks repeat the attempts from x0 at rest, if the guess moves, and then the first attempt from random motions to the goal; the
first feasible motion counts. The status and ``meta["attempts"]`` report all attempts; the
history holds their records in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from trajopt.guesses.guesses import with_free_durations, without_durations
from trajopt.guesses.time_grids import can_be_regridded, coarser, on_grid_of
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, Status, StatusCode
from trajopt.solvers import measures, termination
from trajopt.solvers.methods.delegation import iterations_of
from trajopt.solvers.options import AutoOptions
from trajopt.solvers.time_limits import enough_time, remaining, start_of_solve
from trajopt.step.sensitivities import has_curvature, missing_curvature
from trajopt.validation.limit_violations import constraint_violations

ASTRAY = (StatusCode.LINE_SEARCH_FAILED, StatusCode.NOT_POSITIVE_DEFINITE, StatusCode.NON_FINITE, StatusCode.UNBOUNDED)
"""Statuses of attempts whose last iterate does not start the next attempt."""
ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth",
    "thirteenth", "fourteenth",
)  # fmt: skip
LAST_ITERATIONS = 1000
"""Maximum number of iterations of the last attempt, after which nothing follows, unless the options set one."""
COARSE, LONGER = (10, 20), (1.0, 2.0, 4.0, 8.0, 0.5)
"""Approximate numbers of knots of coarse time grids, in order, and multiples of the guess's durations that are held on the last."""


class Attempt(NamedTuple):
    """A method for a problem, with the options that it needs.

    relaxed: True if the bounds on the state are omitted. fine: the problem to solve, if the attempt uses a coarser time grid.
    restart: True if the attempt starts from the solution on a coarse grid. held: multiple of the guess's durations that are held,
    0 for free ones. fresh: True if it starts from the guess, as the attempt before it has failed from an iterate.
    """

    solver: str
    ocp: OCP
    needs: Mapping[str, Any]
    relaxed: bool = False
    fine: OCP | None = None
    restart: bool = False
    held: float = 0.0
    fresh: bool = False

    @property
    def coarse(self) -> bool:
        """True if the attempt solves on a coarser time grid than the problem's, so that its solution serves only as a guess."""
        return self.fine is not None

    @property
    def through_coarse(self) -> bool:
        """True if the attempt solves on a coarse grid, or starts from a solution there."""
        return self.coarse or self.restart


class Try(NamedTuple):
    """Request: solve by an attempt from a guess. time_limit: see :func:`~trajopt.solvers.time_limits.remaining`."""

    attempt: Attempt
    guess: Guess
    time_limit: float | None


class Tried(NamedTuple):
    """An attempt that was made, its start, its solution and its entry in the report."""

    attempt: Attempt
    start: Guess
    solution: Solution
    entry: dict[str, Any]

    @property
    def solves(self) -> bool:
        """True if the attempt solved the problem on its time grid and satisfies its bounds."""
        return self.solution.status.success and not self.attempt.coarse and not self.entry["breaks them"]


def in_turn(
    plan: Iterable[Attempt], problem: Callable[[], OCP], guess: Guess, options: AutoOptions
) -> Generator[Try, Solution | None, Solution | Status]:
    """Yield attempts in order until one solves the problem; each is answered by its solution, or None if it was stopped.

    problem: function that returns the problem. :func:`_is_skipped` decides which attempts are left out, :func:`_start_of` where
    the others start, and :func:`_ends` which one is the last. Returns the cheapest solution, or if all failed the cheapest
    feasible or the last one (:func:`_best`), with iterations and records of all and a report on all attempts in ``meta``; the
    status "interrupted" if no attempt has a solution.
    """
    began, tried, limit, out_of_time = start_of_solve(), list[Tried](), options.time_limit, False
    for attempt in plan:
        if any(t.solves for t in tried) and not attempt.through_coarse:
            break
        feasible = any(is_feasible(problem(), t.solution) for t in _direct(tried))
        if _is_skipped(attempt, tried, guess, feasible):
            continue
        attempt, start = _start_of(attempt, tried, problem, guess, feasible)
        if attempt.held and held_durations(attempt) in [(), *(held_durations(t.attempt) for t in tried)]:
            continue
        if tried and not enough_time(limit, began):
            out_of_time = True
            break
        at = time.perf_counter()
        found = yield Try(attempt, start, remaining(limit, began))
        if found is None:
            break
        broken = attempt.relaxed and found.status.success
        broken = broken and any(constraint_violations(problem(), found.xs, found.us))
        seconds = found.meta.get("solve_time", time.perf_counter() - at)
        tried.append(Tried(attempt, start, found, _report_entry(attempt, found, seconds, broken)))
        if _ends(tried, options):
            break
    if not tried:
        return termination.not_started()
    number, report = _best(tried, problem), [t.entry for t in tried]
    best, last = tried[number].solution, tried[-1].solution
    end = last.status if last.status.code in STOPPED else best.status
    return replace(
        best,
        status=_status(end, report, number, limit if out_of_time else None),
        meta={**best.meta, "attempts": report, "solve_time": sum(entry["seconds"] for entry in report)},
        **iterations_of(*(t.solution for t in tried)),
    )


def _direct(tried: Sequence[Tried]) -> list[Tried]:
    """Return the attempts on the problem's grid that did not start from a coarse solution."""
    return [t for t in tried if not t.attempt.through_coarse]


def _coarse_starts(tried: Sequence[Tried]) -> list[Tried]:
    """Return the attempts on coarse grids whose solutions can start an attempt on the problem's grid, and have not yet."""
    coarse = [t for t in tried if t.attempt.coarse]
    usable = [t for t in coarse if (t.solution.status.success if t.attempt.held else leaves_a_start(t.solution))]
    return usable[sum(t.attempt.restart for t in tried) :]


def _is_skipped(attempt: Attempt, tried: Sequence[Tried], guess: Guess, feasible: bool) -> bool:
    """True if an attempt is left out.

    Coarse grids and restarts are left out if a motion is feasible; restarts also without a coarse solution, and ``held`` durations
    if a coarse solve succeeded. Those with ``fresh`` are left out if the attempt before began at ``guess``, or, if a motion is
    feasible, unless the attempt before used all its iterations. feasible: a motion of :func:`_direct` attempts is feasible.
    """
    if attempt.through_coarse:
        coarse = _coarse_starts(tried)
        moves = any(t.solution.status.success for t in coarse)
        return feasible or (attempt.restart and not coarse) or (attempt.held > 0.0 and moves)
    if not attempt.fresh:
        return False
    if feasible:
        return _direct(tried)[-1].solution.status.code is not StatusCode.MAX_ITERATIONS
    return tried[-1].start is guess


def _start_of(
    attempt: Attempt, tried: Sequence[Tried], problem: Callable[[], OCP], guess: Guess, feasible: bool
) -> tuple[Attempt, Guess]:
    """Return an attempt, with its durations held if it holds any, and its initial guess.

    That is ``guess`` on coarse grids, a coarse solution for ``restart``, else the last iterate of the last of the :func:`_direct`
    attempts, or ``guess`` if there is none, it is not usable (:func:`start_of_next`), or no motion is feasible and the attempt is
    ``fresh``.
    """
    if attempt.held:
        return _with_held_durations(attempt, problem(), guess)
    if attempt.coarse:
        return attempt, on_grid_of(attempt.ocp, problem(), guess)
    if attempt.restart:
        coarse = _coarse_starts(tried)[0]
        return attempt, on_grid_of(attempt.ocp, coarse.attempt.ocp, coarse.solution)
    direct = _direct(tried)
    if not direct or (attempt.fresh and not feasible):
        return attempt, guess
    return attempt, start_of_next(direct[-1].attempt.ocp, direct[-1].solution, guess)


def _ends(tried: Sequence[Tried], options: AutoOptions) -> bool:
    """True if no attempt follows the last one.

    None follows after Ctrl-C, a time limit, an unbounded problem, or without ``fallback`` a failure; nor after a success, unless it
    violates bounds that the attempt omitted, is on a coarse grid, or leaves a coarse solution to restart from.
    """
    attempt, _, found, entry = tried[-1]
    broken = entry["breaks them"]
    if found.status.code in STOPPED:
        return True
    if found.status.code is StatusCode.UNBOUNDED and not (attempt.relaxed or attempt.coarse):
        return True
    more = broken or attempt.coarse or (attempt.restart and _coarse_starts(tried))
    return not ((options.fallback or broken) and (more or not found.status.success))


def attempts(ocp: OCP, *, coarse: bool = True, relaxed: bool = True) -> Iterator[Attempt]:
    """Yield the attempts for a problem: DDP or SLQ without state bounds, if these are the only constraints; IPM; DMS or SQP.

    DDP also without constraints; SLQ in its place if a time step has no second derivatives. DMS if IPOPT is installed, else SQP;
    both differentiate the source of such a step, if they can.
    coarse: after IPM, include its attempts on coarse time grids and from their solutions, for problems with free durations.
    relaxed: include DDP or SLQ without the bounds on the state.
    """
    curved = has_curvature(ocp)
    if has_only_bounds(ocp) and (relaxed or not ocp.constraints()):
        yield Attempt("ddp" if curved else "slq", ocp.unconstrained(), {}, relaxed=bool(ocp.constraints()))
    ipm = Attempt("ipm", ocp, {})
    yield ipm
    if coarse and ocp.in_scaled_time and can_be_regridded(ocp):
        yield from _coarse_to_fine(ipm)
    exact = missing_curvature(ocp, from_source=True) is None
    if find_spec("cyipopt"):
        last = Attempt("dms", ocp, {} if exact else {"hessian": "gauss_newton"})
    else:
        last = Attempt("sqp", ocp, {"hessian": "exact"} if exact and not curved else {})
    yield last
    yield last._replace(fresh=True, needs={**last.needs, "max_iterations": LAST_ITERATIONS})


def _coarse_to_fine(attempt: Attempt) -> Iterator[Attempt]:
    """Yield an attempt on each grid of COARSE with at most half of the time steps, those with durations held at LONGER multiples on
    the last of them, and then one on the problem's grid for each that may leave a solution.
    """
    steps = sum(phase.knots for phase in attempt.ocp.phases if phase.dynamics.takes_time)
    factors = [round(steps / knots) for knots in COARSE if steps >= 2 * knots]
    grids = [attempt._replace(ocp=coarser(attempt.ocp, factor), fine=attempt.ocp) for factor in factors]
    yield from grids
    yield from [grids[-1]._replace(held=multiple) for multiple in LONGER] if grids else ()
    yield from [attempt._replace(restart=True)] * (len(grids) + 1)


def _with_held_durations(attempt: Attempt, problem: OCP, guess: Guess) -> tuple[Attempt, Guess]:
    """Return an attempt whose durations are held at its multiple of the guess's, within their bounds, and its initial guess."""
    ocp, first = attempt.ocp, without_durations(problem)
    start = with_free_durations(ocp, on_grid_of(ocp, problem, guess), attempt.held * guess.xs[-1, first:])
    limits = ocp.control_bounds or (np.full(start.us.shape, -np.inf), np.full(start.us.shape, np.inf))
    lower, upper = (bound.copy() for bound in limits)
    count = ocp.manifold.nx - first
    lower[0, :count] = upper[0, :count] = start.us[0, :count]
    return attempt._replace(ocp=replace(ocp, u_lower=lower, u_upper=upper)), start


def held_durations(attempt: Attempt) -> tuple[float, ...]:
    """Return the durations [s] that an attempt holds, () for none."""
    if not attempt.held or attempt.ocp.u_lower is None:
        return ()
    count = attempt.ocp.manifold.nx - without_durations(attempt.ocp)
    return tuple(attempt.ocp.u_lower[0, :count].tolist())


def held_text(durations: Sequence[float]) -> str:
    """Return a phrase on held durations [s], "" for none."""
    return f" with durations of {', '.join(f'{T:.3g}' for T in durations)} s" if durations else ""


def has_only_bounds(ocp: OCP) -> bool:
    """Return True if every constraint bounds state components with lower < upper, or if there is no constraint."""
    return all(_is_bound(c) for c in ocp.constraints())


def _is_bound(c: Constraint) -> bool:
    """True if a constraint bounds state components, with lower < upper for all of them."""
    return chosen_coordinates(c) is not None and bool((c.lower < c.upper).all())


def start_of_next(ocp: OCP, found: Solution, guess: Guess) -> Guess:
    """Return the guess of the next attempt: the last iterate of this one, at ``ocp``, if it did not go astray
    (:func:`leaves_a_start`), else ``guess``. An iterate also went astray whose violation exceeds 1 and that of the guess.
    """
    if not leaves_a_start(found):
        return guess
    if found.status.success:
        return Guess(found.xs, found.us)
    before, after = (measures.largest_violation(ocp, *trajectory, 1.0) for trajectory in (guess, (found.xs, found.us)))
    grown = after is not None and after.ratio > max(1.0, 0.0 if before is None else before.ratio)
    return guess if grown else Guess(found.xs, found.us)


def leaves_a_start(found: Solution) -> bool:
    """Return True if the last iterate of an attempt is finite and can start the next one.

    False after a failed line search, an indefinite Quu, NaN or an unbounded objective.
    """
    return measures.is_finite(found.xs, found.us) and found.status.code not in ASTRAY


def _report_entry(attempt: Attempt, found: Solution, seconds: float, broken: bool) -> dict[str, Any]:
    """Return the entry of an attempt in the report: solver, status, cost, iterations, seconds and how it differs from the problem.

    broken: True if the solution violates state bounds that the attempt omitted.
    """
    return {
        "solver": attempt.solver,
        "without": "bounds on the state" if attempt.relaxed else "",
        "knots": attempt.ocp.horizon,
        "from_coarse": attempt.restart,
        "held": held_durations(attempt),
        "breaks them": broken,
        "status": str(found.status.code),
        "message": found.status.message,
        "cost": float(found.cost),
        "iterations": found.iterations,
        "seconds": seconds,
    }


def _best(tried: Sequence[Tried], problem: Callable[[], OCP]) -> int:
    """Return the index of the cheapest solution that solved the problem, else of the cheapest feasible one, else of a failed one.

    That is the last one with a certificate of local infeasibility, or if there is none, the last one. Solutions on coarse grids do
    not count. If the last attempt ended by Ctrl-C or a time limit, or with a single attempt on the problem's grid, feasible ones
    that failed do not count either.
    """

    def cheapest(numbers: Sequence[int], default: int) -> int:
        """Return the index of the solution with the lowest cost among ``numbers``, or the default if there is none."""
        return min(numbers, key=lambda i: float(tried[i].solution.cost), default=default)

    found = [t.solution for t in tried]
    whole = [i for i, t in enumerate(tried) if not t.attempt.coarse]
    solved = [i for i, t in enumerate(tried) if t.solves]
    if solved or len(whole) == 1 or found[-1].status.code in STOPPED:
        return cheapest(solved, whole[-1])
    certified = [i for i in whole if found[i].status.code is StatusCode.LOCALLY_INFEASIBLE]
    return cheapest([i for i in whole if is_feasible(problem(), found[i])], [*whole, *certified][-1])


def _status(status: Status, report: Sequence[Mapping[str, Any]], number: int, limit: float | None) -> Status:
    """Return ``status`` with a message that starts with the solver of the chosen solution and lists how the other attempts ended.

    report: entries of the attempts. number: index of the chosen solution; a success that violates state bounds which its
    attempt omitted becomes "time_limit", or "interrupted" without ``limit``. limit: time limit [s] that prevented another
    attempt, else None.
    """
    names = [a["solver"] for a in report]
    most = max(a["knots"] for a in report)
    if report[number]["breaks them"] and status.success:  # a stop came before an attempt with these bounds
        code = StatusCode.INTERRUPTED if limit is None else StatusCode.TIME_LIMIT
        message = f"{status.message} The solution violates the state limits, which were omitted."
        status = replace(status, code=code, message=message)
    elif report[number]["without"] and status.success and len(names) == 1:
        message = f"{status.message} The solution satisfies the state limits, which were omitted."
        status = replace(status, message=message)
    if limit is not None:
        advice = "" if status.success else "Increase time_limit."
        message = f"{status.message} time_limit = {limit:g} s left no time for another attempt."
        status = replace(status, message=message, advice=status.advice or advice)
    if len(names) == 1:
        return replace(status, message=f"{names[0]}: {status.message}")
    ends = ", ".join(f"{a['solver']} {_end(a, most)}" for i, a in enumerate(report) if i != number)
    best = ", the best one" if number < len(names) - 1 else ""
    return replace(
        status, message=f"{names[number]}: {status.message} This was the {ORDINALS[number]} attempt{best}: {ends}."
    )


def is_feasible(ocp: OCP, s: Solution) -> bool:
    """Return True if a solution is finite and satisfies the dynamics, bounds and constraints of a problem to FEASIBLE."""
    return bool(np.isfinite(s.cost)) and measures.is_feasible(ocp, s.xs, s.us)


def _end(attempt: Mapping[str, Any], knots: int) -> str:
    """Return a phrase on how an attempt ended, for the list of attempts in a message; knots: number of knots of the problem."""
    on = f" on {attempt['knots']} knots" if attempt["knots"] < knots else ""
    on += held_text(attempt["held"])
    on = " from a coarse solution" if attempt["from_coarse"] else on
    if attempt["breaks them"]:
        return "violated state limits that were omitted"
    return f"{'converged' if attempt['status'] == StatusCode.CONVERGED else 'ended with ' + attempt['status']}{on}"
