"""Pictures of the robot itself: five poses along a motion in one image, or its shapes beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from experiments.view.shown import Shown
from trajopt.view.motion import Motion
from trajopt.view.picture import Moment, Studio
from trajopt.view.surfaces import Geometry

POSES, BETWEEN = 5, 20
"""Poses, and steps of the drawn paths between two of them."""
FAINT = 0.35
"""The strength of the first pose; that of the last is 1."""
GHOSTLY = 0.6
"""The strength of the last pose of other motions."""
PACKED = 2
"""Compression level of the file: a fifth larger than at the usual 6, and written in a third of the time."""
FONT, WIDTH = 20, 600
"""The height of a title, and the width of each of several pictures beside each other [pixels]."""
WHITE = (255, 255, 255)


def draw_poses(path: Path, shown: Shown, geometry: Geometry = "visual") -> tuple[str, ...]:
    """Write the picture of the first motion, and of the ends of others; returns sentences about meshes that were not found."""
    whole = shown.motions[0]
    motion = whole.at(np.linspace(whole.times[0], whole.times[-1], BETWEEN * (POSES - 1) + 1))
    ghosts = shown.motions[1:]
    studio = Studio([motion, *ghosts], shown.marks, geometry)
    moments = [Moment(0, BETWEEN * i, FAINT + (1.0 - FAINT) * i / (POSES - 1)) for i in range(POSES)]
    moments += [Moment(i, len(ghost.times) - 1, GHOSTLY) for i, ghost in enumerate(ghosts, 1)]
    others = f"; {', '.join(ghost.name for ghost in ghosts)} at the end" if ghosts else ""
    title = (
        f"{motion.title}: poses at {', '.join(f'{t:.2g}' for t in motion.times[::BETWEEN])} s"
        f"{others}{_explained(shown)}"
    )
    _titled(studio.picture(moments), title).save(path, compress_level=PACKED)
    return studio.missing


def draw_shapes(path: Path, model: Model) -> tuple[str, ...]:
    """Write a picture of a robot by its visual meshes, by what collides, and by the capsules that are fitted to that, beside each
    other, in its neutral posture or as near to it as its limits let it be; returns sentences about meshes that were not found."""
    from PIL import Image

    q = np.clip(model.neutral(), model.q_lower, model.q_upper)
    motion = Motion(model.name, model, np.zeros(1), q[None])
    kinds: tuple[Geometry, ...] = get_args(Geometry)
    studios = [Studio([motion], geometry=kind, width=WIDTH) for kind in kinds]
    images = [
        _titled(studio.picture([Moment(0, 0)]), f"{model.name}: {kind}")
        for kind, studio in zip(kinds, studios, strict=True)
    ]
    beside = Image.new("RGB", (sum(i.width for i in images), max(i.height for i in images)), WHITE)
    for n, image in enumerate(images):
        beside.paste(image, (sum(i.width for i in images[:n]), 0))
    beside.save(path, compress_level=PACKED)
    return tuple(dict.fromkeys(sentence for studio in studios for sentence in studio.missing))


def _titled(picture: Any, title: str) -> Any:
    """An image of Pillow below a title."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (picture.width, picture.height + 2 * FONT), WHITE)
    image.paste(picture, (0, 2 * FONT))
    needed = ImageFont.load_default(FONT).getlength(title)
    font = ImageFont.load_default(FONT * min(1.0, (picture.width - FONT) / needed))
    ImageDraw.Draw(image).text((FONT // 2, FONT // 2), title, fill=(0, 0, 0), font=font)
    return image


def _explained(shown: Shown) -> str:
    """What the lines and the green dot are, behind a title."""
    tracks, marks = shown.motions[0].tracks, shown.marks
    lines = f"; {'lines' if len(tracks) > 1 else 'line'}: {', '.join(tracks)}" if tracks else ""
    return lines + ("; green: goal" if marks.goals or marks.targets else "")
