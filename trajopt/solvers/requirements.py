"""Derivatives that solvers require of a problem, checked before a solve."""

from __future__ import annotations

from typing import Any

from trajopt.problem.ocp import OCP
from trajopt.solvers.options import DDPOptions, DMSOptions, IPMOptions, MethodOptions, SQPOptions
from trajopt.step.contraction import missing_curvature
from trajopt.validation.validation import ERROR, Finding


def requirement_errors(ocp: OCP, solver: str, options: Any) -> list[Finding]:
    """Errors about second derivatives that a solver needs and a backend of the problem lacks, with the remedy."""
    exact = getattr(options, "hessian", "") == "exact"
    sparse = isinstance(options, (DMSOptions, SQPOptions))  # these can differentiate the source itself
    needed = isinstance(options, DDPOptions) or (exact and (sparse or isinstance(options, (IPMOptions, MethodOptions))))
    reason = missing_curvature(ocp, from_source=sparse) if needed else None
    if reason is None:
        return []
    who = solver if isinstance(options, DDPOptions) else f"{solver} with hessian = exact"
    return [Finding(ERROR, f"{who} needs hessian_contraction: {reason}")]
