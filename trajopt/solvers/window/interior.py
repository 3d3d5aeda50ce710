"""Single solves by the interior point: C kernels answer the requests; for stages that are not compiled, they call Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array, MissingCapability
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers.interior.feasibility import Restoration
from trajopt.solvers.interior.named_multipliers import by_name, held_control_multipliers, initial_state_multiplier
from trajopt.solvers.interior.stage_program import StageProgram
from trajopt.solvers.methods.interior_point import InteriorEnded, InteriorPoint
from trajopt.solvers.methods.interior_requests import SolveNewton
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.rules.barrier import TAU
from trajopt.solvers.window import interior_status
from trajopt.solvers.window.alone import run_to_end
from trajopt.solvers.window.interior_calling import CallingInteriorSlot
from trajopt.solvers.window.interior_slot import InteriorSlot, serves
from trajopt.step.sensitivities import missing_curvature


def program_of(ocp: OCP, us: Array, hessian: str) -> StageProgram:
    """Return the program of a problem; us: controls (N, m) of a guess, hessian: the option of this name.

    If a time step has no second derivatives, the Hessian is Gauss-Newton; "exact" then raises MissingCapability.
    """
    reason = None if hessian == "gauss_newton" else missing_curvature(ocp)
    if reason is not None and hessian == "exact":
        raise MissingCapability(f"hessian = 'exact': {reason}")
    return StageProgram(ocp, np.asarray(us, dtype=float), hessian if reason is None else "gauss_newton")


def slot_of(program: StageProgram) -> InteriorSlot:
    """Return a new slot of a program, with kernels that call Python if its stages are not compiled."""
    return InteriorSlot(program) if serves(program) else CallingInteriorSlot(program)


def new_slot(ocp: OCP, us: Array, hessian: str) -> InteriorSlot:
    """Return a new slot of a problem for the solver cache; arguments as in :func:`program_of`."""
    slot = slot_of(program_of(ocp, us, hessian))
    slot.hessian = hessian
    return slot


def solve_interior(
    slot: InteriorSlot,
    guess: Guess,
    options: IPMOptions,
    callback: Callback | None,
    multipliers: Mapping[str, Array] | None,
) -> Solution:
    """Solve the problem of a slot from a guess by the interior-point method; the solution has zero gains.

    multipliers: of an earlier solution by name, to start from. Crossed bounds, or a start that is not finite, end the solve
    before its first step. After Ctrl-C, the solution is the current iterate.
    """
    journal, program = Journal(callback), slot.program
    slot.restoration = Restoration(slot.system, journal)
    method = InteriorPoint(slot.take(guess, multipliers), options)
    method.hessian = program.hessian

    def status_of(ended: InteriorEnded) -> Status:
        """Return the status of a termination; of non-finite values in the guess if the method never started."""
        if not method.begun:
            return interior_status.non_finite(program, guess)
        return interior_status.status_of(ended, options, program, slot.point)

    with np.errstate(all="ignore"):  # the status reports non-finite values
        status = interior_status.crossed_bounds(program)
        if status is None:
            status = run_to_end(method, slot, journal, status_of)
        slot.note_times(journal)
        return _solution(slot, method, guess, status, journal)


def _solution(slot: InteriorSlot, method: InteriorPoint, guess: Guess, status: Status, journal: Journal) -> Solution:
    """Return the solution at the current point, or at the guess if the objective is not finite; its gains are zero.

    Controls are clipped to the problem's bounds, because the program relaxes bounds; held controls are not. Multipliers are by
    constraint name; at the first knot, those of bounds on x are the multiplier of the given initial state.
    """
    program, p, z = slot.program, slot.point, slot.z
    ocp = program.ocp
    xs, us = (p.xs.copy(), p.us.copy()) if np.isfinite(method.objective) else guess
    N, m = program.N, program.m
    if ocp.control_bounds is not None:  # bounds of the program are relaxed
        us = np.where(program.held, us, np.clip(us, *ocp.control_bounds))
    multipliers = by_name(program, z, method.scale)
    multipliers["bounds on x"][0] = initial_state_multiplier(program, p, z, method.scale)
    if program.any_read and method.begun:
        multipliers["bounds on u"] += held_control_multipliers(program, p, z, method.scale)
    return Solution(
        xs,
        us,
        np.zeros((N, m, program.n)),
        np.zeros((N, m)),
        status,
        method.objective,
        method.iteration,
        journal.history(),
        ocp.times,
        multipliers=multipliers,
        meta={
            "barrier": method.barrier.mu,
            "hessian": program.hessian,
            "indefinite": status.success and method.indefinite and _is_indefinite(slot, method),
        }
        | _strategy(method),
    )


SINGULAR = 1e-8
"""Shift of a Hessian, relative to its largest entry, that makes a semidefinite one definite: that of a control without effect."""


def _is_indefinite(slot: InteriorSlot, method: InteriorPoint) -> bool:
    """True if the reduced Hessian of the barrier problem at the current point is indefinite, and not only singular."""
    p = slot.point
    slot.answer(SolveNewton(method.scale, False, False, method.barrier.mu, False, TAU))
    return slot.system.needs_shift(SINGULAR * max(float(np.abs(part).max(initial=0.0)) for part in (p.Q, p.S, p.R)))


def _strategy(method: InteriorPoint) -> dict[str, Any]:
    """Return the final barrier strategy, "adaptive" or "monotone", as metadata of the solution.

    If an adaptive strategy became monotone, its iteration is added as "monotone_since".
    """
    since = method.monotone_since
    chosen = {"barrier_strategy": "adaptive" if method.barrier.adaptive else "monotone"}
    return chosen if since is None else {**chosen, "monotone_since": since}
