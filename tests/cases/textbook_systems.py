"""Small systems with known properties, for all scalar types, and their equivalents for scipy."""

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import SE3, SO3, Manifold, vector_space
from dynamics_backends.protocol import FunctionMap

GRAVITY = 9.81
INERTIA = (0.7, 1.1, 1.9)  # principal moments of the free body [kg m^2]
MASS = 2.0


def pendulum(nu=1):
    """A damped pendulum, q = 0 hanging, driven by its control and by the time."""

    def f(x, u, t, p):
        return [x[1], -GRAVITY * sm.sin(x[0]) - 0.1 * x[1] + u[0] + 0.5 * sm.sin(2.0 * t)]

    return FunctionMap(f, Manifold.vector(2, ("angle", "rate")), nu, second_order=True)


def autonomous_pendulum():
    """An undamped pendulum, q = 0 hanging."""
    manifold = Manifold.vector(2, ("angle", "rate"))
    return FunctionMap(lambda x, u, t, p: [x[1], -GRAVITY * sm.sin(x[0]) + u[0]], manifold, 1, second_order=True)


def cart_pole(mc=1.0, mp=0.3, length=0.5):
    """Cart position and pole angle (0 hanging); Kelly, SIAM Review 59, 2017, eq. 6.1-6.2."""

    def f(x, u, t, p):
        s, c, rate2 = sm.sin(x[1]), sm.cos(x[1]), x[3] * x[3]
        mass = mc + mp * s * s
        cart = (length * mp * s * rate2 + u[0] + mp * GRAVITY * c * s) / mass
        pole = -(length * mp * c * s * rate2 + u[0] * c + (mc + mp) * GRAVITY * s) / (length * mass)
        return [x[2], x[3], cart, pole]

    manifold = Manifold.vector(4, ("cart", "pole", "cart rate", "pole rate"))
    return FunctionMap(f, manifold, 1, second_order=True)


def double_integrator():
    """A mass on a line."""
    return FunctionMap(lambda x, u, t, p: [x[1], u[0]], Manifold.vector(2, ("position", "speed")), 1, second_order=True)


def _euler_equations(w, torque):
    a, b, c = INERTIA
    return [
        (torque[0] - (c - b) * w[1] * w[2]) / a,
        (torque[1] - (a - c) * w[2] * w[0]) / b,
        (torque[2] - (b - a) * w[0] * w[1]) / c,
    ]


def spinning_body():
    """Attitude and angular velocity in the body, SO(3) x R^3, under body torques: Euler's equations."""

    def f(x, u, t, p):
        return [x[4], x[5], x[6], *_euler_equations(x[4:7], u)]

    names = ("rx", "ry", "rz", "wx", "wy", "wz")
    return FunctionMap(f, Manifold([SO3, vector_space(3)], names), 3, second_order=True)


def attitude_kinematics():
    """Attitude alone, SO(3), turned by a body rate that depends on attitude, control and time."""

    def f(x, u, t, p):
        return [u[0] + x[0] * x[3], u[1] + sm.cos(t) * x[1], u[2] + x[2] * x[2] + sm.sin(t)]

    return FunctionMap(f, Manifold([SO3]), 3)


def free_body():
    """A rigid body, SE(3) x R^6, velocity [linear, angular] in the body, under gravity, body force and torque."""

    def f(x, u, t, p):
        qx, qy, qz, qw = (x[i] for i in range(3, 7))
        v, w = [x[i] for i in range(7, 10)], [x[i] for i in range(10, 13)]
        # third row of R: the world's vertical in the body
        up = [2.0 * (qx * qz - qw * qy), 2.0 * (qy * qz + qw * qx), 1.0 - 2.0 * (qx * qx + qy * qy)]
        wxv = [w[1] * v[2] - w[2] * v[1], w[2] * v[0] - w[0] * v[2], w[0] * v[1] - w[1] * v[0]]
        linear = [u[i] / MASS - wxv[i] - GRAVITY * up[i] for i in range(3)]
        return [*v, *w, *linear, *_euler_equations(w, u[3:6])]

    names = [f"{kind}{axis}" for kind in ("p", "r", "v", "w") for axis in "xyz"]
    return FunctionMap(f, Manifold([SE3, vector_space(6)], names), 6, second_order=True)


def coordinate_rate(system, u):
    """The system as dx/dt in the nx coordinates, for scipy: quaternions by q' = 1/2 q (w, 0), positions by p' = R v."""

    def rate(t, x):
        tangent = np.asarray(system(x[:, None], u[:, None], np.array([t]), {}))[:, 0]
        parts, iq, iv = [], 0, 0
        for group in system.manifold.groups:
            own, at = tangent[iv : iv + group.nv], x[iq : iq + group.nq]
            if group.name == "SE(3)":
                parts += [_rotation(at[3:]) @ own[:3], _quaternion_rate(at[3:], own[3:])]
            else:
                parts.append(_quaternion_rate(at, own) if group.name == "SO(3)" else own)
            iq, iv = iq + group.nq, iv + group.nv
        return np.concatenate(parts)

    return rate


def _quaternion_rate(q, w):
    x, y, z, s = q
    matrix = np.array([[s, -z, y], [z, s, -x], [-y, x, s], [-x, -y, -z]])
    return 0.5 * matrix @ w


def _rotation(q):
    from scipy.spatial.transform import Rotation

    return Rotation.from_quat(q).as_matrix()
