"""Derivatives of forward dynamics by Pinocchio and CasADi, each as a call for one fixed batch of knots.

Pinocchio: computeABADerivatives, called from Python. CasADi: the Jacobian of the articulated-body algorithm by AD, as C code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.sample_models import ROD_LENGTH, chain
from experiments.analysis.timing import joined_samples, samples
from experiments.baselines.generated_code import generated
from experiments.benchmarks.derivatives.benchmark_first_order import load

Array = np.ndarray
PATIENCE = 60.0  # [s] time limit for the compilation of CasADi's code


def pinocchio_call(pin_model: Any, points: list[tuple[Array, ...]]) -> Callable[[], Any]:
    """Return a call that loops over the knots."""
    import pinocchio as pin

    data = pin_model.createData()

    def call() -> None:
        for point in points:
            pin.computeABADerivatives(pin_model, data, *point)

    return call


def robot_and_peer(name: str, batch: int) -> tuple[Model, Callable[[], Any]]:
    """Return a robot of example-robot-data or a "chain of N" rods, and Pinocchio's call for a batch."""
    if name.startswith("chain"):
        model = chain(int(name.split()[-1]))
        return model, pinocchio_call(_pinocchio_chain(model.nv), list(zip(*samples(model, batch), strict=True)))
    r = load(name)
    q, v, tau = samples(r.model, batch)
    c = r.converter
    return r.model, pinocchio_call(r.pin_model, list(zip(c.q_to_pin(q), c.v_to_pin(v), c.v_to_pin(tau), strict=True)))


def _pinocchio_chain(n: int) -> Any:
    """Build the chain of :func:`sample_models.chain` in Pinocchio."""
    import pinocchio as pin

    model, rods = pin.Model(), chain(2)
    joints = (pin.JointModelRZ(), pin.JointModelRY())
    rod = pin.Inertia(float(rods.mass[0]), np.array([ROD_LENGTH / 2, 0.0, 0.0]), np.array(rods.inertia[0]))
    for b in range(n):
        place = pin.SE3(np.eye(3), np.array([ROD_LENGTH if b else 0.0, 0.0, 0.0]))
        joint = model.addJoint(b, joints[b % 2], place, f"joint{b}")
        model.appendBodyToJoint(joint, rod, pin.SE3.Identity())
    return model


def casadi_call(model: Model, batch: int) -> Callable[[], Any] | None:
    """Return CasADi's C code of the Jacobian of ABA in (q, v, tau) for a batch, or None if it does not compile in time."""
    import casadi as ca

    from dynamics_backends.rigid_body.algorithms.aba import aba

    n, nq = model.nv, model.nq
    x = ca.SX.sym("x", nq + 2 * n)
    jacobian = ca.densify(ca.jacobian(aba(model, x[:nq], x[nq : nq + n], x[nq + n :]), x))
    code = generated(ca.Function("jacobian", [x], [jacobian]), joined_samples(model, batch), PATIENCE)
    if code.call is None:
        print(f"{model.name}: CasADi's code does not compile in {PATIENCE:g} s")
    return code.call
