"""Instruction sets that the library is built for, the least first, and the file of each."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

X86_64 = ("x86-64", "x86-64-v3", "x86-64-v4")
"""SSE2, AVX2 with FMA, AVX-512: 2, 4 and 8 doubles in a vector; names as -march takes them."""
FOLDER = Path(__file__).parent
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
PROCESSOR = FOLDER / f"processor{SUFFIX}"
"""The library that detects the best instruction set of this processor."""


def instruction_sets() -> tuple[str, ...]:
    """Instruction sets of this kind of processor; '' for the compiler's default."""
    return X86_64 if platform.machine().lower() in ("x86_64", "amd64") else ("",)


def library_file(instructions: str) -> Path:
    """The library for an instruction set."""
    return FOLDER / f"kernels{'-' if instructions else ''}{instructions}{SUFFIX}"
