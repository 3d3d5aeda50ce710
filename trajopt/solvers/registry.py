"""Registry of solvers by name, loaded at their first call, their options, and methods that users register."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dynamics_backends.extensions import Registry
from dynamics_backends.names import unknown_name
from trajopt.guesses.guesses import WarmStart
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.methods.user_method import MethodFunction, UserMethod
from trajopt.solvers.options import (
    AutoOptions,
    DDPOptions,
    DMSOptions,
    IPMOptions,
    MethodOptions,
    SLQOptions,
    SQPOptions,
    accepts,
)

if TYPE_CHECKING:
    from trajopt.solvers.auto import Attempt


@dataclass(frozen=True)
class UserSolver:
    """Solver function of a user-defined method, for the registry of solvers."""

    name: str
    method: MethodFunction

    @property
    def made(self) -> Callable[..., UserMethod]:
        """Factory of the method: a function of its size, options and maximum number of iterations."""
        return partial(UserMethod, self.method)

    def __call__(self, ocp: OCP, warm: WarmStart, options: Any, callback: Callback | None) -> Solution:
        """Solve a problem by the method, with exact second derivatives if options.hessian asks for them.

        Raises InvalidProblem for constraints, for control bounds without interior, and with hessian = "exact" for time steps
        without second derivatives.
        """
        from trajopt.solvers.ddp import require_contractions
        from trajopt.solvers.window.newton import solve_newton
        from trajopt.stage.evaluators import cached_evaluator
        from trajopt.stage.solver_cache import borrowed

        require_open(ocp, self.name)
        with borrowed(ocp, warm.cache) as own:
            evaluator = cached_evaluator(own, ocp)
            exact = None
            if options.hessian == "exact":
                require_contractions(ocp)
                exact = cached_evaluator(own, ocp, "exact")
            given = options, callback, evaluator, exact
            found = solve_newton(ocp, warm.guess, *given, cache=own, method=self.made)
            return replace(found, meta={**found.meta, "hessian": options.hessian})


def user_solver(name: str, given: Any) -> tuple[UserSolver, type[MethodOptions], Mapping[str, Any]]:
    """Return the registry entry (solver, options class, no preset options) of a method, or of a tuple (method, options class).

    Raises TypeError for a method that is not callable, or for options of a wrong class.
    """
    method, options = given if isinstance(given, tuple) and len(given) == 2 else (given, MethodOptions)
    if not callable(method) or isinstance(method, type):
        what = f"the class {method.__name__}" if isinstance(method, type) else f"a {type(method).__name__}"
        raise TypeError(f"method is {what}; expected a generator function of (size, options)")
    if not (isinstance(options, type) and is_dataclass(options) and issubclass(options, MethodOptions)):
        raise TypeError(f"options must be a dataclass that extends trajopt.MethodOptions, got {options!r}")
    return UserSolver(name, method), options, {}


def require_open(ocp: OCP, name: str) -> None:
    """Raise InvalidProblem for constraints, and for control bounds with lower >= upper, naming the method ``name``."""
    from trajopt.validation.validation import ERROR, Finding, InvalidProblem, reject_constraints

    reject_constraints(ocp, f"the method {name!r}", "choose a built-in solver, use cost terms instead")
    bounds = ocp.control_bounds
    if bounds is not None and not (bounds[0] < bounds[1]).all():
        raise InvalidProblem([Finding(ERROR, f"the method {name!r} needs bounds on the controls with lower < upper")])


def _slq(ocp: OCP, warm: WarmStart, options: SLQOptions, callback: Callback | None) -> Solution:
    """Run SLQ, with an augmented Lagrangian for constraints."""
    from trajopt.solvers.slq import slq

    return _with_constraints(partial(slq, cache=warm.cache), ocp, warm, options, callback)


def _ddp(ocp: OCP, warm: WarmStart, options: DDPOptions, callback: Callback | None) -> Solution:
    """Run DDP, with an augmented Lagrangian for constraints."""
    from trajopt.solvers.ddp import ddp

    return _with_constraints(partial(ddp, cache=warm.cache), ocp, warm, options, callback)


def _with_constraints(run: Any, ocp: OCP, warm: WarmStart, options: SLQOptions, callback: Callback | None) -> Solution:
    """Run a shooting solver; with constraints by an augmented Lagrangian, from the penalty and multipliers of the warm start."""
    if not ocp.constraints():
        return run(ocp, warm.guess, options, callback)
    from trajopt.solvers.shooting.augmented_lagrangian import solve_constrained

    if warm.penalty is not None:
        options = replace(options, constraint_penalty=warm.penalty)
    return solve_constrained(ocp, warm.guess, options, callback, run, warm.multipliers)


def _dms(ocp: OCP, warm: WarmStart, options: DMSOptions, callback: Callback | None) -> Solution:
    """Run DMS, with the barrier parameter of the warm start if it has one, and with a second start if defects stay open."""
    from trajopt.solvers.direct.dms import dms

    if warm.barrier is not None:
        options = replace(options, barrier=warm.barrier)
    return _twice(dms, ocp, warm, options, callback)


def _sqp(ocp: OCP, warm: WarmStart, options: SQPOptions, callback: Callback | None) -> Solution:
    """Run SQP, with a second start if the defects of the guess stay open."""
    from trajopt.solvers.direct.direct_sqp import sqp

    return _twice(sqp, ocp, warm, options, callback)


def _ipm(ocp: OCP, warm: WarmStart, options: IPMOptions, callback: Callback | None) -> Solution:
    """Run IPM, with the barrier parameter of the warm start if it has one, and with a second start if defects stay open."""
    from trajopt.solvers.ipm import ipm

    if warm.barrier is not None:
        options = replace(options, barrier=warm.barrier)
    return _twice(partial(ipm, cache=warm.cache), ocp, warm, options, callback)


def _twice(method: Any, ocp: OCP, warm: WarmStart, options: Any, callback: Callback | None) -> Solution:
    """Run a direct method from the warm start; if the defects of its guess stay open, again from a rollout, without multipliers."""
    from trajopt.solvers.direct.second_start import solve_twice

    def run(guess: Guess, options: Any, callback: Callback | None) -> Solution:
        """Run the method from a guess; multipliers of the warm start only from its own guess."""
        multipliers = warm.multipliers if guess is warm.guess else {}
        return method(ocp, guess, options, callback, multipliers or None)

    return solve_twice(run, ocp, warm.guess, options, callback)


def _auto(ocp: OCP, warm: WarmStart, options: AutoOptions, callback: Callback | None) -> Solution:
    """Run ``auto``."""
    from trajopt.solvers.auto_starts import auto

    return auto(_solve_attempt, ocp, warm, options, callback)


def _solve_attempt(
    attempt: Attempt, warm: WarmStart, options: AutoOptions, callback: Callback | None, kkt_tolerance: float | None
) -> Solution:
    """Solve by the method of an attempt of ``auto``.

    kkt_tolerance: tolerance on the scaled KKT error in place of that of the options, or None.
    """
    chosen = attempt_options(attempt, options)
    chosen = chosen if options.time_limit is None else replace(chosen, time_limit=options.time_limit)
    if kkt_tolerance is not None:  # that of the direct methods is called gradient_tolerance
        key = "kkt_tolerance" if isinstance(chosen, SLQOptions) else "gradient_tolerance"
        chosen = replace(chosen, **{key: kkt_tolerance})
    return SOLVERS[attempt.solver][0](attempt.ocp, warm, chosen, callback)


def attempt_options(attempt: Attempt, options: AutoOptions) -> Any:
    """Return the options of the solver of an attempt, with those that the attempt needs.

    max_iterations, gradient_tolerance and constraint_tolerance are those of ``auto``, if set there and known to the solver.
    """
    _, kind, preset = SOLVERS[attempt.solver]
    common = {key: getattr(options, key) for key in ("max_iterations", "gradient_tolerance", "constraint_tolerance")}
    known = {f.name for f in fields(kind)}
    return kind(**{**preset, **attempt.needs, **{k: v for k, v in common.items() if v is not None and k in known}})


SOLVERS: Registry[tuple[Any, Any, Mapping[str, Any]]] = Registry(
    "solver",
    "solvers",
    {
        "slq": (_slq, SLQOptions, {}),
        "ilqr": (_slq, SLQOptions, {"shooting": "single"}),
        "gnms": (_slq, SLQOptions, {"shooting": "all", "gaps": "linear"}),
        "fddp": (_slq, SLQOptions, {"shooting": "all", "gaps": "nonlinear"}),
        "ddp": (_ddp, DDPOptions, {}),
        "dms": (_dms, DMSOptions, {}),
        "sqp": (_sqp, SQPOptions, {}),
        "ipm": (_ipm, IPMOptions, {}),
        "auto": (_auto, AutoOptions, {}),
    },
    user_solver,
)
"""name -> (function of ocp, warm start, options, callback; class of its options; options that the name implies)."""
DEFAULT_SOLVER = "auto"


def register_method(name: str, method: MethodFunction, options: type[MethodOptions] = MethodOptions) -> None:
    """Register a method under a name, for :func:`trajopt.solve`, :func:`trajopt.solve_batch`, configurations and comparisons.

    method: a generator function ``method(size, options)``, which yields requests (:mod:`trajopt.solvers.methods`) and returns
    an :class:`~trajopt.solvers.methods.End`. size: the number of controls, whether they have bounds, and the largest curvature
    fraction available (``controls``, ``bounded``, ``widest``). options: a frozen dataclass
    that extends :class:`~trajopt.MethodOptions`, whose limits of iterations and time are enforced for the method. A package
    registers its methods by entry points of the group ``trajopt.solvers``, which name a method, or a tuple of a method and the
    class of its options. Registration replaces an earlier method of the same name.

    Raises ValueError for the name of a built-in solver, TypeError for a method that is not callable or for options of a wrong
    class.
    """
    SOLVERS.register(name, (method, options))


def solver_names() -> tuple[str, ...]:
    """Return the names of all solvers, built-in and registered, that :func:`trajopt.solve` accepts."""
    return tuple(SOLVERS)


def solver_options(solver: str = DEFAULT_SOLVER, **values: Any) -> Any:
    """Create the validated options of a solver.

    Raises UnknownName for an unknown solver or option, with the closest known one; ValueError for a value out of range or one that
    contradicts the name of the solver (shooting = "single" for "gnms").
    """
    _, kind, preset = SOLVERS[solver]
    known = [f.name for f in fields(kind)]
    for key, value in values.items():
        if key not in known:
            raise unknown_name(f"option of solver {solver!r}", key, known)
        if key in preset and preset[key] != value:
            raise ValueError(f"solver {solver!r} requires {key} = {preset[key]!r}, got {value!r}; use solver = 'slq'")
    return kind(**{**preset, **values})


def chosen_options(solver: str | None, options: Any) -> tuple[str, Any]:
    """Return solver name and validated options; without a name, the options decide (by class or keys), else the default solver.

    options: None, a mapping, or an object of the solver's class, in which options that the name fixes are overridden. Raises
    TypeError for another class, UnknownName and ValueError as :func:`solver_options`.
    """
    solver = _named_by(options) if solver is None else solver
    _, kind, preset = SOLVERS[solver]
    if options is None or isinstance(options, Mapping):
        return solver, solver_options(solver, **(options or {}))
    if isinstance(options, kind):
        meant = all(getattr(options, key) == value for key, value in preset.items())
        return solver, options if meant else replace(options, **preset)
    raise TypeError(f"options is a {type(options).__name__}; solver {solver!r} takes {kind.__name__} or a mapping")


def _named_by(options: Any) -> str:
    """Return the solver whose options class matches, or whose options include all keys of a mapping; the default solver if none.

    Solvers with preset options (ilqr, gnms, fddp), and those of entry points that were not used yet, are not considered; the
    default one comes first.
    """
    known = SOLVERS.loaded()
    first = (DEFAULT_SOLVER, *(name for name in known if name != DEFAULT_SOLVER))
    kinds = {
        known[name][1]: name for name in first if not known[name][2]
    }  # solvers with presets share the class of another
    if not isinstance(options, Mapping):
        return kinds.get(type(options), DEFAULT_SOLVER)
    having = (name for kind, name in kinds.items() if set(options) <= {f.name for f in fields(kind)})
    return next(having, DEFAULT_SOLVER)


def carried_over(options: Mapping[str, Any], old: str, new: str) -> tuple[dict[str, Any], list[str]]:
    """Split the options of one solver into those that another solver takes over, and the names of those it does not accept.

    An option is taken over if it differs from its default and the new solver accepts it. Defaults, None, and options that either
    solver name fixes are dropped. Options unknown to the old solver are passed on, so that the new solver reports them as mistakes.
    """
    (_, Old, own), (_, New, preset) = SOLVERS[old], SOLVERS[new]
    known, defaults = {f.name for f in fields(New)}, Old()
    accepted: dict[str, Any] = {}
    left: list[str] = []
    for key, value in options.items():
        if not hasattr(defaults, key):
            accepted[key] = value
        elif key in preset or key in own or value is None or value == getattr(defaults, key):
            continue
        elif key in known and accepts(New, key, value):
            accepted[key] = value
        else:
            left.append(key)
    return accepted, left
