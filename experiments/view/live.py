"""Replanning runs in the browser viewer: plant and plan during the run, the complete run afterwards."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath
from dynamics_backends.rigid_body.geometry.shapes import Sphere
from dynamics_backends.rigid_body.model.model import Model
from trajopt import Solution
from trajopt.config.task import Task
from trajopt.problem.annotations import Annotations
from trajopt.replanning.loop import Now
from trajopt.replanning.run_log import RunLog
from trajopt.view.drawing import GOAL_COLOR, SEEN_THROUGH, SPHERE_COLOR, DrawnAnnotations, DrawnRobot, draw_ground
from trajopt.view.motion import Motion
from trajopt.view.viewer import GOAL_SIZE, HOST, PORT, extent, look_at, server_for, stop
from trajopt.view.watch import GHOST
from .scenes import ViewerScene, task_scene

REFRESH = 0.04
"""Minimum time between two frames [s]."""
DEFAULT_RADIUS = 0.1
"""Default radius [m] of an obstacle, if the settings have none."""
RATE = 100.0
"""Frame rate of a recorded run [Hz]."""


class LiveRun:
    """Callback of :class:`~trajopt.ReplanningLoop` that shows the plant, the plan, and moving objects after each tick.

    The plan appears as a transparent robot at its last state, with the planned path. Raises ValueError for a task without a
    robot, ModuleNotFoundError without viser.
    """

    def __init__(self, task: Task, first: Solution, settings: Any = None, host: str = HOST, port: int = PORT) -> None:
        if task.ocp.model is None:
            raise ValueError(f"{task.ocp.name} has no robot to show")
        self._model: Model = task.ocp.model
        scene = task_scene(first, task, settings)
        self._tracks, self._settings = scene.motions[0].tracks, settings
        self.server = server_for(host, port)
        plan = self._plan(first.times, first.xs)
        self._size = extent([plan])
        self._robots = [DrawnRobot(self.server.scene, motion) for motion in (self._plant(first.xs[0]), plan)]
        DrawnAnnotations(self.server.scene, Annotations(bodies=scene.annotations.bodies), GOAL_SIZE * self._size)
        draw_ground(self.server.scene, scene.annotations)
        look_at(self.server, [plan], scene.annotations)
        self._objects: dict[str, Any] = {}
        self._drawn = 0.0

    @property
    def url(self) -> str:
        """Address of the viewer page."""
        return f"http://{self.server.get_host()}:{self.server.get_port()}"

    def __call__(self, now: Now) -> None:
        """Update the viewer after a tick, at most once per REFRESH."""
        clock = time.perf_counter()
        if clock - self._drawn < REFRESH:
            return
        self._drawn = clock
        plant, plan = self._robots
        with self.server.atomic():
            plant.set_motion(self._plant(now.x))
            plant.show(0)
            plan.set_motion(self._plan(now.plan.times, now.plan.xs))
            plan.show(len(now.plan.times) - 1)
            for name, p in now.objects.items():
                if len(p) == 3:
                    self._object(name).position = tuple(p.tolist())

    def close(self) -> None:
        """Stop the server."""
        stop(self.server)

    def _plant(self, x: Any) -> Motion:
        return Motion("plant", self._model, np.zeros(1), x[None, : self._model.nq])

    def _plan(self, times: Any, xs: Any) -> Motion:
        return Motion("plan", self._model, times, xs[:, : self._model.nq], tracks=self._tracks, opacity=GHOST)

    def _object(self, name: str) -> Any:
        if name not in self._objects:
            solid = is_obstacle(name, self._settings)
            self._objects[name] = self.server.scene.add_icosphere(
                f"/{name}",
                radius=obstacle_radius(self._settings) if solid else GOAL_SIZE * self._size,
                color=SPHERE_COLOR if solid else GOAL_COLOR,
                opacity=SEEN_THROUGH if solid else None,
            )
        return self._objects[name]


def run_scene(task: Task, first: Solution, log: RunLog, settings: Any = None) -> ViewerScene:
    """Scene of a complete run: motion of the plant and the objects. Raises ValueError for a task without a robot."""
    if task.ocp.model is None:
        raise ValueError(f"{task.ocp.name} has no robot to show")
    start = task_scene(first, task, settings)
    nq, every = task.ocp.model.nq, max(1, round(1.0 / (RATE * log.tick)))
    times, plan = log.times[::every], start.motions[0]
    motion = Motion("plant", task.ocp.model, times - times[0], log.xs[::every, :nq], tracks=plan.tracks)
    places = {name: p[::every] for name, p in log.objects.items() if p.shape[1] == 3}
    radius = obstacle_radius(settings)
    obstacles = [_ball(name, times, p, radius) for name, p in places.items() if is_obstacle(name, settings)]
    small = GOAL_SIZE * extent([motion])
    targets = [_ball(name, times, p, small) for name, p in places.items() if not is_obstacle(name, settings)]
    goals, spheres = () if targets else start.annotations.goals, () if obstacles else start.annotations.spheres
    curves = {} if task.contour is None else {"contour": task.contour.at(log.xs[::every])}
    return ViewerScene([motion], Annotations(goals, spheres, (*start.annotations.bodies, *obstacles), targets, curves))


def is_obstacle(name: str, settings: Any) -> bool:
    """True if the object of this name is the obstacle of the run; False for a goal."""
    return bool(name == _table(settings, "replan", "obstacle").get("term"))


def obstacle_radius(settings: Any) -> float:
    """Radius [m] of the obstacle in a run's settings."""
    return float(_table(settings, "problem", "obstacle").get("radius", DEFAULT_RADIUS))


def _table(settings: Any, *names: str) -> Any:
    """Return a nested table of the settings, or {}; of a list of tables, the first one."""
    for name in names:
        settings = (settings or {}).get(name)
        settings = settings[0] if isinstance(settings, (list, tuple)) and settings else settings
    return settings if isinstance(settings, dict) else {}


def _ball(name: str, times: Any, p: Any, radius: float) -> Body:
    path = (
        BodyPath(tuple((times - times[0]).tolist()), tuple(map(tuple, (p - p[0]).tolist()))) if len(times) > 1 else None
    )
    return Body(name, Sphere(radius), p=p[0], path=path)
