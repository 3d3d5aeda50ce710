"""Measurements of this project's code compiled for generic processors, like a wheel.

Wheels on PyPI, such as Pinocchio and Crocoddyl, are compiled for any x86-64 processor (SSE2, two numbers per vector). Code of this
project is compiled for the local processor, with vectors up to four times as wide. Comparisons with such wheels therefore have a
column with generic code of this project, measured in a separate process.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from dynamics_backends.compiled.runtime.toolchain import MARCH, NATIVE, find_toolchain
from experiments.analysis.environment import with_variable

Result = TypeVar("Result")

GENERIC = {"x86_64": "x86-64", "AMD64": "x86-64", "aarch64": "armv8-a"}.get(platform.machine(), NATIVE)
"""Instruction set of wheels for this kind of processor, as an -march value."""
COLUMN = "ours, generic"
"""Heading of the column."""
WHEEL = f"its wheel on PyPI, for any {platform.machine()} processor"
PEERS = {
    "Crocoddyl": WHEEL,
    "Pinocchio": WHEEL,
    "CasADi": "its generated C code, compiled on this machine with -march=native",
    "IPOPT": WHEEL.replace("its wheel", "in CasADi's wheel"),
}
"""Library -> build used in the benchmarks."""


class GenericProcess:
    """Context manager of a process whose code is compiled for :data:`GENERIC`.

    Functions must be importable by name, and their arguments picklable.
    """

    def __enter__(self) -> GenericProcess:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        with with_variable(MARCH, GENERIC):  # the process reads it at its start
            instruction_set = self.call(_instruction_set)
        assert instruction_set == GENERIC, instruction_set
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in that process and return its result; exceptions are passed on."""
        return self._pool.submit(function, *arguments).result()


def _instruction_set() -> str:
    return find_toolchain().march


def build_notes(*peers: str) -> str:
    """Return lines about the compilation of this project and its peers, for the head of a report."""
    found = find_toolchain()
    flags = " ".join(flag for flag in found.flags if flag.startswith(("-O", "-march", "-ff", "-fno")))
    ours = f"this library: {found.version}, {flags}, {found.lanes} numbers per vector; '{COLUMN}': the same with -march={GENERIC}"
    return "\n".join(f"- {line}" for line in (ours, *(f"{peer}: {PEERS[peer]}" for peer in peers)))
