"""What an experiment returns: numbers, a picture of them, and published figures with ours beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KUDRUSS = "M. Kudruss, P. Manns, C. Kirches, Efficient derivative evaluation for rigid-body dynamics ..., L-CSS 2019"
SINGH = "S. Singh, R. P. Russell, P. M. Wensing, On second-order derivatives of rigid-body dynamics, arXiv 2302.06001"
ASTUDILLO = (
    "A. Astudillo et al., Mixed use of analytical derivatives and algorithmic differentiation for NMPC ..., MECC 2021"
)
GIFTTHALER = "M. Giftthaler et al., Automatic differentiation of rigid body dynamics ..., Advanced Robotics 31, 2017"


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
