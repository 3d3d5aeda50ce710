"""Dynamics in the package's library: free rigid bodies, and partial derivatives of any function by finite differences or by
complex or dual numbers.

Free bodies have forward dynamics in joint space, FDSVA, and its second order. One text serves every robot; its data are the struct
free_body_t (templates/free_body/free_body.h). The kernel of differences (templates/differences/partials_by_differences.h) calls the
value: a tape, or a function of the library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel import prelude, template, templates
from dynamics_backends.compiled.loops.kernel_data import double_tables, int_tables
from dynamics_backends.compiled.loops.loops import loop_kernel
from dynamics_backends.compiled.runtime.memory import address, bound, code_of, pointers, structs_in
from dynamics_backends.compiled.sources.manifold_source import factor_array, factors_of
from dynamics_backends.machine import library as machine
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.protocol import unwrapped
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
(_FreeBody,) = structs_in(template("free_body/free_body.h"), "free_body_t")


def programs_source() -> str:
    """C source of the recursions of free bodies as macros, the generated header rigid_body_programs.h."""
    kernels = {order: loop_kernel(p.with_argument("armature"), sorted(JOINTS)) for order, p in _PROGRAMS.items()}
    calls = []
    for order, program in _PROGRAMS.items():
        names = ", ".join(
            "rotors" if name == "armature" else name for name in program.with_argument("armature").arguments
        )
        head = f"#define {program.name.upper()}(s, q, v, tau, lam, rotors, ...)"
        calls.append(f"{head} {kernels[order].name}((s)->ti, (s)->td, {names}, __VA_ARGS__)")
    return "\n".join([*(k.source for k in kernels.values()), *calls])


def free_body_source() -> str:
    """C source of free bodies for the package's library."""
    workspaces = [
        _WORKSPACE.format(
            order=order,
            matrices=_MORE_WORKSPACE[order],
            workspace=loop_kernel(program.with_argument("armature"), sorted(JOINTS)).workspace,
        )
        for order, program in _PROGRAMS.items()
    ]
    headers = templates(), template("lanes/function.h"), programs_source(), template("free_body/free_body.h")
    return "\n".join([*headers, _EXPORTS, *workspaces])


class FreeBodyFunctions:
    """Functions dynamics_value, dynamics_partials and dynamics_contracted of a robot in the library, with its data.

    codes: addresses by name (of ORDERS); workspace: vectors that the largest function needs.

    parameters: entries of p before the implicit step, if the system has one. lanes: SIMD lanes of the code that calls them.
    """

    def __init__(self, system: FreeBody, parameters: int, lanes: int | None) -> None:
        model = system.model
        self.rows = model.nv
        integers, doubles = int_tables(model), double_tables(model)
        driven, shares = [d for d, _ in system.input_gains], [share for _, share in system.input_gains]
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
        self.data = _FreeBody(slip=slip, step=step, **tables, **places, **numbers)
        self._memory = integers, doubles, ti, td, arrays
        library, head = machine.kernels(lanes), address(integers[0])
        codes = (ctypes.c_void_p * len(ORDERS)).in_dll(library, "free_body_functions")
        self.codes: dict[str, int | None] = dict(zip(ORDERS, codes, strict=True))
        workspaces = (bound(library, f"free_body_{order}_workspace", "p", ctypes.c_long) for order in ORDERS)
        self.workspace = max(int(workspace(head)) for workspace in workspaces)

    def function(self, order: str) -> tuple[Any, int]:
        """Address of a function, by its name in :data:`ORDERS`, and of its data: the first two members of function_t."""
        return self.codes[order], ctypes.addressof(self.data)


POINTS = 8
"""Maximum number of points at which a tape is evaluated in one call: DIFFERENCES_POINTS in C."""
_DIFFERENCES_KERNEL = "differences/partials_by_differences.h"
_HEADERS = "lanes/function.h", "lanes/groups.h", _DIFFERENCES_KERNEL
(_Differences,) = structs_in("\n".join(map(template, _HEADERS)), "differences_t")


def differences_source() -> str:
    """C source, for the package's library, of derivatives by finite differences and by complex and dual numbers, and of functions
    for many rows.
    """
    kernels = *_HEADERS, "lanes/rows.h", "lanes/function_rows.h", "differences/partials_along.h"
    return "\n".join([prelude(), *map(template, kernels)])


class Differences:
    """Function dynamics_partials by differences, in the library, with its data.

    function: addresses of this function and of its data. points: number of points that the workspace of the value must hold.
    value: members of function_t of the value: addresses of the function, of its data, and of the function for several blocks.
    sizes: components of its inputs x, u, ... rows: number of its results. lanes: SIMD lanes of the code that calls the functions.
    """

    def __init__(
        self,
        method: FiniteDifference,
        value: tuple[int | None, int | None, int | None],
        sizes: Sequence[int],
        rows: int,
        lanes: int,
    ) -> None:
        map, library = unwrapped(method.map), machine.kernels(lanes)
        factors, components = factor_array(factors_of(map.manifold), lanes), np.array(sizes, np.int32)
        self.data = _Differences(
            *value,
            ctypes.addressof(factors),
            address(components),
            *_numbers(method, sizes, rows),
        )
        self.points = 1 if value[2] is None else POINTS
        self._memory = factors, components
        self.function = code_of(library.partials_by_differences), ctypes.addressof(self.data)


def _numbers(method: FiniteDifference, sizes: Sequence[int], rows: int) -> tuple[Any, ...]:
    """Members of differences_t behind its pointers: number of inputs, ndx, nu, rows, 1 for central differences, and the step."""
    map = unwrapped(method.map)
    return len(sizes), map.manifold.ndx, map.nu, rows, int(method.scheme == "central"), method.step
