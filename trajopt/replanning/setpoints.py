"""A plan as a robot's controller needs it: what to do at any time, at the controller's rate.

At time t, between the knots k and k + 1 of a plan,

    x, xdot   the state on the geodesic between the knots, and its rate there
    u, K      feed-forward and gains of knot k, held: the controller applies  u + K (y (-) x)  in the state y that it measures
    forces    of the contacts at (x, u), in world axes; of contacts of long steps the mean ones of the step, from knot k on
    feet      where frames are in the world, and how fast they move

A plan whose states tell how long its phases last (`problem.time = "free"`, arms in scenes) is told in the seconds that these take.
Where controls are accelerations a of the joints, these are constant between knots, as where the motion is checked for collisions,

    q = q_k + s v_k + s^2 a / 2,     v = v_k + s a,     s = t - t_k

(what a time step of another kind adds to them grows in proportion to s), u is what inverse dynamics asks for at (q, v, a), and
K its gains,

    u = tau(q, v, a),     K = (d tau/dq, d tau/dv, 0) + M K_a

so that controllers of any kind are served: joint servos by positions, velocities and torques, whole-body controllers by forces and
feet besides.  `setpoints` streams a solution or a plan; in a replanning loop ask `setpoint` for the plan in force at each tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.protocol import IMPLICIT_STEP, Array, Batch, HasOutputs, NeedsScheme, unwrapped
from dynamics_backends.rigid_body.algorithms.kinematics import frame_velocity, point_positions
from dynamics_backends.rigid_body.batched import inverse_dynamics, inverse_dynamics_derivatives
from dynamics_backends.rigid_body.model.model import Model
from trajopt.problem.ocp import OCP, Phase
from trajopt.replanning.plan import Plan
from trajopt.replanning.timing import SAME_TIME
from trajopt.results.solution import Solution

FORCE, WRENCH = 3, 6
"""Rows of a contact at a point, and of one of a surface."""


class Setpoint(NamedTuple):
    """Setpoint of a controller at one time.

    t [s]; x (nx,), at whose end durations stand where phases last as long as is best; rate (ndx,): its derivative, joint velocities
    and accelerations; u (nu,) feed-forward, never accelerations of a robot's joints but their forces; K (nu, ndx) gains; forces
    by contact: (3,) [N], or (6,) with the moment [N m], in world axes, zero where it does not touch; feet, foot_velocities by
    frame: (3,) [m], [m/s] in the world; last: whether the plan ends here.
    """

    t: float
    x: Array
    rate: Array
    u: Array
    K: Array
    forces: Mapping[str, Array]
    feet: Mapping[str, Array]
    foot_velocities: Mapping[str, Array]
    last: bool

    def control(self, y: Array, manifold: Any) -> Array:
        """u (nu,) in the measured state y (nx,): feed-forward and feedback. y may end before what no robot measures, durations."""
        whole = np.append(y, self.x[len(y) :])
        return self.u + self.K @ np.asarray(manifold.difference(self.x[:, None], whole[:, None]))[:, 0]


def setpoints(
    ocp: OCP, plan: Solution | Plan, rate: float, feet: Sequence[str] = (), *, start: float = 0.0
) -> Iterator[Setpoint]:
    """The setpoints of a solution, which begins at ``start`` [s], or of a plan, every 1/rate seconds, and at its end.

    ocp: that was solved. rate [Hz]: of the controller. feet: frames to be followed. Raises ValueError for a rate that is not
    positive, UnknownName for a foot that the robot does not have.

    >>> import trajopt as to
    >>> body = to.FreeBody(to.load_robot("double_pendulum"))
    >>> dynamics = to.SampledSystem(to.make_backend(body), "semi_implicit_euler")
    >>> ocp = to.OCP.single_phase(dynamics, [0.1, 0, 0, 0], 10, 0.02, [to.control_cost(2)], [], model=body.model)
    >>> stream = to.setpoints(ocp, to.solve(ocp, solver="slq"), rate=1000.0)
    >>> [round(next(stream).t, 6) for _ in range(3)]
    [0.0, 0.001, 0.002]
    """
    if not 0.0 < rate < np.inf:
        raise ValueError(f"rate = {rate}; expected a positive number of setpoints each second")
    plan = in_seconds(ocp, plan if isinstance(plan, Plan) else Plan.of(plan, start))
    count = int(np.floor((plan.end - plan.start) * rate + SAME_TIME))
    times = plan.start + np.arange(count + 1) / rate
    if times[-1] < plan.end - SAME_TIME:
        times = np.append(times, plan.end)
    return _told(ocp, plan, times, feet)


def setpoint(ocp: OCP, plan: Plan, t: float, feet: Sequence[str] = ()) -> Setpoint:
    """Setpoint of a plan at time t [s]; after its end, the last state. ocp: whose solution it is."""
    return next(_told(ocp, in_seconds(ocp, plan), np.array([t]), feet))


def in_seconds(ocp: OCP, plan: Plan) -> Plan:
    """The plan with the times at which its states are reached, which durations in them may tell (`OCP.times_of`)."""
    return replace(plan, times=ocp.times_of(plan.xs)) if ocp.in_scaled_time else plan


def _told(ocp: OCP, plan: Plan, times: Array, feet: Sequence[str]) -> Iterator[Setpoint]:
    """The setpoints at times (M,) [s], whose states, forces and feet are found at once: a stream waits for none of them."""
    ks, manifold = plan.knots(times), ocp.manifold
    xs = _references(plan, ks, times, manifold)
    rates = {k: _rate(plan, k, manifold) for k in set(ks.tolist())}
    accelerated = [k for k in rates if _accelerates(ocp, k)]
    for k in accelerated:
        xs[ks == k] = _accelerated(ocp.model, plan, k, times[ks == k], xs[ks == k])
    forces = _forces(ocp, plan, ks, xs)
    at, moving = _feet(ocp.model, feet, xs)

    def setpoint(i: int, t: float, k: int) -> Setpoint:
        u, K, rate, n = plan.us[k], plan.K[k], rates[k], 0 if ocp.model is None else ocp.model.nv
        if k in accelerated:
            rate = np.r_[xs[i, n : 2 * n], u[:n], rate[2 * n :]]
            u, K = _driving_forces(ocp.model, xs[i], u, K)
        rate = np.zeros(manifold.ndx) if t > plan.end + SAME_TIME else rate
        pushes, places, speeds = ({name: rows[i] for name, rows in found.items()} for found in (forces, at, moving))
        return Setpoint(t, xs[i], rate, u, K, pushes, places, speeds, t >= plan.end - SAME_TIME)

    return (setpoint(i, t, k) for i, (t, k) in enumerate(zip(times.tolist(), ks.tolist(), strict=True)))


def _references(plan: Plan, ks: Array, times: Array, manifold: Any) -> Array:
    """The states (M, nx) at times behind knots ks, on geodesics to the next ones, and the last one behind the end."""
    dt = plan.times[ks + 1] - plan.times[ks]
    share = np.where(dt > 0.0, (times - plan.start - plan.times[ks]) / np.where(dt > 0.0, dt, 1.0), 1.0)
    one, other = plan.xs[ks].T, plan.xs[ks + 1].T
    moved = manifold.integrate(one, np.clip(share, 0.0, 1.0) * np.asarray(manifold.difference(one, other)))
    found = np.ascontiguousarray(np.asarray(moved).T)
    if not plan.times[-1] > plan.times[-2]:  # no knot whose control is held leads to the last state
        found[times >= plan.end - SAME_TIME] = plan.xs[-1]
    return found


def _accelerates(ocp: OCP, k: int) -> bool:
    """True if the controls behind knot k begin with the accelerations of the robot's joints, as their names tell."""
    if ocp.model is None:
        return False
    (phase,) = (p for p, knots in zip(ocp.phases, ocp.phase_slices, strict=True) if knots.start <= k < knots.stop)
    joints = ocp.model.dof_names
    return tuple(phase.dynamics.control_names[: len(joints)]) == tuple(f"a[{name}]" for name in joints)


def _accelerated(model: Model, plan: Plan, k: int, times: Array, xs: Array) -> Array:
    """States xs (M, nx) behind knot k whose first numbers (q, v) move with the constant accelerations us[k, :n]."""
    n, h = model.nv, plan.times[k + 1] - plan.times[k]
    q, v, a = plan.xs[k, :n], plan.xs[k, n : 2 * n], plan.us[k, :n]

    def moved(s: Array) -> Array:
        return np.hstack([q + s * (v + 0.5 * s * a), v + s * a])

    s = np.clip(times - plan.start - plan.times[k], 0.0, h)[:, None]
    left = plan.xs[k + 1, : 2 * n] - moved(np.array([[h]]))
    share = s / h if h > 0.0 else np.ones_like(s)
    return np.hstack([moved(s) + share * left, xs[:, 2 * n :]])


def _driving_forces(model: Model, x: Array, u: Array, K: Array) -> tuple[Array, Array]:
    """u, whose first numbers are accelerations of the joints in a state x that begins with (q, v), and K, with forces for these."""
    n = model.nv
    q, v, a = x[:n], x[n : 2 * n], u[:n]
    (by_q, by_v, M), gains = inverse_dynamics_derivatives(model, q, v, a), K.copy()
    gains[:n] = M @ K[:n]
    gains[:n, : 2 * n] += np.hstack([by_q, by_v])
    return np.r_[inverse_dynamics(model, q, v, a), u[n:]], gains


def _rate(plan: Plan, k: int, manifold: Any) -> Array:
    """The rate (ndx,) along the geodesic from knot k on; that of the knot before where the state jumps."""
    dt = plan.times[k + 1] - plan.times[k]
    if dt <= SAME_TIME:
        return _rate(plan, k - 1, manifold) if k else np.zeros(manifold.ndx)
    return np.asarray(manifold.difference(plan.xs[k][:, None], plan.xs[k + 1][:, None]))[:, 0] / dt


def _forces(ocp: OCP, plan: Plan, ks: Array, xs: Array) -> dict[str, Array]:
    """What contacts exert at states xs (M, nx) behind knots ks (M,), rows by name; zero where a phase does not have them."""
    forces: dict[str, Array] = {}
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        sampling = phase.dynamics.sampling
        system: Any = None if sampling is None else unwrapped(sampling.backend.map)
        if not isinstance(system, HasOutputs):
            continue
        here = np.flatnonzero((ks >= knots.start) & (ks < knots.stop))
        if here.size or system not in _SIZES:
            at = ks[here] if here.size else np.array([knots.start])
            values = _at(phase, at - knots.start)
            found = _outputs(ocp, plan, system, values, at, xs[here] if here.size else plan.xs[at])
            _SIZES[system] = {name: len(rows) for name, rows in found.items()}
        for name, size in _SIZES[system].items():
            forces.setdefault(name, np.zeros((len(ks), size)))
            if here.size:
                forces[name][here] = found[name].T
    return forces


_SIZES: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
"""Rows of the forces of systems by their names."""


def _at(phase: Phase, rows: Array) -> dict[str, Array]:
    """The parameters of a phase at some of its knots."""
    return {key: value[rows] if value.ndim == 2 else value for key, value in phase.parameters.items()}


def _outputs(ocp: OCP, plan: Plan, system: Any, p: dict[str, Array], ks: Array, xs: Array) -> dict[str, Array]:
    """The forces (3 or 6, M) of a system at states xs (M, nx) behind knots ks; those of whole steps are their knots'."""
    if isinstance(system, NeedsScheme):
        xs, p = plan.xs[ks], {**p, IMPLICIT_STEP: ocp.dt[ks][:, None]}
    outputs = system.outputs(*Batch.of(system, xs, plan.us[ks, : system.nu], ocp.t[ks], p))
    return {name: np.asarray(rows) for name, rows in outputs.items() if len(rows) in (FORCE, WRENCH)}


def _feet(model: Model | None, feet: Sequence[str], xs: Array) -> tuple[dict[str, Array], dict[str, Array]]:
    """Positions and velocities (M, 3) of frames in the world."""
    if not feet:
        return {}, {}
    if model is None:
        raise ValueError("feet are unavailable, because the problem has no robot: pass model=... to the OCP")
    q, v = xs[:, : model.nq].T, xs[:, model.nq : model.nq + model.nv].T
    frames = [model.frame_id(foot) for foot in feet]
    points = [(model.frames[i].body, model.frames[i].p.tolist()) for i in frames]
    at = {foot: np.asarray(place).T for foot, place in zip(feet, point_positions(model, q, points), strict=True)}
    return at, {foot: np.asarray(frame_velocity(model, q, v, i))[:3].T for foot, i in zip(feet, frames, strict=True)}
