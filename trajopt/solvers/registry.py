"""Solvers by name."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from dynamics_backends.registry import nearest_hint
from trajopt.guesses.guesses import Guess, constant_guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.auto import auto
from trajopt.solvers.direct.direct_sqp import sqp
from trajopt.solvers.direct.dms import dms
from trajopt.solvers.options import AutoOptions, DDPOptions, DMSOptions, SLQOptions, SQPOptions
from trajopt.solvers.shooting.augmented_lagrangian import solve_constrained
from trajopt.solvers.shooting.ddp import ddp
from trajopt.solvers.shooting.slq import ALIASES, slq
from trajopt.validation.validation import Finding, require_valid


def with_constraints(run: Any) -> Any:
    """A shooting solver that takes constraints too, through an augmented Lagrangian."""

    def solver(ocp: OCP, guess: Guess, options: Any, callback: Callback | None = None) -> Solution:
        if not ocp.constraints():
            return run(ocp, guess, options, callback)
        return solve_constrained(ocp, guess, options, callback, run)

    return solver


def _attempt(solver: str, ocp: OCP, guess: Guess, values: Mapping[str, Any], callback: Callback | None) -> Solution:
    """A solve by the solver of a name, with those of the values that are options of it."""
    run, kind, preset = _entry(solver)
    known = {f.name for f in fields(kind)}
    return run(ocp, guess, kind(**{**preset, **{k: v for k, v in values.items() if k in known}}), callback)


def _auto(ocp: OCP, guess: Guess, options: AutoOptions, callback: Callback | None = None) -> Solution:
    return auto(ocp, guess, options, callback, _attempt)


_SLQ_FAMILY = {name: (with_constraints(slq), SLQOptions, preset) for name, preset in ALIASES.items()}
SOLVERS: dict[str, tuple[Any, Any, Mapping[str, Any]]] = {
    **_SLQ_FAMILY,
    "ddp": (with_constraints(ddp), DDPOptions, {}),
    "dms": (dms, DMSOptions, {}),
    "sqp": (sqp, SQPOptions, {}),
    "auto": (_auto, AutoOptions, {}),
}
"""name -> (function of ocp, guess, options, callback; class of its options; options that the name stands for)."""
DEFAULT_SOLVER = "auto"


def solver_names() -> tuple[str, ...]:
    """The names accepted by :func:`solve`."""
    return tuple(SOLVERS)


def solver_options(solver: str = DEFAULT_SOLVER, **values: Any) -> Any:
    """The options of a solver, checked.

    Raises ValueError for an unknown solver or option, with the nearest known name, for a value that is out of range,
    and for one that contradicts the solver's name (shooting = "single" under "gnms").
    """
    _, kind, preset = _entry(solver)
    known = [f.name for f in fields(kind)]
    for key, value in values.items():
        if key not in known:
            named = "; name the solver whose option it is" if solver == DEFAULT_SOLVER else ""
            raise ValueError(
                f"solver {solver!r} has no option {key!r}{nearest_hint(key, known)}; it has: {', '.join(known)}{named}"
            )
        if key in preset and preset[key] != value:
            raise ValueError(f"solver {solver!r} means {key} = {preset[key]!r}, not {value!r}; use solver = 'slq'")
    return kind(**{**preset, **values})


def solve(
    ocp: OCP,
    guess: Guess | None = None,
    options: AutoOptions | SLQOptions | DMSOptions | SQPOptions | Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    solver: str | None = None,
) -> Solution:
    """Solve an optimal control problem.

    guess: default x0 at every knot and zero controls. solver: a name; default that of the options' dataclass, else "auto"
    (:mod:`trajopt.solvers.auto`). options: of the solver, as its dataclass or as a mapping; a name that stands for certain
    options ("gnms") overrides those of a dataclass. callback: called with an
    :class:`~trajopt.results.records.IterationRecord` after each iteration.

    Raises :class:`~trajopt.validation.validation.InvalidProblem` with all errors found, ValueError for bad options.
    Non-convergence is no exception: see ``Solution.status``.
    """
    solver = _named_by(options) if solver is None else solver
    run, kind, preset = _entry(solver)
    if options is None or isinstance(options, Mapping):
        chosen = solver_options(solver, **(options or {}))
    elif isinstance(options, kind):
        chosen = replace(options, **preset)
    else:
        raise TypeError(f"options is a {type(options).__name__}; solver {solver!r} takes {kind.__name__} or a mapping")
    warnings = require_valid(ocp, guess)
    began = time.perf_counter()
    solution = run(ocp, constant_guess(ocp) if guess is None else guess, chosen, callback)
    elapsed = time.perf_counter() - began
    meta = {**solution.meta, **_meta(ocp, solver, asdict(chosen), warnings), "solve_time": elapsed}
    return replace(solution, meta=meta)


def _named_by(options: Any) -> str:
    """The solver that options of this class belong to."""
    kinds = {SLQOptions: "slq", DDPOptions: "ddp", DMSOptions: "dms", SQPOptions: "sqp"}
    return kinds.get(type(options), DEFAULT_SOLVER)


def _meta(ocp: OCP, solver: str, options: dict[str, Any], warnings: list[Finding]) -> dict[str, Any]:
    dynamics = [phase.dynamics for phase in ocp.phases]
    model = None if ocp.model is None else {"name": ocp.model.name, "digest": ocp.model.digest}
    return {
        "problem": ocp.name,
        "solver": solver,
        "options": options,
        "backends": _unique(getattr(getattr(d, "backend", None), "name", None) for d in dynamics),
        "schemes": _unique(getattr(d, "scheme", None) for d in dynamics),
        "state_names": list(ocp.state_names),
        "control_names": list(ocp.control_names),
        "model": model,
        "findings": [f.message for f in warnings],
    }


def _unique(names: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name is not None))


def _entry(solver: str) -> tuple[Any, Any, Mapping[str, Any]]:
    if solver not in SOLVERS:
        raise ValueError(f"unknown solver {solver!r}{nearest_hint(solver, SOLVERS)}; known: {', '.join(SOLVERS)}")
    return SOLVERS[solver]
