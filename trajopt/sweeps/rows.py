"""Solve rows of a study, in a worker.

A failed row does not stop the others: a problem that cannot be built, an error in a solve and a solve that does not converge
are results with a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import constant_guess
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers.batch.solve_batch import solve_batch, solved_together
from trajopt.solvers.registry import chosen_options
from trajopt.solvers.solve import solve
from trajopt.solvers.success import with_goals
from trajopt.sweeps.variation import Variations
from trajopt.validation.validation import InvalidProblem, errors_of

ERROR, DIED = "error", "died"
"""Statuses in addition to those of solvers: the row raised an error; its worker process died."""
SCALARS: dict[str, type] = {
    "status": str,
    "success": bool,
    "reason": str,
    "cost": float,
    "iterations": int,
    "kkt": float,
    "violation": float,
    "solve_time": float,
    "duration": float,
    "knots": int,
}
"""Scalars stored for each row, with their types."""
COLUMNS = (*SCALARS, "session", "row", "times", "xs", "us")
"""Names of the results of a row; in tables and items, varied keys with these names are called vary/NAME."""


class SweepProblem(NamedTuple):
    """Problem of a row: an OCP, a guess (default: x0, zero control), a solver and its options.

    Without solver and options it gets those of the study. solve: returns the solution, for problems that need several solves; it
    replaces guess, solver and options.
    """

    ocp: OCP
    guess: Guess | None = None
    solver: str | None = None
    options: Any = None
    solve: Callable[[], Solution] | None = None


Make = Callable[..., "OCP | tuple[OCP, Guess] | SweepProblem"]
"""Function of a row's values, as keyword arguments, that returns its problem."""


@dataclass(frozen=True)
class Study:
    """Definition of a study. solver, options: of problems that set neither. gains: also store feedback gains."""

    make: Make
    variations: Variations
    solver: str | None = None
    options: Any = None
    gains: bool = False

    def problem(self, row: int) -> SweepProblem:
        """Return the problem of a row; one with neither solver nor options gets both of the study.

        Raises the errors of ``make``; TypeError if it does not return a problem.
        """
        problem = _as_problem(self.make(**self.variations.values(row)))
        if problem.solver is None and problem.options is None:
            problem = problem._replace(solver=self.solver, options=self.options)
        return problem


def _as_problem(made: Any) -> SweepProblem:
    """Return what ``make`` returned as a SweepProblem. Raises TypeError unless it is an OCP, (OCP, guess), or a SweepProblem."""
    match made:
        case SweepProblem(ocp=OCP()):
            return made
        case OCP():
            return SweepProblem(made)
        case (OCP() as ocp, guess):
            return SweepProblem(ocp, guess)
    raise TypeError(
        f"the function of a row returned {_type_name(made)}: return an OCP, an OCP and a guess, or a SweepProblem "
        "with an OCP"
    )


def _type_name(made: Any) -> str:
    """Return the type of an object for messages, with the types of its entries for a tuple."""
    kinds = [type(part).__name__ for part in made] if isinstance(made, tuple) else []
    return f"a {type(made).__name__}" + (f" ({', '.join(kinds)})" if kinds else "")


class Result(NamedTuple):
    """Result of a finished row: scalars by name, and arrays by name, whose first axes may differ between rows."""

    row: int
    scalars: dict[str, Any]
    arrays: dict[str, Array] = {}  # noqa: RUF012


def solve_rows(study: Study, rows: Sequence[int]) -> list[Result]:
    """Solve rows and return their results in order; errors become failed results.

    Rows of one structure are solved as a batch if that is faster.
    """
    found: dict[int, Result] = {}
    alike: dict[Any, list[tuple[int, SweepProblem]]] = {}
    for row in rows:
        with _failing(found, row):
            problem = check_problem(study.problem(row))
            alike.setdefault(_kind(problem), []).append((row, problem))
    for members in alike.values():
        for row, problem, solution in solve_together(members, study.gains):
            with _failing(found, row):
                own = solve_row(problem) if solution is None else solution
                found[row] = result(row, with_goals(problem.ocp, own), study.gains)
    return [found[row] for row in rows]


@contextmanager
def _failing(found: dict[int, Result], row: int) -> Iterator[None]:
    """Context that turns an exception into a failed result of a row in ``found``."""
    began = time.perf_counter()
    try:
        yield
    except Exception as error:
        found[row] = failed(row, ERROR, f"{type(error).__name__}: {error}", time.perf_counter() - began)


def check_problem(problem: SweepProblem) -> SweepProblem:
    """Return the problem, checked for errors only. Raises InvalidProblem. Warnings are reported once per study, not here."""
    errors = errors_of(problem.ocp, problem.guess)
    if errors:
        raise InvalidProblem(errors)
    return problem


def can_batch(problem: SweepProblem) -> bool:
    """True if :func:`~trajopt.solvers.batch.solve_batch.solve_batch` solves such problems as a batch.

    False for a problem with its own ``solve``, for one with a time limit, which applies to each row, and if the batch solver would
    solve its problems one by one.
    """
    options = chosen_options(problem.solver, problem.options)[1]
    if problem.solve is not None or options.time_limit is not None:
        return False
    return solved_together(problem.ocp, options)


def _kind(problem: SweepProblem) -> Any:
    """Return a key that problems of one batch share; cheap, so problems with equal keys may still differ in structure.

    It consists of solver, options, the presence of ``solve``, and sizes of the problem.
    """
    ocp = problem.ocp
    shape = ocp.horizon, ocp.manifold.nx, ocp.nu, len(ocp.phases), len(ocp.constraints())
    return problem.solver, repr(problem.options), problem.solve is not None, shape


def solve_together(
    members: Sequence[tuple[int, SweepProblem]], gains: bool
) -> Iterator[tuple[int, SweepProblem, Solution | None]]:
    """Yield rows of a kind with their problems and solutions, solved as a batch; None as solution if that is impossible or fails.

    members: rows of one kind with their problems; gains: compute feedback gains too. The solve time of the batch is divided equally
    among its rows. Raises KeyboardInterrupt if Ctrl-C stopped the batch.
    """
    solver, options = members[0][1].solver, members[0][1].options
    guesses = [constant_guess(p.ocp) if p.guess is None else p.guess for _, p in members]
    solutions: Sequence[Solution | None] = [None] * len(members)
    # problems of another structure, or a batch with an invalid row: solve each row alone
    with suppress(Exception):
        if can_batch(members[0][1]):
            name, chosen = chosen_options(solver, options)
            ocps = [p.ocp for _, p in members]
            batch = solve_batch(ocps, None, guesses, chosen, solver=name, gains=gains, threads=1, check=False)
            if batch.stopped:
                raise KeyboardInterrupt
            share = batch.meta["seconds"] / len(batch)
            solutions = [replace(found, meta={**found.meta, "solve_time": share}) for found in batch]
    for (row, problem), solution in zip(members, solutions, strict=True):
        yield row, problem, solution


def solve_row(problem: SweepProblem) -> Solution:
    """Solve the problem of one row, without the checks of :func:`trajopt.solve`; ``problem.solve`` replaces the solver if set."""
    if problem.solve is not None:
        return problem.solve()
    return solve(problem.ocp, problem.guess, problem.options, solver=problem.solver, check=False)


def result(row: int, solution: Solution, gains: bool) -> Result:
    """Return the result of a row from its solution, with feedback gains if ``gains``.

    Raises KeyboardInterrupt if the solve was interrupted; the row then counts as missing.
    """
    status = solution.status
    if status.code is StatusCode.INTERRUPTED:
        raise KeyboardInterrupt
    last = solution.history[-1] if solution.history else None
    values = (
        str(status.code),
        bool(status.success),
        status.message,
        solution.cost,
        solution.iterations,
        np.nan if status.kkt is None else status.kkt,
        solution.meta.get("violation", np.nan) if last is None else max(last.defect, last.constraint_violation),
        solution.meta["solve_time"],
        solution.duration,
        len(solution.us),
    )
    arrays = {"times": solution.times, "xs": solution.xs, "us": solution.us}
    return Result(row, dict(zip(SCALARS, values, strict=True)), arrays | ({"K": solution.K} if gains else {}))


def failed(row: int, status: str, reason: str, seconds: float = np.nan) -> Result:
    """Return the result of a row without a solution: its numbers are NaN or 0, except solve_time (seconds); it has no arrays."""
    empty = {name: np.nan if kind is float else kind() for name, kind in SCALARS.items()}
    return Result(row, {**empty, "status": status, "reason": reason, "solve_time": seconds})
