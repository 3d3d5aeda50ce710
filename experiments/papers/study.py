"""Result types of experiments: data, plots, and comparisons with published figures."""

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
LANES = (
    "Closed forms compute several points at once, in the lanes of SIMD instructions; CasADi's C code computes one after the other."
    " The experiment operation-counts compares both without this advantage."
)
"""Remark on times of closed forms and of AD as C code."""


@dataclass(frozen=True)
class Claim:
    """A published statement. holds: True if our results confirm it.

    text: the statement in the report. only_differs: a failure means a different result, not a worse one.
    """

    text: str
    holds: bool
    only_differs: bool = False


@dataclass(frozen=True)
class Comparison:
    """One row of a report: published figures and ours.

    claims: published statements about this row; empty if nothing can be compared. why: the reason for a difference or a missing
    figure (n/a).
    """

    what: str
    published: str
    ours: str
    claims: Sequence[Claim] = ()
    why: str = ""

    @property
    def failed(self) -> list[Claim]:
        """Claims that do not hold."""
        return [c for c in self.claims if not c.holds]

    @property
    def worse(self) -> bool:
        """True if a failed claim means a worse result."""
        return any(not c.only_differs for c in self.failed)

    @property
    def different(self) -> bool:
        """True if claims fail, but none means a worse result."""
        return bool(self.failed) and not self.worse


@dataclass(frozen=True)
class Outcome:
    """Results of an experiment.

    rows: lines of data.csv, all with the same keys. draw: writes the plot. remarks: sentences of the report. reference:
    source of the figures in the comparison.
    """

    rows: Sequence[Mapping[str, Any]]
    comparisons: Sequence[Comparison]
    draw: Callable[[Path], Any]
    remarks: Sequence[str] = ()
    reference: str = "published"


@dataclass(frozen=True)
class Study:
    """An experiment. source: paper and figure. run(quick): runs it; quick runs take seconds and have fewer points."""

    name: str
    title: str
    source: str
    run: Callable[[bool], Outcome]


def times(value: float) -> str:
    """Format a ratio."""
    return f"{value:.2g} x" if value < 100 else f"{value:.0f} x"
