"""User-defined methods, registered by name and used like the built-in ones, for single problems and batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any

from trajopt.guesses.guesses import WarmStart
from trajopt.problem.ocp import OCP
from trajopt.results.records import Callback
from trajopt.results.solution import Solution
from trajopt.solvers.methods.user_method import MethodFunction, UserMethod
from trajopt.solvers.options import MethodOptions


@dataclass(frozen=True)
class UserSolver:
    """Solver function of a user-defined method, for the registry of solvers."""

    name: str
    method: MethodFunction

    @property
    def made(self) -> Callable[..., UserMethod]:
        """Factory of the method: a function of size, options and maximum number of iterations."""
        return partial(UserMethod, self.method)

    def __call__(self, ocp: OCP, warm: WarmStart, options: Any, callback: Callback | None) -> Solution:
        """Solve a problem without constraints. Raises InvalidProblem for others."""
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
            return solve_newton(ocp, warm.guess, *given, cache=own, method=self.made)


def user_solver(name: str, given: Any) -> tuple[UserSolver, type[MethodOptions], Mapping[str, Any]]:
    """Return the registry entry of a method, or of a tuple (method, class of its options).

    Raises TypeError for a method that is not callable, or for options of a wrong class.
    """
    method, options = given if isinstance(given, tuple) and len(given) == 2 else (given, MethodOptions)
    if not callable(method):
        raise TypeError(f"method is a {type(method).__name__}; expected a generator function of (size, options)")
    if not (isinstance(options, type) and is_dataclass(options) and issubclass(options, MethodOptions)):
        raise TypeError(f"options must be a dataclass that extends trajopt.MethodOptions, got {options!r}")
    return UserSolver(name, method), options, {}


def require_open(ocp: OCP, name: str) -> None:
    """Raise InvalidProblem for constraints, and for control bounds without interior."""
    from trajopt.validation.validation import ERROR, Finding, InvalidProblem, reject_constraints

    reject_constraints(ocp, f"the method {name!r}")
    bounds = ocp.control_bounds
    if bounds is not None and not (bounds[0] < bounds[1]).all():
        raise InvalidProblem([Finding(ERROR, f"the method {name!r} needs bounds on the controls with lower < upper")])
