"""Wall-clock times of benchmarks: medians over repetitions of a minimum duration."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

MIN_TIME = 0.02  # [s] minimum duration of one repetition


def median_time(function: Callable[[], Any], repetitions: int = 5, min_time: float = MIN_TIME) -> float:
    """Return the median time of one call [s] over the repetitions, after a warm-up call."""
    function()
    calls = max(1, round(min_time / max(_seconds(function, 1), 1e-9)))
    return statistics.median(_seconds(function, calls) / calls for _ in range(repetitions))


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start = perf_counter()
    for _ in range(calls):
        function()
    return perf_counter() - start


def import_time(statement: str, repetitions: int = 5) -> float:
    """Return the median time of an import in fresh interpreters [s], without their startup."""
    code = f"import time; t = time.perf_counter(); exec({statement!r}); print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(repetitions)]
    return statistics.median(float(run.stdout) for run in runs)
