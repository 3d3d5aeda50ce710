"""The evaluator of a shooting solver as one compiled library: dynamics, sensitivities, cost expansions and roll-outs.

It serves problems of one phase on a vector space whose dynamics are free rigid bodies under the analytic backend on
the compiled engine; everything else goes to :class:`~trajopt.evaluation.StageEvaluator`, whose derivatives may still
come from compiled code.  Numbers that change between solves (dt, weights, references, bounds) are inputs: a library
is compiled once for the structure of a problem.
"""

from __future__ import annotations

import ctypes
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.cache import load
from dynamics_backends.compiled.dynamics_source import DynamicsSource, free_body_source, has_source, tables_of
from dynamics_backends.compiled.kernel import templates
from dynamics_backends.compiled.memory import Rooms, address, bound, over_threads, pointers
from dynamics_backends.compiled.toolchain import find_toolchain
from dynamics_backends.protocol import Array, Map
from trajopt.evaluation import Candidates, Direction, Expansion, Shooting
from trajopt.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER
from trajopt.lq import LQProblem
from trajopt.ocp import OCP
from trajopt.term_source import TermShape, term_source, theta_of


def serves(ocp: OCP) -> bool:
    """Whether a problem is of the kind that is compiled as a whole."""
    backend = getattr(ocp.phases[0].dynamics, "backend", None)
    if backend is None or (backend.engine, backend.name) != ("compiled", "analytic"):
        return False
    one = len(ocp.phases) == 1 and ocp.manifold.is_vector_space and not ocp.phases[0].parameters
    return one and has_source(backend.map)


class CompiledEvaluator:
    """See :class:`~trajopt.evaluation.Evaluator`; the same numbers as StageEvaluator to rounding."""

    def __init__(self, ocp: OCP, hessian: str = "gauss_newton") -> None:
        self.ocp, self.manifold = ocp, ocp.manifold
        phase = ocp.phases[0]
        sampled: Any = phase.dynamics  # a SampledSystem, see serves()
        self._substeps = sampled.substeps
        shapes = (tuple(TermShape.of(term) for term in terms) for terms in (phase.terms, ocp.terminal))
        self._library, self._tables = _library(sampled.backend.map, sampled.scheme, *shapes, hessian)
        self._ti, self._td = (pointers(t) for t in self._tables)
        self._lanes = find_toolchain().lanes
        room = bound(self._library, "stage_room", "p", ctypes.c_long)
        self._expand = bound(self._library, "stage_expand", "ppi pppppp ll pppppppppp p")
        self._terminal = bound(self._library, "stage_terminal", "ppppppp")
        self._rollout = bound(self._library, "stage_rollout", "ppil pppppp ppp ipi ppppp pppp p")
        self._rooms = Rooms(int(room(address(self._tables[0][0]))) * self._lanes)
        self._bind(ocp)

    def _bind(self, ocp: OCP) -> None:
        N = ocp.horizon
        self._times, self._dt = np.ascontiguousarray(ocp.times), np.ascontiguousarray(ocp.dt)
        self._theta = theta_of(ocp.phases[0].terms, N)
        self._theta_end = theta_of(ocp.terminal, 1)
        self._none = np.zeros((N, 1))

    def expand(self, xs: Array, us: Array) -> Expansion:
        """See :class:`~trajopt.evaluation.Evaluator`."""
        N, n, m = len(us), self.manifold.ndx, self.ocp.nu
        A, B, d, x_next = np.empty((N, n, n)), np.empty((N, n, m)), np.empty((N, n)), np.empty((N, n))
        Q, q, cost = np.empty((N + 1, n, n)), np.empty((N + 1, n)), np.empty(N + 1)
        S, R, r = np.empty((N, m, n)), np.empty((N, m, m)), np.empty((N, m))
        xs, us = np.ascontiguousarray(xs), np.ascontiguousarray(us)
        inputs = [address(a) for a in (xs, us, self._times, self._dt, self._none, self._theta)]
        outputs = [address(a) for a in (A, B, d, x_next, Q, q, S, R, r, cost)]

        def part(first: int, last: int, room: Array) -> None:
            self._expand(self._ti, self._td, self._substeps, *inputs, first, last, *outputs, address(room))

        over_threads(part, N, self._lanes, self._rooms)
        end = [address(a) for a in (xs[N:], self._times[N:], self._theta_end, Q[N:], q[N:], cost[N:], self._rooms[0])]
        self._terminal(*end)
        return Expansion(LQProblem(A, B, d, Q, q, S, R, r, self.ocp.x0 - xs[0]), float(cost.sum()), x_next)

    def rollout(self, xs: Array, us: Array, direction: Direction, alphas: Array, shooting: Shooting) -> Candidates:
        """See :class:`~trajopt.evaluation.Evaluator`; one step length in each lane."""
        blocks = [alphas[i : i + self._lanes] for i in range(0, len(alphas), self._lanes)]
        parts = [self._lane_block(xs, us, direction, block, shooting) for block in blocks]
        return parts[0] if len(parts) == 1 else Candidates(*(np.concatenate(p) for p in zip(*parts, strict=True)))

    def _lane_block(self, xs: Array, us: Array, direction: Direction, alphas: Array, shooting: Shooting) -> Candidates:
        L, N, n, m = len(alphas), len(us), self.manifold.ndx, self.ocp.nu
        X, U, D, cost = np.empty((L, N + 1, n)), np.empty((L, N, m)), np.empty((L, N, n)), np.empty(L)
        node = np.zeros(N + 1, np.int8)
        node[list(shooting.nodes)] = 1
        kept = [np.ascontiguousarray(a) for a in (xs, us, *direction)]
        rest = [
            np.ascontiguousarray(a, float)
            for a in (alphas, self._times, self._dt, self._none, self._theta, self._theta_end)
        ]
        self._rollout(
            self._ti,
            self._td,
            self._substeps,
            N,
            *map(address, kept),
            *self._bounds,
            address(node),
            int(shooting.gaps == "nonlinear"),
            address(rest[0]),
            L,
            *map(address, rest[1:]),
            *map(address, (X, U, D, cost)),
            address(self._rooms[0]),
        )
        return Candidates(X, U, D, cost)

    @cached_property
    def _bounds(self) -> list[int | None]:
        """Addresses of the bounds on u, NULL where there are none."""
        if self.ocp.control_bounds is None:
            return [None, None]
        self._limits = [np.ascontiguousarray(b) for b in self.ocp.control_bounds]
        return [address(b) for b in self._limits]


@lru_cache(maxsize=32)
def _library(
    system: Map, scheme: str, running: tuple[TermShape, ...], terminal: tuple[TermShape, ...], hessian: str
) -> tuple[ctypes.CDLL, tuple[list[Array], list[Array]]]:
    """The compiled library of a problem's structure, and the tables of its robot; kept for problems that differ in values only."""
    dynamics = free_body_source(system)
    stage = stage_source(dynamics, system, scheme, running, terminal, hessian)
    return load("\n".join([templates(), stage.source])), tables_of(dynamics.model)


class StageSource(NamedTuple):
    """C source of a whole stage, to stand behind a prelude; the lengths of theta, and the workspace of its parts in vectors."""

    source: str
    theta: int
    theta_end: int
    room: str


def stage_source(
    dynamics: DynamicsSource,
    system: Map,
    scheme: str,
    running: tuple[TermShape, ...],
    terminal: tuple[TermShape, ...],
    hessian: str,
) -> StageSource:
    """The text of kernels/stage.h with all that it asks for."""
    n, m = system.manifold.ndx, system.nu
    first = term_source("running", running, n, m, running=True, hessian=hessian)
    last = term_source("terminal", terminal, n, m, running=False, hessian=hessian)
    sizes = {"NX": n, "NU": m, "NP": 0, "NT": first.theta, "NTT": last.theta}
    rooms = {"DYNAMICS_ROOM": f"({dynamics.room})", "TERMS_ROOM": max(first.room, last.room)}
    head = [f"#define {key} {value}" for key, value in (sizes | rooms).items()]
    context = "typedef struct { const int *const *ti; const double *const *td; V *w; } ctx_t;"
    stage = (files("trajopt") / "kernels" / "stage.h").read_text()
    parts = [*head, _scheme(scheme), context, dynamics.source, first.source, last.source, stage]
    room = f"{rooms['DYNAMICS_ROOM']} + {rooms['TERMS_ROOM']}"
    return StageSource("\n".join(parts), first.theta, last.theta, room)


def _scheme(name: str) -> str:
    if name == SEMI_IMPLICIT_EULER:
        return "#define SEMI_IMPLICIT"
    tableau = RUNGE_KUTTA[name]
    s = len(tableau.b)
    rows = ", ".join(
        "{" + ", ".join(repr(float(a)) for a in (*row, *[0.0] * (s - len(row)))) + "}" for row in tableau.a
    )
    vectors = [", ".join(repr(float(x)) for x in v) for v in (tableau.b, tableau.c)]
    return (
        f"#define STAGES {s}\nstatic const double A_[{s}][{s}] = {{{rows}}}, "
        f"B_[{s}] = {{{vectors[0]}}}, C_[{s}] = {{{vectors[1]}}};"
    )
