"""A replanning run in a browser: the plant and its plan while it runs, the whole run afterwards."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.geometry.scene import Body, Way
from dynamics_backends.rigid_body.geometry.shapes import Sphere
from dynamics_backends.rigid_body.model.model import Model
from experiments.view.shown import Shown, of_task
from problems.task import Task
from trajopt import Solution
from trajopt.replanning.loop import Now
from trajopt.replanning.run_log import RunLog
from trajopt.view.drawing import DrawnMarks, DrawnRobot
from trajopt.view.motion import Marks, Motion
from trajopt.view.viewer import GOAL_SIZE, HOST, PORT, extent, look_at, server_for, stop
from trajopt.view.watch import GHOST

REFRESH = 0.04
"""Seconds between two pictures at least."""
RATE = 100.0
"""States of a run that are shown per second [Hz]."""


class LiveRun:
    """What :class:`~trajopt.ReplanningLoop` calls after each tick: the plant, its plan as a ghost at its end with the planned path,
    and what moves beside them. Raises ValueError for a task without a robot, ModuleNotFoundError without viser."""

    def __init__(self, task: Task, first: Solution, settings: Any = None, host: str = HOST, port: int = PORT) -> None:
        if task.ocp.model is None:
            raise ValueError(f"{task.ocp.name} has no robot to show")
        self._model: Model = task.ocp.model
        scene = of_task(first, task, settings)
        self._tracks = scene.motions[0].tracks
        self.server = server_for(host, port)
        plan = self._plan(first.times, first.xs)
        self._size = extent([plan])
        self._robots = [DrawnRobot(self.server.scene, motion) for motion in (self._plant(first.xs[0]), plan)]
        DrawnMarks(self.server.scene, Marks(bodies=scene.marks.bodies), GOAL_SIZE * self._size)
        look_at(self.server, [plan])
        self._objects: dict[str, Any] = {}
        self._drawn = 0.0

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{self.server.get_host()}:{self.server.get_port()}"

    def __call__(self, now: Now) -> None:
        """Show what there is to see after a tick, where the last time is long enough ago."""
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
        """End the server."""
        stop(self.server)

    def _plant(self, x: Any) -> Motion:
        return Motion("plant", self._model, np.zeros(1), x[None, : self._model.nq])

    def _plan(self, times: Any, xs: Any) -> Motion:
        return Motion("plan", self._model, times, xs[:, : self._model.nq], tracks=self._tracks, opacity=GHOST)

    def _object(self, name: str) -> Any:
        if name not in self._objects:
            ball = self.server.scene.add_icosphere(f"/{name}", radius=GOAL_SIZE * self._size, color=(42, 138, 74))
            self._objects[name] = ball
        return self._objects[name]


def of_run(task: Task, first: Solution, log: RunLog, settings: Any = None) -> Shown:
    """What a whole run shows: the plant's motion, and the objects where they were. Raises ValueError for a task without a robot."""
    if task.ocp.model is None:
        raise ValueError(f"{task.ocp.name} has no robot to show")
    start = of_task(first, task, settings)
    nq, every = task.ocp.model.nq, max(1, round(1.0 / (RATE * log.tick)))
    times, plan = log.times[::every], start.motions[0]
    motion = Motion("plant", task.ocp.model, times - times[0], log.xs[::every, :nq], tracks=plan.tracks)
    radius = GOAL_SIZE * extent([motion])
    balls = [_ball(name, times, p[::every], radius) for name, p in log.objects.items() if p.shape[1] == 3]
    fixed = () if any(name == "goal" for name in log.objects) else start.marks.goals
    return Shown([motion], Marks(fixed, (), (*start.marks.bodies, *balls)))


def _ball(name: str, times: Any, p: Any, radius: float) -> Body:
    way = Way(tuple((times - times[0]).tolist()), tuple(map(tuple, (p - p[0]).tolist()))) if len(times) > 1 else None
    return Body(name, Sphere(radius), p=p[0], way=way)
