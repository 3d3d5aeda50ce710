"""C source of the dynamics of any map as straight-line code, traced with symbols; derivatives by every method.

    analytic                    the map's analytic partials and contraction, traced
    casadi_ad                   CasADi's Jacobian, traced
    complex_step, forward_ad    the value on pairs of numbers, called once for each direction; second derivatives by CasADi
    central_difference, ...     dynamics_value; derivatives by :mod:`~dynamics_backends.compiled.sources.differences`

See :mod:`~dynamics_backends.compiled.sources.dynamics_source` for the functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dynamics_backends.compiled.emit.emit import Argument, chunked_function, constant
from dynamics_backends.compiled.emit.pairs import ALGEBRAS, replayed
from dynamics_backends.compiled.emit.trace import Trace, trace_expressions
from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.sources.traced_function import TracedFunction
from dynamics_backends.methods.exact_method import STEP
from dynamics_backends.methods.symbolic_map import Symbols, complaint, description, refusal, symbolic_value
from dynamics_backends.protocol import HasContraction, Map, Partials, is_second_order
from dynamics_backends.symbols import ca
from dynamics_backends.systems.contact.stepped_contact import SteppedContact

OPERATIONS_LIMIT = 300_000
"""Maximum number of operations of one function; compilers take about a second for 10,000, on each core."""


def operations_limit() -> int:
    """Maximum number of operations of a trace."""
    return OPERATIONS_LIMIT


class TooLong(ValueError):
    """Straight-line code would have more operations than OPERATIONS_LIMIT."""


@dataclass(frozen=True, eq=False)
class TracedDynamics:
    """Writer of the C functions of one map with parameters of these sizes, optionally for steps of several stages."""

    map: Map
    sizes: Mapping[str, int]
    several_stages: bool = False

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
        """Number of rows of xdot to compute: without the first half, if that is v."""
        n, nx = self.map.manifold.ndx, self.map.manifold.nx
        if isinstance(self.map, SteppedContact):  # its value is not an expression
            return n // 2
        if n % 2 or not is_second_order(self.map):
            return n
        above, v = self.value_expression[: n // 2], self.symbols.x[nx - n // 2 :]
        return n // 2 if all(ca.is_equal(above[i], v[i]) for i in range(n // 2)) else n

    # -- functions ------------------------------------------------------------------------------------------------------
    def value(self) -> tuple[str, str]:
        """C source of dynamics_value, and its workspace in vectors as C text."""
        return self.function("dynamics_value", {"f": self._below(self.value_expression)}, {})

    def analytic(self) -> tuple[str, str]:
        """C source of dynamics_partials by the map's analytic derivatives."""
        return self._partials(self._below_of(self.first()))

    def contracted(self, mode: str = "auto") -> tuple[str, str]:
        """C source of dynamics_contracted by the map's second derivatives, or CasADi's AD in this mode if the map has none."""
        lam = ca.SX.sym("lam", self.map.n_out)
        parts = self.both(lam) if isinstance(self.map, HasContraction) else self._both_by_ad(lam, mode)
        outputs = _named([*self._below_of(parts[:3]), *parts[3:]])
        if self.several_stages:
            outputs = {name: outputs[name] for name in ("xx", "ux", "uu")}
        code, room = self.function("traced_contracted", outputs, {"lam": lam})
        given = ", ".join(f"to.{name}" for name in outputs)
        return "\n".join([code, template("lanes/contracted.h").replace("GIVEN", given)]), room

    def first(self) -> list[Any]:
        """Analytic value and partials of the map: three columns, matrices by rows. Raises TraceError."""
        s = self.symbols
        return _columns(self.attempt(lambda: self.map.partials(s.x, s.u, s.t, s.p)))  # type: ignore[attr-defined]

    def both(self, lam: Any) -> list[Any]:
        """Value and partials as in :meth:`first`, and xx, ux, uu contracted with lam (n_out), matrices by rows. Raises
        TraceError.
        """
        s = self.symbols
        first, second = self.attempt(lambda: self.map.contracted(s.x, s.u, s.t, s.p, lam))  # type: ignore[attr-defined]
        return [*_columns(first), *(by_rows(M) for M in second)]

    def second_by_ad(self, lam: Any, mode: str = "auto") -> tuple[Any, Any, Any]:
        """Value, Jacobian and the Hessian (ndx + nu, ndx + nu) of lam' f by CasADi's AD.

        Raises TraceError; TooLong before any derivative, if the Hessian will have too many operations.
        """
        from dynamics_backends.methods.casadi_ad import CasadiAD

        value = ca.Function("value", list(self.symbols), [self.value_expression]).n_instructions()
        require_short(f"the Hessian of {description(self.map)}", value * (self.map.manifold.ndx + self.map.nu))
        return CasadiAD(self.map, mode=mode).second_expressions(self.symbols, lam)

    def _both_by_ad(self, lam: Any, mode: str) -> list[Any]:
        """Parts of :meth:`both`, by CasADi's AD."""
        f, J, H = self.second_by_ad(lam, mode)
        n = self.map.manifold.ndx
        return [f, *(ca.vec(M.T) for M in (J[:, :n], J[:, n:], H[:n, :n], H[n:, :n], H[n:, n:]))]

    def casadi_ad(self, mode: str = "auto") -> tuple[str, str]:
        """C source of dynamics_partials by CasADi's Jacobian."""
        return self._partials(self._first_by_ad(mode))

    def _first_by_ad(self, mode: str) -> list[Any]:
        from dynamics_backends.methods.casadi_ad import CasadiAD

        value, J = CasadiAD(self.map, mode=mode).expressions(self.symbols)
        J, n = self._below(J), self.map.manifold.ndx
        return [self._below(value), ca.vec(J[:, :n].T), ca.vec(J[:, n:].T)]

    # -- traces ---------------------------------------------------------------------------------------------------------
    def traced_value(self) -> TracedFunction:
        """Trace of dynamics_value."""
        return self._traced("dynamics_value", {"f": self._below(self.value_expression)}, {})

    def traced_partials(self, mode: str | None) -> TracedFunction:
        """Trace of dynamics_partials: analytic, or by CasADi's AD in this mode."""
        first = self._below_of(self.first()) if mode is None else self._first_by_ad(mode)
        return self._traced("dynamics_partials", _named(first), {})

    def traced_contraction(self, mode: str) -> TracedFunction:
        """Trace of dynamics_contracted: analytic, or by CasADi's AD in this mode if the map has no second derivatives."""
        lam = ca.SX.sym("lam", self.map.n_out)
        parts = self.both(lam) if isinstance(self.map, HasContraction) else self._both_by_ad(lam, mode)
        return self._traced("dynamics_contracted", _named([*self._below_of(parts[:3]), *parts[3:]]), {"lam": lam})

    def _traced(self, name: str, outputs: Mapping[str, Any], more: Mapping[str, Any]) -> TracedFunction:
        """Trace of a function of x, u, t, p (all parameters) and more."""
        s = self.symbols
        inputs = {"x": s.x, "u": s.u, "t": s.t, "p": ca.vertcat(ca.SX(0, 1), *s.p.values()), **more}
        expressions = [ca.densify(e) for e in outputs.values()]
        trace = short_enough(description(self.map), trace_expressions(list(inputs.values()), expressions))
        return TracedFunction(name, trace, [Argument(key, i.numel()) for key, i in inputs.items()], list(outputs))

    def on_pairs(self, algebra: str) -> tuple[str, str]:
        """C source of dynamics_partials by complex or dual numbers, one direction after the other."""
        (value, slope), e, step = self._along(algebra)
        code, room = self.function("dynamics_along", {"f": value, "slope": slope}, {"e": e})
        n, m = self.map.manifold.ndx, self.map.nu
        numbers = f"{n}, {m}, {self.rows}, {constant(step)}"
        return "\n".join([template("differences/partials_along.h"), code, _ALONG.format(numbers=numbers)]), room

    def traced_direction(self, algebra: str) -> tuple[TracedFunction, float]:
        """Trace of the value and its derivative in a direction e, by complex or dual numbers, and the size of e."""
        (value, slope), e, step = self._along(algebra)
        return self._traced("dynamics_along", {"f": value, "slope": slope}, {"e": e}), step

    def _along(self, algebra: str) -> tuple[list[Any], Any, float]:
        """Value and its derivative in a direction e, the symbols of e, and its size."""
        s, manifold, pair = self.symbols, self.map.manifold, ALGEBRAS[algebra]
        assert pair is not None
        dx, e = ca.SX.sym("dx", manifold.ndx), ca.SX.sym("e", manifold.ndx + self.map.nu)
        moved = symbolic_value(self.map, manifold.integrate(s.x, dx), s.u, s.t, s.p)
        plain = trace_expressions([dx, s.u, s.x, s.t, *s.p.values()], [self._below(moved)])
        inputs = (dx, s.u, s.x, s.t, *s.p.values())

        def seeded(i: int, j: int) -> Any:
            if i == 0:
                return pair(0.0, e[j])
            return pair(s.u[j], e[manifold.ndx + j]) if i == 1 else pair(inputs[i][j])

        (parts,) = replayed(plain, pair, seeded)
        both = [ca.vertcat(*parts[::2]), ca.vertcat(*parts[1::2])]
        return both, e, STEP if algebra == "complex" else 1.0

    # -- parts ----------------------------------------------------------------------------------------------------------
    def _partials(self, first: Sequence[Any]) -> tuple[str, str]:
        """C source of dynamics_partials from f, fx and fu, the matrices by rows."""
        tables, first = packed(first, self.rows) if self.several_stages else ("", first)
        code, room = self.function("dynamics_partials", _named(first), {})
        return "\n".join([tables, code]), room

    def _below(self, M: Any) -> Any:
        return M[M.shape[0] - self.rows :, :]

    def _below_of(self, first: Sequence[Any]) -> list[Any]:
        """Computed rows of a value and two matrices, each by rows."""
        skipped, m = self.map.n_out - self.rows, self.map
        return [e[skipped * width :] for e, width in zip(first, (1, m.manifold.ndx, m.nu), strict=True)]

    def attempt(self, function: Callable[[], Any]) -> Any:
        """Call a function on symbols and return its result. Raises TraceError if it fails on symbols."""
        try:
            return function()
        except Exception as error:
            raise refusal(self.map, complaint(error, self.map)) from error

    def _code(
        self, name: str, parts: Sequence[Any], outputs: Sequence[str], more: Mapping[str, Any]
    ) -> tuple[str, str]:
        """C function NAME_code(x, u, t, p0, ..., more, outputs, w) and its workspace."""
        s = self.symbols
        inputs, names = [*s, *more.values()], [*s.names, *more]
        t = short_enough(description(self.map), trace_expressions(inputs, [ca.densify(e) for e in parts]))
        arguments = [Argument(n, i.numel()) for n, i in zip(names, inputs, strict=True)]
        source, room = chunked_function(f"{name}_code", t, arguments, outputs)
        return source, str(room)

    def function(self, name: str, outputs: Mapping[str, Any], more: Mapping[str, Any]) -> tuple[str, str]:
        """C function NAME(c, x, u, t, p, more, outputs) as straight-line code, and its workspace in vectors as C text."""
        code, room = self._code(name, list(outputs.values()), list(outputs), more)
        arguments = "".join([*(f", const V* {m}" for m in more), *(f", V* {o}" for o in outputs)])
        call = _call(f"{name}_code", self.symbols, list(more), list(outputs))
        head = f"static void {name}(ctx_t c, const V* x, const V* u, V t, const V* p{arguments})"
        return f"{code}{head}\n{{\n(void)p;\n{call}\n}}\n", room


_ALONG = """
static void dynamics_along_adapted(const void *self, const V *const *in, V *const *out, V *w)
{{
    (void)self;
    dynamics_along((ctx_t){{.w = w}}, in[0], in[1], *in[2], in[3], in[4], out[0], out[1]);
}}
static const directions_t dynamics_directions = {{{{dynamics_along_adapted, NULL}}, {numbers}}};
static void dynamics_partials(ctx_t c, const V *x, const V *u, V t, const V *p, V *f, V *fx, V *fu)
{{
    partials_along(&dynamics_directions, IN(x, u, &t, p), OUT(f, fx, fu), c.w);
}}
"""

FEW = 4
"""A row of fx is sparse if at most one entry in FEW is nonzero."""


def packed(first: Sequence[Any], rows: int) -> tuple[str, list[Any]]:
    """f, fx and fu (by rows) without the sparse rows of fx and fu: rows with few nonzero entries in fx and none in fu.

    The nonzero entries of these rows follow the other rows in fx.  The tables, if any, hold: the number of sparse rows and of their
    entries; indices of the full and the sparse rows; the first entry of each sparse row, and the columns of the entries.
    """
    f, fx, fu = first
    read, held = (_entries(M, rows) for M in (fx, fu))
    few = [i for i in range(rows) if FEW * len(read[i]) * rows <= fx.numel() and not held[i]]
    if not few:
        return "", [f, fx, fu]
    full = [i for i in range(rows) if i not in few]
    places = [(i, j) for i in few for j in read[i]]
    starts = itertools.accumulate((len(read[i]) for i in few), initial=0)
    tables = {"full_row": full, "few_row": few, "few_first": starts, "few_column": [j for _, j in places]}
    text = [f"#define FEW_ROWS {len(few)}", f"#define FEW_ENTRIES {len(places)}"]
    text += [f"static const int {name}[] = {{ {', '.join(map(str, own)) or '0'} }};" for name, own in tables.items()]
    n, m = (M.numel() // rows for M in (fx, fu))
    left = [fx[i * n + j] for i in full for j in range(n)], [fu[i * m + j] for i in full for j in range(m)]
    return "\n".join(text), [f, ca.vertcat(*left[0], *(fx[i * n + j] for i, j in places)), ca.vertcat(*left[1])]


def _entries(M: Any, rows: int) -> list[list[int]]:
    """Columns of the nonzero entries in each row of a matrix by rows."""
    n = M.numel() // rows
    return [[j for j in range(n) if not M[i * n + j].is_zero()] for i in range(rows)]


def _named(parts: Sequence[Any]) -> dict[str, Any]:
    """Value, first and second derivatives by their names in C, up to the given order."""
    return dict(zip(("f", "fx", "fu", "xx", "ux", "uu"), parts, strict=False))


def _columns(first: Partials) -> list[Any]:
    value = ca.vertcat(*first.value) if isinstance(first.value, list) else ca.SX(first.value)
    return [ca.densify(value), by_rows(first.fx), by_rows(first.fu)]


def by_rows(M: Sequence[Any]) -> Any:
    """Matrix, given by its rows, as one column, row after row."""
    return ca.vertcat(
        *[ca.densify(ca.vertcat(*row)) if isinstance(row, (list, tuple)) else ca.densify(ca.SX(row)) for row in M]
    )


def _call(function: str, symbols: Symbols, more: Sequence[str], outputs: Sequence[str]) -> str:
    offsets = [0]
    for value in symbols.p.values():
        offsets.append(offsets[-1] + value.numel())
    parameters = [f"p + {at}" for at in offsets[:-1]]
    return f"{function}({', '.join(['x', 'u', '&t', *parameters, *more, *outputs, 'c.w'])});"


def short_enough(what: str, t: Trace) -> Trace:
    """Return the trace. Raises TooLong."""
    require_short(what, len(t.operations))
    return t


def require_short(what: str, operations: int) -> None:
    """Raise TooLong for more operations than OPERATIONS_LIMIT."""
    if operations > OPERATIONS_LIMIT:
        raise TooLong(f"{what} takes {operations} operations; the limit is {OPERATIONS_LIMIT}")
