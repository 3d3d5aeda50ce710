"""Functions ``solve`` and ``validate``: one solver run with its repetitions and checks.

A solve validates the problem, runs the solver within its time limit and repeats it as needed
(:mod:`trajopt.solvers.repeated_solves`), decides the status by the checks of :mod:`trajopt.solvers.success`, and adds findings
(:mod:`trajopt.solvers.findings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.guesses.guesses import WarmStart, constant_guess
from trajopt.problem.annotations import problem_annotations
from trajopt.problem.guess import Guess, Motion, as_guess
from trajopt.problem.ocp import OCP, Sampling, fitting
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers import termination
from trajopt.solvers.findings import (
    approximated_hessian,
    below_tolerances,
    final_status,
    number_findings,
    solution_findings,
)
from trajopt.solvers.options import (
    AutoOptions,
    DDPOptions,
    DMSOptions,
    IPMOptions,
    MethodOptions,
    SLQOptions,
    SQPOptions,
    scaled_kkt_tolerance,
)
from trajopt.solvers.registry import chosen_options
from trajopt.solvers.repeated_solves import RepeatedSolves
from trajopt.solvers.scaling import scaling_of
from trajopt.solvers.shooting import shooting_diagnosis
from trajopt.solvers.success import unchecked, with_end_held
from trajopt.solvers.time_limits import timed_solve
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.not_compiled import gathered
from trajopt.step.other_backend import BackendChoice, with_backend
from trajopt.step.sensitivities import missing_curvature
from trajopt.validation.validation import (
    ERROR,
    WARNING,
    Finding,
    InvalidProblem,
    require_declared,
    require_valid,
    validate as findings_of,
)


def solve(
    ocp: OCP,
    guess: Motion | tuple[Array, Array] | None = None,
    options: AutoOptions | SLQOptions | DMSOptions | SQPOptions | Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    solver: str | None = None,
    *,
    backend: BackendChoice | None = None,
    warm_start: WarmStart | None = None,
    check: bool = True,
) -> Solution:
    """Solve an optimal control problem.

    guess: states and controls, such as those of a solution; default: that of the warm start, else x0 at every knot and zero
    controls. Angles on SO(2) are shifted by whole turns, so that they begin near x0 and do not jump.
    solver: name of a solver; default: "auto", or the solver of the given options. options: of the solver, as its dataclass or a
    mapping; a name that implies options ("gnms") overrides those of a dataclass.
    callback: called with an :class:`~trajopt.results.records.IterationRecord` after each iteration.
    backend: derivative method of all phases, in place of those of the problem: a name, or a mapping with "name", "engine" and
    options (:mod:`trajopt.step.other_backend`). warm_start: of an earlier solution.
    check: validate the problem before the solve, and decide the status by all checks of :mod:`trajopt.solvers.success`: feasible,
    optimal, confirmed by a replay with finer time steps, goals met. Use False in loops that solve one problem repeatedly with
    other values: the status then covers feasibility and optimality only, by the numbers of the solver, and "auto" starts from the
    guess alone and does not solve again with margins or more substeps. The shapes of x0 and of the guess are always validated.

    Systems on vector spaces with very large or small numbers are scaled (:mod:`trajopt.solvers.scaling`).

    Raises UnknownName for a solver or option, :class:`~trajopt.validation.validation.InvalidProblem` with all errors found,
    ValueError for bad options, TypeError for arguments of a wrong type. Non-convergence is no exception: see ``Solution.status``.

    >>> import trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    >>> step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "semi_implicit_euler")
    >>> terminal = [to.state_cost(cart.manifold, [1.0, 0.0], 1e4)]
    >>> ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, [to.control_cost(1)], terminal)
    >>> solution = to.solve(ocp, solver="slq")
    >>> solution.status.success, solution.iterations, bool(abs(solution.xs[-1, 0] - 1.0) < 0.01)
    (True, 1, True)
    """
    require_problem(ocp)
    ocp = ocp if backend is None else with_backend(ocp, backend)
    name, chosen = chosen_options(solver, options)
    if warm_start is not None and not isinstance(warm_start, WarmStart):
        raise TypeError(
            f"warm_start is a {type(warm_start).__name__}; expected trajopt.WarmStart(guess, multipliers=...), or give it as guess"
        )
    if callback is not None and (isinstance(callback, type) or not callable(callback)):
        raise TypeError(f"callback = {callback!r}; expected a function or an object such as trajopt.ConsoleTable()")
    warm = warm_start or WarmStart(constant_guess(ocp) if guess is None else as_guess(guess))
    if guess is not None:
        warm = replace(warm, guess=as_guess(guess))
    return _solved(ocp, warm, name, chosen, callback, check=check, margins=check)[0]


def solve_with_margins(
    ocp: OCP, warm: WarmStart, options: Any, callback: Callback | None = None, solver: str | None = None
) -> tuple[Solution, OCP]:
    """Solve without checks, but with margins between the knots if the options request them; return solution and solved problem.

    The solved problem has the margins, that is, tightened inequalities.
    """
    return _solved(ocp, warm, *chosen_options(solver, options), callback, check=False, margins=True)


def _solved(
    ocp: OCP,
    warm: WarmStart,
    solver: str,
    chosen: Any,
    callback: Callback | None,
    *,
    check: bool,
    margins: bool,
) -> tuple[Solution, OCP]:
    """Solve a problem, with repeated solves, checks and metadata; return the solution and the problem with margins.

    That is the problem whose inequalities are tightened because the option between_knots is set; later solves of "auto" with
    checks may tighten others. If the problem was scaled, the inequalities are not tightened. chosen: the options of the solver.
    check: validate the problem and check the solution as in :func:`solve`. margins: allow solves with tightened inequalities if the
    option between_knots is set.
    """
    if isinstance(chosen, AutoOptions) and not check:
        chosen = replace(chosen, starts=1)
    with gathered() as slow, timed_solve():
        warnings = _validated(ocp, warm.guess, solver, chosen, check)
        warm = replace(warm, guess=warm.guess._replace(xs=ocp.manifold.without_jumps(ocp.x0, warm.guess.xs)))
        scaling = scaling_of(ocp, warm.guess)
        numbers, start = (ocp, warm) if scaling is None else (scaling.problem(), scaling.warm_start(warm))
        shown = callback if scaling is None else scaling.callback(callback)
        solves = RepeatedSolves(solver, chosen, shown, lambda: replace(slow, parts=[*slow.parts]))
        found, problem, tight = solves.with_repetitions(numbers, start, check=check, margins=margins)
        found = found if check else unchecked(found, scaled_kkt_tolerance(chosen))
        solution = found
        if scaling is not None:
            solution, problem = solves.in_units(scaling, found, problem, check=check)
        elapsed, slow = solves.seconds, solves.work
        meta = {**solution.meta, **_meta(ocp, solver, dict(vars(chosen))), "solve_time": elapsed}
        meta["engines"] = slow.engines([s.backend.engine for s in samplings_of(ocp)])
        meta["findings"] = [*warnings, *solution_findings(ocp, solution, check=check)]
        if check:
            meta["findings"] += number_findings(numbers, solver, start.guess, found, scaling)
        meta["findings"] += [approximated] if (approximated := approximated_hessian(ocp, solver, chosen)) else []
        if slow.parts:
            meta["not_compiled"] = slow.sentences(elapsed)
        if ocp.in_scaled_time and np.isfinite(solution.xs).all():
            solution = replace(solution, times=ocp.times_of(solution.xs))
        annotations = problem_annotations(ocp) if check else ocp.annotations
        solution = replace(solution, meta=meta, model=ocp.model, annotations=annotations, problem=problem)
        if not check:
            solution = replace(solution, status=with_end_held(ocp, solution.status, solution.xs[-1]))
    status = final_status(ocp, warm.guess, solver, chosen, solution, check=check)
    return replace(solution, status=status), tight if scaling is None else problem


def _validated(ocp: OCP, guess: Guess, solver: str, options: Any, check: bool) -> list[str]:
    """Return the warnings about a problem and a guess; without ``check`` none, and only shapes and requirements are validated.

    Raises InvalidProblem for errors; ValueError for wrong shapes without ``check``.
    """
    if check:
        return [f.message for f in require_solvable(ocp, guess, solver, options)]
    _require_shapes(ocp, guess)
    _require(requirement_errors(ocp, solver, options))
    return []


def validate(ocp: OCP, guess: Guess | None = None, solver: str | None = None, options: Any = None) -> list[Finding]:
    """Return all findings about a problem, errors that prevent a solve and warnings.

    One warning names NaN or infinity of dynamics, costs or their derivatives along the guess, default x0 at every knot and zero
    controls. guess: validated if given. solver, options: as in :func:`solve`; missing derivatives that this solver needs are
    errors, reported only if there is no other error. Raises UnknownName for an unknown solver or option, ValueError for invalid
    options.
    """
    findings = findings_of(ocp, guess)
    if any(f.severity == ERROR for f in findings):
        return findings
    found = [*requirement_errors(ocp, *chosen_options(solver, options)), *findings]
    if any(f.severity == ERROR for f in found):
        return found
    start = as_guess(guess or constant_guess(ocp))
    scaling = scaling_of(ocp, start)
    numbers = ocp if scaling is None else scaling.problem()
    tiny = (Finding(WARNING, message) for message in below_tolerances(numbers, scaling))
    return [*found, *tiny, *_non_finite(ocp, start)]


def require_solvable(ocp: OCP, guess: Guess | None, solver: str, options: Any) -> list[Finding]:
    """Return the warnings about a problem and a guess.

    Raises InvalidProblem with all their errors or, if there are none, with those of this solver (:func:`requirement_errors`).
    """
    warnings = require_valid(ocp, guess)
    _require(requirement_errors(ocp, solver, options))
    return warnings


def requirement_errors(ocp: OCP, solver: str, options: Any) -> list[Finding]:
    """Return errors about second derivatives that a solver with these options needs and a backend lacks, with the remedy.

    Returns [] if none.
    """
    exact = getattr(options, "hessian", "") == "exact"
    sparse = isinstance(options, (DMSOptions, SQPOptions))  # these can differentiate the source itself
    needed = isinstance(options, DDPOptions) or (exact and (sparse or isinstance(options, (IPMOptions, MethodOptions))))
    reason = missing_curvature(ocp, from_source=sparse) if needed else None
    if reason is None:
        return []
    who = solver if isinstance(options, DDPOptions) else f"{solver} with hessian = exact"
    return [Finding(ERROR, f"{who} needs hessian_contraction: {reason}")]


def _non_finite(ocp: OCP, guess: Guess) -> Iterator[Finding]:
    """Yield a warning that names the first NaN or infinity of the time steps or their derivatives along a guess, if any.

    Those of terms and constraints are among the other findings.
    """
    xs, us = as_guess(guess)
    with np.errstate(all="ignore"):
        expansion = StageEvaluator(ocp, engine="numpy").expand(xs, us)
    steps = expansion.x_next, expansion.lq.A, expansion.lq.B
    if not all(np.isfinite(values).all() for values in steps):
        status = termination.non_finite(shooting_diagnosis.non_finite_entry(ocp, xs, expansion))
        yield Finding(WARNING, f"along the guess: {status.message} {status.advice}")


def _require(errors: list[Finding]) -> None:
    """Raise InvalidProblem with these errors, if there are any."""
    if errors:
        raise InvalidProblem(errors)


def require_problem(given: Any) -> None:
    """Raise TypeError for objects other than an OCP, InvalidProblem for time steps that lack attributes."""
    if not isinstance(given, OCP):
        advice = "; solve its .ocp" if hasattr(given, "ocp") else ""
        raise TypeError(f"the problem is a {type(given).__name__}, not a trajopt.OCP{advice}")
    require_declared(given)


def _require_shapes(ocp: OCP, guess: Guess) -> None:
    """Raise ValueError for wrong shapes of x0 or the guess, which compiled code does not check."""
    if np.shape(ocp.x0) != (ocp.manifold.nx,):
        raise ValueError(f"x0 has shape {np.shape(ocp.x0)}; expected (nx = {ocp.manifold.nx},)")
    fitting(ocp, guess.xs, guess.us)


def _meta(ocp: OCP, solver: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a solution: problem, solver, options, backends, schemes, names and model."""
    samplings = samplings_of(ocp)
    model = None if ocp.model is None else {"name": ocp.model.name, "digest": ocp.model.digest}
    return {
        "problem": ocp.name,
        "solver": solver,
        "options": options,
        "backends": _unique(s.backend.name for s in samplings),
        "schemes": _unique(s.scheme for s in samplings),
        "state_names": list(ocp.state_names),
        "control_names": list(ocp.control_names),
        "model": model,
    }


def samplings_of(ocp: OCP) -> list[Sampling]:
    """Return the integration methods of the phases; none for user-defined discrete dynamics."""
    return [s for s in (phase.dynamics.sampling for phase in ocp.phases) if s is not None]


def _unique(names: Iterable[str | None]) -> list[str]:
    """Return the names without duplicates and None, in order."""
    return list(dict.fromkeys(name for name in names if name is not None))
