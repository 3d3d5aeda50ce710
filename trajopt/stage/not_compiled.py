"""Parts of a problem that NumPy evaluates although compiled code was asked for: reported before a solve, in the log, in a solution.

A solve is then up to a hundred times slower. Each part comes with the reason and a remedy, after a solve also with the fraction of
its time that NumPy took.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from dynamics_backends.protocol import DynamicsBackend, MissingCapability
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm

_LOG = logging.getLogger(__name__)
_REMEDIES = {
    "TooLong": "simplify it, split it into several phases, or add analytic partials to its residual (HasPartials)"
}
"""By the type of a reason; others name the remedy themselves."""
WHOLE, SECOND = "the whole", "the Hessian"
"""Parts of a phase."""
P = ParamSpec("P")
R = TypeVar("R")


class NotCompiled(NamedTuple):
    """part: of the problem. why: it is not compiled. remedy: what helps, "" where the reason tells it."""

    part: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, share: str = "") -> str:
        """The part, the reason and the remedy. share: how much of a solve it took."""
        end = f"; {self.remedy}" if self.remedy else ""
        took = f" ({share})" if share else ""
        return f"{self.part} runs in NumPy{took}, which may be a hundred times slower: {self.why}{end}"


@dataclass
class NumpyWork:
    """Work of NumPy in a solve that asked for compiled code. parts: of the problem. seconds: spent in all stages of NumPy."""

    parts: list[NotCompiled] = field(default_factory=list)
    seconds: float = 0.0
    running: bool = False

    def sentences(self, solve_time: float) -> list[str]:
        """One for each part, with the fraction of the solve time that NumPy took for all of them."""
        percent = 100.0 * min(self.seconds / solve_time, 1.0) if solve_time > 0 else 0.0
        share = f"{percent:.0f} %" if percent >= 1.0 else "less than 1 %"
        together = "together " if len(self.parts) > 1 else ""
        return [part.sentence(f"{together}{share} of the solve time") for part in self.parts]

    def engines(self, asked: Sequence[str]) -> list[str]:
        """The engines at work; asked: that of each phase."""
        whole = sum(part.part.startswith(WHOLE) for part in self.parts)
        found = dict.fromkeys(asked) | ({"numpy": None} if self.parts else {})
        if whole == len([engine for engine in asked if engine == "compiled"]):
            found.pop("compiled", None)
        return list(found)


_work: ContextVar[NumpyWork | None] = ContextVar("numpy_work", default=None)


@contextmanager
def gathered() -> Iterator[NumpyWork]:
    """The work of NumPy inside."""
    found = NumpyWork()
    token = _work.set(found)
    try:
        yield found
    finally:
        _work.reset(token)


def timed(evaluation: Callable[P, R]) -> Callable[P, R]:
    """An evaluation in NumPy whose seconds count as the work of NumPy."""

    @wraps(evaluation)
    def evaluate(*arguments: P.args, **options: P.kwargs) -> R:
        work = _work.get()
        if work is None or work.running:
            return evaluation(*arguments, **options)
        work.running, began = True, time.perf_counter()
        try:
            return evaluation(*arguments, **options)
        finally:
            work.running = False
            work.seconds += time.perf_counter() - began

    return evaluate


def by_differences(backend: DynamicsBackend) -> MissingCapability:
    """The reason why second derivatives of a backend's map are not compiled."""
    return MissingCapability(
        f"the derivative method {backend.name} takes it by differences; choose backend = 'forward_ad' for an exact and compiled one"
    )


def tell(ocp: OCP, phase: int, reason: Exception, what: str = "") -> None:
    """Report that a phase, or ``what`` of it, is not compiled: once for each solve, and for each text outside of solves."""
    from dynamics_backends.compiled.interface.sources import TraceError

    told, work = explanation(ocp, phase, reason, what), _work.get()
    if work is None:
        _log_once(str(told))
    elif told not in work.parts:
        work.parts.append(told)
        _LOG.log(logging.INFO if isinstance(reason, TraceError) and reason.told else logging.WARNING, "%s", told)


@lru_cache(maxsize=64)
def _log_once(text: str) -> None:
    _LOG.warning("%s", text)


def explanation(ocp: OCP, phase: int, reason: Exception, what: str = "") -> NotCompiled:
    """A phase, or ``what`` of it, why it is not compiled, and what helps."""
    part = f"{what or WHOLE} of phase {phase} of {ocp.name!r}"
    return NotCompiled(part, explained(ocp, phase, reason), _REMEDIES.get(type(reason).__name__, ""))


def may_be_long(parts: Sequence[CostTerm | Constraint], variables: int) -> bool:
    """True if derivatives in so many variables may be too long to compile."""
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
    """True if a residual can be traced."""
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
