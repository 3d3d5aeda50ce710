"""Choice of the engine: the package's C library for phases whose backends are on the engine "compiled", NumPy for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np

from dynamics_backends.protocol import MissingCapability
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP, Phase
from trajopt.stage.not_compiled import report_not_compiled
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.stages import Stages

if TYPE_CHECKING:
    from trajopt.stage.compiled.choice import CompiledChoice

Engine = Literal["auto", "numpy", "compiled"]
"""auto: the engine of each phase's backend. numpy: NumPy for all phases. compiled: the C library for all phases of sampled
systems, an error if that is impossible.
"""


class StageOperations(NamedTuple):
    """Operations that a solver needs of the stages of a problem.

    hessian: Hessian of the cost, "gauss_newton" or "exact". rollout: the solver calls rollouts. second: it calls second derivatives
    of cost and constraints. path, final: constraints to evaluate, for each phase and at the final knot.
    """

    hessian: str = "gauss_newton"
    rollout: bool = False
    second: bool = False
    path: Sequence[Sequence[Constraint]] = ()
    final: Sequence[Constraint] = ()


def stages_of(ocp: OCP, wanted: StageOperations, engine: Engine = "auto") -> list[Stages]:
    """Return the stages (evaluators of knots) of each phase and, last, of the final knot, for the operations ``wanted``.

    engine: "auto" uses C code where a phase's backend requests it; parts that cannot be compiled run in NumPy, with a report.
    "numpy": NumPy stages only. "compiled": C code also for backends on NumPy; raises ValueError for a backend without C source,
    TooLong or TraceError for a phase that cannot be compiled as a whole. In both cases phases that are no sampled systems run in
    NumPy. The final knot is compiled with the last phase that has C code, if that phase is compiled as a whole.
    """
    path = wanted.path or [()] * len(ocp.phases)
    *plain, end = _plain(ocp, wanted)
    result: list[Stages] = [*plain, end]
    if engine == "numpy":
        return result
    for i in range(len(ocp.phases)):
        choice = _compiled(ocp, i, wanted._replace(path=path), plain[i], end, engine)
        pair = None if choice is None else choice.stages()
        if pair is not None:
            result[i], result[-1] = pair
    return result


def may_follow(stages: Sequence[Stages]) -> bool:
    """True if the stages can take the values of another problem: all are compiled, with no cost term or constraint in NumPy."""
    return all(hasattr(stage, "load_values") for stage in stages)


def follow(stages: Sequence[Stages], previous: OCP, ocp: OCP, wanted: StageOperations) -> bool:
    """Load the values of ``ocp`` into stages made for ``previous``; return True.

    If the two problems differ in structure, load nothing and return False.

    stages: stages for which :func:`may_follow` is True. wanted: the operations that they were made for, with the constraints of
    ``ocp``.
    """
    if ocp.manifold is not previous.manifold or ocp.nu != previous.nu or len(ocp.phases) != len(previous.phases):
        return False
    *phases, end = cast(list[Any], stages)
    *plain, last = _plain(ocp, wanted)
    triples = list(zip(phases, plain, ocp.phases, strict=True))
    if not all(old.matches(new, phase) for old, new, phase in triples) or not end.matches(last):
        return False
    for old, new, phase in triples:
        old.load_values(new, phase)
    end.load_values(last)
    return True


def _plain(ocp: OCP, wanted: StageOperations) -> list[NumpyStages]:
    """Return the NumPy stages of all phases and of the final knot, with the constraints of ``wanted``."""
    manifold, nu, hessian, t = ocp.manifold, ocp.nu, wanted.hessian, ocp.t
    path = wanted.path or [()] * len(ocp.phases)
    result = []
    for phase, knots, rows in zip(ocp.phases, ocp.phase_slices, path, strict=True):
        arguments = (phase.dynamics, phase.terms, rows, t[knots], phase.dt, nu, phase.parameters)
        result.append(NumpyStages(manifold, *arguments, start=knots.start, hessian=hessian, scale=phase.weights))
    final = (None, ocp.terminal, wanted.final, t[-1:], np.ones(1), 0)
    return [*result, NumpyStages(manifold, *final, start=ocp.horizon, hessian=hessian)]


def _compiled(
    ocp: OCP, i: int, wanted: StageOperations, plain: NumpyStages, end: NumpyStages, engine: Engine
) -> CompiledChoice | None:
    """Return the choice of compiled code for phase i, or None if NumPy evaluates the phase.

    NumPy evaluates a phase that is no sampled system, whose backend requests NumPy (unless engine is "compiled"), or whose
    backend has no C source, which is reported. plain, end: NumPy stages of the phase and of the final knot. Raises ValueError for
    a backend without C source if engine is "compiled".
    """
    sampling = ocp.phases[i].dynamics.sampling
    if sampling is None or (engine != "compiled" and sampling.backend.engine != "compiled"):
        return None
    from dynamics_backends.compiled.sources.dynamics_source import has_contraction, has_source
    from trajopt.stage.compiled.choice import CompiledChoice

    if not has_source(sampling.backend):
        if engine == "compiled":
            raise ValueError(f"phase {i} cannot be compiled with the derivative method {sampling.backend.name}")
        if engine == "auto":
            report_not_compiled(
                ocp, i, MissingCapability(f"the derivative method {sampling.backend.name} is not compiled")
            )
        return None
    curved = wanted.second and has_contraction(sampling.called)
    first = False, wanted.hessian if wanted.rollout else "gauss_newton"
    kinds = [(True, wanted.hessian), first] if curved and not wanted.rollout else [first]
    return CompiledChoice(ocp, i, plain, end, kinds, required=engine == "compiled")


def hessian_runs_in_numpy(phase: Phase) -> bool:
    """True if the phase is on the compiled engine, but NumPy takes the second derivatives of its time steps by differences."""
    from dynamics_backends.compiled.sources.dynamics_source import has_contraction

    sampling = phase.dynamics.sampling
    if sampling is None or sampling.backend.engine != "compiled" or phase.dynamics.contract is None:
        return False
    return not has_contraction(sampling.called)


def is_compiled(ocp: OCP) -> bool:
    """True if the backend of at least one phase requests the engine "compiled"."""
    samplings = (phase.dynamics.sampling for phase in ocp.phases)
    return any(s is not None and s.backend.engine == "compiled" for s in samplings)
