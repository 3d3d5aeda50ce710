"""One solve by the line search of shooting methods: answered by kernels where one model serves and all is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trajopt.guesses.guesses import Guess
from trajopt.lq.lq_solver import LQSolver
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.methods.requests import Solved
from trajopt.solvers.methods.shooting import End, Ended, Models, ShootingMethod
from trajopt.solvers.methods.shooting_requests import Go
from trajopt.solvers.options import DDPOptions, SLQOptions
from trajopt.solvers.shooting.ddp_model import Model, PlainModel
from trajopt.solvers.window.driver import run_alone
from trajopt.solvers.window.newton_status import Blamed
from trajopt.solvers.window.shooting_numpy import ShootingNumpy
from trajopt.solvers.window.shooting_status import status_of
from trajopt.stage.engine import is_compiled
from trajopt.stage.evaluation import Evaluator, Shooting, StageEvaluator
from trajopt.stage.kept import Kept
from trajopt.stage.start import starts_at_once
from trajopt.validation.validation import refuse_constraints


def solve_shooting(
    ocp: OCP,
    guess: Guess,
    options: SLQOptions,
    callback: Callback | None,
    evaluator: Evaluator,
    lq_solver: LQSolver,
    models: Sequence[Model] = (),
    *,
    kept: Kept | None = None,
) -> Solution:
    """Solve from a guess; there is a solution after Ctrl-C too.

    models: what is solved for a direction, the one of most curvature last; default the plain expansion alone. kept: memory of
    earlier solves, where this one leaves its own. Raises InvalidProblem for a problem with constraints.
    """
    refuse_constraints(ocp, "a shooting method")
    journal = Journal(callback)
    named, corrects = models_of(models, options), corrects_of(ocp, options)
    method = ShootingMethod(named, options, corrects, options.max_iterations)
    slot: Any = None
    if not models and kernels_serve(ocp, evaluator, lq_solver):
        from trajopt.solvers.window.shooting_slot import ShootingSlot

        slot = ShootingSlot.of(ocp, evaluator, lq_solver, options, kept)  # type: ignore[arg-type]
    else:
        own = tuple(models) or (PlainModel(options.hessian, evaluator),)
        slot = ShootingNumpy(ocp, evaluator, lq_solver, options, own, journal, curved=named.curved)

    def report(**numbers: Any) -> None:
        slot.note_times(journal)
        journal.add(lambda: slot.trajectory, **numbers)

    def worded(ended: Ended) -> Status:
        def blamed() -> Blamed:
            xs, us = slot.trajectory
            return Blamed(ocp, xs, evaluator.expand(xs, us))

        return status_of(ended, options, blamed)

    method.report = report
    found: Solved
    try:
        with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
            try:
                slot.take(guess)
                ended = run_alone(method.solve(), slot.answer)
                status = worded(ended)
                if ended.end is End.NOT_FINITE:
                    journal.refused()
                else:
                    method.report_end()
            except KeyboardInterrupt:
                status = termination.interrupted(method.iteration)
                if method.begun:
                    slot.answer(Go(method.going))
                    slot.answer(method.last_gains())
            if method.begun:
                found, cost = slot.solution(), slot.cost
            else:
                found, cost = unsolved(ocp, guess), float("nan")
            slot.note_times(journal)
    finally:
        slot.close()
    return Solution(*found, status, cost, method.iteration, journal.history(), ocp.times)


def models_of(models: Sequence[Model], o: SLQOptions) -> Models:
    """What a method depends on of models."""
    if not models:
        return Models((o.hessian,))
    curved = isinstance(o, DDPOptions) and o.search == "curve"
    switch = o.switch if isinstance(o, DDPOptions) else 0.0
    return Models(tuple(m.name for m in models), tuple(m.modifies for m in models), switch, curved)


def corrects_of(ocp: OCP, o: SLQOptions) -> bool:
    """Whether there are nodes whose gaps close linearly."""
    return o.gaps == "linear" and len(Shooting.every(o.shooting, ocp.horizon, o.gaps).nodes) > 0


def unsolved(ocp: OCP, guess: Guess) -> Solved:
    """A guess without gains."""
    N, m, n = ocp.horizon, ocp.nu, ocp.manifold.ndx
    xs, us = map(np.array, guess)
    return Solved(xs, us, np.zeros((N, m, n)), np.zeros((N, m)))


def kernels_serve(ocp: OCP, evaluator: Evaluator, lq_solver: LQSolver) -> bool:
    """Whether kernels answer all requests: all is compiled, and one thread suffices for an expansion."""
    if type(evaluator) is not StageEvaluator or not is_compiled(ocp) or not evaluator.alone:
        return False
    from trajopt.lq.compiled_lq import CompiledLQ
    from trajopt.solvers.window.shooting_slot import at_once

    if starts_at_once() and not at_once():
        return False
    return type(lq_solver) is CompiledLQ
