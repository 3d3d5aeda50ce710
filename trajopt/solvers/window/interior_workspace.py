"""The workspace of an interior-point solve: the program and its slot.

It is made for a structure; the next problem of that structure takes it over with values of its own.
"""

from __future__ import annotations

from dynamics_backends.protocol import Array, MissingCapability
from trajopt.problem.ocp import OCP
from trajopt.results.records import Journal
from trajopt.solvers.interior.feasibility import Restoration
from trajopt.solvers.interior.stage_program import Point, StageProgram
from trajopt.solvers.window.interior_numpy import InteriorNumpy
from trajopt.solvers.window.interior_slot import InteriorSlot, serves
from trajopt.stage.numerics import Numerics, numerics_for
from trajopt.stage.solver_cache import SolverCache
from trajopt.step.contraction import missing_curvature

_NAME = "ipm"
"""Under which a workspace is kept."""


class Workspace:
    """A program and its slot."""

    def __init__(self, program: StageProgram) -> None:
        self.program = program
        self._feedback: Numerics | None = None
        self._slot: InteriorSlot | None = None

    def slot(self, journal: Journal) -> InteriorSlot:
        """The slot of the problem, without multipliers. journal: times what NumPy evaluates."""
        kind = InteriorSlot if serves(self.program, alone=True) else InteriorNumpy
        if type(self._slot) is not kind:
            self._slot = kind(self.program)
        slot, z = self._slot, self._slot.z
        for array in (z.lam, z.y, z.zl, z.zu, z.f):
            array[:] = 0.0
        slot.restoration = Restoration(slot.system, journal)
        if isinstance(slot, InteriorNumpy):
            slot.journal = journal
        return slot

    @property
    def at(self) -> Point:
        """The point where the last solve has ended."""
        assert self._slot is not None
        return self._slot.point

    def feedback(self) -> Numerics:
        """Expansions and sweeps for gains about a trajectory of the problem."""
        known, ocp = self._feedback, self.program.ocp
        if known is None or not known.evaluator.follow(ocp):
            self._feedback = known = numerics_for(ocp)
        return known


def workspace(kept: SolverCache | None, ocp: OCP, us: Array, asked: str) -> Workspace:
    """The one that is kept, if it fits, with the values of a problem; else a new one, which is kept.

    us: controls (N, m) of a guess. asked: the option ``hessian``. Raises MissingCapability where that is "exact" and a
    time step has no second derivatives.
    """
    known = (
        None if kept is None else kept.prepared.pop(_NAME, None)
    )  # of no use where another one is being made and that fails
    if known is not None and known[0] == asked and known[1].program.follow(ocp, us):
        found: Workspace = known[1]
    else:
        found = Workspace(StageProgram(ocp, us, _hessian(ocp, asked)))
    if kept is not None and found.program.may_follow:
        kept.prepared[_NAME] = asked, found
    return found


def _hessian(ocp: OCP, asked: str) -> str:
    """The kind of Hessian. Raises MissingCapability where an exact one is asked for that a time step has not."""
    reason = None if asked == "gauss_newton" else missing_curvature(ocp)
    if reason is None:
        return asked
    if asked == "exact":
        raise MissingCapability(f"hessian = 'exact': {reason}")
    return "gauss_newton"
