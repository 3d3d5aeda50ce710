"""Poses of bodies as variables of their own, while a function of them is traced, with the derivatives of these in closed form.

A residual reads positions and rotations of a few frames.  Differentiated through the recursion that leads to them, it takes several
times the operations that it needs.  Here the pose of a body is a variable xi = (rho, omega) about the one at q: p = p_0 + rho,
R = (1 + [omega] + [omega]^2 / 2) R_0.  With the axis w_j of a degree of freedom and the velocity l_j of the body's origin that it
gives, in world axes, and i not behind j on the way from the root,

    rho_j = l_j     omega_j = w_j     rho_ij = w_i x l_j     omega_ij = w_i x w_j / 2

(the derivatives of products of exponentials; R. Murray, Z. Li, S. Sastry, A Mathematical Introduction to Robotic Manipulation,
1994, sec. 3.4).  Degrees of freedom are those of joints that have one each; other robots are traced as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from dynamics_backends.deferred import deferred
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.field_access import row
from dynamics_backends.rigid_body.spatial.spatial import Mat, Motion, Transform, Vec
from dynamics_backends.scalar import rows_of

ca = deferred("casadi")


@dataclass
class SeenPose:
    """A body's pose: as an expression of q, and as the symbols that stand for it, base (12) and xi (6); by DoF from the root, the
    motion that it gives the body's origin. model: kept, since it is known by its address."""

    model: Model
    found: Transform
    base: Any
    xi: Any
    motions: dict[int, Motion]

    @property
    def moved(self) -> Transform:
        """The pose as a function of the symbols."""
        p, columns = self.base[:3], [self.base[3 * i : 3 * i + 3] for i in range(1, 4)]
        rho, omega = self.xi[:3], self.xi[3:]
        turned = []
        for c in columns:
            once = ca.cross(omega, c)
            turned.append(c + once + 0.5 * ca.cross(omega, once))
        return Transform(Mat(*map(_vec, turned)), _vec(p + rho))

    @property
    def values(self) -> Any:
        """(12) what base stands for."""
        R = self.found.R
        return ca.vertcat(*[c for v in (self.found.p, R.a, R.b, R.c) for c in (v.x, v.y, v.z)])

    def jacobian(self, n: int) -> Any:
        """d xi / d q (6, n)."""
        J = ca.SX(6, n)
        for d, m in self.motions.items():
            J[:, d] = ca.vertcat(*(c for v in (m.l, m.w) for c in (v.x, v.y, v.z)))
        return ca.sparsify(J)

    def bend(self, gradient: Any, n: int) -> Any:
        """(n, n) the second derivatives of xi, contracted with a gradient (6)."""
        force, moment = _vec(gradient[:3]), _vec(0.5 * gradient[3:])
        H, path = ca.SX(n, n), list(self.motions)
        for at, j in enumerate(path):
            turn = self.motions[j].l.cross(force) + self.motions[j].w.cross(moment)
            for i in path[: at + 1]:  # w_i x l_j . f = w_i . (l_j x f); omega_jj is zero, as w_j x w_j is
                H[i, j] = H[j, i] = self.motions[i].w.dot(turn)
        return H


def _vec(column: Any) -> Vec:
    return Vec(column[0], column[1], column[2])


@dataclass
class SeenPoses:
    """The poses that a function of the state reads, by model and body. q: the state's symbols."""

    q: Any
    poses: dict[tuple[int, int], SeenPose] = field(default_factory=dict)

    def of(self, model: Model, q: Any, fields: Mapping[str, Any], body: int) -> Transform | None:
        """The pose of a body that stands for the one in the fields; None where that is not a function of the state's own q."""
        given = rows_of(q)
        own = len(given) <= self.q.numel() and all(ca.is_equal(a, self.q[i]) for i, a in enumerate(given))
        if not own or model.nq != model.nv or any(len(model.dofs(b)) > 1 for b in range(model.nb)):
            return None
        key = id(model), body
        if key not in self.poses:
            found = row(fields["X"], body).components()
            axes = {d: row(fields["S"], d) for d in model.ancestors(body)}
            motions = {d: Motion(S.w, S.l + S.w.cross(found.p)) for d, S in axes.items()}
            symbols = ca.SX.sym(f"pose{len(self.poses)}", 12), ca.SX.sym(f"xi{len(self.poses)}", 6)
            self.poses[key] = SeenPose(model, found, *symbols, motions)
        return self.poses[key].moved

    @property
    def xi(self) -> Any:
        """The symbols xi of all."""
        return ca.vertcat(*(p.xi for p in self.poses.values()))

    def jacobian(self, n: int) -> Any:
        """d xi / d q of all, in n variables of which q comes first."""
        return ca.vertcat(*(p.jacobian(n) for p in self.poses.values()))

    def bend(self, gradient: Any, n: int) -> Any:
        """The second derivatives of all, contracted with a gradient."""
        parts = [p.bend(gradient[6 * i : 6 * i + 6], n) for i, p in enumerate(self.poses.values())]
        return sum(parts[1:], parts[0])

    def at_q(self, expressions: list[Any]) -> list[Any]:
        """Expressions with poses as they are at q, in place of their symbols."""
        known = ca.vertcat(*(v for p in self.poses.values() for v in (p.base, p.xi)))
        values = ca.vertcat(*(v for p in self.poses.values() for v in (p.values, ca.SX.zeros(6))))
        return ca.substitute(expressions, [known], [values])


_watching: ContextVar[SeenPoses | None] = ContextVar("_watching", default=None)


@contextmanager
def watching(q: Any) -> Iterator[SeenPoses]:
    """Within, kinematics of bodies at the symbols q, which others may follow, are seen as variables of their own."""
    seen = SeenPoses(q)
    token = _watching.set(seen)
    try:
        yield seen
    finally:
        _watching.reset(token)


def pose_of(model: Model, q: Any, fields: Mapping[str, Any], body: int) -> Transform:
    """The pose of a body among the fields of a recursion at q, or the variable that stands for it."""
    seen = _watching.get()
    known = seen.of(model, q, fields, body) if seen is not None and hasattr(q, "is_symbolic") else None
    return row(fields["X"], body) if known is None else known
