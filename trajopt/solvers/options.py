"""Options of the solvers.

``hessian`` has the same meaning for all solvers: the second derivatives in the quadratic model of a step. "exact" uses the
exact Hessian, "gauss_newton" only the convex outer functions of the cost, J'phi''J of phi(r(w)). SLQ and DDP use the Hessian
of the cost, SQP and IPOPT that of the Lagrangian.

``curvature`` refers to the dynamics: their second derivatives contracted with costates, which DDP adds to the model of SLQ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from trajopt.solvers.termination import Errors

COST_HESSIANS = ("gauss_newton", "exact")
MAX_TOLERANCE, MAX_GRADIENT = 1.0, 1e3
"""Maximum tolerances; MAX_GRADIENT for the gradient of a cost that is not scaled. Larger ones would accept almost any iterate."""
MAX_BARRIER = 1e8
"""Largest initial barrier parameter."""
MAX_BACKTRACKS = 100
"""Maximum number of halvings of a step; steps below 2^-53 of the full length change nothing."""
MAX_COUNT = 1_000_000
"""Largest value of options that are counts, such as max_iterations."""


@dataclass(frozen=True)
class CommonOptions:
    """Common options of all solvers, and their validation.

    between_knots: solve again with tighter inequalities if the motion violates them between the knots
    (:mod:`trajopt.solvers.refinement`); by default only ``auto`` does, others report such a violation. Batches and solves with
    check = False do neither. goal_tolerance: tolerance on equalities at the last knot that contradict other constraints, such as
    rounded goals (:mod:`trajopt.solvers.goal_tolerance`), in their units [m, rad].
    """

    between_knots: bool = False
    goal_tolerance: float = 1e-6

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for key, (is_allowed, expected) in _rules(kind).items():
            _require(is_allowed(value := getattr(self, key)), key, value, expected)

    @property
    def tolerances(self) -> Errors:
        """Tolerances of the convergence tests; None for those that the class does not have."""
        names = "kkt_tolerance", "gradient_tolerance", "defect_tolerance", "constraint_tolerance"
        return Errors(*(getattr(self, name, None) for name in names))


@dataclass(frozen=True)
class SLQOptions(CommonOptions):
    """Options of :func:`trajopt.solvers.slq.slq`; validated at construction (ValueError, TypeError for unknown
    names).

    shooting: "single", "all", or an integer K: a shooting node (a free state) every K knots. "all" uses the states of the
    guess and evaluates all knots as one batch; "single" uses only the controls of the guess. gaps: closing of the defects at
    the nodes: "linear", the nodes move by the linear step and the segments between them are rolled out in parallel
    (Giftthaler 2018); "nonlinear", one rollout in which each defect shrinks by 1 - alpha (Mastalli 2020). hessian: second
    derivatives of the cost in the quadratic model of a step, "gauss_newton" or "exact".

    max_iterations: maximum number of iterations. time_limit: time limit; default: none [s]. globalization: "merit", a line
    search on the l1 merit (:mod:`trajopt.solvers.methods.shooting`), or, with shooting = "all" and linear gaps,
    "filter": a filter, a barrier for the bounds on the controls, and damping of states and controls
    (:mod:`trajopt.solvers.methods.newton`). The filter is more robust; regularization, accept_ratio, penalty and nonmonotone
    apply to the merit only. gradient_tolerance: tolerance on the largest entry of the projected reduced gradient.
    defect_tolerance: tolerance on the largest defect. kkt_tolerance: tolerance on the scaled KKT error
    (:mod:`trajopt.solvers.rules.cost_size`), which stops a solve too. cost_tolerance: the solve stops if the relative
    decrease of the cost in an accepted step is smaller and the defects meet their tolerance; 0 disables this test.

    regularize: add mu to the diagonal of Quu ("control") or of V'xx ("state"; Tassa 2012, eq. 10). initial_regularization:
    initial mu. min_regularization: smallest nonzero mu. max_regularization: largest mu. regularization_factor: delta_0 of
    the schedule of Tassa 2012, section II-F. accept_ratio: required fraction of the expected decrease of the merit.
    max_backtracks: step lengths are 1, 1/2, ..., 2^-max_backtracks. penalty: initial weight of the l1 norm of the defects in
    the merit; raised automatically. nonmonotone: number of last iterates; a step has to
    reduce the largest of their merits (Grippo 1986); 1: each step reduces the merit.

    For problems with constraints (:mod:`trajopt.solvers.shooting.augmented_lagrangian`): constraint_tolerance: tolerance on
    the largest violation of feasibility and complementarity. constraint_penalty: initial penalty. max_constraint_penalty:
    largest penalty, relative to a cost above 1. max_outer_iterations: maximum number of multiplier updates.
    """

    shooting: int | Literal["single", "all"] = "all"
    gaps: Literal["linear", "nonlinear"] = "linear"
    hessian: Literal["gauss_newton", "exact"] = "gauss_newton"
    globalization: Literal["merit", "filter"] = "merit"
    max_iterations: int = 200
    time_limit: float | None = None
    gradient_tolerance: float = 1e-7
    defect_tolerance: float = 1e-9
    kkt_tolerance: float = 1e-8
    cost_tolerance: float = 0.0
    regularize: Literal["control", "state"] = "control"
    initial_regularization: float = 0.0
    min_regularization: float = 1e-8
    max_regularization: float = 1e10
    regularization_factor: float = 2.0
    accept_ratio: float = 0.1
    max_backtracks: int = 10
    penalty: float = 0.0
    nonmonotone: int = 1
    constraint_tolerance: float = 1e-6
    constraint_penalty: float = 10.0
    max_constraint_penalty: float = 1e8
    max_outer_iterations: int = 50

    def __post_init__(self) -> None:
        nodes = self.shooting
        whole = isinstance(nodes, int) and not isinstance(nodes, bool) and nodes >= 1
        _require(whole or nodes in ("single", "all"), "shooting", nodes, "'single', 'all' or an integer of at least 1")
        super().__post_init__()
        _require_ordered(self, "constraint_penalty", "max_constraint_penalty")
        _require_ordered(self, "min_regularization", "max_regularization")
        initial = self.initial_regularization
        most = f"at most max_regularization = {self.max_regularization:g}"
        _require(initial <= self.max_regularization, "initial_regularization", initial, most)


@dataclass(frozen=True)
class MethodOptions(CommonOptions):
    """Options of registered methods (:func:`trajopt.register_method`), which may add their own; validated at construction.

    hessian: "gauss_newton", or "exact" with the second derivatives of the dynamics if the method requests them. max_iterations:
    maximum number of iterations. max_backtracks: step lengths are 1, 1/2, ..., 2^-max_backtracks. time_limit: time limit; default:
    none [s]. gradient_tolerance: tolerance on the largest entry of the gradient of the Lagrangian in the controls.
    defect_tolerance: tolerance on the largest defect. kkt_tolerance: tolerance on the scaled KKT error. cost_tolerance: tolerance
    on the relative decrease of the cost in a step, 0 for none. The method applies the tolerances.
    """

    hessian: Literal["gauss_newton", "exact"] = "gauss_newton"
    max_iterations: int = 200
    max_backtracks: int = 10
    time_limit: float | None = None
    gradient_tolerance: float = 1e-7
    defect_tolerance: float = 1e-9
    kkt_tolerance: float = 1e-8
    cost_tolerance: float = 0.0


@dataclass(frozen=True)
class DDPOptions(SLQOptions):
    """Options of :func:`trajopt.solvers.ddp.ddp`, in addition to those of SLQ.

    hessian: second derivatives of the cost, as in SLQ; the default "exact" gives quadratic convergence also for nonzero
    residuals. globalization: "filter", Newton's method (:mod:`trajopt.solvers.methods.newton`), with shooting = "all", gaps =
    "linear" and curvature = "newton"; with other values of these, and with "merit", the method is SLQ with second derivatives, and
    only then ``search``, ``switch`` and the initial regularization count.
    search: "line", or, with globalization = "merit", "curve" for narrow valleys
    (:mod:`trajopt.solvers.shooting.parabola`): once progress is slower than ``switch``, every iteration tries a Gauss-Newton
    step and a step with the largest convex curvature fraction, in place of ``curvature``. It
    needs fewer iterations, each at two to three times the cost. curvature: costates in the second derivatives of the
    dynamics: those of an adjoint pass ("newton"), or V'x of the backward pass ("true"). switch: curvature is used after an
    iteration that decreased the merit by less than this fraction; 1: from the first iteration on.
    """

    hessian: Literal["gauss_newton", "exact"] = "exact"
    globalization: Literal["merit", "filter"] = "filter"
    search: Literal["line", "curve"] = "line"
    curvature: Literal["newton", "true"] = "newton"
    switch: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        merit = self.search == "line" or self.globalization == "merit"
        _require(merit, "search", self.search, "'line' with globalization = 'filter', or globalization = 'merit'")


@dataclass(frozen=True)
class NearOptions(DDPOptions):
    """Options of DDP for a guess near a solution: the barrier of bounds on the controls starts small."""


@dataclass(frozen=True)
class SQPOptions(CommonOptions):
    """Options of :func:`trajopt.solvers.direct.direct_sqp.sqp` and :func:`trajopt.solvers.sqp.sqp.solve_nlp`; validated like
    those of SLQ.

    hessian: second derivatives of the Lagrangian in the quadratic model of a step: "exact", convexified
    (:mod:`trajopt.solvers.sqp.convexify`); "gauss_newton", of the convex outer functions of the objective; "scqp", of the
    convex outer functions of objective and constraints (Verschueren 2016); "auto", "exact" if
    all time steps of an optimal-control problem have second derivatives, else "scqp"; for other programs "scqp" if they
    provide such functions, else "exact". qp_solver: solver of the subproblems, see
    :mod:`trajopt.solvers.qp.qp`; an active-set solver is called for each of them, the others if the active set of the last QP
    does not lead to the solution (:mod:`trajopt.solvers.qp.newton`); the interior-point method takes over if it fails.
    hold: interpolation of the controls between the nodes of an optimal-control problem, "zero_order" or "first_order".

    max_iterations: maximum number of iterations. time_limit: time limit; default: none [s]. gradient_tolerance: tolerance on
    the largest entry of the gradient of the Lagrangian, relative to large multipliers, and on complementarity.
    constraint_tolerance: tolerance on the largest constraint violation. kkt_tolerance: tolerance on the scaled KKT error
    (:mod:`trajopt.solvers.nlp.scaled_kkt`), which stops a solve too.

    max_backtracks: step lengths are 1, 1/2, ..., 2^-max_backtracks. elastic_weight: initial weight of the l1
    violation in infeasible QPs. max_elastic_weight: largest weight of it.
    """

    hessian: Literal["auto", "exact", "gauss_newton", "scqp"] = "auto"
    qp_solver: Literal["interior_point", "osqp", "daqp", "qrqp"] = "interior_point"
    hold: Literal["zero_order", "first_order"] = "zero_order"
    max_iterations: int = 200
    time_limit: float | None = None
    gradient_tolerance: float = 1e-8
    constraint_tolerance: float = 1e-9
    kkt_tolerance: float = 1e-8
    max_backtracks: int = 30
    elastic_weight: float = 10.0
    max_elastic_weight: float = 1e5

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_ordered(self, "elastic_weight", "max_elastic_weight")


@dataclass(frozen=True)
class DMSOptions(CommonOptions):
    """Options of :func:`trajopt.solvers.direct.dms.dms`; validated at construction (ValueError, TypeError for unknown
    names).

    hold: interpolation of the controls between the nodes: "zero_order" or "first_order". hessian: second derivatives of the
    Lagrangian: "exact"; "gauss_newton", of the cost alone; "limited_memory", IPOPT's approximation from gradients.

    max_iterations: maximum number of iterations. time_limit: time limit; default: none [s]. gradient_tolerance: IPOPT's tol,
    on its scaled optimality error. constraint_tolerance: tolerance on the largest violation. barrier: initial barrier
    parameter mu; choose a small value near the solution. barrier_strategy: update of mu, "monotone" or "adaptive". ipopt:
    further IPOPT options by name; they override the ones above.
    """

    hold: Literal["zero_order", "first_order"] = "zero_order"
    hessian: Literal["exact", "gauss_newton", "limited_memory"] = "exact"
    max_iterations: int = 200
    time_limit: float | None = None
    gradient_tolerance: float = 1e-8
    constraint_tolerance: float = 1e-8
    barrier: float = 0.1
    barrier_strategy: Literal["monotone", "adaptive"] = "monotone"
    ipopt: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class IPMOptions(CommonOptions):
    """Options of :func:`trajopt.solvers.ipm.ipm`; validated at construction (ValueError, TypeError for unknown names).

    hessian: second derivatives of the Lagrangian in the quadratic model of a step: "exact", or "gauss_newton", of the cost
    alone; "auto": exact if the time steps have second derivatives, or the Gauss-Newton Hessian of the cost with the
    curvature of the time steps if only these are compiled; "gauss_newton" if a time step has no second derivatives.

    max_iterations: maximum number of iterations. time_limit: time limit; default: none [s]. gradient_tolerance: tolerance on
    the scaled optimality error, as IPOPT's tol. constraint_tolerance: tolerance on the largest violation. barrier: initial
    barrier parameter mu; choose a small value near the solution. barrier_strategy: update of mu, "monotone", or "adaptive", which
    becomes monotone if it makes no progress (:mod:`trajopt.solvers.rules.barrier`).
    """

    hessian: Literal["auto", "exact", "gauss_newton"] = "auto"
    max_iterations: int = 300
    time_limit: float | None = None
    gradient_tolerance: float = 1e-8
    constraint_tolerance: float = 1e-8
    barrier: float = 0.1
    barrier_strategy: Literal["monotone", "adaptive"] = "adaptive"

    @property
    def tolerances(self) -> Errors:
        """Tolerances of the convergence tests; gradient_tolerance is the tolerance on the scaled KKT error."""
        return Errors(self.gradient_tolerance, violation=self.constraint_tolerance)


def _number(value: object) -> bool:
    """True for a finite int or float; booleans are not numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _require(condition: bool, key: str, value: object, expected: str) -> None:
    """Raise ValueError with name, value and expected range of an option if the condition is False."""
    if not condition:
        raise ValueError(f"{key} = {value!r}; expected {expected}")


def _require_ordered(options: object, low: str, high: str) -> None:
    """Raise ValueError if the second of two named options is below the first."""
    first, last = getattr(options, low), getattr(options, high)
    _require(first <= last, high, last, f"a number of at least {low} = {first:g}")


@dataclass(frozen=True)
class AutoOptions(CommonOptions):
    """Options of :mod:`trajopt.solvers.auto`.

    max_iterations: maximum number of iterations of each attempt. gradient_tolerance, constraint_tolerance: options of the methods
    that have them. These are passed to the methods; None: their defaults. time_limit: time limit of all attempts together [s];
    default: none. fallback: try another method after a failed solve, and other starts after infeasible ones. starts: maximum
    number of starts that compete on a coarse time grid if the guess is at rest (:mod:`trajopt.solvers.competing_starts`), in
    single solves with checks; 1: the guess alone in all cases.
    """

    max_iterations: int | None = None
    time_limit: float | None = None
    gradient_tolerance: float | None = None
    constraint_tolerance: float | None = None
    fallback: bool = True
    starts: int = 160


Rule = tuple[Callable[[Any], bool], str]
"""Test of the value of an option, and the expected values, for the error message."""


def _count(least: int = 0, most: int = MAX_COUNT) -> Rule:
    """Return the rule for integers, not booleans, in [least, most]."""

    def is_allowed(value: Any) -> bool:
        """True for such an integer."""
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return is_allowed, f"an integer of at least {least} and at most {most}"


def _positive(most: float = math.inf) -> Rule:
    """Return the rule for finite numbers in (0, most]."""
    limit = "" if most == math.inf else f" of at most {most:g}"
    return lambda value: _number(value) and 0 < value <= most, f"a positive number{limit}"


RULES: dict[str, Rule] = {
    **dict.fromkeys(("max_iterations",), _count()),
    **dict.fromkeys(("max_backtracks",), _count(most=MAX_BACKTRACKS)),
    **dict.fromkeys(("max_outer_iterations", "nonmonotone", "starts"), _count(1)),
    **dict.fromkeys(
        ("constraint_penalty", "max_constraint_penalty", "elastic_weight", "max_elastic_weight"), _positive()
    ),
    **dict.fromkeys(("time_limit", "min_regularization", "max_regularization"), _positive()),
    **dict.fromkeys(("goal_tolerance", "gradient_tolerance", "defect_tolerance"), _positive(MAX_TOLERANCE)),
    **dict.fromkeys(("kkt_tolerance", "constraint_tolerance"), _positive(MAX_TOLERANCE)),
    "barrier": _positive(MAX_BARRIER),
    **dict.fromkeys(("initial_regularization", "penalty"), (lambda v: _number(v) and v >= 0, "a number of at least 0")),
    "cost_tolerance": (lambda v: _number(v) and 0 <= v <= 1, "a number in [0, 1]"),
    "switch": (lambda v: _number(v) and 0 <= v <= 1, "in [0, 1]"),
    "accept_ratio": (lambda v: _number(v) and 0 < v < 1, "in (0, 1)"),
    "regularization_factor": (lambda v: _number(v) and v > 1, "a number above 1"),
}
"""Rules of the options that are numbers."""


@lru_cache(maxsize=32)
def _rules(kind: Any) -> dict[str, Rule]:
    """Return the rules of the options of a class; None is allowed where it is the default.

    They are those of the built-in base of a class, whose fields may be numbers, choices or switches.
    """
    own: Any = next(base for base in kind.__mro__ if base.__module__ == __name__)
    known = RULES | (
        {"gradient_tolerance": _positive(MAX_GRADIENT)} if issubclass(own, SLQOptions | MethodOptions) else {}
    )
    known |= {
        key: _one_of(hint) for key, hint in get_type_hints(own).items() if get_origin(hint) is Literal or hint is bool
    }
    found = {f.name: (known[f.name], f.default) for f in fields(own) if f.name in known}
    return {key: _or_none(rule) if default is None else rule for key, (rule, default) in found.items()}


def _one_of(hint: Any) -> Rule:
    """Return the rule for the values of a Literal, or for booleans."""
    if hint is bool:
        return lambda value: isinstance(value, bool), "true or false"
    return lambda value: value in get_args(hint), " or ".join(map(repr, get_args(hint)))


def _or_none(rule: Rule) -> Rule:
    """Return the rule that also allows None."""
    return lambda value: value is None or rule[0](value), f"None or {rule[1]}"


def scaled_kkt_tolerance(options: Any) -> float:
    """Return the tolerance of the options of a solver on the scaled KKT error, 0 if it is not set."""
    shooting = isinstance(options, (SLQOptions, MethodOptions))  # whose gradient_tolerance is not scaled
    return options.kkt_tolerance if shooting else getattr(options, "gradient_tolerance", None) or 0.0


def accepts(Options: Any, key: str, value: Any) -> bool:
    """Return True if an options class raises no ValueError for this value of one option and defaults for the rest."""
    try:
        Options(**{key: value})
    except ValueError:
        return False
    return True
