"""Checks of a solution: feasible, optimal, confirmed by a replay, within limits between the knots, goals met.

:mod:`trajopt.solvers.success` decides the status from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from trajopt.problem.ocp import OCP
from trajopt.results.solution import LAST_CONTROL, Solution
from trajopt.solvers.goal_tolerance import with_goals_of
from trajopt.solvers.measures import FEASIBLE, Measures
from trajopt.solvers.options import DDPOptions, SLQOptions, scaled_kkt_tolerance
from trajopt.solvers.success import Tolerances, assessed, cost_of_guess, solver_measures
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.solver_cache import SolverCache, borrowed
from trajopt.step.other_backend import on_library
from trajopt.validation.between_knots import BetweenKnots, between_knots, may_be_violated
from trajopt.validation.running_costs import has_quadrature_error, quadrature_error
from trajopt.validation.validation import require_valid

if TYPE_CHECKING:
    from trajopt.validation.replay import Deviation, Replay

NOTABLE_EXCESS, OF_GUESS = 0.05, 1e-6
"""Excess of the integral of the running costs over their rectangle rule above which a finding reports it, relative to the cost, at
least to OF_GUESS times that of the guess. A cost that the rule overestimates is not exploited."""
INDIVISIBLE = "its time steps cannot be divided"
"""Reason why there is no replay of a problem with time steps that cannot be divided, such as discrete maps."""


def checked(ocp: OCP, solution: Solution, options: Any, solved: OCP | None = None) -> Solution:
    """Return a solution with the status of the checks (feasible, optimal, replay, between knots, goals), and results in meta.

    meta["quadrature_error"]: integral of the running costs minus their rectangle rule (:mod:`trajopt.validation.running_costs`), if
    the status is "converged" or "acceptable". options: of its solver. solved: the problem with margins that was solved, if it
    differs from ``ocp``.
    """
    tolerances = Tolerances(getattr(options, "constraint_tolerance", None) or 0.0, scaled_kkt_tolerance(options))
    limit = max(FEASIBLE, tolerances.constraints)
    found = solver_measures(solution, limit) if LAST_CONTROL in solution.meta else None
    between = partial(violations_between_knots, ocp, options, solution)
    solution = assessed(ocp, solution, tolerances, partial(replay_of, ocp, options, solution), between, found, solved)
    return _with_quadrature_error(ocp, solution, options)


def checked_motion(ocp: OCP, solution: Solution, options: Any) -> Solution:
    """Return a success of a batch with the status of the checks of its motion: replay, inequalities between knots, and goals.

    Whether it is feasible and optimal was decided by the numbers of its solver. meta["findings"]: on its running costs. options: of
    the solver.
    """
    between, replayed = (
        partial(violations_between_knots, ocp, options, solution),
        partial(replay_of, ocp, options, solution),
    )
    found = assessed(ocp, solution, Tolerances(), replayed, between, Measures(None, 0.0, 0.0))
    return _with_finding(_with_quadrature_error(ocp, found, options))


def checked_afterwards(ocp: OCP, solution: Solution, options: Any, solved: OCP | None = None) -> Solution:
    """Return a solution of ``check=False`` with the status of the success checks, and in meta the findings on problem and costs.

    Goals count as relaxed if the solve relaxed them. Raises InvalidProblem if the problem has errors. options, solved: as in
    :func:`checked`.
    """
    findings = [*(f.message for f in require_valid(ocp)), *solution.meta.get("findings", ())]
    found = replace(solution, meta={**solution.meta, "findings": findings})
    return _with_finding(checked(with_goals_of(ocp, solution), found, options, solved))


def _with_quadrature_error(ocp: OCP, solution: Solution, options: Any) -> Solution:
    """Return a checked solution with meta["quadrature_error"] if its status is "converged" or "acceptable"; see :func:`checked`."""
    if not solution.status.acceptable or LAST_CONTROL in solution.meta or not has_quadrature_error(ocp):
        return solution
    with evaluators_of(ocp, options) as (served, evaluator):
        error = quadrature_error(ocp, solution.xs, solution.us, evaluator(served))
    return replace(solution, meta={**solution.meta, "quadrature_error": error})


def _with_finding(solution: Solution) -> Solution:
    """Return a checked solution whose meta["findings"] has that on its running costs, if any."""
    findings = [*solution.meta.get("findings", ()), *exploited_quadrature(solution)]
    return replace(solution, meta={**solution.meta, "findings": findings})


def exploited_quadrature(solution: Solution) -> Iterator[str]:
    """Yield a finding if meta["quadrature_error"] is large: the solution may exploit the rectangle rule of the running costs."""
    excess = solution.meta.get("quadrature_error", 0.0)
    size = max(abs(solution.cost), OF_GUESS * abs(cost_of_guess(solution)))
    if solution.status.acceptable and excess > NOTABLE_EXCESS * size:
        yield (
            f"integrated along the motion, the cost is {solution.cost + excess:.4g} instead of {solution.cost:.4g} by the "
            "rectangle rule, which the solution may exploit: use shorter time steps (to.refine), or integrate the running cost in "
            "a state, and make that a terminal cost"
        )


def replay_of(ocp: OCP, options: Any, solution: Solution, holds: Callable[[Deviation], bool]) -> Replay | str:
    """Return the replay of a finite trajectory on finer dynamics, or the reason why there is none (indivisible time steps).

    holds: test of a replay run; the first run that passes ends the replay.
    """
    from trajopt.validation.replay import replay, replay_first_order_hold

    if LAST_CONTROL in solution.meta:
        us = np.vstack([solution.us, solution.meta[LAST_CONTROL]])
        return replay_first_order_hold(ocp, solution.xs, us, solution.K, holds) or INDIVISIBLE
    with evaluators_of(ocp, options) as (served, evaluator):
        found = replay(served, solution.xs, solution.us, solution.K, evaluator, holds)
    return INDIVISIBLE if found is None else found


def violations_between_knots(ocp: OCP, options: Any, solution: Solution) -> BetweenKnots | None:
    """Return the violations of a finite solution between its knots.

    Returns None with a first-order hold or without inequalities to check.
    """
    if LAST_CONTROL in solution.meta or not may_be_violated(ocp):
        return None
    with evaluators_of(ocp, options) as (served, evaluator):
        return between_knots(ocp, solution.xs, solution.us, evaluator(served))


@contextmanager
def evaluators_of(ocp: OCP, options: Any) -> Iterator[tuple[OCP, Callable[..., StageEvaluator]]]:
    """Yield the problem as it was traced for its solve, and a function that returns a stage evaluator of such problems.

    For shooting solvers that is the problem of the augmented Lagrangian, if there are constraints. The evaluator uses the cached
    stages of the solve; if these run in NumPy, the package's library evaluates the dynamics, without costs and constraints
    unless ``with_costs``.
    """
    from trajopt.stage.evaluators import cached_evaluator

    shooting = isinstance(options, SLQOptions)
    kind = options.hessian if shooting and not isinstance(options, DDPOptions) else "gauss_newton"
    if shooting and ocp.constraints():
        from trajopt.solvers.shooting.penalized import augmented

        ocp = augmented(ocp, options.constraint_penalty)  # as it was traced for the solve
    with borrowed(ocp) as own:

        def evaluator(other: OCP, *, with_costs: bool = False) -> StageEvaluator:
            """Return an evaluator of a problem from the cache; by the package's library if its stages run in NumPy."""
            cache = own
            if own is not None and other is not ocp:  # with slower contacts
                cache = own.prepared.setdefault("replay", SolverCache())
            made = cached_evaluator(cache, other, kind)
            return made if made.compiled or with_costs else StageEvaluator(on_library(other), kind, "auto")

        yield ocp, evaluator
