"""Conversion between multiplier arrays of the interior point and a dictionary by constraint name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.solvers.direct.program_parts import add_by_name
from trajopt.solvers.interior.library import ABSENT, INEQUALITY, Multipliers
from trajopt.solvers.interior.stage_program import Point, StageProgram


def by_name(program: StageProgram, z: Multipliers, scale: float) -> dict[str, Array]:
    """Return the multipliers z divided by ``scale``, the factor of the objective, in a dictionary of arrays.

    Keys: "dynamics" (N, n); each constraint (knots, rows), "terminal NAME" at the final knot; "bounds on x" (N + 1, n), "bounds on
    u" (N, m): upper minus lower multiplier. Fixed state entries get the multiplier of their equation.
    """
    found = {"dynamics": z.lam / scale}
    for (k, constraints), (_, rows, count) in zip(program.groups, program.parts, strict=True):
        values = z.y[rows].reshape(k.stop - k.start, count) / scale
        add_by_name(found, constraints, values, terminal=k.start == program.N)
    bounds = (z.zu - z.zl) / scale
    bounds[program.fixed_places] = z.f / scale
    on_x = bounds[: program.u.start].reshape(program.N + 1, program.n)
    return found | {"bounds on x": on_x, "bounds on u": bounds[program.u].reshape(program.N, program.m)}


def initial_state_multiplier(program: StageProgram, p: Point, z: Multipliers, scale: float) -> Array:
    """Return the multiplier (n,) of the given x_0 that makes the Lagrangian stationary in x_0, for the objective without ``scale``.

    z: multipliers for the objective times ``scale``.
    """
    own = slice(program.row[0], program.row[1])
    return -(p.lx[0] + (p.A[0].T @ z.lam[0] + p.gx[own].T @ z.y[own]) / scale)


def held_control_multipliers(program: StageProgram, p: Point, z: Multipliers, scale: float) -> Array:
    """Return multipliers (N, m) that make the Lagrangian stationary in controls held by equal bounds; zero for other controls.

    They are for the objective without ``scale``, z for the objective times ``scale``. Evaluates the derivatives at p again.
    """
    program.first(p, by_held=True)
    gradient = p.lu + (z.lam[:, None] @ p.B)[:, 0] / scale
    for k, rows, count in program.parts[:-1]:
        gu, y = p.gu[rows].reshape(k.stop - k.start, count, program.m), z.y[rows].reshape(k.stop - k.start, 1, count)
        gradient[k] += (y @ gu)[:, 0] / scale
    program.first(p)
    return np.where(program.still_read, -gradient, 0.0)


def from_names(program: StageProgram, named: Mapping[str, Array], scale: float, z: Multipliers) -> None:
    """Write multipliers by name, times ``scale``, into z; the inverse of :func:`by_name`.

    Skips names that are missing or differ in shape.
    """
    own = by_name(program, _row_numbers(program), 1.0)
    for name, places in own.items():
        values = np.asarray(named.get(name, np.zeros(0)))
        if values.shape != places.shape:
            continue
        _write_multipliers(program, name, places, scale * values, z)


def _row_numbers(program: StageProgram) -> Multipliers:
    """Allocate multipliers whose y are the row numbers 0, 1, ..., so that :func:`by_name` returns the rows of each constraint."""
    z = program.multipliers()
    z.y[:] = np.arange(program.rows)
    return z


def _write_multipliers(program: StageProgram, name: str, places: Array, values: Array, z: Multipliers) -> None:
    """Write the values of one name into z in place; places: row numbers of a constraint, ignored for "dynamics" and bounds.

    Values of bounds are split by sign into zu and zl; those of fixed state entries also go to f. Inequality rows also set zu, zl of
    their slacks; absent rows get 0.
    """
    if name == "dynamics":
        z.lam[:] = values
    elif name in ("bounds on x", "bounds on u"):
        on = slice(0, program.u.start) if name == "bounds on x" else program.u
        z.zu[on], z.zl[on] = np.maximum(values, 0.0).ravel(), np.maximum(-values, 0.0).ravel()
        if name == "bounds on x":
            z.f[:] = values.ravel()[program.fixed_places]
    else:
        rows = places.astype(int).ravel()
        y = np.where(program.kind[rows] == ABSENT, 0.0, values.ravel())
        z.y[rows] = y
        slack = program.kind[rows] == INEQUALITY
        z.zu[program.s][rows] = np.where(slack, np.maximum(y, 0.0), 0.0)
        z.zl[program.s][rows] = np.where(slack, np.maximum(-y, 0.0), 0.0)
