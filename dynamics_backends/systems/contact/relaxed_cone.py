"""Contact law for long time steps: relaxed complementarity and Coulomb's cone, the force of a convex potential.

It is evaluated at the velocity w of a point at the end of a step of length h [s], from the gap g and the unit normal n at its
start. With c = n.w, w_t = w - c n, eta = sqrt(w_t.w_t + eps^2) and T = h + tau,

    y = g + T (c - mu (eta - eps)),     N = k/2 (S - y),  S = sqrt(y^2 + 4 kappa / k),     force = N (n - mu w_t / eta)

N > 0 solves N (y + N / k) = kappa: the force N and the relaxed gap y after the step, measured from a ground of stiffness k that N
deforms by N / k, are complementary up to kappa, the parameter of the central path.  Friction opposes the slip within its cone,
|f_t| = mu N |w_t| / eta < mu N; a point with the friction |f_t| = rho mu N creeps at the speed eps rho / sqrt(1 - rho^2).  The
force is -dU/dw for a convex U, U' = -N / T in y, which is concave in w, so that the implicit step
(:mod:`~dynamics_backends.systems.contact.implicit_step`) minimizes a convex function and has one solution.  The price of
convexity (M. Anitescu, Math. Program. 105, 2006): a sliding point floats T mu (eta - eps) higher, about T mu |w_t|.

tau adds the damping of a compliant ground with this time constant (as in A. Castro, F. Permenter, X. Han, IEEE T-RO 39, 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import IMPLICIT_STEP, Parameters
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.contact.contact_law import (
    Derivatives,
    StepLaw,
    diagonal,
    in_unit,
    parameter,
    require_positive,
    scaled,
)

_DISSIPATION = "contact_dissipation"


@dataclass(frozen=True)
class RelaxedCone(StepLaw):
    """Relaxed contact law for time steps with stiffness k [N/m], dissipation tau [s], friction mu, relaxation kappa [J], creep
    eps [m/s].

    HyQ stands with 4 mm of penetration under the defaults. Each may be given at run time as the parameter contact_stiffness,
    contact_dissipation, contact_friction, contact_relaxation, contact_creep (1): a solution with a large relaxation and creep is
    a smooth start for one with small ones. Raises ValueError for a stiffness, relaxation or creep that is not positive, or a
    negative dissipation or friction.
    """

    stiffness: float = in_unit(5e4, (1, 0, -2))
    dissipation: float = in_unit(0.01, (0, 0, 1))
    friction: float = in_unit(0.7, (0, 0, 0))
    relaxation: float = in_unit(0.05, (1, 2, -2))
    creep: float = in_unit(0.02, (0, 1, -1))

    def __post_init__(self) -> None:
        require_positive(self, "stiffness", "relaxation", "creep")
        require_positive(self, "dissipation", "friction", or_zero=True)

    def force(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> Vec:
        """Force [N] on the point during the step, from the gap g at its start and the velocity w at its end."""
        mu, eps = parameter(p, "contact_friction", self.friction), parameter(p, "contact_creep", self.creep)
        c = n.dot(w)
        wt = w - n * c
        size = sm.sqrt(wt.dot(wt) + eps * eps)
        return (n - wt * (mu / size)) * self._normal(g + self._time(p) * (c - mu * (size - eps)), p)[0]

    def force_and_slopes(self, g: Scalar, n: Vec, w: Vec, p: Mapping[str, Rows]) -> tuple[Vec, Derivatives]:
        """Force [N] and its first derivatives in the gap g, the normal n and the velocity w."""
        mu, eps = parameter(p, "contact_friction", self.friction), parameter(p, "contact_creep", self.creep)
        T = self._time(p)
        c = n.dot(w)
        wt = w - n * c
        inverse = 1.0 / sm.sqrt(wt.dot(wt) + eps * eps)
        slip = wt * inverse
        N, fall = self._normal(g + T * (c - mu * (1.0 / inverse - eps)), p)
        along, grip = n - slip * mu, N * mu * inverse
        turned = diagonal(N + grip * c) + n.outer(w * grip) - slip.outer(slip * (grip * c))
        in_n = along.outer((w + slip * (mu * c)) * (fall * T)) + turned
        in_w = along.outer(along * (fall * T)) + n.outer(n * grip) + slip.outer(slip * grip)
        return along * N, Derivatives(along * fall, in_n, in_w + scaled(diagonal(grip), -1.0))

    def slower(self, time: float, p: Parameters) -> tuple[RelaxedCone, Parameters]:
        """Law and parameters with the same forces in steps shorter by ``time`` [s].

        The dissipation time is larger by ``time``: in a copy of p if p has contact_dissipation, else in a copy of the law.
        """
        if _DISSIPATION in p:
            return self, {**p, _DISSIPATION: p[_DISSIPATION] + time}
        return replace(self, dissipation=self.dissipation + time), p

    def _time(self, p: Mapping[str, Rows]) -> Scalar:
        """Time T = h + tau [s]: step length (zero if p has none) plus dissipation time (from p, or the law's)."""
        return parameter(p, IMPLICIT_STEP, 0.0) + parameter(p, _DISSIPATION, self.dissipation)

    def _normal(self, y: Scalar, p: Mapping[str, Rows]) -> tuple[Scalar, Scalar]:
        """Normal force N = k/2 (S - y) [N] at the relaxed gap y, without cancellation, and its derivative in y."""
        k = parameter(p, "contact_stiffness", self.stiffness)
        kappa = parameter(p, "contact_relaxation", self.relaxation)
        S = sm.sqrt(y * y + 4.0 * kappa / k)
        size = sm.select(y, y, -y)
        N = sm.select(y, 2.0 * kappa / (S + size), 0.5 * k * (S + size))
        return N, -N / S
