"""Velocity at the end of a time step with contacts: the minimum of a convex function, by Newton's method.

    min over delta   1/2 delta' M delta - h delta' drive + sum_c h U_c(w_c + J_c delta)        delta = v+ - v

with drive = tau - bias [N, N m], the step h [s], and for each contact c the potential U_c of its force F_c = -dU_c/dw
(:class:`~dynamics_backends.systems.contact.contact_law.StepLaw`), evaluated at the velocity of its point at the end of the step.
At the minimum M delta = h (drive + sum_c J_c' F_c).

    r = M delta - h (drive + sum J' F),    H = M - h sum J' F_w J,    d = -H^-1 r,    delta <- delta + alpha d

H has the sparsity of M, since the columns of J_c lie on one branch: its factor costs no more than that of M.  alpha is 1 if the
slope phi'(alpha) = d' r(delta + alpha d) is not yet positive or small relative to phi'(0) = -d' H d, else a value between 0 and
1, the first with |phi'(alpha)| <= FLAT |phi'(0)|, or the last of TRIALS.  phi' and phi'' need the forces and F_w along
the step, but no factorization.  The step whose decrement d' H d is at most (ACCURACY)^2 E is the last, where E is an energy of
the motion and the drive: the error after it is quadratically small.  After STEPS steps the iterate is accepted as it is.

Decisions use real parts.  Numbers with derivatives take one more full step from the solution of their real parts, which
is the implicit function theorem.  Numbers with second derivatives (complex dual numbers) take two, since a step squares the
error: for perturbations i and e, their product.  C version of :func:`solved`:
dynamics_backends/compiled/templates/contact/stepped_solve.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.contact.contact_points import Columns
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.contact.contact_law import StepLaw

STEPS = 50
"""Maximum number of Newton steps, without those for derivatives; random states of a quadruped near the ground take 8, the worst
20.
"""
ACCURACY = 1e-8
"""Relative size of a Newton step, sqrt(d' H d / E), at or below which it is the last."""
FLAT = 0.3
"""A step length is accepted if the magnitude of the slope is at most this fraction of that at zero."""
TRIALS = 12
"""Maximum number of step lengths, with the first, 1, at which a line search evaluates the slope; the last result is not tested.
"""


class Arrival(NamedTuple):
    """Contact at the start of the step: Jacobian columns J of its point by DoF, gap [m], unit normal, velocity w [m/s] of the
    point.
    """

    J: Columns
    gap: Scalar
    normal: Vec
    velocity: Vec


class ContactProblem(NamedTuple):
    """Contact problem of one step.

    M[i][j]: lower triangle of the mass matrix. drive: joint forces minus bias forces, rows (nv, N). arrivals: the contacts. step
    [s]: length. parents: parent DoF of each DoF. p: run-time parameters of the law.
    """

    M: Any
    drive: Sequence[Scalar]
    arrivals: Sequence[Arrival]
    step: Scalar
    parents: Sequence[int]
    law: StepLaw
    p: Mapping[str, Rows]

    def real(self) -> ContactProblem:
        """Contact problem with all numbers replaced by their real parts."""
        n = range(len(self.drive))
        real = sm.real
        M = [[real(self.M[i][j]) for j in range(i + 1)] for i in n]
        arrivals = [
            Arrival({j: _real(x) for j, x in c.J.items()}, real(c.gap), _real(c.normal), _real(c.velocity))
            for c in self.arrivals
        ]
        p = {key: [real(value[i]) for i in range(len(value))] for key, value in self.p.items()}
        return self._replace(M=M, drive=[real(x) for x in self.drive], arrivals=arrivals, step=real(self.step), p=p)


class Direction(NamedTuple):
    """Newton direction: d by DoF, J d by contact (``along``), the decrement d' H d, and ``inertial`` = (a, b).

    a + b alpha is phi'(alpha), the slope of the objective along d, without the contact forces.
    """

    d: list[Scalar]
    along: list[Vec]
    decrement: Scalar
    inertial: tuple[Scalar, Scalar]


def velocities_after(m: ContactProblem, delta: Sequence[Scalar]) -> list[Vec]:
    """Velocities [m/s] of the contact points after a change delta (nv rows) of the joint velocities: w_c + J_c delta."""
    return [c.velocity + jacobian_product(c.J, delta) for c in m.arrivals]


def jacobian_product(J: Columns, delta: Sequence[Scalar]) -> Vec:
    """Product J delta of a contact's Jacobian, DoF -> column, and joint velocities."""
    return sum((column * delta[j] for j, column in J.items()), Vec(0.0, 0.0, 0.0))


def energy(m: ContactProblem, v: Sequence[Scalar]) -> Scalar:
    """Energy E that scales the accuracy: sum over i of M_ii v_i^2 + (h drive_i)^2 / M_ii; v: joint velocities at the start."""
    terms = [m.M[i][i] * v[i] * v[i] + (m.step * f) * (m.step * f) / m.M[i][i] for i, f in enumerate(m.drive)]
    return sum(terms[1:], terms[0])


def newton_factor(m: ContactProblem, slopes: Sequence[Mat]) -> ltl.Factor:
    """Factor of the Newton matrix H = M - h sum J' F_w J; slopes: the derivatives F_w of the forces, by contact."""
    H = [{j: m.M[i][j] for j in (i, *above)} for i, above in enumerate(ltl.ancestor_lists(m.parents))]
    for c, slope in zip(m.arrivals, slopes, strict=True):
        weighted = {j: slope @ column * m.step for j, column in c.J.items()}
        for i, column in c.J.items():
            for j in c.J:
                if j <= i:
                    H[i][j] = H[i][j] - column.dot(weighted[j])
    return ltl.factor(H, m.parents)


def direction(m: ContactProblem, delta: Sequence[Scalar], forces: Sequence[Vec], slopes: Sequence[Mat]) -> Direction:
    """Newton direction at the velocity change delta, from the forces and their derivatives F_w (slopes) there, by contact."""
    above = ltl.ancestor_lists(m.parents)
    still = [own - m.step * f for own, f in zip(_times(m.M, above, delta), m.drive, strict=True)]
    r = list(still)
    for c, force in zip(m.arrivals, forces, strict=True):
        impulse = force * m.step
        for j, column in c.J.items():
            r[j] = r[j] - column.dot(impulse)
    d = ltl.solve(newton_factor(m, slopes), [-x for x in r])
    inertial = _dot(d, still), _dot(d, _times(m.M, above, d))
    return Direction(d, [jacobian_product(c.J, d) for c in m.arrivals], -_dot(d, r), inertial)


def solved(m: ContactProblem, v: Sequence[Scalar]) -> list[Scalar]:
    """Change delta (nv rows) of the joint velocities in the step, by Newton's method.

    The velocities v (nv rows) at the start scale the accuracy. If the drive, a gap, v or a parameter is dual or complex,
    delta carries its derivatives, for which the derivatives of the forces at real numbers are enough. There is no error if STEPS
    steps are not enough.
    """
    plain = m.real()
    delta = _iterated(plain, [sm.real(x) for x in v])
    orders = max(map(_orders, (*m.drive, *(c.gap for c in m.arrivals), *v, *m.p.values())))
    for problem in [plain, plain, *[m] * orders] if orders else []:  # exact real numbers; then each step adds an order
        w = velocities_after(plain, [sm.real(x) for x in delta])
        found = [m.law.force_and_slopes(c.gap, c.normal, at, plain.p) for c, at in zip(plain.arrivals, w, strict=True)]
        w = velocities_after(problem, delta)
        forces = [m.law.force(c.gap, c.normal, at, problem.p) for c, at in zip(problem.arrivals, w, strict=True)]
        step = direction(problem, delta, forces, [slope.w for _, slope in found])
        delta = [x + d for x, d in zip(delta, step.d, strict=True)]
    return delta


def _iterated(m: ContactProblem, v: Sequence[Any]) -> list[Any]:
    """Solution delta of real numbers by at most STEPS Newton steps with line search, from zero; v: velocities at the start.

    An element of the batch no longer changes after a step of decrement d' H d <= ACCURACY^2 E, or one that is not finite.
    """
    delta = [0.0 * x for x in v]
    w, limit = velocities_after(m, delta), ACCURACY**2 * energy(m, v)
    arrived = np.zeros(np.shape(limit), dtype=bool)
    for _ in range(STEPS):
        found = [m.law.force_and_slopes(c.gap, c.normal, at, m.p) for c, at in zip(m.arrivals, w, strict=True)]
        step = direction(m, delta, [force for force, _ in found], [slope.w for _, slope in found])
        length = np.where(arrived, 0.0, _length(m, w, step, arrived))
        delta = [x + length * d for x, d in zip(delta, step.d, strict=True)]
        w = [at + along * length for at, along in zip(w, step.along, strict=True)]
        arrived = arrived | ~(step.decrement > limit)  # elements that are not finite do not delay the others
        if arrived.all():
            break
    return delta


def _length(m: ContactProblem, w: Sequence[Vec], step: Direction, settled: Any) -> Any:
    """Step length in (0, 1] with a small slope phi' of the objective along the step, by Newton's method with bisection.

    It is 1 if the slope there is not positive, or in magnitude at most FLAT of that at zero; else the first with such a
    magnitude, or the last after TRIALS. w: velocities of the points at length 0. settled: True for elements of the batch that
    keep the length 1.
    """
    length, lower, upper = (np.full(np.shape(step.decrement), x) for x in (1.0, 0.0, 1.0))
    for trial in range(TRIALS):
        slope, curvature = _slope(m, w, step, length)
        flat = ~(np.abs(slope) > FLAT * step.decrement)
        settled = settled | (flat | (slope <= 0.0) if trial == 0 else flat)
        if settled.all():
            break
        lower, upper = np.where(slope < 0.0, length, lower), np.where(slope < 0.0, upper, length)
        newton, middle = length - slope / curvature, 0.5 * (lower + upper)
        inside = (newton > lower) & (newton < upper)
        length = np.where(settled, length, np.where(inside, newton, middle))
    return length


def _slope(m: ContactProblem, w: Sequence[Vec], step: Direction, length: Any) -> tuple[Any, Any]:
    """Derivatives phi'(alpha) and phi''(alpha) of the objective along the step at the step length alpha = ``length``."""
    constant, inertia = step.inertial
    slope, curvature = constant + length * inertia, inertia
    for c, at, along in zip(m.arrivals, w, step.along, strict=True):
        force, d = m.law.force_and_slopes(c.gap, c.normal, at + along * length, m.p)
        slope, curvature = slope - m.step * along.dot(force), curvature - m.step * along.dot(d.w @ along)
    return slope, curvature


def _times(M: Any, above: Sequence[Sequence[int]], x: Sequence[Scalar]) -> list[Scalar]:
    """Product M x from the lower triangle of M, which is zero except for a DoF and its ancestors; above: the ancestors of each
    DoF.
    """
    y = [M[i][i] * x[i] for i in range(len(x))]
    for i, ancestors in enumerate(above):
        for j in ancestors:
            y[i], y[j] = y[i] + M[i][j] * x[j], y[j] + M[i][j] * x[i]
    return y


def _dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """Sum of the products of at least one pair of entries, without complex conjugation."""
    terms = [x * y for x, y in zip(a, b, strict=True)]
    return sum(terms[1:], terms[0])


def _real(x: Vec) -> Vec:
    """Vector of the real parts."""
    return Vec(sm.real(x.x), sm.real(x.y), sm.real(x.z))


def _orders(x: Any) -> int:
    """Order of the derivatives that a number carries: 0 if it is real, 1 if dual or complex, 2 if dual over complex numbers."""
    return int(hasattr(x, "val")) + int(np.iscomplexobj(getattr(x, "val", x)))
