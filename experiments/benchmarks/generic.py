"""This project's code as a wheel would be compiled: for any processor of a kind, instead of the one at hand.

Wheels on PyPI, as those of Pinocchio and Crocoddyl, are compiled for any x86-64 processor (SSE2, two numbers a vector).  Code of
this project is compiled for the processor at hand, with vectors up to four times as wide.  So a table beside such a peer has a
column of this project without that advantage, measured in a process of its own.
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
"""The instruction set of wheels for this kind of processor, as -march names it."""
COLUMN = "here, generic"
"""The heading of the column."""
WHEEL = f"its wheel on PyPI, for any {platform.machine()} processor"
PEERS = {
    "Crocoddyl": WHEEL,
    "Pinocchio": WHEEL,
    "CasADi": "C code that it generates, compiled here with -march=native",
    "IPOPT": WHEEL.replace("its wheel", "in CasADi's wheel"),
}
"""Each peer with the build that the benchmarks use."""


class GenericProcess:
    """A process whose code is compiled for :data:`GENERIC`; a context manager.

    Functions are called with arguments that can be pickled, and must be found by their name in a module.
    """

    def __enter__(self) -> GenericProcess:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        with with_variable(MARCH, GENERIC):  # read by the process when it starts
            instruction_set = self.call(_instruction_set)
        assert instruction_set == GENERIC, instruction_set
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """The function's result in that process; raises what it raises."""
        return self._pool.submit(function, *arguments).result()


def _instruction_set() -> str:
    return find_toolchain().march


def sides(*peers: str) -> str:
    """Lines that say how this project and its peers are compiled, for the head of a report."""
    found = find_toolchain()
    flags = " ".join(flag for flag in found.flags if flag.startswith(("-O", "-march", "-ff", "-fno")))
    here = f"here: {found.version}, {flags}, {found.lanes} numbers a vector; '{COLUMN}': the same with -march={GENERIC}"
    return "\n".join(f"- {line}" for line in (here, *(f"{peer}: {PEERS[peer]}" for peer in peers)))
