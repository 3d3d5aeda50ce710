"""A picture of the robot itself: five poses along a motion in one image."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.view.shown import Shown
from trajopt.view.picture import Moment, Studio
from trajopt.view.surfaces import Geometry

POSES, BETWEEN = 5, 20
"""Poses, and steps of the drawn paths between two of them."""
FAINT = 0.35
"""The strength of the first pose; that of the last is 1."""
PACKED = 2
"""How hard the file is packed: a fifth larger than at the usual 6, and written in a third of the time."""
FONT = 20  # [pixels]


def draw_poses(path: Path, shown: Shown, geometry: Geometry = "visual") -> tuple[str, ...]:
    """Write the picture of the first motion; returns sentences about meshes that were not found."""
    from PIL import Image, ImageDraw, ImageFont

    whole = shown.motions[0]
    motion = whole.at(np.linspace(whole.times[0], whole.times[-1], BETWEEN * (POSES - 1) + 1))
    studio = Studio([motion], shown.marks, geometry)
    moments = [Moment(0, BETWEEN * i, FAINT + (1.0 - FAINT) * i / (POSES - 1)) for i in range(POSES)]
    poses = studio.picture(moments)
    image = Image.new("RGB", (poses.width, poses.height + 2 * FONT), (255, 255, 255))
    image.paste(poses, (0, 2 * FONT))
    title = (
        f"{motion.model.name}: poses at {', '.join(f'{t:.2g}' for t in motion.times[::BETWEEN])} s{_explained(shown)}"
    )
    needed = ImageFont.load_default(FONT).getlength(title)
    font = ImageFont.load_default(FONT * min(1.0, (poses.width - FONT) / needed))
    ImageDraw.Draw(image).text((FONT // 2, FONT // 2), title, fill=(0, 0, 0), font=font)
    image.save(path, compress_level=PACKED)
    return studio.missing


def _explained(shown: Shown) -> str:
    """What the lines and the green dot are, behind a title."""
    tracks, marks = shown.motions[0].tracks, shown.marks
    lines = f"; {'lines' if len(tracks) > 1 else 'line'}: {', '.join(tracks)}" if tracks else ""
    return lines + ("; green: goal" if marks.goals or marks.targets else "")
