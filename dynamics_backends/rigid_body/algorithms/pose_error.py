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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import outer_jacobian
from dynamics_backends.manifold import SE3
from dynamics_backends.rigid_body.algorithms.kinematics import quaternion_of_rotation
from dynamics_backends.rigid_body.spatial.spatial import Force, Mat, Motion, Transform, Vec, leaves
from dynamics_backends.scalar import Rows, Scalar


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
    """L = dexp^-1(e) = 1 + ad_e / 2 + c2 ad_e^2 + c4 ad_e^4 (manifold.py)."""

    e: Motion
    c2: Scalar
    c4: Scalar

    @classmethod
    def at(cls, e: Motion) -> LogDifferential:
        """Compute the coefficients c2, c4 of L at the error e."""
        t2 = e.w.dot(e.w)
        return cls(e, sm.dlog2(t2), sm.dlog4(t2))

    def times(self, x: Motion) -> Motion:
        """Product L x."""
        first = self.e.cross(x)
        second = self.e.cross(first)
        fourth = self.e.cross(self.e.cross(second))
        return x + first * 0.5 + second * self.c2 + fourth * self.c4

    def transpose_times(self, n: Force) -> Force:
        """Product L' n."""
        first = _transposed(self.e, n)
        second = _transposed(self.e, first)
        fourth = _transposed(self.e, _transposed(self.e, second))
        return n + first * 0.5 + second * self.c2 + fourth * self.c4

    def derivative(self, n: Force) -> Callable[[Motion], Force]:
        """Function z -> D(z)' n: the derivative of L' n along z in e."""

        def product(y: Rows, p: Any) -> list[Scalar]:
            """Components of L' n as a function of y = (e, n)."""
            ew, el, m, f = (Vec(*(y[i + k] for k in range(3))) for i in (0, 3, 6, 9))
            return leaves(LogDifferential.at(Motion(ew, el)).transpose_times(Force(m, f)))

        slopes = outer_jacobian(product, sm.stack([*leaves(self.e), *leaves(n)]), {})

        def along(z: Motion) -> Force:
            """Product of the slopes and z."""
            components = leaves(z)
            found = [sum((a * components[i] for i, a in row.items() if i < 6), 0.0 * components[0]) for row in slopes]
            return Force(Vec(*found[:3]), Vec(*found[3:]))

        return along


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
    carried, derivative = d.transpose_times(n), d.derivative(n)
    moved = {j.dof: d.times(j.S) * j.relative for j in movers}
    derivatives = {j.dof: derivative(moved[j.dof]) for j in movers}
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
