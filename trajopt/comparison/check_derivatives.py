"""Derivative check of a problem against complex step: dynamics, time steps, cost terms and constraints.

First order: fx, fu of the dynamics, A, B of the time step, rx, ru of the residuals.  Second order, as DDP and exact Hessians use
them: lam' f, lam' x_next, the Hessian of each cost term and lam' g of each constraint, see
:mod:`~dynamics_backends.derivative_check`.  An error is the largest entry of the difference over the largest entry of the
reference, at the worst of some random points near the guess; it is absolute for a zero reference, and rounding errors are
allowed for. Second derivatives are compared by their products with a few random directions. User-defined backends without a
system are compared with central differences: Jacobians with those of the values, second derivatives with those of the Jacobians.

On large problems, part of the comparisons is skipped (:class:`Extent`); lines report the skipped parts.

A comparison of backends needs one number (:func:`derivative_error`): the error of the linearized time steps along a trajectory.
Its reference applies complex step in NumPy to the source of the dynamics, which is all that it shares with a backend.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.derivative_check import (
    LEFT_OUT,
    REFERENCE,
    DerivativeCheck,
    Points,
    Probe,
    first_order,
    second_order,
    user_backend_checks,
    worst_entry,
)
from dynamics_backends.protocol import (
    Array,
    DynamicsBackend,
    FunctionMap,
    HasPartials,
    Hessians,
    Jacobians,
    Map,
    Parameters,
    SecondOrderBackend,
    unwrapped,
)
from dynamics_backends.registry import METHODS, make_backend, missing_capability, source_of
from dynamics_backends.scalar import Rows, Scalar, stack
from trajopt.guesses.guesses import constant_guess
from trajopt.problem.constraints import Constraint
from trajopt.problem.expansion import quadratize
from trajopt.problem.guess import Guess
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import CostTerm, parameters_at, rows_at
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.stages import Knots
from trajopt.step.integrators import step_rows
from trajopt.step.other_backend import with_backend
from trajopt.step.sensitivities import SampledSystem, contraction_of

SPREAD = 0.1
"""Standard deviation of the random points around the guess [rad, m, ...]; for controls u, relative to max(1, |u|)."""
REACH = 10.0
"""Maximum change of a coordinate in a time step from a random point x, relative to max(1, max |x_i|), if HALVINGS suffice. With a
stiff contact, larger steps leave no correct digits to compare."""
HALVINGS = 12
"""Maximum number of halvings of the step from the guess to a random point."""
LARGE = 20
"""Size ndx + nu from which a problem is checked in part: 48 for quadrupeds, 21 for arms of seven joints, 18 for six."""
FEW = 2
"""Maximum number of points for first derivatives in a check in part (:class:`Extent`)."""
DIRECTIONS = 2
"""Number of random directions along which second derivatives are compared."""
TIME_STEP, WEIGHT = "step length", "weight of the term"
"""Names of parameters of the maps that serve as references of time steps and cost terms."""


class Extent(NamedTuple):
    """Extent of a derivative check.

    method: derivative method of the problem. methods, second: methods of first and of second derivatives to check. points:
    maximum number of points for second derivatives. substeps: maximum number of substeps of a time step, None for no limit.
    part: check a large problem in part: of dynamics whose maps have the same class (contact modes) only the first, and time
    steps with ``method`` only. Then everything but first derivatives of dynamics and time steps by ``method`` runs in NumPy,
    since kernels that no solve calls would take most of the time to trace.
    """

    method: str
    methods: tuple[str, ...]
    second: tuple[str, ...]
    points: int
    substeps: int | None
    part: bool

    @classmethod
    def for_problem(cls, ocp: OCP, method: str, whole: bool = False) -> Extent:
        """Return the extent of a check of derivatives by ``method``: full if ndx + nu < LARGE or ``whole``, else in part.

        Full: ``method`` and all built-in methods, in both orders. In part: ``method`` in both orders, and central differences in
        first order.
        """
        small = ocp.manifold.ndx + ocp.nu < LARGE
        if small or whole:
            methods = tuple(dict.fromkeys((*METHODS.builtin, method)))
            return cls(method, methods, methods, 4, None, False)
        return cls(method, tuple(dict.fromkeys((method, "central_difference"))), (method,), 1, 2, True)


def check_derivatives(
    ocp: OCP,
    guess: Guess | None = None,
    *,
    method: str | None = None,
    engine: str | None = None,
    points: int = 8,
    seed: int = 0,
    whole: bool = False,
) -> Iterator[DerivativeCheck]:
    """Compare derivatives of dynamics, time steps, cost terms and constraints with complex step, in first and second order.

    guess: center of the random points; default: x0 and zero controls. method, engine: derivatives to check; default: those of
    the first backend in the phases. Small problems (ndx + nu < LARGE) are checked with all other built-in methods too. points:
    number of points of each phase for first derivatives, on larger problems at most FEW. seed: of the random points. whole:
    check a larger problem like a small one. Returns an iterator that computes each result when it is requested. User-defined
    backends, whose dynamics no other method can evaluate, are compared with central differences of their values and of their
    Jacobians; user-defined time steps are skipped. Raises TypeError if ``ocp`` is not an OCP. Raises ValueError if ``method``
    is missing and no time step has a backend, and for a problem with compiled backends if
    :func:`~trajopt.step.other_backend.with_backend` cannot replace the backends of all phases.

    >>> import trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    >>> ocp = to.OCP.single_phase(to.SampledSystem(to.make_backend(cart, "forward_ad"), "rk4"), [0.0, 0.0], 20, 0.1)
    >>> all(check.passed for check in to.check_derivatives(ocp))
    True
    """
    if not isinstance(ocp, OCP):
        raise TypeError(
            f"the problem is a {type(ocp).__name__}; expected a trajopt.OCP, such as the .ocp of a loaded problem"
        )
    backends = [s.backend for s in (phase.dynamics.sampling for phase in ocp.phases) if s is not None]
    if not backends and method is None:
        raise ValueError(
            "no time step of the problem has a backend; name the method of its derivatives, such as 'forward_ad'"
        )
    method = method or backends[0].name
    engine = engine or (backends[0].engine if backends else "numpy")
    if any(b.engine != "numpy" for b in backends):
        ocp = with_backend(ocp, {"name": backends[0].name, "engine": "numpy", **backends[0].options})
    extent = Extent.for_problem(ocp, method, whole)
    count = min(points, FEW) if extent.part else points
    check = _Check(ocp, guess or constant_guess(ocp), extent, engine, count, np.random.default_rng(seed))
    return chain(check.dynamics(), check.residuals())


def random_points(
    ocp: OCP, guess: Guess, knots: slice, dynamics: object, count: int, rng: np.random.Generator
) -> Points:
    """Draw ``count`` points near the guess at random knots of a phase with these dynamics; knots: slice of the phase's knots.

    The displacement from the guess of a state from which a time step would move too far (REACH) is halved, up to HALVINGS times;
    then the step may still move farther. Controls stay as drawn, reflected into their bounds.
    """
    manifold = ocp.manifold
    chosen = rng.integers(knots.start, knots.stop, count)
    xs, us = np.asarray(guess.xs)[chosen], np.asarray(guess.us)[chosen]
    dx = SPREAD * rng.standard_normal((count, manifold.ndx))
    lower, upper = (-np.inf, np.inf) if ocp.control_bounds is None else (bound[chosen] for bound in ocp.control_bounds)
    us = np.clip(us, lower, upper)
    u = us + SPREAD * np.maximum(1.0, np.abs(us)) * rng.standard_normal(us.shape)
    u = np.where(u < lower, 2.0 * lower - u, np.where(u > upper, 2.0 * upper - u, u)).clip(lower, upper)
    at = Points(xs, u, ocp.t[chosen], ocp.dt[chosen], chosen)
    for _ in range(HALVINGS + 1):
        at = at._replace(x=np.ascontiguousarray(manifold.integrate(xs.T, dx.T).T))
        far = _out_of_reach(dynamics, at, _phase_parameters(ocp, chosen))
        if not far.any():
            break
        dx[far] *= 0.5
    return at


def _out_of_reach(dynamics: object, at: Points, p: Parameters) -> Array:
    """Return a mask (N,) of the points whose time step is not finite or moves a coordinate farther than REACH.

    All False for user-defined time steps.
    """
    if not isinstance(dynamics, (SampledSystem, ImpactStage)):
        return np.zeros(len(at.x), bool)
    with np.errstate(all="ignore"):
        moved = dynamics.step(at.x, at.u[:, : dynamics.nu], at.t, at.dt, p) - at.x
        return ~(np.abs(moved).max(axis=1) <= REACH * np.maximum(1.0, np.abs(at.x).max(axis=1)))


def _phase_parameters(ocp: OCP, knots: Array) -> dict[str, Array]:
    """Return the dynamics parameters at knots of one phase, that of the first knot; empty if no phase contains it."""
    for phase, where in zip(ocp.phases, ocp.phase_slices, strict=True):
        if where.start <= knots[0] < where.stop:
            return parameters_at(phase.parameters, knots - where.start)
    return {}


class _Check(NamedTuple):
    """Check of a problem in both orders, at ``points`` random points of each phase. engine: of the derivatives to check."""

    ocp: OCP
    guess: Guess
    extent: Extent
    engine: str
    points: int
    rng: np.random.Generator

    def points_of(self, phase: int) -> Points:
        """Draw random points near the guess, at knots of a phase."""
        ocp = self.ocp
        return random_points(
            ocp, self.guess, ocp.phase_slices[phase], ocp.phases[phase].dynamics, self.points, self.rng
        )

    def label(self, phase: int) -> str:
        """Return the suffix of names that identifies the phase, or "" for a single phase."""
        return "" if len(self.ocp.phases) == 1 else f" of phase {phase}"

    # -- dynamics and time steps -----------------------------------------------------------------------------------

    def dynamics(self) -> Iterator[DerivativeCheck]:
        """Check dynamics and time steps of each phase; shared ones are checked once, user-defined time steps are skipped.

        A check in part covers the first of the dynamics whose maps have the same class, and reports the others as skipped. Time
        steps are checked only if ``extent.method`` is a built-in method.
        """
        seen: set[int] = set()
        kinds: set[object] = set()
        for i, phase in enumerate(self.ocp.phases):
            found = phase.dynamics
            if id(found) in seen or not isinstance(found, (SampledSystem, ImpactStage)):
                continue
            seen.add(id(found))
            kind = type(unwrapped(found.backend.map))
            if self.extent.part and kind in kinds:
                note = f"same {kind.__name__} as above, with other contacts"
                yield DerivativeCheck(f"{_noun(found)}{self.label(i)}", "", LEFT_OUT, None, note)
                continue
            kinds.add(kind)
            at = self.points_of(i)
            at = at._replace(u=at.u[:, : found.nu])
            p = _phase_parameters(self.ocp, at.knots)
            yield from self._check_system(found, at, p, self.label(i))
            if self.extent.method in METHODS.builtin:  # other backends do not treat damping implicitly
                yield from self._check_step(found, at, p, self.label(i))

    def _check_system(
        self, dynamics: SampledSystem | ImpactStage, at: Points, p: Parameters, label: str
    ) -> Iterator[DerivativeCheck]:
        """Yield results for the continuous dynamics, or for the jump, of a time step: fx, fu, and second derivatives.

        Also lines for methods that are skipped or cannot differentiate it. A user-defined backend without a system is
        checked against central differences. label: suffix of its name.
        """
        system, what = source_of(dynamics.backend), f"{_noun(dynamics)}{label}"
        if system is None:
            yield from user_backend_checks(what, dynamics.backend, at, p)
            if not isinstance(dynamics.backend, SecondOrderBackend):
                note = f"second derivatives: only their backend {dynamics.backend.name} can evaluate the dynamics"
                yield DerivativeCheck(what, "", LEFT_OUT, None, note)
            return

        def jacobians(method: str) -> Jacobians:
            """Value, fx and fu of the system by a method."""
            return self._backend(system, method).jacobians(at.x, at.u, at.t, p)

        methods = [m for m in self.extent.methods if m != REFERENCE]
        able = yield from self._supported_methods(what, system, methods)
        yield from first_order(what, system, ("fx", "fu"), at, p, {m: partial(jacobians, m) for m in able})
        missing = [m for m in METHODS.builtin if m not in (*self.extent.methods, REFERENCE)]
        if missing:
            in_c = "" if self.engine == "numpy" else f", in C all except first derivatives of {self.extent.method}"
            note = f"{', '.join(missing)}, all except {FEW} points, all except {self.extent.method} for the time step{in_c}"
            yield DerivativeCheck(what, "", LEFT_OUT, None, note)
        backends = self._second_order(system)
        if self.extent.method not in backends:
            yield DerivativeCheck(
                what,
                "second",
                self.extent.method,
                None,
                "no second derivatives: DDP and exact Hessians unavailable",
            )
        yield from self._check_contractions(what, system, at, p, backends)

    def _supported_methods(
        self, what: str, map: Map, methods: Sequence[str]
    ) -> Generator[DerivativeCheck, None, list[str]]:
        """Return the methods that can differentiate a map; yield a line with the reason for each other method."""
        lacking = {m: reason for m in methods if (reason := missing_capability(map, m)) is not None}
        yield from (DerivativeCheck(what, "", m, None, reason) for m, reason in lacking.items())
        return [m for m in methods if m not in lacking]

    def _check_step(
        self, dynamics: SampledSystem | ImpactStage, at: Points, p: Parameters, label: str
    ) -> Iterator[DerivativeCheck]:
        """Yield results for a time step: A, B, and second derivatives of lam' x_next.

        A time step with more than ``extent.substeps`` substeps is replaced by its first ones, and a line reports the others as
        skipped. label: suffix of its name.
        """
        what, system = f"time step{label}", dynamics.backend.map
        if isinstance(dynamics, SampledSystem) and self.extent.substeps and dynamics.substeps > self.extent.substeps:
            note = f"{dynamics.substeps - self.extent.substeps} of its {dynamics.substeps} substeps"
            at = at._replace(dt=at.dt * self.extent.substeps / dynamics.substeps)
            dynamics = SampledSystem(dynamics.backend, dynamics.scheme, self.extent.substeps)
            yield DerivativeCheck(what, "", LEFT_OUT, None, note)
        step, few = _step_map(dynamics), at.first(self.extent.points)
        values = {**p, "x_next": dynamics.step(at.x, at.u, at.t, at.dt, p), TIME_STEP: at.dt[:, None]}
        own = parameters_at(values, slice(len(few.x)))
        probe = Probe.random(step, len(few.x), DIRECTIONS, self.rng)

        def linearized(method: str) -> Jacobians:
            """Next states, A and B of the time step, with derivatives of the system by a method."""
            return Jacobians(*dynamics.under(self._backend(system, method)).linearize(at.x, at.u, at.t, at.dt, p))

        def contracted(backend: Any) -> Hessians:
            """Second derivatives of lam' x_next by a backend, at the first points, with the multipliers of the probe."""
            contraction = contraction_of(dynamics.under(backend))
            return contraction(few.x, few.u, few.t, few.dt, {k: own[k] for k in p}, probe.lam)

        methods = (self.extent.method,) if self.extent.part else self.extent.methods
        able = yield from self._supported_methods(what, system, methods)
        yield from first_order(what, step, ("A", "B"), at, values, {m: partial(linearized, m) for m in able})
        second = {m: partial(contracted, b) for m, b in self._second_order(system).items()}
        yield from second_order(what, step, few, own, probe, second)

    # -- cost terms and constraints --------------------------------------------------------------------------------

    def residuals(self) -> Iterator[DerivativeCheck]:
        """Check the residual of each cost term and constraint: those of the phases, then those of the final knot.

        Running parts whose residual was checked in an earlier phase are skipped.
        """
        ocp, seen = self.ocp, set()
        if self.extent.part and self.engine != "numpy":
            yield DerivativeCheck("terms and constraints", "", LEFT_OUT, None, "residuals in C (compared in NumPy)")
        for i, phase in enumerate(ocp.phases):
            parts: tuple[CostTerm | Constraint, ...] = (*phase.terms, *phase.constraints)
            mine = [part for part in parts if id(part.residual) not in seen]
            if not mine:
                continue
            at = self.points_of(i)
            for part in mine:
                seen.add(id(part.residual))
                yield from self._check_residual(part, at, at.knots - ocp.phase_slices[i].start, self.label(i))
        ends: tuple[CostTerm | Constraint, ...] = (*ocp.terminal, *ocp.terminal_constraints)
        for part in ends:
            at = self.points_of(len(ocp.phases) - 1)
            end = at._replace(t=np.full(len(at.x), ocp.t[-1]))
            yield from self._check_residual(part, end, np.zeros(len(at.x), int), "", "final ")

    def _check_residual(
        self, part: CostTerm | Constraint, at: Points, local: Array, label: str, when: str = ""
    ) -> Iterator[DerivativeCheck]:
        """Yield results for a term or constraint: rx, ru and second derivatives.

        The latter are the exact Hessian of a term, and lam' g of a constraint by forward_ad. local: indices of the points' knots
        within the phase. label, when: suffix and prefix of its name.
        """
        residual, p = part.residual, parameters_at(part.parameters, local)
        what = f"{when}{'term' if isinstance(part, CostTerm) else 'constraint'} {part.name!r}{label}"
        at = at._replace(x=at.x[:, : residual.manifold.nx], u=at.u[:, : residual.nu])

        def jacobians(method: str) -> Jacobians:
            """Value, rx and ru of the residual by a method; in NumPy if the problem is checked in part."""
            engine = "numpy" if self.extent.part else self.engine
            return make_backend(residual, method, engine=engine).jacobians(at.x, at.u, at.t, p)

        closed = isinstance(residual, HasPartials)
        known = [m for m in self.extent.methods if m in METHODS.builtin and m != REFERENCE]
        methods = [m for m in known if closed or m != "analytic"]
        yield from first_order(what, residual, ("rx", "ru"), at, p, {m: partial(jacobians, m) for m in methods})
        if isinstance(part, CostTerm):
            yield from self._cost_hessian(what, part, at.first(self.extent.points), local)
        else:
            yield from self._check_contractions(
                what, residual, at, p, {"forward_ad": make_backend(residual, "forward_ad", engine="numpy")}
            )

    def _cost_hessian(self, what: str, term: CostTerm, at: Points, local: Array) -> Iterator[DerivativeCheck]:
        """Check the exact Hessian of 1/2 sum_i w_i r_i^2, or of sum_i w_i r_i if the term is not squared, as NumPy computes it.

        Errors are relative to the larger of the exact and the Gauss-Newton Hessian. local: indices of the points' knots within
        the phase.
        """
        residual, count, knots = term.residual, len(at.x), local[: len(at.x)]
        p = parameters_at(term.parameters, knots)
        weight = np.broadcast_to(rows_at(term.weight, knots), (count, residual.n_out))
        there = CostTerm(term.name, residual, weight, p, term.squared)
        cost = FunctionMap(
            partial(_weighted_sum, residual, term.squared),
            residual.manifold,
            residual.nu,
            1,
            control_names=residual.control_names,
        )

        def expanded(hessian: str) -> Hessians:
            """Hessian of the term, "exact" or "gauss_newton", by the function that NumPy stages use."""
            e = quadratize(there, at.x, at.u, at.t, hessian=hessian)
            return Hessians(e.lxx, e.lux, e.luu)

        probe, q = (
            Probe.random(cost, count, DIRECTIONS, self.rng)._replace(lam=np.ones((count, 1))),
            {**p, WEIGHT: there.weight},
        )
        by_method = {"exact Hessian": partial(expanded, "exact")}
        yield from second_order(what, cost, at, q, probe, by_method, expanded("gauss_newton"))

    # -- shared by dynamics and residuals ---------------------------------------------------------------------------

    def _check_contractions(
        self, what: str, map: Map, at: Points, p: Parameters, backends: Mapping[str, Any]
    ) -> Iterator[DerivativeCheck]:
        """Yield results for second derivatives of lam' f of a map, with random lam, by each of ``backends`` (by method)."""
        few = at.first(self.extent.points)
        own = parameters_at(p, slice(len(few.x)))
        probe = Probe.random(map, len(few.x), DIRECTIONS, self.rng)

        def contracted(backend: SecondOrderBackend) -> Hessians:
            """Second derivatives of lam' f by a backend, at the first points, with the multipliers of the probe."""
            return backend.hessian_contraction(few.x, few.u, few.t, own, probe.lam)[1]

        second = {m: partial(contracted, backend) for m, backend in backends.items()}
        yield from second_order(what, map, few, own, probe, second)

    def _second_order(self, map: Map) -> Mapping[str, SecondOrderBackend]:
        """Return the backends with second derivatives of a map, by method of ``extent.second``; other methods are omitted."""
        found = {}
        engine = "numpy" if self.extent.part else self.engine
        for method in self.extent.second:
            if missing_capability(map, method) is not None:  # reported with the first derivatives
                continue
            backend = make_backend(map, method, engine=engine)
            if isinstance(backend, SecondOrderBackend):
                found[method] = backend
        return found

    def _backend(self, map: Map, method: str) -> DynamicsBackend:
        """Create a backend; if a large problem is checked in part, methods other than its own run in NumPy."""
        apart = self.extent.part and method != self.extent.method
        return make_backend(map, method, engine="numpy" if apart else self.engine)


def _noun(dynamics: SampledSystem | ImpactStage) -> str:
    """Name of the map of a phase in results: "impact" for one without duration, else "dynamics"."""
    return "impact" if isinstance(dynamics, ImpactStage) and not dynamics.takes_time else "dynamics"


def _step_map(dynamics: SampledSystem | ImpactStage) -> Map:
    """Return the map x_next (-) p["x_next"], whose derivatives are A, B of the time step where p["x_next"] is its next state."""
    system, manifold = dynamics.backend.map, dynamics.manifold

    def difference(x, u, t, p):
        """Difference x_next (-) p["x_next"] after a time step of length p[TIME_STEP], or after an impact."""
        own = {k: v for k, v in p.items() if k not in ("x_next", TIME_STEP)}
        if isinstance(dynamics, ImpactStage):
            x_next = manifold.integrate(x, system(x, u, t, own))
        else:
            x_next = step_rows(system, dynamics.scheme, dynamics.substeps, x, u, t, p[TIME_STEP][0], own)
        return manifold.difference(p["x_next"], x_next)

    names = tuple(f"{name}+" for name in manifold.tangent_names)
    controls = dynamics.control_names
    return FunctionMap(difference, manifold, dynamics.nu, manifold.ndx, output_names=names, control_names=controls)


def _weighted_sum(residual: Map, squared: bool, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
    """Return the row 1/2 sum_i w_i r_i^2 if ``squared``, else sum_i w_i r_i, with the weights w as the parameter WEIGHT."""
    r, w = residual(x, u, t, {k: v for k, v in p.items() if k != WEIGHT}), p[WEIGHT]
    return stack([sum(w[i] * (0.5 * r[i] * r[i] if squared else r[i]) for i in range(residual.n_out))])


KNOTS = 4
"""Maximum number of evenly spaced knots per phase to compare; the reference at all knots of a humanoid takes minutes."""


def derivative_error(evaluator: StageEvaluator, reference: OCP, xs: Array, us: Array) -> float:
    """Return the largest error of A, B, derivatives of x_next (-) xs[k + 1] in x and u, at up to KNOTS knots per phase.

    xs (N + 1, nx), us (N, nu): trajectory. evaluator: linearizes the problem with its backend and engine. reference: the problem
    with derivatives of :data:`REFERENCE` in NumPy. Errors are relative to the largest entry of the reference matrix at the same
    knot, or absolute if it is zero; infinite for a value that is not finite.
    """
    with np.errstate(all="ignore"):
        lq, worst = evaluator.expand(xs, us).lq, 0.0
        for phase, knots in zip(reference.phases, reference.phase_slices, strict=True):
            at = np.unique(np.linspace(knots.start, knots.stop - 1, KNOTS).round().astype(int))
            local = at - knots.start
            p = parameters_at(phase.parameters, local)
            given = phase.dynamics, (), (), reference.t[at], phase.dt[local], reference.nu, p
            exact = NumpyStages(reference.manifold, *given).first(Knots(xs[at], us[at], xs[at + 1]), quadratic=False)
            for own, right in ((lq.A[at], exact.A), (lq.B[at], exact.B)):
                if right.size:
                    worst = max(worst, worst_entry(own, right)[0])
    return worst
