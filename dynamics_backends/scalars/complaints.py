"""Messages about user functions that fail or cannot be traced: the function, the line in its source, and the remedy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np

PACKAGES = ("dynamics_backends", "trajopt")
"""Packages whose functions accept rows of any number type; their lines are not reported as user code."""
_ROOT = Path(__file__).parents[2]
_LIBRARIES = (*(f"{_ROOT / name}/" for name in PACKAGES), f"{Path(np.__file__).parent}/")
_OTHERS = ("/casadi/", "<frozen ")


def described(function: Any) -> str:
    """Name of a function with its file and line, or the class of a callable object."""
    function = _whole(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return type(function).__name__
    return f"function {function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def user_code_line(error: Exception, function: Any) -> str:
    """Line of user code that raised an error, " in line 3, `...`", with the file if it differs; "" for library code."""
    frames = [f for f in extract_tb(error.__traceback__) if not _in_a_library(f.filename)]
    if not frames:
        return ""
    code, last = getattr(_whole(function), "__code__", None), frames[-1]
    file = "" if code is not None and code.co_filename == last.filename else f" of {last.filename}"
    return f" in line {last.lineno}{file}, `{last.line}`"


def mistake(function: Any, error: Exception, sizes: Mapping[str, int], parameters: Mapping[str, Any]) -> str:
    """Sentence about an error that a user's function always raises: cause, line, and remedy.

    sizes: lengths of x and u. parameters: by name.
    """
    message = (str(error).strip() or "no message").splitlines()[-1].rstrip(".")
    if message.startswith(described(function)):
        return message
    what = f"{type(error).__name__}: {message}"
    if type(error) is KeyError and error.args[0] not in parameters:
        name, known = error.args[0], ", ".join(parameters) or "none"
        what = f"there is no parameter {name!r} (given: {known}); give it, parameters={{{name!r}: ...}}"
    elif writes(error):
        what = "it writes into its argument, which is the solver's: work on a copy, `x = x.copy()`, or make a new list"
    elif not sizes["u"] and (
        (isinstance(error, IndexError) and "size 0" in message)
        or (isinstance(error, ValueError) and "got 0)" in message)
    ):
        what = (
            f"{message}: it is called without controls; if it reads them, give their number, nu=..."
            " (a terminal term has none)"
        )
    elif isinstance(error, IndexError):
        what = f"{message}; {' and '.join(f'{name} has {n} numbers' for name, n in sizes.items())}"
    return f"{described(function)} fails{user_code_line(error, function)}: {what}"


def writes(error: Exception | None) -> bool:
    """True for the error of an assignment to a read-only array."""
    return isinstance(error, ValueError) and "read-only" in str(error)


def _whole(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _in_a_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or any(part in file for part in _OTHERS)
