"""Limits that a trajectory violates, including limits that are not constraints of the problem.

Checked are the constraints and control bounds of the problem, and running state constraints of the last phase at the last knot,
where no solve enforces them. Further, the robot's limits on joint positions, velocities and driving forces are checked, unless an
equal or tighter constraint or bound of the problem covers them. Self-collision is checked at the knots if the robot's file has
collision shapes.

Free durations at a bound may limit the motion (:func:`durations_at_bounds`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, Batch, HasActuators, HasOutputs
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.stretched_map import Durations
from trajopt.collisions.self_collision import SelfCollision, SelfCollisionCheck, check_self_collision
from trajopt.problem.constraints import Constraint, chosen_coordinates, fixed_state, violations_at
from trajopt.problem.ocp import OCP, fitting
from trajopt.problem.terms import parameters_at

NOTICED = 1e-5
"""Tolerance on limits: relative for bounds above 1, else absolute, in the unit of the limit."""
KEYS = {
    "position": "position_limits = true",
    "velocity": "velocity_limits = true",
    "torque": "torque_limits = true",
    "friction cone": 'cone = "constraint"',
    "pull": 'cone = "constraint"',
    "center of pressure": 'cone = "constraint"',
    "stance drift": "dt (smaller) or gains (kp > 0)",
    "soft-ground pull": 'contact_law = "hunt_crossley"',
    "landing pull": None,
    "landing friction cone": None,
}
"""Settings that add a limit of the robot to a problem, by kind of limit; None without one."""
LIMITS = ("position", "velocity", "torque")
ENFORCED = ("control", "constraint")
SELF_COLLISION = "self-collision"
BOTH = " and "
"""Separator between the names of two links."""


class LimitViolation(NamedTuple):
    """Worst violation of one limit.

    kind: "position", "velocity", "torque", "control", "constraint", "self-collision", a contact's "friction cone", "pull",
    "soft-ground pull", "stance drift" or "center of pressure", or "landing friction cone" or "landing pull" of its impulse.
    name: joint, control, constraint component or links. knot, time [s]: the worst knot; excess: amount of the violation there, in
    ``unit``; limit: the violated bound, NaN if it is not a single number. enforced: the problem contains the limit. knots: number
    of knots with a violation. at_start: the initial state already violates a limit of the robot, or has the deepest overlap of the
    links. end: the limit is enforced before the last knot only, and violated there.
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
    at_start: bool = False
    end: bool = False

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, settings: Collection[str] | None = None, sample: str = "knot") -> str:
        """Describe the violation, with a remedy.

        For a limit that the problem does not contain, the remedy is the setting that enforces it, if ``settings`` contains it.
        settings: names of the problem's settings; None: all. sample: "knot" for a plan, "tick" for a simulated motion, whose
        limits are enforced in its plans only.
        """
        what = (
            f"the {self.kind} limit of {self.name}" if self.kind in (*KEYS, "control") else f"{self.kind} {self.name}"
        )
        if self.kind == SELF_COLLISION:
            first, second = self.name.split(BOTH)
            return SelfCollision((first, second), self.knot, self.excess, self.knots).sentence(self.time)
        amount = f"{self.excess:.3g} {self.unit}".strip()
        beyond = "" if np.isnan(self.limit) else f" (limit {self.limit + 0.0:.4g})"
        where = f"at t = {self.time:.3g} s, {sample} {self.knot}" + (
            f", and at {self.knots - 1} more" if self.knots > 1 else ""
        )
        key = KEYS.get(self.kind)
        has = key is not None and (settings is None or key.partition(" ")[0] in settings)
        in_plans = " in the plans" if sample == "tick" else ""
        remedy = f"; {key} enforces it{in_plans}" if has and not self.enforced else ""
        if self.end:
            remedy = "; it is enforced before the end only: add it to terminal_constraints too"
        if self.at_start:
            remedy = "; the initial state already violates it: start within the limit"
        enforced = f", although it is enforced{in_plans}" if self.enforced else ""
        return f"{what} is exceeded by {amount}{beyond} {where}{enforced}{remedy}"

    def as_meta(self, settings: Collection[str] | None = None, sample: str = "knot") -> dict[str, Any]:
        """Return the :meth:`sentence`, ``enforced``, kind and excess as plain values, by name; "short": name and excess as text."""
        short = f"{self.name} by {self.excess:.3g} {self.unit}".rstrip()
        values = {"kind": self.kind, "excess": self.excess, "short": short}
        return {"sentence": self.sentence(settings, sample), "enforced": self.enforced, **values}


def limit_violations(ocp: OCP, xs: Array, us: Array, *, self_collision: bool = True) -> list[LimitViolation]:
    """Return all limits that a trajectory xs (N + 1, nx), us (N, nu) violates, enforced ones first; empty for non-finite values.

    self_collision: also check self-collision; the first check of a robot reads its meshes.
    Raises ValueError for arrays of other shapes.
    """
    xs, us = fitting(ocp, xs, us)
    if not (np.isfinite(xs).all() and np.isfinite(us).all()):
        return []
    of_robot = [*_robot_violations(ocp, xs, us), *(_self_collisions(ocp, xs) if self_collision else ())]
    found = [*_controls(ocp, us), *constraint_violations(ocp, xs, us), *_at_the_end(ocp, xs), *of_robot]
    times = ocp.times_of(xs)
    return [b._replace(time=float(times[b.knot])) for b in _merged_phases(found, ocp.horizon)]


def _merged_phases(found: Iterable[LimitViolation], horizon: int) -> list[LimitViolation]:
    """Merge violations of one limit in several phases: the worst one, with the number of knots of all.

    Those of bounds with other values, and those at the last knot, ``horizon``, stay apart.
    """
    merged: dict[tuple[str, str, str, bool], LimitViolation] = {}
    for b in found:
        limit = b.kind, b.name, str(b.limit), b.knot == horizon
        known = merged.get(limit)
        merged[limit] = (
            b if known is None else max(known, b, key=attrgetter("excess"))._replace(knots=known.knots + b.knots)
        )
    return list(merged.values())


def self_collision_note(ocp: OCP, xs: Array) -> str:
    """Return a sentence that no self-collision exists in states xs (N + 1, nx), or why it was not checked.

    Empty if there are collisions, which :func:`limit_violations` reports, without a robot of at least two bodies, and for
    non-finite states.
    """
    check = _self_collision_check(ocp, xs)
    return "" if check is None else check.note


def _self_collision_check(ocp: OCP, xs: Array) -> SelfCollisionCheck | None:
    """Check self-collision of a robot with at least two bodies in states xs; None for other problems, and for non-finite states."""
    if not has_links(ocp) or not np.isfinite(xs).all():
        return None
    return check_self_collision(ocp.model, ocp.model.configuration_of(xs))


def has_links(ocp: OCP) -> bool:
    """True if the problem has a robot with at least two bodies, and its states begin with the robot's configuration."""
    return ocp.model is not None and ocp.model.nb >= 2 and ocp.manifold.nx >= len(ocp.model.independent_q)


def _self_collisions(ocp: OCP, xs: Array) -> Iterator[LimitViolation]:
    """Yield the deepest overlap of each pair of bodies that collide, named by the links of that overlap."""
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
    at_start: Array | None = None,
) -> Iterator[LimitViolation]:
    """Yield the worst violation of each column of excess (K, n) that exceeds the tolerance NOTICED.

    limits (K, n) or (n,): violated bounds; units: n, or none; first: knot of the first row; at_start (n,): excess of the initial
    state.
    """
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
            at_start=at_start is not None and bool(at_start[i] > noticed[k, i]),
        )


def worst_of(
    kind: str, names: Sequence[str], excess: Array, times: Array, unit: str, first: int = 0
) -> Iterator[LimitViolation]:
    """Yield the worst violation of each column of excess (K, n), if it exceeds NOTICED; ``limit`` of the violations is NaN.

    times (K,) [s]. first: knot of the first row.
    """
    yield from _worst(kind, names, excess, np.full(excess.shape[1:], np.nan), times, [unit] * len(names), first)


def _controls(ocp: OCP, us: Array) -> Iterator[LimitViolation]:
    """Yield the worst violation of the bounds on each control."""
    if ocp.control_bounds is None:
        return
    lower, upper = ocp.control_bounds
    limits = np.where(us > upper, upper, lower)
    excess = np.maximum(us - upper, lower - us)
    yield from _worst("control", ocp.control_names, excess, limits, ocp.times[:-1])


def constraint_violations(ocp: OCP, xs: Array, us: Array) -> Iterator[LimitViolation]:
    """Yield the worst violation of each constraint row that a trajectory violates by more than NOTICED.

    Constraints on the state alone are not checked at the given x0.
    """
    t = ocp.t
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        for c in phase.constraints:
            first = knots.start + (1 if knots.start == 0 and not c.residual.nu else 0)
            part = slice(first, knots.stop)
            yield from _constraint_violation(c, xs[part], us[part], t[part], phase.knots, first, knots.start)
    for c in ocp.terminal_constraints:
        yield from _constraint_violation(c, xs[-1:], us[-1:, :0], t[-1:], 1, ocp.horizon, ocp.horizon)


def _at_the_end(ocp: OCP, xs: Array) -> Iterator[LimitViolation]:
    """Yield violations at the last knot of the last phase's running constraints on the state alone, which are not enforced there.

    Constraints whose name a terminal constraint has are left out.
    """
    held = {c.name for c in ocp.terminal_constraints}
    last = ocp.phases[-1]
    for c in last.constraints:
        if not c.residual.nu and c.name not in held:
            for b in _constraint_violation(c, xs[-1:], np.empty((1, 0)), ocp.t[-1:], last.knots, last.knots - 1, 0):
                yield b._replace(knot=ocp.horizon, enforced=False, end=True)


def violated_at_end(ocp: OCP, x: Array, tolerance: float) -> str:
    """Return a sentence on a constraint of ``ocp.implied`` that the last state x (nx,) violates, or "".

    A change of values, of a goal or an obstacle, may end that the given final state satisfies it. tolerance: relative to bounds
    beyond 1.
    """
    for c in ocp.phases[-1].constraints if ocp.implied else ():
        if c.name not in ocp.implied:
            continue
        name, excess = _worst_at_end(ocp, c, ocp.phases[-1].knots, x, tolerance)
        if name:
            return (
                f"{name} is violated by {excess:.2g} at the final state, which is given: move the goal, or add the constraint to "
                "terminal_constraints"
            )
    return ""


def _worst_at_end(ocp: OCP, c: Constraint, count: int, x: Array, tolerance: float) -> tuple[str, float]:
    """Return the row of a constraint that a final state x (nx,) violates most, and by how much; "" and 0 if all rows hold.

    count: number of knots of the constraint. tolerance: relative to bounds beyond 1. A constraint that is not finite at x counts as
    one that holds.
    """
    lower, upper = (b[-1] for b in c.bounds(count))
    excess = violations_at(replace(c, lower=lower, upper=upper), x, float(ocp.t[-1]))
    relative = excess / np.maximum(1.0, np.fmax(*(np.where(np.isfinite(b), np.abs(b), 0.0) for b in (lower, upper))))
    i = int(np.argmax(relative))
    if not (np.isfinite(excess).all() and relative[i] > tolerance):
        return "", 0.0
    return c.component_names[i], float(excess[i])


def _constraint_violation(
    c: Constraint, xs: Array, us: Array, times: Array, count: int, first: int, start: int
) -> Iterator[LimitViolation]:
    """Yield the worst violation of each row of a constraint at some knots of its phase.

    xs, us, times: at these knots. count: number of knots of the phase. first, start: first of these knots, and of the phase.
    """
    if not len(xs):
        return
    own = slice(first - start, first - start + len(xs))
    p = parameters_at(c.parameters, own)
    batch = Batch.of(c.residual, xs[:, : c.residual.manifold.nx], us[:, : c.residual.nu], times, p)
    g = np.asarray(c.residual(*batch)).T
    lower, upper = (np.broadcast_to(b, (count, g.shape[1]))[own] for b in c.bounds(count))
    excess = np.maximum(lower - g, g - upper)
    limits = np.where(g > upper, upper, lower)
    yield from _worst("constraint", c.component_names, excess, limits, times, first=first)


def _robot_violations(ocp: OCP, xs: Array, us: Array) -> Iterator[LimitViolation]:
    """Yield the worst violation of each joint position, velocity and torque limit that the problem does not enforce as tightly.

    Positions at x0, which is given, are not checked. States must begin with (q, v), else nothing is checked.
    """
    if ocp.model is not None and _has_velocities(ocp.model, xs):
        yield from (b for b in _joint_violations(ocp, xs, ocp.times) if not b.enforced)
        yield from _torques(ocp, us)


def simulated_violations(ocp: OCP, xs: Array, times: Array) -> list[LimitViolation]:
    """Return the joint position and velocity limits that simulated states xs (M, nx) at times (M,) [s] exceed, enforced ones first.

    ``enforced``: the problem enforces the limit in its plans. Empty for non-finite states, and without a robot.
    """
    model = ocp.model
    if model is None or not _has_velocities(model, xs) or not np.isfinite(xs).all():
        return []
    return sorted(_joint_violations(ocp, xs, times), key=attrgetter("enforced"), reverse=True)


def _has_velocities(model: Model, xs: Array) -> bool:
    """True if states xs (M, nx) are long enough to contain the velocities of the robot."""
    return xs.shape[1] >= len(model.independent_q) + len(model.independent_v)


def _joint_violations(ocp: OCP, xs: Array, times: Array) -> Iterator[LimitViolation]:
    """Yield the worst violation of each joint position and velocity limit in states (q, v, ...), xs (M, nx), at times (M,) [s]."""
    model = ocp.model
    lower = np.concatenate([model.q_lower, -model.velocity_limit])
    upper = np.concatenate([model.q_upper, model.velocity_limit])
    x = np.hstack([model.configuration_of(xs), model.velocity_of(xs)])
    excess, enforced = np.maximum(x - upper, lower - x), _enforced_entries(ocp, lower, upper)
    given = excess[0].copy()
    excess[0, : model.nq] = -np.inf  # the motion cannot change x0
    limits: Array = np.where(x > upper, upper, lower)
    q, v = slice(0, model.nq), slice(model.nq, model.nq + model.nv)
    rates = [f"{unit}/s" for unit in model.dof_units]
    for kind, names, part, bounds, units in (
        ("position", model.q_names, q, limits[:, q], model.q_units),
        ("velocity", model.dof_names, v, np.abs(limits[:, v]), rates),
    ):
        held = dict(zip(names, enforced[part].tolist(), strict=True))
        for b in _worst(kind, names, excess[:, part], bounds, times, units, at_start=given[part]):
            yield b._replace(enforced=held[b.name])


def _torques(ocp: OCP, us: Array) -> Iterator[LimitViolation]:
    """Yield the worst violation of each effort limit of a joint driven by a control, unless bounds on the control are as tight.

    Only phases whose controls are all joint forces are checked.
    """
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        system = phase.system
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
    """Return the unit of a joint's effort from the unit of its position."""
    return "N" if unit == "m" else "N m"


def _enforced_entries(ocp: OCP, lower: Array, upper: Array) -> Array:
    """Return a mask (nq + nv,) of the entries of (q, v) that constraints of every phase bound at least as tightly as lower, upper.

    In each phase a single constraint must bound the entry on both sides, to within NOTICED. False for mimic joints that follow
    others, which states do not contain.
    """
    entries = np.r_[ocp.model.independent_q, ocp.model.nq + ocp.model.independent_v]
    held = np.ones((len(ocp.phases), len(lower)), dtype=bool)
    for i, phase in enumerate(ocp.phases):
        own = np.zeros(len(lower), dtype=bool)
        for c in phase.constraints:
            for j, place in enumerate(chosen_coordinates(c) or ()):
                if place < len(entries):
                    e = entries[place]
                    below = (np.atleast_2d(c.upper)[:, j] <= upper[e] + NOTICED).all()
                    own[e] |= below and (np.atleast_2d(c.lower)[:, j] >= lower[e] - NOTICED).all()
        held[i] = own
    return np.array(held.all(axis=0))


def too_fast(ocp: OCP) -> Iterator[str]:
    """Yield a warning if a goal for the whole state needs a higher mean velocity of a joint than its enforced velocity limit.

    For a robot with fixed base and fixed durations; of several joints the one that needs most time.
    """
    model, goal = ocp.model, fixed_state(ocp.terminal_constraints)
    if goal is None or ocp.in_scaled_time or model is None or model.floating_base or ocp.manifold.ndx < 2 * model.nv:
        return
    move = np.abs(ocp.manifold.difference(ocp.x0[:, None], np.asarray(goal)[:, None])[: model.nv, 0])
    v0 = np.abs(ocp.x0[model.nq : model.nq + model.nv])  # x0 may be faster than its limit
    move = np.maximum(move - np.maximum(v0 - model.velocity_limit, 0.0) * ocp.dt[0], 0.0)
    needed, T = move / model.velocity_limit, float(ocp.times[-1] - ocp.start)
    if needed.max() <= (1.0 + NOTICED) * T:
        return
    limits = np.r_[np.full(model.nq, np.inf), model.velocity_limit]
    needed[~_enforced_entries(ocp, -limits, limits)[model.nq :]] = 0.0
    i = int(np.argmax(needed))
    if needed[i] > (1.0 + NOTICED) * T:
        unit = model.dof_units[i]
        yield (
            f"{model.dof_names[i]} moves by {move[i]:.3g} {unit} to the goal, which takes at least {needed[i]:.3g} s within its "
            f"velocity limit, but the motion lasts {T:.3g} s: take more time"
        )


def contradicting_goals(ocp: OCP, tolerance: float) -> Iterator[str]:
    """Yield warnings about terminal constraints that a goal for the whole state violates, by more than a tolerance.

    The tolerance is relative to bounds beyond 1.
    """
    goal = fixed_state(ocp.terminal_constraints)
    if goal is None:
        return
    for c in ocp.terminal_constraints:
        name, excess = _worst_at_end(ocp, c, 1, goal, tolerance)
        if name:
            yield f"the goal violates {name} by {excess:.3g}: no motion satisfies both; move the goal, or relax the constraint"


OUTSIDE = 1e-5
"""Violation of a constraint by a given final state, relative to bounds beyond 1, up to which motions may be feasible."""


def impossible_goal(ocp: OCP, tolerance: float = 0.0) -> str:
    """Return the reason why no motion meets a goal for the whole state, or "".

    It violates another terminal constraint (:func:`contradicting_goals`, :func:`violated_at_end`), or velocity limits exclude it
    (:func:`too_fast`). tolerance: on violations, as OUTSIDE, if larger.
    """
    goal, tolerance = fixed_state(ocp.terminal_constraints), max(OUTSIDE, tolerance)
    if goal is None:
        return ""
    outside = next(contradicting_goals(ocp, tolerance), "") or violated_at_end(ocp, goal, tolerance)
    return outside or next(too_fast(ocp), "")


AT_REST = 1e-5
"""Velocities [rad/s, m/s] at the end of a motion that count as rest."""


def weak_postures(ocp: OCP, xs: Array) -> Iterator[str]:
    """Yield warnings about start and end of a motion from rest to rest, xs (N + 1, nx), that the controls cannot hold.

    For a robot with fixed base, a motor in each joint, and no contacts: the joint forces against gravity, springs included, exceed
    the bounds on the controls of the last knot, or without bounds the robot's effort limits.
    """
    model, system = ocp.model, ocp.phases[-1].system
    if model is None or model.floating_base or not isinstance(system, HasActuators) or isinstance(system, HasOutputs):
        return
    v = xs[[0, -1], model.nq : model.nq + model.nv]
    if len(system.actuated) != model.nv or np.abs(v).max() > AT_REST:
        return
    q = xs[[0, -1], : model.nq]
    needed = (inverse_dynamics(model, q, 0.0 * v, 0.0 * v) - model.spring_forces(q))[:, list(system.actuated)]
    upper = ocp.model.effort_limit[list(system.actuated)]
    lower = -upper
    if ocp.control_bounds is not None:
        lower, upper = (b[-1, : model.nv] for b in ocp.control_bounds)
    for where, forces in zip(("start", "end"), needed, strict=True):
        excess = np.maximum(lower - forces, forces - upper)
        i = int(np.argmax(excess))
        if excess[i] > HOLDING * abs(forces[i]):
            name, unit = model.dof_names[system.actuated[i]], _force(model.dof_units[system.actuated[i]])
            bound = upper[i] if forces[i] > 0.0 else lower[i]
            yield (
                f"{name} is too weak to hold the robot at rest at its {where}: this needs {forces[i]:.3g} {unit}, and the bound is "
                f"{bound:.3g} {unit}; choose another {where}, or a stronger motor"
            )


HOLDING = 1e-3
"""Relative excess of a holding force over its bound that counts as rounding."""
AT_BOUND = 1e-3
"""Relative distance from a bound below which a duration counts as being at it."""


def durations_at_bounds(ocp: OCP, xs: Array, *, beyond_only: bool = False) -> list[str]:
    """Return warnings about free durations at or beyond their bounds in states xs (N + 1, nx), one for each bound.

    A duration is that of the times of the knots, :meth:`OCP.times_of`, which defects let differ from the last state.
    beyond_only: leave out those at their bounds, which an iterate that is no solution may reach by chance. Durations whose
    bounds are equal, and negative ones, which only a failed solve has, are ignored. Empty for a problem without free durations or
    control bounds.
    """
    if not isinstance(ocp.phases[0].system, Durations) or ocp.control_bounds is None or not np.isfinite(xs[-1]).all():
        return []
    count, (lower, upper) = ocp.phases[0].dynamics.nu, ocp.control_bounds
    names, times = ocp.manifold.tangent_names[-count:], ocp.times_of(xs)
    timed = zip(ocp.phases, ocp.phase_slices, strict=True)
    values = [times[knots.stop] - times[knots.start] for phase, knots in timed if phase.dynamics.takes_time]
    found = []
    for name, T, *bounds in zip(names, values, lower[0, :count], upper[0, :count], strict=True):
        sides = zip(("shortest", "longest"), ("lower", "raise"), (-1.0, 1.0), bounds, strict=True)
        for which, remedy, sign, bound in sides:
            if bounds[0] < bounds[1] and T > 0.0 and sign * (T - bound) >= -AT_BOUND * bound:
                beyond = sign * (T - bound) > AT_BOUND * bound
                if beyond_only and not beyond:
                    continue
                limit = f"beyond {bound:.4g} s, the {which}" if beyond else f"the {which}"
                found.append(
                    f"the {name} is {T:.4g} s, {limit} allowed duration: it may limit the motion; {remedy} this "
                    f"bound (free_time, problem.durations)"
                )
    return found
