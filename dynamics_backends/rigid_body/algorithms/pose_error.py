"""Logarithm of the pose of a frame A relative to a frame B, as a motion in world axes, with its derivatives.

    e = X_A log6(B^-1 A)        about the working origin; e = 0 if the frames coincide

A DoF j with the axis S_j moves A (alpha_j = 1 or 0), B (beta_j) or both; r = alpha - beta.  With L = dexp^-1(e) on SE(3), a
polynomial in ad_e, which is the same in all axes, and for k not below j

    e_j  = alpha_j S_j x e + r_j L S_j
    e_jk = alpha_k S_k x (alpha_j S_j x e + r_j L S_j) + alpha_j r_k S_j x L S_k + r_j r_k H(S_j, S_k)
           - r_k (alpha_j + beta_j) L (S_j x S_k) / 2
    H(x, y) = (D(L x) y + D(L y) x) / 2,     D(z) = the derivative of L along z

from log6 along products of exponentials up to second order (Baker-Campbell-Hausdorff).  Order of components: (angular; linear).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import SE3
from dynamics_backends.rigid_body.algorithms.kinematics import quaternion_of_rotation
from dynamics_backends.rigid_body.spatial.spatial import Force, Mat, Motion, Transform, Vec
from dynamics_backends.scalar import Scalar
from dynamics_backends.scalars.taylor import Taylor


class Mover(NamedTuple):
    """DoF with its axis about the working origin, and whether it moves frames A and B."""

    dof: int
    S: Motion
    moves_a: bool
    moves_b: bool

    @property
    def relative(self) -> float:
        """Factor r = alpha - beta: 1 if the DoF moves A alone, -1 if B alone, 0 if both."""
        return float(self.moves_a) - float(self.moves_b)


def pose_error(A: Transform, B: Transform) -> Motion:
    """Error e = X_A log6(B^-1 A) of frame A relative to frame B about the working origin; zero if they coincide."""
    p = B.R.transpose_times(A.p - B.p)
    R = Mat(*(B.R.transpose_times(c) for c in (A.R.a, A.R.b, A.R.c))).transpose()
    quaternion = quaternion_of_rotation([[r.x, r.y, r.z] for r in (R.a, R.b, R.c)])
    local = SE3.difference(list(SE3.identity), [p.x, p.y, p.z, *quaternion])
    return A.to_parent(Motion(Vec(*local[3:]), Vec(*local[:3])))


@dataclass(frozen=True)
class LogDifferential:
    """L = 1 + ad_e / 2 + c2 ad_e^2 + c4 ad_e^4 (manifold.py), with the derivatives of c2 and c4 in |angular part|^2."""

    e: Motion
    c2: Scalar
    c4: Scalar
    c2_slope: Scalar
    c4_slope: Scalar

    @classmethod
    def at(cls, e: Motion) -> LogDifferential:
        """Compute the coefficients c2, c4 of L = dexp^-1 at the error e, and their slopes."""
        t2 = e.w.dot(e.w)
        variable, _ = Taylor.variables(t2, 0.0)
        c2, c4 = sm.dlog2(variable), sm.dlog4(variable)
        return cls(e, c2.c[0], c4.c[0], c2.c[1], c4.c[1])

    def times(self, x: Motion) -> Motion:
        """Product L x."""
        first = self.e.cross(x)
        second = self.e.cross(first)
        fourth = self.e.cross(self.e.cross(second))
        return x + first * 0.5 + second * self.c2 + fourth * self.c4

    def powers(self, n: Force) -> list[Force]:
        """Products (ad_e')^i n for i = 0 ... 4."""
        powers = [n]
        for _ in range(4):
            powers.append(_transposed(self.e, powers[-1]))
        return powers

    def transpose_times(self, powers: list[Force]) -> Force:
        """Product L' n, from the powers (ad_e')^i n of one force n (:meth:`powers`)."""
        return powers[0] + powers[1] * 0.5 + powers[2] * self.c2 + powers[4] * self.c4

    def derivative(self, powers: list[Force], z: Motion) -> Force:
        """Product D(z)' n: the derivative of L' n along z in e."""
        t = 2.0 * self.e.w.dot(z.w)
        first = _transposed(z, powers[0])
        second = _transposed(self.e, first) + _transposed(z, powers[1])
        third = _transposed(self.e, second) + _transposed(z, powers[2])
        fourth = _transposed(self.e, third) + _transposed(z, powers[3])
        through_c = powers[2] * (self.c2_slope * t) + powers[4] * (self.c4_slope * t)
        return first * 0.5 + second * self.c2 + fourth * self.c4 + through_c


def _transposed(m: Motion, n: Force) -> Force:
    """Product ad_m' n: n . (m x y) = (ad_m' n) . y."""
    return -(m.cross_force(n))


def pose_error_slopes(d: LogDifferential, movers: Sequence[Mover]) -> dict[int, Motion]:
    """Derivatives of the pose error e in q by DoF, as motions."""
    slopes = {}
    for j in movers:
        slope = j.S.cross(d.e) if j.moves_a else Motion(Vec(0.0, 0.0, 0.0), Vec(0.0, 0.0, 0.0))
        if j.relative:
            slope = slope + d.times(j.S) * j.relative
        slopes[j.dof] = slope
    return slopes


def add_pose_error_second(
    qq: list[list[Scalar]], d: LogDifferential, movers: Sequence[Mover], n: Force, body_of: Sequence[int]
) -> None:
    """Add the second derivatives of n . e in q to qq (Lie derivatives within a joint); body_of: body of each DoF."""
    slopes = pose_error_slopes(d, movers)
    powers = d.powers(n)
    carried = d.transpose_times(powers)
    moved = {j.dof: d.times(j.S) * j.relative for j in movers}
    derivatives = {j.dof: d.derivative(powers, moved[j.dof]) for j in movers}
    turned = {j.dof: _transposed(j.S, n) for j in movers}
    for j in movers:
        for k in movers:
            if body_of[k.dof] > body_of[j.dof]:
                continue
            both = float(j.moves_a) + float(j.moves_b)
            total = 0.5 * (k.relative * k.S.dot(derivatives[j.dof]) + j.relative * j.S.dot(derivatives[k.dof]))
            if k.moves_a:
                total = total + slopes[j.dof].dot(turned[k.dof])
            if j.moves_a:
                total = total + moved[k.dof].dot(turned[j.dof])
            if k.relative:
                total = total - 0.5 * k.relative * both * j.S.cross(k.S).dot(carried)
            qq[k.dof][j.dof] = qq[k.dof][j.dof] + total
            if body_of[k.dof] != body_of[j.dof]:
                qq[j.dof][k.dof] = qq[j.dof][k.dof] + total
