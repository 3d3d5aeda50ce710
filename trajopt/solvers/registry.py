"""Registry of solvers by name, loaded at their first call, their options, and methods that users register."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics_backends.extensions import Registry
from dynamics_backends.names import unknown_name
from trajopt.guesses.guesses import WarmStart, constant_guess
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.results.status import STOPPED, StatusCode
from trajopt.solvers import termination
from trajopt.solvers.methods.delegation import Continued
from trajopt.solvers.methods.driver import run_alone
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
from trajopt.solvers.time_limits import enough_time, start_of_solve
from trajopt.stage.engine import is_compiled

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
    """Run ``auto``: from competing starts if the guess stands still (:func:`may_compete`), else from the guess.

    If all end infeasible, other starts follow (:func:`_with_other_starts`). With options.starts = 1, or multipliers or a barrier
    in the warm start, it runs from the guess alone. Records of all attempts have continuous numbers.
    """
    report = None if callback is None else Continued(callback)
    found = _run_attempts(ocp, warm, options, report)
    numbered = (r if r.iteration == i else replace(r, iteration=i) for i, r in enumerate(found.history))
    return replace(found, history=tuple(numbered))


def _run_attempts(ocp: OCP, warm: WarmStart, options: AutoOptions, callback: Callback | None) -> Solution:
    """Run ``auto`` as in :func:`_auto`; each attempt numbers its records in the history from 0."""
    from trajopt.solvers.competing_starts import may_compete

    if options.starts == 1 or warm.multipliers or warm.barrier is not None:
        return _in_turn(ocp, warm, options, callback)
    if may_compete(ocp, warm.guess):
        found = _from_best_start(ocp, warm, options, callback)
    else:
        found = _in_turn(ocp, warm, options, callback)
    if found.status.success and warm.guess.stands_still and is_unmoved(found, warm.guess):
        found = _off_saddle_point(ocp, warm, found, options, callback)
    return _with_other_starts(ocp, warm.guess, found, options, callback)


UNMOVED, LOWER = 1e-6, 1e-6
"""Largest change of the controls of a guess that counts as none, and relative decrease of the cost that shows a saddle point."""


def is_unmoved(found: Solution, guess: Guess) -> bool:
    """True if a solution has the controls of its guess, to UNMOVED."""
    return bool(np.abs(found.us - guess.us).max(initial=0.0) <= UNMOVED)


def _off_saddle_point(
    ocp: OCP, warm: WarmStart, found: Solution, options: AutoOptions, callback: Callback | None
) -> Solution:
    """Return ``found``, a solution that is the guess itself, or if cheaper, the solution from the guess with pushed controls.

    At a symmetric guess the gradient may be zero although the cost falls to both sides.
    """
    from trajopt.solvers.competing_starts import pushed

    again = _in_turn(ocp, replace(warm, guess=pushed(warm.guess)), options, callback)
    if not (again.status.success and again.cost < found.cost - LOWER * max(1.0, abs(found.cost))):
        return found
    message = f"{again.status.message} The guess is a saddle point (cost {found.cost:.4g}): the solve began beside it."
    return replace(again, status=replace(again.status, message=message))


def _with_other_starts(
    ocp: OCP, guess: Guess, found: Solution, options: AutoOptions, callback: Callback | None
) -> Solution:
    """Return ``found``, a solution of ``auto``; if it is infeasible, the first feasible one from other starts, if any.

    The starts are x0 at rest, if the guess moves, and then, for a compiled problem, the direct motions of
    :mod:`~trajopt.solvers.competing_starts`, these with the first attempt only. Ctrl-C and the time limit end them. Iterations,
    records and attempts are those of all starts; the status names the start that succeeded, or all. No starts without
    ``fallback`` or constraints, or after a status in _FINAL.
    """
    from trajopt.solvers.auto import is_feasible
    from trajopt.solvers.competing_starts import direct_motions, may_compete

    def good(s: Solution) -> bool:
        """True for a success and for a feasible motion."""
        return s.status.success or is_feasible(ocp, s)

    def starts() -> Iterator[tuple[str, Solution]]:
        """Solve from one start after the other; yield the name of each start and its solution."""
        rest = WarmStart(constant_guess(ocp))
        if not guess.stands_still:
            run = _from_best_start if may_compete(ocp, rest.guess) else _in_turn
            yield "x0 at rest", run(ocp, rest, options, callback)
        once = replace(options, fallback=False)
        for motion in direct_motions(ocp, rest.guess) if is_compiled(ocp) else ():
            yield "a direct motion to the goal", _in_turn(ocp, WarmStart(motion), once, callback)

    first, names = found.status, list[str]()
    if not (options.fallback and ocp.constraints()) or first.code in _FINAL or good(found):
        return found
    others = starts()
    try:
        while enough_time(options.time_limit, start_of_solve()) and (other := next(others, None)) is not None:
            name, again = other
            names.append(name)
            attempts = [*found.meta.get("attempts", ()), *again.meta.get("attempts", ())]
            merged: dict[str, Any] = {
                "iterations": found.iterations + again.iterations,
                "history": (*found.history, *again.history),
                "meta": {**found.meta, "attempts": attempts},
            }
            if good(again):
                message = (
                    f"{again.status.message} This solve began from {name}, since the given guess led to {first.code}."
                )
                merged["meta"] = {**again.meta, "attempts": attempts}
                return replace(again, status=replace(again.status, message=message), **merged)
            found = replace(found, status=again.status if again.status.code in STOPPED else found.status, **merged)
            if found.status.code in STOPPED:
                return found
    except KeyboardInterrupt:
        return replace(found, status=termination.interrupted(found.iterations))
    if not names:
        return found
    message = f"{first.message} Solves from {', '.join(dict.fromkeys(names))} found no feasible motion either."
    return replace(found, status=replace(first, message=message))


_FINAL = (*STOPPED, StatusCode.UNBOUNDED, StatusCode.INFEASIBLE)
"""Statuses after which ``auto`` does not start again."""


def _in_turn(
    ocp: OCP, warm: WarmStart, options: AutoOptions, callback: Callback | None, kkt_tolerance: float | None = None
) -> Solution:
    """Run the solvers ("attempts") of ``auto`` from a guess, one after the other, until one succeeds.

    Multipliers of the warm start are not used. kkt_tolerance: tolerance on the scaled KKT error, in place of that of the options.
    """
    from trajopt.solvers.auto import Try, attempts, in_turn

    def answer(request: Try) -> Solution:
        """Solve by an attempt from the guess and within the time limit of a request."""
        attempt, start, left = request
        chosen = attempt_options(attempt, options)
        chosen = chosen if left is None else replace(chosen, time_limit=left)
        if kkt_tolerance is not None:  # that of the direct methods is called gradient_tolerance
            key = "kkt_tolerance" if isinstance(chosen, SLQOptions) else "gradient_tolerance"
            chosen = replace(chosen, **{key: kkt_tolerance})
        return SOLVERS[attempt.solver][0](attempt.ocp, WarmStart(start, barrier=warm.barrier), chosen, callback)

    found: Solution = run_alone(in_turn(attempts(ocp), lambda: ocp, warm.guess, options), answer)
    return found


def _from_best_start(ocp: OCP, warm: WarmStart, options: AutoOptions, callback: Callback | None) -> Solution:
    """Run ``auto`` from each of the best competing starts, and from the guess if all fail and it was not among them.

    A second competition on a finer grid, and the solve from the guess, need ``fallback``; the former follows if motions are
    feasible on the coarse grid, but all solves from them fail. Returns the cheapest success, else the last solution, with
    iterations and records of all solves on the problem's grid; meta["starts"] describes the competitions. No further start
    follows at a time limit or after Ctrl-C. Ctrl-C in the first competition returns the guess (:func:`not_begun`), in the second
    one the last solution, as interrupted.
    """
    from trajopt.solvers.competing_starts import FACTORS, MAX_ITERATIONS, TIME_SHARE, TOLERANCE, choose_starts

    limit = None if options.time_limit is None else TIME_SHARE * options.time_limit
    iterations = MAX_ITERATIONS if options.max_iterations is None else min(MAX_ITERATIONS, options.max_iterations)
    rough = replace(options, max_iterations=iterations, time_limit=limit, fallback=False)

    def solve_roughly(coarse: OCP, guess: Guess, cutoff: Callback | None) -> Solution:
        """Run ``auto`` on the coarse problem with few iterations and a large tolerance."""
        return _in_turn(coarse, WarmStart(guess), rough, cutoff, TOLERANCE)

    solutions, records, tried = list[Solution](), list[dict[str, Any]](), False
    for factor in FACTORS:
        has_time = partial(enough_time, limit, start_of_solve())
        choice = choose_starts(ocp, warm.guess, options.starts, solve_roughly, has_time, factor)
        if choice.interrupted and not solutions:
            return not_begun(ocp, warm.guess)
        if choice.interrupted:
            status = termination.interrupted(sum(s.iterations for s in solutions))
            solutions[-1] = replace(solutions[-1], status=status)
            break
        records += [start.record for start in choice.starts]
        for guess, message in choice.guesses:
            if solutions and not enough_time(options.time_limit, start_of_solve()):
                break
            found = _in_turn(ocp, replace(warm, guess=guess), options, callback)
            if message:
                found = replace(found, status=replace(found.status, message=f"{found.status.message} {message}"))
            solutions.append(found)
            tried = tried or guess is warm.guess
            if found.status.code in STOPPED:
                break
        ended = any(s.status.success or s.status.code in STOPPED for s in solutions)
        if ended or not (choice.any_feasible and options.fallback):
            break
    solved = [s for s in solutions if s.status.success]
    if not (solved or tried) and options.fallback and solutions[-1].status.code not in STOPPED:
        solutions.append(_in_turn(ocp, warm, options, callback))
    best = min(solved, key=lambda s: s.cost, default=solutions[-1])
    return replace(
        best,
        iterations=sum(s.iterations for s in solutions),
        history=tuple(record for s in solutions for record in s.history),
        meta={**best.meta, "starts": records} if records else best.meta,
    )


def attempt_options(attempt: Attempt, options: AutoOptions) -> Any:
    """Return the options of the solver of an attempt, with those that the attempt needs.

    max_iterations, gradient_tolerance and constraint_tolerance are those of ``auto``, if set there and known to the solver.
    """
    _, kind, preset = SOLVERS[attempt.solver]
    common = {key: getattr(options, key) for key in ("max_iterations", "gradient_tolerance", "constraint_tolerance")}
    known = {f.name for f in fields(kind)}
    return kind(**{**preset, **{k: v for k, v in common.items() if v is not None and k in known}, **attempt.needs})


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
    an :class:`~trajopt.solvers.methods.End`. size: the number of controls and whether they have bounds. options: a frozen dataclass
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


def not_begun(ocp: OCP, guess: Guess) -> Solution:
    """Return the guess as a solution with status "interrupted", zero gains and cost NaN."""
    N, m, n = ocp.horizon, ocp.nu, ocp.manifold.ndx
    xs, us = np.array(guess.xs), np.array(guess.us)
    gains = np.zeros((N, m, n)), np.zeros((N, m))
    return Solution(xs, us, *gains, termination.interrupted(0), float("nan"), 0, (), ocp.times)


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
