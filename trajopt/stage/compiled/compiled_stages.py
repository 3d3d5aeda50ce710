"""The knots of a phase as compiled libraries: see :mod:`trajopt.stage.stages`; the same numbers as NumPy's, to rounding.

They serve time steps made of a backend whose method :mod:`~dynamics_backends.compiled.sources.dynamics_source` writes. Numbers that
change between solves (dt, weights, references, parameters, bounds) are inputs: a library is compiled once for the structure of a
phase. First derivatives leave the substeps of the integrator behind, which second ones at the same point take up: these cost one
sweep back through them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import copy
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    KNOTS_PER_THREAD,
    address,
    aligned,
    over_threads,
)
from dynamics_backends.protocol import Array, Hessians
from trajopt.lq.compiled_lq import CurvaturePart
from trajopt.problem.ocp import OCP, Phase
from trajopt.stage.compiled.compiled_end import shapes_of
from trajopt.stage.compiled.library import (
    ALONE,
    ROLLED,
    FirstData,
    Library,
    PartsData,
    PointData,
    SecondData,
    StagesData,
    SweepData,
    TrialsData,
    ValuesData,
)
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.pool import Pool, Work, numbers_filled
from trajopt.stage.source.constraint_source import constraint_theta
from trajopt.stage.source.term_source import by_knot, theta_of
from trajopt.stage.stages import StageDerivatives, StageValues, Trials, room_for

_LONG = np.dtype(ctypes.c_long)
_DOUBLE = 8


class CompiledStages:
    """A phase: see :class:`~trajopt.stage.stages.Stages`.

    library: of the phase's structure. plain: the same in NumPy, which does what the library cannot; terms and constraints are its.
    curved: the library of second derivatives of the step alone, asked for where that of the phase has none. tell: called when NumPy
    takes second derivatives.
    """

    compiled = True

    def __init__(
        self,
        library: Library,
        ocp: OCP,
        index: int,
        plain: NumpyStages,
        curved: Callable[[], Library | None] = lambda: None,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        phase, n = ocp.phases[index], ocp.manifold.ndx
        sampling: Any = phase.dynamics.sampling
        self._structure = _structure(plain, phase)
        self.library, self.plain, self._curved_alone, self._tell = library, plain, curved, tell
        self._substeps, self._first_knot = sampling.substeps, plain.start
        self._sizes = (ocp.manifold.nx, n, n, ocp.nu, sum(c.residual.n_out for c in plain.constraints))
        self._values = [np.array(v) for v in _values_of(phase, plain)]
        self._from_knot: dict[tuple[Library, int], ctypes.Structure] = {}
        self.data = self._at(self.library, 0)
        self._kept_at = b""
        self._last: tuple[bytes, StageDerivatives | None] = b"", None

    def fits(self, plain: NumpyStages, phase: Phase) -> bool:
        """True if another phase has the same structure."""
        return self._structure == _structure(plain, phase)

    def take(self, plain: NumpyStages, phase: Phase) -> None:
        """Go on with the values of another phase of the same structure."""
        self.plain, self._kept_at, self._last = plain, b"", (b"", None)
        t, weight, p, theta, path = self._values
        t[:], weight[:] = plain.t, phase.weights
        by_knot(phase.parameters.values(), len(t), p)
        theta_of(plain.terms, len(t), theta)
        constraint_theta(plain.constraints, len(t), path)

    def data_in(self, library: Library) -> ctypes.Structure:
        """stages_t for another library of the same phase."""
        return self._at(library, 0)

    def _at(self, library: Library, first: int) -> ctypes.Structure:
        """stages_t from a knot on."""
        if (library, first) not in self._from_knot:
            self._from_knot[library, first] = self._made(library, first)
        return self._from_knot[library, first]

    def _made(self, library: Library, first: int) -> ctypes.Structure:
        tables = (ctypes.cast(t, ctypes.c_void_p).value for t in (library.ti, library.td))
        rows = (address(v) + _DOUBLE * first * (v.size // len(v)) for v in self._values)
        return StagesData(*tables, self._substeps, *rows)

    # -- values and first order -----------------------------------------------------------------------------------------
    def values(self, x: Array, u: Array, nodes: Array) -> StageValues:
        """See :class:`~trajopt.stage.stages.Stages`."""
        if self.library.shape.parts == ROLLED:
            return self.plain.values(x, u, nodes)
        nx, n, _, _, ng = self._sizes
        K, at, kept = len(x), *_point(x, u, nodes)
        out = StageValues(np.empty((K, nx)), np.empty((K, n)), np.empty(K), np.empty((K, ng)))
        results = ValuesData(*map(address, out))
        over_threads(self._part(self.library.values, at, results), K, self.library.lanes, self.library.rooms)
        del kept
        return out

    def first(
        self,
        x: Array,
        u: Array,
        nodes: Array,
        *,
        quadratic: bool = True,
        out: StageDerivatives | None = None,
        pool: Pool | None = None,
    ) -> StageDerivatives:
        """See :class:`~trajopt.stage.stages.Stages`."""
        over = out or room_for(len(x), self._sizes, quadratic)
        work, point = self._first_work(x, u, nodes, over, quadratic)
        self._kept_at = b""
        if pool is not None:
            pool.add(work)
            return over
        over_threads(work.call, work.knots, self.library.lanes, self.library.rooms)
        if self._kept is not None:
            self._kept_at = point
        if quadratic and self.library.shape.parts == ALONE:
            self._last = point, over
        return over

    def _first_work(
        self, x: Array, u: Array, nodes: Array, out: StageDerivatives, quadratic: bool
    ) -> tuple[Work, bytes]:
        at, given = _point(x, u, nodes)
        v, kept = out.values, self._kept
        cost = (out.Q, out.S, out.R) if quadratic else ()
        arrays = [*v, out.A, out.B, out.lx, out.lu, out.gx, out.gu]
        addresses = [*map(address, arrays), *(map(address, cost) if quadratic else (None, None, None))]
        results = FirstData(*addresses, None if kept is None else address(kept))
        _, n, _, m, _ = self._sizes
        call = self._part(self.library.first, at, results, given)
        point = b"" if self.library.shape.parts == ROLLED else b"".join(a.tobytes() for a in given)
        return Work(len(x), self.library.lanes, numbers_filled(n, m), self.library.rooms.doubles, call), point

    def _part(
        self, function: Any, at: ctypes.Structure, results: ctypes.Structure, kept: Any = None
    ) -> Callable[[int, int, Array], None]:
        """The function at a point, for ranges of knots."""
        stages, point, out = ctypes.byref(self.data), ctypes.byref(at), ctypes.byref(results)

        def part(first: int, last: int, room: Array) -> None:
            function(stages, point, first, last, out, address(room))

        part.kept = (kept, at, results)  # type: ignore[attr-defined]
        return part

    @cached_property
    def _kept(self) -> Array | None:
        """Room for the substeps of all knots, in a library that takes them up."""
        if "second" not in self.library.shape.parts:
            return None
        blocks = -(-len(self._values[0]) // self.library.lanes)
        return aligned(blocks * self.library.kept * self._substeps * self.library.lanes)

    # -- second order ---------------------------------------------------------------------------------------------------
    def second(
        self,
        x: Array,
        u: Array,
        nodes: Array,
        sigma: float,
        lam: Array | None = None,
        y: Array | None = None,
        first: int = 0,
        out: Hessians | None = None,
    ) -> Hessians:
        """See :class:`~trajopt.stage.stages.Stages`."""
        alone = not sigma and y is None
        library = self.curved if alone else self.library if "second" in self.library.shape.parts else None
        if library is None:
            if lam is None and y is None and self.plain.hessian == "gauss_newton":
                return self._gauss_newton(x, u, nodes, sigma)
            self._tell()
            return self.plain.second(x, u, nodes, sigma, lam, y, first, out)
        _, n, _, m, _ = self._sizes
        K, at, given = len(x), *_point(x, u, nodes)
        out = out or Hessians(np.empty((K, n, n)), np.empty((K, m, n)), np.empty((K, m, m)))
        multipliers = [None if a is None else np.ascontiguousarray(a, float) for a in (lam, y)]
        kept = None
        if library is self.library and lam is not None:
            if self._kept_at != b"".join(a.tobytes() for a in given):
                self.first(x, u, nodes, quadratic=False)
            kept = self._kept
        addresses = [None if a is None else address(a) for a in (*multipliers, kept)]
        results = SecondData(sigma, *addresses, *map(address, out))
        stages = self._at(library, first)
        function, head = library.second, (ctypes.byref(stages), ctypes.byref(at))

        def part(begin: int, end: int, room: Array) -> None:
            function(*head, begin, end, ctypes.byref(results), address(room))

        over_threads(part, K, library.lanes, library.second_rooms(self._substeps))
        return out

    @property
    def second_orders(self) -> tuple[bool, bool]:
        """True if second derivatives of the whole stage, and whether those of the time step alone, are compiled."""
        return "second" in self.library.shape.parts, self.curved is not None

    def _gauss_newton(self, x: Array, u: Array, nodes: Array, sigma: float) -> Hessians:
        """The Hessian of sigma l, which comes with first derivatives."""
        known = self._last[0] == b"".join(np.ascontiguousarray(a, float).tobytes() for a in (x, u, nodes))
        found = (self._last[1] if known else None) or self.first(x, u, nodes)
        return Hessians(sigma * found.Q, sigma * found.S, sigma * found.R)

    @property
    def curved(self) -> Library | None:
        """The library of second derivatives of the step; None where there is none, or not yet."""
        return self.library if "second" in self.library.shape.parts else self._curved_alone()

    @property
    def curved_data(self) -> ctypes.Structure | None:
        """stages_t of that library."""
        library = self.curved
        return None if library is None else self._at(library, 0)

    def sweep_part(self, x: Array, u: Array, nodes: Array) -> tuple[CurvaturePart, Any] | None:
        """See :class:`~trajopt.stage.stages.SweptStages`."""
        library = self.curved
        if library is None:
            return None
        at, given = _point(x, u, nodes)
        stages, room = self._at(library, 0), library.second_rooms(self._substeps)[0]
        sweep = SweepData(ctypes.addressof(stages), ctypes.addressof(at), address(room))
        part = CurvaturePart(self._first_knot, self._first_knot + len(x), library.knot_second, ctypes.addressof(sweep))
        return part, (sweep, stages, at, given, room)

    # -- roll-out -------------------------------------------------------------------------------------------------------
    def finer(self, pieces: int) -> CompiledStages:
        """See :class:`~trajopt.stage.stages.Stages`."""
        found = self._view()
        found._substeps *= pieces
        found.data = found._at(self.library, 0)
        return found

    def shortened(self, share: float) -> CompiledStages:
        """See :class:`~trajopt.stage.stages.Stages`."""
        found = self._view()
        t, weight, *others = self._values
        found._values = [t, share * weight, *others]
        found.data = found._at(self.library, 0)
        return found

    def _view(self) -> CompiledStages:
        """These stages with nothing that they have kept."""
        found = copy(self)
        found._from_knot, found._kept_at, found._last = {}, b"", (b"", None)
        found.__dict__.pop("_kept", None)
        return found

    def rollout(self, trials: Trials) -> Array:
        """See :class:`~trajopt.stage.stages.Stages`; lanes hold step lengths, and the parts between nodes with linear gaps."""
        N, count, first = len(trials.us), len(trials.alphas), self._first_knot
        last = first + len(self._values[0])
        start, stop, trial = _tasks(trials.shooting, first, last, count)
        cost, node = np.empty(len(start)), node_flags(trials.shooting.nodes, N)
        *straight, bend = trials.direction
        given = [np.ascontiguousarray(a, float) for a in (trials.xs, trials.us, *straight)]
        bent = [np.ascontiguousarray(a, float) for a in bend or ()]
        limits = [] if trials.bounds is None else [np.ascontiguousarray(b, float) for b in trials.bounds]
        alphas = np.ascontiguousarray(trials.alphas, float)
        arrays = [
            *map(address, given),
            *(map(address, limits) if limits else (None, None)),
            address(alphas),
            address(node),
        ]
        filled = map(address, (trials.X, trials.U, trials.D))
        all_of = TrialsData(N, trials.shooting.gaps == "nonlinear", *arrays, *filled, *map(address, bent))
        parts = PartsData(first, *map(address, (start, stop, trial, cost)))
        head = [ctypes.byref(s) for s in (self.data, all_of, parts)]

        def part(begin: int, end: int, room: Array) -> None:
            self.library.rollout(*head, begin, end, address(room))

        knots = max((last - first) * count // len(cost), 1)
        over_threads(part, len(cost), self.library.lanes, self.library.rooms, least=-(-KNOTS_PER_THREAD // knots))
        return cost.reshape(-1, count).sum(axis=0)


def _values_of(phase: Phase, plain: NumpyStages) -> tuple[Array, ...]:
    """t, weight, parameters, theta of the cost and of the constraints, by knot."""
    K = phase.knots
    p, theta, path = (
        by_knot(phase.parameters.values(), K),
        theta_of(plain.terms, K),
        constraint_theta(plain.constraints, K),
    )
    return plain.t, phase.weights, p, theta, path  # a stage without duration reads no dt but for the weight of its cost


def _structure(plain: NumpyStages, phase: Phase) -> tuple[Any, ...]:
    """What addresses in memory, and what was compiled, depend on."""
    sizes = [(name, value.shape[-1]) for name, value in phase.parameters.items()]
    return phase.dynamics, phase.dynamics.sampling, phase.knots, sizes, *shapes_of(plain)


def _point(x: Array, u: Array, nodes: Array) -> tuple[ctypes.Structure, list[Array]]:
    """point_t, and the arrays that must live as long."""
    given = [np.ascontiguousarray(a, float) for a in (x, u, nodes)]
    return PointData(*map(address, given)), given


@lru_cache(maxsize=32)
def node_flags(nodes: tuple[int, ...], N: int) -> Array:
    """(N + 1,) 1 at nodes."""
    flags = np.zeros(N + 1, np.int8)
    flags[list(nodes)] = 1
    return flags


@lru_cache(maxsize=64)
def _tasks(shooting: Any, first: int, last: int, trials: int) -> tuple[Array, Array, Array]:
    """First knot, end and trial of the parts of a phase, trials next to each other."""
    starts, stops = (np.array(part, _LONG) for part in shooting.parts(first, last))
    return np.repeat(starts, trials), np.repeat(stops, trials), np.tile(np.arange(trials, dtype=_LONG), len(starts))
