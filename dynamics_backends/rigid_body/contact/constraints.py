"""Sides of holonomic constraints: a point or a frame of one body, with the derivatives of its motion in q, v, a.

A constraint is a sum of sides, each with a sign: a contact with the world has one, a closed loop two.  All quantities are in
fixed world axes.  A side contributes to the constraint's rows

    point (3)   sign (acc + kd w + kp p)     p position, w velocity, acc acceleration of the point
    frame (6)   sign (a_c + kd v_c)          spatial motions (angular; linear) of the body about the working origin
    relation (1)  kd (v_a - m v_b)           of two single degrees of freedom

With J_j = at(S_j, p), psi = psidot_j.w, c_j = d acc / d v_j, for k at or above j (contact_points gives w):

    acc_j  = at(psiddot_j, p) + 2 psi_j x w + S_j.w x acc        acc_jk = S_k.w x acc_j + 2 psi_k x w_j + psiddot_k.w x J_j
    c_j    = at(psidot_j + Sdot_j, p) + 2 S_j.w x w              d c_j / d q_k = S_k.w x c_j + 2 psi_k x J_j
    v_c,j  = psidot_j - v_c x S_j                                v_c,jk = S_k x v_c,j
    a_c,j  = psiddot_j - v_c x psidot_j - a_c x S_j              a_c,jk = S_k x a_c,j + psidot_k x v_c,j
    d a_c / d v_j = psidot_j + Sdot_j - v_c x S_j                d^2 a_c / d q_k d v_j = S_k x d a_c/d v_j + psidot_k x S_j

Each second derivative is the rotation of the first by k, plus the effect of k's motion on the bodies below.  Accelerations
here include that of the base against gravity: it cancels in derivatives, and values subtract it.

A frame in contact with the world (:class:`FrameContactSide`) has its rows at the frame's origin p, so that its force is the wrench
there. With (r_w; r_l) the rows of :class:`FrameSide`, they are (r_l + r_w x p; r_w), and a force (f; m) on them is the force (m + p
x f; f) on those of FrameSide. Both constrain the same motions. Since the rows vanish at the solution, their derivatives are the
moved ones of FrameSide, and p adds to second derivatives

    of mu'J'(f; m)         f . (dw_k x J_j + dw_j x J_k + w x (S_k.w x J_j))       w: angular part of J mu, k at or above j
    of nu'rows             nu_l . (r_w,k x J_j + r_w,j x J_k) in (q, q),     nu_l . (r_w,vj x J_k) in (q_k, v_j), and the same in a

(dw_j, r_w,j, r_w,vj: derivatives of angular parts in q_j and v_j).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dynamics_backends.rigid_body.contact.contact_points import Point, field_at, point_motion, rows_of_dofs, slopes_in_q
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import row
from dynamics_backends.rigid_body.spatial.spatial import Force, Motion, Vec, leaves
from dynamics_backends.scalar import Scalar

Rows = list[Scalar]
Entries = list[list[Scalar]]
"""Writable matrix [i][j]."""


class Slopes(NamedTuple):
    """Derivatives of a side's rows in q and v by DoF."""

    q: dict[int, Rows]
    v: dict[int, Rows]


class Second(NamedTuple):
    """Accumulators of second derivatives of mu'(ID - J'force) + nu'(rows), and of the first derivatives of J mu in q.

    qq, qv (row q, column v), vv and qa (row q, column a) are [nv][nv]; q_force, of J mu, is [nv][rows of all constraints].
    """

    qq: Entries
    qv: Entries
    vv: Entries
    qa: Entries
    q_force: Entries

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], n: int, rows: int, zero: Scalar) -> Second:
        """Second derivatives of mu'ID (n DoFs) from the fields G_qq, G_qv, G_vv, G_qa, and zeros (n, rows) in q_force.

        Constraints are added later.
        """
        qq, qv, vv, qa = (
            [[fields[k][i][j] + zero for j in range(n)] for i in range(n)] for k in ("G_qq", "G_qv", "G_vv", "G_qa")
        )
        return cls(qq, qv, vv, qa, [[zero] * rows for _ in range(n)])


class Side(Protocol):
    """Contribution of one body, or of a joint relation, to a constraint; ``J``: its signed Jacobian columns by DoF."""

    J: dict[int, Rows]

    def residual(self, acc: Any, gravity: Vec, kd: float) -> Rows:
        """Acceleration (of relations: none) plus kd times velocity: the side's part of the rows, without kp times the error.

        acc: field of the bodies' accelerations, in which the base accelerates by -gravity; adding ``gravity`` removes that.
        """

    def add_force_slopes(self, tau_q: Entries, force: Rows) -> None:
        """Add d (J' force)_i / d q_j at a fixed force to tau_q[i][j]."""

    def slopes(self, fields: Mapping[str, Any], kd: float, kp: float) -> Slopes:
        """Derivatives in q and v of the rows at fixed joint accelerations, with kp times the error except for frames."""

    def add_second(
        self, to: Second, fields: Mapping[str, Any], force: Rows, nu: Rows, gains: tuple[float, float], first_row: int
    ) -> None:
        """Add the side's second derivatives of nu'(rows) - mu'J'force to ``to`` in place, and first ones of J mu in q to its
        q_force.

        force, nu: constraint forces and multipliers of the rows; mu enters by the fields w and chi. gains: (kp, kd); first_row:
        index of the constraint's first row in q_force.
        """


class PointSide:
    """Contribution of a point of a body to a constraint's rows (3), sign (acc + kd w + kp p), with its derivatives."""

    def __init__(self, model: Model, fields: Mapping[str, Any], point: Point, sign: float) -> None:
        self.m = point_motion(model, fields, point)
        self.body_of = model.dof_body
        self.sign = sign
        self.J = {j: _signed(J, sign) for j, J in self.m.J.items()}
        self.spin = row(fields["vel"], point.body).w

    def _acceleration(self, acc: Any) -> Vec:
        """Acceleration of the point, from the field of the bodies' accelerations, which include that of the base, -gravity."""
        return field_at(row(acc, self.m.point.body), self.m.p) + self.spin.cross(self.m.velocity)

    def residual(self, acc: Any, gravity: Vec, kd: float) -> Rows:
        """Rows sign (acc + kd w) of the point, without the error's part kp p.

        acc: field of the bodies' accelerations, in which the base accelerates by -gravity; adding ``gravity`` removes that.
        """
        total = self._acceleration(acc) + gravity
        return _signed(total + self.m.velocity * kd if kd else total, self.sign)

    def add_force_slopes(self, tau_q: Entries, force: Rows) -> None:
        """Add d (J' force)_i / d q_j at a fixed force (3) on the point to tau_q[i][j]."""
        f = _vec(force, self.sign)
        for j, J in self.m.J.items():
            lag, lever = f.cross(self.m.axes[j]), J.cross(f)
            for i in self.m.J:
                above = self.body_of[i] < self.body_of[j]
                tau_q[i][j] = tau_q[i][j] + (self.m.axes[i].dot(lever) if above else self.m.J[i].dot(lag))

    def _first_derivatives(self, fields: Mapping[str, Any]) -> tuple[dict[int, Vec], dict[int, Vec], dict[int, Vec]]:
        """Derivatives of the point's velocity in q, and of its acceleration in q and in v, by DoF."""
        m, path = self.m, list(self.m.J)
        psid, psidd, rate = (rows_of_dofs(fields[k], path) for k in ("psid", "psidd", "rate"))
        w2, acc = m.velocity * 2.0, self._acceleration(fields["acc"])
        velocity = slopes_in_q(m, m.velocity, m.axes, psid)
        in_q = {j: field_at(psidd[j], m.p) + psid[j].w.cross(w2) + m.axes[j].cross(acc) for j in path}
        in_v = {j: field_at(rate[j], m.p) + m.axes[j].cross(w2) for j in path}
        return velocity, in_q, in_v

    def slopes(self, fields: Mapping[str, Any], kd: float, kp: float) -> Slopes:
        """Derivatives in q and v of the rows sign (acc + kd w + kp p), at fixed joint accelerations."""
        velocity, in_q, in_v = self._first_derivatives(fields)
        if kd:
            in_q = {j: x + velocity[j] * kd for j, x in in_q.items()}
            in_v = {j: x + self.m.J[j] * kd for j, x in in_v.items()}
        if kp:
            in_q = {j: x + self.m.J[j] * kp for j, x in in_q.items()}
        return Slopes(_all_signed(in_q, self.sign), _all_signed(in_v, self.sign))

    def add_second(
        self, to: Second, fields: Mapping[str, Any], force: Rows, nu: Rows, gains: tuple[float, float], first_row: int
    ) -> None:
        """Add the point's second derivatives of nu'(rows) - mu'J'force to ``to``, and first ones of J mu in q to q_force."""
        m, (kp, kd), path = self.m, gains, list(self.m.J)
        F, n = _vec(force, self.sign), _vec(nu, self.sign)
        psid, psidd, rate, chi = (rows_of_dofs(fields[k], path) for k in ("psid", "psidd", "rate", "chi"))
        s = slopes_in_q(m, field_at(row(fields["w"], m.point.body), m.p), m.axes, chi)
        velocity, acc, in_v = self._first_derivatives(fields)
        for j in path:
            J, dw = m.J[j], velocity[j]
            J_n, J_F = J.cross(n), J.cross(F)
            twice = (dw * 2.0 + J * kd).cross(n)
            turn = (acc[j] + dw * kd + J * kp).cross(n) - s[j].cross(F)
            turn_v = (in_v[j] + J * kd).cross(n)
            for row_index, x in enumerate(_signed(s[j], self.sign)):
                to.q_force[j][first_row + row_index] = to.q_force[j][first_row + row_index] + x
            for k in path:
                if self.body_of[k] > self.body_of[j]:
                    continue
                axis, psi = m.axes[k], psid[k].w
                flat = axis.dot(J_n)
                qq = axis.dot(turn) + psi.dot(twice) + psidd[k].w.dot(J_n) - chi[k].w.dot(J_F)
                _add(to.qq, k, j, qq)
                _add(to.qa, k, j, flat)
                _add(to.qv, k, j, axis.dot(turn_v) + psi.dot(J_n) * 2.0)
                strict = self.body_of[k] < self.body_of[j]
                for row_of, column in ((k, j), (j, k)):
                    _add(to.vv, row_of, column, 2.0 * flat if strict else flat)
                if strict:
                    _add(to.qq, j, k, qq)
                    _add(to.qa, j, k, flat)
                    _add(to.qv, j, k, rate[k].w.dot(J_n) + axis.dot(twice))


class FrameSide:
    """Contribution of a frame of a body to a constraint's rows (6), sign (a_c + kd v_c) about the working origin, with derivatives.

    Rows and forces are (angular; linear). ``point`` names the body; its coordinates are not used.
    """

    def __init__(self, model: Model, fields: Mapping[str, Any], point: Point, sign: float) -> None:
        self.body, self.sign = point.body, sign
        self.body_of = model.dof_body
        self.S: dict[int, Motion] = rows_of_dofs(fields["S"], model.ancestors(point.body))
        self.J = {j: _signed(s, sign) for j, s in self.S.items()}
        self.velocity = row(fields["vel"], point.body)

    def residual(self, acc: Any, gravity: Vec, kd: float) -> Rows:
        """Rows sign (a_c + kd v_c) of the body about the working origin.

        acc: field of the bodies' accelerations, in which the base accelerates by -gravity; adding ``gravity`` removes that.
        """
        a = row(acc, self.body)
        total = Motion(a.w, a.l + gravity)
        return _signed(total + self.velocity * kd if kd else total, self.sign)

    def add_force_slopes(self, tau_q: Entries, force: Rows) -> None:
        """Add d (J' force)_i / d q_j at a fixed force (moment; force) about the working origin to tau_q[i][j]."""
        F = _force(force, self.sign)
        for j, s in self.S.items():
            turned = s.cross_force(F)
            for i in self.S:
                if self.body_of[j] <= self.body_of[i]:
                    tau_q[i][j] = tau_q[i][j] - self.S[i].dot(turned)

    def _first_derivatives(
        self, fields: Mapping[str, Any]
    ) -> tuple[dict[int, Motion], dict[int, Motion], dict[int, Motion]]:
        """Derivatives of the body's spatial velocity in q, and of its acceleration in q and in v, by DoF."""
        path, v, a = list(self.S), self.velocity, row(fields["acc"], self.body)
        psid, psidd, rate = (rows_of_dofs(fields[k], path) for k in ("psid", "psidd", "rate"))
        relative = {j: v.cross(self.S[j]) for j in path}
        velocity = {j: psid[j] - relative[j] for j in path}
        in_q = {j: psidd[j] - v.cross(psid[j]) - a.cross(self.S[j]) for j in path}
        return velocity, in_q, {j: rate[j] - relative[j] for j in path}

    def slopes(self, fields: Mapping[str, Any], kd: float, kp: float) -> Slopes:
        """Derivatives in q and v of the rows sign (a_c + kd v_c), at fixed joint accelerations; kp is not used."""
        velocity, in_q, in_v = self._first_derivatives(fields)
        if kd:
            in_q = {j: x + velocity[j] * kd for j, x in in_q.items()}
            in_v = {j: x + self.S[j] * kd for j, x in in_v.items()}
        return Slopes(_all_signed(in_q, self.sign), _all_signed(in_v, self.sign))

    def add_second(
        self, to: Second, fields: Mapping[str, Any], force: Rows, nu: Rows, gains: tuple[float, float], first_row: int
    ) -> None:
        """Add the frame's second derivatives of nu'(rows) - mu'J'force to ``to``, and first ones of J mu in q to q_force."""
        kd, path = gains[1], list(self.S)
        F, N = _force(force, self.sign), _force(nu, self.sign)
        psid, chi = rows_of_dofs(fields["psid"], path), rows_of_dofs(fields["chi"], path)
        w = row(fields["w"], self.body)
        velocity, acc, in_v = self._first_derivatives(fields)
        turned = {k: self.S[k].cross_force(N) for k in path}
        turned_F = {k: self.S[k].cross_force(F) for k in path}
        changed = {k: psid[k].cross_force(N) for k in path}
        for j in path:
            s, dv = self.S[j], velocity[j]
            dw = chi[j] - w.cross(s)
            in_a, in_s = acc[j] + dv * kd, in_v[j] + s * kd
            for row_index, x in enumerate(_signed(dw, self.sign)):
                to.q_force[j][first_row + row_index] = to.q_force[j][first_row + row_index] + x
            for k in path:
                if self.body_of[k] > self.body_of[j]:
                    continue
                qq = dw.dot(turned_F[k]) - in_a.dot(turned[k]) - dv.dot(changed[k])
                flat = -s.dot(turned[k])
                _add(to.qq, k, j, qq)
                _add(to.qa, k, j, flat)
                _add(to.qv, k, j, -in_s.dot(turned[k]) - s.dot(changed[k]))
                if self.body_of[k] < self.body_of[j]:
                    _add(to.qq, j, k, qq)
                    _add(to.qv, j, k, -dv.dot(turned[k]))
                    _add(to.vv, k, j, flat)
                    _add(to.vv, j, k, flat)


def _add(M: Entries, i: int, j: int, x: Scalar) -> None:
    """Add x to M[i][j] in place."""
    M[i][j] = M[i][j] + x


def _signed(x: Any, sign: float) -> Rows:
    """Components of a struct, negated if the sign is negative."""
    return leaves(x if sign > 0 else -x)


def _all_signed(columns: Mapping[int, Any], sign: float) -> dict[int, Rows]:
    """Components of each column by DoF, negated if the sign is negative."""
    return {j: _signed(x, sign) for j, x in columns.items()}


def _vec(x: Sequence[Scalar], sign: float) -> Vec:
    """Vec of three numbers, negated if the sign is negative."""
    v = Vec(*x)
    return v if sign > 0 else -v


def _force(x: Sequence[Scalar], sign: float) -> Force:
    """Force of six numbers (moment; force), negated if the sign is negative."""
    f = Force(Vec(*x[:3]), Vec(*x[3:]))
    return f if sign > 0 else -f


class RelationSide:
    """Side of a joint relation: one row kd (v_a - m v_b) on the DoFs a and b, without their accelerations.

    v: joint velocities; columns: {a: 1, b: -m}, the row of J.
    """

    def __init__(self, v: Any, columns: Mapping[int, float]) -> None:
        self.J: dict[int, Rows] = {d: [weight] for d, weight in columns.items()}
        self.rate = sum((v[d] * weight for d, weight in columns.items()), 0.0 * v[0])

    def residual(self, acc: Any, gravity: Vec, kd: float) -> Rows:
        """Row kd (v_a - m v_b); acc and gravity are not used."""
        return [self.rate * kd]

    def add_force_slopes(self, tau_q: Entries, force: Rows) -> None:
        """Add nothing: the columns are constant."""

    def slopes(self, fields: Mapping[str, Any], kd: float, kp: float) -> Slopes:
        """Constant derivatives: kp times the columns in q, kd times the columns in v."""
        return Slopes(*({j: [x * gain for x in J] for j, J in self.J.items()} for gain in (kp, kd)))

    def add_second(
        self, to: Second, fields: Mapping[str, Any], force: Rows, nu: Rows, gains: tuple[float, float], first_row: int
    ) -> None:
        """Add nothing: a relation is linear."""


def rows_at(p: Vec, m: Motion) -> Rows:
    """Velocity at p and angular velocity of a motion about the working origin."""
    return [*leaves(field_at(m, p)), *leaves(m.w)]


def force_about_origin(p: Vec, force: Sequence[Scalar]) -> list[Scalar]:
    """Six numbers (moment; force) about the working origin, of a force and moment (f; m) at p."""
    f, m = Vec(*force[:3]), Vec(*force[3:])
    return [*leaves(m + p.cross(f)), *leaves(f)]


class FrameContactSide(FrameSide):
    """Contribution of a frame in contact with the world, with rows (linear; angular) at the frame's origin p, and its derivatives.

    p: about the working origin.
    """

    def __init__(self, model: Model, fields: Mapping[str, Any], point: Point, p: Vec) -> None:
        super().__init__(model, fields, point, 1.0)
        self.p = p
        self.levers = {j: field_at(s, p) for j, s in self.S.items()}
        self.J = {j: rows_at(p, s) for j, s in self.S.items()}

    def residual(self, acc: Any, gravity: Vec, kd: float) -> Rows:
        """Rows a + kd v at the frame's origin: linear, then angular. acc, gravity: as in :class:`FrameSide`."""
        return rows_at(self.p, motion_of(super().residual(acc, gravity, kd)))

    def add_force_slopes(self, tau_q: Entries, force: Rows) -> None:
        """Add d (J' force)_i / d q_j at a fixed wrench (force; moment) at the frame's origin to tau_q[i][j]."""
        super().add_force_slopes(tau_q, force_about_origin(self.p, force))
        f = Vec(*force[:3])
        for j, lever in self.levers.items():
            turned = lever.cross(f)
            for i, s in self.S.items():
                tau_q[i][j] = tau_q[i][j] + s.w.dot(turned)

    def slopes(self, fields: Mapping[str, Any], kd: float, kp: float) -> Slopes:
        """Derivatives in q and v of the rows at the frame's origin, at fixed joint accelerations, if the rows are zero.

        kp is not used.
        """
        both = super().slopes(fields, kd, kp)
        return Slopes(*({j: rows_at(self.p, motion_of(x)) for j, x in columns.items()} for columns in both))

    def add_second(
        self, to: Second, fields: Mapping[str, Any], force: Rows, nu: Rows, gains: tuple[float, float], first_row: int
    ) -> None:
        """Add second derivatives of nu'(rows) - mu'J'force to ``to``, and first derivatives of J mu in q to q_force.

        Rows and forces are those at the frame's origin, (linear; angular); the rows must be zero.
        """
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
            moved = rows_at(self.p, motion_of(dw[j]))
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
    """Add f . (turn_j x J_k) to to[k][j] in place, and to to[j][k] if ``symmetric``; J_k: the columns ``levers``."""
    for j, turn in turns.items():
        across = f.cross(turn)
        for k, lever in levers.items():
            x = across.dot(lever)
            to[k][j] = to[k][j] + x
            if symmetric:
                to[j][k] = to[j][k] + x


def motion_of(rows: Sequence[Scalar]) -> Motion:
    """Motion of six numbers, angular first."""
    return Motion(Vec(*rows[:3]), Vec(*rows[3:]))
