"""The slot of a problem: a struct of C with its arrays, and the kernels that answer the requests of a method."""

from __future__ import annotations

import ctypes
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.resources import files
from struct import Struct
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, aligned, bound
from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Journal
from trajopt.solvers.methods.requests import Solved
from trajopt.solvers.window.memory import LINE, shelf
from trajopt.stage.solver_cache import SolverCache

Shape = tuple[int, ...]
_SECONDS = Struct("3d")


class Layout(NamedTuple):
    """Arrays in one piece of memory: where each begins, in doubles, and its shape; their length together; and which words of a
    struct point to them, how many bytes from the first one.
    """

    places: dict[str, tuple[int, Shape]]
    doubles: int
    fields: Array
    offsets: Array


def layout_of(struct: Any, shapes: Mapping[str, Shape], shared: Mapping[str, str] | None = None) -> Layout:
    """The layout of the arrays of a struct, by the names of its fields. shared: names of arrays that are others."""
    same = shared or {}
    sizes = [0 if name in same else -(-math.prod(shape) // LINE) * LINE for name, shape in shapes.items()]
    starts = [0, *itertools.accumulate(sizes)]
    own = dict(zip(shapes, zip(starts, shapes.values(), strict=False), strict=True))
    places = {name: own[same.get(name, name)] for name in own}
    fields = [getattr(struct, name).offset // 8 for name in places]
    return Layout(places, starts[-1], np.array(fields), np.array([8 * at for at, _ in places.values()]))


def constants(values: Mapping[str, Any]) -> str:
    """The C text of constants."""
    return "\n".join(f"#define {name} {value!r}" for name, value in values.items())


def kernel(name: str) -> str:
    """The C text of a file of kernels."""
    return (files("trajopt.solvers.window") / "kernels" / name).read_text()


def functions(library: ctypes.CDLL, prefix: str, default: type | None = None) -> Callable[..., Callable[..., Any]]:
    """Binds functions of a library by their names behind a prefix, with what they take and return (``default``, if not told)."""

    def function(name: str, arguments: str, returns: type | None = default) -> Callable[..., Any]:
        return bound(library, f"{prefix}_{name}", arguments, returns)

    return function


class Answering:
    """Answers the requests of a method, each by its own function."""

    _answers: dict[type, Callable[[Any], Any]]

    def answer(self, request: Any) -> Any:
        """The answer to a request of the method."""
        return self._answers[type(request)](request)

    def note_times(self, journal: Journal) -> None:
        """Add the seconds since the last call to the record in the making, unless the journal has timed the work itself."""

    def close(self) -> None:
        """Give memory back."""


class Slot(Answering):
    """A struct and its kernels. own_rooms: whether the kernels work in memory of its own, as where another thread calls them.

    room: the memory of a window where the slot is one of it, whose kernels have no other. data: the struct. problem: the address
    of the problem. request, since: what it waits for in a window, and from which turn on.
    """

    data: Any
    problem: int
    request: Any = None
    since = 0
    _put: Callable[[int], None]

    def __init__(self, data: Any, *, own_rooms: bool = False, room: Array | None = None) -> None:
        self.data, self.address = data, ctypes.addressof(data)
        self._own_rooms, self._window_room = own_rooms, room
        self._alive = list[Any]()
        self._seconds = type(data).seconds_0.offset

    def _room(self, rooms: Any) -> int:
        """The address of the memory that kernels work in."""
        room = self._window_room
        if room is None:
            room = aligned(rooms.doubles) if self._own_rooms else rooms[0]
        self._alive.append(room)
        return address(room)

    def put(self) -> None:
        """Write the trajectory where the solve is to where the problem wants it."""
        self._put(self.address)

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Seconds in derivatives, sweeps and rollouts since the last call of this."""
        spent: Any = _SECONDS.unpack_from(self.data, self._seconds)
        _SECONDS.pack_into(self.data, self._seconds, 0.0, 0.0, 0.0)
        return spent

    def note_times(self, journal: Journal) -> None:
        """Add the seconds since the last call to the record in the making."""
        journal.spent(*self.seconds)


class ArraySlot(Slot, ABC):
    """A slot whose arrays are one piece of memory, which is kept for later solves. home: where, None where it is not."""

    name: ClassVar[str]
    """The name under which the slot is kept."""
    home: SolverCache | None

    def __init__(self, data: Any, layout: Layout, **rooms: Any) -> None:
        super().__init__(data, **rooms)
        self._places, self.home = layout.places, None
        self._memory = shelf.take(layout.doubles)
        words: Any = np.frombuffer(data, np.int64)
        words[layout.fields] = layout.offsets + address(self._memory)

    @classmethod
    def of(cls, kept: SolverCache | None, *given: Any, may_follow: bool) -> Self:
        """The slot of one problem, made of what is given, or one that is kept. may_follow: whether later solves may have it."""
        known: Any = None if kept is None else kept.prepared.pop(cls.name, None)
        if known is not None and known.serves(*given):
            known.home = kept
            return known
        made = cls(*given)
        made.home = kept if may_follow else None
        return made

    @abstractmethod
    def serves(self, *given: Any) -> bool:
        """True if it is made of the given parts, and has memory for the problem."""

    def close(self) -> None:
        """Give the memory back, or leave it for the next solve: nothing that came from here may be used any more."""
        if self.home is None:
            shelf.put_back(self._memory)
        else:
            self.home.prepared[self.name], self.home = self, None

    @property
    def bytes(self) -> int:
        """Bytes of its memory."""
        return int(self._memory.nbytes)

    def view(self, name: str) -> Array:
        """One of the arrays."""
        at, shape = self._places[name]
        return self._memory[at : at + math.prod(shape)].reshape(shape)

    @property
    @abstractmethod
    def _here(self) -> str:
        """The prefix of the fields of where the solve is."""

    @property
    def trajectory(self) -> tuple[Array, Array]:
        """xs and us where the solve is, as they are now."""
        return self.view(f"{self._here}_xs"), self.view(f"{self._here}_us")

    @property
    def cost(self) -> float:
        """The cost where the solve is."""
        return float(getattr(self.data, f"{self._here}_cost"))

    def _values(self, ocp: OCP, guess: Guess) -> list[int | None]:
        """The addresses of x0, of xs and us of a guess, and of bounds on the controls; then those of where the solution goes."""
        xs, us = (np.array(rows, dtype=float, order="C") for rows in guess)
        N, m = us.shape
        self._solution = own = Solved(xs, us, np.zeros((N, m, ocp.manifold.ndx)), np.zeros((N, m)))
        limits = [np.ascontiguousarray(b, float) for b in ocp.control_bounds or ()]
        x0 = np.ascontiguousarray(ocp.x0, float)
        self._given = x0, limits
        bounds: list[int | None] = [address(b) for b in limits] or [None, None]
        return [*map(address, (x0, xs, us)), *bounds, *map(address, own)]

    def solution(self) -> Solved:
        """The trajectory where the solve is, with the gains that were asked for."""
        self.put()
        return self._solution
