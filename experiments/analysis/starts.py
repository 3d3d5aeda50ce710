"""Initial guesses of a multi-start solve.

The first guess is the task's own. The task's other guesses follow; an arm has one per joint configuration at its goal. Smooth
random detours from the first guess complete the list (:mod:`trajopt.guesses.guesses`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trajopt import Guess, detour
from trajopt.config.task import Task


def guesses(task: Task, count: int, seed: int = 0) -> Iterator[Guess]:
    """Yield ``count`` guesses of a task."""
    rng = np.random.default_rng(seed)
    listed = [task.guess, *task.other_guesses][:count]
    yield from listed
    for _ in range(count - len(listed)):
        yield detour(task.ocp, task.guess, rng)
