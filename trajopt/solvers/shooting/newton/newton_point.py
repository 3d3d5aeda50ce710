"""What Newton's loop is made of: a point with its errors, a step that was found, and the Hessians between two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem, LQStep, Policy, Stationarity
from trajopt.problem.ocp import OCP
from trajopt.solvers.options import SLQOptions
from trajopt.stage.evaluation import Expansion


def filtered(ocp: OCP, o: SLQOptions) -> bool:
    """Whether the options ask for this loop, and the bounds have an interior."""
    open_bounds = ocp.control_bounds is None or bool((ocp.control_bounds[0] < ocp.control_bounds[1]).all())
    return o.globalization == "filter" and o.shooting == "all" and o.gaps == "linear" and open_bounds


class Point(NamedTuple):
    """A trajectory with its expansion (with the exact Hessian of the cost, where that counts), optimality and errors.

    gradient: largest entry of the Lagrangian's in the controls; defect, theta: largest gap, l1 norm of all; kkt: scaled measure.
    """

    xs: Array
    us: Array
    expansion: Expansion
    optimality: Stationarity
    gradient: float
    defect: float
    theta: float
    kkt: float

    @property
    def cost(self) -> float:
        """The cost."""
        return self.expansion.cost


class Found(NamedTuple):
    """A step with its policy and slope D1, delta and share of its Hessian; the candidate accepted, alpha, and its theta and phi."""

    policy: Policy
    linear: LQStep
    slope: float
    delta: float
    share: float
    xs: Array
    us: Array
    alpha: float
    expected: float
    actual: float
    theta: float
    phi: float

    def merit(self, at: Point) -> float:
        """phi + |lambda| theta with the multipliers at a point, by which steps are compared: exact where none is larger."""
        return self.phi + float(np.abs(at.optimality.costates).max()) * self.theta


def name(share: float | None) -> str:
    """How the record calls a share of the curvature; None: of no step."""
    if share is None or share == 1.0:
        return "newton"
    return "gauss_newton" if share == 0.0 else "mixed"


def size(cost: float) -> float:
    """What errors in the unit of the cost are compared with."""
    return max(abs(cost), float(np.finfo(float).tiny))


def damped(lq: LQProblem, delta: float) -> LQProblem:
    """With delta I in the states and the controls."""
    if delta == 0.0:
        return lq
    return lq._replace(Q=lq.Q + delta * np.eye(lq.Q.shape[1]), R=lq.R + delta * np.eye(lq.R.shape[1]))
