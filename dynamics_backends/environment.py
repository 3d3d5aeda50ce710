"""Environment variables of this package.

| variable | value | if unset or blank |
|---|---|---|
| TRAJOPT_THREADS | whole number of threads, 0 for the number of processors | 0 |
| TRAJOPT_CACHE_DIR | folder of cached traces and meshes | the user's cache folder |
| TRAJOPT_MARCH | instruction set of the C library, such as x86-64-v3 | the best of this processor, as for unknown names |
| CC | C compiler with its options, as in a shell, for exports and the build of the package | the first of cc, gcc, clang |

The C compiler serves exported controllers and comparisons with generated code; a solve needs none.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from dynamics_backends.user_input import InputError, quoted

THREADS, COMPILER, MARCH = "TRAJOPT_THREADS", "CC", "TRAJOPT_MARCH"
CACHE_FOLDER = "TRAJOPT_CACHE_DIR"
MAX_THREADS = 4096


def threads() -> int:
    """Return TRAJOPT_THREADS, 0 (all processors) if unset or blank. Raises InputError unless it is an integer, 0 to MAX_THREADS."""
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
    """Return the folder that a variable names, None if it is unset or blank; the folder may be missing."""
    text = os.environ.get(name, "")
    return Path(text) if text.strip() else None


_REMEDY = "install one (Debian, Ubuntu: apt install gcc libc6-dev), or name one in the environment variable CC"


class CompilerError(RuntimeError):
    """Missing compiler or failed compilation; the message contains the compiler's output or the remedy."""


def compiler_command() -> list[str]:
    """Words of the environment variable CC, or if it is unset or blank the path of the first of cc, gcc, clang on the PATH.

    Raises CompilerError if CC is invalid or names a program that is not found, or if no compiler is found.
    """
    try:
        words = list(compiler())
    except InputError as error:
        raise CompilerError(f"no C compiler: {error}") from error
    if words and shutil.which(words[0]) is None:
        raise CompilerError(f"no C compiler: CC names {words[0]}, which was not found; correct or unset CC")
    found = words or [path for path in map(shutil.which, ("cc", "gcc", "clang")) if path][:1]
    if not found:
        raise CompilerError(f"no C compiler: none of cc, gcc, clang is on the PATH; {_REMEDY}")
    return found
