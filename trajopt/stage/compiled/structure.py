"""Structure of a phase in C: sizes, factors of the manifold and integration scheme (kernels/structure.h)."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.interface import (
    Factor,
    address,
    bound,
    constant,
    factor_array,
    factors_in_c,
    factors_of,
    groups_source,
    kernel_text,
    kernels,
    structs_in,
    template,
)
from dynamics_backends.protocol import Array, Map, damping_offsets
from trajopt.problem.impact_stage import JUMP
from trajopt.stage.source.stage_shape import StageShape
from trajopt.step.integrators import EULER, RUNGE_KUTTA, SEMI_IMPLICIT_EULER

_StructureData, FunctionsData = structs_in(
    "\n".join([template("lanes/function.h"), kernel_text("trajopt.stage", "functions.h", "structure.h")]),
    "structure_t",
    "functions_t",
)


class Structure(NamedTuple):
    """Structure of a phase: numbers of structure_t, Runge-Kutta coefficients by name, and the factors of the manifold."""

    numbers: dict[str, int]
    tableau: dict[str, Array]
    factors: list[Factor]
    curved: list[Factor]

    @classmethod
    def of(cls, system: Map, shape: StageShape) -> Structure:
        """Return the structure of a phase from the system that its steps evaluate and its terms and constraints."""
        manifold, offsets = system.manifold, damping_offsets(system)
        factors = factors_of(manifold)
        curved = [f for f in factors if f.is_curved]
        tableau = EULER if shape.scheme in (JUMP, SEMI_IMPLICIT_EULER) else RUNGE_KUTTA[shape.scheme]
        stages = len(tableau.b)
        coefficients = {
            "A": _square(tableau.a, stages),
            "B": np.array(tableau.b),
            "C": np.array(tableau.c),
            "AI": _square(tableau.implicit, stages),
        }
        numbers = {
            "nx": manifold.nx,
            "nd": manifold.ndx,
            "mu": system.nu - (offsets or 0),
            "nu": shape.nu,
            "ne": offsets or 0,
            "np": sum(size for _, size in shape.parameters),
            "nt": sum(term.theta for term in shape.running),
            "ntt": sum(term.theta for term in shape.terminal),
            "npg": _parameters(shape.path),
            "npgt": _parameters(shape.final),
            "ng": sum(c.residual.n_out for c in shape.path),
            "ngt": sum(c.residual.n_out for c in shape.final),
            "n_factors": len(factors),
            "groups": len(curved),
            "matrices": sum(f.nv**2 for f in curved),
            "stages": stages,
            "jump": int(shape.scheme == JUMP),
            "semi_implicit": int(shape.scheme == SEMI_IMPLICIT_EULER),
            "implicit": int(offsets is not None),
        }
        return cls(numbers, coefficients, factors, curved)

    def data(self, lanes: int | None, functions: int, workspace: int, registers: int) -> StructureMemory:
        """Create the struct structure_t, with the memory that it points to; lanes: SIMD width, None for the default.

        functions: address of functions_t. workspace, registers: vectors that the functions and a block of their tapes need.
        """
        factors, curved = (factor_array(part, lanes) for part in (self.factors, self.curved))
        tables = {"factors": ctypes.addressof(factors), "curved": ctypes.addressof(curved)}
        places = {key: address(values) for key, values in self.tableau.items()}
        data = _StructureData(
            functions=functions, workspace=workspace, registers=registers, **tables, **places, **self.numbers
        )
        return StructureMemory(data, (factors, curved, self.tableau))

    def stage_workspace(self, rows: int) -> int:
        """Return the workspace of the stages in vectors, with first derivatives but without the workspace of their functions.

        rows: computed rows of xdot.
        """
        functions = FunctionsData(rows=rows)
        own = self.data(None, ctypes.addressof(functions), 0, 0)
        return int(bound(kernels(), "stage_workspace", "p", ctypes.c_long)(ctypes.addressof(own.data)))

    def source(self, workspace: str) -> str:
        """Return the C source of the constant ``structure``, to be placed after the functions of a phase and structure.h.

        workspace: a C expression.
        """
        groups = [factors_in_c("factors", self.factors), factors_in_c("curved", self.curved)]
        arrays = [f"static const double tableau_{key}[] = {{{_list(values)}}};" for key, values in self.tableau.items()]
        members = {
            "functions": "&stage_functions",
            "factors": "factors",
            "curved": "curved",
            **{key: f"tableau_{key}" for key in self.tableau},
            "workspace": workspace,
            **self.numbers,
        }
        fields = ", ".join(f".{key} = {value}" for key, value in members.items())
        return "\n".join([*groups, *arrays, f"static const structure_t structure = {{{fields}}};"])

    def groups_source(self) -> str:
        """Return the C source of the curved Lie groups of the manifold, to be placed before a phase's functions and structure.h."""
        return "\n".join(groups_source(dict.fromkeys(f.group for f in self.curved)))


class StructureMemory(NamedTuple):
    """Struct structure_t, and the memory that it points to."""

    data: Any
    memory: Any


def _square(rows: Any, n: int) -> Array:
    """Return the matrix (n, n) of the rows of a strictly lower triangle, with zeros elsewhere."""
    return np.array([[*row, *[0.0] * (n - len(row))] for row in rows])


def _parameters(constraints: Any) -> int:
    """Return the number of parameters of all constraints."""
    return sum(size for c in constraints for _, size in c.parameters)


def _list(values: Array) -> str:
    """Return the entries of an array as a comma-separated list of C constants."""
    return ", ".join(constant(x) for x in values.ravel().tolist())
