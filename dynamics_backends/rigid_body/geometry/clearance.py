"""How far capsules of the links are from bodies, as a residual of which everything but the pairs of links is run-time data.

    g_s = D(segment of the capsule s on its link, core of the body s) >= radii + margin

A slot s names the kind of the body, a box or a cylinder (rounded ones by their radius), the link that carries the capsule and what
carries the body: the world, or an earlier link on the way to that one. Which capsule and which body it is about at a knot is a
parameter, and so are the radii: they are part of the bound. Distances and their derivatives in the motion of the link are those of
:mod:`dynamics_backends.rigid_body.geometry.distances`; with the joint motions S_k = (w_k, l_k) in the world, C the nearest
point of the segment, n the direction of the distance there and f = (C x n, n) the force along it

    dg / dq_k = f . S_k
    d^2 g / dq_i dq_k = S_i' K S_k + w_i . ((l_k + w_k x C) x n)      i above k or k itself,
    K = ( sum_j W_j phi_j phi_j' - f f' - s s' / g_t ) / D,           phi = (C x a, a) for a direction a

K, summed over the slots of a link, is one matrix of 6 x 6, so that a slot more costs little beyond its distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Contraction, Partials
from dynamics_backends.rigid_body.algorithms.kinematics import PLACEMENT
from dynamics_backends.rigid_body.geometry.distances import Nearest, segment_box, segment_cylinder
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import run
from dynamics_backends.rigid_body.passes.field_access import row
from dynamics_backends.rigid_body.spatial.spatial import Mat, Motion, Vec
from dynamics_backends.scalar import Rows, Scalar

Kind = Literal["box", "cylinder"]
NUMBERS = 21
"""Parameters of a slot: the ends of the segment (3, 3) in the internal frame of its body, the rotation (9, by rows) and place (3)
of the other body, and its size (3): half edges; or radius, half length and nothing."""
WORLD = -1


class Slot(NamedTuple):
    """link: the body of the model that carries the capsule. base: that which carries the other body, or WORLD. kind: of it."""

    link: int
    base: int
    kind: Kind


class _Contact(NamedTuple):
    """The nearest points of a slot in world axes: value, force f, its point C and direction n, and K as weights and covectors."""

    value: Scalar
    point: Vec
    normal: Vec
    force: tuple[Vec, Vec]
    stiffness: list[tuple[Scalar, tuple[Vec, Vec]]]


class Clearances:
    """The residual above on the configurations of a robot bolted to the ground, with partial derivatives of its own.

    manifold: of states that begin with the configuration, default that of configurations alone.
    parameters: "pairs" (NUMBERS for each slot). Raises ValueError without slots, for a robot whose configurations are no vectors,
    or where a slot's base is not on the way to its link.
    """

    def __init__(self, model: Model, slots: Sequence[Slot], manifold: Manifold | None = None) -> None:
        if not slots:
            raise ValueError("clearances need at least one slot")
        if model.nq != model.nv:
            raise ValueError(
                f"{model.name} has quaternions in its configuration; clearances are for robots that have none"
            )
        for slot in slots:
            if slot.base != WORLD and not set(model.ancestors(slot.base)) < set(model.ancestors(slot.link)):
                raise ValueError(
                    f"{model.body_names[slot.base]} is not on the way to {model.body_names[slot.link]}: let the link "
                    "farther along the chain carry the capsule, and the nearer one the body"
                )
        self.model, self.slots, self.nu, self.n_out = model, tuple(slots), 0, len(slots)
        self.manifold = manifold or Manifold.vector(model.nq, model.q_names)
        self.output_names = tuple(self._name(i, slot) for i, slot in enumerate(slots))
        self.control_names: tuple[str, ...] = ()

    def _name(self, i: int, slot: Slot) -> str:
        base = "" if slot.base == WORLD else f" of {self.model.body_names[slot.base]}"
        return f"{self.model.body_names[slot.link]} to {slot.kind} {i}{base}"

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        X, _ = self._kinematics(x)
        return sm.stack([self._contact(X, i, slot, p["pairs"]).value for i, slot in enumerate(self.slots)])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """See the module."""
        X, S = self._kinematics(x)
        contacts = [self._contact(X, i, slot, p["pairs"]) for i, slot in enumerate(self.slots)]
        return self._partials(x, S, contacts)

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """See the module."""
        X, S = self._kinematics(x)
        contacts = [self._contact(X, i, slot, p["pairs"]) for i, slot in enumerate(self.slots)]
        n, zero = self.manifold.ndx, 0.0 * x[0]
        H = [[zero] * n for _ in range(n)]
        for pair, own in self._groups().items():
            self._add(H, S, self._moving(*pair), [(lam[i], contacts[i]) for i in own], zero)
        empty = [sm.stack([zero] * n)][:0]
        return self._partials(x, S, contacts), Contraction([sm.stack(r) for r in H], empty, empty)

    # -- kinematics -----------------------------------------------------------------------------------------------------
    def _kinematics(self, x: Rows) -> tuple[dict[int, tuple[Mat, Vec]], list[Motion]]:
        """Rotation and place of each body that carries something, and the joint motions, in the world."""
        fields = run(PLACEMENT, self.model, {"q": x[: self.model.nq]})
        bodies = {b for slot in self.slots for b in (slot.link, slot.base) if b != WORLD}
        poses = {}
        for b in bodies:
            pose = row(fields["X"], b).components()
            poses[b] = (pose.R, pose.p)
        return poses, [row(fields["S"], d) for d in range(self.model.nv)]

    def _moving(self, link: int, base: int) -> list[int]:
        """The degrees of freedom that move one against the other."""
        below = set() if base == WORLD else set(self.model.ancestors(base))
        return [d for d in self.model.ancestors(link) if d not in below]

    def _groups(self) -> dict[tuple[int, int], list[int]]:
        """The slots by their links and bases."""
        groups: dict[tuple[int, int], list[int]] = {}
        for i, slot in enumerate(self.slots):
            groups.setdefault((slot.link, slot.base), []).append(i)
        return groups

    def _contact(self, X: dict[int, tuple[Mat, Vec]], i: int, slot: Slot, pairs: Rows) -> _Contact:
        own = [pairs[NUMBERS * i + j] for j in range(NUMBERS)]
        R, at = X[slot.link]
        a = R @ Vec(*own[:3]) + at
        along = R @ (Vec(*own[3:6]) - Vec(*own[:3]))
        turn, place = Mat(*(Vec(own[6 + j], own[9 + j], own[12 + j]) for j in range(3))), Vec(*own[15:18])
        if slot.base != WORLD:
            base, origin = X[slot.base]
            turn, place = base @ turn, base @ place + origin
        p, d = turn.transpose_times(a - place), turn.transpose_times(along)
        found = segment_box(p, d, Vec(*own[18:])) if slot.kind == "box" else segment_cylinder(p, d, own[18], own[19])
        return _in_world(found, turn, a, along, d)

    def _partials(self, x: Rows, S: list[Motion], contacts: Sequence[_Contact]) -> Partials:
        zero = 0.0 * x[0]
        rows = []
        for slot, c in zip(self.slots, contacts, strict=True):
            moving = set(self._moving(slot.link, slot.base))
            rows.append(sm.stack([_along(c.force, S[d]) if d in moving else zero for d in range(self.manifold.ndx)]))
        return Partials(sm.stack([c.value for c in contacts]), rows, [sm.stack([])] * 0)

    def _add(
        self,
        H: list[list[Scalar]],
        S: list[Motion],
        moving: Sequence[int],
        contacts: Sequence[tuple[Scalar, _Contact]],
        zero: Scalar,
    ) -> None:
        """Add the second derivatives of lam' g of the slots between two links."""
        K = [[zero] * 6 for _ in range(6)]
        F, M = Vec(zero, zero, zero), Mat(*(Vec(zero, zero, zero) for _ in range(3)))
        for weight, c in contacts:
            F, M = F + c.normal * weight, M + c.point.outer(c.normal * weight)
            for factor, (n, f) in c.stiffness:
                _rank_one(K, weight * factor, [n.x, n.y, n.z, f.x, f.y, f.z])
        trace = M.a.x + M.b.y + M.c.z
        for place, k in enumerate(moving):
            s = [S[k].w.x, S[k].w.y, S[k].w.z, S[k].l.x, S[k].l.y, S[k].l.z]
            y = [sum((_entry(K, i, j) * s[j] for j in range(1, 6)), _entry(K, i, 0) * s[0]) for i in range(6)]
            w = S[k].w
            turned = S[k].l.cross(F) + M @ w - w * trace
            n, f = Vec(*y[:3]) + turned, Vec(*y[3:])
            for i in moving[: place + 1]:
                H[i][k] = H[i][k] + S[i].w.dot(n) + S[i].l.dot(f)
                if i != k:
                    H[k][i] = H[i][k]


def _in_world(found: Nearest, turn: Mat, a: Vec, along: Vec, d: Vec) -> _Contact:
    point, normal, pull = a + along * found.share, turn @ found.normal, turn @ found.pull
    D = found.distance
    inverse = 1.0 / sm.select(D, D, 1.0 + 0.0 * D)
    force = (point.cross(normal), normal)
    stretched = [(w, v, w * v.dot(d)) for w, v in found.curvature]
    y = [turn @ v for _, v, _ in stretched]
    stiffness = [(w * inverse, (point.cross(v), v)) for (w, _, _), v in zip(stretched, y, strict=True)]
    bend = sum((v * s for (_, _, s), v in zip(stretched[1:], y[1:], strict=True)), y[0] * stretched[0][2])
    slide = (point.cross(bend) + along.cross(pull), bend)
    outside = sm.select(D, inverse, 0.0 * D)
    stiffness += [(-outside, force), (-found.compliance * inverse, slide)]
    return _Contact(D, point, normal, force, stiffness)


def _along(force: tuple[Vec, Vec], S: Motion) -> Scalar:
    return force[0].dot(S.w) + force[1].dot(S.l)


def _rank_one(K: list[list[Scalar]], weight: Scalar, v: Sequence[Scalar]) -> None:
    """K + weight v v', upper triangle."""
    for i in range(6):
        scaled = weight * v[i]
        for j in range(i, 6):
            K[i][j] = K[i][j] + scaled * v[j]


def _entry(K: list[list[Scalar]], i: int, j: int) -> Scalar:
    return K[i][j] if i <= j else K[j][i]
