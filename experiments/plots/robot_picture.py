"""3D images of the robot: five poses of a motion, or its shapes side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from trajopt.view.motion import Motion
from trajopt.view.picture import Moment, Studio
from trajopt.view.surfaces import Geometry
from ..view.scenes import ViewerScene

POSES, BETWEEN = 5, 20
"""Number of poses, and steps of the drawn paths between two poses."""
FIRST_OPACITY = 0.35
"""Opacity of the first pose; the last pose has 1."""
PNG_COMPRESSION = 2
"""PNG compression level: files are a fifth larger than at level 6, and written in a third of the time."""
FONT, LINE, WIDTH = 20, 26, 600
"""Font size of a title, distance of its lines, and width of each of several images [pixels]."""
WHITE = (255, 255, 255)


def draw_poses(path: Path, scene: ViewerScene, geometry: Geometry = "visual") -> tuple[str, ...]:
    """Draw poses of the first motion and the last poses of others; return warnings about missing meshes."""
    whole = scene.motions[0]
    motion = whole.at(np.linspace(whole.times[0], whole.times[-1], BETWEEN * (POSES - 1) + 1))
    ghosts = scene.motions[1:]
    studio = Studio([motion, *ghosts], scene.annotations, geometry)
    moments = [Moment(0, BETWEEN * i, FIRST_OPACITY + (1.0 - FIRST_OPACITY) * i / (POSES - 1)) for i in range(POSES)]
    moments += [Moment(i, len(ghost.times) - 1) for i, ghost in enumerate(ghosts, 1)]
    others = f"; {', '.join(ghost.name for ghost in ghosts)} at the end" if ghosts else ""
    title = (
        f"{motion.title}: poses at {', '.join(f'{t:.2g}' for t in motion.times[::BETWEEN])} s{others}{_caption(scene)}"
    )
    _with_title(studio.picture(moments), title).save(path, compress_level=PNG_COMPRESSION)
    return studio.missing


def draw_shapes(path: Path, model: Model) -> tuple[str, ...]:
    """Draw a robot's visual meshes, collision shapes and fitted capsules side by side; return warnings about missing meshes.

    The posture is the neutral one, clipped to the joint limits.
    """
    from PIL import Image

    q = np.clip(model.neutral(), model.q_lower, model.q_upper)
    motion = Motion(model.name, model, np.zeros(1), q[None])
    kinds: tuple[Geometry, ...] = get_args(Geometry)
    studios = [Studio([motion], geometry=kind, width=WIDTH) for kind in kinds]
    images = [
        _with_title(studio.picture([Moment(0, 0)]), f"{model.name}: {kind}")
        for kind, studio in zip(kinds, studios, strict=True)
    ]
    combined = Image.new("RGB", (sum(i.width for i in images), max(i.height for i in images)), WHITE)
    for n, image in enumerate(images):
        combined.paste(image, (sum(i.width for i in images[:n]), 0))
    combined.save(path, compress_level=PNG_COMPRESSION)
    return tuple(dict.fromkeys(sentence for studio in studios for sentence in studio.missing))


def _with_title(picture: Any, title: str) -> Any:
    """Return a Pillow image with a title above it, in lines of the width of the picture."""
    from PIL import Image, ImageDraw, ImageFont

    font, lines = ImageFont.load_default(FONT), [""]
    for word in title.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if not lines[-1] or font.getlength(longer) <= picture.width - FONT:
            lines[-1] = longer
        else:
            lines.append(word)
    above = LINE * (len(lines) - 1) + 2 * FONT
    image = Image.new("RGB", (picture.width, picture.height + above), WHITE)
    image.paste(picture, (0, above))
    for i, line in enumerate(lines):
        ImageDraw.Draw(image).text((FONT // 2, FONT // 2 + LINE * i), line, fill=(0, 0, 0), font=font)
    return image


def _caption(scene: ViewerScene) -> str:
    """Return the part of the title that explains lines and the green dot."""
    tracks, annotations = scene.motions[0].tracks, scene.annotations
    lines = f"; {'lines' if len(tracks) > 1 else 'line'}: {', '.join(tracks)}" if tracks else ""
    return lines + ("; green: goal" if annotations.goals or annotations.targets else "")
