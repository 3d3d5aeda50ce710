"""Choice of the compiled library of a phase, and of its parts that run in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from dynamics_backends.compiled.sources.dynamics_source import has_contraction
from dynamics_backends.compiled.sources.traced_source import TooLong
from dynamics_backends.methods.symbolic_map import TraceError
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm
from trajopt.stage.compiled.bare_stages import BareStages
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.compiled.library import Library, library_of
from trajopt.stage.not_compiled import SECOND, by_differences, operations, report_not_compiled
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.source.term_source import StageShape, TermShape
from trajopt.stage.stages import Stages


class CompiledChoice:
    """A phase of a problem, of sampled dynamics, and the libraries that can evaluate it.

    i: index of the phase. plain, end: NumPy stages of the phase and of the final knot. kinds: a pair for each candidate library,
    the best first: True for one with second derivatives, and its Hessian of the cost ("gauss_newton" or "exact"). required: raise
    an error instead of running parts in NumPy.
    """

    def __init__(
        self,
        ocp: OCP,
        i: int,
        plain: NumpyStages,
        end: NumpyStages,
        kinds: Sequence[tuple[bool, str]],
        *,
        required: bool,
    ) -> None:
        self._ocp, self._i, self._plain, self._end, self._required = ocp, i, plain, end, required
        sampling = ocp.phases[i].dynamics.sampling
        assert sampling is not None
        self.scheme, self.backend = sampling.scheme, cast(Any, sampling.called)
        self._second_refused: Exception | None = None
        self.shapes = [self._shape(second, hessian) for second, hessian in kinds]

    def _shape(self, second: bool, hessian: str) -> StageShape:
        """Return the structure of the phase that determines its library, with all its terms and constraints.

        second: with second derivatives of dynamics and constraints. hessian: of the cost, "gauss_newton" or "exact".
        """
        plain, end = self._plain, self._end
        groups: tuple[Any, ...] = (plain.terms, end.terms, plain.constraints, end.constraints)
        running, terminal, path, final = (tuple(TermShape.of(part) for part in group) for group in groups)
        sizes = tuple((name, value.shape[-1]) for name, value in self._ocp.phases[self._i].parameters.items())
        return StageShape(self.scheme, sizes, self._ocp.nu, running, terminal, path, final, hessian, second)

    def stages(self) -> tuple[Stages, Stages] | None:
        """Return the stages of the phase and of the final knot, by the first candidate library that can be compiled.

        If none can, only a part of the phase is compiled (:meth:`_in_part`), with a report. Returns None, also with a report, if
        that is impossible too. If compiled code is required, raises TooLong or TraceError, the failure of the first candidate.
        """
        reason: Exception
        for shape in self.shapes:
            try:
                library = library_of(self.backend, shape)
            except (TooLong, TraceError) as reason:
                if self._required:
                    raise
                if shape is self.shapes[-1]:
                    return self._in_part(reason)
                self._second_refused = reason
            else:
                return self._stages(library, self._plain), CompiledEnd(library, self._end)
        return None

    def _in_part(self, reason: Exception) -> tuple[Stages, Stages] | None:
        """Return the stages of a phase of which only a part can be compiled, and those of the final knot.

        Compiled are the time steps with the cost terms that can be traced, the constraints if all of them can, and the final knot
        if its terms and constraints can; if ``reason`` is a TooLong, the time steps alone. The rest runs in NumPy. Returns None if
        the compiled part cannot be compiled either. Either result is reported with ``reason``, why the phase is not compiled as a
        whole.
        """
        plain, end, long = self._plain, self._end, isinstance(reason, TooLong)
        everything: list[CostTerm | Constraint] = [*plain.terms, *plain.constraints, *end.terms, *end.constraints]
        untraceable = [part for part in everything if operations(part) is None]

        def compiled(parts: Sequence[Any]) -> bool:
            """True if all parts can be traced, and the reason is another one than their length."""
            return not long and not any(part is other for part in parts for other in untraceable)

        terms = [term for term in plain.terms if compiled([term])]
        others = [term for term in plain.terms if not compiled([term])]
        path = plain.constraints if compiled(plain.constraints) else ()
        whole_end = compiled([*end.terms, *end.constraints])
        terminal, final = (end.terms, end.constraints) if whole_end else ((), ())
        groups: tuple[Any, ...] = (terms, terminal, path, final)
        shape_of = [tuple(map(TermShape.of, group)) for group in groups]
        keys = ("running", "terminal", "path", "final")
        parts: Any = dict(zip(keys, shape_of, strict=True))
        library = self._first_of([shape._replace(**parts) for shape in self.shapes])
        if library is None:
            report_not_compiled(self._ocp, self._i, reason)
            return None
        names = ", ".join(repr(part.name) for part in untraceable)
        report_not_compiled(self._ocp, self._i, reason, "the cost" if long else names)
        steps = self._stages(library, replace(plain, terms=terms, constraints=path))
        rest = replace(plain, terms=others, constraints=() if path else plain.constraints)
        return BareStages(steps, rest), CompiledEnd(library, end) if whole_end else end

    def _first_of(self, shapes: Sequence[StageShape]) -> Library | None:
        """Return the library of the first structure in the list that can be compiled; None if none can."""
        for shape in shapes:
            with suppress(TooLong, TraceError):
                return library_of(self.backend, shape)
        return None

    def _stages(self, library: Library, plain: NumpyStages) -> CompiledStages:
        """Return the compiled stages of the phase by a library; plain: NumPy stages with the library's terms and constraints."""
        return CompiledStages(library, self._ocp, self._i, plain, self._curved, self._report_second)

    def _curved(self) -> Library | None:
        """Return the library of the time step with its second derivatives, without cost terms and constraints.

        Returns None if the backend has no second derivatives to compile (``has_contraction``), or if tracing fails; the
        failure is stored for :meth:`_report_second`.
        """
        if not has_contraction(self.backend):
            return None
        try:
            return library_of(
                self.backend, StageShape(self.scheme, self.shapes[0].parameters, self.shapes[0].nu, second=True)
            )
        except (TooLong, TraceError) as reason:
            self._second_refused = reason
            return None

    def _report_second(self) -> None:
        """Report that NumPy evaluates the second derivatives of the phase.

        The reason is the last failure to compile them, or else that the derivative method has finite differences only.
        """
        report_not_compiled(self._ocp, self._i, self._second_refused or by_differences(self.backend), SECOND)
