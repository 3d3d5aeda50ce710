"""Start of a solve whose compiled code is not in the cache yet.

"compiled"     it is waited for
"at once"      what is there serves, NumPy where there is nothing, while another process compiles
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

from dynamics_backends import environment

Start = Literal["compiled", "at once"]
STARTS: tuple[Start, ...] = get_args(Start)
_start: ContextVar[Start | None] = ContextVar("start", default=None)
_served: ContextVar[dict[str, None] | None] = ContextVar("served", default=None)


@contextmanager
def starting(start: str | None) -> Iterator[None]:
    """Set the start of solves inside the block; None keeps it. Raises ValueError for an unknown start."""
    if start not in (None, *STARTS):
        raise ValueError(f"start = {start!r}; expected one of {', '.join(map(repr, STARTS))}")
    token = _start.set(start or _start.get())
    try:
        yield
    finally:
        _start.reset(token)


def starts_at_once() -> bool:
    """True if a solve begins before its libraries are there: as :func:`starting` says, else TRAJOPT_START, else not."""
    return (_start.get() or environment.start()) == "at once"


@contextmanager
def served() -> Iterator[dict[str, None]]:
    """The engines that serve solves inside which start at once, in the order in which they came: keys of what is yielded."""
    found: dict[str, None] = {}
    token = _served.set(found)
    try:
        yield found
    finally:
        _served.reset(token)


def note_serving(engine: str) -> None:
    """Take note of an engine that serves."""
    found = _served.get()
    if found is not None:
        found[engine] = None
