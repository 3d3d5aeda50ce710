"""The broad phase: which capsule and which body a slot of a residual is about, at each knot.

The residual is :class:`~dynamics_backends.rigid_body.geometry.clearance.Clearances`.
For configurations along a path the pairs that are nearest, among those within reach, get the slots of their link; slots that are
left over have no bound. A body that is far enough gets a single slot, against one coarse capsule around all that the link carries:
so a motion that leaves the path behind does not go through it. A pair enters as

    D >= radius of the capsule + radius of the core + margin - relief

relief (at least 0) is how much farther apart the true shapes are than capsule and core, where that is known: capsules stand out of
the links that they cover, and without relief an arm could not start with a finger beside a can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.clearance import WORLD, Slot
from dynamics_backends.rigid_body.geometry.covers.robot_cover import Poses, RobotCover, placed_bodies
from dynamics_backends.rigid_body.geometry.scene import Core, Scene
from trajopt.collisions.choice import FAR, chosen_pairs
from trajopt.collisions.gaps import KINDS, Cores, capsule_gaps
from trajopt.collisions.poses import body_poses
from trajopt.collisions.true_shapes import geometry_of, pose


class Chosen(NamedTuple):
    """pairs (M, NUMBERS * slots), lower (M, slots) bounds of the residual [m], -inf for empty slots; near: what fills others."""

    pairs: Array
    lower: Array
    near: Near


class Near(NamedTuple):
    """Filled slots, arrays of one length. knot: index of the configuration; piece, core: which capsule and which other core, coarse
    capsules after the others; gap: between their surfaces [m]."""

    knot: Array
    slot: Array
    piece: Array
    core: Array
    gap: Array


Relief = Callable[[int, int, int, float], float]
"""Distance of the true shapes of a piece and a core beyond their gap [m]: relief(knot, piece, core, gap)."""


class _Others(NamedTuple):
    """Cores that capsules keep away from: their carriers (O,), WORLD for what the robot does not move; R (M, O, 3, 3),
    p (M, O, 3) in the world, and in the internal frame of the carrier; size (O, 3), radius (O,), the kind of each
    (O,), a place in KINDS, whether it is a capsule of the robot itself (O,), and the body of whose hull it is a face (O,) or -1."""

    carriers: Array
    R: Array
    p: Array
    own_R: Array
    own_p: Array
    size: Array
    radius: Array
    kind: Array
    own: Array
    hull: Array


@dataclass(frozen=True, eq=False)
class CollisionPairs:
    """Robot, scene, and pairs of bodies of the robot that may touch each other, the one nearer to the ground first.

    disabled: pairs of its links that do not count. reach: pairs farther apart than this [m] get no slot.
    """

    robot: RobotCover
    scene: Scene
    own: tuple[tuple[int, int], ...] = ()
    reach: float = 0.5
    disabled: frozenset[frozenset[str]] = frozenset()

    @cached_property
    def cores(self) -> tuple[tuple[int, Core], ...]:
        """The scene's cores: index of the body, and core."""
        return tuple((i, core) for i, body in enumerate(self.scene.bodies) for core in body.cores())

    @cached_property
    def links(self) -> tuple[int, ...]:
        """The bodies of the robot that move."""
        return tuple(b for b in self.robot.carried if b >= 0)

    def slots(self) -> tuple[Slot, ...]:
        """What may be near: for each moving body one slot for a box, two more from the third joint on, many more at the end of a
        chain, where motions leave their guess most; one for a cylinder, a few more at the end, FACES times as many for faces of
        hulls; none of kinds that the scene lacks. One for each pair of the robot's own."""
        kinds = {core.kind for _, core in self.cores} | {"box" for near, _ in self.own if near == WORLD}
        model, found = self.robot.model, []
        for b in self.links:
            depth, last = int(model.depth[b]), b not in model.parent
            boxes, cylinders = 1 + 2 * (depth >= 2) + 17 * last, 1 + 6 * last
            found += [Slot(b, WORLD, "box")] * (boxes if "box" in kinds else 0)
            found += [Slot(b, WORLD, "cylinder")] * (cylinders if "cylinder" in kinds else 0)
            found += [Slot(b, WORLD, "triangle")] * (cylinders * FACES if "triangle" in kinds else 0)
        return (*found, *(Slot(far, near, "box") for near, far in self.own if near != WORLD))

    @cached_property
    def own_pieces(self) -> tuple[int, ...]:
        """The capsules that stand behind the scene's cores: those of the nearer bodies of the robot's own pairs."""
        bases = sorted({near for near, _ in self.own})
        return tuple(int(i) for base in bases for i in np.flatnonzero(self.robot.bodies == base))

    @cached_property
    def true_bodies(self) -> tuple[Any, ...]:
        """coal's geometries of the bodies of the scene."""
        return tuple(geometry_of(body.shape) for body in self.scene.bodies)

    @cached_property
    def resting(self) -> tuple[Any, ...]:
        """Where coal finds the bodies of the scene, None for those that move."""
        return tuple(None if body.way is not None else pose(body.R, body.p) for body in self.scene.bodies)

    def gaps(self, qs: Array, times: Array, reach: float | None = None) -> Array:
        """Gaps (M, P, O) [m] between capsules and cores, those of the scene first, at configurations (M, nq); beyond the reach, by
        default the own one, lower bounds of them; of a segment inside of a hull one face tells the depth."""
        poses = body_poses(self.robot.model, qs)
        others = self._others(poses, times)
        return self._gaps(*self.robot.ends(poses), others, self.reach if reach is None else reach)

    def coarse_gaps(self, qs: Array, times: Array) -> Array:
        """Gaps (M, C, O) [m] of coarse capsules, of the moving bodies in their order, from the cores of the scene."""
        return self._coarse_gaps(body_poses(self.robot.model, qs), times)

    def _coarse_gaps(self, poses: Poses, times: Array) -> Array:
        coarse, scene = self.robot.coarse, self._scene_at(times)
        cores = Cores(scene.R, scene.p, scene.size, scene.radius, scene.kind, scene.hull)
        counts = np.ones((len(coarse.radii), len(scene.radius)), dtype=bool)
        return capsule_gaps(*coarse.ends(poses), coarse.radii, cores, counts, self.reach)

    @staticmethod
    def is_far(coarse: Array) -> Array:
        """Where coarse capsules stand for the others, by their gaps."""
        return np.asarray(coarse > FAR)

    def chosen(
        self,
        slots: Sequence[Slot],
        qs: Array,
        times: Array,
        margin: float | Array = 0.0,
        relief: Relief | None = None,
        also: Sequence[Array] = (),
    ) -> Chosen:
        """The pairs of configurations (M, nq) at times (M,) [s]; margin: a number or (M,) [m].

        also: other configurations (M, nq) at which pairs may be near, such as those of motions that went through something.
        """
        M = len(qs)
        margin = np.broadcast_to(np.asarray(margin, float), (M,))
        poses = body_poses(self.robot.model, qs)
        others = self._others(poses, times)
        fine, robot = self._gaps(*self.robot.ends(poses), others, self.reach), self.robot
        coarse = np.full((M, len(robot.coarse.radii), fine.shape[2]), -np.inf)  # of the robot's own bodies: never far
        coarse[:, :, : len(self.cores)] = self._coarse_gaps(poses, times)
        nearest = fine
        for more in also:
            nearest = np.minimum(nearest, self.gaps(more, times) + 0.5 * robot.excess[:, None])
        k, slot, i, o = self._filled(slots, nearest, coarse, others)
        found, less = np.concatenate([fine, coarse], axis=1)[k, i, o], np.zeros(len(k))
        if relief is not None:
            for n in np.flatnonzero((found < RELIEVED) & (i < len(robot.radii))).tolist():
                less[n] = relief(int(k[n]), int(i[n]), int(o[n]), float(found[n]))
        A, B, radii = (np.concatenate([getattr(r, key) for r in (robot, robot.coarse)]) for key in ("a", "b", "radii"))
        pairs, lower = np.tile(_FAR, (M, len(slots), 1)), np.full((M, len(slots)), -np.inf)
        lower[k, slot] = radii[i] + others.radius[o] + margin[k] - less
        turned = others.own_R[k, o].reshape(-1, 9)
        numbers = [A[i], B[i], turned, others.own_p[k, o], others.size[o]]
        pairs[k, slot] = np.concatenate(numbers, axis=1)
        return Chosen(pairs.reshape(M, -1), lower, Near(k, slot, i, o, found))

    def _filled(self, slots: Sequence[Slot], nearest: Array, coarse: Array, others: _Others) -> tuple[Array, ...]:
        """Knots, slots, capsules and cores of the pairs that get a slot, by what is to be taken for their gaps (M, P, O)."""
        P, found = nearest.shape[1], []
        for (link, base, kind), own in _grouped(slots).items():
            pieces = np.flatnonzero(self.robot.bodies == link)
            cores = np.flatnonzero((others.carriers == base) & (others.kind == list(KINDS).index(kind)))
            if not len(pieces) or not len(cores):
                continue
            held, number = (coarse, self.links.index(link)) if base == WORLD else (None, 0)
            c = chosen_pairs(nearest, held, number, pieces, cores, len(own), self.reach)
            found.append((c.knot, np.array(own)[c.slot], np.append(pieces, P + number)[c.piece], cores[c.core]))
        none = np.zeros(0, int)
        return tuple(np.concatenate([none, *parts]) for parts in zip((none,) * 4, *found, strict=True))

    def least(self, qs: Array, times: Array) -> Array:
        """The least gap (M,) [m] between capsules and cores of all pairs."""
        gaps = self.gaps(qs, times)
        return gaps.reshape(len(qs), -1).min(axis=1)

    def _scene_at(self, times: Array) -> _Others:
        """The cores of the scene."""
        M, scene, count = len(times), self._of_scene, len(self.cores)
        R = np.broadcast_to(scene.R, (M, count, 3, 3))
        p = np.broadcast_to(scene.p, (M, count, 3))
        if self.scene.moves:
            moved = [self.scene.bodies[i].places(times) - self.scene.bodies[i].p for i, _ in self.cores]
            p = p + np.stack(moved, axis=1)
        return scene._replace(R=R, p=p, own_R=R, own_p=p)

    def _others(self, poses: Poses, times: Array) -> _Others:
        """The cores of the scene, and the capsules of bodies of the robot that others may touch."""
        M, scene = len(times), self._scene_at(times)
        if not self.own:
            return scene
        capsules, R, p = self._of_robot, scene.R, scene.p
        at_R, at_p = placed_bodies(poses, capsules.carriers)
        turned, placed = at_R @ capsules.own_R, (at_R @ capsules.own_p[:, :, None])[..., 0] + at_p
        local = [np.broadcast_to(a, (M, *a.shape)) for a in (capsules.own_R, capsules.own_p)]
        pairs = ((R, turned), (p, placed), (R, local[0]), (p, local[1]))
        joined = [np.concatenate(pair, axis=1) for pair in pairs]
        rest = [np.concatenate([a, b]) for a, b in zip(self._of_scene, capsules, strict=True)]
        return _Others(rest[0], *joined, *rest[5:])

    @cached_property
    def _of_scene(self) -> _Others:
        """The cores of the scene where it begins."""
        bodies, count = self.scene.bodies, len(self.cores)
        R = np.array([bodies[i].R @ core.R for i, core in self.cores]).reshape(count, 3, 3)
        p = np.array([bodies[i].p + bodies[i].R @ core.p for i, core in self.cores]).reshape(count, 3)
        size = np.array([core.size for _, core in self.cores]).reshape(count, 3)
        kind = np.array([list(KINDS).index(core.kind) for _, core in self.cores], dtype=int)
        radius = np.array([core.radius for _, core in self.cores])
        hull = np.array([i if core.kind == "triangle" else -1 for i, core in self.cores], dtype=int)
        return _Others(np.full(count, WORLD), R, p, R, p, size, radius, kind, np.zeros(count, dtype=bool), hull)

    @cached_property
    def _of_robot(self) -> _Others:
        """The capsules of the robot's bodies that others may touch, in the frames of their carriers."""
        return _capsules_of(self.robot, self.own_pieces)

    def _gaps(self, A: Array, B: Array, others: _Others, reach: float) -> Array:
        """Gaps (M, P, O) [m]; those beyond the reach are a lower bound of themselves, pairs that do not count infinite."""
        cores = Cores(others.R, others.p, others.size, others.radius, others.kind, others.hull)
        return capsule_gaps(A, B, self.robot.radii, cores, self._counts, reach)

    @cached_property
    def _counts(self) -> Array:
        """Mask of the pairs (P, O) that count: all with the scene, and pairs of the robot that may touch."""
        carriers = np.concatenate([self._of_scene.carriers, self._of_robot.carriers])
        own = np.arange(len(carriers)) >= len(self.cores)
        counts = (self.robot.bodies >= 0)[:, None] & ~own
        for near, far in self.own:
            counts = counts | ((self.robot.bodies == far)[:, None] & own & (carriers == near))
        if self.disabled:
            links, others = self.robot.links, [self.robot.links[i] for i in self.own_pieces]
            counts[:, len(self.cores) :] &= [[frozenset((a, b)) not in self.disabled for b in others] for a in links]
        return counts


FACES = 2
"""A hull is kept away from by this many of its faces for each slot that a cylinder would get."""
RELIEVED = 0.03
"""[m] The true shapes of pairs farther apart than this do not matter."""
_FAR = np.concatenate([np.zeros(6), np.eye(3).ravel(), [0.0, 0.0, 1e3], np.zeros(3)])
"""An empty slot: far away."""


def _grouped(slots: Sequence[Slot]) -> dict[Slot, list[int]]:
    groups: dict[Slot, list[int]] = {}
    for i, slot in enumerate(slots):
        groups.setdefault(slot, []).append(i)
    return groups


@lru_cache(maxsize=64)
def _capsules_of(robot: RobotCover, own: tuple[int, ...]) -> _Others:
    """Capsules of a robot as cores in the frames of their carriers, kept for the next scene."""
    frames, pieces = [_of_segment(robot.a[i], robot.b[i]) for i in own], list(own)
    R, p = (np.array([frame[i] for frame in frames]).reshape(-1, *shape) for i, shape in ((0, (3, 3)), (1, (3,))))
    size = np.array([(0.0, 0.0, half) for _, _, half in frames]).reshape(-1, 3)
    flags = np.zeros(len(own), dtype=int), np.ones(len(own), dtype=bool), np.full(len(own), -1)
    return _Others(robot.bodies[pieces], R, p, R, p, size, robot.radii[pieces], *flags)


def _of_segment(a: Array, b: Array) -> tuple[Array, Array, float]:
    """A frame whose z axis is along a segment, its middle, and half its length."""
    along = b - a
    length = float(np.linalg.norm(along))
    z = np.array([0.0, 0.0, 1.0]) if length == 0.0 else along / length
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z]), 0.5 * (a + b), 0.5 * length
