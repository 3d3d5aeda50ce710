"""``solve_batch``: solve many problems of one structure in one call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess, Motion, as_guess, constant_guess
from trajopt.problem.annotations import problem_annotations
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.auto import attempts
from trajopt.solvers.batch.finite import invalid_values, with_culprits
from trajopt.solvers.batch.interrupts import deferred_interrupts, interrupted
from trajopt.solvers.batch.solution import BatchSolution, gathered, guess_of, rows_of, unchecked_statuses
from trajopt.solvers.batch.validation import invalid_problems, require_structure, solve_valid_problems
from trajopt.solvers.goal_tolerance import last_iterate, merged, relaxed_problem
from trajopt.solvers.options import AutoOptions, MethodOptions, SLQOptions, scaled_kkt_tolerance
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.registry import SOLVERS, attempt_options, chosen_options, require_open
from trajopt.solvers.scaling import SCALED, Scaling, scaling_of
from trajopt.solvers.solution_checks import checked_motion
from trajopt.solvers.success import with_descent, with_end_held
from trajopt.stage.engine import is_compiled

BatchCallback = Callable[[int, int], None]
"""Progress callback(finished, total) with numbers of problems; may raise KeyboardInterrupt to stop the batch."""


_LOG = logging.getLogger(__name__)


def solve_batch(
    ocp: OCP | Batch | Sequence[OCP],
    batch: Mapping[str, Any] | None = None,
    guess: Motion | Sequence[Motion] | None = None,
    options: Any = None,
    callback: BatchCallback | None = None,
    solver: str | None = None,
    *,
    gains: bool = False,
    threads: int | None = None,
    check: bool = True,
    replay: bool = False,
) -> BatchSolution:
    """Solve many problems that differ only in values; each solution equals that of :func:`trajopt.solve` with ``check=False``.

    The exception is "auto", which tries no coarse time grids here for problems solved together. Statuses cover feasibility and
    optimality as the solver measures them; with ``replay`` the motions and goals, too. If the first problem is scaled, the others
    are scaled like it; else only single solves scale their problems.

    ocp: the problem whose values change, a :class:`~trajopt.solvers.problem_batch.Batch`, or a list of problems. batch: the
    values that differ, as for a Batch. guess: one guess for all problems, stacked arrays (n, N + 1, nx) and (n, N, nu), or a list
    of guesses; default each problem's x0 at every knot, and zero controls. options, solver: as in :func:`trajopt.solve`.
    callback: receives the number of finished problems and of all problems. gains: return K and k. threads: at least 1; default
    TRAJOPT_THREADS, else the number of processors. check: validate the problems, as :func:`trajopt.solve` does. replay: check
    the motion of each success as :func:`trajopt.solve` does: replay, inequalities between the knots, and goals. This may take as
    long as the solves.

    How a batch is solved (``meta["how"]``) depends on the solver:

    - slq, ilqr, gnms and fddp, without constraints and compiled: one problem in each SIMD lane, on threads. The time_limit covers
      all problems that share the lanes. Large problems are solved as by ddp.
    - ddp without constraints and by Newton's method, its default, and ipm: each thread solves one problem after the other, with the
      knots of a problem in lanes. A failure of ipm (no accepted step length, non-finite values), and a problem with other rows,
      is repeated as a single solve; ``meta["referred"]`` lists these problems.
    - slq, ilqr, gnms, fddp and ddp with constraints: the inner solves of the augmented Lagrangian as above, round by round
      (:mod:`trajopt.solvers.batch.rounds`)
    - "auto", the default: one attempt after the other, each for all unsolved problems (:mod:`trajopt.solvers.batch.attempts`)
    - other solvers and problems that are not compiled, "auto" with a time_limit, and shooting solvers with constraints and a
      time_limit: single solves, in processes if the work is long enough

    A failed or invalid problem gets a status and does not stop the others; an invalid one "infeasible" for contradictory bounds,
    "non_finite" for NaN or a forbidden infinity, else "error". Ctrl-C returns the finished solutions; the other problems are
    "interrupted", and ``stopped`` of the result is True. Ctrl-C before the first problem starts, or a second Ctrl-C while no thread
    solves a problem, raises KeyboardInterrupt.

    Raises ValueError for values of a wrong shape, problems of different structures, and errors that all problems share;
    UnknownName for a value that matches no name in the problem.

    >>> import numpy as np, trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    >>> step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler")
    >>> goal = to.state_cost(cart.manifold, [1.0, 0.0], 1e4, name="goal")
    >>> ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, [to.control_cost(1)], [goal])
    >>> found = to.solve_batch(ocp, {"goal.reference": [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]})
    >>> found.success.all(), found.xs[:, -1, 0].round(1)
    (np.True_, array([1., 2., 3.]))
    """
    _require_threads(threads)
    if batch is not None and not isinstance(batch, Mapping):
        raise TypeError(f"batch is a {type(batch).__name__}; expected values by name, and guesses as guess=")
    problems = _batch_of(ocp, batch)
    require_structure(problems)
    name, chosen = chosen_options(solver, options)
    if chosen.between_knots:
        _LOG.warning("between_knots has no effect in batches, which add no margins: solve one by one")
    guesses = _guesses_of(problems, guess)
    flaws = invalid_values(problems, guesses)
    if check:
        flaws |= invalid_problems(problems, guesses, flaws)
    on_finished = None if callback is None else _without_steps_back(callback, len(problems))

    def run(valid: Batch, own: tuple[Array, Array], report: Callable[[int], None] | None) -> BatchSolution:
        """Solve the valid problems, and failed ones again with relaxed goals; check them, scaled like the first one."""
        scaling = scaling_of(valid[0], guess_of(own, 0, len(valid)))
        scaled, start = (valid, own) if scaling is None else _scaled(scaling, valid, own)
        found = _solved(scaled, start, name, chosen, report, gains=with_gains, threads=threads)
        found = _with_goal_tolerance(scaled, start, found, name, chosen, gains=with_gains, threads=threads)
        found = _with_statuses(scaled, start, _with_times(scaled, found), chosen)
        checked = _with_motions_checked(scaled, found, chosen) if replay else found
        if scaling is None:
            return checked
        checked = _in_units(scaling, valid, checked)
        return _with_amounts(valid, checked, found.status, chosen) if replay else checked

    with_gains = gains or replay
    with deferred_interrupts():
        found = solve_valid_problems(flaws, problems, guesses, run, on_finished, gains=with_gains)
        meta = {**found.meta, "problem": problems.ocp.name, "solver": name, "options": asdict(chosen)}
        seen = {"model": problems.ocp.model, "annotations": problem_annotations(problems.ocp)}
        whole = with_culprits(problems, replace(_with_times(problems, found), meta=meta, **seen), flaws)
        whole = whole if gains else replace(whole, K=None, k=None)
        return replace(whole, meta={**whole.meta, "stopped": True}) if interrupted() else whole


def _scaled(scaling: Scaling, batch: Batch, guess: tuple[Array, Array]) -> tuple[Batch, tuple[Array, Array]]:
    """Return the scaled problems and guesses of a batch."""
    problems = Batch.from_problems([replace(scaling, ocp=batch[i]).problem() for i in range(len(batch))])
    return problems, (guess[0] / scaling.states, guess[1] / scaling.controls)


def _in_units(scaling: Scaling, batch: Batch, found: BatchSolution) -> BatchSolution:
    """Return the solutions of the scaled problems of a batch in the units of the batch."""
    motion = scaling.motion(found)
    with np.errstate(all="ignore"):  # of problems that were not started, or whose motion is not finite
        rows = enumerate(zip(motion["xs"], motion["us"], strict=True))
        cost = np.array([batch[i].cost(xs, us) for i, (xs, us) in rows])
    meta = {**found.meta, "scaling": scaling.as_meta()}
    if "last_controls" in meta:
        meta["last_controls"] = [(np.asarray(u) * scaling.controls[-1]).tolist() for u in meta["last_controls"]]
    if "attempts" in meta:
        meta["attempts"] = [[scaling.entry(attempt) for attempt in attempts] for attempts in meta["attempts"]]
    status = tuple(replace(s, message=f"{s.message} {SCALED}") for s in found.status)
    return replace(found, **motion, cost=cost, status=status, meta=meta)


def _with_times(batch: Batch, found: BatchSolution) -> BatchSolution:
    """Return a batch with the times of motions with free durations."""
    if not batch.ocp.in_scaled_time:
        return found
    return replace(found, times=np.stack([batch[i].times_of(xs) for i, xs in enumerate(found.xs)]))


def _with_statuses(batch: Batch, guess: tuple[Array, Array], found: BatchSolution, options: Any) -> BatchSolution:
    """Return a batch with statuses by feasibility and optimality, as the solver measures them. options: of the solver."""
    status = unchecked_statuses(found, scaled_kkt_tolerance(options))
    if batch.ocp.implied:
        status = tuple(with_end_held(batch[i], s, found.xs[i, -1]) for i, s in enumerate(status))
    return replace(found, status=tuple(_with_descent(batch, guess, found, i, s) for i, s in enumerate(status)))


def _with_descent(batch: Batch, guess: tuple[Array, Array], found: BatchSolution, i: int, status: Status) -> Status:
    """Return the status of problem i, "unbounded" if its objective fell far, as in :func:`~trajopt.solvers.success.with_descent`.

    status: the present one.
    """
    if not termination.may_be_unbounded(status, found.cost[i]):
        return status
    return with_descent(batch[i], guess_of(guess, i, len(batch)), replace(found[i], status=status)).status


def _with_motions_checked(batch: Batch, found: BatchSolution, options: Any) -> BatchSolution:
    """Return a batch with the statuses of its successes by the checks of their motions, meta["replays"] and meta["findings"].

    After Ctrl-C the successes that are left are "interrupted", with a message that says so. options: of the solver. The time of
    the checks is added to meta["seconds"].
    """
    began, status = time.perf_counter(), list(found.status)
    replays: list[Mapping[str, Any]] = [{"left_out": "the solve failed"}] * len(found)
    findings: list[list[str]] = [[] for _ in range(len(found))]
    for i in np.flatnonzero(found.success).tolist():
        if interrupted():
            status[i] = termination.unchecked_at_interrupt(status[i])
            replays[i] = {"left_out": "the batch was interrupted"}
            continue
        solution = checked_motion(batch[i], found[i], options)
        status[i], replays[i], findings[i] = solution.status, solution.meta["replay"], solution.meta["findings"]
    meta = {
        **found.meta,
        "replays": replays,
        "findings": findings,
        "seconds": found.meta["seconds"] + time.perf_counter() - began,
    }
    return replace(found, status=tuple(status), meta=meta)


def _with_amounts(batch: Batch, found: BatchSolution, solved: Sequence[Status], options: Any) -> BatchSolution:
    """Return checked solutions of scaled problems with the amounts of the checks in the units of the batch.

    These are those in messages, meta["replays"] and meta["findings"]; the status codes are those of the scaled numbers. solved:
    statuses before the checks. options: of the solver.
    """
    own, status = _with_motions_checked(batch, replace(found, status=tuple(solved)), options), list(found.status)
    for i, (first, in_units) in enumerate(zip(solved, own.status, strict=True)):
        if first.success and in_units.code is status[i].code:
            status[i] = replace(in_units, message=f"{in_units.message} {SCALED}")
    return replace(own, status=tuple(status))


def _without_steps_back(callback: BatchCallback, count: int) -> Callable[[int], None]:
    """Return a function that calls a callback with the largest number of finished problems so far, and ``count``.

    Problems count as finished once their first solve has ended, although some are solved again.
    """
    most = 0

    def report(done: int) -> None:
        """Report ``done`` finished problems, or the largest number before."""
        nonlocal most
        most = max(most, done)
        callback(most, count)

    return report


def _with_goal_tolerance(
    batch: Batch, guess: tuple[Array, Array], found: BatchSolution, solver: str, options: Any, **rest: Any
) -> BatchSolution:
    """Solve failed problems that nearly meet their goals again, with relaxed goals (:mod:`trajopt.solvers.goal_tolerance`).

    They start from their last iterate, or from the guess if it is not finite or had no iteration. Only second solutions that
    succeed replace the first ones.
    """
    tolerance, failed = options.goal_tolerance, [i for i, status in enumerate(found.status) if not status.success]
    problems = {i: relaxed_problem(batch[i], found[i], tolerance) for i in failed if not interrupted()}
    relaxed = {i: problem for i, problem in problems.items() if problem is not None}
    if not relaxed:
        return found
    starts = [last_iterate(found[i]) or guess_of(guess, i, len(batch)) for i in relaxed]
    stacked = np.array([start.xs for start in starts]), np.array([start.us for start in starts])
    again = _solved(Batch.from_problems([*relaxed.values()]), stacked, solver, options, None, **rest)
    solutions: dict[int, Solution | Status] = dict(enumerate(found))
    for i, second in zip(relaxed, again, strict=True):
        if second.status.success:
            solutions[i] = merged(found[i], second, tolerance)
    return gathered(batch, solutions, gains=rest["gains"], meta=found.meta)


def _require_threads(threads: Any) -> None:
    """Raise ValueError unless threads is None or an integer of at least 1."""
    if threads is not None and not (isinstance(threads, (int, np.integer)) and threads >= 1):
        raise ValueError(
            f"threads = {threads!r}; expected a number of at least 1, or None for the number of processors"
        )


def _solved(
    batch: Batch,
    guess: tuple[Array, Array],
    solver: str,
    options: Any,
    on_finished: Callable[[int], None] | None,
    *,
    gains: bool,
    threads: int | None,
) -> BatchSolution:
    """Solve a batch with a named solver: in lanes, by rounds, by attempts of ``auto``, or by single solves where kernels lack.

    ``meta["how"]`` describes how processes, threads or lanes shared the work. Registered methods without kernels run in this
    process. Raises InvalidProblem if a registered method gets constraints or control bounds without interior.
    """
    from trajopt.solvers.batch.processes import in_processes

    common: dict[str, Any] = {"gains": gains, "threads": threads}
    if isinstance(options, AutoOptions):
        from trajopt.solvers.batch.attempts import in_attempts

        found = in_attempts(batch, guess, options, partial(_solved, **common), _fits, on_finished, gains=gains)
        return (
            in_processes(batch, guess, options, solver, **common, on_finished=on_finished) if found is None else found
        )
    if isinstance(options, MethodOptions):
        require_open(batch[0], solver)
        common["threads"] = threads if _fits(batch[0], options) else 1
    if not _fits(batch[0], options):
        return in_processes(batch, guess, options, solver, **common, on_finished=on_finished)
    if not isinstance(options, SLQOptions):
        return _solved_once(batch, guess, options, solver=solver, **common, on_finished=on_finished)
    from trajopt.solvers.batch.rounds import in_rounds
    from trajopt.solvers.batch.second_starts import solve_twice

    run: Callable[..., BatchSolution] = partial(solve_twice, run=partial(_solved_once, solver=solver), **common)
    if not batch[0].constraints():
        return run(batch, guess, options, on_finished=on_finished)
    return in_rounds(batch, guess, options, run, gains=gains, on_finished=on_finished)


def _solved_once(batch: Batch, guess: tuple[Array, Array], options: Any, *, solver: str, **rest: Any) -> BatchSolution:
    """Solve a batch by compiled kernels, and the problems that they refer back by single solves, listed in ``meta["referred"]``.

    Without kernels for the problem, all problems are solved singly.
    """
    from trajopt.solvers.batch.processes import in_processes

    windows, n = _windows_for(batch[0], options), len(batch)
    if windows is None:
        found = in_processes(batch, guess, options, solver, **rest)
        return replace(found, meta={**found.meta, "referred": list(range(n))})
    own = {"method": SOLVERS[solver][0].made} if isinstance(options, MethodOptions) else {}
    found = windows.solved(batch, guess, options, **rest, **own)
    left, on_finished = found.meta.get("referred", []), rest["on_finished"]
    if not left:
        return found
    report = None if on_finished is None else (lambda done: on_finished(n - len(left) + done))
    alone = in_processes(
        batch.subset(left), rows_of(guess, left, n), options, solver, **{**rest, "on_finished": report}
    )
    meta = {**found.meta, "seconds": found.meta["seconds"] + alone.meta["seconds"]}
    whole = gathered(
        batch, dict(enumerate(found)) | dict(zip(left, alone, strict=True)), gains=rest["gains"], meta=meta
    )
    for i in left:
        whole.meta["solve_times"][i] += found.meta["solve_times"][i]
    return whole


def solved_together(ocp: OCP, options: Any) -> bool:
    """True if :func:`solve_batch` solves problems of this structure together, False if one by one; "auto": by its first attempt."""
    if not isinstance(options, AutoOptions):
        return _fits(ocp, options)
    first = next(iter(attempts(ocp)))
    return _fits(first.ocp, attempt_options(first, options))


def _fits(ocp: OCP, options: Any) -> bool:
    """True if kernels solve problems of this structure together, or, for SLQ and DDP with constraints, their inner solves.

    These need options without a time limit.
    """
    if isinstance(options, SLQOptions) and ocp.constraints() and is_compiled(ocp):
        from trajopt.solvers.shooting.penalized import augmented

        return (
            options.time_limit is None and _windows_for(augmented(ocp, options.constraint_penalty), options) is not None
        )
    return _windows_for(ocp, options) is not None


def _windows_for(ocp: OCP, options: Any) -> Any:
    """Return the batch class whose kernels solve problems of this structure.

    Returns None if there is none, or if no phase requests the engine "compiled".
    """
    if not is_compiled(ocp):
        return None
    from trajopt.solvers.batch import interior, newton, shooting

    kinds = shooting.ShootingBatch, newton.NewtonBatch, interior.InteriorBatch
    return next((kind for kind in kinds if kind.fits(ocp, options)), None)


def _batch_of(ocp: OCP | Batch | Sequence[OCP], values: Mapping[str, Any] | None) -> Batch:
    """Return the batch of a problem and its values, of a list of problems, or the given batch.

    Raises ValueError for a problem without values, and for values with several problems.
    """
    if isinstance(ocp, OCP):
        if values is None:
            raise ValueError(
                "solve_batch got one problem without values; pass the values that differ (batch=...), or use to.solve"
            )
        return Batch(ocp, values)
    if values is not None:
        raise ValueError("values require a single problem, but a list of problems was given")
    return ocp if isinstance(ocp, Batch) else Batch.from_problems(ocp)


def _guesses_of(batch: Batch, guess: Motion | Sequence[Motion] | None) -> tuple[Array, Array]:
    """Return the guess as arrays xs (n or 1, N + 1, nx), us (n or 1, N, nu), with SO(2) angles unwrapped from x0.

    None: x0 of each problem at every knot, zero controls. Raises ValueError for other shapes or numbers of guesses.
    """
    ocp, n = batch.ocp, len(batch)
    guess = guess if guess is None or isinstance(guess, Sequence) else as_guess(guess)
    if guess is None:
        x0 = batch.x0()
        return np.repeat(x0[:, None], ocp.horizon + 1, axis=1), constant_guess(ocp).us[None]
    if not isinstance(guess, Guess):
        if len(guess) != n:
            raise ValueError(f"got {len(guess)} guesses for {n} problems")
        for i, g in enumerate(guess):
            if np.shape(g.xs) != np.shape(guess[0].xs) or np.shape(g.us) != np.shape(guess[0].us):
                raise ValueError(
                    f"guess {i} has xs {np.shape(g.xs)} and us {np.shape(g.us)}, the first one xs {np.shape(guess[0].xs)} and "
                    f"us {np.shape(guess[0].us)}; all guesses must have the {ocp.horizon} steps of the problem"
                )
        guess = Guess(np.array([g.xs for g in guess]), np.array([g.us for g in guess]))
    xs, us = (np.array(a, dtype=float) for a in guess)
    xs, us = (a[None] if a.ndim == 2 else a for a in (xs, us))
    for what, rows, shape in (("xs", xs, (ocp.horizon + 1, ocp.manifold.nx)), ("us", us, (ocp.horizon, ocp.nu))):
        if rows.shape[1:] != shape or len(rows) not in (1, n):
            raise ValueError(
                f"{what} of the guess has shape {rows.shape}; expected {shape}, or {(n, *shape)} for all problems"
            )
    x0 = batch.x0()
    xs = ocp.manifold.without_jumps(x0 if len(xs) == n else x0[:1], xs)
    return xs, us
