"""Who finds the second derivatives of a time step: the step itself, or forward differentiation of its source."""

from __future__ import annotations

from dynamics_backends.registry import make_backend
from trajopt.problem.impact_stage import JUMP, ImpactStage
from trajopt.problem.ocp import OCP, DiscreteMap, Sampling, StepContraction
from trajopt.step.sensitivities import SampledSystem


def has_curvature(ocp: OCP) -> bool:
    """Whether all time steps of a problem have second derivatives."""
    try:
        for phase in ocp.phases:
            contraction_of(phase.dynamics)
    except TypeError:
        return False
    return True


def contraction_of(dynamics: DiscreteMap, *, from_source: bool = False) -> StepContraction:
    """The second derivatives of a time step, contracted with a multiplier of x_next.

    from_source: where its backend has none, a complex step over dual numbers takes them from the source of the dynamics; as exact,
    and slower. Raises TypeError where there are none, naming the remedy.
    """
    if dynamics.contract is not None:
        return dynamics.contract
    sampling = dynamics.sampling
    if sampling is None:
        raise TypeError(
            f"{type(dynamics).__name__} has no second derivatives (its ``contract`` is None); choose solver = 'slq', or "
            "hessian = 'gauss_newton' for a sparse solver"
        )
    if from_source:
        found = _sampled(
            sampling._replace(backend=make_backend(sampling.backend.map, "forward_ad", engine="numpy"))
        ).contract
        assert found is not None
        return found
    raise TypeError(
        f"the backend {sampling.backend.name} has no second derivatives of {type(sampling.backend.map).__name__}; choose "
        "backend = 'analytic' (free bodies), 'forward_ad' or 'casadi_ad'"
    )


def _sampled(sampling: Sampling) -> SampledSystem | ImpactStage:
    """A time step of these parts."""
    return ImpactStage(sampling.backend) if sampling.scheme == JUMP else SampledSystem(*sampling[:3])
