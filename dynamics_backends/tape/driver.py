"""Driver of the package's library for rigid-body programs; it needs no compiler.

Loops that serve all robots evaluate float64 arrays.  Tapes evaluate complex and dual numbers, and the programs that the library
does not contain: the program is unrolled for the robot and traced, for complex and dual numbers on pairs (re, im) or (value,
tangent), for all knots and directions.  NumPy rows evaluate programs without a tape, among them those that are too large for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.emit.pairs import ALGEBRAS, on_pairs
from dynamics_backends.compiled.loops.kernel import library_kernel
from dynamics_backends.compiled.loops.kernel_data import (
    algebra_of,
    arrays_of,
    batch_first,
    field_of,
    named,
    shapes_of,
    value_of,
)
from dynamics_backends.compiled.loops.unrolled import argument_sizes, unrolled_trace
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes import drivers, passes
from dynamics_backends.rigid_body.passes.passes import FIELDS, Axis, Program
from dynamics_backends.rigid_body.spatial.spatial import Struct, leaves
from dynamics_backends.scalars.dual import Dual
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape

UP_TO_DOFS, UP_TO_NUMBERS = 40, 30_000
"""Maximum number of DoFs, and of components of all results at a knot, for a tape: larger programs take seconds to trace."""
Evaluate = Callable[..., list[np.ndarray]]
"""Function from arrays (N, n), one for each argument of a program, to arrays (N, *shape), one for each result."""


class LibraryDriver:
    """Driver that evaluates programs by loops of the library and by tapes, cached by model, else by :func:`.drivers.run`."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Model, dict[tuple[str, str], Evaluate | None]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Pickle as a new driver without cached kernels."""
        return LibraryDriver, ()  # kernels belong to a process

    def __structure__(self) -> tuple[()]:
        """Empty structure: fingerprints of maps contain the class of the driver, but not its caches."""
        return ()  # the results of a map do not depend on the driver

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a program: for real arrays by the library's loop, or else a tape; for complex or dual arrays by a tape.

        :func:`.drivers.run` evaluates the rest, by NumPy or, for symbols, unrolled: other numbers, complex and dual numbers in
        programs with linear algebra other than sums on a diagonal, and programs with neither loop nor tape (:func:`has_tape`).
        """
        values = [arguments[name] for name in program.arguments]
        algebra = algebra_of(program, values)
        evaluate = None if algebra is None else self._evaluator(program, model, algebra)
        if evaluate is None:
            return drivers.run(program, model, arguments)
        if algebra == "dual":
            return _dual(evaluate, program, model, values)
        results = evaluate(*arrays_of(values, complex if algebra == "complex" else float))
        return named(program, model, [r.view(complex)[..., 0] for r in results] if algebra == "complex" else results)

    def _evaluator(self, program: Program, model: Model, algebra: str) -> Evaluate | None:
        """Cached function from arrays (N, n) to the results of a program, for a model and a number type.

        algebra: "real", "complex" or "dual". The function is the library's kernel for real numbers, else ``rows`` of a tape; None
        if the program has neither.
        """
        known, key = self._known.setdefault(model, {}), (program.name, algebra)
        if key not in known:
            kernel = library_kernel(program, model) if algebra == "real" else None
            tape = program_tape(program, model, algebra) if kernel is None and has_tape(program, model) else None
            known[key] = kernel if tape is None else tape.rows
        return known[key]


def has_tape(program: Program, model: Model) -> bool:
    """True if a program is small enough for a tape (UP_TO_DOFS, UP_TO_NUMBERS), and no result is the factor of a mass matrix."""
    if model.nv > UP_TO_DOFS or any(FIELDS[o].axis is Axis.WHOLE for o in program.outputs):
        return False
    return sum(map(math.prod, shapes_of(program, model))) <= UP_TO_NUMBERS


def program_tape(program: Program, model: Model, algebra: str = "real") -> Tape:
    """Tape of a program, unrolled for one model. algebra: number type, "real", "complex" or "dual".

    Unless it is "real", all inputs and outputs alternate first and second numbers: (re, im) or (value, tangent).
    """
    pair, sizes, shapes = ALGEBRAS[algebra], argument_sizes(program, model), shapes_of(program, model)
    with tracing:
        t = unrolled_trace(program, model)
        if pair is None:
            return Tape.of(t, sizes, shapes)
        lengths = [2 * n for n in sizes]
        return Tape.of(on_pairs(t, pair, [True] * len(sizes), lengths), lengths, [(*shape, 2) for shape in shapes])


def _dual(evaluate: Evaluate, program: Program, model: Model, values: list[Any]) -> dict[str, Any]:
    """Fields of a program for dual arguments, some of which may be plain arrays; all results are dual.

    ``evaluate`` takes pairs (value, tangent): it evaluates every knot once for each direction.
    """
    duals = [leaf for v in values for leaf in leaves(v) if isinstance(leaf, Dual)]
    k, n = duals[0].directions, duals[0].shape[-1]
    arrays = []
    for v in values:
        pair = np.zeros((n, k, _width(v), 2))
        pair[..., 0] = batch_first(_mapped(v, value_of))[:, None, :]
        pair[..., 1] = np.moveaxis(batch_first(_mapped(v, lambda leaf: _tangent(leaf, k))), 1, 2)
        arrays.append(pair.reshape(n * k, -1))
    shaped = [r.reshape(n, k, *r.shape[1:]) for r in evaluate(*arrays)]
    return {
        o: field_of(o, model, Dual(np.moveaxis(r[:, 0, ..., 0], 0, -1), np.moveaxis(r[..., 1], (0, 1), (-2, -1))))
        for o, r in zip(program.outputs, shaped, strict=True)
    }


def _width(value: Any) -> int:
    """Number of components at one knot of an argument: an array (n, N), or a struct with leaves (nb, N)."""
    first = leaves(value)
    return len(first) * first[0].shape[0]


def _mapped(value: Any, function: Any) -> Any:
    """Apply a function to an array, or to every leaf of a struct."""
    if not isinstance(value, Struct):
        return function(value)
    return passes.mapped(value, function)


def _tangent(leaf: Any, directions: int) -> np.ndarray:
    """Tangents (n, N, directions) of a dual array (n, N); zeros of that shape for a plain array."""
    return leaf.tan if isinstance(leaf, Dual) else np.zeros((*leaf.shape, directions))
