"""C functions of constraints and their derivatives, from their residuals traced on symbols.

    NAME_value(x, u, t, theta, g, w)   NAME_first(x, u, t, theta, g, gx, gu, w)   NAME_second(x, u, t, theta, y, hxx, hux, huu, w)

Derivatives are those in (dx, du) of g(x (+) dx, u + du), second ones those of y'g. The parameters of all constraints stand behind
each other in one vector theta per knot. Final ones do not read u.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynamics_backends.compiled.interface.sources import (
    Argument,
    chunked_function,
    symbolic_value,
    trace_expressions,
)
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint
from trajopt.stage.term_source import TermShape, TermSource, by_knot


def constraint_theta(constraints: Sequence[Constraint], knots: int) -> Array:
    """theta (knots, size): the parameters of each in order."""
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
    """Trace the residuals one below the other, their Jacobian, and the Hessian of y'g; of the functions above, those of ``orders``.

    Raises TooLong for constraints whose code would take too long to compile, TraceError for one that does not work on symbols.
    """
    import casadi as ca

    from dynamics_backends.compiled.interface.sources import short_enough

    n = manifold.ndx
    sizes = [size for c in constraints for _, size in c.parameters]
    x, u, t, theta = ca.SX.sym("x", manifold.nx), ca.SX.sym("u", nu), ca.SX.sym("t"), ca.SX.sym("theta", sum(sizes))
    dx = x if manifold.is_vector_space else ca.SX.sym("dx", n)
    moved = x if manifold.is_vector_space else manifold.integrate(x, dx)
    g = _stacked(constraints, moved, u, t, theta)
    y, w = ca.SX.sym("y", g.numel()), ca.vertcat(dx, u)
    inputs = {"x": x, "u": u, "t": t, "theta": theta} if running else {"x": x, "t": t, "theta": theta}
    J = ca.jacobian(g, w)
    first = {"g": g, "gx": J[:, :n], "gu": J[:, n:]} if running else {"g": g, "gx": J[:, :n]}
    functions = [(kind, inputs, results) for kind, results in (("value", {"g": g}), ("first", first)) if kind in orders]
    if "second" in orders:
        H = ca.hessian(ca.dot(y, g), w)[0]
        blocks = {"hxx": H[:n, :n], "hux": H[n:, :n], "huu": H[n:, n:]} if running else {"hxx": H[:n, :n]}
        functions.append(("second", inputs | {"y": y}, blocks))
    texts, room = [], 0
    for kind, of, results in functions:
        columns = [ca.reshape(e.T, -1, 1) for e in results.values()]  # by rows
        if not manifold.is_vector_space:
            columns = ca.substitute(columns, [dx], [ca.SX.zeros(n)])
        arguments = [Argument(key, s.numel()) for key, s in of.items()]
        traced = short_enough(f"the {name} constraints", trace_expressions(list(of.values()), columns))
        text, own = chunked_function(f"{name}_{kind}", traced, arguments, list(results))
        texts.append(text)
        room = max(room, own)
    return TermSource("\n".join(texts), sum(sizes), str(room))


def _stacked(constraints: Sequence[TermShape], x, u, t, theta):
    import casadi as ca

    rows: list[Any] = [ca.SX(0, 1)]
    at = 0
    for c in constraints:
        p = {}
        for key, size in c.parameters:
            p[key], at = theta[at : at + size], at + size
        rows.append(symbolic_value(c.residual, x[: c.residual.manifold.nx], u[: c.residual.nu], t, p))
    return ca.vertcat(*rows)
