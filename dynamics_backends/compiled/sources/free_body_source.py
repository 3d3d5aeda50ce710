"""Dynamics of free rigid bodies in the package's library: forward dynamics in joint space, FDSVA, and its second order.

One text serves every robot; its data are the struct free_body_t (templates/free_body/free_body.h).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel import template, templates
from dynamics_backends.compiled.loops.kernel_data import double_tables, int_tables
from dynamics_backends.compiled.loops.loops import loop_kernel
from dynamics_backends.compiled.runtime.memory import address, bound, pointers, structs_in
from dynamics_backends.machine import library as machine
from dynamics_backends.rigid_body.algorithms.forward_dynamics import FORWARD_DYNAMICS
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.spatial.joints import JOINTS
from dynamics_backends.systems.bodies.free_body import FreeBody

ORDERS = "value", "partials", "contracted"
"""Functions of a robot by the order of their derivatives."""
_PROGRAMS = dict(zip(ORDERS, (FORWARD_DYNAMICS, FDSVA, FD_SECOND_ORDER), strict=True))
_MORE_WORKSPACE = {"value": 0, "partials": 3, "contracted": 7}
"""Matrices (nv x nv) in the workspace beside that of the kernel."""
_EXPORTS = """
EXPORT run_t *const free_body_functions[] = {free_body_value, free_body_partials, free_body_contracted};
"""
_WORKSPACE = """
EXPORT long free_body_{order}_workspace(const int *head)
{{
    const int nb = head[0], nv = head[1], nq = head[2];
    (void)nb;
    return FREE_INPUTS_WORKSPACE(nv, nq) + {matrices} * nv * nv + ({workspace});
}}
"""
(_Data,) = structs_in(template("free_body/free_body.h"), "free_body_t")


def source() -> str:
    """C source for the package's library."""
    kernels = {order: loop_kernel(p.given("armature"), sorted(JOINTS)) for order, p in _PROGRAMS.items()}
    calls, workspaces = [], []
    for order, program in _PROGRAMS.items():
        names = ", ".join("rotors" if name == "armature" else name for name in program.given("armature").arguments)
        head = f"#define {program.name.upper()}(s, q, v, tau, lam, rotors, ...)"
        calls.append(f"{head} {kernels[order].name}((s)->ti, (s)->td, {names}, __VA_ARGS__)")
        workspaces.append(
            _WORKSPACE.format(order=order, matrices=_MORE_WORKSPACE[order], workspace=kernels[order].workspace)
        )
    texts = [templates(), template("lanes/function.h"), *(k.source for k in kernels.values()), *calls]
    return "\n".join([*texts, template("free_body/free_body.h"), _EXPORTS, *workspaces])


class FreeBodyFunctions:
    """Functions dynamics_value, dynamics_partials and dynamics_contracted of a robot, without a compiler.

    parameters: entries of p before the implicit step, if the system has one. lanes: SIMD lanes of the code that calls them.
    """

    def __init__(self, system: FreeBody, parameters: int, lanes: int | None) -> None:
        model = system.model
        self.rows = model.nv
        integers, doubles = int_tables(model), double_tables(model)
        driven, shares = [d for d, _ in system.shares], [share for _, share in system.shares]
        none = np.zeros(model.nv)
        place = [int(model.q_index[b]) for b in model.dof_body]
        arrays = {
            "driven": np.array([*driven, 0], np.int32),
            "place": np.array([*place, 0], np.int32),
            "share": np.array([*shares, 0.0]),
            "viscous": none if system.viscous is None else np.ravel(system.viscous),
            "coulomb": none if system.coulomb is None else np.ravel(system.coulomb),
            "stiffness": np.asarray(model.stiffness, float),
            "rest": np.asarray(model.spring_reference, float),
            "rotor": np.asarray(model.armature, float),
            "damped": none if system.offsets is None else system.damping_of_joints,
        }
        arrays = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
        ti, td = pointers(integers), pointers(doubles)
        numbers = {"nv": model.nv, "nq": model.nq, "nu": system.nu, "floating": bool(model.floating_base)}
        step = -1 if system.offsets is None else parameters
        tables = {"ti": ctypes.addressof(ti), "td": ctypes.addressof(td)}
        places = {name: address(values) for name, values in arrays.items()}
        slip = float(system.friction_velocity or 1.0)
        self.data = _Data(slip=slip, step=step, **tables, **places, **numbers)
        self._memory = integers, doubles, ti, td, arrays
        library, head = machine.kernels(lanes), address(integers[0])
        codes = (ctypes.c_void_p * len(ORDERS)).in_dll(library, "free_body_functions")
        self.codes: dict[str, int | None] = dict(zip(ORDERS, codes, strict=True))
        workspaces = (bound(library, f"free_body_{order}_workspace", "p", ctypes.c_long) for order in ORDERS)
        self.workspace = max(int(workspace(head)) for workspace in workspaces)

    def function(self, order: str) -> tuple[Any, int]:
        """Address of a function, one of :data:`ORDERS`, and of its data, the members of function_t."""
        return self.codes[order], ctypes.addressof(self.data)
