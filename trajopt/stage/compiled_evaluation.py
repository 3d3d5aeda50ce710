"""The evaluator of a shooting solver as compiled libraries: dynamics, sensitivities, cost expansions and roll-outs.

It serves problems whose phases are sampled systems or impacts on the compiled engine, by any method that
:mod:`~dynamics_backends.compiled.sources.dynamics_source` writes; everything else goes to
:class:`~trajopt.stage.evaluation.StageEvaluator`, whose derivatives may still come from compiled code.  Numbers that change
between solves (dt, weights, references, parameters, bounds) are inputs: a library is compiled once for the structure of
a phase.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    KNOTS_PER_THREAD,
    Rooms,
    address,
    bound,
    find_toolchain,
    load,
    over_threads,
    pointers,
    templates,
)
from dynamics_backends.compiled.interface.sources import (
    TooLong,
    TraceError,
    contracted_source,
    dynamics_source,
    has_contraction,
    has_source,
    tables_of,
)
from dynamics_backends.protocol import Array, DynamicsBackend, Hessians, unwrapped
from trajopt.lq.compiled_lq import CurvaturePart, KnotCurvatures
from trajopt.lq.lq import LQProblem
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm
from trajopt.stage.evaluation import Candidates, Direction, Expansion, Shooting, StageEvaluator
from trajopt.stage.stage_source import StageShape, curvature_source, stage_source
from trajopt.stage.term_source import TermShape, by_knot, theta_of
from trajopt.step.sensitivities import SampledSystem

_LOG = logging.getLogger(__name__)
_KNOTS = ("ti", "td", "substeps", "xs", "us", "t", "dt", "p", "room")
_LONG = np.dtype(ctypes.c_long)
NUMBERS_PER_THREAD = 30_000
"""An expansion of fewer numbers than twice this runs on the calling thread."""
Tables = tuple[list[Array], list[Array]]


def serves(ocp: OCP) -> bool:
    """Whether a problem is of the kind that is compiled as a whole."""
    systems = [phase.dynamics for phase in ocp.phases]
    return all(
        isinstance(s, SampledSystem | ImpactStage) and s.backend.engine == "compiled" and has_source(s.backend)
        for s in systems
    )


class CompiledEvaluator:
    """See :class:`~trajopt.stage.evaluation.Evaluator`; the same numbers as StageEvaluator to rounding.

    Raises TooLong where a system's code would take too long to compile, TraceError where it cannot be traced.
    """

    def __init__(self, ocp: OCP, hessian: str = "gauss_newton") -> None:
        self.ocp, self.manifold = ocp, ocp.manifold
        self._times, self._dt = np.ascontiguousarray(ocp.times), np.ascontiguousarray(ocp.dt)
        self._lanes = find_toolchain().lanes
        self._theta_end = theta_of(ocp.terminal, 1)
        self._phases = [_Phase(ocp, i, hessian) for i in range(len(ocp.phases))]

    def expand(self, xs: Array, us: Array) -> Expansion:
        """See :class:`~trajopt.stage.evaluation.Evaluator`."""
        N, n, m, nx = len(us), self.manifold.ndx, self.ocp.nu, self.manifold.nx
        A, B, d, x_next = np.empty((N, n, n)), np.empty((N, n, m)), np.empty((N, n)), np.empty((N, nx))
        Q, q, cost = np.empty((N + 1, n, n)), np.empty((N + 1, n)), np.empty(N + 1)
        S, R, r = np.empty((N, m, n)), np.empty((N, m, m)), np.empty((N, m))
        xs, us = np.ascontiguousarray(xs), np.ascontiguousarray(us)
        inputs = [address(a) for a in (xs, us, self._times, self._dt)]
        outputs = [address(a) for a in (A, B, d, x_next, Q, q, S, R, r, cost)]
        self._expand_blocks(inputs, outputs)
        last = self._phases[-1]
        end = [xs[N:], self._times[N:], self._theta_end, Q[N:], q[N:], cost[N:], last.rooms[0]]
        last.terminal(*map(address, end))
        dx0 = self.manifold.difference(xs[:1].T, self.ocp.x0[:, None])[:, 0]
        return Expansion(LQProblem(A, B, d, Q, q, S, R, r, dx0), float(cost.sum()), x_next)

    def _expand_blocks(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Fill the blocks of all knots; where they are worth it, threads take blocks of lanes of any phase."""
        blocks = [(phase, *block) for phase in self._phases for block in phase.blocks]

        def part(first: int, last: int, room: Array) -> None:
            for phase, start, stop in blocks[first:last]:
                phase.expand(start, stop, inputs, outputs, room)

        over_threads(part, len(blocks), 1, self._rooms, least=self._blocks_per_thread)

    @cached_property
    def _rooms(self) -> Rooms:
        """Workspaces in which every phase has room."""
        return Rooms(max(phase.rooms.doubles for phase in self._phases))

    @cached_property
    def _blocks_per_thread(self) -> int:
        """Fewer blocks of lanes than this are not worth a thread."""
        n, m = self.manifold.ndx, self.ocp.nu
        return -(-NUMBERS_PER_THREAD // (self._lanes * (2 * n * n + 2 * n * m + m * m)))

    def rollout(self, xs: Array, us: Array, direction: Direction, alphas: Array, shooting: Shooting) -> Candidates:
        """See :class:`~trajopt.stage.evaluation.Evaluator`; lanes hold step lengths, and the parts between nodes with linear
        gaps.
        """
        L, N, nx, n, m = len(alphas), len(us), self.manifold.nx, self.manifold.ndx, self.ocp.nu
        X, U, D, cost = np.empty((L, N + 1, nx)), np.empty((L, N, m)), np.empty((L, N, n)), np.empty(L)
        node = _node_flags(shooting.nodes, N)
        kept = [np.ascontiguousarray(a, float) for a in (xs, us, *direction, alphas)]
        given = [*map(address, kept[:-1]), *self._bounds, address(node), int(shooting.gaps == "nonlinear")]
        given += [address(a) for a in (kept[-1], self._times, self._dt)]
        results = [address(a) for a in (X, U, D)]
        running = [phase.rollout(N, L, shooting, given, results) for phase in self._phases]
        last = self._phases[-1]
        end = [address(a) for a in (X, self._times[N:], self._theta_end)]
        last.terminal_cost(N, *end, L, address(cost), address(last.rooms[0]))
        return Candidates(X, U, D, cost + np.sum(running, axis=0))

    def curvature(self, xs: Array, us: Array, multipliers: Array, first: int = 0) -> Hessians:
        """See :class:`~trajopt.stage.evaluation.CurvedEvaluator`."""
        if not self.compiles_curvature:
            return StageEvaluator(self.ocp).curvature(xs, us, multipliers, first)
        M, n, m = len(us), self.manifold.ndx, self.ocp.nu
        kept = [np.ascontiguousarray(a, float) for a in (xs, us, multipliers)]
        out = Hessians(np.empty((M, n, n)), np.empty((M, m, n)), np.empty((M, m, m)))
        for phase in self._phases:
            phase.curvature(first, kept, (self._times, self._dt), out)
        return out

    def knot_curvatures(self, xs: Array, us: Array) -> KnotCurvatures | None:
        """The same knot by knot about xs (N + 1, nx), us (N, nu), for a sweep in C; None where it is not compiled."""
        if not self.compiles_curvature:
            return None
        given = [np.ascontiguousarray(a, float) for a in (xs, us, self._times, self._dt)]
        parts = [phase.knot_curvature(*given) for phase in self._phases]
        return KnotCurvatures((CurvaturePart * len(parts))(*[part for part, _ in parts]), (given, parts))

    @cached_property
    def compiles_curvature(self) -> bool:
        """Whether the second derivatives are compiled as a whole: closed-form ones are."""
        backends = [phase.dynamics.backend for phase in self.ocp.phases]  # type: ignore[attr-defined]
        if not all(backend.name == "analytic" and has_contraction(backend.map) for backend in backends):
            return False
        try:
            return all(phase.second is not None for phase in self._phases)
        except (TooLong, TraceError) as reason:
            _LOG.info("second derivatives are not compiled as a whole: %s", reason)
            return False

    @cached_property
    def _bounds(self) -> list[int | None]:
        """Addresses of the bounds on u, NULL where there are none."""
        if self.ocp.control_bounds is None:
            return [None, None]
        self._limits = [np.ascontiguousarray(b) for b in self.ocp.control_bounds]
        return [address(b) for b in self._limits]


class _Knots(ctypes.Structure):
    """knots_t of kernels/curvature.h."""

    _fields_ = [(name, ctypes.c_long if name == "substeps" else ctypes.c_void_p) for name in _KNOTS]


class _Phase:
    """The functions of a phase's library on its knots, with the values that they read."""

    def __init__(self, ocp: OCP, index: int, hessian: str) -> None:
        phase, knots = ocp.phases[index], ocp.phase_slices[index]
        sampled: Any = phase.dynamics  # a SampledSystem or an ImpactStage, see serves()
        self.first, self.last = knots.start, knots.stop
        sizes = tuple((name, value.shape[-1]) for name, value in phase.parameters.items())
        # every phase carries the terminal terms, which are short, so that the last may share its library with others
        shape = StageShape(sampled.scheme, sizes, ocp.nu, _shapes(phase.terms), _shapes(ocp.terminal), hessian)
        library, self._tables = _library(sampled.backend, shape)
        self._structure = (sampled.backend, shape._replace(running=(), terminal=()))
        self._theta, self._p = theta_of(phase.terms, phase.knots), by_knot(phase.parameters.values(), phase.knots)
        self._lanes, self._substeps = find_toolchain().lanes, sampled.substeps
        self._ti, self._td = (pointers(t) for t in self._tables)
        self._expand = bound(library, "stage_expand", "ppi pppppp lll pppppppppp p")
        self._rollout = bound(library, "stage_rollout", "ppi llll ppp pppppp ppp i ppp pp pppp p")
        self.terminal = bound(library, "stage_terminal", "ppppppp")
        self.terminal_cost = bound(library, "stage_terminal_cost", "l ppp l pp")
        room = bound(library, "stage_room", "p", ctypes.c_long)
        self.rooms = Rooms(int(room(address(self._tables[0][0]))) * self._lanes)

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """The phase's knots, counted from its first, by blocks of lanes: (first, last)."""
        knots = self.last - self.first
        return [(i, min(i + self._lanes, knots)) for i in range(0, knots, self._lanes)]

    def expand(self, first: int, last: int, inputs: Sequence[int], outputs: Sequence[int], room: Array) -> None:
        """Fill the LQ blocks of some of the phase's knots."""
        values, start = (address(self._p), address(self._theta)), self.first
        knots = (start, start + first, start + last)
        self._expand(self._ti, self._td, self._substeps, *inputs, *values, *knots, *outputs, address(room))

    def rollout(self, N: int, trials: int, shooting: Shooting, given: Sequence[Any], results: Sequence[int]) -> Array:
        """Continue trajectories over the phase's knots, in parts between nodes; returns the running costs (trials,)."""
        tasks = _parts(shooting, self.first, self.last, trials)
        cost = np.empty(len(tasks[0]))
        head = (self._ti, self._td, self._substeps, N, self.first)
        values = (address(self._p), address(self._theta))

        def part(first: int, last: int, room: Array) -> None:
            chosen = (first, last, *map(address, tasks))
            self._rollout(*head, *chosen, *given, *values, *results, address(cost), address(room))

        knots = max((self.last - self.first) * trials // len(cost), 1)
        over_threads(part, len(cost), self._lanes, self.rooms, least=-(-KNOTS_PER_THREAD // knots))
        return cost.reshape(-1, trials).sum(axis=0)

    def curvature(self, origin: int, given: Sequence[Array], times: Sequence[Array], out: Hessians) -> None:
        """Fill what of the knots origin, origin + 1, ... belongs to the phase, from xs, us, lam and t, dt."""
        (xs, us, lam), (t, dt) = given, times
        first, last = max(self.first, origin), min(self.last, origin + len(us))
        if first >= last:
            return
        here, own = slice(first - origin, None), first - self.first
        inputs = (xs[here], us[here], t[first:], dt[first:], self._p[own:], lam[here])
        head = (self._ti, self._td, self._substeps, *map(address, inputs))
        outputs = [address(block[here]) for block in out]
        function, _, rooms = self.second

        def part(begin: int, end: int, room: Array) -> None:
            function(*head, begin, end, *outputs, address(room))

        over_threads(part, last - first, self._lanes, rooms)

    def knot_curvature(self, xs: Array, us: Array, t: Array, dt: Array) -> tuple[CurvaturePart, Any]:
        """What a sweep in C calls for one of the phase's knots, and what it points to."""
        (_, contract, rooms), here = self.second, slice(self.first, None)
        arrays = (xs[here], us[here], t[here], dt[here], self._p, rooms[0])
        tables = [ctypes.cast(table, ctypes.c_void_p).value for table in (self._ti, self._td)]
        knots = _Knots(*tables, self._substeps, *map(address, arrays))
        return CurvaturePart(self.first, self.last, contract, ctypes.addressof(knots)), (knots, arrays)

    @cached_property
    def second(self) -> tuple[Any, int | None, Rooms]:
        """The function for many knots, the address of that for one, of a library of their own, and their workspace."""
        library = _curvature_library(*self._structure)
        room = bound(library, "curvature_room", "pi", ctypes.c_long)(address(self._tables[0][0]), self._substeps)
        one = ctypes.cast(library.stage_knot_curvature, ctypes.c_void_p).value
        return bound(library, "stage_curvature", "ppi pppppp ll ppp p"), one, Rooms(int(room) * self._lanes)


@lru_cache(maxsize=32)
def _node_flags(nodes: tuple[int, ...], N: int) -> Array:
    """(N + 1,) 1 at nodes."""
    flags = np.zeros(N + 1, np.int8)
    flags[list(nodes)] = 1
    return flags


@lru_cache(maxsize=64)
def _parts(shooting: Shooting, first: int, last: int, trials: int) -> tuple[Array, Array, Array]:
    """First knot, end and trial of the parts between nodes with linear gaps, trials next to each other."""
    inner = [node for node in shooting.nodes if first < node < last and shooting.gaps == "linear"]
    starts, stops = np.array([first, *inner], _LONG), np.array([*inner, last], _LONG)
    return np.repeat(starts, trials), np.repeat(stops, trials), np.tile(np.arange(trials, dtype=_LONG), len(starts))


def _shapes(terms: Sequence[CostTerm]) -> tuple[TermShape, ...]:
    return tuple(TermShape.of(term) for term in terms)


@lru_cache(maxsize=32)
def _library(backend: DynamicsBackend, shape: StageShape) -> tuple[ctypes.CDLL, Tables]:
    """The compiled library of a phase's structure, and the tables of its robot; kept for problems that differ in values only."""
    dynamics = dynamics_source(backend, dict(shape.parameters))
    stage = stage_source(dynamics, unwrapped(backend.map), shape)
    return load("\n".join([templates(), stage.source])), tables_of(dynamics.model)


@lru_cache(maxsize=32)
def _curvature_library(backend: DynamicsBackend, shape: StageShape) -> ctypes.CDLL:
    """The library of second derivatives; made when they are first asked for."""
    sizes = dict(shape.parameters)
    source = curvature_source(
        dynamics_source(backend, sizes), contracted_source(backend.map, sizes), unwrapped(backend.map), shape
    )
    return load("\n".join([templates(), source]))
