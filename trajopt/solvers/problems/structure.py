"""Comparison of the structure of problems: two problems of one structure differ in run-time values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface import Likeness
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.validation.validation import structure_errors


def require_alike(ocps: Sequence[OCP]) -> None:
    """Raise ValueError if a problem differs in structure from the first one, or if its arrays have wrong shapes."""
    first, alike, seen = ocps[0], Likeness(), set[int]()
    for i, ocp in enumerate(ocps):
        if id(ocp) in seen:
            continue
        seen.add(id(ocp))
        difference = None if ocp is first else next(differences(first, ocp, alike), None)
        if difference is not None:
            raise ValueError(
                f"problem {i} of the batch differs in structure from problem 0: {difference}; "
                "solve problems of another structure in a separate batch"
            )
        if errors := structure_errors(ocp):
            raise ValueError(f"problem {i} of the batch is invalid: {'; '.join(errors)}")


def differences(a: OCP, b: OCP, alike: Likeness | None = None) -> Iterator[str]:
    """Yield the differences in structure of problem b from problem a; alike: cache of comparisons with a."""
    alike = alike or Likeness()
    yield from _unequal("states", a.manifold.tangent_names, b.manifold.tangent_names)
    yield from _unequal("controls", a.nu, b.nu)
    yield from _unequal("phases", len(a.phases), len(b.phases))
    yield from _unequal("bounds on the controls", _has_bounds(a), _has_bounds(b))
    for i, (p, q) in enumerate(zip(a.phases, b.phases, strict=False)):
        yield from (f"in phase {i}, {difference}" for difference in _phase_differences(p, q, alike))
    yield from _part_differences("terminal cost terms", a.terminal, b.terminal, alike)
    yield from _part_differences("terminal constraints", a.terminal_constraints, b.terminal_constraints, alike)


def _phase_differences(p: Phase, q: Phase, alike: Likeness) -> Iterator[str]:
    yield from _unequal("knots", p.knots, q.knots)
    yield from _unequal("parameters of the dynamics", _sizes(p.parameters), _sizes(q.parameters))
    if p.dynamics is not q.dynamics:
        own, other = p.dynamics.sampling, q.dynamics.sampling
        if own is None or other is None:
            yield "the dynamics are user-defined functions; use the same object in all problems"
        else:
            yield from _unequal("scheme of integration", own.scheme, other.scheme)
            yield from _unequal("substeps", own.substeps, other.substeps)
            yield from _unequal("derivatives", own.called.name, other.called.name)
            yield from _unequal("engine", own.called.engine, other.called.engine)
            if not alike(own.called.map, other.called.map):
                yield "the dynamics differ (to vary the inertias of one robot, make them parameters, see InertialBody)"
    yield from _part_differences("cost terms", p.terms, q.terms, alike)
    yield from _part_differences("constraints", p.constraints, q.constraints, alike)


def _part_differences(kind: str, a: Sequence[Any], b: Sequence[Any], alike: Likeness) -> Iterator[str]:
    yield from _unequal(kind, [part.name for part in a], [part.name for part in b])
    for p, q in zip(a, b, strict=False):
        yield from _unequal(f"parameters of {p.name!r}", _sizes(p.parameters), _sizes(q.parameters))
        if isinstance(p, CostTerm):
            yield from _unequal(f"squared of {p.name!r}", p.squared, q.squared)
        if p.residual is not q.residual and not alike(p.residual, q.residual):
            yield f"the residual of {p.name!r} is another function"


def _has_bounds(ocp: OCP) -> bool:
    return ocp.u_lower is not None or ocp.u_upper is not None


def _sizes(parameters: Any) -> list[tuple[str, int]]:
    return [(name, np.shape(value)[-1]) for name, value in parameters.items()]


def _unequal(name: str, a: Any, b: Any) -> Iterator[str]:
    if a != b:
        yield f"{name}: {b} instead of {a}"
