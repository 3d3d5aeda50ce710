"""One solve by the interior point: answered by kernels where all is compiled, else by NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.results.records import Callback, Journal
from trajopt.results.solution import Solution
from trajopt.results.status import Status
from trajopt.solvers import termination
from trajopt.solvers.interior.feasibility import Restoration
from trajopt.solvers.interior.named_multipliers import by_name, of_start
from trajopt.solvers.interior.stage_program import StageProgram
from trajopt.solvers.methods.interior_point import Ended, InteriorPoint
from trajopt.solvers.methods.interior_requests import Restore, Restored, Trial
from trajopt.solvers.options import IPMOptions
from trajopt.solvers.window import interior_status
from trajopt.solvers.window.driver import run_alone
from trajopt.solvers.window.interior_slot import InteriorSlot
from trajopt.solvers.window.interior_workspace import Workspace


def solve_program(
    program: StageProgram,
    guess: Guess,
    options: IPMOptions,
    callback: Callback | None = None,
    multipliers: Mapping[str, Array] | None = None,
) -> Solution:
    """Solve a problem given by its stages; the solution has no gains."""
    return solve_interior(Workspace(program), guess, options, callback, multipliers)


def solve_interior(
    room: Workspace,
    guess: Guess,
    options: IPMOptions,
    callback: Callback | None,
    multipliers: Mapping[str, Array] | None,
) -> Solution:
    """Solve the problem of a workspace from a guess; there is a solution after Ctrl-C too. It has no gains, and ``room.at`` is its
    point.
    """
    journal, program = Journal(callback), room.program
    slot = _with_feasibility(room.slot(journal), room, journal)
    method = InteriorPoint(slot.take(guess, multipliers), options)

    def report(**numbers: Any) -> None:
        slot.note_times(journal)
        hessian = "mixed" if method.reflected else program.hessian
        trajectory = slot.point.xs, slot.point.us
        journal.add(lambda: trajectory, iteration=len(journal.records), hessian=hessian, **numbers)

    method.report = report
    with np.errstate(all="ignore"):  # non-finite numbers are found and reported, not warned about
        status = interior_status.crossed_bounds(program)
        if status is None:
            status = _run(method, slot, guess, options, journal)
        slot.note_times(journal)
        room.at = slot.point
        return _solution(room, method, guess, status, journal)


def _run(method: InteriorPoint, slot: Any, guess: Guess, options: IPMOptions, journal: Journal) -> Status:
    try:
        ended: Ended = run_alone(method.solve(), slot.answer)
    except KeyboardInterrupt:
        return termination.interrupted(method.iteration)
    if not method.begun:
        journal.refused()
        return interior_status.non_finite(slot.program, guess)
    return interior_status.status_of(ended, options, slot.program, slot.point)


def _with_feasibility(slot: InteriorSlot, room: Workspace, journal: Journal) -> InteriorSlot:
    """The slot, whose steps for feasibility alone are NumPy's."""
    restoration = Restoration(room.system, journal)

    def restore(r: Restore) -> Restored:
        slot.note_times(journal)
        slot.point.fresh = slot.other.fresh = False  # kernels have moved both points since NumPy evaluated them
        found, point, _ = restoration.run(slot.point, slot.other, r)
        trial = slot.go_to(point)
        return found._replace(objective=trial.objective, at=trial.at)

    def come_back() -> Trial:
        restoration.come_back(slot.point)
        return slot.go_to(slot.point)

    slot.restore, slot.come_back = restore, come_back
    return slot


def _solution(room: Workspace, method: InteriorPoint, guess: Guess, status: Status, journal: Journal) -> Solution:
    program, p, z = room.program, room.at, room.z
    ocp = program.ocp
    xs, us = (p.xs.copy(), p.us.copy()) if np.isfinite(method.objective) else guess
    N, m = program.N, program.m
    if ocp.control_bounds is not None:  # those of the program are relaxed
        us = np.where(program.held, us, np.clip(us, *ocp.control_bounds))
    multipliers = by_name(program, z, method.scale)
    multipliers["bounds on x"][0] = of_start(program, p, z, method.scale)
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
        meta={"barrier": method.barrier.mu, "hessian": program.hessian},
    )
