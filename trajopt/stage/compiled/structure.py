"""Structure of a phase in C: sizes, factors of the manifold and integration scheme, the struct structure_t of
kernels/structure.h.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.emit.emit import constant
from dynamics_backends.compiled.loops.kernel import kernel_text, template
from dynamics_backends.compiled.runtime.memory import address, bound, structs_in
from dynamics_backends.compiled.sources.manifold_source import (
    Factor,
    factor_array,
    factors_in_c,
    factors_of,
    groups_source,
)
from dynamics_backends.machine.library import kernels
from dynamics_backends.protocol import Array, Map, damping_offsets
from trajopt.problem.impact_stage import JUMP
from trajopt.stage.source.term_source import StageShape
from trajopt.step.integrators import EULER, RUNGE_KUTTA, SEMI_IMPLICIT_EULER

_StructureData, FunctionsData = structs_in(
    "\n".join([template("lanes/function.h"), kernel_text("trajopt.stage", "functions.h", "structure.h")]),
    "structure_t",
    "functions_t",
)


class Structure(NamedTuple):
    """Structure of a phase, for the C struct structure_t.

    numbers: its int members (sizes and flags) by name. tableau: Runge-Kutta coefficients A, B, C, and AI of implicit damping.
    factors: of the manifold. curved: those of them in which x (+) d is not a sum.
    """

    numbers: dict[str, int]
    tableau: dict[str, Array]
    factors: list[Factor]
    curved: list[Factor]

    @classmethod
    def of(cls, system: Map, shape: StageShape) -> Structure:
        """Return the structure of a phase.

        system: map that its time steps evaluate. shape: integration scheme, parameters, controls, terms and constraints. Jumps
        and the semi-implicit Euler method have the tableau of the Euler method. Raises KeyError for an unknown scheme.
        """
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

    def data(self, functions: int, workspace: int, registers: int) -> StructureMemory:
        """Create the struct structure_t, with the arrays of factors and coefficients that it points to.

        functions: address of a struct functions_t, which the caller must keep alive. workspace: vectors of workspace that the
        functions need, at any number of blocks. registers: vectors that functions for several blocks need for each block.
        """
        factors, curved = map(factor_array, (self.factors, self.curved))
        tables = {"factors": ctypes.addressof(factors), "curved": ctypes.addressof(curved)}
        places = {key: address(values) for key, values in self.tableau.items()}
        data = _StructureData(
            functions=functions, workspace=workspace, registers=registers, **tables, **places, **self.numbers
        )
        return StructureMemory(data, (factors, curved, self.tableau))

    def stage_workspace(self, rows: int) -> int:
        """Return the vectors of workspace that values and first derivatives of the stages need, for one block of knots.

        The workspace of the functions of dynamics, terms and constraints is not included, nor memory for contact forces and for
        second derivatives of path constraints. rows: the functions of the dynamics compute the last ``rows`` rows of xdot.
        """
        functions = FunctionsData(rows=rows)
        own = self.data(ctypes.addressof(functions), 0, 0)
        return int(bound(kernels(), "stage_workspace", "p", ctypes.c_long)(ctypes.addressof(own.data)))

    def source(self, workspace: str) -> str:
        """Return the C source of the constant ``structure`` (structure_t) and of the arrays that it points to.

        It must follow :meth:`groups_source`, structure.h, and the constant ``stage_functions`` (functions_t). workspace: C
        expression of the member ``workspace``; the member ``registers`` is 0.
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
        """Return the C source of groups.h and of the functions of each curved Lie group of the manifold.

        It must precede structure.h and the functions of a phase.
        """
        return "\n".join(groups_source(dict.fromkeys(f.group for f in self.curved)))


class StructureMemory(NamedTuple):
    """Struct structure_t (``data``), and the arrays of factors and coefficients that it points to (``memory``).

    Its functions_t is not included.
    """

    data: Any
    memory: Any


def _square(rows: Any, n: int) -> Array:
    """Return the matrix (n, n) of n rows, each of at most n entries, with zeros behind them."""
    return np.array([[*row, *[0.0] * (n - len(row))] for row in rows])


def _parameters(constraints: Any) -> int:
    """Return the total number of components of the parameters of all constraints."""
    return sum(size for c in constraints for _, size in c.parameters)


def _list(values: Array) -> str:
    """Return the entries of an array, by rows, as a comma-separated list of C constants."""
    return ", ".join(constant(x) for x in values.ravel().tolist())
