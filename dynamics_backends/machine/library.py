"""C library of the package, loaded for an instruction set, with the declarations of the headers in the folder include.

There is a library for each instruction set of x86-64, and one for other processors. The best one of this processor is used; the
environment variable TRAJOPT_MARCH selects a smaller one (x86-64, x86-64-v3).
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from dynamics_backends import environment
from dynamics_backends.user_input import InputError

X86_64 = ("x86-64", "x86-64-v3", "x86-64-v4")
"""Instruction sets by -march names: SSE2, AVX2 with FMA, AVX-512, with 2, 4 and 8 doubles in a vector."""
FOLDER = Path(__file__).parent
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
PROCESSOR = FOLDER / f"processor{SUFFIX}"
"""Library that detects the best instruction set of this processor."""


def instruction_sets() -> tuple[str, ...]:
    """Instruction sets for this machine architecture, the smallest first; ("",), the compiler's default, unless it is x86-64."""
    return X86_64 if platform.machine().lower() in ("x86_64", "amd64") else ("",)


def library_file(instructions: str) -> Path:
    """Path of the library for an instruction set, '' for the compiler's default; the file may be missing."""
    return FOLDER / f"kernels{'-' if instructions else ''}{instructions}{SUFFIX}"


FALLBACKS = {"x86-64-v2": "x86-64"}
"""Instruction sets without a library, and the next smaller one."""
_REMEDY = "build it by `pip install -e .`, or all instruction sets in a checkout by `make kernels`"


class LibraryMissing(ImportError):
    """The package's C library was not built, is missing or cannot be loaded; the message names the remedy."""


try:
    from dynamics_backends.machine._declarations import ffi  # type: ignore[import-not-found, unused-ignore]
except ModuleNotFoundError:  # while the library is built
    ffi = cast(Any, None)


def _require_declarations() -> None:
    """Raise LibraryMissing unless the declarations of the C library exist."""
    if ffi is None:
        raise LibraryMissing(f"the C library of the package was not built: {_REMEDY}")


def enumerators(name: str) -> dict[str, int]:
    """Return the numbers of a C enum of the headers by name. Raises LibraryMissing."""
    _require_declarations()
    return {key: int(number) for key, number in ffi.typeof(f"enum {name}").relements.items()}


@lru_cache(maxsize=8)
def _opened(file: Path) -> Any:
    """Loaded library, cached so that it stays loaded while its functions are in use. Raises LibraryMissing."""
    _require_declarations()
    if not file.is_file():
        raise LibraryMissing(f"the C library {file} is missing: {_REMEDY}")
    try:
        return ffi.dlopen(str(file))
    except OSError as error:
        raise LibraryMissing(f"the C library {file} cannot be loaded ({error}): {_REMEDY}") from error


def require_library(instructions: str) -> None:
    """Raise LibraryMissing unless the library for an instruction set was built and can be loaded."""
    _opened(library_file(instructions))


def chosen_instructions() -> str:
    """Instruction set that TRAJOPT_MARCH names; the best one of this processor if it is unset or names an unknown set.

    Raises InputError for a known set that this processor lacks, LibraryMissing if the package was not built.
    """
    return _chosen(os.environ.get(environment.MARCH, ""))


@lru_cache(maxsize=4)
def _chosen(name: str) -> str:
    """Instruction set of this name, or the next smaller one in FALLBACKS; the best one for another name without a library.

    Raises InputError if the processor lacks it. Cached.
    """
    known = instruction_sets()
    best = _opened(PROCESSOR).best_instruction_set()
    if name in known[best + 1 :]:
        raise InputError(
            f"the environment variable {environment.MARCH} is {name}, which this processor does not support: set it to "
            f"{' or '.join(known[: best + 1])}, or unset it"
        )
    name = FALLBACKS.get(name, name)
    return name if name in known else known[best]


def library() -> Any:
    """Library for the selected instruction set. Raises InputError for one that this processor lacks, LibraryMissing."""
    return _opened(library_file(chosen_instructions()))


def lanes() -> int:
    """Number of doubles in a vector of the library for the selected instruction set."""
    return int(library().lanes())


def loop(name: str) -> Any:
    """Recursive algorithm of the library (loop_t of include/loops.h); None for a name that it does not contain."""
    found = library().loop_named(name.encode())
    return None if found == ffi.NULL else found


def python_function(
    signature: str, function: Callable[..., Any], failed: Any, on_error: Callable[[type, BaseException, Any], None]
) -> tuple[Any, int]:
    """C function that calls a Python function, and its address; it exists as long as the first result.

    signature: its C type, such as "double(long)". on_error: called with type, value and traceback of an exception of the function,
    or of Ctrl-C before its first line; the C function then returns ``failed``, None for a function without result.
    """
    made = ffi.callback(signature, function, error=failed, onerror=on_error)
    return made, int(ffi.cast("intptr_t", made))


def kernels() -> ctypes.CDLL:
    """Library for the chosen instruction set, opened by ctypes, for functions that take addresses of arrays.

    Raises InputError for an instruction set that this processor lacks, LibraryMissing.
    """
    return _by_ctypes(chosen_instructions())


@lru_cache(maxsize=8)
def _by_ctypes(instructions: str) -> ctypes.CDLL:
    """Library for an instruction set, opened by ctypes, cached. Raises LibraryMissing."""
    require_library(instructions)
    return ctypes.CDLL(str(library_file(instructions)))
