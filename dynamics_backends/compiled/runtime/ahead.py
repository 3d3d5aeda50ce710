"""Libraries of texts that are the same for many problems: there, or made aside for the next time."""

from __future__ import annotations

from functools import lru_cache

from dynamics_backends.compiled.runtime.aside import Aside, aside
from dynamics_backends.compiled.runtime.cache import existing, key_of, load


def is_there(source: str) -> bool:
    """Whether the library of a text can be had without compiling it; where it cannot, another process is asked to.

    Where there is none to ask, it is compiled here.
    """
    if existing(key_of(source)) is not None:
        return True
    if _asked(source) is not None:
        return False
    load(source)
    return True


@lru_cache(maxsize=32)
def _asked(source: str) -> Aside | None:
    return aside(lambda: load(source))
