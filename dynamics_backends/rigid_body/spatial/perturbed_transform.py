"""Poses whose perturbation is a twist: the spatial operations of Kudruss et al. as elementary operations of forward AD.

The chain rule over components ("AD") differentiates the nine entries of a rotation.  The structure-exploiting form ("ED") stores a
pose as plain numbers and its tangent as one motion vector d per direction, in the child frame, X (1 + d x).  Then (Kudruss et al.,
Prop. 1 and 2)

    d(X^-1 m)   = X^-1 dm + (X^-1 m) x d            motion to the child     (eq. 5)
    d(X* f)     = X* (df + d x* f)                  force to the parent     (eq. 6)
    d(X* I X^-1) = X* (dI + d x* I - I d x) X^-1    inertia to the parent

These operations do not differentiate rotations, and constants (inertias, axes, fixed placements) have no tangent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.rigid_body.spatial.spatial import (
    ArticulatedInertia,
    Force,
    Inertia,
    Mat,
    Motion,
    Struct,
    Sym,
    Transform,
    Vec,
    build,
    cross_columns,
    leaves,
)
from dynamics_backends.scalar import Scalar
from dynamics_backends.scalars.dual import Dual


class SpatialDual(Dual):
    """Dual rows for which joints return perturbed transforms; arithmetic converts them to plain duals."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> SpatialDual:
        """Rows of the same type, which arithmetic does not preserve."""
        return SpatialDual(self.val[index], self.tan[index])


class PerturbedTransform(Struct):
    """Pose (R, p) of plain arrays (rows, N) and its twist, a motion in the child frame with components (rows, N, K).

    Results "with tangents" have those due to the tangents of the argument and to the twist. K: number of directions.
    """

    __slots__ = ("R", "p", "twist")
    PARTS = (Mat, Vec, Motion)

    @classmethod
    def allocate(cls, rows: int, sample: Dual) -> PerturbedTransform:
        """Zero poses of ``rows`` bodies, with the batch size and the number of directions of ``sample``."""
        plain = (rows, sample.shape[-1])
        shapes = [plain] * 12 + [(*plain, sample.directions)] * 6
        return build(cls, iter([np.zeros(s, dtype=sample.val.dtype) for s in shapes]))

    @property
    def pose(self) -> Transform:
        """Pose without its perturbation."""
        return Transform(self.R, self.p)

    def components(self) -> Transform:
        """Pose as components with tangents: dR = R dw x, dp = R dl."""
        w, zero = self.twist.w, 0.0 * self.twist.w.x
        turned = _wide(self.R) @ Mat(Vec(zero, w.z, -w.y), Vec(-w.z, zero, w.x), Vec(w.y, -w.x, zero))
        return Transform(_joined(self.R, turned), _joined(self.p, _wide(self.R) @ self.twist.l))

    def __matmul__(self, child: Any) -> PerturbedTransform:
        """Pose of the child's child, with the twists of both; a plain Transform has none."""
        if isinstance(child, Transform):  # a constant placement
            return PerturbedTransform(*_parts(self.pose @ child), _wide(child).to_child(self.twist))
        return PerturbedTransform(*_parts(self.pose @ child.pose), child.twist + _wide(child.pose).to_child(self.twist))

    def __rmatmul__(self, parent: Transform) -> PerturbedTransform:
        """Pose in the parent's parent; a constant placement does not change the twist."""
        return PerturbedTransform(*_parts(parent @ self.pose), self.twist)

    def point(self, p: Vec) -> Vec:
        """Coordinates in the parent, with tangents, of a point with coordinates p in the child."""
        change = _tangent(p) + self.twist.w.cross(_wide(_value(p))) + self.twist.l
        return _joined(self.pose.point(_value(p)), _wide(self.R) @ change)

    def to_parent(self, m: Motion) -> Motion:
        """Motion in the parent's coordinates, with tangents."""
        change = _tangent(m) + self.twist.cross(_wide(_value(m)))
        return _joined(self.pose.to_parent(_value(m)), _wide(self.pose).to_parent(change))

    def to_child(self, m: Motion) -> Motion:
        """Motion in the child's coordinates, with tangents."""
        value = self.pose.to_child(_value(m))
        return _joined(value, _wide(self.pose).to_child(_tangent(m)) + _wide(value).cross(self.twist))

    def force_to_parent(self, f: Force) -> Force:
        """Force in the parent's coordinates, with tangents."""
        change = _tangent(f) + self.twist.cross_force(_wide(_value(f)))
        return _joined(self.pose.force_to_parent(_value(f)), _wide(self.pose).force_to_parent(change))

    def force_to_child(self, f: Force) -> Force:
        """Force in the child's coordinates, with tangents."""
        value = self.pose.force_to_child(_value(f))
        change = _wide(self.pose).force_to_child(_tangent(f)) - self.twist.cross_force(_wide(value))
        return _joined(value, change)

    def inertia_to_parent(self, mass: Scalar, com: Vec, central: Sym) -> Inertia:
        """Inertia in the parent, with tangents d x* I - I d x for the twist d in the parent's coordinates.

        mass, com, central: constant mass, center of mass and inertia about it in the child.
        """
        value = self.pose.inertia_to_parent(mass, com, central)
        d, wide = _wide(self.pose).to_parent(self.twist), _wide(value)
        turn = _commutator(d.w, wide.J.full())
        arm, both = d.l.dot(wide.h) * 2.0, d.l.outer(wide.h) + wide.h.outer(d.l)
        J = (turn - both).symmetric()
        J = Sym(J.xx + arm, J.xy, J.xz, J.yy + arm, J.yz, J.zz + arm)
        first = d.w.cross(wide.h) + d.l * wide.m
        return Inertia(mass, _joined(value.h, first), _joined(value.J, J))

    def articulated_to_parent(self, inertia: ArticulatedInertia) -> ArticulatedInertia:
        """General inertia in the parent's coordinates, with tangents due to its own tangents and to the pose's twist."""
        value, change = _value(inertia), _tangent(inertia)
        wide, w, l = _wide(value), self.twist.w, self.twist.l
        M, Ht = wide.M.full(), wide.H.transpose()
        left = cross_columns(l, Ht)
        J = _commutator(w, wide.J.full()) + left + left.transpose()
        H = cross_columns(w, wide.H) + cross_columns(l, M) + cross_columns(w, Ht).transpose()
        moved = ArticulatedInertia(J.symmetric(), H, _commutator(w, M).symmetric()) + change
        return _joined(self.pose.articulated_to_parent(value), _wide(self.pose).articulated_to_parent(moved))


def _commutator(w: Vec, A: Mat) -> Mat:
    """Commutator w x A - A w x for symmetric A."""
    left = cross_columns(w, A)
    return left + left.transpose()


def _parts(X: Transform) -> tuple[Mat, Vec]:
    """Rotation and position of a pose."""
    return X.R, X.p


def _mapped(x: Any, function: Any) -> Any:
    """Struct of the same type with a function applied to every leaf."""
    return build(type(x), iter([function(leaf) for leaf in leaves(x)]))


def _value(x: Any) -> Any:
    """Struct of the leaves' values, without tangents."""
    return _mapped(x, lambda leaf: leaf.val if isinstance(leaf, Dual) else leaf)


def _tangent(x: Any) -> Any:
    """Struct of the leaves' tangents, 0.0 for plain numbers."""
    return _mapped(x, lambda leaf: leaf.tan if isinstance(leaf, Dual) else 0.0)


def _wide(x: Any) -> Any:
    """Struct of values with a trailing axis for the directions; plain numbers are unchanged."""
    return _mapped(x, lambda leaf: leaf[..., None] if np.ndim(leaf) else leaf)


def _joined(value: Any, tangent: Any) -> Any:
    """Struct of duals from a struct of values and one of tangents."""
    pairs = zip(leaves(value), leaves(tangent), strict=True)
    return build(type(value), iter([Dual(*_fitted(np.asarray(v), np.asarray(t))) for v, t in pairs]))


def _fitted(v: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Broadcast value and tangent to equal leading axes, since either may be constant."""
    shape = np.broadcast_shapes(v.shape, t.shape[:-1])
    return np.broadcast_to(v, shape), np.broadcast_to(t, (*shape, *t.shape[-1:]))
