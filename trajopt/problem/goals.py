"""Goals: requirements on a motion that costs encourage but do not enforce, checked after a solve.

A goal by cost is met if the final error is at most ``FAR`` times the initial distance, or at most ``NEAR`` or ``NEAR_ANGLE``, less
for the frames of small robots (:mod:`trajopt.validation.reach`). A goal that is a constraint needs no such check: it is part of
feasibility.
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
"""Tolerance relative to the distance from the start to a goal."""
NEAR, NEAR_ANGLE = 5e-3, 0.02
"""Absolute tolerances: [m] for positions and prismatic joints, [rad] for orientations and revolute joints.

:func:`state_goal` applies NEAR_ANGLE to all directions, in their units, but at most OF_MOTION times the largest distance from the
goal along the motion.
"""
OF_MOTION = 0.2

Sentences = Callable[[Array, Array], Sequence[str]]
"""Function from states (N + 1, nx) at times (N + 1,) [s] to sentences for reports."""

CLEARANCE = "clearance"
"""Name of the goal to avoid the obstacles of the settings."""


class CachedEvaluation:
    """Function of states (N + 1, nx) that caches its latest result, because several sentences use the same result."""

    def __init__(self, function: Callable[[Array], Any]) -> None:
        self.function = function
        self._latest: tuple[Array, Any] | None = None

    def __call__(self, xs: Array) -> Any:
        """Result for states xs; the cached one if xs is the very array of the latest call."""
        if self._latest is None or self._latest[0] is not xs:
            self._latest = xs, self.function(xs)
        return self._latest[1]

    def __reduce__(self) -> tuple[type[CachedEvaluation], tuple[Any]]:
        return CachedEvaluation, (self.function,)


def nothing(*_: Any) -> list[Any]:
    """Return an empty list: the default of functions that report on a motion."""
    return []


@dataclass(frozen=True, eq=False)
class Goal:
    """A requirement on a motion.

    name: for reports. missed, report: functions from states xs (N + 1, nx) and their times (N + 1,) [s] to lists of sentences.
    missed: one sentence for each violated requirement, with amount and remedy; none if the goal is met. report: sentences about
    the motion for its report, met or not.
    """

    name: str
    missed: Sentences = nothing
    report: Sentences = nothing


def state_goal(
    manifold: Manifold, reference: Array, coordinates: Sequence[str] | None = None, name: str = "final state"
) -> Goal:
    """Goal that the motion ends at a state: reference (nx,).

    coordinates: names of the tangent directions to check; default: those of positions, whose names begin with "q[", or all if there
    are none. Units are those of the state. The tolerance is 2 % of the largest initial distance of these directions, but at least
    0.02, or 20 % of their largest distance along the motion if this is smaller. Raises ValueError for a name
    that the manifold does not have, and for a reference of another shape.
    """
    names, reference = manifold.tangent_names, np.asarray(reference, dtype=float)
    if reference.shape != (manifold.nx,):
        raise ValueError(f"goal {name!r}: reference has shape {reference.shape}; expected (nx = {manifold.nx},)")
    chosen = tuple(coordinates) if coordinates is not None else tuple(n for n in names if n.startswith("q[")) or names
    unknown = [c for c in chosen if c not in names]
    if unknown:
        raise ValueError(f"goal {name!r}: the state has no direction {unknown[0]!r}; known: {', '.join(names)}")
    places = np.array([names.index(c) for c in chosen])
    return Goal(name, partial(_state_missed, manifold, reference, places))


def _state_missed(manifold: Manifold, reference: Array, places: Array, xs: Array, times: Array) -> list[str]:
    """Sentence on the tangent direction that ends farthest from the reference state, if beyond the tolerance of :func:`state_goal`.

    places: indices of the directions to check. Empty list if the goal is met.
    """
    along = xs[:, : len(reference)].T
    distances = np.abs(manifold.difference(np.repeat(reference[:, None], len(xs), axis=1), along)[places])
    off, worst = distances[:, -1], int(np.argmax(distances[:, -1]))
    floor = min(NEAR_ANGLE, OF_MOTION * float(distances.max()))
    if off[worst] <= max(FAR * float(distances[:, 0].max()), floor):
        return []
    direction = manifold.tangent_names[places[worst]]
    return [f"{direction} ends {off[worst]:.2g} from its goal: {MORE}"]


MORE = "raise the terminal weight, give the motion more time, or ask for the goal by a terminal constraint"
