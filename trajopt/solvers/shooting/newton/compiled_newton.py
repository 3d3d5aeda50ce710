"""Newton's loop in C: kernels/newton_loop.h, the twin of newton_loop.py, for single solves and for the threads of batches.

It serves problems whose phases are all compiled, with the second derivatives of their time steps where they are asked for. The C
knows no sizes, so one library serves all problems.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, is_there, load
from dynamics_backends.protocol import Array
from trajopt.lq.compiled_lq import CompiledLQ
from trajopt.problem.ocp import OCP
from trajopt.results.status import SOLVED, STATIONARY
from trajopt.solvers import barrier_rules
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.shooting.compiled import compiled_iteration
from trajopt.solvers.shooting.compiled.compiled_iteration import code_of
from trajopt.solvers.shooting.compiled.iteration_memory import shelf
from trajopt.solvers.shooting.newton import barrier, newton_loop, newton_model
from trajopt.solvers.shooting.newton.newton_ends import End
from trajopt.solvers.shooting.newton.newton_memory import (
    MOST_SHARES,
    NUMBERS,
    POINT_SIZE,
    SIZES,
    TOLD,
    NewtonData,
    NewtonMember,
    NewtonPhase,
    NewtonSizes,
    newton_layout,
    newton_pointers,
    trials_abreast,
)
from trajopt.solvers.shooting.search import filter as filters
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.compiled.library import StagesData
from trajopt.stage.evaluation import Evaluator, StageEvaluator
from trajopt.stage.kept import Kept

_CONSTANTS = {
    **{
        name: getattr(filters, name)
        for name in ("MARGIN", "ARMIJO", "SWITCH_PHI", "SWITCH_THETA", "SMALL", "CLOSED", "NOISE")
    },
    **{
        name: getattr(newton_loop, name)
        for name in (
            *("FIRST", "LEAP", "GROWTH", "DECAY", "LARGEST", "SHORT", "PATIENCE", "RIVALS", "MAX_RESTORED", "STALLED"),
            *("AT_ROUNDING", "NEARLY_SOLVED", "BETTER", "LITTLE", "FAR", "PLAIN", "WIDE"),
        )
    },
    "SOLVED": SOLVED,
    "STATIONARY": STATIONARY,
    **{
        name: getattr(barrier_rules, name)
        for name in ("KAPPA_EPS", "KAPPA_MU", "THETA_MU", "KAPPA_SIGMA", "TAU", "PUSH")
    },
    "SMALLEST": barrier.SMALLEST,
    "HELD": barrier.HELD,
    "BARRIER_SHARE": barrier.SHARE,
    "SHARES": len(newton_model.SHARES),
}
"""What the kernels share with their twins in Python."""
assert len(newton_model.SHARES) == MOST_SHARES
_KERNELS = ("barrier.h", "newton_point.h", "newton_model.h", "newton_search.h", "newton_loop.h")


_NAME = "newton"
"""Under which memory is kept."""


def at_once() -> bool:
    """Whether the library can be had at once; else it is made aside."""
    return is_there(source())


@lru_cache(maxsize=1)
def source() -> str:
    """The C text of the loop."""
    constants = [f"#define {name} {value!r}" for name, value in _CONSTANTS.items()]
    shares = f"static const double shares[] = {{{', '.join(map(repr, newton_model.SHARES))}}};"
    ends = f"enum {{ {', '.join(f'{end.name} = {end.value}' for end in End)} }};"
    folder = files("trajopt.solvers.shooting") / "kernels"
    texts = [(folder / name).read_text() for name in _KERNELS]
    return "\n".join(["#include <float.h>", compiled_iteration.source(), *constants, shares, ends, *texts])


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The functions of the loop, compiled or from the cache."""
    found = load(source())
    size = bound(found, "newton_size", "i", ctypes.c_long)
    if [size(i) for i in range(len(SIZES))] != SIZES:
        raise RuntimeError("newton_point.h and newton_memory.py disagree about their structs")
    return found


def _sizes(ocp: OCP, o: SLQOptions, *, seated: bool = False) -> NewtonSizes:
    manifold = ocp.manifold
    sizes = ocp.horizon, manifold.nx, manifold.ndx, ocp.nu
    bounded = not seated or ocp.control_bounds is not None
    return NewtonSizes(*sizes, o.max_backtracks + 1, filters.most_pairs(o.max_iterations), seated, bounded)


def serves(evaluators: Sequence[Evaluator], curved: bool) -> bool:
    """Whether evaluators are compiled as wholes; curved: with the second derivatives of their time steps."""
    return all(type(e) is StageEvaluator and _is_compiled(e, curved) for e in evaluators)


def _is_compiled(evaluator: StageEvaluator, curved: bool) -> bool:
    *stages, end = evaluator.stages
    whole = all(type(s) is CompiledStages and (not curved or s.second_orders[1]) for s in stages)
    return whole and type(end) is CompiledEnd


class CompiledNewton:
    """newton_t with its memory: what solves problems of one structure, one after the other.

    plain: the evaluator of the Gauss-Newton Hessian of the cost; exact: the one that the curvature is added to, maybe the same, or
    None. shared: the numbers next, done and stop of all threads. own_rooms: whether the kernels work in memory of its own, as where
    another thread calls them. seated: whether other problems sit beside it (trajopt/solvers/batch/kernels/newton_seats.h), in whose
    room the kernels work.
    """

    def __init__(
        self,
        ocp: OCP,
        plain: StageEvaluator,
        exact: StageEvaluator | None,
        lq: CompiledLQ,
        o: SLQOptions,
        shared: Array,
        *,
        own_rooms: bool = False,
        seated: bool = False,
    ) -> None:
        self.sizes = sizes = _sizes(ocp, o, seated=seated)
        N, nx, n, m, *_ = sizes
        places, doubles = newton_layout(sizes)
        self._places, self._memory = places, shelf.take(doubles)
        self._problem: Any = ocp, plain, exact
        self._own_rooms, self._lq, self._kept = own_rooms, lq, list[Any]([shared])
        self._seated = seated
        self._member: tuple[Any, ...] = ()
        self.home: Kept | None = None
        self.data = d = NewtonData()
        fields, offsets = newton_pointers(sizes)
        words: Any = np.frombuffer(d, np.int64)  # type: ignore[call-overload]
        words[fields] = offsets + address(self._memory)
        self.view("alphas")[:] = 0.5 ** np.arange(o.max_backtracks + 1)
        self.view("every").view(np.int8)[:] = 1
        self.view("none").view(np.int8)[:] = 0
        of = exact or plain
        parts = zip(of.stages, plain.stages, plain.slices, plain.controls_read, strict=False)
        phases = (NewtonPhase * len(ocp.phases))(*(self._phase(*part, curved=exact is not None) for part in parts))
        self._kept.append(phases)
        for prefix, evaluator in (("end", of), ("plain", plain)):
            end: Any = evaluator.stages[-1]
            setattr(d, f"{prefix}_expand", code_of(end.library.end_first))
            setattr(d, f"{prefix}_values", code_of(end.library.end_values))
            setattr(d, f"{prefix}_room", self._room(end.library.rooms))
        d.riccati, d.adjoint, d.stationarity, d.finite, d.rollout = map(code_of, lq.functions)
        d.n, d.m, d.N, d.nx, d.count, d.phases = n, m, N, nx, len(phases), ctypes.addressof(phases)
        d.alike, d.widest = of is plain, 0 if exact is not None else len(newton_model.SHARES) - 1
        stages: Any = plain.stages[:-1]
        d.trials = 1 if seated else trials_abreast(N, max(own.library.lanes for own in stages))
        d.lengths, d.most_pairs = sizes.lengths, sizes.pairs
        d.next, d.done, d.stop = (address(shared) + 8 * i for i in range(3))
        self.address = ctypes.addressof(d)
        begin, end_of = (bound(library(), f"newton_{name}", "pp", ctypes.c_long) for name in ("begin", "end"))
        self._begin: Callable[[int, int], int] = begin
        self._end: Callable[[int, int], int] = end_of
        self._iterate = bound(library(), "newton_iterate", "p", ctypes.c_long)
        self.prepare(ocp, o)

    @classmethod
    def of(
        cls,
        ocp: OCP,
        plain: StageEvaluator,
        exact: StageEvaluator | None,
        lq: CompiledLQ,
        o: SLQOptions,
        kept: Kept | None,
    ) -> CompiledNewton:
        """What solves one problem, with memory that is kept, if it fits."""
        known: CompiledNewton | None = None if kept is None else kept.prepared.pop(_NAME, None)
        if known is not None and known.serves(ocp, plain, exact, lq, o):
            known.prepare(ocp, o)
            known.home = kept
            return known
        made = cls(ocp, plain, exact, lq, o, np.zeros(3, np.int64))
        made.home = kept if plain.may_follow else None
        return made

    def serves(
        self, ocp: OCP, plain: StageEvaluator, exact: StageEvaluator | None, lq: CompiledLQ, o: SLQOptions
    ) -> bool:
        """Whether it is made of these evaluators and this LQ solver, with memory for the problem."""
        _, own_plain, own_exact = self._problem
        own = own_plain is plain and own_exact is exact and self._lq is lq
        return own and self.sizes == _sizes(ocp, o)

    def prepare(self, ocp: OCP, o: SLQOptions) -> None:
        """Take a problem, which the evaluators follow, and options."""
        d, self._problem, self._max_iterations = self.data, (ocp, *self._problem[1:]), o.max_iterations
        for name in ("gradient_tolerance", "defect_tolerance", "kkt_tolerance", "cost_tolerance"):
            setattr(d, name, getattr(o, name))
        d.time_limit = o.time_limit or 0.0

    def _room(self, rooms: Any) -> int | None:
        if self._seated:
            return None
        room = aligned(rooms.doubles) if self._own_rooms else rooms[0]
        self._kept.append(room)
        return address(room)

    def _phase(self, exact: Any, plain: Any, knots: slice, read: int, *, curved: bool) -> Any:
        words: list[Any] = []
        for stages in (exact, plain):
            own = stages.library
            room = self._room(own.rooms)
            words += [knots.start, knots.stop, read, code_of(own.first), code_of(own.rollout), None, room]
        if not curved:
            return NewtonPhase(*words)
        return NewtonPhase(
            *words, code_of(exact.curved.second), self._room(exact.curved.second_rooms(exact.data.substeps))
        )

    def close(self) -> None:
        """Give the memory back, or leave it for the next solve: nothing that came from here may be used any more."""
        self._member = ()
        if self.home is None:
            shelf.put_back(self._memory)
        else:
            self.home.prepared[_NAME], self.home = self, None

    @property
    def size(self) -> int:
        """Bytes of its memory."""
        return int(self._memory.nbytes)

    def view(self, name: str) -> Array:
        """One of the arrays."""
        at, shape = self._places[name]
        return self._memory[at : at + int(np.prod(shape))].reshape(shape)

    # -- a solve, call by call --------------------------------------------------------------------------------------------
    def begin(self, member: int) -> int:
        """Begin the solve of a newton_member_t: GO_ON, or an end."""
        return int(self._begin(self.address, member))

    def begin_at(self, xs: Array, us: Array, gains: tuple[Array, Array], result: Array) -> int:
        """Begin the solve of the evaluators' own problem at a guess xs, us, where the solution goes; result: of RESULT."""
        ocp, plain, exact = self._problem
        *stages, end = plain.stages
        *of, of_end = (exact or plain).stages
        curved = [] if exact is None else [s.curved_data for s in of]
        phases = [(StagesData * len(own))(*own) for own in ([s.data for s in of], [s.data for s in stages], curved)]
        limits = [np.ascontiguousarray(b, float) for b in ocp.control_bounds or ()]
        x0, ends = np.ascontiguousarray(ocp.x0, float), (of_end.data, end.data)
        at = [*map(address, (x0, xs, us)), *(map(address, limits) if limits else (None, None))]
        to = map(address, (xs, us, *gains, result))
        member = NewtonMember(*map(ctypes.addressof, (*phases, *ends)), *at, *to, self._max_iterations)
        self._member = phases, limits, x0, member
        return self.begin(ctypes.addressof(member))

    def iterate(self) -> int:
        """One iteration: GO_ON, or an end. Where :attr:`iterations` has risen, the record tells of it."""
        return int(self._iterate(self.address))

    def end(self, code: int) -> None:
        """End the solve: its member has the solution and the result."""
        self._end(self.address, code)

    @property
    def iterations(self) -> int:
        """How many there were."""
        return int(self.data.iteration)

    @property
    def point(self) -> int:
        """The number of the point where the solve is."""
        return (self.data.at - self.address - NewtonData.point_0_xs.offset) // POINT_SIZE

    def go_back(self) -> None:
        """Return to the point that the last iteration left."""
        bound(library(), "newton_turn", "p")(self.address)

    def trajectory(self, point: int) -> tuple[Array, Array]:
        """xs and us of a point, as they are now."""
        return self.view(f"point_{point}_xs"), self.view(f"point_{point}_us")

    @property
    def told(self) -> dict[str, float]:
        """The record's numbers."""
        return dict(zip(TOLD, NUMBERS.unpack_from(self.data, NewtonData.told_cost.offset), strict=True))

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of the last call in derivatives, sweeps and roll-outs."""
        return NUMBERS.unpack_from(self.data, NewtonData.told_cost.offset)[-3:]

    @property
    def share(self) -> float | None:
        """The share of the curvature in the step that the record tells of."""
        share = self.data.told_share
        return None if share < 0 else newton_model.SHARES[share]
