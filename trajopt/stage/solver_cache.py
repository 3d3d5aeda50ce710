"""What solves leave for later ones of the same structure: compiled stages that are bound to memory, that memory, plans of calls.

A thread keeps it for the structures that it has solved last. The next problem of a structure brings all values of its own: x0,
bounds, weights, references, parameters and time steps are never kept.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from trajopt.problem.ocp import OCP

MOST, LARGEST = 4, 1_000_000
"""How many structures a thread keeps something for, and numbers in a block of derivatives of all of them together; the least
recently solved one is forgotten first."""


class SolverCache:
    """What solvers have prepared for problems of one structure: memory, compiled code, plans of calls.

    A solve leaves it here for the next one, whose problem may have other values; one that does not fit is made anew. Of use to one
    solve at a time, of the thread that has filled it: others begin anew. Empty where it is pickled or copied.
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
    """What is kept for the structure of a problem: what is given, else what the thread has; None for one that is too large.

    Inside, other solves find nothing. It is forgotten where an error ends the block.
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
