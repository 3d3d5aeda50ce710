"""Scheduled walking on two or four legs (trot, pace, bound, walk), with rigid contacts in phases or on soft ground.

    minimize   sum_k dt/2 ( |s(x_k) - s_ref(t_k)|_Q^2 + |feet - feet_ref(t_k)|_wf^2 + w_u |u_k|^2 + |friction|_wc^2 )
               + 1/2 |s(x_N) - s_ref(T)|_P^2 + 1/2 |feet - feet_ref(T)|_Wf^2

with the state s of :mod:`~problems.legged.robot.base_state`, the references of :mod:`~problems.legged.gaits.gait` and the smooth
friction cone of :mod:`~problems.legged.contact.friction_cone`, or of :mod:`~problems.legged.contact.wrench_cone` for flat feet.
A gait defines two problems: ``contact = "rigid"``, phases that hold the standing feet (Holonomic), with an impact
when a foot lands, and "soft", one phase on soft ground with the same references.  A solution of the soft problem is a warm start
for the rigid one.  The schedule may be taken from a saved motion on soft ground (``schedule_of``), for example from a gait of
:mod:`~problems.legged.gaits.quadruped_gait`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.batched import center_of_mass, frame_jacobian, frame_placement, nonlinear_effects
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.bodies.rigid_body_map import MechanicalSystem
from dynamics_backends.systems.constraints.consistency import redundant_constraints
from dynamics_backends.systems.constraints.constraint_kinds import FrameContact, PointContact
from dynamics_backends.systems.constraints.constraint_set import DAMPING, ConstraintSet
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.impact import Impact
from dynamics_backends.systems.contact.soft_contact import SoftContact
from trajopt.config.task import BackendFactory, Task, positions_of
from trajopt.problem.impact_stage import ImpactStage
from trajopt.validation.limit_violations import LimitViolation
from ..contact.contact_limits import contact_limits, landing_sentences
from ..contact.feet_terms import feet_cost
from ..contact.friction_cone import friction_constraint, friction_cost
from ..contact.stance_drift import DRIFT, stance_drift
from ..contact.wrench_cone import wrench_constraint, wrench_cost
from ..robot.base_state import BaseWeights, Triple, base_state_cost
from ..robot.joint_limits import REMOVED_BY, EnforcedLimits
from ..robot.legs import hips
from ..robot.walker import StandingPose
from .commands import travel_sentences
from .falls import falls, foothold_misses, goal_misses, heights
from .gait import FootReferences, Gait, Interval
from .gait_settings import Settings as Settings
from .reach import order_warnings, require_reach, swing_warnings

Contacts = tuple[PointContact | FrameContact, ...]


class _Walker(NamedTuple):
    """The robot in its initial state, its settings and gait, and the references at all knots."""

    standing: StandingPose
    settings: Settings
    gait: Gait
    x0: Array
    joints: Array
    intervals: list[Interval]
    references: FootReferences
    dt: float
    warnings: tuple[str, ...]

    @property
    def model(self) -> Model:
        """The robot."""
        return self.standing.model

    @property
    def attitude(self) -> Triple:
        """Attitude of the base [rad] for a robot that faces along x."""
        return (0.0, 0.0, self.standing.yaw)

    @property
    def height(self) -> float:
        """Height of the base [m]."""
        return float(self.x0[2])

    @property
    def marks(self) -> list[tuple[str, Triple]]:
        """Reference points of the feet: foot, and point in its frame [m]; a sole has three points, which define its
        orientation."""
        soles = self.standing.stance.soles
        if not soles:
            return [(foot, (0.0, 0.0, 0.0)) for foot in self.gait.feet]
        return [(sole.frame, mark) for sole in soles for mark in sole.marks]

    def marked(self, positions: Array) -> Array:
        """Return reference positions (M, 3 marks) [m] of the marks, for positions (M, F, 3) of the feet."""
        feet, marks = zip(*self.marks, strict=True)
        return (positions[:, [self.gait.feet.index(foot) for foot in feet]] + np.array(marks)).reshape(
            len(positions), -1
        )


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings.

    Raises UnknownName for a foot that the robot or the schedule lacks, ValueError for a posture that does not match the robot.
    """
    walker = _walker(settings)
    s = walker.settings
    enforced = EnforcedLimits.from_settings(walker.model, s)
    phases = _rigid_phases(walker, s, backend) if s.contact == "rigid" else [_soft_phase(walker, s, backend)]
    ocp = to.OCP(
        tuple(replace(phase, constraints=(*phase.constraints, *enforced.constraints)) for phase in phases),
        walker.x0,
        tuple(_terminal(walker, s)),
        name="scheduled_gait",
        model=walker.model,
        terminal_constraints=enforced.constraints,
        **enforced.bounds,
    )
    hip_height = float(heights(walker.model, s.feet, walker.x0[None])[0])
    return Task(
        ocp,
        _guess(walker, ocp),
        outcome=partial(_outcome, walker),
        commands=partial(_commands, walker, ocp),
        missed=partial(_missed, walker, hip_height),
        fallen=partial(falls, walker.model, s.feet),
        feet=s.feet,
        warnings=(*walker.warnings, *walker.standing.stance.uneven_feet(walker.joints)),
        notes=walker.standing.notes(),
        contact_limits=partial(_contact_limits, walker, ocp),
        removed_by={**REMOVED_BY, "phases": 'problem.contact = "soft"', **_cones_removed_by(ocp)},
    )


def _contact_limits(w: _Walker, ocp: to.OCP, xs: Array, us: Array) -> list[LimitViolation]:
    """Return violated contact limits, and standing feet that move, in states xs (N + 1, nx) with controls us (N, nu)."""
    stance = w.standing.stance
    found = contact_limits(ocp, w.settings.friction, xs, us, soles=stance.soles)
    if w.settings.contact == "soft":
        return found
    marks = {foot: [point for name, point in w.marks if name == foot] for foot in w.gait.feet}
    stances = [interval.stance for interval in w.intervals]
    return [*found, *stance_drift(ocp, marks, stances, DRIFT * stance.leg_length, xs)]


def _cones_removed_by(ocp: to.OCP) -> dict[str, str]:
    """Return the setting that turns each friction cone into a cost."""
    names = {c.name for phase in ocp.phases for c in phase.constraints} - set(REMOVED_BY)
    return dict.fromkeys(names, 'problem.cone = "cost"')


def _walker(given: Settings) -> _Walker:
    """Return the robot, with omitted settings resolved."""
    standing = given.stand()
    model, joints, feet = standing.model, standing.joints, standing.stance.feet
    s = replace(given, feet=feet)
    asked = s.schedule(model, feet)
    gait = asked.on_grid(s.dt)
    gait.require_feet(model)
    q0 = standing.q
    if s.contact == "soft":
        q0[2] += s.resting_gap(standing.weight_per_foot)
    footholds = positions_of(model, feet, q0)
    warned = _rounding_warnings(asked, gait, s.dt)
    if not s.schedule_of:
        require_reach(standing.stance, gait, footholds)
        named = () if s.swings else order_warnings(feet, footholds)
        warned = (*warned, *swing_warnings(standing.stance, s.swing), *named)
    intervals = gait.intervals(s.dt)
    times = s.dt * np.arange(intervals[-1].last + 1)
    x0 = np.concatenate([q0, np.zeros(model.nv)])
    return _Walker(standing, s, gait, x0, joints, intervals, gait.references(times, footholds), s.dt, warned)


def _rounding_warnings(asked: Gait, gait: Gait, dt: float) -> tuple[str, ...]:
    """Return a warning about phases that are rounded to time steps, or none."""
    durations = [(a.duration, b.duration) for a, b in zip(asked.phases, gait.phases, strict=True)]
    changed = dict.fromkeys(f"{a:g} s to {b:g} s" for a, b in durations if a != b)
    if not changed:
        return ()
    return (
        f"phases are rounded to time steps of problem.dt = {dt:g} s: {', '.join(changed)}; choose a dt that divides them",
    )


# -- phases ------------------------------------------------------------------------------------------------------------


def _rigid_phases(w: _Walker, s: Settings, backend: BackendFactory) -> list[to.Phase]:
    """Return a phase per interval, with an impact before it if feet land; equal contacts share their dynamics."""
    stances: dict[Contacts, _Stance] = {}
    phases: list[to.Phase] = []
    shared = _Terms.create(w, s)
    standing = set(w.intervals[0].stance)
    for interval in w.intervals:
        contacts = _contacts(w, s, interval)
        if contacts not in stances:
            stances[contacts] = _Stance.create(w, s, contacts, backend)
        stance = stances[contacts]
        if stance.impact is not None and set(interval.stance) - standing:
            phases.append(to.Phase(stance.impact, np.zeros(1)))
        standing = set(interval.stance)
        terms = [*shared.at(w, s, slice(interval.first, interval.last)), *stance.cone]
        dt = np.full(interval.last - interval.first, s.dt)
        phases.append(to.Phase(stance.dynamics, dt, tuple(terms), constraints=tuple(stance.pyramid)))
    return phases


def _contacts(w: _Walker, s: Settings, interval: Interval) -> Contacts:
    """Return the contacts of the standing feet of an interval; with kp, they are held at their footholds.

    Soles are held in their orientation at x0.
    """
    soles = {sole.frame for sole in w.standing.stance.soles}
    contacts: list[PointContact | FrameContact] = []
    for foot in interval.stance:
        flat, held = foot in soles, None
        if s.gains[0]:
            R, _ = frame_placement(w.model, w.x0[: w.model.nq], foot)
            turned = Rotation.from_matrix(R).as_quat() if flat else ()
            held = (*w.references.position[interval.first, w.gait.feet.index(foot)].tolist(), *turned)
        contacts.append((FrameContact if flat else PointContact)(foot, gains=s.gains, reference=held))
    return tuple(contacts)


class _Stance(NamedTuple):
    """Dynamics on a set of standing feet, impact of landing on them, and cost or constraints on their forces; in flight, dynamics
    only."""

    dynamics: to.SampledSystem
    impact: ImpactStage | None
    cone: list[to.CostTerm]
    pyramid: list[to.Constraint]

    @classmethod
    def create(cls, w: _Walker, s: Settings, contacts: Contacts, backend: BackendFactory) -> _Stance:
        feet = [contact.frame for contact in contacts]
        if not feet:
            return cls(_sampled(backend, FreeBody(w.model), s), None, [], [])
        soles = [sole for sole in w.standing.stance.soles if sole.frame in feet]
        damping = damping_of(w.model, contacts, w.x0)
        system, weight = Holonomic(w.model, contacts, damping_ratio=damping), s.foot_weights.friction
        hard, count = s.cone == "constraint", len(s.feet)
        cost = partial(wrench_cost, system, soles) if soles else partial(friction_cost, system, feet)
        limit = partial(wrench_constraint, system, soles) if soles else partial(friction_constraint, system, feet)
        cone = [cost(s.friction, weight, feet=count)] if weight and not hard else []
        pyramid = [limit(s.friction, feet=count)] if hard else []
        impact = ImpactStage(backend(Impact(w.model, contacts, damping_ratio=damping)))
        return cls(_sampled(backend, system, s), impact, cone, pyramid)


REDUNDANT = 1e-3
"""Damping of redundant contact constraints: they yield by a thousandth of the unconstrained acceleration."""


def damping_of(model: Model, contacts: Contacts, x: Array) -> float:
    """Return the damping of these contacts [relative, see :mod:`~dynamics_backends.systems.constraints.constraint_set`].

    Legs without a lateral joint cannot move their feet apart sideways. With several such legs, constraint rows are redundant
    while the base is level, and nearly redundant otherwise, which causes large forces. The remaining inconsistency divided by the
    damping is a force.
    """
    return REDUNDANT if redundant_constraints(ConstraintSet(model, contacts), x) else DAMPING


def _soft_phase(w: _Walker, s: Settings, backend: BackendFactory) -> to.Phase:
    dynamics = _sampled(backend, s.contact_dynamics(w.model, s.feet), s)
    N = w.intervals[-1].last
    return to.Phase(dynamics, np.full(N, s.dt), tuple(_Terms.create(w, s).at(w, s, slice(0, N))))


def _sampled(backend: BackendFactory, system: MechanicalSystem, s: Settings) -> to.SampledSystem:
    return to.SampledSystem(backend(system), s.integrator, s.substeps)


class _Terms(NamedTuple):
    """Running cost terms, with references and weights that differ by knot."""

    control: to.CostTerm
    base: to.CostTerm
    feet: to.CostTerm

    @classmethod
    def create(cls, w: _Walker, s: Settings) -> _Terms:
        names = tuple(f"u[{name}]" for name in w.model.dof_names[6:])
        weights = w.standing.control_weights(s.control_weight)
        return cls(to.control_cost(len(names), weight=weights, names=names), *_terms_of_state(w, s, s.running))

    def at(self, w: _Walker, s: Settings, knots: slice) -> list[to.CostTerm]:
        """Return the terms at these knots."""
        r = w.references
        own = s.foot_weights
        weight = np.select([r.landing[knots], r.swinging[knots]], [own.landing, own.swing], own.stance)
        base = self.base.updated(position=r.base[knots] + np.array([0.0, 0.0, w.height]))
        goal, marks = w.marked(r.position[knots]), len(w.marks) // len(w.gait.feet)
        return [self.control, base, self.feet.updated(goal=goal, weight=weight.repeat(3 * marks, axis=1) / marks)]


def _terms_of_state(w: _Walker, s: Settings, weights: BaseWeights) -> tuple[to.CostTerm, to.CostTerm]:
    manifold, weight = SoftContact(w.model, s.feet).manifold, weights.vector(w.standing.stance.joint_units)
    base = base_state_cost(
        w.model, manifold, weight, w.joints, "posture", hips=hips(w.model, s.feet), attitude=w.attitude
    )
    feet, marks = zip(*w.marks, strict=True)
    goal, each = w.marked(w.references.position[-1:])[0], len(feet) // len(s.feet)
    return base, feet_cost(w.model, manifold, feet, goal, s.foot_weights.terminal / each, marks=marks)


def _terminal(w: _Walker, s: Settings) -> list[to.CostTerm]:
    base, feet = _terms_of_state(w, s, s.terminal)
    return [base.updated(position=w.references.base[-1] + np.array([0.0, 0.0, w.height])), feet]


# -- guess and reports -------------------------------------------------------------------------------------------------


def _guess(w: _Walker, ocp: to.OCP) -> to.Guess:
    """Return the guess: the initial state, with torques that hold it on the standing feet."""
    still = to.constant_guess(ocp)
    flat = bool(w.standing.stance.soles)
    torques = {stance: holding_torques(w.model, w.x0, stance, flat) for stance in {i.stance for i in w.intervals}}
    for interval in w.intervals:
        during = (ocp.times[:-1] > w.dt * interval.first - 0.5 * w.dt) & (ocp.times[:-1] < w.dt * (interval.last - 0.5))
        still.us[during] = torques[interval.stance]
    return still


def holding_torques(model: Model, x: Array, stance: Sequence[str], flat: bool = False) -> Array:
    """Return joint torques (nu,) that hold state x (nx,) on point contacts or flat feet, with the smallest contact forces."""
    if not stance:
        return np.zeros(model.nv - 6)
    q = x[: model.nq]
    h = nonlinear_effects(model, q, np.zeros(model.nv))
    J = np.concatenate([frame_jacobian(model, q, foot)[: 6 if flat else 3] for foot in stance])
    forces = np.linalg.lstsq(J[:, :6].T, h[:6], rcond=None)[0]
    return (h - J.T @ forces)[6:]


def _commands(w: _Walker, ocp: to.OCP, xs: Array, times: Array) -> list[str]:
    """Return sentences about the commanded motion, and about landings on rigid ground that need more friction than there is."""
    friction = w.settings.friction if w.settings.contact == "rigid" else None
    travel = travel_sentences(float(w.references.base[-1, 0]), xs, times)
    return [*travel, *landing_sentences(ocp, friction, xs, times)]


def _missed(w: _Walker, hip_height: float, xs: Array) -> list[str]:
    """Return sentences about a base or feet that end far from their goals in states xs (N + 1, nx)."""
    feet = dict(zip(w.gait.feet, _away(w, xs[-1]).tolist(), strict=True))
    base = goal_misses(hip_height, w.references.base[-1], w.height, xs)
    return [*base, *foothold_misses(hip_height, w.gait.step_length, feet)]


def _away(w: _Walker, x: Array) -> Array:
    """Return the distances (F,) [m] of the feet from their last footholds in state x (nx,)."""
    feet = positions_of(w.model, w.gait.feet, x[: w.model.nq])
    return np.linalg.norm(feet - w.references.position[-1], axis=1)


def _outcome(w: _Walker, x: Array) -> list[str]:
    goal = w.references.base[-1]
    center = center_of_mass(w.model, x[: w.model.nq])
    away = _away(w, x)
    return [
        f"the base ends at x = {x[0]:.3f}, y = {x[1]:.3f}, z = {x[2]:.3f} m; target {goal[0]:.3f}, 0, {w.height:.3f}",
        f"the center of mass ends at x = {center[0]:.3f} m",
        f"{w.gait.feet[int(np.argmax(away))]} ends {100 * away.max():.2g} cm from its foothold, the other feet less",
    ]
