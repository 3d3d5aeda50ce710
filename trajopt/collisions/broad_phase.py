"""Broad phase: select the capsule and the core for each slot of a clearance residual, at each knot.

The residual is :class:`~dynamics_backends.rigid_body.geometry.clearance.Clearances`.
At each configuration of a path, the nearest pairs of capsules and cores within reach get the slots of their link. Empty slots have
no bound. A core of the scene that is far from a link gets at most one slot of the link, with the coarse capsule around all that the
link carries. This slot keeps a motion that leaves the path from passing through the core. A pair enters as

    D >= radius of the capsule + radius of the core + margin - relief

relief is the distance of the true shapes minus that of capsule and core, for close pairs if a function for it is given, else 0.
Capsules are larger than the links that they cover. Without relief, an arm could not start with a finger beside a can.
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
from dynamics_backends.rigid_body.spatial.rotations import segment_frame
from trajopt.collisions.library import FAR, KINDS, Cores, capsule_gaps, chosen_pairs
from trajopt.collisions.poses import body_poses
from trajopt.collisions.true_shapes import geometry_of, pose


class SelectedPairs(NamedTuple):
    """Selected pairs for a clearance residual. pairs (M, 21 * slots): its parameter "pairs"; lower (M, slots) [m]: lower
    bounds on its distances of segments from cores, with radii and margin, -inf for empty slots; near: filled slots."""

    pairs: Array
    lower: Array
    near: FilledSlots


class FilledSlots(NamedTuple):
    """Filled slots, arrays of one length. knot: index of the configuration; slot: index of the slot; piece: index of the capsule,
    coarse capsules after the others; core: index of the core; gap: distance between their surfaces [m], negative for overlap, maybe
    only a lower bound from the reach on."""

    knot: Array
    slot: Array
    piece: Array
    core: Array
    gap: Array


Relief = Callable[[int, int, int, float], float]
"""Function relief(knot, piece, core, gap) that returns the distance [m] of the true shapes minus ``gap`` [m], at least 0.

knot, piece and core are indices of the configuration, the capsule and the core; gap is the gap of capsule and core.
"""


class _ObstacleCores(NamedTuple):
    """Cores that capsules avoid. carriers (O,): bodies of the robot, WORLD for the scene and the ground; local_R (M, O, 3, 3) and
    local_p (M, O, 3) [m]: poses in the carrier.

    Before configurations and times are known, all poses are those in the carrier, without the axis M.
    """

    cores: Cores
    carriers: Array
    local_R: Array
    local_p: Array


@dataclass(frozen=True, eq=False)
class CollisionPairs:
    """Robot, scene, and pairs of bodies that may collide: each movable body of the robot with the scene, and ``self_pairs``.

    self_pairs: pairs of robot bodies (-1: the ground), the one nearer to the ground first. disabled: pairs of names of links that
    are ignored in self_pairs. reach: pairs of capsule and core at this distance [m] or farther get no slot.
    """

    robot: RobotCover
    scene: Scene
    self_pairs: tuple[tuple[int, int], ...] = ()
    reach: float = 0.5
    disabled: frozenset[frozenset[str]] = frozenset()

    @cached_property
    def cores(self) -> tuple[tuple[int, Core], ...]:
        """Cores of the scene as pairs (index of the body, core), in the order of the bodies."""
        return tuple((i, core) for i, body in enumerate(self.scene.bodies) for core in body.cores())

    @cached_property
    def links(self) -> tuple[int, ...]:
        """Indices of the movable bodies of the robot that carry capsules, in increasing order."""
        return tuple(b for b in self.robot.carried if b >= 0)

    def slots(self) -> tuple[Slot, ...]:
        """Return the slots of the residual: those of :attr:`links` for cores in the world, then those of self-collision pairs.

        Each link has one slot for a box, two more from the third joint of the chain on, and 17 more at the end of a chain, where
        motions deviate most from their guess; one for a cylinder, six more at the end; and FACES times as many for hull faces as
        for a cylinder. Kinds of cores absent from the scene get none. Each self-collision pair gets one slot for a box, except
        pairs with the ground, whose capsules share the box slots for the world, which then exist in any case.
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
        """Indices of the capsules that are obstacles for other links: those of the first bodies of the self-collision pairs.

        As cores they follow those of the scene.
        """
        bases = sorted({near for near, _ in self.self_pairs})
        return tuple(int(i) for base in bases for i in np.flatnonzero(self.robot.bodies == base))

    @cached_property
    def true_bodies(self) -> tuple[Any, ...]:
        """coal geometries of the true shapes of the scene's bodies."""
        return tuple(geometry_of(body.shape) for body in self.scene.bodies)

    @cached_property
    def resting(self) -> tuple[Any, ...]:
        """coal poses of the bodies of the scene that do not move; None for moving ones."""
        return tuple(None if body.path is not None else pose(body.R, body.p) for body in self.scene.bodies)

    def gaps(self, qs: Array, times: Array, reach: float | None = None) -> Array:
        """Return gaps (M, P, O) [m] between the robot's P capsules at configurations (M, nq) and the O cores, scene cores first.

        Cores are those of the scene at times (M,) [s], then the capsules :attr:`self_pieces`. Gaps of ``reach`` (default:
        self.reach) or more may be only lower bounds. Negative: overlap. Infinite: pairs that are not checked, which are
        those of the ground's capsules with the scene, and of two capsules outside the enabled self-collision pairs. For a segment
        inside a hull, one face of the hull has the depth.
        """
        poses = body_poses(self.robot.model, qs)
        others = self._obstacle_cores(poses, times)
        return self._gaps(*self.robot.ends(poses), others, self.reach if reach is None else reach)

    def coarse_gaps(self, qs: Array, times: Array) -> Array:
        """Return gaps (M, C, O) [m] between the coarse capsules of the C :attr:`links` and the O cores of the scene.

        qs: configurations (M, nq). times (M,) [s]: of the scene. Gaps of the reach or more may be only lower bounds.
        """
        return self._coarse_gaps(body_poses(self.robot.model, qs), times)

    def _coarse_gaps(self, poses: Poses, times: Array) -> Array:
        """Return gaps (M, C, O) [m] as :meth:`coarse_gaps`, at given poses of the robot's bodies."""
        coarse, cores = self.robot.coarse, self._scene_at(times).cores
        counts = np.ones((len(coarse.radii), len(cores.radius)), dtype=bool)
        return capsule_gaps(*coarse.ends(poses), coarse.radii, cores, counts, self.reach)

    @staticmethod
    def is_far(coarse: Array) -> Array:
        """Boolean array: True where coarse gaps [m] exceed FAR, so that the coarse capsule replaces the finer ones."""
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
        to the bounds. relief: function that computes how much to subtract from the bounds of pairs with a gap below RELIEVED, but
        not for coarse capsules; None: nothing. also: further configurations, (M, nq) each, such as motions that collided. The
        smallest gap of a pair decides on nearness, where half the capsule's excess is added to its gaps at these configurations.
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
        lower[k, slot] = radii[i] + others.cores.radius[o] + margin[k] - less
        turned = others.local_R[k, o].reshape(-1, 9)
        numbers = [A[i], B[i], turned, others.local_p[k, o], others.cores.size[o]]
        pairs[k, slot] = np.concatenate(numbers, axis=1)
        return SelectedPairs(pairs.reshape(M, -1), lower, FilledSlots(k, slot, i, o, found))

    def _filled(
        self, slots: Sequence[Slot], nearest: Array, coarse: Array, others: _ObstacleCores
    ) -> tuple[Array, ...]:
        """Return index arrays of one length for the pairs of capsule and core that get a slot: knots, slots, capsules, cores.

        nearest: gaps (M, P, O) [m] at M knots between P capsules of the robot and the O cores of ``others``; :func:`chosen_pairs`
        selects. coarse: gaps (M, C, O) [m] of C coarse capsules, which are numbered after the P others; self-collision pairs do
        not use them.
        """
        P, found = nearest.shape[1], []
        for (link, base, kind), slot_numbers in _grouped(slots).items():
            pieces = np.flatnonzero(self.robot.bodies == link)
            cores = np.flatnonzero((others.carriers == base) & (others.cores.kind == KINDS.index(kind)))
            if not len(pieces) or not len(cores):
                continue
            held, number = (coarse, self.links.index(link)) if base == WORLD else (None, 0)
            k, slot, i, o = chosen_pairs(nearest, held, number, pieces, cores, len(slot_numbers), self.reach)
            found.append((k, np.array(slot_numbers)[slot], np.append(pieces, P + number)[i], cores[o]))
        none = np.zeros(0, int)
        return tuple(np.concatenate([none, *parts]) for parts in zip((none,) * 4, *found, strict=True))

    def smallest_gaps(self, qs: Array, times: Array) -> Array:
        """Return the smallest of :meth:`gaps` (M,) [m] at each of M configurations, over all pairs of capsule and core.

        Results of the reach or more may be only lower bounds; they are infinite without pairs. Raises ValueError without
        configurations.
        """
        gaps = self.gaps(qs, times)
        return np.asarray(gaps.reshape(len(qs), -1).min(axis=1, initial=np.inf))

    def _scene_at(self, times: Array) -> _ObstacleCores:
        """Return the cores of the scene at the times (M,) [s], with poses (M, O, ...)."""
        M, scene, count = len(times), self._scene_cores, len(self.cores)
        R = np.broadcast_to(scene.cores.R, (M, count, 3, 3))
        p = np.broadcast_to(scene.cores.p, (M, count, 3))
        if self.scene.moves:
            moved = [self.scene.bodies[i].places(times) - self.scene.bodies[i].p for i, _ in self.cores]
            p = p + np.stack(moved, axis=1)
        return scene._replace(cores=scene.cores._replace(R=R, p=p), local_R=R, local_p=p)

    def _obstacle_cores(self, poses: Poses, times: Array) -> _ObstacleCores:
        """Return the cores of the scene at times (M,) [s], then the capsules :attr:`self_pieces` at M poses of the robot."""
        M, scene = len(times), self._scene_at(times)
        if not self.self_pairs:
            return scene
        capsules, R, p = _capsules_of(self.robot, self.self_pieces), scene.cores.R, scene.cores.p
        at_R, at_p = placed_bodies(poses, capsules.carriers)
        turned, placed = at_R @ capsules.local_R, (at_R @ capsules.local_p[:, :, None])[..., 0] + at_p
        local = [np.broadcast_to(a, (M, *a.shape)) for a in (capsules.local_R, capsules.local_p)]
        pairs = ((R, turned), (p, placed), (R, local[0]), (p, local[1]))
        joined = [np.concatenate(pair, axis=1) for pair in pairs]
        fixed = zip(self._scene_cores.cores[2:], capsules.cores[2:], strict=True)
        cores = Cores(*joined[:2], *map(np.concatenate, fixed))
        return _ObstacleCores(cores, np.concatenate([scene.carriers, capsules.carriers]), *joined[2:])

    @cached_property
    def _scene_cores(self) -> _ObstacleCores:
        """Cores (box, cylinder or triangle, each with a radius) of the scene, its bodies not displaced along their paths.

        The poses have no axis of configurations.
        """
        bodies, count = self.scene.bodies, len(self.cores)
        R = np.array([bodies[i].R @ core.R for i, core in self.cores]).reshape(count, 3, 3)
        p = np.array([bodies[i].p + bodies[i].R @ core.p for i, core in self.cores]).reshape(count, 3)
        size = np.array([core.size for _, core in self.cores]).reshape(count, 3)
        kind = np.array([KINDS.index(core.kind) for _, core in self.cores], dtype=int)
        radius = np.array([core.radius for _, core in self.cores])
        hull = np.array([i if core.kind == "triangle" else -1 for i, core in self.cores], dtype=int)
        return _ObstacleCores(Cores(R, p, size, radius, kind, hull), np.full(count, WORLD), R, p)

    def _gaps(self, A: Array, B: Array, others: _ObstacleCores, reach: float) -> Array:
        """Return gaps (M, P, O) [m] of the robot's P capsules with ends A, B (M, P, 3) [m] from O cores.

        Gaps of ``reach`` [m] or more may be only lower bounds; they are infinite for pairs that :attr:`_counts` excludes.
        """
        return capsule_gaps(A, B, self.robot.radii, others.cores, self._counts, reach)

    @cached_property
    def _counts(self) -> Array:
        """Mask (P, O) of the pairs (capsule of the robot, core) to check.

        True for capsules of movable bodies with cores of the scene, and for those of the second body with those of the first body
        of a self-collision pair, unless the pair of their links is disabled.
        """
        carriers = np.concatenate([self._scene_cores.carriers, _capsules_of(self.robot, self.self_pieces).carriers])
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
"""Gap from which on the true shapes of a pair are ignored [m]."""
_FAR = np.concatenate([np.zeros(6), np.eye(3).ravel(), [0.0, 0.0, 1e3], np.zeros(3)])
"""Parameters (21,) of an empty slot: a point at the link's origin, and a core of size 0 at z = 1000 m of its carrier."""


def _grouped(slots: Sequence[Slot]) -> dict[Slot, list[int]]:
    """Return the indices of equal slots (link, base and kind of core), in order, by slot."""
    groups: dict[Slot, list[int]] = {}
    for i, slot in enumerate(slots):
        groups.setdefault(slot, []).append(i)
    return groups


@lru_cache(maxsize=64)
def _capsules_of(robot: RobotCover, indices: tuple[int, ...]) -> _ObstacleCores:
    """Return the capsules ``indices`` of a robot as box cores in the frames of their carriers, without the axis M; cached."""
    frames, pieces = [segment_frame(robot.a[i], robot.b[i]) for i in indices], list(indices)
    R, p = (np.array([frame[i] for frame in frames]).reshape(-1, *shape) for i, shape in ((0, (3, 3)), (1, (3,))))
    size = np.array([(0.0, 0.0, 0.5 * length) for _, _, length in frames]).reshape(-1, 3)
    flags = np.zeros(len(indices), dtype=int), np.full(len(indices), -1)
    return _ObstacleCores(Cores(R, p, size, robot.radii[pieces], *flags), robot.bodies[pieces], R, p)
