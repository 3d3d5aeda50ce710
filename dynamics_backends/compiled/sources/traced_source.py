"""Traces of a map and its derivatives: analytic where the map defines them, else by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dynamics_backends.compiled.emit.directions import complex_step, slope_along
from dynamics_backends.compiled.emit.emit import Argument, TracedFunction
from dynamics_backends.methods.symbolic_map import Symbols, complaint, description, refusal, symbolic_value
from dynamics_backends.protocol import Map, Partials, is_second_order
from dynamics_backends.symbols import ca
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from dynamics_backends.trace import Trace, trace_expressions

OPERATIONS_LIMIT = 300_000
"""Maximum number of operations of one function, which take some seconds to trace."""
LARGEST_FIRST = 1
"""CasADi's default order of variables in a coloring."""


class TooLong(ValueError):
    """A function has, or would have, more operations than OPERATIONS_LIMIT."""


@dataclass(frozen=True, eq=False)
class TracedDynamics:
    """Traces of one map with parameters of these sizes, and of its derivatives. all_rows: compute all rows of the value."""

    map: Map
    sizes: Mapping[str, int]
    all_rows: bool = False

    @cached_property
    def symbols(self) -> Symbols:
        """Symbolic arguments of the map."""
        return Symbols.of(self.map, self.sizes)

    @cached_property
    def value_expression(self) -> Any:
        """Value (n_out) of the map on the symbols."""
        s = self.symbols
        return symbolic_value(self.map, s.x, s.u, s.t, s.p)

    @cached_property
    def rows(self) -> int:
        """Number of rows of the value to compute: all, or the last half if the first half is v, and not all are requested.

        The first half is v for a SteppedContact, and is compared with v for other second-order systems.
        """
        if self.all_rows:
            return self.map.n_out
        n, nx = self.map.manifold.ndx, self.map.manifold.nx
        if isinstance(self.map, SteppedContact):  # its value is an expression with kernels only
            return n // 2
        if n % 2 or not is_second_order(self.map):
            return n
        above, v = self.value_expression[: n // 2], self.symbols.x[nx - n // 2 :]
        return n // 2 if all(ca.is_equal(above[i], v[i]) for i in range(n // 2)) else n

    def first(self) -> list[Any]:
        """Value and analytic fx and fu of the map: three columns, matrices by rows. Raises TraceError if this fails on symbols."""
        s = self.symbols
        return _columns(self.attempt(lambda: self.map.partials(s.x, s.u, s.t, s.p)))  # type: ignore[attr-defined]

    def both(self, lam: Any) -> list[Any]:
        """Value, fx and fu as in :meth:`first`, and xx, ux, uu of lam' f for lam (n_out): six columns, matrices by rows.

        Raises TraceError if this fails on symbols.
        """
        s = self.symbols
        first, second = self.attempt(lambda: self.map.contracted(s.x, s.u, s.t, s.p, lam))  # type: ignore[attr-defined]
        return [*_columns(first), *(by_rows(M) for M in second)]

    def second_by_ad(self, lam: Any, mode: str = "auto") -> tuple[Any, Any, Any]:
        """Value, Jacobian and the Hessian (ndx + nu, ndx + nu) of lam' f by CasADi's AD.

        Raises TraceError if the map cannot be evaluated with symbols; TooLong as :func:`require_short_hessian`.
        """
        from dynamics_backends.methods.casadi_ad import CasadiAD

        z, value = ca.vertcat(self.symbols.x, self.symbols.u), ca.dot(lam, self.value_expression)
        require_short_hessian(f"the Hessian of {description(self.map)}", value, z)
        return CasadiAD(self.map, mode=mode).second_expressions(self.symbols, lam)

    def _both_by_ad(self, lam: Any, mode: str) -> list[Any]:
        """Value, fx, fu, and xx, ux, uu of lam' f by CasADi's AD in this mode, as columns, matrices by rows.

        Raises the errors of :meth:`second_by_ad`.
        """
        f, J, H = self.second_by_ad(lam, mode)
        n = self.map.manifold.ndx
        return [f, *(ca.vec(M.T) for M in (J[:, :n], J[:, n:], H[:n, :n], H[n:, :n], H[n:, n:]))]

    def _first_by_ad(self, mode: str) -> list[Any]:
        """Computed rows of value, fx and fu by CasADi's AD, matrices by rows."""
        from dynamics_backends.methods.casadi_ad import CasadiAD

        value, J = CasadiAD(self.map, mode=mode).expressions(self.symbols)
        J, n = self._below(J), self.map.manifold.ndx
        return [self._below(value), ca.vec(J[:, :n].T), ca.vec(J[:, n:].T)]

    def traced_value(self) -> TracedFunction:
        """Trace of dynamics_value, the computed rows of the value as a function of x, u, t and all parameters.

        Raises TraceError if the map cannot be evaluated with symbols, TooLong for more than OPERATIONS_LIMIT operations.
        """
        return self.traced("dynamics_value", {"f": self._below(self.value_expression)}, {})

    def traced_partials(self, mode: str | None) -> TracedFunction:
        """Trace of dynamics_partials, the computed rows of value, fx and fu: analytic (mode None), or by CasADi's AD in this mode.

        Raises TraceError if the map cannot be evaluated with symbols, TooLong for more than OPERATIONS_LIMIT operations.
        """
        first = self._below_of(self.first()) if mode is None else self._first_by_ad(mode)
        return self.traced("dynamics_partials", _named(first), {})

    def named(self, first: Partials) -> dict[str, Any]:
        """Computed rows of the value and the derivatives of the map, by their names in C."""
        return _named(self._below_of(_columns(first)))

    def traced_contraction(self, mode: str | None) -> TracedFunction:
        """Trace of dynamics_contracted: computed rows of value, fx and fu, and xx, ux, uu of lam' f, with the last argument lam.

        Analytic (mode None), or by CasADi's AD in this mode. Raises TraceError if the map cannot be evaluated with symbols, TooLong
        for more than OPERATIONS_LIMIT operations.
        """
        lam = ca.SX.sym("lam", self.map.n_out)
        parts = self.both(lam) if mode is None else self._both_by_ad(lam, mode)
        return self.traced("dynamics_contracted", _named([*self._below_of(parts[:3]), *parts[3:]]), {"lam": lam})

    def traced_hessian(self, mode: str) -> TracedFunction:
        """Trace of dynamics_hessian: xx, ux, uu of lam' f by CasADi's AD in this mode, with the last argument lam.

        Raises the errors of :meth:`traced_contraction`.
        """
        lam = ca.SX.sym("lam", self.map.n_out)
        second = dict(zip(("xx", "ux", "uu"), self._both_by_ad(lam, mode)[3:], strict=True))
        return self.traced("dynamics_hessian", second, {"lam": lam})

    def traced(self, name: str, outputs: Mapping[str, Any], more: Mapping[str, Any]) -> TracedFunction:
        """Trace of a function of x, u, t, p (all parameters) and the arguments ``more``, with these outputs (by name).

        Raises TooLong for more than OPERATIONS_LIMIT operations.
        """
        s = self.symbols
        inputs = {"x": s.x, "u": s.u, "t": s.t, "p": ca.vertcat(ca.SX(0, 1), *s.p.values()), **more}
        expressions = [ca.densify(e) for e in outputs.values()]
        trace = short_enough(description(self.map), trace_expressions(list(inputs.values()), expressions))
        return TracedFunction(name, trace, [Argument(key, i.numel()) for key, i in inputs.items()], list(outputs))

    def traced_direction(self, name: str) -> TracedFunction:
        """Trace of dynamics_along, the computed rows of the value and of their slope along e, by a method of ALONG_DIRECTIONS.

        Its last argument is e (ndx + nu), for complex_step a small step, for the others of any size. Raises TraceError if the map
        cannot be evaluated with symbols, TooLong for more than OPERATIONS_LIMIT operations.
        """
        s, n = self.symbols, self.map.manifold.ndx
        z, e = ca.SX.sym("z", n + self.map.nu), ca.SX.sym("e", n + self.map.nu)
        dx, u = ca.vertsplit(z, [0, n, n + self.map.nu])
        moved = self._below(symbolic_value(self.map, self.map.manifold.integrate(s.x, dx), u, s.t, s.p))
        others, at = (s.x, s.t, *s.p.values()), ca.vertcat(ca.SX.zeros(n), s.u)
        if name == "complex_step":
            value, slope = complex_step(moved, z, others, at, e)
        else:
            value, slope = ca.substitute([moved, slope_along(moved, z, others, e)], [z], [at])
        return self.traced("dynamics_along", {"f": value, "slope": slope}, {"e": e})

    def _below(self, M: Any) -> Any:
        """Last ``rows`` rows: those of xdot that are computed."""
        return M[M.shape[0] - self.rows :, :]

    def _below_of(self, first: Sequence[Any]) -> list[Any]:
        """Computed rows of a value, fx and fu, each one column by rows."""
        skipped, m = self.map.n_out - self.rows, self.map
        return [e[skipped * width :] for e, width in zip(first, (1, m.manifold.ndx, m.nu), strict=True)]

    def attempt(self, function: Callable[[], Any]) -> Any:
        """Call a function on symbols and return its result. Raises TraceError if it fails on symbols."""
        try:
            return function()
        except Exception as error:
            raise refusal(self.map, complaint(error, self.map)) from error


def _named(parts: Sequence[Any]) -> dict[str, Any]:
    """Value, first and second derivatives by their names in C, up to the given order."""
    return dict(zip(("f", "fx", "fu", "xx", "ux", "uu"), parts, strict=False))


def _columns(first: Partials) -> list[Any]:
    """Value, fx and fu as three columns, matrices by rows."""
    value = ca.vertcat(*first.value) if isinstance(first.value, list) else ca.SX(first.value)
    return [ca.densify(value), by_rows(first.fx), by_rows(first.fu)]


def by_rows(M: Sequence[Any]) -> Any:
    """Matrix, given by its rows, as one column, row after row."""
    return ca.vertcat(
        *[ca.densify(ca.vertcat(*row)) if isinstance(row, (list, tuple)) else ca.densify(ca.SX(row)) for row in M]
    )


def short_enough(what: str, t: Trace) -> Trace:
    """Return the trace. Raises TooLong if it has more operations than OPERATIONS_LIMIT."""
    require_short(what, len(t.operations))
    return t


def require_short(what: str, operations: int) -> None:
    """Raise TooLong for more operations than OPERATIONS_LIMIT; what: a description of the traced function."""
    if operations > OPERATIONS_LIMIT:
        raise TooLong(f"{what} takes {operations} operations; the limit is {OPERATIONS_LIMIT}")


def require_short_hessian(what: str, value: Any, z: Any) -> None:
    """Raise TooLong if the Hessian of a scalar in z needs more than OPERATIONS_LIMIT operations.

    Operations of the value times directions: one per variable, or, if the Hessian is sparse, per color of its sparsity. Colors are
    not searched where their number would be too large: the search takes minutes for a dense Hessian of 800 variables. Since two
    colors form a forest, k colors of n variables allow at most (k - 1) (2 n - k) entries beside the diagonal.
    """
    operations = ca.Function("value", [z], [value], {"allow_free": True}).n_instructions()
    directions = sum(ca.which_depends(value, z))
    if operations <= OPERATIONS_LIMIT < operations * directions:
        H, most = ca.jacobian_sparsity(ca.gradient(value, z), z), OPERATIONS_LIMIT // operations
        n = len(set(H.row()))
        k = min(most, n)
        colors = H.star_coloring(LARGEST_FIRST, most) if H.nnz() - n <= (k - 1) * (2 * n - k) else None
        directions = directions if colors is None or colors.is_null() else colors.size2()  # null: more than ``most``
    require_short(what, operations * directions)
