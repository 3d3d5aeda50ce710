"""The C compiler, for exported controllers and comparisons with generated code; a solve needs none."""

from __future__ import annotations

import shutil

from dynamics_backends import environment
from dynamics_backends.user_input import InputError

_REMEDY = "install one (Debian, Ubuntu: apt install gcc libc6-dev), or name one in the environment variable CC"


class CompilerError(RuntimeError):
    """Missing compiler or failed compilation; the message contains the compiler's output or the remedy."""


def compiler_command() -> list[str]:
    """Words of the environment variable CC, or the first of cc, gcc, clang on the PATH. Raises CompilerError if there is none."""
    try:
        words = list(environment.compiler())
    except InputError as error:
        raise CompilerError(f"no C compiler: {error}") from error
    if words and shutil.which(words[0]) is None:
        raise CompilerError(f"no C compiler: CC names {words[0]}, which was not found; correct or unset CC")
    found = words or [path for path in map(shutil.which, ("cc", "gcc", "clang")) if path][:1]
    if not found:
        raise CompilerError(f"no C compiler: none of cc, gcc, clang is on the PATH; {_REMEDY}")
    return found
