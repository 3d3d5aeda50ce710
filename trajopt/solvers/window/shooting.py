"""Single solves by shooting methods: C kernels answer the requests; for stages that are not compiled, they call Python."""

from __future__ import annotations

from collections.abc import Sequence

from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.solvers.methods.shooting import Models, ShootingMethod
from trajopt.solvers.options import DDPOptions, SLQOptions
from trajopt.solvers.shooting.ddp_model import Model, PlainModel
from trajopt.solvers.window.alone import solve_alone
from trajopt.solvers.window.shooting_calling import CallingShootingSlot
from trajopt.solvers.window.shooting_slot import ShootingSlot
from trajopt.stage.evaluation import Shooting, StageEvaluator
from trajopt.stage.solver_cache import SolverCache
from trajopt.validation.validation import reject_constraints


def solve_shooting(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions,
    callback: Callback | None,
    evaluator: StageEvaluator,
    models: Sequence[Model] = (),
    *,
    cache: SolverCache | None = None,
) -> Solution:
    """Solve from a guess by a shooting method; after Ctrl-C, return the current iterate.

    models: LQ models that yield the directions, in order of increasing curvature; default the plain expansion alone. cache: cache
    of solver workspaces, read and updated. Raises InvalidProblem for a problem with constraints.
    """
    reject_constraints(ocp, "a shooting method")
    journal = Journal(callback)
    named, corrects = models_of(models, options), corrects_of(ocp, options)
    method = ShootingMethod(named, options, corrects, options.max_iterations)
    if not models and evaluator.may_follow:
        slot = ShootingSlot.reused(cache, ShootingSlot, ocp, evaluator, options)
    else:
        own = tuple(models) or (PlainModel(options.hessian, evaluator),)
        slot = CallingShootingSlot(ocp, evaluator, options, own, curved=named.curved)
    slot.take(ocp, guess)
    return solve_alone(ocp, guess, method, slot, options, journal, (evaluator,))


def models_of(models: Sequence[Model], o: SLQOptions) -> Models:
    """Return names of the models, True for each that can make Quu positive definite, and the options of their use.

    The options are ``switch`` (0 unless for DDP), and True if DDP searches along curves. Without models: one, named by the option
    hessian, that cannot make Quu positive definite.
    """
    if not models:
        return Models((o.hessian,))
    curved = isinstance(o, DDPOptions) and o.search == "curve"
    switch = o.switch if isinstance(o, DDPOptions) else 0.0
    return Models(tuple(m.name for m in models), tuple(m.modifies for m in models), switch, curved)


def corrects_of(ocp: OCP, o: SLQOptions) -> bool:
    """True if second-order corrections of steps are used: gaps close linearly, and there is at least one shooting node."""
    return o.gaps == "linear" and len(Shooting.every(o.shooting, ocp.horizon, o.gaps).nodes) > 0
