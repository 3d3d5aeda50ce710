"""The knots of a sparse program as one compiled library: :mod:`trajopt.knots` on vector spaces under Runge-Kutta methods.

First derivatives leave the sensitivities of all integrator stages behind, which the Hessian at the same point takes up: it costs
one adjoint sweep. What changes between solves is an input: a library is compiled once for the structure of a problem.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from dynamics_backends.compiled.cache import load
from dynamics_backends.compiled.dynamics_source import (
    contracted_source,
    dynamics_source,
    has_contraction,
    has_source,
    tables_of,
)
from dynamics_backends.compiled.kernel import templates
from dynamics_backends.compiled.memory import Rooms, address, aligned, bound, over_threads, pointers
from dynamics_backends.compiled.toolchain import find_toolchain
from dynamics_backends.compiled.traced_source import TooLong
from dynamics_backends.protocol import Array, DynamicsBackend, Hessians
from trajopt.constraint_source import constraint_source, constraint_theta
from trajopt.constraints import Constraint
from trajopt.integrators import RUNGE_KUTTA
from trajopt.knots import KnotDerivatives, Knots, KnotValues
from trajopt.ocp import OCP
from trajopt.sensitivities import SampledSystem
from trajopt.term_source import TermShape, term_source, theta_of

__all__ = ["FinalKnot", "RunningKnots", "TooLong", "compiled_knots", "serves_knots"]


def serves_knots(ocp: OCP) -> bool:
    """Whether the knots of a problem are of the kind that is compiled as a whole."""
    phase = ocp.phases[0]
    one = len(ocp.phases) == 1 and ocp.manifold.is_vector_space and not phase.parameters
    if not (one and isinstance(phase.dynamics, SampledSystem) and phase.dynamics.scheme in RUNGE_KUTTA):
        return False
    backend = phase.dynamics.backend
    return backend.engine == "compiled" and has_source(backend) and has_contraction(backend.map)


def compiled_knots(ocp: OCP, path: Sequence[Constraint], final: Sequence[Constraint]) -> list[Knots]:
    """The running knots and the final one, with these constraints and exact Hessians.

    Raises TooLong for dynamics whose straight-line code would take too long to compile.
    """
    library = _Library.of(ocp, path, final)
    return [RunningKnots(library, ocp, path), FinalKnot(library, ocp, final)]


class _Library:
    """The functions of a library, and the tables of its robot."""

    def __init__(self, backend: DynamicsBackend, scheme: str, shapes: tuple[tuple[TermShape, ...], ...]) -> None:
        map = backend.map
        n, m = map.manifold.ndx, map.nu
        dynamics, second = dynamics_source(backend, {}), contracted_source(map, {})
        running, terminal, path, final = shapes
        parts = (
            term_source("running", running, map.manifold, m, running=True, hessian="exact"),
            term_source("terminal", terminal, map.manifold, m, running=False, hessian="exact"),
            constraint_source("path", path, n, m, running=True),
            constraint_source("final", final, n, m, running=False),
        )
        self.ng, self.ngt = (sum(c.residual.n_out for c in part) for part in (path, final))
        sizes: dict[str, Any] = {"NX": n, "NU": m, "NF": dynamics.rows, "NG": self.ng, "NGT": self.ngt}
        sizes |= dict(zip(("NT", "NTT", "NPG", "NPGT"), (part.theta for part in parts), strict=True))
        sizes["KNOTS_ROOM"] = f"({dynamics.room}) + ({second.room}) + {max(part.room for part in parts)}"
        head = [f"#define {key} {value}" for key, value in sizes.items()]
        context = "typedef struct { const int *const *ti; const double *const *td; V *w; } ctx_t;"
        text = (files("trajopt") / "kernels" / "lagrangian.h").read_text()
        sources = [templates(), *head, tableau_source(scheme), context, dynamics.source, second.source]
        sources += [*(part.source for part in parts), text]
        library = load("\n".join(sources))
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
    def of(cls, ocp: OCP, path: Sequence[Constraint], final: Sequence[Constraint]) -> _Library:
        phase = ocp.phases[0]
        sampled: Any = phase.dynamics  # a SampledSystem, see serves()
        parts: tuple[Sequence[Any], ...] = (phase.terms, ocp.terminal, path, final)
        shapes = tuple(tuple(TermShape.of(part) for part in kind) for kind in parts)
        return _library(sampled.backend, sampled.scheme, shapes)


@lru_cache(maxsize=32)
def _library(backend: Any, scheme: str, shapes: tuple[tuple[TermShape, ...], ...]) -> _Library:
    """Kept for problems that differ in values only."""
    return _Library(backend, scheme, shapes)


def tableau_source(scheme: str) -> str:
    """The coefficients of a Runge-Kutta method in C."""
    tableau = RUNGE_KUTTA[scheme]
    s = len(tableau.b)
    rows = [", ".join(repr(float(a)) for a in (*row, *[0.0] * (s - len(row)))) for row in tableau.a]
    b, c = (", ".join(repr(float(v)) for v in values) for values in (tableau.b, tableau.c))
    matrix = "}, {".join(rows)
    return f"#define STAGES {s}\nstatic const double A_[{s}][{s}] = {{{{{matrix}}}}}, B_[{s}] = {{{b}}}, C_[{s}] = {{{c}}};"


class RunningKnots:
    """See :class:`~trajopt.knots.Knots`."""

    def __init__(self, library: _Library, ocp: OCP, path: Sequence[Constraint]) -> None:
        phase, N = ocp.phases[0], ocp.horizon
        self._library, self._n, self._m, self._N = library, ocp.manifold.ndx, ocp.nu, N
        self._substeps = phase.dynamics.substeps  # type: ignore[attr-defined]
        values = (ocp.times, ocp.dt, theta_of(phase.terms, N), constraint_theta(path, N))
        self._values = [np.ascontiguousarray(v) for v in values]
        self._ti, self._td = (pointers(t) for t in library.tables)
        blocks = -(-N // library.lanes)
        self._kept = aligned(blocks * library.kept * self._substeps * library.lanes)
        self._kept_at = b""

    def values(self, x: Array, u: Array) -> KnotValues:
        """See :class:`~trajopt.knots.Knots`."""
        N, n, ng = self._N, self._n, self._library.ng
        out = KnotValues(np.empty((N, n)), np.empty(N), np.empty((N, ng)))
        self._call(self._library.values, x, u, list(out))
        return out

    def first(self, x: Array, u: Array) -> KnotDerivatives:
        """See :class:`~trajopt.knots.Knots`."""
        N, n, m, ng = self._N, self._n, self._m, self._library.ng
        values = KnotValues(np.empty((N, n)), np.empty(N), np.empty((N, ng)))
        shapes = ((N, n, n), (N, n, m), (N, n), (N, m), (N, ng, n), (N, ng, m))
        derivatives = [np.empty(shape) for shape in shapes]
        self._kept_at = b""
        self._call(self._library.first, x, u, [*values, *derivatives, self._kept])
        self._kept_at = x.tobytes() + u.tobytes()
        return KnotDerivatives(values, *derivatives)

    def second(self, x: Array, u: Array, sigma: float, lam: Array, y: Array) -> Hessians:
        """See :class:`~trajopt.knots.Knots`."""
        if self._kept_at != x.tobytes() + u.tobytes():
            self.first(x, u)
        N, n, m = self._N, self._n, self._m
        inputs = [np.ascontiguousarray(a) for a in (lam, y)]
        out = Hessians(np.empty((N, n, n)), np.empty((N, m, n)), np.empty((N, m, m)))
        self._call(self._library.second, x, u, [*inputs, self._kept, *out], sigma)
        return out

    def _call(self, function: Any, x: Array, u: Array, arrays: Sequence[Array], *numbers: float) -> None:
        x, u = np.ascontiguousarray(x), np.ascontiguousarray(u)
        head = [address(a) for a in (x, u, *self._values)]
        tail = [address(a) for a in arrays]

        def part(first: int, last: int, room: Array) -> None:
            function(self._ti, self._td, self._substeps, *head, first, last, *numbers, *tail, address(room))

        over_threads(part, self._N, self._library.lanes, self._library.rooms)


class FinalKnot:
    """See :class:`~trajopt.knots.Knots`."""

    def __init__(self, library: _Library, ocp: OCP, final: Sequence[Constraint]) -> None:
        self._library, self._n = library, ocp.manifold.ndx
        self._values = [ocp.times[-1:].copy(), theta_of(ocp.terminal, 1), constraint_theta(final, 1)]

    def values(self, x: Array, u: Array) -> KnotValues:
        """See :class:`~trajopt.knots.Knots`."""
        return self.first(x, u).values

    def first(self, x: Array, u: Array) -> KnotDerivatives:
        """See :class:`~trajopt.knots.Knots`."""
        n, ng = self._n, self._library.ngt
        cost, g, lx, gx = np.empty(1), np.empty((1, ng)), np.empty((1, n)), np.empty((1, ng, n))
        self._call(self._library.final_first, x, [cost, g, lx, gx])
        none = np.zeros((1, 0))
        nothing = (np.zeros((1, 0, n)), np.zeros((1, 0, 0)))
        return KnotDerivatives(KnotValues(none, cost, g), *nothing, lx, none, gx, np.zeros((1, ng, 0)))

    def second(self, x: Array, u: Array, sigma: float, lam: Array, y: Array) -> Hessians:
        """See :class:`~trajopt.knots.Knots`."""
        n = self._n
        xx = np.empty((1, n, n))
        self._call(self._library.final_second, x, [np.ascontiguousarray(y), xx], sigma)
        return Hessians(xx, np.zeros((1, 0, n)), np.zeros((1, 0, 0)))

    def _call(self, function: Any, x: Array, arrays: Sequence[Array], *numbers: float) -> None:
        x = np.ascontiguousarray(x)
        head = [address(a) for a in (x, *self._values)]
        function(*head, *numbers, *(address(a) for a in arrays), address(self._library.rooms[0]))
