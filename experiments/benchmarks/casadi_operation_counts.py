"""Operations of forward and inverse dynamics and their derivatives as expression graphs, beside those of Astudillo et
al. (2021).

    python -m experiments.casadi_operation_counts [ROBOT ...]

J: the Jacobian in (q, v, tau) or (q, v, a), by CasADi's reverse AD of the value ("AD") or in closed form ("analytic").
H: the Hessian of lambda' FD or lambda' ID in the same arguments (the paper does not say in which), by AD of the AD
gradient or of the closed-form one, lambda' J.  Every arithmetic operation and elementary function counts as one after
removal of common subexpressions; the numbers of the URDF are taken as they are.  ``--snap`` makes rotations within 1e-4
of a quarter turn exact.
"""

from __future__ import annotations

import argparse
from typing import Any

import casadi as ca

from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.model.model import Model
from experiments.baselines.casadi_functions import forward_dynamics_function, inverse_dynamics_function
from problems.robots import load_robot

PUBLISHED = {  # Astudillo, Gillis, Pipeleers, Swevers 2021, table S1; Hessians of Gen3: table 2
    "iiwa7": {"FD": 2675, "J_FD AD": 33160, "J_FD analytic": 11874, "ID": 1150, "J_ID AD": 9472, "J_ID analytic": 7739},
    "gen3": {
        **{"FD": 3424, "J_FD AD": 40051, "J_FD analytic": 14565, "ID": 1492, "J_ID AD": 11955, "J_ID analytic": 9426},
        **{"H_FD AD": 84888, "H_FD analytic": 135390, "H_ID AD": 30770, "H_ID analytic": 77683},
    },
}
KINDS = {"FD": (aba, forward_dynamics_function), "ID": (rnea, inverse_dynamics_function)}


def operations(symbols: list[Any], *expressions: Any) -> int:
    """Operations of SX expressions of SX columns."""
    return sum(trace_expressions(symbols, expressions).count().values())


def counts(model: Model) -> dict[str, int]:
    """Operation counts by the names used in PUBLISHED."""
    table = {}
    arguments = [ca.SX.sym("q", model.nq), ca.SX.sym("v", model.nv), ca.SX.sym("input", model.nv)]
    weights, w = ca.SX.sym("lambda", model.nv), ca.vertcat(*arguments)
    for kind, (algorithm, function) in KINDS.items():
        value = algorithm(model, *arguments)
        blocks = function(model).jacobian().call([*arguments, ca.SX(model.nv, 1)], True)
        table[kind] = operations(arguments, value)
        table[f"J_{kind} AD"] = operations(arguments, ca.jacobian(value, w))
        table[f"J_{kind} analytic"] = operations(arguments, *blocks)
        gradients = {"AD": ca.gradient(ca.dot(weights, value), w), "analytic": ca.horzcat(*blocks).T @ weights}
        for how, gradient in gradients.items():
            table[f"H_{kind} {how}"] = operations([*arguments, weights], ca.jacobian(gradient, w))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description="operation counts of forward and inverse dynamics and their derivatives"
    )
    parser.add_argument("robots", nargs="*", default=["iiwa7", "gen3"], help="bundled robots, or erd:NAME")
    parser.add_argument("--snap", action="store_true", help="make rotations near a quarter turn exact")
    options = parser.parse_args()
    print(f"{'robot':8} {'function':14} {'here':>8} {'published':>10} {'ratio':>6}")
    for robot in options.robots:
        published = PUBLISHED.get(robot, {})
        for name, count in counts(load_robot(robot, snap=options.snap)).items():
            reference = published.get(name)
            ratio = f"{reference:10d} {count / reference:6.2f}" if reference else f"{'-':>10}"
            print(f"{robot:8} {name:14} {count:8d} {ratio}")


if __name__ == "__main__":
    main()
