"""Limits that a trajectory violates, also those that are not constraints of the problem: by what, when, and by how much.

Checked are the constraints of the problem and its bounds on controls, which a solve enforces, also those on the state at the last
knot, where a solve does not; and the limits known of the robot: those of its joints in position and velocity, and of the forces
of joints that a control drives, as far as no constraint or bound of the problem holds the same number within the same or closer
limits. Links that overlap are among them, at the knots, where the robot's file gives them collision shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Batch, HasActuators, unwrapped
from trajopt.collisions.self_collision import SelfCollision, SelfCollisionCheck, check_self_collision
from trajopt.problem.constraints import Constraint, chosen_coordinates
from trajopt.problem.ocp import OCP, fitting

NOTICED = 1e-5
"""A limit is broken by more than this: share of a bound on a number, or in the unit of a constraint."""
KEYS = {
    "position": "position_limits = true",
    "velocity": "velocity_limits = true",
    "torque": "torque_limits = true",
    "friction cone": 'cone = "constraint"',
    "pull": 'cone = "constraint"',
    "center of pressure": 'cone = "constraint"',
}
"""The settings that make a problem keep a limit of the robot."""
LIMITS = ("position", "velocity", "torque")
ENFORCED = ("control", "constraint")
SELF_COLLISION = "self-collision"
BOTH = " and "
"""Between the names of two links."""


class LimitViolation(NamedTuple):
    """The worst of one limit.

    kind: "position", "velocity", "torque", "control", "constraint", "self-collision", or a contact's "friction cone", "pull" or
    "center of pressure". name: of the joint, control, component or links. knot, time [s]: where it is worst; excess: by how much
    there, in ``unit``; limit: what it exceeds, NaN where it is no single number. enforced: whether the problem was to keep it.
    knots: how many break it. given: whether the given start is beyond it already. end: whether it is held on the way, and broken
    at the last knot, where nothing holds it.
    """

    kind: str
    name: str
    knot: int
    time: float
    excess: float
    limit: float
    unit: str
    enforced: bool
    knots: int
    given: bool = False
    end: bool = False

    def sentence(self, settings: Collection[str] | None = None) -> str:
        """Sentence about the violation; for a limit that the problem does not contain, with the setting that enforces it.

        settings: the names of those that the problem has; None for all.
        """
        what = (
            f"the {self.kind} limit of {self.name}" if self.kind in (*KEYS, "control") else f"{self.kind} {self.name}"
        )
        if self.kind == SELF_COLLISION:
            first, second = self.name.split(BOTH)
            return SelfCollision((first, second), self.knot, self.excess, self.knots).sentence(self.time)
        amount = f"{self.excess:.3g} {self.unit}".strip()
        beyond = "" if np.isnan(self.limit) else f" (limit {self.limit:.4g})"
        where = f"at t = {self.time:.3g} s, knot {self.knot}" + (
            f", and at {self.knots - 1} more" if self.knots > 1 else ""
        )
        key = KEYS.get(self.kind)
        has = key is not None and (settings is None or key.partition(" ")[0] in settings)
        remedy = f"; {key} enforces it" if has and not self.enforced else ""
        if self.end:
            remedy = "; it is enforced before the end only: add it to terminal_constraints too"
        if self.given:
            remedy = "; the initial state already violates it: start within the limit"
        return f"{what} is exceeded by {amount}{beyond} {where}{', although it is enforced' if self.enforced else ''}{remedy}"

    def as_meta(self, settings: Collection[str] | None = None) -> dict[str, Any]:
        """The sentence, and whether the problem was to keep the limit, as plain values."""
        return {"sentence": self.sentence(settings), "enforced": self.enforced}


def limit_violations(ocp: OCP, xs: Array, us: Array, *, self_collision: bool = True) -> list[LimitViolation]:
    """All limits that a trajectory xs (N + 1, nx), us (N, nu) breaks, the enforced ones first; empty for values that are not
    finite.

    self_collision: whether links are checked against each other, which reads the meshes of a robot when it is first done.
    Raises ValueError for arrays of other shapes.
    """
    xs, us = fitting(ocp, xs, us)
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return []
    of_robot = [*_of_robot(ocp, xs, us), *(_self_collisions(ocp, xs) if self_collision else ())]
    found = [*_controls(ocp, us), *constraint_violations(ocp, xs, us), *_at_the_end(ocp, xs), *of_robot]
    times = ocp.times_of(xs)
    return [b._replace(time=float(times[b.knot])) for b in found]


def self_collision_note(ocp: OCP, xs: Array) -> str:
    """A sentence for the verdict on limits of states xs (N + 1, nx): no self-collision, or why it was not checked.

    Empty where :func:`limit_violations` has one, and without a robot.
    """
    check = _self_collision_check(ocp, xs)
    return "" if check is None else check.note


def _self_collision_check(ocp: OCP, xs: Array) -> SelfCollisionCheck | None:
    """The check of a robot with two bodies or more; None for others, and for states that are not finite."""
    if not has_links(ocp) or not np.isfinite(xs).all():
        return None
    return check_self_collision(ocp.model, xs[:, : ocp.model.nq])


def has_links(ocp: OCP) -> bool:
    """True if the problem has a robot of two bodies or more."""
    return ocp.model is not None and ocp.model.nb >= 2 and ocp.manifold.nx >= ocp.model.nq


def _self_collisions(ocp: OCP, xs: Array) -> Iterator[LimitViolation]:
    check = _self_collision_check(ocp, xs)
    for c in () if check is None else check.collisions:
        time, given = float(ocp.times[c.knot]), bool(c.knot == 0)
        yield LimitViolation(
            SELF_COLLISION, BOTH.join(c.links), c.knot, time, c.depth, np.nan, "m", False, c.knots, given
        )


def _worst(
    kind: str,
    names: Sequence[str],
    excess: Array,
    limits: Array,
    times: Array,
    units: Sequence[str] = (),
    first: int = 0,
    given: Array | None = None,
) -> Iterator[LimitViolation]:
    """One for each column of excess (K, n) that is positive somewhere. limits (K, n) or (n,); units: n, or none; given (n,): by how
    much the start is beyond each."""
    limits = np.broadcast_to(limits, excess.shape)
    noticed = NOTICED * np.maximum(1.0, np.where(np.isfinite(limits), np.abs(limits), 1.0))
    for i in np.flatnonzero((excess > noticed).any(axis=0)).tolist():
        k = int(np.argmax(excess[:, i]))
        yield LimitViolation(
            kind,
            names[i],
            first + k,
            time=float(times[k]),
            excess=float(excess[k, i]),
            limit=float(limits[k, i]),
            unit=units[i] if units else "",
            enforced=kind in ENFORCED,
            knots=int((excess[:, i] > noticed[:, i]).sum()),
            given=given is not None and bool(given[i] > noticed[k, i]),
        )


def worst_of(
    kind: str, names: Sequence[str], excess: Array, times: Array, unit: str, first: int = 0
) -> Iterator[LimitViolation]:
    """One for each column of excess (K, n) that is positive somewhere; times (K,), the first row's knot ``first``."""
    yield from _worst(kind, names, excess, np.full(excess.shape[1:], np.nan), times, [unit] * len(names), first)


def _controls(ocp: OCP, us: Array) -> Iterator[LimitViolation]:
    if ocp.control_bounds is None:
        return
    lower, upper = ocp.control_bounds
    limits = np.where(us > upper, upper, lower)
    excess = np.maximum(us - upper, lower - us)
    yield from _worst("control", ocp.control_names, excess, limits, ocp.times[:-1])


def constraint_violations(ocp: OCP, xs: Array, us: Array) -> Iterator[LimitViolation]:
    """The constraints that a trajectory violates; those on the state alone do not hold at x0, which is given."""
    t = ocp.t
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        for c in phase.constraints:
            first = knots.start + (1 if knots.start == 0 and not c.residual.nu else 0)
            part = slice(first, knots.stop)
            yield from _violated(c, xs[part], us[part], t[part], phase.knots, first, knots.start)
    for c in ocp.terminal_constraints:
        yield from _violated(c, xs[-1:], us[-1:, :0], t[-1:], 1, ocp.horizon, ocp.horizon)


def _at_the_end(ocp: OCP, xs: Array) -> Iterator[LimitViolation]:
    """Constraints on the state that hold on the way alone, at the last knot."""
    held = {c.name for c in ocp.terminal_constraints}
    last = ocp.phases[-1]
    for c in last.constraints:
        if not c.residual.nu and c.name not in held:
            for b in _violated(c, xs[-1:], np.empty((1, 0)), ocp.t[-1:], last.knots, last.knots - 1, 0):
                yield b._replace(knot=ocp.horizon, enforced=False, end=True)


def _violated(
    c: Constraint, xs: Array, us: Array, times: Array, count: int, first: int, start: int
) -> Iterator[LimitViolation]:
    if not len(xs):
        return
    own = slice(first - start, first - start + len(xs))
    p = {key: v[own] if v.ndim == 2 else v for key, v in c.parameters.items()}
    batch = Batch.of(c.residual, xs[:, : c.residual.manifold.nx], us[:, : c.residual.nu], times, p)
    g = np.asarray(c.residual(*batch)).T
    lower, upper = (np.broadcast_to(b, (count, g.shape[1]))[own] for b in c.bounds(count))
    excess = np.maximum(lower - g, g - upper)
    limits = np.where(g > upper, upper, lower)
    yield from _worst("constraint", c.component_names, excess, limits, times, first=first)


def _of_robot(ocp: OCP, xs: Array, us: Array) -> Iterator[LimitViolation]:
    """Positions and velocities of the joints, and torques, where nothing of the problem holds them."""
    model = ocp.model
    if model is None or xs.shape[1] < model.nq + model.nv:
        return
    lower = np.concatenate([model.q_lower, -model.velocity_limit])
    upper = np.concatenate([model.q_upper, model.velocity_limit])
    x = xs[:, : model.nq + model.nv]
    excess = np.where(_held(ocp, lower, upper), -np.inf, np.maximum(x - upper, lower - x))
    given = excess[0].copy()
    excess[0, : model.nq] = -np.inf  # what is given is no choice of the motion
    limits: Array = np.where(x > upper, upper, lower)
    q, v = slice(0, model.nq), slice(model.nq, model.nq + model.nv)
    rates = [f"{unit}/s" for unit in model.dof_units]
    yield from _worst("position", model.q_names, excess[:, q], limits[:, q], ocp.times, model.q_units, given=given[q])
    yield from _worst("velocity", model.dof_names, excess[:, v], np.abs(limits[:, v]), ocp.times, rates, given=given[v])
    yield from _torques(ocp, us)


def _torques(ocp: OCP, us: Array) -> Iterator[LimitViolation]:
    """Broken limits of the joints that controls drive with forces."""
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        sampling = phase.dynamics.sampling
        system = None if sampling is None else unwrapped(sampling.backend.map)
        driven = system.actuated if isinstance(system, HasActuators) else ()
        if not driven or len(driven) != phase.dynamics.nu:
            continue
        names, units = [ocp.model.dof_names[d] for d in driven], [_force(ocp.model.dof_units[d]) for d in driven]
        limit, u = ocp.model.effort_limit[list(driven)], us[knots]
        excess = np.abs(u[:, : len(driven)]) - limit
        if ocp.control_bounds is not None:
            bounds = np.maximum(np.abs(ocp.control_bounds[0][knots]), np.abs(ocp.control_bounds[1][knots]))
            excess = np.where(bounds[:, : len(driven)] <= limit * (1 + NOTICED), -np.inf, excess)
        yield from _worst("torque", names, excess, limit, ocp.times[knots], units, knots.start)


def _force(unit: str) -> str:
    """The unit of what drives a joint of this one."""
    return "N" if unit == "m" else "N m"


def _held(ocp: OCP, lower: Array, upper: Array) -> Array:
    """Mask of the entries of the state (nq + nv,) that a running constraint bounds as closely as this."""
    held = np.ones((len(ocp.phases), len(lower)), dtype=bool)
    for i, phase in enumerate(ocp.phases):
        own = np.zeros(len(lower), dtype=bool)
        for c in phase.constraints:
            for j, place in enumerate(chosen_coordinates(c) or ()):
                if place < len(lower):
                    below = (np.atleast_2d(c.upper)[:, j] <= upper[place] + NOTICED).all()
                    own[place] |= below and (np.atleast_2d(c.lower)[:, j] >= lower[place] - NOTICED).all()
        held[i] = own
    return np.array(held.all(axis=0))
