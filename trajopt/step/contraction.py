"""Choice of the second derivatives of a time step: its own, or forward differentiation of its dynamics."""

from __future__ import annotations

from dynamics_backends.protocol import MissingCapability, is_generic, unwrapped
from dynamics_backends.registry import make_backend
from trajopt.problem.impact_stage import JUMP, ImpactStage
from trajopt.problem.ocp import OCP, DiscreteMap, Sampling, StepContraction
from trajopt.step.sensitivities import SampledSystem


def has_curvature(ocp: OCP) -> bool:
    """True if all time steps of a problem have second derivatives."""
    return missing_curvature(ocp) is None


def missing_curvature(ocp: OCP, *, from_source: bool = False) -> str | None:
    """The reason why a time step of a problem has no second derivatives, with the remedy; None if all have them.

    from_source: accept forward differentiation of the dynamics too, see :func:`contraction_of`.
    """
    without = (phase.dynamics for phase in ocp.phases if phase.dynamics.contract is None)
    return next((_reason(d) for d in without if not (from_source and has_source(d))), None)


def has_source(dynamics: DiscreteMap) -> bool:
    """True if the dynamics can be differentiated by every method, regardless of their backend."""
    return dynamics.sampling is not None and is_generic(dynamics.sampling.backend.map)


def contraction_of(dynamics: DiscreteMap, *, from_source: bool = False) -> StepContraction:
    """Second derivatives of a time step, contracted with a multiplier of x_next.

    from_source: for a backend without second derivatives, use a complex step over dual numbers, which is exact and slower. Raises
    MissingCapability, with the remedy, if the step has no second derivatives.
    """
    own, sampling = dynamics.contract, dynamics.sampling
    if own is not None:
        return own
    if from_source and sampling is not None and has_source(dynamics):
        backend = make_backend(sampling.backend.map, "forward_ad", engine="numpy")
        result = _sampled(sampling._replace(backend=backend)).contract
        assert result is not None
        return result
    raise MissingCapability(_reason(dynamics))


def _reason(dynamics: DiscreteMap) -> str:
    """Sentence that explains why the ``contract`` of a time step is None."""
    sampling = dynamics.sampling
    if sampling is None:
        return (
            f"{type(dynamics).__name__} has no second derivatives (its ``contract`` is None); choose solver = 'slq', or "
            "hessian = 'gauss_newton' for a sparse solver"
        )
    if not has_source(dynamics):
        return (
            f"the backend {sampling.backend.name} has no hessian_contraction; give it one, or choose slq, ilqr, gnms or fddp, or "
            "hessian = 'gauss_newton' for ipm, sqp and dms"
        )
    backend = sampling.backend
    system = f" of {type(unwrapped(backend.map)).__name__}" if backend.name == "analytic" else ""
    return (
        f"the backend {backend.name} has no second derivatives{system}; choose backend = 'forward_ad', 'complex_step' or "
        "'casadi_ad', or 'analytic' for a robot"
    )


def _sampled(sampling: Sampling) -> SampledSystem | ImpactStage:
    """Time step made of these parts."""
    return ImpactStage(sampling.backend) if sampling.scheme == JUMP else SampledSystem(*sampling[:3])
