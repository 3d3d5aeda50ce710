"""Slots of a window that wait for work, which is done for as many of them together as there are lanes."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from trajopt.solvers.methods.driver import WAIT

DONE = 0
"""The kind of work that a slot waits for whose answer is there."""
PATIENCE = 100
"""Turns after which a kind of work is done although more slots wait for another."""


class GroupedWindow(ABC):
    """Slots that wait for some kinds of work: numbers from 1 on, which the functions of a kernel return.

    A slot has its ``address`` in C, ``waits`` (the kind of work it waits for now), and what the window notes there: its
    ``request``, and the turn ``since`` which it waits. answers: by type of request, the answer in a slot that has it.
    busy, all: lanes with a problem and all lanes, by the direction of the work, summed over the calls. active: problems at work.
    """

    slots: Sequence[Any]
    active: int
    _asks: dict[type, Callable[[Any, Any], int]]
    """By type of request, the function that returns what the slot waits for; a slot answers the other requests by itself."""

    def __init__(self, kinds: int, lanes: int, answers: dict[type, Callable[[Any], Any]]) -> None:
        self.lanes, self._answers = lanes, answers
        self._waiting: list[deque[Any]] = [deque() for _ in range(kinds)]
        self._turn = 0
        self.busy, self.all = [0, 0], [0, 0]
        self._group_of = (ctypes.c_void_p * lanes)()
        self._group_address = ctypes.addressof(self._group_of)

    @abstractmethod
    def _work(self, kind: int, count: int) -> int | None:
        """Do work of a kind for the slots of ``_group_address``.

        Returns whether that goes forward over the knots (1) or backward (0); None where lanes held no problems.
        """

    def ask(self, slot: Any, request: Any) -> Any:
        """The answer for a slot, or WAIT."""
        own = self._asks.get(type(request))
        return slot.answer(request) if own is None else self._wait(slot, request, own(slot, request))

    def alone_at(self, slot: Any) -> Any:
        """What answers for a slot alone."""
        return slot

    def close(self) -> None:
        """Give memory back."""
        for slot in self.slots:
            slot.close()

    def _wait(self, slot: Any, request: Any, kind: int) -> Any:
        """Let a slot wait for a kind of work, or answer at once."""
        if kind == DONE:
            return self._answers[type(request)](slot)
        slot.request, slot.since = request, self._turn
        self._waiting[kind].append(slot)
        return WAIT

    def serve(self) -> list[tuple[Any, Any]]:
        """Do the work that most slots wait for, for as many as there are lanes: those that have their answer, with it."""
        kind = self._wanted()
        if kind is None:
            return []
        self._turn += 1
        waiting = self._waiting[kind]  # those that have waited the longest, at most one for each lane
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
        """The kind of work that most slots wait for, unless one has waited for long; None: none waits."""
        most, best, oldest, longest = 0, None, self._turn - PATIENCE, None
        for kind, waiting in enumerate(self._waiting):
            if waiting:
                if len(waiting) > most:
                    most, best = len(waiting), kind
                if waiting[0].since < oldest:
                    oldest, longest = waiting[0].since, kind
        return best if longest is None else longest
