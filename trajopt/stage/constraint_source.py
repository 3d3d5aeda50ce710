"""C functions of constraints and their derivatives, from their residuals traced on symbols.

    NAME_value(x, u, t, theta, g, w)   NAME_first(x, u, t, theta, g, gx, gu, w)   NAME_second(x, u, t, theta, y, hxx, hux, huu, w)

The parameters of all constraints stand behind each other in one vector theta per knot. Final ones do not read u.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynamics_backends.compiled.interface.sources import Argument, chunked_function, trace_expressions
from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint
from trajopt.stage.term_source import TermShape, TermSource, by_knot


def constraint_theta(constraints: Sequence[Constraint], knots: int) -> Array:
    """theta (knots, size): the parameters of each in order."""
    return by_knot([v for c in constraints for v in c.parameters.values()], knots)


def constraint_source(name: str, constraints: Sequence[TermShape], nx: int, nu: int, *, running: bool) -> TermSource:
    """Trace the residuals one below the other, their Jacobian, and the Hessian of y'g."""
    import casadi as ca

    sizes = [size for c in constraints for _, size in c.parameters]
    x, u, t, theta = ca.SX.sym("x", nx), ca.SX.sym("u", nu), ca.SX.sym("t"), ca.SX.sym("theta", sum(sizes))
    g = _stacked(constraints, x, u, t, theta)
    y, w = ca.SX.sym("y", g.numel()), ca.vertcat(x, u)
    J, H = ca.jacobian(g, w), ca.hessian(ca.dot(y, g), w)[0]
    inputs = {"x": x, "u": u, "t": t, "theta": theta} if running else {"x": x, "t": t, "theta": theta}
    first = {"g": g, "gx": J[:, :nx], "gu": J[:, nx:]} if running else {"g": g, "gx": J[:, :nx]}
    second = {"hxx": H[:nx, :nx], "hux": H[nx:, :nx], "huu": H[nx:, nx:]} if running else {"hxx": H[:nx, :nx]}
    functions = (("value", inputs, {"g": g}), ("first", inputs, first), ("second", inputs | {"y": y}, second))
    texts, room = [], 0
    for kind, of, results in functions:
        by_rows = [ca.reshape(e.T, -1, 1) for e in results.values()]
        arguments = [Argument(key, s.numel()) for key, s in of.items()]
        traced = trace_expressions(list(of.values()), by_rows)
        text, own = chunked_function(f"{name}_{kind}", traced, arguments, list(results))
        texts.append(text)
        room = max(room, own)
    return TermSource("\n".join(texts), sum(sizes), room)


def _stacked(constraints: Sequence[TermShape], x, u, t, theta):
    import casadi as ca

    rows: list[Any] = [ca.SX(0, 1)]
    at = 0
    for c in constraints:
        p = {}
        for key, size in c.parameters:
            p[key], at = theta[at : at + size], at + size
        r = c.residual(x[: c.residual.manifold.nx], u[: c.residual.nu], t, p)
        rows.append(ca.vertcat(*r) if isinstance(r, list) else r)
    return ca.vertcat(*rows)
