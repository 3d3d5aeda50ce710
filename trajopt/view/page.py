"""Write a motion with its scene as one HTML file that plays, rotates and zooms without a server or network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.annotations import Annotations
from trajopt.view.drawing import DrawnAnnotations, DrawnRobot, draw_ground
from trajopt.view.motion import AnyMotion
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
    """Write the page of simultaneous motions. Returns the path, and sentences about missing meshes.

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
    times = frames(motions)
    return times if len(times) <= MAX_FRAMES else np.linspace(0.0, times[-1], MAX_FRAMES)


def _titled(page: str, title: str, notes: Sequence[str]) -> str:
    """Return the page with another title, and with notes at its end."""
    page = page.replace("<title>Viser</title>", f"<title>{html.escape(title)}</title>", 1)
    if not notes:
        return page
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in notes[1:])
    body, _, rest = page.rpartition("</body>")
    return f"{body}{NOTES.format(summary=html.escape(notes[0]), lines=lines)}</body>{rest}"
