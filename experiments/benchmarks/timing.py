"""Wall-clock times for benchmarks: medians of several repetitions, each long enough for the clock."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

SHORTEST = 0.02  # [s] of one repetition


def median_time(function: Callable[[], Any], repetitions: int = 5, shortest: float = SHORTEST) -> float:
    """Seconds of one call: the median over the repetitions, after one call that is not counted."""
    function()
    calls = max(1, round(shortest / max(_seconds(function, 1), 1e-9)))
    return statistics.median(_seconds(function, calls) / calls for _ in range(repetitions))


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start = perf_counter()
    for _ in range(calls):
        function()
    return perf_counter() - start


def import_time(statement: str, repetitions: int = 5) -> float:
    """Seconds that an import takes in a fresh interpreter, its own start not counted; the median of the repetitions."""
    code = f"import time; t = time.perf_counter(); exec({statement!r}); print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(repetitions)]
    return statistics.median(float(run.stdout) for run in runs)
