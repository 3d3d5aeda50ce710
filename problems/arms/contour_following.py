"""Contour following: the tool of a fixed-base arm follows a path in space; its speed along the path is optimized.

    state      (q, v, s, sdot), the path parameter s [m] with sddot as a control
    minimize   sum_k dt/2 ( w_s (sdot - sdot_ref)^2 + w_e |e|^2 + |q - q0|_wq^2 + |v|_wv^2 + |u - u_hold|_wu^2 + w_a sddot^2 )
               + 1/2 ( |q_N - q0|_Wq^2 + |v_N|_Wv^2 + W_e |e_N|^2 )
    subject to |e| <= rho at every knot,   limits of positions, velocities and torques

e(q, s) is the tool position relative to the path point. With form "torque" (OCP-FD), the controls are joint torques and the
dynamics are forward dynamics. With form "acceleration" (OCP-ID), the controls are joint accelerations, the dynamics are
linear, and the torques of inverse dynamics are bounded by path constraints. The problem, with N = 16 and rho = 1 cm,
is that of an NMPC with analytical derivatives (A. Astudillo et al., eq. 7, after N. van Duijkeren, thesis, KU Leuven, 2019);
weights, path and time step are not published there.

The path starts at the tool's position at q0: a circle of given radius that rises and falls twice,
(r (cos a - 1), r sin a, h sin 2a) with a = s / r.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.batched import frame_placement
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.along_path import AlongPath, DoubleIntegrator
from dynamics_backends.systems.bodies.free_body import FreeBody
from trajopt.config.task import BackendFactory, Checked, Checks, Contour, Sampling, Task, not_negative, position_of
from trajopt.problem.residuals import path_offset
from ..robots.loading import load_fixed_base
from .arm import holding_forces, with_springs


@dataclass(frozen=True, kw_only=True)
class Weights(Checked):
    """Running weights of the cost, and terminal weights (prefix ``terminal_``).

    speed: weight of the path speed error [m/s]. error: weight of the distance from the path [m]. posture: weight of the
    joint positions [rad]. velocity: weight of the joint velocities [rad/s]. control: weight of the controls, as fractions of
    torque limits or as accelerations [rad/s^2]. path_acceleration: weight of the acceleration along the path [m/s^2].
    terminal_posture: terminal weight of the joint positions. terminal_velocity: terminal weight of the joint velocities.
    terminal_error: terminal weight of the distance from the path.
    """

    speed: float = 1e2
    error: float = 1.0
    posture: float = 1.0
    velocity: float = 1e-1
    control: float = 1e-2
    path_acceleration: float = 1e-2
    terminal_posture: float = 1e-2
    terminal_velocity: float = 1e-1
    terminal_error: float = 1.0

    def checks(self) -> Checks:
        return {key: not_negative(value) for key, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class Settings(Sampling):
    """Settings of a contour and the robot that follows it.

    robot: a bundled name, "erd:NAME", or the path of a URDF or MJCF file. package_dirs: folders that contain the packages
    of its meshes (package://), in addition to those of ROS_PACKAGE_PATH. q0: initial configuration, at rest on the path.
    frame: tool frame. form: controls of the joints, "torque" or "acceleration". radius: radius of the path [m]. height:
    height of the path [m]. speed: reference speed along the path [m/s]. tube: maximum distance from the path [m].
    position_limits: constrain the joint positions to their limits. velocity_limits: constrain the joint velocities to their
    limits. torque_limits: constrain the torques to the effort limits. weights: weights of the cost.
    """

    robot: str = "gen3"
    package_dirs: tuple[str, ...] = ()
    q0: tuple[float, ...] = (0.0, 0.5, 0.0, 1.6, 0.0, 1.0, 0.0)
    frame: str = "EndEffector_Link"
    form: Literal["torque", "acceleration"] = "torque"
    horizon: int = 16
    dt: float = 0.05
    integrator: Literal["semi_implicit_euler", "euler", "rk4"] = "rk4"
    radius: float = 0.1
    height: float = 0.02
    speed: float = 0.15
    tube: float = 0.01
    position_limits: bool = True
    velocity_limits: bool = True
    torque_limits: bool = True
    weights: Weights = field(default_factory=Weights)

    def checks(self) -> Checks:
        return super().checks() | {
            "radius": (self.radius > 0, "a positive length [m]"),
            "height": not_negative(self.height),
            "speed": not_negative(self.speed),
            "tube": (self.tube > 0, "a positive length [m]"),
        }


def build(settings: Settings, backend: BackendFactory) -> Task:
    """Build the task of these settings.

    Raises UnknownName for an unknown frame, ValueError for values that do not match the robot.
    """
    s = settings
    model = load_fixed_base(s.robot, package_dirs=s.package_dirs)
    if len(s.q0) != model.nq:
        raise ValueError(f"q0 has {len(s.q0)} entries; {model.name} has nq = {model.nq}: {', '.join(model.q_names)}")
    inner = FreeBody(model) if s.form == "torque" else DoubleIntegrator(model.dof_names)
    contour = _Contour(model, AlongPath(inner), s)
    ocp = to.OCP.single_phase(
        s.sampled(backend(contour.system)),
        contour.x0,
        s.horizon,
        s.dt,
        contour.running(),
        contour.terminal(),
        name="contour_following",
        model=model,
        constraints=[*contour.path_constraints(), *contour.torques()],
        **contour.control_bounds(),
    )
    path = Contour(contour.points, s.tube)
    removed_by = {"torque limits": "problem.torque_limits = false"}
    return Task(
        ocp,
        contour.guess(ocp),
        s.frame,
        contour=path,
        outcome=contour.outcome,
        commands=contour.commands,
        removed_by=removed_by,
    )


class _Contour:
    """The parts of the problem of a robot that follows a path."""

    def __init__(self, model: Model, system: AlongPath, s: Settings) -> None:
        self.model, self.system, self.settings, self.n = model, system, s, model.nv
        self.q0 = np.array(s.q0)
        self.x0 = np.concatenate([self.q0, np.zeros(self.n + 2)])
        self.path = {
            "start": position_of(model, s.frame, self.q0),
            "shape": np.array([s.radius, s.height]),
        }
        self.point = partial(contour_point, 2 * self.n)
        self.holding = holding_forces(model, self.q0)
        if s.torque_limits and not np.isfinite(model.effort_limit).all():
            name = model.dof_names[int(np.argmax(~np.isfinite(model.effort_limit)))]
            raise ValueError(
                f"torque_limits needs effort limits, but {model.name} has none for {name!r}; set torque_limits = false"
            )

    # -- cost -------------------------------------------------------------------------------------------------
    def running(self) -> list[to.CostTerm]:
        """Return the running cost terms."""
        s, w = self.settings, self.settings.weights
        motion = self._state(w.posture, w.velocity, "motion", w.speed, s.speed)
        return [self._error(w.error), motion, self._controls()]

    def terminal(self) -> list[to.CostTerm]:
        """Return the terminal cost terms."""
        w = self.settings.weights
        return [self._error(w.terminal_error), self._state(w.terminal_posture, w.terminal_velocity, "final motion")]

    def _error(self, weight: float) -> to.CostTerm:
        function = partial(path_offset, self.model, self.model.frame_id(self.settings.frame), self.point)
        return to.residual_cost(
            "path error", function, self.system.manifold, 3, weight, parameters=self.path, output_names=("x", "y", "z")
        )

    def _state(self, posture: float, velocity: float, name: str, speed: float = 0.0, ref: float = 0.0) -> to.CostTerm:
        weight = np.concatenate([np.full(self.n, posture), np.full(self.n, velocity), [0.0, speed]])
        reference = np.concatenate([self.q0, np.zeros(self.n + 1), [ref]])
        return to.state_cost(self.system.manifold, reference, weight, name)

    def _controls(self) -> to.CostTerm:
        w = self.settings.weights
        if self.settings.form == "acceleration":
            reference, weight = np.zeros(self.n), np.full(self.n, w.control)
        else:
            reference = self.holding
            weight = w.control / np.where(np.isfinite(self.model.effort_limit), self.model.effort_limit, 1.0) ** 2
        return to.control_cost(
            self.n + 1,
            reference=np.append(reference, 0.0),
            weight=np.append(weight, w.path_acceleration),
            names=self.system.control_names,
        )

    # -- constraints ------------------------------------------------------------------------------------------
    def path_constraints(self) -> list[to.Constraint]:
        """Return the tube constraint and the joint limits."""
        s, model, manifold = self.settings, self.model, self.system.manifold
        found = [to.tube(model, manifold, s.frame, self.point, s.tube, parameters=self.path)]
        free = np.full(self.n, np.inf)
        limit = np.asarray(model.velocity_limit) if s.velocity_limits else free
        low, high = (model.q_lower, model.q_upper) if s.position_limits else (-free, free)
        lower, upper = np.concatenate([low, -limit, [0.0, 0.0]]), np.concatenate([high, limit, [np.inf, np.inf]])
        return [*found, to.state_bounds(manifold, lower, upper, "limits of the motion")]

    def torques(self) -> list[to.Constraint]:
        """Return the torque limits as constraints, if torques are not the controls."""
        if self.settings.form == "torque" or not self.settings.torque_limits:
            return []
        limit = np.asarray(self.model.effort_limit)
        return [
            to.residual_constraint(
                "torque limits",
                partial(joint_torques, self.model),
                self.system.manifold,
                self.n,
                -limit,
                limit,
                nu=self.system.nu,
                output_names=self.model.dof_names,
                control_names=self.system.control_names,
            )
        ]

    def control_bounds(self) -> dict[str, Any]:
        """Return the torque limits as control bounds, if torques are the controls."""
        if self.settings.form == "acceleration" or not self.settings.torque_limits:
            return {}
        limit = np.append(self.model.effort_limit, np.inf)
        return {"u_lower": -limit, "u_upper": limit}

    # -- guess and reports ------------------------------------------------------------------------------------
    def guess(self, ocp: to.OCP) -> to.Guess:
        """Return the guess: the robot at rest, with holding torques."""
        u = np.zeros(self.system.nu)
        if self.settings.form == "torque":
            u[: self.n] = self.holding
        return to.constant_guess(ocp, u)

    def points(self, xs: Array) -> Array:
        """Return the path points (M, 3) [m] at states (M, nx)."""
        rows = contour_point(2 * self.n, xs.T, xs.T[:0], 0.0, self.path)
        return np.stack(np.broadcast_arrays(*rows), axis=1)

    def outcome(self, x: Array) -> list[str]:
        """Report the tool's final progress along the path."""
        return [f"the motion ends {x[2 * self.n]:.3g} m along the path"]

    def commands(self, xs: Array, times: Array) -> list[str]:
        """Compare reference and mean speed along the path, and report the largest distance from it, of states (M, nx) at times
        (M,) [s]."""
        at = frame_placement(self.model, xs[:, : self.n], self.settings.frame)[1]
        error = np.linalg.norm(at - self.points(xs), axis=1)
        mean = float((xs[-1, 2 * self.n] - xs[0, 2 * self.n]) / (times[-1] - times[0]))
        k = int(np.argmax(error))
        return [
            f"commanded {self.settings.speed:.2f} m/s, achieved {mean:.2f} m/s (mean speed along the path)",
            f"largest distance from the path {1e3 * error[k]:.2g} mm, at t = {times[k]:.3g} s",
        ]


def contour_point(place: int, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    """Return the path point at the parameter x[place] [m]; p: start (3,) and shape (radius, height) of the path [m]."""
    radius, height = p["shape"][0], p["shape"][1]
    angle = x[place] / radius
    c, s = sm.cos(angle), sm.sin(angle)
    return [p["start"][0] + radius * (c - 1.0), p["start"][1] + radius * s, p["start"][2] + 2.0 * height * s * c]


def joint_torques(model: Model, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
    """Return the torques (nv, N) of the motors for accelerations u at state x."""
    n = model.nv
    return sm.stack(with_springs(model, x[:n], rnea(model, x[:n], x[n : 2 * n], u[:n])))
