"""Interface to IPOPT through cyipopt.

cyipopt requests objective, constraints, gradient and Jacobian one by one, without marking new points. This module evaluates values
and first derivatives once for consecutive requests at a point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.nlp.ipopt_library import ipopt_library

Pattern = tuple[Array, Array]
"""Rows and columns of the entries of a sparse matrix."""


class Progress(NamedTuple):
    """Numbers that IPOPT reports after each iteration.

    dual: dual infeasibility. step: largest entry of the step. regularization: shift of the Hessian. alpha: primal step length.
    """

    iteration: int
    objective: float
    dual: float
    step: float
    regularization: float
    alpha: float


class Iterate(NamedTuple):
    """Variables w (n,), constraints g (m,), multipliers y (m,) of constraints and z (n,) of bounds.

    Signs are those of :mod:`trajopt.solvers.nlp.nlp`.
    """

    w: Array
    g: Array
    y: Array
    z: Array


class Ended(NamedTuple):
    """Return code of IPOPT (IpReturnCodes.h), final objective and iterate."""

    code: int
    objective: float
    iterate: Iterate


class Callbacks(Protocol):
    """Callbacks of IPOPT. Values and first derivatives are evaluated once for consecutive requests at the same point."""

    def values(self, w: Array) -> tuple[float, Array]:
        """Return f and g (m,) at w (n,)."""
        ...

    def derivatives(self, w: Array) -> tuple[Array, Array]:
        """Return the gradient of f (n,) and the entries of the Jacobian of g in the order of the pattern."""
        ...

    def hessian(self, w: Array, sigma: float, multipliers: Array) -> Array:
        """Return the entries of the Hessian of sigma f + multipliers' g, lower triangle, in the order of the pattern."""
        ...

    def intermediate(self, progress: Progress) -> None:
        """Receive the numbers of an iteration, after each one; an exception ends the solve."""
        ...


class IpoptProblem:
    """Problem of IPOPT.

    bounds: x_lower, x_upper (n,), g_lower, g_upper (m,); infinite bounds as INFINITE. jacobian: pattern. hessian: pattern of the
    lower triangle; None: IPOPT approximates the Hessian. Raises ImportError without cyipopt.
    """

    def __init__(
        self, callbacks: Callbacks, bounds: Sequence[Array], jacobian: Pattern, hessian: Pattern | None
    ) -> None:
        self._definition = _ProblemDefinition(callbacks, jacobian, hessian)
        x_lower, x_upper, g_lower, g_upper = bounds
        self._problem = ipopt_library().Problem(
            n=len(x_lower),
            m=len(g_lower),
            problem_obj=self._definition,
            lb=x_lower,
            ub=x_upper,
            cl=g_lower,
            cu=g_upper,
        )

    def set_options(self, options: Mapping[str, int | float | str]) -> None:
        """Set options. Raises ValueError for a name or value that IPOPT does not accept."""
        for key, value in options.items():
            try:
                self._problem.add_option(key, value)
            except TypeError as error:
                raise ValueError(f"ipopt: IPOPT does not accept {key} = {value!r}") from error

    def solve(self, w: Array, y: Array, z: Array) -> Ended:
        """Solve from w (n,); y (m,), z (n,): initial multipliers, used only with warm-start options.

        Raises exceptions of the callbacks.
        """
        lower, upper = np.maximum(-z, 0.0), np.maximum(z, 0.0)
        w, info = self._problem.solve(w, lagrange=y, zl=lower, zu=upper)
        if self._definition.raised is not None:
            raise self._definition.raised
        return Ended(info["status"], info["obj_val"], _iterate(w, info))

    def iterate(self) -> Iterate | None:
        """Return IPOPT's current iterate; None if it has none. Only valid within a call of ``intermediate``."""
        found = self._problem.get_current_iterate()
        return None if found is None else _iterate(found["x"], found)


def _iterate(w: Array, found: Mapping[str, Any]) -> Iterate:
    """Return w with the constraints and multipliers in IPOPT's results; z is the upper minus the lower bound multiplier."""
    return Iterate(w, found["g"], found["mult_g"], found["mult_x_U"] - found["mult_x_L"])


class _ProblemDefinition:
    """Callbacks under the names that cyipopt expects; without ``hessian``, IPOPT approximates the Hessian."""

    def __init__(self, callbacks: Callbacks, jacobian: Pattern, hessian: Pattern | None) -> None:
        self._callbacks, self._jacobian = callbacks, jacobian
        if hessian is not None:
            self.hessian, self.hessianstructure = partial(self._second, len(hessian[0])), lambda: hessian
        self._point = b""
        self._found: dict[str, Any] = {}
        self.raised: BaseException | None = None
        self._stopped = ipopt_library().CyIpoptEvaluationError

    def objective(self, w: Array) -> float:
        """Return f."""
        return self._cached(w, "values")[0]

    def constraints(self, w: Array) -> Array:
        """Return g (m,)."""
        return self._cached(w, "values")[1]

    def gradient(self, w: Array) -> Array:
        """Return the gradient of f (n,)."""
        return self._cached(w, "derivatives")[0]

    def jacobian(self, w: Array) -> Array:
        """Return the entries of the Jacobian of g."""
        return self._cached(w, "derivatives")[1]

    def jacobianstructure(self) -> Pattern:
        """Return rows and columns of the entries of the Jacobian of g."""
        return self._jacobian

    def intermediate(
        self, mode, iteration, objective, primal, dual, mu, step, regularization, alpha_dual, alpha, trials
    ) -> bool:
        """Forward the numbers of an iteration; False, which ends the solve, after an exception. cyipopt inspects the names."""
        if self.raised is None:
            self._callbacks.intermediate(Progress(iteration, objective, dual, step, regularization, alpha))
        return self.raised is None

    def _cached(self, w: Array, kind: str) -> Any:
        """Return the callback's result ("values" or "derivatives") at w, cached for the last w.

        Stores what a callback raises and reports a failed evaluation, here and at all later points: after any other exception
        cyipopt lets IPOPT continue with numbers that were never written.
        """
        if self.raised is not None:
            raise self._stopped from self.raised
        point = w.tobytes()
        if point != self._point:
            self._point, self._found = point, {}
        if kind not in self._found:
            try:
                self._found[kind] = getattr(self._callbacks, kind)(w)
            except BaseException as error:
                self.raised = error
                raise self._stopped from error
        return self._found[kind]

    def _second(self, count: int, w: Array, multipliers: Array, sigma: float) -> Array:
        """Return the ``count`` entries of the Hessian's lower triangle.

        Returns zeros after an exception, which the next callback reports.
        """
        try:
            return self._callbacks.hessian(w, sigma, multipliers)
        except BaseException as error:  # cyipopt drops it
            self.raised = error
            return np.zeros(count)
