"""Robot of a scene: its model, the collision shapes of its links and carried bodies, their capsules, and the self-collision
pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dynamics_backends.rigid_body.geometry.covers import FittedCapsule, Piece, RobotCover, cached_covers
from dynamics_backends.rigid_body.geometry.link_shapes import LinkShapes, link_shapes
from dynamics_backends.rigid_body.geometry.shapes import HalfSpace, PlacedShape, solid
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_builder import with_load
from dynamics_backends.rigid_body.urdf.srdf import load_srdf
from trajopt.collisions.self_collision import SelfPairs, pairs_not_disabled, self_pairs
from trajopt.config.task import Checked, Checks, not_negative
from .scene_settings import Point, SceneBody


@dataclass(frozen=True, kw_only=True)
class Carried(SceneBody):
    """A body carried by the robot: a :class:`~problems.arms.scenes.scene_settings.SceneBody` that moves with it.

    frame: frame of the robot to which position and rotation refer. mass: mass, uniformly distributed over the volume [kg].
    """

    frame: str
    mass: float = 0.0

    def checks(self) -> Checks:
        return {
            **super().checks(),
            "mass": not_negative(self.mass),
            "type": (self.type != "half_space", "a bounded shape"),
            "times": (self.times is None, "no times: it moves with the robot"),
        }


@dataclass(frozen=True, kw_only=True)
class LinkCapsule(Checked):
    """A capsule of a link that replaces the fitted capsules.

    link: name of the link. a: first end of the segment in the link frame [m]. b: second end [m]. radius: radius around the
    segment [m].
    """

    link: str
    a: Point
    b: Point
    radius: float

    def checks(self) -> Checks:
        return {"radius": (self.radius > 0, "a positive length [m]")}


@dataclass(frozen=True, eq=False)
class SceneRobot:
    """Robot of a scene. model: includes the inertia of carried bodies. shapes: true shapes. cover: capsules. self_pairs:
    self-collision pairs. missing: sentences about ignored meshes."""

    model: Model
    shapes: tuple[PlacedShape, ...]
    cover: RobotCover
    self_pairs: SelfPairs
    missing: tuple[str, ...] = ()


def scene_robot(
    model: Model,
    *,
    missing: str = "error",
    tolerance: float = 0.02,
    max_pieces: int = 4,
    carried: tuple[Carried, ...] = (),
    capsules: tuple[LinkCapsule, ...] = (),
    self_collision: bool = True,
    srdf: str | None = None,
) -> SceneRobot:
    """Create the robot of a scene. tolerance, max_pieces: of the capsules. srdf: file that disables pairs; default:
    pairs are found by sampling.

    Raises ValueError for missing meshes and robots without shapes, UnknownName for unknown links and frames, FileNotFoundError,
    URDFError.
    """
    shapes, left_out = robot_shapes(model, missing)
    shapes = (*shapes, *(body for thing in carried for body in _shapes_of(thing)))
    model = with_carried_bodies(model, carried)
    cover = _cached_cover(model, shapes, tolerance, max_pieces, carried, capsules)
    self_pairs = SelfPairs((), "all (self_collision = false)")
    if self_collision:
        self_pairs = (
            _cached_self_pairs(cover)
            if srdf is None
            else pairs_not_disabled(cover, load_srdf(Path(srdf).expanduser()).disabled)
        )
    return SceneRobot(model, shapes, cover, self_pairs, left_out)


def with_carried_bodies(model: Model, carried: tuple[Carried, ...]) -> Model:
    """Return the model with the inertia of carried bodies, and a frame for each of them."""
    for thing in carried:
        body = thing.body(Path())
        model = with_load(model, thing.name, thing.frame, body.R, body.p, solid(body.shape, thing.mass))
    return model


def _shapes_of(thing: Carried) -> list[PlacedShape]:
    shape = thing.body(Path()).shape
    assert not isinstance(shape, HalfSpace)  # see Carried.checks
    return [PlacedShape(thing.name, shape, np.eye(3), np.zeros(3))]


def robot_shapes(model: Model, missing: str = "error") -> tuple[tuple[PlacedShape, ...], tuple[str, ...]]:
    """Return the collision shapes of a robot, and sentences about ignored meshes. Raises ValueError for missing meshes or
    shapes.

    Shapes of objects in its file that are not part of the model are left out.
    """
    file = Path(model.source)
    found = _cached_shapes(model.source, model.package_dirs, file.stat().st_mtime_ns if file.is_file() else 0)
    if found.missing:  # the files may exist by now
        found = link_shapes(model.source, "collision", package_dirs=model.package_dirs)
    if found.missing and missing == "error":
        raise ValueError(f"{'; '.join(found.missing)}; set missing_meshes = 'leave_out' to ignore them")
    links = {frame.name for frame in model.frames}
    placed = tuple(shape for shape in found.placed if shape.link in links)
    if not placed:
        raise ValueError(f"{model.name} has no collision shapes: collisions cannot be checked")
    return placed, tuple(f"ignored: {sentence}" for sentence in found.missing)


CACHE_SIZE = 16
"""Maximum number of cached robots, the latest ones; carried bodies may differ in every scene."""


@lru_cache(maxsize=CACHE_SIZE)
def _cached_shapes(source: str, package_dirs: tuple[str, ...], changed: int) -> LinkShapes:
    """Read the collision shapes of a file; cached, since further caches use the identity of the shapes."""
    return link_shapes(source, "collision", package_dirs=package_dirs)


_COVERS: dict[tuple, RobotCover] = {}


def _cached_cover(
    model: Model,
    shapes: tuple[PlacedShape, ...],
    tolerance: float,
    max_pieces: int,
    carried: tuple[Carried, ...],
    capsules: tuple[LinkCapsule, ...],
) -> RobotCover:
    """Return the capsules of a robot; cached for its next problem."""
    key = (model.digest, model.source, tolerance, max_pieces, carried, capsules)
    cover = _COVERS.pop(key, None)
    if cover is None:
        given = {capsule.link for capsule in capsules}
        for link in given:
            model.frame_id(link)
        fitted = cached_covers([shape for shape in shapes if shape.link not in given], tolerance, max_pieces)
        cover = RobotCover.from_pieces(model, (*fitted, *map(_piece, capsules)))
    _COVERS[key] = cover
    for oldest in list(_COVERS)[:-CACHE_SIZE]:
        _COVERS.pop(oldest, None)  # another thread may have removed it
    return cover


def _piece(given: LinkCapsule) -> Piece:
    capsule = FittedCapsule(np.array(given.a), np.array(given.b), given.radius)
    vertices, faces = capsule.placed(given.link).triangles()
    return Piece(given.link, vertices[faces], capsule, 0.0)


@lru_cache(maxsize=16)
def _cached_self_pairs(cover: RobotCover) -> SelfPairs:
    """Return the self-collision pairs of a robot; cached."""
    return self_pairs(cover)
