"""Solving some rows of a study: what a worker does.

A row never stops another one: a problem that cannot be built, an error within a solve, a solve that does not converge are results
with a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess, constant_guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers.batch.solve_batch import solve_batch, solved_together
from trajopt.solvers.registry import chosen_options, solve
from trajopt.solvers.success import with_goals
from trajopt.stage.start import starting
from trajopt.sweeps.variation import Variations
from trajopt.validation.validation import InvalidProblem, errors_of

ERROR, DIED = "error", "died"
"""Statuses beside those of solvers: the row raised an error; the process that solved it died."""
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
"""What is kept of each row beside its values and arrays."""
COLUMNS = (*SCALARS, "session", "row", "times", "xs", "us")
"""What the results of a row are called: varied values of these names are told as vary/NAME."""


MOST_KINDS, LOOKED_AT = 64, 1000
"""So many kinds of rows are made ready beforehand, and so many rows are looked at to find them."""


class SweepProblem(NamedTuple):
    """Problem of one row: an OCP, a guess (default x0, no control), a solver and its options (default those of the study).

    solve: finds the solution in place of these, for problems that are solved in several steps.
    """

    ocp: OCP
    guess: Guess | None = None
    solver: str | None = None
    options: Any = None
    solve: Callable[[], Solution] | None = None


Make = Callable[..., "OCP | tuple[OCP, Guess] | SweepProblem"]
"""From the values of a row, as keyword arguments, to its problem."""


@dataclass(frozen=True)
class Study:
    """What the rows of a study are functions of. gains: whether feedback is kept too."""

    make: Make
    variations: Variations
    solver: str | None = None
    options: Any = None
    gains: bool = False

    def problem(self, row: int) -> SweepProblem:
        """The problem of a row. Raises what the function that makes it raises, TypeError where it returns no problem."""
        problem = _as_problem(self.make(**self.variations.values(row)))
        if problem.solver is None and problem.options is None:
            problem = problem._replace(solver=self.solver, options=self.options)
        return problem


def _as_problem(made: Any) -> SweepProblem:
    match made:
        case SweepProblem(ocp=OCP()):
            return made
        case OCP():
            return SweepProblem(made)
        case (OCP() as ocp, guess):
            return SweepProblem(ocp, guess)
    raise TypeError(
        f"the function of a row returned {_told(made)}: return an OCP, an OCP and a guess, or a SweepProblem "
        "with an OCP"
    )


def _told(made: Any) -> str:
    kinds = [type(part).__name__ for part in made] if isinstance(made, tuple) else []
    return f"a {type(made).__name__}" + (f" ({', '.join(kinds)})" if kinds else "")


class Result(NamedTuple):
    """A row that is finished: numbers and texts by name, and arrays by name, whose first axes may differ between rows."""

    row: int
    scalars: dict[str, Any]
    arrays: dict[str, Array] = {}  # noqa: RUF012


def solve_rows(study: Study, rows: Sequence[int]) -> list[Result]:
    """The results of rows, in their order: those of one structure together where that is faster, each alone where not."""
    found: dict[int, Result] = {}
    alike: dict[Any, list[tuple[int, SweepProblem]]] = {}
    for row in rows:
        with _failing(found, row):
            problem = valid(study.problem(row))
            alike.setdefault(_kind(problem), []).append((row, problem))
    for members in alike.values():
        for row, problem, solution in together(members, study.gains):
            with _failing(found, row):
                own = solved(problem) if solution is None else solution
                found[row] = result(row, with_goals(problem.ocp, own), study.gains)
    return [found[row] for row in rows]


@contextmanager
def _failing(found: dict[int, Result], row: int) -> Iterator[None]:
    """An error inside is the result of a row."""
    began = time.perf_counter()
    try:
        yield
    except Exception as error:
        found[row] = failed(row, ERROR, f"{type(error).__name__}: {error}", time.perf_counter() - began)


def valid(problem: SweepProblem) -> SweepProblem:
    """The problem. Raises InvalidProblem; warnings are not looked for: one problem of a study tells them."""
    errors = errors_of(problem.ocp, problem.guess)
    if errors:
        raise InvalidProblem(errors)
    return problem


def goes_together(problem: SweepProblem) -> bool:
    """True if :func:`~trajopt.solvers.batch.solve_batch.solve_batch` solves such problems together.

    A limit of time is that of each row: with one, rows are solved alone.
    """
    options = chosen_options(problem.solver, problem.options)[1]
    if problem.solve is not None or options.time_limit is not None:
        return False
    with starting("compiled"):
        return solved_together(problem.ocp, options)


def _kind(problem: SweepProblem) -> Any:
    """What problems of a batch share, as far as it is told at once."""
    ocp = problem.ocp
    shape = ocp.horizon, ocp.manifold.nx, ocp.nu, len(ocp.phases), len(ocp.constraints())
    return problem.solver, repr(problem.options), problem.solve is not None, shape


def together(
    members: Sequence[tuple[int, SweepProblem]], gains: bool
) -> Iterator[tuple[int, SweepProblem, Solution | None]]:
    """Rows of a kind with their problems and solutions as one batch; without solutions where there is no such batch."""
    solver, options = members[0][1].solver, members[0][1].options
    guesses = [constant_guess(p.ocp) if p.guess is None else p.guess for _, p in members]
    solutions: Sequence[Solution | None] = [None] * len(members)
    # problems of another structure, or with an error that is that of one row, are each solved alone
    with suppress(Exception):
        if goes_together(members[0][1]):
            name, chosen = chosen_options(solver, options)
            ocps = [p.ocp for _, p in members]
            batch = solve_batch(ocps, None, guesses, chosen, solver=name, gains=gains, threads=1, check=False)
            if batch.stopped:
                raise KeyboardInterrupt
            share = batch.meta["seconds"] / len(batch)
            solutions = [replace(found, meta={**found.meta, "solve_time": share}) for found in batch]
    for (row, problem), solution in zip(members, solutions, strict=True):
        yield row, problem, solution


def solved(problem: SweepProblem) -> Solution:
    """The solution of a problem, alone."""
    if problem.solve is not None:
        return problem.solve()
    return solve(problem.ocp, problem.guess, problem.options, solver=problem.solver, check=False)


def result(row: int, solution: Solution, gains: bool) -> Result:
    """The result of a row.

    Raises KeyboardInterrupt for one that was interrupted: its row is not finished.
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
    """A row without a solution."""
    empty = {name: np.nan if kind is float else kind() for name, kind in SCALARS.items()}
    return Result(row, {**empty, "status": status, "reason": reason, "solve_time": seconds})


def kinds(study: Study, n: int) -> list[list[int]]:
    """The first rows of each combination of texts and truths that are chosen from: what may need code of its own.

    Numbers change no code. Of many combinations the first ones are given.
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in range(min(n, LOOKED_AT)):
        values = study.variations.values(row).values()
        kind = tuple(v for v in values if isinstance(v, (str, bool)))
        if kind in found or len(found) < MOST_KINDS:
            found.setdefault(kind, []).append(row)
    return list(found.values())
