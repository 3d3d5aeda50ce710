"""A motion as one HTML file with its scene in it: opens without a server or a network, plays, turns and zooms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trajopt.view.drawing import DrawnMarks, DrawnRobot
from trajopt.view.motion import Marks, Motion
from trajopt.view.surfaces import Geometry
from trajopt.view.viewer import GOAL_SIZE, extent, frames, look_at, server_for, stop

ANY_PORT = 18080


def write_page(
    path: Path, motions: Sequence[Motion], marks: Marks | None = None, geometry: Geometry = "visual"
) -> tuple[Path, tuple[str, ...]]:
    """The page of motions that begin together; the path, and sentences about meshes that were not found.

    Raises ModuleNotFoundError without viser, ValueError for no motion, OSError where it cannot be written.
    """
    if not motions:
        raise ValueError("there is no motion to show")
    server = server_for(port=ANY_PORT)
    try:
        times = frames(motions)
        robots = [DrawnRobot(server.scene, motion.at(times), geometry) for motion in motions]
        around = DrawnMarks(server.scene, marks or Marks(), GOAL_SIZE * extent(motions))
        look_at(server, motions)
        for robot in robots:
            robot.show(0)
        recording = server.get_scene_serializer()
        for i in range(len(times)):
            around.show(float(times[i]))
            for robot in robots:
                robot.show(i)
            recording.insert_sleep(float(times[i] - times[i - 1]) if i else 0.0)
        path.write_text(recording.as_html(), encoding="utf-8")
    finally:
        stop(server)
    return path, tuple(dict.fromkeys(sentence for robot in robots for sentence in robot.missing))
