"""Analysis of a gait: contacts from forces or heights, duty factors, period and phase shifts of the feet.

A foot's contact signal c(t) is 1 on the ground and 0 in the air.  With its mean removed, c~, over the time both are known,

    duty factor    fraction of the time with c = 1
    period T       lag of the highest peak, behind the first minimum, of  sum_feet <c~(t) c~(t + lag)>
    phase shift    argmax over |lag| <= T/2 of <c~_0(t) c~_i(t + lag)>, over T: how much later than the first foot foot i lands

(Hildebrand, Symmetrical gaits of horses, Science 150, 1965, describes gaits by duty factor and phase.)  Diagonal feet of
a trot have equal phases, those of one side in a pace, the front ones in a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import IMPLICIT_STEP, Array, Batch, HasOutputs, NeedsScheme
from dynamics_backends.rigid_body.spatial.spatial import Vec
from dynamics_backends.systems.contact.contact_law import LOADED as LOADED
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt import OCP
from trajopt.config.task import positions_of
from trajopt.problem.terms import parameters_at

GROUND = 0.03
"""Foot height below which a foot counts as in contact if forces are unknown [m]."""
HALF = 0.5
"""Load from which on a foot is in contact in any case, in the unit of LOADED."""
MIN_OVERLAP = 0.5
"""Minimum overlap of shifted signals, as a fraction of the time; a period must fit twice."""


class GaitReport(NamedTuple):
    """Gait of a motion. feet: names. duty (F,): fraction of the time in contact. period [s] and shifts (F,), fractions of the
    period in [-1/2, 1/2] relative to the first foot: NaN if no foot, or this foot, ever lifts or lands."""

    feet: tuple[str, ...]
    duty: Array
    period: float
    shifts: Array

    def shift(self, one: str, other: str) -> float:
        """Return the delay of ``other`` relative to ``one``, as a fraction of the period in [-1/2, 1/2]."""
        i, j = self.feet.index(one), self.feet.index(other)
        return float(wrapped(self.shifts[j] - self.shifts[i]))

    def sentences(self) -> list[str]:
        """Return the results as text."""
        duty = ", ".join(f"{foot} {100 * d:.0f} %" for foot, d in zip(self.feet, self.duty, strict=True))
        lines = [f"on the ground: {duty}"]
        if np.isfinite(self.period):
            shifts = ", ".join(f"{foot} {s:+.2f}" for foot, s in zip(self.feet, self.shifts, strict=True))
            lines.append(f"period {self.period:.3f} s, later than {self.feet[0]} by these fractions of it: {shifts}")
        return lines


def analyze(feet: Sequence[str], times: Array, contact: Array) -> GaitReport:
    """Analyze the gait of contact signals (M, F) of booleans, held from times (M + 1,) [s] on.

    Raises ValueError for wrong sizes.
    """
    if contact.shape != (len(times) - 1, len(feet)):
        raise ValueError(
            f"contact has shape {contact.shape}; expected ({len(times) - 1}, {len(feet)}): times less one, feet"
        )
    duty = duty_factors(contact, np.diff(times))
    dt = np.diff(times)  # zero at state jumps
    step = float(dt[dt > 0].min())
    at = times[0] + step * np.arange(round((times[-1] - times[0]) / step))
    even = contact[np.clip(np.searchsorted(times, at + 0.5 * step, side="right") - 1, 0, len(contact) - 1)]
    T = period(even, step)
    return GaitReport(tuple(feet), duty, T, phase_shifts(even, step, T))


def duty_factors(contact: Array, dt: Array) -> Array:
    """Return the fractions (F,) of the time in contact; contact (M, F), dt (M,)."""
    return np.asarray(dt @ contact / np.sum(dt))


def period(contact: Array, step: float) -> float:
    """Return the period [s] of contact signals (M, F) with sampling time ``step``; NaN if none repeats."""
    total = np.array([sum(_overlap(c, c, lag) for c in contact.T) for lag in range(_max_shift(len(contact)))])
    rising = np.flatnonzero(np.diff(total) > 0)
    if not rising.size or total[rising[0] :].max() <= 0:
        return np.nan
    return float(step * (rising[0] + _middle_of_peak(total[rising[0] :])))


def phase_shifts(contact: Array, step: float, period: float) -> Array:
    """Return the lags (F,) relative to the first foot, as fractions of the period in [-1/2, 1/2]."""
    if not np.isfinite(period):
        return np.full(contact.shape[1], np.nan)
    half = int(np.ceil(0.5 * period / step))
    lags = np.arange(-half, half + 1)
    first = contact[:, 0]
    return np.array([_phase([_overlap(first, c, int(lag)) for lag in lags], lags, step / period) for c in contact.T])


def _phase(correlation: Sequence[float], lags: Array, fraction: float) -> float:
    values = np.array(correlation)
    if not values.max() > 0:
        return np.nan
    return float(wrapped(fraction * (lags[0] + _middle_of_peak(values))))


def _middle_of_peak(values: Array) -> float:
    """Return the index of the maximum; for a plateau, the middle of its first part."""
    top = np.flatnonzero(values >= values.max() - 1e-9)
    last = top[0] + np.argmin(np.append(np.diff(top), 2) == 1)
    return 0.5 * float(top[0] + last)


def _overlap(a: Array, b: Array, lag: int) -> float:
    """Return the mean of a(t) b(t + lag), with the means over the overlap removed."""
    n = len(a) - abs(lag)
    one, other = (a[:n], b[lag:]) if lag >= 0 else (a[-lag:], b[:n])
    one, other = one[:n] - np.mean(one[:n]), other[:n] - np.mean(other[:n])
    return float(np.mean(one * other))


def _max_shift(samples: int) -> int:
    return max(1, int((1.0 - MIN_OVERLAP) * samples))


def wrapped(fraction: float | Array) -> float | Array:
    """Wrap a fraction of a period to [-1/2, 1/2]."""
    return fraction - np.round(fraction)


def diagonal_pairs(positions: Array) -> list[tuple[int, int]]:
    """Return the pairs of diagonal feet, from their positions (F, 2 or more) relative to the base."""
    sides = np.sign(np.asarray(positions)[:, :2])
    n = len(sides)
    return [(i, j) for i in range(n) for j in range(i + 1, n) if (sides[i] == -sides[j]).all() and sides[i].all()]


# -- of a solution -----------------------------------------------------------------------------------------------------


def contact_forces(ocp: OCP, xs: Array, us: Array) -> dict[str, Array]:
    """Return forces (N, 3) [N] in world axes by contact, zero in phases without it; empty if no system reports forces.

    xs (N + 1, nx), us (N, nu).  Of wrenches (force, moment), only forces are returned; a knot without duration, an impact,
    has the forces after it.
    """
    found: dict[str, Array] = {}
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        system = phase.system
        if not isinstance(system, HasOutputs):
            continue
        values = parameters_at(phase.parameters, slice(phase.knots))
        if isinstance(system, NeedsScheme):
            values[IMPLICIT_STEP] = ocp.dt[knots][:, None]
        batch = Batch.of(system, xs[knots], us[knots, : system.nu], ocp.t[knots], values)
        for name, rows in system.outputs(*batch).items():
            if len(rows) in (3, 6):
                found.setdefault(name, np.zeros((ocp.horizon, 3)))[knots] = np.asarray(rows)[:3].T
    at = np.arange(ocp.horizon)
    shown = np.minimum(at + (ocp.dt == 0), ocp.horizon - 1)
    return {name: force[shown] for name, force in found.items()}


def foot_positions(ocp: OCP, feet: Sequence[str], xs: Array) -> Array:
    """Return world positions (M, F, 3) [m] of frames at states xs (M, nx)."""
    return np.moveaxis(positions_of(ocp.model, feet, xs[:, : ocp.model.nq]), 0, 1)


def contacts(ocp: OCP, feet: Sequence[str], xs: Array, us: Array, ground: float = GROUND) -> Array:
    """Return a mask (N, F) of the feet in contact: those that carry load or, if forces are unknown, those below ``ground`` [m].

    Relaxed contacts act at a distance and push up sliding feet. So load is limited to that of a resting foot at the same place,
    and must exceed the force of a foot that just touches, or half of its equal load if that is smaller.
    """
    forces = contact_forces(ocp, xs, us)
    places = foot_positions(ocp, feet, xs[:-1])
    if not set(feet) & set(forces):
        return places[:, :, 2] < ground
    none = np.zeros((ocp.horizon, 3))
    per_foot = ocp.model.total_mass * np.linalg.norm(ocp.model.gravity) / len(feet)
    load = np.stack([forces.get(foot, none)[:, 2] for foot in feet], axis=1)
    resting, touching = _resting(ocp, places)
    return np.minimum(load, resting) > np.maximum(LOADED * per_foot, np.minimum(touching, HALF * per_foot))[:, None]


def _resting(ocp: OCP, places: Array) -> tuple[Array, Array]:
    """Return the normal forces (N, F) of feet at rest at these places (N, F, 3) on relaxed contacts, elsewhere infinity, and
    those (N,) of a resting point that just touches, elsewhere 0."""
    resting, touching = np.full(places.shape[:2], np.inf), np.zeros(ocp.horizon)
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        system = phase.system
        if not isinstance(system, SteppedContact):
            continue
        p = {k: v.T if v.ndim == 2 else v[:, None] for k, v in phase.parameters.items()}
        p[IMPLICIT_STEP] = ocp.dt[knots][None]
        touching[knots] = _at_rest(system, 0.0, Vec(0.0, 0.0, 1.0), p)
        for foot in range(places.shape[1]):
            surface = system.ground.surface(Vec(*places[knots, foot].T), p)
            resting[knots, foot] = _at_rest(system, surface.gap, surface.normal, p)
    return resting, touching


def _at_rest(system: SteppedContact, gap: Any, normal: Vec, p: dict[str, Array]) -> Array:
    """Return the upward force [N] of a point at rest."""
    return np.asarray(system.law.force(gap, normal, Vec(0.0, 0.0, 0.0), p).z)
