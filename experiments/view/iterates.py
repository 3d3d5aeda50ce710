"""Iterates of a solve in the browser viewer."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from experiments.view.scenes import task_annotations, tracked_frames
from trajopt import Guess
from trajopt.config.task import Task
from trajopt.view.motion import Motion
from trajopt.view.watch import Watch


def watch_task(task: Task, guess: Guess, settings: Any = None) -> Watch:
    """Return a solver callback that shows iterates with goals and obstacles. settings: configuration of the problem.

    Raises ValueError for a task without a robot, ModuleNotFoundError without viser.
    """
    model = task.ocp.model
    if model is None:
        raise ValueError(f"{task.ocp.name} has no robot to show")

    def motion_of(xs: Array) -> Motion:
        times = task.clock(xs)
        q = np.where(np.isfinite(xs), xs, 0.0)[:, : model.nq]
        return Motion("solve", model, task.ocp.times if times is None else times, q, tracks=tracked_frames(task))

    return Watch(motion_of(guess.xs), motion_of, task_annotations(task, settings))
