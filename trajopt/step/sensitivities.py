"""Sampled dynamics: a time step with its sensitivities A = d x_next / d x, B = d x_next / d u, in the tangent spaces.

See :mod:`trajopt.step.step_derivatives` for the formulas of a step. Substeps are chained. A backend provides the derivatives of f
by any method. The second derivatives of a step are its own, or those of forward differentiation of its dynamics
(:func:`contraction_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import (
    Array,
    Batch,
    DynamicsBackend,
    Hessians,
    HoldsBackend,
    Map,
    MissingCapability,
    NeedsScheme,
    Parameters,
    SecondOrderBackend,
    is_generic,
    is_second_order,
    unwrapped,
)
from dynamics_backends.registry import as_backend, make_backend, same_method
from trajopt.problem.impact_stage import JUMP, ImpactStage
from trajopt.problem.ocp import OCP, DiscreteMap, LinearizedStep, Sampling, StepContraction
from trajopt.step.integrators import SCHEMES, SEMI_IMPLICIT_EULER, stage_map, step_rows
from trajopt.step.step_derivatives import Substep, chained, step_hessian, substeps_of

MAX_SUBSTEPS = 10_000
"""Maximum number of substeps in one time step."""


class SampledSystem:
    """System with a backend, discretized by an integration scheme: a :class:`~trajopt.problem.ocp.DiscreteMap`.

    backend: backend of the system, or the system, which then gets its default backend: ``analytic`` if it has closed-form
    derivatives, else ``forward_ad``. scheme: one of :data:`~trajopt.step.integrators.SCHEMES`. substeps: steps of the scheme per
    dt, with constant control. ``stages`` is the backend that steps call: the given one, or one with implicit damping by the same
    method. Raises UnknownName for an unknown scheme, ValueError for a scheme or a number of substeps that does not fit the
    system, and for a map that does not return xdot (ndx,), TypeError for an object that is not a system.
    """

    takes_time = True

    def __init__(self, backend: DynamicsBackend | Map, scheme: str = SEMI_IMPLICIT_EULER, substeps: int = 1) -> None:
        backend = as_backend(backend)
        _check_scheme(backend, scheme, substeps)
        self.backend = backend
        self.stages = stage_backend(backend, scheme)
        self.scheme = scheme
        self.substeps = substeps
        own = None if _overridden(type(self)) else Sampling(backend, scheme, substeps, self.stages)
        self.sampling: Sampling | None = own
        self.system = backend.map
        self.manifold = backend.map.manifold
        self.nu = backend.map.nu
        self.control_names = backend.map.control_names

    def __repr__(self) -> str:
        more = f", {self.substeps} substeps" if self.substeps > 1 else ""
        return f"{type(self).__name__}({self.backend!r}, {self.scheme!r}{more})"

    def under(self, backend: DynamicsBackend) -> SampledSystem:
        """Return time steps of the same scheme with another backend."""
        return SampledSystem(backend, self.scheme, self.substeps)

    def step(self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None) -> Array:
        """Return x_next (N, nx) from x (N, nx), u (N, nu); t, dt: a number or (N,) [s]."""
        b = Batch.of(self.system, x, u, t, p)
        h = np.broadcast_to(np.asarray(dt, float), b.t.shape)
        return np.ascontiguousarray(step_rows(self.stages.map, self.scheme, self.substeps, b.x, b.u, b.t, h, b.p).T)

    def linearize(
        self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None
    ) -> LinearizedStep:
        """Return x_next (N, nx) and its sensitivities A (N, ndx, ndx), B (N, ndx, nu) in the tangent spaces at x and x_next.

        x: (N, nx). u: (N, nu). t, dt: a number or (N,) [s].
        """
        ndx, total, s = self.manifold.ndx, None, None
        for s in self._substeps(x, u, t, dt, p):
            total = chained(s.moved, total)
        assert s is not None and total is not None
        return LinearizedStep(np.ascontiguousarray(s.x_next), total[:, :, :ndx], total[:, :, ndx:])

    @property
    def contract(self) -> StepContraction | None:
        """Function for the Hessian of lam' x_next, from second derivatives of f; None if the backend has none."""
        backend = self.stages
        if not isinstance(backend, SecondOrderBackend):
            return None

        def contracted(x: Array, u: Array, t: Any, dt: Any, p: Parameters | None, lam: Array) -> Hessians:
            """Second derivatives of lam' x_next, by an adjoint sweep over the substeps."""
            return step_hessian(
                backend, self.manifold, self.scheme, list(self._substeps(x, u, t, dt, p)), np.asarray(lam, float)
            )

        return contracted

    def _substeps(
        self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None
    ) -> Iterator[Substep]:
        """Yield the substeps of a step with their derivatives."""
        x, u = np.asarray(x, float), np.asarray(u, float)
        t, dt = (np.broadcast_to(np.asarray(value, float), (len(x),)) for value in (t, dt))
        return substeps_of(self.stages, self.scheme, self.substeps, x, u, t, dt, p or {})


def stage_backend(backend: DynamicsBackend, scheme: str) -> DynamicsBackend:
    """Backend of the system as the stages of a scheme evaluate it, by the same derivative method.

    Returns the given backend unless the system has joint damping, which is then implicit
    (:func:`~trajopt.step.integrators.stage_map`).
    """
    if isinstance(backend, HoldsBackend):
        return backend.of_stages(lambda inner: stage_backend(inner, scheme))
    map = stage_map(backend.map, scheme)
    return backend if map is backend.map else same_method(backend, map)


def _overridden(kind: type) -> bool:
    """True if a subclass overrides ``step`` or ``linearize``, so that its steps cannot be compiled."""
    return any(getattr(kind, name) is not getattr(SampledSystem, name) for name in ("step", "linearize"))


def _check_scheme(backend: DynamicsBackend, scheme: str, substeps: int) -> None:
    """Raise UnknownName for an unknown scheme, ValueError, with the remedy, for substeps or a scheme that do not suit the system.

    substeps: from 1 to MAX_SUBSTEPS. The system returns xdot (ndx,). Semi-implicit Euler needs a second-order system; a system
    with its own time steps needs its scheme.
    """
    if scheme not in SCHEMES:
        raise unknown_name("scheme", scheme, SCHEMES)
    if not isinstance(substeps, int) or not 1 <= substeps <= MAX_SUBSTEPS:
        raise ValueError(f"substeps = {substeps!r}; expected an integer of at least 1 and at most {MAX_SUBSTEPS}")
    system = backend.map
    if system.n_out != system.manifold.ndx:
        raise ValueError(f"the map has {system.n_out} outputs; xdot needs ndx = {system.manifold.ndx}")
    own = unwrapped(system)
    if isinstance(own, NeedsScheme) and scheme != own.scheme:
        raise ValueError(f"{type(own).__name__} defines its own time steps; use scheme = {own.scheme!r}")
    if scheme == SEMI_IMPLICIT_EULER and not is_second_order(system):
        raise ValueError(
            "semi_implicit_euler needs a state (q, v) with qdot = v; declare second_order=True if that holds, "
            "or choose scheme = 'rk4' or 'euler'"
        )


def has_curvature(ocp: OCP) -> bool:
    """True if the time steps of all phases have second derivatives."""
    return missing_curvature(ocp) is None


def missing_curvature(ocp: OCP, *, from_source: bool = False) -> str | None:
    """Return why the first time step without second derivatives has none, with the remedy; None if all phases have them.

    from_source: accept forward differentiation of the dynamics too, see :func:`contraction_of`.
    """
    without = (phase.dynamics for phase in ocp.phases if phase.dynamics.contract is None)
    return next((_reason(d) for d in without if not (from_source and has_source(d))), None)


def has_source(dynamics: DiscreteMap) -> bool:
    """True if the dynamics are generic in the scalar type, so that every derivative method applies, whatever their backend is."""
    return dynamics.sampling is not None and is_generic(dynamics.sampling.backend.map)


def contraction_of(dynamics: DiscreteMap, *, from_source: bool = False) -> StepContraction:
    """Function for the second derivatives of a time step, contracted with a multiplier lam of x_next.

    from_source: for a step without second derivatives of its own, differentiate its dynamics by a complex step over dual numbers,
    which is exact and slower. Raises MissingCapability, with the remedy, if the step has no second derivatives.
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
    if backend.name == "analytic":
        system, or_analytic = f" of {type(unwrapped(backend.map)).__name__}", ""
    else:
        system, or_analytic = "", ", or 'analytic' for a robot"
    return (
        f"the backend {backend.name} has no second derivatives{system}; choose backend = 'forward_ad', 'complex_step' or "
        f"'casadi_ad'{or_analytic}"
    )


def _sampled(sampling: Sampling) -> SampledSystem | ImpactStage:
    """Time step with this backend, scheme and number of substeps: an impact for the scheme "jump", else a SampledSystem."""
    return ImpactStage(sampling.backend) if sampling.scheme == JUMP else SampledSystem(*sampling[:3])
