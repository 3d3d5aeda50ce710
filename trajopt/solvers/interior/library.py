"""Bindings of the C kernels of the interior point: linear algebra, and the structs of its arguments."""

from __future__ import annotations

import ctypes

import numpy as np

from dynamics_backends.compiled.loops.kernel import definitions, kernel_text, prelude, template
from dynamics_backends.compiled.runtime.memory import bound, structs_in
from dynamics_backends.machine.library import kernels
from trajopt.lq import equality_lq
from trajopt.lq.equality_lq import allotted
from trajopt.solvers.rules.regularization import FASTER, FIRST_SHIFT, LOWER, RAISE

ABSENT, INEQUALITY, EQUALITY = 0, 1, 2
"""Kinds of constraint rows."""
NEWTON, FEASIBILITY, ESTIMATE = 0, 1, 2
"""Purposes of a linear system: a Newton step, a feasibility step, an estimate of multipliers."""
LONG = np.dtype(ctypes.c_long)
_PACKAGE = "trajopt.solvers.interior"
TEXT = "\n".join([equality_lq.TYPES, kernel_text(_PACKAGE, "interior_point.h", "newton.h")])
"""C source that declares the structs."""
StructureData, PointData, MultiplierData, CondensedData, StepData, SystemData = structs_in(
    TEXT, "ipm_structure", "ipm_point", "ipm_multipliers", "ipm_condensed", "ipm_step", "ipm_system"
)
FLOOR = 1e-8
"""Minimum eigenvalue of a reflected Hessian, relative to its largest eigenvalue."""
MIN_SHIFT, MAX_SHIFT = 1e-20, 1e40
"""Range of the shift, delta_w_min and delta_w_max of algorithm IC of Waechter and Biegler."""
CONSTANTS = definitions(
    {"ABSENT": ABSENT, "INEQUALITY": INEQUALITY, "EQUALITY": EQUALITY}
    | {"NEWTON": NEWTON, "FEASIBILITY": FEASIBILITY, "ESTIMATE": ESTIMATE}
    | {"REFLECTED_FLOOR": FLOOR, "FIRST_SHIFT": FIRST_SHIFT, "MIN_SHIFT": MIN_SHIFT, "MAX_SHIFT": MAX_SHIFT}
    | {"FASTER": FASTER, "RAISE": RAISE, "LOWER": LOWER}
)
"""C text of the constants, the generated header interior_constants.h."""


class Kernels:
    """Functions of the C library, bound by ctypes."""

    def __init__(self) -> None:
        library = kernels()
        self.build = bound(library, "ipm_build", "ppp")
        self.factor_damped = bound(library, "ipm_factor_damped", "pdd", ctypes.c_long)
        self.solve = bound(library, "ipm_solve", "pppp dp")
        self.residuals = bound(library, "ipm_residuals", "ppppp")
        self.move_duals = bound(library, "ipm_move_duals", "pppdddp")
        self.values = bound(library, "ipm_values", "ppppp")
        self.measure = bound(library, "ipm_measure", "pppddp")


def source() -> str:
    """Return the C source of the interior-point kernels, with their constants, lane helpers and the equality-constrained LQ."""
    own = kernel_text(_PACKAGE, "interior_point.h", "reflection.h", "centering.h", "newton.h")
    lanes = ["#include <stdlib.h>", prelude(), template("lanes/rows.h")]
    return "\n".join([CONSTANTS, *lanes, equality_lq.source(), own])


class Multipliers:
    """Multipliers: lam (N, n) of the dynamics, y (rows), zl and zu of the bounds on v, f of the fixed state entries."""

    def __init__(self, sizes: tuple[int, int, int, int, int]) -> None:
        N, n, rows, numbers, fixes = sizes
        arrays, at = allotted([(N, n), (rows,), (numbers,), (numbers,), (fixes,)])
        self.arrays = self.lam, self.y, self.zl, self.zu, self.f = arrays
        self.addresses = at
        self.data = MultiplierData(*at)
        self.ref = ctypes.addressof(self.data)
