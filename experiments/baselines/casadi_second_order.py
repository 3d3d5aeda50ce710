"""CasADi's AD of dynamics: first derivatives of values, second derivatives of closed-form first ones (Singh 2023, sec. V-B)."""

from __future__ import annotations

from typing import Any

from dynamics_backends.deferred import deferred
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from experiments.baselines.generated_code import matrix

ca = deferred("casadi")
VALUES = {"ID": rnea, "FD": aba}
FIRST = {"ID": rnea_derivatives, "FD": fd_derivatives}


def first_order_function(model: Model, kind: str) -> Any:
    """Return casadi.Function x = (q, v, a or tau) -> derivatives of tau or a in x, a dense matrix."""
    n = model.nv
    x = ca.SX.sym("x", 3 * n)
    value = VALUES[kind](model, x[:n], x[n : 2 * n], x[2 * n :])
    return ca.Function("first_order", [x], [ca.densify(ca.jacobian(value, x))])


def second_order_function(model: Model, kind: str) -> Any:
    """Return casadi.Function x = (q, v, a or tau) -> derivatives in x of the first derivatives in q and v, a dense matrix."""
    n = model.nv
    x = ca.SX.sym("x", 3 * n)
    blocks = FIRST[kind](model, x[:n], x[n : 2 * n], x[2 * n :])[1:3]
    entries = ca.vertcat(*(ca.vec(matrix(b)) for b in blocks))
    return ca.Function("second_order", [x], [ca.densify(ca.jacobian(entries, x))])
