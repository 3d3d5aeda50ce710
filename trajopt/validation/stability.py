"""Stability check of time steps: warn if steps are too long for the stiffest modes of the dynamics.

A step of length h multiplies the modes of the linearization xdot = F x + L v by the eigenvalues of a matrix R(h). L = -M^-1 D
is the damping that schemes treat implicitly (:mod:`trajopt.step.integrators`), F everything else:

    k_i = F (1 + h sum_(j < i) a_ij k_j) + L (v-rows of 1 + h sum_(j <= i) ai_ij k_j),     R = 1 + h sum_i b_i k_i

with v+ = v + h a, q+ = q + h v+ for semi-implicit Euler.  Steps are stable if no stiff mode grows more than in continuous time.
(Hairer, Wanner, Solving ODEs II, IV.2.)
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
    HasConstraints,
    HasJointFriction,
    HasPartials,
    HasWarnings,
    Map,
    innermost,
    is_generic,
    is_second_order,
)
from dynamics_backends.registry import METHODS, make_backend
from trajopt.problem.impact_stage import JUMP
from trajopt.problem.ocp import stretch
from trajopt.problem.terms import parameters_at
from trajopt.step.integrators import RUNGE_KUTTA, SEMI_IMPLICIT_EULER, stage_map
from trajopt.step.sensitivities import MAX_SUBSTEPS

SAFETY_FACTOR = 4.0
"""Safety factor: if steps this many times as long are stable at x0, other states are assumed to be stable too."""
STIFF = 0.3
"""Value of |h lambda| above which a mode is checked; slower modes are limited by accuracy, not by stability."""
GROWTH = 1e-6
"""Growth per step that counts as rounding."""
VIOLATED = 1e-3
"""Velocity [m/s or rad/s] of a constraint's row, in a mode whose velocities have the norm 1, above which the mode violates it."""


class Linearization(NamedTuple):
    """Linearization xdot = F x + L v at a state: F (ndx, ndx); L (ndx, nv): damping treated implicitly, or None."""

    F: Array
    L: Array | None = None

    @property
    def total(self) -> Array:
        """F with L added to the columns of the velocity, the Jacobian (ndx, ndx) of xdot."""
        if self.L is None:
            return self.F
        nv = self.L.shape[1]
        total = self.F.copy()
        total[:, nv : 2 * nv] += self.L
        return total


def stability_warnings(ocp: Any, stable: set[Any] | None = None, *, extremes: bool = False) -> Iterator[str]:
    """Yield warnings about phases whose time steps are too long for their dynamics at x0, with controls zero, or nearest to zero.

    stable: keys of phases of the previous problem that are stable with a wide margin or cannot be checked; these are not linearized
    again. The content of the set is replaced by the keys of this problem. Equal warnings are given once. extremes: also with the
    controls at their lower and at their upper bounds.
    """
    stable = set() if stable is None else stable
    reported: set[str] = set()
    found: set[Any] = set()
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        own = (float(phase.dt.max()), *((k, v.tobytes()) for k, v in phase.parameters.items()))
        for where, u in _controls(ocp, phase.dynamics.nu, knots.start, extremes):
            key = (id(phase.dynamics), u.tobytes(), *own)
            text = None if key in stable else _stability_warning(phase, ocp.x0, u, where)
            if text is None:
                found.add(key)
            elif text and text not in reported:
                reported.add(text)
                yield text
    stable.clear()
    stable.update(found)


def _controls(ocp: Any, nu: int, knot: int, extremes: bool) -> list[tuple[str, Array]]:
    """Return descriptions and values (nu,) of the controls at which a knot is checked, see :func:`stability_warnings`."""
    zero = np.zeros(nu)
    if ocp.control_bounds is None:
        return [("x0", zero)]
    lower, upper = (np.broadcast_to(bound[knot, :nu], nu) for bound in ocp.control_bounds)
    least = np.clip(zero, lower, upper)
    at_bounds = [(f"x0 with the controls at their {n} bounds", b) for n, b in (("lower", lower), ("upper", upper))]
    return [("x0", least), *((w, np.where(np.isfinite(b), b, least)) for w, b in at_bounds if extremes)]


def _stability_warning(phase: Any, x0: Array, u: Array, where: str) -> str | None:
    """Return a warning, or "" if steps are stable at x0 (nx,) with controls u (nu,), but not SAFETY_FACTOR times as long ones.

    where: describes x0 and u. None if those would be stable too, for impacts and user-defined maps, and if the derivatives are
    unknown or not finite.
    """
    sampling = phase.dynamics.sampling
    if sampling is None or sampling.scheme == JUMP:
        return None
    scheme, substeps, system = sampling.scheme, sampling.substeps, phase.system
    method = "analytic" if isinstance(system, HasPartials) else sampling.backend.name
    if method not in METHODS and is_generic(system):
        return None
    p = parameters_at(phase.parameters, slice(1))
    at = _linearization(system, method, x0, u, p) if is_generic(system) else _linearize_by(sampling.called, x0, u, p)
    step = float(phase.dt.max()) / substeps
    if not np.isfinite(at.total).all():
        return None
    stable = largest_stable_step(at, scheme, step)
    if stable >= step:
        return "" if _is_unstable(at, scheme, SAFETY_FACTOR * step) else None
    needed, longer = substeps * step / stable if stable else np.inf, float(np.ravel(stretch(phase, x0[None]))[0])
    limits = (
        f"at {where} {scheme} is stable for steps up to {1e3 * longer * stable:.2g} ms, but its steps are "
        f"{1e3 * longer * step:.2g} ms long"
    )
    finer = f"use substeps = {ceil(needed)} or more, or" if needed <= MAX_SUBSTEPS else "use"
    if isinstance(system, HasWarnings):
        stiff = system.stiff
        return f"the {stiff} are too stiff for the time step: {limits}; {finer} softer {stiff}"
    rate, name, mode = _stiffest(at.total, system)
    own = innermost(system)
    tied = _stiff_constraint(own, x0, mode, p)
    softer = ", or a larger friction_velocity" if isinstance(own, HasJointFriction) and own.coulomb is not None else ""
    softer = ", or smaller gains" if tied else softer
    stiff = f"the gains (kp, kd) of constraint {tied!r}" if tied else f"the motion of {name}"
    return f"the time step is too long for {stiff}, whose rate is {rate / longer:.3g} 1/s: {limits}; {finer} a shorter dt{softer}"


def stable_substeps(system: Map, scheme: str, x0: Array, step: float) -> int:
    """Return the smallest number of equal substeps of a step [s] for which a scheme is stable at x0 (nx,) with zero controls.

    It follows from :func:`largest_stable_step`. 1 if the derivatives are not finite.
    """
    at = _linearization(system, "analytic", x0, np.zeros(system.nu), {})
    return ceil(step / largest_stable_step(at, scheme, step)) if np.isfinite(at.total).all() else 1


def _linearization(system: Any, method: str, x0: Array, u: Array, p: Any) -> Linearization:
    """Linearize a system at x0 with controls u; damping that schemes treat implicitly, if any, becomes L."""
    stage = stage_map(system, "rk4")
    if stage is system:
        return Linearization(_jacobians(system, method, x0, u, p).fx[0])
    padded = np.concatenate([u, np.zeros(stage.nu - len(u))])
    j = _jacobians(stage, method, x0, padded, {**p, IMPLICIT_STEP: np.zeros(1)})
    L = j.fu[0][:, system.nu :]
    F, nv = j.fx[0].copy(), L.shape[1]
    F[:, nv : 2 * nv] -= L
    return Linearization(F, L)


def _linearize_by(backend: DynamicsBackend, x0: Array, u: Array, p: Any) -> Linearization:
    """Linearize at x0 with controls u by a backend that alone can differentiate its system; without implicit damping."""
    with np.errstate(all="ignore"):
        return Linearization(backend.jacobians(x0[None], u[None], 0.0, p).fx[0])


def _jacobians(map: Any, method: str, x0: Array, u: Array, p: Any) -> Any:
    """Jacobians of a map at x0 with controls u, by a derivative method in NumPy."""
    with np.errstate(all="ignore"):  # solvers report non-finite values at x0
        return make_backend(map, method, engine="numpy").jacobians(x0[None], u[None], 0.0, p)


def _stiffest(A: Array, system: Any) -> tuple[float, str, Array]:
    """Return the largest rate |lambda| [1/s] of A, the name of the tangent direction with the largest entry in its mode, and the
    mode (ndx,).

    For second-order systems the direction is that of a velocity.
    """
    rates, modes = np.linalg.eig(A)
    worst = int(np.argmax(np.abs(rates)))
    mode, names = modes[:, worst], system.manifold.tangent_names
    first = len(mode) // 2 if is_second_order(system) else 0
    return float(np.abs(rates[worst])), names[first + int(np.argmax(np.abs(mode[first:])))], mode


def _stiff_constraint(system: Any, x0: Array, mode: Array, p: Any) -> str:
    """Return the name of the constraint that a mode (ndx,) violates most at x0, as only modes of its gains do; "" if none."""
    nx, ndx = system.manifold.nx, system.manifold.ndx  # without free durations, with which x0 and the mode end
    if not isinstance(system, HasConstraints):
        return ""
    v = mode[ndx // 2 : ndx]
    v = v.real if np.linalg.norm(v.real) > np.linalg.norm(v.imag) else v.imag
    speeds = system.speeds(np.concatenate([x0[: nx - len(v)], v / np.linalg.norm(v)]), p)
    worst = max(speeds, key=lambda name: speeds[name])
    return worst if speeds[worst] > VIOLATED else ""


def largest_stable_step(at: Linearization, scheme: str, longest: float) -> float:
    """Return the largest stable step [s] of a scheme, up to ``longest``, by bisection to 0.1 %."""
    if not _is_unstable(at, scheme, longest):
        return longest
    low, high = 0.0, longest
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _is_unstable(at, scheme, middle) else (middle, high)
    return low


def _is_unstable(at: Linearization, scheme: str, h: float) -> bool:
    """True if a stiff mode grows more in a step h [s] than the fastest growing mode in continuous time; overflow counts as growth.

    Without implicit damping, Runge-Kutta schemes are checked by :func:`_is_unstable_explicit`.
    """
    try:
        with np.errstate(over="raise", invalid="raise"):
            if at.L is None and scheme in RUNGE_KUTTA:
                return _is_unstable_explicit(np.linalg.eigvals(at.F), RUNGE_KUTTA[scheme].order, h)
        with np.errstate(over="ignore"):
            allowed = np.exp(h * max(0.0, float(np.linalg.eigvals(at.total).real.max())))
        with np.errstate(over="raise", invalid="raise"):
            factors = np.linalg.eigvals(amplification(at, scheme, h))
            size = np.abs(factors)
    except FloatingPointError:
        return True
    stiff = (np.abs(np.angle(factors)) > STIFF) | (size > (1.0 + STIFF) * allowed)
    return bool(np.any(stiff & (size > allowed + GROWTH)))


def _is_unstable_explicit(rates: Array, order: int, h: float) -> bool:
    """True if a stiff mode that does not grow in continuous time grows in a step h [s] of an explicit scheme.

    rates: eigenvalues. R is the Taylor polynomial of exp up to the order.
    """
    z = h * rates[rates.real <= GROWTH * np.abs(rates)]
    z = z[np.abs(z) > STIFF]
    R = np.sum([z**k / factorial(k) for k in range(order + 1)], axis=0) if z.size else z
    return bool(np.any(np.abs(R) > 1.0 + GROWTH))


def amplification(at: Linearization, scheme: str, h: float) -> Array:
    """Return R(h) (ndx, ndx), by which a step h [s] of a scheme multiplies a linear system's state."""
    n = len(at.F)
    L = np.zeros((n, 0)) if at.L is None else at.L
    nv, one = L.shape[1], np.eye(n)

    def slope(y: Array, w: Array, fraction: float) -> Array:
        """Return k = F y + L (w + fraction h k_v), with k_v the velocity rows of k."""
        padded = np.zeros((n, n))
        padded[:, nv : 2 * nv] = fraction * h * L
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
    """Weighted sum of the slopes so far, one weight each; 0 without slopes."""
    return sum(weight * own for weight, own in zip(weights, slopes, strict=False))
