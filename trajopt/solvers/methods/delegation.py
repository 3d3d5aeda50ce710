"""Solves that a method asks for: the request, and what is read of the answer, which is a solution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from trajopt.results.records import Callback, IterationRecord
from trajopt.results.solution import Solution


class SolveRequest(NamedTuple):
    """Request: solve the problem from its guess. options: but for max_iterations and time_limit [s]."""

    options: Any
    max_iterations: int
    time_limit: float | None

    @property
    def limited(self) -> Any:
        """The options with the limits."""
        o, limits = self.options, self[1:]
        same = (o.max_iterations, o.time_limit) == limits
        return o if same else replace(o, max_iterations=limits[0], time_limit=limits[1])


def at_end(found: Solution) -> Mapping[str, Any]:
    """The measures at the end of a solve by name: "gradient", "defect", "kkt"."""
    return vars(found.history[-1]) if found.history else found.meta


class Continued:
    """A callback that numbers the records of several solves through."""

    def __init__(self, callback: Callback) -> None:
        self.callback, self.count = callback, 0

    def __call__(self, record: IterationRecord) -> None:
        """Pass a record on."""
        record = record if record.iteration == self.count else replace(record, iteration=self.count)
        self.count += 1
        self.callback(record)
