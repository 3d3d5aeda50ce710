"""Cache of solver workspaces, keyed by problem structure.

Each thread caches the workspaces of the structures that it solved last: compiled stages, their memory, plans of calls. Values of a
problem (x0, bounds, weights, references, parameters, time steps) are not reused: each solve loads its own.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from trajopt.problem.ocp import OCP

MAX_STRUCTURES, MAX_ENTRIES = 4, 2_500_000
"""Maximum number of structures cached by a thread, and of entries in a block of derivatives of all of them together; the least
recently solved one is dropped first."""


class SolverCache:
    """Workspaces of solvers for problems of one structure: memory, compiled code, plans of calls.

    The next solve of the structure reuses them with its own values, or replaces those that do not match. They serve one solve at a
    time, in the thread that filled them. Other threads, pickled and copied instances start empty. prepared: workspaces by key of
    the solver. thread: identifier of the thread that filled them.
    """

    def __init__(self) -> None:
        self.prepared: dict[str, Any] = {}
        self.thread = 0

    def __reduce__(self) -> tuple[type[SolverCache], tuple[()]]:
        return SolverCache, ()


class _ThreadCache(threading.local):
    """Problem, cache and problem size by structure, the latest last; problems stay alive, because keys contain object ids."""

    def __init__(self) -> None:
        self.by_structure: dict[Hashable, tuple[OCP, SolverCache, int]] = {}


_thread_cache = _ThreadCache()


@contextmanager
def borrowed(ocp: OCP, cache: SolverCache | None = None) -> Iterator[SolverCache | None]:
    """Context manager that lends the cached workspaces of a problem's structure, from ``cache``, else from the thread's cache.

    Yields None if the problem is too large for the thread's cache. Contents of ``cache`` from another thread are dropped. Inside
    the block, other solves of this structure, or with this ``cache``, get an empty one. An error in the block drops the
    workspaces; else they are stored again, and the thread's oldest structures dropped beyond the limits.
    """
    if cache is not None:
        own, thread = SolverCache(), threading.get_ident()
        own.prepared, cache.prepared = (cache.prepared if cache.thread == thread else {}), {}
        yield own
        cache.prepared, cache.thread = own.prepared, thread
        return
    numbers = problem_size(ocp)
    if numbers > MAX_ENTRIES:
        yield None
        return
    structure, known = structure_of(ocp), _thread_cache.by_structure
    cache = known.pop(structure, (ocp, SolverCache()))[1]
    yield cache
    if cache.prepared:
        known[structure] = ocp, cache, numbers
        while len(known) > MAX_STRUCTURES or sum(own for *_, own in known.values()) > MAX_ENTRIES:
            del known[next(iter(known))]


def problem_size(ocp: OCP) -> int:
    """Return the size of a problem, N (ndx + nu)^2: number of entries of the second derivatives at all knots."""
    return int(ocp.horizon * (ocp.manifold.ndx + ocp.nu) ** 2)


def structure_of(ocp: OCP) -> Hashable:
    """Return a hashable key of a problem's structure, valid while the problem is alive.

    It contains the ids of dynamics and of the residuals of terms and constraints, and knot counts.
    """
    groups = [(phase.dynamics, phase.knots, phase.terms, phase.constraints) for phase in ocp.phases]
    ends = ocp.terminal, ocp.terminal_constraints
    phases = ((id(dynamics), knots, *map(_residuals, parts)) for dynamics, knots, *parts in groups)
    return (*phases, *map(_residuals, ends))


def _residuals(parts: Any) -> tuple[int, ...]:
    """Return the ids of the residuals of terms or constraints."""
    return tuple(id(part.residual) for part in parts)
