"""Problems whose phases last as long as is best, made of problems on a fixed grid.

    minimize    sum_i  sum_k  (T_i / T0_i) dt_k l(x_k, u_k, t_k, p)  +  price_i T_i   +   terminal cost
    subject to  dx/dtau = (T_i / T0_i) f_i(x, u, t, p),   shortest_i <= T_i <= longest_i,   and all that held before

T0_i is the time that phase i had. Its grid stays, and so does its clock t: what depends on it is stretched with the phase. The
durations stand behind the state, and a stage without duration, the first, chooses them (:mod:`dynamics_backends.time_scaled`).
Jumps of the state, such as impacts, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from dynamics_backends.protocol import Array, Map, MissingCapability, unwrapped
from dynamics_backends.registry import same_method
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.stretched_map import LEAST_SHARE, Root, StretchedMap, widened
from dynamics_backends.time_scaled import Durations, time_scaled
from trajopt.problem.constraints import Constraint, chosen_coordinates, state_bounds
from trajopt.problem.guess import Guess, Motion, as_guess
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP, DiscreteMap, Phase
from trajopt.problem.residuals import scaled
from trajopt.problem.terms import CostTerm, residual_cost
from trajopt.step.integrators import SEMI_IMPLICIT_EULER
from trajopt.step.sensitivities import SampledSystem

SHARE = 3.0
"""By this factor a phase may be shorter or longer where no durations are given."""


@dataclass(frozen=True, eq=False)
class FreeTime:
    """A problem on a fixed grid, and what its phases may last.

    given: the problem. durations (n, 2): shortest and longest [s] of each phase that takes time; equal for one that is to last so
    long. prices (n,): what a second of each costs.
    """

    given: OCP
    durations: Array
    prices: Array

    @property
    def nominal(self) -> Array:
        """(n,) the times [s] that the phases had."""
        return np.array([phase.dt.sum() for phase in self.given.phases if phase.dynamics.takes_time])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the durations."""
        n = len(self.nominal)
        return ("duration",) if n == 1 else tuple(f"duration of phase {i + 1}" for i in range(n))

    @cached_property
    def ocp(self) -> OCP:
        """The problem with free durations."""
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
        lower, upper = (_wide(b, n, none) for b, none in ((lower, -np.inf), (upper, np.inf)))
        lower, upper = (
            np.vstack([np.r_[limit, b[0, n:]], b]) for b, limit in zip((lower, upper), self.durations.T, strict=True)
        )
        x0 = np.r_[ocp.x0, np.clip(self.nominal, *self.durations.T)]
        terminal = tuple(replace(term, residual=self._kept(term.residual)) for term in ocp.terminal)
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
        """A phase with the durations behind its state; place: which of them is its own."""
        dynamics = self._dynamics(phase, place)
        constraints = tuple(map(self._constraint, phase.constraints))
        if first:
            constraints = tuple(_not_at_the_start(c, phase.knots) for c in constraints)
        if not phase.dynamics.takes_time:
            kept = tuple(replace(term, residual=self._kept(term.residual)) for term in phase.terms)
            return replace(phase, dynamics=dynamics, terms=kept, constraints=constraints)
        nominal, own = float(self.nominal[place]), self.given.manifold
        terms = [
            replace(
                term,
                residual=StretchedMap(
                    term.residual,
                    self.names,
                    place,
                    nominal,
                    kind="root",
                    least=self._least(place),
                    states=own,
                    tangent=False,
                ),
            )
            for term in phase.terms
        ]
        return replace(phase, dynamics=dynamics, terms=(*terms, *self._price(place)), constraints=constraints)

    def _least(self, place: int) -> float:
        """A share of the planned time that is shorter than the duration of a phase may be."""
        return min(LEAST_SHARE, 0.5 * float(self.durations[place, 0] / self.nominal[place]))

    def _kept(self, residual: Map) -> Map:
        """A residual of the state as one of that with durations behind it."""
        if not residual.manifold.nx:
            return residual
        return StretchedMap(residual, self.names, kind="kept", states=self.given.manifold, tangent=False)

    def _constraint(self, c: Constraint) -> Constraint:
        """A constraint of the problem without free time; bounds on numbers of the state remain such."""
        chosen, nx = chosen_coordinates(c), self.given.manifold.nx
        if chosen is None:
            parts = c.composition
            composition = None if parts is None else parts._replace(inner=self._kept(parts.inner))
            return replace(c, residual=self._kept(c.residual), composition=composition)
        one = np.full(nx + len(self.names), np.inf)
        one[list(chosen)] = 1.0
        names = [""] * len(one)
        for i, name in zip(chosen, c.residual.output_names, strict=True):
            names[i] = name
        wide = state_bounds(widened(self.given.manifold, self.names), -one, one, c.name, names)
        order = np.argsort(chosen)
        return replace(wide, lower=c.lower[..., order], upper=c.upper[..., order], parameters=c.parameters)

    def _price(self, place: int) -> list[CostTerm]:
        price, manifold = float(self.prices[place]), widened(self.given.manifold, self.names)
        if not price:
            return []
        at, nominal = self.given.manifold.nx + place, float(self.nominal[place])
        root = partial(_root_of_share, at, nominal, self._least(place))
        name = "time" if len(self.names) == 1 else f"time of phase {place + 1}"
        return [residual_cost(name, root, manifold, 1, 2.0 * price, output_names=("time",))]

    def _dynamics(self, phase: Phase, place: int) -> DiscreteMap:
        sampling = _sampling(phase)
        system, backend = unwrapped(sampling.backend.map), sampling.backend
        if isinstance(phase.dynamics, ImpactStage):
            return ImpactStage(same_method(backend, StretchedMap(system, self.names, kind="kept")))
        semi = sampling.scheme == SEMI_IMPLICIT_EULER
        scaled = time_scaled(system, self.names, place, float(self.nominal[place]), semi_implicit=semi)
        return SampledSystem(same_method(backend, scaled), "euler" if semi else sampling.scheme, sampling.substeps)

    # -- between the two problems ---------------------------------------------------------------------------------------
    def with_durations(
        self, motion: Motion | tuple[Array, Array], durations: Array | Sequence[float] | None = None
    ) -> Guess:
        """A guess for ``ocp``, xs (N + 2, nx + n) and us (N + 1, nu), from a guess for, or a solution of, the given problem.

        durations: (n,) [s], default those that the phases had.
        """
        xs, us = as_guess(motion)
        T = self.ocp.x0[self.given.manifold.nx :] if durations is None else np.asarray(durations, dtype=float)
        states = np.hstack([xs, np.tile(T, (len(xs), 1))])
        first = np.zeros((1, self.ocp.nu))
        first[0, : len(T)] = T
        start = np.r_[states[0, : self.given.manifold.nx], self.ocp.x0[self.given.manifold.nx :]]
        return Guess(np.vstack([start, states]), np.vstack([first, _wide(np.asarray(us, dtype=float), len(T), 0.0)]))

    def without(self, motion: Motion | tuple[Array, Array]) -> tuple[Guess, Array]:
        """A solution of ``ocp`` as states (N + 1, nx) and controls (N, nu) of the given problem; and the durations (n,) [s] of its
        phases."""
        (xs, us), nx = as_guess(motion), self.given.manifold.nx
        return Guess(xs[1:, :nx], us[1:, : self.given.nu]), xs[-1, nx:]

    def times(self, xs: Array) -> Array:
        """(N + 2,) the times [s] of the states (N + 2, nx + n)."""
        T, steps, timed = xs[-1, self.given.manifold.nx :], [0.0], 0
        for phase in self.given.phases:
            if phase.dynamics.takes_time:
                steps += (T[timed] / self.nominal[timed] * phase.dt).tolist()
                timed += 1
            else:
                steps += phase.dt.tolist()
        return np.r_[0.0, np.cumsum(steps)]


def free_time(ocp: OCP, durations: Sequence | Array | None = None, price: float | Sequence[float] = 1.0) -> FreeTime:
    """A problem with free durations from one on a fixed grid, with the same dynamics, integrators and solvers.

    Solve ``ocp`` of the result from the guess ``with_durations(guess)``; ``without(solution)`` gives the motion on the given grid
    and its durations.
    durations: shortest and longest [s], of all phases that take time, (2,), or of each, (n, 2); default a third to three times what
    they last. price: what a second costs, of all or of each. Raises MissingCapability for dynamics whose steps have a given length,
    ValueError for durations that do not fit.

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
    for phase in ocp.phases:
        _require_known(phase)
    if any(_is_half_step(term) for term in ocp.terminal):
        raise MissingCapability(
            "trapezoidal quadrature needs time steps of given lengths; use quadrature = 'rectangle' with a free duration"
        )
    planned = np.array([phase.dt.sum() for phase in ocp.phases if phase.dynamics.takes_time])
    if not len(planned):
        raise ValueError("no phase of the problem has a duration")
    given = planned[:, None] * [1.0 / SHARE, SHARE] if durations is None else np.asarray(durations, dtype=float)
    if given.shape not in ((2,), (len(planned), 2)) or not (given > 0).all() or (np.diff(given) < 0).any():
        raise ValueError(
            f"durations = {given.tolist()}; expected a shortest and a longest one above 0 [s], or such a pair for each of "
            f"{len(planned)} phases"
        )
    prices = np.asarray(price, dtype=float)
    if prices.shape not in ((), (len(planned),)) or not np.isfinite(prices).all() or (prices < 0).any():
        raise ValueError(
            f"price = {prices.tolist()}; expected a number of at least 0, or one for each of {len(planned)} phases"
        )
    return FreeTime(ocp, np.broadcast_to(given, (len(planned), 2)), np.broadcast_to(prices, planned.shape))


def _is_half_step(term: CostTerm) -> bool:
    """True if a term is the half step at the end of a running cost under trapezoidal quadrature."""
    function = getattr(term.residual, "function", None)
    return isinstance(function, partial) and function.func is scaled


def _require_known(phase: Phase) -> None:
    """Raises MissingCapability for dynamics that are neither a system under an integrator nor an impact."""
    if isinstance(phase.dynamics, ImpactStage) and phase.dynamics.takes_time:
        raise MissingCapability(
            "discrete dynamics have steps of their own, whose length has no derivative; for a free duration pass xdot = f(x, u) to "
            "SampledSystem"
        )
    if phase.dynamics.sampling is None or not isinstance(phase.dynamics, (SampledSystem, ImpactStage)):
        raise MissingCapability(
            f"{type(phase.dynamics).__name__} defines its own time steps, whose length has no derivative; for a free duration pass "
            "the system to SampledSystem, or scale it with time_scaled"
        )


def _sampling(phase: Phase):
    assert phase.dynamics.sampling is not None  # see _require_known
    return phase.dynamics.sampling


def _not_at_the_start(c: Constraint, knots: int) -> Constraint:
    """A constraint that reads no controls holds from the second knot on: the first state is given."""
    if c.residual.nu:
        return c
    lower, upper = (bound.copy() for bound in c.bounds(knots))
    lower[0], upper[0] = -np.inf, np.inf
    return replace(c, lower=lower, upper=upper)


def _wide(rows: Array, least: int, filled: float) -> Array:
    """Rows of controls (N, nu) with as many columns as there are durations at least, further ones filled."""
    return np.hstack([rows, np.full((len(rows), max(least - rows.shape[1], 0)), filled)])


def _root_of_share(
    at: int, nominal: float, least: float, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]
) -> list[Scalar]:
    return [Root.of(x[at] / nominal, least).value]
