"""Status messages of the shooting solvers."""

from __future__ import annotations

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array
from trajopt.lq.lq import LQProblem
from trajopt.problem.ocp import OCP
from trajopt.results.status import SOLVED, STATIONARY, Status, StatusCode
from trajopt.solvers.options import SLQOptions
from trajopt.stage.evaluation import Expansion

_ADVICE_SLOW = (
    "Increase max_iterations if the gradient is still decreasing; otherwise start from a better guess, or reduce the ratio "
    "between the largest and smallest weights. If the goal is out of reach, more iterations do not help."
)
_ADVICE_GUESS = "Start from a better guess, shorten dt or the horizon, or change the option shooting."


def converged(iterations: int, gradient: float, defect: float, o: SLQOptions) -> Status:
    """Gradient and defect tests."""
    tests = f"gradient {gradient:.1e} <= {o.gradient_tolerance:.1e}, defect {defect:.1e} <= {o.defect_tolerance:.1e}"
    return Status(StatusCode.CONVERGED, f"Converged after {iterations} iterations: {tests}.")


ENLARGED = 1e6
"""Gradient above which a converged status explains that the motion is unstable."""


def optimal(iterations: int, kkt: float, gradient: float, defect: float) -> Status:
    """The tests of a solver that measures optimality by the scaled KKT conditions."""
    tests = f"scaled KKT error {kkt:.1e}, gradient {gradient:.1e}, defect {defect:.1e}"
    why = "; the gradient is large in absolute terms but small compared with its summands: the motion is unstable without feedback"
    return Status(
        StatusCode.CONVERGED,
        f"Converged after {iterations} iterations: {tests}{why if gradient > ENLARGED else ''}.",
        kkt=kkt,
    )


def cost_converged(iterations: int, change: float, o: SLQOptions, kkt: float | None = None) -> Status:
    """The test of the relative improvement; the message names a scaled KKT error that is too large for success."""
    test = f"relative cost decrease {change:.1e} < cost_tolerance {o.cost_tolerance:.1e}"
    far = kkt is not None and kkt > STATIONARY
    error = f"; not yet optimal: scaled KKT error {kkt:.1e}, tolerance {STATIONARY:.0e}" if far else ""
    advice = "Lower cost_tolerance to continue." if far else ""
    message = f"Stopped after {iterations} iterations: {test}{error}."
    return Status(StatusCode.COST_CONVERGED, message, advice=advice, kkt=kkt)


def precision_limit(gradient: float, defect: float, o: SLQOptions, kkt: float | None = None) -> Status:
    """Nothing more to be gained in double precision; an optimum where the scaled measure is small."""
    solved = kkt is not None and kkt <= SOLVED
    told = "" if kkt is None else f" (scaled KKT error {kkt:.1e})"
    return Status(
        StatusCode.PRECISION_LIMIT,
        f"Double precision allows no further progress: {_distance(gradient, defect, o)}{told}.",
        advice=""
        if solved
        else "Increase the tolerance, or scale the cost; finite differences may limit the precision.",
        kkt=kkt,
    )


def max_iterations(gradient: float, defect: float, o: SLQOptions, kkt: float | None = None) -> Status:
    """The iteration limit."""
    message = f"Stopped at max_iterations = {o.max_iterations}: {_distance(gradient, defect, o)}."
    return Status(StatusCode.MAX_ITERATIONS, message, advice=_ADVICE_SLOW, kkt=kkt)


def time_limit(iterations: int, gradient: float, defect: float, o: SLQOptions) -> Status:
    """The time limit."""
    message = (
        f"Stopped at time_limit = {o.time_limit} s after {iterations} iterations: {_distance(gradient, defect, o)}."
    )
    return Status(StatusCode.TIME_LIMIT, message, advice="Increase time_limit or start from a better guess.")


def not_begun() -> Status:
    """Ctrl-C before a problem of a batch had its turn."""
    return Status(StatusCode.INTERRUPTED, "Interrupted before this problem started; it has no trajectory.")


def interrupted(iterations: int) -> Status:
    """Ctrl-C; before the first step there is only the initial guess."""
    if iterations == 0:
        return Status(StatusCode.INTERRUPTED, "Interrupted before the first step; returning the initial guess.")
    return Status(StatusCode.INTERRUPTED, f"Interrupted in iteration {iterations}; returning the best iterate.")


UNSTABLE = 2.0
"""A step whose Jacobian stretches some direction of its own by more than this multiplies errors from knot to knot."""


def line_search_failed(iterations: int, gradient: float, o: SLQOptions, ocp: OCP, lq: LQProblem) -> Status:
    """No step length was accepted; the integration is blamed where it is unstable."""
    if (unstable := unstable_step(ocp, lq)) is not None:
        return unstable
    return Status(
        StatusCode.LINE_SEARCH_FAILED,
        f"No step length was accepted in iteration {iterations} up to mu = {o.max_regularization:.0e}; "
        f"the gradient is {gradient:.1e}.",
        advice="Check the derivatives (trajopt check); " + _ADVICE_GUESS[0].lower() + _ADVICE_GUESS[1:],
    )


def adrift(iterations: int, defect: float) -> Status:
    """Linear gaps that do not close."""
    message = (
        f"Only short steps are accepted after {iterations} iterations, and the defects do not close: {defect:.1e}."
    )
    return Status(
        StatusCode.LINE_SEARCH_FAILED,
        message,
        advice="Try nonlinear gaps (solver = 'fddp'), or start from a better guess.",
    )


def unstable_step(ocp: OCP, lq: LQProblem) -> Status | None:
    """A verdict where the eigenvalues of a step say that its integration is unstable: the knot, the component, the factor.

    An explicit step that is too long for a damping turns the sign of a velocity and enlarges it: A has an eigenvalue below -1.
    """
    finite = np.isfinite(lq.A).all(axis=(1, 2))
    values = np.linalg.eigvals(np.where(finite[:, None, None], lq.A, 0.0))
    flipped = np.where(np.abs(values.imag) < 1e-9 * np.abs(values.real), -values.real, 0.0)
    knot = int(np.argmax(flipped.max(axis=1)))
    factor = float(flipped[knot].max())
    if factor <= UNSTABLE:
        return None
    pairs, vectors = np.linalg.eig(lq.A[knot])
    name = ocp.state_names[int(np.argmax(np.abs(vectors[:, int(np.argmin(pairs.real))])))]
    return Status(
        StatusCode.LINE_SEARCH_FAILED,
        f"The integration is unstable: the time step at knot {knot} multiplies {name} by -{factor:.3g}.",
        knot=knot,
        component=name,
        advice="Reduce dt, increase substeps, or use an integrator with implicit damping.",
    )


def not_positive_definite(knot: int, o: SLQOptions) -> Status:
    """Quu could not be factorized."""
    other = ", or use hessian = 'gauss_newton'" if o.hessian != "gauss_newton" else ""
    return Status(
        StatusCode.NOT_POSITIVE_DEFINITE,
        f"Quu is not positive definite at knot {knot}, even with mu = {o.max_regularization:.0e}.",
        knot=knot,
        advice=f"Use a positive weight on every control{other}.",
    )


def _distance(gradient: float, defect: float, o: SLQOptions) -> str:
    """Which tolerances are not met, with numbers; both numbers where the scaled measure alone is too large."""
    parts = []
    if gradient > o.gradient_tolerance:
        parts.append(f"gradient {gradient:.1e} > {o.gradient_tolerance:.1e}")
    if defect > o.defect_tolerance:
        parts.append(f"defect {defect:.1e} > {o.defect_tolerance:.1e}")
    return ", ".join(parts) or f"gradient {gradient:.1e}, defect {defect:.1e}"


# -- non-finite numbers -------------------------------------------------------------------------------------------------


def non_finite(ocp: OCP, xs: Array, e: Expansion) -> Status:
    """The first knot and component with NaN or infinity, in the order in which values are computed."""
    states, controls = ocp.state_names, ocp.control_names
    blocks = (
        (xs, "the state {}", (_coordinate_names(ocp.manifold),)),
        (e.x_next, "the step of {}", (_coordinate_names(ocp.manifold),)),
        (e.lq.A, "d {} / d {}", (states, states)),
        (e.lq.B, "d {} / d {}", (states, controls)),
        (e.lq.q, "the cost gradient of {}", (states,)),
        (e.lq.r, "the cost gradient of {}", (controls,)),
        (e.lq.Q, "the cost Hessian of {}, {}", (states, states)),
        (e.lq.R, "the cost Hessian of {}, {}", (controls, controls)),
    )
    found = [(*_first(block), i) for i, (block, _, _) in enumerate(blocks) if not np.isfinite(block).all()]
    if not found:
        return Status(StatusCode.NON_FINITE, "The cost is not finite.", advice=_ADVICE_GUESS)
    knot, entry, i = min(found, key=lambda f: (f[0], f[2]))
    names = [axis[j] for axis, j in zip(blocks[i][2], entry, strict=True)]
    component = blocks[i][1].format(*names)
    message = f"NaN or infinity, first at knot {knot} in {component}."
    return Status(StatusCode.NON_FINITE, message, knot=knot, component=component, advice=_ADVICE_GUESS)


def _first(block: Array) -> tuple[int, tuple[int, ...]]:
    knot, *entry = (int(i) for i in np.argwhere(~np.isfinite(block))[0])
    return knot, tuple(entry)


def _coordinate_names(manifold: Manifold) -> tuple[str, ...]:
    """A name for each of the nx numbers of a state; a quaternion's fourth takes the name of the third."""
    names: list[str] = []
    start = 0
    for group in manifold.groups:
        own = manifold.tangent_names[start : start + group.nv]
        names += [*own, *own[-1:] * (group.nq - group.nv)]
        start += group.nv
    return tuple(names)
