"""Functions of constraints and their derivatives, from their residuals traced on symbols.

    NAME_value(x, u, t, theta, g, w)   NAME_first(x, u, t, theta, g, gx, gu, w)   NAME_second(x, u, t, theta, y, hxx, hux, huu, w)

Derivatives are in (dx, du) of g(x (+) dx, u + du); second derivatives are of y'g. First derivatives are analytic where the
residual defines them, second ones where it defines both, else CasADi's. w: workspace. A vector theta per knot concatenates the
parameters of all constraints. Final constraints do not read u.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dynamics_backends.compiled.emit.emit import Argument, TracedFunction
from dynamics_backends.compiled.sources.traced_source import short_enough
from dynamics_backends.manifold import Manifold
from dynamics_backends.methods.symbolic_map import symbolic_value
from dynamics_backends.protocol import Array, HasContraction, HasPartials
from dynamics_backends.symbols import preserved_calls
from dynamics_backends.trace import trace_expressions
from trajopt.problem.constraints import Constraint
from trajopt.stage.source.term_source import TermShape, TermSource, analytic_partials, by_knot, embed_hessian


def constraint_theta(constraints: Sequence[Constraint], knots: int) -> Array:
    """Return the parameters of all constraints in order, concatenated at each knot (knots, size)."""
    return by_knot([v for c in constraints for v in c.parameters.values()], knots)


def constraint_source(
    name: str,
    constraints: Sequence[TermShape],
    manifold: Manifold,
    nu: int,
    *,
    running: bool,
    orders: Sequence[str] = ("value", "first", "second"),
) -> TermSource:
    """Return traced functions of the stacked constraints: values, first and second derivatives; orders: the functions to trace.

    name: prefix of the function names. running: False for the final knot: no controls, and no derivatives in them. Without
    constraints there are no functions. Raises TooLong if the code would take too long to compile, TraceError for a residual that
    cannot be traced.
    """
    import casadi as ca

    if not constraints:
        return TermSource([])
    sizes, n = [sum(size for _, size in c.parameters) for c in constraints], manifold.ndx
    x, u, t, theta = ca.SX.sym("x", manifold.nx), ca.SX.sym("u", nu), ca.SX.sym("t"), ca.SX.sym("theta", sum(sizes))
    dx = x if manifold.is_flat else ca.SX.sym("dx", n)
    moved, w = x if manifold.is_flat else manifold.integrate(x, dx), ca.vertcat(dx, u)
    named = [c.named(theta, sum(sizes[:i])) for i, c in enumerate(constraints)]
    shapes = [(c, p, _value(c, moved, u, t, p)) for c, p in zip(constraints, named, strict=True)]
    y = ca.SX.sym("y", sum(value.numel() for *_, value in shapes))
    inputs = {"x": x, "u": u, "t": t, "theta": theta} if running else {"x": x, "t": t, "theta": theta}
    functions: dict[str, tuple[dict, dict]] = {}
    if "value" in orders:
        functions["value"] = inputs, {"g": ca.vertcat(ca.SX(0, 1), *(value for *_, value in shapes))}
    if "first" in orders:
        values, jacobians = zip(*(_first(c, x, u, t, p, value, w) for c, p, value in shapes), strict=True)
        J = ca.vertcat(ca.SX(0, w.numel()), *jacobians)
        functions["first"] = inputs, {"g": ca.vertcat(ca.SX(0, 1), *values), "gx": J[:, :n], "gu": J[:, n:]}
    if "second" in orders:
        H = _hessian(shapes, x, u, t, y, w)
        functions["second"] = inputs | {"y": y}, {"hxx": H[:n, :n], "hux": H[n:, :n], "huu": H[n:, n:]}
    traced = []
    for kind, (symbols, result) in functions.items():
        results = {key: e for key, e in result.items() if running or key not in ("gu", "hux", "huu")}
        columns = [ca.reshape(e.T, -1, 1) for e in results.values()]  # by rows
        if not manifold.is_flat:
            columns = ca.substitute(columns, [dx], [ca.SX.zeros(n)])
        arguments = [Argument(key, s.numel()) for key, s in symbols.items()]
        trace = short_enough(f"the {name} constraints", trace_expressions(list(symbols.values()), columns))
        traced.append(TracedFunction(f"{name}_{kind}", trace, arguments, list(results)))
    return TermSource(traced)


def _value(c: TermShape, x, u, t, p):
    """Return the symbolic value of the residual of a constraint, which may read fewer states and controls than the stage has."""
    with _calls(c):
        return symbolic_value(c.residual, x[: c.residual.manifold.nx], u[: c.residual.nu], t, p)


def _first(c: TermShape, x, u, t, p, value, w):
    """Return the value of a residual and its Jacobian (nr, n + nu): its analytic partials at x, or CasADi's derivatives in w."""
    import casadi as ca

    if not isinstance(c.residual, HasPartials):
        return value, ca.jacobian(value, w)
    with _calls(c):
        return analytic_partials(c.residual, x, u, t, p, w.numel() - u.numel())


def _writes_out(residual: Any) -> bool:
    """True if a residual defines both its first and its second derivatives analytically."""
    return isinstance(residual, HasPartials) and isinstance(residual, HasContraction)


def _calls(c: TermShape) -> AbstractContextManager[None]:
    """Return a context for tracing a residual: its function calls are not inlined if it defines both derivatives analytically."""
    return preserved_calls() if _writes_out(c.residual) else nullcontext()


def _hessian(shapes, x, u, t, y, w):
    """Return the Hessian of y'g in w: analytic contractions where residuals define both derivatives, CasADi's for the others.

    shapes: (constraint, parameters, value) of each.
    """
    import casadi as ca

    n, rest, at = w.numel() - u.numel(), ca.SX(0), 0
    H = ca.SX(w.numel(), w.numel())
    for c, p, value in shapes:
        own, at = y[at : at + c.residual.n_out], at + c.residual.n_out
        residual: Any = c.residual
        if not _writes_out(residual):
            rest += ca.dot(own, value)
            continue
        with _calls(c):
            _, result = residual.contracted(x[: residual.manifold.nx], u[: residual.nu], t, p, own)
        H += embed_hessian(result, residual, w.numel(), n)
    return H + ca.hessian(rest, w)[0]
