"""Measurements of this project's library for generic processors.

Wheels on PyPI, such as Pinocchio and Crocoddyl, are compiled for any x86-64 processor (SSE2, two numbers per vector). This project
selects its library by the processor, with vectors up to four times as wide. Comparisons with such wheels therefore have a column
with the generic library of this project, measured in a separate process.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from dynamics_backends.environment import MARCH
from dynamics_backends.machine.library import chosen_instructions, instruction_sets, lanes, require_library
from experiments.analysis.environment import with_variable

Result = TypeVar("Result")

GENERIC = instruction_sets()[0]
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
    """Context manager of a process that uses the library for :data:`GENERIC`.

    Functions must be importable by name, and their arguments picklable. Raises LibraryMissing if only the library of this processor
    was built.
    """

    def __enter__(self) -> GenericProcess:
        require_library(GENERIC)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        with with_variable(MARCH, GENERIC):  # the process reads it at its start
            instruction_set = self.call(chosen_instructions)
        assert instruction_set == GENERIC, instruction_set
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in that process and return its result; exceptions are passed on."""
        return self._pool.submit(function, *arguments).result()


def build_notes(*peers: str) -> str:
    """Return lines about the builds of this project and its peers, for the head of a report."""
    names = [name or platform.machine() for name in (chosen_instructions(), GENERIC)]
    ours = f"this library: {names[0]}, {lanes()} numbers per vector; '{COLUMN}': {names[1]}"
    return "\n".join(f"- {line}" for line in (ours, *(f"{peer}: {PEERS[peer]}" for peer in peers)))
