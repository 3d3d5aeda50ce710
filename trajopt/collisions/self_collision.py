"""Self-collision of a robot: pairs of bodies that may collide, and a check along a motion.

The pairs of :func:`self_pairs` contain two bodies of one chain, -1 for the ground, the body nearer to the ground first. Bodies of
different branches, such as two arms, are not paired. Excluded are neighbors, pairs that overlap in almost every configuration, and
pairs that overlap in no sampled configuration.

The check at the knots covers all pairs of bodies, also those of different branches. It compares capsules first, then the true
shapes of bodies whose capsules overlap. It ignores neighbors in the kinematic tree, pairs that overlap in almost every posture,
such as modeled housings, and pairs with the ground if the base floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.covers import RobotCover, cached_covers, rough_covers
from dynamics_backends.rigid_body.geometry.link_shapes import link_shapes
from dynamics_backends.rigid_body.geometry.scene import Scene
from dynamics_backends.rigid_body.geometry.shapes import PlacedShape
from dynamics_backends.rigid_body.model.model import Model
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.free_space import TruePieces
from trajopt.collisions.mesh_check import MeshCheck

CONFIGURATIONS = 200
ALWAYS_TOUCHING = 0.95
"""A pair that overlaps in more than this fraction of CONFIGURATIONS random configurations counts as always touching."""


class SelfPairs(NamedTuple):
    """Pairs of a robot. pairs: bodies that may collide, the one nearer to the ground (-1) first. left_out: the excluded pairs with
    the reason, as text. disabled: pairs of names of links that are not checked, even if their bodies are in ``pairs``."""

    pairs: tuple[tuple[int, int], ...]
    left_out: str
    disabled: frozenset[frozenset[str]] = frozenset()


def self_pairs(robot: RobotCover, seed: int = 0) -> SelfPairs:
    """Find the pairs of bodies on one chain that may collide, from random configurations within joint limits.

    A missing limit counts as -pi or pi. A pair is excluded if its bodies are neighbors, or if they overlap in more than
    ALWAYS_TOUCHING of the configurations or in none. Bodies overlap if capsules of theirs do and, with coal installed, if the
    distance of the same pieces in :class:`~trajopt.collisions.free_space.TruePieces` is negative.
    """
    model = robot.model
    neighbors = [(near, far) for near, far in _on_chains(robot) if _parent(robot, far) == near]
    candidates = [pair for pair in _on_chains(robot) if pair not in neighbors]
    rng = np.random.default_rng(seed)
    lower, upper = (np.where(np.isfinite(b), b, s * np.pi) for b, s in ((model.q_lower, -1.0), (model.q_upper, 1.0)))
    qs = rng.uniform(lower, upper, (CONFIGURATIONS, model.nq))
    checked = CollisionPairs(robot, Scene(), tuple(candidates))
    gaps = checked.gaps(qs, np.zeros(CONFIGURATIONS))
    bases = robot.bodies[list(checked.self_pieces)]
    exact = find_spec("coal") is not None
    true = TruePieces(checked, qs, np.zeros(CONFIGURATIONS)) if exact else None
    pairs: list[tuple[int, int]] = []
    always: list[tuple[int, int]] = []
    never: list[tuple[int, int]] = []
    for near, far in candidates:
        pieces, others = np.flatnonzero(robot.bodies == far), np.flatnonzero(bases == near)
        overlap = gaps[:, pieces][:, :, others] < 0.0
        touching = np.array(overlap.any(axis=(1, 2)))
        if true is not None:
            for k in np.flatnonzero(touching):
                close = np.argwhere(overlap[k])
                touching[k] = any(true.distance(int(k), int(pieces[i]), int(others[o])) < 0.0 for i, o in close)
        kind = always if touching.mean() > ALWAYS_TOUCHING else pairs if touching.any() else never
        kind.append((near, far))
    kinds = {"neighbors": neighbors, "always touching": always, "never touching": never}
    text = "; ".join(f"{name}: {_named(robot, found) or 'none'}" for name, found in kinds.items())
    return SelfPairs(tuple(pairs), text)


def pairs_not_disabled(robot: RobotCover, disabled: Iterable[tuple[str, str, str]]) -> SelfPairs:
    """Return the pairs of bodies on one chain that an SRDF does not disable. disabled: rows (link, link, reason).

    A pair is kept if at least one pair of its links with capsules is not disabled; neighbors count like other pairs. ``disabled``
    of the result has all the given pairs of links.
    """
    left_out = frozenset(frozenset(pair[:2]) for pair in disabled)
    links: dict[int, set[str]] = {}
    for link, body in zip(robot.links, robot.bodies.tolist(), strict=True):
        links.setdefault(body, set()).add(link)
    enabled = [
        (near, far)
        for near, far in _on_chains(robot)
        if any(frozenset((a, b)) not in left_out for a in links[near] for b in links[far])
    ]
    words = ", ".join(sorted(" and ".join(sorted(pair)) for pair in left_out))
    return SelfPairs(tuple(enabled), f"disabled: {words or 'none'}", left_out)


def _on_chains(robot: RobotCover) -> list[tuple[int, int]]:
    """Return the sorted pairs (ancestor, descendant) of bodies with capsules; the ground, -1, is an ancestor of all bodies."""
    found = []
    for far in robot.carried:
        near = far
        while near >= 0:
            near = int(robot.model.parent[near])
            if near in robot.carried:
                found.append((near, far))
    return sorted(found)


def _parent(robot: RobotCover, body: int) -> int:
    """Return the parent of a body, -1 for the ground; bodies without mass and capsules are skipped.

    Files without joints of several DoFs use such bodies to connect two bodies by several joints; so does the MJCF loader.
    """
    parent = int(robot.model.parent[body])
    while parent >= 0 and not robot.model.mass[parent] and parent not in robot.carried:
        parent = int(robot.model.parent[parent])
    return parent


def _named(robot: RobotCover, pairs: Iterable[tuple[int, int]]) -> str:
    """Return the pairs as text, with names of bodies; the ground is named by its links with capsules. Empty without pairs."""
    names = robot.model.body_names
    fixed = dict.fromkeys(link for link, body in zip(robot.links, robot.bodies.tolist(), strict=True) if body < 0)
    base = " with ".join(fixed)
    return ", ".join(f"{base if near < 0 else names[near]} and {names[far]}" for near, far in pairs)


SAMPLES = 40
"""Number of postures, the neutral one and random ones, used to find pairs that always overlap."""
ALWAYS = 0.9
"""A pair that overlaps in at least this fraction of the postures counts as always overlapping."""
CAPSULE = 1.0
"""Maximum distance between a capsule and its shape [m]; so large that each shape gets one capsule."""
SEED = 0
TOUCH = 1e-3
"""Penetration depth up to which touching links are accepted [m]; many files model housings and closed fingers so."""

NOT_CHECKED = "self-collision was not checked (Solution.report does)"
"""Replacement for :attr:`SelfCollisionCheck.note` after a solve, which makes no check: it would have to read meshes."""
REMEDY = "to.self_collision in a script keeps links apart; for arms, the problem arm_in_scene does"

Pair = tuple[int, int]
"""Two bodies, the smaller index first; -1 is the ground."""


class SelfCollision(NamedTuple):
    """Deepest overlap of two bodies: names of the two links, index of the knot, depth [m] (positive), and number of knots at which
    the bodies overlap."""

    links: tuple[str, str]
    knot: int
    depth: float
    knots: int

    def sentence(self, time: float) -> str:
        """Return a sentence on the overlap: links, depth, knot, number of further knots, remedy. time: time of the knot [s]."""
        where = f"at t = {time:.3g} s, knot {self.knot}" + (f", and at {self.knots - 1} more" * (self.knots > 1))
        remedy = REMEDY if self.knot else "the initial state already overlaps: change it"
        return f"self-collision: {' and '.join(self.links)} overlap by {1e3 * self.depth:.3g} mm {where}; {remedy}"


class SelfCollisionCheck(NamedTuple):
    """Result of a check. collisions: one for each pair of overlapping bodies that counts. unchecked: reason if the check gave no
    result, else ""."""

    collisions: tuple[SelfCollision, ...] = ()
    unchecked: str = ""

    @property
    def note(self) -> str:
        """Sentence that no self-collision exists or why it was not checked; empty if there are collisions."""
        if self.unchecked:
            return f"self-collision was not checked: {self.unchecked}"
        return "" if self.collisions else "no self-collision at the knots"


def check_self_collision(model: Model, qs: Array) -> SelfCollisionCheck:
    """Check configurations qs (M, nq), by true shapes where capsules overlap; the latest result is cached.

    Bodies with their parents, the ground if the base floats, pairs that overlap in almost every posture, and overlaps up to TOUCH
    are ignored. The depth of two non-convex meshes is approximate (:meth:`~trajopt.collisions.mesh_check.MeshCheck.depth`); one
    that is inside the other and touches no triangle of it gives no overlap. The result is unchecked, with the reason, without a
    robot file, shapes, or the packages that read them, and if capsules overlap and coal is missing.
    """
    file = Path(model.source) if model.source else None
    changed = file.stat().st_mtime_ns if file is not None and file.is_file() else 0
    return _run_check(model, changed, np.asarray(qs, float).tobytes())


@lru_cache(maxsize=1)
def _run_check(model: Model, changed: int, values: bytes) -> SelfCollisionCheck:
    """Check configurations as :func:`check_self_collision`. changed: modification time of the robot's file; values: those of qs.

    ValueError, OSError, ModuleNotFoundError and MemoryError become the reason of an unchecked result.
    """
    qs = np.frombuffer(values).reshape(-1, model.nq)
    try:
        robot = _robot(model, changed)
        overlaps = _overlaps(robot.cover, robot.pairs, qs) if robot.pairs else {}
        near = {pair: knots for pair, knots in overlaps.items() if len(knots)}
        if not near:
            return SelfCollisionCheck()
        check = robot.check
        if check is None:
            return _by_capsules(robot, near)
        found = {pair: _Overlaps(check, pair, knots, qs).deepest() for pair, knots in near.items()}
        touching = {pair: deepest for pair, deepest in found.items() if deepest is not None}
        always = robot.always if touching else frozenset()
    except (ValueError, OSError, ModuleNotFoundError, MemoryError) as error:
        return SelfCollisionCheck((), str(error))
    return SelfCollisionCheck(tuple(deepest for pair, deepest in touching.items() if pair not in always))


def _by_capsules(robot: _Robot, near: dict[Pair, Array]) -> SelfCollisionCheck:
    """Result without coal for pairs ``near`` whose capsules overlap: unchecked, unless all of them overlap in almost every posture.

    The capsules of all other pairs do not overlap, which proves clearance.
    """
    names = [" and ".join(_name(robot.cover, body) for body in pair) for pair in near if pair not in robot.always]
    if not names:
        return SelfCollisionCheck()
    reason = f"capsules around {', '.join(names)} overlap; the package coal checks the true shapes (extra scene)"
    return SelfCollisionCheck((), reason)


class _Robot:
    """A robot with its collision shapes. cover: one capsule per shape: rough ones, or, without coal, which would check the true
    shapes, the smallest ones, found by a search of seconds. pairs: see :func:`_pairs`.

    changed: modification time of its file. Raises ValueError for a model without a file, if a shape cannot be read, and if there
    are no shapes of the model's links.
    """

    def __init__(self, model: Model, changed: int) -> None:
        if not model.source:
            raise ValueError(f"{model.name} was made without a file, and has no collision shapes")
        known = {frame.name for frame in model.frames}
        self.model = model
        self.shapes = tuple(
            shape for shape in _collision_shapes(model.source, changed, model.package_dirs) if shape.link in known
        )
        if not self.shapes:
            raise ValueError(f"the file of {model.name} has no collision shapes")
        coal = find_spec("coal") is not None
        pieces = rough_covers(self.shapes) if coal else cached_covers(self.shapes, CAPSULE, 1)
        self.cover = RobotCover.from_pieces(model, pieces)
        self.pairs = _pairs(model, self.cover)

    @cached_property
    def check(self) -> MeshCheck | None:
        """Mesh check with an empty scene and no pairs, for its distances; None without coal."""
        return None if find_spec("coal") is None else MeshCheck(self.model, self.shapes, Scene())

    @cached_property
    def always(self) -> frozenset[Pair]:
        """Pairs that overlap in almost every posture (SAMPLES, ALWAYS).

        Capsules must overlap and, with coal, also the true shapes, by more than TOUCH.
        """
        random = self.model.random_configuration(np.random.default_rng(SEED), SAMPLES - 1)
        qs = np.concatenate([self.model.neutral()[None], random])
        enough, check = ALWAYS * SAMPLES, self.check
        often = {pair: k for pair, k in _overlaps(self.cover, self.pairs, qs).items() if len(k) >= enough}
        if check is not None:
            often = {pair: k for pair, k in often.items() if len(_Overlaps(check, pair, k, qs).knots()) >= enough}
        return frozenset(often)


_robot = lru_cache(maxsize=1)(_Robot)


@lru_cache(maxsize=8)
def _collision_shapes(source: str, changed: int, package_dirs: tuple[str, ...]) -> tuple[PlacedShape, ...]:
    """Read the collision shapes of a file; cached. changed: modification time, part of the key of the cache. package_dirs: as of
    the model.

    Raises ValueError if shapes cannot be read.
    """
    found = link_shapes(source, "collision", package_dirs=package_dirs)
    if found.missing:
        raise ValueError("; ".join(found.missing))
    return found.placed


def _pairs(model: Model, robot: RobotCover) -> tuple[Pair, ...]:
    """Return the pairs of bodies with shapes, in increasing order, of which none is the parent of the other.

    The ground is left out if the base floats.
    """
    bodies = robot.carried
    return tuple(
        (a, b)
        for i, a in enumerate(bodies)
        for b in bodies[i + 1 :]
        if _parent(robot, b) != a and (a >= 0 or not model.floating_base)
    )


def _overlaps(robot: RobotCover, pairs: tuple[Pair, ...], qs: Array) -> dict[Pair, Array]:
    """Return, for each pair, the indices of configurations in which capsules of the two bodies overlap, the deepest first."""
    checked = CollisionPairs(robot, Scene(), pairs)
    gaps = checked.gaps(qs, np.zeros(len(qs)), 0.0)
    bases = robot.bodies[list(checked.self_pieces)]
    found = {}
    for a, b in pairs:
        least = gaps[:, robot.bodies == b][:, :, bases == a].reshape(len(qs), -1).min(axis=1)
        order = np.argsort(least, kind="stable")
        found[a, b] = order[least[order] < 0.0]
    return found


class _Overlaps:
    """Overlaps by true shapes of two bodies at ``knots``, indices of configurations in qs (M, nq), by more than TOUCH."""

    def __init__(self, check: MeshCheck, pair: Pair, knots: Array, qs: Array) -> None:
        self.check, self.indices, self.places = check, knots.tolist(), check.places(qs[knots])
        near, far = ([i for i, part in enumerate(check.parts) if part.body == body] for body in pair)
        self.parts = [(i, j) for i in far for j in near]

    def knots(self) -> list[int]:
        """Return the indices k of the knots at which the bodies overlap."""
        return [
            k
            for k in range(len(self.indices))
            if any(self.check.is_deeper(i, j, k, self.places, TOUCH) for i, j in self.parts)
        ]

    def deepest(self) -> SelfCollision | None:
        """Return the deepest overlap, the first one of equal ones, or None without any; its links are in the order of the pair."""
        knots = self.knots()
        found, depth = None, TOUCH
        for k in knots:
            for i, j in self.parts:
                if not self.check.is_deeper(i, j, k, self.places, depth):
                    continue
                exact = self.check.depth(i, j, k, self.places)
                if exact > depth:  # a longer translation may run into the other mesh again
                    links, depth = (self.check.parts[j].link, self.check.parts[i].link), exact
                    found = SelfCollision(links, self.indices[k], depth, len(knots))
        return found


def _name(robot: RobotCover, body: int) -> str:
    """Return the name of the first link of a body in the cover."""
    return next(link for link, other in zip(robot.links, robot.bodies.tolist(), strict=True) if other == body)
