"""An iteration of a shooting solver as one call: kernels/iteration.h, the twin of what the loop does with one model.

It serves problems whose phases are all compiled, and where the work of an iteration is done on one thread. The C knows no sizes,
so one library serves all problems.
"""

from __future__ import annotations

import ctypes
import math
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, bound, is_there, load
from dynamics_backends.protocol import Array
from trajopt.lq import bounded_lq
from trajopt.lq.compiled_lq import CompiledLQ
from trajopt.lq.lq import LQProblem, Policy
from trajopt.problem.ocp import OCP
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting import iterate
from trajopt.solvers.shooting.compiled.iteration_memory import (
    NONE,
    SLOTS,
    FinalData,
    GlobalizationData,
    OptionsData,
    PhaseData,
    Sizes,
    SolveData,
    SweepsData,
    layout,
    pointers,
    shelf,
)
from trajopt.solvers.shooting.iterate import Iterate, Residuals
from trajopt.solvers.shooting.search import globalization
from trajopt.solvers.shooting.search.globalization import Drift, Merit, Regularization
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages, node_flags
from trajopt.stage.evaluation import Expansion, Shooting, StageEvaluator
from trajopt.stage.kept import Kept

_NAME = "iteration"
"""Under which one is kept."""
ABREAST = 8
"""Step lengths that one problem tries side by side: lanes of the widest processors."""
_CONSTANTS = {
    "MAX_SWEEPS": bounded_lq.MAX_SWEEPS,
    "ENOUGH": bounded_lq.ENOUGH,
    "LENGTHS": len(bounded_lq.STEP_LENGTHS),
    "GAP_ROUNDING": iterate.GAP_ROUNDING,
    "FALLEN": iterate.FALLEN,
    "HOLDING": iterate.HOLDING,
    "POLISHED": len(globalization.POLISHING),
    "STRETCHED": len(globalization.STRETCHING),
    **{
        name: getattr(globalization, name)
        for name in (
            "PENALTY_MARGIN",
            "MAX_CORRECTIONS",
            "TOO_MUCH",
            "ROUNDING",
            "NEAR_ROUNDING",
            "LOWER_AT",
            "LOWER_RATIO",
            "MAX_IDLE",
            "DRIFTING",
            "ADRIFT",
            "CLOSING",
            "PROGRESS",
        )
    },
}
"""What the kernels share with their twins in Python."""

_TOLD = tuple(
    {
        **{name: name for name in ("cost", "merit", "stop", "gradient", "step_norm", "defect", "kkt")},
        "regularization": "mu",
        "constraint_violation": "violation",
        "expected_decrease": "expected",
        "actual_decrease": "actual",
        "step_length": "alpha",
    }.items()
)
"""Names of a record, and fields of record_t."""


def at_once() -> bool:
    """Whether the library can be had at once; else it is made aside."""
    return is_there(source())


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The functions of an iteration, compiled or from the cache."""
    found = load(source())
    if bound(found, "shooting_size", "", ctypes.c_long)() != ctypes.sizeof(SolveData):
        raise RuntimeError("iterate.h and iteration_memory.py disagree about shooting_t")
    return found


def source() -> str:
    """The C text of an iteration."""
    folders = {"trajopt.lq": ("lq_types.h",), "trajopt.stage": ("stage_types.h",)}
    own = {"trajopt.solvers.shooting": ("bounded_lq.h", "decisions.h", "iterate.h", "step_search.h", "iteration.h")}
    texts = [
        (files(package) / "kernels" / name).read_text() for package, names in (folders | own).items() for name in names
    ]
    head = '#include <math.h>\n#include <string.h>\n#include <time.h>\n#define EXPORT __attribute__((visibility("default")))'
    return "\n".join([head, *(f"#define {name} {value}" for name, value in _CONSTANTS.items()), *texts])


class CompiledIteration:
    """The iterations of one solve. Iterates and policies that it gives are views, which hold until the next but one iteration.

    abreast: step lengths that are tried side by side. shared: whether iterates share the memory of their blocks.
    """

    GO_ON, COST_CONVERGED, NOT_POSITIVE_DEFINITE, NO_PROGRESS = range(4)
    """How an iteration ended; the values of the enumeration of iterate.h."""

    def __init__(
        self,
        ocp: OCP,
        evaluator: StageEvaluator,
        lq_solver: CompiledLQ,
        options: SLQOptions,
        shooting: Shooting,
        abreast: int = ABREAST,
        shared: bool = False,
    ) -> None:
        self._start = bound(library(), "shooting_start", "p", ctypes.c_int)
        self._iterate = bound(library(), "shooting_iterate", "p", ctypes.c_int)
        self._kkt = bound(library(), "shooting_kkt", "pl", ctypes.c_double)
        self._gains = bound(library(), "shooting_gains", "pl dpp", ctypes.c_long)
        self._evaluator, self._lq_solver = evaluator, lq_solver
        self._sizes = _sizes(ocp, abreast, shared)
        self._places, doubles = layout(self._sizes)
        self._memory = shelf.take(doubles)
        self._views: dict[str, Array] = {}
        self._iterates: list[Iterate | None] = [None] * SLOTS
        self._solve = solve = SolveData()
        self._phases = self._stages(solve)
        self._arrays(solve, lq_solver)
        solve.abreast, solve.shared = abreast, shared
        self._slots = solve.slots
        self._at = ctypes.byref(solve)
        self.home: Kept | None = None
        self.prepare(ocp, options, shooting)

    @classmethod
    def of(
        cls,
        ocp: OCP,
        evaluator: StageEvaluator,
        lq_solver: CompiledLQ,
        options: SLQOptions,
        shooting: Shooting,
        kept: Kept | None,
    ) -> CompiledIteration:
        """The iterations of a solve with memory that is kept, if it fits."""
        known: CompiledIteration | None = None if kept is None else kept.prepared.pop(_NAME, None)
        if known is not None and known.serves(ocp, evaluator, lq_solver):
            known.prepare(ocp, options, shooting)
            known.home = kept
            return known
        made = cls(ocp, evaluator, lq_solver, options, shooting)
        made.home = kept if evaluator.may_follow else None
        return made

    def serves(self, ocp: OCP, evaluator: StageEvaluator, lq_solver: CompiledLQ) -> bool:
        """Whether it is made of this evaluator and this LQ solver, with memory for the problem."""
        own = self._evaluator is evaluator and self._lq_solver is lq_solver
        return own and self._sizes == _sizes(ocp, self._solve.abreast, bool(self._solve.shared))

    def _stages(self, solve: SolveData) -> Any:
        """Tell what evaluates stages; what must live as long."""
        stages, slices = self._evaluator.stages, self._evaluator.slices
        parts = [_phase(s, k, read) for s, k, read in zip(stages, slices, self._evaluator.controls_read, strict=False)]
        phases = (PhaseData * len(parts))(*parts)
        end = stages[-1]
        assert isinstance(end, CompiledEnd)
        rooms = [cast(Any, s).library.rooms[0] for s in stages]
        solve.N, solve.nx, solve.count, solve.phases = *self._sizes[:2], len(parts), ctypes.addressof(phases)
        solve.end = FinalData(
            *(code_of(end.library.end_first), code_of(end.library.end_values)),
            *(ctypes.addressof(end.data), address(rooms[-1])),
        )
        return phases, rooms

    def prepare(self, ocp: OCP, o: SLQOptions, shooting: Shooting) -> None:
        """Take the bounds of a problem, options, and nodes, for a solve from its beginning."""
        solve, bounds = self._solve, ocp.control_bounds
        node = node_flags(shooting.nodes, ocp.horizon)
        limits = [] if bounds is None else [np.ascontiguousarray(b, float) for b in bounds]
        alphas = _alphas(o.max_backtracks)
        solve.nonlinear, solve.nodes = shooting.gaps == "nonlinear", len(shooting.nodes)
        solve.options = OptionsData(
            *(o.gradient_tolerance, o.defect_tolerance, o.cost_tolerance, o.accept_ratio, o.regularization_factor),
            *(o.min_regularization, o.max_regularization, o.regularize == "state", o.max_backtracks),
        )
        solve.node, solve.alphas = address(node), address(alphas)
        solve.lower, solve.upper = map(address, limits) if limits else (None, None)
        start = Regularization.of(o)
        solve.state = GlobalizationData(o.penalty, start.mu, start.delta, 0.0, 0, 0)
        solve.at, solve.fresh, solve.best = 0, NONE, NONE
        self._given: Any = node, alphas, limits

    def _arrays(self, solve: SolveData, lq_solver: CompiledLQ) -> None:
        """Tell where the arrays are."""
        fields, offsets = pointers(self._sizes)
        words: Any = np.frombuffer(solve, np.int64)  # type: ignore[call-overload]
        words[fields] = offsets + address(self._memory)
        if self._sizes.bounded:
            self._view("bounded.zero")[:] = 0.0
        solve.sweeps = SweepsData(self._sizes.n, self._sizes.m, *map(code_of, lq_solver.functions))

    def close(self) -> None:
        """Give the memory back, or leave it for the next solve: nothing that came from here may be used any more."""
        if self.home is None:
            shelf.put_back(self._memory)
        else:
            self.home.prepared[_NAME], self.home = self, None

    @property
    def size(self) -> int:
        """Bytes of its memory."""
        return int(self._memory.nbytes)

    @property
    def data(self) -> Any:
        """shooting_t of iterate.h."""
        return self._solve

    # -- iterations -----------------------------------------------------------------------------------------------------
    def start(self, xs: Array, us: Array) -> Iterate | None:
        """The first iterate, or None if its expansion is not finite."""
        self._view("0.xs")[:], self._view("0.us")[:] = xs, us
        return self.iterate(0) if self._start(self._at) else None

    def advance(self) -> int:
        """One iteration: how it ended. What it did is told by :attr:`record`; where it led, by :attr:`slot` and :attr:`fresh`."""
        return self._iterate(self._at)

    @property
    def record(self) -> Any:
        """record_t of iterate.h."""
        return self._solve.record

    def told(self) -> dict[str, float]:
        """What the record tells, by the names of an :class:`~trajopt.results.records.IterationRecord`."""
        told = self._solve.record
        return {name: getattr(told, field) for name, field in _TOLD}

    @property
    def here(self) -> Residuals:
        """How far the iterate to go on from is from the end."""
        return self._slots[self._solve.at]

    def kkt(self, slot: int) -> float:
        """The scaled measure of the iterate in a slot, under the gains of the last step."""
        return float(self._kkt(self._at, slot))

    def gains(self, slot: int, mu: float) -> Policy:
        """The policy about the iterate in a slot, its gains in memory of their own."""
        N, _, n, m, *_ = self._sizes
        K, k = np.zeros((N, m, n)), np.zeros((N, m))
        failed = self._gains(self._at, slot, mu, address(K), address(k))
        return Policy(K, k, *self.policy[2:4], failed_at=None if failed < 0 else failed)

    def slot_of(self, at: Iterate) -> int:
        """The slot of an iterate that came from here."""
        return next(i for i, known in enumerate(self._iterates) if known is not None and known.xs is at.xs)

    @property
    def slot(self) -> int:
        """The slot of the iterate to go on from."""
        return self._solve.at

    @property
    def fresh(self) -> Iterate | None:
        """The iterate that the last iteration led to, if it found one."""
        return None if self._solve.fresh == NONE else self.iterate(self._solve.fresh)

    @property
    def best(self) -> Iterate:
        """The iterate of the least residual since gradients decide."""
        return self.iterate(self._solve.best)

    @property
    def merit(self) -> Merit:
        """With its penalty now."""
        return Merit(self._solve.state.penalty)

    @property
    def drift(self) -> Drift:
        """The verdict on gaps that stay open."""
        return Drift(self._solve.state.drift, self._solve.state.drift_gap)

    def regularization(self, schedule: Regularization) -> Regularization:
        """A schedule with its mu and delta now."""
        state = self._solve.state
        return Regularization(state.mu, state.delta, schedule.factor, schedule.smallest, schedule.largest)

    @cached_property
    def policy(self) -> Policy:
        """The policy of the last step."""
        K, k, Vx, Vxx = (self._view(f"policy.{name}") for name in ("K", "k", "Vx", "Vxx"))
        return Policy(K, k, Vx, Vxx)

    def trajectory(self, slot: int) -> tuple[Array, Array]:
        """xs and us in a slot, as they are now."""
        return self._view(f"{slot}.xs"), self._view(f"{slot}.us")

    def iterate(self, slot: int) -> Iterate:
        """The iterate in a slot, as it is now."""
        known, now = self._iterates[slot], self._solve.slots[slot]
        if known is None:
            xs, us, x_next, lam, g = (self._view(f"{slot}.{name}") for name in ("xs", "us", "x_next", "lambda", "g"))
            blocks = {name: self._view(f"{slot}.{name}") for name in LQProblem._fields[:-1]}
            expansion = Expansion(LQProblem(**blocks, dx0=np.zeros(self._sizes.n)), math.nan, x_next)
            self._iterates[slot] = known = Iterate(xs, us, expansion, self._evaluator, g, lam, *(math.nan,) * 4, {})
        expansion = known.expansion._replace(cost=now.cost)
        return known._replace(expansion=expansion, gradient=now.gradient, defect=now.defect, gap=now.gap, stop=now.stop)

    def _view(self, name: str) -> Array:
        if name not in self._views:
            at, shape = self._places[name]
            self._views[name] = self._memory[at : at + math.prod(shape)].reshape(shape)
        return self._views[name]


def _sizes(ocp: OCP, abreast: int, shared: bool) -> Sizes:
    trials = max(abreast, len(globalization.POLISHING), len(globalization.STRETCHING))
    manifold, bounded = ocp.manifold, ocp.control_bounds is not None
    return Sizes(ocp.horizon, manifold.nx, manifold.ndx, ocp.nu, trials, bounded, shared)


@lru_cache(maxsize=16)
def _alphas(max_backtracks: int) -> Array:
    """Step lengths 1, 1/2, ..., and those of steps that are stretched."""
    shorter = 0.5 ** np.arange(max(max_backtracks, len(globalization.POLISHING)) + 1)
    return np.concatenate([shorter, globalization.STRETCHING])


def _phase(stages: Any, knots: slice, read: int) -> ctypes.Structure:
    assert isinstance(stages, CompiledStages)
    own = stages.library
    functions = code_of(own.first), code_of(own.rollout)
    return PhaseData(knots.start, knots.stop, read, *functions, ctypes.addressof(stages.data), address(own.rooms[0]))


def code_of(function: Any) -> int | None:
    """Where a function of a library is."""
    return ctypes.cast(function, ctypes.c_void_p).value
