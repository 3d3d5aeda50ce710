"""The iterates of a solve of a task, in a browser."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from experiments.view.shown import marks_of, tracks_of
from trajopt import Guess
from trajopt.config.task import Task
from trajopt.view.motion import Motion
from trajopt.view.watch import Watch


def watch_task(task: Task, guess: Guess, settings: Any = None) -> Watch:
    """A callback that shows iterates with the goals and obstacles of the task; settings: of its problem.

    Raises ValueError for a task without a robot, ModuleNotFoundError without viser.
    """
    model = task.ocp.model
    if model is None:
        raise ValueError(f"{task.ocp.name} has no robot to show")

    def motion_of(xs: Array) -> Motion:
        times = task.clock(xs)
        q = np.where(np.isfinite(xs), xs, 0.0)[:, : model.nq]
        return Motion("solve", model, task.ocp.times if times is None else times, q, tracks=tracks_of(task))

    return Watch(motion_of(guess.xs), motion_of, marks_of(task, settings))
