"""Methods of a user's own: registered by name, they solve as the built-in ones do, alone and in batches."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import partial
from typing import Any

from trajopt.guesses.warm_start import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.methods.own import MethodFunction, OwnMethod
from trajopt.solvers.options import MethodOptions
from trajopt.solvers.registry import SOLVERS

METHODS: dict[str, MethodFunction] = {}
"""The methods that were registered, by name."""


def register_method(name: str, method: MethodFunction, options: type[MethodOptions] = MethodOptions) -> None:
    """Make a method known by a name: to :func:`trajopt.solve`, :func:`trajopt.solve_batch`, configs and comparisons.

    method: a generator function ``method(size, options)``, which yields requests (:mod:`trajopt.methods`) and returns an
    :class:`~trajopt.methods.End`. size: the number of controls and whether they have bounds. options: a frozen dataclass that
    extends :class:`~trajopt.MethodOptions`, of which limits of iterations and time are kept for the method. A name that was
    registered before is replaced.

    Raises ValueError for the name of a built-in solver, TypeError for a method that cannot be called or for options of another
    class.
    """
    if name in SOLVERS and name not in METHODS:
        raise ValueError(f"solver {name!r} is built in; choose another name")
    if not callable(method):
        raise TypeError(f"method is a {type(method).__name__}; expected a generator function of (size, options)")
    if not (isinstance(options, type) and is_dataclass(options) and issubclass(options, MethodOptions)):
        raise TypeError(f"options must be a dataclass that extends trajopt.MethodOptions, got {options!r}")
    METHODS[name] = method
    SOLVERS[name] = partial(_solve, name), options, {}


def _solve(name: str, ocp: OCP, warm: WarmStart, options: Any, callback: Callback | None) -> Solution:
    from trajopt.solvers.ddp import require_contractions
    from trajopt.solvers.window.newton import solve_newton
    from trajopt.stage.kept import borrowed
    from trajopt.stage.numerics import kept_numerics

    require_open(ocp, name)
    with borrowed(ocp, warm.kept) as own:
        numerics = kept_numerics(own, ocp)
        exact = None
        if options.hessian == "exact":
            require_contractions(ocp)
            exact = kept_numerics(own, ocp, "exact").evaluator
        given = options, callback, numerics.evaluator, numerics.lq_solver, exact
        return solve_newton(ocp, warm.guess, *given, kept=own, method=partial(OwnMethod, METHODS[name]))


def require_open(ocp: OCP, name: str) -> None:
    """Raise InvalidProblem for constraints, and for bounds on the controls that leave no interior."""
    from trajopt.validation.validation import ERROR, Finding, InvalidProblem, refuse_constraints

    refuse_constraints(ocp, f"the method {name!r}")
    bounds = ocp.control_bounds
    if bounds is not None and not (bounds[0] < bounds[1]).all():
        raise InvalidProblem([Finding(ERROR, f"the method {name!r} needs bounds on the controls with lower < upper")])
