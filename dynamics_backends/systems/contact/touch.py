"""Contact point with a force that depends on its position and velocity: first and second derivatives of s . F.

F(p, w) is the force on a point of a tree that moves with a velocity V, s = J mu the point's velocity under other rates mu; dw_j and
ds_j are the derivatives of w and s in q.  With pi = F_p' s, rho = F_w' s, the second derivatives H of s . F at fixed s, and
e_k = ds_k - S_k.w x s, for k at or above j

    C_qq[k,j] = S_k.w . (J_j x pi + dw_j x rho + ds_j x F) + psidot_k.w . (J_j x rho) + e_k . (F x S_j.w)
                + (J_k, dw_k, ds_k)' [[H, (F_p F_w)'], [(F_p F_w), 0]] (J_j, dw_j, ds_j)
    C_qV[k,j] = (J_k, dw_k, ds_k)' (H_pw, H_ww, F_w) J_j + S_k.w . (J_j x rho)      below j: S_j.w . (J_k x rho)
    C_VV[k,j] = J_k' H_ww J_j

without the terms of body-fixed forces, which are those of
:mod:`~dynamics_backends.rigid_body.derivatives.rnea_second_order`: together with these, -C are the second derivatives of -mu' J'F.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dynamics_backends.rigid_body.contact.constraints import Second
from dynamics_backends.rigid_body.contact.contact_points import Columns, PointMotion, rows_of_dofs, slopes_in_q
from dynamics_backends.rigid_body.passes.passes import row
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec
from dynamics_backends.systems.contact.contact_law import Derivatives, SecondDerivatives
from dynamics_backends.systems.contact.ground_surface import Surface, in_position, second_derivatives_in_position


class Touch(NamedTuple):
    """Contact point, the ground under it and the force on it."""

    motion: PointMotion
    surface: Surface
    force: Vec


class Slopes(NamedTuple):
    """Derivatives of a contact: of its velocity in q, of the force in position and velocity, and of the force in q and V."""

    velocity: Columns
    in_p: Mat
    in_w: Mat
    force_q: Columns
    force_v: Columns

    @classmethod
    def from_law(cls, c: Touch, d: Derivatives, psid: Any) -> Slopes:
        """Compute the derivatives of a contact from those of the law and the field psid of the velocity V."""
        m = c.motion
        velocity = slopes_in_q(m, m.velocity, m.axes, rows_of_dofs(psid, list(m.J)))
        in_p = in_position(d, c.surface)
        return cls(
            velocity,
            in_p,
            d.w,
            {j: in_p @ J + d.w @ velocity[j] for j, J in m.J.items()},
            {j: d.w @ J for j, J in m.J.items()},
        )


def weight_of(c: Touch, fields: Mapping[str, Any]) -> Vec:
    """Velocity s of the point under the rates mu, from their field w."""
    field = row(fields["w"], c.motion.point.body)
    return field.l + field.w.cross(c.motion.p)


def subtract_second(
    g: Second,
    c: Touch,
    slopes: Slopes,
    second: tuple[Derivatives, SecondDerivatives],
    fields: Mapping[str, Any],
    body_of: Sequence[int],
) -> Mat:
    """Subtract C_qq and C_qV from g; returns H_ww.

    second: derivatives by the law, for s of :func:`weight_of`; fields: psid of V, w and chi of mu; body_of: the bodies of the DoFs.
    """
    m, F, path = c.motion, c.force, list(c.motion.J)
    psid, chi = rows_of_dofs(fields["psid"], path), rows_of_dofs(fields["chi"], path)
    s, (d, b) = weight_of(c, fields), second
    dw, ds = slopes.velocity, slopes_in_q(m, s, m.axes, chi)
    pp, pw = second_derivatives_in_position(d, b, c.surface)
    pi, rho = slopes.in_p.transpose_times(s), slopes.in_w.transpose_times(s)
    for j in path:
        J, axis = m.J[j], m.axes[j]
        turn = J.cross(pi) + dw[j].cross(rho) + ds[j].cross(F)
        J_rho, lag = J.cross(rho), F.cross(axis)
        to_p = pp @ J + pw @ dw[j] + slopes.in_p.transpose_times(ds[j])
        to_w = pw.transpose_times(J) + b.ww @ dw[j] + slopes.in_w.transpose_times(ds[j])
        v_to_p, v_to_w = pw @ J, b.ww @ J
        for k in path:
            below, within = body_of[k] > body_of[j], body_of[k] == body_of[j]
            turned = axis.dot(m.J[k].cross(rho)) if below else m.axes[k].dot(J_rho)
            mixed = turned + m.J[k].dot(v_to_p) + dw[k].dot(v_to_w) + ds[k].dot(slopes.force_v[j])
            g.qv[k][j] = g.qv[k][j] - mixed
            if below:
                continue
            e = ds[k] - m.axes[k].cross(s)
            entry = m.axes[k].dot(turn) + psid[k].w.dot(J_rho) + e.dot(lag)
            entry = entry + m.J[k].dot(to_p) + dw[k].dot(to_w) + ds[k].dot(slopes.force_q[j])
            g.qq[k][j] = g.qq[k][j] - entry
            if not within:
                g.qq[j][k] = g.qq[j][k] - entry
    return b.ww
