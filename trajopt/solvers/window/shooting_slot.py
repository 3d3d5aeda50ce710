"""Slot of shooting methods: memory of one problem, and the C kernels (kernels/shooting_slot.h) that answer its requests.

All phases of the problem must be compiled, and the only model is the plain expansion; for others see
:mod:`trajopt.solvers.window.shooting_calling`.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple, cast

import numpy as np

from dynamics_backends.compiled.loops.kernel import definitions, kernel_text
from dynamics_backends.compiled.runtime.memory import address, code_of, structs_in
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.lq.lq_solver import shared_lq
from trajopt.problem.ocp import OCP
from trajopt.solvers.methods import shooting_requests as ask
from trajopt.solvers.methods.shooting import NEARLY
from trajopt.solvers.methods.shooting_requests import GO, MARK, STAY, Direction, Optimality, Point
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules.line_search import DOUBLINGS, POLISHED, Trial
from trajopt.solvers.window.memory import PACKAGE, TRIALS, common_source, trials_together
from trajopt.solvers.window.slots import ArraySlot, Layout, layout_of, new_tuple, nothing
from trajopt.stage.compiled.compiled_stages import node_flags
from trajopt.stage.evaluation import Shooting, StageEvaluator

SLOTS = 3
"""Number of iterates; one more if models compete for the step."""
ANSWER = 2 * TRIALS
"""Maximum size of an answer, in numbers."""
TRIALS_IN_WINDOW = 2
"""Step lengths that one problem of a window tries together."""
FALLEN = 2.0
"""A guess is rolled out with feedback if its open-loop rollout costs more than this multiple of its own cost (at least 1), and
feedback less."""
HOLDING = 1e-6
"""Regularization of the gains for the rollout of a guess."""
GAP_ROUNDING = 2e-13
"""Gaps below this fraction of the states are rounding errors. A penalty computed from such gaps would be the expected decrease
divided by noise, and would let the cost rise."""
CONSTANTS = definitions(
    {
        "GAP_ROUNDING": GAP_ROUNDING,
        "FALLEN": FALLEN,
        "HOLDING": HOLDING,
        "DOUBLINGS": DOUBLINGS,
        "ANSWER": ANSWER,
        "STAY": STAY,
        "GO": GO,
        "MARK": MARK,
    }
)
"""C text of the constants, the generated header shooting_constants.h."""
_BLOCKS = ("A", "B", "Q", "q", "S", "R", "r")
"""Blocks of an iterate that all iterates of a window slot share."""


def source(*window: str) -> str:
    """Return the C text of the slot, followed by the given kernel files of a window."""
    own = kernel_text(PACKAGE, "shooting_slot.h", *window)
    return "\n".join([common_source(), CONSTANTS, own])


SlotData, ProblemData, PhaseData = structs_in(source(), "shooting_t", "shooting_problem_t", "phase_t")
_ANSWER = SlotData.answer_0.offset
_POINT_ANSWER, _STEP_ANSWER, _PAIR_ANSWER = Struct("6d"), Struct("7d"), Struct("2d")
_TRIALS_ANSWER = [Struct(f"{2 * count}d") for count in range(TRIALS + 1)]
REFUSED = Trial(math.inf, math.inf)


class Sizes(NamedTuple):
    """Sizes of the arrays of a slot. trials: trajectories per batch of trial steps. bounded: controls have bounds.

    windowed: the slot belongs to a window, where iterates share the memory of their blocks. modeled: the step comes from models.
    """

    N: int
    nx: int
    n: int
    m: int
    trials: int
    bounded: bool
    windowed: bool
    modeled: bool


def sizes_of(ocp: OCP, *, windowed: bool = False, modeled: bool = False) -> Sizes:
    """Return the sizes for a problem, with steps from models if ``modeled``.

    windowed: the slot belongs to a window, which tries fewer step lengths together.
    """
    manifold, trials = ocp.manifold, TRIALS_IN_WINDOW if windowed else TRIALS
    return Sizes(
        ocp.horizon, manifold.nx, manifold.ndx, ocp.nu, trials, ocp.control_bounds is not None, windowed, modeled
    )


@lru_cache(maxsize=64)
def layout(s: Sizes) -> Layout:
    """Return the memory layout of the arrays of a slot of these sizes (cached).

    With bounds it has the workspace of box QPs; in a window the iterates share their derivative blocks; models have memory for
    their Hessian, a parabola and another direction.
    """
    N, nx, n, m, L, bounded, windowed, modeled = s
    own = {
        "xs": (N + 1, nx), "us": (N, m), "x_next": (N, nx), "costs": (N + 1,), "lambda": (N + 1, n), "g": (N, m),
        "A": (N, n, n), "B": (N, n, m), "d": (N, n), "Q": (N + 1, n, n), "q": (N + 1, n), "S": (N, m, n), "R": (N, m, m),
        "r": (N, m),
    }  # fmt: skip
    policy = {"K": (N, m, n), "k": (N, m), "Vx": (N + 1, n), "Vxx": (N + 1, n, n)}
    step = {"dx": (N + 1, n), "du": (N, m)}
    shapes: dict[str, tuple[int, ...]] = {f"slots_{i}_{k}": v for i in range(SLOTS + modeled) for k, v in own.items()}
    shapes |= {f"policy_{k}": v for k, v in policy.items()} | {f"spare_{k}": policy[k] for k in ("K", "k")}
    shapes |= {f"{of}_{k}": v for of in ("step", "current", "extra") for k, v in step.items()}
    if modeled:
        shapes |= {f"other_{k}": policy[k] for k in ("K", "k")} | {f"m{k}": own[k] for k in ("Q", "S", "R")}
        shapes |= {f"{of}_{k}": v for of in ("other_step", "bend") for k, v in step.items()}
    if windowed:
        shapes |= {f"early_to_{k}": v for k, v in step.items()}
    shapes |= {"X": (L, N + 1, nx), "U": (L, N, m), "D": (L, N, n), "cost": (L,), "part_cost": (L * N + L,)}
    shapes |= dict.fromkeys(("start", "stop", "trial"), (L * N,))
    shapes |= {"size": (m,), "zero_k": (N, m), "lambda": (N + 1, n), "g": (N, m)}
    if bounded:
        doubles = shared_lq().bounded_workspace(n, m, N)
        shapes |= dict.fromkeys(("lower_du", "upper_du"), (N, m)) | {"masked": (N, m, n), "bounded": (doubles,)}
    shared = {f"slots_{i}_{k}": f"slots_0_{k}" for i in range(1, SLOTS) for k in _BLOCKS} if windowed else {}
    return layout_of(SlotData, shapes, shared)


class ShootingSlot(ArraySlot):
    """Iterates and steps of a shooting method (C struct shooting_t), with the kernels that answer its requests.

    It serves problems of one structure, one after the other. workspace, own_workspace: see
    :class:`~trajopt.solvers.window.slots.Slot`.
    """

    name = "shooting"

    def __init__(
        self,
        ocp: OCP,
        evaluator: StageEvaluator,
        options: SLQOptions,
        *,
        workspace: Array | None = None,
        own_workspace: bool = False,
        modeled: bool = False,
    ) -> None:
        self.sizes = sizes = sizes_of(ocp, windowed=workspace is not None, modeled=modeled)
        super().__init__(SlotData(), layout(sizes), workspace=workspace, own_workspace=own_workspace)
        self._evaluator, self.may_follow, d = evaluator, evaluator.may_follow, self.data
        self._options = cast("SLQOptions | None", None)
        d.N, d.nx, d.dims_n, d.dims_m = sizes[:4]
        d.shared = workspace is not None
        self._take_stages()
        self._bind(
            "shooting",
            {
                ask.Start: ("start", "d", self._point),
                ask.SolveLQ: ("direction", "dll", self._step),
                ask.Roll: ("roll", "lll", self._trials),
                ask.Correct: ("correct", "l", lambda: self._trials(1)[0]),
                ask.Expand: ("expand", "ld", self._point),
                ask.Rate: ("rate", "d", self._pair),
                ask.Swap: ("swap", "", nothing),
                ask.Go: ("go", "l", nothing),
                ask.Back: ("back", "", nothing),
                ask.Kkt: ("kkt", "", lambda: new_tuple(Optimality, self._pair())),
                ask.Gains: ("gains", "d", nothing),
            },
        )
        self._take_options(ocp, options)

    def _take_stages(self) -> None:
        """Write the functions, data and workspaces of the phases and of the final knot to the struct."""
        evaluator, d = self._evaluator, self.data
        *stages, end = cast(Any, evaluator.stages)
        made = list[Any]()
        for own, knots, read in zip(stages, evaluator.slices, evaluator.controls_read, strict=False):
            functions = code_of(own.library.first), code_of(own.library.rollout)
            data, workspace = ctypes.addressof(own.data), self._workspace(own.library.workspaces)
            made.append(PhaseData(knots.start, knots.stop, read, *functions, data, workspace))
        phases = (PhaseData * len(made))(*made)
        self._alive += [phases, end]
        d.count, d.phases = len(phases), ctypes.addressof(phases)
        d.end_expand, d.end_values = code_of(end.library.end_first), code_of(end.library.end_values)
        d.end_end, d.end_workspace = ctypes.addressof(end.data), self._workspace(end.library.workspaces)

    def _trials_together(self, parts: int) -> tuple[int, int]:
        """Return the step lengths that are rolled out together, and those that take no longer than one.

        parts: number of parts of a rollout that run in parallel.
        """
        stages: Any = self._evaluator.stages[:-1]
        lanes = max(own.library.lanes for own in stages)
        if self.sizes.windowed:
            return TRIALS_IN_WINDOW, 1
        together = trials_together(parts, lanes)
        return together, max(1, min(together, -(-parts // lanes) * lanes // parts))

    def serves(self, *given: Any) -> bool:
        """True if the slot was built from this evaluator and has the sizes of the problem; then sets the options."""
        ocp, evaluator, options = given
        if not (self._evaluator is evaluator and self.sizes == sizes_of(ocp)):
            return False
        self._take_options(ocp, options)
        return True

    def _take_options(self, ocp: OCP, o: SLQOptions) -> None:
        """Write options, shooting nodes and step lengths to the struct, unless the options are unchanged."""
        if o == self._options:
            return
        d, shooting = self.data, Shooting.every(o.shooting, ocp.horizon, o.gaps)
        node, alphas = node_flags(shooting.nodes, ocp.horizon), lengths(o.max_backtracks)
        d.nonlinear, d.nodes, d.on_state = o.gaps == "nonlinear", len(shooting.nodes), o.regularize == "state"
        d.node, d.alphas = address(node), address(alphas)
        d.together, d.in_lanes = self._trials_together(1 if d.nonlinear else len(shooting.nodes) + 1)
        d.early_nearly = NEARLY * o.kkt_tolerance
        if self.sizes.windowed and not reads_linear_steps(ocp, o):
            d.early_to_dx = d.early_to_du = None
        self._options, self._arrays = o, (node, alphas)

    # -- a problem ----------------------------------------------------------------------------------------------------------
    def take(self, ocp: OCP, guess: Guess) -> None:
        """Load the problem's values with a guess."""
        self._problem = ProblemData(None, None, *self._values(ocp, guess))
        self.data.problem = ctypes.addressof(self._problem)

    @property
    def _current(self) -> str:
        """Prefix of the struct fields of the current iterate, "slots_0" to "slots_3"."""
        return f"slots_{self.data.at}"

    # -- answers ------------------------------------------------------------------------------------------------------------
    def _pair(self) -> tuple[float, float]:
        """Return the last answer of the kernels to a request for two numbers."""
        return _PAIR_ANSWER.unpack_from(self.data, _ANSWER)

    def _point(self) -> Point:
        """Return finiteness, cost, gradient, gaps and bound violation of an iterate, from the last answer of the kernels."""
        return new_tuple(Point, _POINT_ANSWER.unpack_from(self.data, _ANSWER))

    def _step(self) -> Direction:
        """Return the step of a search direction, from the last answer of the kernels.

        If Quu could not be factorized at a knot, it contains that knot, zeros, and an infinite trial. The trial is undefined if
        the full step was not rolled out.
        """
        failed, D1, D2, size, kkt, *trial = _STEP_ANSWER.unpack_from(self.data, _ANSWER)
        if failed >= 0.0:
            return Direction(int(failed), 0.0, 0.0, 0.0, 0.0, REFUSED)
        return new_tuple(Direction, (-1, D1, D2, size, kkt, new_tuple(Trial, trial)))

    def _trials(self, count: int | None = None) -> list[Trial]:
        """Return cost and gap norm of trial trajectories, from the last answer of the kernels; count: default as rolled out."""
        count = self.data.rolling_count if count is None else count
        numbers = _TRIALS_ANSWER[count].unpack_from(self.data, _ANSWER)
        return [new_tuple(Trial, numbers[2 * i : 2 * i + 2]) for i in range(count)]


@lru_cache(maxsize=16)
def lengths(max_backtracks: int) -> Array:
    """Return the step lengths 2^DOUBLINGS, ..., 1, 1/2, ..., 2^-max(max_backtracks, POLISHED) (cached; do not change them)."""
    return 0.5 ** np.arange(-DOUBLINGS, max(max_backtracks, POLISHED) + 1.0)


def reads_linear_steps(ocp: OCP, o: SLQOptions) -> bool:
    """True if rollouts may need dx and du, not only du - K dx: gaps are linear, or the state space is not flat."""
    return o.gaps == "linear" or not ocp.manifold.is_flat
