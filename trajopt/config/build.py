"""Build the task of a configuration and solve it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from dynamics_backends.protocol import DynamicsBackend, Map
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.robots import ROBOT_WARNINGS
from trajopt.config.config import Backend, Config, read_config
from trajopt.config.free_time import with_free_durations
from trajopt.config.registry import PROBLEMS
from trajopt.config.task import Refined, Task
from trajopt.guesses.guesses import WarmStart, resampled_guess
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import PHASES, Callback
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers.prepare import prepare
from trajopt.solvers.refinement import Again, consecutive_solves, with_near_barrier
from trajopt.solvers.registry import solver_options
from trajopt.solvers.solution_checks import checked_afterwards
from trajopt.solvers.solve import solve, solve_with_margins
from trajopt.solvers.termination import no_time_left, unrefined
from trajopt.solvers.time_limits import enough_time, timed_sequence
from trajopt.validation.limit_violations import limit_violations, self_collision_note
from trajopt.validation.validation import InvalidProblem, errors_of


def backend_factory(settings: Backend) -> Callable[[Map], DynamicsBackend]:
    """Return a function that creates the backend of a system with these settings; a step or mode of None is left to the method."""
    given: dict[str, Any] = {"step": settings.step, "mode": settings.mode}
    options = {key: value for key, value in given.items() if value is not None} | dict(settings.options)
    return lambda system: make_backend(system, settings.name, engine=settings.engine, **options)


def build_task(config: Config) -> Task:
    """Build the task of a configuration, with its free durations, and with its goals and replay tolerance in the problem.

    Warnings about its robot file join the task's warnings; other warnings are re-issued. Raises the errors of the problem:
    UnknownName, ValueError, URDFError, MJCFError, FileNotFoundError, ModuleNotFoundError.
    """
    with warnings.catch_warnings(record=True) as caught:
        for category in ROBOT_WARNINGS:
            warnings.simplefilter("always", category)
        task = PROBLEMS[config.problem_name].build(config.problem, backend_factory(config.backend))
        task = with_free_durations(task, config.time).with_checks(config.check.replay_tolerance)
    untidy = [str(w.message) for w in caught if issubclass(w.category, ROBOT_WARNINGS)]
    for w in caught:
        if not issubclass(w.category, ROBOT_WARNINGS):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    return replace(task, warnings=(*untidy, *task.warnings))


def solve_task(
    config: Config,
    task: Task,
    callback: Callback | None = None,
    guess: Guess | None = None,
    *,
    check: bool = True,
) -> Solution:
    """Solve a task, with refinement if it has some, and return its solution, with the resolved settings in its metadata.

    guess: start of the solve, without relaxed problems; default: the guess of the task, improved by its relaxed problems
    (:func:`over_easier`). check: see :func:`trajopt.solve`; it applies to each relaxed problem too, but only to the last result
    of a refinement. A solution with the metadata "limits", which checks add, gets the limits of :func:`limits_of` there instead.
    """

    def last(start: Guess) -> Solution:
        """Solve the actual problem from a guess, with refinement if the task has some."""
        if task.refined is not None:
            return solve_with_refinement(config, task, start, callback, check=check)
        return solve(task.ocp, start, config.solver_options, callback, config.solver_name, check=check)

    if guess is None:
        solution = over_easier(config, task.easier, task.guess, last, callback, check=check)
    else:
        solution = last(guess)
    facts: dict[str, Any] = {"config": config.resolved(task.resolved).as_dict()}
    if "limits" in solution.meta:
        facts |= limits_of(config, task, solution)
    return replace(solution, meta={**solution.meta, **facts})


def limits_of(config: Config, task: Task, solution: Solution) -> dict[str, Any]:
    """Limits that a solution exceeds, including contacts and self-collision, as metadata: "limits" and "self_collision".

    "limits" lists for each violated limit a table with "sentence", which names the problem setting that enforces the limit if
    there is one, and "enforced" (bool). "self_collision" says that there is none, or why it was not checked; it is "" if there
    are collisions (then part of "limits"), without a robot, and for non-finite states.
    """
    ocp = task.ocp if task.latest is None else task.latest()
    settings = [f.name for f in fields(PROBLEMS[config.problem_name].Settings)]
    broken = [
        *limit_violations(ocp, solution.xs, solution.us),
        *task.contact_limits(solution.xs, solution.us),
    ]
    limits = [b.as_meta(settings) for b in broken]
    return {"limits": limits, "self_collision": self_collision_note(ocp, solution.xs)}


def over_easier(
    config: Config,
    easier: Sequence[OCP],
    start: Guess,
    last: Callable[[Guess], Solution],
    callback: Callback | None = None,
    *,
    check: bool = True,
) -> Solution:
    """Solve relaxed problems one after the other, then the actual problem by ``last``.

    The first starts from ``start``, each further one from the solution before it. If there are relaxed problems, meta["easier"]
    lists iterations, status and success of each; a failed one does not stop the sequence. If Ctrl-C stops a relaxed problem, or
    too little time for another solve is left after it, its solution is returned without meta["easier"], with a status that names
    it.
    """
    ends: list[dict[str, Any]] = []
    before: list[Solution] = []
    limit = getattr(config.solver_options, "time_limit", None)
    with timed_sequence() as began:
        for number, ocp in enumerate(easier, 1):
            eased = solve(ocp, start, config.solver_options, callback, config.solver_name, check=check)
            if eased.status.code is StatusCode.INTERRUPTED:
                whose = f"This is relaxed problem {number} of {len(easier)}; the actual problem was not started."
                return replace(eased, status=replace(eased.status, message=f"{eased.status.message} {whose}"))
            if not enough_time(limit, began):
                state = f"relaxed problem {number} of {len(easier)} used it up, the actual problem was not started"
                return with_time_before(replace(eased, status=no_time_left(limit, state)), before)
            start = Guess(eased.xs, eased.us)
            status = {"status": str(eased.status.code), "success": eased.status.success}
            ends.append({"iterations": eased.iterations, **status})
            before.append(eased)
        solution = last(start)
    if not ends:
        return solution
    solution = with_time_before(solution, before)
    return replace(solution, meta={**solution.meta, "easier": ends})


def with_time_before(solution: Solution, before: Sequence[Solution]) -> Solution:
    """Add the times [s] of earlier solves to a solution: their sum to meta["solve_time"], the sums by phase to
    meta["times_before"].

    Returns the solution unchanged without earlier solves.
    """
    if not before:
        return solution
    spent, known = [s.time_total for s in before], solution.meta.get("times_before", {})
    phases = {phase: known.get(phase, 0.0) + sum(times[phase] for times in spent) for phase in PHASES}
    seconds = solution.meta["solve_time"] + sum(s.meta["solve_time"] for s in before)
    return replace(solution, meta={**solution.meta, "solve_time": seconds, "times_before": phases})


def solve_with_refinement(
    config: Config, task: Task, start: Guess, callback: Callback | None = None, *, check: bool = True
) -> Solution:
    """Solve a task with ``refined``, then each problem that ``refined`` requests, until it requests none.

    No further solve starts after Ctrl-C, or with too little time left. Iterations of each solve are limited to ``task.patience``
    as by :func:`with_iteration_limit`. Returns the solution that the last result of ``refined`` names, else the last solution,
    with the sentence of that result in meta["check"], the number of solves in meta["rounds"] and the time of all in
    meta["solve_time"]. If that result does not accept its solution, the status is no success. check: validate the problem first,
    and check the returned solution. Raises InvalidProblem for a problem with errors.
    """
    assert task.refined is not None  # see Task
    errors = errors_of(task.ocp, start) if check else []
    if errors:
        raise InvalidProblem(errors)
    options = with_iteration_limit(config.solver_options, task.patience)
    limit = getattr(options, "time_limit", None)
    solved = partial(solve_with_margins, callback=callback, solver=config.solver_name)
    problems, results = dict[int, OCP | None](), list[Refined]()

    def answer(again: Again) -> Solution:
        """Solve the requested problem from its guess with a small barrier, to a smaller tolerance if requested; stores the
        problem with margins.
        """
        closer = with_smaller_tolerance(with_near_barrier(options), used) if again.sharp else with_near_barrier(options)
        solution, margined = solved(again.ocp, WarmStart(again.guess, multipliers=again.multipliers), closer)
        problems[id(solution)] = margined
        return solution

    with timed_sequence() as began:

        def check_solution(solution: Solution) -> Again | None:
            """Store the result of ``refined`` for a solution, and return the next solve; None if there is none, or too little
            time.
            """
            assert task.refined is not None
            results.append(task.refined(solution))
            return results[-1].again if enough_time(limit, began) else None

        first, margined = solved(task.ocp, WarmStart(start), options)
        problems[id(first)] = margined
        attempts = first.meta.get("attempts", ())
        used = solver_options(attempts[-1]["solver"]) if attempts else options
        solves = consecutive_solves(first, check_solution, answer)
    found = results[-1]
    rounds, solution = len(solves), found.solution or solves[-1]
    reason = solution.status
    if check:
        ocp = task.ocp if task.latest is None else replace(task.latest(), goals=task.ocp.goals)
        solution = checked_afterwards(ocp, solution, options, problems.get(id(solution)))
    solution = with_time_before(solution, [s for s in solves if s.history is not solution.history])
    meta = {**solution.meta, "check": found.report, "rounds": rounds}
    status = solution.status
    if found.again is not None and solves[-1].status.code is not StatusCode.INTERRUPTED:
        status = no_time_left(limit, f"the check of solve {rounds} found: {found.report}")
    elif not found.good and reason.code is StatusCode.MAX_ITERATIONS:
        status = reason
    elif not found.good and status.acceptable:
        status = unrefined(rounds, found.report)
    if status.code is StatusCode.MAX_ITERATIONS and options.max_iterations == task.patience is not None:
        advice = (
            f"Solves of this problem stop after {task.patience} iterations: try another problem.seed, a smaller margin, "
            "or more knots."
        )
        status = replace(status, advice=advice)
    return replace(solution, meta=meta, status=status)


SHARPER, SHARPEST = 0.01, 1e-8
"""A sharper tolerance is SHARPER times the tolerance, but not below SHARPEST; a tolerance below SHARPEST is unchanged."""


def with_smaller_tolerance(options: Any, used: Any = None) -> Any:
    """Return options with smaller tolerances, so that the solution is closer to the optimum and to its bounds.

    Gradient tolerance and barrier, if the options have them, are multiplied by SHARPER, but not below SHARPEST; values below
    SHARPEST are unchanged. used: options of the method that ``auto`` chose; they give the tolerances that ``options`` leaves open
    (None).
    """
    known = {f.name for f in fields(options)}.intersection(("gradient_tolerance", "barrier"))
    own = {key: getattr(used if getattr(options, key) is None else options, key, None) for key in known}
    given = {key: value for key, value in own.items() if value is not None}
    return replace(options, **{key: max(SHARPER * value, min(SHARPEST, value)) for key, value in given.items()})


def with_iteration_limit(options: Any, patience: int | None) -> Any:
    """Return options with at most ``patience`` iterations.

    Unchanged if ``patience`` is None, and if the limit of the options is None (as by default for ``auto``) or not the default
    one.
    """
    most = getattr(options, "max_iterations", None)
    if patience is None or most is None or most != type(options)().max_iterations:
        return options
    return replace(options, max_iterations=min(most, patience))


def make_ready(config: Config, task: Task) -> None:
    """Trace the functions that a solve of a task calls, for ``auto`` those of its first attempt."""
    prepare(task.ocp, task.guess, config.solver_options, config.solver_name)


def warm_start(task: Task, path: str | Path) -> tuple[Guess, list[str]]:
    """Return a saved solution as a guess, resampled to the task's time grid, and warnings about it.

    Raises SolutionFileError; ValueError if the sizes differ.
    """
    saved = Solution.load(path)
    guess = resampled_guess(task.ocp, saved)
    if same_robot(task, saved):
        return guess, []
    assert task.ocp.model is not None
    name, own = saved.meta["model"].get("name"), task.ocp.model.name
    what = f"for another robot, {name} instead of {own}" if name != own else f"for another model of {own}"
    return guess, [f"{path} is {what}: it may be a poor initial guess"]


def same_robot(task: Task, solution: Solution) -> bool:
    """True if a solution's robot model has the same digest as the task's.

    Also True if the task has no model, or the solution stores no digest.
    """
    saved = (solution.meta.get("model") or {}).get("digest")
    return task.ocp.model is None or saved in (None, task.ocp.model.digest)


def task_of_solution(solution: Solution) -> tuple[Task | None, tuple[str, ...]]:
    """Rebuild the task of a saved solution from the settings in its metadata; returns the task and a tuple of warnings.

    The warnings are empty, or OTHER_ROBOT if the robot model has changed. The task is None, and the warning gives the reason, if
    the solution has no settings, if building fails, or if the sizes of the problem and the solution differ.
    """
    if "config" not in solution.meta:
        return None, (NO_SETTINGS,)
    try:
        task = build_task(read_config(solution.meta["config"], SETTINGS_OF_SOLUTION))
    except (ValueError, KeyError, OSError, ModuleNotFoundError) as error:
        return None, (f"the problem cannot be rebuilt ({error})",)
    ocp = task.ocp
    expected = {"xs": (ocp.horizon + 1, ocp.manifold.nx), "us": (ocp.horizon, ocp.nu)}
    if any(getattr(solution, key).shape != shape for key, shape in expected.items()):
        found = f"xs {solution.xs.shape} and us {solution.us.shape}"
        return None, (
            f"its settings describe another problem, with xs {expected['xs']} and us {expected['us']}, not {found}",
        )
    return task, () if same_robot(task, solution) else (OTHER_ROBOT,)


NO_SETTINGS = "the solution contains no settings"
OTHER_ROBOT = "the robot model has changed since the solution was saved"
SETTINGS_OF_SOLUTION = "the settings in the solution"
"""Name of a saved solution's settings in messages."""
