"""Optimal control problem: phases of discrete dynamics, cost terms, bounds, constraints.

    minimize    sum_k dt_k sum_terms 1/2 |r(x_k, u_k, t_k, p)|_w^2  +  sum_terminal 1/2 |r(x_N, t_N, p)|_w^2
    subject to  x_0 given,  x_(k+1) = F_k(x_k, u_k, t_k, dt_k, p),  u_lower <= u_k <= u_upper,
                lower <= g(x_k, u_k, t_k, p) <= upper  for the constraints of a phase,  likewise for terminal ones at x_N

Objective terms are w'f in place of 1/2 |r|_w^2. A stage without duration, such as an impact, weights its terms with 1 in place of
dt_k. Trapezoidal quadrature weights terms of the state with (dt_(k-1) + dt_k) / 2 (:mod:`trajopt.problem.terms`).
All phases share the state manifold and nu; a map with fewer controls reads the first ones and ignores the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.names import nearest_names
from dynamics_backends.protocol import Array, DynamicsBackend, Hessians, InScaledTime, Parameters, unwrapped
from trajopt.problem.annotations import Annotations
from trajopt.problem.constraints import Constraint, final_constraints
from trajopt.problem.expansion import phase_cost
from trajopt.problem.goals import CLEARANCE, Goal
from trajopt.problem.terms import CostTerm, Values, changed_parameters, parameters_at, rows_at, trapezoidal


class LinearizedStep(NamedTuple):
    """Step x_next (N, nx) with sensitivities A (N, ndx, ndx), B (N, ndx, nu), from the tangent space at x to that at x_next."""

    x_next: Array
    A: Array
    B: Array


class Sampling(NamedTuple):
    """Parts of a time step: backend of the continuous dynamics (or of a jump), integration scheme, and substeps per dt.

    stages: backend with implicit damping that steps call in place of ``backend``, if any; see ``called``.
    """

    backend: DynamicsBackend
    scheme: str
    substeps: int = 1
    stages: DynamicsBackend | None = None

    @property
    def called(self) -> DynamicsBackend:
        """Backend that time steps evaluate: the one with implicit damping if there is one, else the backend of the dynamics."""
        return self.stages or self.backend


DYNAMICS = "dynamics"
"""Name of the parameters of the dynamics where values are changed by name."""
UNBOUNDED = 1e19
"""Magnitude from which on a control bound counts as infinite; nlp_lower_bound_inf of IPOPT."""
MAX_STEPS = 10_000_000
"""Maximum number of time steps, and of substeps, of a phase; derivatives at more knots exceed the memory of most machines."""

StepContraction = Callable[[Array, Array, "Array | float", "Array | float", "Parameters | None", Array], Hessians]
"""Function of x, u, t, dt, p and lam (N, ndx) in the tangent space at x_next. It returns the second derivatives at 0 of
lam' (F(x (+) dx, u + du) (-) F(x, u)), as blocks xx (N, ndx, ndx), ux (N, nu, ndx), uu (N, nu, nu)."""


class DiscreteMap(Protocol):
    """Discrete dynamics x_next = F(x, u, t, dt, p) of a batch of knots; batch axis first, float64.

    x (N, nx), u (N, nu), t and dt: a number or (N,) [s], p: parameters by name, (n,) or (N, n).

    takes_time: True if the step has a duration dt, False for an impact. sampling: parts of the step, for compiled engines and
    reports; None for a user-defined map. contract: second derivatives; None if there are none.
    """

    manifold: Manifold
    nu: int
    control_names: tuple[str, ...]
    takes_time: bool
    sampling: Sampling | None

    @property
    def contract(self) -> StepContraction | None:
        """Function for contracted second derivatives of a step, see :data:`StepContraction`; None if there are none."""

    def step(self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None) -> Array:
        """Return the next states x_next = F(x, u, t, dt, p), (N, nx)."""

    def linearize(
        self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None
    ) -> LinearizedStep:
        """Return x_next (N, nx) with A = d x_next / dx (N, ndx, ndx), B = d x_next / du (N, ndx, nu), both in tangent spaces."""


@dataclass(frozen=True, eq=False)
class Phase:
    """Consecutive knots that share dynamics, running cost terms and constraints.

    dt: (N,) time steps [s]. terms: running cost. parameters: of the dynamics, each (n,) or (N, n). constraints: on every knot,
    but without controls not on x0. Raises ValueError for more than MAX_STEPS time steps or substeps, TypeError for terms that are
    no cost terms, constraints that are none, and dynamics without time steps.
    """

    dynamics: DiscreteMap
    dt: Array
    terms: tuple[CostTerm, ...] = ()
    parameters: Mapping[str, Array] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        if not hasattr(self.dynamics, "takes_time"):
            raise TypeError(
                f"dynamics is a {type(self.dynamics).__name__}; expected discrete dynamics, as trajopt.SampledSystem(system, "
                "'rk4'), where a function is the system trajopt.FunctionMap(function, nx, nu)"
            )
        if np.size(self.dt) > MAX_STEPS:
            raise ValueError(f"a phase has {np.size(self.dt)} time steps; give it at most {MAX_STEPS}, by a longer dt")
        sampling = getattr(self.dynamics, "sampling", None)
        if sampling is not None and np.size(self.dt) * sampling.substeps > MAX_STEPS:
            steps = f"{np.size(self.dt)} time steps of {sampling.substeps} substeps"
            raise ValueError(f"a phase has {steps}; give it at most {MAX_STEPS} substeps in all")
        object.__setattr__(self, "dt", np.atleast_1d(np.array(self.dt, dtype=float)))
        object.__setattr__(self, "terms", _terms("the running costs", self.terms))
        object.__setattr__(self, "constraints", _constraints("constraints", self.constraints))
        values = {k: np.atleast_1d(np.array(v, dtype=float)) for k, v in self.parameters.items()}
        object.__setattr__(self, "parameters", values)

    def __repr__(self) -> str:
        counts = f"{len(self.terms)} costs, {len(self.constraints)} constraints"
        return f"Phase({self.knots} knots, {self.dt.sum():.6g} s, {self.dynamics!r}, {counts})"

    def updated(self, **parameters: Values) -> Phase:
        """Copy of this phase with new values of those parameters that its dynamics have.

        Raises ValueError for a wrong size.
        """
        own = {key: value for key, value in parameters.items() if key in self.parameters}
        return replace(self, parameters=changed_parameters("the dynamics", self.parameters, own)) if own else self

    def at_knots(self, knots: Array, dt: Array) -> Phase:
        """Copy of this phase with its values at some of its knots (K,), and other time steps dt (K,) [s]."""
        terms = tuple(term.at_knots(knots) for term in self.terms)
        constraints = tuple(c.at_knots(knots) for c in self.constraints)
        parameters = parameters_at(self.parameters, knots)
        return replace(self, dt=dt, terms=terms, parameters=parameters, constraints=constraints)

    @property
    def knots(self) -> int:
        """Number of knots N of the phase."""
        return len(self.dt)

    @property
    def system(self) -> Any:
        """Continuous dynamics or jump that the time steps are taken of, without wrappers; None for a user-defined map."""
        sampling = self.dynamics.sampling
        return None if sampling is None else unwrapped(sampling.backend.map)

    @property
    def weights(self) -> Array:
        """Weights (N,) of the running cost at each knot: dt, or 1 for dynamics without duration, such as an impact."""
        return self.dt if self.dynamics.takes_time else np.ones(self.knots)


QUADRATURES = ("rectangle", "trapezoidal")
"""Quadrature rules for running costs."""


_ONLY_CHECKED = "a goal is only checked after a solve: pass it as goals=[...]"


def _terms(where: str, parts: Any) -> tuple[CostTerm, ...]:
    """Cost terms ``parts`` as a tuple.

    Raises TypeError for another object among them, and for a single term in place of a list; ``where`` begins the message.
    """
    terms = _as_tuple(where, parts)
    for term in terms:
        if isinstance(term, Constraint):
            raise TypeError(
                f"{where}: {term.name!r} is a constraint; pass it as a constraint, or as the cost trajopt.softened(...)"
            )
        if isinstance(term, Goal):
            raise TypeError(
                f"{where}: {_ONLY_CHECKED}. The cost of a state is trajopt.state_cost(manifold, state, weight)"
            )
        if not isinstance(term, CostTerm):
            raise TypeError(f"{where}: {term!r} is no cost term; use trajopt.residual_cost(...), for example")
    return terms


def _constraints(where: str, parts: Any) -> tuple[Constraint, ...]:
    """Constraints ``parts`` as a tuple.

    Raises TypeError for another object among them, and for a single constraint in place of a list; ``where`` begins the message.
    """
    constraints = _as_tuple(where, parts)
    for c in constraints:
        if isinstance(c, CostTerm):
            raise TypeError(f"{where}: {c.name!r} is a cost; use trajopt.bounded(...) to make it a constraint")
        if isinstance(c, Goal):
            raise TypeError(
                f"{where}: {_ONLY_CHECKED}. A constraint for a state is trajopt.bounded(trajopt.state_cost(manifold, state))"
            )
        if not isinstance(c, Constraint):
            raise TypeError(f"{where}: {c!r} is no constraint; use trajopt.residual_constraint(...)")
    return constraints


def _as_tuple(where: str, parts: Any) -> tuple[Any, ...]:
    """Phases, cost terms or constraints as a tuple. Raises TypeError for no list; ``where`` begins the message."""
    if isinstance(parts, (CostTerm, Constraint)):
        raise TypeError(f"{where}: {parts.name!r} is a single object; pass a list")
    if not isinstance(parts, Iterable):
        raise TypeError(f"{where}: got a {type(parts).__name__}; pass a list")
    return tuple(parts)


@dataclass(frozen=True, eq=False)
class OCP:
    """An immutable optimal control problem on N time steps, those of all its phases.

        minimize    sum_k dt_k sum_terms 1/2 |r(x_k, u_k, t_k, p)|_w^2  +  sum_terminal 1/2 |r(x_N, t_N, p)|_w^2
        subject to  x_0 given,  x_(k+1) = F_k(x_k, u_k, t_k, dt_k, p),  u_lower <= u_k <= u_upper,
                    lower <= g(x_k, u_k, t_k, p) <= upper  for the constraints of a phase,  likewise for terminal ones at x_N

    :meth:`single_phase` makes a problem with one phase. phases: dynamics F, time steps dt, running costs and constraints, in
    order. terminal, terminal_constraints: costs and constraints of the final state. x0: (nx,), or a number if nx = 1. u_lower,
    u_upper: None, a number for all controls, (nu,) or (N, nu), infinite for no bound. model: robot model of the state (q, v),
    if any; used for checks and reports, never to solve. annotations: goals, obstacles and shapes for viewers
    (:class:`~trajopt.Annotations`), never used to solve. Goals or obstacles that annotations lack are those of cost terms and
    constraints in viewers. start: t at the first knot [s], for residuals and dynamics that read it. goals: requirements checked
    after a solve; default: the goals of frames in terminal costs (see :mod:`trajopt.validation.reach`). replay_tolerance:
    allowed deviation of the replay from the plan [rad, m, or fraction of a component's range]; default by kind of robot, see
    :mod:`trajopt.validation.replay`. implied: names of constraints of the last phase that also hold at the final state, but are
    no terminal ones, because the final state is given and satisfied them when :meth:`single_phase` built the problem; checked
    after a solve.

    Raises ValueError for a problem without phases, and for a tolerance that is not positive, TypeError for terminal costs or
    constraints of another type, and for x0 or bounds that are not real numbers.
    """

    phases: tuple[Phase, ...]
    x0: Array
    terminal: tuple[CostTerm, ...] = ()
    u_lower: Array | None = None
    u_upper: Array | None = None
    name: str = "ocp"
    model: Any = None
    terminal_constraints: tuple[Constraint, ...] = ()
    start: float = 0.0
    goals: tuple[Goal, ...] = ()
    replay_tolerance: float | None = None
    annotations: Annotations | None = None
    implied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "phases", _as_tuple("phases", self.phases))
        object.__setattr__(self, "goals", tuple(self.goals))
        object.__setattr__(self, "terminal", _terms("terminal", self.terminal))
        final = _constraints("terminal_constraints", self.terminal_constraints)
        object.__setattr__(self, "terminal_constraints", final)
        for key in ("x0", "u_lower", "u_upper"):
            value = getattr(self, key)
            if np.iscomplexobj(value) or (key == "x0" and value is None):
                raise TypeError(f"{key} = {value!r}; expected real numbers")
            object.__setattr__(self, key, None if value is None else np.array(value, dtype=float))
        object.__setattr__(self, "x0", np.atleast_1d(self.x0))
        if not self.phases:
            raise ValueError("an OCP needs at least one phase")
        if self.replay_tolerance is not None and not self.replay_tolerance > 0.0:
            raise ValueError(f"replay_tolerance = {self.replay_tolerance!r}; expected a positive number, or None")
        for key in ("u_lower", "u_upper"):
            bound = getattr(self, key)
            if bound is not None and not bound.ndim:
                object.__setattr__(self, key, np.full(self.nu, float(bound)))

    def __repr__(self) -> str:
        kinds = {"phases": self.phases, "costs": self.terms(), "constraints": self.constraints()}
        counts = ", ".join(f"{len(of)} {kind}" for kind, of in kinds.items())
        lasts = f"{self.horizon} knots, {self.times[-1]:.6g} s"
        return f"OCP({self.name!r}: {lasts}, nx = {self.manifold.nx}, nu = {self.nu}, {counts})"

    @classmethod
    def single_phase(
        cls,
        dynamics: DiscreteMap,
        x0: Values,
        horizon: int,
        dt: float | Array,
        running: Sequence[CostTerm] = (),
        terminal: Sequence[CostTerm] = (),
        *,
        parameters: Mapping[str, Values] | None = None,
        constraints: Sequence[Constraint] = (),
        quadrature: str = "rectangle",
        **fields: Any,
    ) -> OCP:
        """Problem with one phase of ``horizon`` knots; dt: a number or (horizon,) [s]; ``fields`` as in :class:`OCP`.

        quadrature: rule for the running costs, "rectangle", with the value at the beginning of each time step, or "trapezoidal",
        of second order in dt, for terms that read only the state (:func:`~trajopt.problem.terms.trapezoidal`). constraints: at
        every knot, but without controls not at x0. Those on the state alone without values by knot also hold at the last state
        x_N, unless terminal_constraints contain one with the same name, or fix the whole final state at a value that satisfies
        them. Those of a :class:`Phase` hold before x_N only.

        Raises TypeError for a horizon that is not an integer and for unknown names, ValueError for a negative horizon, for another
        quadrature, and for a dt of another length.

        >>> import trajopt as to
        >>> robot = to.FreeBody(to.chain(2))
        >>> dynamics = to.SampledSystem(to.make_backend(robot), "rk4")
        >>> ocp = OCP.single_phase(dynamics, [0.0] * 4, 50, 0.02, [to.control_cost(2)], u_lower=[-1.0, -1.0])
        >>> ocp.horizon, round(float(ocp.times[-1]), 9), ocp.nu
        (50, 1.0, 2)
        """
        possible = cls.__dataclass_fields__.keys() - {"phases"}
        for key in fields.keys() - possible:
            near = nearest_names(key, [*possible, *signature(cls.single_phase).parameters], count=1)
            raise TypeError(
                f"OCP.single_phase has no argument {key!r}{''.join(f'; did you mean {name!r}?' for name in near)}"
            )
        if isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)):
            raise TypeError(f"horizon = {horizon!r}; expected an integer number of time steps")
        if horizon < 0:
            raise ValueError(f"horizon = {horizon}; a number of time steps cannot be negative")
        steps = np.asarray(dt, dtype=float)
        if steps.shape not in ((), (1,), (horizon,)):
            raise ValueError(f"dt has shape {steps.shape}; give a number, or one for each of the {horizon} time steps")
        steps = np.broadcast_to(steps, (horizon,))
        values = {key: np.asarray(value, dtype=float) for key, value in (parameters or {}).items()}
        if quadrature not in QUADRATURES:
            raise ValueError(f"quadrature = {quadrature!r}; expected one of {', '.join(QUADRATURES)}")
        if quadrature == "trapezoidal":
            running, end = trapezoidal(_terms("the running costs", running), steps)
            terminal = (*_terms("terminal", terminal), *end)
        phase = Phase(dynamics, steps, running, values, constraints)  # type: ignore[arg-type]
        given = _constraints("terminal_constraints", fields.pop("terminal_constraints", ()))
        with np.errstate(over="ignore"):  # validate reports time steps that add up to infinity
            end = fields.get("start", 0.0) + float(steps.sum())
        final, implied = final_constraints(phase.constraints, given, end)
        fields |= {"terminal_constraints": final, "implied": implied}
        return cls((phase,), x0, terminal, **fields)  # type: ignore[arg-type]

    @property
    def manifold(self) -> Manifold:
        """State manifold."""
        return self.phases[0].dynamics.manifold

    @cached_property
    def nu(self) -> int:
        """Number of controls: the largest of all phases; a phase with fewer controls reads the first ones."""
        return max(phase.dynamics.nu for phase in self.phases)

    @property
    def horizon(self) -> int:
        """Number of time steps N."""
        return sum(phase.knots for phase in self.phases)

    @property
    def dt(self) -> Array:
        """Time steps (N,) [s]."""
        return np.concatenate([phase.dt for phase in self.phases])

    @property
    def times(self) -> Array:
        """Times (N + 1,) of the knots [s], 0 at the first knot."""
        times = np.zeros(self.horizon + 1)
        np.cumsum(self.dt, out=times[1:])
        return times

    @property
    def t(self) -> Array:
        """Time t (N + 1,) [s] that residuals and dynamics read at the knots: ``start`` plus the times."""
        return self.start + self.times

    def times_of(self, xs: Array) -> Array:
        """Times (N + 1,) [s] of the knots, 0 at the first one, with the free phase durations, if any, that states xs contain."""
        if not self.in_scaled_time:
            return self.times
        steps = [
            phase.dt * stretch(phase, xs[knots]) for phase, knots in zip(self.phases, self.phase_slices, strict=True)
        ]
        return np.r_[0.0, np.cumsum(np.concatenate(steps))]

    @cached_property
    def in_scaled_time(self) -> bool:
        """True if any phase has a free duration, which is then part of the state (:mod:`dynamics_backends.stretched_map`)."""
        return any(isinstance(phase.system, InScaledTime) for phase in self.phases)

    @cached_property
    def phase_slices(self) -> tuple[slice, ...]:
        """Slice of the knots 0 to N - 1 for each phase."""
        ends = np.cumsum([0, *(phase.knots for phase in self.phases)])
        return tuple(slice(int(a), int(b)) for a, b in pairwise(ends))

    @property
    def state_names(self) -> tuple[str, ...]:
        """Name of each tangent component of the state."""
        return self.manifold.tangent_names

    @property
    def control_names(self) -> tuple[str, ...]:
        """Name of each control, from a phase with the most controls, preferably one with duration, whose controls are forces."""
        most = max(self.phases, key=lambda phase: (phase.dynamics.nu, phase.dynamics.takes_time))
        return most.dynamics.control_names

    @cached_property
    def control_bounds(self) -> tuple[Array, Array] | None:
        """Lower and upper bounds on controls, each (N, nu); None if neither is given.

        Infinite if only the other one is given, from UNBOUNDED on, and for controls that the dynamics of a phase do not have.
        """
        if self.u_lower is None and self.u_upper is None:
            return None
        shape = self.horizon, self.nu
        counts = np.repeat([phase.dynamics.nu for phase in self.phases], [phase.knots for phase in self.phases])
        used = np.arange(self.nu) < counts[:, None]
        lower = np.broadcast_to(-np.inf if self.u_lower is None else self.u_lower, shape)
        upper = np.broadcast_to(np.inf if self.u_upper is None else self.u_upper, shape)
        return (
            np.where(used & ~(lower <= -UNBOUNDED), lower, -np.inf),
            np.where(used & ~(upper >= UNBOUNDED), upper, np.inf),
        )

    def cost(self, xs: Array, us: Array) -> Any:
        """Cost of a trajectory xs (N + 1, nx), us (N, nu), a number, or of L trajectories (L, N + 1, nx), (L, N, nu), (L,).

        Dynamics and constraints are ignored. Raises ValueError for arrays of other shapes.
        """
        xs, us = fitting(self, xs, us, several=True)
        one = xs.ndim == 2
        X, U, t = (xs[None], us[None], self.t) if one else (xs, us, self.t)
        total = phase_cost(self.terminal, X[:, -1:], U[:, :1, :0], t[-1:], np.ones(1)).sum(axis=1)
        for phase, knots in zip(self.phases, self.phase_slices, strict=True):
            total = total + phase_cost(phase.terms, X[:, knots], U[:, knots], t[knots], phase.weights).sum(axis=1)
        return float(total[0]) if one else np.asarray(total)

    def terms(self) -> list[CostTerm]:
        """All cost terms: the running ones of each phase in turn, then the terminal ones."""
        return [*(term for phase in self.phases for term in phase.terms), *self.terminal]

    def unconstrained(self) -> OCP:
        """This problem without constraints, but with the bounds on controls; the same object if it has no constraints."""
        if not self.constraints():
            return self
        phases = tuple(replace(phase, constraints=()) for phase in self.phases)
        return replace(self, phases=phases, terminal_constraints=())

    def constraints(self) -> list[Constraint]:
        """All constraints except the bounds on controls: those of each phase in turn, then the terminal ones."""
        return [*(c for phase in self.phases for c in phase.constraints), *self.terminal_constraints]

    def parts_named(self, name: str) -> list[CostTerm | Constraint | Phase]:
        """Cost terms and constraints with this name; else, for DYNAMICS, the phases whose dynamics have parameters.

        Raises ValueError if there are none.
        """
        parts: list[CostTerm | Constraint] = [*self.terms(), *self.constraints()]
        phases = [phase for phase in self.phases if phase.parameters]
        named = [part for part in parts if part.name == name] or (phases if name == DYNAMICS else [])
        if not named:
            if name == DYNAMICS:
                raise ValueError("the dynamics have no parameters; give them to the problem, parameters={...}")
            known = ", ".join(dict.fromkeys([*(part.name for part in parts), *[DYNAMICS] * bool(phases)]))
            own = any(name in phase.parameters for phase in phases)
            hint = f"; {name!r} is a parameter of the dynamics: updated({DYNAMICS!r}, {name}=...)" if own else ""
            if name in ("u_lower", "u_upper"):
                changed = f"dataclasses.replace(ocp, {name}=...)"
                hint = f"; bounds on controls belong to the problem: {changed}, for trajopt.MPC by horizon=lambda t: {changed}"
            raise ValueError(f"no cost term or constraint is named {name!r}; known: {known}{hint}")
        return [*named]

    def with_phases(self, phases: Iterable[Phase], knots: Array, **changes: Any) -> OCP:
        """Copy of this problem with other phases, the control bounds of its knots ``knots`` (K,), and further changes by name."""
        lower, upper = (None if b is None else rows_at(b, knots) for b in (self.u_lower, self.u_upper))
        return replace(self, phases=tuple(phases), u_lower=lower, u_upper=upper, **changes)

    def require_rows(self, name: str, key: str, value: Values, *knots: int) -> None:
        """Raise ValueError unless a value is a number, one row, or has N, N + 1 or one of ``knots`` rows; name, key: its names."""
        shape = np.shape(value)
        if len(shape) > 2 or (len(shape) == 2 and shape[0] not in (self.horizon, self.horizon + 1, *knots)):
            rows = f"(n,), (N = {self.horizon}, n) or (N + 1, n)"
            raise ValueError(f"{name!r}: {key} has shape {shape}; expected {rows}")

    def updated(self, name: str, **changes: Values) -> OCP:
        """Copy of this problem with new values in every cost term and constraint with this name.

        name: DYNAMICS for the dynamics of all phases with these parameters. changes: ``weight`` of a term, ``lower`` and
        ``upper`` of a constraint, and parameters by name. A value is a number, one row (n,) for all knots, rows (N, n) or
        (N + 1, n) by knot of the problem, or rows (K, n) if the phases concerned have K knots each. Terminal terms and constraints
        use the last row. New parameters or bounds of a terminal term or constraint remove ``goals``, which describe the old ones; a
        new center or radius of an obstacle removes the goal CLEARANCE.
        Raises ValueError for an unknown name or value, or a wrong shape.
        """
        named = self.parts_named(name)
        ids = {id(part) for part in named}
        own = {p.knots for p in self.phases if ids & {id(p), *map(id, p.terms), *map(id, p.constraints)}}
        for key, value in changes.items():
            self.require_rows(name, key, value, *(own if len(own) == 1 else ()))

        def changes_at(at: slice | int) -> dict[str, Any]:
            """Changes with the rows of some knots."""
            return {key: _rows_at(value, at, self.horizon) for key, value in changes.items()}

        def change(parts: tuple[Any, ...], at: slice | int) -> tuple[Any, ...]:
            """Parts with the changes in those with this name."""
            return tuple(part.updated(**changes_at(at)) if part.name == name else part for part in parts)

        both = list(zip(self.phases, self.phase_slices, strict=True))
        if isinstance(named[0], Phase):
            known = dict.fromkeys(key for phase in self.phases for key in phase.parameters)
            for key in changes:
                if key not in known:
                    raise ValueError(f"the dynamics have no parameter {key!r}; they have: {', '.join(known)}")
            return replace(self, phases=tuple(phase.updated(**changes_at(knots)) for phase, knots in both))
        phases = tuple(
            replace(phase, terms=change(phase.terms, knots), constraints=change(phase.constraints, knots))
            for phase, knots in both
        )
        terminal, final = change(self.terminal, -1), change(self.terminal_constraints, -1)
        at_end = not ids.isdisjoint(map(id, (*self.terminal, *self.terminal_constraints)))
        goals = () if at_end and changes.keys() - {"weight"} else self.goals
        if changes.keys() & {"center", "radius"}:
            goals = tuple(goal for goal in goals if goal.name != CLEARANCE)
        return replace(self, phases=phases, terminal=terminal, terminal_constraints=final, goals=goals)


def _rows_at(value: Values, at: slice | int, horizon: int) -> Values:
    """Rows of a value at some knots; a value that is constant, or has the knots of a phase, is returned unchanged.

    at: slice of knots, or -1, the last row.
    """
    by_knot = np.ndim(value) == 2 and (at == -1 or len(np.asarray(value)) >= horizon)
    return np.asarray(value, dtype=float)[at] if by_knot else value


def fitting(ocp: OCP, xs: Array, us: Array, several: bool = False) -> tuple[Array, Array]:
    """Check the shapes of a trajectory xs (N + 1, nx), us (N, nu), and return it as contiguous arrays of floats.

    several: accept L trajectories (L, N + 1, nx), (L, N, nu) too. Raises ValueError for other shapes, with which compiled code
    would access memory out of bounds.
    """
    xs, us, N = np.ascontiguousarray(xs, dtype=float), np.ascontiguousarray(us, dtype=float), ocp.horizon
    fit = xs.shape[-2:] == (N + 1, ocp.manifold.nx) and us.shape == (*xs.shape[:-2], N, ocp.nu)
    if not fit or xs.ndim > (3 if several else 2):
        expected = f"xs (N + 1 = {N + 1}, nx = {ocp.manifold.nx}) and us (N = {N}, nu = {ocp.nu})"
        raise ValueError(
            f"xs and us have shapes {xs.shape} and {us.shape}; expected {expected}{', or several of them' * several}"
        )
    return xs, us


def stretch(phase: Phase, xs: Array) -> Array | float:
    """Factors (K,) on a phase's time steps: its free duration in the states xs (K, nx) over the nominal one; 1 if it is fixed."""
    system = phase.system
    return xs[:, system.place] / system.nominal if isinstance(system, InScaledTime) else 1.0
