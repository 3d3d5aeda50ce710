"""The knots of a sparse program as one compiled library: :mod:`trajopt.stage.knots` on vector spaces.

First derivatives leave the stages of the integrator behind, which the Hessian at the same point takes up: it costs one sweep back
through them. What changes between solves is an input: a library is compiled once for the structure of a problem.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import (
    Rooms,
    address,
    aligned,
    bound,
    find_toolchain,
    load,
    over_threads,
    pointers,
    templates,
)
from dynamics_backends.compiled.interface.sources import (
    TooLong,
    contracted_source,
    dynamics_source,
    has_contraction,
    has_source,
    tables_of,
)
from dynamics_backends.protocol import Array, DynamicsBackend, Hessians
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP, Phase
from trajopt.stage.constraint_source import constraint_source, constraint_theta
from trajopt.stage.knots import KnotDerivatives, Knots, KnotValues
from trajopt.stage.stage_source import StageShape, curvature_source, kernel_text
from trajopt.stage.term_source import TermShape, term_source, theta_of
from trajopt.step.sensitivities import SampledSystem

__all__ = ["FinalKnot", "RunningKnots", "TooLong", "compiled_knots", "serves_knots"]


def serves_knots(ocp: OCP, phase: Phase) -> bool:
    """Whether the knots of a phase are of the kind that is compiled as a whole."""
    sampled = phase.dynamics
    if not (ocp.manifold.is_vector_space and isinstance(sampled, SampledSystem)):
        return False
    if phase.parameters or sampled.nu != ocp.nu:
        return False
    backend = sampled.backend
    return backend.engine == "compiled" and has_source(backend) and has_contraction(backend.map)


def compiled_knots(
    ocp: OCP, index: int, path: Sequence[Constraint], final: Sequence[Constraint]
) -> tuple[Knots, Knots]:
    """The running knots of a phase and the final one, with these constraints and exact Hessians.

    Raises TooLong for dynamics whose straight-line code would take too long to compile.
    """
    library = _Library.of(ocp, ocp.phases[index], path, final)
    return RunningKnots(library, ocp, index, path), FinalKnot(library, ocp, final)


class _Library:
    """The functions of a library, and the tables of its robot."""

    def __init__(
        self, backend: DynamicsBackend, shape: StageShape, path: tuple[TermShape, ...], final: tuple[TermShape, ...]
    ) -> None:
        map, n, m = backend.map, backend.map.manifold.ndx, shape.nu
        dynamics, second = dynamics_source(backend, {}), contracted_source(map, {})
        parts = (
            term_source("running", shape.running, map.manifold, m, running=True, hessian="exact"),
            term_source("terminal", shape.terminal, map.manifold, m, running=False, hessian="exact"),
            constraint_source("path", path, n, m, running=True),
            constraint_source("final", final, n, m, running=False),
        )
        self.ng, self.ngt = (sum(c.residual.n_out for c in part) for part in (path, final))
        sizes = {"NG": self.ng, "NGT": self.ngt, "TERMS_ROOM": max(part.room for part in parts)}
        sizes |= dict(zip(("NT", "NTT", "NPG", "NPGT"), (part.theta for part in parts), strict=True))
        head = [f"#define {key} {value}" for key, value in sizes.items()]
        step = curvature_source(dynamics, second, map, shape)
        text = [templates(), *head, step, *(part.source for part in parts), kernel_text("lagrangian.h")]
        library = load("\n".join(text))
        self.tables = tables_of(dynamics.model)
        self.lanes = find_toolchain().lanes
        self.kept = int(bound(library, "knots_kept", "", ctypes.c_long)())
        room = bound(library, "knots_room", "p", ctypes.c_long)(address(self.tables[0][0]))
        self.rooms = Rooms(int(room) * self.lanes)
        self.values = bound(library, "knots_values", "ppi pppppp ll ppp p")
        self.first = bound(library, "knots_first", "ppi pppppp ll ppp pppppp pp")
        self.second = bound(library, "knots_second", "ppi pppppp ll dppp ppp p")
        self.final_first = bound(library, "final_knot_first", "pppp pppp p")
        self.final_second = bound(library, "final_knot_second", "pppp dp p p")

    @classmethod
    def of(cls, ocp: OCP, phase: Phase, path: Sequence[Constraint], final: Sequence[Constraint]) -> _Library:
        sampled: Any = phase.dynamics  # a SampledSystem, see serves_knots()
        parts: tuple[Sequence[Any], ...] = (phase.terms, ocp.terminal, path, final)
        running, terminal, *constraints = (tuple(TermShape.of(part) for part in kind) for kind in parts)
        return _library(
            sampled.backend, StageShape(sampled.scheme, (), ocp.nu, running, terminal, "exact"), *constraints
        )


@lru_cache(maxsize=32)
def _library(backend: Any, shape: StageShape, path: tuple[TermShape, ...], final: tuple[TermShape, ...]) -> _Library:
    """Kept for problems that differ in values only."""
    return _Library(backend, shape, path, final)


class RunningKnots:
    """See :class:`~trajopt.stage.knots.Knots`."""

    def __init__(self, library: _Library, ocp: OCP, index: int, path: Sequence[Constraint]) -> None:
        phase, knots = ocp.phases[index], ocp.phase_slices[index]
        N = phase.knots
        self._library, self._n, self._m, self._N = library, ocp.manifold.ndx, ocp.nu, N
        self._substeps = phase.dynamics.substeps  # type: ignore[attr-defined]
        values = (ocp.times[knots], phase.dt, theta_of(phase.terms, N), constraint_theta(path, N))
        self._values = [np.ascontiguousarray(v) for v in values]
        self._at = [address(v) for v in self._values]
        self._ti, self._td = (pointers(t) for t in library.tables)
        blocks = -(-N // library.lanes)
        self._kept = aligned(blocks * library.kept * self._substeps * library.lanes)
        self._kept_at = b""

    def values(self, x: Array, u: Array) -> KnotValues:
        """See :class:`~trajopt.stage.knots.Knots`."""
        N, n, ng = self._N, self._n, self._library.ng
        out = KnotValues(np.empty((N, n)), np.empty(N), np.empty((N, ng)))
        self._call(self._library.values, x, u, list(out))
        return out

    def first(self, x: Array, u: Array) -> KnotDerivatives:
        """See :class:`~trajopt.stage.knots.Knots`."""
        N, n, m, ng = self._N, self._n, self._m, self._library.ng
        values = KnotValues(np.empty((N, n)), np.empty(N), np.empty((N, ng)))
        shapes = ((N, n, n), (N, n, m), (N, n), (N, m), (N, ng, n), (N, ng, m))
        derivatives = [np.empty(shape) for shape in shapes]
        self._kept_at = b""
        self._call(self._library.first, x, u, [*values, *derivatives, self._kept])
        self._kept_at = x.tobytes() + u.tobytes()
        return KnotDerivatives(values, *derivatives)

    def second(self, x: Array, u: Array, sigma: float, lam: Array, y: Array) -> Hessians:
        """See :class:`~trajopt.stage.knots.Knots`."""
        if self._kept_at != x.tobytes() + u.tobytes():
            self.first(x, u)
        N, n, m = self._N, self._n, self._m
        inputs = [np.ascontiguousarray(a) for a in (lam, y)]
        out = Hessians(np.empty((N, n, n)), np.empty((N, m, n)), np.empty((N, m, m)))
        self._call(self._library.second, x, u, [*inputs, self._kept, *out], sigma)
        return out

    def _call(self, function: Any, x: Array, u: Array, arrays: Sequence[Array], *numbers: float) -> None:
        x, u = np.ascontiguousarray(x), np.ascontiguousarray(u)
        head = [address(x), address(u), *self._at]
        tail = [address(a) for a in arrays]

        def part(first: int, last: int, room: Array) -> None:
            function(self._ti, self._td, self._substeps, *head, first, last, *numbers, *tail, address(room))

        over_threads(part, self._N, self._library.lanes, self._library.rooms)


class FinalKnot:
    """See :class:`~trajopt.stage.knots.Knots`."""

    def __init__(self, library: _Library, ocp: OCP, final: Sequence[Constraint]) -> None:
        self._library, self._n = library, ocp.manifold.ndx
        self._values = [ocp.times[-1:].copy(), theta_of(ocp.terminal, 1), constraint_theta(final, 1)]
        self._at = [address(v) for v in self._values]

    def values(self, x: Array, u: Array) -> KnotValues:
        """See :class:`~trajopt.stage.knots.Knots`."""
        return self.first(x, u).values

    def first(self, x: Array, u: Array) -> KnotDerivatives:
        """See :class:`~trajopt.stage.knots.Knots`."""
        n, ng = self._n, self._library.ngt
        cost, g, lx, gx = np.empty(1), np.empty((1, ng)), np.empty((1, n)), np.empty((1, ng, n))
        self._call(self._library.final_first, x, [cost, g, lx, gx])
        none = np.zeros((1, 0))
        nothing = (np.zeros((1, 0, n)), np.zeros((1, 0, 0)))
        return KnotDerivatives(KnotValues(none, cost, g), *nothing, lx, none, gx, np.zeros((1, ng, 0)))

    def second(self, x: Array, u: Array, sigma: float, lam: Array, y: Array) -> Hessians:
        """See :class:`~trajopt.stage.knots.Knots`."""
        n = self._n
        xx = np.empty((1, n, n))
        self._call(self._library.final_second, x, [np.ascontiguousarray(y), xx], sigma)
        return Hessians(xx, np.zeros((1, 0, n)), np.zeros((1, 0, 0)))

    def _call(self, function: Any, x: Array, arrays: Sequence[Array], *numbers: float) -> None:
        x = np.ascontiguousarray(x)
        head = [address(x), *self._at]
        function(*head, *numbers, *(address(a) for a in arrays), address(self._library.rooms[0]))
