"""Options of the shooting solvers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

GAPS = ("linear", "nonlinear")
HESSIANS = ("gauss_newton", "exact")
REGULARISATIONS = ("control", "state")


@dataclass(frozen=True)
class SLQOptions:
    """Options of :func:`trajopt.slq.slq`; checked at construction (ValueError), unknown names are a TypeError.

    shooting: "single", "all", or an int K: a node, where the state is a variable of its own, every K knots. With
    "all" the states of the guess count, and all knots are stepped as one batch; with "single" only its controls do.
    gaps: how the defects at the nodes are closed: "linear", the nodes move by the linear step and the parts between
    them are rolled out side by side (Giftthaler 2018); "nonlinear", one roll-out in which each gap shrinks by 1 -
    alpha (Mastalli 2020). hessian: of the cost: "gauss_newton" or "exact".

    max_iterations; time_limit: [s] or None.
    gradient_tolerance: on the largest entry of the projected reduced gradient. defect_tolerance: on the largest gap.
    cost_tolerance: on the relative improvement of the cost in an accepted step; 0 switches the test off.

    regularise: mu on the diagonal of Quu ("control") or of V'xx ("state"; Tassa 2012, eq. 10).
    initial_regularisation, min_regularisation, max_regularisation: mu; below the minimum it is zero.
    regularisation_factor: delta_0 of the schedule of Tassa 2012, section II-F.
    accept_ratio: an accepted step realises at least this share of the expected decrease of the merit.
    max_backtracks: step lengths are 1, 1/2, ..., 2^-max_backtracks.
    penalty: initial weight of the l1 norm of the defects in the merit; raised where needed.
    """

    shooting: int | Literal["single", "all"] = "all"
    gaps: Literal["linear", "nonlinear"] = "linear"
    hessian: Literal["gauss_newton", "exact"] = "gauss_newton"
    max_iterations: int = 200
    time_limit: float | None = None
    gradient_tolerance: float = 1e-7
    defect_tolerance: float = 1e-9
    cost_tolerance: float = 0.0
    regularise: Literal["control", "state"] = "control"
    initial_regularisation: float = 0.0
    min_regularisation: float = 1e-8
    max_regularisation: float = 1e10
    regularisation_factor: float = 2.0
    accept_ratio: float = 0.1
    max_backtracks: int = 10
    penalty: float = 0.0

    def __post_init__(self) -> None:
        nodes = self.shooting
        whole = isinstance(nodes, int) and not isinstance(nodes, bool) and nodes >= 1
        _require(whole or nodes in ("single", "all"), "shooting", nodes, "'single', 'all' or an integer of at least 1")
        for key, known in (("gaps", GAPS), ("hessian", HESSIANS), ("regularise", REGULARISATIONS)):
            value = getattr(self, key)
            _require(value in known, key, value, " or ".join(map(repr, known)))
        for key in ("max_iterations", "max_backtracks"):
            value = getattr(self, key)
            _require(isinstance(value, int) and value >= 0, key, value, "an integer of at least 0")
        for key in ("gradient_tolerance", "defect_tolerance", "min_regularisation", "max_regularisation"):
            _require(_number(value := getattr(self, key)) and value > 0, key, value, "a positive number")
        for key in ("cost_tolerance", "initial_regularisation", "penalty"):
            _require(_number(value := getattr(self, key)) and value >= 0, key, value, "a number of at least 0")
        limit = self.time_limit
        _require(limit is None or (_number(limit) and limit > 0), "time_limit", limit, "None or a positive number")
        _require(
            _number(self.accept_ratio) and 0 < self.accept_ratio < 1, "accept_ratio", self.accept_ratio, "in (0, 1)"
        )
        factor = self.regularisation_factor
        _require(_number(factor) and factor > 1, "regularisation_factor", factor, "a number above 1")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _require(condition: bool, key: str, value: object, expected: str) -> None:
    if not condition:
        raise ValueError(f"{key} = {value!r}; expected {expected}")
