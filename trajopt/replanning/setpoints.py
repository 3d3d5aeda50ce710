"""Setpoints of a plan for a robot's controller, at any time and rate.

At time t, between the knots k and k + 1 of a plan, a setpoint contains

    x, xdot   the state on the geodesic between the knots, and its rate
    u, K      feed-forward and gains of knot k; the controller applies  u + K (y (-) x)  in its measured state y
    forces    contact forces at (x, u), in world axes; if the dynamics compute means over time steps, those of the step from knot k
    feet      positions and velocities of frames in the world

If the states of a plan contain phase durations (`problem.time = "free"`, arms in scenes), times follow from these durations.
If the controls are accelerations a of the joints, these are constant between knots, as in the collision checks,

    q = q_k + s v_k + s^2 a / 2,     v = v_k + s a,     s = t - t_k

plus a correction proportional to s for other kinds of time steps. u then is the inverse dynamics at (q, v, a), with gains

    u = tau(q, v, a),     K = (d tau/dq, d tau/dv, 0) + M K_a

Joint servos use positions, velocities and torques; whole-body controllers also use forces and feet. `setpoints` streams a solution
or a plan. In a replanning loop, call `setpoint` with the current plan at each tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.protocol import IMPLICIT_STEP, Array, Batch, HasOutputs, NeedsScheme
from dynamics_backends.rigid_body.algorithms.kinematics import frame_velocity, point_positions
from dynamics_backends.rigid_body.batched import inverse_dynamics, inverse_dynamics_derivatives
from dynamics_backends.rigid_body.model.model import Model
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import parameters_at
from trajopt.replanning.plan import Plan, require_same_names
from trajopt.replanning.workers import SAME_TIME
from trajopt.results.solution import Solution

FORCE, WRENCH = 3, 6
"""Number of force components of a point contact, and of a surface contact."""


class Setpoint(NamedTuple):
    """Setpoint of a controller at one time.

    t [s]; x (nx,): state, with phase durations at its end if these are free; rate (ndx,): its derivative, such as joint velocities
    and accelerations, zero after the end of the plan; u (nu,) feed-forward, with joint forces in place of joint accelerations;
    K (nu, ndx) gains; forces by contact: (3,) [N], or (6,) with the moment [N m], in world axes, zero without contact; feet,
    foot_velocities by frame: (3,) [m], [m/s] in the world; last: True at and after the end of the plan.
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
        """Control (nu,), feed-forward and feedback, in the measured state y (nx,), which may omit phase durations at its end.

        It is not clipped to bounds.
        """
        whole = np.append(y, self.x[len(y) :])
        return self.u + self.K @ np.asarray(manifold.difference(self.x[:, None], whole[:, None]))[:, 0]


def setpoints(
    ocp: OCP, plan: Solution | Plan, rate: float, feet: Sequence[str] = (), *, start: float = 0.0
) -> Iterator[Setpoint]:
    """Stream the setpoints of a solution that begins at ``start`` [s], or of a plan, every 1/rate seconds and at its end.

    ocp: the solved problem. rate [Hz]: of the controller. feet: frames to report. Raises ValueError for a rate that is not
    positive and finite, for a plan of another problem, and for feet without a robot model, UnknownName for a foot that the robot
    does not have.

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
    if plan.xs.shape[1:] != (ocp.manifold.nx,):
        raise ValueError(
            f"the plan has states of shape {plan.xs.shape}; those of the problem have nx = {ocp.manifold.nx}"
        )
    require_same_names(plan, ocp, "the plan")
    plan = in_seconds(ocp, plan if isinstance(plan, Plan) else Plan.from_solution(plan, start))
    count = int(np.floor((plan.end - plan.start) * rate + SAME_TIME))
    times = plan.start + np.arange(count + 1) / rate
    if times[-1] < plan.end - SAME_TIME:
        times = np.append(times, plan.end)
    return _setpoint_stream(ocp, plan, times, feet)


def setpoint(ocp: OCP, plan: Plan, t: float, feet: Sequence[str] = ()) -> Setpoint:
    """Setpoint of a plan at time t [s]; after its end, its last state with a rate of zero, and the control that holds it.

    ocp: the problem that the plan solves. feet: frames whose positions and velocities are returned. Raises UnknownName for a foot
    that the robot does not have, ValueError for feet without a robot model.
    """
    return next(_setpoint_stream(ocp, in_seconds(ocp, plan), np.array([t]), feet))


def in_seconds(ocp: OCP, plan: Plan) -> Plan:
    """Plan with its problem, if unknown, and with times from the free durations in its states, if there are any."""
    times = ocp.times_of(plan.xs) if ocp.in_scaled_time else plan.times
    return replace(plan, times=times, problem=plan.problem or ocp)


def _setpoint_stream(ocp: OCP, plan: Plan, times: Array, feet: Sequence[str]) -> Iterator[Setpoint]:
    """Iterate over the setpoints at times (M,) [s]; states, forces and feet are computed in one batch before the first one."""
    ks, manifold = plan.knots(times), ocp.manifold
    xs = _references(plan, ks, times, manifold)
    rates = {k: _rate(plan, k, manifold) for k in set(ks.tolist())}
    accelerated = [k for k in rates if _accelerates(ocp, k)]
    for k in accelerated:
        xs[ks == k] = _accelerated(ocp.model, plan, k, times[ks == k], xs[ks == k])
    forces = _forces(ocp, plan, ks, xs)
    at, moving = _feet(ocp.model, feet, xs)

    def setpoint(i: int, t: float, k: int) -> Setpoint:
        """Setpoint i, at time t [s] after knot k, with joint forces in place of joint accelerations."""
        u, K, rate, n = plan.feed_forward(t, k), plan.K[k], rates[k], 0 if ocp.model is None else ocp.model.nv
        if k in accelerated:
            rate = np.r_[xs[i, n : 2 * n], u[:n], rate[2 * n :]]
            u, K = _driving_forces(ocp.model, xs[i], u, K)
        rate = np.zeros(manifold.ndx) if t > plan.end + SAME_TIME else rate
        pushes, places, speeds = ({name: rows[i] for name, rows in result.items()} for result in (forces, at, moving))
        return Setpoint(t, xs[i], rate, u, K, pushes, places, speeds, t >= plan.end - SAME_TIME)

    return (setpoint(i, t, k) for i, (t, k) in enumerate(zip(times.tolist(), ks.tolist(), strict=True)))


def _references(plan: Plan, ks: Array, times: Array, manifold: Any) -> Array:
    """States (M, nx) at times (M,) [s] after knots ks (M,), on geodesics to the next knots; after the end, the last state."""
    dt = plan.times[ks + 1] - plan.times[ks]
    fraction = np.where(dt > 0.0, (times - plan.start - plan.times[ks]) / np.where(dt > 0.0, dt, 1.0), 1.0)
    one, other = plan.xs[ks].T, plan.xs[ks + 1].T
    moved = manifold.integrate(one, np.clip(fraction, 0.0, 1.0) * np.asarray(manifold.difference(one, other)))
    result = np.ascontiguousarray(np.asarray(moved).T)
    if not plan.times[-1] > plan.times[-2]:  # the plan ends with a jump, so no interval ends at the last state
        result[times >= plan.end - SAME_TIME] = plan.xs[-1]
    return result


def _accelerates(ocp: OCP, k: int) -> bool:
    """True if, by their names, the first controls at knot k are accelerations of the robot's joints."""
    if ocp.model is None:
        return False
    (phase,) = (p for p, knots in zip(ocp.phases, ocp.phase_slices, strict=True) if knots.start <= k < knots.stop)
    joints = ocp.model.dof_names
    return tuple(phase.dynamics.control_names[: len(joints)]) == tuple(f"a[{name}]" for name in joints)


def _accelerated(model: Model, plan: Plan, k: int, times: Array, xs: Array) -> Array:
    """States xs (M, nx) after knot k with (q, v) replaced by the motion with constant accelerations us[k, :n].

    A correction proportional to the time since the knot makes the motion end in the state of the next knot.
    """
    n, h = model.nv, plan.times[k + 1] - plan.times[k]
    q, v, a = plan.xs[k, :n], plan.xs[k, n : 2 * n], plan.us[k, :n]

    def moved(s: Array) -> Array:
        """Positions and velocities (M, 2 n) at times s (M, 1) [s] after the knot."""
        return np.hstack([q + s * (v + 0.5 * s * a), v + s * a])

    s = np.clip(times - plan.start - plan.times[k], 0.0, h)[:, None]
    left = plan.xs[k + 1, : 2 * n] - moved(np.array([[h]]))
    fraction = s / h if h > 0.0 else np.ones_like(s)
    return np.hstack([moved(s) + fraction * left, xs[:, 2 * n :]])


def _driving_forces(model: Model, x: Array, u: Array, K: Array) -> tuple[Array, Array]:
    """Convert u (nu,) and K (nu, ndx), whose first rows are joint accelerations, to motor forces by inverse dynamics.

    x: state, which begins with (q, v). The rows of other controls are unchanged.
    """
    n = model.nv
    q, v, a = x[:n], x[n : 2 * n], u[:n]
    (by_q, by_v, M), gains = inverse_dynamics_derivatives(model, q, v, a), K.copy()
    gains[:n] = M @ K[:n]
    gains[:n, : 2 * n] += np.hstack([by_q + np.diag(model.stiffness), by_v])
    return np.r_[inverse_dynamics(model, q, v, a) - model.spring_forces(q), u[n:]], gains


def _rate(plan: Plan, k: int, manifold: Any) -> Array:
    """Rate (ndx,) along the geodesic from knot k; at a jump of the state, that of the previous knot, or zero at knot 0."""
    dt = plan.times[k + 1] - plan.times[k]
    if dt <= SAME_TIME:
        return _rate(plan, k - 1, manifold) if k else np.zeros(manifold.ndx)
    return np.asarray(manifold.difference(plan.xs[k][:, None], plan.xs[k + 1][:, None]))[:, 0] / dt


def _forces(ocp: OCP, plan: Plan, ks: Array, xs: Array) -> dict[str, Array]:
    """Contact forces (M, 3) or (M, 6) by name at states xs (M, nx) after knots ks (M,); zero in phases without the contact."""
    forces: dict[str, Array] = {}
    for phase, knots in zip(ocp.phases, ocp.phase_slices, strict=True):
        system = phase.system
        if not isinstance(system, HasOutputs):
            continue
        here = np.flatnonzero((ks >= knots.start) & (ks < knots.stop))
        if here.size or system not in _SIZES:
            at = ks[here] if here.size else np.array([knots.start])
            values = parameters_at(phase.parameters, at - knots.start)
            result = _outputs(ocp, plan, system, values, at, xs[here] if here.size else plan.xs[at])
            _SIZES[system] = {name: len(rows) for name, rows in result.items()}
        for name, size in _SIZES[system].items():
            forces.setdefault(name, np.zeros((len(ks), size)))
            if here.size:
                forces[name][here] = result[name].T
    return forces


_SIZES: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
"""Number of force components by system and contact name."""


def _outputs(ocp: OCP, plan: Plan, system: Any, p: dict[str, Array], ks: Array, xs: Array) -> dict[str, Array]:
    """Contact forces (3 or 6, M) by name of a system at states xs (M, nx) after knots ks; p: parameters of the phase.

    Systems whose forces are means over time steps use the states of the knots. Outputs with other numbers of rows are omitted.
    """
    if isinstance(system, NeedsScheme):
        xs, p = plan.xs[ks], {**p, IMPLICIT_STEP: ocp.dt[ks][:, None]}
    outputs = system.outputs(*Batch.of(system, xs, plan.us[ks, : system.nu], ocp.t[ks], p))
    return {name: np.asarray(rows) for name, rows in outputs.items() if len(rows) in (FORCE, WRENCH)}


def _feet(model: Model | None, feet: Sequence[str], xs: Array) -> tuple[dict[str, Array], dict[str, Array]]:
    """Positions and velocities (M, 3) of frames in the world, by frame; empty without frames. Raises ValueError without a model."""
    if not feet:
        return {}, {}
    if model is None:
        raise ValueError("feet are unavailable, because the problem has no robot: pass model=... to the OCP")
    q, v = model.configuration_of(xs).T, model.velocity_of(xs).T
    frames = [model.frame_id(foot) for foot in feet]
    points = [(model.frames[i].body, model.frames[i].p.tolist()) for i in frames]
    at = {foot: np.asarray(place).T for foot, place in zip(feet, point_positions(model, q, points), strict=True)}
    return at, {foot: np.asarray(frame_velocity(model, q, v, i))[:3].T for foot, i in zip(feet, frames, strict=True)}
