"""Points and factored systems of the interior-point method."""

import ctypes

import numpy as np

from dynamics_backends.compiled.runtime.memory import bound
from dynamics_backends.machine.library import kernels


def set_trajectory(program, point, xs, us):
    """Write a trajectory into a point; x0 of the problem and the values of held controls replace those of the trajectory."""
    point.xs[:], point.us[:] = xs, np.where(program.held, program.held_at, us)
    point.xs[0] = program.ocp.x0


def factored(system):
    """Factor a condensed system, with reflected Hessians where it is not positive definite; False if that fails."""
    return bool(bound(kernels(), "ipm_factor", "pi", ctypes.c_int)(ctypes.addressof(system.data), True))
