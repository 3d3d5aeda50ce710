"""Environment variables of this package, checked when they are read.

| variable | value | if unset or blank |
|---|---|---|
| TRAJOPT_THREADS | whole number of threads, 0 for the number of processors | 0 |
| TRAJOPT_CACHE_DIR | folder of cached traces and meshes | the user's cache folder |
| TRAJOPT_MARCH | instruction set of the C library, such as x86-64-v3 | the best of this processor |
| CC | C compiler with its options, as in a shell, for exports and the build of the package | the first of cc, gcc, clang |
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from dynamics_backends.user_input import InputError, quoted

THREADS, COMPILER, MARCH = "TRAJOPT_THREADS", "CC", "TRAJOPT_MARCH"
CACHE_FOLDER = "TRAJOPT_CACHE_DIR"
MAX_THREADS = 4096


def threads() -> int:
    """Return TRAJOPT_THREADS, 0 if it is unset. Raises InputError for anything but a whole number from 0 to MAX_THREADS."""
    text = os.environ.get(THREADS, "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= MAX_THREADS):
        raise InputError(
            f"the environment variable {THREADS} is {quoted(text)}: set it to a number of threads from 1 to {MAX_THREADS}, "
            "or unset it to use all processors"
        )
    return int(text)


def compiler() -> tuple[str, ...]:
    """Return the words of CC, () if it is unset or blank. Raises InputError for an empty command and for unclosed quotes."""
    text = os.environ.get(COMPILER, "").strip()
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(
            f"the environment variable {COMPILER} is {quoted(text)} ({error}): correct or unset it"
        ) from None
    if text and not (words and words[0]):
        raise InputError(
            f"the environment variable {COMPILER} is {quoted(text)}, which names no compiler: correct or unset it"
        )
    return words


def folder(name: str) -> Path | None:
    """Return the folder that a variable names, None if it is unset or blank."""
    text = os.environ.get(name, "")
    return Path(text) if text.strip() else None
