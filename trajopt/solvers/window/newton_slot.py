"""Slot of Newton's method: memory of one problem, and the C kernels (kernels/newton_slot.h) that answer its requests.

All phases of the problem must be compiled, with the second derivatives of their time steps if the method uses them; for other
problems see :mod:`trajopt.solvers.window.newton_calling`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.loops.kernel import definitions, kernel_text
from dynamics_backends.compiled.runtime.memory import bound, code_of, structs_in
from dynamics_backends.machine.library import kernels
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.solvers.methods import requests as ask
from trajopt.solvers.methods.method import Size
from trajopt.solvers.methods.requests import FRACTIONS, Direction, Point, Trial
from trajopt.solvers.rules import barrier
from trajopt.solvers.window.memory import PACKAGE, TRIALS, common_source, trials_together
from trajopt.solvers.window.slots import ArraySlot, Layout, layout_of, new_tuple, nothing
from trajopt.stage.compiled.library import Library, StagesData
from trajopt.stage.evaluation import StageEvaluator

ANSWER = 32
"""Maximum size of an answer, in numbers."""
CONSTANTS = "\n".join(
    [
        "#include <float.h>",
        definitions(
            {
                "ANSWER": ANSWER,
                "FRACTIONS": len(FRACTIONS),
                **{name: getattr(barrier, name) for name in ("KAPPA_SIGMA", "TAU", "PUSH", "WIDEST", "HELD")},
            }
        ),
        f"static const double fractions[] = {{{', '.join(map(repr, FRACTIONS))}}};",
    ]
)
"""C text of the constants of the barrier and the curvature fractions, the generated header newton_constants.h."""


def source() -> str:
    """Return the C text of the slot: shared types, constants, and the kernels."""
    return "\n".join([common_source(), CONSTANTS, kernel_text(PACKAGE, "barrier.h", "newton_slot.h")])


SlotData, PhaseData, ProblemData = structs_in(source(), "newton_t", "newton_phase_t", "newton_problem_t")
_POINT_SIZE = SlotData.points_1_xs.offset - SlotData.points_0_xs.offset
_ANSWER = SlotData.answer_0.offset
_POINT_ANSWER, _STEP_ANSWER = Struct(f"{len(Point._fields)}d"), Struct("7d")
_TRIALS_ANSWER = [Struct(f"{3 * count}d") for count in range(TRIALS + 1)]


class Sizes(NamedTuple):
    """Sizes of the arrays of a slot."""

    N: int
    nx: int
    n: int
    m: int


@lru_cache(maxsize=64)
def layout(s: Sizes) -> Layout:
    """Return the memory layout of the arrays of a slot of these sizes (cached)."""
    N, nx, n, m = s
    blocks = {"Q": (N + 1, n, n), "S": (N, m, n), "R": (N, m, m)}
    motion: dict[str, tuple[int, ...]] = {"xs": (N + 1, nx), "us": (N, m)}
    taken = {"K": (N, m, n), "k": (N, m), "dx": (N + 1, n), "du": (N, m)}
    point = motion | blocks | {"x_next": (N, nx), "costs": (N + 1,), "A": (N, n, n), "B": (N, n, m), "d": (N, n)}
    point |= {"q": (N + 1, n), "r": (N, m), "lambda": (N + 1, n), "g": (N, m)}
    shapes: dict[str, tuple[int, ...]] = {}
    for prefix, count, arrays in (("points", 2, point), ("steps", 3, taken)):
        shapes |= {f"{prefix}_{i}_{name}": shape for i in range(count) for name, shape in arrays.items()}
    shapes |= {f"{of}{name}": shape for of in "com" for name, shape in blocks.items()}
    shapes |= {"Vx": (N + 1, n), "Vxx": (N + 1, n, n), "mr": (N, m), "size": (m,)}
    shapes |= dict.fromkeys(("z", "move"), (2, N, m)) | dict.fromkeys(("lower", "upper"), (N, m))
    shapes |= {"alphas": (TRIALS,)} | dict.fromkeys(("every", "none"), (N // 8 + 1,))
    shapes |= dict.fromkeys(("part_cost", "start", "stop_at", "trial"), (TRIALS * N + TRIALS,))
    shapes |= {"X": (TRIALS, N + 1, nx), "U": (TRIALS, N, m), "D": (TRIALS, N, n), "cost": (TRIALS,)}
    return layout_of(SlotData, shapes)


def sizes_of(ocp: OCP) -> Sizes:
    """Return the sizes for a problem."""
    return Sizes(ocp.horizon, ocp.manifold.nx, ocp.manifold.ndx, ocp.nu)


def serves(evaluators: Sequence[StageEvaluator], curved: bool) -> bool:
    """True if all stages of all evaluators are compiled; curved: also requires compiled second derivatives of the time steps."""
    phases: Any = [stages for e in evaluators for stages in e.stages[:-1]]
    return all(e.may_follow for e in evaluators) and not (curved and not all(s.second_orders[1] for s in phases))


class NewtonSlot(ArraySlot):
    """Iterates and steps of Newton's method (C struct newton_t), with the kernels that answer its requests.

    It serves problems of one structure, one after the other. plain: evaluator with the Gauss-Newton Hessian of the cost. exact:
    evaluator with the Hessian to which the curvature is added, maybe the same, or None. own_workspace: see
    :class:`~trajopt.solvers.window.slots.Slot`.
    """

    name = "newton"

    def __init__(
        self,
        ocp: OCP,
        plain: StageEvaluator,
        exact: StageEvaluator | None,
        *,
        own_workspace: bool = False,
    ) -> None:
        self.sizes = sizes = sizes_of(ocp)
        N, nx, n, m = sizes
        super().__init__(SlotData(), layout(sizes), own_workspace=own_workspace)
        self._evaluators: Any = plain, exact
        self.may_follow = plain.may_follow
        d = self.data
        d.dims_n, d.dims_m, d.N, d.nx = n, m, N, nx
        d.alike, d.widest = exact is None or exact is plain, 0 if exact is not None else len(FRACTIONS) - 1
        self.view("every").view(np.int8)[:] = 1
        self.view("none").view(np.int8)[:] = 0
        self._take_stages()
        self._bind(
            "newton",
            {
                ask.Start: ("start", "d", self._number),
                ask.FirstGains: ("first_gains", "dd", self._point),
                ask.IsFinite: ("is_finite", "", lambda: bool(self._number())),
                ask.Step: ("solve_step", "llldd", self._step),
                ask.Accept: ("accept", "llld", self._point),
                ask.Restore: ("restore", "ld", self._point),
                ask.OnBounds: ("on_bounds", "", self._point),
                ask.AcceptOnBounds: ("turn", "", nothing),
                ask.Gains: ("gains", "l", nothing),
            },
        )
        self._answers = {ask.FirstGains: self._first_gains, ask.Roll: self._rolled}
        self._try = bound(kernels(), "newton_try", "plll", ctypes.c_long)

    def _take_stages(self) -> None:
        """Write the stage functions of the phases and of the final knot, and their workspaces, to the struct."""
        d, (plain, exact) = self.data, self._evaluators
        of = exact or plain
        parts = zip(of.stages, plain.stages, plain.slices, plain.controls_read, strict=False)
        stages_of: Any = of.stages[:-1]
        libraries: Sequence[Library | None] = [None if exact is None else s.curved for s in stages_of]
        phases = (PhaseData * len(stages_of))(*map(self._phase, libraries, *zip(*parts, strict=True)))
        self._alive.append(phases)
        for prefix, evaluator in (("end", of), ("plain_end", plain)):
            end: Any = evaluator.stages[-1]
            setattr(d, f"{prefix}_expand", code_of(end.library.end_first))
            setattr(d, f"{prefix}_values", code_of(end.library.end_values))
            setattr(d, f"{prefix}_workspace", self._workspace(end.library.workspaces))
        d.count, d.phases = len(phases), ctypes.addressof(phases)
        stages: Any = plain.stages[:-1]
        d.trials = trials_together(self.sizes.N, max(own.library.lanes for own in stages))

    def serves(self, *given: Any) -> bool:
        """True if the slot was built from these two evaluators, and this problem has its sizes."""
        ocp, plain, exact = given
        own_plain, own_exact = self._evaluators
        own = own_plain is plain and own_exact is exact
        return own and self.sizes == sizes_of(ocp)

    def _phase(self, curved: Library | None, exact: Any, plain: Any, knots: slice, read: int) -> Any:
        """Return the C struct of a phase: knots, number of controls read, and functions of the exact and the plain stages.

        curved: library with the second derivatives of the time steps; None without them.
        """
        words: list[Any] = []
        for stages in (exact, plain):
            own = stages.library
            workspace = self._workspace(own.workspaces)
            words += [knots.start, knots.stop, read, code_of(own.first), code_of(own.rollout), None, workspace]
        if curved is None:
            return PhaseData(*words)
        return PhaseData(*words, code_of(curved.second), self._workspace(curved.second_workspaces(exact.data.substeps)))

    # -- a problem --------------------------------------------------------------------------------------------------------
    def take(self, ocp: OCP, guess: Guess) -> Size:
        """Load the problem's values, from the stages of the evaluators, with a guess.

        Returns the index in FRACTIONS of the largest curvature fraction, the number of control entries N m, and True if controls
        have bounds.
        """
        stages, values = self._values_of_stages(), self._values(ocp, guess)
        problem = ProblemData(*(None if part is None else ctypes.addressof(part) for part in stages), *values)
        self._problem: Any = stages, problem
        self.data.problem = ctypes.addressof(problem)
        return Size(int(self.data.widest), guess.us.size, ocp.control_bounds is not None)

    def _values_of_stages(self) -> list[Any]:
        """Return the problem data that stage functions read: arrays over the phases, for the exact, Gauss-Newton and second-order
        functions, and the data of the final knot for the exact and Gauss-Newton functions.
        """
        plain, exact = self._evaluators
        *stages, end = plain.stages
        *of, of_end = (exact or plain).stages
        curved = [] if exact is None else [s.curved_data for s in of]
        phases = [(StagesData * len(own))(*own) for own in ([s.data for s in of], [s.data for s in stages], curved)]
        return [*phases, of_end.data, end.data]

    @property
    def _current(self) -> str:
        """Prefix of the struct fields of the current iterate: "points_0" or "points_1"."""
        return f"points_{(self.data.at - self.address - SlotData.points_0_xs.offset) // _POINT_SIZE}"

    # -- answers ------------------------------------------------------------------------------------------------------------
    def _number(self) -> float:
        """Return the last answer of the kernels to a request for one number."""
        return float(self.data.answer_0)

    def _point(self) -> Point:
        """Return the errors of a point, from the last answer of the kernels."""
        return new_tuple(Point, _POINT_ANSWER.unpack_from(self.data, _ANSWER))

    def _first_gains(self, r: ask.FirstGains) -> Point:
        """Compute the first gains, for delta None none."""
        self.calls[ask.FirstGains]((-1.0, r.mu) if r.delta is None else r)
        return self._point()

    def _step(self) -> Direction | None:
        """Return a step, from the last answer of the kernels; None if no requested fraction is convex."""
        fraction, slope, longest, size, *trial = _STEP_ANSWER.unpack_from(self.data, _ANSWER)
        if fraction < 0.0:
            return None
        return new_tuple(Direction, (int(fraction), slope, longest, size, new_tuple(Trial, trial)))

    def _rolled(self, r: ask.Roll) -> list[Trial]:
        """Roll out the step in a place with the lengths longest / 2^i from i = first on; return the trials.

        Their number is at most that requested, and at most that of a batch.
        """
        count = self._try(self.address, *r)
        numbers = _TRIALS_ANSWER[count].unpack_from(self.data, _ANSWER)
        return [new_tuple(Trial, numbers[3 * i : 3 * i + 3]) for i in range(count)]
