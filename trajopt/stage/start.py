"""Start of a solve whose compiled code is not in the cache yet.

"compiled"     the solve waits for the compiler
"at once"      the solve starts with the code in the cache, or NumPy, while a background process compiles
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
    """Set the start of solves inside the block; None leaves it unchanged. Raises ValueError for an unknown start."""
    if start not in (None, *STARTS):
        raise ValueError(f"start = {start!r}; expected one of {', '.join(map(repr, STARTS))}")
    token = _start.set(start or _start.get())
    try:
        yield
    finally:
        _start.reset(token)


def starts_at_once() -> bool:
    """True if solves start before their code is compiled: from :func:`starting`, else TRAJOPT_START, else False."""
    return (_start.get() or environment.start()) == "at once"


@contextmanager
def served() -> Iterator[dict[str, None]]:
    """Yield a dict whose keys become the engines used by solves that start at once inside the block, in order of first use."""
    result: dict[str, None] = {}
    token = _served.set(result)
    try:
        yield result
    finally:
        _served.reset(token)


def record_engine(engine: str) -> None:
    """Record an engine that evaluates stages, for :func:`served`."""
    result = _served.get()
    if result is not None:
        result[engine] = None
