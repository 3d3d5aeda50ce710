"""The shapes of links in a robot file of any supported format."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from dynamics_backends.rigid_body.geometry.links.mjcf_shapes import mjcf_shapes
from dynamics_backends.rigid_body.geometry.links.urdf_shapes import LinkShapes, Purpose, urdf_shapes
from dynamics_backends.rigid_body.mjcf.source import is_mjcf


def link_shapes(
    source: str | os.PathLike[str],
    purpose: Purpose = "visual",
    triangles: int | None = None,
    links: Collection[str] | None = None,
    package_dirs: Sequence[str] = (),
) -> LinkShapes:
    """Read the shapes of a URDF or MJCF file or text; arguments as for :func:`~.urdf_shapes.urdf_shapes`.

    Raises URDFError or MJCFError for wrong elements, ModuleNotFoundError if trimesh or mujoco is required and not installed.
    """
    if is_mjcf(source):
        return mjcf_shapes(source, purpose, triangles, links)
    return urdf_shapes(source, purpose, triangles, links, package_dirs)
