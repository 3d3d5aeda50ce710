"""Scheduler of a window: each step runs one operation for as many waiting slots as SIMD lanes hold."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from trajopt.solvers.methods.driver import WAIT

DONE = 0
"""Operation code of a slot whose answer is ready."""
PATIENCE = 100
"""Scheduler steps after which a waiting operation runs even if more slots wait for another operation."""


class GroupedWindow(ABC):
    """Window whose slots wait for operations, numbered from 1 on; kernel functions return the number of the next operation.

    A slot has its ``address`` in C and ``waits``, the operation it waits for. The window sets its ``request`` and ``since``, the
    scheduler step at which the slot began to wait. answers: function that reads the answer from a slot, by request type.
    busy, all: busy lanes and all lanes, by direction (0 backward, 1 forward), summed over calls. active: running problems.
    """

    slots: Sequence[Any]
    active: int
    _asks: dict[type, Callable[[Any, Any], int]]
    """Function that posts a request and returns the operation to wait for, by request type; slots answer other types alone."""

    def __init__(self, kinds: int, lanes: int, answers: dict[type, Callable[[Any], Any]]) -> None:
        self.lanes, self._answers = lanes, answers
        self._waiting: list[deque[Any]] = [deque() for _ in range(kinds)]
        self._turn = 0
        self.busy, self.all = [0, 0], [0, 0]
        self._group_of = (ctypes.c_void_p * lanes)()
        self._group_address = ctypes.addressof(self._group_of)

    @abstractmethod
    def _work(self, kind: int, count: int) -> int | None:
        """Run operation ``kind`` for the first ``count`` slots at ``_group_address``.

        Returns 1 for a forward pass over the knots, 0 for a backward pass, None if lanes do not hold problems.
        """

    def ask(self, slot: Any, request: Any) -> Any:
        """Return the answer to the request of a slot, or WAIT."""
        own = self._asks.get(type(request))
        return slot.answer(request) if own is None else self._wait(slot, request, own(slot, request))

    def alone_at(self, slot: Any) -> Any:
        """Return the object that answers the requests of a slot without the window."""
        return slot

    def close(self) -> None:
        """Release the memory of the slots."""
        for slot in self.slots:
            slot.close()

    def _wait(self, slot: Any, request: Any, kind: int) -> Any:
        """Queue a slot for an operation, or return the answer if it is ready."""
        if kind == DONE:
            return self._answers[type(request)](slot)
        slot.request, slot.since = request, self._turn
        self._waiting[kind].append(slot)
        return WAIT

    def serve(self) -> list[tuple[Any, Any]]:
        """Run the most requested operation for one slot per lane; return the slots with a ready answer, and the answers."""
        kind = self._wanted()
        if kind is None:
            return []
        self._turn += 1
        waiting = self._waiting[kind]  # longest waiting first, one slot per lane
        group = [waiting.popleft() for _ in range(min(self.lanes, len(waiting)))]
        for lane, slot in enumerate(group):
            self._group_of[lane] = slot.address
        forward = self._work(kind, len(group))
        if forward is not None:
            self.busy[forward] += len(group)
            self.all[forward] += self.lanes
        answered: list[tuple[Any, Any]] = []
        for slot in group:
            waits = slot.data.waits
            if waits == DONE:
                answered.append((slot, self._answers[type(slot.request)](slot)))
            else:
                slot.since = self._turn
                self._waiting[waits].append(slot)
        return answered

    def _wanted(self) -> int | None:
        """Return the most requested operation, or one that has waited too long; None if no slot waits."""
        most, best, oldest, longest = 0, None, self._turn - PATIENCE, None
        for kind, waiting in enumerate(self._waiting):
            if waiting:
                if len(waiting) > most:
                    most, best = len(waiting), kind
                if waiting[0].since < oldest:
                    oldest, longest = waiting[0].since, kind
        return best if longest is None else longest
