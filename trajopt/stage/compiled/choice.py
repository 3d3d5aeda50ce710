"""Choice of the compiled library for the stages of a phase: ready, waited for, or used once it is ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any, TypeVar, cast

from dynamics_backends.compiled.interface.sources import TooLong, TraceError, has_contraction
from dynamics_backends.registry import at_once, until_compiled
from trajopt.problem.constraints import Constraint
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP, DiscreteMap
from trajopt.problem.terms import CostTerm
from trajopt.stage.compiled.bare_stages import BareStages
from trajopt.stage.compiled.builds import Search, library_at, search
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.compiled.library import ALONE, CURVED, ROLLED, Library
from trajopt.stage.compiled.soon_stages import COMPILED, SoonStages
from trajopt.stage.not_compiled import SECOND, by_differences, tell, works_on_symbols
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.source.stage_source import StageShape
from trajopt.stage.source.term_source import TermShape
from trajopt.stage.stages import Stages
from trajopt.stage.start import note_serving
from trajopt.step.sensitivities import SampledSystem

Part = TypeVar("Part", CostTerm, Constraint)
COST_HESSIANS = ("gauss_newton", "exact")


class CompiledChoice:
    """A phase of a problem, and the libraries that may serve it.

    plain, end: the phase and the final knot in NumPy. kinds: parts of libraries, the best first. required: whether what cannot be
    compiled is an error.
    """

    def __init__(
        self,
        ocp: OCP,
        i: int,
        plain: NumpyStages,
        end: NumpyStages,
        kinds: Sequence[tuple[str, ...]],
        *,
        required: bool,
    ) -> None:
        self._ocp, self._i, self._plain, self._end, self._required = ocp, i, plain, end, required
        sampling = ocp.phases[i].dynamics.sampling
        assert sampling is not None
        self.scheme, self.backend = sampling.scheme, cast(Any, sampling.called)
        self._second_refused: Exception | None = None
        self.shapes = [self._shape(parts) for parts in kinds]
        self.knots = ocp.phases[i].knots

    def _shape(self, parts: tuple[str, ...], hessian: str = "") -> StageShape:
        """hessian: of the cost, default that of the plain stages."""
        plain, end = self._plain, self._end
        groups: tuple[Any, ...] = (plain.terms, end.terms, plain.constraints, end.constraints)
        running, terminal, path, final = (tuple(TermShape.of(part) for part in group) for group in groups)
        sizes = tuple((name, value.shape[-1]) for name, value in self._ocp.phases[self._i].parameters.items())
        kind = "gauss_newton" if parts == ALONE else hessian or plain.hessian
        return StageShape(self.scheme, sizes, self._ocp.nu, running, terminal, path, final, kind, parts)

    # -- waited for -----------------------------------------------------------------------------------------------------
    def waited_for(self) -> tuple[Stages, Stages] | None:
        """The stages of the phase, and the final knot; None where the time steps take too long to compile, or cannot be traced."""
        reason: Exception
        for shape in self.shapes:
            try:
                library = search(self.backend, shape).wait()
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
        """The time steps by a library with the cost terms that work on symbols, or without any where these are too long; the other
        terms, the constraints and the final knot in NumPy."""
        long = isinstance(reason, TooLong)
        terms = [] if long else [term for term in self._plain.terms if works_on_symbols(term)]
        others = [term for term in self._plain.terms if not any(term is known for known in terms)]
        running = tuple(map(TermShape.of, terms))
        shapes = [shape._replace(running=running, terminal=(), path=(), final=()) for shape in self.shapes]
        library = self._first_of(shapes)
        if library is None:
            tell(self._ocp, self._i, reason)
            return None
        ends: tuple[CostTerm | Constraint, ...] = (*self._plain.constraints, *self._end.terms, *self._end.constraints)
        names = [repr(part.name) for part in (*others, *ends) if not works_on_symbols(part)]
        tell(self._ocp, self._i, reason, "the cost" if long else ", ".join(names))
        plain = replace(self._plain, terms=terms, constraints=())
        return BareStages(self._stages(library, plain), replace(self._plain, terms=others)), self._end

    def _first_of(self, shapes: Sequence[StageShape]) -> Library | None:
        """The library of the first shape that is not refused."""
        for shape in shapes:
            with suppress(TooLong, TraceError):
                return search(self.backend, shape).wait()
        return None

    def _stages(self, library: Library, plain: NumpyStages) -> CompiledStages:
        return CompiledStages(library, self._ocp, self._i, plain, self._curved, self._tell_second)

    def _curved(self) -> Library | None:
        """The library of second derivatives of the step alone; None where the backend finds them by differences, where they cannot
        be compiled, and where they are not there at once."""
        if not has_contraction(self.backend):
            return None
        shape = self.shapes[0]
        try:
            return library_at(self.backend, StageShape(shape.scheme, shape.parameters, shape.nu, parts=("second",)))
        except (TooLong, TraceError) as reason:
            self._second_refused = reason
            return None

    def _tell_second(self) -> None:
        """Report that NumPy takes second derivatives of the phase."""
        tell(self._ocp, self._i, self._second_refused or by_differences(self.backend), SECOND)

    # -- loaded ---------------------------------------------------------------------------------------------------------
    def loaded(self) -> tuple[Stages, Stages]:
        """The stages and the end by a library that this process has loaded already, else in NumPy without a compiler."""
        for parts, hessian in product((ROLLED, CURVED, ALONE), COST_HESSIANS):
            library = search(self.backend, self._shape(parts, hessian)).library
            if library is not None:
                return self._stages(library, self._plain), CompiledEnd(library, self._end)
        return self._without_compiler(), self._end

    # -- at once --------------------------------------------------------------------------------------------------------
    @cached_property
    def search(self) -> Search:
        """The library of the phase: the first that is not known to be refused."""
        for shape in self.shapes:
            found = search(self.backend, shape)
            try:
                found.look()
            except TooLong:
                continue
            return found
        return search(self.backend, self.shapes[-1])

    @cached_property
    def bare(self) -> Search:
        """The library of the phase without cost terms and constraints."""
        shape = self.search.shape
        return search(self.backend, StageShape(shape.scheme, shape.parameters, shape.nu, parts=shape.parts))

    def at_once(self) -> tuple[Stages, Stages]:
        """The stages and the end, by what there is."""
        if self.search.is_final and self.search.library is not None:
            note_serving(COMPILED)
            return self._stages(self.search.library, self._plain), CompiledEnd(self.search.library, self._end)
        now = self._without_compiler()
        twin = replace(self._plain, dynamics=now.dynamics)
        made: Callable[[Library], Stages] = lambda library: self._stages(library, twin)  # noqa: E731
        bare = None if self.bare is self.search else (self.bare, lambda library: self.by_bare(library, now))
        stages = SoonStages(now, self.search, made, replace(now, dynamics=self._plain.dynamics), bare)
        end = SoonStages(self._end, self.search, lambda library: CompiledEnd(library, self._end), self._end)
        return stages, end

    def _without_compiler(self) -> NumpyStages:
        """The phase in NumPy, evaluated without a compiler."""
        return replace(
            self._plain,
            dynamics=numpy_twin(self._ocp.phases[self._i].dynamics),
            terms=[_until_compiled(term) for term in self._plain.terms],
            constraints=[_until_compiled(c) for c in self._plain.constraints],
        )

    def by_bare(self, library: Library, twin: NumpyStages) -> BareStages:
        """The stages by the library without cost terms and constraints."""
        return BareStages(self._stages(library, replace(twin, terms=(), constraints=())), twin)


def numpy_twin(dynamics: DiscreteMap) -> DiscreteMap:
    """A time step's twin, evaluated without a compiler."""
    sampling = dynamics.sampling
    if sampling is None or type(dynamics) not in (SampledSystem, ImpactStage):
        return dynamics
    backend = at_once(sampling.backend)
    if isinstance(dynamics, ImpactStage):
        return dynamics.under(backend)
    return SampledSystem(backend, sampling.scheme, sampling.substeps)


def _until_compiled(part: Part) -> Part:
    """A term or a constraint whose residual is evaluated without a compiler; weights, bounds and parameters are shared."""
    residual = until_compiled(part.residual)
    if residual is part.residual:
        return part
    twin = copy(part)
    object.__setattr__(twin, "residual", residual)
    return twin
