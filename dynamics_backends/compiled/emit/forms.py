"""Specialized forms of a pass: the same step, traced with known values for some of its symbols.

    rooted      the joint of k (in passes over DoFs the joint of the DoF) is attached to the world, which is at rest
    diagonal    k is d

Tracing the passes over DoFs in the rooted form shows which numbers vanish at a root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynamics_backends.compiled.emit.trace import Trace
from dynamics_backends.rigid_body.passes.passes import Pass, base_name

FORMS = ("", "rooted", "diagonal")
_AT_ROOT = {"dof": ("", "_p"), "pair": ("_k",), "own_pair": ("_k", "_d", "_p")}
"""Suffixes of the parameters that belong to a root joint or to the world in the rooted form, by the kind of pass."""


@dataclass
class Forms:
    """Record of the numbers of a DoF's fields that vanish at a root; passes are recorded in program order."""

    vanishing: dict[str, list[bool]] = field(default_factory=dict)

    def known(self, p: Pass, names: Sequence[str], flat: Sequence[list[Any]], form: str) -> Sequence[list[Any]]:
        """Symbols of a pass's arguments in a form: zeros for vanishing symbols, one symbol for equal ones."""
        if form == "diagonal":
            of_d = {base_name(n): values for n, values in zip(names, flat, strict=True) if n.endswith("_d")}
            return [of_d.get(base_name(n), v) if n.endswith("_k") else v for n, v in zip(names, flat, strict=True)]
        if form == "rooted":
            return [self._at_root(p, n, values) for n, values in zip(names, flat, strict=True)]
        return flat

    def _at_root(self, p: Pass, name: str, values: list[Any]) -> list[Any]:
        base = base_name(name)
        ending = name[len(base) :]
        if ending not in _AT_ROOT.get(p.kind, ()):
            return values
        if ending == "_p":
            still = {"X": 0, "acc": len(values) // 2, "acc_link": len(values) // 2}.get(base, len(values))
            return [0.0] * still + values[still:]
        zeros = self.vanishing.get(base, [False] * len(values))
        return [0.0 if zero else x for zero, x in zip(zeros, values, strict=True)]

    def note(self, p: Pass, outputs: Iterable[str], rooted: Trace) -> None:
        """Record the outputs of a pass over DoFs that vanish at a root. rooted: its trace in the rooted form."""
        for output, operands in zip(outputs, rooted.outputs, strict=True):
            self.vanishing[output] = [isinstance(x, float) and x == 0.0 for x in operands]

    def gains_at_root(self, p: Pass) -> bool:
        """True if a pass over pairs reads a number of k that vanishes at a root."""
        return any(any(self.vanishing.get(base_name(n), ())) for n in p.inputs if n.endswith("_k"))
