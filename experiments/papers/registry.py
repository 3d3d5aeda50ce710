"""Registry of experiments by name; modules are imported on demand."""

from __future__ import annotations

import importlib

from dynamics_backends.names import unknown_name
from experiments.papers.study import Study

PAPERS = {
    "kudruss_2019": {
        "derivative-accuracy": "errors of derivatives on both cart-pendulums (Kudruss 2019, fig. 1)",
        "directions-cost": "cost of derivatives over the number of directions (Kudruss 2019, fig. 2)",
        "lifting-convergence": "SQP on the lifting problem with exact and finite-difference derivatives (Kudruss 2019, fig. 3)",
    },
    "singh_2023": {
        "second-order-growth": "time of second derivatives over the number of bodies (Singh 2023, fig. 7, 8, 16-18, table III)",
        "second-order-robots": "time of second derivatives of robots, compared with AD (Singh 2023, fig. 10, 19)",
        "second-order-errors": "errors of second derivatives over the number of bodies (Singh 2023, fig. 11, 12, 20)",
        "difference-steps": "step sizes of differences for second derivatives (Singh 2023, fig. 21-23)",
        "tensor-products": "products of tensors and matrices, compared with recursions, AVX on and off (Singh 2023, fig. 14, 15)",
        "code-size": "size of generated code for second derivatives (Singh 2023, fig. 9)",
    },
    "astudillo_2021": {
        "operation-counts": "operations of dynamics and their Jacobians (Astudillo 2021, table 1, S1)",
        "jacobian-times": "times of dynamics and their Jacobians by AD and in closed form (Astudillo 2021, fig. 1)",
        "hessian-times": "Hessians of weighted dynamics by AD and in closed form (Astudillo 2021, table 2)",
        "contour-times": "contour following with AD and with closed derivatives (Astudillo 2021, fig. 2)",
    },
    "giftthaler_2017": {
        "torque-derivative": "derivative of HyQ's accelerations in the torques by five methods (Giftthaler 2017, fig. 1)",
        "derivative-modes": "HyQ's derivatives by differences, forward and reverse AD (Giftthaler 2017, fig. 2, eq. 12-15)",
        "slq-gaits": "SLQ on HyQ's trot and gallop with numeric, automatic and closed-form derivatives (Giftthaler 2017, fig. 3)",
        "replanning-times": "planning and replanning of an arm by multiple shooting (Giftthaler 2017, fig. 5)",
        "avoiding-arm": "images of an arm that avoids a moving sphere (Giftthaler 2017, fig. 6)",
    },
    "beyond": {
        "solver-matrix": "iterations and time over derivatives, solvers and engines on six problems",
        "local-convergence": "orders of convergence of DDP, SLQ and SQP near a solution",
        "second-order-price": "cost of second order: first order with contraction, relative to first order",
        "peers": "derivatives and solves compared with other libraries, one thread each",
    },
}
"""Folder -> name -> description. Each module is named after its experiment and has SOURCE and ``run(quick)``."""
STUDIES = {name: what for named in PAPERS.values() for name, what in named.items()}
"""Name -> description of all experiments, in order."""


def study(name: str) -> Study:
    """Return the experiment of a name. Raises UnknownName."""
    if name not in STUDIES:
        raise unknown_name("experiment", name, STUDIES)
    folder = next(folder for folder, named in PAPERS.items() if name in named)
    module = importlib.import_module(f"experiments.papers.{folder}.{name.replace('-', '_')}")
    title = STUDIES[name].partition(" (")[0]
    return Study(name, title[0].upper() + title[1:], module.SOURCE, module.run)
