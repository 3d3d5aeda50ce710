"""Solver ``auto``: choose a method by the constraints of a problem, and try others if it fails.

    no constraints                shooting, then direct methods from its last iterate
    bounds on state components    shooting without the bounds; if it violates some or fails, direct methods with all bounds.
                                  A solution without the bounds that satisfies them solves the problem; their multipliers are zero
    any other constraint          direct methods

Shooting is DDP, or SLQ if a time step has no second derivatives. The direct methods are two, the second from the last iterate of
the first, and if no motion is feasible then again from the guess: IPM, then DMS with IPOPT (with the Gauss-Newton Hessian if a
time step has no second derivatives), or SQP without IPOPT.

If the attempts so far, the first direct method included, find no feasible motion of a problem with free durations, that method
solves the problem on the coarse grids COARSE from the guess. If no coarse motion is feasible, durations are held at LONGER
multiples of the guess's until one is. Then it solves on the full grid from each coarse solution. The cheapest solution counts; if
there is none, the second method follows. Coarse grids leave fewer ways to be infeasible; free durations may shrink to a minimum
of the violation, as when a mass moves away from its goal. Batches that are solved together omit coarse grids.

After an attempt with a status in ASTRAY, or whose violation has grown, the next one starts from the guess. If all attempts fail,
the solution is the cheapest motion that satisfies the constraints, or the last one. If it violates constraints, single solves
with checks repeat the attempts from x0 at rest, if the guess moves, and then the first attempt from direct motions to states that
satisfy the terminal constraints; the first feasible motion counts. The status and ``meta["attempts"]`` report all attempts; the
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
from trajopt.solvers import termination
from trajopt.solvers.measures import largest_violation
from trajopt.solvers.options import AutoOptions
from trajopt.solvers.time_limits import enough_time, remaining, start_of_solve
from trajopt.step.sensitivities import has_curvature
from trajopt.validation.limit_violations import constraint_violations

ASTRAY = (StatusCode.LINE_SEARCH_FAILED, StatusCode.NOT_POSITIVE_DEFINITE, StatusCode.NON_FINITE, StatusCode.UNBOUNDED)
"""Statuses of attempts whose last iterate does not start the next attempt."""
ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth",
    "thirteenth", "fourteenth",
)  # fmt: skip
FEASIBLE = 1e-6
"""Tolerance on dynamics and constraints for the solution of a failed attempt to count as feasible."""
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


class Try(NamedTuple):
    """Request: solve by an attempt from a guess. time_limit: see :func:`~trajopt.solvers.time_limits.remaining`."""

    attempt: Attempt
    guess: Guess
    time_limit: float | None


def in_turn(
    plan: Iterable[Attempt], problem: Callable[[], OCP], guess: Guess, options: AutoOptions
) -> Generator[Try, Solution | None, Solution | Status]:
    """Yield attempts in order until one solves the problem; each is answered by its solution, or None if it was stopped.

    problem: function that returns the problem. The first attempt and those on coarse grids start from ``guess``, attempts with
    ``restart`` from a coarse solution, others from the last iterate of the last attempt without coarse grids, or from ``guess``
    if that iterate is not usable (:func:`leaves_a_start`). Those with ``fresh`` start from ``guess``, unless the attempt before
    began there; if a motion is feasible, they continue the attempt before if it used all its iterations. Coarse grids and restarts
    are left out if an attempt without them has found a feasible motion, ``held`` durations also if a coarse one has, or
    if they were held before. Ends early
    after Ctrl-C, at the time limit, for an unbounded problem, and without ``fallback`` after a failure. Returns the cheapest
    solution, or if all failed the cheapest feasible or the last one (:func:`_best`), with iterations and records of all and a
    report on all attempts in ``meta``; the status "interrupted" if no attempt has a solution.
    """
    began, made, solutions, account = start_of_solve(), list[Attempt](), list[Solution](), list[dict[str, Any]]()
    coarse = list[tuple[OCP, Solution]]()
    start = guess
    limit, out_of_time = options.time_limit, False
    for attempt in plan:
        main = [(a, s) for a, s in zip(made, solutions, strict=True) if not (a.coarse or a.restart)]
        feasible = any(is_feasible(problem(), s) for _, s in main)
        if attempt.coarse or attempt.restart:
            moving = any(s.status.success for _, s in coarse)
            if feasible or (attempt.restart and not coarse) or (attempt.held and moving):
                continue
        elif _solved(made, solutions, account):
            break
        continues = feasible and bool(main) and main[-1][1].status.code is StatusCode.MAX_ITERATIONS
        if attempt.fresh and not continues and (feasible or start is guess):
            continue
        start = guess
        if attempt.held:
            attempt, start = _with_held_durations(attempt, problem(), guess)
            if not held_durations(attempt) or held_durations(attempt) in [held_durations(a) for a in made]:
                continue
        elif attempt.coarse:
            start = on_grid_of(attempt.ocp, problem(), guess)
        elif attempt.restart:
            start = on_grid_of(attempt.ocp, *coarse.pop(0))
        elif main and (continues or not attempt.fresh):
            start = start_of_next(main[-1][0].ocp, main[-1][1], guess)
        at = time.perf_counter()
        if solutions and not enough_time(limit, began):
            out_of_time = True
            break
        found = yield Try(attempt, start, remaining(limit, began))
        if found is None:
            break
        broken = attempt.relaxed and found.status.success
        broken = broken and any(constraint_violations(problem(), found.xs, found.us))
        made.append(attempt)
        solutions.append(found)
        account.append(_report_entry(attempt, found, found.meta.get("solve_time", time.perf_counter() - at), broken))
        if attempt.coarse and (found.status.success if attempt.held else leaves_a_start(found)):
            coarse.append((attempt.ocp, found))
        if found.status.code is StatusCode.UNBOUNDED and not (attempt.relaxed or attempt.coarse):
            break
        if not another_follows(found, options, broken, coarse=attempt.coarse or bool(attempt.restart and coarse)):
            break
    if not solutions:
        return termination.not_started()
    number = _best(made, solutions, account, problem)
    best, seconds = solutions[number], sum(entry["seconds"] for entry in account)
    end = solutions[-1].status if solutions[-1].status.code in STOPPED else best.status
    return replace(
        best,
        status=_status(end, account, number, limit if out_of_time else None),
        iterations=sum(s.iterations for s in solutions),
        history=tuple(record for s in solutions for record in s.history),
        meta={**best.meta, "attempts": account, "solve_time": seconds},
    )


def another_follows(found: Solution, options: AutoOptions, broken: bool, coarse: bool = False) -> bool:
    """Return True if another attempt follows: this one violates bounds that it omitted, or failed or was coarse, with fallback.

    None follows after Ctrl-C or a time limit. broken: True if the solution violates bounds on the state that the attempt omitted.
    coarse: True if a success does not end the attempts: on a coarse grid, or with a coarse solution left to restart from.
    """
    solved = found.status.success and not (broken or coarse)
    return not solved and found.status.code not in STOPPED and (options.fallback or broken)


def attempts(ocp: OCP, *, coarse: bool = True, relaxed: bool = True) -> Iterator[Attempt]:
    """Yield the attempts for a problem: DDP or SLQ without state bounds, if these are the only constraints; IPM; DMS or SQP.

    DDP also without constraints; SLQ in its place if a time step has no second derivatives. DMS if IPOPT is installed, else SQP.
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
    if find_spec("cyipopt"):
        last = Attempt("dms", ocp, {} if curved else {"hessian": "gauss_newton"})
    else:
        last = Attempt("sqp", ocp, {})
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
    before, after = (largest_violation(ocp, *trajectory, 1.0) for trajectory in (guess, (found.xs, found.us)))
    grown = after is not None and after.ratio > max(1.0, 0.0 if before is None else before.ratio)
    return guess if grown else Guess(found.xs, found.us)


def leaves_a_start(found: Solution) -> bool:
    """Return True if the last iterate of an attempt is finite and can start the next one.

    False after a failed line search, an indefinite Quu, NaN or an unbounded objective.
    """
    finite = np.isfinite(found.xs).all() and np.isfinite(found.us).all()
    return bool(finite) and found.status.code not in ASTRAY


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


def _solved(made: Sequence[Attempt], found: Sequence[Solution], account: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the indices of attempts that solved the problem on its time grid and satisfy its bounds."""
    each = enumerate(zip(made, found, account, strict=True))
    return [i for i, (a, s, entry) in each if s.status.success and not a.coarse and not entry["breaks them"]]


def _best(
    made: Sequence[Attempt], found: Sequence[Solution], account: Sequence[Mapping[str, Any]], problem: Callable[[], OCP]
) -> int:
    """Return the index of the cheapest solution that solved the problem, else of the cheapest feasible one, else of a failed one.

    That is the last one with a certificate of local infeasibility, or if there is none, the last one. Solutions on coarse grids do
    not count. If the last attempt ended by Ctrl-C or a time limit, or with a single attempt on the problem's grid, feasible ones
    that failed do not count either. account: report entries of the attempts.
    """

    def cheapest(numbers: Sequence[int], default: int) -> int:
        """Return the index of the solution with the lowest cost among ``numbers``, or the default if there is none."""
        return min(numbers, key=lambda i: float(found[i].cost), default=default)

    whole = [i for i, attempt in enumerate(made) if not attempt.coarse]
    solved = _solved(made, found, account)
    if solved or len(whole) == 1 or found[-1].status.code in STOPPED:
        return cheapest(solved, whole[-1])
    certified = [i for i in whole if found[i].status.code is StatusCode.LOCALLY_INFEASIBLE]
    return cheapest([i for i in whole if is_feasible(problem(), found[i])], [*whole, *certified][-1])


def _status(status: Status, account: Sequence[Mapping[str, Any]], number: int, limit: float | None) -> Status:
    """Return ``status`` with a message that starts with the solver of the chosen solution and lists how the other attempts ended.

    account: report entries of the attempts. number: index of the chosen solution; a success that violates state bounds which its
    attempt omitted becomes "time_limit", or "interrupted" without ``limit``. limit: time limit [s] that prevented another
    attempt, else None.
    """
    names = [a["solver"] for a in account]
    most = max(a["knots"] for a in account)
    if account[number]["breaks them"] and status.success:  # a stop came before an attempt with these bounds
        code = StatusCode.INTERRUPTED if limit is None else StatusCode.TIME_LIMIT
        message = f"{status.message} The solution violates the state limits, which were omitted."
        status = replace(status, code=code, message=message)
    elif account[number]["without"] and status.success and len(names) == 1:
        message = f"{status.message} The solution satisfies the state limits, which were omitted."
        status = replace(status, message=message)
    if limit is not None:
        advice = "" if status.success else "Increase time_limit."
        message = f"{status.message} time_limit = {limit:g} s left no time for another attempt."
        status = replace(status, message=message, advice=status.advice or advice)
    if len(names) == 1:
        return replace(status, message=f"{names[0]}: {status.message}")
    ends = ", ".join(f"{a['solver']} {_end(a, most)}" for i, a in enumerate(account) if i != number)
    best = ", the best one" if number < len(names) - 1 else ""
    return replace(
        status, message=f"{names[number]}: {status.message} This was the {ORDINALS[number]} attempt{best}: {ends}."
    )


def is_feasible(ocp: OCP, s: Solution) -> bool:
    """Return True if a solution is finite and satisfies the dynamics, bounds and constraints of a problem to FEASIBLE."""
    if not (np.isfinite(s.cost) and np.isfinite(s.xs).all() and np.isfinite(s.us).all()):
        return False
    worst = largest_violation(ocp, s.xs, s.us, FEASIBLE)
    return worst is None or worst.ratio <= 1.0


def _end(attempt: Mapping[str, Any], knots: int) -> str:
    """Return a phrase on how an attempt ended, for the list of attempts in a message; knots: number of knots of the problem."""
    on = f" on {attempt['knots']} knots" if attempt["knots"] < knots else ""
    on += held_text(attempt["held"])
    on = " from a coarse solution" if attempt["from_coarse"] else on
    if attempt["breaks them"]:
        return "violated state limits that were omitted"
    return f"{'converged' if attempt['status'] == StatusCode.CONVERGED else 'ended with ' + attempt['status']}{on}"
