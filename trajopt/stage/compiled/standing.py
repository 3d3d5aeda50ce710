"""Calls of compiled stages at arrays that stay where they are, as those of a solver that goes back and forth between a few points.

What a call needs is told once: arguments, addresses, memory. First derivatives leave the substeps of the integrator in memory of
the point, so that second ones follow at any later time. They run on the calling thread.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from dynamics_backends.compiled.interface.libraries import address, aligned
from dynamics_backends.protocol import Array
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.compiled.library import EndFirstData, FirstData, PointData, SecondData, ValuesData
from trajopt.stage.pool import numbers_filled, worth_sharing
from trajopt.stage.stages import StageDerivatives, Stages


class Standing(Protocol):
    """Stages at a point: what they fill is in the arrays that were given."""

    def values(self) -> None:
        """Fill the values."""
        ...

    def first(self) -> None:
        """Fill the values and first derivatives, and Q, S and R where these are those of the cost alone."""
        ...

    def second(self, sigma: float, lam: int | None, y: int | None) -> None:
        """Fill Q, S and R with the Hessian of sigma l + lam'd + y'g, after first derivatives at the same point; not of calls for
        Gauss-Newton's.

        lam, y: addresses of contiguous arrays (K, n) and (K, ng).
        """
        ...


def standing(
    stages: Stages, x: Array, u: Array, nodes: Array, out: StageDerivatives, *, exact: bool = True
) -> Standing | None:
    """The calls for contiguous arrays x (K, nx), u (K, m), nodes (K, nx) and ``out``. exact: whether Q, S and R are those of second
    derivatives, else Gauss-Newton's, which come with the first ones.

    None for stages that are not compiled for this, or whose knots are shared by threads.
    """
    if not isinstance(stages, CompiledStages | CompiledEnd):
        return None
    parts = stages.library.shape.parts
    if "first" not in parts or "rollout" in parts or (exact and "second" not in parts):
        return None
    if isinstance(stages, CompiledEnd):
        return _StandingEnd(stages, x, out)
    lanes = stages.library.lanes
    if worth_sharing(-(-len(x) // lanes), lanes, numbers_filled(out.A.shape[1], u.shape[1])):
        return None
    return _StandingStages(stages, x, u, nodes, out, exact)


class _StandingStages:
    def __init__(
        self, stages: CompiledStages, x: Array, u: Array, nodes: Array, out: StageDerivatives, exact: bool
    ) -> None:
        library, v = stages.library, out.values
        at, room, kept = PointData(*map(address, (x, u, nodes))), library.rooms[0], None
        head = (ctypes.addressof(stages.data), ctypes.addressof(at), 0, len(x))
        blocks = [address(block) for block in (out.Q, out.S, out.R)]
        if exact:
            substeps = stages.data.substeps
            kept = aligned(-(-len(x) // library.lanes) * library.kept * substeps * library.lanes)
            self._second_to = second_to = SecondData(0.0, None, None, address(kept), *blocks)
            second_room = library.second_rooms(substeps)[0]
            self._second = library.second
            self._to_second = (*head, ctypes.addressof(second_to), address(second_room))
            self._alive_for_second: Any = second_to, second_room
        values_to = ValuesData(*map(address, v))
        first = map(address, (*v, out.A, out.B, out.lx, out.lu, out.gx, out.gu))
        first_to = FirstData(*first, *(blocks if kept is None else 3 * [None]), None if kept is None else address(kept))
        self._functions = library.values, library.first
        self._to_values = (*head, ctypes.addressof(values_to), address(room))
        self._to_first = (*head, ctypes.addressof(first_to), address(room))
        self._alive: Any = stages, x, u, nodes, out, kept, at, values_to, first_to, room

    def values(self) -> None:
        self._functions[0](*self._to_values)

    def first(self) -> None:
        self._functions[1](*self._to_first)

    def second(self, sigma: float, lam: int | None, y: int | None) -> None:
        to = self._second_to
        to.sigma, to.lam, to.y = sigma, lam, y
        self._second(*self._to_second)


class _StandingEnd:
    def __init__(self, end: CompiledEnd, x: Array, out: StageDerivatives) -> None:
        library, v = end.library, out.values
        first_to = EndFirstData(*map(address, (v.cost, v.g, out.lx, out.gx, out.Q)))
        room = library.rooms[0]
        self._functions = library.end_values, library.end_first
        self._head = (ctypes.addressof(end.data), address(x))
        self._to_values = (*self._head, 0, 1, address(v.cost), address(v.g), address(room))
        self._to_first = (*self._head, ctypes.addressof(first_to), address(room))
        self._to_second = address(out.Q), address(room)
        self._library = library
        self._alive: Any = end, x, out, first_to, room

    def values(self) -> None:
        self._functions[0](*self._to_values)

    def first(self) -> None:
        self._functions[1](*self._to_first)

    def second(self, sigma: float, lam: int | None, y: int | None) -> None:
        self._library.end_second(*self._head, sigma, y, *self._to_second)
