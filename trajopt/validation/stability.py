"""Time steps too long for the stiffest motions of a system: what explicit integration answers with growth.

A step of length h multiplies the modes of the linearization xdot = F x + L v by the eigenvalues of a matrix R(h), where L = -M^-1 D
is the damping that schemes take implicitly (:mod:`trajopt.step.integrators`) and F everything else:

    k_i = F (1 + h sum_(j < i) a_ij k_j) + L (v-rows of 1 + h sum_(j <= i) ai_ij k_j),     R = 1 + h sum_i b_i k_i

with v+ = v + h a, q+ = q + h v+ for semi-implicit Euler.  Steps are stable where no mode that decays, or swings, is made to
grow.  (Hairer, Wanner, Solving ODEs II, IV.2.)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, factorial
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import (
    IMPLICIT_STEP,
    Array,
    DynamicsBackend,
    HasJointFriction,
    HasPartials,
    HasWarnings,
    is_generic,
    is_second_order,
    unwrapped,
)
from dynamics_backends.registry import METHODS, at_once, make_backend
from trajopt.problem.impact_stage import JUMP
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER, stage_map
from trajopt.step.sensitivities import MOST_SUBSTEPS

ROOM = 4.0
"""Margin: time steps that are stable at x0 even if this many times as long are assumed to be stable at other starts."""
STIFF = 0.3
"""|h lambda| from which on a mode is the step's concern: slower ones grow by accuracy, not by stability."""
GROWTH = 1e-6
"""Growth in a step that is taken for rounding."""


class Linearization(NamedTuple):
    """xdot = F x + L v about a state: F (ndx, ndx), and L (ndx, nv) of damping that is taken implicitly, or None."""

    F: Array
    L: Array | None = None

    @property
    def whole(self) -> Array:
        """The matrix (ndx, ndx) of both."""
        if self.L is None:
            return self.F
        nv = self.L.shape[1]
        whole = self.F.copy()
        whole[:, nv : 2 * nv] += self.L
        return whole


def stability_warnings(ocp: Any, stable: set[Any] | None = None) -> Iterator[str]:
    """Sentences about the phases of a problem whose time steps are too long for their systems at x0.

    stable: keys of phases of the last problem with these systems that are stable with a wide margin, which are not linearized
    again; replaced by those of this problem.
    """
    stable = set() if stable is None else stable
    told: set[str] = set()
    found: set[Any] = set()
    for phase in ocp.phases:
        key = (id(phase.dynamics), float(phase.dt.max()), *((k, v.tobytes()) for k, v in phase.parameters.items()))
        text = None if key in stable else _doubt(phase, ocp.x0)
        if text is None:
            found.add(key)
        elif text and text not in told:
            told.add(text)
            yield text
    stable.clear()
    stable.update(found)


def _doubt(phase: Any, x0: Array) -> str | None:
    """A sentence, "" without one, None where steps ROOM times as long would be stable or nothing is known."""
    sampling = phase.dynamics.sampling
    if sampling is None or sampling.scheme == JUMP:
        return None
    scheme, substeps, system = sampling.scheme, sampling.substeps, unwrapped(sampling.backend.map)
    known = isinstance(system, HasPartials) or not is_generic(system) or sampling.backend.name in METHODS
    if not known:
        return None
    method = "analytic" if isinstance(system, HasPartials) else sampling.backend.name
    p = {k: v if v.ndim == 1 else v[:1] for k, v in phase.parameters.items()}
    at = _linearization(system, method, x0, p) if is_generic(system) else _given(sampling.called, x0, p)
    step = float(phase.dt.max()) / substeps
    if not np.isfinite(at.whole).all():
        return None
    stable = largest_stable_step(at, scheme, step)
    if stable >= step:
        return "" if _rings(at, scheme, ROOM * step) else None
    needed = substeps * step / stable if stable else np.inf
    limits = (
        f"at x0 {scheme} is stable for steps up to {1e3 * stable:.2g} ms, but its steps are {1e3 * step:.2g} ms long"
    )
    finer = f"use substeps = {ceil(needed)} or more, or" if needed <= MOST_SUBSTEPS else "use"
    if isinstance(system, HasWarnings):
        stiff = system.stiff
        return f"the {stiff} are too stiff for the time step: {limits}; {finer} softer {stiff}"
    rate, name = _stiffest(at.whole, system)
    softer = (
        ", or a larger friction_velocity" if isinstance(system, HasJointFriction) and system.coulomb is not None else ""
    )
    return (
        f"the time step is too long for the motion of {name}, whose rate is {rate:.3g} 1/s: {limits}; "
        f"{finer} a shorter dt{softer}"
    )


def stable_substeps(system: HasPartials, scheme: str, x0: Array, step: float) -> int:
    """In how many equal substeps of a step [s] a scheme makes no mode grow, about x0 (nx,) with zero controls."""
    at = _linearization(system, "analytic", x0, {})
    return ceil(step / largest_stable_step(at, scheme, step)) if np.isfinite(at.whole).all() else 1


def _linearization(system: Any, method: str, x0: Array, p: Any) -> Linearization:
    """The linearization about x0 with zero controls."""
    stage = stage_map(system, "rk4")
    if stage is system:
        return Linearization(_jacobians(system, method, x0, p).fx[0])
    j = _jacobians(stage, method, x0, {**p, IMPLICIT_STEP: np.zeros(1)})
    L = j.fu[0][:, system.nu :]
    F, nv = j.fx[0].copy(), L.shape[1]
    F[:, nv : 2 * nv] -= L
    return Linearization(F, L)


def _given(backend: DynamicsBackend, x0: Array, p: Any) -> Linearization:
    """The linearization by a backend that alone can differentiate its system."""
    with np.errstate(all="ignore"):
        return Linearization(backend.jacobians(x0[None], np.zeros((1, backend.map.nu)), 0.0, p).fx[0])


def _jacobians(map: Any, method: str, x0: Array, p: Any) -> Any:
    with np.errstate(all="ignore"):  # what is not finite at x0 is told by the solve
        return at_once(make_backend(map, method, engine="numpy")).jacobians(x0[None], np.zeros((1, map.nu)), 0.0, p)


def _stiffest(A: Array, system: Any) -> tuple[float, str]:
    """The largest rate [1/s], and the tangent direction that moves most in its mode (of velocities, where there are)."""
    rates, modes = np.linalg.eig(A)
    worst = int(np.argmax(np.abs(rates)))
    mode, names = np.abs(modes[:, worst]), system.manifold.tangent_names
    first = len(mode) // 2 if is_second_order(system) else 0
    return float(np.abs(rates[worst])), names[first + int(np.argmax(mode[first:]))]


def largest_stable_step(at: Linearization, scheme: str, longest: float) -> float:
    """The largest step [s], up to ``longest``, at which a scheme makes no mode grow that should not."""
    if not _rings(at, scheme, longest):
        return longest
    low, high = 0.0, longest
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _rings(at, scheme, middle) else (middle, high)
    return low


def _rings(at: Linearization, scheme: str, h: float) -> bool:
    """True if a stiff mode grows that should not; growth beyond the range of floating-point numbers counts."""
    with np.errstate(over="ignore"):
        allowed = np.exp(h * max(0.0, float(np.linalg.eigvals(at.whole).real.max())))
    try:
        with np.errstate(over="raise", invalid="raise"):
            if at.L is None and scheme in RUNGE_KUTTA:
                return _rings_explicitly(np.linalg.eigvals(at.F), RUNGE_KUTTA[scheme].order, h)
            factors = np.linalg.eigvals(amplification(at, scheme, h))
            size = np.abs(factors)
    except FloatingPointError:
        return True
    stiff = (np.abs(np.angle(factors)) > STIFF) | (size > (1.0 + STIFF) * allowed)
    return bool(np.any(stiff & (size > allowed + GROWTH)))


def _rings_explicitly(rates: Array, order: int, h: float) -> bool:
    """True if an explicit scheme rings, mode by mode: R is the Taylor polynomial of exp up to the order."""
    z = h * rates[rates.real <= GROWTH * np.abs(rates)]
    z = z[np.abs(z) > STIFF]
    R = np.sum([z**k / factorial(k) for k in range(order + 1)], axis=0) if z.size else z
    return bool(np.any(np.abs(R) > 1.0 + GROWTH))


def amplification(at: Linearization, scheme: str, h: float) -> Array:
    """R(h) (ndx, ndx) of the module's docstring."""
    n = len(at.F)
    L = np.zeros((n, 0)) if at.L is None else at.L
    nv, one = L.shape[1], np.eye(n)

    def slope(y: Array, w: Array, share: float) -> Array:
        """k = F y + L (w + share h k_v)."""
        padded = np.zeros((n, n))
        padded[:, nv : 2 * nv] = share * h * L
        return np.linalg.solve(one - padded, at.F @ y + L @ w[nv : 2 * nv])

    if scheme == SEMI_IMPLICIT_EULER:
        k = slope(one, one, 1.0)
        v = one[n // 2 :] + h * k[n // 2 :]
        return np.concatenate([one[: n // 2] + h * v, v])
    tableau, slopes = RUNGE_KUTTA[scheme], list[Array]()
    for i, row in enumerate(tableau.a):
        y, w = (one + h * _combined(weights, slopes) for weights in (row, tableau.implicit[i][:-1]))
        slopes.append(slope(y, w, tableau.implicit[i][i]))
    return one + h * _combined(tableau.b, slopes)


def _combined(weights: tuple[float, ...], slopes: list[Array]) -> Any:
    return sum(weight * own for weight, own in zip(weights, slopes, strict=False))
