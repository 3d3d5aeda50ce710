"""Write motions as videos without a window: GIF by Pillow, MP4 by ffmpeg from the package imageio-ffmpeg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from trajopt.problem.annotations import Annotations
from trajopt.view.motion import AnyMotion
from trajopt.view.picture import FORCE, GOAL, PATH, Moment, Studio
from trajopt.view.surfaces import Geometry

FRAME_RATE = 25.0
"""Frames per second [Hz]; GIF stores hundredths of a second."""
WIDTH = 640  # [pixels]
REST = 0.8
"""Duration of the last frame of a GIF [s]."""
COLORS = 96
"""Size of a GIF's palette: colors of the annotations, and a palette optimized for SAMPLES frames along the motion."""
SAMPLES = 4
MARKED = (GOAL, FORCE, PATH, (255, 255, 255))
KINDS = (".gif", ".mp4")


def write_film(
    path: Path,
    motions: Sequence[AnyMotion],
    annotations: Annotations | None = None,
    geometry: Geometry = "visual",
    width: int = WIDTH,
) -> tuple[Path, tuple[str, ...]]:
    """Write the video of simultaneous motions. Returns the path, and sentences about missing meshes.

    Raises ValueError without motions and for a suffix other than .gif and .mp4, ModuleNotFoundError if MP4 lacks its package.
    """
    require_film(path)
    write = _write_gif if path.suffix.lower() == ".gif" else _write_mp4
    end = max(float(motion.times[-1]) for motion in motions) if motions else 0.0
    times = np.linspace(0.0, end, max(round(end * FRAME_RATE), 1) + 1)
    studio = Studio([motion.at(times) for motion in motions], annotations, geometry, width)
    strengths = [1.0 if motion.opacity >= 1.0 else motion.opacity for motion in motions]

    def picture(i: int) -> Any:
        return studio.picture([Moment(k, i, s) for k, s in enumerate(strengths)], forces=True)

    write(path, picture, len(times), float(times[1] - times[0]))
    return path, studio.missing


def require_film(path: Path) -> None:
    """Check that a video with this name can be written.

    Raises ValueError for a suffix other than .gif and .mp4, ModuleNotFoundError if MP4 lacks its package.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"{path.name!r} is not a video file: the name must end in {' or '.join(KINDS)}")
    if kind == ".mp4" and find_spec("imageio_ffmpeg") is None:
        message = "an MP4 needs the package imageio-ffmpeg: pip install 'urdf-trajopt[view]', or write a .gif"
        raise ModuleNotFoundError(message, name="imageio_ffmpeg")


def _write_gif(path: Path, picture: Callable[[int], Any], count: int, period: float) -> None:
    from PIL import Image

    colors = palette([picture(i) for i in np.unique(np.linspace(0, count - 1, SAMPLES).round().astype(int))], COLORS)
    frames = [picture(i).quantize(palette=colors, dither=Image.Dither.NONE) for i in range(count)]
    durations = [round(1e3 * period)] * (count - 1) + [round(1e3 * REST)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, disposal=1)


def palette(pictures: Sequence[Any], count: int) -> Any:
    """Return an image with a palette of ``count`` colors for all pictures. It includes the annotations' colors, which cover few
    pixels."""
    from PIL import Image

    whole = Image.new("RGB", (pictures[0].width, sum(p.height for p in pictures)))
    for i, picture in enumerate(pictures):
        whole.paste(picture, (0, i * picture.height))
    found = whole.quantize(count - len(MARKED))
    most = (found.getpalette() or [])[: 3 * (count - len(MARKED))]
    found.putpalette([*most, *(c for color in MARKED for c in color)])
    return found


def _write_mp4(path: Path, picture: Callable[[int], Any], count: int, period: float) -> None:
    import imageio_ffmpeg

    first = picture(0)
    even = (first.width - first.width % 2, first.height - first.height % 2)  # the codec requires even sizes
    writer = imageio_ffmpeg.write_frames(str(path), even, fps=1.0 / period, macro_block_size=2)
    writer.send(None)
    for i in range(count):
        writer.send(np.ascontiguousarray(np.asarray(first if i == 0 else picture(i))[: even[1], : even[0]]))
    writer.close()
