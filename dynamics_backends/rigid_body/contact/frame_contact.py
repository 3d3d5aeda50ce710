"""Side of a frame in contact with the world, with rows at the frame's origin, so that its force is the wrench there.

With p the origin about the working origin, J_j = at(S_j, p), and (r_w; r_l) the rows of :class:`~.constraints.FrameSide`, the rows
here are (r_l + r_w x p; r_w), and a force (f; m) on them is the force (m + p x f; f) on those of FrameSide.  Both constrain the
same motions.  Since the rows vanish at the solution, their derivatives are the moved ones of FrameSide, and p adds to second
derivatives

    of mu'J'(f; m)         f . (dw_k x J_j + dw_j x J_k + w x (S_k.w x J_j))       w: angular part of J mu, k at or above j
    of nu'rows             nu_l . (r_w,k x J_j + r_w,j x J_k) in (q, q),     nu_l . (r_w,vj x J_k) in (q_k, v_j), and the same in a

(dw_j, r_w,j, r_w,vj: derivatives of angular parts in q_j and v_j).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynamics_backends.rigid_body.contact.constraints import Entries, FrameSide, Rows, Second, Slopes
from dynamics_backends.rigid_body.contact.contact_points import Point, field_at, rows_of_dofs
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.field_access import row
from dynamics_backends.rigid_body.spatial.spatial import Motion, Vec, leaves
from dynamics_backends.scalar import Scalar


def rows_at(p: Vec, m: Motion) -> Rows:
    """Velocity at p and angular velocity of a motion about the working origin."""
    return [*leaves(field_at(m, p)), *leaves(m.w)]


def force_about_origin(p: Vec, force: Sequence[Scalar]) -> list[Scalar]:
    """Moment and force about the working origin of (f; m) at p."""
    f, m = Vec(*force[:3]), Vec(*force[3:])
    return [*leaves(m + p.cross(f)), *leaves(f)]


class FrameContactSide(FrameSide):
    """Side of a frame contact, see the module docstring. p: the frame's origin about the working origin."""

    def __init__(self, model: Model, fields: Mapping[str, Any], point: Point, p: Vec) -> None:
        super().__init__(model, fields, point, 1.0)
        self.p = p
        self.levers = {j: field_at(s, p) for j, s in self.S.items()}
        self.J = {j: rows_at(p, s) for j, s in self.S.items()}

    def residual(self, acc: Any, gravity: Vec, kd: float) -> Rows:
        return rows_at(self.p, _motion(super().residual(acc, gravity, kd)))

    def add_force_slopes(self, tau_q: Entries, force: Rows) -> None:
        super().add_force_slopes(tau_q, force_about_origin(self.p, force))
        f = Vec(*force[:3])
        for j, lever in self.levers.items():
            turned = lever.cross(f)
            for i, s in self.S.items():
                tau_q[i][j] = tau_q[i][j] + s.w.dot(turned)

    def slopes(self, fields: Mapping[str, Any], kd: float, kp: float) -> Slopes:
        both = super().slopes(fields, kd, kp)
        return Slopes(*({j: rows_at(self.p, _motion(x)) for j, x in columns.items()} for columns in both))

    def add_second(
        self, to: Second, fields: Mapping[str, Any], force: Rows, nu: Rows, gains: tuple[float, float], first_row: int
    ) -> None:
        n = len(to.qq)
        about_origin = to._replace(q_force=[[0.0] * 6 for _ in range(n)])
        F, N = (force_about_origin(self.p, each) for each in (force, nu))
        super().add_second(about_origin, fields, F, N, gains, 0)
        self._add_moved(to, about_origin.q_force, fields, Vec(*force[:3]), first_row)
        velocity, acc, in_v = self._first_derivatives(fields)
        kd = gains[1]
        in_q = {j: acc[j].w + velocity[j].w * kd for j in self.S}
        add_turned(to.qq, self.levers, in_q, Vec(*nu[:3]), symmetric=True)
        add_turned(to.qv, self.levers, {j: in_v[j].w + s.w * kd for j, s in self.S.items()}, Vec(*nu[:3]))
        add_turned(to.qa, self.levers, {j: s.w for j, s in self.S.items()}, Vec(*nu[:3]))

    def _add_moved(self, to: Second, dw: Entries, fields: Mapping[str, Any], f: Vec, first_row: int) -> None:
        """Add the moved rows of J mu in q, and the terms of p in the second derivatives of -mu'J'(f; m)."""
        w = row(fields["w"], self.body).w
        chi = rows_of_dofs(fields["chi"], list(self.S))
        turn = {j: (chi[j] - row(fields["w"], self.body).cross(s)).w for j, s in self.S.items()}
        add_turned(to.qq, self.levers, {j: -x for j, x in turn.items()}, f, symmetric=True)
        for j, lever in self.levers.items():
            moved = rows_at(self.p, _motion(dw[j]))
            extra = [*leaves(w.cross(lever)), 0.0, 0.0, 0.0]
            for r, (x, more) in enumerate(zip(moved, extra, strict=True)):
                to.q_force[j][first_row + r] = to.q_force[j][first_row + r] + x + more
            for k, above in self.S.items():
                if self.body_of[k] > self.body_of[j]:
                    continue
                second = w.cross(above.w.cross(lever)).dot(f)
                to.qq[k][j] = to.qq[k][j] - second
                if self.body_of[k] < self.body_of[j]:
                    to.qq[j][k] = to.qq[j][k] - second


def add_turned(
    to: Entries, levers: Mapping[int, Vec], turns: Mapping[int, Vec], f: Vec, *, symmetric: bool = False
) -> None:
    """Add f . (turn_j x J_k) to to[k][j], and with j and k exchanged if ``symmetric``."""
    for j, turn in turns.items():
        across = f.cross(turn)
        for k, lever in levers.items():
            x = across.dot(lever)
            to[k][j] = to[k][j] + x
            if symmetric:
                to[j][k] = to[j][k] + x


def _motion(rows: Sequence[Scalar]) -> Motion:
    return Motion(Vec(*rows[:3]), Vec(*rows[3:]))
