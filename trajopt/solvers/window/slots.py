"""Slot of a problem: a C struct with its arrays, and the kernels that answer the requests of a method."""

from __future__ import annotations

import ctypes
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dynamics_backends.compiled.runtime.memory import address, aligned, bound
from dynamics_backends.machine.library import kernels
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Journal
from trajopt.solvers.methods.requests import Solved
from trajopt.solvers.window.memory import LINE
from trajopt.stage.solver_cache import SolverCache

Shape = tuple[int, ...]
new_tuple = tuple.__new__
"""Creates a named tuple from its type and values, in a fifth of the time of the constructor."""
_SECONDS = Struct("3d")


class Layout(NamedTuple):
    """Layout of arrays in one block of memory.

    places: start, in doubles, and shape of each array. doubles: total length. fields: indices of the 64-bit words of the struct
    that point to the arrays. offsets: their starts in bytes.
    """

    places: dict[str, tuple[int, Shape]]
    doubles: int
    fields: Array
    offsets: Array


def layout_of(struct: Any, shapes: Mapping[str, Shape], shared: Mapping[str, str] | None = None) -> Layout:
    """Return the layout of arrays in one block of memory, by field name of the C struct; each array starts on a cache line.

    shapes: shape of each array, in 64-bit numbers. shared: fields without memory, mapped to the field whose array they use.
    """
    same = shared or {}
    sizes = [0 if name in same else -(-math.prod(shape) // LINE) * LINE for name, shape in shapes.items()]
    starts = [0, *itertools.accumulate(sizes)]
    own = dict(zip(shapes, zip(starts, shapes.values(), strict=False), strict=True))
    places = {name: own[same.get(name, name)] for name in own}
    fields = [getattr(struct, name).offset // 8 for name in places]
    return Layout(places, starts[-1], np.array(fields), np.array([8 * at for at, _ in places.values()]))


def nothing() -> None:
    """Read the answer of a request without one."""


class Slot:
    """Slot: C struct with the iterates and steps of a problem, and the kernels that answer the requests of a method.

    own_workspace: give the kernels a separate workspace, as needed if another thread calls them. workspace: that of the window
    to which the slot belongs, which replaces any other. data: the struct; its member ``problem`` is the address of the problem.
    request, since: pending request in a window, and the scheduler step of its start.
    """

    data: Any
    request: Any = None
    since = 0
    name: ClassVar[str]
    """Key of the slot in the solver cache."""
    home: SolverCache | None = None
    """Cache to which the slot returns; None for no cache."""
    may_follow: bool
    """True if another solve can reuse the slot: its evaluator or program can load other problems."""
    _put: Callable[[int], None]
    _answers: Mapping[type, Callable[[Any], Any]] = {}
    """Functions that answer requests which no kernel answers alone."""
    calls: dict[type, Callable[[Any], None]]
    """Function that calls the kernel of each type of request."""
    readers: dict[type, Callable[[], Any]]
    """Function that reads the answer of the kernels to each type of request."""

    def __init__(self, data: Any, *, own_workspace: bool = False, workspace: Array | None = None) -> None:
        self.data, self.address = data, ctypes.addressof(data)
        self._own_workspace, self._window_workspace = own_workspace, workspace
        self._alive = list[Any]()
        self._seconds = type(data).seconds_0.offset

    def _workspace(self, pool: Any) -> int:
        """Return the address of the workspace of a kernel, and keep its memory alive.

        It is that of the window, else new memory if the slot has its own workspace, else the first array of the pool.
        """
        memory = self._window_workspace
        if memory is None:
            memory = aligned(pool.doubles) if self._own_workspace else pool[0]
        self._alive.append(memory)
        return address(memory)

    def answer(self, request: Any) -> Any:
        """Return the answer to a request: of the function for its type, if there is one, else of its kernel."""
        kind = type(request)
        if kind in self._answers:
            return self._answers[kind](request)
        self.calls[kind](request)
        return self.readers[kind]()

    def _bind(self, prefix: str, table: Mapping[type, tuple[str, str, Callable[[], Any]]]) -> None:
        """Answer requests by kernels.

        table: for each type of request, the name of its kernel without the prefix, codes of arguments (as for :func:`bound`),
        which the first fields of the request give, and the function that reads the answer.
        """
        self._put = bound(kernels(), f"{prefix}_put", "p")
        self.calls = {kind: self._call(f"{prefix}_{name}", codes) for kind, (name, codes, _) in table.items()}
        self.readers = {kind: read for kind, (*_, read) in table.items()}

    def _call(self, name: str, codes: str) -> Callable[[Any], None]:
        """Return a function that calls a kernel with the first fields of a request."""
        kernel, count = bound(kernels(), name, f"p{codes}"), len(codes)
        return lambda request: kernel(self.address, *request[:count])

    @classmethod
    def reused(cls, cache: SolverCache | None, make: Callable[..., Self], *given: Any) -> Self:
        """Take the slot out of the cache; return it if it serves the arguments ``given``, else drop it for ``make(*given)``.

        When closed, the slot returns to the cache if another solve may follow. cache None: the slot is always new, and returns to
        no cache. See :meth:`serves`, which may also load options.
        """
        known: Any = None if cache is None else cache.prepared.pop(cls.name, None)
        slot: Self = known if known is not None and known.serves(*given) else make(*given)
        slot.home = cache if slot.may_follow else None
        return slot

    def serves(self, *given: Any) -> bool:
        """True if the slot serves these arguments: its own evaluators or program, and a problem of its sizes."""
        raise NotImplementedError

    def close(self) -> None:
        """Return the slot to its cache, if it has one. Later solves overwrite all arrays of the slot."""
        if self.home is not None:
            self.home.prepared[self.name], self.home = self, None

    def put(self) -> None:
        """Copy the current iterate, states and controls, to the solution arrays of the problem."""
        self._put(self.address)

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Seconds in derivatives, sweeps and rollouts since the last access; an access resets them."""
        spent: Any = _SECONDS.unpack_from(self.data, self._seconds)
        _SECONDS.pack_into(self.data, self._seconds, 0.0, 0.0, 0.0)
        return spent

    def note_times(self, journal: Journal) -> None:
        """Add the seconds in derivatives, sweeps and rollouts since the last call to the current record of the history."""
        journal.spent(*self.seconds)


class ArraySlot(Slot, ABC):
    """Slot whose arrays share one block of memory, for reuse by later solves."""

    def __init__(self, data: Any, layout: Layout, **workspace: Any) -> None:
        """Allocate memory, and write the addresses of the arrays to the struct."""
        super().__init__(data, **workspace)
        self._places = layout.places
        self._memory = aligned(layout.doubles)
        words: Any = np.frombuffer(data, np.int64)
        words[layout.fields] = layout.offsets + address(self._memory)

    def view(self, name: str) -> Array:
        """Return an array of the slot by field name, as a view of its memory."""
        at, shape = self._places[name]
        return self._memory[at : at + math.prod(shape)].reshape(shape)

    @property
    @abstractmethod
    def _current(self) -> str:
        """Prefix of the struct fields of the current iterate, such as "points_0"."""

    @property
    def trajectory(self) -> tuple[Array, Array]:
        """States and controls of the current iterate, as views."""
        return self.view(f"{self._current}_xs"), self.view(f"{self._current}_us")

    @property
    def cost(self) -> float:
        """Cost of the current iterate."""
        return float(getattr(self.data, f"{self._current}_cost"))

    def _values(self, ocp: OCP, guess: Guess) -> list[int | None]:
        """Return the addresses of a problem's values, for its struct; the slot keeps the arrays, of which the guess is a copy.

        In order: x0, guess xs and us, lower and upper control bounds (None for no bounds), and the solution xs, us, K, k. The
        solution uses the arrays of the copied guess, with zero gains.
        """
        xs, us = (np.array(rows, dtype=float, order="C") for rows in guess)
        N, m = us.shape
        self._solution = own = Solved(xs, us, np.zeros((N, m, ocp.manifold.ndx)), np.zeros((N, m)))
        limits = [np.ascontiguousarray(b, float) for b in ocp.control_bounds or ()]
        x0 = np.ascontiguousarray(ocp.x0, float)
        self._given = x0, limits
        bounds: list[int | None] = [address(b) for b in limits] or [None, None]
        return [*map(address, (x0, xs, us)), *bounds, *map(address, own)]

    def solution(self) -> Solved:
        """Return the current iterate, with the gains of the last Gains request (zero before the first one)."""
        self.put()
        return self._solution
