"""C functions of cost terms and their expansions, from their residuals traced on symbols.

The weights and parameters of all terms of a stage stand behind each other in one vector theta per knot, so that a changed
reference, weight or goal is a changed input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from dynamics_backends.compiled.emit import Argument, chunked_function
from dynamics_backends.compiled.trace import trace_expressions
from dynamics_backends.protocol import Array
from trajopt.terms import CostTerm


@dataclass(frozen=True)
class TermSource:
    """C source of NAME_value and NAME_expand, the length of theta, and the workspace in vectors."""

    source: str
    theta: int
    room: int


def theta_of(terms: Sequence[CostTerm], knots: int) -> Array:
    """theta (knots, size) of some terms: for each its weight, then its parameters in order."""
    parts = [np.broadcast_to(values, (knots, values.shape[-1])) for term in terms for values in _values(term)]
    return np.ascontiguousarray(np.concatenate(parts, axis=1)) if parts else np.zeros((knots, 0))


def _values(term: CostTerm) -> list[Array]:
    return [np.asarray(term.weight), *(np.asarray(p) for p in term.parameters.values())]


def term_source(name: str, terms: Sequence[CostTerm], nx: int, nu: int, *, running: bool, hessian: str) -> TermSource:
    """Trace the sum of terms and its expansion; running terms are scaled by dt and read controls."""
    x, u, t, dt = ca.SX.sym("x", nx), ca.SX.sym("u", nu), ca.SX.sym("t"), ca.SX.sym("dt")
    theta = ca.SX.sym("theta", sum(v.shape[-1] for term in terms for v in _values(term)))
    scale = dt if running else ca.SX(1)
    total, gradient, curvature = _sum_of(terms, x, u, t, theta, scale, hessian)
    inputs = [x, u, t, dt, theta] if running else [x, t, theta]
    names = ["x", "u", "t", "dt", "theta"] if running else ["x", "t", "theta"]
    arguments = [Argument(n, s.numel()) for n, s in zip(names, inputs, strict=True)]
    expansion = [total, gradient[:nx], gradient[nx:], curvature[:nx, :nx], curvature[nx:, :nx], curvature[nx:, nx:]]
    outputs = ["l", "lx", "lu", "lxx", "lux", "luu"]
    if not running:
        expansion, outputs = [expansion[i] for i in (0, 1, 3)], ["l", "lx", "lxx"]
    columns = [ca.reshape(e.T, -1, 1) for e in expansion]  # matrices by rows
    value, room_value = chunked_function(f"{name}_value", trace_expressions(inputs, [total]), arguments, ["l"])
    expand, room_expand = chunked_function(f"{name}_expand", trace_expressions(inputs, columns), arguments, outputs)
    return TermSource(value + expand, theta.numel(), max(room_value, room_expand))


def _sum_of(terms, x, u, t, theta, scale, hessian):
    """Value, gradient and Hessian in w = (x, u) of the sum of terms."""
    w = ca.vertcat(x, u)
    n = w.numel()
    total, gradient, curvature = ca.SX(0), ca.SX(n, 1), ca.SX(n, n)
    at = 0
    for term in terms:
        residual = term.residual
        weight, at = theta[at : at + residual.n_out], at + residual.n_out
        p = {}
        for key, value in term.parameters.items():
            p[key], at = theta[at : at + value.shape[-1]], at + value.shape[-1]
        r = residual(x[: residual.manifold.nx], u[: residual.nu], t, p)
        r = ca.vertcat(*r) if isinstance(r, list) else r
        value = 0.5 * scale * ca.dot(weight, r * r)
        J = ca.jacobian(r, w)
        JW = J.T * ca.repmat((scale * weight).T, n, 1)
        total += value
        gradient += ca.mtimes(JW, r)
        curvature += ca.mtimes(JW, J) if hessian == "gauss_newton" else ca.hessian(value, w)[0]
    return total, gradient, curvature
