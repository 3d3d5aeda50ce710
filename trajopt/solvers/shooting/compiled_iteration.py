"""An iteration of a shooting solver as one call: kernels/iteration.h, the twin of what the loop does with one model.

It serves problems whose phases are all compiled, and where the work of an iteration is done on one thread. All arrays of a solve
stand in one piece of memory, taken from a shelf and put back. The C knows no sizes, so one library serves all problems.
"""

from __future__ import annotations

import ctypes
import math
import threading
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, is_there, load
from dynamics_backends.protocol import Array
from trajopt.lq import bounded_lq
from trajopt.lq.compiled_lq import CompiledLQ
from trajopt.lq.lq import LQProblem, Policy
from trajopt.problem.ocp import OCP
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting import globalization, iterate
from trajopt.solvers.shooting.globalization import Merit, Regularization
from trajopt.solvers.shooting.iterate import Iterate
from trajopt.stage.compiled_stages import CompiledEnd, CompiledStages
from trajopt.stage.evaluation import Expansion, Shooting, StageEvaluator
from trajopt.stage.library import struct_type

GO_ON, COST_CONVERGED, NOT_POSITIVE_DEFINITE, NO_PROGRESS = range(4)
"""How an iteration ended; the values of the enumeration of iteration.h."""
_NONE, _SLOTS = -1, 3
ABREAST = 8
"""Step lengths that one problem tries side by side: lanes of the widest processors."""
_LINE = 8
"""Doubles in a line of the cache, where arrays begin."""
_CONSTANTS = {
    "MAX_SWEEPS": bounded_lq.MAX_SWEEPS,
    "ENOUGH": bounded_lq.ENOUGH,
    "LENGTHS": len(bounded_lq.STEP_LENGTHS),
    "GAP_ROUNDING": iterate.GAP_ROUNDING,
    "FALLEN": iterate.FALLEN,
    "HOLDING": iterate.HOLDING,
    "POLISHED": len(globalization.POLISHING),
    **{
        name: getattr(globalization, name)
        for name in (
            "PENALTY_MARGIN",
            "MAX_CORRECTIONS",
            "ROUNDING",
            "NEAR_ROUNDING",
            "LOWER_AT",
            "LOWER_RATIO",
            "MAX_IDLE",
            "PROGRESS",
        )
    },
}
"""What the kernels share with their twins in Python."""

PhaseData = struct_type("phase_t", "first:l last:l read:l expand roll stages room")
FinalData = struct_type("final_t", "expand values end room")
SweepsData = struct_type("sweeps_t", "n:l m:l riccati adjoint stationarity finite rollout")
_Options = struct_type(
    "options_t",
    "gradient_tolerance:d defect_tolerance:d cost_tolerance:d accept_ratio:d factor:d smallest:d largest:d on_state:l "
    "max_backtracks:l",
)
_Slot = struct_type("iterate_t", "xs us x_next costs lambda g A B d Q q S R r cost:d gradient:d defect:d gap:d stop:d")
_Policy = struct_type("lq_policy", "K k Vx Vxx")
_Step = struct_type("lq_step", "dx du")
GlobalizationData = struct_type("globalization_t", "penalty:d mu:d delta:d idle:l")


class _Bounded(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("R", "q", "r", "zero", "lower", "upper", "k", "lambda", "g")),
        ("about", _Policy),
        ("move", _Step),
    ]


_TOLD = {
    **{name: name for name in ("cost", "merit", "stop", "gradient", "step_norm", "defect", "kkt")},
    "regularization": "mu",
    "constraint_violation": "violation",
    "expected_decrease": "expected",
    "actual_decrease": "actual",
    "step_length": "alpha",
}
"""Names of a record -> fields of record_t."""


_NUMBERS = "cost merit stop gradient defect mu step_norm violation expected actual alpha kkt kkt_new change"


class _Record(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in _NUMBERS.split()),
        ("seconds", 3 * ctypes.c_double),
        ("failed_at", ctypes.c_long),
    ]


class _Solve(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_long) for name in ("N", "nx", "count", "nonlinear", "nodes", "abreast", "quiet")),
        ("phases", ctypes.c_void_p),
        ("end", FinalData),
        ("sweeps", SweepsData),
        ("options", _Options),
        *((name, ctypes.c_void_p) for name in ("node", "lower", "upper", "alphas")),
        ("slots", _SLOTS * _Slot),
        ("policy", _Policy),
        ("step", _Step),
        ("current", _Step),
        ("extra", _Step),
        *((name, ctypes.c_void_p) for name in ("lower_du", "upper_du", "masked", "size")),
        ("bounded", _Bounded),
        *((name, ctypes.c_void_p) for name in ("X", "U", "D", "cost", "part_cost", "start", "stop", "trial")),
        ("state", GlobalizationData),
        *((name, ctypes.c_long) for name in ("at", "fresh", "best")),
        ("record", _Record),
    ]


def at_once() -> bool:
    """Whether the library can be had at once; else it is made aside."""
    return is_there(source())


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The functions of an iteration, compiled or from the cache."""
    found = load(source())
    if bound(found, "shooting_size", "", ctypes.c_long)() != ctypes.sizeof(_Solve):
        raise RuntimeError("iteration.h and compiled_iteration.py disagree about shooting_t")
    return found


def source() -> str:
    """The C text of an iteration."""
    folders = {"trajopt.lq": ("lq_types.h",), "trajopt.stage": ("stage_types.h",)}
    own = {"trajopt.solvers.shooting": ("bounded_lq.h", "decisions.h", "iteration.h")}
    texts = [
        (files(package) / "kernels" / name).read_text() for package, names in (folders | own).items() for name in names
    ]
    head = '#include <math.h>\n#include <string.h>\n#include <time.h>\n#define EXPORT __attribute__((visibility("default")))'
    return "\n".join([head, *(f"#define {name} {value}" for name, value in _CONSTANTS.items()), *texts])


class _Sizes(NamedTuple):
    """What arrays depend on: N, nx, n, m, trajectories that are tried at once, and whether controls are bounded."""

    N: int
    nx: int
    n: int
    m: int
    trials: int
    bounded: bool


@lru_cache(maxsize=64)
def _layout(s: _Sizes) -> tuple[dict[str, tuple[int, tuple[int, ...]]], int]:
    """name -> (where an array begins, its shape), and the length of all together, in doubles."""
    N, nx, n, m, L, bounded = s
    slot = {
        "xs": (N + 1, nx), "us": (N, m), "x_next": (N, nx), "costs": (N + 1,), "lambda": (N + 1, n), "g": (N, m),
        "A": (N, n, n), "B": (N, n, m), "d": (N, n), "Q": (N + 1, n, n), "q": (N + 1, n), "S": (N, m, n), "R": (N, m, m),
        "r": (N, m),
    }  # fmt: skip
    policy = {"K": (N, m, n), "k": (N, m), "Vx": (N + 1, n), "Vxx": (N + 1, n, n)}
    step = {"dx": (N + 1, n), "du": (N, m)}
    shapes: dict[str, tuple[int, ...]] = {f"{i}.{k}": shape for i in range(_SLOTS) for k, shape in slot.items()}
    shapes |= {f"policy.{k}": shape for k, shape in policy.items()}
    shapes |= {f"{of}.{k}": shape for of in ("step", "current", "extra") for k, shape in step.items()}
    shapes |= {"X": (L, N + 1, nx), "U": (L, N, m), "D": (L, N, n), "cost": (L,), "part_cost": (L * N + L,)}
    shapes |= dict.fromkeys(("start", "stop", "trial"), (L * N,))
    shapes |= {"size": (m,), "bounded.k": (N, m), "bounded.lambda": (N + 1, n), "bounded.g": (N, m)}
    if bounded:
        shapes |= dict.fromkeys(("lower_du", "upper_du", "bounded.lower", "bounded.upper", "bounded.r"), (N, m))
        shapes |= {"masked": (N, m, n), "bounded.R": (N, m, m), "bounded.q": (N + 1, n), "bounded.zero": (N, n)}
        shapes |= {f"about.{k}": shape for k, shape in policy.items()} | {f"move.{k}": v for k, v in step.items()}
    places, at = {}, 0
    for name, shape in shapes.items():
        places[name] = at, shape
        at += -(-math.prod(shape) // _LINE) * _LINE
    return places, at


@lru_cache(maxsize=64)
def _pointers(s: _Sizes) -> tuple[Array, Array]:
    """Which fields of shooting_t, in words of eight bytes, point to arrays, and how many bytes these are from the first one."""
    places, _ = _layout(s)
    inside = {str(i): (_Solve.slots.offset + i * ctypes.sizeof(_Slot), _Slot) for i in range(_SLOTS)}
    inside |= {"policy": (_Solve.policy.offset, _Policy), "bounded": (_Solve.bounded.offset, _Bounded)}
    inside |= {name: (getattr(_Solve, name).offset, _Step) for name in ("step", "current", "extra")}
    inside |= {"about": (_Solve.bounded.offset + _Bounded.about.offset, _Policy)}
    inside |= {"move": (_Solve.bounded.offset + _Bounded.move.offset, _Step), "": (0, _Solve)}
    fields, offsets = [], []
    for name, (at, _) in places.items():
        of, _, field = name.rpartition(".")
        begin, struct = inside[of]
        fields.append((begin + getattr(struct, field).offset) // 8)
        offsets.append(8 * at)
    return np.array(fields), np.array(offsets)


class _Shelf:
    """Memory of solves that are over, by its length, for those to come."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}
        self._held = threading.Lock()

    def take(self, doubles: int) -> Array:
        with self._held:
            free = self._free.get(doubles)
            if free:
                return free.pop()
        return aligned(doubles)

    def put_back(self, memory: Array) -> None:
        with self._held:
            free = self._free.setdefault(len(memory), [])
            if len(free) < 2:
                free.append(memory)


_shelf = _Shelf()


class CompiledIteration:
    """The iterations of one solve. Iterates and policies that it gives are views, which hold until the next but one iteration.

    abreast: step lengths that are tried side by side.
    """

    def __init__(
        self,
        ocp: OCP,
        evaluator: StageEvaluator,
        lq_solver: CompiledLQ,
        options: SLQOptions,
        shooting: Shooting,
        abreast: int = ABREAST,
    ) -> None:
        self._start = bound(library(), "shooting_start", "p", ctypes.c_int)
        self._iterate = bound(library(), "shooting_iterate", "p", ctypes.c_int)
        self._evaluator = evaluator
        manifold, bounds = ocp.manifold, ocp.control_bounds
        trials = max(options.max_backtracks, len(globalization.POLISHING))
        self._sizes = _Sizes(ocp.horizon, manifold.nx, manifold.ndx, ocp.nu, trials, bounds is not None)
        self._places, doubles = _layout(self._sizes)
        self._memory = _shelf.take(doubles)
        self._views: dict[str, Array] = {}
        self._iterates: list[Iterate | None] = [None] * _SLOTS
        self._solve = solve = _Solve()
        self._kept = [*self._problem(solve, shooting, bounds, options), lq_solver]
        self._arrays(solve, lq_solver)
        start = Regularization.of(options)
        solve.state = GlobalizationData(options.penalty, start.mu, start.delta, 0)
        solve.at, solve.fresh, solve.best, solve.abreast = 0, _NONE, _NONE, abreast
        self._at = ctypes.byref(solve)

    def _problem(self, solve: _Solve, shooting: Shooting, bounds: Any, o: SLQOptions) -> list[Any]:
        """Describe the problem; what must live as long."""
        N, nx, *_ = self._sizes
        stages, slices = self._evaluator.stages, self._evaluator.slices
        parts = [_phase(s, k, read) for s, k, read in zip(stages, slices, self._evaluator.controls_read, strict=False)]
        phases = (PhaseData * len(parts))(*parts)
        end = stages[-1]
        assert isinstance(end, CompiledEnd)
        node = np.zeros(N + 1, np.int8)
        node[list(shooting.nodes)] = 1
        limits = [] if bounds is None else [np.ascontiguousarray(b, float) for b in bounds]
        alphas = 0.5 ** np.arange(self._sizes.trials + 1)
        solve.N, solve.nx, solve.count = N, nx, len(parts)
        solve.nonlinear, solve.nodes = shooting.gaps == "nonlinear", len(shooting.nodes)
        solve.phases = ctypes.addressof(phases)
        room = address(end.library.rooms[0])
        solve.end = FinalData(
            code_of(end.library.end_first), code_of(end.library.end_values), ctypes.addressof(end.data), room
        )
        solve.options = _Options(
            *(o.gradient_tolerance, o.defect_tolerance, o.cost_tolerance, o.accept_ratio, o.regularization_factor),
            *(o.min_regularization, o.max_regularization, o.regularize == "state", o.max_backtracks),
        )
        solve.node, solve.alphas = address(node), address(alphas)
        solve.lower, solve.upper = map(address, limits) if limits else (None, None)
        return [phases, node, alphas, limits]

    def _arrays(self, solve: _Solve, lq_solver: CompiledLQ) -> None:
        """Tell where the arrays are."""
        fields, offsets = _pointers(self._sizes)
        words: Any = np.frombuffer(solve, np.int64)  # type: ignore[call-overload]
        words[fields] = offsets + address(self._memory)
        if self._sizes.bounded:
            self._view("bounded.zero")[:] = 0.0
        solve.sweeps = SweepsData(self._sizes.n, self._sizes.m, *map(code_of, lq_solver.functions))

    def close(self) -> None:
        """Give the memory back: nothing that came from here may be used any more."""
        _shelf.put_back(self._memory)

    @property
    def data(self) -> Any:
        """shooting_t of iteration.h."""
        return self._solve

    # -- iterations -----------------------------------------------------------------------------------------------------
    def start(self, xs: Array, us: Array) -> Iterate | None:
        """The first iterate, or None if its expansion is not finite."""
        self._view("0.xs")[:], self._view("0.us")[:] = xs, us
        return self.iterate(0) if self._start(self._at) else None

    def advance(self) -> int:
        """One iteration: how it ended. What it did is told by :attr:`record`, and where it led by :attr:`at` and :attr:`fresh`."""
        return self._iterate(self._at)

    @property
    def record(self) -> Any:
        """record_t of iteration.h."""
        return self._solve.record

    @property
    def at(self) -> Iterate:
        """The iterate to go on from."""
        return self.iterate(self._solve.at)

    @property
    def fresh(self) -> Iterate | None:
        """The iterate that the last iteration led to, if it found one."""
        return None if self._solve.fresh == _NONE else self.iterate(self._solve.fresh)

    @property
    def best(self) -> Iterate:
        """The iterate of the least residual since gradients decide."""
        return self.iterate(self._solve.best)

    @property
    def merit(self) -> Merit:
        """With its penalty now."""
        return Merit(self._solve.state.penalty)

    def regularization(self, schedule: Regularization) -> Regularization:
        """A schedule with its mu and delta now."""
        state = self._solve.state
        return Regularization(state.mu, state.delta, schedule.factor, schedule.smallest, schedule.largest)

    @cached_property
    def policy(self) -> Policy:
        """That of the last step."""
        K, k, Vx, Vxx = (self._view(f"policy.{name}") for name in ("K", "k", "Vx", "Vxx"))
        return Policy(K, k, Vx, Vxx)

    def iterate(self, slot: int) -> Iterate:
        """The iterate in a slot, as it is now."""
        known, now = self._iterates[slot], self._solve.slots[slot]
        if known is None:
            xs, us, x_next, lam, g = (self._view(f"{slot}.{name}") for name in ("xs", "us", "x_next", "lambda", "g"))
            blocks = {name: self._view(f"{slot}.{name}") for name in LQProblem._fields[:-1]}
            expansion = Expansion(LQProblem(**blocks, dx0=np.zeros(self._sizes.n)), math.nan, x_next)
            self._iterates[slot] = known = Iterate(xs, us, expansion, self._evaluator, g, lam, *(math.nan,) * 4)
        expansion = known.expansion._replace(cost=now.cost)
        return known._replace(expansion=expansion, gradient=now.gradient, defect=now.defect, gap=now.gap, stop=now.stop)

    def _view(self, name: str) -> Array:
        if name not in self._views:
            at, shape = self._places[name]
            self._views[name] = self._memory[at : at + math.prod(shape)].reshape(shape)
        return self._views[name]


def recorded(told: Any) -> dict[str, float]:
    """What record_t tells, by the names of an :class:`~trajopt.results.records.IterationRecord`."""
    return {name: getattr(told, field) for name, field in _TOLD.items()}


def _phase(stages: Any, knots: slice, read: int) -> ctypes.Structure:
    assert isinstance(stages, CompiledStages)
    own = stages.library
    functions = code_of(own.first), code_of(own.rollout)
    return PhaseData(knots.start, knots.stop, read, *functions, ctypes.addressof(stages.data), address(own.rooms[0]))


def code_of(function: Any) -> int | None:
    """Where a function of a library is."""
    return ctypes.cast(function, ctypes.c_void_p).value
