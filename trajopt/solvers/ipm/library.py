"""The compiled functions of the folder kernels, and the structs that they take."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, bound, load, loaded_soon, struct_of
from trajopt.lq.equality_lq import kernel_source
from trajopt.stage.start import starts_at_once

ABSENT, INEQUALITY, EQUALITY = 0, 1, 2
"""Kinds of rows."""
NEWTON, FEASIBILITY, ESTIMATE = 0, 1, 2
"""What a linear system is for: a step, a step towards feasibility alone, an estimate of multipliers."""
LONG = np.dtype(ctypes.c_long)
StructureData = struct_of("ipm_structure", "N:l rows:l fixes:l row fix fixed kind held lower upper target at")
PointData = struct_of("ipm_point", "v d g A B lx lu gx gu Q S R")
MultiplierData = struct_of("ipm_multipliers", "lam y zl zu f")
CondensedData = struct_of("ipm_condensed", "Q S R q r d C D e Sigma phi row")


OracleData = struct_of("ipm_oracle", "v0 zl0 zu0 v1 zl1 zu1 mean:d dual:d primal:d share:d count:l")


class SettingsData(ctypes.Structure):
    """ipm_settings."""

    _fields_ = [(name, ctypes.c_double) for name in ("mu", "scale", "weight", "soft")] + [("mode", ctypes.c_long)]


class Kernels:
    """The library for n = ndx states and m = nu controls, that of a compiler in a hurry where a solve starts at once.

    Raises CompilerError without a compiler.
    """

    def __init__(self, ndx: int, nu: int) -> None:
        library = _library(ndx, nu, soon=starts_at_once())
        self.condense = bound(library, "ipm_condense", "ppppp")
        self.vectors = bound(library, "ipm_vectors", "ppppppp")
        self.barrier = bound(library, "ipm_barrier", "ppdp")
        self.residuals = bound(library, "ipm_residuals", "ppppp")
        self.recover = bound(library, "ipm_recover", "pppppppdppp")
        self.move_duals = bound(library, "ipm_move_duals", "pppdddp")
        self.values = bound(library, "ipm_values", "ppppp")
        self.measure = bound(library, "ipm_measure", "pppddp")
        self.centering = bound(library, "ipm_centering", "pppp dd", ctypes.c_double)
        self.push = bound(library, "ipm_push", "ppddp")


def source(ndx: int, nu: int) -> str:
    """The text of the functions."""
    return kernel_source(ndx, nu, [("trajopt.solvers.ipm", name) for name in ("interior_point.h", "centering.h")])


@lru_cache(maxsize=16)
def _library(ndx: int, nu: int, *, soon: bool) -> ctypes.CDLL:
    return (loaded_soon if soon else load)(source(ndx, nu))


class Multipliers:
    """lam (N, n) of the dynamics, y (rows), zl and zu of the bounds on v, f of the fixed numbers of the state."""

    def __init__(self, sizes: tuple[int, int, int, int, int]) -> None:
        N, n, rows, numbers, fixes = sizes
        self.lam, self.y, self.f = np.zeros((N, n)), np.zeros(rows), np.zeros(fixes)
        self.zl, self.zu = np.zeros(numbers), np.zeros(numbers)
        self.data = MultiplierData(*map(address, (self.lam, self.y, self.zl, self.zu, self.f)))
        self.ref = ctypes.addressof(self.data)
