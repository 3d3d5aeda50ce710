"""Where solves of a task start.

The first start is the task's guess, then come the task's other guesses (an arm has one for each configuration at its goal), then
smooth random detours from the guess (:mod:`trajopt.guesses.detours`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trajopt import Guess, detour
from trajopt.config.task import Task


def guesses(task: Task, count: int, seed: int = 0) -> Iterator[Guess]:
    """A number of guesses of a task."""
    rng = np.random.default_rng(seed)
    listed = [task.guess, *task.other_guesses][:count]
    yield from listed
    for _ in range(count - len(listed)):
        yield detour(task.ocp, task.guess, rng)
