"""Doubts that only the systems of a problem can raise: about their start, and about time steps too long for what is stiff in them.

An explicit step of length h multiplies a mode of xdot = f(x) with eigenvalue lambda by R(h lambda), the Taylor polynomial of
exp up to the scheme's order; semi-implicit Euler has the matrix [[1 + h^2 a_q, h (1 + h a_v)], [h a_q, 1 + h a_v]] instead.
Steps are stable where no mode that decays, or swings, is made to grow.  (Hairer, Wanner, Solving ODEs II, IV.2.)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, factorial
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array, HasDoubts, HasPartials, unwrapped
from dynamics_backends.registry import make_backend
from trajopt.problem.impact_stage import JUMP
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER

STIFF = 0.3
"""|h lambda| from which on a mode is the step's concern: slower ones grow by accuracy, not by stability."""
GROWTH = 1e-6
"""Growth in a step that is taken for rounding."""


def system_doubts(ocp: Any) -> Iterator[str]:
    """Sentences about the phases of a problem whose systems have doubts of their own."""
    told: set[str] = set()
    for i, phase in enumerate(ocp.phases):
        sampling = phase.dynamics.sampling
        system: Any = None if sampling is None else unwrapped(sampling.backend.map)
        if not isinstance(system, HasDoubts):
            continue
        p = {name: value if value.ndim == 1 else value[0] for name, value in phase.parameters.items()}
        found = [*(system.doubts(ocp.x0, p) if i == 0 else ()), *_steps(system, phase, ocp.x0)]
        yield from (text for text in found if text not in told)
        told.update(found)


def _steps(system: Any, phase: Any, x0: Array) -> Iterator[str]:
    _, scheme, substeps = phase.dynamics.sampling
    if scheme == JUMP:
        return
    method = "analytic" if isinstance(system, HasPartials) else "forward_ad"
    p = {k: v if v.ndim == 1 else v[:1] for k, v in phase.parameters.items()}
    fx = make_backend(system, method, engine="numpy").jacobians(x0[None], np.zeros((1, system.nu)), 0.0, p).fx[0]
    step = float(phase.dt.max()) / substeps
    stable = largest_stable_step(fx, scheme, step)
    if stable < step:
        yield (
            f"the {system.stiff} are too stiff for the time step: at x0 {scheme} is stable up to {1e3 * stable:.2g} ms, and its "
            f"steps take {1e3 * step:.2g} ms; take substeps = {ceil(substeps * step / stable)} or more, or softer {system.stiff}"
        )


def largest_stable_step(fx: Array, scheme: str, longest: float) -> float:
    """The largest step [s], up to ``longest``, at which a scheme does not ring on xdot = fx x; fx (ndx, ndx)."""
    if not _rings(fx, scheme, longest):
        return longest
    low, high = 0.0, longest
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _rings(fx, scheme, middle) else (middle, high)
    return low


def _rings(fx: Array, scheme: str, h: float) -> bool:
    """Whether a stiff mode grows that should not."""
    rates = np.linalg.eigvals(fx)
    if scheme == SEMI_IMPLICIT_EULER:
        factors = np.linalg.eigvals(_semi_implicit(fx, h))
        allowed = np.exp(h * max(0.0, float(rates.real.max())))
        turning = np.abs(np.angle(factors)) > STIFF
        return bool(np.any(turning & (np.abs(factors) > allowed + GROWTH)))
    z = h * rates[rates.real <= GROWTH * np.abs(rates)]
    z = z[np.abs(z) > STIFF]
    terms = RUNGE_KUTTA[scheme].order + 1
    R = np.sum([z**k / factorial(k) for k in range(terms)], axis=0) if z.size else z
    return bool(np.any(np.abs(R) > 1.0 + GROWTH))


def _semi_implicit(fx: Array, h: float) -> Array:
    n = len(fx) // 2
    a_q, a_v, one = fx[n:, :n], fx[n:, n:], np.eye(n)
    slower = one + h * a_v
    return np.block([[one + h * h * a_q, h * slower], [h * a_q, slower]])
