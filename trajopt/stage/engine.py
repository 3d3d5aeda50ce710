"""Choice of the engine: compiled code for phases whose backends are on the compiled engine, NumPy for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dynamics_backends import registry
from dynamics_backends.protocol import MissingCapability, is_generic
from dynamics_backends.registry import engine_in_use
from trajopt.lq.compiled_lq import compiled_lq
from trajopt.lq.lq_solver import LQSolver, NumpyLQ
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.stage.not_compiled import tell
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.stages import Stages
from trajopt.stage.start import starts_at_once

if TYPE_CHECKING:
    from trajopt.stage.compiled.choice import CompiledChoice

Engine = Literal["auto", "numpy", "compiled", "loaded"]
"""auto: by the backend of each phase. compiled: whatever the backends say; what cannot be compiled is an error. loaded: compiled
code that this process has loaded already, else NumPy; nothing is compiled or awaited."""


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
    *plain, end = _plain(ocp, wanted)
    found: list[Stages] = [*plain, end]
    if engine == "numpy":
        return found
    compiled = [_compiled(ocp, i, wanted._replace(path=path), plain[i], end, engine) for i in range(len(ocp.phases))]
    if engine == "loaded":
        pairs = [None if choice is None else choice.loaded() for choice in compiled]
        for i, pair in enumerate(pairs):
            if pair is not None:
                found[i], found[-1] = pair
        return found
    if not any(compiled):
        return found
    from trajopt.stage.compiled import builds

    asked = [choice for choice in compiled if choice is not None]
    at_once = starts_at_once() and engine == "auto"
    if not at_once:
        builds.make_here([builds.search(c.backend, c.shapes[0]) for c in asked])
    for i, choice in enumerate(compiled):
        pair = None if choice is None else choice.at_once() if at_once else choice.waited_for()
        if pair is not None:
            found[i], found[-1] = pair
    if at_once:
        asked = _most_served_first(asked)
        builds.request([c.search for c in asked], [c.bare for c in asked if c.bare.shape != c.search.shape])
    return found


def _most_served_first(choices: Sequence[CompiledChoice]) -> list[CompiledChoice]:
    """The phases by how many knots their library serves, so that what takes NumPy longest is compiled first."""
    knots: Counter[Any] = Counter()
    for choice in choices:
        knots[choice.search] += choice.knots
    return sorted(choices, key=lambda choice: -knots[choice.search])


def may_follow(stages: Sequence[Stages]) -> bool:
    """True if stages can go on with another problem: where all of each are compiled."""
    if not all(s.compiled for s in stages):
        return False
    from trajopt.stage.compiled.compiled_end import CompiledEnd
    from trajopt.stage.compiled.compiled_stages import CompiledStages

    *phases, end = stages
    return all(type(s) is CompiledStages for s in phases) and type(end) is CompiledEnd


def follow(stages: Sequence[Stages], before: OCP, ocp: OCP, wanted: Wanted) -> bool:
    """Give the stages of a problem the values of another one of the same structure; False where it has another.

    stages: that :func:`may_follow`. wanted: of the other one, what was asked of the first but for values.
    """
    if ocp.manifold is not before.manifold or ocp.nu != before.nu or len(ocp.phases) != len(before.phases):
        return False
    phases: list[Any] = list(stages[:-1])
    end: Any = stages[-1]
    *plain, last = _again(phases, end, ocp) if ocp is before else _plain(ocp, wanted)
    given = list(zip(phases, plain, ocp.phases, strict=True))
    if not all(own.fits(new, phase) for own, new, phase in given) or not end.fits(last):
        return False
    for own, new, phase in given:
        own.take(new, phase)
    end.take(last)
    return True


def _again(phases: Sequence[Any], end: Any, ocp: OCP) -> list[NumpyStages]:
    """The NumPy stages of the same problem, whose arrays may have been given other values since."""
    found, t = [s.plain for s in (*phases, end)], ocp.t
    for plain, knots in zip(found, (*ocp.phase_slices, slice(-1, None)), strict=True):
        plain.t = t[knots]
    return found


def _plain(ocp: OCP, wanted: Wanted) -> list[NumpyStages]:
    """The phases and the final knot in NumPy."""
    manifold, nu, hessian, t = ocp.manifold, ocp.nu, wanted.hessian, ocp.t
    path = wanted.path or [()] * len(ocp.phases)
    found = []
    for phase, knots, rows in zip(ocp.phases, ocp.phase_slices, path, strict=True):
        given = (phase.dynamics, phase.terms, rows, t[knots], phase.dt, nu, phase.parameters)
        found.append(NumpyStages(manifold, *given, start=knots.start, hessian=hessian, scale=phase.weights))
    final = (None, ocp.terminal, wanted.final, t[-1:], np.ones(1), 0)
    return [*found, NumpyStages(manifold, *final, start=ocp.horizon, hessian=hessian)]


def _compiled(
    ocp: OCP, i: int, wanted: Wanted, plain: NumpyStages, end: NumpyStages, engine: Engine
) -> CompiledChoice | None:
    """Choice of compiled code for the stages of a phase; None if it is not to be compiled, or cannot be."""
    sampling = ocp.phases[i].dynamics.sampling
    if sampling is None or (engine != "compiled" and sampling.backend.engine != "compiled"):
        return None
    from dynamics_backends.compiled.interface.sources import has_contraction, has_source
    from trajopt.stage.compiled.choice import CompiledChoice
    from trajopt.stage.compiled.library import ALONE, CURVED, ROLLED

    if not has_source(sampling.backend):
        if engine == "compiled":
            raise ValueError(f"phase {i} cannot be compiled with the derivative method {sampling.backend.name}")
        if engine == "auto":
            tell(ocp, i, MissingCapability(f"the derivative method {sampling.backend.name} is not compiled"))
        return None
    curved = wanted.second and has_contraction(sampling.called)
    kinds = [ROLLED] if wanted.rollout else [CURVED, ALONE] if curved else [ALONE]
    return CompiledChoice(ocp, i, plain, end, kinds, required=engine == "compiled")


def is_compiled(ocp: OCP) -> bool:
    """True if a phase is on the compiled engine; then linear algebra is, too."""
    samplings = (phase.dynamics.sampling for phase in ocp.phases)
    return any(s is not None and s.backend.engine == "compiled" for s in samplings)


def lq_solver_for(ocp: OCP, carried: bool = False) -> LQSolver:
    """The solver of LQ problems of a problem's size; carried: with the controls of the step before as part of the state.

    It is compiled for users' backends too: their engine is NumPy for want of a source, not by choice.
    """
    if not is_compiled(ocp) and not (has_own_backend(ocp) and engine_in_use(registry.DEFAULT_ENGINE) == "compiled"):
        return NumpyLQ()
    return compiled_lq(ocp.manifold.ndx + (ocp.nu if carried else 0), ocp.nu)


def has_own_backend(ocp: OCP) -> bool:
    """True if a phase has a user's backend."""
    samplings = (phase.dynamics.sampling for phase in ocp.phases)
    return any(s is not None and not is_generic(s.backend.map) for s in samplings)
