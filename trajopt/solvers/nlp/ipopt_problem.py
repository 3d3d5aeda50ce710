"""A program in IPOPT's hands, by cyipopt.

cyipopt asks for objective, constraints, gradient and Jacobian one by one, and names no point as new: values and first derivatives
are computed once for each point.
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
    """The numbers that IPOPT reports after each iteration."""

    iteration: int
    objective: float
    dual: float
    step: float
    regularization: float
    alpha: float


class Iterate(NamedTuple):
    """w (n,), g (m,), multipliers y (m,) of the constraints and z (n,) of the bounds, with the signs of
    :mod:`trajopt.solvers.nlp.nlp`.
    """

    w: Array
    g: Array
    y: Array
    z: Array


class Ended(NamedTuple):
    """IPOPT's return code (IpReturnCodes.h), and where it ended."""

    code: int
    objective: float
    iterate: Iterate


class Callbacks(Protocol):
    """Callbacks of IPOPT. Values and first derivatives are evaluated once at each point."""

    def values(self, w: Array) -> tuple[float, Array]:
        """f and g (m,) at w (n,)."""
        ...

    def derivatives(self, w: Array) -> tuple[Array, Array]:
        """The gradient of f (n,) and the entries of dg in the order of the pattern."""
        ...

    def hessian(self, w: Array, sigma: float, multipliers: Array) -> Array:
        """The entries of the Hessian of sigma f + multipliers' g, its lower triangle in the order of the pattern."""
        ...

    def intermediate(self, progress: Progress) -> None:
        """After each iteration."""
        ...


class IpoptProblem:
    """bounds: x_lower, x_upper (n,), g_lower, g_upper (m,), infinite ones as UNBOUNDED. jacobian, hessian: patterns, that of the
    Hessian in the lower triangle; None: IPOPT approximates it. Raises ImportError without cyipopt.
    """

    def __init__(
        self, callbacks: Callbacks, bounds: Sequence[Array], jacobian: Pattern, hessian: Pattern | None
    ) -> None:
        asked = _Asked(callbacks, jacobian, hessian)
        x_lower, x_upper, g_lower, g_upper = bounds
        self._problem = ipopt_library().Problem(
            n=len(x_lower),
            m=len(g_lower),
            problem_obj=asked,
            lb=x_lower,
            ub=x_upper,
            cl=g_lower,
            cu=g_upper,
        )

    def set_options(self, options: Mapping[str, int | float | str]) -> None:
        """Raises ValueError for what IPOPT does not know."""
        for key, value in options.items():
            try:
                self._problem.add_option(key, value)
            except TypeError as error:
                raise ValueError(f"ipopt: IPOPT does not accept {key} = {value!r}") from error

    def solve(self, w: Array, y: Array, z: Array) -> Ended:
        """From w (n,), and in a warm start from the multipliers y (m,), z (n,). Raises what a callback raises."""
        lower, upper = np.maximum(-z, 0.0), np.maximum(z, 0.0)
        w, info = self._problem.solve(w, lagrange=y, zl=lower, zu=upper)
        return Ended(info["status"], info["obj_val"], _iterate(w, info))

    def iterate(self) -> Iterate | None:
        """The iterate, within a call of ``intermediate``; None where IPOPT has none."""
        found = self._problem.get_current_iterate()
        return None if found is None else _iterate(found["x"], found)


def _iterate(w: Array, found: Mapping[str, Any]) -> Iterate:
    return Iterate(w, found["g"], found["mult_g"], found["mult_x_U"] - found["mult_x_L"])


class _Asked:
    """cyipopt's callbacks, by the names that it looks for; without those of a Hessian it has IPOPT approximate it."""

    def __init__(self, callbacks: Callbacks, jacobian: Pattern, hessian: Pattern | None) -> None:
        self._callbacks, self._jacobian = callbacks, jacobian
        if hessian is not None:
            self.hessian, self.hessianstructure = partial(self._second, len(hessian[0])), lambda: hessian
        self._point = b""
        self._found: dict[str, Any] = {}
        self._raised: BaseException | None = None

    def objective(self, w: Array) -> float:
        """f."""
        return self._at(w, "values")[0]

    def constraints(self, w: Array) -> Array:
        """g."""
        return self._at(w, "values")[1]

    def gradient(self, w: Array) -> Array:
        """df."""
        return self._at(w, "derivatives")[0]

    def jacobian(self, w: Array) -> Array:
        """The entries of dg."""
        return self._at(w, "derivatives")[1]

    def jacobianstructure(self) -> Pattern:
        """Rows and columns of the entries of dg."""
        return self._jacobian

    def intermediate(
        self, mode, iteration, objective, primal, dual, mu, step, regularization, alpha_dual, alpha, trials
    ) -> None:
        """After each iteration; cyipopt looks at the names of the parameters."""
        self._callbacks.intermediate(Progress(iteration, objective, dual, step, regularization, alpha))

    def _at(self, w: Array, kind: str) -> Any:
        if self._raised is not None:
            raise self._raised
        point = w.tobytes()
        if point != self._point:
            self._point, self._found = point, {}
        if kind not in self._found:
            try:
                self._found[kind] = getattr(self._callbacks, kind)(w)
            except KeyboardInterrupt as error:  # behind which IPOPT asks for other points
                self._raised = error
                raise
        return self._found[kind]

    def _second(self, count: int, w: Array, multipliers: Array, sigma: float) -> Array:
        """The ``count`` entries of the lower triangle of the Hessian."""
        try:
            return self._callbacks.hessian(w, sigma, multipliers)
        except BaseException as error:  # which cyipopt forgets: it is raised again by the next callback
            self._raised = error
            return np.zeros(count)
