"""Rigid-body dynamics and derivatives by Pinocchio (pip install pin): backend = "pinocchio" in a configuration."""

import numpy as np
import pinocchio as pin

import trajopt as to


class PinocchioBackend:
    """xdot = (v, ABA(q, v, tau)) of a robot that was read from a URDF file, with tau = B u - D v."""

    def __init__(self, system):
        robot = getattr(system, "model", None)
        if not isinstance(system, to.FreeBody) or not robot.source.endswith(".urdf"):
            raise ValueError("the backend pinocchio needs a trajopt.FreeBody of a URDF file; use another backend")
        base = (pin.JointModelFreeFlyer(),) if robot.floating_base else ()
        whole = pin.buildModelFromUrdf(robot.source, *base)
        locked = [whole.getJointId(name) for name in whole.names[1:] if name not in robot.joint_names]
        self.model = pin.buildReducedModel(whole, locked, pin.neutral(whole))
        self.data = self.model.createData()
        self.convert = to.PinocchioConverter(robot, self.model)
        self.model.armature = self.convert.v_to_pin(robot.armature)
        self.nq, self.nv = robot.nq, robot.nv
        self.order = self.convert.v_to_pin(np.arange(self.nv)).astype(
            int
        )  # Pinocchio sorts the joints of a file by name
        self.B = np.eye(self.nv)[:, list(system.actuated)]
        self.D = np.diag(np.zeros(self.nv) if system.viscous is None else system.viscous[:, 0])

    def f(self, x, u, t, p):
        """The time derivative (N, 2 nv) of the state."""
        accelerations = [pin.aba(self.model, self.data, *given) for given in self._given(x, u)]
        return np.hstack([x[:, self.nq :], self.convert.v_from_pin(np.array(accelerations))])

    def jacobians(self, x, u, t, p):
        """xdot (N, 2 nv), fx (N, 2 nv, 2 nv) in the tangent space, fu (N, 2 nv, nu)."""
        n, nv = len(x), self.nv
        xdot, fx, fu = np.zeros((n, 2 * nv)), np.zeros((n, 2 * nv, 2 * nv)), np.zeros((n, 2 * nv, self.B.shape[1]))
        here = np.argsort(self.order)
        for k, given in enumerate(self._given(x, u)):
            dq, dv, dtau = (
                part[np.ix_(here, here)] for part in pin.computeABADerivatives(self.model, self.data, *given)
            )
            xdot[k, nv:] = self.data.ddq[here]
            fx[k, nv:, :nv], fx[k, nv:, nv:], fu[k, nv:] = dq, dv - dtau @ self.D, dtau @ self.B
        xdot[:, :nv], fx[:, :nv, nv:] = x[:, self.nq :], np.eye(nv)
        return xdot, fx, fu

    def _given(self, x, u):
        """Pinocchio's q, v and tau of each state."""
        q, v = x[:, : self.nq], x[:, self.nq :]
        tau = self.convert.v_to_pin(u @ self.B.T - v @ self.D)
        return zip(self.convert.q_to_pin(q), self.convert.v_to_pin(v), tau, strict=True)
