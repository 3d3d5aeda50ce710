"""COLLADA files: triangles and polygons of a scene, in the color of their material.

A scene is a tree of nodes with transforms; its leaves name geometries, and bind the symbols by which their primitives speak of
materials. A primitive is a list of indices, of which one in each corner is that of the vertex. Units and the axis that is up are
left as they are: files of robots disagree with their own words about them.

Pictures on surfaces, skins, strips and colors by vertex are not read (`NotRead`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import parse

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.mesh_files.parts import Color, NotRead, Part

WHITE: Color = (1.0, 1.0, 1.0, 1.0)
SHADINGS = ("phong", "lambert", "blinn", "constant")
SILENT = {"lines", "linestrips", "points"}
"""Primitives without a surface."""


def read_collada(path: Path) -> tuple[Part, ...]:
    """The parts of a file's scene. Raises NotRead, OSError."""
    try:
        return tuple(_File(parse(path).getroot()).parts())
    except (ParseError, DefusedXmlException, KeyError, IndexError) as error:
        raise NotRead(f"{path}: {type(error).__name__}: {error}") from error


class _File:
    """A tree of elements without the prefixes of their names, and those that have an id."""

    def __init__(self, root: Element) -> None:
        for element in root.iter():
            if isinstance(element.tag, str):
                element.tag = element.tag.rpartition("}")[2]
        self.root, self.by_id = root, {e.attrib["id"]: e for e in root.iter() if "id" in e.attrib}

    def at(self, address: str) -> Element:
        """The element that `#id` speaks of. Raises KeyError."""
        return self.by_id[address.removeprefix("#")]

    def parts(self) -> Iterator[Part]:
        """The parts of the scene."""
        shown = self.root.find("scene/instance_visual_scene")
        if shown is None:
            raise NotRead("there is no scene")
        for node in self.at(shown.attrib["url"]).findall("node"):
            yield from self._node(node, np.eye(4), frozenset())

    def _node(self, node: Element, above: Array, within: frozenset[int]) -> Iterator[Part]:
        """The parts at and below a node. above (4, 4): what its parent's place is; within: nodes around it."""
        if id(node) in within:
            raise NotRead("a node is within itself")
        place, within = above, within | {id(node)}
        for child in node:
            if child.tag in _TRANSFORMS:
                place = place @ _TRANSFORMS[child.tag](_numbers(child))
            elif child.tag == "node":
                yield from self._node(child, place, within)
            elif child.tag == "instance_node":
                yield from self._node(self.at(child.attrib["url"]), place, within)
            elif child.tag == "instance_geometry":
                yield from self._geometry(child, place)
            elif child.tag in ("instance_controller", "lookat", "skew"):
                raise NotRead(f"<{child.tag}> is not known")

    def _geometry(self, use: Element, place: Array) -> Iterator[Part]:
        mesh = self.at(use.attrib["url"]).find("mesh")
        if mesh is None:
            raise NotRead("a geometry is no mesh")
        bound = {e.attrib["symbol"]: e.attrib["target"] for e in use.iter("instance_material")}
        for primitive in mesh:
            if primitive.tag in _CORNERS:
                part = self._primitive(primitive, bound, place)
                if len(part.faces):
                    yield part
            elif primitive.find("p") is not None and primitive.tag not in SILENT:
                raise NotRead(f"<{primitive.tag}> is not known")

    def _primitive(self, primitive: Element, bound: dict[str, str], place: Array) -> Part:
        inputs = {e.attrib["semantic"]: e for e in primitive.findall("input")}
        step = 1 + max(int(e.attrib["offset"]) for e in primitive.findall("input"))
        vertex = inputs["VERTEX"]
        corners, offset = _CORNERS[primitive.tag](primitive, step), int(vertex.attrib["offset"])
        points = self._points(self.at(vertex.attrib["source"]))
        faces = corners[..., offset]
        if len(faces) and not 0 <= faces.min() <= faces.max() < len(points):
            raise NotRead("an index leads to no vertex")
        used = np.zeros(len(points), dtype=bool)
        used[faces] = True
        moved, faces = points[used] @ place[:3, :3].T + place[:3, 3], (np.cumsum(used) - 1)[faces]
        mirrored = np.linalg.det(place[:3, :3]) < 0.0
        symbol = primitive.attrib.get("material")
        if symbol in bound:
            color: Color | None = self._color(self.at(bound[symbol]))
        elif "COLOR" in inputs:
            raise NotRead("vertices have colors of their own")
        else:
            color = None
        return Part(moved, faces[:, ::-1] if mirrored else faces, color)

    def _points(self, vertices: Element) -> Array:
        """The positions (n, 3) of vertices."""
        position = next(e for e in vertices.findall("input") if e.attrib["semantic"] == "POSITION")
        source = self.at(position.attrib["source"])
        accessor, values = source.find("technique_common/accessor"), source.find("float_array")
        if accessor is None or values is None or int(accessor.attrib.get("offset", 0)):
            raise NotRead("positions are not in a list of numbers")
        numbers, stride = _numbers(values), int(accessor.attrib.get("stride", 1))
        if stride < 3 or len(numbers) % stride:
            raise NotRead(f"{len(numbers)} numbers are no points by {stride}")
        return numbers.reshape(-1, stride)[:, :3]

    def _color(self, material: Element) -> Color:
        """The color of a material: what it scatters, as opaque as it says."""
        use = material.find("instance_effect")
        effect = None if use is None else self.at(use.attrib["url"])
        shading = None if effect is None else next((e for tag in SHADINGS for e in effect.iter(tag)), None)
        if shading is None:
            raise NotRead("a material without a known shading")
        r, g, b, a = _color_in(shading.find("diffuse")) or WHITE
        clear = _color_in(shading.find("transparent"))
        return (r, g, b, a if clear is None else clear[3])


def _color_in(element: Element | None) -> Color | None:
    """The color that an element holds, if there is such an element."""
    if element is None:
        return None
    color = element.find("color")
    if color is None:
        raise NotRead("a color is not a number")
    r, g, b, *a = np.clip(_numbers(color), 0.0, 1.0).tolist()
    return (r, g, b, a[0] if a else 1.0)


def _numbers(element: Element, kind: type = float) -> Array:
    """The numbers in an element."""
    text = element.text or ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.fromstring(text, dtype=kind, sep=" ") if text.strip() else np.zeros(0, dtype=kind)
        except (DeprecationWarning, ValueError) as error:
            raise NotRead(f"<{element.tag}> holds more than numbers") from error


# -- primitives: the indices (triangles, 3, step) of their corners -------------------------------------------------


def _triangles(primitive: Element, step: int) -> Array:
    return np.concatenate([_indices(p, step) for p in primitive.findall("p")] or [_none(step)]).reshape(-1, 3, step)


def _polylist(primitive: Element, step: int) -> Array:
    counts = primitive.find("vcount")
    if counts is None:
        raise NotRead("polygons without numbers of corners")
    corners = np.concatenate([_indices(p, step) for p in primitive.findall("p")] or [_none(step)])
    return corners[_fans(_numbers(counts, int))]


def _polygons(primitive: Element, step: int) -> Array:
    if primitive.find("ph") is not None:
        raise NotRead("polygons have holes")
    each = [_indices(p, step) for p in primitive.findall("p")]
    return np.concatenate(each or [_none(step)])[_fans(np.array([len(p) for p in each], dtype=int))]


def _indices(element: Element, step: int) -> Array:
    return _numbers(element, int).reshape(-1, step)


def _none(step: int) -> Array:
    return np.zeros((0, step), dtype=int)


def _fans(counts: Array) -> Array:
    """Triangles (m, 3) of corners that stand one polygon after the other, `counts` each: all from a polygon's first corner."""
    first, triangles = np.cumsum(counts) - counts, np.maximum(counts - 2, 0)
    start = np.repeat(first, triangles)
    within = np.arange(len(start)) - np.repeat(np.cumsum(triangles) - triangles, triangles)
    return np.stack([start, start + within + 1, start + within + 2], axis=1)


_CORNERS: dict[str, Callable[[Element, int], Array]] = {
    "triangles": _triangles,
    "polylist": _polylist,
    "polygons": _polygons,
}


# -- transforms (4, 4) --------------------------------------------------------------------------------------------


def _turned(numbers: Array) -> Array:
    """About an axis, by degrees (O. Rodrigues)."""
    length = float(np.linalg.norm(numbers[:3]))
    x, y, z = numbers[:3] / length if length else np.zeros(3)
    K, angle = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]), np.deg2rad(numbers[3])
    place = np.eye(4)
    place[:3, :3] += np.sin(angle) * K + (1.0 - np.cos(angle)) * K @ K
    return place


def _moved(numbers: Array) -> Array:
    place = np.eye(4)
    place[:3, 3] = numbers[:3]
    return place


_TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "matrix": lambda numbers: numbers.reshape(4, 4),
    "translate": _moved,
    "rotate": _turned,
    "scale": lambda numbers: np.diag([*numbers[:3], 1.0]),
}
