"""Evaluation of maps on CasADi symbols, for CasADi's AD and for straight-line code.

Parameters and time are symbols too, so that their values are inputs of the resulting code. The kinematics of a frame of a robot are
traced once to one straight-line expression (:func:`traced_kinematics`), which for small batches is about twenty times as fast as
the recursion on arrays, with the same numbers.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array, FunctionMap, Map, innermost
from dynamics_backends.rigid_body.algorithms.kinematics import FrameKinematics, frame_kinematics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.user_function import described, user_code_line
from dynamics_backends.symbols import ca

_REMEDY = (
    "write it with arithmetic, indexing and functions of trajopt, such as to.sqrt and to.select (instead of if); "
    "until then it is evaluated in NumPy"
)


class TraceError(TypeError):
    """A map's function cannot be written as an expression; the message names the function, the line and the remedy.

    logged: True if the log already contains the message.
    """

    def __init__(self, why: str, logged: bool = False) -> None:
        super().__init__(why)
        self.logged = logged

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.logged)


@dataclass(frozen=True)
class Symbols:
    """SX columns for the arguments of a map: x (nx), u (nu), t (1) and each parameter."""

    x: Any
    u: Any
    t: Any
    p: dict[str, Any]

    @classmethod
    def of(cls, map: Map, sizes: Mapping[str, int]) -> Symbols:
        """Create symbols for a map with parameters of these sizes."""
        p = {name: ca.SX.sym(f"p{i}", n) for i, (name, n) in enumerate(sizes.items())}
        return cls(ca.SX.sym("x", map.manifold.nx), ca.SX.sym("u", map.nu), ca.SX.sym("t"), p)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.u, self.t, *self.p.values()))

    @property
    def names(self) -> list[str]:
        """Valid C name of each symbol."""
        return ["x", "u", "t", *(f"p{i}" for i in range(len(self.p)))]


def symbolic_value(map: Map, x: Any, u: Any, t: Any, p: Mapping[str, Any]) -> Any:
    """Value of the map as one SX column (n_out).

    Raises TraceError if the map's function does not work on symbols or its value contains NaN, LookupError for a missing parameter
    or component, ValueError if it returns another number of rows.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # CasADi's, for numpy functions: dual numbers have none
            rows = map(x, u, t, p)
        value = ca.densify(ca.vertcat(*rows) if isinstance(rows, (list, tuple)) else ca.SX(rows))
    except LookupError:  # a missing parameter or component fails with any scalar
        raise
    except Exception as error:
        own = innermost(map)
        why = own.called.why if isinstance(own, FunctionMap) else ""
        raise (TraceError(why, logged=True) if why else refusal(map, complaint(error, own))) from error
    if value.shape != (map.n_out, 1):
        raise ValueError(f"{description(map)} returned {value.numel()} rows; expected n_out = {map.n_out}")
    if _has_nan(value):
        raise refusal(map, "it turns a symbol into a float")
    return value


def description(map: Map) -> str:
    """Description of a map for messages: the function with its file and line, or the class."""
    map = innermost(map)
    return described(map.function) if isinstance(map, FunctionMap) else type(map).__name__


def refusal(map: Map, why: str) -> TraceError:
    """Return (not raise) the error for a map that cannot be traced."""
    return TraceError(f"{description(map)} cannot be traced with symbols: {why}; {_REMEDY}")


def complaint(error: Exception, map: Map) -> str:
    """Last line of an error's message, without CasADi's source position, and the line of user code that raised it.

    The message of a FutureWarning, which CasADi gives for numpy functions, is replaced by "a numpy function is called".
    """
    where = user_code_line(error, map.function if isinstance(map, FunctionMap) else map)
    if isinstance(error, FutureWarning):
        return f"a numpy function is called{where}"
    message = str(error).strip() or type(error).__name__
    return re.sub(r"^\S*\.cpp:\d+: ", "", message.splitlines()[-1]).rstrip(".") + where


def _has_nan(value: Any) -> bool:
    """True if an expression contains the constant NaN."""
    f = ca.Function("value", [], [value], {"allow_free": True})
    constants = (k for k in range(f.n_instructions()) if f.instruction_id(k) == ca.OP_CONST)
    return any(f.instruction_constant(k) != f.instruction_constant(k) for k in constants)


CACHE_SIZE = 32
"""Number of cached frame expressions."""


@lru_cache(maxsize=CACHE_SIZE)
def traced_kinematics(model: Model, frame: int) -> Callable[[Array], FrameKinematics]:
    """Return the function q (nq, N) -> :class:`FrameKinematics` of a robot's frame, as one traced expression; cached."""
    import casadi as ca

    size = 12 + 6 * model.nv
    map = FunctionMap(partial(_rows, model, frame), Manifold.vector(model.nq), 0, size)
    symbols = Symbols.of(map, {})
    function = ca.Function("kinematics", [symbols.x], [symbolic_value(map, symbols.x, symbols.u, symbols.t, symbols.p)])

    def evaluate(q: Array) -> FrameKinematics:
        """Rotation, position and Jacobian of the frame at q (nq, N)."""
        values = np.asarray(function(q))
        return FrameKinematics([list(values[3 * i : 3 * i + 3]) for i in range(3)], values[9:12], values[12:])

    return evaluate


def _rows(model: Model, frame: int, q: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    """Rotation (9), position (3) and Jacobian (6 nv) of a frame as one list."""
    at = frame_kinematics(model, q, frame)
    rotation = [component for row in at.rotation for component in row]
    return [*rotation, *(at.position[i] for i in range(3)), *(at.jacobian[i] for i in range(6 * model.nv))]
