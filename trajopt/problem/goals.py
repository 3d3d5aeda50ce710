"""Goals: requirements on a motion that its costs pull toward but do not enforce, checked after a solve.

A goal by cost counts as met where the motion ends within ``FAR`` of the way to it, or nearer than ``NEAR`` or ``NEAR_ANGLE``.
A goal that is a constraint needs no such check: it is part of feasibility.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array

FAR = 0.02
"""Share of the way from the start to a goal."""
NEAR, NEAR_ANGLE = 5e-3, 0.02
"""[m] of positions and of joints that slide, [rad] of orientations and of joints that turn."""

Sentences = Callable[[Array, Array], Sequence[str]]
"""Sentences about states (N + 1, nx) at times (N + 1,) [s]."""


class OfMotion:
    """A function of states (N + 1, nx), called once for each array: several sentences are about the same result."""

    def __init__(self, function: Callable[[Array], Any]) -> None:
        self.function = function
        self._latest: tuple[Array, Any] | None = None

    def __call__(self, xs: Array) -> Any:
        """The result for these states."""
        if self._latest is None or self._latest[0] is not xs:
            self._latest = xs, self.function(xs)
        return self._latest[1]

    def __reduce__(self) -> tuple[type[OfMotion], tuple[Any]]:
        return OfMotion, (self.function,)


def no_sentences(xs: Array, times: Array) -> Sequence[str]:
    """Empty."""
    return ()


@dataclass(frozen=True, eq=False)
class Goal:
    """A requirement on a motion.

    name: for reports. missed: one sentence for each way in which the motion fails, with amount and remedy; none where it meets
    the goal. report: sentences about the motion for its report, whether the goal is met or not.
    """

    name: str
    missed: Sentences = no_sentences
    report: Sentences = no_sentences


def state_goal(
    manifold: Manifold, reference: Array, coordinates: Sequence[str] | None = None, name: str = "final state"
) -> Goal:
    """The motion ends at a state: reference (nx,), for the tangent directions named (default those of positions, or all).

    Units are those of the state; the tolerance is FAR of the way of the largest of these directions, and at least NEAR_ANGLE.
    Raises ValueError for a name that the manifold does not have.
    """
    names = manifold.tangent_names
    chosen = tuple(coordinates) if coordinates is not None else tuple(n for n in names if n.startswith("q[")) or names
    unknown = [c for c in chosen if c not in names]
    if unknown:
        raise ValueError(f"goal {name!r}: no direction {unknown[0]!r} of the state; there are: {', '.join(names)}")
    places = np.array([names.index(c) for c in chosen])
    return Goal(name, partial(_state_missed, manifold, np.asarray(reference, dtype=float), places))


def _state_missed(manifold: Manifold, reference: Array, places: Array, xs: Array, times: Array) -> list[str]:
    ends = manifold.difference(np.repeat(reference[:, None], 2, axis=1), xs[[0, -1], : len(reference)].T)[places]
    way, off = np.abs(ends).T
    worst = int(np.argmax(off))
    if off[worst] <= max(FAR * float(way.max()), NEAR_ANGLE):
        return []
    direction = manifold.tangent_names[places[worst]]
    return [f"{direction} ends {off[worst]:.2g} from its goal: {MORE}"]


MORE = "raise the terminal weight, give the motion more time, or ask for the goal by a terminal constraint"
