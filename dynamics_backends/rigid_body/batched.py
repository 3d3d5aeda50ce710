"""The rigid-body algorithms for scripts: batch first, (N, n) in and (N, ...) out; for a single point (n,), results have no N.

The algorithms themselves work on rows, component first; each has a module of its name. Arrays may be float64 or complex128.
Velocities and forces of a floating base are in its LOCAL frame; spatial vectors are [linear; angular]. Units are q [rad, m],
v [rad/s, m/s], a [rad/s^2, m/s^2] and tau [N m, N], for revolute and prismatic joints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms import kinematics, ltl
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.algorithms.external_forces import Wrench, body_forces
from dynamics_backends.rigid_body.algorithms.rnea import nonlinear_effects as nonlinear_effects_rows, rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalars.entries import Entries, Entry, NoNumber

FrameWrench = tuple[str, Array, str]
"""Frame name, wrench (N, 6) or (6,) = [force; moment], reference LOCAL, WORLD or LOCAL_WORLD_ALIGNED."""


class _Call:
    """Checked arguments as rows, and the conversion of results."""

    def __init__(self, model: Model, wrenches: Sequence[FrameWrench] = (), **arguments: Array) -> None:
        """Check arguments (n,) or (N, n), and repeat single ones over the batch.

        Raises ValueError for wrong shapes, wrenches of another form, or batches of different sizes.
        """
        if any(isinstance(given, str) or len(given) != 3 for given in wrenches):
            raise ValueError("wrenches must be a list of (frame, wrench, reference)")
        self.model, self.wrenches = model, [(frame, reference) for frame, _, reference in wrenches]
        sizes = {name: ("nq", model.nq) if name == "q" else ("nv", model.nv) for name in arguments}
        arrays = [_checked(name, value, *sizes[name]) for name, value in arguments.items()]
        arrays += [_checked(f"the wrench on {frame!r}", w, "[force; moment]", 6) for frame, w, _ in wrenches]
        self.single = all(v.ndim == 1 for v in arrays)
        rows = [np.atleast_2d(v).T for v in arrays]
        batches = {r.shape[1] for r in rows} - {1}
        if len(batches) > 1:
            raise ValueError(f"batches of different sizes {sorted(batches)}")
        n = batches.pop() if batches else 1
        rows = [np.broadcast_to(r, (len(r), n)) for r in rows]
        self.rows: dict[str, Any] = dict(zip(arguments, rows, strict=False))
        self._forces = rows[len(arguments) :]

    def forces(self) -> Any:
        """Wrenches as forces on the bodies, in their frames; None without wrenches."""
        if not self.wrenches:
            return None
        given = zip(self.wrenches, self._forces, strict=True)
        listed = [Wrench(self.model.frame_id(frame), w, reference) for (frame, reference), w in given]
        return body_forces(self.model, self.rows["q"], listed)

    def out(self, result: Any) -> Array:
        """Array (N, ...) of a result (..., N); without N if all arguments, wrenches included, were single points."""
        array = np.ascontiguousarray(np.moveaxis(np.asarray(result), -1, 0))
        return array[0] if self.single else array


F = TypeVar("F", bound=Callable[..., Any])


def _for_numbers(instead: str) -> Callable[[F], F]:
    """Decorate a function of plain numbers, so that entries, dual numbers and symbols raise NoNumber.

    instead: the replacement that the message suggests for residuals and dynamics.
    """

    def decorated(function: F) -> F:
        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            """Call the function. Raises NoNumber for arguments that are no plain numbers."""
            if any(map(_is_for_residuals, (*args, *kwargs.values()))):
                raise NoNumber(
                    f"to.{function.__name__} takes plain numbers only; inside of a residual or of dynamics call {instead}"
                )
            return function(*args, **kwargs)

        return cast(F, checked)

    return decorated


def _is_for_residuals(value: Any) -> bool:
    """True for entries, dual numbers and symbols, and for lists or tuples that contain entries or symbols."""
    if isinstance(value, (Entry, Entries)) or hasattr(value, "is_symbolic") or hasattr(value, "directions"):
        return True
    return isinstance(value, (list, tuple)) and any(isinstance(e, Entry) or hasattr(e, "is_symbolic") for e in value)


def _checked(name: str, value: Array, size: str, expected: int) -> Array:
    """Convert an argument to an array, (expected,) or (N, expected), of float64 or complex. Raises ValueError for other shapes.

    name, size: names of the argument and of its length, for the message.
    """
    array = np.asarray(value)
    if array.ndim not in (1, 2) or array.shape[-1] != expected:
        raise ValueError(f"{name} has shape {array.shape}; expected ({size} = {expected},) or (N, {expected})")
    return array if array.dtype.kind == "c" else array.astype(float)


@_for_numbers("to.InverseDynamics(model)")
def inverse_dynamics(model: Model, q: Array, v: Array, a: Array, wrenches: Sequence[FrameWrench] = ()) -> Array:
    """Joint forces (N, nv) [N, N m] for q (N, nq), v and a (N, nv), with external wrenches on frames.

    wrenches: list of (frame name, wrench (N, 6) or (6,) = [force N; moment N m], reference), with the reference LOCAL, WORLD or
    LOCAL_WORLD_ALIGNED.

    For one point, q (nq,), the result is (nv,). Springs, damping and dry friction of the joints are not included; controls that
    hold q are ``to.inverse_dynamics(model, q, 0 v, 0 v) - model.spring_forces(q)``.

    >>> import trajopt as to
    >>> pendulum = to.load_robot("double_pendulum")  # two rods of 1 kg and 1 m, at rest, stretched out to the side
    >>> to.inverse_dynamics(pendulum, [-0.5 * 3.14159265, 0.0], [0.0, 0.0], [0.0, 0.0]).round(3)
    array([-19.62 ,  -4.905])
    """
    c = _Call(model, wrenches, q=q, v=v, a=a)
    return c.out(rnea(model, **c.rows, f_ext=c.forces()))


@_for_numbers("to.FreeBody(model)")
def forward_dynamics(model: Model, q: Array, v: Array, tau: Array, wrenches: Sequence[FrameWrench] = ()) -> Array:
    """Joint accelerations (N, nv) for q (N, nq), v and joint forces tau (N, nv), with external wrenches on frames.

    wrenches: list of (frame name, wrench (N, 6) or (6,) = [force N; moment N m], reference), with the reference LOCAL, WORLD or
    LOCAL_WORLD_ALIGNED.

    For one point, q (nq,), the result is (nv,). Springs, damping and dry friction of the joints are not included, nor in the
    derivatives and :func:`inverse_dynamics`; ``to.FreeBody`` adds them.

    >>> import numpy as np, trajopt as to
    >>> rods, q, v, tau = to.chain(2), [0.3, -0.1], [1.0, 0.5], [0.2, 0.1]
    >>> a = to.forward_dynamics(rods, q, v, tau)
    >>> np.allclose(to.inverse_dynamics(rods, q, v, a), tau)
    True
    """
    c = _Call(model, wrenches, q=q, v=v, tau=tau)
    return c.out(aba(model, **c.rows, f_ext=c.forces()))


@_for_numbers("to.NonlinearEffects(model)")
def nonlinear_effects(model: Model, q: Array, v: Array) -> Array:
    """Coriolis, centrifugal and gravity forces C(q, v) v + g(q), (N, nv); (nv,) for one point q (nq,)."""
    c = _Call(model, q=q, v=v)
    return c.out(nonlinear_effects_rows(model, **c.rows))


@_for_numbers("to.MassMatrix(model)")
def mass_matrix(model: Model, q: Array) -> Array:
    """Mass matrix M(q), (N, nv, nv), rotor inertias included; (nv, nv) for one point q (nq,)."""
    c = _Call(model, q=q)
    return c.out(crba(model, **c.rows))


@_for_numbers("to.FreeBody(model)")
def solve_mass_matrix(model: Model, q: Array, x: Array) -> Array:
    """Product M(q)^-1 x (N, nv) with the inverse of the mass matrix, for q (N, nq) and x (N, nv); (nv,) for one point.

    With joint forces x [N, N m], the product is the accelerations [m/s^2, rad/s^2] that they cause.
    """
    c = _Call(model, q=q, x=x)
    factor = ltl.factor(crba(model, c.rows["q"]), model.dof_parent.tolist())
    return c.out(np.stack(ltl.solve(factor, list(c.rows["x"]))))


@_for_numbers("to.InverseDynamics(model)")
def inverse_dynamics_derivatives(model: Model, q: Array, v: Array, a: Array) -> tuple[Array, Array, Array]:
    """Derivatives of the joint forces d tau/dq, d tau/dv and d tau/da = M, each (N, nv, nv); (nv, nv) for one point.

    q: (N, nq) [rad, m]; v: (N, nv) [rad/s, m/s]; a: (N, nv) [rad/s^2, m/s^2].
    """
    c = _Call(model, q=q, v=v, a=a)
    d = rnea_derivatives(model, **c.rows)
    return c.out(d.dq), c.out(d.dv), c.out(d.M)


@_for_numbers("to.FreeBody(model)")
def forward_dynamics_derivatives(model: Model, q: Array, v: Array, tau: Array) -> tuple[Array, Array, Array]:
    """Derivatives of the accelerations d a/dq, d a/dv and d a/dtau = M^-1, each (N, nv, nv); (nv, nv) for one point.

    q: (N, nq) [rad, m]; v: (N, nv) [rad/s, m/s]; tau: (N, nv) [N m, N].
    """
    c = _Call(model, q=q, v=v, tau=tau)
    d = fd_derivatives(model, **c.rows)
    return c.out(d.dq), c.out(d.dv), c.out(d.dtau)


@_for_numbers("to.kinematics.center_of_mass")
def center_of_mass(model: Model, q: Array) -> Array:
    """World position (N, 3) [m] of the center of mass of all moving bodies; (3,) for one point q (nq,)."""
    c = _Call(model, q=q)
    return c.out(kinematics.center_of_mass(model, **c.rows))


@_for_numbers("to.kinematics.kinetic_energy and to.kinematics.potential_energy")
def energy(model: Model, q: Array, v: Array) -> tuple[Array, Array]:
    """Kinetic energy, rotors included, and potential energy, zero for a center of mass at the world's origin.

    Each (N,) [J], () for one point.
    """
    c = _Call(model, q=q, v=v)
    potential = kinematics.potential_energy(model, c.rows["q"])
    return c.out(kinematics.kinetic_energy(model, **c.rows)), c.out(potential)


@_for_numbers("to.kinematics.spatial_momentum")
def spatial_momentum(model: Model, q: Array, v: Array) -> Array:
    """Linear and angular momentum (N, 6) [kg m/s, kg m^2/s] of all moving bodies about the world's origin; (6,) for one point.

    It is in world axes. The momentum of rotors (armature) is not included.
    """
    c = _Call(model, q=q, v=v)
    return c.out(kinematics.spatial_momentum(model, **c.rows))


@_for_numbers("to.kinematics.frame_position and to.kinematics.frame_rotation")
def frame_placement(model: Model, q: Array, frame: str) -> tuple[Array, Array]:
    """Rotation (N, 3, 3), world from frame, and world position (N, 3) [m]; without N for one point q (nq,).

    >>> import trajopt as to
    >>> model = to.load_robot("double_pendulum")
    >>> R, p = to.frame_placement(model, [[0.0, 0.0], [3.14159265, 0.0]], "lower_rod")
    >>> p[:, 2].round(6)  # below and above the shoulder
    array([-1.,  1.])
    """
    c = _Call(model, q=q)
    rotation, position = kinematics.frame_placement(model, c.rows["q"], model.frame_id(frame))
    return c.out(np.array(rotation)), c.out(position)


@_for_numbers("to.kinematics.frame_velocity")
def frame_velocity(model: Model, q: Array, v: Array, frame: str, reference: str = "LOCAL_WORLD_ALIGNED") -> Array:
    """Velocity (N, 6) = [linear m/s; angular rad/s] of a frame, (6,) for one point.

    reference: LOCAL, WORLD or LOCAL_WORLD_ALIGNED.
    """
    c = _Call(model, q=q, v=v)
    return c.out(kinematics.frame_velocity(model, **c.rows, frame=model.frame_id(frame), reference=reference))


@_for_numbers("to.kinematics.frame_jacobian")
def frame_jacobian(model: Model, q: Array, frame: str, reference: str = "LOCAL_WORLD_ALIGNED") -> Array:
    """Jacobian (N, 6, nv) of the frame's velocity [linear; angular] in v, without N for one point.

    reference: LOCAL, WORLD or LOCAL_WORLD_ALIGNED.
    """
    c = _Call(model, q=q)
    entries = kinematics.frame_jacobian(model, c.rows["q"], model.frame_id(frame), reference)
    return c.out(entries.reshape(6, model.nv, -1))


@_for_numbers("to.kinematics.frame_jacobian_rate")
def frame_jacobian_rate(model: Model, q: Array, v: Array, frame: str, reference: str = "LOCAL_WORLD_ALIGNED") -> Array:
    """Time derivative (N, 6, nv) of :func:`frame_jacobian` at velocity v, without N for one point."""
    c = _Call(model, q=q, v=v)
    entries = kinematics.frame_jacobian_rate(model, **c.rows, frame=model.frame_id(frame), reference=reference)
    return c.out(entries.reshape(6, model.nv, -1))
