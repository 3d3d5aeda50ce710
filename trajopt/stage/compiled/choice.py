"""Choice of the library of a phase, and what NumPy evaluates beside it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from dynamics_backends.compiled.interface import TooLong, TraceError, has_contraction
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm
from trajopt.stage.compiled.bare_stages import BareStages
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.compiled.library import Library, library_of
from trajopt.stage.not_compiled import SECOND, by_differences, report_not_compiled, works_on_symbols
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.source.stage_shape import StageShape
from trajopt.stage.source.term_source import TermShape
from trajopt.stage.stages import Stages


class CompiledChoice:
    """A phase of a problem and the libraries that can evaluate it.

    plain, end: NumPy stages of the phase and of the final knot. kinds: candidate libraries, the best first: True for one with
    second derivatives, and its Hessian of the cost. required: raise an error if the phase cannot be compiled.
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
        """Return the structure of the phase that determines its library; second: with second derivatives; hessian: of the cost."""
        plain, end = self._plain, self._end
        groups: tuple[Any, ...] = (plain.terms, end.terms, plain.constraints, end.constraints)
        running, terminal, path, final = (tuple(TermShape.of(part) for part in group) for group in groups)
        sizes = tuple((name, value.shape[-1]) for name, value in self._ocp.phases[self._i].parameters.items())
        return StageShape(self.scheme, sizes, self._ocp.nu, running, terminal, path, final, hessian, second)

    def stages(self) -> tuple[Stages, Stages] | None:
        """Return the stages of the phase and of the final knot, compiled as far as possible, by the first usable library.

        If terms or constraints cannot be compiled, they and the final knot run in NumPy, with a report; None, also with a report,
        if the time steps are not compiled. Raises TooLong, TraceError if compiled code is required and the phase cannot be compiled
        as a whole.
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

        Compiled are the time steps with the cost terms that can be traced, or with no terms if the code is too long. The other
        terms, the constraints and the final knot run in NumPy, with a report that gives the reason. None, also with a report, if
        the time steps cannot be compiled.
        """
        long = isinstance(reason, TooLong)
        terms = [] if long else [term for term in self._plain.terms if works_on_symbols(term)]
        others = [term for term in self._plain.terms if not any(term is known for known in terms)]
        running = tuple(map(TermShape.of, terms))
        shapes = [shape._replace(running=running, terminal=(), path=(), final=()) for shape in self.shapes]
        library = self._first_of(shapes)
        if library is None:
            report_not_compiled(self._ocp, self._i, reason)
            return None
        ends: tuple[CostTerm | Constraint, ...] = (*self._plain.constraints, *self._end.terms, *self._end.constraints)
        names = [repr(part.name) for part in (*others, *ends) if not works_on_symbols(part)]
        report_not_compiled(self._ocp, self._i, reason, "the cost" if long else ", ".join(names))
        plain = replace(self._plain, terms=terms, constraints=())
        return BareStages(self._stages(library, plain), replace(self._plain, terms=others)), self._end

    def _first_of(self, shapes: Sequence[StageShape]) -> Library | None:
        """Return the library of the first structure in the list that can be compiled; None if none can."""
        for shape in shapes:
            with suppress(TooLong, TraceError):
                return library_of(self.backend, shape)
        return None

    def _stages(self, library: Library, plain: NumpyStages) -> CompiledStages:
        """Return the compiled stages of a library; plain: NumPy stages with the terms and constraints that it contains."""
        return CompiledStages(library, self._ocp, self._i, plain, self._curved, self._report_second)

    def _curved(self) -> Library | None:
        """Return the library of second derivatives of the time step alone.

        Returns None if they are finite differences or cannot be compiled.
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
        """Report, with the reason, that NumPy evaluates the second derivatives of the phase."""
        report_not_compiled(self._ocp, self._i, self._second_refused or by_differences(self.backend), SECOND)
