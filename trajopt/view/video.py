"""Motions as films, drawn without a window: GIF by Pillow, MP4 by ffmpeg as the package imageio-ffmpeg brings it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trajopt.view.motion import Marks, Motion
from trajopt.view.picture import Moment, Studio
from trajopt.view.surfaces import Geometry

FRAME_RATE = 25.0
"""Pictures per second [Hz]; GIF knows hundredths of a second."""
WIDTH = 640  # [pixels]
REST = 0.8
"""Seconds that the last picture of a GIF stays."""
COLORS = 96
"""Of a GIF's palette, one for all pictures."""
KINDS = (".gif", ".mp4")


def write_film(
    path: Path, motions: Sequence[Motion], marks: Marks | None = None, geometry: Geometry = "visual", width: int = WIDTH
) -> tuple[Path, tuple[str, ...]]:
    """The film of motions that begin together; the path, and sentences about meshes that were not found.

    Raises ValueError for no motion and for another ending than .gif and .mp4, ModuleNotFoundError where MP4 lacks its package.
    """
    if path.suffix not in KINDS:
        raise ValueError(f"{path.name!r} is no film: its name ends in {' or '.join(KINDS)}")
    write = _write_gif if path.suffix == ".gif" else _mp4_writer()
    end = max(float(motion.times[-1]) for motion in motions) if motions else 0.0
    times = np.linspace(0.0, end, max(round(end * FRAME_RATE), 1) + 1)
    studio = Studio([motion.at(times) for motion in motions], marks, geometry, width)
    strengths = [1.0 if motion.opacity >= 1.0 else motion.opacity for motion in motions]

    def pictures() -> Iterator[Any]:
        for i in range(len(times)):
            yield studio.picture([Moment(k, i, s) for k, s in enumerate(strengths)], forces=True)

    write(path, pictures(), float(times[1] - times[0]))
    return path, studio.missing


def _write_gif(path: Path, pictures: Iterator[Any], period: float) -> None:
    from PIL import Image

    first = next(pictures)
    palette = first.quantize(COLORS)
    frames = [palette, *(p.quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures)]
    durations = [round(1e3 * period)] * (len(frames) - 1) + [round(1e3 * REST)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, disposal=1)


def _mp4_writer() -> Any:
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        message = "an MP4 needs the package imageio-ffmpeg: pip install 'urdf-trajopt[video]', or write a .gif"
        raise ModuleNotFoundError(message, name="imageio_ffmpeg") from error

    def write(path: Path, pictures: Iterator[Any], period: float) -> None:
        first = next(pictures)
        even = (first.width - first.width % 2, first.height - first.height % 2)  # as the codec wants it
        writer = imageio_ffmpeg.write_frames(str(path), even, fps=1.0 / period, macro_block_size=2)
        writer.send(None)
        for picture in (first, *pictures):
            writer.send(np.ascontiguousarray(np.asarray(picture)[: even[1], : even[0]]))
        writer.close()

    return write
