"""Pictures drawn at the same time, by copies of this process."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Pictures = Mapping[Path, Callable[[], object]]
"""What draws each file; those that take longest first."""


def draw(pictures: Pictures) -> list[Path]:
    """Draw all of them, as many at a time as there are processors; returns the files in their order."""
    work, count = list(pictures.values()), min(os.cpu_count() or 1, len(pictures))
    if count > 1 and sys.platform.startswith("linux"):
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401  once for all

        shares = [work[i::count] for i in range(count)]
        children = [(_copy(share), share) for share in shares[1:]]
        _draw(shares[0])
        for child, share in children:
            if child is None or os.waitpid(child, 0)[1]:
                _draw(share)  # whatever went wrong there is raised here
    else:
        _draw(work)
    return list(pictures)


def _draw(work: Sequence[Callable[[], object]]) -> None:
    for picture in work:
        picture()


def _copy(work: Sequence[Callable[[], object]]) -> int | None:
    """The process that does some work; None where there is no room for one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, none of which draws
            child = os.fork()
    except OSError:
        return None
    if child:
        return child
    failed = 1
    try:
        _draw(work)
        failed = 0
    finally:
        os._exit(failed)
