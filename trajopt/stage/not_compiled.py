"""What of a problem is evaluated in NumPy although compiled code was asked for: told in the log, in a solution, and before a solve.

A solve is then slower by a factor that may be a hundred; so each part comes with the reason and what helps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm

_LOG = logging.getLogger(__name__)
_REMEDIES = {
    "TraceError": "",  # the reason tells it
    "TooLong": "simplify it, split it into several phases, or add analytic partials to its residual (HasPartials)",
}


class NotCompiled(NamedTuple):
    """part: of the problem. why: it is not compiled. remedy: what helps, "" where the reason tells it."""

    part: str
    why: str
    remedy: str

    def __str__(self) -> str:
        end = f"; {self.remedy}" if self.remedy else ""
        return f"{self.part} runs in NumPy, which may be a hundred times slower: {self.why}{end}"


_gathered: ContextVar[list[NotCompiled] | None] = ContextVar("not_compiled", default=None)


@contextmanager
def gathered() -> Iterator[list[NotCompiled]]:
    """What :func:`tell` is told inside."""
    found: list[NotCompiled] = []
    token = _gathered.set(found)
    try:
        yield found
    finally:
        _gathered.reset(token)


def tell(ocp: OCP, phase: int, reason: Exception, what: str = "") -> None:
    """Say that a phase, or ``what`` of it, is not compiled, once for each gathering."""
    from dynamics_backends.compiled.interface.sources import TraceError

    told, found = explanation(ocp, phase, reason, what), _gathered.get()
    if found is not None:
        if told in found:
            return
        found.append(told)
    _LOG.log(logging.INFO if isinstance(reason, TraceError) and reason.told else logging.WARNING, "%s", told)


def explanation(ocp: OCP, phase: int, reason: Exception, what: str = "") -> NotCompiled:
    """A phase, or ``what`` of it, why it is not compiled, and what helps."""
    part = f"{what or 'the whole'} of phase {phase} of {ocp.name!r}"
    return NotCompiled(part, explained(ocp, phase, reason), _REMEDIES.get(type(reason).__name__, ""))


def may_be_long(parts: Sequence[CostTerm | Constraint], variables: int) -> bool:
    """Whether derivatives in so many variables may be too long to compile."""
    from dynamics_backends.compiled.interface.sources import TooLong, require_short

    try:
        require_short("", variables * sum(map(operations, parts)))
    except TooLong:
        return True
    return False


def explained(ocp: OCP, phase: int, reason: Exception) -> str:
    """The reason, with the longest of the terms or constraints that it is about."""
    text = str(reason).rstrip(".")
    end, parts = text.startswith(("the terminal", "the final")), ocp.phases[phase]
    groups: dict[str, Sequence[CostTerm | Constraint]] = {
        "cost takes": ocp.terminal if end else parts.terms,
        "constraints takes": ocp.terminal_constraints if end else parts.constraints,
    }
    of = next((group for key, group in groups.items() if key in text), ())
    if len(of) == 0:
        return text
    longest = max(of, key=operations)
    return f"{text}; the largest part is {longest.name!r}, whose residual takes {operations(longest)}"


def works_on_symbols(part: CostTerm | Constraint) -> bool:
    """Whether a residual can be traced."""
    return _operations(part) is not None


def operations(part: CostTerm | Constraint) -> int:
    """Operations of a residual's value, as symbols; 0 where it does not work on them."""
    return _operations(part) or 0


def _operations(part: CostTerm | Constraint) -> int | None:
    residual: Any = part.residual
    return _count(residual, tuple((name, value.shape[-1]) for name, value in part.parameters.items()))


@lru_cache(maxsize=64)
def _count(residual: Any, sizes: tuple[tuple[str, int], ...]) -> int | None:
    """Operations, of a residual that phases may share; None where it cannot be traced."""
    import casadi as ca

    from dynamics_backends.compiled.interface.sources import Symbols, TraceError, symbolic_value

    symbols = Symbols.of(residual, dict(sizes))
    try:
        value = symbolic_value(residual, symbols.x, symbols.u, symbols.t, symbols.p)
    except TraceError:
        return None
    return int(ca.Function("value", list(symbols), [value]).n_instructions())
