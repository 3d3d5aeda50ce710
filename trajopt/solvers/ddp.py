"""Differential dynamic programming: SLQ with the curvature of the dynamics, quadratically convergent.

Iterations solve the LQ problem of :mod:`trajopt.solvers.shooting.ddp_model` and search along its solution; all kinds of
shooting, box limits and globalization are those of SLQ. Far from the solution, Gauss-Newton steps are often longer: they are
taken first, and where curvature spoils a step they compete with it; the record tells which was used.  With search = "curve" they
compete in every iteration, each along a parabola too (:mod:`trajopt.solvers.shooting.curve`).  Where linear gaps have
blown up, the problem is solved again from the guess with nonlinear ones (:mod:`trajopt.solvers.shooting.restart`), which is told.

D. Mayne, Int. J. Control 3, 1966; D. Jacobson, D. Mayne, Differential Dynamic Programming, 1970; box limits: Tassa et al.,
ICRA 2014; on real robots by contraction: J. Nganga, P. Wensing, RA-L 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trajopt.guesses.guesses import Guess
from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.options import DDPOptions
from trajopt.solvers.shooting.ddp_model import MixedModel, Model, NewtonModel, PlainModel, TrueModel
from trajopt.solvers.shooting.restart import solve_twice
from trajopt.solvers.window.newton import filtered, solve_newton
from trajopt.solvers.window.shooting import solve_shooting
from trajopt.stage.evaluation import Evaluator
from trajopt.stage.numerics import kept_numerics
from trajopt.stage.solver_cache import SolverCache, borrowed
from trajopt.step.contraction import missing_curvature
from trajopt.validation.validation import ERROR, Finding, InvalidProblem


def ddp(
    ocp: OCP,
    guess: Guess,
    options: DDPOptions | None = None,
    callback: Callback | None = None,
    *,
    evaluator: Evaluator | None = None,
    lq_solver: LQSolver | None = None,
    kept: SolverCache | None = None,
) -> Solution:
    """Solve a valid problem from a guess, whose states need not satisfy the dynamics.

    evaluator, lq_solver: the numerics below the loop; default those of the engine that the problem's backends are on.
    kept: what earlier solves of this structure have left, default what the thread has kept.
    Raises InvalidProblem where a time step has no second derivatives.
    """
    options = options or DDPOptions()
    with borrowed(ocp, kept) as own:
        numerics = kept_numerics(own, ocp)
        evaluator, lq_solver = evaluator or numerics.evaluator, lq_solver or numerics.lq_solver
        require_contractions(ocp)
        modifies, convex = options.indefinite == "modify", options.hessian == "gauss_newton"
        exact = evaluator if convex else kept_numerics(own, ocp, options.hessian).evaluator
        Curved = NewtonModel if options.curvature == "newton" else TrueModel

        def run(options: DDPOptions, callback: Callback | None) -> Solution:
            if by_newton(ocp, options):
                return solve_newton(ocp, guess, options, callback, evaluator, lq_solver, exact, kept=own)
            plain = PlainModel("gauss_newton", evaluator)
            if options.search == "curve":
                models: Sequence[Model] = (plain, MixedModel(exact, evaluator, lq_solver))
            else:
                models = plain, Curved(exact, evaluator, lq_solver, modifies)
            return solve_shooting(ocp, guess, options, callback, evaluator, lq_solver, models)

        found = solve_twice(run, options, callback)
        return replace(found, meta={**found.meta, "hessian": "mixed" if convex else "exact"})


def by_newton(ocp: OCP, options: DDPOptions) -> bool:
    """True if Newton's method solves it: :mod:`trajopt.solvers.methods.newton`."""
    return filtered(ocp, options) and options.curvature == "newton" and options.indefinite == "modify"


def require_contractions(ocp: OCP) -> None:
    """Raise InvalidProblem where a time step has no second derivatives, naming the remedy."""
    reason = missing_curvature(ocp)
    if reason is not None:
        raise InvalidProblem([Finding(ERROR, reason)])
