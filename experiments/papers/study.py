"""Results of an experiment: numbers, a picture, and published figures beside ours."""

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
class Claim:
    """A published statement, and whether it holds here.

    text: the statement, in the words of the report. only_differs: a failure means another result, not a worse one.
    """

    text: str
    holds: bool
    only_differs: bool = False


@dataclass(frozen=True)
class Comparison:
    """A row of the report: published figures beside ours.

    claims: every published statement about this row; empty where nothing can be compared. why: the reason for a
    difference, or for a figure that is missing (n/a).
    """

    what: str
    published: str
    ours: str
    claims: Sequence[Claim] = ()
    why: str = ""

    @property
    def failed(self) -> list[Claim]:
        """The claims that do not hold."""
        return [c for c in self.claims if not c.holds]

    @property
    def worse(self) -> bool:
        """True where a claim fails to our disadvantage."""
        return any(not c.only_differs for c in self.failed)

    @property
    def different(self) -> bool:
        """True where claims fail, none of them to our disadvantage."""
        return bool(self.failed) and not self.worse


@dataclass(frozen=True)
class Outcome:
    """Results of an experiment.

    rows: the lines of data.csv, all with the same keys. draw: writes the picture. remarks: sentences of the report. reference:
    the source of the figures that ours are compared with.
    """

    rows: Sequence[Mapping[str, Any]]
    comparisons: Sequence[Comparison]
    draw: Callable[[Path], Any]
    remarks: Sequence[str] = ()
    reference: str = "published"


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
