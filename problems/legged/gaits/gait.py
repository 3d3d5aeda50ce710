"""Scheduled gait: stance phases of the feet, and their swing trajectories.

A gait is a list of phases, each a set of standing feet and a duration; the other feet swing.  A foot that swings over
consecutive phases from t_0 to t_1 moves to a foothold ``step_length`` ahead, with s = (t - t_0)/(t_1 - t_0),

    x = length s^3 (10 - 15 s + 6 s^2),      z = height 16 s^2 (1 - s)^2,

so it lifts and lands with zero velocity.  The reference of the base follows the mean of the feet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from trajopt.config.task import Checked, Checks

STEP_LENGTH = 0.15
"""Default step length [m], if no distance is given."""
PATTERNS: dict[str, tuple[tuple[int, ...], ...]] = {
    "trot": ((1, 2), (0, 3)),
    "pace": ((0, 2), (1, 3)),
    "bound": ((0, 1), (2, 3)),
    "walk": ((2,), (0,), (3,), (1,)),
    "jump": ((0, 1, 2, 3),),
    "stand": ((),),
}
"""Groups of feet that swing in turn, by index into (left front, right front, left hind, right hind)."""
ON_TWO: dict[str, tuple[tuple[int, ...], ...]] = {"walk": ((1,), (0,)), "jump": ((0, 1),), "stand": ((),)}
"""Groups of feet of bipeds that swing in turn, by index into (left, right)."""


class GaitPhase(NamedTuple):
    """Standing feet and duration [s] of a phase."""

    stance: tuple[str, ...]
    duration: float


class Interval(NamedTuple):
    """Knots [first, last) of a phase, and its standing feet."""

    stance: tuple[str, ...]
    first: int
    last: int


class FootReferences(NamedTuple):
    """References at M times: positions (M, F, 3) [m], velocities (M, F, 3) [m/s], masks of swinging and landing feet (M, F), and
    base (M, 3) [m]: mean displacement of the feet."""

    position: Array
    velocity: Array
    swinging: Array
    landing: Array
    base: Array


@dataclass(frozen=True, kw_only=True)
class Gait(Checked):
    """A gait. feet: all feet. phases: in order. step_length and step_height [m].

    Raises SettingsError for values out of range, UnknownName for a standing foot that is not in ``feet``.
    """

    feet: tuple[str, ...]
    phases: tuple[GaitPhase, ...]
    step_length: float = STEP_LENGTH
    step_height: float = 0.1

    def checks(self) -> Checks:
        return {
            "feet": (0 < len(set(self.feet)) == len(self.feet), "names of frames, each once"),
            "phases": (
                len(self.phases) > 0 and all(phase.duration > 0 for phase in self.phases),
                "at least one, of positive duration",
            ),
            "step_height": (self.step_height >= 0, "a height of at least 0"),
        }

    def __post_init__(self) -> None:
        super().__post_init__()
        for phase in self.phases:
            for foot in phase.stance:
                if foot not in self.feet:
                    raise unknown_name("foot", foot, list(self.feet))

    @classmethod
    def in_turn(
        cls,
        feet: Sequence[str],
        swings: Sequence[Sequence[str]],
        *,
        swing: float,
        support: float,
        cycles: int = 1,
        step_length: float = STEP_LENGTH,
        step_height: float = 0.1,
    ) -> Gait:
        """Create a gait of groups that swing one after the other for ``swing`` [s], with all feet down for ``support`` [s] in
        between.

        Raises UnknownName for a group with an unknown foot.
        """
        phases: list[GaitPhase] = []
        standing = [GaitPhase(tuple(feet), support)] if support > 0 else []
        for group in cycles * list(swings):
            for foot in group:
                if foot not in feet:
                    raise unknown_name("foot", foot, list(feet))
            phases += [*standing, GaitPhase(tuple(f for f in feet if f not in group), swing)]
        return cls(feet=tuple(feet), phases=(*phases, *standing), step_length=step_length, step_height=step_height)

    @classmethod
    def named(cls, name: str, feet: Sequence[str], **values: float) -> Gait:
        """Create a gait of PATTERNS, or for bipeds of ON_TWO; ``values`` as for :meth:`in_turn`.

        feet: left front, right front, left hind, right hind, or left, right.

        Raises UnknownName for an unknown gait, ValueError for another number of feet.
        """
        if name not in PATTERNS:
            raise unknown_name("gait", name, list(PATTERNS))
        if len(feet) not in (2, 4):
            raise ValueError(
                f"gait {name!r} needs two feet or four, left before right and front before hind; got {len(feet)}: for other "
                "numbers list the groups of feet that swing in turn (swings)"
            )
        patterns = ON_TWO if len(feet) == 2 else PATTERNS
        if name not in patterns:
            raise ValueError(
                f"gait {name!r} needs four feet, there are {', '.join(feet)}; on two: {', '.join(patterns)}. If the robot has "
                "four, name them (feet), and check that the z axis of its base points up"
            )
        return cls.in_turn(feet, [[feet[i] for i in group] for group in patterns[name]], **values)  # type: ignore[arg-type]

    @classmethod
    def observed(
        cls, feet: Sequence[str], times: Array, contact: Array, *, step: float, min_duration: float, **values: float
    ) -> Gait:
        """Create the schedule of contact signals (M, F) of booleans, held from times (M + 1,) [s] on, such as those of a soft
        gait.

        The schedule is rounded to multiples of ``step`` [s]; contacts and swings shorter than ``min_duration`` [s] are removed, the
        shortest first. values: step_length, step_height. Raises ValueError for wrong sizes.
        """
        if np.shape(contact) != (len(times) - 1, len(feet)):
            raise ValueError(
                f"contact has shape {np.shape(contact)}; expected ({len(times) - 1}, {len(feet)}): times less one, feet"
            )
        middles = times[0] + step * (np.arange(max(1, round((times[-1] - times[0]) / step))) + 0.5)
        at = np.clip(np.searchsorted(times, middles, side="right") - 1, 0, len(contact) - 1)
        even = np.stack(
            [_remove_short_runs(signal, min_duration / step) for signal in np.asarray(contact)[at].T], axis=1
        )
        ends = np.flatnonzero((even[1:] != even[:-1]).any(axis=1)) + 1
        phases = [
            GaitPhase(tuple(f for f, down in zip(feet, even[a], strict=True) if down), float(step * (b - a)))
            for a, b in zip([0, *ends], [*ends, len(even)], strict=True)
        ]
        return cls(feet=tuple(feet), phases=tuple(phases), **values)

    @property
    def duration(self) -> float:
        """Duration of the gait [s]."""
        return sum(phase.duration for phase in self.phases)

    def over(self, distance: float) -> Gait:
        """Return the gait with a step length such that the base moves by ``distance`` [m]. Raises ValueError without steps."""
        steps = sum(len(self.swings(foot)) for foot in self.feet)
        if not steps:
            raise ValueError("distance: this gait takes no steps; leave the distance out, or choose another gait")
        return replace(self, step_length=distance * len(self.feet) / steps)

    def on_grid(self, dt: float) -> Gait:
        """Return the gait with phase ends rounded to multiples of dt [s].

        Raises ValueError for a phase shorter than a time step.
        """
        lengths = [last - first for _, first, last in self.intervals(dt)]
        phases = [
            phase if abs(phase.duration - k * dt) <= _SAME_TIME else phase._replace(duration=k * dt)
            for phase, k in zip(self.phases, lengths, strict=True)
        ]
        return replace(self, phases=tuple(phases))

    def require_feet(self, model: Model) -> None:
        """Raise UnknownName, with similar names, for a foot that is not a frame of the robot."""
        for foot in self.feet:
            model.frame_id(foot)

    def intervals(self, dt: float) -> list[Interval]:
        """Return the knots of the phases on a time grid, rounded. Raises ValueError for a phase shorter than a time step."""
        ends = np.round(np.cumsum([0.0, *(phase.duration for phase in self.phases)]) / dt).astype(int).tolist()
        for phase, first, last in zip(self.phases, ends, ends[1:], strict=False):
            if last <= first:
                raise ValueError(
                    f"a phase of {phase.duration:g} s has no knot: shorten dt = {dt:g} s, or lengthen the phase"
                )
        return [Interval(p.stance, a, b) for p, a, b in zip(self.phases, ends, ends[1:], strict=False)]

    def swings(self, foot: str) -> list[tuple[float, float]]:
        """Return (start, end) [s] of each swing of a foot; consecutive phases in the air are one swing."""
        found: list[tuple[float, float]] = []
        at = 0.0
        for phase in self.phases:
            end = at + phase.duration
            if foot not in phase.stance:
                joined = bool(found) and abs(found[-1][1] - at) < _SAME_TIME
                found = [*found[:-1], (found[-1][0], end)] if joined else [*found, (at, end)]
            at = end
        return found

    def references(self, times: Array, footholds: Array) -> FootReferences:
        """Return foot and base references at times (M,) [s], starting from footholds (F, 3) [m]."""
        M, F = len(times), len(self.feet)
        position, velocity = np.tile(footholds, (M, 1, 1)), np.zeros((M, F, 3))
        swinging, landing = np.zeros((M, F), dtype=bool), np.zeros((M, F), dtype=bool)
        for f, foot in enumerate(self.feet):
            for start, end in self.swings(foot):
                s = np.clip((times - start) / (end - start), 0.0, 1.0)
                along, rate, up, climb = _curve(s)
                swinging[:, f] |= (times > start + _SAME_TIME) & (times < end - _SAME_TIME)
                landing[:, f] |= np.abs(times - end) <= _SAME_TIME
                position[:, f, 0] += self.step_length * along
                position[:, f, 2] += self.step_height * up
                velocity[:, f, 0] += self.step_length * rate / (end - start)
                velocity[:, f, 2] += self.step_height * climb / (end - start)
        base = (position - footholds).mean(axis=1) * np.array([1.0, 1.0, 0.0])
        return FootReferences(position, velocity, swinging, landing, base)


_SAME_TIME = 1e-9


def _remove_short_runs(signal: Array, min_length: float) -> Array:
    """Remove runs shorter than ``min_length`` samples from a boolean signal (M,)."""
    signal = signal.copy()
    while True:
        ends = np.r_[0, np.flatnonzero(signal[1:] != signal[:-1]) + 1, len(signal)]
        lengths = np.diff(ends)
        shortest = int(np.argmin(lengths))
        if len(lengths) == 1 or lengths[shortest] >= min_length:
            return signal
        signal[ends[shortest] : ends[shortest + 1]] ^= True


def _curve(s: Array) -> tuple[Array, Array, Array, Array]:
    """Return relative length and height at relative times s (M,), and their derivatives, in the order x, x', z, z'."""
    rest = 1.0 - s
    along = s**3 * (10.0 - 15.0 * s + 6.0 * s * s)
    return along, 30.0 * (s * rest) ** 2, 16.0 * (s * rest) ** 2, 32.0 * s * rest * (1.0 - 2.0 * s)
