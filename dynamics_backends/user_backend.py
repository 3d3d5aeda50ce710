"""User-defined backends: values and first derivatives of batches of numbers, computed by any code.

A user's object has ``f(x, u, t, p)`` and ``jacobians(x, u, t, p)``, and optionally ``hessian_contraction(x, u, t, p, lam)`` for
second derivatives. Shapes are those of :class:`~dynamics_backends.protocol.DynamicsBackend`. Its attributes ``manifold`` (a
manifold, or the number of states) and ``nu`` are its sizes; if one is missing, both are those of its system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dynamics_backends.manifold import as_manifold
from dynamics_backends.protocol import (
    Array,
    Batch,
    Hessians,
    Jacobians,
    Map,
    MissingCapability,
    Parameters,
)
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.user_function import locked

SIZES = ("manifold", "nu")


class ValueMap:
    """Map of a user-defined backend: values at numbers only, by its ``f``.

    name: of the backend, for messages. values: its ``f``. like: object whose manifold, nu and, where it has them, n_out, names and
    second_order are those of the map.
    """

    generic = False
    """False: the map has values at real numbers only; it is not traced, and only finite differences differentiate it."""

    def __init__(self, name: str, values: Callable[..., Any], like: Any) -> None:
        self.name, self.values = name, values
        self.manifold = as_manifold(like.manifold)
        if not isinstance(like.nu, (int, np.integer)):
            raise TypeError(f"backend {name}: nu is {like.nu!r}; expected the number of controls")
        self.nu = int(like.nu)
        self.n_out = int(getattr(like, "n_out", self.manifold.ndx))
        self.second_order = bool(getattr(like, "second_order", False))
        rates = tuple(f"d {name}/dt" for name in self.manifold.tangent_names)
        outputs = rates if self.n_out == self.manifold.ndx else tuple(f"f[{i}]" for i in range(self.n_out))
        self.output_names: tuple[str, ...] = tuple(getattr(like, "output_names", outputs))
        self.control_names: tuple[str, ...] = tuple(getattr(like, "control_names", (f"u[{i}]" for i in range(self.nu))))

    def __repr__(self) -> str:
        return f"ValueMap({self.name}: nx = {self.manifold.nx}, nu = {self.nu}, n_out = {self.n_out})"

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) of the value, for rows of real floating-point numbers. Raises MissingCapability for other scalars."""
        x, u, t = np.asarray(x), np.asarray(u), np.asarray(t)
        parts = {key: np.asarray(rows) for key, rows in p.items()}
        if not all(part.dtype.kind == "f" or not part.size for part in (x, u, t, *parts.values())):
            raise MissingCapability(
                f"the backend {self.name} has values at numbers only: no other method can trace or differentiate its dynamics"
            )
        n = x.shape[1]
        return self.at(
            Batch(x, u.reshape(self.nu, n), np.broadcast_to(t, (n,)), {k: _wide(v, n) for k, v in parts.items()})
        ).T

    def at(self, b: Batch) -> Array:
        """Value (N, n_out) by the user's ``f``. Raises ValueError for another shape."""
        return shaped(self.name, "f", self.values(*batch_first(b)), (b.size, self.n_out))


class UserBackend:
    """User-defined backend with the interface that solvers use, evaluated by the user's code. own: the user's object."""

    engine = "numpy"

    def __init__(
        self, own: Any, map: ValueMap, name: str, options: Mapping[str, Any], system: Map | None = None
    ) -> None:
        self.own, self.name, self.options = own, name, options
        self.system = system
        """System that the backend was made for, which other backends can differentiate; or None."""
        self.map: Map = map
        self._values = map

    def __repr__(self) -> str:
        return f"Backend({self.name!r}, {self.own!r})"

    def f(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Array:
        """Value (N, n_out) of the map."""
        return self._values.at(Batch.of(self.map, x, u, t, p))

    def jacobians(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Jacobians:
        """Value (N, n_out), fx (N, n_out, ndx), fu (N, n_out, nu) by the user's ``jacobians``.

        Raises ValueError unless it returns a tuple of three arrays, or nested lists, of these shapes.
        """
        b = Batch.of(self.map, x, u, t, p)
        return self._jacobians(self.own.jacobians(*batch_first(b)), b.size, "jacobians")

    def _jacobians(self, found: Sequence[Any], n: int, what: str) -> Jacobians:
        """Jacobians of N = n knots from the user's tuple (value, fx, fu). Raises ValueError for other results or shapes."""
        if not isinstance(found, tuple) or len(found) != 3:
            raise ValueError(f"backend {self.name}: {what} returned {_kind(found)}; expected (value, fx, fu)")
        m = self.map.n_out
        shapes = ((n, m), (n, m, self.map.manifold.ndx), (n, m, self.map.nu))
        parts = (
            shaped(self.name, f"{name} of {what}", part, shape)
            for name, part, shape in zip(("the value", "fx", "fu"), found, shapes, strict=True)
        )
        return Jacobians(*parts)


class UserSecondOrderBackend(UserBackend):
    """User-defined backend with second derivatives."""

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """First derivatives, and the second derivatives of lam' f for lam (N, n_out). Raises ValueError for wrong shapes."""
        b = Batch.of(self.map, x, u, t, p)
        found, what = self.own.hessian_contraction(*batch_first(b), np.asarray(lam, float)), "hessian_contraction"
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], tuple) and len(found[1]) == 3):
            raise ValueError(
                f"backend {self.name}: {what} returned {_kind(found)}; expected ((value, fx, fu), (xx, ux, uu))"
            )
        first, second = found
        n, ndx, nu = b.size, self.map.manifold.ndx, self.map.nu
        shapes = zip(("xx", "ux", "uu"), second, ((n, ndx, ndx), (n, nu, ndx), (n, nu, nu)), strict=True)
        hessians = Hessians(*(shaped(self.name, f"{name} of {what}", part, shape) for name, part, shape in shapes))
        return self._jacobians(first, n, what), hessians


def is_user_backend(given: Any) -> bool:
    """True for an object with the methods ``f`` and ``jacobians`` of a user-defined backend."""
    return callable(getattr(given, "f", None)) and callable(getattr(given, "jacobians", None))


def wrap_user_backend(
    given: Any, like: Map | None = None, name: str = "", options: Mapping[str, Any] | None = None
) -> UserBackend:
    """Wrap a user-defined backend in the interface that solvers use, with second derivatives if it has ``hessian_contraction``.

    like: the system that it was made for, or None. Sizes and names are those of the backend if it has ``manifold`` and ``nu``, else
    of ``like``, else of its attribute ``map``. name: for messages and reports; default its ``name`` or its class.

    Raises TypeError for an object without ``f`` and ``jacobians``, without sizes, or with sizes of other types.
    """
    name = name or str(getattr(given, "name", type(given).__name__))
    if not is_user_backend(given):
        raise TypeError(
            f"backend {name}: expected an object with f(x, u, t, p) and jacobians(x, u, t, p), got {_kind(given)}"
        )
    sizes = given if all(hasattr(given, key) for key in SIZES) else like or getattr(given, "map", None)
    if sizes is None:
        missing = ", ".join(key for key in SIZES if not hasattr(given, key))
        raise TypeError(
            f"backend {name} does not define its sizes: give {type(given).__name__} the attributes manifold (a trajopt.Manifold, "
            f"or the number of states) and nu; missing: {missing}"
        )
    second = callable(getattr(given, "hessian_contraction", None))
    return (UserSecondOrderBackend if second else UserBackend)(
        given, ValueMap(name, given.f, sizes), name, dict(options or {}), like
    )


def _wide(rows: Array, n: int) -> Array:
    """Rows (m, n) of a parameter (m, n), (m, 1) or (m,); the last two are repeated over the n points."""
    return np.broadcast_to(rows, (len(rows), n)) if rows.ndim == 2 else np.repeat(rows[:, None], n, axis=1)


def batch_first(b: Batch) -> tuple[Array, Array, Array, dict[str, Array]]:
    """Arguments x (N, nx), u (N, nu), t (N,), p name -> (N, n), contiguous and read-only: they are the solver's."""
    x, u = (locked(np.ascontiguousarray(part.T)) for part in (b.x, b.u))
    return x, u, np.array(b.t), {key: locked(np.ascontiguousarray(rows.T)) for key, rows in b.p.items()}


def shaped(backend: str, what: str, value: Any, shape: tuple[int, ...]) -> Array:
    """Copy a returned array, which the user's code may overwrite in its next call, as float64.

    Raises ValueError for another shape or elements that are not numbers.
    """
    try:
        if value is None:
            raise TypeError
        array = np.array(value, dtype=float, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"backend {backend}: {what} is {_kind(value)}; expected an array of shape {shape}") from error
    if array.shape != shape:
        raise ValueError(f"backend {backend}: {what} has shape {array.shape}; expected {shape}")
    return array


def _kind(value: Any) -> str:
    """Type of a value for messages, such as "a list"."""
    return f"a {type(value).__name__}"
