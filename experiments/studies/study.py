"""What an experiment returns: numbers, a picture of them, and published figures with ours beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """One published figure and ours; ``why``: where and why they differ, or why there is no figure (n/a) on one side."""

    what: str
    published: str
    ours: str
    worse: bool = False
    why: str = ""


@dataclass(frozen=True)
class Outcome:
    """The results of an experiment.

    rows: the lines of data.csv, all with the same keys. draw: writes the picture. remarks: sentences of the report.
    """

    rows: Sequence[Mapping[str, Any]]
    comparisons: Sequence[Comparison]
    draw: Callable[[Path], Any]
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Study:
    """An experiment. source: paper and figure. run(quick): quick runs take seconds and show fewer points."""

    name: str
    title: str
    source: str
    run: Callable[[bool], Outcome]


def times(value: float) -> str:
    """A ratio as text."""
    return f"{value:.2g} x" if value < 100 else f"{value:.0f} x"
