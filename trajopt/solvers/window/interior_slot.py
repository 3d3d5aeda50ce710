"""Slot of the interior point: memory of one problem, and the C kernels that answer the requests of the method.

kernels/interior_slot.h has the answers, :mod:`trajopt.solvers.interior.library` the linear algebra.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from struct import Struct
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.loops.kernel import definitions, kernel_text
from dynamics_backends.compiled.runtime.memory import address, aligned, bound, code_of, structs_in
from dynamics_backends.machine.library import kernels
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.solvers.interior import library
from trajopt.solvers.interior.feasibility import Restoration
from trajopt.solvers.interior.named_multipliers import from_names
from trajopt.solvers.interior.newton import LARGEST_ESTIMATE, NewtonSystem
from trajopt.solvers.interior.stage_program import EXACT, MIXED, Point, StageProgram
from trajopt.solvers.methods import interior_requests as ask
from trajopt.solvers.methods.interior_point import InteriorSize
from trajopt.solvers.methods.interior_requests import Begun, Corrected, Direction, MultiplierStart, Restored, Trial
from trajopt.solvers.rules.barrier import KAPPA_SIGMA
from trajopt.solvers.rules.interior_measures import Violation
from trajopt.solvers.window.memory import PACKAGE
from trajopt.solvers.window.slots import Slot, new_tuple
from trajopt.stage.compiled.library import StagesData
from trajopt.stage.engine import may_follow

ANSWER = 16
"""Maximum size of an answer, in numbers."""
CONSTANTS = definitions(
    {"ANSWER": ANSWER, "KAPPA_SIGMA": KAPPA_SIGMA, "LARGEST_ESTIMATE": LARGEST_ESTIMATE}
    | {start.name: start.value for start in MultiplierStart}
)
"""C text of the constants, the generated header interior_slot_constants.h."""
_KERNELS = "slot.h", "interior_stages.h", "interior_slot.h"


def source(before: str = library.TEXT) -> str:
    """Return the C text of the slot: ``before`` (default: the linear algebra), constants, types and kernels."""
    types = kernel_text("trajopt.lq", "lq_functions.h"), kernel_text("trajopt.stage", "stage_types.h")
    return "\n".join([before, CONSTANTS, *types, kernel_text(PACKAGE, *_KERNELS)])


_PLACE = [f"own_{name}" for name, *_ in library.PointData._fields_]
_STRUCTURE = [name for name, *_ in library.StructureData._fields_]
SlotData, PartData, ProblemData = structs_in(source(), "interior_t", "part_t", "interior_problem_t")
_ANSWER = SlotData.answer_0.offset
_SUMS, _DIRECTION = Struct("9d"), Struct("14d")
_TRIAL, _BEGUN, _CORRECTED = Struct("6d"), Struct("7d"), Struct("9d")


def serves(program: StageProgram) -> bool:
    """True if compiled kernels can evaluate a program: its stages are compiled, with second derivatives where it is exact.

    A mixed Hessian, Gauss-Newton plus the curvature of the time steps, excludes them.
    """
    if MIXED in program.orders or not may_follow(program.stages):
        return False
    kinds = zip(cast(Any, program.stages), program.orders, strict=True)
    return all(s.library.shape.second for s, order in kinds if order == EXACT)


def reused_sizes(program: StageProgram) -> list[int]:
    """Return for each phase the size, in doubles, of the values of first derivatives that second derivatives reuse.

    It is 0 for phases without exact Hessian. All stages must be compiled.
    """
    sizes = []
    for s, order in zip(cast(Any, program.stages[:-1]), program.orders, strict=False):
        blocks = -(-len(s.plain.t) // s.library.lanes) if order == EXACT else 0
        sizes.append(blocks * s.library.stored_size * s.data.substeps * s.library.lanes if blocks else 0)
    return sizes


class InteriorSlot(Slot):
    """Points, multipliers and steps of the interior-point method (C struct interior_t), with kernels that answer its requests.

    It serves the problem of ``program``, and others of its structure that the program follows, one after the other.
    own_workspace: see :class:`~trajopt.solvers.window.slots.Slot`. restoration: answers :class:`Restore` and :class:`Return`;
    None if no restoration is available.
    """

    name = "ipm"
    hessian = ""
    """Option of this name for which the slot was made."""
    restoration: Restoration | None = None

    def __init__(self, program: StageProgram, *, own_workspace: bool = False) -> None:
        super().__init__(SlotData(), own_workspace=own_workspace)
        self.program, self.z, self.may_follow = program, program.multipliers(), program.may_follow
        self.system, self.points = NewtonSystem(program), (Point(program), Point(program))
        self._steps = self.system.empty_step(), self.system.empty_step()
        self._given: Mapping[str, Array] | None = None
        self.size = InteriorSize(program.numbers, self.system.equations, False)
        self._stages = list[Any](program.stages)
        self._work = [
            aligned(max(size, 1)) for size in (program.N * program.n, *2 * (program.rows, len(program.fixed)))
        ]
        d = self.data
        for i, p in enumerate(self.points):
            places = (*(getattr(p.data, name) for name, *_ in p.data._fields_), *map(address, (p.cost, p.x_next, p.xs)))
            for name, at in zip((*_PLACE, "cost", "x_next", "xs"), places, strict=True):
                setattr(d, f"places_{i}_{name}", at)
        d.program_nx = program.ocp.manifold.nx
        self._take_stages()
        d.z_lambda, d.z_y, d.z_zl, d.z_zu, d.z_f = self.z.addresses
        d.steps_0, d.steps_1 = (step.ref for step in self._steps)
        d.d, d.rows, d.fixes, d.new_rows, d.new_fixes = map(address, self._work)
        d.system = ctypes.addressof(self.system.data)
        self._bind(
            "interior",
            {
                ask.Start: ("start", "d", self._begun),
                ask.Multipliers: ("multipliers", "idd", self._sums),
                ask.Measure: ("measure_again", "dd", self._sums),
                ask.SolveNewton: ("newton", "diididddddd", self._direction),
                ask.Try: ("try", "d", self._trial),
                ask.Correct: ("correct", "did", self._correction),
                ask.Take: ("take", "iddidd", self._sums),
            },
        )
        self._answers = {
            ask.Multipliers: self._found_multipliers,
            ask.Restore: self._restored,
            ask.Return: self._returned,
        }
        self._go_to = bound(kernels(), "interior_go_to", "pi")

    @classmethod
    def for_batch(cls, program: StageProgram) -> InteriorSlot:
        """Create a slot with a separate workspace and a copy of the program's structure, for problems of a batch."""
        slot = cls(program, own_workspace=True)
        slot.copy_structure()
        return slot

    def serves(self, *given: Any) -> bool:
        """True if the slot was made for this option hessian and its program can load this problem; then loads it."""
        ocp, us, hessian = given
        return self.hessian == hessian and self.program.follow(ocp, np.asarray(us, dtype=float))

    def _take_stages(self) -> None:
        """Write stage functions and their workspaces to the struct, and allocate storage of values that second derivatives reuse.

        On a Lie group, add the functions that move states and transport multipliers.
        """
        d, program, (*stages, end) = self.data, self.program, self._stages
        for i in range(len(self.points)):
            stored = [aligned(size) if size else None for size in reused_sizes(program)]
            table = (ctypes.c_void_p * len(stored))(*[None if a is None else address(a) for a in stored])
            setattr(d, f"places_{i}_stored", ctypes.addressof(table))
            self._alive += [stored, table]
        self.parts = (PartData * len(stages))(*(self._part(i) for i in range(len(stages))))
        _, rows, count = program.parts[-1]
        exact = program.orders[-1] == EXACT
        d.program_parts, d.program_count = ctypes.addressof(self.parts), len(stages)
        d.program_end_row, d.program_end_count, d.program_end_exact = rows.start, count, exact
        d.program_end_values, d.program_end_expand = map(code_of, (end.library.end_values, end.library.end_first))
        d.program_end_curve = code_of(end.library.end_second) if exact else None
        d.program_end_workspace = self._workspace(end.library.workspaces)
        if not program.flat:
            own = stages[0].library
            d.program_structure = own.structure
            d.program_moved, d.program_carried = map(code_of, (own.moved, own.carried))

    def _part(self, i: int) -> Any:
        """Return the C struct of phase i: knots, rows, functions and workspaces; those of second derivatives if they are exact."""
        stages, (knots, rows, count) = self._stages[i], self.program.parts[i]
        own, exact = stages.library, self.program.orders[i] == EXACT
        curve = code_of(own.second) if exact else None
        workspace = self._workspace(own.second_workspaces(stages.data.substeps)) if exact else None
        calls = code_of(own.first), curve, self._workspace(own.workspaces), workspace
        return PartData(knots.start, knots.stop, rows.start, count, exact, *calls)

    # -- a problem --------------------------------------------------------------------------------------------------------
    def copy_structure(self) -> None:
        """Copy sizes and array addresses of the program's structure to the struct, with its mask of held controls that are read."""
        d, program = self.data, self.program
        for name in _STRUCTURE:
            setattr(d, f"structure_{name}", getattr(program.structure, name))
        d.program_still = address(program.still_read) if program.any_read else None

    def take(self, guess: Guess, multipliers: Mapping[str, Array] | None = None) -> InteriorSize:
        """Load the problem of the program with a guess, and optionally multipliers by constraint name; return its sizes.

        The states start at the problem's x0; held controls have their fixed values instead of those of the guess.
        """
        self.copy_structure()
        for array in self.z.arrays:
            array[:] = 0.0
        program, stages = self.program, self._values_of_stages()
        us = np.where(program.held, program.held_at, guess.us)
        given = [np.ascontiguousarray(rows, float) for rows in (program.ocp.x0, guess.xs, us)]
        bounds = map(address, (program.lower, program.upper, program.target, program.fixed_at))
        own = (None if part is None else ctypes.addressof(part) for part in stages)
        problem = ProblemData(*own, *map(address, given), *bounds, None, None)
        self._problem: Any = stages, given, problem
        self.data.problem, self._given = ctypes.addressof(problem), multipliers
        return self.size._replace(given=bool(multipliers))

    def _values_of_stages(self) -> tuple[Any, Any]:
        """Return the problem data that stage functions read: an array over the phases, and the data of the final knot."""
        *stages, end = self._stages
        return (StagesData * len(stages))(*[s.data for s in stages]), end.data

    @property
    def point(self) -> Point:
        """The current iterate."""
        return self.points[self.data.at]

    @property
    def trajectory(self) -> tuple[Array, Array]:
        """States and controls of the current iterate."""
        return self.point.xs, self.point.us

    @property
    def other(self) -> Point:
        """The last trial point."""
        return self.points[1 - self.data.at]

    def go_to(self, point: Point) -> Trial:
        """Make a point of the slot, changed by outside code, the current iterate; return its objective and violation.

        First derivatives are computed, too.
        """
        self._go_to(self.address, self.points.index(point))
        return self._trial()

    # -- answers ----------------------------------------------------------------------------------------------------------
    def _begun(self) -> Begun:
        """Return objective, violation and largest cost gradient of the guess, from the last answer of the kernels."""
        objective, *at, steepest = _BEGUN.unpack_from(self.data, _ANSWER)
        return Begun(objective, new_tuple(Violation, at), steepest)

    def _found_multipliers(self, r: ask.Multipliers) -> tuple[float, ...]:
        """Initialize the multipliers at the current iterate, with start GIVEN from those by name; return the error sums."""
        if r.start is MultiplierStart.GIVEN and self._given is not None:
            from_names(self.program, self._given, r.scale, self.z)
        self.calls[ask.Multipliers](r)
        return self._sums()

    def _sums(self) -> tuple[float, ...]:
        """Return the sums of the error measures, from the last answer of the kernels."""
        return _SUMS.unpack_from(self.data, _ANSWER)

    def _direction(self) -> Direction:
        """Return the search direction of a Newton step with its trial point, from the last answer of the kernels.

        If no shift makes the system convex, the direction has found = 0, and its step and trial are undefined.
        """
        numbers = _DIRECTION.unpack_from(self.data, _ANSWER)
        trial = new_tuple(Trial, (numbers[8], new_tuple(Violation, numbers[9:])))
        return new_tuple(Direction, (*numbers[:8], trial))

    def _correction(self) -> Corrected:
        """Return a step with a second-order correction, from the last answer of the kernels."""
        alpha, alpha_z, size, objective, *at = _CORRECTED.unpack_from(self.data, _ANSWER)
        return Corrected(alpha, alpha_z, size, objective, new_tuple(Violation, at))

    def _restored(self, r: ask.Restore) -> Restored | None:
        """Run the restoration phase from the current iterate, and make its result the current iterate.

        Returns its result with objective and violation evaluated by the kernels; None if the slot has no restoration.
        """
        if self.restoration is None:
            return None
        self.point.fresh = self.other.fresh = False  # kernels have moved both points since NumPy evaluated them
        found, point = self.restoration.run(self.point, self.other, r)
        trial = self.go_to(point)
        return found._replace(objective=trial.objective, at=trial.at)

    def _returned(self, _: ask.Return) -> Trial:
        """Return to the point at which the last restoration started, and evaluate it."""
        assert self.restoration is not None
        self.restoration.restore_start(self.point)
        return self.go_to(self.point)

    def _trial(self) -> Trial:
        """Return objective and violation of a trial point, from the last answer of the kernels."""
        objective, *at = _TRIAL.unpack_from(self.data, _ANSWER)
        return new_tuple(Trial, (objective, new_tuple(Violation, at)))
