"""Motions as files: an HTML page that plays, rotates and zooms without a server or network, and videos without a window.

Videos are GIF by Pillow, or MP4 by ffmpeg from the package imageio-ffmpeg.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.annotations import Annotations
from trajopt.view.drawing import DrawnAnnotations, DrawnRobot, draw_ground
from trajopt.view.motion import AnyMotion
from trajopt.view.picture import FORCE, GOAL, PATH, Moment, Studio
from trajopt.view.surfaces import Geometry
from trajopt.view.viewer import GOAL_SIZE, extent, frames, look_at, server_for, stop

ANY_PORT = 18080
MAX_FRAMES = 1200
"""Maximum number of frames of a page; longer motions have a lower frame rate, to limit the file size."""
NOTES = """<details style="position: fixed; top: 8px; right: 8px; z-index: 9; max-height: 60vh; overflow: auto; padding: 4px 10px;
background: rgba(255, 255, 255, 0.85); font: 13px system-ui, sans-serif"><summary>{summary}</summary>{lines}</details>"""


def write_page(
    path: Path,
    motions: Sequence[AnyMotion],
    annotations: Annotations | None = None,
    geometry: Geometry = "visual",
    notes: Sequence[str] = (),
) -> tuple[Path, tuple[str, ...]]:
    """Write the HTML page of simultaneous motions. Returns the path, and sentences about missing meshes.

    notes: a heading, and lines that unfold below it in a corner.
    Raises ModuleNotFoundError without viser, ValueError without motions, OSError if the file cannot be written.
    """
    if not motions:
        raise ValueError("no motion to show")
    server = server_for(port=ANY_PORT)
    try:
        times = _frames(motions)
        robots = [DrawnRobot(server.scene, motion.at(times), geometry) for motion in motions]
        annotations = annotations or Annotations()
        around = DrawnAnnotations(server.scene, annotations, GOAL_SIZE * extent(motions))
        draw_ground(server.scene, annotations)
        look_at(server, motions, annotations)
        for robot in robots:
            robot.show(0)
        recording = server.get_scene_serializer()
        for i in range(len(times)):
            around.show(float(times[i]))
            for robot in robots:
                robot.show(i)
            recording.insert_sleep(float(times[i] - times[i - 1]) if i else 0.0)
        path.write_text(_titled(recording.as_html(), motions[0].title, notes), encoding="utf-8")
    finally:
        stop(server)
    return path, tuple(dict.fromkeys(sentence for robot in robots for sentence in robot.missing))


def _frames(motions: Sequence[AnyMotion]) -> Array:
    """Frame times (T,) [s] of simultaneous motions, evenly spaced; T is at most MAX_FRAMES."""
    times = frames(motions)
    return times if len(times) <= MAX_FRAMES else np.linspace(0.0, times[-1], MAX_FRAMES)


def _titled(page: str, title: str, notes: Sequence[str]) -> str:
    """Return an HTML page of viser with another title, and with notes, if any, at its end: a heading, and lines below it."""
    page = page.replace("<title>Viser</title>", f"<title>{html.escape(title)}</title>", 1)
    if not notes:
        return page
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in notes[1:])
    body, _, rest = page.rpartition("</body>")
    return f"{body}{NOTES.format(summary=html.escape(notes[0]), lines=lines)}</body>{rest}"


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
    """Write the video of simultaneous motions, with forces. Returns the path, and sentences about missing meshes.

    width [pixels]. Raises ValueError without motions, if none has anything to draw, and for a suffix other than .gif and .mp4,
    ModuleNotFoundError if MP4 lacks its package.
    """
    require_film(path)
    write = _write_gif if path.suffix.lower() == ".gif" else _write_mp4
    end = max(float(motion.times[-1]) for motion in motions) if motions else 0.0
    times = np.linspace(0.0, end, max(round(end * FRAME_RATE), 1) + 1)
    studio = Studio([motion.at(times) for motion in motions], annotations, geometry, width)

    def picture(i: int) -> Any:
        """Picture of all motions at frame i, with forces."""
        return studio.picture([Moment(k, i) for k in range(len(motions))], forces=True)

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
    """Write frames picture(0) to picture(count - 1), ``period`` [s] apart, as a GIF in a loop; the last one is shown for REST."""
    from PIL import Image

    colors = palette([picture(i) for i in np.unique(np.linspace(0, count - 1, SAMPLES).round().astype(int))], COLORS)
    frames = [picture(i).quantize(palette=colors, dither=Image.Dither.NONE) for i in range(count)]
    durations = [round(1e3 * period)] * (count - 1) + [round(1e3 * REST)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, disposal=1)


def palette(pictures: Sequence[Any], count: int) -> Any:
    """Return an image with a palette of at most ``count`` colors for all pictures.

    It always includes the colors of goals, forces, paths and the background, which may cover few pixels.
    """
    from PIL import Image

    whole = Image.new("RGB", (pictures[0].width, sum(p.height for p in pictures)))
    for i, picture in enumerate(pictures):
        whole.paste(picture, (0, i * picture.height))
    found = whole.quantize(count - len(MARKED))
    most = (found.getpalette() or [])[: 3 * (count - len(MARKED))]
    found.putpalette([*most, *(c for color in MARKED for c in color)])
    return found


def _write_mp4(path: Path, picture: Callable[[int], Any], count: int, period: float) -> None:
    """Write frames picture(0) to picture(count - 1), ``period`` [s] apart, as an MP4, cropped to even width and height."""
    import imageio_ffmpeg

    first = picture(0)
    even = (first.width - first.width % 2, first.height - first.height % 2)  # the codec requires even sizes
    writer = imageio_ffmpeg.write_frames(str(path), even, fps=1.0 / period, macro_block_size=2)
    writer.send(None)
    for i in range(count):
        writer.send(np.ascontiguousarray(np.asarray(first if i == 0 else picture(i))[: even[1], : even[0]]))
    writer.close()
