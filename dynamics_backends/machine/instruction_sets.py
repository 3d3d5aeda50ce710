"""Instruction sets of the C library, smallest first, and the library file of each."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

X86_64 = ("x86-64", "x86-64-v3", "x86-64-v4")
"""Instruction sets by -march names: SSE2, AVX2 with FMA, AVX-512, with 2, 4 and 8 doubles in a vector."""
FOLDER = Path(__file__).parent
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
PROCESSOR = FOLDER / f"processor{SUFFIX}"
"""Library that detects the best instruction set of this processor."""


def instruction_sets() -> tuple[str, ...]:
    """Instruction sets for this machine architecture; '' for the compiler's default."""
    return X86_64 if platform.machine().lower() in ("x86_64", "amd64") else ("",)


def library_file(instructions: str) -> Path:
    """Path of the library for an instruction set."""
    return FOLDER / f"kernels{'-' if instructions else ''}{instructions}{SUFFIX}"
