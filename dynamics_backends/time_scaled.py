"""Free durations: a system in the scaled time of its phase, with the durations T of all phases as constant states.

    dx/dtau = (T_i / T0) f(x, u, t, p),   dT/dtau = 0          state (x, T_1, ..., T_n), controls u

A problem in tau has a fixed grid of T0 seconds, and t is the time on this grid. Its first stage takes no time and sets the
durations to its controls (:class:`Durations`), so that every solver optimizes them as controls and within bounds (J. T. Betts,
Practical Methods for Optimal Control Using Nonlinear Programming, section 4.7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Contraction, DampsImplicitly, MissingCapability, NeedsScheme, Partials
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.stretched_map import StretchedMap, WithStep


def time_scaled(
    system: Any,
    names: Sequence[str] = ("duration",),
    phase: int = 0,
    nominal: float = 1.0,
    *,
    semi_implicit: bool = False,
) -> StretchedMap:
    """Create the system in scaled time, on any manifold, with closed-form derivatives if the system has them.

    names: of the durations [s], the last numbers of the state. phase: index of this system's duration. nominal: T0 [s].
    semi_implicit: for time steps of semi-implicit Euler, which are steps of the scheme ``euler`` along the result. Joint damping is
    implicit in time steps, as for the original system. Raises MissingCapability for a system of whole time steps (NeedsScheme),
    ValueError for a phase without a name or semi-implicit steps of a system whose state is not (q, v).
    """
    if isinstance(system, NeedsScheme):
        raise MissingCapability(
            f"{type(system).__name__} has time steps of fixed length; for a free duration use a smooth contact law, or rigid "
            "contacts"
        )
    if not 0 <= phase < len(names):
        raise ValueError(f"phase = {phase}; expected less than {len(names)}, the number of durations")
    if not nominal > 0:
        raise ValueError(f"nominal = {nominal!r}; expected a positive number of seconds")
    if semi_implicit and not system.second_order:
        raise ValueError("semi-implicit steps need a state (q, v) with qdot = v; choose scheme = 'rk4' or 'euler'")
    names = tuple(names)
    if not semi_implicit:
        return StretchedMap(system, names, phase, nominal)
    damped = isinstance(system, DampsImplicitly) and system.damps
    own = WithStep(system.implicit(offset=True)) if damped else system
    return StretchedMap(own, names, phase, nominal, kind="semi-implicit", stepped=damped)


TimeScaled = time_scaled
"""Alias of time_scaled for scripts."""


class Durations:
    """State jump (0, u - T) of the state (x, T), which sets the durations T to the controls.

    manifold: of a time-scaled system, whose last ``count`` numbers are the durations.
    """

    def __init__(self, manifold: Manifold, count: int) -> None:
        self.manifold, self.nu, self.n_out = manifold, count, manifold.ndx
        self.output_names = tuple(f"change of {name}" for name in manifold.tangent_names)
        self.control_names = tuple(manifold.tangent_names[-count:])

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        n, at, zero = self.n_out - self.nu, self.manifold.nx - self.nu, 0.0 * x[0]
        return sm.stack([*[zero] * n, *(u[i] - x[at + i] for i in range(self.nu))])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Constant partial derivatives: -1 at T, 1 at u."""
        n, zero = self.n_out - self.nu, 0.0 * x[0]
        fx = [sm.stack([zero - float(i == j >= n) for j in range(self.n_out)]) for i in range(self.n_out)]
        fu = [sm.stack([zero + float(i == n + j) for j in range(self.nu)]) for i in range(self.n_out)]
        return Partials(self(x, u, t, p), fx, fu)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Partial derivatives and zero second derivatives."""
        zero, sizes = 0.0 * x[0], ((self.n_out, self.n_out), (self.nu, self.n_out), (self.nu, self.nu))
        none = ([sm.stack([zero] * columns) for _ in range(rows)] for rows, columns in sizes)
        return self.partials(x, u, t, p), Contraction(*none)
