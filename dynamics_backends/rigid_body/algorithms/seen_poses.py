"""Body poses as separate variables of a traced function, with closed-form derivatives of the poses.

A residual reads positions and rotations of a few frames.  Differentiation through the recursion that computes them takes several
times the necessary operations.  Here the pose of a body is a variable xi = (rho, omega) about the pose at q: p = p_0 + rho,
R = (1 + [omega] + [omega]^2 / 2) R_0.  With the axis w_j of a degree of freedom and the velocity l_j of the body's origin at its
unit rate, in world axes, and i not after j on the path from the root,

    rho_j = l_j     omega_j = w_j     rho_ij = w_i x l_j     omega_ij = w_i x w_j / 2

(the derivatives of products of exponentials; R. Murray, Z. Li, S. Sastry, A Mathematical Introduction to Robotic Manipulation,
1994, sec. 3.4).  All joints must have one degree of freedom, and the function must read q as the first symbols of its state;
other functions are traced without these variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from dynamics_backends.deferred import deferred
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.passes import row
from dynamics_backends.rigid_body.spatial.spatial import Mat, Motion, Transform, vec_of
from dynamics_backends.scalar import rows_of

ca = deferred("casadi")


@dataclass
class SeenPose:
    """Pose of a body as an expression of q and as its symbols, base (12) and xi (6).

    found: the expression. motions: by DoF from the root, the motion of the body's origin at unit rate. model: stored because the
    pose is keyed by its address.
    """

    model: Model
    found: Transform
    base: Any
    xi: Any
    motions: dict[int, Motion]

    @property
    def symbolic(self) -> Transform:
        """Pose as an expression of the symbols base and xi."""
        p, columns = self.base[:3], [self.base[3 * i : 3 * i + 3] for i in range(1, 4)]
        rho, omega = self.xi[:3], self.xi[3:]
        turned = []
        for c in columns:
            once = ca.cross(omega, c)
            turned.append(c + once + 0.5 * ca.cross(omega, once))
        return Transform(Mat(*map(vec_of, turned)), vec_of(p + rho))

    @property
    def values(self) -> Any:
        """Values (12) of the symbols base."""
        R = self.found.R
        return ca.vertcat(*[c for v in (self.found.p, R.a, R.b, R.c) for c in (v.x, v.y, v.z)])

    def jacobian(self, n: int) -> Any:
        """Jacobian d xi / d q (6, n) of the pose's variables xi, in n variables of which q comes first."""
        J = ca.SX(6, n)
        for d, m in self.motions.items():
            J[:, d] = ca.vertcat(*(c for v in (m.l, m.w) for c in (v.x, v.y, v.z)))
        return ca.sparsify(J)

    def curvature(self, gradient: Any, n: int) -> Any:
        """Second derivatives (n, n) in q of the variables xi (6) of this pose, contracted with a gradient (6)."""
        force, moment = vec_of(gradient[:3]), vec_of(0.5 * gradient[3:])
        H, path = ca.SX(n, n), list(self.motions)
        for at, j in enumerate(path):
            turn = self.motions[j].l.cross(force) + self.motions[j].w.cross(moment)
            for i in path[: at + 1]:  # w_i x l_j . f = w_i . (l_j x f); omega_jj is zero, as w_j x w_j is
                H[i, j] = H[j, i] = self.motions[i].w.dot(turn)
        return H


@dataclass
class SeenPoses:
    """Poses that a function of the state reads, by model and body. q: symbols of the state."""

    q: Any
    poses: dict[tuple[int, int], SeenPose] = field(default_factory=dict)

    def symbolic_pose(self, model: Model, q: Any, fields: Mapping[str, Any], body: int) -> Transform | None:
        """Return symbols for the pose of a body, whose value is that in the fields; records the pose at its first use.

        Returns None if q is not the first symbols of the state, or if a joint has several degrees of freedom.
        """
        rows = rows_of(q)
        is_state = len(rows) <= self.q.numel() and all(ca.is_equal(a, self.q[i]) for i, a in enumerate(rows))
        if not is_state or model.nq != model.nv or any(len(model.dofs(b)) > 1 for b in range(model.nb)):
            return None
        key = id(model), body
        if key not in self.poses:
            found = row(fields["X"], body).components()
            axes = {d: row(fields["S"], d) for d in model.ancestors(body)}
            motions = {d: Motion(S.w, S.l + S.w.cross(found.p)) for d, S in axes.items()}
            symbols = ca.SX.sym(f"pose{len(self.poses)}", 12), ca.SX.sym(f"xi{len(self.poses)}", 6)
            self.poses[key] = SeenPose(model, found, *symbols, motions)
        return self.poses[key].symbolic

    @property
    def xi(self) -> Any:
        """Symbols xi of all poses."""
        return ca.vertcat(*(p.xi for p in self.poses.values()))

    def jacobian(self, n: int) -> Any:
        """Jacobian d xi / d q of all poses, in n variables of which q comes first."""
        return ca.vertcat(*(p.jacobian(n) for p in self.poses.values()))

    def curvature(self, gradient: Any, n: int) -> Any:
        """Second derivatives (n, n) in q of the variables xi (6 of each pose) of all poses, contracted with a gradient.

        Needs at least one pose.
        """
        parts = [p.curvature(gradient[6 * i : 6 * i + 6], n) for i, p in enumerate(self.poses.values())]
        return sum(parts[1:], parts[0])

    def at_q(self, expressions: list[Any]) -> list[Any]:
        """Replace the pose symbols in expressions by the poses at q."""
        known = ca.vertcat(*(v for p in self.poses.values() for v in (p.base, p.xi)))
        values = ca.vertcat(*(v for p in self.poses.values() for v in (p.values, ca.SX.zeros(6))))
        return ca.substitute(expressions, [known], [values])


_watching: ContextVar[SeenPoses | None] = ContextVar("_watching", default=None)


@contextmanager
def watching(q: Any) -> Iterator[SeenPoses]:
    """Context in which kinematics at the symbols q use variables for body poses (:func:`pose_of`), recorded in the yielded object.

    q: symbols of the state, in which the configuration comes first.
    """
    seen = SeenPoses(q)
    token = _watching.set(seen)
    try:
        yield seen
    finally:
        _watching.reset(token)


def pose_of(model: Model, q: Any, fields: Mapping[str, Any], body: int) -> Transform:
    """Pose of a body in the fields of a recursion at q; within :func:`watching`, for symbols q, the variable that replaces it."""
    seen = _watching.get()
    known = seen.symbolic_pose(model, q, fields, body) if seen is not None and hasattr(q, "is_symbolic") else None
    return row(fields["X"], body) if known is None else known
