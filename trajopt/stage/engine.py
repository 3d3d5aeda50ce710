"""Which engine evaluates a problem: compiled code for phases whose backends are on the compiled engine, NumPy for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from trajopt.lq.lq_solver import LQSolver, NumpyLQ
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.stage.not_compiled import tell
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.stages import Stages

Engine = Literal["auto", "numpy", "compiled"]
"""auto: by the backend of each phase. compiled: whatever the backends say; what cannot be compiled is an error."""


class Wanted(NamedTuple):
    """What a solver asks of the stages of a problem.

    hessian: of the cost, "gauss_newton" or "exact". rollout, second: whether there are roll-outs, and second derivatives of cost
    and constraints. path, final: the constraints that are evaluated, by phase and at the end.
    """

    hessian: str = "gauss_newton"
    rollout: bool = False
    second: bool = False
    path: Sequence[Sequence[Constraint]] = ()
    final: Sequence[Constraint] = ()


def stages_of(ocp: OCP, wanted: Wanted, engine: Engine = "auto") -> list[Stages]:
    """The stages of each phase, and the final knot."""
    path = wanted.path or [()] * len(ocp.phases)
    plain = [_numpy_stages(ocp, i, path[i], wanted.hessian) for i in range(len(ocp.phases))]
    t_end, one = ocp.times[-1:], np.ones(1)
    end = NumpyStages(
        ocp.manifold, None, ocp.terminal, wanted.final, t_end, one, 0, start=ocp.horizon, hessian=wanted.hessian
    )
    found: list[Stages] = [*plain, end]
    if engine == "numpy":
        return found
    for i in range(len(ocp.phases)):
        compiled = _compiled(ocp, i, wanted._replace(path=path), plain[i], engine)
        if compiled is not None:
            from trajopt.stage.compiled_stages import CompiledEnd

            found[i], found[-1] = compiled, CompiledEnd(compiled.library, ocp, wanted.final, end)
    return found


def _numpy_stages(ocp: OCP, i: int, path: Sequence[Constraint], hessian: str) -> NumpyStages:
    phase, knots = ocp.phases[i], ocp.phase_slices[i]
    given = (phase.dynamics, phase.terms, path, ocp.times[knots], phase.dt, ocp.nu, phase.parameters)
    return NumpyStages(ocp.manifold, *given, start=knots.start, hessian=hessian, scale=phase.weights)


def _compiled(ocp: OCP, i: int, wanted: Wanted, plain: NumpyStages, engine: Engine) -> Any:
    """The compiled stages of a phase; None where it asks for none, or code would take too long to compile or cannot be traced."""
    sampling = ocp.phases[i].dynamics.sampling
    if sampling is None or (engine == "auto" and sampling.backend.engine != "compiled"):
        return None
    from dynamics_backends.compiled.interface.sources import TooLong, TraceError, has_contraction, has_source
    from trajopt.stage.compiled_stages import CompiledStages
    from trajopt.stage.library import ALONE, CURVED, ROLLED

    if not has_source(sampling.backend):
        if engine == "compiled":
            raise ValueError(f"phase {i} cannot be compiled: its derivatives are by {sampling.backend.name}")
        return None
    curved = wanted.second and has_contraction(sampling.called.map)
    kinds = [ROLLED] if wanted.rollout else [CURVED, ALONE] if curved else [ALONE]
    for parts in kinds:
        try:
            return CompiledStages(ocp, i, wanted.path[i], wanted.final, plain, parts)
        except (TooLong, TraceError) as reason:
            if engine == "compiled":
                raise
            tell(ocp, i, reason, "the second derivatives" if len(parts) > 1 and parts != kinds[-1] else "")
    return None


def is_compiled(ocp: OCP) -> bool:
    """Whether a phase is on the compiled engine; then linear algebra is, too."""
    samplings = (phase.dynamics.sampling for phase in ocp.phases)
    return any(s is not None and s.backend.engine == "compiled" for s in samplings)


def lq_solver_for(ocp: OCP) -> LQSolver:
    """The solver of LQ problems of a problem's size."""
    if not is_compiled(ocp):
        return NumpyLQ()
    from trajopt.lq.compiled_lq import CompiledLQ

    return CompiledLQ(ocp.manifold.ndx, ocp.nu)
