"""Functions of vectors as traces, which become straight-line code in C, or tapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynamics_backends.compiled.emit.emit import Argument, chunked_function
from dynamics_backends.compiled.emit.trace import Trace


@dataclass(frozen=True, eq=False)
class TracedFunction:
    """Trace with the names and sizes of its arguments, and the names of its results."""

    name: str
    trace: Trace
    arguments: Sequence[Argument]
    outputs: Sequence[str]

    @property
    def sizes(self) -> list[int]:
        """Numbers of components of the arguments."""
        return [a.size for a in self.arguments]

    @property
    def operations(self) -> int:
        """Number of operations, without those of called functions."""
        return len(self.trace.operations)

    def source(self) -> tuple[str, int]:
        """C function ``name(arguments..., outputs..., V* w)``, and the length of its workspace w in vectors."""
        return chunked_function(self.name, self.trace, self.arguments, self.outputs)
