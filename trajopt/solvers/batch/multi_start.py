"""Multi-start: solve one problem from many guesses and group the solutions into distinct local optima."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess, Motion, as_guess, constant_guess, detour
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, StatusCode
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.solve_batch import BatchCallback, solve_batch
from trajopt.solvers.problem_batch import Batch
from trajopt.solvers.registry import DEFAULT_SOLVER, chosen_options
from trajopt.solvers.solution_checks import checked_motion
from trajopt.solvers.solve import solve

SAME_COST, SAME_STATE = 1e-4, 1e-2
"""Relative tolerances: solutions are one optimum if the states agree to SAME_STATE, and costs or controls to SAME_COST."""


class Optimum(NamedTuple):
    """Local optimum: a solution, and the indices of the starts that converged to it."""

    solution: Solution
    starts: tuple[int, ...]

    @property
    def times_found(self) -> int:
        """Number of starts that found this optimum."""
        return len(self.starts)


@dataclass(frozen=True)
class MultiStart:
    """Result of :func:`multi_start`.

    optima: distinct optima, those first whose status is a success, the cheapest first. solutions: the solution of each start.
    """

    optima: tuple[Optimum, ...]
    solutions: BatchSolution

    @property
    def best_start(self) -> int:
        """Index of the first start that converged to the first optimum; 0 if none converged."""
        return min(self.optima[0].starts) if self.optima else 0

    @property
    def best(self) -> Solution:
        """The first optimum; the solution of the first start if none converged."""
        return self.optima[0].solution if self.optima else self.solutions[0]

    def __repr__(self) -> str:
        failures = ["" if o.solution.status.success else f" ({o.solution.status.code})" for o in self.optima[:5]]
        found = zip(self.optima, failures, strict=False)
        listed = ", ".join(f"cost {o.solution.cost:.8g} found {o.times_found} times{failure}" for o, failure in found)
        more = f", and {len(self.optima) - 5} more" if len(self.optima) > 5 else ""
        solved = sum(o.times_found for o in self.optima)
        return f"MultiStart({len(self.optima)} optima from {solved} of {len(self.solutions)} starts: {listed or 'none'}{more})"


def multi_start(
    ocp: OCP,
    starts: int | Sequence[Guess],
    options: Any = None,
    callback: BatchCallback | None = None,
    solver: str | None = None,
    *,
    guess: Motion | tuple[Array, Array] | None = None,
    seed: int = 0,
    threads: int | None = None,
    check: bool = True,
) -> MultiStart:
    """Solve a problem from many guesses; other arguments as in :func:`~trajopt.solvers.batch.solve_batch.solve_batch`.

    starts: guesses, or their number. With a number, the first start is ``guess`` (default x0 at every knot, zero controls); the
    others are random detours from it (:func:`~trajopt.guesses.guesses.detour`), drawn with ``seed``. check: validate the problem,
    and check the motion of each optimum as :func:`trajopt.solve` does: replay, inequalities between the knots, and goals. Optima
    that fail are solved again by :func:`trajopt.solve`, the cheapest first, until one succeeds, if it has a remedy: margins between
    the knots with the solver "auto" or ``between_knots``, more substeps with "auto".
    Raises ValueError for a number below 1 and for an empty list, TypeError for other objects.

    >>> import numpy as np, trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    >>> step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler")
    >>> goals = to.residual_cost("goals", lambda x, u, t, p: [x[0] * x[0] - 1.0], cart.manifold, 1, 100.0)
    >>> ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, [to.control_cost(1)], [goals])
    >>> found = to.multi_start(ocp, [to.constant_guess(ocp, u) for u in np.linspace(-1.0, 1.0, 10)], solver="ilqr")
    >>> sorted((round(float(o.solution.xs[-1, 0]), 1), o.times_found) for o in found.optima)
    [(-1.0, 5), (1.0, 5)]
    """
    if isinstance(starts, (int, np.integer)):
        if starts < 1:
            raise ValueError(f"starts = {starts}; expected a number of at least 1, or guesses")
        first, rng = constant_guess(ocp) if guess is None else as_guess(guess), np.random.default_rng(seed)
        starts = [first, *(detour(ocp, first, rng) for _ in range(int(starts) - 1))]
    elif isinstance(starts, Guess) or not isinstance(starts, Sequence):
        raise TypeError(f"starts is a {type(starts).__name__}; expected a number of at least 1, or a list of guesses")
    if not len(starts):
        raise ValueError("starts is empty; give at least one guess")
    batch = Batch(ocp, {"x0": np.tile(ocp.x0, (len(starts), 1))})
    name, chosen = chosen_options(solver, options)
    plain = replace(chosen, between_knots=False) if check else chosen
    found = solve_batch(batch, None, starts, plain, callback, name, gains=True, threads=threads, check=check)
    distinct = optima(found)
    if check:
        checked = [o._replace(solution=checked_motion(ocp, o.solution, chosen)) for o in distinct]
        usable = _solved_again(ocp, checked, name, chosen)
        distinct = tuple(sorted(usable, key=lambda o: (not o.solution.status.success, o.solution.cost)))
    return MultiStart(distinct, found)


def _solved_again(ocp: OCP, checked: Sequence[Optimum], solver: str, options: Any) -> list[Optimum]:
    """Solve failed optima again from their motions, the cheapest first, until one is a success, which replaces its optimum.

    Only failed checks for which :func:`trajopt.solve` has a remedy with this solver and its options. Ctrl-C and the time limit of a
    solve end them.
    """
    automatic = solver == DEFAULT_SOLVER
    remedied = [StatusCode.VIOLATED_BETWEEN_KNOTS] if automatic or options.between_knots else []
    remedied += [StatusCode.DOES_NOT_HOLD] if automatic else []
    found = list(checked)
    for i, o in enumerate(checked):
        if o.solution.status.code in remedied:
            again = solve(ocp, o.solution, options, solver=solver)
            if again.status.code in STOPPED:
                break
            found[i] = o._replace(solution=again) if again.status.success else o
        if found[i].solution.status.success:
            break
    return found


def optima(found: BatchSolution) -> tuple[Optimum, ...]:
    """Return the distinct optima among converged solutions, cheapest first; each is the cheapest solution of its starts."""
    solved = np.flatnonzero(found.success)
    distinct: list[tuple[int, list[int]]] = []
    for i in solved[np.argsort(found.cost[solved], kind="stable")]:
        same = next((starts for first, starts in distinct if _same(found, first, i)), None)
        if same is None:
            distinct.append((int(i), [int(i)]))
        else:
            same.append(int(i))
    return tuple(Optimum(found[first], tuple(sorted(starts))) for first, starts in distinct)


def _same(found: BatchSolution, a: int, b: int) -> bool:
    """True if the states of two solutions agree, and in addition their costs or their controls."""
    near = abs(found.cost[a] - found.cost[b]) <= SAME_COST * max(abs(found.cost[a]), abs(found.cost[b]))
    return _near(found.xs, a, b, SAME_STATE) and (bool(near) or _near(found.us, a, b, SAME_COST))


def _near(values: Array, a: int, b: int, share: float) -> bool:
    """True if rows a and b differ by at most ``share``, relative to the largest entry of row a, or absolute if that is below 1."""
    size = np.abs(values[a]).max(initial=0.0)
    return bool(np.abs(values[a] - values[b]).max(initial=0.0) <= share * max(1.0, size))
