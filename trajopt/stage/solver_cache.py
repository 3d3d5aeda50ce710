"""Cache of solver workspaces, keyed by problem structure.

Each thread caches the workspaces of the structures that it solved last: compiled stages, their memory, plans of calls. Values of a
problem (x0, bounds, weights, references, parameters, time steps) are never cached.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from trajopt.problem.ocp import OCP

MOST, LARGEST = 4, 1_000_000
"""Maximum number of structures cached by a thread, and of entries in a block of derivatives of all of them together; the least
recently solved one is dropped first."""


class SolverCache:
    """Workspaces of solvers for problems of one structure: memory, compiled code, plans of calls.

    The next solve of the structure reuses them with its own values, or replaces those that do not match. They serve one solve at a
    time, in the thread that filled them; other threads start empty, and so do pickled and copied instances.
    """

    def __init__(self) -> None:
        self.prepared: dict[str, Any] = {}
        self.thread = 0

    def __reduce__(self) -> tuple[type[SolverCache], tuple[()]]:
        return SolverCache, ()


class _OfThread(threading.local):
    """By structure, the latest last; each problem lives as long as what its structure refers to."""

    def __init__(self) -> None:
        self.by_structure: dict[Hashable, tuple[OCP, SolverCache, int]] = {}


_kept = _OfThread()


@contextmanager
def borrowed(ocp: OCP, given: SolverCache | None = None) -> Iterator[SolverCache | None]:
    """Lend the cached workspaces of a problem's structure: ``given``, else those of the thread; None if the problem is too large.

    Inside the block other solves get empty caches. An error in the block drops the workspaces.
    """
    if given is not None:
        own, thread = SolverCache(), threading.get_ident()
        own.prepared, given.prepared = (given.prepared if given.thread == thread else {}), {}
        yield own
        given.prepared, given.thread = own.prepared, thread
        return
    numbers = size(ocp)
    if numbers > LARGEST:
        yield None
        return
    structure, known = structure_of(ocp), _kept.by_structure
    kept = known.pop(structure, (ocp, SolverCache()))[1]
    yield kept
    if kept.prepared:
        known[structure] = ocp, kept, numbers
        while len(known) > MOST or sum(own for *_, own in known.values()) > LARGEST:
            del known[next(iter(known))]


def size(ocp: OCP) -> int:
    """Numbers in a block of derivatives."""
    return int(ocp.horizon * (ocp.manifold.ndx + ocp.nu) ** 2)


def structure_of(ocp: OCP) -> Hashable:
    """What tells structures apart, as long as the problem lives: time steps, residuals, and how many knots."""
    groups = [(phase.dynamics, phase.knots, phase.terms, phase.constraints) for phase in ocp.phases]
    ends = ocp.terminal, ocp.terminal_constraints
    phases = ((id(dynamics), knots, *map(_residuals, parts)) for dynamics, knots, *parts in groups)
    return (*phases, *map(_residuals, ends))


def _residuals(parts: Any) -> tuple[int, ...]:
    return tuple(id(part.residual) for part in parts)
