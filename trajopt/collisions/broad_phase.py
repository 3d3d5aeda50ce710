"""Broad phase: select the capsule and the body for each slot of a clearance residual, at each knot.

The residual is :class:`~dynamics_backends.rigid_body.geometry.clearance.Clearances`.
At each configuration of a path, the nearest pairs within reach get the slots of their link. Empty slots have no bound. A body
that is far away gets a single slot, with the coarse capsule around all that the link carries. This slot keeps a motion that
leaves the path from passing through the body. A pair enters as

    D >= radius of the capsule + radius of the core + margin - relief

relief (at least 0) is the distance of the true shapes minus that of capsule and core, where it is known. Capsules are larger than
the links that they cover. Without relief, an arm could not start with a finger beside a can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.clearance import WORLD, Slot
from dynamics_backends.rigid_body.geometry.covers import Poses, RobotCover, placed_bodies
from dynamics_backends.rigid_body.geometry.scene import Core, Scene
from trajopt.collisions.library import FAR, KINDS, Cores, capsule_gaps, chosen_pairs
from trajopt.collisions.poses import body_poses
from trajopt.collisions.true_shapes import geometry_of, pose


class SelectedPairs(NamedTuple):
    """Selected pairs. pairs (M, NUMBERS * slots), lower (M, slots): bounds [m], -inf if empty; near: filled slots."""

    pairs: Array
    lower: Array
    near: FilledSlots


class FilledSlots(NamedTuple):
    """Filled slots, arrays of one length. knot: configuration; piece: capsule, with coarse capsules after the others; core: index
    of the core; gap: distance between their surfaces [m]."""

    knot: Array
    slot: Array
    piece: Array
    core: Array
    gap: Array


Relief = Callable[[int, int, int, float], float]
"""Distance of the true shapes minus the gap of piece and core [m]: relief(knot, piece, core, gap)."""


class _ObstacleCores(NamedTuple):
    """Cores that capsules avoid. carriers (O,): bodies of the robot, WORLD for the scene; R (M, O, 3, 3), p (M, O, 3): poses in the
    world; local_R, local_p: poses in the carrier; size (O, 3), radius (O,) [m]; kind (O,): index into KINDS; is_self (O,): True
    for capsules of the robot; hull (O,): body whose hull has the core as a face, or -1."""

    carriers: Array
    R: Array
    p: Array
    local_R: Array
    local_p: Array
    size: Array
    radius: Array
    kind: Array
    is_self: Array
    hull: Array


@dataclass(frozen=True, eq=False)
class CollisionPairs:
    """Robot, scene, and pairs of bodies that may collide.

    self_pairs: pairs of robot bodies, the one nearer to the ground first. disabled: ignored pairs of links. reach:
    pairs farther apart than this [m] get no slot.
    """

    robot: RobotCover
    scene: Scene
    self_pairs: tuple[tuple[int, int], ...] = ()
    reach: float = 0.5
    disabled: frozenset[frozenset[str]] = frozenset()

    @cached_property
    def cores(self) -> tuple[tuple[int, Core], ...]:
        """Cores of the scene: index of the body, and core."""
        return tuple((i, core) for i, body in enumerate(self.scene.bodies) for core in body.cores())

    @cached_property
    def links(self) -> tuple[int, ...]:
        """Bodies of the robot that carry shapes, without the fixed base."""
        return tuple(b for b in self.robot.carried if b >= 0)

    def slots(self) -> tuple[Slot, ...]:
        """Return the slots of the residual, by link and kind of core; none for kinds absent from the scene.

        Each movable body has one slot for a box, two more from the third joint on, and 17 more at the end of a chain, where motions
        deviate most from their guess; one for a cylinder, six more at the end, and FACES times as many for hull faces. Each
        self-collision pair gets one slot.
        """
        kinds = {core.kind for _, core in self.cores} | {"box" for near, _ in self.self_pairs if near == WORLD}
        model, found = self.robot.model, []
        for b in self.links:
            depth, last = int(model.depth[b]), b not in model.parent
            boxes, cylinders = 1 + 2 * (depth >= 2) + 17 * last, 1 + 6 * last
            found += [Slot(b, WORLD, "box")] * (boxes if "box" in kinds else 0)
            found += [Slot(b, WORLD, "cylinder")] * (cylinders if "cylinder" in kinds else 0)
            found += [Slot(b, WORLD, "triangle")] * (cylinders * FACES if "triangle" in kinds else 0)
        return (*found, *(Slot(far, near, "box") for near, far in self.self_pairs if near != WORLD))

    @cached_property
    def self_pieces(self) -> tuple[int, ...]:
        """Capsules of the robot that are obstacles for its other links: those of the first bodies of the self-collision pairs.

        As cores they follow those of the scene.
        """
        bases = sorted({near for near, _ in self.self_pairs})
        return tuple(int(i) for base in bases for i in np.flatnonzero(self.robot.bodies == base))

    @cached_property
    def true_bodies(self) -> tuple[Any, ...]:
        """coal geometries of the bodies of the scene."""
        return tuple(geometry_of(body.shape) for body in self.scene.bodies)

    @cached_property
    def resting(self) -> tuple[Any, ...]:
        """coal poses of the bodies of the scene that do not move; None for moving ones."""
        return tuple(None if body.path is not None else pose(body.R, body.p) for body in self.scene.bodies)

    def gaps(self, qs: Array, times: Array, reach: float | None = None) -> Array:
        """Return gaps (M, P, O) [m] between the robot's P capsules at configurations (M, nq) and the O cores, scene cores first.

        Cores are those of the scene at times (M,) [s], and the capsules of self-collision pairs. Gaps beyond ``reach`` (default:
        self.reach) are lower bounds, those of ignored pairs are infinite. Where a capsule's segment is inside a hull of several
        faces, one core (a face) gets the depth.
        """
        poses = body_poses(self.robot.model, qs)
        others = self._obstacle_cores(poses, times)
        return self._gaps(*self.robot.ends(poses), others, self.reach if reach is None else reach)

    def coarse_gaps(self, qs: Array, times: Array) -> Array:
        """Return gaps (M, C, O) [m] between the coarse capsules of C movable bodies and O cores of the scene.

        Gaps beyond the reach are lower bounds.
        """
        return self._coarse_gaps(body_poses(self.robot.model, qs), times)

    def _coarse_gaps(self, poses: Poses, times: Array) -> Array:
        """Return gaps (M, C, O) as :meth:`coarse_gaps`, at given poses of the robot's bodies; lower bounds beyond the reach."""
        coarse, scene = self.robot.coarse, self._scene_at(times)
        cores = Cores(scene.R, scene.p, scene.size, scene.radius, scene.kind, scene.hull)
        counts = np.ones((len(coarse.radii), len(scene.radius)), dtype=bool)
        return capsule_gaps(*coarse.ends(poses), coarse.radii, cores, counts, self.reach)

    @staticmethod
    def is_far(coarse: Array) -> Array:
        """True where coarse gaps [m] exceed FAR, so that the coarse capsule replaces the finer ones."""
        return np.asarray(coarse > FAR)

    def chosen(
        self,
        slots: Sequence[Slot],
        qs: Array,
        times: Array,
        margin: float | Array = 0.0,
        relief: Relief | None = None,
        also: Sequence[Array] = (),
    ) -> SelectedPairs:
        """Assign the nearest pairs within reach to the slots of their links, at configurations (M, nq) and times (M,) [s].

        Further capsules of a link near the same core count as farther (:func:`chosen_pairs`). margin: a number or (M,) [m], added
        to the bounds. relief: subtracted from the bounds of pairs closer than RELIEVED. also: further configurations (M, nq) that
        determine which pairs are near, such as motions that collided.
        """
        M = len(qs)
        margin = np.broadcast_to(np.asarray(margin, float), (M,))
        poses = body_poses(self.robot.model, qs)
        others = self._obstacle_cores(poses, times)
        fine, robot = self._gaps(*self.robot.ends(poses), others, self.reach), self.robot
        coarse = np.full((M, len(robot.coarse.radii), fine.shape[2]), -np.inf)  # for self-collision pairs: never far
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
        turned = others.local_R[k, o].reshape(-1, 9)
        numbers = [A[i], B[i], turned, others.local_p[k, o], others.size[o]]
        pairs[k, slot] = np.concatenate(numbers, axis=1)
        return SelectedPairs(pairs.reshape(M, -1), lower, FilledSlots(k, slot, i, o, found))

    def _filled(
        self, slots: Sequence[Slot], nearest: Array, coarse: Array, others: _ObstacleCores
    ) -> tuple[Array, ...]:
        """Return knots, slots, capsules and obstacle cores of the pairs of capsule and core that get a slot.

        nearest: gaps (M, P, O) [m] at M knots between P capsules of the robot and the O cores of ``others``; the nearest pairs are
        selected. coarse: gaps (M, C, O) of C coarse capsules, which are numbered after the P others.
        """
        P, found = nearest.shape[1], []
        for (link, base, kind), slot_numbers in _grouped(slots).items():
            pieces = np.flatnonzero(self.robot.bodies == link)
            cores = np.flatnonzero((others.carriers == base) & (others.kind == list(KINDS).index(kind)))
            if not len(pieces) or not len(cores):
                continue
            held, number = (coarse, self.links.index(link)) if base == WORLD else (None, 0)
            c = chosen_pairs(nearest, held, number, pieces, cores, len(slot_numbers), self.reach)
            found.append(
                (c.knot, np.array(slot_numbers)[c.slot], np.append(pieces, P + number)[c.piece], cores[c.core])
            )
        none = np.zeros(0, int)
        return tuple(np.concatenate([none, *parts]) for parts in zip((none,) * 4, *found, strict=True))

    def smallest_gaps(self, qs: Array, times: Array) -> Array:
        """Return the smallest gap (M,) [m] between capsules and cores over all pairs, those of self-collision included.

        Gaps beyond ``reach`` are lower bounds.
        """
        gaps = self.gaps(qs, times)
        return gaps.reshape(len(qs), -1).min(axis=1)

    def _scene_at(self, times: Array) -> _ObstacleCores:
        """Return the cores of the scene at the times (M,) [s]."""
        M, scene, count = len(times), self._scene_cores, len(self.cores)
        R = np.broadcast_to(scene.R, (M, count, 3, 3))
        p = np.broadcast_to(scene.p, (M, count, 3))
        if self.scene.moves:
            moved = [self.scene.bodies[i].places(times) - self.scene.bodies[i].p for i, _ in self.cores]
            p = p + np.stack(moved, axis=1)
        return scene._replace(R=R, p=p, local_R=R, local_p=p)

    def _obstacle_cores(self, poses: Poses, times: Array) -> _ObstacleCores:
        """Return the cores of the scene at times (M,) [s], followed by the robot's capsules that may be hit by its other links."""
        M, scene = len(times), self._scene_at(times)
        if not self.self_pairs:
            return scene
        capsules, R, p = self._robot_capsules, scene.R, scene.p
        at_R, at_p = placed_bodies(poses, capsules.carriers)
        turned, placed = at_R @ capsules.local_R, (at_R @ capsules.local_p[:, :, None])[..., 0] + at_p
        local = [np.broadcast_to(a, (M, *a.shape)) for a in (capsules.local_R, capsules.local_p)]
        pairs = ((R, turned), (p, placed), (R, local[0]), (p, local[1]))
        joined = [np.concatenate(pair, axis=1) for pair in pairs]
        rest = [np.concatenate([a, b]) for a, b in zip(self._scene_cores, capsules, strict=True)]
        return _ObstacleCores(rest[0], *joined, *rest[5:])

    @cached_property
    def _scene_cores(self) -> _ObstacleCores:
        """Cores of the scene at its initial time."""
        bodies, count = self.scene.bodies, len(self.cores)
        R = np.array([bodies[i].R @ core.R for i, core in self.cores]).reshape(count, 3, 3)
        p = np.array([bodies[i].p + bodies[i].R @ core.p for i, core in self.cores]).reshape(count, 3)
        size = np.array([core.size for _, core in self.cores]).reshape(count, 3)
        kind = np.array([list(KINDS).index(core.kind) for _, core in self.cores], dtype=int)
        radius = np.array([core.radius for _, core in self.cores])
        hull = np.array([i if core.kind == "triangle" else -1 for i, core in self.cores], dtype=int)
        return _ObstacleCores(np.full(count, WORLD), R, p, R, p, size, radius, kind, np.zeros(count, dtype=bool), hull)

    @cached_property
    def _robot_capsules(self) -> _ObstacleCores:
        """Robot capsules that may be hit by other links, in the frames of their carriers."""
        return _capsules_of(self.robot, self.self_pieces)

    def _gaps(self, A: Array, B: Array, others: _ObstacleCores, reach: float) -> Array:
        """Return gaps (M, P, O) [m] of the robot's P capsules with ends A, B (M, P, 3) from O cores.

        Gaps are lower bounds beyond the reach, and infinite for pairs that :attr:`_counts` excludes.
        """
        cores = Cores(others.R, others.p, others.size, others.radius, others.kind, others.hull)
        return capsule_gaps(A, B, self.robot.radii, cores, self._counts, reach)

    @cached_property
    def _counts(self) -> Array:
        """Mask (P, O) of the pairs (capsule of the robot, core) to check.

        True for all pairs of a moving body with the scene, and for self-collision pairs whose links are not disabled.
        """
        carriers = np.concatenate([self._scene_cores.carriers, self._robot_capsules.carriers])
        is_self = np.arange(len(carriers)) >= len(self.cores)
        counts = (self.robot.bodies >= 0)[:, None] & ~is_self
        for near, far in self.self_pairs:
            counts = counts | ((self.robot.bodies == far)[:, None] & is_self & (carriers == near))
        if self.disabled:
            links, others = self.robot.links, [self.robot.links[i] for i in self.self_pieces]
            counts[:, len(self.cores) :] &= [[frozenset((a, b)) not in self.disabled for b in others] for a in links]
        return counts


FACES = 2
"""Number of hull faces that get a slot, for each slot that a cylinder would get."""
RELIEVED = 0.03
"""Gap above which the true shapes of a pair are ignored [m]."""
_FAR = np.concatenate([np.zeros(6), np.eye(3).ravel(), [0.0, 0.0, 1e3], np.zeros(3)])
"""Data of an empty slot: a box far away."""


def _grouped(slots: Sequence[Slot]) -> dict[Slot, list[int]]:
    """Return the indices of equal slots (link, base and kind of core)."""
    groups: dict[Slot, list[int]] = {}
    for i, slot in enumerate(slots):
        groups.setdefault(slot, []).append(i)
    return groups


@lru_cache(maxsize=64)
def _capsules_of(robot: RobotCover, indices: tuple[int, ...]) -> _ObstacleCores:
    """Return capsules of a robot as cores in the frames of their carriers; cached."""
    frames, pieces = [_segment_frame(robot.a[i], robot.b[i]) for i in indices], list(indices)
    R, p = (np.array([frame[i] for frame in frames]).reshape(-1, *shape) for i, shape in ((0, (3, 3)), (1, (3,))))
    size = np.array([(0.0, 0.0, half) for _, _, half in frames]).reshape(-1, 3)
    flags = np.zeros(len(indices), dtype=int), np.ones(len(indices), dtype=bool), np.full(len(indices), -1)
    return _ObstacleCores(robot.bodies[pieces], R, p, R, p, size, robot.radii[pieces], *flags)


def _segment_frame(a: Array, b: Array) -> tuple[Array, Array, float]:
    """Return a frame with its z axis along a segment, the midpoint, and half the length."""
    along = b - a
    length = float(np.linalg.norm(along))
    z = np.array([0.0, 0.0, 1.0]) if length == 0.0 else along / length
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z]), 0.5 * (a + b), 0.5 * length
