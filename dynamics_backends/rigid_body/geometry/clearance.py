"""Distances of the links' capsules from bodies: a residual with run-time data for everything except the pairs of links.

    g_s = D(segment of the capsule s on its link, core of the body s) >= radii + margin

A slot s fixes the kind of the body: a box, a cylinder or the face of a hull, each rounded by its radius. The slot also fixes the
link with the capsule, and the carrier of the body: the world, or an ancestor of that link. Parameters choose the capsule and the
body of a slot at each knot. The radii are part of the bound, hence parameters too. The module
:mod:`dynamics_backends.rigid_body.geometry.distances` gives the distances and their derivatives in the motion of the link. With
the joint motions S_k = (w_k, l_k) in the world, the nearest point C of the segment, the direction n of the distance there and
the force f = (C x n, n) along it,

    dg / dq_k = f . S_k
    d^2 g / dq_i dq_k = S_i' K S_k + w_i . ((l_k + w_k x C) x n)      i an ancestor of k, or k itself,
    K = ( sum_j W_j phi_j phi_j' - f f' - s s' / g_t ) / D,           phi = (C x a, a) for a direction a

K is summed over the slots of a link into one 6 x 6 matrix, so that an additional slot costs little more than its distance. Each
kind of body has one function for the K of a slot, which generated code calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Contraction, Partials
from dynamics_backends.rigid_body.algorithms.kinematics import PLACEMENT
from dynamics_backends.rigid_body.geometry.distances import NEAREST, Nearest
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.drivers import run
from dynamics_backends.rigid_body.passes.passes import row
from dynamics_backends.rigid_body.spatial.spatial import Mat, Motion, Vec, build, leaves
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.symbols import Straight, called

Kind = Literal["box", "cylinder", "triangle"]
Order = Literal["value", "first", "second"]
NUMBERS = 21
"""Number of parameters of a slot: the ends of the segment (3, 3) in the internal frame of its body; the rotation (9, by rows),
position (3) and size (3) of the other body. Sizes: half edges; radius, half length and 0; or the three numbers of a triangle.
"""
WORLD = -1
_UPPER = [(i, j) for i in range(6) for j in range(i, 6)]


class Slot(NamedTuple):
    """link: body of the model that carries the capsule. base: carrier of the other body, or WORLD. kind: of the other body."""

    link: int
    base: int
    kind: Kind


class _Contact(NamedTuple):
    """Results for one slot in world axes: distance, force f, and second-order terms times the multiplier of the slot.

    force: (moment C x n, force n). moment: the matrix C n'. stiffness: the upper triangle of K by rows.
    """

    value: Scalar
    force: tuple[Vec, Vec]
    moment: Mat
    stiffness: list[Scalar]


class Clearances:
    """Map to the distances g of capsules on a robot's links from bodies (one for each slot), with derivatives.

    manifold: of states that begin with the configuration; default: of configurations only. moving: True if a parameter displaces
    the bodies in the world. bodies: names of the bodies in the world, one for each slot, if they are known. parameters: "pairs"
    (NUMBERS for each slot), and "center" (3) [m], the displacement. Raises ValueError without slots, for a robot with quaternions
    (such as a floating base), or for a slot whose base is no ancestor of its link.
    """

    def __init__(
        self,
        model: Model,
        slots: Sequence[Slot],
        manifold: Manifold | None = None,
        *,
        moving: bool = False,
        bodies: Sequence[str] = (),
    ) -> None:
        if not slots:
            raise ValueError("clearances need at least one slot")
        if model.nq != model.nv:
            raise ValueError(
                f"{model.name} has quaternions in its configuration; clearances are for robots that have none"
            )
        for slot in slots:
            if slot.base != WORLD and not set(model.ancestors(slot.base)) < set(model.ancestors(slot.link)):
                raise ValueError(
                    f"{model.body_names[slot.base]} is not on the path to {model.body_names[slot.link]}: let the link "
                    "farther along the chain carry the capsule, and the nearer one the body"
                )
        self.moving = moving
        self.model, self.slots, self.nu, self.n_out = model, tuple(slots), 0, len(slots)
        self.manifold = manifold or Manifold.vector(model.nq, model.q_names)
        self.output_names = tuple(
            self._name(i, slot, bodies[i] if bodies else "the surroundings") for i, slot in enumerate(slots)
        )
        self.control_names: tuple[str, ...] = ()

    def _name(self, i: int, slot: Slot, body: str) -> str:
        """Output name of slot i: its link, and the name of a body in the world, or of the link that carries the other body."""
        other = body if slot.base == WORLD else self.model.body_names[slot.base]
        return f"{self.model.body_names[slot.link]} to {other} (pair {i})"

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Distances g [m], one row for each slot; radii and margin are not subtracted."""
        X, _ = self._kinematics(x)
        return sm.stack([self._slot_values("value", X, i, p)[0] for i in range(self.n_out)])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Distances and their derivatives in q: the joint motions S_k times the force f = (C x n, n) at the nearest point C."""
        X, S = self._kinematics(x)
        values = [self._slot_values("first", X, i, p) for i in range(self.n_out)]
        return self._partials(x, S, [(g, _pair(force)) for g, *force in values])

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """First derivatives, and the second derivatives of lam' g, summed over the slots of a link before they act on joints."""
        X, S = self._kinematics(x)
        contacts = [_contact(self._slot_values("second", X, i, p, lam[i])) for i in range(self.n_out)]
        n, zero = self.manifold.ndx, 0.0 * x[0]
        H = [[zero] * n for _ in range(n)]
        for pair, own in self._groups().items():
            self._add(H, S, self._moving(*pair), [(lam[i], contacts[i]) for i in own], zero)
        empty = [sm.stack([zero] * n)][:0]
        first = self._partials(x, S, [(c.value, c.force) for c in contacts])
        return first, Contraction([sm.stack(r) for r in H], empty, empty)

    # -- kinematics -----------------------------------------------------------------------------------------------------
    def _kinematics(self, x: Rows) -> tuple[dict[int, tuple[Mat, Vec]], list[Motion]]:
        """Rotation and position in the world, by number, of each body that carries a shape, and the joint motions S by DoF."""
        fields = run(PLACEMENT, self.model, {"q": x[: self.model.nq]})
        bodies = {b for slot in self.slots for b in (slot.link, slot.base) if b != WORLD}
        poses = {}
        for b in bodies:
            pose = row(fields["X"], b).components()
            poses[b] = (pose.R, pose.p)
        return poses, [row(fields["S"], d) for d in range(self.model.nv)]

    def _moving(self, link: int, base: int) -> list[int]:
        """The degrees of freedom that move the link relative to the base."""
        below = set() if base == WORLD else set(self.model.ancestors(base))
        return [d for d in self.model.ancestors(link) if d not in below]

    def _groups(self) -> dict[tuple[int, int], list[int]]:
        """The slots, grouped by link and base."""
        groups: dict[tuple[int, int], list[int]] = {}
        for i, slot in enumerate(self.slots):
            groups.setdefault((slot.link, slot.base), []).append(i)
        return groups

    def _slot_values(
        self, order: Order, X: dict[int, tuple[Mat, Vec]], i: int, p: Mapping[str, Rows], *weight: Scalar
    ) -> list[Scalar]:
        """Results of :func:`_slot_function` for slot i, with the numbers of its parameters. X: poses of the bodies in the world.

        weight: the slot's multiplier, for the order "second" only.
        """
        slot, own = self.slots[i], [p["pairs"][NUMBERS * i + j] for j in range(NUMBERS)]
        turn, place = Mat(*(Vec(own[6 + j], own[9 + j], own[12 + j]) for j in range(3))), Vec(*own[15:18])
        if self.moving and slot.base == WORLD:
            place = place + Vec(*(p["center"][j] for j in range(3)))
        if slot.base != WORLD:
            base, origin = X[slot.base]
            turn, place = base @ turn, base @ place + origin
        numbers = [n for part in (*X[slot.link], turn, place) for n in leaves(part)]
        return called(_slot_function(slot.kind, order), *numbers, *own[:6], *own[18:], *weight)

    def _partials(self, x: Rows, S: list[Motion], values: Sequence[tuple[Scalar, tuple[Vec, Vec]]]) -> Partials:
        """Partial derivatives of the distances from the slots' values and forces; joint motions S."""
        zero = 0.0 * x[0]
        rows = []
        for slot, (_, force) in zip(self.slots, values, strict=True):
            moving = set(self._moving(slot.link, slot.base))
            rows.append(sm.stack([_along(force, S[d]) if d in moving else zero for d in range(self.manifold.ndx)]))
        return Partials(sm.stack([value for value, _ in values]), rows, [sm.stack([])] * 0)

    def _add(
        self,
        H: list[list[Scalar]],
        S: list[Motion],
        moving: Sequence[int],
        contacts: Sequence[tuple[Scalar, _Contact]],
        zero: Scalar,
    ) -> None:
        """Add the second derivatives of lam' g for the slots of one link and one base to H in place.

        S: joint motions; moving: DoFs that move the link relative to the base, in order from the root; contacts: multipliers and
        results of the slots.
        """
        K = [[zero] * 6 for _ in range(6)]
        F, M = Vec(zero, zero, zero), Mat(*(Vec(zero, zero, zero) for _ in range(3)))
        for weight, c in contacts:
            F, M = F + c.force[1] * weight, M + c.moment
            for (i, j), k in zip(_UPPER, c.stiffness, strict=True):
                K[i][j] = K[i][j] + k
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


@cache
def _slot_function(kind: Kind, order: Order) -> Straight:
    """Return the function of numbers for one slot: the distance; the force f (orders "first", "second"); C n' by columns and the
    upper triangle of K, times the last argument (order "second"). Cached.

    Arguments: rotation (by columns) and position of the link, the same of the body, ends of the segment, size of the body.
    """

    def function(*numbers: Scalar) -> list[Scalar]:
        """Results of one slot up to ``order``, from its numbers."""
        rest = iter(numbers)
        R, at, turn, place, start, end, size = (build(part, rest) for part in (Mat, Vec, Mat, Vec, Vec, Vec, Vec))
        a, along = R @ start + at, R @ (end - start)
        p, d = turn.transpose_times(a - place), turn.transpose_times(along)
        found = NEAREST[kind](p, d, size)
        if order == "value":
            return [found.distance]
        point, normal = a + along * found.fraction, turn @ found.normal
        force = (point.cross(normal), normal)
        first = [found.distance, *leaves(force[0]), *leaves(force[1])]
        if order == "first":
            return first
        (weight,) = rest
        K = [[0.0 * weight] * 6 for _ in range(6)]
        for factor, (n, f) in _stiffness(found, turn, along, d, point, force):
            _rank_one(K, weight * factor, [*leaves(n), *leaves(f)])
        return [*first, *leaves(point.outer(normal * weight)), *(K[i][j] for i, j in _UPPER)]

    function.__name__ = f"{kind}_{order}"
    return function


def _stiffness(
    found: Nearest, turn: Mat, along: Vec, d: Vec, point: Vec, force: tuple[Vec, Vec]
) -> list[tuple[Scalar, tuple[Vec, Vec]]]:
    """Terms of the Hessian K = sum of weight * covector covector' of a slot, as pairs (weight, covector (moment, force)).

    along, d: direction of the segment in the world and in the body's frame; point: nearest point C; force: (C x n, n).
    """
    D, pull = found.distance, turn @ found.pull
    inverse = 1.0 / sm.select(D, D, 1.0 + 0.0 * D)
    stretched = [(w, v, w * v.dot(d)) for w, v in found.curvature]
    y = [turn @ v for _, v, _ in stretched]
    stiffness = [(w * inverse, (point.cross(v), v)) for (w, _, _), v in zip(stretched, y, strict=True)]
    bend = sum((v * s for (_, _, s), v in zip(stretched[1:], y[1:], strict=True)), y[0] * stretched[0][2])
    slide = (point.cross(bend) + along.cross(pull), bend)
    outside = sm.select(D, inverse, 0.0 * D)
    return [*stiffness, (-outside, force), (-found.compliance * inverse, slide)]


def _contact(values: Sequence[Scalar]) -> _Contact:
    """The second-order results of :func:`_slot_function`."""
    return _Contact(values[0], _pair(values[1:7]), build(Mat, iter(values[7:16])), list(values[16:]))


def _pair(numbers: Sequence[Scalar]) -> tuple[Vec, Vec]:
    """Moment and force, vectors of the first and the last three of six numbers."""
    return Vec(*numbers[:3]), Vec(*numbers[3:])


def _along(force: tuple[Vec, Vec], S: Motion) -> Scalar:
    """Product of a force (moment, force) and a joint motion: the derivative of the distance in that DoF."""
    return force[0].dot(S.w) + force[1].dot(S.l)


def _rank_one(K: list[list[Scalar]], weight: Scalar, v: Sequence[Scalar]) -> None:
    """Add weight v v' to the upper triangle of K."""
    for i in range(6):
        scaled = weight * v[i]
        for j in range(i, 6):
            K[i][j] = K[i][j] + scaled * v[j]


def _entry(K: list[list[Scalar]], i: int, j: int) -> Scalar:
    """Entry of a symmetric matrix stored in its upper triangle."""
    return K[i][j] if i <= j else K[j][i]
