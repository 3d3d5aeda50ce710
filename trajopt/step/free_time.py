"""Free durations: problems with the phase durations as variables, made from problems on a fixed time grid.

    minimize    sum_i  sum_k  (T_i / T0_i) dt_k l(x_k, u_k, t_k, p)  +  price_i T_i   +   terminal cost
    subject to  dx/dtau = (T_i / T0_i) f_i(x, u, t, p),   shortest_i <= T_i <= longest_i,   and all constraints of the fixed problem

T0_i is the duration of phase i on the fixed grid. The grid and its time t are unchanged, so costs and constraints that read t are
stretched with the phase; dynamics that read t are refused. The durations are appended to the state, and an additional first stage
without duration sets them as controls (:mod:`dynamics_backends.stretched_map`). Jumps of the state, such as impacts, are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from dynamics_backends.protocol import Array, Map, MissingCapability, unwrapped
from dynamics_backends.registry import same_method
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.stretched_map import MIN_RATIO, Durations, StretchedMap, root_of_ratio, time_scaled, widened
from trajopt.problem.constraints import Constraint, chosen_coordinates, state_bounds
from trajopt.problem.guess import Guess, Motion, as_guess
from trajopt.problem.impact_stage import ImpactStage, has_fixed_steps
from trajopt.problem.ocp import OCP, DiscreteMap, Phase, fitting
from trajopt.problem.residuals import scaled
from trajopt.problem.terms import CostTerm, residual_cost
from trajopt.step.integrators import SEMI_IMPLICIT_EULER
from trajopt.step.sensitivities import SampledSystem
from trajopt.step.time_dependence import reads_time

DURATION_FACTOR = 3.0
"""Default range of a duration: the nominal duration divided and multiplied by this factor."""


@dataclass(frozen=True, eq=False)
class FreeTime:
    """A problem on a fixed grid, and the bounds and prices of its phase durations.

    given: the problem. durations (n, 2): shortest and longest duration [s] of each phase that takes time; equal for a fixed
    duration. prices (n,): cost of a second of each phase.
    """

    given: OCP
    durations: Array
    prices: Array

    @property
    def nominal(self) -> Array:
        """Durations (n,) [s], on the fixed grid, of the phases that take time."""
        return np.array([phase.dt.sum() for phase in self.given.phases if phase.dynamics.takes_time])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the durations, as state components: "duration", or "duration of phase i" for several phases that take time,
        with i the number of the phase among these.
        """
        n = len(self.nominal)
        return ("duration",) if n == 1 else tuple(f"duration of phase {i + 1}" for i in range(n))

    @cached_property
    def ocp(self) -> OCP:
        """The problem with free durations as states; controls of an added instantaneous first phase set them, within their
        bounds.
        """
        ocp, n = self.given, len(self.names)
        manifold = widened(ocp.manifold, self.names)
        phases, timed = [], 0
        for number, phase in enumerate(ocp.phases):
            phases.append(self._phase(phase, timed, first=number == 0))
            timed += phase.dynamics.takes_time
        backend = _sampling(ocp.phases[0]).backend
        choice = Phase(ImpactStage(same_method(backend, Durations(manifold, n))), np.zeros(1))
        none = (np.full((ocp.horizon, ocp.nu), -np.inf), np.full((ocp.horizon, ocp.nu), np.inf))
        lower, upper = ocp.control_bounds or none
        lower, upper = (_pad_controls(b, n, none) for b, none in ((lower, -np.inf), (upper, np.inf)))
        lower, upper = (
            np.vstack([np.r_[limit, b[0, n:]], b]) for b, limit in zip((lower, upper), self.durations.T, strict=True)
        )
        x0 = np.r_[ocp.x0, np.clip(self.nominal, *self.durations.T)]
        terminal = tuple(replace(term, residual=self._widened_residual(term.residual)) for term in ocp.terminal)
        final = tuple(map(self._constraint, ocp.terminal_constraints))
        return replace(
            ocp,
            phases=(choice, *phases),
            x0=x0,
            terminal=terminal,
            u_lower=lower,
            u_upper=upper,
            terminal_constraints=final,
        )

    def _phase(self, phase: Phase, place: int, first: bool) -> Phase:
        """Phase with the durations appended to its state. place: index of its own duration. first: the phase has knot 0.

        A phase that takes time gets dynamics and running costs scaled with its duration, and the price of the duration as a cost.
        In the first phase, constraints without controls are not imposed on knot 0.
        """
        dynamics = self._dynamics(phase, place)
        constraints = tuple(map(self._constraint, phase.constraints))
        if first:
            constraints = tuple(_without_first_knot(c, phase.knots) for c in constraints)
        if not phase.dynamics.takes_time:
            widened = tuple(replace(term, residual=self._widened_residual(term.residual)) for term in phase.terms)
            return replace(phase, dynamics=dynamics, terms=widened, constraints=constraints)
        nominal, own = float(self.nominal[place]), self.given.manifold
        terms = [
            replace(
                term,
                residual=StretchedMap(
                    term.residual,
                    self.names,
                    place,
                    nominal,
                    kind="root" if term.squared else "rate",
                    min_ratio=self._min_ratio(place),
                    states=own,
                    tangent=False,
                ),
            )
            for term in phase.terms
        ]
        return replace(phase, dynamics=dynamics, terms=(*terms, *self._price(place)), constraints=constraints)

    def _min_ratio(self, place: int) -> float:
        """Ratio T / T0 below which sqrt(T / T0) is expanded, to be finite; smaller than the bounds on durations allow."""
        return min(MIN_RATIO, 0.5 * float(self.durations[place, 0] / self.nominal[place]))

    def _widened_residual(self, residual: Map) -> Map:
        """Residual of a state with durations appended, which it ignores; its value is not scaled with time.

        A residual that does not read the state is returned unchanged.
        """
        if not residual.manifold.nx:
            return residual
        return StretchedMap(residual, self.names, kind="unscaled", states=self.given.manifold, tangent=False)

    def _constraint(self, c: Constraint) -> Constraint:
        """Constraint on the state with durations appended, which it ignores; bounds on state entries remain such bounds."""
        chosen, nx = chosen_coordinates(c), self.given.manifold.nx
        if chosen is None:
            parts = c.composition
            composition = None if parts is None else parts._replace(inner=self._widened_residual(parts.inner))
            return replace(c, residual=self._widened_residual(c.residual), composition=composition)
        one = np.full(nx + len(self.names), np.inf)
        one[list(chosen)] = 1.0
        names = [""] * len(one)
        for i, name in zip(chosen, c.residual.output_names, strict=True):
            names[i] = name
        wide = state_bounds(widened(self.given.manifold, self.names), -one, one, c.name, names)
        order = np.argsort(chosen)
        return replace(wide, lower=c.lower[..., order], upper=c.upper[..., order], parameters=c.parameters)

    def _price(self, place: int) -> list[CostTerm]:
        """Cost terms of the price of a duration, price * T: one term, or none for a price of zero."""
        price, manifold = float(self.prices[place]), widened(self.given.manifold, self.names)
        if not price:
            return []
        at, nominal = self.given.manifold.nx + place, float(self.nominal[place])
        root = partial(_root_of_ratio, at, nominal, self._min_ratio(place))
        name = "time" if len(self.names) == 1 else f"time of phase {place + 1}"
        return [residual_cost(name, root, manifold, 1, 2.0 * price, output_names=("time",))]

    def _dynamics(self, phase: Phase, place: int) -> DiscreteMap:
        """Dynamics of a phase whose time scales with its duration; impacts only get the longer state.

        place: index of the duration. Semi-implicit Euler becomes Euler of a system that contains its scheme.
        """
        sampling = _sampling(phase)
        system, backend = unwrapped(sampling.backend.map), sampling.backend
        if isinstance(phase.dynamics, ImpactStage):
            return ImpactStage(same_method(backend, StretchedMap(system, self.names, kind="unscaled")))
        semi = sampling.scheme == SEMI_IMPLICIT_EULER
        scaled = time_scaled(system, self.names, place, float(self.nominal[place]), semi_implicit=semi)
        return SampledSystem(same_method(backend, scaled), "euler" if semi else sampling.scheme, sampling.substeps)

    # -- between the two problems ---------------------------------------------------------------------------------------
    def with_durations(
        self, motion: Motion | tuple[Array, Array], durations: Array | Sequence[float] | None = None
    ) -> Guess:
        """Guess for ``ocp``, xs (N + 2, nx + n) and us (N + 1, nu), from a guess or a solution of the given problem.

        durations: (n,) [s], default the nominal ones, clipped to their bounds. Raises ValueError for other shapes, and
        for durations that are not positive and finite.
        """
        xs, us = fitting(self.given, *as_guess(motion))
        nominal = self.ocp.x0[self.given.manifold.nx :]
        T = nominal if durations is None else np.asarray(durations, dtype=float)
        if T.shape != nominal.shape:
            raise ValueError(
                f"durations has shape {T.shape}; expected one number for each phase with a duration, {nominal.shape}"
            )
        if not (np.isfinite(T) & (T > 0.0)).all():
            raise ValueError(f"durations = {T.tolist()}; expected positive numbers of seconds")
        states = np.hstack([xs, np.tile(T, (len(xs), 1))])
        first = np.zeros((1, self.ocp.nu))
        first[0, : len(T)] = T
        start = np.r_[states[0, : self.given.manifold.nx], self.ocp.x0[self.given.manifold.nx :]]
        return Guess(
            np.vstack([start, states]), np.vstack([first, _pad_controls(np.asarray(us, dtype=float), len(T), 0.0)])
        )

    def without(self, motion: Motion | tuple[Array, Array]) -> tuple[Guess, Array]:
        """Split a solution of ``ocp`` into a guess of the given problem, xs (N + 1, nx) and us (N, nu), and durations (n,) [s].

        The added first stage is dropped; the durations are those in the last state. Raises ValueError for other shapes, such as
        those of a batch.
        """
        (xs, us), nx = fitting(self.ocp, *as_guess(motion)), self.given.manifold.nx
        return Guess(xs[1:, :nx], us[1:, : self.given.nu]), xs[-1, nx:]

    def times(self, xs: Array) -> Array:
        """Times (N + 2,) [s] of the states (N + 2, nx + n), by the durations in the last state; the first two are 0."""
        T, steps, timed = xs[-1, self.given.manifold.nx :], [0.0], 0
        for phase in self.given.phases:
            if phase.dynamics.takes_time:
                steps += (T[timed] / self.nominal[timed] * phase.dt).tolist()
                timed += 1
            else:
                steps += phase.dt.tolist()
        return np.r_[0.0, np.cumsum(steps)]


def free_time(ocp: OCP, durations: Sequence | Array | None = None, price: float | Sequence[float] = 1.0) -> FreeTime:
    """Make the phase durations of a problem on a fixed grid free, with the same dynamics, integrators and solvers.

    Solve ``ocp`` of the result from the guess ``with_durations(guess)``; ``without(solution)`` returns the motion on the given grid
    and its durations. durations: shortest and longest duration [s], (2,) for all phases that take time, or (n, 2) for each; default
    a third to three times the given duration. price: cost of a second, for all phases or for each. Raises MissingCapability for
    dynamics with steps of fixed length or that read the time t, and for trapezoidal quadrature, ValueError for durations or prices
    of invalid shape or value, and if no phase takes time.

    >>> import trajopt as to
    >>> robot = to.FreeBody(to.chain(2))
    >>> dynamics = to.SampledSystem(to.make_backend(robot), "rk4")
    >>> fixed = to.OCP.single_phase(dynamics, [0.0] * 4, 50, 0.02, [to.control_cost(2)])
    >>> free = to.free_time(fixed, (0.5, 2.0))
    >>> free.ocp.horizon, free.ocp.manifold.nx, free.ocp.u_lower[0].tolist()
    (51, 5, [0.5, -inf])
    >>> free.with_durations(to.constant_guess(fixed), [1.5])
    Guess(xs (52, 5), us (51, 2))
    """
    if ocp.in_scaled_time:
        raise ValueError("the durations of this problem are already free")
    for phase in ocp.phases:
        _require_sampled(phase)
    if any(_is_half_step(term) for term in ocp.terminal):
        raise MissingCapability(
            "trapezoidal quadrature needs time steps of fixed length; use quadrature = 'rectangle' with a free duration"
        )
    _require_autonomous(ocp)
    planned = np.array([phase.dt.sum() for phase in ocp.phases if phase.dynamics.takes_time])
    if not len(planned):
        raise ValueError("no phase of the problem has a duration")
    ranges = (
        planned[:, None] * [1.0 / DURATION_FACTOR, DURATION_FACTOR]
        if durations is None
        else np.asarray(durations, dtype=float)
    )
    if ranges.shape not in ((2,), (len(planned), 2)) or not (ranges > 0).all() or (np.diff(ranges) < 0).any():
        raise ValueError(
            f"durations = {ranges.tolist()}; expected a shortest and a longest one above 0 [s], or such a pair for each of "
            f"{len(planned)} phases"
        )
    prices = np.asarray(price, dtype=float)
    if prices.shape not in ((), (len(planned),)) or not np.isfinite(prices).all() or (prices < 0).any():
        raise ValueError(
            f"price = {prices.tolist()}; expected a number of at least 0, or one for each of {len(planned)} phases"
        )
    return FreeTime(ocp, np.broadcast_to(ranges, (len(planned), 2)), np.broadcast_to(prices, planned.shape))


def _require_autonomous(ocp: OCP) -> None:
    """Raise MissingCapability for dynamics that read the time t, which is not in seconds."""
    for i, phase in enumerate(ocp.phases):
        if reads_time(phase.dynamics, ocp.x0, phase.parameters):
            raise MissingCapability(
                f"the dynamics of phase {i} depend on the time t, which is not in seconds if durations are free; add a state with "
                "the rate 1, and read it in place of t"
            )


def _is_half_step(term: CostTerm) -> bool:
    """True if a term is the last half step of a running cost with trapezoidal quadrature."""
    function = getattr(term.residual, "function", None)
    return isinstance(function, partial) and function.func is scaled


def _require_sampled(phase: Phase) -> None:
    """Raise MissingCapability unless the dynamics are a :class:`SampledSystem` with the steps of its integrator, or an impact.

    Discrete dynamics with a duration raise it, too.
    """
    if has_fixed_steps(phase):
        raise MissingCapability(
            "the time steps of discrete dynamics have no derivative in their length; for a free duration pass xdot = f(x, u) to "
            "SampledSystem"
        )
    if phase.dynamics.sampling is None or not isinstance(phase.dynamics, (SampledSystem, ImpactStage)):
        raise MissingCapability(
            f"the time steps of {type(phase.dynamics).__name__} have no derivative in their length; for a free duration pass the "
            "system to SampledSystem, or scale it with time_scaled"
        )


def _sampling(phase: Phase):
    """Sampling of a phase that passed :func:`_require_sampled`."""
    assert phase.dynamics.sampling is not None  # see _require_sampled
    return phase.dynamics.sampling


def _without_first_knot(c: Constraint, knots: int) -> Constraint:
    """Constraint without bounds at the first knot of its phase, whose state is fixed; unchanged if it reads controls."""
    if c.residual.nu:
        return c
    lower, upper = (bound.copy() for bound in c.bounds(knots))
    lower[0], upper[0] = -np.inf, np.inf
    return replace(c, lower=lower, upper=upper)


def _pad_controls(rows: Array, minimum: int, filled: float) -> Array:
    """Pad rows of controls (N, nu) with ``filled`` to at least ``minimum`` columns, the number of durations."""
    return np.hstack([rows, np.full((len(rows), max(minimum - rows.shape[1], 0)), filled)])


def _root_of_ratio(
    at: int, nominal: float, minimum: float, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]
) -> list[Scalar]:
    """Residual sqrt(T / T0), whose square is linear in the duration; expanded to second order below the ratio ``minimum``."""
    return [root_of_ratio(x[at] / nominal, minimum)]
