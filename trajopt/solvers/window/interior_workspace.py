"""Workspace of an interior-point solve: the program and its slot.

The next problem of the same structure reuses the workspace with its values.
"""

from __future__ import annotations

from dynamics_backends.protocol import Array, MissingCapability
from trajopt.problem.ocp import OCP
from trajopt.results.records import Journal
from trajopt.solvers.interior.feasibility import Restoration
from trajopt.solvers.interior.stage_program import Point, StageProgram
from trajopt.solvers.window.interior_calling import CallingInteriorSlot
from trajopt.solvers.window.interior_slot import InteriorSlot, serves
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.evaluators import cached_evaluator
from trajopt.stage.solver_cache import SolverCache
from trajopt.step.sensitivities import missing_curvature

_NAME = "ipm"
"""Key of the workspace in the solver cache."""


class Workspace:
    """Program and slot of an interior-point solve."""

    def __init__(self, program: StageProgram) -> None:
        self.program = program
        self._feedback: StageEvaluator | None = None
        self._slot: InteriorSlot | None = None

    def slot(self, journal: Journal) -> InteriorSlot:
        """Return the slot of the problem, with zero multipliers and a new restoration phase.

        It is the last slot if its kind is the same. journal: times restoration.
        """
        kind = InteriorSlot if serves(self.program) else CallingInteriorSlot
        if type(self._slot) is not kind:
            self._slot = kind(self.program)
        slot, z = self._slot, self._slot.z
        for array in (z.lam, z.y, z.zl, z.zu, z.f):
            array[:] = 0.0
        slot.restoration = Restoration(slot.system, journal)
        return slot

    @property
    def at(self) -> Point:
        """Final point of the last solve."""
        assert self._slot is not None
        return self._slot.point

    def feedback(self) -> StageEvaluator:
        """Return the evaluator for feedback gains; the last one if it can load the problem's values, else a new one."""
        known, ocp = self._feedback, self.program.ocp
        if known is None or not known.follow(ocp):
            self._feedback = known = cached_evaluator(None, ocp)
        return known


def workspace(cache: SolverCache | None, ocp: OCP, us: Array, hessian: str) -> Workspace:
    """Return the cached workspace if it matches the structure of a problem and the option hessian, else a new one.

    The workspace is cached again if its program can load other problems. us: controls (N, m) of a guess. hessian: the option of
    this name. Raises MissingCapability if it is "exact" and a time step has no second derivatives.
    """
    known = (
        None if cache is None else cache.prepared.pop(_NAME, None)
    )  # remove it first, in case the construction of a new workspace fails
    if known is not None and known[0] == hessian and known[1].program.follow(ocp, us):
        found: Workspace = known[1]
    else:
        found = Workspace(StageProgram(ocp, us, _hessian(ocp, hessian)))
    if cache is not None and found.program.may_follow:
        cache.prepared[_NAME] = hessian, found
    return found


def _hessian(ocp: OCP, hessian: str) -> str:
    """Return the option hessian, but "gauss_newton" in place of others than "exact" if a time step has no second derivatives.

    Raises MissingCapability if "exact" is requested and a time step has no second derivatives.
    """
    reason = None if hessian == "gauss_newton" else missing_curvature(ocp)
    if reason is None:
        return hessian
    if hessian == "exact":
        raise MissingCapability(f"hessian = 'exact': {reason}")
    return "gauss_newton"
