"""Reports of problem parts that NumPy evaluates because they cannot be compiled.

Such a solve may be a hundred times slower. Reports appear before a solve, in the log and in the solution. Each names the part, the
reason and a remedy; after a solve also the fraction of the solve time spent in NumPy.
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

from dynamics_backends.protocol import DynamicsBackend, HasPartials, MissingCapability, unwrapped
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm

_LOG = logging.getLogger(__name__)
_REMEDIES = {
    "TooLong": "simplify it, split it into several phases, or add analytic partials to its residual (HasPartials)"
}
"""Remedies by the exception type of the reason; other reasons name their remedy."""
WHOLE, SECOND = "the whole", "the Hessian"
"""Names of the parts of a phase in reports."""
P = ParamSpec("P")
R = TypeVar("R")


class NotCompiled(NamedTuple):
    """A problem part that runs in NumPy, the reason why, and a remedy ("" if the reason contains it)."""

    part: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, share: str = "") -> str:
        """Return one sentence with the part, the reason and the remedy.

        share: text on the fraction of solve time, "" to omit it.
        """
        end = f"; {self.remedy}" if self.remedy else ""
        took = f" ({share})" if share else ""
        return f"{self.part} runs in NumPy{took}, which may be a hundred times slower: {self.why}{end}"


@dataclass
class NumpyWork:
    """NumPy evaluations in a solve on the compiled engine: the problem parts concerned, and seconds spent in all NumPy stages.

    running: True during a timed evaluation (:func:`timed`).
    """

    parts: list[NotCompiled] = field(default_factory=list)
    seconds: float = 0.0
    running: bool = False

    def sentences(self, solve_time: float) -> list[str]:
        """Return one sentence for the parts of each reason, with the fraction of the solve time spent in NumPy for all parts.

        solve_time [s].
        """
        grouped: dict[tuple[str, str], list[str]] = {}
        for part in self.parts:
            grouped.setdefault((part.why, part.remedy), []).append(part.part)
        percent = 100.0 * min(self.seconds / solve_time, 1.0) if solve_time > 0 else 0.0
        share = f"{percent:.0f} %" if percent >= 1.0 else "less than 1 %"
        together = "together " if len(self.parts) > 1 else ""
        took = f"{together}{share} of the solve time"
        return [NotCompiled(_joined(parts), why, remedy).sentence(took) for (why, remedy), parts in grouped.items()]

    def engines(self, requested: Sequence[str]) -> list[str]:
        """Return the names of the engines used in the solve: those requested, and "numpy" if parts ran in NumPy; no duplicates.

        "compiled" is left out if every phase that requested it ran as a whole in NumPy. requested: the engine that each phase
        requested.
        """
        whole = sum(part.part.startswith(WHOLE) for part in self.parts)
        result = dict.fromkeys(requested) | ({"numpy": None} if self.parts else {})
        if whole == len([engine for engine in requested if engine == "compiled"]):
            result.pop("compiled", None)
        return list(result)


def _joined(parts: Sequence[str]) -> str:
    """Return the names of one or more parts as one text: at most two of them, and the number of the others."""
    first, *others = parts
    if not others:
        return first
    return f"{first} and {others[0]}" if len(others) == 1 else f"{first}, {others[0]} and {len(others) - 1} more"


_work: ContextVar[NumpyWork | None] = ContextVar("numpy_work", default=None)


@contextmanager
def gathered() -> Iterator[NumpyWork]:
    """Context manager: collect the parts that are not compiled, and the seconds in NumPy, of solves inside the block."""
    result = NumpyWork()
    token = _work.set(result)
    try:
        yield result
    finally:
        _work.reset(token)


def timed(evaluation: Callable[P, R]) -> Callable[P, R]:
    """Decorator that adds the seconds of a NumPy evaluation to the :class:`NumpyWork` of the enclosing :func:`gathered` block.

    Without such a block, or inside another timed evaluation, nothing is added.
    """

    @wraps(evaluation)
    def evaluate(*arguments: P.args, **options: P.kwargs) -> R:
        """Run the evaluation and add its seconds to the collected work."""
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
    """Return the reason why second derivatives run in NumPy: the backend takes them by finite differences."""
    return MissingCapability(
        f"the derivative method {backend.name} takes it by differences; choose backend = 'forward_ad' for an exact and compiled one"
    )


def report_not_compiled(ocp: OCP, phase: int, reason: Exception, what: str = "") -> None:
    """Report that a phase, or its part ``what``, is not compiled: to the solve's :func:`gathered` block and the log, once each.

    Logged as a warning, by the first of several solves, or as information if the block has the same reason for another part, or
    ``reason`` was logged already. Outside of such a block the report is only logged, as a warning.
    """
    from dynamics_backends.methods.symbolic_map import TraceError

    report, work = explanation(ocp, phase, reason, what), _work.get()
    if work is None:
        _log_once(str(report))
    elif report not in work.parts:
        known = any((part.why, part.remedy) == (report.why, report.remedy) for part in work.parts)
        work.parts.append(report)
        if known or (isinstance(reason, TraceError) and reason.logged):
            _LOG.info("%s", report)
        else:
            _log_once(str(report))


@lru_cache(maxsize=64)
def _log_once(text: str) -> None:
    """Log a warning, unless it is one of the last 64 texts logged here."""
    _LOG.warning("%s", text)


def explanation(ocp: OCP, phase: int, reason: Exception, what: str = "") -> NotCompiled:
    """Return the report on a phase, or its part ``what``, that is not compiled, with the reason and a remedy ("" if not known)."""
    part = f"{what or WHOLE} of phase {phase} of {ocp.name!r}"
    remedy = _REMEDIES.get(type(reason).__name__, "")
    if remedy and _is_of_closed_dynamics(ocp, phase, str(reason)):
        remedy = "choose backend = 'analytic': these dynamics have closed-form derivatives"
    return NotCompiled(part, explained(ocp, phase, reason), remedy)


def _is_of_closed_dynamics(ocp: OCP, phase: int, text: str) -> bool:
    """True if a text is about dynamics that have analytic derivatives and another backend."""
    sampling = ocp.phases[phase].dynamics.sampling
    if sampling is None or sampling.backend.name == "analytic":
        return False
    system = unwrapped(sampling.backend.map)
    return isinstance(system, HasPartials) and text.startswith(f"{type(system).__name__} takes")


def explained(ocp: OCP, phase: int, reason: Exception) -> str:
    """Return the text of the reason, with the largest term or constraint if it says that these take too many operations."""
    text = str(reason).rstrip(".")
    end, parts = text.startswith(("the terminal", "the final")), ocp.phases[phase]
    groups: dict[str, Sequence[CostTerm | Constraint]] = {
        "cost takes": ocp.terminal if end else parts.terms,
        "constraints takes": ocp.terminal_constraints if end else parts.constraints,
    }
    of = next((group for key, group in groups.items() if key in text), ())
    if len(of) == 0:
        return text
    longest = max(of, key=lambda part: operations(part) or 0)
    return f"{text}; the largest part is {longest.name!r}, whose residual takes {operations(longest) or 0}"


def operations(part: CostTerm | Constraint) -> int | None:
    """Return the number of scalar operations of the residual of a term or constraint; None if CasADi symbols cannot trace it."""
    residual: Any = part.residual
    return _count(residual, tuple((name, value.shape[-1]) for name, value in part.parameters.items()))


@lru_cache(maxsize=64)
def _count(residual: Any, sizes: tuple[tuple[str, int], ...]) -> int | None:
    """Return the number of scalar operations of a residual, cached because phases may share it; None if it cannot be traced.

    sizes: names and sizes of its parameters.
    """
    import casadi as ca

    from dynamics_backends.methods.symbolic_map import Symbols, TraceError, symbolic_value

    symbols = Symbols.of(residual, dict(sizes))
    try:
        value = symbolic_value(residual, symbols.x, symbols.u, symbols.t, symbols.p)
    except TraceError:
        return None
    return int(ca.Function("value", list(symbols), [value]).n_instructions())
