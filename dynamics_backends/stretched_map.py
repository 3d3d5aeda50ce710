"""Maps and systems in the scaled time of a phase, for free durations.

A stretched map has its values times a power of the ratio s = T / T0 of the duration T and the planned one T0,

    c(s) f(x, u, t, p),   c = 1, sqrt(s) or s          state (x, T_1, ..., T_n), of which T is one

Functions that are integrated over time are scaled by s, residuals that are squared and integrated by sqrt(s), and others by one.
Below the minimum ratio of a duration, where solver iterates may be, the root continues as its second-order expansion. Two more
kinds serve time steps of the length s h of systems xdot = f = (v, a):

    F = s (v + s h a, a)                                Euler's step along F is a semi-implicit one along f
    f(x, u, e, step) with step = s h                    damping that is implicit in the step (:class:`DampsImplicitly`)

With h the parameter IMPLICIT_STEP, if present. Their derivatives are those of f by the chain rule
(:mod:`dynamics_backends.chained_map`), if it has any.

Accelerations depend on the step as they do on the offset e of the damped velocity, since M a = F - D (v + e + step a):

    f_step = f_e a,   lam' f_(z step) = (lam' f_ez) a + (lam' f_e) a_z,   lam' f_(step step) = 2 (lam' f_e) (a_e a)

A system in the scaled time tau (:func:`time_scaled`) has the durations of all phases as constant states,

    dx/dtau = (T_i / T0) f(x, u, t, p),   dT/dtau = 0          controls u

A problem in tau has a fixed grid of T0 seconds, and t is the time on this grid. Its first stage takes no time and sets the
durations to its controls (:class:`Durations`), so that every solver optimizes them as controls and within bounds (J. T. Betts,
Practical Methods for Optimal Control Using Nonlinear Programming, section 4.7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Literal

from dynamics_backends import scalar as sm
from dynamics_backends.chained_map import ChainedFirst, ChainedMap, ChainedSecond, dot
from dynamics_backends.manifold import Manifold, vector_space
from dynamics_backends.protocol import (
    IMPLICIT_STEP,
    Contraction,
    DampsImplicitly,
    HasActuators,
    HasContraction,
    HasPartials,
    HasRecursions,
    Matrix,
    MissingCapability,
    NeedsScheme,
    Partials,
)
from dynamics_backends.scalar import Rows, Scalar

Kind = Literal["unscaled", "root", "rate", "semi-implicit"]
"""Kind of scaling: c = 1, sqrt(s), s, or the step of semi-implicit Euler."""


MIN_RATIO = 1e-2
"""Default minimum ratio of a duration, below which the root continues as its expansion."""


def root_of_ratio(s: Scalar, min_ratio: float = MIN_RATIO) -> Scalar:
    """sqrt(s) for s >= min_ratio; below, its second-order expansion at min_ratio, which is finite for any s."""
    above = s - min_ratio
    safe, below = sm.select(above, s, min_ratio + 0.0 * s), sm.select(above, 0.0 * s, above)
    root = sm.sqrt(safe)
    return root + below * (0.5 / root) * (1.0 - 0.25 * below / safe)


class StretchedMap(ChainedMap):
    """Map P(T) f in the scaled time of a phase: an inner map f, scaled by its duration T, a number of the state.

    map: f, which reads the first numbers of the state. durations: names of the numbers T_1, ... [s], the last of the state; place:
    index of T among them; nominal: T0 [s]; kind: scaling P; min_ratio: ratio s below which the root of s continues as its
    expansion. states: manifold of the state without the durations; default that of the map. tangent: True if values are tangent
    vectors of the state, which then end in zeros for the durations. stepped: True if the map is a :class:`WithStep`; offset: True
    if the offsets e are among the controls, False if they are zero.
    """

    second_order = False

    def __new__(cls, map: Any = None, *args: Any, **options: Any) -> StretchedMap:
        """Select the subclass with derivatives, if the map has them."""
        if isinstance(map, HasPartials):
            cls = StretchedSecond if isinstance(map, HasContraction) else StretchedFirst
        return object.__new__(cls)

    def __init__(
        self,
        map: Any,
        durations: Sequence[str],
        place: int = 0,
        nominal: float = 1.0,
        *,
        kind: Kind = "rate",
        min_ratio: float = MIN_RATIO,
        states: Manifold | None = None,
        tangent: bool = True,
        stepped: bool = False,
        offset: bool = False,
    ) -> None:
        states = states or map.manifold
        self.map, self.kind, self.nominal, self.stepped, self.offset = map, kind, nominal, stepped, offset
        self.manifold, self.min_ratio = widened(states, durations), min_ratio
        self.durations, self.tangent = tuple(durations), tangent
        if isinstance(map, HasActuators):
            self.actuated = map.actuated
        self.place, self.tail, self._own = states.nx + place, len(durations), place
        velocities = map.offsets if stepped else 0
        self.nu = map.nu - (1 + (0 if offset else velocities)) * stepped
        self.offsets = (velocities if offset else 0) if stepped or kind == "semi-implicit" else None
        names = (f"d {name}/dtau" for name in self.manifold.tangent_names)
        self.output_names = tuple(names) if tangent else map.output_names
        self.n_out, self.control_names = len(self.output_names), map.control_names[: self.nu]

    @property
    def damps(self) -> bool:
        """True for a system (kind "rate") with damping that can be implicit, and is not yet."""
        own = self.map
        return self.kind == "rate" and not self.stepped and isinstance(own, DampsImplicitly) and own.damps

    def implicit(self, *, offset: bool) -> StretchedMap:
        """System with damping that is implicit in steps of length s h = T / T0 h.

        offset: True if its last controls are the velocity offsets e, False for e = 0.
        """
        own = WithStep(self.map.implicit(offset=True))
        place = self.place - self.map.manifold.nx
        return StretchedMap(own, self.durations, place, self.nominal, stepped=True, offset=offset)

    def inner(self, w: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
        """Controls of the inner map; if stepped, they end in the offsets e (zero unless ``offset``) and the step s h."""
        controls = [w[self.tail + i] for i in range(self.nu)]
        if not self.stepped:
            return controls
        return [*controls, *[0.0] * (self.map.nu - 1 - self.nu), self._rate(p) * w[self._own]]

    def outer(self, y: Rows, w: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
        """Scaled value P(T) f, followed by zeros for the durations if values are tangent vectors."""
        T, rows = w[self._own], super().outer(y, w, p)
        s, half = T / self.nominal, self.map.n_out // 2
        if self.kind == "semi-implicit":
            h = self._rate(p) * T
            rows = [*(v + h * a for v, a in zip(rows[:half], rows[half:], strict=True)), *rows[half:]]
        if self.kind != "unscaled":
            c = root_of_ratio(s, self.min_ratio) if self.kind == "root" else s
            rows = [c * row for row in rows]
        return [*rows, *[0.0] * (self.tail if self.tangent else 0)]

    def _rate(self, p: Mapping[str, Rows]) -> Scalar:
        """Derivative h / T0 of the step length s h in T; h is the parameter IMPLICIT_STEP, zero outside of a time step."""
        return (p[IMPLICIT_STEP][0] if IMPLICIT_STEP in p else 0.0) / self.nominal


class StretchedFirst(StretchedMap, ChainedFirst):
    """Stretched map of a map with partial derivatives."""

    def with_recursions(self, driver: Any) -> StretchedMap:
        """Copy whose map has its recursions evaluated by ``driver``; a map without recursions is unchanged."""
        other = copy(self)
        other.map = self.map.with_recursions(driver) if isinstance(self.map, HasRecursions) else self.map
        return other


class StretchedSecond(StretchedFirst, ChainedSecond):
    """Stretched map of a map with second derivatives."""


class WithStep:
    """Implicitly damped system f(x, (u, e)) as a map of x and (u, e, step), with the step length as a control."""

    def __new__(cls, system: Any = None) -> WithStep:
        """Select the subclass with derivatives, if the system has them."""
        if isinstance(system, HasPartials):
            cls = _WithStepSecond if isinstance(system, HasContraction) else _WithStepFirst
        return object.__new__(cls)

    def __init__(self, system: Any) -> None:
        self.system, self.manifold, self.n_out, self.offsets = system, system.manifold, system.n_out, system.offsets
        self.nu, self.output_names = system.nu + 1, system.output_names
        self.control_names = (*system.control_names, "step")

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Value of the system; u: its controls, offsets e and the step length [s]."""
        return self.system(*self._arguments(x, u, t, p))

    def _arguments(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> tuple[Rows, Rows, Scalar, Any]:
        """Arguments of the system: without the last control, the step length, which becomes the parameter IMPLICIT_STEP."""
        last = self.nu - 1
        return x, u[:last], t, {**p, IMPLICIT_STEP: [u[last]]}


class _WithStepFirst(WithStep):
    """Implicitly damped system with the step length as a control, and partial derivatives."""

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives in x and (u, e, step)."""
        return self._partials(self.system.partials(*self._arguments(x, u, t, p)))

    def _partials(self, own: Partials) -> Partials:
        """Value and derivatives with a last control column f_step = f_e a: one unit of step acts as the velocity offset e = a."""
        a, at = self._accelerations(own.value), self._offsets
        steps = [dot([own.fu[i][at + k] for k in range(self.offsets)], a) for i in range(self.n_out)]
        last = self.nu - 1
        fu = [sm.stack([*(own.fu[i][j] + 0.0 * s for j in range(last)), s]) for i, s in enumerate(steps)]
        return Partials(own.value, own.fx, fu)

    @property
    def _offsets(self) -> int:
        """Index of the first offset e among the controls."""
        return self.nu - 1 - self.offsets

    def _accelerations(self, value: Rows) -> list[Scalar]:
        """Last entries of xdot: the accelerations of the degrees of freedom that have an offset e."""
        return sm.rows_of(value)[self.n_out - self.offsets :]


class _WithStepSecond(_WithStepFirst):
    """Implicitly damped system with the step length as a control, and second derivatives."""

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Value and first derivatives, and the second derivatives of lam' f in x and (u, e, step)."""
        first, H = self.system.contracted(*self._arguments(x, u, t, p), lam)
        n, ne, at, last, ndx = self.n_out, self.offsets, self._offsets, self.nu - 1, self.manifold.ndx
        a = self._accelerations(first.value)
        pull = [dot([lam[i] for i in range(n)], [first.fu[i][at + k] for i in range(n)]) for k in range(ne)]

        def slopes(M: Matrix, j: int) -> list[Scalar]:
            """Column j of the accelerations' rows of M."""
            return [M[n - ne + k][j] for k in range(ne)]

        by_x = [dot([H.ux[at + k][j] for k in range(ne)], a) + dot(pull, slopes(first.fx, j)) for j in range(ndx)]
        by_u = [dot([H.uu[at + k][j] for k in range(ne)], a) + dot(pull, slopes(first.fu, j)) for j in range(last)]
        curvature = 2.0 * dot(pull, [dot([first.fu[n - ne + k][at + l] for l in range(ne)], a) for k in range(ne)])
        zero = 0.0 * curvature
        ux = [*(sm.stack([H.ux[i][j] + zero for j in range(ndx)]) for i in range(last)), sm.stack(by_x)]
        uu = [sm.stack([*(H.uu[i][j] + zero for j in range(last)), by_u[i]]) for i in range(last)]
        return self._partials(first), Contraction(H.xx, ux, [*uu, sm.stack([*by_u, curvature])])


def widened(states: Manifold, durations: Sequence[str]) -> Manifold:
    """Manifold of states followed by durations."""
    return Manifold((*states.groups, vector_space(len(durations))), (*states.tangent_names, *durations))


def time_scaled(
    system: Any,
    names: Sequence[str] = ("duration",),
    phase: int = 0,
    nominal: float = 1.0,
    *,
    semi_implicit: bool = False,
) -> StretchedMap:
    """System dx/dtau = (T / T0) f(x, u, t, p) with a free duration T, for a time grid of T0 seconds; to.free_time calls it.

    The state is (x, T_1, ..., T_n), with the durations of all phases as constants, dT/dtau = 0. Derivatives are in closed form if
    those of the system are. names: of the durations [s]. phase: index of this system's duration T. nominal: T0 [s].
    semi_implicit: for time steps of semi-implicit Euler, which are steps of the scheme ``euler`` along the result. Joint damping is
    implicit in time steps, as for the original system. Raises MissingCapability for a system of whole time steps (NeedsScheme),
    ValueError for a phase that is not an index of ``names``, ``nominal`` <= 0, or semi-implicit steps of a system whose state is
    not (q, v).
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
    """Map (0, u - T) of the state (x, T): a jump that sets the durations T [s] to the controls u, both (count,).

    It is the first stage of problems of :func:`trajopt.free_time`. manifold: of a system of :func:`time_scaled`, whose last
    ``count`` numbers are the durations.
    """

    def __init__(self, manifold: Manifold, count: int) -> None:
        self.manifold, self.nu, self.n_out = manifold, count, manifold.ndx
        self.output_names = tuple(f"change of {name}" for name in manifold.tangent_names)
        self.control_names = tuple(manifold.tangent_names[-count:])

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows of the jump: zeros, then u - T for the durations T, the last entries of x."""
        n, at, zero = self.n_out - self.nu, self.manifold.nx - self.nu, 0.0 * x[0]
        return sm.stack([*[zero] * n, *(u[i] - x[at + i] for i in range(self.nu))])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and constant partial derivatives: -1 in T, 1 in u, in the rows of T; 0 elsewhere."""
        n, zero = self.n_out - self.nu, 0.0 * x[0]
        fx = [sm.stack([zero - float(i == j >= n) for j in range(self.n_out)]) for i in range(self.n_out)]
        fu = [sm.stack([zero + float(i == n + j) for j in range(self.nu)]) for i in range(self.n_out)]
        return Partials(self(x, u, t, p), fx, fu)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Value and partial derivatives, and zero second derivatives."""
        zero, sizes = 0.0 * x[0], ((self.n_out, self.n_out), (self.nu, self.n_out), (self.nu, self.nu))
        none = ([sm.stack([zero] * columns) for _ in range(rows)] for rows, columns in sizes)
        return self.partials(x, u, t, p), Contraction(*none)
